/* Tables that are sorted by their heads and filtered by words: <table data-filter="id" data-announce="id" data-noun="run">. */
"use strict";
document.querySelectorAll("table[data-filter]").forEach((table) => {
  const filter = document.getElementById(table.dataset.filter); // a field, or a choice
  const announce = document.getElementById(table.dataset.announce);
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const plural = (n) => `${n} ${table.dataset.noun}${n === 1 ? "" : "s"}`;
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
    const text = cell.classList.contains("text");
    const down = cell.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("[aria-sort]").forEach((other) => other.setAttribute("aria-sort", "none"));
    cell.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value;
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
