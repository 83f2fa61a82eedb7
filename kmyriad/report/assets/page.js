// The page from its data.

function buildPage() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const page = document.getElementById("page");
  const isAlone = data.runs.length === 1;
  document.title = isAlone ? `${data.runs[0].name} · kmyriad` : "kmyriad report";
  page.replaceChildren(make("h1", {}, isAlone ? "kmyriad report" : `kmyriad report: ${data.runs.length} runs`));
  if (!isAlone) page.append(contents(data.runs), ...commonCurves(data.runs));
  data.runs.forEach((run, index) => page.append(runSection(run, index, isAlone)));
  page.append(make("footer", {}, `Made by kmyriad ${data.version}.`));
}

function contents(runs) {
  return make("nav", {}, ...runs.map((run, index) => make("a", { href: `#run-${index}` }, run.name)));
}

// One chart per quantity with the curves of all runs that have it.
function commonCurves(runs) {
  return Object.keys(QUANTITIES).flatMap((name) => {
    const group = runs.filter((run) => run.curve && run.curve.name === name);
    if (!group.length) return [];
    const figure = curveFigure(name, group);
    if (name === "entropy" && group.length > 1) {
      figure.append(make("figcaption", {}, "Entropies compare between runs of the same world, horizon and number of replicas."));
    }
    return [figure];
  });
}

buildPage();
