// Maps seen from above: ground, walls, heights, paths, marks.

const AXES = { left: 46, right: 8, top: 8, bottom: 42 };
const BARE = { left: 0, right: 0, top: 0, bottom: 0 };

// How a map's coordinates become pixels on a canvas that is `width` CSS pixels wide.
function mapView(extent, width, margins) {
  const [left, right, bottom, top] = extent;
  const scale = (width - margins.left - margins.right) / (right - left);
  const height = margins.top + margins.bottom + scale * (top - bottom);
  return {
    extent, margins, scale, width, height,
    px: (x) => margins.left + (x - left) * scale,
    py: (y) => margins.top + (top - y) * scale,
    x: (px) => left + (px - margins.left) / scale,
    y: (py) => top - (py - margins.top) / scale,
  };
}

// The canvas's context, sized for the view and for sharp screens.
function prepareCanvas(canvas, view) {
  const sharpness = window.devicePixelRatio || 1;
  canvas.width = Math.round(view.width * sharpness);
  canvas.height = Math.round(view.height * sharpness);
  const context = canvas.getContext("2d");
  context.scale(sharpness, sharpness);
  context.lineJoin = "round";
  return context;
}

function clipToMap(context, view, draw) {
  const [left, right, bottom, top] = view.extent;
  context.save();
  context.beginPath();
  context.rect(view.px(left), view.py(top), view.px(right) - view.px(left), view.py(bottom) - view.py(top));
  context.clip();
  draw();
  context.restore();
}

function drawGround(context, view, ground) {
  const [left, right, bottom, top] = view.extent;
  context.fillStyle = cssColour("ground");
  context.fillRect(view.px(left), view.py(top), (right - left) * view.scale, (top - bottom) * view.scale);
  if (ground.relief) {
    const picture = reliefPicture(ground.relief);
    context.drawImage(picture, view.px(left), view.py(top), (right - left) * view.scale, (top - bottom) * view.scale);
  }
  if (ground.walls) drawWalls(context, view, ground.walls);
}

// A canvas of black (shade) and white (light) to lay over the ground.
function reliefPicture(relief) {
  if (relief.picture) return relief.picture;
  const shade = new Int8Array(decodeBase64(relief.shade));
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = relief.pixels;
  const context = canvas.getContext("2d");
  const image = context.createImageData(relief.pixels, relief.pixels);
  shade.forEach((value, i) => {
    image.data.fill(value > 0 ? 255 : 0, 4 * i, 4 * i + 3);
    image.data[4 * i + 3] = Math.abs(value);
  });
  context.putImageData(image, 0, 0);
  relief.picture = canvas;
  return canvas;
}

function drawWalls(context, view, walls) {
  context.fillStyle = cssColour("wall");
  walls.rows.forEach((row, j) => {
    [...row].forEach((letter, i) => {
      if (letter !== "1") return;
      // Whole pixels, or seams would show between cells.
      const x = Math.floor(view.px(walls.left + i * walls.cell)), y = Math.floor(view.py(walls.top - j * walls.cell));
      const x1 = Math.ceil(view.px(walls.left + (i + 1) * walls.cell)), y1 = Math.ceil(view.py(walls.top - (j + 1) * walls.cell));
      context.fillRect(x, y, x1 - x, y1 - y);
    });
  });
}

// What a point is for a goal: "free", "wall", "outside" the walled world, or "cut off" from the start.
function placeKind(ground, point) {
  if (!ground.walls) return "free";
  const { rows, left, top, cell } = ground.walls;
  const row = rows[Math.floor((top - point.y) / cell)];
  const letter = row && row[Math.floor((point.x - left) / cell)];
  return { 0: "free", 1: "wall", 2: "cut off" }[letter] || "outside";
}

// One episode, up to (not with) the stored point `end`.
function drawPath(context, view, paths, agent, episode, end) {
  const begin = firstPoint(paths, agent, episode);
  context.beginPath();
  for (let i = begin; i < begin + end; i++) context.lineTo(view.px(paths.x[i]), view.py(paths.height[i]));
  context.stroke();
}

function drawAllPaths(context, view, paths, agents) {
  context.lineWidth = 1;
  context.globalAlpha = 0.45;
  // Episode by episode over the agents, so that no agent hides the others.
  for (let episode = 0; episode < paths.episodes; episode++) {
    agents.forEach((agent, index) => {
      context.strokeStyle = agent.colour;
      drawPath(context, view, paths, index, episode, paths.points);
    });
  }
  context.globalAlpha = 1;
}

function drawStart(context, view, ground) {
  const x = view.px(ground.start[0]), y = ground.axes.length > 1 ? view.py(ground.start[1]) : view.py(view.extent[2]) - 8;
  for (const [colour, width] of [["#ffffff", 5], ["#000000", 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - 5, y - 5);
    context.lineTo(x + 5, y + 5);
    context.moveTo(x - 5, y + 5);
    context.lineTo(x + 5, y - 5);
    context.stroke();
  }
}

// A circle, or a band where there is one axis only.
function drawGoal(context, view, goal, radius, ground) {
  if (ground.axes.length < 2) return drawBand(context, view, goal.x, radius);
  const x = view.px(goal.x), y = view.py(goal.y);
  context.beginPath();
  context.arc(x, y, Math.max(3, radius * view.scale), 0, 2 * Math.PI);
  context.fillStyle = "rgba(255, 255, 255, 0.55)";
  context.fill();
  for (const [colour, width] of [["#ffffff", 4], ["#000000", 1.75]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.stroke();
  }
  context.fillStyle = "#000000";
  context.beginPath();
  context.arc(x, y, 2.5, 0, 2 * Math.PI);
  context.fill();
}

function drawBand(context, view, x, radius) {
  const [, , bottom, top] = view.extent, half = Math.max(1.5, radius * view.scale);
  context.fillStyle = "rgba(255, 255, 255, 0.55)";
  context.fillRect(view.px(x) - half, view.py(top), 2 * half, view.py(bottom) - view.py(top));
  context.fillStyle = "#000000";
  for (const side of [-half, half]) context.fillRect(view.px(x) + side - 0.75, view.py(top), 1.5, view.py(bottom) - view.py(top));
}

function drawAxes(context, view, axes) {
  const [left, right, bottom, top] = view.extent;
  context.strokeStyle = context.fillStyle = cssColour("soft");
  context.lineWidth = 1;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "top";
  const below = view.py(bottom);
  for (const value of roundTicks(left * axes[0].per, right * axes[0].per)) {
    const x = view.px(value / axes[0].per);
    context.fillRect(x - 0.5, below, 1, 4);
    context.fillText(formatNumber(value, axes[0].per), x, below + 7);
  }
  context.fillText(axisLabel(axes[0]), view.px((left + right) / 2), below + 24);
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of axes.length > 1 ? roundTicks(bottom * axes[1].per, top * axes[1].per) : []) {
    const y = view.py(value / axes[1].per);
    context.fillRect(view.px(left) - 4, y - 0.5, 4, 1);
    context.fillText(formatNumber(value, axes[1].per), view.px(left) - 7, y);
  }
  context.save();
  context.translate(8, view.py((bottom + top) / 2));
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(axes.length > 1 ? axisLabel(axes[1]) : "first step to last", 0, 0);
  context.restore();
}

// About five round numbers between `low` and `high`.
function roundTicks(low, high) {
  const rough = (high - low) / 5;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * decade).find((candidate) => candidate >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step); i <= high / step; i++) ticks.push(i * step);
  return ticks;
}

// "-4", "0.25": two decimals, more on an axis of small numbers; never "-0" and never an exponent, so that shells and
// commands read it as meant.
function formatNumber(value, per = 1) {
  const digits = 2 + Math.max(0, Math.ceil(-Math.log10(per)));
  return (Number(value.toFixed(digits)) || 0).toFixed(digits).replace(/\.?0+$/, "");
}

// "x (m)", or the bare name of what has no unit.
function axisLabel(axis) {
  return axis.unit ? `${axis.name} (${axis.unit})` : axis.name;
}

// A point of the map in the units of its axes: "6, 3".
function pointWords(ground, point) {
  const numbers = [point.x, point.y].slice(0, ground.axes.length);
  return numbers.map((value, i) => formatNumber(value * ground.axes[i].per, ground.axes[i].per));
}

// How near is near enough, in words: "1 m", or so much of each axis.
function radiusWords(run) {
  const [first] = run.ground.axes;
  if (run.ground.axes.every((axis) => axis.per === first.per && axis.unit === first.unit)) {
    return `${formatNumber(run.goal_radius * first.per, first.per)}${first.unit ? " " + first.unit : ""}`;
  }
  return run.ground.axes.map((axis) => `${formatNumber(run.goal_radius * axis.per, axis.per)} in ${axisLabel(axis)}`).join(" and ");
}

// A canvas that shows `draw(context, view)` on the run's ground, at whatever width it gets.
function mapCanvas(run, margins, label, draw) {
  const [left, right, bottom, top] = run.ground.extent;
  const canvas = make("canvas", { role: "img", "aria-label": label });
  canvas.style.aspectRatio = `${right - left} / ${top - bottom}`;
  const drawMap = () => {
    const view = mapView(run.ground.extent, canvas.clientWidth, margins);
    canvas.style.aspectRatio = `${view.width} / ${view.height}`;
    const context = prepareCanvas(canvas, view);
    clipToMap(context, view, () => {
      drawGround(context, view, run.ground);
      draw(context, view);
    });
    if (margins.left) drawAxes(context, view, run.ground.axes);
  };
  // One after the other, so that the page is there before fifty maps are.
  redrawWithLayout(canvas, () => setTimeout(drawMap));
  return canvas;
}
