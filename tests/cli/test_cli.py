"""The real command, as a user runs it."""

import re
import subprocess
import sys
from dataclasses import fields

import pytest

from kmyriad.config import PretrainConfig
from kmyriad.runs.run import list_runs, open_run

SMALL = ["--agents", "2", "--replicas", "8", "--horizon", "12", "--epochs", "3", "--trunk", "16", "--adapter", "8"]


def kmyriad(*arguments, folder, check=0):
    result = subprocess.run(
        [sys.executable, "-m", "kmyriad", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == check, result.stderr
    assert "Traceback" not in result.stderr
    return result


def test_pretrain_resume_and_runs(tmp_path):
    out = kmyriad("pretrain", "point-maze", *SMALL, "--env-setting", "map=u", "reset_noise=0.5", folder=tmp_path)
    assert "epoch 3/3" in out.stderr
    (run,) = list_runs(tmp_path / "runs")
    assert run.config["env_settings"] == {"decimation": 5, "map": "u", "reset_noise": 0.5}
    kmyriad("pretrain", "--out", str(run.path), "--resume", "--epochs", "5", folder=tmp_path)
    assert open_run(run.path).epochs_done == 5
    listed = kmyriad("runs", folder=tmp_path).stdout
    assert "point-maze" in listed
    kmyriad("pretrain", "point-maze", *SMALL, folder=tmp_path)  # a second run gets a folder of its own
    assert len(list_runs(tmp_path / "runs")) == 2


def test_from_a_population_to_a_jumpstart(tmp_path):
    kmyriad("pretrain", "point-maze", *SMALL, "--segment", "6", "--out", "heads", folder=tmp_path)
    shown = kmyriad("select", "heads", "--goal", "1", "-2", "--steps", "200", folder=tmp_path).stdout
    assert "kmyriad jumpstart heads --goal 1 -2 --head" in shown
    stored = kmyriad("select", "heads", "--goal", "-1", "-2", "--stored", folder=tmp_path).stdout
    assert "0 environment steps were simulated" in stored
    quick = ["--replicas", "4", "--critic", "8", "--epochs", "3", "--selection-steps", "200", "--out", "there"]
    out = kmyriad("jumpstart", "heads", "--goal", "-1", "-2", *quick, folder=tmp_path)
    assert "epoch 3/3" in out.stderr
    kmyriad("jumpstart", "--out", "there", "--resume", "--epochs", "4", folder=tmp_path)
    run = open_run(tmp_path / "there")
    assert (run.epochs_done, run.config["goal"], run.config["env"]) == (4, [-1.0, -2.0], "point-maze")
    assert "jumpstart" in kmyriad("runs", str(tmp_path), folder=tmp_path).stdout
    for command, out in (("pretrain", "there"), ("jumpstart", "heads")):
        refused = kmyriad(command, "--out", out, "--resume", folder=tmp_path, check=2).stderr
        assert f"{out} is a" in refused
        assert "resume it with: kmyriad" in refused


def test_a_preset_and_flags_on_top_of_it(tmp_path):
    small = [*SMALL, "--preset", "paper", "--out", "here", "--learning-rate", "0.01"]
    kmyriad("pretrain", "point-maze", *small, folder=tmp_path)
    config = open_run(tmp_path / "here").config
    assert (config["learning_rate"], config["epochs"], config["learning_rate_milestones"]) == (0.01, 3, [30, 80])


def test_help_explains_every_setting(tmp_path):
    assert "pretrain" in kmyriad("--help", folder=tmp_path).stdout
    shown = kmyriad("pretrain", "--help", folder=tmp_path).stdout
    for name in {field.name for field in fields(PretrainConfig)} - {"env_settings"}:
        assert re.search(f"--{name.replace('_', '-')}[ ,]", shown)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["pretrain"], "all learn the same thing. (default: False)"),
        (["pretrain", "ant-maze", "--agents", "50"], "all learn the same thing. (default: True)"),
        (["pretrain", "--preset", "paper"], "trust_region is MEPOL's. (default: reinforce)"),
        (["jumpstart", "--preset", "paper"], "none takes the source's. (default: 600)"),
    ],
)
def test_help_shows_the_defaults_of_what_is_asked_for(tmp_path, arguments, shown):
    text = kmyriad(*arguments, "--help", folder=tmp_path).stdout
    assert shown in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pretrin"], "unknown command 'pretrin' (did you mean 'pretrain'?)"),
        (["select", "nowhere", "--goal", "1", "2"], "there is no run folder nowhere"),
        (["jumpstart", "nowhere", "--goal", "1", "2"], "there is no run folder nowhere"),
        (["jumpstart", "ant-empty", "--init", "random"], "ant-empty has no reward without a goal"),
        (["jumpstart", "--resume"], "--resume needs the run's folder"),
        (["pretrain", "ant-mase"], "unknown environment 'ant-mase' (did you mean 'ant-maze'?)"),
        (["pretrain", "ant-maze", "--agents", "7", "--replicas", "500"], "use 497 or 504 replicas, or 5 or 10 agents"),
        (["pretrain", "ant-maze", "--agents", "0"], "agents must be between 1 and 10000; got 0"),
        (["pretrain", "ant-maze", "--agnets", "7"], "--agents"),
        (["pretrain", "ant-maze", "--preset", "papre"], "unknown preset 'papre' (did you mean 'paper'?)"),
        (["pretrain", "ant-maze", "--env-setting", "size"], "--env-setting takes name=value"),
        (["pretrain", "--resume"], "--resume needs the run's folder"),
        (["pretrain", "--resume", "--out", "nowhere"], "there is no run folder nowhere"),
        (["runs", "nowhere"], "no runs in nowhere"),
    ],
)
def test_bad_input_is_told_without_a_traceback(arguments, message, tmp_path):
    result = kmyriad(*arguments, folder=tmp_path, check=2)
    assert message in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = f"{sys.executable} -m kmyriad pretrain --help | head -1"
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "usage" in result.stdout
    assert result.stderr == ""
