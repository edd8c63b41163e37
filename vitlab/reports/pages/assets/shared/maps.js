/* Maps of attention: their values, canvases in shades, a cursor at one place of a picture and of its maps, a slider over layers. */
"use strict";
const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
/* Rows of values, one after the other, each in 255ths of its largest: what `quantize` of attention.py packed. */
function unpacked({ levels, largest }) {
  const [all, most] = [bytes(levels), new Float32Array(bytes(largest).buffer)];
  const width = all.length / most.length;
  return Float32Array.from(all, (level, i) => level * most[Math.floor(i / width)] / 255);
}
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
function span(className, style, textContent = "") {
  const element = Object.assign(document.createElement("span"), { className, textContent });
  element.style.cssText = style;
  return element;
}
const within = (place, count) => Math.max(0, Math.min(count - 1, place));

/* In the shades of a table of 256 colours; without one in the theme's first accent, whose opacity grows with the value. */
const mapsView = (shades, say) => {
  const table = shades && bytes(shades);
  let current = null; // {box, at: [y, x]}: shares of the picture's height and width

  const number = (value) => value.toPrecision(3);
  const largest = (values) => values.reduce((a, b) => Math.max(a, b), 0);
  const cellAt = (at, grid) => at.map((share, side) => within(Math.floor(share * grid[side]), grid[side]));

  /* Values row by row; `most` has the last shade. */
  function paint(canvas, values, [rows, columns], most) {
    const accent = table ? null : getComputedStyle(canvas).getPropertyValue("--vit").match(/\w\w/g).map((hex) => parseInt(hex, 16));
    canvas.width = columns;
    canvas.height = rows;
    const pen = canvas.getContext("2d");
    const image = pen.createImageData(columns, rows);
    values.forEach((value, i) => {
      const level = most > 0 ? Math.min(255, Math.round(255 * value / most)) : 0;
      image.data.set(table ? [...table.subarray(3 * level, 3 * level + 3), 255] : [...accent, level], 4 * i);
    });
    pen.putImageData(image, 0, 0);
  }

  /* The cursor again, after the maps have changed. */
  function show() {
    document.querySelectorAll(".cursor").forEach((cursor) => cursor.remove());
    if (!current?.box.isConnected) { say(""); return; }
    const { box, at, gridOf, words } = current;
    for (const tile of box.querySelectorAll(".tile")) {
      const [rows, columns] = gridOf(tile);
      const [row, column] = cellAt(at, [rows, columns]);
      tile.append(span("cursor", `left:${100 * column / columns}%;top:${100 * row / rows}%;width:${100 / columns}%;height:${100 / rows}%`));
    }
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
    box.addEventListener("focus", () => { if (box.matches(":focus-visible") && current?.box !== box) goTo([0, 0]); });
    box.addEventListener("blur", forget);
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") forget();
      if (!(event.key in STEPS)) return;
      event.preventDefault();
      const grid = gridOf(box.querySelector(".tile"));
      const cell = cellAt(current?.box === box ? current.at : [0, 0], grid);
      goTo(cell.map((place, side) => (within(place + STEPS[event.key][side], grid[side]) + 0.5) / grid[side]));
    });
  }
  return { paint, follow, show, largest, number };
};

/* The slider over layers: `words(step)` names what it shows, to be read and to be heard, `changed(step)` shows it. */
const layerSlider = (words, changed) => {
  const input = document.getElementById("layer");
  const step = () => Number(input.value);
  function show() {
    const text = words(step());
    input.setAttribute("aria-valuetext", text);
    document.querySelectorAll(".said").forEach((place) => { place.textContent = text; });
    changed(step());
  }
  input.addEventListener("input", show);
  /* Over so many layers: at the last, unless it stood at one that is still there. */
  function over(most) {
    const last = input.value === input.max;
    input.max = most;
    input.disabled = most < 2;
    if (last) input.value = most;
    show();
  }
  return { step, show, over };
};
