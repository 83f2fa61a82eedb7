// Stored episodes: unpacked, and asked how often and how soon they come to a goal.

// x and y are metres, point after point, episode after episode, agent after agent. `height` is where lines are drawn: at
// y, or, where the ground has one axis only, at the time, from the first step below to the last above.
function unpackPaths(packed, ground) {
  const grid = new Int16Array(decodeBase64(packed.xy));
  const points = packed.steps.length;
  const x = new Float32Array(grid.length / 2);
  const y = new Float32Array(grid.length / 2);
  for (let i = 0; i < x.length; i++) {
    x[i] = packed.origin[0] + packed.scale * grid[2 * i];
    y[i] = packed.origin[1] + packed.scale * grid[2 * i + 1];
  }
  const [, , bottom, top] = ground.extent, last = packed.steps[points - 1];
  const atTime = (_, i) => bottom + ((top - bottom) * packed.steps[i % points]) / last;
  const height = ground.axes.length > 1 ? y : Float32Array.from(y, atTime);
  return { agents: packed.agents, episodes: packed.episodes, steps: packed.steps, points, x, y, height };
}

function firstPoint(paths, agent, episode) {
  return (agent * paths.episodes + episode) * paths.points;
}

// {step, point, closest}: when an episode first comes within `radius` of the goal (null if never), the index of the
// stored point right after that, and how near it ever comes. Between stored points the way is a straight line.
function approach(paths, agent, episode, goal, radius) {
  const begin = firstPoint(paths, agent, episode);
  let closest = Math.hypot(paths.x[begin] - goal.x, paths.y[begin] - goal.y);
  let arrival = closest <= radius ? { step: paths.steps[0], point: 0 } : null;
  for (let i = 1; i < paths.points; i++) {
    const at = begin + i;
    const ax = paths.x[at - 1] - goal.x, ay = paths.y[at - 1] - goal.y;
    const dx = paths.x[at] - goal.x - ax, dy = paths.y[at] - goal.y - ay;
    const length = dx * dx + dy * dy;
    const nearest = length > 0 ? Math.min(1, Math.max(0, -(ax * dx + ay * dy) / length)) : 0;
    const distance = Math.hypot(ax + nearest * dx, ay + nearest * dy);
    if (distance < closest) closest = distance;
    if (!arrival && distance <= radius) {
      const part = entry(ax, ay, dx, dy, radius);
      const step = Math.ceil(paths.steps[i - 1] + part * (paths.steps[i] - paths.steps[i - 1]) - 1e-6);
      arrival = { step, point: i };
    }
  }
  return { step: arrival && arrival.step, point: arrival && arrival.point, closest };
}

// Which part of the line from (ax, ay) along (dx, dy) is gone when it enters the circle around the origin.
function entry(ax, ay, dx, dy, radius) {
  const a = dx * dx + dy * dy, b = ax * dx + ay * dy, c = ax * ax + ay * ay - radius * radius;
  const root = Math.sqrt(Math.max(0, b * b - a * c));
  return a > 0 ? Math.min(1, Math.max(0, (-b - root) / a)) : 0;
}

// Agents, the best first: who comes there most often, then soonest, then nearest on average.
function rankAgents(paths, goal, radius) {
  const standings = [];
  for (let agent = 0; agent < paths.agents; agent++) standings.push(standing(paths, agent, goal, radius));
  return standings.sort(
    (one, other) =>
      other.successes - one.successes ||
      (one.successes ? one.medianStep - other.medianStep : 0) ||
      one.closest - other.closest ||
      one.agent - other.agent,
  );
}

function standing(paths, agent, goal, radius) {
  const arrivals = [];
  let closest = 0, nearest = Infinity;
  for (let episode = 0; episode < paths.episodes; episode++) {
    const found = approach(paths, agent, episode, goal, radius);
    closest += found.closest / paths.episodes;
    nearest = Math.min(nearest, found.closest);
    if (found.step !== null) arrivals.push({ episode, step: found.step, point: found.point });
  }
  const medianStep = median(arrivals.map((one) => one.step));
  return { agent, successes: arrivals.length, medianStep, closest, nearest, arrivals };
}

function median(values) {
  if (!values.length) return null;
  const sorted = values.slice().sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
