"""The populations that come with the repository open and do what their card says."""

import re
from pathlib import Path

import pytest
import torch

import kmyriad as km
from kmyriad import cli
from kmyriad.runs.pack import LARGEST, read_pack

FOLDER = Path(__file__).parents[2] / "populations"
GOALS = {"ant-empty": ("6", "3"), "ant-maze": ("4", "0"), "point-maze": ("2", "2")}
TINY = ["--total-steps", "2000", "--selection-steps", "1000", "--replicas", "8", "--rollout-steps", "10"]
TINY += ["--critic-epochs", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rows():
    """The card's table: numbers by world."""
    lines = [line for line in (FOLDER / "README.md").read_text().splitlines() if line.startswith("| [")]
    return {re.search(r"\[(.*?)\]", line)[1]: [cell.strip() for cell in line.split("|")[2:-1]] for line in lines}


def test_there_are_three_of_them():
    assert {path.stem for path in FOLDER.glob("*.kmyriad")} == {*GOALS} == {*rows()}
    assert max(path.stat().st_size for path in FOLDER.glob("*.kmyriad")) < 2_500_000 < LARGEST


@pytest.mark.parametrize("world", GOALS)
def test_the_card_tells_what_is_in_the_file(world):
    """Of the evaluation that came with it."""
    file = FOLDER / f"{world}.kmyriad"
    population, run = km.load_population(file), km.open_run(file)
    assert (population.agents, run.env, run.config.run.seed) == (10, world, 0)
    told = read_pack(file)["README.md"].decode()
    numbers = [float(re.search(rf"- {name}: (\S+)", told)[1]) for name in NAMES]
    assert [float(cell.replace(",", "")) for cell in rows()[world][: len(NAMES)]] == pytest.approx(numbers, abs=0.006)


NAMES = ("entropy", "covered cells", "kl between agents mean", "kl floor")


@pytest.mark.parametrize("world", GOALS)
def test_commands_take_it(world, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    file, goal = str(FOLDER / f"{world}.kmyriad"), GOALS[world]
    cli.main(["evaluate", file, "--episodes", "10", "--threads", "1"])
    assert "10 agents" in capsys.readouterr().out
    cli.main(["select", file, "--goal", *goal, "--steps", "2000", "--threads", "1"])
    assert f"kmyriad jumpstart {file} --goal {' '.join(goal)} --agent" in capsys.readouterr().out
    cli.main(["jumpstart", file, "--goal", *goal, "--out", "run", "--horizon", "20", *TINY])
    assert km.open_run("run").jumpstart.start.source == file
