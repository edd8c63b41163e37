/* The study's figures with their views, and points that lead to their run. */
"use strict";
(() => {
  const { charts } = JSON.parse(document.getElementById("data").textContent);
  const nodes = [...document.querySelectorAll("[data-chart]")];
  const drawn = new Map(); // node -> the width of its chart, where it is one of panels

  async function draw(node) {
    const chart = charts[node.dataset.chart];
    const width = chart.facet ? node.clientWidth : 0;
    if (!node.offsetParent || drawn.get(node) === width) return;
    drawn.set(node, width);
    const view = await showChart(node, fitPanels(unpackChart(chart), width));
    view.addEventListener("click", (event, item) => openRun(item?.datum?.link, event));
    view.addEventListener("mouseover", (event, item) => node.classList.toggle("over-link", Boolean(item?.datum?.link)));
  }
  const drawAll = async () => { for (const node of nodes) await draw(node); };

  /* As many panels beside each other as have room, each as wide as it can be. */
  function fitPanels(chart, width) {
    if (!chart.facet) return chart;
    const columns = Math.max(1, Math.min(chart.columns, Math.floor(width / 240)));
    return { ...chart, columns, spec: { ...chart.spec, width: Math.floor(width / columns) - 76 } };
  }

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
    row.closest("details").open = true;
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "center" });
  }

  document.querySelectorAll("figure[id]").forEach((figure) => {
    const show = (view) => figure.querySelectorAll(".view").forEach((part) => {
      if (!(part.hidden = part.dataset.view !== view)) figure.querySelector("h2").textContent = part.ariaLabel;
    });
    figure.querySelectorAll("input[type=radio]").forEach((button) => {
      button.addEventListener("change", () => { show(button.value); drawAll(); });
      if (button.checked) show(button.value);
    });
  });
  const folds = [...document.querySelectorAll("details")];
  const follow = () => { const fold = document.getElementById(location.hash.slice(1))?.closest("details"); if (fold) fold.open = true; };
  folds.forEach((fold) => fold.addEventListener("toggle", drawAll));
  addEventListener("hashchange", follow);
  addEventListener("beforeprint", () => { folds.forEach((fold) => { fold.open = true; }); drawAll(); });
  follow();
  addEventListener("resize", drawAll);
  /* A page loaded again is shorter until its figures are drawn: without this the reader's place is lost. */
  addEventListener("pagehide", () => history.replaceState({ top: scrollY }, ""));
  drawAll().then(() => { if (history.state?.top) scrollTo({ top: history.state.top, behavior: "instant" }); });
})();
