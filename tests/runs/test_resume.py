"""Going on with a run: only one process does, only as the same run, and nothing that was computed is lost."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields

import pytest

import kmyriad
from kmyriad.config import PretrainConfig, settings_of, with_settings
from kmyriad.errors import UsageError
from kmyriad.runs.checkpoints import checkpoint_path
from kmyriad.runs.resume import CHANGEABLE, go_on
from kmyriad.runs.run import create_run, open_run
from tests import walk_env
from tests.runs.test_logger import ITERATION, SMALL
from tests.runs.test_run import HOLDER, JUMPSTART, replaced_by_a_pipe
from tests.training.test_pretrain import last_bytes, rows_of

walk_env.register()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Five iterations, never changed."""
    return kmyriad.pretrain("point-maze", out=tmp_path_factory.mktemp("runs") / "run", **SMALL)


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained.path, tmp_path / "run")
    return open_run(tmp_path / "run")


def resume(run, **settings):
    return kmyriad.pretrain(out=run.path, resume=True, **settings)


@pytest.mark.parametrize("command", ["pretrain", "jumpstart"])
def test_a_run_that_is_being_trained_is_not_trained_by_a_second_process(command, run, tmp_path):
    if command == "jumpstart":
        settings = {"goal": (1.0, -2.0), "replicas": 4, "rollout_steps": 6, "selection_steps": 48, "threads": 1}
        run = kmyriad.jumpstart(run, out=tmp_path / "jump", total_steps=49, critic_hidden=(8,), **settings)
    rows, again = run.metrics_path.read_bytes(), getattr(kmyriad, command)
    more = run.last_row()["env_steps"] + 1
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(UsageError, match="is being trained by another process; wait until it ends, or stop it"):
            again(out=run.path, resume=True, total_steps=more)
        assert run.metrics_path.read_bytes() == rows
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    again(out=run.path, resume=True, total_steps=more)  # a killed holder leaves no lock behind
    assert run.last_row()["env_steps"] >= more


def test_a_run_in_training_is_locked(run, tmp_path):
    tries = []

    def objective(pool, config):
        with pytest.raises(UsageError, match="is being trained by another process"):
            resume(open_run(tmp_path / "new"))
        tries.append(None)
        return kmyriad.objective.rewards.rewards_of(pool, config)

    kmyriad.pretrain("point-maze", out=tmp_path / "new", objective=objective, **(SMALL | {"total_steps": 1}))
    resume(open_run(tmp_path / "new"), total_steps=ITERATION + 1, objective=objective)
    assert len(tries) == 2


def test_without_its_checkpoints_folder_a_run_is_not_resumed(run):
    rows = run.metrics_path.read_bytes()
    shutil.rmtree(run.checkpoints)
    with pytest.raises(UsageError, match=r"checkpoints is gone, and with it what .* could go on from") as caught:
        resume(run)
    assert "\n" not in str(caught.value)
    assert run.metrics_path.read_bytes() == rows
    assert not run.checkpoints.exists()


def test_rows_that_are_computed_again_are_kept(trained, run):
    """Killed after two iterations that no checkpoint has."""
    for iteration in (5, 4):
        checkpoint_path(run.checkpoints, iteration).unlink()
    lines = run.metrics_path.read_bytes().splitlines(keepends=True)
    resume(run)
    assert (run.path / "metrics-dropped.jsonl").read_bytes() == b"".join(lines[3:])
    assert rows_of(run) == rows_of(trained)
    assert last_bytes(run) == last_bytes(trained)


def test_without_a_checkpoint_a_run_begins_anew_and_says_so(trained, run, capfd):
    for path in run.checkpoints.iterdir():
        path.unlink()
    lines = run.metrics_path.read_bytes()
    resume(run)
    assert "has no checkpoint yet: it begins anew, its 5 rows are in metrics-dropped.jsonl" in capfd.readouterr().err
    assert (run.path / "metrics-dropped.jsonl").read_bytes() == lines
    assert rows_of(run) == rows_of(trained)
    assert last_bytes(run) == last_bytes(trained)


def test_a_finished_run_stays_as_it_is(trained, run):
    resume(run)
    assert run.metrics_path.read_bytes() == trained.metrics_path.read_bytes()
    assert last_bytes(run) == last_bytes(trained)
    assert not (run.path / "metrics-dropped.jsonl").exists()


OTHER = {
    "action_range": (-1.0, 1.0),
    "activation": "relu",
    "agents": 4,
    "critic_hidden": (7,),
    "critic_lambda": 0.5,
    "engine": "serial",
    "feature_scale": (2.0, 2.0),
    "features": ("x",),
    "horizon": 13,
    "initial_std": 0.5,
    "keep_checkpoints": 4,
    "replicas": 10,
    "device": "auto",
    "rollout_steps": 4,
    "std_range": (0.02, 2.0),
    "total_steps": 7 * ITERATION,
    "trunk_hidden": (7,),
    "update": "reinforce",
}
"""Another value of a setting."""
OTHER_OF = {"str": "other", "int": 3, "float": 0.015, "dict": {"size": 3}, "NoneType": 2}
"""By the type of its own, where that will do."""


@pytest.mark.parametrize("name", sorted(settings_of(with_settings(PretrainConfig(), SMALL))))
def test_only_what_decides_nothing_may_differ(name, run):
    value = settings_of(run.config)[name]
    other = OTHER.get(name, not value if isinstance(value, bool) else OTHER_OF.get(type(value).__name__))
    assert other != value
    if name in CHANGEABLE:
        assert resume(run, **{name: other}).is_finished
        return
    asked = with_settings(run.pretraining, {name: other})
    with pytest.raises(UsageError) as caught:
        go_on(asked, run, None, None)
    assert "\n" not in str(caught.value)
    assert f"run was started with {name} = {value!r} and cannot go on with {other!r}" in str(caught.value)


def test_what_may_differ_are_settings():
    assert set(CHANGEABLE) <= {setting.name for setting in fields(PretrainConfig().run)}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: replaced_by_a_pipe(run.config_path), r"config\.json: it is no regular file"),
        (lambda run: replaced_by_a_pipe(run.metrics_path), r"metrics\.jsonl: it is no regular file"),
        (lambda run: run.metrics_path.write_bytes(b"[]\n{}\n"), r"line 1 of .*metrics\.jsonl is damaged"),
        (lambda run: run.config_path.write_text(json.dumps({"epochs": 3})), "its settings are of format 1"),
        (
            lambda run: [path.write_bytes(b"") for path in run.checkpoints.iterdir()],
            "none of the 3 checkpoints in .* can be read",
        ),
    ],
)
def test_a_run_that_cannot_go_on_says_why(damage, message, run):
    damage(run)
    with pytest.raises(UsageError, match=message) as caught:
        resume(run)
    assert "\n" not in str(caught.value)


def test_each_command_resumes_its_own(run, tmp_path):
    jump = create_run(tmp_path / "jump", JUMPSTART)
    with pytest.raises(UsageError, match="jump is a jumpstart run; resume it with: kmyriad jumpstart"):
        resume(jump)
    with pytest.raises(UsageError, match="run is a pretrain run; resume it with: kmyriad pretrain"):
        kmyriad.jumpstart(out=run.path, resume=True)
    for command in (kmyriad.pretrain, kmyriad.jumpstart):
        with pytest.raises(UsageError, match="resume needs the run's folder; give it with out"):
            command(resume=True)


@pytest.mark.parametrize("update", ["actor_critic", "reinforce"])
def test_other_peoples_environments_go_on_exactly(tmp_path, capfd, update):
    """Episodes are played again from their seeds and actions, also where they end early."""
    settings = SMALL | {"rollout_steps": 5, "update": update}
    for env in (walk_env.CONTINUOUS, walk_env.DISCRETE, walk_env.ENDING):
        name = env.split("/")[1]
        whole = kmyriad.pretrain(env, out=tmp_path / name, **(settings | {"total_steps": 7 * 8 * 5}))
        kmyriad.pretrain(env, out=tmp_path / f"{name}-parts", **(settings | {"total_steps": 3 * 8 * 5}))
        parts = resume(open_run(tmp_path / f"{name}-parts"), total_steps=7 * 8 * 5)
        assert "anew" not in capfd.readouterr().err
        assert rows_of(parts) == rows_of(whole)
        assert last_bytes(parts) == last_bytes(whole)


def test_an_environment_that_does_not_repeat_itself_goes_on_with_new_episodes(tmp_path, capfd):
    settings = SMALL | {"rollout_steps": 5}
    kmyriad.pretrain(walk_env.FICKLE, out=tmp_path / "run", **(settings | {"total_steps": 3 * 8 * 5}))
    assert "anew" not in capfd.readouterr().err
    run = resume(open_run(tmp_path / "run"), total_steps=5 * 8 * 5)
    told = "this environment does not repeat itself: its episodes begin anew, all else goes on"
    assert capfd.readouterr().err.count(told) == 1
    assert [row["iteration"] for row in run.metrics()] == [1, 2, 3, 4, 5]
    assert [row["particles"] for row in run.metrics()] == [40, 80, 120, 120, 120]  # the pool goes on


def test_a_vector_environment_goes_on_with_new_episodes(tmp_path, capfd):
    settings = SMALL | {"rollout_steps": 5, "env": "CartPole-v1", "total_steps": 3 * 8 * 5}
    kmyriad.pretrain(out=tmp_path / "run", **settings)
    resume(open_run(tmp_path / "run"), total_steps=5 * 8 * 5)
    assert "this environment cannot be put back into an episode: its episodes begin anew" in capfd.readouterr().err


def test_a_run_without_a_name_gets_the_first_free_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs("runs/point-maze-2-agents-seed-0")
    made = [kmyriad.pretrain("point-maze", **(SMALL | {"total_steps": 1})).name for _ in range(2)]
    assert made == ["point-maze-2-agents-seed-0-2", "point-maze-2-agents-seed-0-3"]
