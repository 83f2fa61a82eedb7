// The part of the page about one run.

function runSection(run, index, isAlone) {
  const section = make("section", { class: "run", id: `run-${index}` }, make("h2", {}, run.name));
  section.append(paragraph(run.kind === "jumpstart" ? "Jump-start" : "Pretraining", "kind"));
  section.append(overview(run, isAlone));
  if (run.paths) section.append(...populationMaps(run));
  if (run.goal && run.ground) section.append(run.attempts && run.attempts.length ? attemptMaps(run) : goalMap(run));
  if (run.agents) section.append(agentTable(run));
  if (run.videos.length) section.append(videoGallery(run));
  section.append(make("details", {}, make("summary", {}, "Settings of the run"), make("pre", {}, run.settings)));
  return section;
}

// What came of it in words, beside the curve where that is not in a chart with other runs.
function overview(run, isAlone) {
  const words = make("div", {}, ...run.summary.map((sentence) => paragraph(sentence, "summary")));
  if (run.missing.length) words.append(make("div", { class: "missing" }, ...run.missing.map((text) => paragraph(text))));
  return isAlone && run.curve ? make("div", { class: "overview" }, words, curveFigure(run.curve.name, [run])) : words;
}

function populationMaps(run) {
  const paths = unpackPaths(run.paths, run.ground);
  const explorer = make("div", { class: "part" }, make("h3", {}, "Where the agents go"), goalPicker(run, paths));
  const maps = run.agents.map((agent, index) => agentMap(run, paths, agent, index));
  const many = run.agents.length > 12 ? "agents many" : "agents";
  const agents = make(
    "div",
    { class: "part" },
    make("h3", {}, "Agent by agent"),
    paragraph(agentsNote(run), "soft"),
    make("div", { class: many }, ...maps),
  );
  return [explorer, agents];
}

function agentsNote(run) {
  const cells = `The same ground in every map, with the cells of ${radiusWords(run)} that an agent's episodes touch`;
  return typeof run.kl_floor === "number"
    ? `${cells}, and the KL of its states from those of the others, in nats (${run.kl_floor.toFixed(2)} if all behaved alike).`
    : `${cells}.`;
}

function agentMap(run, paths, agent, index) {
  const canvas = mapCanvas(run, BARE, `Map of agent ${index}`, (context, view) => {
    context.strokeStyle = agent.colour;
    context.lineWidth = 1;
    context.globalAlpha = 0.6;
    for (let episode = 0; episode < paths.episodes; episode++) {
      drawPath(context, view, paths, index, episode, paths.points);
    }
    context.globalAlpha = 1;
  });
  const title = make("div", { class: "agent-title" }, chip(agent.colour), `agent ${index}`);
  const notes = [];
  if (agent.cells !== null) notes.push(`${agent.cells} cells`);
  if (agent.kl !== null) notes.push(`KL ${agent.kl.toFixed(2)}`);
  return make("figure", { class: "map" }, title, canvas, make("figcaption", {}, notes.join(" · ")));
}

// Where the policy goes, before training and after.
function attemptMaps(run) {
  const goal = { x: run.goal[0], y: run.goal[1] };
  const maps = run.attempts.map((attempt) => {
    const paths = unpackPaths(attempt.paths, run.ground);
    const canvas = mapCanvas(run, AXES, `Map ${attempt.title} training`, (context, view) => {
      context.strokeStyle = cssColour("accent");
      context.lineWidth = 1;
      context.globalAlpha = 0.55;
      for (let agent = 0; agent < paths.agents; agent++) {
        for (let episode = 0; episode < paths.episodes; episode++) drawPath(context, view, paths, agent, episode, paths.points);
      }
      context.globalAlpha = 1;
      drawStart(context, view, run.ground);
      drawGoal(context, view, goal, run.goal_radius, run.ground);
    });
    const reached = `${Math.round(100 * attempt.success)} % of ${attempt.episodes} fresh episodes reach the goal`;
    return make("figure", { class: "map" }, make("div", { class: "agent-title" }, `${attempt.title} training`), canvas, make("figcaption", {}, reached));
  });
  const caption = `The goal, (${pointWords(run.ground, goal).join(", ")}), has a radius of ${radiusWords(run)}. The cross is the start; a line ends where its episode reaches the goal.`;
  return make("div", { class: "part" }, make("h3", {}, "Where the policy goes"), make("div", { class: "attempts" }, ...maps), paragraph(caption, "soft"));
}

function goalMap(run) {
  const goal = { x: run.goal[0], y: run.goal[1] };
  const canvas = mapCanvas(run, AXES, "Map with the goal", (context, view) => {
    drawStart(context, view, run.ground);
    drawGoal(context, view, goal, run.goal_radius, run.ground);
  });
  const caption = `The goal, (${pointWords(run.ground, goal).join(", ")}), with its radius of ${radiusWords(run)}. The cross is the start.`;
  return make("figure", { class: "part map alone" }, make("h3", {}, "The goal"), canvas, make("figcaption", {}, caption));
}

function agentTable(run) {
  const show = (value, digits) => (value === null ? "–" : value.toFixed(digits));
  const titles = ["agent", "entropy (nats)", "cells visited", "KL from the others (nats)"];
  const table = make("table", { class: "numbers" }, make("tr", {}, ...titles.map((title) => make("th", {}, title))));
  run.agents.forEach((agent, index) => {
    const cells = [String(index), show(agent.entropy, 2), show(agent.cells, 0), show(agent.kl, 2)];
    table.append(make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  });
  const floor = typeof run.kl_floor === "number" ? [paragraph(`Agents that all behave alike would show a KL of ${run.kl_floor.toFixed(2)} nats.`, "soft")] : [];
  return make("details", {}, make("summary", {}, "Numbers of each agent"), make("div", { class: "scroll" }, table), ...floor);
}

function videoGallery(run) {
  const figures = run.videos.map((video) => {
    const player = video.source
      ? make("video", { src: video.source, controls: "", muted: "", loop: "", playsinline: "", preload: "metadata" })
      : make("a", { href: video.link }, "Open the video");
    return make("figure", {}, player, make("figcaption", {}, video.name));
  });
  return make("div", { class: "part" }, make("h3", {}, "Videos"), make("div", { class: "videos" }, ...figures));
}
