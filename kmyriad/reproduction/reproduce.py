"""`kmyriad reproduce`: train what the figures need, measure it, judge the claims, and write all of it to a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from kmyriad.errors import UsageError, nearest_name
from kmyriad.evaluation.statistics import mean_of
from kmyriad.reproduction.campaign import steps_made, train_all
from kmyriad.reproduction.commits import current_commit
from kmyriad.reproduction.draw import draw
from kmyriad.reproduction.facts import Numbers, Runs, facts_of
from kmyriad.reproduction.measured import read_all
from kmyriad.reproduction.page import page_of
from kmyriad.reproduction.plan import SIZES, TARGETS, Method, Size, narrowed, own_steps, plan_of, targets_of
from kmyriad.reproduction.verdicts import CLAIMS, Claim, Outcome
from kmyriad.runs.files import os_errors, write_atomically, write_json
from kmyriad.runs.run import version
from kmyriad.sweeps.plan import Job, Plan
from kmyriad.sweeps.sweep import Place

RATE = 6_000
"""Environment steps per second on one core that plans are reckoned with before any run has told its own."""
NOT_TRAINED = "not trained yet"


def reproduce(
    targets: Sequence[str] | str,
    *,
    size: Size = "quick",
    method: Method = "ours",
    out: str | Path | None = None,
    only: Sequence[str] = (),
    train: bool = True,
    on: Place = "processes",
    processes: int | None = None,
) -> Path:
    """Repeat figures and tables of the paper and judge its claims; returns the page. Same as `kmyriad reproduce`.

    Call it again to go on, also on another machine: what each run told is kept in `measured/`, a small file each, and
    such a run need not be there any more. Jump-starts need their source in `packs/`, else it is trained again. Runs
    that several targets need are trained once. Figures and verdicts are of all that was measured.

    Args:
        targets: "entropy-curves", "budget", "kl-table", "diversity", "success-rates", "long-run", "goal-regions",
            "goal-maps", "heatmaps", "point-maze", or "all".
        size: "quick" (minutes, too small to judge by), "desk" (hours) or "paper" (Tables 2 and 3).
        method: "ours", or "paper", which has nothing of ours in it.
        out: the folder; by default `reproduction/<size>-<method>`.
        only: names of runs to train now, with * for any part, such as "ant-empty-*-seed-0"; none: all.
        train: whether to train what is left; False makes the page of what was measured.
        on: where runs are trained: "processes" of this machine, "slurm" or "ray".
        processes: runs at a time; by default one per core, and no limit on a cluster.
    """
    names, plan, out = planned(targets, size, method, out, only)
    if train:
        train_all(plan, size, method, on, processes)
    whole = plan_of(TARGETS, size, method, plan.folder)
    runs = read_all(plan.folder, whole.jobs, size, method)
    facts = facts_of(runs, size, method)
    pictures = draw(_complete(names, size, method, runs), runs, size, method, out / "figures")
    about = {
        "command": _command(names, size, method),
        "size": size,
        "method": method,
        "seeds": [*SIZES[size].seeds],
        "steps_of_a_population": SIZES[size].total_steps,
        "steps_of_a_jump_start": SIZES[size].goal_steps,
        "version": version(),
        "runs_measured": f"{len(runs)} of {len(whole.jobs)}",
        "judges": size != "quick",
    }
    verdicts = [verdict_of(claim, facts, size) | provenance(claim, size, method, runs) for claim in CLAIMS]
    tables = tables_of(facts)
    write_json(out / "verdicts.json", {**about, "claims": verdicts})
    write_json(out / "tables.json", {**about, "measures": tables})
    with os_errors(f"write the page in {out}", "choose another --out"):
        write_atomically(
            out / "index.html", page_of(about, verdicts, tables, pictures, groups_of(whole.jobs, runs)).encode()
        )
    return out / "index.html"


def planned(
    targets: Sequence[str] | str, size: Size, method: Method, out: str | Path | None, only: Sequence[str] = ()
) -> tuple[list[str], Plan, Path]:
    """The targets by name, the plan of their runs, and the folder of it all."""
    names = targets_of([targets] if isinstance(targets, str) else targets)
    for what, asked, known in (("size", size, get_args(Size)), ("method", method, get_args(Method))):
        if asked not in known:
            raise UsageError(f"unknown {what} {asked!r}{nearest_name(str(asked), known)}")
    folder = Path("reproduction") / f"{size}-{method}" if out is None else Path(out)
    return names, narrowed(plan_of(names, size, method, folder / "runs"), only), folder


def _complete(names: Sequence[str], size: Size, method: Method, runs: Runs) -> list[str]:
    """The targets asked for, and those whose runs have all been measured."""
    return [
        target
        for target in TARGETS
        if target in names or all(job.name in runs for job in plan_of([target], size, method, Path("runs")).jobs)
    ]


def cost_of(plan: Plan, size: Size, method: Method, processes: int) -> list[str]:
    """A line for every run with its steps, and what those that are left come to, at the rate of those there are."""
    runs = read_all(plan.folder, plan.jobs, size, method)
    rates = [rate for run in runs.values() if (rate := run.measures.get("steps_per_second"))]
    rate = mean_of(rates).mean if rates else RATE
    lines, total = [], 0
    for job in plan.jobs:
        made, asked, _ = steps_made(job, plan.folder, job.name in runs)
        left = min(own_steps(job, plan.jobs), max(0, asked - made))
        total += left
        lines.append(f"{job.name}  {left:,} steps  {f'{left / rate / 3600:.2f} h' if left else 'done'}")
    hours = total / rate / processes / 3600
    return [
        *lines,
        f"{len(lines)} runs, {total:,} steps left: about {hours:.1f} h, {processes} at a time with {rate:,.0f} steps/s"
        " each; measuring fresh episodes comes on top",
    ]


def verdict_of(claim: Claim, facts: Numbers, size: Size) -> dict[str, Any]:
    """What was found about a claim, plain JSON. Runs of size quick judge nothing, whatever their numbers are."""
    found = claim.judge(facts)
    outcome = found.outcome
    if size == "quick" and outcome != Outcome.NOT_RUN:
        outcome = Outcome.TOO_SMALL
    told = {name: getattr(claim, name) for name in ("number", "claim", "paper", "rule", "target")}
    return told | {"ours": found.ours, "verdict": str(outcome)}


def provenance(claim: Claim, size: Size, method: Method, runs: Runs) -> dict[str, Any]:
    """How to judge a claim again: command, seeds, runs, steps and about how long that is, and commits that did it."""
    jobs = plan_of([claim.target], size, method, Path("runs")).jobs if claim.target else []
    steps = sum(own_steps(job, jobs) for job in jobs)
    measured = [runs[job.name] for job in jobs if job.name in runs]
    commits = dict.fromkeys(commit for run in measured for commit in run.commits)
    return {
        "command": _command([claim.target or "goal-maps"], size, method),
        "seeds": sorted({job.config.run.seed for job in jobs}),
        "runs": len(jobs),
        "runs_measured": len(measured),
        "env_steps": steps,
        "hours": round(steps / RATE / 3600, 2),
        "commit": ", ".join(commits) or (NOT_TRAINED if jobs else current_commit()),
    }


def groups_of(jobs: Sequence[Job], runs: Runs) -> list[tuple[str, str, str]]:
    """What differs in nothing but the seed: its name, the seeds that were measured, and those that are missing.

    Those of which nothing was measured are one row.
    """
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.name.removesuffix(f"-seed-{job.config.run.seed}"), []).append(job)
    rows, rest = [], 0
    for name, members in groups.items():
        there, missing = (
            [str(job.config.run.seed) for job in members if (job.name in runs) == is_there]
            for is_there in (True, False)
        )
        if there:
            rows.append((name, ", ".join(there), ", ".join(missing)))
        else:
            rest += len(members)
    return [*rows, ("others", "", f"{rest:,} runs")] if rest else rows


def tables_of(facts: Numbers) -> dict[str, Any]:
    """Mean, half the 95 % interval and the values by seed of every measure."""
    facts = facts | above_floor(facts)
    return {name: {**vars(mean_of([*each.values()])), "by_seed": each} for name, each in sorted(facts.items())}


def above_floor(facts: Mapping[str, Mapping[int, float]]) -> Numbers:
    """What the KL between agents has above its floor."""
    found: Numbers = {}
    for name, each in facts.items():
        kind, _, of = name.partition("/")
        floors = facts.get(f"kl_floor/{of}", {})
        if kind == "kl" and floors:
            found[f"kl_above_floor/{of}"] = {seed: each[seed] - floors[seed] for seed in each if seed in floors}
    return found


def _command(names: Sequence[str], size: Size, method: Method) -> str:
    targets = "all" if len(names) == len(TARGETS) else " ".join(names)
    return f"kmyriad reproduce {targets} --size {size} --method {method}"
