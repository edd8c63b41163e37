/* The button that changes the theme. The document hears "themechange" whenever the colours have changed. */
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (systemDark.matches ? "dark" : "light");

  function changed() {
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `${button.textContent} theme`);
    document.dispatchEvent(new Event("themechange"));
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    try { localStorage.setItem("vitlab-theme", root.dataset.theme); } catch { /* no storage */ }
    changed();
  });
  systemDark.addEventListener("change", changed);
  changed();
})();
