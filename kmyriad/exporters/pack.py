"""`km.pack`: a run in one file, to share: policies, settings, evaluation, page and card."""

import re
import tempfile
from pathlib import Path
from typing import Any

from kmyriad.config import PretrainConfig
from kmyriad.errors import UsageError
from kmyriad.evaluation.evaluate import current_evaluation, summary
from kmyriad.report.page import write_report
from kmyriad.runs.checkpoints import checkpoint_path, newest_checkpoint
from kmyriad.runs.files import check_name, encode_json, os_errors, read_file
from kmyriad.runs.pack import LARGEST, SUFFIX, encode_pack, write_pack
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run, open_run
from kmyriad.runs.tensor_file import TensorFile, write_tensor_file

KEPT = ("population.", "average.", "critic.")
"""Of a checkpoint's tensors. What is left out (optimizer, simulator, pool) only a resume needs."""
FIRST_LEFT_OUT = ("report.html", "evaluation.safetensors")
"""Where a file would be too large to share."""


def pack(
    run: Run | str | Path,
    out: str | Path | None = None,
    *,
    page: bool = True,
    episodes: int | None = None,
    threads: int | None = None,
) -> Path:
    """Write a run's newest policies with all that tells about them into one file, and return its path.

    `km.load_population`, `km.select`, `km.jumpstart` and the commands take it as they take a folder; a resume does not.

    Args:
        run: a pretraining run or a jump-start, or its folder.
        out: the file; by default the run's name with the ending .kmyriad.
        page: whether the run's page goes in.
        episodes: that the evaluation and the page show; None takes those already played.
        threads: CPU threads to play them; None takes all cores.
    """
    run = open_run(run)
    path = Path(f"{run.name}{SUFFIX}") if out is None else Path(out)
    check_name(path)
    newest = newest_checkpoint(run.checkpoints)
    if newest is None:
        raise UsageError(f"{run.given} has no checkpoint yet; let it train for an iteration first")
    facts = newest.content.facts
    if isinstance(run.config, PretrainConfig):
        evaluation = current_evaluation(run, threads, episodes)
        measures = summary(run, evaluation)
    else:
        measures = {name: value for name, value in run.last_row().items() if name in ("success", "return")}
    names = ("config.json", "metrics.jsonl", "selection.json", "evaluation.safetensors")
    members = {name: _bytes(run.path / name) for name in names if (run.path / name).exists()}
    kept = {name: tensor for name, tensor in newest.content.tensors.items() if name.startswith(KEPT)}
    with tempfile.TemporaryDirectory() as temporary:
        checkpoint = checkpoint_path(Path(temporary), newest.iteration)
        write_tensor_file(checkpoint, TensorFile(kept, facts))
        members[f"checkpoints/{checkpoint.name}"] = checkpoint.read_bytes()
        if page:
            write_report([Run(run.path, Path(path.name))], Path(temporary) / "report.html", episodes)
            members["report.html"] = (Path(temporary) / "report.html").read_bytes()
    versions = {name: value for name, value in run.versions.items() if name != "platform"}  # is nobody else's affair
    members["versions.json"] = encode_json(Path("versions.json"), versions)
    members["README.md"] = card(run, facts, measures).encode()
    data = encode_pack(members)
    for name in FIRST_LEFT_OUT:
        if len(data) > LARGEST and name in members:
            del members[name]
            say(f"left out {name}: with it the file would be larger than {LARGEST:,} bytes")
            data = encode_pack(members)
    if len(data) > LARGEST:
        say(f"the policies alone take {len(data):,} bytes", style="yellow")
    write_pack(path, data)
    return path


def card(run: Run, facts: dict[str, Any], measures: dict[str, Any]) -> str:
    """What a stranger wants to know, as Markdown."""
    config, architecture = run.config, facts["architecture"]
    agents = architecture["agents"]
    lines = [
        f"# {run.name}",
        "",
        f"- {agents} {'policy' if agents == 1 else 'policies'} in `{run.env}` (settings {run.env_settings or 'none'}),"
        f" {config.rollouts.horizon} steps per episode.",
        f"- Made by `kmyriad {run.command}`: {facts['env_steps']:,} environment steps, seed {config.run.seed};"
        f" kmyriad {run.versions.get('kmyriad', '?')}, torch {run.versions.get('torch', '?')}.",
        f"- {architecture['observation_size']} observations,"
        f" {len(architecture['low'])} {'discrete' if architecture['discrete'] else 'continuous'} actions.",
    ]
    if isinstance(config, PretrainConfig):
        lines.append(f"- Trained without reward on the entropy of {' '.join(measures['features'])}.")
        for name in ("entropy", "kl_between_agents_mean", "kl_floor", "covered_cells"):
            if name in measures:
                lines.append(
                    f"- {name.replace('_', ' ')}: {measures[name]:.4g} ({measures['episodes']} fresh episodes)"
                )
    else:
        goal = " ".join(f"{number:g}" for number in config.task.goal)
        lines.append(f"- Trained for {f'the goal {goal}' if goal else 'the reward of the environment'}.")
        lines += [f"- {name}: {value:.4g}" for name, value in measures.items() if value is not None]
    lines += ["", f'Open it with kmyriad: `km.load_population("{_plain(run.name)}{SUFFIX}")`, or name it in a command']
    lines += [
        "where a run's folder is asked for. It is a zip without pickle; `report.html` in it is the run's page.",
        "",
    ]
    return "\n".join(lines)


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def _bytes(path: Path) -> bytes:
    with os_errors(f"read {path}"):
        return read_file(path)
