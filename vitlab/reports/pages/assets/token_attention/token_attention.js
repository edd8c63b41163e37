/* All heads as pictures, and one as a heat map. Weights come as bytes, in 255ths of their query's largest. */
"use strict";
(() => {
  const { texts, names } = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const get = (id) => document.getElementById(id);
  const thumbs = [...document.querySelectorAll(".thumb")];
  const MEAN = -1; // in place of a head: the mean of its layer's
  const MOST = 16384; // pixels: the side of a canvas at most
  const decoded = new Map(); // layer -> its heads' weights
  const colours = new Map(); // of the theme
  let text = texts[0];
  let layer = 0;
  let head = 0;

  /* The tokens that attend, and those that are attended to: of a decoder's cross-attention they differ. */
  const queries = () => text[text.layers[layer].queries];
  const keys = () => text[text.layers[layer].keys];
  /* The largest weight, but for a first query that has only itself to attend to, as in a causal model. */
  function top(values, width) {
    const alone = values.subarray(1, width).every((value) => value === 0);
    return values.subarray(alone ? width : 0).reduce((a, b) => Math.max(a, b), 0) || 1;
  }

  /* The weights of each head of a layer: arrays of queries x keys, query by query. */
  function headsOf(place) {
    if (!decoded.has(place)) {
      const { heads, ...packed } = text.layers[place];
      const width = text[packed.keys].length;
      const cells = text[packed.queries].length * width;
      const all = unpacked(packed, width);
      decoded.set(place, Array.from({ length: heads }, (_, i) => all.subarray(i * cells, (i + 1) * cells)));
    }
    return decoded.get(place);
  }
  function weights() {
    const heads = headsOf(layer);
    if (head !== MEAN) return heads[head];
    return heads[0].map((_, i) => heads.reduce((sum, values) => sum + values[i], 0) / heads.length);
  }

  /* A colour of the theme, as three numbers. */
  function rgb(name) {
    if (!colours.has(name)) {
      const hex = getComputedStyle(root).getPropertyValue(`--${name}`).trim();
      colours.set(name, [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    }
    return colours.get(name);
  }
  const colour = (name, alpha = 1) => `rgb(${rgb(name).join(" ")} / ${alpha.toFixed(4)})`;

  /* A drawing surface of that many CSS pixels. */
  function surface(canvas, width, height) {
    const ratio = Math.min(devicePixelRatio || 1, MOST / Math.max(width, height, 1));
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    return pen;
  }

  /* One element of a group is reached by Tab. */
  const rove = (group, one) => group.forEach((other) => { other.tabIndex = other === one ? 0 : -1; });
  const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const map = mapView({
    queries, keys, weights, colour, surface, steps: STEPS,
    isBoundary: (place) => queries() === keys() && Boolean(text.segments) && text.segments[place] !== text.segments[place - 1],
    say: (words) => { get("reading").textContent = words; },
  });

  function drawThumbs() {
    thumbs.forEach((thumb) => {
      const place = Number(thumb.dataset.layer);
      const values = headsOf(place)[Number(thumb.dataset.head)];
      const canvas = thumb.querySelector("canvas");
      canvas.width = text[text.layers[place].keys].length;
      canvas.height = text[text.layers[place].queries].length;
      const most = top(values, canvas.width);
      const pen = canvas.getContext("2d");
      const image = pen.createImageData(canvas.width, canvas.height);
      values.forEach((value, i) => image.data.set([...rgb("vit"), 255 * Math.sqrt(value / most)], 4 * i));
      pen.putImageData(image, 0, 0);
    });
  }

  const thumbAt = (row, column) => thumbs.find(({ dataset }) => dataset.layer === `${row}` && dataset.head === `${column}`);

  function choose(newLayer, newHead) {
    const before = [queries(), keys()];
    layer = newLayer;
    if (before[0] !== queries() || before[1] !== keys()) map.forget();
    const { heads } = text.layers[layer];
    head = Math.min(newHead, heads - 1);
    const options = Array.from({ length: heads }, (_, i) => new Option(i + 1, i));
    get("head-choice").replaceChildren(...options, new Option("all, their mean", MEAN));
    get("head-choice").value = head;
    get("layer").value = layer;
    const current = thumbAt(layer, head);
    thumbs.forEach((thumb) => thumb.setAttribute("aria-current", String(thumb === current)));
    rove(thumbs, current || thumbAt(layer, 0));
    get("chosen").textContent = `${names[layer]}, ${head === MEAN ? "all heads" : `head ${head + 1}`}`;
    get("chosen-label").textContent = current ? current.dataset.label : "";
    map.show();
  }

  function chooseText(place) {
    text = texts[place];
    decoded.clear();
    map.forget();
    drawThumbs();
    choose(layer, head);
  }

  for (const one of document.querySelectorAll(".thumb, .go")) {
    one.addEventListener("click", () => {
      choose(Number(one.dataset.layer), Number(one.dataset.head));
      get("chosen").focus({ preventScroll: true });
      get("head").scrollIntoView({ block: "start" });
    });
  }
  thumbs.forEach((thumb) => thumb.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step) return;
    event.preventDefault();
    const next = thumbAt(Number(thumb.dataset.layer) + step[0], Number(thumb.dataset.head) + step[1]);
    if (!next) return;
    rove(thumbs, next);
    next.focus();
  }));
  get("text").addEventListener("change", (event) => chooseText(Number(event.target.value)));
  get("layer").addEventListener("change", (event) => choose(Number(event.target.value), head));
  get("head-choice").addEventListener("change", (event) => choose(layer, Number(event.target.value)));
  document.addEventListener("themechange", () => {
    colours.clear();
    drawThumbs();
    map.show();
  });
  addEventListener("resize", map.show);
  chooseText(0);
})();
