/* The attention of one run over pictures, or over the tokens of a text: the slider's layer, of one head or their mean. */
"use strict";
(() => {
  const { items, layers, shades } = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const view = mapsView(shades, (words) => { get("reading").textContent = words; });
  const boxes = [...document.querySelectorAll(".tiles")];
  const thumbs = [...document.querySelectorAll(".thumb")];
  const [head, scale, text] = ["head", "scale", "text"].map(get);
  const KINDS = shades ? ["attention", "rollout"] : ["attention"];
  const range = (count) => [...Array(count).keys()];
  const decoded = new Map(); // packed maps -> an array of the grid's cells for each head
  let layer = 0;

  const itemOf = (box) => items[box.dataset.item ?? text.value];
  function headsOf(item, at, kind = "attention") {
    const { grid, [kind]: packed } = item.layers[at];
    if (!decoded.has(packed)) {
      const [all, cells] = [unpacked(packed), grid[0] * grid[1]];
      decoded.set(packed, range(all.length / cells).map((i) => all.subarray(i * cells, (i + 1) * cells)));
    }
    return decoded.get(packed);
  }
  function valuesOf(item, at, kind) {
    const heads = headsOf(item, at, kind);
    if (kind === "attention" && head.value) return heads[Math.min(head.value, heads.length) - 1];
    return heads[0].map((_, i) => heads.reduce((sum, values) => sum + values[i], 0) / heads.length);
  }
  /* The largest value, but for a first token that has only itself to attend to, as in a causal model. */
  function largestOf(values, [, columns]) {
    const alone = !shades && values.subarray(1, columns).every((value) => value === 0);
    return view.largest(values.subarray(alone ? columns : 0));
  }
  /* The value of the last shade, or null where each map has its own. */
  function mostOf(kind) {
    if (scale.value === "map" || scale.value === "1") return scale.value === "map" ? null : 1;
    const over = scale.value === "all" ? range(layers.length) : [layer];
    return Math.max(...boxes.flatMap((box) => over.map((at) => largestOf(valuesOf(itemOf(box), at, kind), itemOf(box).layers[at].grid))));
  }

  /* A cell in words: which patch of which picture, or which token looks at which. */
  function placeOf(box, [row, column]) {
    const { name, tokens, layers: { [layer]: { queries, keys } } } = itemOf(box);
    if (tokens) return `\u201c${tokens[queries][row]}\u201d (${row + 1}) gives \u201c${tokens[keys][column]}\u201d (${column + 1})`;
    return `Picture ${Number(box.dataset.item) + 1}${name ? `, ${name}` : ""}, row ${row + 1}, column ${column + 1}`;
  }
  function part(tag, className, textContent, style = "") {
    const element = Object.assign(document.createElement(tag), { className, textContent });
    element.style.cssText = style;
    return element;
  }
  /* The names beside the map of a text, and lines between its sentences. */
  function nameTokens() {
    const { tokens, segments, layers: { [layer]: { queries, keys, grid } } } = items[text.value];
    Object.entries({ queries, keys }).forEach(([id, of]) => get(id).replaceChildren(...tokens[of].map((token) => part("span", "", token))));
    get("map").parentElement.style.cssText = `--rows:${grid[0]};--columns:${grid[1]}`;
    const starts = queries === keys && segments ? range(grid[0]).filter((i) => i && segments[i] !== segments[i - 1]) : [];
    document.querySelectorAll(".between").forEach((line) => line.remove());
    get("map").firstElementChild.append(...starts.flatMap((i) => ["left", "top"].map((side) => part("i", `between ${side}`, "", `${side}:${100 * i / grid[0]}%`))));
  }

  const rove = (one) => thumbs.forEach((other) => { other.tabIndex = other === one ? 0 : -1; }); // one is reached by Tab
  const thumbAt = (row, column) => thumbs.find(({ dataset }) => dataset.layer === `${row}` && dataset.head === `${column}`);

  const slider = layerSlider((step) => layers[step - 1], (step) => {
    layer = step - 1;
    const heads = headsOf(items[0], layer).length;
    range(head.options.length - 1).forEach((i) => { head.options[i + 1].hidden = i >= heads; });
    if (head.value > heads) head.value = heads;
    get("which-head").textContent = head.value ? `, head ${head.value}` : `, mean over ${heads} head${heads === 1 ? "" : "s"}`;
    if (!shades) nameTokens();
    for (const kind of KINDS) {
      const most = mostOf(kind);
      get(`most-${kind}`).textContent = most === null ? "each map\u2019s most" : most === 1 ? "1" : view.number(most);
      for (const box of boxes) {
        const [values, { grid }] = [valuesOf(itemOf(box), layer, kind), itemOf(box).layers[layer]];
        view.paint(box.querySelector(`[data-map="${kind}"] canvas`), values, grid, most ?? largestOf(values, grid));
      }
    }
    for (const box of boxes) {
      const [values, { grid }] = [valuesOf(itemOf(box), layer, "attention"), itemOf(box).layers[layer]];
      const top = values.indexOf(view.largest(values));
      const place = placeOf(box, [Math.floor(top / grid[1]), top % grid[1]]);
      box.setAttribute("aria-label", `Most attention: ${place}, ${view.number(values[top])}. Arrow keys move over the cells.`);
    }
    document.querySelectorAll("tr[data-layer]").forEach((one) => one.classList.toggle("now", one.dataset.layer === `${step}`));
    document.querySelector(".tall")?.scrollTo({ top: (document.querySelector("tr.now")?.offsetTop ?? 0) - 40 });
    const current = thumbAt(step, head.value);
    thumbs.forEach((thumb) => thumb.setAttribute("aria-current", String(thumb === current)));
    rove(current || thumbAt(step, 1));
    get("label").textContent = current?.dataset.label ?? "";
    view.show();
  });
  boxes.forEach((box) => view.follow(box, () => itemOf(box).layers[layer].grid, (cell) => {
    const { grid } = itemOf(box).layers[layer];
    const [row, column] = cell(grid);
    const found = KINDS.map((kind) => `${kind} ${view.number(valuesOf(itemOf(box), layer, kind)[row * grid[1] + column])}`);
    return `${placeOf(box, [row, column])}: ${found.join(", ")}`;
  }));

  /* The heads as small pictures, by the square root of the weight: a few percent are seen. */
  function drawThumbs() {
    thumbs.forEach((thumb) => {
      const at = Number(thumb.dataset.layer) - 1;
      const [values, { grid }] = [headsOf(items[text.value], at)[thumb.dataset.head - 1], items[text.value].layers[at]];
      view.paint(thumb.querySelector("canvas"), values.map(Math.sqrt), grid, Math.sqrt(largestOf(values, grid)));
    });
  }
  document.querySelectorAll("button[data-head]").forEach((one) => one.addEventListener("click", () => {
    [get("layer").value, head.value] = [one.dataset.layer, one.dataset.head];
    slider.show();
    get("chosen").focus({ preventScroll: true });
    get("maps").scrollIntoView({ block: "start" });
  }));
  thumbs.forEach((thumb) => thumb.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = thumbAt(Number(thumb.dataset.layer) + step[0], Number(thumb.dataset.head) + step[1]);
    if (!next) return;
    rove(next);
    next.focus();
  }));
  for (const field of [head, scale]) field.addEventListener("change", slider.show);
  const redraw = () => { drawThumbs(); slider.show(); };
  text?.addEventListener("change", redraw);
  document.addEventListener("themechange", redraw);
  redraw();
})();
