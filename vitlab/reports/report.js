/* Figures, legend, points that open their run. Figures are drawn once plotly.js, which comes after this, is there. */
"use strict";
(() => {
  const root = document.documentElement;
  const { plots, themes } = JSON.parse(document.getElementById("data").textContent);
  const wide = matchMedia("(min-width: 44.0625rem)");
  const finePointer = matchMedia("(pointer: fine)").matches;
  const nodes = [...document.querySelectorAll("[data-plot]")];
  const hidden = plots.map(() => new Set()); // labels switched off, per figure
  const chosen = plots.map(() => ""); // the one model shown, per figure; empty: all

  const theme = () => getComputedStyle(root).colorScheme;

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

  document.addEventListener("themechange", drawAll);
  wide.addEventListener("change", drawAll);

  function openRun(link, event) {
    if (!link) return;
    if (event && (event.ctrlKey || event.metaKey)) { window.open(link); return; }
    const row = [...document.querySelectorAll("[data-run]")].find((r) => r.dataset.run === link);
    if (!row) return;
    const filter = document.getElementById("filter");
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    document.querySelectorAll("tr.found").forEach((r) => r.classList.remove("found"));
    row.classList.add("found");
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  document.addEventListener("DOMContentLoaded", () => {
    drawAll();
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
})();
