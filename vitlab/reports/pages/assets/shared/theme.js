/* Before the first paint: the theme that was chosen here before, if any; a page from a file may have no storage. */
document.documentElement.classList.add("js");
try {
  const chosen = localStorage.getItem("vitlab-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* none */ }
