"""`kmyriad pretrain`."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from kmyriad.cli.settings import Options, flag, parse, parse_blocks, show
from kmyriad.config import RULES, PretrainConfig, with_settings
from kmyriad.engines.source import find_source
from kmyriad.presets import METHODS, PRESETS, method_of, rule_of
from kmyriad.presets import preset as preset_config

DESCRIPTION = """Train a population of policies, without reward, to cover a world's states together (Algorithm 1).

kmyriad pretrain ant-maze --agents 10

Stop it at any time and go on with: kmyriad pretrain --out FOLDER --resume

The defaults of other numbers of agents, presets, methods and update rules are shown with them:
kmyriad pretrain ant-maze --agents 50 --preset desk --method paper --help"""


@dataclass(frozen=True)
class PretrainOptions(Options):
    """What is no setting of the run itself."""

    preset: Literal["quick", "desk", "paper"] = "quick"
    """Size of the run: quick (3 minutes on two cores), desk (15), paper (Table 2); flags change single settings."""
    method: Literal["ours", "paper"] = "ours"
    """Method: ours, or the paper's with nothing of ours in it; preset paper has the paper's unless told otherwise."""
    update: Literal["actor_critic", "reinforce", "trust_region"] = "actor_critic"
    """Update rule: actor_critic is ours, reinforce the paper's, trust_region MEPOL's."""


def run(arguments: list[str]) -> None:
    options = PretrainOptions()
    if "--resume" in arguments and flag(arguments, "out"):
        from kmyriad.runs.resume import run_to_resume

        base = run_to_resume(flag(arguments, "out"), "pretrain").pretraining
        options = replace(options, update=cast(Any, base.rule))
    else:
        asked_preset, asked_method = flag(arguments, "preset") or "quick", flag(arguments, "method") or None
        name = asked_preset if asked_preset in PRESETS else "quick"
        method = asked_method if asked_method in METHODS else method_of(name)
        rule = (flag(arguments, "update") or rule_of(name, method)).replace("-", "_")
        options = replace(options, method=cast(Any, method))
        if rule in RULES:
            options = replace(options, update=cast(Any, rule))
        # The preset depends on the world and the number of agents: these are read first.
        asked = [text for text in arguments if text not in ("-h", "--help")]
        first = parse_blocks(PretrainConfig(update=RULES[options.update]()), options, asked, "pretrain", DESCRIPTION)
        find_source(first.world.env)
        base = preset_config(name, first.world.env, first.population.agents, options.update, method)
    config, told = parse(base, options, arguments, "pretrain", DESCRIPTION)
    if told.update != config.rule:  # of a run that is resumed, which refuses it
        config = with_settings(config, {"update": told.update})
    if told.resume and told.out is None:
        from kmyriad.errors import UsageError

        raise UsageError("--resume needs the run's folder; add --out FOLDER")
    if told.show_config:
        show(config)
        return
    from kmyriad.cli.output import next_steps
    from kmyriad.training.pretrain import train

    made = train(config, told.out, told.resume)
    next_steps(made)
