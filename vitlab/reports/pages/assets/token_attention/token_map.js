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
    const n = page.count();
    let pen = page.surface(map, 1, 1);
    pen.font = FONT;
    const room = box.clientWidth;
    const longest = Math.max(...page.tokens().map((token) => pen.measureText(token).width));
    left = Math.ceil(Math.min(longest, room < 600 ? 84 : 140)) + 2 * GAP;
    side = Math.max(15, Math.min(30, Math.floor((room - left - 2) / n)));
    const extent = left + side * n + 2;
    map.style.width = map.style.height = `${extent}px`;
    pen = page.surface(map, extent, extent);
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
    page.tokens().forEach((token, place) => {
      const name = fitted(pen, token, left - 2 * GAP);
      const middle = left + (place + 0.5) * side;
      pen.textAlign = "right";
      pen.fillText(name, left - GAP, middle);
      pen.save();
      pen.translate(middle, left - GAP);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(name, 0, 0);
      pen.restore();
    });
  }

  function drawCells(pen) {
    const n = page.count();
    const values = page.weights();
    const largest = page.scale(values);
    for (let query = 0; query < n; query += 1) {
      for (let key = 0; key < n; key += 1) {
        const shown = page.shows(query, key);
        pen.fillStyle = shown ? page.colour("vit", Math.min(1, values[query * n + key] / largest)) : page.colour("grid", 0.6);
        pen.fillRect(left + key * side, left + query * side, side, side);
      }
    }
    pen.strokeStyle = page.colour("grid");
    pen.strokeRect(left - 0.5, left - 0.5, n * side + 1, n * side + 1);
    pen.strokeStyle = page.colour("muted");
    for (let place = 1; place < n; place += 1) {
      if (page.letter(place) === page.letter(place - 1)) continue;
      const at = left + place * side + 0.5;
      pen.beginPath();
      pen.moveTo(left, at);
      pen.lineTo(left + n * side, at);
      pen.moveTo(at, left);
      pen.lineTo(at, left + n * side);
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
    draw();
    page.say(words());
  }
  map.addEventListener("pointermove", (event) => {
    const [key, query] = [event.offsetX, event.offsetY].map((at) => Math.floor((at - left) / side));
    if ([key, query].every((place) => place >= 0 && place < page.count())) goTo(query, key);
  });
  map.addEventListener("focus", () => { if (!cell) goTo(0, 0); });
  map.addEventListener("keydown", (event) => {
    const step = page.steps[event.key];
    if (!step || !cell) return;
    event.preventDefault();
    const inside = (place) => Math.max(0, Math.min(page.count() - 1, place));
    goTo(inside(cell.query + step[0]), inside(cell.key + step[1]));
  });

  function words() {
    if (!cell) return "Point at a cell for its weight.";
    const { query, key } = cell;
    const value = page.weights()[query * page.count() + key].toFixed(3);
    return `${page.name(query)} (${query + 1}) gives ${page.name(key)} (${key + 1}) ${value}`;
  }

  return { draw, words, forget };
};
