/* The button that changes the theme. The document hears "themechange" whenever the colours have changed. */
"use strict";
(() => {
  const [root, button] = [document.documentElement, document.getElementById("theme")];
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const other = () => ((root.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark" ? "light" : "dark");
  function changed() {
    button.textContent = other() === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `${button.textContent} theme`);
    document.dispatchEvent(new Event("themechange"));
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = other();
    try { localStorage.setItem("vitlab-theme", root.dataset.theme); } catch { /* no storage */ }
    changed();
  });
  systemDark.addEventListener("change", changed);
  changed();
})();
