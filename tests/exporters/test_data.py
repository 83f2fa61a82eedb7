"""Fresh episodes as datasets: the same numbers in every format, whole episodes, little memory."""

import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch

import kmyriad as km
from kmyriad.config import PretrainConfig, with_settings
from kmyriad.exporters import data as exporting
from tests import walk_env
from tests.exporters.untrained import CASES, SMALL, untrained_run

GOAL = (1.0, -2.0)
EPISODES = 24


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    untrained_run(folder / "maze", CASES["the paper's"])
    untrained_run(folder / "discrete", CASES["discrete"])
    untrained_run(folder / "choices", CASES["discrete, two choices"])
    return folder


def steps_of(folder):
    """All shards of an NPZ dataset, put together."""
    shards = [np.load(path) for path in sorted(folder.glob("*.npz"))]
    return {name: np.concatenate([shard[name] for shard in shards]) for name in shards[0]}


def test_episodes_are_what_the_agents_do(runs, tmp_path):
    folder = km.export(runs / "maze", "npz", tmp_path / "out", goal=GOAL, episodes=EPISODES, threads=1)
    steps, facts = steps_of(folder), json.loads((folder / "dataset.json").read_text())
    assert facts["episodes"] == EPISODES == len(np.unique(steps["episode"])) == len(steps["last_episode"])
    assert facts["steps"] == len(steps["step"]) <= EPISODES * 20
    assert f"{EPISODES} episodes, {facts['steps']:,} steps" in (folder / "README.md").read_text()
    assert sorted(np.unique(steps["agent"], return_counts=True)[0]) == [0, 1, 2, 3]
    population = km.load_population(runs / "maze")
    for agent in range(4):
        mine = steps["agent"] == agent
        seen, raw = (torch.from_numpy(steps[name][mine]) for name in ("observation", "raw_action"))
        with torch.no_grad():
            expected = population.agent(agent)(seen).log_prob(raw)
        assert np.allclose(expected, steps["log_prob"][mine], rtol=1e-4, atol=1e-4)
        assert np.allclose(steps["action"][mine], population.actions.squash(raw))
    last = np.append(steps["episode"][1:] != steps["episode"][:-1], True)
    assert ((steps["terminated"] | steps["truncated"]) == last).all()
    assert (steps["reward"][steps["success"]] == 1).all()  # the goal ends an episode
    assert not (steps["terminated"] & ~steps["success"]).any()


def test_an_episode_can_be_played_again(tmp_path):
    """Its actions lead from each observation to the next, in the environment that dataset.json tells."""
    still = with_settings(CASES["the paper's"], {"env_settings": {"reset_noise": 0.0}})
    run = untrained_run(tmp_path / "run", still)
    folder = km.export(run, "npz", tmp_path / "out", episodes=2, agent=2, threads=1)
    steps, facts = steps_of(folder), json.loads((folder / "dataset.json").read_text())
    env = gymnasium.make(facts["env_id"], **facts["env_settings"])
    seen, _ = env.reset()
    for before, action in zip(steps["observation"][:20], steps["action"][:20], strict=True):
        assert np.allclose(seen, before, atol=1e-6)
        seen, *_ = env.step(action)
    assert np.allclose(seen, steps["last_observation"][0], atol=1e-6)
    env.close()


def test_formats_hold_the_same(runs, tmp_path, monkeypatch):
    minari, parquet = pytest.importorskip("minari"), pytest.importorskip("pyarrow.parquet")
    folders = {}
    for to in ("npz", "parquet", "minari"):
        folders[to] = km.export(runs / "maze", to, tmp_path / to, goal=GOAL, episodes=EPISODES, seed=3, threads=1)
    steps = steps_of(folders["npz"])
    table = parquet.read_table(folders["parquet"] / "episodes.parquet")
    last = parquet.read_table(folders["parquet"] / "last.parquet")
    assert {*table.column_names} == {name for name in steps if not name.startswith("last_")}
    for name in table.column_names:
        assert np.array_equal(np.array(table[name].to_pylist(), steps[name].dtype), steps[name])
    assert np.array_equal(np.array(last["observation"].to_pylist(), np.float32), steps["last_observation"])
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folders["minari"]))
    dataset = minari.load_dataset("kmyriad/maze-v0")
    assert dataset.total_episodes == EPISODES
    assert dataset.total_steps == len(steps["step"])
    for number, episode in enumerate(dataset):
        mine = steps["episode"] == number
        assert np.array_equal(episode.observations[:-1], steps["observation"][mine])
        assert np.array_equal(episode.observations[-1], steps["last_observation"][number])
        assert np.array_equal(episode.actions, steps["action"][mine])
        assert np.array_equal(episode.rewards, steps["reward"][mine])
        assert np.array_equal(episode.infos["agent"][1:], steps["agent"][mine])
        assert np.array_equal(episode.infos["success"][1:], steps["success"][mine])
    env = dataset.recover_environment(eval_env=True)
    assert env.unwrapped.vector.has_goal
    env.close()


@pytest.mark.parametrize("kind", ["discrete", "choices"])
@pytest.mark.parametrize("to", ["npz", "parquet", "minari"])
def test_discrete_actions_and_rewards_of_ones_own(to, kind, runs, tmp_path):
    pytest.importorskip({"npz": "numpy", "parquet": "pyarrow"}.get(to, to))
    folder = km.export(runs / kind, to, tmp_path / to, episodes=6, threads=1)
    assert "rewards for its own" in (folder / "README.md").read_text()
    if to == "npz":
        steps = steps_of(folder)
        assert steps["action"].shape[1:] == (() if kind == "discrete" else (2,))
        assert steps["reward"].any()


def test_many_episodes_come_in_rounds(runs, tmp_path, monkeypatch):
    whole = steps_of(km.export(runs / "maze", "npz", tmp_path / "whole", episodes=EPISODES, threads=1))
    monkeypatch.setattr(exporting, "ROUND", 8 * 20 * 4)
    held = []
    play = exporting.collect

    def watched(replicas, *arguments, **settings):
        held.append(replicas.count)
        return play(replicas, *arguments, **settings)

    monkeypatch.setattr(exporting, "collect", watched)
    folder = km.export(runs / "maze", "npz", tmp_path / "parts", episodes=EPISODES, threads=1)
    assert held == [8, 8, 8]
    assert len([*folder.glob("*.npz")]) == 3
    parts = steps_of(folder)
    assert {name: values.shape for name, values in parts.items()} == {name: x.shape for name, x in whole.items()}
    assert np.array_equal(np.unique(parts["episode"]), np.arange(EPISODES))
    assert not np.array_equal(parts["observation"][:160], parts["observation"][160:320])


def test_broken_episodes_are_left_out(tmp_path):
    config = with_settings(PretrainConfig(), {"env": walk_env.BROKEN, "agents": 2, **SMALL})
    folder = km.export(untrained_run(tmp_path / "run", config), "npz", tmp_path / "out", episodes=40, threads=1)
    facts = json.loads((folder / "dataset.json").read_text())
    assert facts["left_out"] > 0
    assert facts["episodes"] + facts["left_out"] == 40
    assert np.isfinite(steps_of(folder)["observation"]).all()


@pytest.mark.parametrize("episodes", [0, -1, "many"])
def test_bad_numbers_are_one_sentence(episodes, runs, tmp_path):
    with pytest.raises(km.UsageError, match="episodes must be"):
        km.export(runs / "maze", "npz", tmp_path / "out", episodes=episodes)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["npz", "parquet", "minari"])
def test_a_million_steps_take_little_memory(to, runs, tmp_path):
    """What ten million take: the rounds are the same. In a process of its own, whose largest size the system tells."""
    code = (
        "import resource, sys, kmyriad as km\n"
        "km.export(sys.argv[1], sys.argv[2], sys.argv[3], episodes=50_000, threads=2)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, str(runs / "maze"), to, str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads((tmp_path / "out/dataset.json").read_text())["steps"] == 1_000_000
    assert int(result.stdout.split()[-1]) < 1_000_000  # kB
