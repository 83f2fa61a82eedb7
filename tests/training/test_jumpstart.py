import json
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.errors import UsageError
from kmyriad.jumpstart_config import JumpstartConfig
from kmyriad.population.population import Population
from kmyriad.presets import jumpstart_preset
from kmyriad.runs.run import open_run
from kmyriad.runs.state import load_population
from kmyriad.training import jumpstart as jumpstarting
from kmyriad.training.jumpstart import (
    config_of,
    learn_how_long_success_takes,
    longest_episode,
    rank_heads,
    rank_stored,
    task_of,
    with_source,
)
from kmyriad.training.pretrain import fresh_population
from tests import walk_env
from tests.test_benchmarks import BENCHMARKS
from tests.training.test_pretrain import last_bytes, rows_of

walk_env.register()
SMALL = {"replicas": 8, "epochs": 6, "warm_up": 2, "critic": (16, 8), "selection_steps": 1200, "threads": 1}
GOAL = (1.0, -2.0)
"""Two cells east of the start of PointMaze's ring, within reach of chance."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small pretraining runs: `three` heads and `one` in PointMaze, two in a user's own environment (`walk`)."""
    folder = tmp_path_factory.mktemp("runs")
    sizes = {"horizon": 40, "epochs": 4, "trunk": (16,), "adapter": 8, "threads": 1, "initial_sigma": 0.6}
    kmyriad.pretrain("point-maze", out=folder / "three", agents=3, replicas=12, segment=20, **sizes)
    kmyriad.pretrain("point-maze", out=folder / "one", agents=1, replicas=12, segment=20, **sizes)
    kmyriad.pretrain(walk_env.CONTINUOUS, out=folder / "walk", agents=2, replicas=8, **sizes)
    return folder


def test_the_best_head_is_fine_tuned_and_selection_counts(runs, tmp_path):
    many = SMALL | {
        "replicas": 60,
        "patience": 40,
    }  # some succeed in every epoch; where none does the policy stays as it is
    run = kmyriad.jumpstart(runs / "three", goal=GOAL, out=tmp_path / "run", segment=20, **many)
    selection = json.loads(run.selection_path.read_text())
    assert 0 < selection["env_steps"] <= 1200
    assert sorted(standing["head"] for standing in selection["standings"]) == [0, 1, 2]
    rows = run.metrics()
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["env_steps"] == selection["env_steps"] + 6 * 60 * 20
    assert [row["success"] is None for row in rows] == [True] * 4 + [False] * 2
    assert all(row["success"] is None or 0 <= row["success"] <= 1 for row in rows)
    assert [row["update_kl"] > 0 for row in rows] == [False, False, True, True, True, True]
    assert run.command == "jumpstart"
    assert run.is_finished
    config = config_of(open_run(run.path))
    assert (config.env, config.horizon, config.goal) == ("point-maze", 40, GOAL)


def test_the_policy_is_the_head_until_the_critic_is_warm(runs, tmp_path):
    run = kmyriad.jumpstart(runs / "three", goal=GOAL, head=1, out=tmp_path / "run", **(SMALL | {"warm_up": 6}))
    chosen = load_population(run)
    assert chosen.agents == 1
    source = load_population(open_run(runs / "three"))
    observations = torch.randn(1, 50, chosen.observation_size)
    with torch.no_grad():
        chosen.normaliser = source.normaliser  # goes on learning what is usual
        mine, heads = chosen(observations), source(observations.expand(3, -1, -1))
        alone = source.head(1)(observations[0])
    torch.testing.assert_close(mine.mean[0], heads.mean[1])
    torch.testing.assert_close(mine.log_sigma[0], heads.log_sigma[1])
    torch.testing.assert_close(alone.mean, heads.mean[1])


@pytest.mark.parametrize("segment", [20, 40])
def test_a_resumed_jumpstart_is_the_uninterrupted_one(runs, segment, tmp_path):
    settings = SMALL | {"goal": GOAL, "segment": segment, "top": 2, "checkpoint_every": 1}
    whole = kmyriad.jumpstart(runs / "three", out=tmp_path / "whole", **settings)
    parts = kmyriad.jumpstart(runs / "three", out=tmp_path / "parts", **(settings | {"epochs": 2}))
    shutil.rmtree(parts.checkpoints)  # killed before the first checkpoint: selection is done again
    parts.checkpoints.mkdir()
    kmyriad.jumpstart(out=tmp_path / "parts", resume=True, epochs=3)
    parts = kmyriad.jumpstart(out=tmp_path / "parts", resume=True, epochs=6)
    assert rows_of(parts) == rows_of(whole)
    assert last_bytes(parts) == last_bytes(whole)
    assert len(whole.metrics()[-1]["success_per_head"]) == 2
    assert load_population(whole).agents == 2


def test_success_is_the_same_whether_episodes_stop_at_the_goal_or_not(runs, tmp_path, monkeypatch):
    """Of a head that does not learn. Those that stop are shorter, so there are more of them."""
    monkeypatch.setattr(Population, "see", lambda *_: None)
    settings = SMALL | {"replicas": 200, "epochs": 24, "warm_up": 24, "critic_passes": 1, "segment": 10}
    settings["patience"] = 40  # the whole horizon
    rates, episodes = [], []
    for stop in (True, False):
        out = tmp_path / str(stop)
        run = kmyriad.jumpstart(runs / "three", goal=GOAL, head=0, stop_at_goal=stop, out=out, **settings)
        rows = [row for row in run.metrics() if row["success"] is not None]
        assert len(rows) == (16 if stop else 20)
        episodes.append(sum(row["episodes"] for row in rows) / len(rows))
        rates.append(np.average([row["success"] for row in rows], weights=[row["episodes"] for row in rows]))
    assert 0.3 < rates[1] < 0.95
    assert rates[0] == pytest.approx(rates[1], abs=0.05)
    assert episodes[0] > 1.1 * episodes[1]


@pytest.mark.parametrize(
    ("settings", "steps_to_success", "longest"),
    [
        ({}, 20.0, 30),  # one and a half times
        ({}, 20.1, 31),
        ({}, 30.0, 40),  # the horizon at most
        ({}, 0.0, 40),  # no success yet: all the time there is
        ({"patience": 17}, 20.0, 17),
        ({"patience": 400}, 20.0, 40),
        ({"stop_at_goal": False}, 20.0, 40),
    ],
)
def test_patience_follows_how_long_success_takes(settings, steps_to_success, longest):
    config = JumpstartConfig(goal=GOAL, env="point-maze", horizon=40, segment=20, **settings)
    assert longest_episode(config, SimpleNamespace(steps_to_success=steps_to_success)) == longest


def test_how_long_success_takes_is_an_average_that_moves():
    ages, ends, success = np.zeros((1, 2, 3), int), np.zeros((1, 2, 3), bool), np.zeros((1, 2, 3), bool)
    ages[0] = [[8, 9, 0], [27, 28, 29]]
    ends[0] = [[False, True, False], [False, False, True]]
    state = SimpleNamespace(steps_to_success=0.0)
    trajectory = SimpleNamespace(ages=ages, ends=ends, success=success)
    learn_how_long_success_takes(state, trajectory)
    assert state.steps_to_success == 0.0  # who ended had not succeeded
    success[0, :, 1:] = True
    learn_how_long_success_takes(state, trajectory)
    assert state.steps_to_success == pytest.approx(20)  # the first ones: (10 + 30) / 2
    ends[0, 1] = False
    for _ in range(50):
        learn_how_long_success_takes(state, trajectory)
    assert state.steps_to_success == pytest.approx(10 + 10 * 0.98**50)


def test_training_gives_up_when_patience_is_over(runs, tmp_path):
    far = (0.0, 2.0)
    run = kmyriad.jumpstart(runs / "three", goal=far, out=tmp_path / "run", segment=20, patience=10, **SMALL)
    assert [row["episodes"] for row in run.metrics()] == [0] + 5 * [8 * 20 // 10]
    assert run.config["horizon"] == 40


def test_whole_horizons_do_not_stop_at_the_goal():
    config = JumpstartConfig(goal=GOAL, env="point-maze", horizon=40, segment=20)
    assert config.stops_at_goal
    assert not replace(config, segment=40).stops_at_goal
    assert not replace(config, stop_at_goal=False).stops_at_goal
    assert not jumpstart_preset("paper", "best").stops_at_goal


def test_baselines(runs, tmp_path):
    single = kmyriad.jumpstart(runs / "one", init="single", goal=GOAL, out=tmp_path / "single", **SMALL)
    assert single.metrics()[-1]["env_steps"] == 30 * 40 + 6 * 8 * 20  # one head: 30 trials, and nothing to select
    of_a_run = kmyriad.jumpstart(runs / "three", init="random", goal=GOAL, out=tmp_path / "random", **SMALL)
    assert of_a_run.metrics()[0]["env_steps"] > 8 * 20  # ten fresh heads were tried
    assert load_population(of_a_run).trunk_sizes == (16,)
    of_a_world = kmyriad.jumpstart(
        "point-maze", init="random", goal=GOAL, horizon=40, out=tmp_path / "fresh", **(SMALL | {"selection_steps": 400})
    )
    assert load_population(of_a_world).trunk_sizes == (256, 128)


def test_random_heads_differ_though_those_of_the_run_started_alike(runs, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(jumpstarting, "fresh_population", lambda *a: made.append(fresh_population(*a)) or made[-1])
    kmyriad.jumpstart(runs / "three", init="random", goal=GOAL, out=tmp_path / "run", **SMALL)
    means = made[0](torch.randn(1, 5, 4).expand(10, 5, 4)).mean
    assert len(torch.unique(means, dim=0)) == 10


def test_a_task_with_a_reward_of_its_own_is_learned(runs, tmp_path):
    """The user's environment rewards going east."""
    settings = SMALL | {"epochs": 30, "replicas": 16, "warm_up": 3, "learning_rate": 1e-3, "target_kl": 0.05}
    run = kmyriad.jumpstart(runs / "walk", out=tmp_path / "run", **settings)
    rows = run.metrics()
    assert np.mean([row["return"] for row in rows[-3:]]) > np.mean([row["return"] for row in rows[:3]]) + 100
    assert rows[-1]["success"] > 0.9


def test_a_goal_is_learned_from_scratch(tmp_path):
    settings = {"replicas": 40, "epochs": 40, "horizon": 60, "threads": 1, "selection_steps": 10 * 60}
    run = kmyriad.jumpstart("point-maze", init="random", goal=(2.0, -1.0), out=tmp_path / "run", **settings)
    assert np.mean([row["success"] for row in run.metrics()[-5:]]) > 0.9


def test_ranking_is_repeatable_and_agrees_with_what_is_stored(runs):
    config = with_source(JumpstartConfig(str(runs / "three"), GOAL))
    task, run = task_of(config), open_run(runs / "three")
    first, second = (rank_heads(task, load_population(run), 4000, seed=3, threads=1) for _ in range(2))
    assert first == second
    stored = rank_stored(task, run)
    assert stored.episodes == 12
    assert {standing.head for standing in stored.standings} == {0, 1, 2}
    kmyriad.evaluate(run, episodes=60, threads=1)
    try:
        assert rank_stored(task, run).episodes == 60
    finally:
        run.evaluation_path.unlink()


@pytest.mark.parametrize(
    ("source", "settings", "message"),
    [
        ("three", {"goal": (0.0, 0.0)}, "inside a wall"),
        ("three", {"goal": (50.0, 0.0)}, "outside the world"),
        ("three", {"goal": (1.0,)}, "goal must be x y or x y z"),
        ("three", {}, "point-maze has no reward without a goal"),
        ("walk", {"goal": GOAL}, "has a reward of its own and takes no goal"),
        ("three", {"goal": GOAL, "env": "ant-empty"}, "was trained in point-maze, not in ant-empty"),
        ("three", {"goal": GOAL, "head": 3}, "head must be between 0 and 2; got 3"),
        ("three", {"goal": GOAL, "top": 4}, "top 4 is more than the 3 heads"),
        ("three", {"goal": GOAL, "top": 2, "head": 1}, "exclude each other"),
        ("three", {"goal": GOAL, "init": "single"}, "takes a run of one agent"),
        ("three", {"goal": GOAL, "init": "bset"}, "did you mean 'best'"),
        ("three", {"goal": GOAL, "selection_steps": 40}, "a budget of 1 episodes is less than one for each of 3 heads"),
        ("three", {"goal": GOAL, "gaol_radius": 1}, "did you mean 'goal_radius'"),
        ("nowhere", {"goal": GOAL}, "there is no run folder"),
        ("", {"goal": GOAL}, "needs the folder of a pretraining run"),
        ("empty", {"goal": GOAL}, "has no checkpoint yet"),
        ("jumpstarted", {"goal": GOAL}, "is a jumpstart run"),
    ],
)
def test_bad_input_is_told_in_one_sentence_and_leaves_nothing_behind(runs, source, settings, message, tmp_path):
    if source == "empty":
        shutil.copytree(runs / "three", tmp_path / "empty")
        shutil.rmtree(tmp_path / "empty" / "checkpoints")
    if source == "jumpstarted":
        kmyriad.jumpstart(runs / "one", goal=GOAL, out=tmp_path / "jumpstarted", **(SMALL | {"epochs": 1}))
    folder = tmp_path / source if source in ("empty", "jumpstarted") else runs / source
    with pytest.raises(UsageError, match=message):
        kmyriad.jumpstart(folder if source else "", out=tmp_path / "out", **(SMALL | settings))
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_a_run_is_refused_before_selecting(runs, tmp_path, capsys):
    shutil.copytree(runs / "one", tmp_path / "taken")
    with pytest.raises(UsageError, match="taken already holds a run"):
        kmyriad.jumpstart(runs / "three", goal=GOAL, out=tmp_path / "taken", **SMALL)
    assert "trying" not in capsys.readouterr().err


def test_the_paper_preset_is_its_table():
    random, best = jumpstart_preset("paper", "random"), jumpstart_preset("paper", "best")
    assert (random.clip, random.entropy_bonus, random.passes, random.warm_up) == (0.2, 0.001, 10, 1)
    assert (best.clip, best.entropy_bonus, best.passes, best.warm_up) == (0.15, 0.0, 3, 5)
    for preset in (random, best):
        assert (preset.learning_rate, preset.critic_learning_rate) == (1e-5, 3e-4)
        assert (preset.gamma, preset.gae_lambda, preset.largest_gradient) == (0.99, 0.95, 0.5)
        assert (preset.horizon, preset.replicas, preset.target_kl) == (600, 300, None)
        assert preset.actor_critic.critic_passes == 0
        assert preset.epochs * preset.replicas * preset.horizon == pytest.approx(1e7, rel=0.01)


@pytest.mark.slow
def test_ppo_learns_what_stable_baselines3_learns(tmp_path):
    """Pendulum-v1, the same steps, a seed each: at least nine tenths of its rise above the untrained policy."""
    pytest.importorskip("stable_baselines3", reason="comes with the `bench` extra")
    report = tmp_path / "report.json"
    command = [sys.executable, BENCHMARKS / "ppo.py", "--seeds", "1", "--json", report]
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    assert json.loads(report.read_text())["figures"]["return_vs_sb3"] > 0.9
