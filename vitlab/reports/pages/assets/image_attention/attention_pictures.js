/* The maps of one run: the slider's layer, of one head or their mean, and the rollout up to there. */
"use strict";
(() => {
  const { grid, layers, heads, names, maps, rollout, shades } = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const cells = grid[0] * grid[1];
  const all = { map: unpacked(maps, cells), rollout: unpacked(rollout, cells) };
  const view = mapsView(shades, (words) => { get("reading").textContent = words; });
  const boxes = [...document.querySelectorAll(".tiles")];
  const { number } = view;
  const range = (count) => [...Array(count).keys()];

  const row = (values, i) => values.subarray(i * cells, (i + 1) * cells);
  function mean(rows) {
    return rows[0].map((_, i) => rows.reduce((sum, values) => sum + values[i], 0) / rows.length);
  }
  /* What a tile of a picture shows at a layer, counted from 0. */
  function valuesOf(kind, picture, layer) {
    const place = picture * layers + layer;
    if (kind === "rollout") return row(all.rollout, place);
    const head = get("head").value;
    return head === "" ? mean(range(heads).map((h) => row(all.map, place * heads + h))) : row(all.map, place * heads + Number(head));
  }
  /* The value of the last shade, or null where each map has its own. */
  function mostOf(kind, layer) {
    const scale = get("scale").value;
    if (scale === "map") return null;
    const over = scale === "all" ? range(layers) : [layer];
    return Math.max(...names.flatMap((_, picture) => over.map((at) => view.largest(valuesOf(kind, picture, at)))));
  }

  const slider = layerSlider((step) => `layer ${step} of ${layers}`, (step) => {
    const layer = step - 1;
    const head = get("head").value;
    get("which-head").textContent = head === "" ? `, mean over ${heads} head${heads === 1 ? "" : "s"}` : `, head ${Number(head) + 1}`;
    for (const kind of Object.keys(all)) {
      const most = mostOf(kind, layer);
      get(`most-${kind}`).textContent = most === null ? "each map\u2019s most" : number(most);
      boxes.forEach((box, picture) => {
        const values = valuesOf(kind, picture, layer);
        const canvas = box.querySelector(`[data-map="${kind}"] canvas`);
        view.paint(canvas, values, grid, most ?? view.largest(values));
      });
    }
    boxes.forEach((box, picture) => {
      const values = valuesOf("map", picture, layer);
      const place = values.indexOf(view.largest(values));
      const at = `row ${Math.floor(place / grid[1]) + 1}, column ${place % grid[1] + 1}`;
      const name = `Picture ${picture + 1}${names[picture] ? `, ${names[picture]}` : ""}`;
      box.setAttribute("aria-label", `${name}: most attention to ${at}, ${number(values[place])}. Arrow keys move over the patches.`);
    });
    document.querySelectorAll("tr[data-layer]").forEach((line) => { line.hidden = line.dataset.layer !== String(step); });
    document.querySelectorAll("g[data-layer]").forEach((part) => part.classList.toggle("now", part.dataset.layer === String(step)));
    view.show();
  });
  boxes.forEach((box, picture) => view.follow(box, () => grid, (cell) => {
    const [r, c] = cell(grid);
    const [map, reached] = Object.keys(all).map((kind) => number(valuesOf(kind, picture, slider.step() - 1)[r * grid[1] + c]));
    return `Picture ${picture + 1}${names[picture] ? `, ${names[picture]}` : ""}, row ${r + 1}, column ${c + 1}: attention ${map}, rollout ${reached}`;
  }));
  for (const id of ["head", "scale"]) get(id).addEventListener("change", slider.show);
  slider.show();
})();
