"""Plain PyTorch, and CleanRL, which is PyTorch in one file: safetensors and a module of two screens."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from kmyriad.exporters.carried.policy import Policy
from kmyriad.exporters.folder import write_policy, write_readme
from kmyriad.exporters.portable import Portable


class Deployed(nn.Module):
    """Tensors in, tensors out: (mean or logits, the environment's action) of observations (n, d)."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(observation)[0], self.policy.act(observation)


def write_torch(portable: Portable, folder: Path) -> None:
    """`policy.pt2`, a `torch.export` program with a dynamic batch, beside the weights."""
    write_policy(portable, folder, ("train_ppo", "train_on.py"), ["ppo"])
    example = torch.zeros(2, portable.facts["observation_size"])
    batch = {0: torch.export.Dim("batch", min=1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own parts
        program = torch.export.export(Deployed(portable.policy).eval(), (example,), dynamic_shapes=(batch,))
        torch.export.save(program, folder / "policy.pt2")
    use = (
        "`kmyriad_policy.load_policy()` is a `torch.nn.Module`; `policy.act(observations)` gives actions.\n"
        '`torch.export.load("policy.pt2").module()` gives (mean, action) without any code from here.\n'
        "`kmyriad_ppo.py` has PPO in one function, to train on with."
    )
    write_readme(folder, portable.facts, "A policy for PyTorch", use)


def write_cleanrl(portable: Portable, folder: Path) -> None:
    """An `Agent` with CleanRL's interface."""
    write_policy(portable, folder, ("train_ppo", "train_on.py"), ["ppo"])
    use = (
        "`kmyriad_ppo.Agent` has CleanRL's `get_value` and `get_action_and_value`: put it in place of `Agent` in\n"
        "`ppo_continuous_action.py` or `ppo.py`, and step with `agent.policy.to_environment(action)`."
    )
    write_readme(folder, portable.facts, "A policy for CleanRL", use)
