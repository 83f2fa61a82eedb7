"""Verdicts, tables and figures as one HTML file that loads nothing from elsewhere."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from kmyriad.reproduction.paper import CHOICES, ITEMS, KL_TABLE

TOO_SMALL = "These runs are far too small to judge the paper by: this page shows that the commands work."
STYLE = """
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; margin: 0.5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 0.6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: break-word; }
td:first-child { white-space: nowrap; }
.claims td:nth-child(2), .claims td:nth-child(3) { width: 21%; }
.claims td:nth-child(5) { width: 15%; }
.index td:first-child { white-space: normal; width: 40%; }
tr.how td { color: var(--soft); font-size: 0.8rem; padding-top: 0; }
tr.claim td { border-bottom: none; }
img { max-width: 100%; background: white; border-radius: 6px; }
figure { margin: 1.5rem 0; }
h2 { margin-top: 2.5rem; }
.scroll { overflow-x: auto; }
"""
VERDICT = "verdict"


class Picture(NamedTuple):
    title: str
    caption: str
    """What the paper shows there, and how ours was made."""
    path: Path


def page_of(
    about: Mapping[str, Any],
    verdicts: Sequence[Mapping[str, Any]],
    tables: Mapping[str, Mapping[str, Any]],
    pictures: Sequence[Picture],
    groups: Sequence[Sequence[str]] = (),
) -> str:
    """The page; everything in it is escaped."""
    style = files("kmyriad.report").joinpath("assets/page.css").read_text(encoding="utf-8") + STYLE
    warning = "" if about["judges"] else f'<div class="missing"><p>{escape(TOO_SMALL)}</p></div>'
    facts = _table(("", ""), [[_words(name), _words(value)] for name, value in about.items() if name != "judges"])
    parts = {
        "The paper's figures and tables": _table(
            ("in the paper", "target", "claims and verdicts"), _index(verdicts), "index"
        ),
        "Claims": _claims(verdicts),
        "Table 1, KL divergence between parallel agents": _kl_table(tables),
        "Figures": "".join(map(_figure, pictures)),
        "Where the paper is open or says two things": _table(("in the paper", "what we chose"), CHOICES, "index"),
        "Runs": _table(("run", "seeds measured", "missing"), groups),
        "All numbers": _table(("measure", "mean", "± (95 %)", "seeds", "by seed"), _numbers(tables)),
    }
    body = "".join(f"<h2>{escape(title)}</h2>{part}" for title, part in parts.items())
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>kmyriad: the paper, reproduced</title><style>{style}</style></head><body><main>"
        f"<h1>The paper, reproduced</h1>{warning}{facts}{body}</main></body></html>\n"
    )


def _index(verdicts: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    by_number = {row["number"]: row[VERDICT] for row in verdicts}
    return [
        [
            item.name,
            item.target or item.instead.replace("`", ""),
            ", ".join(f"{number}: {by_number.get(number, '')}" for number in item.claims) or "no claim",
        ]
        for item in ITEMS
    ]


def _claims(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """A row for each claim with the paper's number, ours and the verdict, and a small one with how it was judged."""
    names = ("number", "claim", "paper", "ours", VERDICT)
    rows = []
    for row in verdicts:
        rows.append(_row([row[name] for name in names], "claim"))
        rows.append(f'<tr class="how"><td></td><td colspan="4">{escape(_how(row))}</td></tr>')
    return _whole_table(("", "claim", "the paper", "ours", VERDICT), "".join(rows), "claims")


def _how(row: Mapping[str, Any]) -> str:
    runs = "It needs no run"
    if row["runs"]:
        runs = f"{row['runs_measured']} of {row['runs']} runs measured, seeds {_words(row['seeds'])}"
        runs += f", {row['env_steps']:,} steps in all, about {row['hours']} hours of one core"
    return f"Rule: {row['rule']}. Command: {row['command']}. {runs}. Commit: {row['commit']}."


def _words(value: Any) -> str:
    """Names without underscores, numbers with commas, lists without brackets."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value).replace("_", " ")


def _kl_table(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Table 1 as printed, and ours beside it: estimate, its floor of shuffled labels, and what is above it."""
    rows = []
    for world, printed in KL_TABLE.items():
        for agents, (mean, margin) in printed.items():
            ours = [tables.get(f"{what}/{world}/{agents}") for what in ("kl", "kl_floor", "kl_above_floor")]
            cells = [_mean(row) for row in ours]
            rows.append([world, agents, f"{mean:.4f} ± {margin:.4f}", *cells])
    return _table(("world", "agents", "the paper", "ours", "floor", "above the floor"), rows)


def _figure(picture: Picture) -> str:
    title = escape(picture.title)
    return (
        f'<figure><h3>{title}</h3><img alt="{title}" width="{_width(picture.path)}" src="{_data(picture.path)}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _numbers(tables: Mapping[str, Mapping[str, Any]]) -> list[list[Any]]:
    return [
        [
            name,
            _number(row["mean"]),
            _number(row["margin"]),
            row["count"],
            ", ".join(f"{seed}: {_number(value)}" for seed, value in row["by_seed"].items()),
        ]
        for name, row in tables.items()
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], kind: str = "") -> str:
    return _whole_table(head, "".join(map(_row, rows)), kind)


def _whole_table(head: Sequence[str], body: str, kind: str) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll {kind}">{table}</div>'


def _row(cells: Sequence[Any], kind: str = "") -> str:
    opening = f'<tr class="{kind}">' if kind else "<tr>"
    return opening + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"


def _mean(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not run"
    return f"{row['mean']:.4f}" + ("" if row["margin"] is None else f" ± {row['margin']:.4f}")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _width(path: Path) -> int:
    """Of a PNG, in CSS pixels: half of its own, as screens that are twice as fine show them all."""
    return int.from_bytes(path.read_bytes()[16:20]) // 2


def _data(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
