import numpy as np
import pytest

from kmyriad.objective.discriminant import log_probability_of_owner


def sample(means, count=4000, seed=0):
    """(particles, owners), normal with a common covariance around each of the means."""
    rng = np.random.default_rng(seed)
    spread = np.array([[1.0, 0.0], [0.8, 0.3]])
    owners = np.repeat(np.arange(len(means)), count)
    particles = np.array(means)[owners] + rng.standard_normal((len(owners), 2)) @ spread
    return particles.astype(np.float32), owners


def test_it_is_bayes_rule_with_normal_densities():
    particles, owners = sample([(0.0, 0.0), (1.0, 2.0), (-1.0, 0.5)])
    asked, asked_owners = particles[::1000], owners[::1000]
    found = log_probability_of_owner(particles, owners, 3, asked, asked_owners)
    means = np.stack([particles[owners == agent].mean(axis=0, dtype=float) for agent in range(3)])
    precision = np.linalg.inv(np.cov((particles - means[owners]).T))
    for state, owner, value in zip(asked.astype(float), asked_owners, found, strict=True):
        densities = np.exp([-0.5 * (state - mean) @ precision @ (state - mean) for mean in means])
        assert value == pytest.approx(np.log(densities[owner] / densities.sum()), rel=1e-2, abs=1e-4)


def test_its_mean_bounds_the_mutual_information():
    """Agents far apart: ln m nats, the most there can be; agents in one place: none."""
    for distance, expected in ((100.0, np.log(2)), (0.0, 0.0)):
        particles, owners = sample([(0.0, 0.0), (distance, 0.0)])
        found = log_probability_of_owner(particles, owners, 2, particles, owners).mean() + np.log(2)
        assert found == pytest.approx(expected, abs=0.01)


def test_agents_may_be_expected_ahead_of_where_they_are():
    """Two agents in one place, expected a deviation to the left and to the right: each is told by its own side."""
    particles, owners = sample([(0.0, 0.0), (0.0, 0.0)])
    particles[:, 1] = np.random.default_rng(1).standard_normal(len(particles))
    ahead = np.array([(-1.0, 0.0), (1.0, 0.0)], np.float32)
    found = log_probability_of_owner(particles, owners, 2, particles, owners, ahead)
    deviations = (2.0 * owners - 1) * particles[:, 0] / particles[:, 0].std()
    np.testing.assert_allclose(found, -np.log1p(np.exp(-2 * deviations)), atol=0.25)
    assert found.mean() + np.log(2) < 0.01  # there is nothing to be told yet


def test_agents_told_apart_by_their_ways_need_few_particles():
    """Sixteen agents around a circle, three particles each: nearer to the truth than with a mean for each of them."""
    angles = 2 * np.pi * np.arange(16) / 16
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    means = 1.5 + 2.0 * ways[:, ::-1]
    asked, asked_owners = sample(means, 50, seed=1)
    few, owners = sample(means, 3, seed=2)
    truth = log_probability_of_owner(*sample(means, 4000, seed=3), 16, asked, asked_owners)
    of_each = log_probability_of_owner(few, owners, 16, asked, asked_owners)
    by_ways = log_probability_of_owner(few, owners, 16, asked, asked_owners, ways=ways)
    assert np.abs(by_ways - truth).mean() < 0.6 * np.abs(of_each - truth).mean()


def test_an_agent_without_particles_and_a_feature_without_variance_do_no_harm():
    particles, owners = sample([(0.0, 0.0), (3.0, 0.0)])
    particles[:, 1] = 7.0
    found = log_probability_of_owner(particles, owners, 3, particles, owners)
    assert np.isfinite(found).all()
    assert found.mean() > np.log(1 / 3)
    still = np.zeros_like(particles)
    np.testing.assert_allclose(log_probability_of_owner(still, owners, 3, still, owners), np.log(1 / 3), rtol=1e-6)
