"""Offline RL: learn to reach a goal from the episodes of a population alone, with Minari and Stable-Baselines3.

No agent was trained for the goal, and nothing acts in the world while it is learned. SB3's SAC becomes an offline
method by another update, AWAC's (Nair et al. 2020): the actor takes the actions of the data, the more the better the
critics think of them. Needs `pip install 'kmyriad[minari,sb3]'`. Some minutes on two cores: python examples/offline.py
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import minari
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.utils import polyak_update
from torch.nn import functional

import kmyriad as km


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=float, nargs=2, default=(2.0, 2.0), help="metres (default: 2 2)")
    parser.add_argument("--pretrain-steps", type=int, default=300_000)
    parser.add_argument("--episodes", type=int, default=1000, help="of all agents together, to learn from")
    parser.add_argument("--steps", type=int, default=10_000, help="gradient steps of AWAC")
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
        policy = AWAC("MlpPolicy", env, buffer_size=dataset.total_steps, batch_size=512, seed=seed, device="cpu")
        known = fill(policy, dataset)
    print(f"{dataset.total_episodes} episodes of 10 agents: {known:.2f} reach the goal")
    policy.train(arguments.steps, policy.batch_size)
    print(f"AWAC after {arguments.steps:,} gradient steps: {success(policy, env, arguments.trials):.2f}")


class AWAC(SAC):  # type: ignore[misc]
    """SAC that learns from its buffer alone."""

    temperature = 0.05
    """The advantage, in parts of a reached goal, that makes an action e times as worthy of being taken."""

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        actor, critic, target = self.actor, self.critic, self.critic_target
        for _ in range(gradient_steps):
            seen = self.replay_buffer.sample(batch_size)
            with torch.no_grad():
                following = torch.cat(target(seen.next_observations, actor(seen.next_observations)), dim=1)
                wanted = seen.rewards + self.gamma * (1 - seen.dones) * following.min(dim=1, keepdim=True).values
            values = critic(seen.observations, seen.actions)
            self._step(critic, sum(functional.mse_loss(value, wanted) for value in values))
            with torch.no_grad():
                usual = torch.cat(critic(seen.observations, actor(seen.observations)), dim=1).min(dim=1).values
                better = torch.cat(values, dim=1).min(dim=1).values - usual
                weight = (better / self.temperature).exp().clamp(max=100)
            mean, log_std, _ = actor.get_action_dist_params(seen.observations)
            log_prob = actor.action_dist.proba_distribution(mean, log_std.clamp(min=-3)).log_prob(seen.actions)
            self._step(actor, -(weight * log_prob).mean())
            polyak_update(critic.parameters(), target.parameters(), self.tau)

    def _step(self, part: Any, loss: Any) -> None:
        part.optimizer.zero_grad()
        loss.backward()
        part.optimizer.step()


def fill(policy: SAC, dataset: minari.MinariDataset) -> float:
    """Put all episodes into the buffer; returns how many of them reach the goal."""
    reached = 0
    for episode in dataset:
        actions = policy.policy.scale_action(np.asarray(episode.actions))
        for step, action in enumerate(actions):
            before, after = episode.observations[step], episode.observations[step + 1]
            policy.replay_buffer.add(before, after, action, episode.rewards[step], episode.terminations[step], [{}])
        reached += bool(episode.terminations[-1])
    return reached / dataset.total_episodes


def success(policy: SAC, env: Any, trials: int) -> float:
    """How often the goal is reached from fresh starts."""
    reached = 0
    for trial in range(trials):
        seen, _ = env.reset(seed=trial)
        over = terminated = False
        while not over:
            action, _ = policy.predict(seen, deterministic=True)
            seen, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
        reached += bool(terminated)
    env.close()
    return reached / trials


if __name__ == "__main__":
    main()
