/* One head as lines from the tokens that attend to those that are attended to. */
"use strict";
const linesView = (page) => {
  const box = document.getElementById("lines");
  const wires = box.querySelector("canvas");
  const sides = { queries: document.getElementById("queries"), keys: document.getElementById("keys") };
  const buttons = (side) => [...sides[side].querySelectorAll("button")];
  let held = null; // {side, place} of the token that was clicked
  let pointed = null; // and of the one under the pointer or in focus
  const picked = () => pointed || held;
  const same = (one, other) => Boolean(one && other) && one.side === other.side && one.place === other.place;

  /* [query, key] of what a picked token and the one at a place of the other side have to do with each other. */
  const cellOf = (one, place) => (one.side === "queries" ? [one.place, place] : [place, one.place]);

  function pick(change) {
    change();
    draw();
    page.say(words());
  }

  function part(name, text = "") {
    const span = document.createElement("span");
    span.className = name;
    span.textContent = text;
    return span;
  }

  function list() {
    held = pointed = null;
    for (const side of Object.keys(sides)) {
      sides[side].replaceChildren(...page[side]().map((token, place) => {
        const one = { side, place };
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = button.title = token;
        button.tabIndex = place ? -1 : 0;
        button.addEventListener("pointerenter", () => pick(() => { pointed = one; }));
        button.addEventListener("pointerleave", () => pick(() => { pointed = null; }));
        button.addEventListener("focus", () => { if (button.matches(":focus-visible")) pick(() => { pointed = one; }); });
        button.addEventListener("blur", () => pick(() => { pointed = null; }));
        button.addEventListener("click", () => pick(() => {
          held = same(held, one) ? null : one;
          pointed = null;
        }));
        const item = document.createElement("li");
        const begins = place === 0 || page.letter(place) !== page.letter(place - 1);
        item.append(button, part("value"), part("strip"), part("segment", begins ? page.letter(place) : ""));
        return item;
      }));
    }
  }

  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") pick(() => { held = pointed = null; });
    const side = event.target.closest("ol")?.id;
    if (!side) return;
    const group = buttons(side);
    const place = group.indexOf(event.target);
    const next = {
      ArrowUp: () => group[place - 1], ArrowDown: () => group[place + 1], Home: () => group[0], End: () => group.at(-1),
      ArrowLeft: () => buttons("queries")[place], ArrowRight: () => buttons("keys")[place],
    }[event.key];
    if (!next) return;
    event.preventDefault();
    const one = next();
    if (!one) return;
    page.rove(buttons(one.closest("ol").id), one);
    one.focus();
  });

  function draw() {
    const values = page.weights();
    const largest = page.scale(values);
    const one = picked();
    box.classList.toggle("all", page.isMean()); // before the lines: it takes of their width
    drawWires(values, largest, one);
    for (const side of Object.keys(sides)) {
      [...sides[side].children].forEach((item, place) => {
        const cell = one && one.side !== side && page.shows(...cellOf(one, place)) ? cellOf(one, place) : null;
        const value = cell ? values[cell[0] * page.keys().length + cell[1]] : 0;
        const button = item.querySelector("button");
        button.setAttribute("aria-pressed", String(same(held, { side, place })));
        button.style.setProperty("--share", Math.min(1, value / largest));
        item.querySelector(".value").textContent = value >= 0.005 ? page.number(value) : "";
        item.querySelector(".strip").style.background = cell && page.isMean() ? strip(cell, largest) : "";
      });
    }
  }

  function drawWires(values, largest, one) {
    const [down, along] = [page.queries().length, page.keys().length];
    const { width, height } = wires.getBoundingClientRect();
    const pen = page.surface(wires, width, height);
    pen.lineWidth = 2;
    /* pixels from the top: rows are as tall on both sides, which may have other numbers of tokens */
    const middle = (place) => (place + 0.5) * height / Math.max(down, along);
    for (let query = 0; query < down; query += 1) {
      if (one?.side === "queries" && one.place !== query) continue;
      for (let key = 0; key < along; key += 1) {
        if (one?.side === "keys" && one.place !== key) continue;
        const share = Math.min(1, values[query * along + key] / largest);
        if (share < 1 / 255 || !page.shows(query, key)) continue;
        pen.strokeStyle = page.colour("vit", share);
        pen.beginPath();
        pen.moveTo(0, middle(query));
        pen.lineTo(width, middle(key));
        pen.stroke();
      }
    }
  }

  /* The weight in each head of the layer, side by side. */
  function strip([query, key], largest) {
    const heads = page.heads();
    const stops = heads.map((values, i) => {
      const [from, to] = [i, i + 1].map((edge) => `${100 * edge / heads.length}%`);
      return `${page.colour("vit", Math.min(1, values[query * page.keys().length + key] / largest))} ${from} ${to}`;
    });
    return `linear-gradient(to right, ${stops.join(", ")})`;
  }

  function words() {
    const one = picked();
    if (!one) return "Point at a token for its weights.";
    const values = page.weights();
    const other = page[one.side === "queries" ? "keys" : "queries"]();
    const found = other.map((_, place) => ({ place, cell: cellOf(one, place) }))
      .filter(({ cell }) => page.shows(...cell))
      .map(({ place, cell }) => ({ place, value: values[cell[0] * page.keys().length + cell[1]] }))
      .filter(({ value }) => value >= 0.005).sort((a, b) => b.value - a.value).slice(0, 5)
      .map(({ place, value }) => `${page.name(other[place])} ${page.number(value)}`);
    const verb = one.side === "queries" ? "attends to" : "is attended to by";
    return `${page.name(page[one.side]()[one.place])} ${verb} ${found.join(", ") || "nothing that is shown"}`;
  }

  return { list, draw, words };
};
