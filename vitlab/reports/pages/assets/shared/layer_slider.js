/* The slider over layers: `words(step)` names what it shows, to be read and to be heard, `changed(step)` shows it. */
"use strict";
const layerSlider = (words, changed) => {
  const input = document.getElementById("layer");
  const step = () => Number(input.value);
  function show() {
    const text = words(step());
    input.setAttribute("aria-valuetext", text);
    document.querySelectorAll(".said").forEach((place) => { place.textContent = text; });
    changed(step());
  }
  input.addEventListener("input", show);
  /* Over so many layers: at the last, unless it stood at one that is still there. */
  function over(most) {
    const last = input.value === input.max;
    input.max = most;
    input.disabled = most < 2;
    if (last) input.value = most;
    show();
  }
  return { step, show, over };
};
