"""`kmyriad compare`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from kmyriad.cli.output import output
from kmyriad.errors import UsageError
from kmyriad.runs.files import write_json

if TYPE_CHECKING:
    from rich.table import Table

    from kmyriad.evaluation.comparison import Difference, Group
    from kmyriad.evaluation.evaluate import Evaluation
    from kmyriad.evaluation.statistics import Mean
    from kmyriad.runs.run import Run

PRETRAINING = {
    "entropy": ("entropy", ".2f"),
    "kl_between_agents": ("KL between agents", ".2f"),
    "kl_floor": ("KL of equal agents", ".2f"),
    "covered_cells": ("covered cells", ".0f"),
    "env_steps": ("env steps", ",.0f"),
}
JUMPSTARTS = {
    "final_success": ("success at the end", ".2f"),
    "area": ("mean success", ".2f"),
    "steps_to_half": ("env steps to 50 %", ",.0f"),
    "env_steps": ("env steps", ",.0f"),
}
"""Columns of the tables: measure to title and format."""


@dataclass(frozen=True)
class Command:
    """Compare runs: means and 95 % intervals (Student t) over seeds, and differences paired by seed.

    Pretraining runs are grouped by environment, update rule, number of agents and what these were told of the robot,
    jump-starts by environment and init. Jump-starts to several goals are averaged within a seed first.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN RUN ...")]
    """Folders of runs."""
    by: tuple[str, ...] = ()
    """Settings that tell groups apart too, such as diversity-weight; for jump-starts also those of their source."""
    json: Path | None = None
    """A file for the numbers."""
    figures: Path | None = None
    """A folder for figures, as PNG and SVG."""
    threads: int | None = None
    """CPU threads; none takes all cores. Changes no number."""


def run(arguments: list[str]) -> None:
    command = tyro.cli(Command, args=arguments, prog="kmyriad compare")
    # What stands behind `--by` may be runs already.
    folders = [*command.folders, *(Path(name) for name in command.by if Path(name).exists())]
    by = [name for name in command.by if not Path(name).exists()]
    if not folders:
        raise UsageError("name the folders of at least one run:  kmyriad compare runs/A runs/B runs/C")
    from rich.markup import escape

    from kmyriad.evaluation.comparison import compare
    from kmyriad.evaluation.evaluate import current_evaluation
    from kmyriad.runs.progress import say
    from kmyriad.runs.run import open_run

    def evaluation_of(one: "Run") -> "Evaluation":
        say(f"looking at {one.given}")
        return current_evaluation(one, command.threads)

    found = compare([open_run(folder) for folder in folders], evaluation_of, by)
    console = output()
    for groups, differences, what, columns in (
        (found.pretraining, found.pretraining_differences, "pretraining", PRETRAINING),
        (found.jumpstarts, found.jumpstart_differences, "jump-start", JUMPSTARTS),
    ):
        if groups:
            count = sum(len(group.runs) for group in groups)
            sentence = f"{_number(count, f'{what} run')} in {_number(len(groups), 'group')}: mean ± 95 % interval."
            console.print(sentence, highlight=False)
            console.print(_table(groups, columns))
            for group in groups:
                for doubt in group.doubts:
                    name = escape(f"{group.name['env']}, {group.label}")
                    console.print(f"[yellow]Careful with {name}:[/] {escape(doubt)}.", highlight=False)
        if differences:
            console.print("Differences paired by seed: mean ± 95 % interval.", highlight=False)
            console.print(_difference_table(differences, groups, columns))
    if command.json is not None:
        write_json(command.json, found.as_json())
        say(f"wrote {command.json}")
    if command.figures is not None:
        from kmyriad import figures

        for name, figure in figures.draw_comparison(found).items():
            for path in figures.save(figure, command.figures / name):
                say(f"wrote {path}")


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _table(groups: "list[Group]", columns: dict[str, tuple[str, str]]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    names = (Column(name.replace("_", " "), overflow="fold") for name in groups[0].name)
    counts = (Column(name, justify="right") for name in ("runs", "seeds"))
    titles = (Column(title, justify="right", overflow="fold") for title, _ in columns.values())
    table = Table(*names, *counts, *titles, box=SIMPLE_HEAD)
    for group in groups:
        seeds = len(group.seeds)
        cells = (_cell(group.mean(measure), seeds, form) for measure, (_, form) in columns.items())
        table.add_row(*map(str, group.name.values()), str(len(group.runs)), str(seeds), *cells)
    return table


def _difference_table(
    differences: "list[Difference]", groups: "list[Group]", columns: dict[str, tuple[str, str]]
) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Column, Table

    from kmyriad.evaluation.comparison import labels_of

    labels = {id(group): label for group, label in zip(groups, labels_of(groups), strict=True)}
    shown = {measure: column for measure, column in columns.items() if measure not in ("env_steps", "kl_floor")}
    names = (Column(name, overflow="fold") for name in ("env", "this", "minus this"))
    titles = (Column(title, justify="right", overflow="fold") for title, _ in shown.values())
    table = Table(*names, Column("pairs", justify="right"), *titles, box=SIMPLE_HEAD)
    for one in differences:
        pairs = len({*one.first.seeds} & {*one.second.seeds})
        cells = (_cell(one.mean(measure), pairs, f"+{form}") for measure, (_, form) in shown.items())
        table.add_row(one.first.name["env"], labels[id(one.first)], labels[id(one.second)], str(pairs), *cells)
    return table


def _cell(mean: "Mean | None", seeds: int, form: str) -> str:
    if mean is None:
        return "-"
    return mean.text(form) + (f" ({mean.count} of {seeds})" if mean.count < seeds else "")
