/* The pictures that two runs have in common, with the attention of both in the layers of one slider. */
"use strict";
const comparePictures = ({ sets, shades }) => {
  const get = (id) => document.getElementById(id);
  const view = mapsView(shades, (words) => { get("reading").textContent = words; });
  const decoded = new Map(); // run -> its maps
  let sides = []; // {letter, run, maps}, of the runs that have some
  const part = (tag, className = "", text = "") => Object.assign(document.createElement(tag), { className, textContent: text });
  const { number } = view;

  function valuesOf({ run, maps }, picture, layer) {
    const cells = maps.grid[0] * maps.grid[1];
    if (!decoded.has(run)) decoded.set(run, unpacked(maps, cells));
    const place = picture * maps.layers + layer;
    return decoded.get(run).subarray(place * cells, (place + 1) * cells);
  }
  const most = () => Math.max(1, ...sides.map(({ maps }) => maps.layers));
  /* A run's own layer, counted from 0, where the slider stands. */
  const layerOf = ({ maps }, step) => Math.ceil(step * maps.layers / most()) - 1;

  function words(step) {
    const layers = sides.map((side) => `layer ${layerOf(side, step) + 1} of ${side.maps.layers}`);
    if (new Set(layers).size === 1) return layers[0];
    return sides.map(({ letter }, i) => `${letter} ${layers[i]}`).join(", ");
  }
  const slider = layerSlider(words, (step) => {
    get("at-layer").textContent = sides.length ? ` over the same pictures, ${words(step)}` : "";
    for (const side of sides) {
      const layer = layerOf(side, step);
      const boxes = [...document.querySelectorAll(`.tile[data-side="${side.letter}"]`)];
      const rows = boxes.map((box) => valuesOf(side, Number(box.closest(".tiles").dataset.picture), layer));
      const largest = Math.max(...rows.map(view.largest));
      boxes.forEach((box, i) => view.paint(box.querySelector("canvas"), rows[i], side.maps.grid, largest));
    }
    view.show();
  });

  function pictureOf({ src, name }, place, shown) {
    const figure = part("figure", "picture");
    const box = part("div", "tiles");
    box.tabIndex = 0;
    box.dataset.picture = place;
    box.setAttribute("role", "application");
    const title = `Picture ${place + 1}${name ? `, ${name}` : ""}`;
    box.setAttribute("aria-label", `${title}: attention of ${shown.map(({ letter }) => letter).join(" and ")}. Arrow keys move over the patches.`);
    const caption = part("figcaption");
    const image = part("img");
    image.src = src;
    image.alt = "";
    const first = part("div", "tile");
    first.append(image);
    box.append(first);
    caption.append(part("span", "", name || `${place + 1}`));
    for (const { letter } of shown) {
      const tile = part("div", "tile");
      tile.dataset.side = letter;
      tile.append(part("canvas"));
      box.append(tile);
      caption.append(part("span", "", letter));
    }
    figure.append(box, caption);
    const finest = shown.map(({ maps }) => maps.grid).reduce((a, b) => (b[0] * b[1] > a[0] * a[1] ? b : a));
    const gridOf = (tile) => shown.find(({ letter }) => letter === tile.dataset.side)?.maps.grid ?? finest;
    view.follow(box, gridOf, (cell) => {
      const found = shown.map((side) => {
        const [row, column] = cell(side.maps.grid);
        const value = valuesOf(side, place, layerOf(side, slider.step()))[row * side.maps.grid[1] + column];
        return `${side.letter} ${number(value)} in row ${row + 1}, column ${column + 1}`;
      });
      return `${title}: ${found.join("; ")}`;
    });
    return figure;
  }

  /* One or two runs, `[{letter, name, maps}]`; what a run lacks is said. */
  function show(runs) {
    const there = runs.filter(({ maps }) => "set" in maps);
    const together = there.filter(({ maps }) => maps.set === there[0].maps.set);
    sides = together.map(({ letter, name, maps }) => ({ letter, run: name, maps }));
    get("lacking").replaceChildren(...runs.flatMap(({ letter, name, maps }) => {
      const item = part("li");
      if (!("set" in maps)) {
        item.append(`${letter}, ${name}, ${maps.why}. `);
        if (maps.command) item.append("To add them, run where the study was started: ", part("code", "", maps.command));
      } else if (!together.some((one) => one.letter === letter)) {
        item.append(`${letter}, ${name}, looked at other pictures. `);
      } else if (new Set(together.map((one) => one.maps.reads)).size > 1) {
        item.append(`${letter}: ${maps.reads}. `);
      }
      if (maps.address) {
        const link = part("a", "", `All heads of ${letter}`);
        link.href = maps.address;
        item.append(link);
      }
      return item.childNodes.length ? [item] : [];
    }));
    const { pictures: known, count } = sides.length ? sets[sides[0].maps.set] : { pictures: [], count: 0 };
    const pictures = known.slice(0, Math.min(...sides.map(({ maps }) => maps.pictures)));
    get("left-out").textContent = pictures.length < count ? `${count - pictures.length} of ${count} pictures are left out to keep this page small. ` : "";
    get("pictures").replaceChildren(...pictures.map((picture, place) => pictureOf(picture, place, sides)));
    for (const one of document.querySelectorAll("#maps :is(.bar, .scales, #maps-note)")) one.hidden = !sides.length;
    slider.over(most());
  }
  return { show };
};
