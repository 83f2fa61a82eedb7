import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import JumpstartConfig, with_settings
from kmyriad.errors import UsageError
from kmyriad.evaluation.selection import rank_agents, rank_stored
from kmyriad.population.population import Population
from kmyriad.presets import jumpstart_preset
from kmyriad.rollout.task import task_of
from kmyriad.runs.checkpoints import newest_checkpoint
from kmyriad.runs.run import open_run
from kmyriad.runs.state import load_population
from kmyriad.training import jumpstart as jumpstarting
from kmyriad.training.jumpstart import REMEMBERED, episode_limit, remember_successes, with_source
from kmyriad.training.pretrain import fresh_population
from tests import walk_env
from tests.test_benchmarks import BENCHMARKS
from tests.training.test_pretrain import last_bytes, rows_of

walk_env.register()
SELECTION = 1200
"""Steps that selecting may take: 30 episodes. One agent, or ten, take them all."""
ITERATION = 8 * 20
PRETRAINING = {"horizon": 40, "trunk_hidden": (16,), "agent_hidden": 8, "threads": 1, "initial_std": 0.6}
PRETRAINING |= {"replicas": 12, "rollout_steps": 20, "total_steps": 4 * 12 * 20}
SMALL = {"replicas": 8, "rollout_steps": 20, "critic_warm_up": 2, "critic_hidden": (16, 8), "threads": 1}
SMALL |= {"selection_steps": SELECTION, "total_steps": SELECTION + 6 * ITERATION}
GOAL = (1.0, -2.0)
"""Two cells east of the start of PointMaze's ring, within reach of chance."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Small pretraining runs: `three` agents and `one` in PointMaze, two in a user's own environment (`walk`)."""
    folder = tmp_path_factory.mktemp("runs")
    kmyriad.pretrain("point-maze", out=folder / "three", agents=3, **PRETRAINING)
    kmyriad.pretrain("point-maze", out=folder / "one", agents=1, **PRETRAINING)
    whole = PRETRAINING | {"replicas": 8, "rollout_steps": None, "total_steps": 4 * 8 * 40}
    kmyriad.pretrain(walk_env.CONTINUOUS, out=folder / "walk", agents=2, **whole)
    return folder


@pytest.fixture(scope="module")
def selected(runs):
    """Steps that selecting takes among the three agents."""
    return kmyriad.select(runs / "three", GOAL, steps=SELECTION, threads=1).episodes * 40


def test_the_best_agent_is_fine_tuned_and_selection_counts(runs, selected, tmp_path):
    # Some succeed in every iteration; where none does the policy stays as it is.
    many = SMALL | {"replicas": 60, "episode_limit": 40, "total_steps": selected + 6 * 60 * 20}
    run = kmyriad.jumpstart(runs / "three", goal=GOAL, out=tmp_path / "run", **many)
    selection = json.loads(run.selection_path.read_text())
    assert 0 < selection["env_steps"] == selected <= 1200
    assert sorted(standing["agent"] for standing in selection["standings"]) == [0, 1, 2]
    rows = run.metrics()
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[-1]["env_steps"] == selection["env_steps"] + 6 * 60 * 20
    assert [row["success"] is None for row in rows] == [True] * 4 + [False] * 2
    assert all(row["success"] is None or 0 <= row["success"] <= 1 for row in rows)
    assert [row["update_kl"] > 0 for row in rows] == [False, False, True, True, True, True]
    assert run.command == "jumpstart"
    assert run.is_finished
    task = open_run(run.path).jumpstart.task
    assert (task.env, task.horizon, task.goal) == ("point-maze", 40, GOAL)


def test_the_policy_is_the_agent_until_the_critic_is_warm(runs, tmp_path):
    run = kmyriad.jumpstart(runs / "three", goal=GOAL, agent=1, out=tmp_path / "run", **(SMALL | {"critic_warm_up": 6}))
    assert len(run.metrics()) == 6
    chosen = load_population(run)
    assert chosen.agents == 1
    source = load_population(open_run(runs / "three"))
    observations = torch.randn(1, 50, chosen.observation_size)
    with torch.no_grad():
        mine, agents = chosen(observations), source(observations.expand(3, -1, -1))
        alone = source.agent(1)(observations[0])
    torch.testing.assert_close(mine.mean[0], agents.mean[1])
    torch.testing.assert_close(mine.log_std[0], agents.log_std[1])
    torch.testing.assert_close(alone.mean, agents.mean[1])


@pytest.mark.parametrize("rollout_steps", [15, 20, 40, None])
def test_a_resumed_jumpstart_is_the_uninterrupted_one(runs, selected, rollout_steps, tmp_path):
    total = {count: selected + count * 8 * (rollout_steps or 40) for count in (2, 3, 6)}
    settings = SMALL | {"goal": GOAL, "rollout_steps": rollout_steps, "top": 2, "checkpoint_every": 1}
    whole = kmyriad.jumpstart(runs / "three", out=tmp_path / "whole", **(settings | {"total_steps": total[6]}))
    assert [row["iteration"] for row in whole.metrics()] == [1, 2, 3, 4, 5, 6]
    parts = kmyriad.jumpstart(runs / "three", out=tmp_path / "parts", **(settings | {"total_steps": total[2]}))
    shutil.rmtree(parts.checkpoints)  # killed before the first checkpoint: selection is done again
    parts.checkpoints.mkdir()
    kmyriad.jumpstart(out=tmp_path / "parts", resume=True, total_steps=total[3])
    parts = kmyriad.jumpstart(out=tmp_path / "parts", resume=True, total_steps=total[6])
    assert rows_of(parts) == rows_of(whole)
    assert last_bytes(parts) == last_bytes(whole)
    assert len(whole.metrics()[-1]["success_per_agent"]) == 2
    assert load_population(whole).agents == 2


def test_the_critic_is_shown_what_policies_do_not_see(runs, tmp_path, capsys):
    kmyriad.pretrain(walk_env.BLIND, out=tmp_path / "blind", agents=2, features=("info.place",), **PRETRAINING)
    settings = SMALL | {"agent": 0, "checkpoint_every": 1}
    seen = {}
    for name, of_it in {
        "shown": {"goal": (1.0, 0.0)},
        "not shown": {"goal": (1.0, 0.0), "asymmetric_critic": False},
        "no goal": {},
    }.items():
        run = kmyriad.jumpstart(tmp_path / "blind", out=tmp_path / name, **settings, **of_it)
        seen[name] = critic_of(run)["critic.trunk_weights.0"].shape[0]
        assert ("critic: it is shown" in capsys.readouterr().err) == (name == "shown")
    points = kmyriad.jumpstart(runs / "three", goal=GOAL, out=tmp_path / "points", **settings)
    assert seen == {"shown": 4, "not shown": 2, "no goal": 2}
    assert critic_of(points)["critic.trunk_weights.0"].shape[0] == 4  # its observations, which have x and y
    shown = kmyriad.open_run(tmp_path / "shown")
    assert critic_of(shown)["critic.hidden.count"] == 6 * ITERATION
    early = settings | {"goal": (1.0, 0.0), "total_steps": settings["total_steps"] - 3 * ITERATION}
    kmyriad.jumpstart(tmp_path / "blind", out=tmp_path / "parts", **early)
    parts = kmyriad.jumpstart(out=tmp_path / "parts", resume=True, total_steps=settings["total_steps"])
    assert last_bytes(parts) == last_bytes(shown)


def critic_of(run):
    tensors = newest_checkpoint(run.checkpoints).content.tensors
    return {name: tensor for name, tensor in tensors.items() if name.startswith("critic.")}


def test_success_is_the_same_whether_episodes_stop_at_the_goal_or_not(runs, tmp_path, monkeypatch):
    """Of an agent that does not learn. Those that stop are shorter, so there are more of them."""
    monkeypatch.setattr(Population, "see", lambda *_: None)
    settings = SMALL | {"replicas": 200, "critic_warm_up": 24, "critic_epochs": 1, "rollout_steps": 10}
    settings |= {"episode_limit": 40, "total_steps": SELECTION + 24 * 200 * 10}  # the whole horizon
    rates, episodes = [], []
    for stop in (True, False):
        out = tmp_path / str(stop)
        run = kmyriad.jumpstart(runs / "three", goal=GOAL, agent=0, stop_at_goal=stop, out=out, **settings)
        rows = [row for row in run.metrics() if row["success"] is not None]
        assert len(rows) == (16 if stop else 20)
        episodes.append(sum(row["episodes"] for row in rows) / len(rows))
        rates.append(np.average([row["success"] for row in rows], weights=[row["episodes"] for row in rows]))
    assert 0.3 < rates[1] < 0.95
    assert rates[0] == pytest.approx(rates[1], abs=0.05)
    assert episodes[0] > 1.1 * episodes[1]


SEGMENTS = with_settings(JumpstartConfig(), {"goal": GOAL, "env": "point-maze", "horizon": 40, "rollout_steps": 20})


@pytest.mark.parametrize(
    ("settings", "success_steps", "limit"),
    [
        ({}, [20] * 10, 30),  # one and a half times
        ({}, [10] * 8 + [20] * 2, 30),  # what nine in ten take
        ({}, [10] * 19 + [40], 15),
        ({}, [30], 40),  # the horizon at most
        ({}, [], 40),  # no success yet: all the time there is
        ({"episode_limit": 17}, [20], 17),
        ({"episode_limit": 400}, [20], 40),
        ({"stop_at_goal": False}, [20], 40),
    ],
)
def test_the_limit_of_episodes_follows_how_long_success_takes(settings, success_steps, limit):
    config = with_settings(SEGMENTS, settings)
    assert episode_limit(config, SimpleNamespace(success_steps=success_steps)) == limit


def test_the_last_successes_are_remembered():
    episode_steps = torch.tensor([[[8, 9, 0], [27, 28, 29]]])
    dones = torch.tensor([[[False, True, False], [False, False, True]]])
    success = torch.zeros_like(dones)
    state = SimpleNamespace(success_steps=[])
    trajectory = SimpleNamespace(episode_steps=episode_steps, dones=dones, success=success)
    remember_successes(state, trajectory)
    assert state.success_steps == []  # who ended had not succeeded
    success[0, :, 1:] = True
    remember_successes(state, trajectory)
    assert state.success_steps == [10, 30]
    dones[0, 1] = False
    for _ in range(REMEMBERED):
        remember_successes(state, trajectory)
    assert state.success_steps == [10] * REMEMBERED


def test_training_gives_up_at_the_limit_of_episodes(runs, tmp_path):
    far = (0.0, 2.0)
    run = kmyriad.jumpstart(runs / "three", goal=far, agent=0, out=tmp_path / "run", episode_limit=10, **SMALL)
    assert [row["episodes"] for row in run.metrics()] == [0] + 5 * [8 * 20 // 10]
    assert run.config.task.horizon == 40


def test_a_run_is_trained_at_its_pace(runs, tmp_path, capsys):
    """With a pace of a tenth as with gamma and KL that far along."""
    settings = SMALL | {"goal": GOAL, "agent": 1, "total_steps": 2400, "selection_steps": 400}
    paced = kmyriad.jumpstart(runs / "three", pace=0.1, gamma=0.9, desired_kl=0.2, out=tmp_path / "paced", **settings)
    assert "pace: gamma 0.99, KL 0.02, as episodes are 40 steps long; --pace" in " ".join(
        capsys.readouterr().err.split()
    )
    plain = kmyriad.jumpstart(runs / "three", pace=1, gamma=0.99, desired_kl=0.02, out=tmp_path / "plain", **settings)
    fast = kmyriad.jumpstart(runs / "three", pace=1, gamma=0.9, desired_kl=0.2, out=tmp_path / "fast", **settings)
    assert "pace" not in capsys.readouterr().err.replace(str(tmp_path), "")
    weights = [load_population(run).state_dict() for run in (paced, plain, fast)]
    same = [all(torch.allclose(weights[0][name], of[name]) for name in weights[0]) for of in weights[1:]]
    assert same == [True, False]


def test_whole_horizons_do_not_stop_at_the_goal():
    assert SEGMENTS.stops_at_goal
    for settings in ({"rollout_steps": 40}, {"rollout_steps": None}, {"stop_at_goal": False}, {"goal": ()}):
        assert not with_settings(SEGMENTS, settings).stops_at_goal
    assert not with_settings(jumpstart_preset("paper", "best"), {"goal": GOAL}).stops_at_goal


@pytest.mark.parametrize("init", ["best", "random"])
def test_only_those_who_begin_learn_what_is_usual(init, runs, tmp_path):
    """Under other statistics of observations a trained policy would be another one."""
    settings = SMALL | {"replicas": 60, "episode_limit": 40, "total_steps": SELECTION + 4 * 60 * 20}
    run = kmyriad.jumpstart(runs / "three", init=init, goal=GOAL, agent=1, out=tmp_path / "run", **settings)
    assert run.metrics()[-1]["update_kl"] > 0
    now, before = (load_population(one).normaliser.state_dict() for one in (run, open_run(runs / "three")))
    assert all(torch.equal(now[name], before[name]) for name in before) == (init == "best")


def test_baselines(runs, tmp_path):
    single = kmyriad.jumpstart(runs / "one", init="single", goal=GOAL, out=tmp_path / "single", **SMALL)
    assert single.metrics()[-1]["env_steps"] == 30 * 40 + 6 * 8 * 20  # one agent: 30 trials, and nothing to select
    assert len(single.metrics()) == 6
    of_a_run = kmyriad.jumpstart(runs / "three", init="random", goal=GOAL, out=tmp_path / "random", **SMALL)
    assert of_a_run.metrics()[0]["env_steps"] > 8 * 20  # ten fresh agents were tried
    assert load_population(of_a_run).trunk_sizes == (16,)
    of_a_world = kmyriad.jumpstart(
        "point-maze",
        init="random",
        goal=GOAL,
        horizon=40,
        out=tmp_path / "fresh",
        **(SMALL | {"selection_steps": 400, "total_steps": 1000}),
    )
    assert load_population(of_a_world).trunk_sizes == (256, 128)


def test_random_agents_practise_before_the_best_is_chosen(runs, tmp_path, monkeypatch):
    """Their steps count, and what they learn is what is chosen from."""
    counted = []
    real = jumpstarting.practise
    monkeypatch.setattr(jumpstarting, "practise", lambda *a: counted.append(real(*a)) or counted[-1])
    settings = SMALL | {"replicas": 20, "rollout_steps": 20, "selection_steps": 400, "total_steps": 12_000}
    run = kmyriad.jumpstart(runs / "walk", init="random", out=tmp_path / "run", **settings)
    selection = json.loads(run.selection_path.read_text())
    assert counted == [2400]
    assert run.metrics()[0]["env_steps"] >= 2400 + 400 + 20 * 20
    assert len(selection["standings"]) == 10
    again = kmyriad.jumpstart(runs / "walk", init="random", out=tmp_path / "again", **settings)
    assert last_bytes(run) == last_bytes(again)


def test_random_agents_differ_though_those_of_the_run_started_alike(runs, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(jumpstarting, "fresh_population", lambda *a: made.append(fresh_population(*a)) or made[-1])
    kmyriad.jumpstart(runs / "three", init="random", goal=GOAL, out=tmp_path / "run", **SMALL)
    means = made[0](torch.randn(1, 5, 4).expand(10, 5, 4)).mean
    assert len(torch.unique(means, dim=0)) == 10


def test_a_task_with_a_reward_of_its_own_is_learned(runs, tmp_path):
    """The user's environment rewards going east."""
    settings = SMALL | {"replicas": 16, "rollout_steps": None, "total_steps": SELECTION + 30 * 16 * 40}
    settings |= {"critic_warm_up": 3, "learning_rate": 1e-3, "desired_kl": 0.05}
    run = kmyriad.jumpstart(runs / "walk", out=tmp_path / "run", **settings)
    rows = run.metrics()
    assert np.mean([row["return"] for row in rows[-3:]]) > np.mean([row["return"] for row in rows[:3]]) + 100
    assert rows[-1]["success"] > 0.9


def test_a_goal_is_learned_from_scratch(tmp_path):
    settings = {"replicas": 40, "horizon": 60, "threads": 1, "selection_steps": 10 * 60, "rollout_steps": 20}
    settings["total_steps"] = 10 * 60 + 60 * 40 * 20
    run = kmyriad.jumpstart("point-maze", init="random", goal=(2.0, -1.0), out=tmp_path / "run", **settings)
    assert np.mean([row["success"] for row in run.metrics()[-5:]]) > 0.9


def test_ranking_is_repeatable_and_agrees_with_what_is_stored(runs):
    config = with_source(with_settings(JumpstartConfig(), {"source": str(runs / "three"), "goal": GOAL}))
    task, run = task_of(config), open_run(runs / "three")
    first, second = (rank_agents(task, load_population(run), 4000, seed=3, threads=1) for _ in range(2))
    assert first == second == kmyriad.select(run, GOAL, steps=4000, seed=3, threads=1)
    stored = rank_stored(task, run)
    assert stored.episodes == 12
    assert {standing.agent for standing in stored.standings} == {0, 1, 2}
    assert kmyriad.select(run.path, GOAL, stored=True) == stored
    assert kmyriad.select(run, GOAL, 1e9, stored=True).standings[0].success == 1.0
    with pytest.raises(UsageError, match="walk has no stored episodes to rank agents for a goal by; leave --stored"):
        kmyriad.select(runs / "walk", stored=True)
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
        ("three", {"goal": (1.0,)}, "goal must be .x, y., .x, y, z."),
        ("three", {}, "point-maze has no reward without a goal"),
        ("walk", {"goal": (1.0, 2.0, 3.0)}, "goal must have at most 2 numbers, one per feature .0, 1.; got 3"),
        ("three", {"goal": GOAL, "env": "ant-empty"}, "was trained in point-maze, not in ant-empty"),
        ("three", {"goal": GOAL, "agent": 3}, "agent must be between 0 and 2; got 3"),
        ("three", {"goal": GOAL, "top": 4}, "top 4 is more than the 3 agents"),
        ("three", {"goal": GOAL, "top": 2, "agent": 1}, "exclude each other"),
        ("three", {"goal": GOAL, "init": "single"}, "takes a run of one agent"),
        ("three", {"goal": GOAL, "init": "bset"}, "did you mean 'best'"),
        ("three", {"goal": GOAL, "selection_steps": 40}, "a budget of 1 episodes is less than one for each of 3 agen"),
        (
            "three",
            {"goal": GOAL, "total_steps": 600},
            r"selecting took [0-9,]+ environment steps, and total_steps are 600: none are left to train; raise",
        ),
        ("three", {"goal": GOAL, "top": 3}, "8 replicas cannot be split evenly over 3 agents; use 6 or 9 replicas"),
        ("three", {"goal": GOAL, "goal_radius": 0.0}, "goal_radius must be between"),
        (
            "three",
            {"goal": GOAL, "update": "reinforce"},
            "a jump-start is trained by actor_critic; got update reinforce",
        ),
        ("three", {"goal": GOAL, "preset": "desk"}, "unknown preset 'desk'; known: quick, paper"),
        ("three", {"goal": GOAL, "env_settings": {"mpa": 1}}, "unknown setting 'mpa'"),
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
        kmyriad.jumpstart(
            runs / "one", goal=GOAL, out=tmp_path / "jumpstarted", **(SMALL | {"total_steps": SELECTION + 1})
        )
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
    assert (random.update.clip_range, random.update.entropy_coef, random.update.update_epochs) == (0.2, 0.001, 10)
    assert (best.update.clip_range, best.update.entropy_coef, best.update.update_epochs) == (0.15, 0.0, 3)
    assert (random.start.critic_warm_up, best.start.critic_warm_up) == (1, 5)
    for preset in (random, best):
        update, rollouts = preset.update, preset.rollouts
        assert (update.learning_rate, update.critic_learning_rate) == (1e-5, 3e-4)
        assert (update.gamma, update.gae_lambda, update.max_grad_norm) == (0.99, 0.95, 0.5)
        assert (rollouts.horizon, rollouts.replicas, update.desired_kl) == (600, 300, None)
        assert not rollouts.are_segments
        assert update.critic_epochs == 0
        assert preset.run.total_steps == 10_000_000


@pytest.mark.slow
def test_ppo_learns_what_stable_baselines3_learns(tmp_path):
    """Pendulum-v1, the same steps, a seed each: at least nine tenths of its rise above the untrained policy."""
    pytest.importorskip("stable_baselines3", reason="comes with the `bench` extra")
    report = tmp_path / "report.json"
    command = [sys.executable, BENCHMARKS / "ppo.py", "--seeds", "1", "--json", report]
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800)
    assert json.loads(report.read_text())["figures"]["return_vs_sb3"] > 0.9
