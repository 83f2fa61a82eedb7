// Curves over environment steps, drawn by uPlot.

const QUANTITIES = {
  entropy: { title: "Entropy of all agents together", axis: "entropy (nats)", show: (value) => value.toFixed(2) },
  success: { title: "Success rate", axis: "success rate (%), mean of 5 iterations", show: (value) => `${value.toFixed(0)} %`, range: [0, 100] },
  return: { title: "Return", axis: "return per episode", show: (value) => value.toPrecision(4) },
};

const SERIES_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"];
const CHART_HEIGHT = 300;

// `runs` all have a curve of the quantity `name`.
function curveFigure(name, runs) {
  const quantity = QUANTITIES[name];
  const holder = make("div", { class: "chart", "data-quantity": name });
  const figure = make("figure", { class: "part" }, make("h3", {}, quantity.title), holder);
  let chart = null;
  redrawWithLayout(holder, () => {
    if (chart) chart.destroy();
    chart = new uPlot(chartOptions(quantity, runs, holder.clientWidth), chartData(name, runs), holder);
  });
  return figure;
}

function chartData(name, runs) {
  const factor = name === "success" ? 100 : 1;
  return uPlot.join(runs.map((run) => [run.curve.x, run.curve.y.map((value) => factor * value)]));
}

function chartOptions(quantity, runs, width) {
  const show = (chart, value) => (value === null || value === undefined ? "–" : quantity.show(value));
  const series = runs.map((run, index) => ({
    label: runs.length === 1 ? quantity.axis : run.name,
    stroke: runs.length === 1 ? cssColour("accent") : SERIES_COLOURS[index % SERIES_COLOURS.length],
    dash: index < SERIES_COLOURS.length ? undefined : [8, 4],
    width: 2,
    spanGaps: true,
    value: show,
    points: { show: run.curve.x.length === 1 },
  }));
  const steps = (chart, value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));
  return {
    width,
    height: CHART_HEIGHT,
    scales: { x: { time: false }, y: { range: quantity.range } },
    series: [{ label: "environment steps", value: steps }, ...series],
    axes: [chartAxis("environment steps", (chart, ticks) => ticks.map(shortCount)), chartAxis(quantity.axis)],
    cursor: { drag: { setScale: false }, y: false },
  };
}

function chartAxis(label, values) {
  const axis = {
    label,
    stroke: cssColour("soft"),
    grid: { stroke: cssColour("grid"), width: 1 },
    ticks: { stroke: cssColour("grid"), width: 1 },
    font: "12px system-ui, sans-serif",
    labelFont: "12px system-ui, sans-serif",
  };
  return values ? { ...axis, values, space: 70, size: 32, labelSize: 22 } : axis;
}
