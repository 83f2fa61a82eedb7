"""The benchmarks run and write one flat object of figures. How large the figures are is for a quiet machine to say."""

import json
import math
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import JumpstartConfig, PopulationConfig, PretrainConfig, with_settings
from kmyriad.objective.rewards import novelty_rewards, rewards_of, slide
from kmyriad.rollout.collect import Segment
from kmyriad.runs.run import open_run

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TINY = {
    "env": "point-maze",
    "agents": 2,
    "replicas": 8,
    "horizon": 12,
    "rollout_steps": 4,
    "trunk_hidden": (8,),
    "agent_hidden": 8,
    "critic_hidden": (8,),
    "total_steps": 300,
}
"""Ten iterations."""


@pytest.fixture
def benchmark(monkeypatch):
    """`benchmark("study")` is the module of that name."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module


def figures_of(name, folder, *arguments, timeout=300):
    """(the figures it writes, what it prints)."""
    report = folder / "report.json"
    command = [sys.executable, BENCHMARKS / f"{name}.py", *arguments, "--json", report]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout)
    return json.loads(report.read_text()), result.stdout


@pytest.mark.warp
def test_warp_engine_writes_its_figures(tmp_path):
    pytest.importorskip("mujoco_warp")
    report, shown = figures_of("warp_engine", tmp_path, "--quick", timeout=1200)  # compiles, on a new machine
    figures = report["figures"]
    assert {"ant-maze_elliptic_share", "ant-cave_pyramidal_largest", "speed_elliptic_16"} <= set(figures)
    assert all(value >= 0 for value in figures.values())
    assert "times the speed of mujoco.batch" in shown


def test_before_compares_all_numbers_of_a_report(benchmark):
    report = {"figures": {"a": 2, "b": {"c": 0.5}}, "settings": {"quick": True, "zero": 0}, "versions": {"torch": "2"}}
    assert dict(benchmark("before").flat(report)) == {"figures: a": 2, "figures: b: c": 0.5}


def test_stepping_writes_its_figures(tmp_path):
    report, shown = figures_of("stepping", tmp_path, "--quick", "--replicas", "8")
    figures = report["figures"]
    assert set(figures) == {
        "vs_bare_batch",
        "vs_gymnasium",
        "vs_envpool",
        "maze_vs_flat",
        "pyramid_vs_flat",
        "cave_vs_flat",
    }
    assert all(value > 0 for name, value in figures.items() if name != "vs_envpool")
    assert "vs_bare_batch" in shown


def test_an_iterations_parts_are_written_and_a_quick_look_says_so(benchmark, monkeypatch, tmp_path, capsys):
    epoch, path = benchmark("epoch"), tmp_path / "report.json"
    monkeypatch.setattr(epoch, "QUICK", epoch.Size(replicas=50, horizon=20, rounds=3))
    monkeypatch.setattr(sys, "argv", ["epoch.py", "--quick", "--rounds", "1", "--json", str(path)])
    epoch.main()
    report = json.loads(path.read_text())
    assert set(report["figures"]) == {
        "vs_limit",
        "knn_share",
        "agents_50_vs_1",
        "peak_gb",
        "per_replica_4x_vs_1x",
    }
    assert all(value > 0 for value in report["figures"].values())
    assert set(report["seconds"]) == {
        "physics",
        "policy",
        "knn",
        "update",
        "metrics",
        "limit: physics",
        "limit: matrix products",
    }
    assert all(value > 0 for value in report["seconds"].values())
    assert report["settings"] == {"quick": True, "replicas": 50, "horizon": 20, "rounds": 1}
    assert "quick: 50 replicas x 20 steps" in " ".join(capsys.readouterr().out.split())


def test_the_cost_of_updates_is_measured_on_real_iterations(benchmark):
    figures = benchmark("learning").timing(rounds=1)
    assert set(figures) == {"update_vs_physics", "agents_50_vs_1"}
    assert all(math.isfinite(value) and value > 0 for value in figures.values())


def test_our_ppo_is_measured_from_fresh_weights(benchmark, monkeypatch):
    ppo = benchmark("ppo")
    monkeypatch.setattr(ppo, "EPISODES", 4)
    for steps in (0, 5000):
        reward, speed = ppo.ours(0, steps)
        assert -2000 < reward < 0
        assert speed > 0


def test_jumpstarts_are_compared_on_fresh_episodes(benchmark, monkeypatch, tmp_path):
    jumpstart = benchmark("jumpstart")
    monkeypatch.setattr(jumpstart, "FRESH_EPISODES", 10)
    assert len(set(jumpstart.goals_of("ant-maze", 3))) == 3
    jumpstart.pretrain_one(tmp_path / "source", TINY)
    task = {"source": tmp_path / "source", "goal": (1.0, -2.0), "replicas": 4, "rollout_steps": 4, "total_steps": 1000}
    task |= {"selection_steps": 24, "critic_hidden": (8,), "episode_limit": 6}
    for _ in range(2):  # begun, then gone on with
        jumpstart.jumpstart_one(tmp_path / "jump", task)
    run = open_run(tmp_path / "jump")
    assert 0 <= jumpstart.fresh_success(run) <= 1
    kept = json.loads((run.path / "fresh.json").read_text())
    assert kept == {"iterations": len(run.metrics()), "success": jumpstart.fresh_success(run)}
    assert jumpstart.show("point-maze", {"best": [run, run]})["best"] >= 0
    assert jumpstart.by_seed([0, 0, 1], [1.0, 2.0, 5.0]) == [1.5, 5.0]
    for changes in jumpstart.VARIANTS.values():
        with_settings(JumpstartConfig(), changes)  # refuses what is no setting


@pytest.mark.parametrize("rule", ["actor_critic", "reinforce", "trust_region"])
def test_experiments_train_and_measure_every_checkpoint(benchmark, rule, tmp_path):
    learning, experiments = benchmark("learning"), benchmark("experiments")
    settings = learning.settings_of("point-maze", rule, 2, seed=3) | TINY
    settings |= {"rollout_steps": None} if rule != "actor_critic" else {}
    if rule != "actor_critic":
        del settings["critic_hidden"]
    settings = learning.measured(settings, 2)
    iterations = 10 if rule == "actor_critic" else 4
    assert settings["checkpoint_every"] == iterations // 2
    curve = experiments.train_one(tmp_path / "run", settings)
    assert [row["iteration"] for row in curve] == [iterations // 2, iterations]
    assert curve[-1]["env_steps"] == open_run(tmp_path / "run").last_row()["env_steps"] >= 300
    assert curve[-1]["last"]["covered_cells_of_widest_agent"] > 0
    assert all(math.isfinite(row["entropy"]) for row in curve)
    assert experiments.train_one(tmp_path / "run", {}) == curve, "what is done is not done again"


def test_experiments_run_side_by_side_in_processes_of_their_own(benchmark, tmp_path):
    experiments = benchmark("experiments")
    two = {f"group/{seed}": TINY | {"seed": seed, "checkpoint_every": 10} for seed in (0, 1)}
    curves = experiments.train_all(two, tmp_path, 2)
    assert [*curves] == [*two]
    for name, curve in curves.items():
        assert experiments.train_one(tmp_path / name, {}) == curve, "it is kept"
    with pytest.raises(kmyriad.TrainingStoppedError, match="bad failed: unknown environment 'nowhere'"):
        experiments.train_all({"bad": {"env": "nowhere"}}, tmp_path, 1)


def segment(features):
    return Segment(*(torch.from_numpy(one) for one in (features, features, np.ones(features.shape[:3], bool))))


@pytest.mark.parametrize(
    ("asked", "segments", "factors"),
    [
        ({}, 8, 1.0),
        ({"pool_horizons": 0.5}, 4, 1.0),
        ({"pool_horizons": 0.01}, 1, 1.0),
        ({"pool_horizons": 2.0}, 16, 1.0),
        ({"feature_scales": (1.0, 3.0)}, 8, (1.0, 3.0)),
        ({"feature_scales": "deviation"}, 8, (0.5, 0.25)),
    ],
)
def test_study_trains_with_pools_that_no_setting_gives(monkeypatch, benchmark, tmp_path, asked, segments, factors):
    study, config = benchmark("study"), PretrainConfig(population=PopulationConfig(1))
    rng = np.random.default_rng(0)
    visited = []
    for _ in range(20):
        features = rng.normal(size=(1, 10, 20, 2)).astype(np.float32)
        features -= features.mean((0, 1, 2))
        features *= np.float32((2.0, 4.0)) / features.std((0, 1, 2))
        visited.append(segment(features))

    def train(folder, settings, objective):
        pool = []
        for newest in visited:
            pool = slide(pool, newest, config.rollouts.per_horizon)
            rewards = objective(pool, config)
        return settings, rewards

    monkeypatch.setattr(study, "train_one", train)
    settings, found = study.train_variant(tmp_path, {"seed": 1, **asked})
    assert settings == {"seed": 1}
    assert found.particles == segments * 200
    scaled = [segment(one.features.numpy() * np.float32(factors)) for one in visited[-segments:]]
    expected = novelty_rewards(scaled, config.objective.neighbours)
    np.testing.assert_allclose(found.rewards, expected.rewards, rtol=1e-3, atol=1e-3)
    assert found.entropy == pytest.approx(expected.entropy, abs=1e-3)


def test_studys_objective_is_what_the_run_is_trained_on(benchmark, tmp_path):
    study = benchmark("study")
    pools = []

    class Seen(study.OtherPool):
        def __call__(self, pool, config):
            pools.append(len(pool))
            return super().__call__(pool, config)

    curves = [
        benchmark("experiments").train_one(tmp_path / name, TINY | {"seed": 1, "checkpoint_every": 10}, objective)
        for name, objective in (
            ("plain", rewards_of),
            ("same", Seen()),
            ("scaled", study.OtherPool(feature_scales=(1.0, 3.0))),
        )
    ]
    assert pools == [1, 2, *[3] * 8]  # three rollouts of 4 steps make the horizon of 12
    assert curves[0] == curves[1]
    assert curves[0] != curves[2]


LAST = {"entropy": 1.0, "covered_cells": 2, "covered_cells_per_agent": [1, 2], "kl_between_agents": [0.5, 0.5]}


def test_studys_variants_are_settings_of_pretraining(benchmark, monkeypatch, tmp_path):
    study = benchmark("study")
    asked = {}

    def instead(train, experiments, folder, processes):
        asked.update(experiments)
        return {name: [{"std": 0.1, "last": LAST}] for name in experiments}

    monkeypatch.setattr(study, "side_by_side", instead)
    monkeypatch.setattr(sys, "argv", ["study.py", "--seeds", "1", "--folder", str(tmp_path)])
    study.main()
    assert len(asked) == len(study.VARIANTS) + len(study.POOLS)
    for settings in asked.values():
        pool = {name for of_pool in study.POOLS.values() for name in of_pool}
        plain = {name: value for name, value in settings.items() if name not in (*pool, "preset")}
        config = with_settings(PretrainConfig(), plain)  # refuses what is no setting
        steps = config.run.checkpoint_every * config.rollouts.steps_per_iteration
        assert 0 <= steps - 250_000 < config.rollouts.steps_per_iteration, "one checkpoint, at the end"


def test_environments_are_learned_in_and_measured_before_and_after(tmp_path, benchmark):
    environments = benchmark("environments")
    settings = {"env": "Pendulum-v1", "agents": 2, "replicas": 8, "horizon": 20, "total_steps": 400, "seed": 0}
    found = environments.train_and_measure(tmp_path / "run", settings)
    assert found == environments.train_and_measure(tmp_path / "run", settings), "what is done is not done again"
    rows = {"Pendulum-v1-ten-0": found, "Pendulum-v1-one-0": found}
    figures = environments.tell(rows, ["Pendulum-v1"], [0])
    assert figures["gain_Pendulum-v1"] == pytest.approx(found["after"]["entropy"] - found["before"]["entropy"])
    assert figures["agents_vs_one"] == 0
    stored = tmp_path / "measured.json"
    stored.write_text(json.dumps({"steps": 400, "runs": rows}))
    known = environments.known_runs(stored, 400)
    settings = (["Pendulum-v1"], [0], 400, tmp_path / "none", 1, {"one": {"agents": 1}}, known)
    assert environments.learn(*settings) == {}, "what another machine has measured is not trained again"
    with pytest.raises(SystemExit, match="have 400 steps, not 500"):
        environments.known_runs(stored, 500)
