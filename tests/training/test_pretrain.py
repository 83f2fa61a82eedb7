import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.errors import TrainingStoppedError, UsageError
from kmyriad.evaluation.measures import measure, visit
from kmyriad.objective.rewards import Rewards, rewards_of
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs import tensor_file
from kmyriad.runs.checkpoints import checkpoint_path
from kmyriad.runs.run import open_run
from kmyriad.runs.state import load_last_horizon, load_population
from kmyriad.runs.tensor_file import CheckpointError, read_tensor_file, write_tensor_file
from kmyriad.training import pretrain as pretrain_module
from tests import walk_env
from tests.conftest import are_one_policy

walk_env.register()
TIMINGS = {"seconds", "steps_per_second"}
ITERATION = 8 * 12
"""Environment steps of one with these settings."""
SMALL = {"agents": 2, "replicas": 8, "horizon": 12, "rollout_steps": None, "total_steps": 4 * ITERATION}
SMALL |= {"trunk_hidden": (16,), "agent_hidden": 8, "learning_rate": 1e-2}


def rows_of(run):
    return [{name: value for name, value in row.items() if name not in TIMINGS} for row in run.metrics()]


def last_bytes(run):
    return checkpoint_path(run.checkpoints, run.last_row()["iteration"]).read_bytes()


@pytest.mark.parametrize("update", ["actor_critic", "reinforce", "trust_region"])
@pytest.mark.parametrize("env", ["point-maze", "ant-empty", walk_env.CONTINUOUS, walk_env.DISCRETE])
def test_every_iteration_is_written_down(env, update, tmp_path):
    run = kmyriad.pretrain(env, out=tmp_path / "run", update=update, **SMALL)
    rows = run.metrics()
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["env_steps"] == 4 * 8 * 12
    for row in rows:
        assert np.isfinite(row["entropy"])
        assert row["gradient_norm"] > 0
        assert row["steps_per_second"] > 0
        assert row["diverged_replicas"] == row["skipped_updates"] == 0
        assert 0 < row["effective_sample_size"] <= 1 + 1e-6
        assert (row["std"] is None) == (env == walk_env.DISCRETE)
    looks = [row for row in rows if "entropy_per_agent" in row]
    assert [row["iteration"] for row in looks] == [1]
    for row in looks:
        assert len(row["entropy_per_agent"]) == 2
        assert row["kl_between_agents"] is not None
        assert np.isfinite(row["entropy_xy"])
        assert row["covered_cells"] >= max(row["covered_cells_per_agent"])
    assert run.is_finished
    assert (run.env, run.config.rule) == (env, update)
    assert set(run.versions) >= {"torch", "mujoco", "gymnasium", "numpy", "kmyriad"}
    assert load_last_horizon(run).features.shape[:3] == (2, 4, 12)
    assert list((run.path / "tensorboard").iterdir())


@pytest.mark.parametrize("update", ["actor_critic", "reinforce"])
@pytest.mark.parametrize("rollout_steps", [None, 3, 5])
def test_a_resumed_run_is_the_uninterrupted_run(rollout_steps, update, tmp_path):
    """Also where the segments do not divide the horizon."""
    iteration = 8 * (rollout_steps or 12)
    settings = SMALL | {"rollout_steps": rollout_steps, "update": update, "env_settings": {"reset_noise": 1.0}}
    whole = kmyriad.pretrain("ant-cave", out=tmp_path / "whole", **(settings | {"total_steps": 9 * iteration}))
    kmyriad.pretrain("ant-cave", out=tmp_path / "parts", **(settings | {"total_steps": 2 * iteration}))
    kmyriad.pretrain("ant-cave", out=tmp_path / "parts", resume=True, total_steps=5 * iteration)
    parts = kmyriad.pretrain("ant-cave", out=tmp_path / "parts", resume=True, total_steps=9 * iteration)
    assert [row["iteration"] for row in whole.metrics()] == [*range(1, 10)]
    assert rows_of(parts) == rows_of(whole)
    assert last_bytes(parts) == last_bytes(whole)


@pytest.mark.parametrize("update", ["actor_critic", "reinforce", "trust_region"])
def test_thread_count_changes_nothing(update, tmp_path):
    threads_before = torch.get_num_threads()
    try:
        runs = [
            kmyriad.pretrain(
                "ant-empty", out=tmp_path / str(n), threads=n, update=update, **(SMALL | {"trunk_hidden": (128, 64)})
            )
            for n in (1, 2, 4)
        ]
    finally:
        torch.set_num_threads(threads_before)
    assert rows_of(runs[0]) == rows_of(runs[1]) == rows_of(runs[2])
    assert last_bytes(runs[0]) == last_bytes(runs[1]) == last_bytes(runs[2])


def test_seeds_differ(tmp_path):
    runs = [kmyriad.pretrain("point-maze", out=tmp_path / str(seed), seed=seed, **SMALL) for seed in (0, 1)]
    assert rows_of(runs[0])[0]["entropy"] != rows_of(runs[1])[0]["entropy"]


@pytest.mark.parametrize("code_size", [2, 3, None])
def test_agents_with_something_in_common_start_alike_and_all_grow_apart(code_size, tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", code_size=code_size, **SMALL)
    config, replicas = run.pretraining, make_replicas("point-maze", 8, horizon=12)
    observations = torch.randn(1, 5, 4).expand(2, 5, 4)
    before = pretrain_module.initial_state(config, replicas).population
    after = load_population(run)(observations).mean
    assert are_one_policy(before) == (code_size is not None)
    assert not torch.allclose(after[0], after[1])


def test_learning_rate_follows_the_milestones(tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", update="reinforce", lr_milestones=(1, 3), **SMALL)
    assert [row["learning_rate"] for row in run.metrics()] == [1e-2, 5e-3, 5e-3, 2.5e-3]


def test_a_trained_population_is_loaded_again(tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    population = kmyriad.load_population(run)
    stored = read_tensor_file(checkpoint_path(run.checkpoints, 4)).tensors
    for name, parameter in population.state_dict().items():
        kept = stored.get(f"average.{name}", stored[f"population.{name}"])
        torch.testing.assert_close(parameter, kept, rtol=0, atol=0)
    assert (population.agents, population.actions.size) == (2, 2)
    assert population.agent(1)(torch.zeros(3, 4)).mean.shape == (3, 2)


def test_a_loaded_population_is_the_average_of_the_last_ones(tmp_path):
    settings = SMALL | {"averaged_iterations": 3, "checkpoint_every": 1, "keep_checkpoints": 9}
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **settings)
    stored = [read_tensor_file(checkpoint_path(run.checkpoints, iteration)).tensors for iteration in (1, 2, 3, 4)]
    name = "trunk_weights.0"
    learned = [tensors[f"population.{name}"] for tensors in stored]
    assert not torch.equal(learned[0], learned[3])
    mean = (learned[0] + learned[1] + learned[2]) / 3
    expected = mean + (learned[3] - mean) / 3
    torch.testing.assert_close(dict(load_population(run).named_parameters())[name].data, expected)
    torch.testing.assert_close(stored[2][f"average.{name}"], mean)
    last = dict(load_population(run, averaged=False).named_parameters())[name]
    assert torch.equal(last, learned[3])


@pytest.mark.parametrize("change", [lambda average: None, lambda average: average[:1].clone()], ids=["gone", "short"])
def test_an_average_that_does_not_fit_is_one_sentence(change, tmp_path):
    settings = SMALL | {"averaged_iterations": 3, "total_steps": 2 * ITERATION}
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **settings)
    path, name = checkpoint_path(run.checkpoints, 2), "average.trunk_weights.0"
    stored = read_tensor_file(path)
    changed = change(stored.tensors.pop(name))
    if changed is not None:
        stored.tensors[name] = changed
    write_tensor_file(path, stored)
    with pytest.raises(CheckpointError, match="does not fit this run's settings"):
        kmyriad.pretrain(out=run.path, resume=True, total_steps=4 * ITERATION)


def test_the_papers_method_averages_nothing(tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", method="paper", update="actor_critic", **SMALL)
    tensors = read_tensor_file(checkpoint_path(run.checkpoints, 4)).tensors
    assert not [name for name in tensors if name.startswith("average.")]
    population = load_population(run)
    for name, parameter in population.named_parameters():
        assert torch.equal(parameter, tensors[f"population.{name}"])


def test_a_run_without_a_checkpoint_says_so(tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    for path in run.checkpoints.iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="has no checkpoint yet"):
        kmyriad.load_population(run)


def test_segments_fill_a_pool_of_one_horizon(tmp_path):
    settings = SMALL | {"rollout_steps": 4, "total_steps": 5 * 32}
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **settings)
    assert [row["particles"] for row in run.metrics()] == [32, 64, 96, 96, 96]
    assert load_last_horizon(run).xy.shape == (2, 4, 12, 2)


def test_segments_need_not_divide_the_horizon(tmp_path):
    settings = SMALL | {"rollout_steps": 5, "total_steps": 7 * 40}
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **settings)
    rows = run.metrics()
    assert [row["particles"] for row in rows] == [40, 80, 120, 120, 120, 120, 120]
    assert ["entropy_per_agent" in row for row in rows] == [False, False, True, False, False, False, False]
    assert load_last_horizon(run).xy.shape == (2, 4, 15, 2)


@pytest.mark.parametrize(("total_steps", "iterations"), [(1, 1), (96, 1), (97, 2), (4 * 96 - 1, 4), (4 * 96, 4)])
def test_a_run_ends_with_the_iteration_that_makes_its_steps(total_steps, iterations, tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **(SMALL | {"total_steps": total_steps}))
    assert [row["env_steps"] for row in run.metrics()] == [96 * number for number in range(1, iterations + 1)]
    assert run.is_finished
    assert read_tensor_file(checkpoint_path(run.checkpoints, iterations)).facts["env_steps"] == 96 * iterations


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path, capfd):
    whole = kmyriad.pretrain("point-maze", out=tmp_path / "whole", **SMALL)
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **(SMALL | {"total_steps": 3 * ITERATION}))
    newest = checkpoint_path(run.checkpoints, 3)
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    resumed = kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True, total_steps=4 * ITERATION)
    assert rows_of(resumed) == rows_of(whole)
    assert last_bytes(resumed) == last_bytes(whole)
    assert "is damaged" in capfd.readouterr().err


def test_diverged_replicas_are_left_out_and_counted(tmp_path):
    run = kmyriad.pretrain(walk_env.BROKEN, out=tmp_path / "run", **(SMALL | {"replicas": 40}))
    rows = run.metrics()
    assert all(0 < row["diverged_replicas"] < 40 for row in rows)
    assert all(row["particles"] == 40 * 12 - 9 * row["diverged_replicas"] for row in rows)
    assert all(np.isfinite(row["entropy"]) for row in rows)


def test_breaking_physics_do_not_break_the_run(tmp_path):
    settings = SMALL | {"replicas": 40, "env_settings": {"armature": 1e-6, "timestep": 0.2}}
    run = kmyriad.pretrain("ant-empty", out=tmp_path / "run", **settings)
    assert all(row["diverged_replicas"] > 0 and row["particles"] < 40 * 12 for row in run.metrics())


@pytest.mark.parametrize("update", ["reinforce", "actor_critic"])
def test_bad_gradients_are_skipped_and_three_in_a_row_stop_the_run(update, tmp_path):
    calls = []

    def sometimes_bad(pool, config):
        calls.append(None)
        rewards = rewards_of(pool, config)
        if len(calls) in (1, 2, 4, 5, 6):
            rewards.rewards[0, 0, 0] = np.nan
        return rewards

    settings = SMALL | {"update": update, "total_steps": 20 * ITERATION}
    with pytest.raises(TrainingStoppedError, match=r"3 iterations in a row, up to iteration 6.*lower learning_rate"):
        kmyriad.pretrain("point-maze", out=tmp_path / "run", objective=sometimes_bad, **settings)
    run = open_run(tmp_path / "run")
    assert [row["skipped_updates"] for row in run.metrics()] == [1, 2, 2, 3, 4, 5]
    weights = read_tensor_file(checkpoint_path(run.checkpoints, 6)).tensors
    assert all(torch.isfinite(tensor).all() for name, tensor in weights.items() if name.startswith("population"))


def test_another_objective_is_learned(tmp_path):
    """Of going east, which nobody asked for."""

    def east(pool, config):
        newest = pool[-1]
        return Rewards(float(newest.features[..., 0].mean()), newest.valid.numel(), newest.features[..., 0].clone())

    settings = SMALL | {"replicas": 20, "total_steps": 30 * 20 * 12, "diversity_weight": 0.0}
    rows = kmyriad.pretrain(walk_env.CONTINUOUS, out=tmp_path / "run", objective=east, **settings).metrics()
    assert np.mean([row["entropy"] for row in rows[-5:]]) > np.mean([row["entropy"] for row in rows[:5]]) + 1
    with pytest.raises(UsageError, match="this objective gives rewards without neighbours; train on it with update"):
        kmyriad.pretrain("point-maze", out=tmp_path / "exact", objective=east, update="reinforce", **SMALL)


def test_a_full_disk_keeps_the_old_checkpoint_and_the_run_goes_on(tmp_path, monkeypatch, capfd):
    real = tensor_file.write_atomically

    def full_from_the_third_iteration(path: Path, data: bytes) -> None:
        if path.name >= "iteration-000003" and path.name.startswith("iteration"):
            raise OSError(28, "No space left on device")
        real(path, data)

    monkeypatch.setattr(tensor_file, "write_atomically", full_from_the_third_iteration)
    with pytest.raises(UsageError, match=r"cannot write .*iteration-000004.* No space left"):
        kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    told = " ".join(capfd.readouterr().err.split())
    assert "checkpoint of iteration 3 not saved" in told
    monkeypatch.undo()
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True)
    whole = kmyriad.pretrain("point-maze", out=tmp_path / "whole", **SMALL)
    assert last_bytes(run) == last_bytes(whole)
    assert rows_of(run) == rows_of(whole)


def test_an_agent_that_stands_still_is_pointed_out(tmp_path, monkeypatch):
    real = pretrain_module.collect

    def with_a_lame_agent(*arguments, **options):
        trajectory = real(*arguments, **options)
        trajectory.features[1] = trajectory.features[1, :1, :1]
        return trajectory

    monkeypatch.setattr(pretrain_module, "collect", with_a_lame_agent)
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    assert [row["still_agents"] for row in run.metrics()] == [[1]] * 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"neighbours": 200}, "200 neighbours need more than 200 states, and an iteration has 96"),
        ({"env": "nowhere-v0"}, "unknown environment 'nowhere-v0'"),
        ({"update": "sgd"}, "unknown update 'sgd'"),
        ({"agents": "x"}, "agents must be a whole number; got 'x'"),
        ({"agents": 3}, "8 replicas cannot be split evenly over 3 agents; use 6 or 9 replicas"),
        ({"env": 5}, "env must be a name, a function that makes an environment, or an environment; got int"),
        ({"env_settings": {"map": 5}}, "map must be rows of 0 .free. and 1 .wall.*; got 5"),
        ({"env_settings": {"decimation": "x"}}, "decimation must be a whole number; got 'x'"),
        ({"env_settings": {"mpa": "u"}}, "unknown setting 'mpa' .did you mean 'map'"),
        ({"env_settings": None}, "env_settings must be names and values; got None"),
        ({"env_settings": [1]}, r"env_settings must be names and values; got \[1\]"),
        ({"features": ["x", "w"]}, "unknown feature 'w'"),
        (
            {"lr_milestones": (3,)},
            "lr_milestones is a setting of update reinforce, and this run has update actor_critic",
        ),
        ({"iterations": 3}, "unknown setting 'iterations'"),
        ({"preset": "slow"}, "unknown preset 'slow'"),
        ({"resume": True}, "there is no run folder"),
    ],
)
def test_bad_input_is_one_sentence(settings, message, tmp_path):
    with pytest.raises(UsageError, match=message) as error:
        kmyriad.pretrain(**({"env": "point-maze", "out": tmp_path / "run"} | SMALL | settings))
    assert "\n" not in str(error.value)


def test_small_corners_give_an_answer(tmp_path):
    """One replica, one step per episode, one agent: enough particles come from neither, so the sizes must."""
    one_replica = SMALL | {"agents": 1, "replicas": 1, "horizon": 20, "total_steps": 4 * 20}
    assert np.isfinite(kmyriad.pretrain("point-maze", out=tmp_path / "a", **one_replica).metrics()[-1]["entropy"])
    one_step = SMALL | {"horizon": 1, "replicas": 20, "total_steps": 4 * 20}
    assert np.isfinite(kmyriad.pretrain("point-maze", out=tmp_path / "b", **one_step).metrics()[-1]["entropy"])


def test_a_run_is_not_overwritten_and_not_resumed_as_another(tmp_path):
    kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    with pytest.raises(UsageError, match="already holds a run"):
        kmyriad.pretrain("point-maze", out=tmp_path / "run", **SMALL)
    with pytest.raises(UsageError, match="was started with neighbours = 5 and cannot go on with 7"):
        kmyriad.pretrain("point-maze", out=tmp_path / "run", resume=True, neighbours=7)


KILLER = """
import json, os, random, signal, sys, time
from pathlib import Path
import kmyriad
import kmyriad.training.pretrain
from kmyriad.errors import UsageError

def go(out, resume):
    pid = os.fork()  # nothing has used a thread yet
    if pid == 0:
        sys.stderr = open(os.devnull, "w")
        try:
            kmyriad.pretrain("ant-empty", out=out, resume=resume, **({} if resume else settings))
        except UsageError as error:
            Path(str(out) + ".error").write_text(str(error))
            os._exit(2)
        os._exit(0)
    return pid

folder, kills, settings = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
random.seed(0)
started = time.monotonic()
assert os.waitpid(go(folder / "whole", False), 0)[1] == 0
duration = time.monotonic() - started
killed = 0
while True:
    resume = (folder / "parts/config.json").exists()
    pid = go(folder / "parts", resume)
    if killed < kills:
        time.sleep(random.uniform(0.05, 0.4) * duration)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        killed += 1
        continue
    assert status == 0, Path(str(folder / "parts.error")).read_text()
    if killed >= kills:
        break
    import shutil
    shutil.rmtree(folder / "parts")  # it finished before enough kills: begin again
print(killed)
"""


def survive_kills(tmp_path, kills, update, rollout_steps):
    settings = SMALL | {"replicas": 40, "update": update, "rollout_steps": rollout_steps}
    settings["total_steps"] = 30 * 40 * (rollout_steps or 12)
    result = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path), str(kills), json.dumps(settings)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300 + 30 * kills,  # a busy machine takes its time over so many restarts
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= kills
    whole, parts = open_run(tmp_path / "whole"), open_run(tmp_path / "parts")
    assert rows_of(parts) == rows_of(whole)
    assert last_bytes(parts) == last_bytes(whole)


@pytest.mark.parametrize(("update", "rollout_steps"), [("reinforce", None), ("actor_critic", 4)])
def test_kill_nine_at_random_moments(update, rollout_steps, tmp_path):
    survive_kills(tmp_path, 10, update, rollout_steps)


@pytest.mark.slow
@pytest.mark.parametrize(("update", "rollout_steps"), [("reinforce", None), ("reinforce", 4), ("actor_critic", 4)])
def test_many_kills(update, rollout_steps, tmp_path):
    survive_kills(tmp_path, 60, update, rollout_steps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("agents", [2, 4])
def test_a_population_learns_to_cover_point_maze(agents, seed, tmp_path):
    """Under the paper's gradient the pooled entropy on fresh rollouts rises clearly above the untrained one's."""
    settings = {"agents": agents, "seed": seed, "total_steps": 60 * 300 * 200, "update": "reinforce", "replicas": 300}
    settings |= {"initial_std": 0.37, "activation": "relu", "normalise_observations": False, "code_size": None}
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", keep_checkpoints=1000, checkpoint_every=1, **settings)
    assert run.config.objective.neighbours == 5
    horizon = run.config.rollouts.horizon
    replicas = make_replicas("point-maze", 100, horizon=horizon, settings=run.env_settings)
    before, after = (
        measure(visit(load_population(run, iteration), replicas, horizon), replicas.cell)["entropy"]
        for iteration in (1, 60)
    )
    replicas.close()
    assert after > before + 0.15, (before, after)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (walk_env.RAISING, "step of replica 0 in its step 30 raised RuntimeError: the robot fell apart; mend the env"),
        (walk_env.WORTHLESS, "the environment gave replica 0 a reward of nan in step 30 of its episode"),
    ],
)
def test_an_environment_that_fails_is_told_in_one_sentence_and_leaves_a_checkpoint(tmp_path, env, sentence):
    settings = {"replicas": 8, "horizon": 60, "rollout_steps": 4, "agents": 2, "checkpoint_every": 1, "neighbours": 2}
    with pytest.raises(kmyriad.TrainingStoppedError, match=sentence) as error:
        kmyriad.pretrain(env, out=tmp_path / "run", total_steps=800, **settings)
    assert "\n" not in str(error.value)
    assert kmyriad.load_population(tmp_path / "run").agents == 2


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"neighbours": 400}, "400 neighbours need more than 400 states, and an iteration has 200"),
        ({"features": ("z",)}, "unknown feature 'z'"),
        ({"replicas": 10**7, "horizon": 10**6}, "GiB of memory, and the machine has"),
        ({"trunk_hidden": (60_000, 60_000)}, "GiB of memory, and the machine has"),
        ({"engine": "warp", "replicas": 10**7, "rollout_steps": 1}, r"\(511 of them for 10,000,000 simulations of"),
        ({"env": walk_env.UNBOUNDED}, "is unbounded"),
    ],
)
def test_what_cannot_work_is_told_before_a_folder_is_made(tmp_path, settings, sentence):
    asked = {"env": "point-maze", "agents": 2, "replicas": 8, "horizon": 25, "total_steps": 400} | settings
    with pytest.raises(kmyriad.UsageError, match=sentence):
        kmyriad.pretrain(out=tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()


def test_the_number_of_threads_changes_no_number_of_a_large_iteration(tmp_path):
    """Torch splits sums of more than 32,768 values by thread; what decides numbers must not be such a sum."""
    weights = []
    for threads in (1, 2):
        run = kmyriad.pretrain(
            "point-maze", agents=2, replicas=2000, horizon=50, rollout_steps=25, total_steps=100_000, threads=threads,
            out=tmp_path / str(threads),
        )  # fmt: skip
        weights.append(last_bytes(run))
    assert weights[0] == weights[1]
