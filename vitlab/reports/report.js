/* Theme, figures, legend, table of runs. Figures are drawn once plotly.js, which comes after this, is there. */
"use strict";
(() => {
  const root = document.documentElement;
  const { plots, themes } = JSON.parse(document.getElementById("data").textContent);
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const wide = matchMedia("(min-width: 44.0625rem)");
  const finePointer = matchMedia("(pointer: fine)").matches;
  const nodes = [...document.querySelectorAll("[data-plot]")];
  const hidden = plots.map(() => new Set()); // labels switched off, per figure
  const chosen = plots.map(() => ""); // the one model shown, per figure; empty: all

  const theme = () => root.dataset.theme || (systemDark.matches ? "dark" : "light");

  /* The figures come in the light theme's colours: #rrggbb, or #rrggbbaa. */
  function themed(value) {
    if (typeof value === "string") {
      const key = Object.keys(themes.light).find((k) => value.slice(0, 7) === themes.light[k]);
      return key && (value.length === 7 || value.length === 9) ? themes[theme()][key] + value.slice(7) : value;
    }
    if (Array.isArray(value)) return value.map(themed);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, themed(v)]));
    }
    return value;
  }

  function draw(i) {
    if (!window.Plotly) return;
    const data = plots[i].data.map((trace) => ({
      ...themed(trace),
      visible: !hidden[i].has(trace.meta.label) && (!chosen[i] || trace.meta.model === chosen[i]),
    }));
    const layout = { ...themed(wide.matches ? plots[i].wide : plots[i].narrow), dragmode: finePointer ? "zoom" : false };
    Plotly.react(nodes[i], data, layout, { responsive: true, displayModeBar: false, showTips: false });
  }
  const drawAll = () => nodes.forEach((_, i) => draw(i));

  const button = document.getElementById("theme");
  function showTheme() {
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `${button.textContent} theme`);
    drawAll();
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("vitlab-theme", root.dataset.theme); } catch { /* no storage */ }
    showTheme();
  });
  systemDark.addEventListener("change", showTheme);
  wide.addEventListener("change", drawAll);

  function openRun(link, event) {
    if (!link) return;
    if (event && (event.ctrlKey || event.metaKey)) { window.open(link); return; }
    const row = [...document.querySelectorAll("[data-run]")].find((r) => r.dataset.run === link);
    if (!row) return;
    filter.value = "";
    applyFilter();
    document.querySelectorAll("tr.found").forEach((r) => r.classList.remove("found"));
    row.classList.add("found");
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  document.addEventListener("DOMContentLoaded", () => {
    showTheme();
    if (!window.Plotly) return;
    nodes.forEach((node) => {
      const linked = (event) => event.points[0] && event.points[0].customdata;
      node.on("plotly_click", (event) => openRun(linked(event), event.event));
      node.on("plotly_hover", (event) => node.classList.toggle("over-link", Boolean(linked(event))));
      node.on("plotly_unhover", () => node.classList.remove("over-link"));
    });
    root.classList.add("drawn");
  });

  document.querySelectorAll(".keys").forEach((keys) => {
    const i = Number(keys.closest("figure").querySelector("[data-plot]").dataset.plot);
    keys.querySelectorAll("button").forEach((key) => key.addEventListener("click", () => {
      const on = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", String(on));
      hidden[i][on ? "delete" : "add"](key.dataset.label);
      draw(i);
    }));
    const chooser = keys.querySelector("select");
    if (!chooser) return;
    const choose = () => {
      chosen[i] = chooser.value;
      keys.querySelectorAll("button").forEach((key) => { key.hidden = chosen[i] && key.dataset.model !== chosen[i]; });
      draw(i);
    };
    chooser.addEventListener("change", choose);
    choose();
  });

  const table = document.getElementById("runs-table");
  if (!table) return;
  const filter = document.getElementById("filter");
  const announce = document.getElementById("announce");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const plural = (n) => `${n} run${n === 1 ? "" : "s"}`;
  let order = "";

  function tell(shown) {
    announce.textContent = (shown === rows.length ? plural(shown) : `${shown} of ${plural(rows.length)}`) + order;
  }
  function applyFilter() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row) => { row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word)); });
    tell(rows.filter((row) => !row.hidden).length);
  }
  filter.addEventListener("input", applyFilter);

  table.querySelectorAll("thead button").forEach((head) => head.addEventListener("click", () => {
    const cell = head.parentElement;
    const column = cell.cellIndex;
    const down = cell.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("[aria-sort]").forEach((other) => other.setAttribute("aria-sort", "none"));
    cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value;
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // without a number: last, either way
      const less = column === 0 ? x.localeCompare(y, "en", { numeric: true }) : Number(x) - Number(y);
      return down ? -less : less;
    });
    body.append(...rows);
    order = `, sorted by ${head.textContent}, ${down ? "descending" : "ascending"}`;
    applyFilter();
  }));
})();
