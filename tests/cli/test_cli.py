"""The real command, as a user runs it."""

import json
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from kmyriad.cli import COMMANDS
from kmyriad.config import JumpstartConfig, PretrainConfig, settings_of
from kmyriad.presets import jumpstart_preset, preset
from kmyriad.runs.run import list_runs, open_run

SMALL = ["--agents", "2", "--replicas", "8", "--horizon", "12", "--rollout-steps", "none", "--total-steps", "288"]
SMALL += ["--trunk-hidden", "16", "--agent-hidden", "8"]
"""Three iterations."""


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


def shown_config(*arguments, folder):
    """What `--show-config` says, block by block."""
    blocks, block = {}, {}
    for line in kmyriad(*arguments, "--show-config", folder=folder).stdout.splitlines():
        if line.startswith("  "):
            name, value = line.split(maxsplit=1)
            block[name] = json.loads(value)
        elif line:
            block = blocks[line] = {}
    return blocks


def test_pretrain_resume_and_runs(tmp_path):
    out = kmyriad("pretrain", "point-maze", *SMALL, "--env-setting", "map=u", "reset_noise=0.5", folder=tmp_path)
    assert "iteration 3  288/288 steps" in out.stderr
    (run,) = list_runs(tmp_path / "runs")
    assert f"kmyriad report runs/{run.name}" in out.stderr
    assert run.env_settings == {"decimation": 5, "map": "u", "reset_noise": 0.5}
    kmyriad("pretrain", "--out", str(run.path), "--resume", "--total-steps", "480", folder=tmp_path)
    assert open_run(run.path).last_row()["iteration"] == 5
    refused = kmyriad("pretrain", "--out", str(run.path), "--resume", "--update", "reinforce", folder=tmp_path, check=2)
    assert "was started with update = 'actor_critic' and cannot go on with 'reinforce'" in refused.stderr
    kmyriad("pretrain", "point-maze", *SMALL, folder=tmp_path)  # a second run gets a folder of its own
    assert len(list_runs(tmp_path / "runs")) == 2
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "config.json").write_text("{")
    listed = kmyriad("runs", folder=tmp_path).stdout
    words = " ".join(re.sub("[│┃]", " ", listed).split())
    assert re.search(r"pretrain point-maze 2 5 480/480 entropy -?[0-9.]+ finished", words)
    assert re.search(r"pretrain point-maze 2 3 288/288 entropy -?[0-9.]+ finished", words)
    assert "runs/damaged" in words
    assert "config.json is damaged" in words


def test_from_a_population_to_a_jumpstart(tmp_path):
    segments = ["--rollout-steps", "6", "--total-steps", "144"]
    kmyriad("pretrain", "point-maze", *SMALL[:6], *SMALL[10:], *segments, "--out", "agents", folder=tmp_path)
    shown = kmyriad("select", "agents", "--goal", "1", "-2", "--steps", "200", folder=tmp_path).stdout
    assert "kmyriad jumpstart agents --goal 1 -2 --agent" in shown
    stored = kmyriad("select", "agents", "--goal", "-1", "-2", "--stored", folder=tmp_path).stdout
    assert "0 environment steps were simulated" in stored
    # Of two agents all 16 episodes are played, of 12 steps; then come three iterations of 4 x 6 steps.
    quick = ["--replicas", "4", "--rollout-steps", "6", "--critic-hidden", "8", "--selection-steps", "200"]
    out = kmyriad(
        *("jumpstart", "agents", "--goal", "-1", "-2", *quick, "--total-steps", "264", "--out", "there"),
        folder=tmp_path,
    )
    assert "iteration 3  264/264 steps" in out.stderr
    kmyriad("jumpstart", "--out", "there", "--resume", "--total-steps", "288", folder=tmp_path)
    run = open_run(tmp_path / "there")
    assert (run.last_row()["iteration"], run.last_row()["env_steps"]) == (4, 288)
    assert (run.config.task.goal, run.env) == ((-1.0, -2.0), "point-maze")
    assert "jumpstart" in kmyriad("runs", str(tmp_path), folder=tmp_path).stdout
    for command, out in (("pretrain", "there"), ("jumpstart", "agents")):
        refused = kmyriad(command, "--out", out, "--resume", folder=tmp_path, check=2).stderr
        assert f"{out} is a" in refused
        assert "resume it with: kmyriad" in refused


def test_a_preset_and_flags_on_top_of_it(tmp_path):
    small = [*SMALL, "--preset", "paper", "--out", "here", "--learning-rate", "0.01"]
    kmyriad("pretrain", "point-maze", *small, folder=tmp_path)
    config = open_run(tmp_path / "here").config
    assert (config.rule, config.update.learning_rate, config.update.lr_milestones) == ("reinforce", 0.01, (30, 80))
    assert config.run.total_steps == 288


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["pretrain"], preset("quick", "ant-empty", 10)),
        (["pretrain", "ant-maze", "--agents", "50"], preset("quick", "ant-maze", 50)),
        (["pretrain", "--agents=50", "ant-maze"], preset("quick", "ant-maze", 50)),
        (["pretrain", "--preset", "desk", "--agents", "3", "point-maze"], preset("desk", "point-maze", 3)),
        (["pretrain", "point-maze", "--preset=paper"], preset("paper", "point-maze", 10)),
        (["pretrain", "--update", "trust_region", "Pusher-v5"], preset("quick", "Pusher-v5", 10, "trust_region")),
        (["pretrain", "--method=paper", "--agents", "50"], preset("quick", "ant-empty", 50, method="paper")),
        (
            ["pretrain", "--preset", "paper", "--update", "actor_critic"],
            preset("paper", "ant-empty", 10, "actor_critic"),
        ),
        (["jumpstart"], jumpstart_preset("quick", "best")),
        (["jumpstart", "--preset", "paper", "--init", "random"], jumpstart_preset("paper", "random")),
    ],
)
def test_the_settings_that_arguments_come_to_are_shown(arguments, expected, tmp_path):
    told = expected.as_json()
    blocks = {name: block for name, block in told.items() if isinstance(block, dict)}
    assert shown_config(*arguments, folder=tmp_path) == blocks
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--preset", "paper", "--horizon", "20"], {"horizon": 20, "rollout_steps": None}),
        (["--update", "reinforce", "--horizon", "20"], {"horizon": 20, "rollout_steps": None}),
        (["--preset", "desk", "--rollout-steps", "400"], {"horizon": 600, "rollout_steps": 400}),
        (["--rollout-steps", "none"], {"horizon": 200, "rollout_steps": None}),
        (["--trunk-hidden", "8", "4", "--std-range", "0.1", "1"], {"trunk_hidden": [8, 4], "std_range": [0.1, 1.0]}),
        (["--no-priors", "--code-size", "none"], {"priors": False, "code_size": None}),
        (["--method", "paper"], {"priors": False, "code_size": None, "horizon": 200, "rollout_steps": None}),
        (["--method", "ours", "--preset", "paper"], {"priors": True, "horizon": 600, "rollout_steps": 25}),
        (["--env-setting", "map=u", "a=[1,2]"], {"env_settings": {"decimation": 5, "map": "u", "a": [1, 2]}}),
    ],
)
def test_flags_go_on_top_of_the_preset_and_not_of_other_defaults(arguments, expected, tmp_path):
    blocks = shown_config("pretrain", "point-maze", *arguments, folder=tmp_path)
    told = {name: value for block in blocks.values() for name, value in block.items()}
    assert {name: told[name] for name in expected} == expected


def test_help_explains_every_command_and_setting(tmp_path):
    usage = kmyriad("--help", folder=tmp_path).stdout
    for command in COMMANDS:
        assert f"  {command} " in usage
        assert f"kmyriad {command}" in kmyriad(command, "--help", folder=tmp_path).stdout
    for command, config in (("pretrain", PretrainConfig()), ("jumpstart", JumpstartConfig())):
        shown = kmyriad(command, "--help", folder=tmp_path).stdout
        positional = "env" if command == "pretrain" else "source"
        settings = set(settings_of(config)) - {"env_settings", "objective_function", positional}
        if command == "jumpstart":
            settings -= {"update", "features"}  # there is one rule; features are the source's
        for name in settings:
            assert re.search(f"--{name.replace('_', '-')}[ ,]", shown), name
        for block in fields(config):
            assert f"─ {block.name} options ─" in shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["pretrain"], "(the paper's network). (default: 2)"),
        (["pretrain", "--method", "paper"], "(the paper's network). (default: None)"),
        (["pretrain", "--preset", "paper"], "unless told otherwise. (default: paper)"),
        (["pretrain", "--preset", "paper"], "trust_region MEPOL's. (default: reinforce)"),
        (["pretrain", "--update", "trust_region"], "Most gradient steps per iteration. (default: 30)"),
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
        (["jumpstart", "--init", "bset"], "invalid choice 'bset' for argument '--init'"),
        (["pretrain", "ant-mase"], "unknown environment 'ant-mase' (did you mean 'ant-maze'?)"),
        (["pretrain", "ant-maze", "--agents", "7", "--replicas", "500"], "use 497 or 504 replicas"),
        (["pretrain", "ant-maze", "--agents", "0"], "agents must be between 1 and 10000; got 0"),
        (["pretrain", "ant-maze", "--agents", "x"], "Error parsing --agents: 'x' is no whole number"),
        (["pretrain", "ant-maze", "--gamma", "nan"], "gamma must be a finite number; got nan"),
        (["pretrain", "ant-maze", "--agnets", "7"], "--agents"),
        (["pretrain", "ant-maze", "--preset", "papre"], "invalid choice 'papre' for argument '--preset'"),
        (["pretrain", "ant-maze", "--update", "sgd"], "invalid choice 'sgd' for argument '--update'"),
        (["pretrain", "ant-maze", "--kl-bound", "0.1"], "Unrecognized options: --kl-bound"),
        (["pretrain", "ant-maze", "--env-setting", "size"], "--env-setting takes name=value"),
        (["pretrain", "ant-maze", "--env-setting", "sise=3"], "unknown setting 'sise' (did you mean 'size'?)"),
        (["pretrain", "ant-maze", "ant-cave"], "Unrecognized options: ant-cave"),
        (["pretrain", "--resume"], "--resume needs the run's folder"),
        (["pretrain", "--resume", "--out", "nowhere"], "there is no run folder nowhere"),
        (["runs", "nowhere"], "no runs in nowhere"),
    ],
)
def test_bad_input_is_told_without_a_traceback(arguments, message, tmp_path):
    result = kmyriad(*arguments, folder=tmp_path, check=2)
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = f"{sys.executable} -m kmyriad pretrain --help | head -1"
    result = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "usage" in result.stdout
    assert result.stderr == ""
