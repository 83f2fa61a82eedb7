"""Offline RL: learn to reach a goal from the episodes of a population alone, with Minari and Stable-Baselines3.

No agent was trained for the goal, and nothing acts in the world while it is learned. SB3's PPO lends its networks to
advantage-weighted regression (Peng et al. 2019): the policy imitates the steps of the data, the more the better they
turned out. Needs `pip install 'kmyriad[minari,sb3]'`. Two minutes on two cores: python examples/offline.py
"""

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import minari
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy

import kmyriad as km

TEMPERATURE = 0.05
"""The advantage, in parts of a reached goal, that makes a step e times as worthy of being imitated."""
LARGEST_WEIGHT = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=float, nargs=2, default=(2.0, 2.0), help="metres (default: 2 2)")
    parser.add_argument("--pretrain-steps", type=int, default=300_000)
    parser.add_argument("--episodes", type=int, default=1000, help="of all agents together, to learn from")
    parser.add_argument("--steps", type=int, default=3_000, help="gradient steps")
    parser.add_argument("--trials", type=int, default=100, help="episodes that tell how often the goal is reached")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # small networks: threads would only wait for each other
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps, goal, seed = arguments.pretrain_steps, tuple(arguments.goal), arguments.seed
        run = km.pretrain("point-maze", agents=10, out=folder / "points", total_steps=steps, seed=seed)
        data = km.export(run, "minari", folder / "data", goal=goal, episodes=arguments.episodes)
        os.environ["MINARI_DATASETS_PATH"] = str(data)
        dataset = minari.load_dataset("kmyriad/points-v0")
        env = dataset.recover_environment(eval_env=True)
        model = PPO("MlpPolicy", env, seed=seed, device="cpu")
        known = np.mean([episode.terminations[-1] for episode in dataset])  # these episodes end at the goal
        print(f"{dataset.total_episodes} episodes of 10 agents: {known:.2f} reach the goal")
        learn(model.policy, steps_of(dataset, model.gamma), arguments.steps)
    print(f"after {arguments.steps:,} gradient steps: {success(model, env, arguments.trials):.2f}")


@dataclass(frozen=True)
class Steps:
    """All steps of a dataset."""

    observations: torch.Tensor
    """(n, d)."""
    actions: torch.Tensor
    """(n, a)."""
    returns: torch.Tensor
    """(n,), discounted, until the end of the episode."""


def steps_of(dataset: minari.MinariDataset, gamma: float) -> Steps:
    episodes = [dataset[index] for index in range(dataset.total_episodes)]
    returns = []
    for episode in episodes:
        later = 0.0
        for reward in episode.rewards[::-1]:
            later = float(reward) + gamma * later
            returns.append(later)
        returns[-len(episode.rewards) :] = returns[-len(episode.rewards) :][::-1]
    return Steps(
        torch.from_numpy(np.concatenate([episode.observations[:-1] for episode in episodes])).float(),
        torch.from_numpy(np.concatenate([episode.actions for episode in episodes])).float(),
        torch.tensor(returns),
    )


def learn(policy: ActorCriticPolicy, steps: Steps, updates: int, batch_size: int = 512) -> None:
    """AWR: values learn what came of the data's steps, and the policy imitates those that went better than usual."""
    for _ in range(updates):
        part = torch.randint(len(steps.returns), (batch_size,))
        values, log_probs, _ = policy.evaluate_actions(steps.observations[part], steps.actions[part])
        advantages = steps.returns[part] - values[:, 0]
        weights = (advantages.detach() / TEMPERATURE).exp().clamp(max=LARGEST_WEIGHT)
        loss = advantages.square().mean() - (weights * log_probs).mean()
        policy.optimizer.zero_grad()
        loss.backward()
        policy.optimizer.step()


def success(model: PPO, env: Any, trials: int) -> float:
    """How often the goal is reached from fresh starts."""
    reached = 0
    for trial in range(trials):
        seen, _ = env.reset(seed=trial)
        over = terminated = False
        while not over:
            action, _ = model.predict(seen, deterministic=True)
            seen, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
        reached += bool(terminated)
    env.close()
    return reached / trials


if __name__ == "__main__":
    main()
