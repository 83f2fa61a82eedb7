// The goal picker: a point on the map ranks the agents and gives the command to go on with.

const SHOWN = 8; // agents in a ranking
const DRAWN = 5; // of them, whose ways are drawn
const FADED = 0.22; // opacity of all other ways then

function goalPicker(run, paths) {
  const state = { goal: null, cursor: null, ranking: [], only: null, view: null, layers: null };
  const canvas = make("canvas", {
    tabindex: "0",
    role: "application",
    "aria-label": "Map of all agents. Arrow keys move a mark, Enter picks it as the goal.",
  });
  const panel = pickerPanel(run, (goal) => pick(goal));
  const redraw = () => drawPicker(canvas, run, paths, state);

  function pick(goal) {
    const kind = placeKind(run.ground, goal);
    Object.assign(state, { goal, cursor: null, only: null });
    state.ranking = kind === "free" ? rankAgents(paths, goal, run.goal_radius) : [];
    panel.show(goal, kind, state.ranking, (agent) => {
      state.only = agent;
      redraw();
    });
    redraw();
  }

  redrawWithLayout(canvas, () => {
    state.view = mapView(run.ground.extent, canvas.clientWidth, AXES);
    state.layers = mapLayers(state.view, run, paths);
    redraw();
  });
  canvas.addEventListener("click", (event) => pick(pointUnder(event, canvas, state.view, run)));
  canvas.addEventListener("keydown", (event) => steer(event, run, state, pick, redraw));
  canvas.addEventListener("blur", () => {
    state.cursor = null;
    redraw();
  });
  return make("div", { class: "explorer" }, make("figure", { class: "map picks" }, canvas, mapCaption()), panel.element);
}

function mapCaption() {
  return make("figcaption", {}, "Every stored episode, in its agent's colour. The cross is the start.");
}

// Ground and all paths change only with the layout: drawn once, aside.
function mapLayers(view, run, paths) {
  const ground = document.createElement("canvas"), ways = document.createElement("canvas");
  const below = prepareCanvas(ground, view), above = prepareCanvas(ways, view);
  clipToMap(below, view, () => drawGround(below, view, run.ground));
  drawAxes(below, view, run.ground.axes);
  clipToMap(above, view, () => drawAllPaths(above, view, paths, run.agents));
  return { ground, ways };
}

function drawPicker(canvas, run, paths, state) {
  const { view, goal, ranking } = state;
  if (!view) return;
  canvas.style.aspectRatio = `${view.width} / ${view.height}`;
  const context = prepareCanvas(canvas, view);
  context.drawImage(state.layers.ground, 0, 0, view.width, view.height);
  context.globalAlpha = goal ? FADED : 1;
  context.drawImage(state.layers.ways, 0, 0, view.width, view.height);
  context.globalAlpha = 1;
  clipToMap(context, view, () => {
    if (goal) drawRanking(context, view, run, paths, ranking, state.only);
    drawStart(context, view, run.ground);
    if (goal) drawGoal(context, view, goal, run.goal_radius, run.ground);
    if (state.cursor) drawGoal(context, view, state.cursor, run.goal_radius, run.ground);
  });
}

// The ways of the best agents up to the goal; where none reaches it, all of their ways.
function drawRanking(context, view, run, paths, ranking, only) {
  const reaching = ranking.filter((standing) => standing.successes);
  const best = (reaching.length ? reaching : ranking).slice(0, DRAWN);
  const shown = only === null ? best : ranking.filter((standing) => standing.agent === only);
  context.lineWidth = 1.5;
  context.globalAlpha = 0.75;
  for (const standing of shown.slice().reverse()) {
    context.strokeStyle = run.agents[standing.agent].colour;
    const ways = standing.successes
      ? standing.arrivals.map((arrival) => [arrival.episode, arrival.point + 1])
      : Array.from({ length: paths.episodes }, (_, episode) => [episode, paths.points]);
    for (const [episode, end] of ways) drawPath(context, view, paths, standing.agent, episode, end);
  }
  context.globalAlpha = 1;
}

function pointUnder(event, canvas, view, run) {
  const box = canvas.getBoundingClientRect();
  const ratio = view.width / box.width;
  return rounded({ x: view.x((event.clientX - box.left) * ratio), y: view.y((event.clientY - box.top) * ratio) }, run);
}

// Onto the map, and to a tenth of it; a hundredth where goals are small.
function rounded(point, run) {
  const [left, right, bottom, top] = run.ground.extent;
  const digits = run.goal_radius >= 0.5 ? 1 : 2;
  const clamp = (value, low, high) => Number(Math.min(high, Math.max(low, value)).toFixed(digits));
  // Where there is one axis only, every height on the map is the same point.
  return { x: clamp(point.x, left, right), y: run.ground.axes.length > 1 ? clamp(point.y, bottom, top) : 0 };
}

function steer(event, run, state, pick, redraw) {
  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  const from = state.cursor || state.goal || { x: run.ground.start[0], y: run.ground.start[1] };
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    pick(rounded(from, run));
  } else if (moves[event.key]) {
    event.preventDefault();
    const step = run.goal_radius * (event.shiftKey ? 2 : 0.5);
    const [dx, dy] = moves[event.key];
    state.cursor = rounded({ x: from.x + dx * step, y: from.y + dy * step }, run);
    redraw();
  }
}

// The words beside the map. `show` tells what was found for a goal.
function pickerPanel(run, pick) {
  const inputs = run.ground.axes.map(coordinateInput);
  const labels = inputs.map((one) => one.label);
  const form = make("form", {}, ...labels, make("button", { type: "submit", class: "main" }, "Rank agents"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (inputs.some((one) => !one.input.value)) return;
    const [x, y = 0] = inputs.map((one, i) => one.input.valueAsNumber / run.ground.axes[i].per);
    pick({ x, y });
  });
  const result = make("div", { class: "result", "aria-live": "polite" });
  const element = make(
    "div",
    { class: "picker" },
    make("h3", {}, "Pick a goal"),
    paragraph(
      `Click the map, move there with the arrow keys and Enter, or type a point. An agent is there when it comes within ${radiusWords(run)}.`,
      "soft",
    ),
    form,
    result,
  );
  const show = (goal, kind, ranking, highlight) => {
    pointWords(run.ground, goal).forEach((words, i) => (inputs[i].input.value = words));
    result.replaceChildren(paragraph(verdict(run, goal, kind, ranking), "verdict"));
    if (kind === "free") result.append(rankingList(run, ranking, highlight), commandBox(run, goal));
  };
  return { element, show };
}

function coordinateInput(axis) {
  const { name } = axis;
  const input = make("input", { type: "number", step: "any", min: "-10000", max: "10000", required: "", name });
  return { input, label: make("label", {}, axisLabel(axis), input) };
}

function verdict(run, goal, kind, ranking) {
  const place = `(${pointWords(run.ground, goal).join(", ")})`;
  if (kind === "wall") return `${place} lies inside a wall. Pick a point between the walls.`;
  if (kind === "outside") return `${place} lies outside this world. Pick a point inside its walls.`;
  if (kind === "cut off") return `No way leads from the start to ${place}. Pick another point.`;
  const start = Math.hypot(goal.x - run.ground.start[0], goal.y - run.ground.start[1]);
  if (start <= run.goal_radius) return `${place} is where episodes start: every agent is there at once.`;
  const reaching = ranking.filter((standing) => standing.successes).length;
  if (!reaching) {
    return `No agent ever comes within ${radiusWords(run)} of ${place}. Ranked by closest approach instead: in a straight line, the mean over an agent's episodes.`;
  }
  const [best, ...others] = ranking.filter((standing) => standing.successes === ranking[0].successes);
  const rate = percent(best.successes, run.episodes);
  if (reaching === 1) return `Only agent ${best.agent} comes to ${place}, in ${rate} of its episodes.`;
  return others.length
    ? `${reaching} agents come to ${place}; agent ${best.agent} is the soonest of the ${others.length + 1} that do so most often, in ${rate} of their episodes.`
    : `${reaching} agents come to ${place}; agent ${best.agent} does so most often, in ${rate} of its episodes.`;
}

function percent(part, whole) {
  return `${Math.round((100 * part) / whole)} %`;
}

function rankingList(run, ranking, highlight) {
  const anyReaches = ranking[0].successes > 0;
  const rows = ranking.filter((standing) => standing.successes || !anyReaches).slice(0, SHOWN);
  const list = make("ol", { class: "ranking" });
  rows.forEach((standing, index) => {
    const row = make(
      "li",
      { class: "rank", tabindex: "0", "data-agent": standing.agent },
      make("span", { class: "place" }, String(index + 1)),
      chip(run.agents[standing.agent].colour),
      make("span", {}, `agent ${standing.agent}`),
      make("span", { class: "often" }, often(standing, run)),
      make("span", { class: "soon" }, soon(standing, run)),
    );
    for (const [event, agent] of [["mouseenter", standing.agent], ["focus", standing.agent], ["mouseleave", null], ["blur", null]]) {
      row.addEventListener(event, () => highlight(agent));
    }
    list.append(row);
  });
  return list;
}

function often(standing, run) {
  return standing.successes ? `${standing.successes} of ${run.episodes} episodes` : `${offWords(standing.closest, run)} off`;
}

function soon(standing, run) {
  if (!standing.successes) return `${offWords(standing.nearest, run)} in its best episode`;
  const steps = standing.medianStep === 1 ? "1 step" : `${standing.medianStep} steps`;
  if (!run.seconds_per_step) return `median first arrival after ${steps}`;
  return `median first arrival ${(standing.medianStep * run.seconds_per_step).toFixed(1)} s (${steps})`;
}

// A distance on the map: metres, or times the radius of goals where its axes have units of their own.
function offWords(distance, run) {
  const isMetres = run.ground.axes.every((axis) => axis.unit === "m" && axis.per === 1);
  return isMetres ? `${distance.toFixed(2)} m` : `${(distance / run.goal_radius).toFixed(1)} radii`;
}

function commandBox(run, goal) {
  const text = [run.command, ...pointWords(run.ground, goal)].join(" ");
  const code = make("code", {}, text);
  const button = make("button", { type: "button", class: "copy" }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await copyText(text, code)) ? "Copied" : "Press Ctrl+C";
  });
  return make(
    "div",
    {},
    paragraph("Learn this goal from the best agent:", "soft"),
    make("div", { class: "command" }, code, button),
  );
}

// Whether `text` is on the clipboard now; if not, its element is selected.
async function copyText(text, element) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return false;
  }
}
