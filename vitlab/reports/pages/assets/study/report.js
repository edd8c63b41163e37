/* The study's figures with their views, choosers and legends, and points that lead to their run. */
"use strict";
(() => {
  const { charts } = JSON.parse(document.getElementById("data").textContent);
  const nodes = [...document.querySelectorAll("[data-chart]")];
  const views = new Map(); // of the charts that are drawn
  const figureOf = (node) => node.closest("main > figure");
  const hidden = new Map(nodes.map((node) => [figureOf(node), []])); // figure -> labels that are not shown

  async function draw(node) {
    if (views.has(node) || !node.offsetParent) return;
    views.set(node, null);
    const chart = unpackChart(charts[node.dataset.chart]);
    chart.params.find(({ name }) => name === "hidden").value = hidden.get(figureOf(node));
    const view = await showChart(node, chart);
    views.set(node, view);
    view.addEventListener("click", (event, item) => openRun(item?.datum?.link, event));
    view.addEventListener("mouseover", (event, item) => node.classList.toggle("over-link", Boolean(item?.datum?.link)));
    node.classList.add("drawn");
  }
  const drawAll = async (some) => { for (const node of some) await draw(node); };

  function openRun(link, event) {
    if (!link) return;
    if (event.ctrlKey || event.metaKey) { window.open(link); return; }
    const row = [...document.querySelectorAll("[data-run]")].find((one) => one.dataset.run === link);
    if (!row) return;
    document.querySelectorAll("#runs .filter :is(input, select)").forEach((field) => {
      field.value = "";
      field.dispatchEvent(new Event("input"));
    });
    document.querySelectorAll("tr.found").forEach((one) => one.classList.remove("found"));
    row.classList.add("found");
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  hidden.forEach((_, figure) => {
    const mine = nodes.filter((node) => figure.contains(node));
    const keys = [...figure.querySelectorAll(".keys button")];
    const choose = (name) => figure.querySelector(`[data-choose=${name}]`)?.value ?? "";
    function apply() {
      const model = choose("model");
      const view = figure.querySelector("input[type=radio]:checked")?.value ?? "0";
      keys.forEach((key) => {
        key.hidden = (model && key.dataset.model !== model) || !key.dataset.views.split(" ").includes(view);
      });
      const off = keys.filter((key) => key.hidden || key.getAttribute("aria-pressed") === "false").map((key) => key.dataset.label);
      hidden.set(figure, off);
      mine.forEach((node) => views.get(node)?.signal("hidden", off).runAsync());
    }
    keys.forEach((key) => key.addEventListener("click", () => {
      key.setAttribute("aria-pressed", String(key.getAttribute("aria-pressed") !== "true"));
      apply();
    }));
    figure.querySelector("[data-choose=model]")?.addEventListener("change", apply);
    figure.querySelector("[data-choose=panel]")?.addEventListener("change", () => {
      const panel = choose("panel");
      figure.querySelectorAll(".panel").forEach((part, i) => { part.hidden = panel && String(i + 1) !== panel; });
      figure.querySelector(".panels").classList.toggle("several", !panel);
      drawAll(mine);
      dispatchEvent(new Event("resize")); // the charts take the width that they have now
    });
    const shown = [...figure.querySelectorAll("[data-view]")];
    const show = (view) => shown.forEach((part) => { part.hidden = part.dataset.view !== view; });
    figure.querySelectorAll("input[type=radio]").forEach((button) => {
      button.addEventListener("change", () => { show(button.value); apply(); drawAll(mine); });
      if (button.checked) show(button.value);
    });
    apply();
  });
  drawAll(nodes);
})();
