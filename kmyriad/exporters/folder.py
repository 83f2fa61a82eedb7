"""Exported folders: weights, facts, reference actions, carried code and a README, there whole or not at all."""

import importlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from safetensors.torch import save_file

from kmyriad import errors
from kmyriad.errors import UsageError
from kmyriad.exporters.carried.policy import is_world
from kmyriad.exporters.portable import Portable, reference, tensors
from kmyriad.runs.files import check_name, os_errors, write_json
from kmyriad.runs.run import version

CARRIED = Path(__file__).parent / "carried"
ALWAYS = ("torch", "safetensors", "gymnasium")
CUT_OFF = " The Gaussian is over raw actions; they are cut off at that range."
SQUASHED = " The Gaussian is over raw actions; tanh and a stretch to that range make them the environment's."


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` that takes its name when the block ends well, and is removed else."""
    check_name(path)
    with os_errors(f"write {path}", "choose another folder or free some space"):
        if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
            raise UsageError(f"{path} is already there and not empty; choose another folder with --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        temporary.mkdir()
        try:
            yield temporary
            os.replace(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def write_policy(portable: Portable, folder: Path, script: tuple[str, str], modules: Sequence[str] = ()) -> None:
    """What every target has: policy.json, policy.safetensors, reference.safetensors, carried code and a script.

    `script` is (the carried file, what it is called there).
    """
    write_json(folder / "policy.json", portable.facts | {"kmyriad": version()})
    save_file(tensors(portable), folder / "policy.safetensors")
    save_file(
        {name: tensor.contiguous() for name, tensor in reference(portable).items()}, folder / "reference.safetensors"
    )
    carry(folder, script, modules)


def carry(folder: Path, script: tuple[str, str], modules: Sequence[str] = ()) -> None:
    """Put carried code into a folder, where it imports its like from beside it."""
    copies = {f"kmyriad_{name}.py": name for name in ("policy", *modules)} | {script[1]: script[0]}
    for target, name in copies.items():
        text = (CARRIED / f"{name}.py").read_text()
        (folder / target).write_text(re.sub(r"kmyriad\.exporters\.carried\.(\w+)", r"kmyriad_\1", text))


def write_readme(
    folder: Path, facts: dict[str, Any], title: str, use: str, *libraries: str, takes_critic: bool = True
) -> None:
    """Ten lines: what it is, shapes, units, range of actions, where it comes from, versions, how to use it.

    `libraries` are what pip calls what is needed beside torch, safetensors and Gymnasium. `takes_critic` tells whether
    a value function that comes along is of use there.
    """
    lines = [f"# {title}", "", *_lines(facts, libraries), "", use]
    if (folder / "train_on.py").exists():
        critic = (
            "its critic came along" if facts["critic_hidden"] and takes_critic else "a fresh critic learns alone first"
        )
        lines.append(f"`python train_on.py` compares actions, plays, trains on and plays again; {critic}.")
    (folder / "README.md").write_text("\n".join([*lines, ""]))


def _lines(facts: dict[str, Any], libraries: Sequence[str]) -> list[str]:
    named = ", ".join(f"{one['name']} ({one['size']}, {one['unit']})" for one in facts["observations"])
    actions = (
        f"{len(facts['choices'])} choices, among {' '.join(map(str, facts['choices']))} (an index each)"
        if facts["choices"]
        else f"one of {facts['actions']} (an index)"
        if facts["discrete"]
        else f"{facts['actions']} numbers, from {min(facts['low']):g} to {max(facts['high']):g}"
    )
    who = f"all {facts['agents']} agents" if facts["agent"] is None else f"agent {facts['agent']}"
    goal = (
        f", reward 1 at the goal {' '.join(f'{number:g}' for number in facts['goal'])} (metres)"
        if facts["goal"]
        else ", no reward without a goal"
        if is_world(facts)
        else ""
    )
    made = "pretrained without reward on the entropy of" if facts["command"] == "pretrain" else "jump-started; features"
    weights = "weights of agent 0" if facts["agent"] is None else "weights"
    versions = ", ".join(f"{name} {facts['versions'].get(name, '?')}" for name in ("kmyriad", "torch", "mujoco"))
    needs = ", ".join(map(_with_version, [*libraries, *ALWAYS]))
    return [
        f"- Policy: {who} of the run `{facts['run']}`, {made} {' '.join(facts['features'])}.",
        f"- Training: {facts['env_steps']:,} environment steps ({versions}); written by kmyriad {version()}.",
        f"- Environment: `{facts['env_id']}`, {facts['horizon']} steps per episode{goal}; settings in policy.json.",
        f"- Observation: {facts['observation_size']} numbers{': ' + named if named else ''}; the normaliser is inside.",
        f"- Action: {actions}.{'' if facts['discrete'] else CUT_OFF if facts['clips'] else SQUASHED}",
        f"- `policy.json`: sizes. `policy.safetensors`: {weights}. `reference.safetensors`: actions to compare with.",
        f"- Needs {needs}{', and kmyriad to make its environment' * is_world(facts)}.",
    ]


def _with_version(library: str) -> str:
    """`torch 2.13.0`: what it was written beside, if that is known."""
    try:
        return f"{library} {metadata.version(library).partition('+')[0]}"
    except metadata.PackageNotFoundError:
        return library


@contextmanager
def carried_module(folder: Path, name: str) -> Iterator[ModuleType]:
    """The carried module `name` of a folder, under the name by which the library's own file will ask for it."""
    before = {known: sys.modules.pop(known) for known in [*sys.modules] if known.startswith("kmyriad_")}
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield import_module(f"kmyriad_{name}")
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes
        for known in [known for known in sys.modules if known.startswith("kmyriad_")]:
            del sys.modules[known]
        sys.modules.update(before)


def need(target: str, extra: str, *modules: str) -> None:
    """Refuse a target whose library is missing."""
    errors.need(f"export to {target}", extra, *modules)
