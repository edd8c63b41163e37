/* Charts of Vega-Lite: the data of one that vitlab/reports/figures/__init__.py packed, and a chart in its place. */
"use strict";
const unpackPoints = ({ columns, words, texts }) => {
  const keys = Object.keys(columns);
  const read = (key, value) => (value !== null && texts.includes(key) ? words[value] : value);
  return (columns[keys[0]] ?? []).map((_, i) => Object.fromEntries(keys.map((key) => [key, read(key, columns[key][i])])));
};
const unpackChart = (chart) => {
  const datasets = Object.entries(chart.datasets).map(([name, packed]) => [name, unpackPoints(packed)]);
  return { ...chart, datasets: Object.fromEntries(datasets) };
};
/* `ast` keeps Vega from making code of its expressions, which the page's policy forbids. */
const showChart = async (node, chart) => {
  const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, logLevel: 1, tooltip: { disableDefaultStyle: true } };
  const { view } = await vegaEmbed(node, chart, options);
  return view;
};
