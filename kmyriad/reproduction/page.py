"""Verdicts, tables and figures as one HTML file that loads nothing from elsewhere."""

import base64
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

TOO_SMALL = "These runs are far too small to judge the paper by: this page shows that the commands work."
STYLE = """
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 0.4rem 0.6rem; border-bottom: 1px solid var(--line); }
img { max-width: 100%; background: white; border-radius: 6px; }
"""


def page_of(
    about: Mapping[str, Any],
    verdicts: Sequence[Mapping[str, Any]],
    tables: Mapping[str, Mapping[str, Any]],
    pictures: Mapping[str, Path],
) -> str:
    """The page; everything in it is escaped."""
    style = files("kmyriad.report").joinpath("assets/page.css").read_text(encoding="utf-8") + STYLE
    warning = "" if about["judges"] else f'<div class="missing"><p>{escape(TOO_SMALL)}</p></div>'
    names = ("number", "claim", "paper", "rule", "ours", "verdict")
    claims = _table(
        ("", "claim", "the paper", "rule", "ours", "verdict"), [[row[n] for n in names] for row in verdicts]
    )
    measures = _table(
        ("measure", "mean", "± (95 %)", "seeds"),
        [[name, _number(row["mean"]), _number(row["margin"]), row["count"]] for name, row in tables.items()],
    )
    facts = _table(("", ""), [[name, value] for name, value in about.items() if name != "judges"])
    images = "".join(
        f'<figure><figcaption>{escape(title)}</figcaption><img alt="{escape(title)}" src="{_data(path)}"></figure>'
        for title, path in pictures.items()
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>kmyriad: the paper, reproduced</title><style>{style}</style></head><body><main>"
        f"<h1>The paper, reproduced</h1>{warning}{facts}<h2>Claims</h2>{claims}<h2>Figures</h2>{images}"
        f"<h2>Numbers</h2>{measures}</main></body></html>\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _data(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
