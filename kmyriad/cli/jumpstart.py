"""`kmyriad jumpstart`."""

from dataclasses import dataclass
from typing import Literal, get_args

from kmyriad.cli.settings import Options, flag, parse, show
from kmyriad.config import Init
from kmyriad.errors import UsageError
from kmyriad.presets import jumpstart_preset

DESCRIPTION = """Choose the agent of a pretraining run that already goes to a goal, and fine-tune it with PPO.

From a population: kmyriad jumpstart runs/NAME --goal 6 3

To compare, from one policy: kmyriad jumpstart runs/ONE-AGENT --init single --goal 6 3

To compare, from nothing: kmyriad jumpstart ant-empty --init random --goal 6 3

From a policy trained elsewhere: kmyriad jumpstart ant-empty --init policy --policy ppo.zip --goal 6 3

Stop it at any time and go on with: kmyriad jumpstart --out FOLDER --resume"""


@dataclass(frozen=True)
class JumpstartOptions(Options):
    """What is no setting of the run itself."""

    preset: Literal["quick", "paper"] = "quick"
    """Preset to start from: quick (five minutes on two cores), paper (its PPO table); flags change single ones."""


def run(arguments: list[str]) -> None:
    options = JumpstartOptions()
    if "--resume" in arguments and flag(arguments, "out"):
        from kmyriad.runs.resume import run_to_resume

        base = run_to_resume(flag(arguments, "out"), "jumpstart").jumpstart
    else:
        preset, init = flag(arguments, "preset"), flag(arguments, "init")
        known = init if init is not None and init in get_args(Init) else "best"
        base = jumpstart_preset("paper" if preset == "paper" else "quick", known)
    config, told = parse(base, options, arguments, "jumpstart", DESCRIPTION)
    if told.resume and told.out is None:
        raise UsageError("--resume needs the run's folder; add --out FOLDER")
    if told.show_config:
        show(config)
        return
    from kmyriad.cli.output import next_steps
    from kmyriad.training.jumpstart import fine_tune

    next_steps(fine_tune(config, told.out, told.resume))
