/* Tables that are sorted by their heads and filtered: <table data-filter="id ..." data-announce="id" data-noun="run">.
   A field is words that a row's text holds all of, or with data-by="attribute" a choice of that attribute of the rows.
   A row with a box can be chosen; the link #compare leads to the chosen ones. */
"use strict";
document.querySelectorAll("table[data-filter]").forEach((table) => {
  const filters = table.dataset.filter.split(" ").map((id) => document.getElementById(id));
  const announce = document.getElementById(table.dataset.announce);
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const plural = (n) => `${n} ${table.dataset.noun}${n === 1 ? "" : "s"}`;
  let order = "";

  function tell(shown) {
    announce.textContent = (shown === rows.length ? plural(shown) : `${shown} of ${plural(rows.length)}`) + order;
  }
  function passes(row, { value, dataset }) {
    if (dataset.by) return !value || row.getAttribute(dataset.by) === value;
    return value.toLowerCase().split(/\s+/).every((word) => texts.get(row).includes(word));
  }
  function applyFilter() {
    rows.forEach((row) => { row.hidden = !filters.every((field) => passes(row, field)); });
    tell(rows.filter((row) => !row.hidden).length);
  }
  filters.forEach((field) => field.addEventListener("input", applyFilter));

  const boxOf = (row) => row.querySelector("input");
  function choose() {
    const names = rows.filter((row) => boxOf(row).checked).map((row) => encodeURIComponent(boxOf(row).value));
    rows.forEach((row) => { row.dataset.chosen = boxOf(row).checked ? "1" : ""; });
    const link = document.getElementById("compare");
    if (link) {
      link.href = names.length ? `compare.html#${names.join(",")}` : "compare.html";
      link.textContent = names.length ? `Compare the chosen ${plural(names.length)}` : "Compare runs";
    }
    applyFilter();
  }
  table.addEventListener("input", ({ target }) => {
    if (target.closest("thead")) rows.filter((row) => !row.hidden).forEach((row) => { boxOf(row).checked = target.checked; });
    choose();
  });

  table.querySelectorAll("thead button").forEach((head) => head.addEventListener("click", () => {
    const cell = head.parentElement;
    const column = cell.cellIndex;
    const text = cell.classList.contains("text");
    const down = cell.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("[aria-sort]").forEach((other) => other.setAttribute("aria-sort", "none"));
    cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // without a value: last, either way
      const less = text ? x.localeCompare(y, "en", { numeric: true }) : Number(x) - Number(y);
      return down ? -less : less;
    });
    body.append(...rows);
    order = `, sorted by ${head.textContent}, ${down ? "descending" : "ascending"}`;
    applyFilter();
  }));
});
