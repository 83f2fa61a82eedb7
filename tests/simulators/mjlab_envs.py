"""mjlab's environments as the command line takes them: `tests.simulators.mjlab_envs:go1`."""

import mjlab.tasks  # noqa: F401  (registers them)
from mjlab.envs import ManagerBasedRlEnv
from mjlab.tasks.registry import load_env_cfg

TASKS = {"cartpole": "Mjlab-Cartpole-Swingup", "go1": "Mjlab-Velocity-Flat-Unitree-Go1"}


def cartpole(num_envs: int, device: str = "cpu") -> ManagerBasedRlEnv:
    return _make("cartpole", num_envs, device)


def go1(num_envs: int, device: str = "cpu") -> ManagerBasedRlEnv:
    return _make("go1", num_envs, device)


def _make(name: str, num_envs: int, device: str) -> ManagerBasedRlEnv:
    cfg = load_env_cfg(TASKS[name])
    cfg.scene.num_envs = num_envs
    return ManagerBasedRlEnv(cfg, device=device)
