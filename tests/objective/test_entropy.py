import math
from typing import Any

import numpy as np
import pytest
import scipy.special  # type: ignore[import-untyped]
import scipy.stats  # type: ignore[import-untyped]
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import cKDTree  # type: ignore[import-untyped]
from scipy.spatial.distance import cdist  # type: ignore[import-untyped]

from kmyriad.errors import UsageError
from kmyriad.objective.entropy import (
    MIN_RADIUS,
    effective_sample_size,
    knn_entropy,
    log_ball_volume,
    neighbourhood_kl,
    particle_rewards,
    weighted_knn_entropy,
)
from kmyriad.objective.neighbours import Neighbours, nearest_neighbours

NUMBER = 20_000


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def reference_entropy(points: NDArray[np.float64], k: int) -> float:
    """Eq. 1 by brute force, with scipy's functions and the sums written out."""
    n, d = points.shape
    radii = np.sort(cdist(points, points), axis=1)[:, k]
    log_unit_ball = d / 2 * np.log(np.pi) - scipy.special.gammaln(d / 2 + 1)
    return float(np.log(n) - scipy.special.digamma(k) + log_unit_ball + d / n * np.log(radii).sum())


def reference_weighted_entropy(weights: NDArray[np.float64], neighbours: Neighbours, dimension: int) -> float:
    """The weighted estimate in plain loops, in linear space."""
    n, k = neighbours.indices.shape
    weights = weights / weights.sum()
    unit_ball = np.pi ** (dimension / 2) / math.gamma(dimension / 2 + 1)
    total = 0.0
    for i in range(n):
        share = weights[i] + sum(weights[j] for j in neighbours.indices[i, : k - 1])
        volume = unit_ball * float(neighbours.distances[i, -1]) ** dimension
        total -= share / k * np.log(share / volume)
    return float(total + np.log(k) - scipy.special.digamma(k))


def cloud(number: int = 200, dimension: int = 2, k: int = 4, seed: int = 0) -> Neighbours:
    return nearest_neighbours(rng(seed).normal(size=(number, dimension)), k)


def test_ball_volumes() -> None:
    assert float(log_ball_volume(torch.tensor(2.0), 1)) == pytest.approx(np.log(4))
    assert float(log_ball_volume(torch.tensor(3.0), 2)) == pytest.approx(np.log(9 * np.pi))
    np.testing.assert_allclose(log_ball_volume(torch.tensor([[1.0, 0.5]]), 3), np.log([[4 / 3 * np.pi, np.pi / 6]]))
    assert log_ball_volume(torch.tensor(0.0), 3) == log_ball_volume(torch.tensor(MIN_RADIUS), 3) > -np.inf
    with pytest.raises(UsageError, match="dimension must be at least 1; got 0"):
        log_ball_volume(torch.tensor(1.0), 0)


@pytest.mark.parametrize("dimension", range(1, 8))
def test_entropy_of_gaussians(dimension: int) -> None:
    deviations = np.linspace(0.7, 1.5, dimension)
    rotation = scipy.stats.ortho_group.rvs(dimension, random_state=1) if dimension > 1 else np.eye(1)
    points = (rng(dimension).normal(size=(NUMBER, dimension)) * deviations) @ rotation + 5
    expected = dimension / 2 * np.log(2 * np.pi * np.e) + np.log(deviations).sum()
    assert knn_entropy(points, 5) == pytest.approx(expected, abs=0.03 + 0.01 * dimension)


@pytest.mark.parametrize(("dimension", "tolerance"), [(1, 0.02), (2, 0.03), (3, 0.08)])
def test_entropy_of_uniform_boxes(dimension: int, tolerance: float) -> None:
    sides = np.arange(1, dimension + 1) / 2
    points = rng(dimension).uniform(size=(NUMBER, dimension)) * sides
    assert knn_entropy(points, 5) == pytest.approx(np.log(sides).sum(), abs=tolerance)


@pytest.mark.parametrize("dimension", range(1, 8))
def test_entropy_of_uniforms_without_walls(dimension: int) -> None:
    """On a torus, since in many dimensions most points of a box are near its walls, where balls reach outside."""
    points = rng(dimension).uniform(size=(NUMBER // 2, dimension))
    distances, indices = cKDTree(points, boxsize=1).query(points, 6)
    neighbours = Neighbours(torch.from_numpy(indices[:, 1:]), torch.from_numpy(distances[:, 1:]).float())
    assert knn_entropy(points, 5, neighbours) == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("dimension", [1, 2, 5, 12])
@pytest.mark.parametrize("k", [1, 4])
def test_entropy_equals_brute_force(dimension: int, k: int) -> None:
    points = rng().normal(size=(400, dimension))
    assert knn_entropy(points, k) == pytest.approx(reference_entropy(points, k), abs=1e-5)


@pytest.mark.parametrize("distribution", [scipy.stats.norm(1, 3), scipy.stats.uniform(0, 5), scipy.stats.gamma(3)])
def test_entropy_agrees_with_scipy_in_one_dimension(distribution: Any) -> None:
    values = distribution.rvs(NUMBER, random_state=0)
    ours = knn_entropy(values[:, None], 5)
    assert ours == pytest.approx(scipy.stats.differential_entropy(values), abs=0.03)
    assert ours == pytest.approx(distribution.entropy(), abs=0.03)


def test_entropy_moves_with_scale_and_not_with_place() -> None:
    points = rng().normal(size=(2000, 3))
    entropy = knn_entropy(points, 5)
    assert knn_entropy(points * 10, 5) == pytest.approx(entropy + 3 * np.log(10), abs=1e-4)
    assert knn_entropy(points + 1e6, 5) == pytest.approx(entropy, abs=1e-4)


def test_entropy_of_equal_points_is_low_and_finite() -> None:
    assert -100 < knn_entropy(np.ones((50, 3)), 4) < knn_entropy(rng().normal(size=(50, 3)), 4) - 10


def test_bad_points_are_refused() -> None:
    with pytest.raises(UsageError, match="row 3"):
        knn_entropy(np.array([[0.0], [1.0], [2.0], [np.nan]]), 1)
    with pytest.raises(UsageError, match="need at least 5 points; got 4"):
        knn_entropy(np.zeros((4, 2)), 4)
    with pytest.raises(UsageError, match=r"neighbours are \(200, 4\) but points and k ask for \(200, 5\)"):
        knn_entropy(np.zeros((200, 2)), 5, cloud())


@pytest.mark.parametrize("dimension", [1, 3, 12])
@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("level", [0.0, -700.0, 1e4])
def test_equal_weights_give_the_plain_estimate(dimension: int, k: int, level: float) -> None:
    points = rng().normal(size=(300, dimension))
    neighbours = nearest_neighbours(points, k)
    weighted = weighted_knn_entropy(torch.full((300,), level, dtype=torch.float64), neighbours, dimension)
    assert weighted.shape == ()
    assert weighted.item() == pytest.approx(knn_entropy(points, k, neighbours), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 4), k=st.integers(1, 6), spread=st.floats(0, 3))
def test_weighted_estimate_equals_plain_loops(seed: int, dimension: int, k: int, spread: float) -> None:
    neighbours = cloud(30, dimension, k, seed)
    log_weights = spread * rng(seed + 1).normal(size=30)
    ours = weighted_knn_entropy(torch.tensor(log_weights), neighbours, dimension).item()
    assert ours == pytest.approx(reference_weighted_entropy(np.exp(log_weights), neighbours, dimension), abs=1e-9)


def test_weights_turn_one_gaussian_into_another() -> None:
    points = 2 * rng().normal(size=(NUMBER, 2))
    log_weights = torch.tensor(-0.5 * (points**2).sum(axis=1) * (1 - 1 / 4))
    estimate = weighted_knn_entropy(log_weights, nearest_neighbours(points, 5), 2).item()
    assert estimate == pytest.approx(np.log(2 * np.pi * np.e), abs=0.05)


@pytest.mark.parametrize("extreme", [-1e6, -math.inf, 1e6])
def test_extreme_weights_give_finite_values_and_gradients(extreme: float) -> None:
    values = torch.zeros(200)
    values[:150] = extreme
    log_weights = values.requires_grad_()
    neighbours = cloud()
    for value in (weighted_knn_entropy(log_weights, neighbours, 2), neighbourhood_kl(log_weights, neighbours)):
        (gradient,) = torch.autograd.grad(value, log_weights)
        assert value.isfinite()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("duplicates", [False, True])
def test_particle_rewards_are_the_gradient_at_equal_weights(dimension: int, k: int, duplicates: bool) -> None:
    points = rng().normal(size=(400, dimension))
    if duplicates:
        points[:20], points[20:23] = points[30], points[31]
    neighbours = nearest_neighbours(points, k)
    log_weights = torch.zeros(400, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(weighted_knn_entropy(log_weights, neighbours, dimension), log_weights)
    rewards = particle_rewards(neighbours, dimension)
    assert rewards.shape == (400,)
    assert rewards.dtype == torch.float32
    rewards = rewards.double()
    assert relative_error(((rewards - rewards.mean()) / 400).numpy(), gradient.numpy()) < 1e-5


def test_centred_rewards() -> None:
    neighbours = cloud()
    values = log_ball_volume(neighbours.distances[:, -1], 2)
    expected = np.zeros(200)
    for i in range(200):
        for j in (i, *neighbours.indices[i, :-1]):
            expected[j] += (values[i] - values.mean()) / 4
    np.testing.assert_allclose(particle_rewards(neighbours, 2, centred=True), expected, rtol=1e-5, atol=1e-6)
    assert float(particle_rewards(neighbours, 2, centred=True).mean()) == pytest.approx(0, abs=1e-5)


def test_lonely_points_earn_more_than_crowded_ones() -> None:
    points = np.concatenate([0.1 * rng().normal(size=(300, 2)), 5 + 3 * rng(1).normal(size=(300, 2))])
    rewards = particle_rewards(nearest_neighbours(points, 5), 2, centred=True)
    assert rewards[:300].mean() < -1 < 1 < rewards[300:].mean()


def relative_error(ours: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(ours - expected) / np.linalg.norm(expected))


class Population:
    """Linear-Gaussian agents and the trajectories they make in a small world: agents x trajectories x steps."""

    agents, trajectories, steps, state_size, action_size = 3, 5, 12, 3, 2

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.gains = (0.3 * normal(self.agents, self.state_size, self.action_size)).requires_grad_()
        self.biases = (0.3 * normal(self.agents, self.action_size)).requires_grad_()
        self.log_deviations = (0.1 * normal(self.agents, self.action_size)).requires_grad_()
        push = normal(self.action_size, self.state_size)
        state = torch.zeros(self.agents, self.trajectories, self.state_size, dtype=torch.float64)
        states, actions, particles = [], [], []
        with torch.no_grad():
            for _ in range(self.steps):
                mean, deviation = self._policy(state[:, :, None])
                action = mean[:, :, 0] + deviation[:, :, 0] * normal(self.agents, self.trajectories, self.action_size)
                states.append(state)
                actions.append(action)
                state = 0.9 * state + 0.2 * torch.tanh(action @ push)
                particles.append(state)
        self.states, self.actions = torch.stack(states, 2), torch.stack(actions, 2)
        self.particles = torch.stack(particles, 2)

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [self.gains, self.biases, self.log_deviations]

    def _policy(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = torch.einsum("mnts,msa->mnta", states, self.gains) + self.biases[:, None, None]
        return mean, self.log_deviations.exp()[:, None, None].expand_as(mean)

    def log_probabilities(self) -> torch.Tensor:
        """(agents, trajectories, steps)."""
        mean, deviation = self._policy(self.states)
        return -(0.5 * ((self.actions - mean) / deviation) ** 2 + deviation.log() + 0.5 * math.log(2 * math.pi)).sum(-1)


def test_policy_gradient_on_particle_rewards_is_the_gradient_of_the_entropy() -> None:
    population = Population()
    neighbours = nearest_neighbours(population.particles.reshape(-1, 3).numpy(), 4)
    number = len(neighbours.indices)
    agent = torch.arange(number) // (population.trajectories * population.steps)
    assert (agent[:, None] != agent[neighbours.indices]).float().mean() > 0.2, "neighbourhoods must cross agents"

    log_probabilities = population.log_probabilities()
    log_weights = (log_probabilities - log_probabilities.detach()).cumsum(-1).reshape(-1)
    expected = torch.autograd.grad(weighted_knn_entropy(log_weights, neighbours, 3), population.parameters)

    rewards = particle_rewards(neighbours, 3).double()
    advantages = (rewards - rewards.mean()).reshape(log_probabilities.shape)
    to_go = advantages.flip(-1).cumsum(-1).flip(-1)
    gradients = torch.autograd.grad((population.log_probabilities() * to_go).sum() / number, population.parameters)

    for ours, exact in zip(gradients, expected, strict=True):
        for of_agent, exact_of_agent in zip(ours, exact, strict=True):
            assert relative_error(of_agent.numpy(), exact_of_agent.numpy()) < 1e-4


def test_gradient_raises_the_entropy() -> None:
    neighbours = cloud()
    rewards = particle_rewards(neighbours, 2).double()
    step = 1e-3 * (rewards - rewards.mean())
    at_rest, forth, back = (weighted_knn_entropy(sign * step, neighbours, 2).item() for sign in (0, 1, -1))
    assert back < at_rest < forth
    assert (forth - back) / 2 == pytest.approx((step @ (rewards - rewards.mean())).item() / 200, rel=1e-3)


def test_neighbourhood_kl() -> None:
    neighbours = cloud()
    assert neighbourhood_kl(torch.full((200,), 3.0), neighbours).item() == pytest.approx(0, abs=1e-6)
    log_weights = torch.tensor(rng().normal(size=200), requires_grad=True)
    weights = torch.softmax(log_weights.detach(), 0).numpy()
    shares = [weights[i] + weights[neighbours.indices[i, :3]].sum() for i in range(200)]
    expected = np.mean(np.log(4 / (200 * np.array(shares))))
    kl = neighbourhood_kl(log_weights, neighbours)
    assert kl.item() == pytest.approx(expected, abs=1e-12)
    assert kl.item() > 0.05
    assert torch.autograd.grad(kl, log_weights)[0].abs().sum() > 0


def test_neighbourhood_kl_is_never_negative() -> None:
    neighbours = cloud(40)
    in_degree = torch.bincount(neighbours.indices[:, :-1].flatten(), minlength=40) + 1
    tilted = 0.05 * in_degree.double()
    shares = [torch.softmax(tilted, 0)[[i, *neighbours.indices[i, :3].tolist()]].sum() for i in range(40)]
    assert torch.log(4 / (40 * torch.stack(shares))).mean() < 0, "without the floor it would be"
    assert neighbourhood_kl(tilted, neighbours).item() == 0


def test_effective_sample_size() -> None:
    assert effective_sample_size(torch.full((50,), -3.0)).item() == pytest.approx(1, abs=1e-5)
    one_left = torch.zeros(50)
    one_left[7] = 1e3
    assert effective_sample_size(one_left).item() == pytest.approx(1 / 50)
    weights = rng().uniform(0.1, 2, 50)
    expected = weights.sum() ** 2 / (weights**2).sum() / 50
    assert effective_sample_size(torch.tensor(np.log(weights)) + 800).item() == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(199,), (200, 1), ()])
def test_bad_log_weights(shape: tuple[int, ...]) -> None:
    message = r"log_weights must have shape \(200,\), one per point; got"
    with pytest.raises(UsageError, match=message):
        weighted_knn_entropy(torch.zeros(shape), cloud(), 2)
    with pytest.raises(UsageError, match=message):
        neighbourhood_kl(torch.zeros(shape), cloud())
