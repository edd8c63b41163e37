/* The choice of two runs, on the page or by its address (#a=RUN&b=RUN), and all that is shown of them. */
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const runs = new Map(data.runs.map((run) => [run.name, run]));
  const LETTERS = ["a", "b"];
  const pictures = comparePictures(data);
  const threeDigits = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  const withSign = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, signDisplay: "exceptZero" });
  const signed = (value) => withSign.format(value).replace("-", "\u2212");

  const chosen = () => LETTERS.map((letter) => runs.get(get(letter).value));
  const row = (cells, text = []) => {
    const line = document.createElement("tr");
    cells.forEach((cell, i) => {
      const part = document.createElement(i ? "td" : "th");
      if (!i) part.scope = "row";
      if (!i || text.includes(i)) part.className = "text";
      part.textContent = cell;
      line.append(part);
    });
    return line;
  };

  function against(kind, a, b) {
    if (a === null || b === null || !kind) return "";
    if (a === b) return "same";
    if (kind === "ratio") return a > 0 ? `\u00d7 ${threeDigits.format(b / a)}` : "";
    return kind === "points" ? `${signed(Number((100 * (b - a)).toFixed(1)))} points` : signed(b - a);
  }

  /* The difference of the models and sizes that two runs are of, over all their seeds, in words. */
  function certainty([a, b]) {
    if (a.cell === b.cell) return "";
    const forward = data.gaps[`${a.cell}\n${b.cell}`];
    const found = forward ?? data.gaps[`${b.cell}\n${a.cell}`];
    if (!found) return "";
    const [mean, half, seeds, items] = found;
    const difference = forward ? mean : -mean;
    const size = (value) => (data.percent ? (100 * value).toFixed(1) : threeDigits.format(value));
    const text = data.percent ? signed(Number((100 * difference).toFixed(1))) : signed(difference);
    const over = [seeds > 1 ? `${seeds} seeds` : "", items ? `${items.toLocaleString("en")} held-out items` : ""].filter(Boolean).join(" and ");
    const alone = seeds > 1 ? "" : "; of one seed, other seeds are not covered";
    const verdict = Math.abs(mean) > half ? "" : " Undecided: it holds 0.";
    return `${data.metric[0].toUpperCase()}${data.metric.slice(1)} of ${b.cell} against ${a.cell}: ${text} \u00b1 ${size(half)} ${data.unit} (95% interval over ${over}${alone}).${verdict}`;
  }

  /* The points of a run's curve: the lines of a chart, and behind them single values. */
  const line = (label, xs, ys) => xs.map((x, i) => ({ mark: "line", line: "", label, x, y: ys[i] }));
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const pointsOf = {
    distances: ({ distances }, label) => distances && [
      ...line(label, distances.map((_, layer) => layer + 1), distances.map(mean)),
      ...distances.flatMap((heads, layer) => heads.map((y) => ({ mark: "ring", line: "", label, x: layer + 1, y }))),
    ],
  };
  const lacks = {
    distances: ({ lacks_attention: none }) => (none ? "no attention over patches" : "not in the run\u2019s folder"),
  };

  function drawCharts(pair) {
    const same = pair[0].colour === pair[1].colour;
    const colours = [`var(--${pair[0].colour})`, same ? "var(--ink)" : `var(--${pair[1].colour})`];
    LETTERS.forEach((letter, i) => {
      get("curves").style.setProperty(`--${letter}`, colours[i]);
      document.querySelector(`.keys .${letter}`).textContent = `${letter.toUpperCase()}, ${pair[i].name}`;
    });
    document.querySelectorAll("[data-chart]").forEach((figure) => {
      const name = figure.dataset.chart;
      const found = pair.map((run, i) => (pointsOf[name] ?? (({ curves }, label) => curves[name] && line(label, ...curves[name])))(run, LETTERS[i].toUpperCase()));
      const missing = pair.flatMap((run, i) => (found[i] ? [] : [`${LETTERS[i].toUpperCase()}: ${(lacks[name] ?? (() => "not logged"))(run)}`]));
      figure.querySelector(".none").textContent = missing.join("; ");
      const place = figure.querySelector(".plot");
      place.hidden = missing.length === 2;
      if (!place.hidden) showChart(place, { ...data.charts[name], data: { values: found.flatMap((points) => points ?? []) } });
    });
  }

  function show() {
    const pair = chosen();
    LETTERS.forEach((letter, i) => { get(`name-${letter}`).textContent = pair[i].name; });
    get("numbers").tBodies[0].replaceChildren(...data.columns.map(({ label, kind }, i) => {
      const [a, b] = pair.map((run) => run.numbers[i]);
      return row([label, a[0], b[0], against(kind, a[1], b[1])]);
    }));
    const differing = data.keys.map((key, i) => [key, ...pair.map((run) => run.settings[i])]).filter(([, a, b]) => a !== b);
    get("settings").tBodies[0].replaceChildren(...differing.map((cells) => row(cells, [1, 2])));
    get("settings").hidden = !differing.length;
    get("same").hidden = differing.length > 0;
    get("gap").textContent = certainty(pair);
    drawCharts(pair);
    pictures.show(pair.map((run, i) => ({ letter: LETTERS[i].toUpperCase(), name: run.name, maps: run.maps })));
  }

  /* What the address asks for; a run that is not of this study is said, and another one shown. */
  function read() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const unknown = LETTERS.map((letter) => asked.get(letter)).filter((name) => name !== null && !runs.has(name));
    get("unknown").textContent = unknown.map((name) => `This study has no finished run ${name}.`).join(" ");
    const names = LETTERS.map((letter) => (runs.has(asked.get(letter)) ? asked.get(letter) : null));
    LETTERS.forEach((letter, i) => {
      const other = names[1 - i];
      const start = data.start[i] === other ? data.start[1 - i] : data.start[i];
      get(letter).value = names[i] ?? start;
    });
    show();
  }
  function choose() {
    const address = new URLSearchParams(LETTERS.map((letter) => [letter, get(letter).value]));
    history.replaceState(null, "", `#${address}`);
    get("unknown").textContent = "";
    show();
  }
  LETTERS.forEach((letter) => get(letter).addEventListener("change", choose));
  get("swap").addEventListener("click", () => {
    [get("a").value, get("b").value] = [get("b").value, get("a").value];
    choose();
  });
  addEventListener("hashchange", read);
  read();
})();
