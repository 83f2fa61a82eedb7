"""How much of a fine-tuning gradient is signal, and how that depends on gamma and lambda.

One head plays many episodes of a goal, each to its success or to the horizon. Half of them teach a critic and give
gradients, in batches of 100 episodes. The other half gives the gradient of the success rate itself, by the rewards that
came and nothing else: unbiased, and of other noise. Told is the mean cosine of a batch's gradient to that one. A batch
that says nothing about success has 0; so has one that is all noise.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import kmyriad
from kmyriad.critic import Critic
from kmyriad.population import Population
from kmyriad.rollout import ParallelTrajectory, collect
from kmyriad.task import Task
from kmyriad.training_state import load_population
from kmyriad.updates.actor_critic import gae
from kmyriad.updates.ascent import to_go

BATCH = 100
GAMMAS, LAMBDAS = (0.97, 0.99), (0.0, 0.5, 0.8, 0.9, 0.95)
CRITIC, RATE, PASSES, MINIBATCH = (128, 128), 1e-3, 4, 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a pretraining run")
    parser.add_argument("--goal", type=float, nargs=2, required=True, metavar=("X", "Y"))
    parser.add_argument("--head", type=int, required=True, help="the one that plays")
    parser.add_argument("--episodes", type=int, default=2400, help="in all (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    episodes = Episodes(arguments.run, arguments.head, tuple(arguments.goal), arguments.episodes)
    truth = episodes.gradients(episodes.advantages(1.0, 1.0), episodes.others).mean(0)
    found = {}
    for gamma in GAMMAS:
        for gae_lambda in LAMBDAS:
            batches = episodes.gradients(episodes.advantages(gamma, gae_lambda), episodes.mine)
            cosines = torch.nn.functional.cosine_similarity(batches, truth[None])
            found[f"gamma {gamma}, lambda {gae_lambda}"] = float(cosines.mean())
    table = Table("advantages", "cosine", title=f"success {episodes.success:.2f}, batches of {BATCH} episodes")
    for name, cosine in found.items():
        table.add_row(name, f"{cosine:.3f}")
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps({"success": episodes.success, "cosines": found}, indent=1) + "\n")


class Episodes:
    """Episodes of one head, cut off once the goal is entered."""

    def __init__(self, folder: Path, head: int, goal: tuple[float, ...], count: int) -> None:
        run = kmyriad.open_run(folder)
        horizon = run.config["horizon"]
        task = Task(run.config["env"], run.config["env_settings"], horizon, goal)
        self.population: Population = load_population(run).select([head])
        replicas = task.replicas(count)
        replicas.start(seed=0)
        self.played: ParallelTrajectory = collect(replicas, self.population, horizon, 0, 1, keep_arrivals=True)
        replicas.close()
        success = torch.from_numpy(self.played.success)
        before = torch.zeros_like(success)
        before[..., 1:] = success[..., :-1]
        self.counts = ~before & torch.from_numpy(self.played.sound)
        self.rewards = (success & ~before).float()
        self.ends = success & ~before
        self.ends[..., -1] = True
        self.success = float(self.played.success[..., -1].mean())
        self.mine, self.others = range(count // 2), range(count // 2, count)
        assert self.played.arrivals is not None
        self.seen = self.population.normaliser(self.played.observations)
        self.reached = self.population.normaliser(self.played.arrivals)

    def advantages(self, gamma: float, gae_lambda: float) -> Tensor:
        """(1, n, L), by a critic that learned the discounted success of `mine`."""
        critic = self._critic(gamma)
        with torch.no_grad():
            values, next_values = (
                critic(seen.flatten(1, 2)).view_as(self.rewards) for seen in (self.seen, self.reached)
            )
        return gae(self.rewards, values, next_values * ~self.ends, self.ends, gamma, gae_lambda)

    def gradients(self, advantages: Tensor, episodes: range) -> Tensor:
        """(batches, parameters), of the mean of advantage times log-probability."""
        rows = []
        for start in episodes[::BATCH]:
            part = slice(start, min(start + BATCH, episodes.stop))
            weights = (advantages * self.counts)[:, part].flatten(1, 2)
            log_probs = self.population.policy(self.seen[:, part].flatten(1, 2)).log_prob(
                self.played.actions[:, part].flatten(1, 2)
            )
            gain = (weights * log_probs).sum() / self.counts[:, part].sum()
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(gain, [*self.population.parameters()])]))
        return torch.stack(rows)

    def _critic(self, gamma: float) -> Critic:
        counts = self.counts[:, : self.mine.stop].flatten()
        inputs = self.seen[:, : self.mine.stop].flatten(1, 2)[:, counts]
        returns = to_go(self.rewards, self.ends, gamma)[:, : self.mine.stop].flatten(1, 2)[:, counts]
        critic = Critic(1, inputs.shape[-1], CRITIC, seed=0)
        optimizer = torch.optim.Adam(critic.parameters(), lr=RATE)
        rng = np.random.default_rng(0)
        for _ in range(PASSES):
            order = torch.from_numpy(rng.permutation(inputs.shape[1]))
            for part in order.chunk(-(-len(order) // MINIBATCH)):
                loss = (critic(inputs[:, part]) - returns[:, part]).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return critic


if __name__ == "__main__":
    main()
