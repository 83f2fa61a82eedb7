"""kmyriad installs beside the simulators that its users have, whose pins are not ours."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
NEIGHBOURS = {
    "mjlab==1.6.0": {"mujoco": "3.11.0", "numpy": "2.4.6"},
    "isaaclab==2.3.2.post1": {"numpy": "1.26.4", "gymnasium": "1.2.0", "pillow": "11.3.0"},
}
"""What they pin of what we need too: mjlab mujoco~=3.11.0, Isaac Lab numpy<2 and the others as they stand here."""


@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_the_core_asks_for_nothing_that_neighbours_exclude(neighbour):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = {one.name: one.specifier for one in map(Requirement, project["dependencies"])}
    for name, version in NEIGHBOURS[neighbour].items():
        assert ours[name].contains(version), f"{name} {version} of {neighbour}"


WITHOUT_BATCH = """
import sys
sys.modules["mujoco.batch"] = None  # as in a MuJoCo before 3.17
from kmyriad.cli import main
small = "--agents 2 --replicas 4 --horizon 10 --rollout-steps 5 --total-steps 40 --threads 1 --trunk-hidden 8".split()
main(["pretrain", "Pendulum-v1", *small, "--out", sys.argv[1]])
main(["pretrain", "ant-empty", *small, "--out", sys.argv[1] + "-ants"])
"""


def test_without_the_extra_worlds_others_environments_train_and_ours_are_one_sentence(tmp_path):
    command = [sys.executable, "-c", WITHOUT_BATCH, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (tmp_path / "run/checkpoints").is_dir()
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("kmyriad: our worlds need MuJoCo 3.17 or later")
    assert "Traceback" not in done.stderr


@pytest.mark.index
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_pip_finds_versions_for_both(neighbour, tmp_path):
    """One of torch is given: which build of it there is to be is another matter, and gigabytes."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    subprocess.run([*command, "--report", tmp_path / "report.json", ROOT, neighbour, torch], check=True)
    report = json.loads((tmp_path / "report.json").read_text())
    found = {one["metadata"]["name"].lower(): one["metadata"]["version"] for one in report["install"]}
    assert "kmyriad" in found
    for name, version in NEIGHBOURS[neighbour].items():
        if name != "numpy":
            assert found[name] == version
    assert neighbour.startswith("mjlab") or found["numpy"].startswith("1.")
