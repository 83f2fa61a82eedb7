"""The benchmarks run and write one flat object of figures. How large the figures are is for a quiet machine to say."""

import json
import math
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import JumpstartConfig, PopulationConfig, PretrainConfig, with_settings
from kmyriad.objective.rewards import novelty_rewards, rewards_of, slide
from kmyriad.population.distributions import ActionSpec
from kmyriad.rollout.collect import Segment, Visits
from kmyriad.rollout.randomness import action_noise
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
    few = partial(epoch.training_vs_physics, replicas=20, horizon=50)
    monkeypatch.setattr(epoch, "training_vs_physics", few)
    monkeypatch.setattr(sys, "argv", ["epoch.py", "--quick", "--rounds", "1", "--json", str(path)])
    epoch.main()
    report = json.loads(path.read_text())
    assert set(report["figures"]) == {
        "vs_limit",
        "knn_share",
        "agents_50_vs_1",
        "peak_gb",
        "per_replica_4x_vs_1x",
        "training_vs_physics",
    }
    assert all(value > 0 for value in report["figures"].values())
    assert report["figures"]["training_vs_physics"] < 1
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
    goals = [*jumpstart.goals_of("ant-maze", 3, 0), *jumpstart.goals_of("ant-maze", 3, 1)]
    assert len(set(goals)) == 6, "every seed has its own"
    jumpstart.pretrain_one(tmp_path / "source", TINY)
    task = {"source": tmp_path / "source", "goal": (1.0, -2.0), "replicas": 4, "rollout_steps": 4, "total_steps": 1000}
    task |= {"selection_steps": 24, "critic_hidden": (8,), "episode_limit": 6}
    told = [jumpstart.jumpstart_one(tmp_path / "jump", task) for _ in range(2)]  # begun, then gone on with
    assert told[0] == told[1]
    run = open_run(tmp_path / "jump")
    assert 0 <= jumpstart.fresh_success(run) <= 1
    kept = json.loads((run.path / "fresh.json").read_text())
    assert kept == {"iterations": len(run.metrics()), "success": jumpstart.fresh_success(run)}
    assert told[0]["fresh_success"] == jumpstart.fresh_success(run)
    for changes in jumpstart.VARIANTS.values():
        with_settings(JumpstartConfig(), changes)  # refuses what is no setting


def test_jumpstarts_of_one_seed_are_averaged_before_they_are_compared(benchmark, capsys):
    jumpstart = benchmark("jumpstart")
    rates = {"best": [(1.0, 0.8), (0.6, 0.8)], "single": [(0.5, 0.5), (0.2, 0.4)], "random": [(0.0, 0.0), (0.0, 0.0)]}
    told = {
        init: [[{"area": rate / 2, "fresh_success": rate} for rate in goals] for goals in seeds]
        for init, seeds in rates.items()
    }
    values = jumpstart.show("ant-maze", told)
    assert values["success_best_ant-maze"] == pytest.approx(0.8)
    assert values["auc_best_vs_single_ant-maze"] == pytest.approx(2.0)
    assert values["auc_best_vs_random_ant-maze"] == pytest.approx(0.4 / 0.005), "an area of 0 counts as 0.005"
    assert "0.40 ± 0.00" in capsys.readouterr().out, "by how much best is ahead of single, by seed: 0.4 and 0.4"


@pytest.mark.parametrize("method", ["ours", "reinforce", "paper"])
def test_a_method_is_trained_and_measured_from_before_it_learned(benchmark, method, tmp_path):
    learning, experiments = benchmark("learning"), benchmark("experiments")
    run = {"env": "point-maze", "agents": 2, "replicas": 8, "horizon": 12, "seed": 3, **learning.METHODS[method]}
    asked = {"run": run, "most": 300, "measurements": 20}
    found = learning.learn_one(tmp_path / "run", asked)
    curve, reference = found["curve"], found["reference"]
    assert curve[-1]["env_steps"] == open_run(tmp_path / "run" / "run").last_row()["env_steps"] >= 300
    assert curve[-1]["last"]["covered_cells_of_widest_agent"] > 0
    assert all(math.isfinite(row["entropy"]) for row in curve)
    assert reference >= found["untrained"]
    config = open_run(tmp_path / "run" / "run").pretraining
    assert found["untrained"] == experiments.entropy_of(config, None)
    assert learning.learn_one(tmp_path / "run", {"run": run, "most": 300, "measurements": 20}) == found, (
        "what is done is not done again"
    )


def test_methods_that_learn_slowly_are_trained_until_they_have_risen_by_a_nat(benchmark, monkeypatch, tmp_path):
    learning = benchmark("learning")
    stages = []

    def train(out, resume, **settings):
        stages.append((settings["total_steps"], resume))
        out.mkdir(parents=True, exist_ok=True)
        return type("Run", (), {"pretraining": None})

    entropies = iter([0.5, 0.2, 0.7, 0.7, 1.0, 1.6, 1.8])  # untrained: its own, of three methods; then of stages
    monkeypatch.setattr(learning, "entropy_of", lambda config, population: next(entropies))
    monkeypatch.setattr(learning, "load_population", lambda run: None)
    monkeypatch.setattr(learning.kmyriad, "pretrain", train)
    monkeypatch.setattr(learning, "train_one", lambda folder, settings: [settings["total_steps"]])
    run = {"env": "point-maze", "agents": 10, "seed": 0, "method": "paper"}
    found = learning.learn_one(tmp_path, {"run": run, "most": 120_000_000, "measurements": 20})
    assert stages == [(2_000_000, False), (4_000_000, True), (8_000_000, True)]
    assert (found["reference"], found["untrained"], found["curve"]) == (0.7, 0.5, [8_000_000])


def test_heading_gap_is_the_widest_angle_without_an_agent(benchmark):
    gap = benchmark("experiments").heading_gap
    ways = np.radians([0, 90, 180, 270])
    steps = np.arange(5)[None, None, :, None]
    xy = (3 + steps * np.stack([np.cos(ways), np.sin(ways)], axis=-1)[:, None, None]).astype(np.float32)
    valid = np.ones(xy.shape[:3], bool)
    assert gap(Visits(xy, xy, valid)) == pytest.approx(90, abs=1e-3)
    assert gap(Visits(xy[:3], xy[:3], valid[:3])) == pytest.approx(180, abs=1e-3)
    ended = valid.copy()
    ended[3, :, 2:] = False
    away = xy.copy()
    away[3, :, 2:] = 99  # what follows an episode's end does not count
    assert gap(Visits(away, away, ended)) == pytest.approx(90, abs=1e-3)
    assert gap(Visits(xy[:1], xy[:1], valid[:1])) is None


def test_steps_to_marks_count_from_the_best_untrained_entropy(benchmark):
    learning = benchmark("learning")
    entropies = {"paper": [0.9, 2.1, 1.9, 2.5], "ours": [2.2, 3.5, 4.1, 5.6]}
    last = {"covered_cells": 10}
    found = {
        method: [
            {
                "reference": 1.0,
                "untrained": 0.5,
                "curve": [{"env_steps": 100 * n, "entropy": e, "last": last} for n, e in enumerate(curve, 1)],
            }
        ]
        for method, curve in entropies.items()
    }
    assert learning.show_methods("ant-empty", found) == {
        "steps_to_1_ant-empty_ours": 100,
        "steps_to_2_ant-empty_ours": 200,
        "steps_to_3_ant-empty_ours": 300,
        "steps_to_4_ant-empty_ours": 400,
        "steps_to_1_ant-empty_paper": 400,
        "steps_ratio_1_ant-empty": 4,
    }
    one = [{"curve": [{"last": {"covered_cells": 5}}]}]
    assert learning.cells_by_agents({"ant-empty": found | {"1-agents": one}}) == {"ten_vs_one_cells": 2}


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


def test_a_categorical_critic_learns_the_mean_of_returns(benchmark):
    """Of two agents, one of which sees returns of 2 and -1 alike often, the other always 3."""
    critic = benchmark("learners").CategoricalCritic(2, 3, (16, 16), seed=1)
    inputs = torch.randn(2, 400, 3, generator=torch.Generator().manual_seed(0))
    returns = torch.full((2, 400), 3.0)
    returns[0] = torch.where(torch.arange(400) % 2 == 0, 2.0, -1.0)
    assert critic(inputs).abs().max() < 0.5, "it begins near 0"
    torch.testing.assert_close(critic.aims(returns).sum(-1), torch.ones(2, 400))
    adam = torch.optim.Adam(critic.parameters(), 0.01)
    for _ in range(200):
        adam.zero_grad()
        critic.error(inputs, returns).mean().backward()
        adam.step()
    fresh = torch.randn(2, 400, 3, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(critic(fresh).mean(1), torch.tensor([0.5, 3.0]), atol=0.15, rtol=0)
    assert torch.isfinite(critic.error(inputs, 100 * returns)).all(), "returns beyond all bins are in the last"


def test_noise_is_held_for_some_steps(benchmark):
    actions = ActionSpec(2, False, -torch.ones(2), torch.ones(2))
    drawn, held = (
        noise(7, 3, np.arange(4), 6, actions) for noise in (action_noise, benchmark("learners").held_noise(4))
    )
    torch.testing.assert_close(held, drawn[[0, 0, 0, 0, 4, 4]])


@pytest.mark.parametrize("learner", ["categorical critic", "noise held for 2 steps"])
def test_study_trains_with_learners_that_no_setting_gives(monkeypatch, benchmark, tmp_path, learner):
    study, module = benchmark("study"), benchmark("learners")
    for where, name, _ in module.LEARNERS.values():  # put back afterwards
        monkeypatch.setattr(import_module(where), name, getattr(import_module(where), name))
    plain = study.train_variant(tmp_path / "plain", TINY | {"checkpoint_every": 10})
    other = study.train_variant(tmp_path / "other", TINY | {"checkpoint_every": 10, "learner": learner})
    assert plain[-1]["last"]["entropy"] != other[-1]["last"]["entropy"]


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
    assert len(asked) == len(study.VARIANTS) + len(study.OTHERS)
    for settings in asked.values():
        other = {name for of_other in study.OTHERS.values() for name in of_other}
        plain = {name: value for name, value in settings.items() if name not in (*other, "preset")}
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
    stored.write_text(json.dumps({"steps": 400, "runs": rows, "goals": {}}))
    known = environments.read_known(stored, 400)["runs"]
    settings = (["Pendulum-v1"], [0], 400, tmp_path / "none", 1, {"one": {"agents": 1}}, known)
    assert environments.learn(*settings) == {"Pendulum-v1-one-0": found}, "what is known is not trained again"
    with pytest.raises(SystemExit, match="have 400 steps, not 500"):
        environments.read_known(stored, 500)


def test_metras_latent_space_points_where_skills_lead_and_no_step_is_too_long(benchmark):
    skills = benchmark("skills")
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    metra = skills.Metra(3, skills.Size(hidden=32, rate=1e-2))
    for _ in range(400):  # a point that moves by a tenth along its skill, and a number that means nothing
        z = metra.skills(256, rng)
        seen = 2 * torch.rand(256, 3, generator=rng) - 1
        then = torch.cat([seen[:, :2] + 0.1 * z, torch.rand(256, 1, generator=rng)], dim=1)
        metra.learn(seen, then, z)
    assert z.norm(dim=1).allclose(torch.ones(256))
    rewards = metra.rewards(seen, then, z).detach()
    assert rewards.mean() == pytest.approx(2**0.5, abs=0.2), "a step along the skill is as long as may be"
    assert metra.rewards(seen, then, -z).allclose(-rewards, atol=1e-4)
    assert metra.rewards(seen, then, z.flip(1) * torch.tensor([1, -1])).abs().mean().item() < 0.3, "not across it"


def test_metras_multiplier_grows_where_steps_are_too_long(benchmark):
    skills = benchmark("skills")
    room = skills.Metra.room(torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]))
    assert room.tolist() == [pytest.approx(1e-3), 0, -1], "the mean of squares is 1 at most; shorter counts little"
    for scale, grows in ((100.0, True), (0.0, False)):
        metra = skills.Metra(2, skills.Size(hidden=4), columns=1)
        metra.phi[-1].weight.data *= scale
        before = metra.log_multiplier.item()
        metra.learn(torch.zeros(8, 2), torch.ones(8, 2), metra.skills(8, torch.Generator()))
        assert (metra.log_multiplier.item() > before) == grows


def test_diayn_is_paid_for_states_that_tell_the_skill(benchmark):
    skills = benchmark("skills")
    torch.manual_seed(0)
    diayn, rng = skills.Diayn(2, skills.Size(hidden=32, rate=1e-2)), torch.Generator().manual_seed(0)
    told = []
    for _ in range(200):
        z = diayn.skills(256, rng)
        diayn.learn(torch.zeros(256, 2), z, z)
        told.append(diayn.rewards(torch.zeros(256, 2), z, z).mean().item())
    assert told[-1] > 0 > told[0]
    normal = torch.distributions.Normal(diayn.mean(z), diayn.log_std(z).exp())
    assert diayn.rewards(z, z, z).allclose(normal.log_prob(z).sum(-1), atol=1e-4)


def test_soft_actor_critic_draws_tanh_normal_actions_and_learns_what_is_paid(benchmark):
    skills = benchmark("skills")
    torch.manual_seed(0)
    rng = torch.Generator().manual_seed(0)
    learner = skills.SoftActorCritic(3, 2, skills.Size(hidden=32, rate=1e-2))
    inputs, noise = torch.randn(64, 3), torch.randn(64, 2)
    actions, log_probs = learner.act(inputs, noise)
    mean, log_std = learner.policy(inputs).chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    drawn = torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform())
    assert log_probs.allclose(drawn.log_prob(actions).sum(-1), atol=1e-3)
    assert learner.act(inputs)[0].allclose(mean.tanh())
    ends = torch.ones(256, dtype=torch.bool)
    for _ in range(300):  # one step, paid for an action near 0.5
        inputs, actions = torch.randn(256, 3, generator=rng), 2 * torch.rand(256, 2, generator=rng) - 1
        rewards = -(actions - 0.5).square().sum(-1)
        learner.learn(inputs, actions, rewards, inputs, ends, torch.randn(2, 256, 2, generator=rng))
    assert learner.act(inputs)[0].mean().item() == pytest.approx(0.5, abs=0.1)


def test_replay_forgets_the_oldest_episodes_and_tells_the_last_step(benchmark):
    skills = benchmark("skills")
    replay = skills.Replay(capacity=8, horizon=4, observations=1, actions=1)  # two episodes
    for number in range(3):
        seen = 10.0 * number + torch.arange(5.0)[None, :, None]
        replay.add(seen, seen[:, :-1], torch.full((1, 2), float(number)))
    seen, actions, then, z, ends = replay.draw(200, torch.Generator().manual_seed(0))
    assert set(seen.flatten().tolist()) == {10, 11, 12, 13, 20, 21, 22, 23}
    assert then.equal(seen + 1)
    assert actions.equal(seen)
    assert z.equal((seen // 10).expand(-1, 2))
    assert ends.equal(seen[:, 0] % 10 == 3)


@pytest.mark.parametrize("variant", ["metra", "diayn", "ten-symmetric", "untrained"])
def test_coverage_by_metras_protocol_goes_on_where_it_stopped(benchmark, variant, tmp_path, monkeypatch):
    metra = benchmark("metra")
    monkeypatch.setattr(metra, "STEPS", 20)
    monkeypatch.setitem(metra.OURS, "horizon", 20)
    if variant == "ten-symmetric":
        monkeypatch.setitem(metra.OURS, "replicas", 10)
        monkeypatch.setitem(metra.OURS, "rollout_steps", 10)
    settings = metra.settings_of(f"{variant}-1", [200, 400], quick=True)
    settings["size"] = settings["size"] | {"stored_first": 100}
    whole = metra.train_and_measure(tmp_path / "whole", settings)
    for mark, row in whole.items():
        assert row["steps"] >= int(mark)
        assert row["cells"] > 0
        assert row["cells_with_noise"] > 0
    if variant != "untrained":
        metra.train_and_measure(tmp_path / "parts", settings | {"marks": [200]})
    found = metra.train_and_measure(tmp_path / "parts", settings)
    assert found == whole == metra.measured(tmp_path / "parts")
    if variant != "untrained":
        with pytest.raises(kmyriad.UsageError, match="trained beyond 300 steps"):
            metra.train_and_measure(tmp_path / "parts", settings | {"marks": [300, 400]})


def test_the_ants_symmetries_are_exact(benchmark):
    env = benchmark("metra").symmetric_ant().unwrapped
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for symmetry in env.symmetries:
        actions = rng.uniform(-1, 1, (20, 8))
        for action in actions[:15]:
            seen = env.step(action)[0]
        there = symmetry.observation(seen)
        here = [env.step(action)[0] for action in actions[15:]]
        env.set_state(there[:15], there[15:])
        mirrored = [env.step(symmetry.action(action))[0] for action in actions[15:]]
        np.testing.assert_allclose(mirrored, [symmetry.observation(one) for one in here], atol=1e-9)


def test_cells_and_figures_of_metras_protocol(benchmark, capsys):
    metra = benchmark("metra")
    assert metra.unique_cells(np.array([[[0.1, 0.2], [0.9, 0.9]], [[-0.1, 0.2], [1.0, 0.0]]])) == 3
    row = {"cells": 20, "cells_with_noise": 30, "distance": 1.0, "steps": 100}
    found = {"ten-0": {"100": row}, "metra-0": {"100": row | {"cells": 10}}, "ten-1": {}, "metra-1": {"100": row}}
    assert metra.tell(found, ["ten", "metra"], [0, 1], [100]) == {
        "cells_ten_100": 20,
        "cells_metra_100": 15,
        "cells_vs_metra": pytest.approx(4 / 3),
    }
    assert "20 -" in capsys.readouterr().out
