"""Whole numbers as people write them."""

import json
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

from kmyriad.cli import main
from kmyriad.cli.numbers import whole_number
from kmyriad.config import JumpstartConfig, PretrainConfig

COUNTS = [
    (command, setting)
    for command, config in (("pretrain", PretrainConfig()), ("jumpstart", JumpstartConfig()))
    for block in fields(config)
    for setting, kind in get_type_hints(type(getattr(config, block.name))).items()
    if kind is int or int in get_args(kind)
]


def test_every_count_is_among_them():
    assert len(COUNTS) > 20
    assert {("pretrain", "total_steps"), ("pretrain", "trunk_hidden"), ("jumpstart", "selection_steps")} <= {*COUNTS}


@pytest.mark.parametrize(("command", "setting"), COUNTS)
def test_every_count_may_be_written_with_an_exponent(command, setting, capsys):
    asked = ["pretrain", "point-maze"] if command == "pretrain" else ["jumpstart", "--horizon", "200"]
    if setting == "agents":
        asked += ["--replicas", "200"]
    if setting == "replicas" and command == "pretrain":
        asked += ["--agents", "1"]
    main([*asked, f"--{setting.replace('_', '-')}", "2e2" if setting != "top" else "2e0", "--show-config"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == [setting]]
    value = json.loads(line.split(maxsplit=1)[1])
    assert value in (200, [200], 2)
    assert isinstance(value, int | list)


@pytest.mark.parametrize(("text", "value"), [("1e6", 1_000_000), ("2.5e5", 250_000), ("1_000", 1000), ("-3", -3)])
def test_numbers(text, value):
    assert whole_number(text) == value


def test_long_integers_stay_exact():
    assert whole_number("9223372036854775807") == 2**63 - 1


@pytest.mark.parametrize("text", ["1.5", "nan", "inf", "1e-3", "many", "", "1e999"])
def test_what_is_no_whole_number_is_refused(text, capsys):
    with pytest.raises(ValueError):  # noqa: PT011
        whole_number(text)
    with pytest.raises(SystemExit) as stopped:
        main(["pretrain", "point-maze", "--total-steps", text, "--show-config"])
    assert stopped.value.code == 2
    assert "total-steps" in capsys.readouterr().err


def test_other_commands_read_them_too(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path / "nowhere"), "--episodes", "3e2"])
    assert "there is no run folder" in " ".join(capsys.readouterr().err.split())
