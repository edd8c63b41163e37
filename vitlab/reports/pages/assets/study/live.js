/* Of a study that runs: the page reloads itself, where it was scrolled to, until the last report lacks this script. */
"use strict";
(() => {
  const SECONDS = 15;
  const key = `vitlab-scroll ${location.pathname}`;
  try {
    const before = sessionStorage.getItem(key);
    sessionStorage.removeItem(key);
    if (before !== null) addEventListener("load", () => scrollTo({ top: Number(before), behavior: "instant" }));
  } catch { /* no storage */ }
  let timer = 0;
  const reload = () => {
    if (document.hidden) return; // it waits until the page is looked at
    try { sessionStorage.setItem(key, String(scrollY)); } catch { /* no storage */ }
    location.reload();
  };
  const later = () => { clearTimeout(timer); timer = setTimeout(reload, 1000 * SECONDS); };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) later(); });
  ["pointerdown", "keydown", "input"].forEach((kind) => addEventListener(kind, later)); // not while it is in use
  later();
})();
