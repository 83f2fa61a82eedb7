"""skrl: a checkpoint that `agent.load` opens, with models that hold the policy exactly."""

from pathlib import Path

from kmyriad.exporters.folder import carried_module, need, write_policy, write_readme
from kmyriad.exporters.portable import Portable


def write_skrl(portable: Portable, folder: Path) -> None:
    """`agent.pt`."""
    need("skrl", "skrl", "skrl")
    write_policy(portable, folder, ("train_skrl", "train_on.py"), ["skrl"])
    with carried_module(folder, "skrl") as skrl:
        skrl.make_agent(folder).save(str(folder / "agent.pt"))
    use = (
        '`kmyriad_skrl.make_agent()` makes skrl\'s PPO with the right models; `agent.load("agent.pt")` fills them.\n'
        "Raw actions are squashed by the wrapper `kmyriad_skrl.RawActions`."
    )
    write_readme(folder, portable.facts, "A policy for skrl", use, "skrl")
