"""`kmyriad reproduce`: train what the figures need, measure it, judge the claims, and write all of it to a folder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from kmyriad.errors import UsageError, nearest_name
from kmyriad.evaluation.evaluate import world_of
from kmyriad.evaluation.statistics import mean_of
from kmyriad.figures import learning_curves, save, visitation_map
from kmyriad.reproduction.measures import Numbers, evaluation_of, facts_of, finished
from kmyriad.reproduction.page import page_of
from kmyriad.reproduction.plan import (
    AGENTS,
    SIZES,
    Method,
    Size,
    budget_run,
    plan_of,
    run_name,
    targets_of,
)
from kmyriad.reproduction.verdicts import BUDGETS, CLAIMS, WORLDS
from kmyriad.runs.files import os_errors, write_atomically, write_json
from kmyriad.runs.run import version
from kmyriad.sweeps.sweep import sweep


def reproduce(
    targets: Sequence[str] | str,
    *,
    size: Size = "quick",
    method: Method = "paper",
    out: str | Path | None = None,
    processes: int | None = None,
) -> Path:
    """Repeat figures and tables of the paper and judge its claims; returns the page. Same as `kmyriad reproduce`.

    Call it again to go on: finished runs are left alone, and runs that several targets need are trained once.

    Args:
        targets: "entropy-curves", "budget", "kl-table", "diversity", "long-run", "heatmaps", or "all".
        size: "quick" (minutes, too small to judge by), "desk" (hours) or "paper" (as printed).
        method: the paper's, or ours.
        out: the folder; by default `reproduction/<size>-<method>`.
        processes: runs at a time; by default one per core.
    """
    names = targets_of([targets] if isinstance(targets, str) else targets)
    for what, asked, known in (("size", size, get_args(Size)), ("method", method, get_args(Method))):
        if asked not in known:
            raise UsageError(f"unknown {what} {asked!r}{nearest_name(str(asked), known)}")
    out = Path("reproduction") / f"{size}-{method}" if out is None else Path(out)
    plan = plan_of(names, size, method, out / "runs")
    sweep(plan, processes=processes)
    facts = facts_of(plan.folder, size)
    verdicts = verdicts_of(facts)
    pictures = draw(names, plan.folder, size, out / "figures")
    about = {
        "command": f"kmyriad reproduce {' '.join(names)} --size {size} --method {method}",
        "size": size,
        "method": method,
        "seeds": [*SIZES[size].seeds],
        "steps_of_a_run": SIZES[size].total_steps,
        "version": version(),
        "judges": size != "quick",
    }
    write_json(out / "verdicts.json", {**about, "claims": verdicts})
    write_json(out / "tables.json", {**about, "measures": tables_of(facts)})
    with os_errors(f"write the page in {out}", "choose another --out"):
        write_atomically(out / "index.html", page_of(about, verdicts, tables_of(facts), pictures).encode())
    return out / "index.html"


def verdicts_of(facts: Numbers) -> list[dict[str, Any]]:
    """One row per claim, plain JSON."""
    rows = []
    for claim in CLAIMS:
        found = claim.judge(facts)
        rows.append(
            {name: getattr(claim, name) for name in ("number", "claim", "paper", "rule", "target")}
            | {"ours": found.ours, "verdict": str(found.outcome)}
        )
    return rows


def tables_of(facts: Numbers) -> dict[str, Any]:
    """Mean, half the 95 % interval and the values by seed of every measure."""
    return {name: {**vars(mean_of([*each.values()])), "by_seed": each} for name, each in sorted(facts.items())}


def draw(targets: Sequence[str], folder: Path, size: Size, out: Path) -> dict[str, Path]:
    """The figures of those targets that have one, as PNG by their titles."""
    seeds, drawn = SIZES[size].seeds, {}

    def rows(names: Sequence[str]) -> list[list[dict[str, Any]]]:
        return [run.metrics() for name in names if (run := finished(folder / name)) is not None]

    def keep(title: str, name: str, figure: Any) -> None:
        drawn[title] = save(figure, out / name)[0]

    if "entropy-curves" in targets:
        worlds = {
            world: {_agents(m): rows([run_name(world, m, seed) for seed in seeds]) for m in AGENTS} for world in WORLDS
        }
        keep("Entropy over updates", "entropy-curves", learning_curves(worlds, x="iteration"))
        keep("Entropy over environment steps", "entropy-curves-steps", learning_curves(worlds))
    if "long-run" in targets:
        long = {_agents(m): rows([run_name("ant-empty", m, seed, "long") for seed in seeds]) for m in AGENTS}
        keep("The long run", "long-run", learning_curves({"ant-empty": long}, x="iteration"))
    if "budget" in targets:
        by_budget = {
            f"{budget / 2:g} x the trajectories": rows([budget_run(size, budget, seed) for seed in seeds])
            for budget in BUDGETS
        }
        keep("Entropy by budget, equal updates", "budget", learning_curves({"ant-empty": by_budget}, x="iteration"))
        keep("Entropy by budget, equal steps", "budget-steps", learning_curves({"ant-empty": by_budget}))
    maps = [("ant-empty", 10)] if "diversity" in targets else []
    maps += [(world, agents) for world in WORLDS for agents in AGENTS] if "heatmaps" in targets else []
    for world, agents in dict.fromkeys(maps):
        run = finished(folder / run_name(world, agents, seeds[0]))
        ground = None if run is None else world_of(run)
        if run is not None and ground is not None:
            visits = evaluation_of(run, size).visits
            figure = visitation_map(visits.xy, ground, visits.valid)
            keep(f"Where {_agents(agents)} went in {world}", f"map-{world}-{agents}", figure)
    return drawn


def _agents(count: int) -> str:
    return "1 agent" if count == 1 else f"{count} agents"
