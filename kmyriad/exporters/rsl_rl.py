"""rsl_rl: a checkpoint that `OnPolicyRunner.load` opens, with models that hold the policy exactly."""

import contextlib
import io
from pathlib import Path

from kmyriad.errors import UsageError
from kmyriad.exporters.folder import carried_module, need, write_policy, write_readme
from kmyriad.exporters.portable import Portable


def write_rsl_rl(portable: Portable, folder: Path) -> None:
    """`model.pt`."""
    if portable.facts["discrete"]:
        raise UsageError("rsl_rl has no discrete actions, and this policy has; export to sb3-ppo, skrl or cleanrl")
    need("rsl-rl", "rsl-rl", "rsl_rl.runners")
    write_policy(portable, folder, ("train_rsl_rl", "train_on.py"), ["rsl_rl"])
    with carried_module(folder, "rsl_rl") as rsl_rl, contextlib.redirect_stdout(io.StringIO()):  # it prints its models
        rsl_rl.make_runner(folder).save(str(folder / "model.pt"))
    use = (
        "`kmyriad_rsl_rl.train_cfg()` has the settings: take `actor`, `critic`, `obs_groups` into your own, then\n"
        '`runner.load("model.pt", load_cfg={"actor": True, "critic": True})`. The environment squashes raw actions:\n'
        "`kmyriad_rsl_rl.Environments` shows how."
    )
    write_readme(folder, portable.facts, "A policy for rsl_rl", use, "rsl-rl-lib")
