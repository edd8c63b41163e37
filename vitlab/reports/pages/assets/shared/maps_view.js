/* Maps as small pictures in the shades of the legend, and a cursor that is at one place of a picture and of its maps. */
"use strict";
const mapsView = (shades, say) => {
  const table = bytes(shades);
  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  let current = null; // {box, at: [y, x]}: shares of the picture's height and width

  const number = (value) => value.toPrecision(2);
  const largest = (values) => values.reduce((a, b) => Math.max(a, b), 0);
  const cellAt = (at, grid) => at.map((share, side) => Math.min(grid[side] - 1, Math.floor(share * grid[side])));

  /* Values row by row; `most` has the last shade. */
  function paint(canvas, values, [rows, columns], most) {
    canvas.width = columns;
    canvas.height = rows;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(columns, rows);
    values.forEach((value, i) => {
      const level = most > 0 ? Math.min(255, Math.round(255 * value / most)) : 0;
      image.data.set([...table.subarray(3 * level, 3 * level + 3), 255], 4 * i);
    });
    pen.putImageData(image, 0, 0);
  }

  function mark(tile, at, [rows, columns]) {
    const [row, column] = cellAt(at, [rows, columns]);
    const cursor = document.createElement("span");
    cursor.className = "cursor";
    cursor.style.cssText = `left:${100 * column / columns}%;top:${100 * row / rows}%;width:${100 / columns}%;height:${100 / rows}%`;
    tile.append(cursor);
  }

  function clear() {
    document.querySelectorAll(".cursor").forEach((cursor) => cursor.remove());
  }

  /* The cursor again, after the maps have changed. */
  function show() {
    clear();
    if (!current || !current.box.isConnected) { say(""); return; }
    const { box, at, gridOf, words } = current;
    for (const tile of box.querySelectorAll(".tile")) mark(tile, at, gridOf(tile));
    say(words((grid) => cellAt(at, grid)));
  }

  /* `gridOf(tile)` gives its rows and columns, of the picture itself those to step by; `words(cell)` what is at a place. */
  function follow(box, gridOf, words) {
    const goTo = (at) => { current = { box, at, gridOf, words }; show(); };
    const forget = () => { if (current?.box === box) { current = null; show(); } };
    box.addEventListener("pointermove", (event) => {
      const tile = event.target.closest(".tile");
      if (!tile) return;
      const { left, top, width, height } = tile.getBoundingClientRect();
      const at = [(event.clientY - top) / height, (event.clientX - left) / width];
      if (at.every((share) => share >= 0 && share < 1)) goTo(at);
    });
    box.addEventListener("pointerleave", () => { if (document.activeElement !== box) forget(); });
    box.addEventListener("focus", () => {
      if (box.matches(":focus-visible") && current?.box !== box) goTo([0, 0]);
    });
    box.addEventListener("blur", forget);
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") forget();
      const step = STEPS[event.key];
      if (!step) return;
      event.preventDefault();
      const grid = gridOf(box.querySelector(".tile"));
      const cell = cellAt(current?.box === box ? current.at : [0, 0], grid);
      goTo(cell.map((place, side) => (Math.max(0, Math.min(grid[side] - 1, place + step[side])) + 0.5) / grid[side]));
    });
  }
  return { paint, follow, show, largest, number };
};
