"""`kmyriad jumpstart`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from kmyriad.cli.settings import parse_asked, parse_training
from kmyriad.errors import UsageError
from kmyriad.jumpstart_config import JumpstartConfig
from kmyriad.presets import jumpstart_preset


@dataclass(frozen=True)
class Command:
    """Choose the head of a pretraining run that already goes to a goal, and fine-tune it with PPO.

    From a population: kmyriad jumpstart runs/NAME --goal 6 3

    To compare, from one policy: kmyriad jumpstart runs/ONE-AGENT --init single --goal 6 3

    To compare, from nothing: kmyriad jumpstart ant-empty --init random --goal 6 3

    Stop it at any time and go on with: kmyriad jumpstart --out FOLDER --resume
    """

    config: Annotated[JumpstartConfig, tyro.conf.arg(name="")]
    preset: str = "quick"
    """Settings to start from: quick (five minutes on two cores), paper (its PPO table); flags change single ones."""
    out: Path | None = None
    """Folder of the run; by default a new one below runs/."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on from the newest good checkpoint of the run in --out."""
    env_setting: tuple[str, ...] = ()
    """Further settings of the environment, on top of the source's, such as reset_noise=0.5."""


def run(arguments: list[str]) -> None:
    asked = parse_asked(Command(JumpstartConfig()), arguments, "jumpstart", "--source")
    if asked.resume and asked.out is None:
        raise UsageError("--resume needs the run's folder; add --out FOLDER")
    base = jumpstart_preset(asked.preset, asked.config.init)
    if asked.resume:
        from kmyriad.runs.resume import run_to_resume
        from kmyriad.training.jumpstart import config_of

        base = config_of(run_to_resume(asked.out, "jumpstart"))
    command = parse_training(Command(base), arguments, "jumpstart", "--source")
    from kmyriad.training.jumpstart import fine_tune

    fine_tune(command.config, command.out, command.resume)
