"""`kmyriad pretrain`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kmyriad.cli.settings import parse_asked, parse_training
from kmyriad.config import PretrainConfig, config_from
from kmyriad.envs import find_id
from kmyriad.errors import UsageError
from kmyriad.presets import preset as preset_config


@dataclass(frozen=True)
class Command:
    """Train a population of policies, without reward, to cover a world's states together (the paper's Algorithm 1).

    Stop it at any time and go on with: kmyriad pretrain --out FOLDER --resume

    The defaults of other worlds, numbers of agents and presets: kmyriad pretrain ant-maze --agents 50 --help
    """

    config: Annotated[PretrainConfig, tyro.conf.arg(name="")]
    preset: str = "quick"
    """Settings to start from: quick (3 minutes on two cores), desk (15), paper (Table 2); flags change single ones."""
    out: Path | None = None
    """Folder of the run; by default a new one below runs/."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on from the newest good checkpoint of the run in --out."""
    env_setting: tuple[str, ...] = ()
    """Further settings of the environment, such as map=u or size=7 reset_noise=0.5."""


def run(arguments: list[str]) -> None:
    asked = parse_asked(Command(PretrainConfig()), arguments, "pretrain", "--env")
    find_id(asked.config.env)
    world, agents = asked.config.env, asked.config.agents
    base = _config_of(asked.out) if asked.resume else preset_config(asked.preset, world, agents)
    command = parse_training(Command(base), arguments, "pretrain", "--env")
    from kmyriad.training.pretrain import train

    train(command.config, command.out, command.resume)


def _config_of(folder: Path | None) -> PretrainConfig:
    from kmyriad.runs.resume import run_to_resume

    if folder is None:
        raise UsageError("--resume needs the run's folder; add --out FOLDER")
    return config_from(run_to_resume(folder, "pretrain").config)
