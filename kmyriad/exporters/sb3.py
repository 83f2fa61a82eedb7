"""Stable-Baselines3: a zip that `PPO.load` or `SAC.load` opens, with policy classes that hold the policy exactly."""

from pathlib import Path

from kmyriad.errors import UsageError
from kmyriad.exporters.folder import carried_module, need, write_policy, write_readme
from kmyriad.exporters.portable import Portable


def write_sb3_ppo(portable: Portable, folder: Path) -> None:
    """`ppo.zip`."""
    need("sb3-ppo", "sb3", "stable_baselines3")
    write_policy(portable, folder, ("train_sb3_ppo", "train_on.py"), ["sb3"])
    with carried_module(folder, "sb3") as sb3:
        sb3.make_ppo(folder).save(folder / "ppo.zip")
    use = 'Load it beside these files with `PPO.load("ppo.zip", env=env)`; `kmyriad_sb3.py` has its policy class.'
    write_readme(folder, portable.facts, "A policy for Stable-Baselines3's PPO", use, "stable-baselines3")


def write_sb3_sac(portable: Portable, folder: Path) -> None:
    """`sac.zip`."""
    if portable.facts["discrete"]:
        raise UsageError("SAC of Stable-Baselines3 has no discrete actions, and this policy has; export to sb3-ppo")
    if portable.facts["clips"]:
        raise UsageError("SAC squashes actions, and this policy cuts them off at their range; export to sb3-ppo")
    need("sb3-sac", "sb3", "stable_baselines3")
    write_policy(portable, folder, ("train_sb3_sac", "train_on.py"), ["sb3"])
    with carried_module(folder, "sb3") as sb3:
        sb3.make_sac(folder).save(folder / "sac.zip")
    use = 'Load it beside these files with `SAC.load("sac.zip", env=env)`; `kmyriad_sb3.py` has its policy class.'
    write_readme(
        folder, portable.facts, "A policy for Stable-Baselines3's SAC", use, "stable-baselines3", takes_critic=False
    )
