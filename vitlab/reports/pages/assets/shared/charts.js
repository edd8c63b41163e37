/* Charts of Vega-Lite: the points of one that vitlab/reports/pages/render.py packed, and a chart in its place. */
"use strict";
const unpackChart = (chart) => {
  const { columns, words, texts } = chart.data;
  const keys = Object.keys(columns);
  const values = columns[keys[0]].map((_, i) => {
    const point = {};
    for (const key of keys) {
      const value = columns[key][i];
      if (value !== null || key === "y") point[key] = value !== null && texts.includes(key) ? words[value] : value;
    }
    return point;
  });
  return { ...chart, data: { values } };
};
/* `ast` keeps Vega from making code of its expressions, which the page's policy forbids. */
const showChart = async (node, chart) => {
  const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, logLevel: 1, tooltip: { disableDefaultStyle: true } };
  const { view } = await vegaEmbed(node, chart, options);
  return view;
};
