/* What there is of the runs that the address names (compare.html#RUN,RUN) and that are chosen in the table. */
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const runs = new Map(data.runs.map((run) => [run.name, run]));
  const boxes = new Map([...document.querySelectorAll("#runs-table tbody input")].map((box) => [box.value, box]));
  const DASHES = [[1, 0], [6, 3], [2, 3], [7, 3, 2, 3], [11, 4]];
  const part = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more });

  /* The texts of a table; without rows it is hidden with its section. */
  function fill(id, head, rows, textual) {
    const line = (tag, cells) => {
      const row = document.createElement("tr");
      row.append(...cells.map((cell, i) => part(i && tag === "td" ? "td" : "th", cell, {
        className: !i || textual ? "text" : "", scope: i && tag === "td" ? "" : tag === "td" ? "row" : "col",
      })));
      return row;
    };
    get(id).tHead.replaceChildren(line("th", head));
    get(id).tBodies[0].replaceChildren(...rows.map((cells) => line("td", cells)));
    get(id).closest("section").hidden = !rows.length;
  }

  /* Lines with a label and runs: the family's colour and a dash, or more colours where these do not tell all apart. */
  function lookAt(lines) {
    const seen = {};
    lines.forEach((line) => { line.dash = seen[line.colour] = (seen[line.colour] ?? -1) + 1; });
    if (lines.every(({ dash }) => dash < DASHES.length)) return;
    lines.forEach((line, i) => {
      line.colour = data.accents[i % data.accents.length];
      line.dash = Math.floor(i / data.accents.length) % DASHES.length;
    });
  }

  function pointsOf({ label, runs: some }, name) {
    const byX = new Map();
    for (const { curves } of some.filter((run) => run.curves[name])) {
      const [grid, values] = curves[name];
      data.grids[grid].forEach((x, i) => byX.set(x, [...(byX.get(x) ?? []), values[i]]));
    }
    return [...byX].sort(([a], [b]) => a - b).map(([x, values]) => {
      if (values.includes(null)) return { label, x, y: null };
      const band = values.length > 1 ? { low: Math.min(...values), high: Math.max(...values) } : {};
      return { label, x, y: values.reduce((a, b) => a + b, 0) / values.length, ...band };
    });
  }

  function chartOf(name, lines, values) {
    const y = (field, more) => ({ field, type: "quantitative", title: null, scale: { zero: name !== "metric" }, ...more });
    const scale = (range) => ({ field: "label", type: "nominal", legend: null, scale: { domain: lines.map(({ label }) => label), range } });
    const axis = name === "metric" && data.percent ? { axis: { format: "~%" } } : {};
    const across = name === "distance" ? { title: "layer", scale: { zero: false, padding: 8 }, axis: { tickMinStep: 1, format: "d" } }
      : { title: "training step", scale: { zero: true, nice: false }, axis: { format: "~s" } };
    return {
      width: "container", height: 230, autosize: { type: "fit-x", contains: "padding" }, config: data.config, data: { values },
      transform: [{ calculate: "datum.label + ': ' + format(datum.y, '.4~g') + ' at ' + format(datum.x, ',.6~g')", as: "text" }],
      encoding: { x: { field: "x", type: "quantitative", ...across }, color: scale(lines.map(({ colour }) => colour)) },
      layer: [
        { transform: [{ filter: "isValid(datum.low)" }], mark: { type: "area", fillOpacity: 0.15 }, encoding: { y: y("low", axis), y2: { field: "high" } } },
        { mark: { type: "line", strokeWidth: 1.8 }, encoding: { y: y("y", axis), strokeDash: scale(lines.map(({ dash }) => DASHES[dash])) } },
        {  // for the tooltip; a curve of one point is no line, so that is seen
          transform: [{ joinaggregate: [{ op: "count", as: "points" }], groupby: ["label"] }],
          mark: { type: "point", size: 60, filled: true },
          encoding: { y: y("y", axis), tooltip: { field: "text", type: "nominal" }, opacity: { condition: { test: "datum.points === 1", value: 1 }, value: 0 } },
        },
      ],
    };
  }

  function draw(lines) {
    lookAt(lines);
    get("keys").replaceChildren(...lines.map(({ label, colour, dash }) => {
      const key = part("span", "");
      key.innerHTML = `<svg viewBox="0 0 32 8" aria-hidden="true"><path d="M0 4H32" fill="none" stroke-width="2.5" stroke="${colour}" stroke-dasharray="${DASHES[dash]}"/></svg>`;
      key.append(label);
      return key;
    }));
    document.querySelectorAll("[data-chart]").forEach((figure) => {
      const name = figure.dataset.chart;
      const points = lines.flatMap((line) => pointsOf(line, name));
      const title = figure.querySelector("h3");
      title.textContent = data.titles[name];
      figure.querySelector(".plot").ariaLabel = data.titles[name];
      figure.hidden = !points.length;
      if (points.length) showChart(figure.querySelector(".plot"), chartOf(name, lines, points));
    });
    get("curves").hidden = !lines.length;
  }

  function show() {
    const chosen = data.runs.filter(({ name }) => boxes.get(name).checked);
    const cells = [...new Set(chosen.map(({ cell }) => cell))].sort((a, b) => a - b);
    const lines = cells.map((cell) => ({ ...data.cells[cell], runs: chosen.filter((run) => run.cell === cell) }));
    get("said").textContent = chosen.length === 1 ? chosen[0].name : `${chosen.length || "No"} runs compared`;
    fill("means", data.columns, lines.map(({ label, means }) => [label, ...means]));
    const gaps = data.gaps.filter(([a, b]) => cells.includes(a) && cells.includes(b));
    fill("gaps", ["model and size", "against", "difference"], gaps.map(([a, b, text]) => [data.cells[a].label, data.cells[b].model, text]), true);
    const settings = data.keys.map((key, i) => [key, ...lines.map((line) => [...new Set(line.runs.map((run) => run.settings[i]))].join(", "))]);
    const differs = ([, ...cells], i) => new Set(lines.length > 1 ? cells : chosen.map((run) => run.settings[i])).size > 1;
    const absent = (cells) => cells.includes("\u2013"); // of some kind of model: last
    fill("settings", ["setting", ...lines.map(({ label }) => label)], settings.filter(differs).sort((a, b) => absent(a) - absent(b)), true);
    const alone = ({ name: label, ...run }) => ({ label, colour: data.cells[run.cell].colour, runs: [run] });
    draw(get("single").checked ? chosen.map(alone) : lines);
    const pages = chosen.filter(({ attention }) => attention);
    get("attention").replaceChildren(pages.length ? "Attention maps: " : "", ...pages.map(({ name, attention }) => part("a", name, { href: attention })));
  }

  /* The runs that the address names, else those of the start; one that is not here is said. */
  function read() {
    const asked = location.hash.slice(1).split(",").filter(Boolean).map(decodeURIComponent);
    const unknown = asked.filter((name) => !runs.has(name));
    get("unknown").textContent = unknown.map((name) => `This page has no run ${name}.`).join(" ");
    const known = asked.filter((name) => runs.has(name));
    boxes.forEach((box, name) => { box.checked = (known.length ? known : data.start).includes(name); });
    get("runs-table").dispatchEvent(new Event("input"));
  }
  get("runs-table").addEventListener("input", ({ target }) => {
    if (target.type === "checkbox") {
      const names = data.runs.map(({ name }) => name).filter((name) => boxes.get(name).checked);
      history.replaceState(null, "", `#${names.map(encodeURIComponent).join(",")}`);
      get("unknown").textContent = "";
    }
    show();
  });
  get("single").addEventListener("input", show);
  addEventListener("hashchange", read);
  read();
})();
