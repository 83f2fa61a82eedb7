"""`kmyriad evaluate`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from kmyriad.checks import Between, checked
from kmyriad.cli.output import output
from kmyriad.config import RunConfig
from kmyriad.runs.files import write_json

if TYPE_CHECKING:
    from rich.table import Table

    from kmyriad.evaluation.evaluate import Evaluation
    from kmyriad.runs.run import Run

PRINTED_PAIRS = 10
"""Agents up to which the KL of every pair is printed."""


@dataclass(frozen=True)
class Command:
    """Look at a run's newest population on fresh episodes: how much it covers, and how different its agents are."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    episodes: int = 300
    """Of all agents together."""
    seed: int = 12_345
    """Of resets and actions, unlike any training run's."""
    json: Path | None = None
    """Where the numbers go; by default evaluation.json in the run's folder (of a packed run: in one of its name)."""
    figures: Path | None = None
    """A folder for figures, as PNG and SVG."""
    threads: int | None = None
    """CPU threads; none takes all cores. Changes no number."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad evaluate")
    checked("episodes", command.episodes, Annotated[int, Between(1, 10_000_000)])
    RunConfig(seed=command.seed, threads=command.threads)  # refuses what it would refuse
    from kmyriad.evaluation.evaluate import evaluate, summary
    from kmyriad.runs.progress import say
    from kmyriad.runs.run import open_run

    one = open_run(command.folder)
    say(f"playing about {command.episodes} episodes of {one.given}")
    evaluation = evaluate(one, command.episodes, command.seed, command.threads)
    facts = summary(one, evaluation)
    console = output()
    for sentence in sentences(facts):
        console.print(sentence, highlight=False, markup=False)
    console.print(_agents(facts))
    if "kl_pairs" in facts and facts["agents"] <= PRINTED_PAIRS:
        console.print("KL of each agent (row) from each other (column):", highlight=False)
        console.print(_pairs(facts["kl_pairs"]))
    target = command.json or one.outputs / "evaluation.json"
    write_json(target, facts)
    say(f"wrote {target}")
    if command.figures is not None:
        for path in _draw(one, evaluation, command.figures):
            say(f"wrote {path}")


def sentences(facts: dict[str, Any]) -> list[str]:
    """What `evaluate.summary` found, in words."""
    one_agent = facts["agents"] == 1
    agents = "1 agent" if one_agent else f"{facts['agents']} agents"
    told = [
        f"{facts['run']}: {agents} in {facts['env']} after iteration {facts['iteration']} ({facts['env_steps']:,} env"
        f" steps), on {facts['episodes']} fresh episodes of {facts['horizon']} steps.",
        f"Entropy of {' '.join(facts['features'])}: {facts['entropy']:.2f} nats"
        + ("." if one_agent else f" together, {facts['entropy_per_agent_mean']:.2f} per agent on average."),
    ]
    if facts.get("priors"):
        told.insert(1, f"Priors: agents see the world in its symmetries ({', '.join(facts['priors'])}).")
    if one_agent:
        told.append("There is no KL between agents: there is only one.")
    elif "kl_between_agents" in facts:
        told.append(
            f"KL of each agent from all others: {facts['kl_between_agents_mean']:.2f} nats on average; agents that all"
            f" behave alike would show {facts['kl_floor']:.2f}."
        )
    else:
        told.append("There is no KL between agents: one of them has next to no valid states.")
    if "information" in facts:
        told.append(
            f"A state tells at least {facts['information']:.2f} nats about whose it is; all there is to tell are"
            f" {math.log(facts['agents']):.2f}."
        )
    alone = "" if one_agent else f" together, {facts['covered_cells_per_agent_mean']:.0f} per agent on average"
    told.append(f"Covered cells of {facts['cell_words']}: {facts['covered_cells']}{alone}.")
    return told


def _agents(facts: dict[str, Any]) -> "Table":
    """A row per agent, and one for all."""
    from rich.table import Column, Table

    columns = [("entropy_per_agent", "entropy", ".2f", facts["entropy"])]
    if "kl_between_agents" in facts:
        columns.append(("kl_between_agents", "KL from all others", ".2f", None))
    columns.append(("covered_cells_per_agent", "cells", "d", facts["covered_cells"]))
    table = Table("agent", *(Column(title, justify="right") for _, title, _, _ in columns))
    for agent in range(facts["agents"]):
        table.add_row(str(agent), *(_cell(facts[name][agent], form) for name, _, form, _ in columns))
    if facts["agents"] > 1:
        table.add_section()
        table.add_row("all", *(_cell(together, form) for _, _, form, together in columns))
    return table


def _pairs(kl: list[list[float]]) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Column, Table

    columns = (Column(str(agent), justify="right") for agent in range(len(kl)))
    table = Table("agent", *columns, box=SIMPLE, padding=0)
    for agent, row in enumerate(kl):
        cells = (f" {value:.2f}" if other != agent else "" for other, value in enumerate(row))
        table.add_row(str(agent), *cells)
    return table


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _draw(run: "Run", evaluation: "Evaluation", folder: Path) -> list[Path]:
    from kmyriad import figures
    from kmyriad.evaluation.evaluate import plane_of

    drawn = {"entropy": figures.entropy_curves({run.pretraining.rule: [run.metrics()]})}
    plane = plane_of(run)
    drawn["agents"] = figures.agent_heatmaps(evaluation.visits.xy, plane, evaluation.visits.valid)
    drawn["visitation"] = figures.visitation_map(evaluation.visits.xy, plane, evaluation.visits.valid)
    if "kl_pairs" in evaluation.measures:
        drawn["kl"] = figures.kl_matrix(evaluation.measures["kl_pairs"])
    return [path for name, figure in drawn.items() for path in figures.save(figure, folder / f"{run.name}-{name}")]
