"""Plain JSON to one HTML file."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from kmyriad.errors import UsageError
from kmyriad.report.attempt import attempt
from kmyriad.report.section import section_of
from kmyriad.report.videos import find_videos, pack_video
from kmyriad.runs.files import check_name, os_errors, write_atomically
from kmyriad.runs.run import Run, open_run, version

SIZE = 5_000_000
"""Bytes that videos may fill a page up to."""

SCRIPTS = ("elements.js", "curves.js", "paths.js", "map.js", "picker.js", "sections.js", "page.js")
"""Parts of the page's script, in the order they need each other."""


def write_report(
    runs: Run | str | Path | Sequence[Run | str | Path], out: str | Path = "report.html", episodes: int | None = None
) -> Path:
    """Write a page about runs to `out`; `episodes` of each population are shown (None: those stored, 300 at least)."""
    opened = [open_run(run) for run in ([runs] if isinstance(runs, Run | str | Path) else runs)]
    out = Path(out)
    check_name(out)
    if out.is_dir():
        raise UsageError(f"cannot write the page {out}: it is a folder; name a file, such as {out / 'report.html'}")
    sections = [section_of(run, episodes) for run in opened]
    _name_apart(opened, sections)
    _add_videos(opened, sections, out)
    with os_errors(f"write the page {out}", "choose another --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page_of(sections).encode())
    return out


def page_of(sections: Sequence[dict[str, Any]]) -> str:
    """The page, all ASCII but for our own assets. Nothing of `sections` is HTML: scripts put it in place as text."""
    style = _read("vendor/uPlot.min.css") + _read("assets/page.css")
    library = _read("vendor/uPlot.iife.min.js")
    script = "".join(_read(f"assets/{name}") for name in SCRIPTS)
    parts = {
        "policy": _policy([style], [library, script]),
        "style": style,
        "data": script_json({"version": version(), "runs": list(sections)}),
        "library": library,
        "script": script,
    }
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: parts[match[1]], _read("assets/page.html"))


def script_json(content: Any) -> str:
    """JSON that can stand inside an HTML script element, whatever strings it holds."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """A Content-Security-Policy: nothing from anywhere, and of scripts and styles only our own, by their hashes."""
    allowed = {"style-src": styles, "script-src": scripts}
    hashes = [f"{name} {' '.join(map(_hash, texts))}" for name, texts in allowed.items()]
    return "; ".join(
        ["default-src 'none'", *hashes, "img-src data:", "media-src data:", "base-uri 'none'", "form-action 'none'"]
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _name_apart(runs: Sequence[Run], sections: Sequence[dict[str, Any]]) -> None:
    """Runs whose folders have the same name are called by their paths."""
    names = [section["name"] for section in sections]
    for run, section in zip(runs, sections, strict=True):
        if names.count(section["name"]) > 1:
            section["name"] = str(run.given)


def _add_videos(runs: Sequence[Run], sections: Sequence[dict[str, Any]], out: Path) -> None:
    room = SIZE - len(page_of(sections).encode())
    for run, section in zip(runs, sections, strict=True):
        section["videos"] = []
        for path in attempt("videos", partial(find_videos, run), section["missing"]) or []:
            video = attempt("video", partial(pack_video, path, out, room), section["missing"])
            if video is not None:
                section["videos"].append(video)
                room -= len(json.dumps(video))


def _read(name: str) -> str:
    return files("kmyriad.report").joinpath(name).read_text(encoding="utf-8")
