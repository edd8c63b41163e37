/* A small chart of a few lines, with a reading at the pointer: drawn as SVG, so that it prints and takes the theme. */
"use strict";
const threeDigits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const lineChart = (figure) => {
  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BELOW] = [440, 210, 46, 22, 10, 24];
  const AXES = "var(--untrained)";
  const svgPart = (tag, attributes, text = "") => {
    const part = document.createElementNS("http://www.w3.org/2000/svg", tag);
    Object.entries(attributes).forEach(([key, value]) => part.setAttribute(key, value));
    part.textContent = text;
    return part;
  };

  /* Round numbers from the least to the largest, about so many. */
  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
    const first = Math.ceil(low / step - 1e-9);
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
  }

  /* Lines `{name, colour, dash, x, y, dots}`; y may have gaps (null), `dots` are more points [x, y] without a line. */
  function draw(lines, { percent = false, whole = false, noun = "step", lacking = "" } = {}) {
    figure.querySelectorAll("svg, p").forEach((part) => part.remove());
    const shown = lines.filter((line) => line.y.some((y) => y !== null));
    const text = (y) => (percent ? `${threeDigits.format(100 * y)}%` : threeDigits.format(y));
    if (lacking) figure.append(Object.assign(document.createElement("p"), { className: "none", textContent: lacking }));
    if (!shown.length) return;
    const xs = [...new Set(shown.flatMap((line) => line.x))].sort((a, b) => a - b);
    const ys = shown.flatMap((line) => [...line.y, ...line.dots.map(([, y]) => y)]).filter((y) => y !== null);
    const [low, high] = [whole ? xs[0] : Math.min(0, xs[0]), xs.at(-1)];
    const top = Math.max(...ys) * 1.04 || 1;
    const bottom = Math.min(0, ...ys);
    const right = (x) => LEFT + (WIDTH - LEFT - RIGHT) * (high > low ? (x - low) / (high - low) : 0.5);
    const down = (y) => TOP + (HEIGHT - TOP - BELOW) * (1 - (y - bottom) / (top - bottom));

    const ends = shown.map((line) => {
      const known = line.x.map((x, i) => [x, line.y[i]]).filter(([, y]) => y !== null);
      return `${line.name}: ${text(known[0][1])} at ${noun} ${known[0][0]}, ${text(known.at(-1)[1])} at ${known.at(-1)[0]}`;
    });
    const svg = svgPart("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "application", tabindex: 0,
      "aria-label": `${figure.querySelector("h3").textContent}. ${ends.join(". ")}. Arrow keys read the values.`,
    });
    for (const y of ticks(bottom, top, 4)) {
      svg.append(svgPart("path", { d: `M${LEFT} ${down(y)}H${WIDTH - RIGHT}`, stroke: "var(--grid)" }));
      svg.append(svgPart("text", { x: LEFT - 6, y: down(y) + 4, "text-anchor": "end" }, text(y)));
    }
    for (const x of whole && xs.length < 13 ? xs : ticks(low, high, 5)) {
      if (whole && !Number.isInteger(x)) continue;
      svg.append(svgPart("text", { x: right(x), y: HEIGHT - 8, "text-anchor": "middle" }, x.toLocaleString("en")));
    }
    svg.append(svgPart("path", { d: `M${LEFT} ${TOP}V${HEIGHT - BELOW}H${WIDTH - RIGHT}`, fill: "none", stroke: AXES }));
    shown.forEach(({ colour, dash, x, y, dots }) => {
      dots.forEach(([at, value]) => svg.append(svgPart("circle", {
        cx: right(at), cy: down(value), r: 3, fill: dash ? "none" : colour, stroke: colour, opacity: 0.55,
      })));
      let d = "";
      x.forEach((at, i) => {
        if (y[i] === null) return;
        d += `${i && y[i - 1] !== null ? "L" : "M"}${right(at).toFixed(1)} ${down(y[i]).toFixed(1)}`;
      });
      svg.append(svgPart("path", {
        d, fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash, "stroke-linejoin": "round", class: "curve",
      }));
    });
    figure.append(svg);
    reader(svg, shown, xs, right, (x) => `${noun} ${x.toLocaleString("en")}`, text);
  }

  /* The values at the x nearest to the pointer, or that the arrow keys reach. */
  function reader(svg, lines, xs, right, place, text) {
    const value = Object.assign(document.createElement("p"), { className: "value" });
    value.setAttribute("role", "status");
    const rule = svgPart("path", { stroke: AXES, "stroke-dasharray": "2 3", visibility: "hidden" });
    svg.append(rule);
    figure.append(value);
    let at = null; // a place in xs
    const nearest = (line, x) => line.x.reduce((best, _, i) => (
      line.y[i] !== null && (best < 0 || Math.abs(line.x[i] - x) < Math.abs(line.x[best] - x)) ? i : best), -1);
    function show(next) {
      at = next;
      rule.setAttribute("visibility", at === null ? "hidden" : "visible");
      if (at === null) { value.textContent = ""; return; }
      rule.setAttribute("d", `M${right(xs[at])} ${TOP}V${HEIGHT - BELOW}`);
      const found = lines.map((line) => `${line.name} ${text(line.y[nearest(line, xs[at])])}`);
      value.textContent = `${place(xs[at])}: ${found.join(", ")}`;
    }
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * WIDTH / box.width;
      show(xs.reduce((best, one, i) => (Math.abs(right(one) - x) < Math.abs(right(xs[best]) - x) ? i : best), 0));
    });
    svg.addEventListener("pointerleave", () => { if (document.activeElement !== svg) show(null); });
    svg.addEventListener("focus", () => { if (svg.matches(":focus-visible") && at === null) show(xs.length - 1); });
    svg.addEventListener("blur", () => show(null));
    svg.addEventListener("keydown", (event) => {
      const next = { ArrowLeft: (at ?? 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: xs.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      show(Math.max(0, Math.min(xs.length - 1, next)));
    });
  }
  return { draw };
};
