"""Do two commits compute the same? Six tiny runs on each, their tensors and metrics compared to the bit.

python benchmarks/equality.py HEAD~3 HEAD        # any two commits; `.` is the working tree

Names may differ (settings, metrics and tensors are renamed now and then), numbers may not: tensors are compared by
type, shape and content, rows of metrics by their values, timings left out. Exit code 1 where anything differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

PRETRAINING: dict[str, dict[str, Any]] = {
    "ant-actor-critic": {"env": "ant-empty", "agents": 4, "replicas": 12, "horizon": 40, "rollout_steps": 10},
    "maze-many-agents": {"env": "ant-maze", "agents": 12, "replicas": 24, "horizon": 20, "rollout_steps": 10},
    "point-actor-critic": {"env": "point-maze", "agents": 2, "replicas": 8, "horizon": 40, "rollout_steps": 20},
    "ant-reinforce": {"env": "ant-pyramid", "agents": 3, "replicas": 9, "horizon": 30, "update": "reinforce"},
    "point-trust-region": {"env": "point-maze", "agents": 2, "replicas": 8, "horizon": 30, "update": "trust_region"},
}
ITERATIONS = 6
JUMPSTART = {"goal": (1.5, 0.5), "replicas": 8, "rollout_steps": 10, "selection_steps": 800}

OLD_NAMES = {"rollout_steps": "segment", "critic_warm_up": "warm_up"}
"""Of settings, before runs had format 2."""

TIMINGS = ("seconds", "steps_per_second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?", help="a commit, or . for the working tree")
    parser.add_argument("after", nargs="?", help="a commit, or . for the working tree")
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)  # in a tree of one commit: make the runs here
    arguments = parser.parse_args()
    if arguments.make:
        make_runs(arguments.make)
        return
    if not arguments.before or not arguments.after:
        parser.error("name two commits")
    before, after = (digests_of(commit) for commit in (arguments.before, arguments.after))
    differences = [line for name in before for line in compare(name, before[name], after[name])]
    print("\n".join(differences) or f"equal to the bit: {', '.join(before)}")
    sys.exit(bool(differences))


def digests_of(commit: str) -> dict[str, Any]:
    """What the six runs come to on `commit`."""
    with tempfile.TemporaryDirectory() as folder:
        tree, runs = tree_of(commit, Path(folder)), Path(folder) / "runs"
        command = [sys.executable, str(Path(__file__).resolve()), "--make", str(runs)]
        subprocess.run(command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, check=True)
        return {path.name: digest(path) for path in sorted(runs.iterdir())}


def tree_of(commit: str, folder: Path) -> Path:
    """The files of a commit, below `folder`; the working tree for `.`."""
    if commit == ".":
        return ROOT
    tree = folder / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=tree, input=archive, check=True)
    return tree


def make_runs(folder: Path) -> None:
    """The six runs with the kmyriad that is first on the path."""
    import kmyriad

    for name, settings in PRETRAINING.items():
        kmyriad.pretrain(out=folder / name, **spelt(settings, ITERATIONS))
    start = folder / "ant-actor-critic"
    for_jumpstart = spelt(JUMPSTART | {"horizon": 40, "critic_warm_up": 2}, ITERATIONS)
    kmyriad.jumpstart(start, out=folder / "ant-jump-start", **for_jumpstart)


def spelt(settings: dict[str, Any], iterations: int) -> dict[str, Any]:
    """`settings` with a budget of so many iterations, in the words of the kmyriad at hand."""
    from kmyriad.config import PretrainConfig

    if "epochs" in PretrainConfig.__dataclass_fields__:
        return {OLD_NAMES.get(name, name): value for name, value in settings.items()} | {"epochs": iterations}
    steps = settings["replicas"] * settings.get("rollout_steps", settings["horizon"])
    return settings | {"total_steps": iterations * steps + (settings.get("selection_steps", 0))}


def digest(run: Path) -> dict[str, Any]:
    """The tensors of every checkpoint's newest, and the values of every row."""
    from hashlib import sha256

    from safetensors.torch import load_file

    newest = max(run.glob("checkpoints/*.safetensors"))
    tensors = {
        name: f"{tensor.dtype} {tuple(tensor.shape)} {sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:16]}"
        for name, tensor in load_file(newest).items()
    }
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {"tensors": tensors, "rows": [{k: v for k, v in row.items() if k not in TIMINGS} for row in rows]}


def compare(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line for each difference between two runs."""
    lines = []
    if len(before["rows"]) != len(after["rows"]):
        lines.append(f"{name}: {len(before['rows'])} iterations before, {len(after['rows'])} after")
    pairs = [("tensors", before["tensors"], after["tensors"])]
    pairs += [(f"iteration {i}", *rows) for i, rows in enumerate(zip(before["rows"], after["rows"], strict=False), 1)]
    for what, old, new in pairs:
        gone = Counter(map(repr, old.values())) - Counter(map(repr, new.values()))
        lines += [f"{name}, {what}: {key} differs" for key, value in old.items() if gone[repr(value)] > 0]
    return lines


if __name__ == "__main__":
    main()
