"""`kmyriad evaluate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from kmyriad.cli.output import output, write_json
from kmyriad.config import check_number

if TYPE_CHECKING:
    from rich.table import Table

    from kmyriad.evaluation.evaluate import Evaluation
    from kmyriad.runs.run import Run

PRINTED_PAIRS = 10
"""Heads up to which the KL of every pair is printed."""


@dataclass(frozen=True)
class Command:
    """Look at a run's newest population on fresh episodes: how much it covers, and how different its heads are."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""
    episodes: int = 300
    """Of all heads together."""
    seed: int = 12_345
    """Of resets and actions, unlike any training run's."""
    json: Path | None = None
    """Where the numbers go; by default evaluation.json in the run's folder."""
    figures: Path | None = None
    """A folder for figures, as PNG and SVG."""
    threads: int | None = None
    """CPU threads; none takes all cores. Changes no number."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad evaluate")
    check_number("episodes", command.episodes, 1, 10_000_000)
    check_number("seed", command.seed, 0, 2**63 - 1)
    check_number("threads", command.threads, 1, 4096)
    from rich.markup import escape

    from kmyriad.evaluation.evaluate import evaluate, summary
    from kmyriad.runs.progress import say
    from kmyriad.runs.run import open_run

    one = open_run(command.folder)
    say(f"playing about {command.episodes} episodes of {escape(str(one.path))}")
    evaluation = evaluate(one, command.episodes, command.seed, command.threads)
    facts = summary(one, evaluation)
    console = output()
    for sentence in sentences(facts):
        console.print(sentence, highlight=False, markup=False)
    console.print(_heads(facts))
    if "kl_pairs" in facts and facts["agents"] <= PRINTED_PAIRS:
        console.print("KL of each head (row) from each other (column):", highlight=False)
        console.print(_pairs(facts["kl_pairs"]))
    target = command.json or one.path / "evaluation.json"
    write_json(target, facts)
    say(f"wrote {escape(str(target))}")
    if command.figures is not None:
        for path in _draw(one, evaluation, command.figures):
            say(f"wrote {escape(str(path))}")


def sentences(facts: dict[str, Any]) -> list[str]:
    """What `evaluating.summary` found, in words."""
    one_head = facts["agents"] == 1
    heads = "1 head" if one_head else f"{facts['agents']} heads"
    told = [
        f"{facts['run']}: {heads} in {facts['env']} after epoch {facts['epoch']} ({facts['env_steps']:,} env steps),"
        f" on {facts['episodes']} fresh episodes of {facts['horizon']} steps.",
        f"Entropy of {' '.join(facts['features'])}: {facts['entropy']:.2f} nats"
        + ("." if one_head else f" together, {_mean(facts, 'entropy_per_head')} per head."),
    ]
    if one_head:
        told.append("There is no KL between heads: there is only one.")
    elif "kl_between_heads" in facts:
        told.append(
            f"KL of each head from all others: {_mean(facts, 'kl_between_heads')} nats; heads that all behave alike"
            f" would show {facts['kl_floor']:.2f}."
        )
    else:
        told.append("There is no KL between heads: one of them has next to no sound states.")
    if "covered_cells" in facts:
        alone = "" if one_head else f" together, {_mean(facts, 'covered_cells_per_head', '.0f')} per head"
        told.append(f"Covered cells of {facts['cell']:g} m: {facts['covered_cells']}{alone}.")
    else:
        told.append("There is no coverage: this environment has no x and y.")
    return told


def _mean(facts: dict[str, Any], name: str, form: str = ".2f") -> str:
    from kmyriad.evaluation.statistics import Mean

    found = facts.get(f"{name}_mean")
    return "unknown" if found is None else Mean(**found).text(form)


def _heads(facts: dict[str, Any]) -> "Table":
    """A row per head, and one for all."""
    from rich.table import Column, Table

    columns = [("entropy_per_head", "entropy", ".2f", facts["entropy"])]
    if "kl_between_heads" in facts:
        columns.append(("kl_between_heads", "KL from all others", ".2f", None))
    if "covered_cells" in facts:
        columns.append(("covered_cells_per_head", "cells", "d", facts["covered_cells"]))
    table = Table("head", *(Column(title, justify="right") for _, title, _, _ in columns))
    for head in range(facts["agents"]):
        table.add_row(str(head), *(_cell(facts[name][head], form) for name, _, form, _ in columns))
    if facts["agents"] > 1:
        table.add_section()
        table.add_row("all", *(_cell(together, form) for _, _, form, together in columns))
    return table


def _pairs(kl: list[list[float]]) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Column, Table

    columns = (Column(str(head), justify="right") for head in range(len(kl)))
    table = Table("head", *columns, box=SIMPLE, padding=0)
    for head, row in enumerate(kl):
        cells = (f" {value:.2f}" if other != head else "" for other, value in enumerate(row))
        table.add_row(str(head), *cells)
    return table


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _draw(run: "Run", evaluation: "Evaluation", folder: Path) -> list[Path]:
    from kmyriad import figures
    from kmyriad.evaluation.evaluate import world_of

    drawn = {"entropy": figures.entropy_curves({str(run.config.get("update")): [run.metrics()]})}
    world = world_of(run)
    if world is not None and evaluation.visits.xy is not None:
        drawn["heads"] = figures.head_heatmaps(evaluation.visits.xy, world, evaluation.visits.sound)
        drawn["visitation"] = figures.visitation_map(evaluation.visits.xy, world, evaluation.visits.sound)
    if "kl_pairs" in evaluation.measures:
        drawn["kl"] = figures.kl_matrix(evaluation.measures["kl_pairs"])
    return [path for name, figure in drawn.items() for path in figures.save(figure, folder / f"{run.name}-{name}")]
