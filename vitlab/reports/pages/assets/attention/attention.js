/* The attention of one run over pictures, or over the tokens of a text: the slider's layer, of one head or their mean. */
"use strict";
(() => {
  const { items, layers, shades } = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const view = mapsView(shades, (words) => {
    get("reading").textContent = words;
    if (!words && !shades) drawLines(boxes[0]);
  });
  const [boxes, thumbs] = [".tiles", ".thumb"].map((selector) => [...document.querySelectorAll(selector)]);
  const [head, scale, text] = ["head", "scale", "text"].map(get);
  const KINDS = shades ? ["attention", "rollout"] : ["attention"];
  const range = (count) => [...Array(count).keys()];
  const decoded = new Map(); // packed maps -> an array of the grid's cells for each head
  let layer = 0;

  const itemOf = (box) => items[box.dataset.item ?? text.value];
  const shownIn = (box) => itemOf(box).layers[layer];
  function headsOf({ grid, ...maps }, kind = "attention") {
    const packed = maps[kind];
    if (!decoded.has(packed)) {
      const [all, cells] = [unpacked(packed), grid[0] * grid[1]];
      decoded.set(packed, range(all.length / cells).map((i) => all.subarray(i * cells, (i + 1) * cells)));
    }
    return decoded.get(packed);
  }
  function valuesOf(at, kind) {
    const heads = headsOf(at, kind);
    if (kind !== "rollout" && head.value) return heads[Math.min(head.value, heads.length) - 1];
    return heads[0].map((_, i) => heads.reduce((sum, values) => sum + values[i], 0) / heads.length);
  }
  /* The largest value, but for a first token that has only itself to attend to, as in a causal model. */
  function largestOf(values, { grid }) {
    const alone = !shades && values.subarray(1, grid[1]).every((value) => value === 0);
    return view.largest(values.subarray(alone ? grid[1] : 0));
  }
  /* The value of the last shade, or null where each map has its own. */
  function mostOf(kind) {
    if (scale.value === "map" || scale.value === "1") return scale.value === "map" ? null : 1;
    const over = boxes.flatMap((box) => (scale.value === "all" ? itemOf(box).layers : [shownIn(box)]));
    return Math.max(...over.map((at) => largestOf(valuesOf(at, kind), at)));
  }

  /* A cell in words: which patch of which picture, or which token looks at which. */
  function placeOf(box, [row, column]) {
    const [{ name, tokens }, { queries, keys }] = [itemOf(box), shownIn(box)];
    if (tokens) return `\u201c${tokens[queries][row]}\u201d (${row + 1}) gives \u201c${tokens[keys][column]}\u201d (${column + 1})`;
    return `Picture ${Number(box.dataset.item) + 1}${name ? `, ${name}` : ""}, row ${row + 1}, column ${column + 1}`;
  }
  /* The names beside the map of a text, and lines between its sentences. */
  function nameTokens(box) {
    const [{ tokens, segments }, { queries, keys, grid }] = [itemOf(box), shownIn(box)];
    Object.entries({ queries, keys }).forEach(([id, of]) => get(id).replaceChildren(...tokens[of].map((token) => span("", "", token))));
    box.parentElement.style.cssText = `--rows:${grid[0]};--columns:${grid[1]}`;
    const starts = queries === keys && segments ? range(grid[0]).filter((i) => i && segments[i] !== segments[i - 1]) : [];
    document.querySelectorAll(".between").forEach((line) => line.remove());
    box.firstElementChild.append(...starts.flatMap((i) => ["left", "top"].map((side) => span(`between ${side}`, `${side}:${100 * i / grid[0]}%`))));
  }

  /* Weights as lines from queries to keys (Vig, 2019): those of one row, or of all. */
  function drawLines(box, chosen = null) {
    const [at, { tokens }, [high, right]] = [shownIn(box), itemOf(box), [18, 420]];
    const [{ grid: [rows, columns], queries, keys }, values] = [at, valuesOf(at)];
    const most = chosen === null ? largestOf(values, at) : view.largest(values.subarray(chosen * columns, (chosen + 1) * columns));
    const part = (tag, attributes, text = "") => {
      const one = document.createElementNS("http://www.w3.org/2000/svg", tag);
      Object.entries(attributes).forEach(([key, value]) => one.setAttribute(key, value));
      one.textContent = text;
      return one;
    };
    const y = (i) => high * (i + 0.5);
    const lines = [...values].flatMap((value, i) => {
      const [row, column] = [Math.floor(i / columns), i % columns];
      const shown = value > most / 50 && (chosen === null || row === chosen);
      return shown ? [part("line", { x1: 125, y1: y(row), x2: right - 125, y2: y(column), "stroke-opacity": Math.min(1, value / most) })] : [];
    });
    const names = (of, x) => tokens[of].map((token, i) => part("text", { x, y: y(i) + 4, class: x < right / 2 ? "query" : "" }, token.slice(0, 16)));
    get("lines").setAttribute("viewBox", `0 0 ${right} ${high * Math.max(rows, columns)}`);
    get("lines").replaceChildren(...lines, ...names(queries, 120), ...names(keys, right - 120));
  }

  const rove = (one) => thumbs.forEach((other) => { other.tabIndex = other === one ? 0 : -1; }); // one is reached by Tab
  const thumbAt = (row, column) => thumbs.find(({ dataset }) => dataset.layer === `${row}` && dataset.head === `${column}`);

  const slider = layerSlider((step) => layers[step - 1], (step) => {
    layer = step - 1;
    const heads = headsOf(items[0].layers[layer]).length;
    [...head.options].forEach((option) => { option.hidden = option.value > heads; });
    if (head.value > heads) head.value = heads;
    get("which-head").textContent = head.value ? `, head ${head.value}` : `, mean over ${heads} head${heads === 1 ? "" : "s"}`;
    const most = new Map(KINDS.map((kind) => [kind, mostOf(kind)]));
    most.forEach((value, kind) => { get(`most-${kind}`).textContent = value === null ? "each map\u2019s most" : value === 1 ? "1" : view.number(value); });
    for (const box of boxes) {
      const at = shownIn(box);
      if (!shades) nameTokens(box);
      for (const [kind, value] of most) {
        view.paint(box.querySelector(`[data-map="${kind}"] canvas`), valuesOf(at, kind), at.grid, value ?? largestOf(valuesOf(at, kind), at));
      }
      const values = valuesOf(at);
      const top = values.indexOf(view.largest(values));
      const place = placeOf(box, [Math.floor(top / at.grid[1]), top % at.grid[1]]);
      box.setAttribute("aria-label", `Most attention: ${place}, ${view.number(values[top])}. Arrow keys move over the cells.`);
    }
    document.querySelectorAll("tr[data-layer]").forEach((row) => row.classList.toggle("now", row.dataset.layer === `${step}`));
    const current = thumbAt(step, head.value);
    thumbs.forEach((thumb) => thumb.setAttribute("aria-current", String(thumb === current)));
    rove(current || thumbAt(step, 1));
    get("label").textContent = current?.dataset.label ?? "";
    view.show();
  });
  boxes.forEach((box) => view.follow(box, () => shownIn(box).grid, (cell) => {
    const [row, column] = cell(shownIn(box).grid);
    if (!shades) drawLines(box, row);
    const found = KINDS.map((kind) => `${kind} ${view.number(valuesOf(shownIn(box), kind)[row * shownIn(box).grid[1] + column])}`);
    return `${placeOf(box, [row, column])}: ${found.join(", ")}`;
  }));

  /* The heads as small pictures, by the square root of the weight: a few percent are seen. */
  function redraw() {
    for (const thumb of thumbs) {
      const at = items[text.value].layers[thumb.dataset.layer - 1];
      const values = headsOf(at)[thumb.dataset.head - 1];
      view.paint(thumb.querySelector("canvas"), values.map(Math.sqrt), at.grid, Math.sqrt(largestOf(values, at)));
    }
    slider.show();
  }
  document.querySelectorAll("button[data-head]").forEach((one) => one.addEventListener("click", () => {
    [get("layer").value, head.value] = [one.dataset.layer, one.dataset.head];
    slider.show();
    get("chosen").focus({ preventScroll: true });
    get("chosen").scrollIntoView();
  }));
  thumbs.forEach((thumb) => thumb.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    const next = thumbAt(...["layer", "head"].map((place, side) => Number(thumb.dataset[place]) + STEPS[event.key][side])) ?? thumb;
    rove(next);
    next.focus();
  }));
  get("layer").addEventListener("input", () => document.querySelector(".tall")?.scrollTo({ top: (document.querySelector("tr.now")?.offsetTop ?? 0) - 40 }));
  for (const field of [head, scale]) field.addEventListener("change", slider.show);
  for (const [place, kind] of [[text, "change"], [document, "themechange"]]) place?.addEventListener(kind, redraw);
  redraw();
})();
