/* One head as a heat map: a row per query, a column per key. */
"use strict";
const mapView = (page) => {
  const map = document.getElementById("map");
  const box = document.getElementById("map-scroll");
  const FONT = "13px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";
  const GAP = 6; // pixels between a name and its cells
  let cell = null; // {query, key} that is pointed at
  let left = 0; // pixels: the room of the names, beside the cells and above them
  let side = 0; // pixels: of a cell

  const forget = () => { cell = null; };

  function draw() {
    const [down, along] = [page.queries().length, page.keys().length];
    let pen = page.surface(map, 1, 1);
    pen.font = FONT;
    const room = box.clientWidth;
    const longest = Math.max(...[...page.queries(), ...page.keys()].map((token) => pen.measureText(token).width));
    left = Math.ceil(Math.min(longest, room < 600 ? 84 : 140)) + 2 * GAP;
    side = Math.max(15, Math.min(30, Math.floor((room - left - 2) / along)));
    const [width, height] = [along, down].map((cells) => left + side * cells + 2);
    map.style.width = `${width}px`;
    map.style.height = `${height}px`;
    pen = page.surface(map, width, height);
    drawNames(pen);
    drawCells(pen);
    if (!cell) return;
    pen.strokeStyle = page.colour("ink");
    pen.lineWidth = 2;
    pen.strokeRect(left + cell.key * side, left + cell.query * side, side, side);
  }

  function drawNames(pen) {
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.fillStyle = page.colour("ink");
    const middle = (place) => left + (place + 0.5) * side;
    pen.textAlign = "right";
    page.queries().forEach((token, place) => pen.fillText(fitted(pen, token, left - 2 * GAP), left - GAP, middle(place)));
    pen.textAlign = "left";
    page.keys().forEach((token, place) => {
      pen.save();
      pen.translate(middle(place), left - GAP);
      pen.rotate(-Math.PI / 2);
      pen.fillText(fitted(pen, token, left - 2 * GAP), 0, 0);
      pen.restore();
    });
  }

  function drawCells(pen) {
    const [down, along] = [page.queries().length, page.keys().length];
    const values = page.weights();
    for (let query = 0; query < down; query += 1) {
      for (let key = 0; key < along; key += 1) {
        pen.fillStyle = page.colour("vit", Math.min(1, values[query * along + key]));
        pen.fillRect(left + key * side, left + query * side, side, side);
      }
    }
    pen.strokeStyle = page.colour("grid");
    pen.strokeRect(left - 0.5, left - 0.5, along * side + 1, down * side + 1);
    pen.strokeStyle = page.colour("muted");
    for (let place = 1; place < along; place += 1) {
      if (!page.isBoundary(place)) continue;
      const at = left + place * side + 0.5;
      pen.beginPath();
      pen.moveTo(left, at);
      pen.lineTo(left + along * side, at);
      pen.moveTo(at, left);
      pen.lineTo(at, left + down * side);
      pen.stroke();
    }
  }

  function fitted(pen, token, width) {
    if (pen.measureText(token).width <= width) return token;
    const letters = [...token];
    while (letters.length > 1 && pen.measureText(`${letters.join("")}\u2026`).width > width) letters.pop();
    return `${letters.join("")}\u2026`;
  }

  function goTo(query, key) {
    if (cell && cell.query === query && cell.key === key) return;
    cell = { query, key };
    show();
  }
  map.addEventListener("pointermove", (event) => {
    const [key, query] = [event.offsetX, event.offsetY].map((at) => Math.floor((at - left) / side));
    if (key >= 0 && key < page.keys().length && query >= 0 && query < page.queries().length) goTo(query, key);
  });
  map.addEventListener("focus", () => { if (!cell) goTo(0, 0); });
  map.addEventListener("keydown", (event) => {
    const step = page.steps[event.key];
    if (!step || !cell) return;
    event.preventDefault();
    const inside = (place, tokens) => Math.max(0, Math.min(tokens.length - 1, place));
    goTo(inside(cell.query + step[0], page.queries()), inside(cell.key + step[1], page.keys()));
  });

  function words() {
    if (!cell) return "Point at a cell for its weight.";
    const { query, key } = cell;
    const value = page.weights()[query * page.keys().length + key].toFixed(3);
    return `\u201c${page.queries()[query]}\u201d (${query + 1}) gives \u201c${page.keys()[key]}\u201d (${key + 1}) ${value}`;
  }

  function show() {
    draw();
    page.say(words());
  }
  return { show, forget };
};
