"""A campaign goes on where its runs are gone: what they told is enough, and sources are packed or trained again."""

import shutil
from dataclasses import replace

import pytest

import kmyriad
from kmyriad.config import with_settings
from kmyriad.reproduction import campaign
from kmyriad.reproduction.campaign import _task, train_all, train_and_measure
from kmyriad.reproduction.measured import read_all, read_measured
from kmyriad.reproduction.plan import narrowed, pack_of, plan_of, ring_run, run_name
from kmyriad.sweeps.conduct import State
from kmyriad.sweeps.plan import Plan

SOURCE = run_name("point-maze", 2, 0)
TO_RIGHT, TO_LEFT = (ring_run(0, goal, 0) for goal in ("top-right", "top-left"))
TIMINGS = ("seconds", "steps_per_second")


def tiny_plan(folder):
    """The PointMaze with one agent to both goals, in a second each."""
    plan = narrowed(plan_of(["point-maze"], "quick", "paper", folder), [TO_LEFT, TO_RIGHT])
    small = {"total_steps": 400, "replicas": 4, "horizon": 25}
    small_jobs = [replace(job, config=with_settings(job.config, small)) for job in plan.jobs]
    no_choice = {"total_steps": 600, "selection_steps": 25}
    jobs = [replace(j, config=with_settings(j.config, no_choice)) if j.after else j for j in small_jobs]
    return Plan(folder, jobs, [])


def perform(job, folder):
    train_and_measure(str(folder), job.name, job.config.as_json(), job.after, "quick", "paper")


def states(plan):
    done = read_all(plan.folder, plan.jobs, "quick", "paper")
    return {job.name: _task(job, plan, done, "quick", "paper").state for job in plan.jobs}


def test_a_run_that_told_all_need_not_be_there(tmp_path, capfd):
    plan = tiny_plan(tmp_path / "runs")
    source, _, left = plan.jobs
    assert {*states(plan).values()} == {State.WAITING}
    perform(source, plan.folder)
    assert states(plan)[SOURCE] == State.DONE
    told = read_measured(plan.folder, source, "quick", "paper")
    assert len(told.maps) == 2
    assert not told.points
    assert told.measures["kl"] is not None
    assert told.commits

    shutil.rmtree(plan.folder)  # another machine, to which the pack came along
    perform(left, plan.folder)
    assert states(plan) == {SOURCE: State.DONE, TO_LEFT: State.DONE, TO_RIGHT: State.WAITING}
    success = read_measured(plan.folder, left, "quick", "paper")
    assert {"success", "early", "early_updates"} <= {*success.measures}
    assert len(success.maps) == 1
    assert read_all(plan.folder, plan.jobs, "quick", "paper").keys() == {SOURCE, TO_LEFT}

    shutil.rmtree(plan.folder)
    pack_of(plan.folder, SOURCE).unlink()  # to which it did not
    capfd.readouterr()
    assert states(plan)[SOURCE] == State.WAITING
    said = " ".join(capfd.readouterr().err.split())
    assert f"{SOURCE} is trained again: 1 runs start from it, and its pack is not in" in said
    perform(source, plan.folder)
    assert states(plan)[SOURCE] == State.DONE
    assert read_measured(plan.folder, source, "quick", "paper") == told  # measured once
    other = Plan(plan.folder, [source, left], [])
    pack_of(plan.folder, SOURCE).unlink()
    shutil.rmtree(plan.folder)
    assert {*states(other).values()} == {State.DONE}  # nothing starts from it any more


def test_a_killed_measurement_is_made_again(tmp_path, monkeypatch):
    source = tiny_plan(tmp_path / "runs").jobs[0]

    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "measure", fail)
    with pytest.raises(KeyboardInterrupt):
        perform(source, tmp_path / "runs")
    assert read_measured(tmp_path / "runs", source, "quick", "paper") is None
    monkeypatch.undo()
    monkeypatch.setattr(campaign, "train_config", fail)  # the run itself is there
    perform(source, tmp_path / "runs")
    assert read_measured(tmp_path / "runs", source, "quick", "paper") is not None


@pytest.mark.parametrize("method", ["paper", "ours"])
def test_a_long_run_that_goes_on_is_the_one_that_begins_anew(tmp_path, method):
    usual, long = (
        job
        for job in plan_of(["long-run"], "quick", method, tmp_path).jobs
        if "-10-" in job.name and "seed-0" in job.name
    )
    small = {"replicas": 10, "horizon": 20}
    usual = replace(usual, config=with_settings(usual.config, small | {"total_steps": 600}))
    long = replace(long, config=with_settings(long.config, small | {"total_steps": 1600}))
    rows = []
    for folder, jobs in ((tmp_path / "both", [usual, long]), (tmp_path / "long", [long])):
        for job in jobs:
            perform(job, folder)
        run = kmyriad.open_run(folder / long.name)
        rows.append([{k: v for k, v in row.items() if k not in TIMINGS} for row in run.metrics()])
    assert rows[0] == rows[1]
    assert rows[0][-1]["env_steps"] >= 1600
    assert not [*tmp_path.glob("*/.*.partly")]


def test_other_settings_are_refused_before_anything_is_trained(tmp_path):
    plan = tiny_plan(tmp_path / "runs")
    perform(plan.jobs[0], plan.folder)
    other = replace(plan.jobs[0], config=with_settings(plan.jobs[0].config, {"neighbours": 3}))
    with pytest.raises(kmyriad.UsageError, match=r"measured with neighbours = 5, and 3 is asked for"):
        train_all(Plan(plan.folder, [other], []), "quick", "paper")
