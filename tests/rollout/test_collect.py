import numpy as np
import pytest
import torch

from kmyriad.population.distributions import action_spec
from kmyriad.population.population import Population
from kmyriad.rollout.collect import Outcomes, collect
from kmyriad.rollout.replicas import make_replicas
from tests import walk_env

walk_env.register()


def setup(env="point-maze", count=6, agents=3, horizon=10, **settings):
    replicas = make_replicas(env, count, horizon=horizon, **settings)
    spec, sizes = action_spec(replicas.action_space), {"trunk_hidden": (16,), "agent_hidden": 8}
    return replicas, Population(agents, replicas.observation_size, spec, initial_std=0.5, **sizes)


@pytest.mark.parametrize("env", ["point-maze", "ant-empty", walk_env.CONTINUOUS, walk_env.DISCRETE])
def test_a_whole_horizon(env):
    replicas, population = setup(env)
    replicas.start(0)
    first = replicas.observation.clone()
    trajectory = collect(replicas, population, 10, seed=0, iteration=1)
    assert trajectory.observations.shape == (3, 2, 10, replicas.observation_size)
    assert trajectory.features.shape == (3, 2, 10, replicas.feature_size)
    assert trajectory.steps == 60
    assert trajectory.valid.all()
    assert trajectory.dones[..., -1].all()
    assert not trajectory.dones[..., :-1].any()
    np.testing.assert_array_equal(trajectory.observations[:, :, 0].reshape(6, -1), first)
    replicas.close()


def test_each_agent_plays_its_own_share_of_the_replicas():
    replicas, population = setup()
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, iteration=1)
    for agent in range(3):
        seen, done = trajectory.observations[agent].flatten(0, 1), trajectory.actions[agent].flatten(0, 1)
        expected = population.agent(agent)(seen).log_prob(done)
        torch.testing.assert_close(trajectory.log_probs[agent].flatten(), expected, atol=1e-5, rtol=1e-5)


def test_features_are_of_the_state_that_a_step_leads_to():
    replicas, population = setup(features=("x", "y"))
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, iteration=1)
    np.testing.assert_array_equal(trajectory.features[:, :, :-1], trajectory.observations[:, :, 1:, :2])
    np.testing.assert_array_equal(trajectory.xy, trajectory.features)


def test_segments_joined_are_the_whole_horizon_but_for_the_noise():
    """Two segments see what one rollout of twice the length sees, when the actions are the same (std tiny)."""
    whole, population = setup(horizon=8)
    parts, _ = setup(horizon=8)
    population.output_bias.data[..., 2:] = -20.0
    population.std_range = (1e-9, 2.0)
    whole.start(0), parts.start(0)
    expected = collect(whole, population, 8, seed=0, iteration=1)
    halves = [collect(parts, population, 4, seed=0, iteration=iteration) for iteration in (1, 2)]
    joined = np.concatenate([half.features for half in halves], axis=2)
    np.testing.assert_allclose(joined, expected.features, atol=1e-5)
    assert halves[1].dones[..., -1].all()


def test_a_replica_that_breaks_is_left_out_from_then_on():
    replicas, population = setup(walk_env.BROKEN, count=30)
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, iteration=1)
    broken = ~trajectory.valid
    assert 3 <= broken.any(axis=-1).sum() <= 20
    assert not broken[..., :3].any()
    assert (broken[..., 3:].all(axis=-1) == broken.any(axis=-1)).all()
    assert torch.isfinite(trajectory.log_probs).all()
    replicas.start(1)
    assert replicas.observation.isfinite().all()


def test_episode_steps_count_within_episodes():
    replicas, population = setup(horizon=4)
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, iteration=1)
    assert (trajectory.episode_steps == torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1])).all()
    np.testing.assert_array_equal(trajectory.dones, trajectory.episode_steps == 3)


def test_next_observations_are_kept_on_request_and_from_before_the_reset():
    replicas, population = setup(horizon=5)
    replicas.start(0)
    assert collect(replicas, population, 5, seed=0, iteration=1).next_observations is None
    trajectory = collect(replicas, population, 10, seed=0, iteration=2, keep_next_observations=True)
    follows = ~trajectory.dones[..., :-1]
    seen, reached = trajectory.observations[:, :, 1:], trajectory.next_observations
    np.testing.assert_array_equal(reached[:, :, :-1][follows], seen[follows])
    np.testing.assert_array_equal(reached[..., :2], trajectory.features)
    assert (reached[:, :, 4] != seen[:, :, 4]).any()


def test_visits_are_what_an_entropy_is_estimated_from():
    replicas, population = setup(walk_env.BROKEN, count=30)
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, iteration=1)
    visits = trajectory.visits
    for name in ("features", "valid", "xy"):
        assert np.shares_memory(getattr(visits, name), getattr(trajectory.segment, name).numpy()), name
    np.testing.assert_array_equal(visits.xy, visits.features)  # the first two of two


def test_features_before_a_step_are_those_after_the_last_one():
    """But in the first step of an episode, and of the segment: there those after it are near enough."""
    features = torch.arange(6.0).view(1, 1, 6, 1)
    flags = torch.ones(1, 1, 6, dtype=torch.bool)
    steps = torch.tensor([7, 8, 0, 1, 2, 0]).view(1, 1, 6)
    outcomes = Outcomes(features, features, flags, flags, flags, None, features[..., 0], steps)
    assert outcomes.features_before.flatten().tolist() == [0, 0, 2, 2, 3, 5]
