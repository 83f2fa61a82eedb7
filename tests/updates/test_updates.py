"""The updates against autograd through the estimator itself, on small problems in double precision."""

from dataclasses import replace
from importlib import import_module

import gymnasium
import numpy as np
import pytest
import torch

from kmyriad.config import ActorCritic, Reinforce, TrustRegion, rule_name
from kmyriad.errors import UsageError
from kmyriad.objective.entropy import weighted_knn_entropy
from kmyriad.objective.rewards import exact_rewards, novelty_rewards
from kmyriad.population.distributions import action_spec
from kmyriad.population.network import Critic
from kmyriad.population.population import Population
from kmyriad.processes import Share
from kmyriad.rollout.collect import Segment, Trajectory
from kmyriad.updates import update
from kmyriad.updates.actor_critic import actor_critic, per_step, standardised
from kmyriad.updates.gradient import accumulate, to_go
from kmyriad.updates.reinforce import reinforce
from kmyriad.updates.trust_region import _coefficients, _log_weights, trust_region

AGENTS, PER_AGENT, STEPS, K = 3, 4, 7, 3
SPACES = [gymnasium.spaces.Box(-1, 1, (2,), np.float32), gymnasium.spaces.Discrete(3)]


def problem(space=SPACES[0], seed=0, with_dones=True, with_broken=True):
    """A population and a trajectory whose states all agents share, so that neighbours cross agents."""
    rng = np.random.default_rng(seed)
    spec = action_spec(space)
    population = Population(AGENTS, 5, spec, trunk_hidden=(8,), agent_hidden=6, initial_std=0.7, seed=seed).double()
    observations = torch.from_numpy(rng.standard_normal((AGENTS, PER_AGENT, STEPS, 5)))
    with torch.no_grad():
        noise = torch.from_numpy(spec.noise(rng, (AGENTS, PER_AGENT * STEPS, spec.size))).double()
        policy = population(observations.flatten(1, 2))
        actions = policy.sample(noise)
        log_probs = policy.log_prob(actions).view(AGENTS, PER_AGENT, STEPS)
    dones = torch.zeros(AGENTS, PER_AGENT, STEPS, dtype=torch.bool)
    dones[..., -1] = True
    if with_dones:
        dones[:, 1, 3] = True
    valid = torch.ones_like(dones)
    if with_broken:
        valid[1, 2, 4:] = False
    features = torch.from_numpy(rng.standard_normal((AGENTS, PER_AGENT, STEPS, 2))).float()
    trajectory = Trajectory(
        features=features,
        xy=features,
        valid=valid,
        dones=dones,
        terminated=torch.zeros_like(dones),
        success=torch.zeros_like(dones),
        rewards=torch.zeros(dones.shape),
        episode_steps=torch.zeros(dones.shape, dtype=torch.int64),
        observations=observations,
        actions=actions.view(AGENTS, PER_AGENT, STEPS, -1),
        log_probs=log_probs,
        next_observations=None,
        last_observations=None,
        share=Share(AGENTS, PER_AGENT),
    )
    return population, trajectory


def older(trajectory, seed=9):
    features = torch.from_numpy(np.random.default_rng(seed).standard_normal(trajectory.features.shape)).float()
    return Segment(features, features, torch.ones_like(trajectory.valid))


def pool_of(trajectory, *before):
    return [*before, Segment(trajectory.features, trajectory.xy, trajectory.valid)]


def autograd_gradient(population, trajectory, estimate):
    """Of the weighted estimator, through the cumulative importance weights of every episode, one graph over all."""
    population.zero_grad()
    log_probs = population(trajectory.observations.flatten(1, 2)).log_prob(trajectory.actions.flatten(1, 2))
    ratios = log_probs.view(AGENTS, PER_AGENT, STEPS) - trajectory.log_probs
    log_weights = [torch.zeros((), dtype=torch.float64)] * estimate.particles
    for agent in range(AGENTS):
        for replica in range(PER_AGENT):
            running = torch.zeros((), dtype=torch.float64)
            for step in range(STEPS):
                running = running + ratios[agent, replica, step]
                if trajectory.valid[agent, replica, step]:
                    log_weights[estimate.newest[agent, replica, step]] = running
                if trajectory.dones[agent, replica, step]:
                    running = torch.zeros((), dtype=torch.float64)
    entropy = weighted_knn_entropy(torch.stack(log_weights), estimate.neighbours, estimate.dimension)
    (-entropy).backward()
    return {name: parameter.grad.clone() for name, parameter in population.named_parameters()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("space", SPACES, ids=["box", "discrete"])
@pytest.mark.parametrize("segments", [1, 3])
def test_closed_form_gradient_is_autograds(space, seed, segments):
    population, trajectory = problem(space, seed)
    estimate = exact_rewards(pool_of(trajectory, *[older(trajectory, s) for s in range(segments - 1)]), K)
    expected = autograd_gradient(population, trajectory, estimate)
    # The particle rewards are stored as float32; the trust region's coefficients are float32 too.
    valid, dones = trajectory.valid, trajectory.dones
    closed = to_go(estimate.rewards.double(), dones) * valid / estimate.particles
    through = _coefficients(_log_weights(trajectory.log_probs, trajectory, estimate), trajectory, estimate).double()
    for coefficients in (closed, through):
        norm = accumulate(population, trajectory, coefficients, chunk=11)
        found = {name: parameter.grad for name, parameter in population.named_parameters()}
        error = sum((found[n] - expected[n]).square().sum() for n in expected).sqrt()
        assert error / norm < 1e-4
        for name, gradient in expected.items():  # and for every agent by itself
            if not name.startswith("trunk"):
                for agent in range(AGENTS):
                    assert (found[name][agent] - gradient[agent]).norm() < 1e-3 * gradient[agent].norm() + 1e-9


def test_chunks_change_nothing_but_rounding():
    population, trajectory = problem()
    coefficients = torch.randn(AGENTS, PER_AGENT, STEPS, dtype=torch.float64)
    accumulate(population, trajectory, coefficients, chunk=10**9)
    whole = [parameter.grad.clone() for parameter in population.parameters()]
    for chunk in (1, 5, 20):
        accumulate(population, trajectory, coefficients, chunk=chunk)
        for parameter, gradient in zip(population.parameters(), whole, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


def test_an_agents_own_parameters_learn_only_from_its_own_replicas():
    population, trajectory = problem()
    coefficients = torch.zeros(AGENTS, PER_AGENT, STEPS, dtype=torch.float64)
    coefficients[1] = torch.randn(PER_AGENT, STEPS, dtype=torch.float64)
    accumulate(population, trajectory, coefficients, chunk=1000)
    for name, parameter in population.named_parameters():
        if name.startswith("trunk"):
            assert parameter.grad.abs().max() > 0
        else:
            assert parameter.grad[1].abs().max() > 0
            assert parameter.grad[[0, 2]].abs().max() == 0


def test_steps_after_a_break_teach_nothing():
    _, trajectory = problem()
    estimate = exact_rewards(pool_of(trajectory), K)
    assert estimate.particles == trajectory.valid.sum()
    assert (estimate.rewards[~trajectory.valid] == 0).all()
    assert (estimate.newest[~trajectory.valid] == -1).all()


def test_to_go_stops_at_the_end_of_an_episode():
    values = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
    dones = torch.tensor([[False, True, False, False]])
    assert to_go(values, dones).tolist() == [[3.0, 2.0, 12.0, 8.0]]


def test_reinforce_takes_one_adam_step():
    population, trajectory = problem()
    estimate = exact_rewards(pool_of(trajectory), K)
    reference, _ = problem()
    expected = autograd_gradient(reference, trajectory, estimate)
    adam = torch.optim.Adam(reference.parameters(), lr=1e-3)
    for name, parameter in reference.named_parameters():
        parameter.grad = expected[name]
    adam.step()
    report = reinforce(population, torch.optim.Adam(population.parameters(), lr=1e-3), trajectory, estimate)
    assert report.steps == 1
    assert report.kl > 0
    for ours, theirs in zip(population.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


def test_a_gradient_that_is_not_finite_is_skipped():
    population, trajectory = problem(with_broken=False)
    before = [parameter.detach().clone() for parameter in population.parameters()]
    trajectory.observations[0, 0, 0, 0] = torch.inf
    estimate = exact_rewards(pool_of(trajectory), K)
    optimizer = torch.optim.Adam(population.parameters(), lr=1e-3)
    for rule in (reinforce, lambda *a: trust_region(*a, TrustRegion(kl_bound=0.1, trust_region_steps=3))):
        assert rule(population, optimizer, trajectory, estimate).steps == 0
        for parameter, old in zip(population.parameters(), before, strict=True):
            torch.testing.assert_close(parameter.detach(), old, rtol=0, atol=0)


@pytest.mark.parametrize("bound", [1e-3, 0.05, 0.5])
def test_trust_region_raises_the_entropy_and_keeps_to_its_bound(bound):
    population, trajectory = problem(with_broken=False)
    estimate = exact_rewards(pool_of(trajectory), K)
    optimizer = torch.optim.Adam(population.parameters(), lr=3e-2)
    rule = TrustRegion(kl_bound=bound, trust_region_steps=20)
    report = trust_region(population, optimizer, trajectory, estimate, rule)
    assert report.steps >= 1
    assert 0 <= report.kl <= bound
    assert 0 < report.effective_sample_size <= 1
    assert optimizer.param_groups[0]["lr"] == 3e-2
    with torch.no_grad():
        now = population(trajectory.observations.flatten(1, 2)).log_prob(trajectory.actions.flatten(1, 2))
        weights = _log_weights(now.view_as(trajectory.log_probs), trajectory, estimate)
        after = weighted_knn_entropy(weights, estimate.neighbours, estimate.dimension)
    assert float(after) > estimate.entropy


def test_a_trust_region_too_small_for_any_step_changes_nothing(monkeypatch):
    module = import_module("kmyriad.updates.trust_region")  # the package has a function of that name
    monkeypatch.setattr(module, "neighbourhood_kl", lambda *_: torch.tensor(1.0))
    population, trajectory = problem(with_broken=False)
    before = [parameter.detach().clone() for parameter in population.parameters()]
    estimate = exact_rewards(pool_of(trajectory), K)
    optimizer = torch.optim.Adam(population.parameters(), lr=1.0)
    rule = TrustRegion(kl_bound=0.1, trust_region_steps=5)
    report = trust_region(population, optimizer, trajectory, estimate, rule)
    assert report.steps == 0
    assert np.isfinite(report.gradient_norm)  # so that it is not taken for a broken gradient
    assert optimizer.param_groups[0]["lr"] == 1.0
    for parameter, old in zip(population.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), old, rtol=0, atol=0)


def updated(rule, seed=0):
    """(parameters, report), after one update by the rule and after one by the function that `rule` stands for."""
    results = []
    for direct in (False, True):
        population, trajectory = problem(seed=seed)
        arrived = trajectory.observations + 0.1
        trajectory = replace(trajectory, next_observations=arrived, last_observations=arrived[:, :, -1])
        critic = Critic(AGENTS, 5, (8, 6), seed=seed).double()
        optimizer = torch.optim.Adam([*population.parameters(), *critic.parameters()], lr=1e-3)
        pool, rng = pool_of(trajectory, older(trajectory)), np.random.default_rng(1)
        has_critic = isinstance(rule, ActorCritic)
        rewards = novelty_rewards(pool, K) if has_critic else exact_rewards(pool, K)
        if not direct:
            report = update(rule, population, critic, optimizer, trajectory, rewards, 1, rng)
        elif has_critic:
            scaled = per_step(standardised(rewards.rewards, trajectory.valid), rule.gamma)
            report = actor_critic(population, critic, optimizer, trajectory, scaled, rule, rng)
        elif isinstance(rule, Reinforce):
            report = reinforce(population, optimizer, trajectory, rewards)
        else:
            report = trust_region(population, optimizer, trajectory, rewards, rule)
        results.append(([p.detach() for p in [*population.parameters(), *critic.parameters()]], report))
    return results


@pytest.mark.parametrize("rule", [ActorCritic(), Reinforce(), TrustRegion(trust_region_steps=3)], ids=rule_name)
def test_the_type_of_the_rule_decides_which_update_is_made(rule):
    (ours, report), (expected, expected_report) = updated(rule)
    assert report == expected_report
    assert report.steps >= 1
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("rule", [Reinforce(), TrustRegion(trust_region_steps=2)], ids=rule_name)
def test_the_rate_falls_after_every_milestone(rule):
    population, trajectory = problem()
    optimizer = torch.optim.Adam(population.parameters(), lr=0.5)
    rule = replace(rule, learning_rate=1e-5, lr_milestones=(2, 4), lr_decay=0.1)
    rates = []
    for iteration in range(1, 7):
        estimate = exact_rewards(pool_of(trajectory), K)
        update(rule, population, None, optimizer, trajectory, estimate, iteration, np.random.default_rng(0))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1e-5, 1e-5, 1e-6, 1e-6, 1e-7, 1e-7])


@pytest.mark.parametrize("rule", [Reinforce(), TrustRegion()], ids=rule_name)
def test_an_objective_without_neighbours_needs_a_critic(rule):
    population, trajectory = problem()
    optimizer, rewards = torch.optim.Adam(population.parameters()), novelty_rewards(pool_of(trajectory), K)
    with pytest.raises(UsageError, match="rewards without neighbours; train on it with update actor_critic"):
        update(rule, population, None, optimizer, trajectory, rewards, 1, np.random.default_rng(0))


def test_returns_are_as_large_as_rewards_were():
    rewards = torch.ones(1, 1, 2000)
    returns = to_go(per_step(rewards, 0.99), torch.zeros(1, 1, 2000, dtype=bool), 0.99)
    assert float(returns[0, 0, 0]) == pytest.approx(1, abs=1e-3)
