"""The clipped actor-critic against a plain, slow computation of the same numbers."""

import copy
import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import torch

from kmyriad.config import ActorCritic
from kmyriad.objective.rewards import Rewards
from kmyriad.population.distributions import Categorical
from kmyriad.population.network import Critic
from kmyriad.processes import Share
from kmyriad.updates.actor_critic import actor_critic, gae, per_step, scaled_rewards, standardised, way_gone
from tests.updates.test_updates import AGENTS, PER_AGENT, SPACES, STEPS, problem

module = import_module("kmyriad.updates.actor_critic")  # the package has a function of that name

SETTINGS = ActorCritic(
    gamma=0.9, gae_lambda=0.8, clip_range=0.2, update_epochs=1, minibatches=1, desired_kl=0.03, entropy_coef=0.1
)


def setup(space=SPACES[0], seed=0):
    population, trajectory = problem(space, seed)
    critic = Critic(AGENTS, 5, (8, 6), seed=seed).double()
    rng = np.random.default_rng(seed)
    terminated = trajectory.dones & torch.from_numpy(rng.random(trajectory.dones.shape) < 0.5)
    next_observations = torch.from_numpy(rng.standard_normal(trajectory.observations.shape))
    trajectory = replace(trajectory, terminated=terminated, next_observations=next_observations)
    optimizer = torch.optim.SGD([*population.parameters(), *critic.parameters()], lr=1.0)
    rewards = torch.from_numpy(rng.standard_normal(trajectory.valid.shape)) * trajectory.valid
    return population, critic, optimizer, trajectory, rewards


def gradients(*networks):
    return [parameter.grad.clone() for network in networks for parameter in network.parameters()]


def reference_advantage(rewards, values, next_values, dones, step, gae_lambda=SETTINGS.gae_lambda):
    """The sum over n of (gamma lambda)^n delta_(t + n), to the end of the episode or of the data."""
    total, weight = 0.0, 1.0
    for later in range(step, len(rewards)):
        total += weight * (rewards[later] + SETTINGS.gamma * next_values[later] - values[later])
        if dones[later]:
            break
        weight *= SETTINGS.gamma * gae_lambda
    return total


@torch.no_grad()
def reference_advantages(critic, trajectory, rewards, gae_lambda=SETTINGS.gae_lambda):
    """(values, ((agent, replica, step, advantage), ...) of the steps that count), one after the other."""
    values = critic(trajectory.observations.flatten(1, 2)).view(AGENTS, PER_AGENT, STEPS)
    values[~trajectory.valid] = 0  # nothing counts from where a replica broke
    arrived = critic(trajectory.next_observations.flatten(1, 2)).view(AGENTS, PER_AGENT, STEPS)
    rows = []
    for agent, replica, step in np.ndindex(AGENTS, PER_AGENT, STEPS):
        place = agent, replica
        next_values = [
            0.0 if trajectory.terminated[place][s] or not trajectory.valid[place][s] else float(arrived[place][s])
            for s in range(STEPS)
        ]
        advantage = reference_advantage(
            rewards[place].tolist(), values[place].tolist(), next_values, trajectory.dones[place], step, gae_lambda
        )
        rows.append((agent, replica, step, advantage))
    return values, [row for row in rows if trajectory.valid[row[:3]]]


@torch.no_grad()
def reference_loss(population, critic, trajectory, rewards, critic_learns_too=True):
    """Step by step, one agent and one replica at a time, as the PPO and GAE papers write it."""
    values, counted = reference_advantages(critic, trajectory, rewards)
    advantages = np.array([row[3] for row in counted])
    mean, deviation = advantages.mean(), advantages.std(ddof=1)
    losses = []
    for agent, replica, step, advantage in counted:
        observation = trajectory.observations[agent, replica, step]
        policy = population(observation.expand(AGENTS, 1, -1))
        entropy = reference_entropy(policy, agent)
        now = float(policy.log_prob(trajectory.actions[agent, replica, step])[agent])
        ratio = math.exp(now - float(trajectory.log_probs[agent, replica, step]))
        scaled = (advantage - mean) / (deviation + 1e-8)
        gain = min(ratio * scaled, min(max(ratio, 1 - SETTINGS.clip_range), 1 + SETTINGS.clip_range) * scaled)
        value = float(values[agent, replica, step])
        wanted = advantage + value
        error = 0.5 * (value - wanted) ** 2 if critic_learns_too else 0.0
        losses.append(error - gain - SETTINGS.entropy_coef * entropy)
    return float(np.mean(losses))


def reference_entropy(policy, agent):
    """By torch's own distributions."""
    if isinstance(policy, Categorical):
        return float(torch.distributions.Categorical(logits=policy.logits[agent, 0]).entropy())
    return float(torch.distributions.Normal(policy.mean, policy.log_std.exp()).entropy()[agent, 0].sum())


@pytest.mark.parametrize("seed", range(3))
def test_advantages_are_the_sums_of_the_paper(seed):
    generator = torch.Generator().manual_seed(seed)
    rewards, values, next_values = torch.randn(3, 4, 9, generator=generator, dtype=torch.float64)
    dones = torch.rand(4, 9, generator=generator) < 0.2
    found = gae(rewards, values, next_values, dones, SETTINGS.gamma, SETTINGS.gae_lambda)
    for row in range(4):
        rows = [tensor[row].tolist() for tensor in (rewards, values, next_values, dones)]
        expected = [reference_advantage(*rows, step) for step in range(9)]
        np.testing.assert_allclose(found[row], expected, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("space", SPACES, ids=["box", "discrete"])
def test_the_loss_and_its_gradient_are_a_plain_computations(space, seed, monkeypatch):
    """The gradient is checked by finite differences of the reference along random directions."""
    settings = replace(SETTINGS, max_grad_norm=1e9)
    population, critic, optimizer, trajectory, rewards = setup(space, seed)
    with torch.no_grad():  # away from ratio 1, so that the clipping matters
        for parameter in population.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    before = reference_loss(population, critic, trajectory, rewards)
    seen = []
    original = module._loss
    monkeypatch.setattr(module, "_loss", lambda *arguments: seen.append(original(*arguments)) or seen[-1])
    monkeypatch.setattr(optimizer, "step", lambda: None)
    actor_critic(population, critic, optimizer, trajectory, rewards, settings, np.random.default_rng(0))
    assert seen[0][0].item() == pytest.approx(before, rel=1e-9)
    direction = [torch.randn(p.shape, generator=torch.Generator().manual_seed(9)) for p in population.parameters()]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(population.parameters(), direction, strict=True))
    step = 1e-6

    def moved(by):
        with torch.no_grad():
            for parameter, d in zip(population.parameters(), direction, strict=True):
                parameter += by * d
        return reference_loss(population, critic, trajectory, rewards)

    difference = (moved(step) - moved(-2 * step)) / (2 * step)
    assert difference == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_steps_that_are_not_valid_change_nothing():
    results = []
    for spoil in (False, True):
        population, critic, optimizer, trajectory, rewards = setup()
        if spoil:
            broken = ~trajectory.valid
            trajectory.actions[broken] += 3.0
            trajectory.observations[broken] -= 2.0
        actor_critic(population, critic, optimizer, trajectory, rewards, SETTINGS, np.random.default_rng(0))
        results.append([p.detach().clone() for p in [*population.parameters(), *critic.parameters()]])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_an_agent_learns_from_its_own_replicas_only():
    population, critic, optimizer, trajectory, rewards = setup()
    valid = trajectory.valid.clone()
    valid[1:] = False
    trajectory = replace(trajectory, valid=valid)
    actor_critic(population, critic, optimizer, trajectory, rewards, SETTINGS, np.random.default_rng(0))
    for network in (population, critic):
        assert network.adapter_weight.grad[0].abs().sum() > 0
        assert network.adapter_weight.grad[1:].abs().sum() == 0
        assert network.trunk_weights[0].grad.abs().sum() > 0


def test_minibatches_go_through_every_step_once_per_pass(monkeypatch):
    population, critic, optimizer, trajectory, rewards = setup()
    seen = []
    original = module._loss

    def spy(population, critic, batch, *rest):
        seen.append(batch.log_probs[0])
        return original(population, critic, batch, *rest)

    monkeypatch.setattr(module, "_loss", spy)
    settings = replace(SETTINGS, update_epochs=2, minibatches=3, desired_kl=10.0)
    report = actor_critic(population, critic, optimizer, trajectory, rewards, settings, np.random.default_rng(0))
    assert report.steps == 6
    expected = trajectory.log_probs[0].flatten().sort().values
    for one_pass in (seen[:3], seen[3:]):
        torch.testing.assert_close(torch.cat(one_pass).sort().values, expected)


def test_the_rate_is_steered_and_a_large_change_ends_the_iteration():
    population, critic, optimizer, trajectory, rewards = setup()
    optimizer = torch.optim.Adam([*population.parameters(), *critic.parameters()], lr=1e-2)
    optimizer.param_groups[0]["lr"] = 1e-4
    many = replace(SETTINGS, update_epochs=5, minibatches=2)
    actor_critic(population, critic, optimizer, trajectory, rewards, many, np.random.default_rng(0))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1.5e-4)
    optimizer.param_groups[0]["lr"] = 0.3
    report = actor_critic(population, critic, optimizer, trajectory, rewards, many, np.random.default_rng(0))
    assert report.steps < 10
    assert report.kl > 4 * SETTINGS.desired_kl
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.2)


def test_a_critic_that_warms_up_leaves_the_policies_alone():
    population, critic, _, trajectory, rewards = setup()
    groups = [{"params": [*population.parameters()], "lr": 1e-2}, {"params": [*critic.parameters()], "lr": 1e-2}]
    optimizer = torch.optim.Adam(groups)
    before = {name: tensor.clone() for name, tensor in population.state_dict().items()}
    errors = []
    for _ in range(20):
        values = critic(population.normaliser(trajectory.observations).flatten(1, 2)).view_as(rewards)
        errors.append(float((values - rewards)[trajectory.valid].detach().square().mean()))
        settings = replace(SETTINGS, gamma=0.0)  # so that the values to learn are the rewards
        rng = np.random.default_rng(0)
        report = actor_critic(population, critic, optimizer, trajectory, rewards, settings, rng, critic_only=True)
    assert errors[-1] < 0.9 * errors[0]
    assert (report.steps, report.kl, optimizer.param_groups[0]["lr"]) == (1, 0.0, 1e-2)
    assert all(torch.equal(before[name], tensor) for name, tensor in population.state_dict().items())


def test_a_critic_with_passes_of_its_own_learns_first_and_tells_the_advantages(monkeypatch):
    settings = replace(SETTINGS, critic_epochs=2, critic_lambda=0.3, max_grad_norm=1e9)
    population, critic, optimizer, trajectory, rewards = setup()
    expected = copy.deepcopy(critic)
    values, counted = reference_advantages(expected, trajectory, rewards, gae_lambda=0.3)
    descent = torch.optim.SGD(expected.parameters(), lr=1.0)
    for _ in range(2):
        found = expected(trajectory.observations.flatten(1, 2)).view_as(values)
        errors = [(found[row[:3]] - (values[row[:3]] + row[3])) ** 2 for row in counted]
        descent.zero_grad()
        (0.5 * torch.stack(errors).mean()).backward()
        descent.step()
    policy_loss = reference_loss(population, expected, trajectory, rewards, critic_learns_too=False)
    seen, original = [], module._loss
    monkeypatch.setattr(module, "_loss", lambda *arguments: seen.append(original(*arguments)) or seen[-1])
    report = actor_critic(population, critic, optimizer, trajectory, rewards, settings, np.random.default_rng(0))
    for one, other in zip(critic.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)
    assert float(seen[0][0].detach()) == pytest.approx(policy_loss, rel=1e-9)
    assert report.steps == 1


def test_a_critic_with_passes_of_its_own_warms_up_alone():
    population, critic, optimizer, trajectory, rewards = setup()
    before = [parameter.detach().clone() for parameter in population.parameters()]
    values = [parameter.detach().clone() for parameter in critic.parameters()]
    settings, rng = replace(SETTINGS, critic_epochs=3, minibatches=2), np.random.default_rng(0)
    report = actor_critic(population, critic, optimizer, trajectory, rewards, settings, rng, critic_only=True)
    assert (report.steps, report.kl) == (6, 0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, population.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(values, critic.parameters(), strict=True))
    rewards[0, 0, 0] = math.nan
    report = actor_critic(population, critic, optimizer, trajectory, rewards, settings, rng)
    assert not math.isfinite(report.gradient_norm)
    assert all(torch.equal(a, b) for a, b in zip(before, population.parameters(), strict=True))


def test_rewards_that_are_all_alike_move_no_policy():
    population, critic, optimizer, trajectory, rewards = setup()
    rewards[0], rewards[1:] = rewards[0], 0.0
    settings = replace(SETTINGS, entropy_coef=0.0)
    actor_critic(population, critic, optimizer, trajectory, rewards, settings, np.random.default_rng(0))
    assert population.adapter_weight.grad[0].abs().sum() > 0
    assert population.adapter_weight.grad[1:].abs().sum() == 0
    population, critic, optimizer, trajectory, rewards = setup()
    before, rate = [p.detach().clone() for p in population.parameters()], optimizer.param_groups[0]["lr"]
    actor_critic(population, critic, optimizer, trajectory, rewards * 0, settings, np.random.default_rng(0))
    assert all(torch.equal(a, b) for a, b in zip(before, population.parameters(), strict=True))
    assert optimizer.param_groups[0]["lr"] == rate


def test_without_a_target_the_rate_stays():
    population, critic, optimizer, trajectory, rewards = setup()
    rate = optimizer.param_groups[0]["lr"]
    settings = replace(SETTINGS, desired_kl=None, update_epochs=3)
    report = actor_critic(population, critic, optimizer, trajectory, rewards, settings, np.random.default_rng(0))
    assert (report.steps, optimizer.param_groups[0]["lr"]) == (3, rate)


def test_a_gradient_that_is_not_finite_is_not_taken():
    population, critic, optimizer, trajectory, rewards = setup()
    before = [parameter.detach().clone() for parameter in population.parameters()]
    rewards[0, 0, 0] = math.nan
    report = actor_critic(population, critic, optimizer, trajectory, rewards, SETTINGS, np.random.default_rng(0))
    assert not math.isfinite(report.gradient_norm)
    for old, new in zip(before, population.parameters(), strict=True):
        torch.testing.assert_close(old, new, rtol=0, atol=0)


def test_standardised_rewards():
    rng = np.random.default_rng(0)
    rewards = torch.from_numpy(rng.normal(5, 3, (2, 3, 50))).float()
    valid = torch.from_numpy(rng.random((2, 3, 50)) < 0.9)
    found = standardised(rewards, valid)
    assert float(found[valid].mean()) == pytest.approx(0, abs=1e-5)
    assert float(found[valid].std()) == pytest.approx(1, abs=1e-2)
    assert (found[~valid] == 0).all()
    assert (standardised(rewards, torch.zeros_like(valid)) == 0).all()


def steps_of(episode_steps, terminated=None, valid=None):
    """A trajectory of one agent in one replica, with these flags."""
    *_, trajectory, _ = setup()
    ages, share = torch.tensor(episode_steps)[None, None], Share(1, 1)
    none, every = [False] * len(episode_steps), [True] * len(episode_steps)
    ended, counts = (torch.tensor(flags)[None, None] for flags in (terminated or none, valid or every))
    return replace(trajectory, episode_steps=ages, terminated=ended, valid=counts, share=share)


def test_the_way_gone_is_the_place_along_it_but_for_where_an_episode_begins():
    """For L steps: sum of g^t (1 - g) P(s_t+1) + g^L P(s_L) = P(s_0) + sum of g^t (P(s_t+1) - P(s_t))."""
    gamma, steps = 0.9, 12
    along = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 1, 1 + steps)))
    gone = way_gone(along, steps_of([*range(5, 5 + steps)]))
    discounts = gamma ** torch.arange(steps)
    places = (1 - gamma) * (discounts * along[0, 0, 1:]).sum() + gamma**steps * along[0, 0, -1]
    assert float(along[0, 0, 0] + (discounts * gone[0, 0]).sum()) == pytest.approx(float(places))


def test_no_way_is_gone_where_an_episode_begins_and_back_where_one_is_terminated():
    along = torch.tensor([[[1.0, 2.0, 4.0, 7.0, 0.5, 1.5]]])
    timed_out = way_gone(along, steps_of([6, 7, 8, 0, 1]))
    assert timed_out[0, 0].tolist() == [1.0, 2.0, 3.0, 0.0, 1.0]
    terminated = way_gone(along, steps_of([6, 7, 8, 0, 1], [False, False, True, False, False]))
    assert terminated[0, 0].tolist() == [1.0, 2.0, 3.0 - 6.5, 0.0, 1.0]


def test_no_way_is_gone_where_it_is_not_known():
    along = torch.tensor([[[math.nan, 2.0, 4.0, math.nan, math.nan]]])
    gone = way_gone(along, steps_of([3, 4, 5, 6], valid=[True, True, False, False]))
    assert gone[0, 0].tolist() == [0.0, 2.0, 0.0, 0.0]


def test_rewards_and_the_way_gone_are_on_one_scale():
    rng = np.random.default_rng(1)
    worth, along = (torch.from_numpy(rng.normal(3, 5, (1, 1, steps))) for steps in (8, 9))
    trajectory = steps_of([*range(2, 10)])
    told = scaled_rewards(Rewards(0.0, 8, worth, along), trajectory, 0.9)
    deviation = float((worth + along[..., 1:]).std()) + 1e-8
    expected = 0.1 * (worth - worth.mean()) / deviation + along.diff(dim=-1) / deviation
    torch.testing.assert_close(told, expected)
    alone = scaled_rewards(Rewards(0.0, 8, worth), trajectory, 0.9)
    torch.testing.assert_close(alone, per_step(standardised(worth, trajectory.valid), 0.9))


def test_a_single_valid_step_is_worth_nothing():
    trajectory = steps_of([4, 5], valid=[True, False])
    rewards = Rewards(0.0, 1, torch.tensor([[[7.0, 0.0]]]), torch.tensor([[[1.0, 2.0, math.nan]]]))
    assert (scaled_rewards(rewards, trajectory, 0.9) == 0).all()
