/* Figures, their choosers and legends, points that open their run. A figure is drawn once it comes near the window:
   many at once would keep the page from opening. plotly.js comes after this script. */
"use strict";
(() => {
  const root = document.documentElement;
  const { plots, themes } = JSON.parse(document.getElementById("data").textContent);
  const wide = matchMedia("(min-width: 44.0625rem)");
  const finePointer = matchMedia("(pointer: fine)").matches;
  const nodes = [...document.querySelectorAll("[data-plot]")];
  const near = new Set(); // the plots close enough to be seen
  const drawn = new Set(); // of the plots, those that show the present choices and theme
  /* per figure: labels switched off, the one model and the one panel shown (empty: all) */
  const figureOf = (node) => node.closest("main > figure");
  const choices = new Map(nodes.map((node) => [figureOf(node), { hidden: new Set(), model: "", panel: "" }]));

  const theme = () => getComputedStyle(root).colorScheme;

  /* The figures come in the light theme's colours: #rrggbb, or #rrggbbaa. */
  function themed(value) {
    if (typeof value === "string") {
      const key = Object.keys(themes.light).find((k) => value.slice(0, 7) === themes.light[k]);
      return key && (value.length === 7 || value.length === 9) ? themes[theme()][key] + value.slice(7) : value;
    }
    if (Array.isArray(value)) return value.some((item) => item && typeof item === "object") ? value.map(themed) : value;
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, themed(v)]));
    }
    return value;
  }

  /* The traces and the layout of one panel alone, as large as a figure of one. */
  function alone({ data, wide: all, alone: layout }, panel) {
    const axis = (letter) => letter + (panel === "1" ? "" : panel);
    const traces = data.filter((trace) => (trace.xaxis || "x") === axis("x"));
    const annotations = layout.annotations.map((note) => ({ ...note, text: all.annotations[panel - 1].text }));
    return [traces.map((trace) => ({ ...trace, xaxis: "x", yaxis: "y" })), { ...layout, annotations }];
  }

  function draw(node) {
    if (!window.Plotly) return;
    const plot = plots[node.dataset.plot];
    const { hidden, model, panel } = choices.get(figureOf(node));
    const [data, layout] = panel ? alone(plot, panel) : [plot.data, wide.matches ? plot.wide : plot.narrow];
    const traces = data.map((trace) => ({
      ...themed(trace),
      visible: !hidden.has(trace.meta.label) && (!model || trace.meta.model === model),
    }));
    const dragmode = finePointer ? "zoom" : false;
    const options = { responsive: true, displayModeBar: false, showTips: false };
    node.style.minHeight = panel ? `${layout.height}px` : "";
    Plotly.react(node, traces, { ...themed(layout), dragmode }, options);
    document.getElementById("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // where plotly.js measures texts
    if (!node.classList.contains("listens")) listen(node);
    drawn.add(node);
  }
  function redraw(some) {
    some.forEach((node) => {
      drawn.delete(node);
      if (near.has(node)) draw(node);
    });
  }
  const redrawAll = () => redraw(nodes);

  document.addEventListener("themechange", redrawAll);
  wide.addEventListener("change", redrawAll);

  function listen(node) {
    const linked = ({ points: [point] }) => point && (point.customdata || point.data.meta.link);
    node.classList.add("listens");
    node.on("plotly_click", (event) => openRun(linked(event), event.event));
    node.on("plotly_hover", (event) => node.classList.toggle("over-link", Boolean(linked(event))));
    node.on("plotly_unhover", () => node.classList.remove("over-link"));
  }

  function openRun(link, event) {
    if (!link) return;
    if (event && (event.ctrlKey || event.metaKey)) { window.open(link); return; }
    const row = [...document.querySelectorAll("[data-run]")].find((r) => r.dataset.run === link);
    if (!row) return;
    document.querySelectorAll("#runs .filter :is(input, select)").forEach((field) => {
      field.value = "";
      field.dispatchEvent(new Event("input"));
    });
    document.querySelectorAll("tr.found").forEach((r) => r.classList.remove("found"));
    row.classList.add("found");
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  choices.forEach((choice, figure) => {
    const mine = nodes.filter((node) => figure.contains(node));
    const keys = [...figure.querySelectorAll(".keys button")];
    keys.forEach((key) => key.addEventListener("click", () => {
      const on = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", String(on));
      choice.hidden[on ? "delete" : "add"](key.dataset.label);
      redraw(mine);
    }));
    figure.querySelectorAll("[data-choose]").forEach((chooser) => {
      const choose = () => {
        choice[chooser.dataset.choose] = chooser.value;
        keys.forEach((key) => { key.hidden = choice.model && key.dataset.model !== choice.model; });
        redraw(mine);
      };
      chooser.addEventListener("change", choose);
      choose();
    });
    const views = [...figure.querySelectorAll("[data-view]")];
    const show = (view) => views.forEach((part) => { part.hidden = part.dataset.view !== view; });
    figure.querySelectorAll("input[type=radio]").forEach((button) => {
      button.addEventListener("change", () => show(button.value));
      if (button.checked) show(button.value);
    });
  });

  document.addEventListener("DOMContentLoaded", () => {
    const observer = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
      near[isIntersecting ? "add" : "delete"](target);
      if (isIntersecting && !drawn.has(target)) draw(target);
    }), { rootMargin: "50% 0px" });
    nodes.forEach((node) => observer.observe(node));
  });
})();
