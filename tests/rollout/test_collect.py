import numpy as np
import pytest
import torch

from kmyriad.errors import UsageError
from kmyriad.population.distributions import action_spec
from kmyriad.population.population import Population
from kmyriad.rollout.collect import collect
from kmyriad.rollout.randomness import action_noise
from kmyriad.rollout.replicas import make_replicas
from tests import walk_env

walk_env.register()


def setup(env="point-maze", count=6, agents=3, horizon=10, **settings):
    replicas = make_replicas(env, count, horizon=horizon, **settings)
    spec = action_spec(replicas.action_space)
    return replicas, Population(agents, replicas.observation_size, spec, trunk=(16,), adapter=8, initial_sigma=0.5)


@pytest.mark.parametrize("env", ["point-maze", "ant-empty", walk_env.CONTINUOUS, walk_env.DISCRETE])
def test_a_whole_horizon(env):
    replicas, population = setup(env)
    replicas.start(0)
    first = replicas.observation.copy()
    trajectory = collect(replicas, population, 10, seed=0, epoch=1)
    assert trajectory.observations.shape == (3, 2, 10, replicas.observation_size)
    assert trajectory.features.shape == (3, 2, 10, replicas.feature_size)
    assert trajectory.steps == 60
    assert trajectory.sound.all()
    assert trajectory.ends[..., -1].all()
    assert not trajectory.ends[..., :-1].any()
    np.testing.assert_array_equal(trajectory.observations[:, :, 0].reshape(6, -1), first)
    replicas.close()


def test_each_head_plays_its_own_share_of_the_replicas():
    replicas, population = setup()
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, epoch=1)
    for head in range(3):
        seen, done = trajectory.observations[head].flatten(0, 1), trajectory.actions[head].flatten(0, 1)
        expected = population.head(head)(seen).log_prob(done)
        torch.testing.assert_close(trajectory.log_probs[head].flatten(), expected, atol=1e-5, rtol=1e-5)


def test_features_are_of_the_state_that_a_step_leads_to():
    replicas, population = setup(features=("x", "y"))
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, epoch=1)
    np.testing.assert_array_equal(trajectory.features[:, :, :-1], trajectory.observations[:, :, 1:, :2])
    np.testing.assert_array_equal(trajectory.xy, trajectory.features)


def test_segments_joined_are_the_whole_horizon_but_for_the_noise():
    """Two segments see what one rollout of twice the length sees, when the actions are the same (sigma tiny)."""
    whole, population = setup(horizon=8)
    parts, _ = setup(horizon=8)
    population.output_bias.data[..., 2:] = -20.0
    population.sigma_range = (1e-9, 2.0)
    whole.start(0), parts.start(0)
    expected = collect(whole, population, 8, seed=0, epoch=1)
    halves = [collect(parts, population, 4, seed=0, epoch=epoch) for epoch in (1, 2)]
    joined = np.concatenate([half.features for half in halves], axis=2)
    np.testing.assert_allclose(joined, expected.features, atol=1e-5)
    assert halves[1].ends[..., -1].all()


def test_staggered_replicas_end_at_different_steps():
    replicas, population = setup(count=6, agents=2, horizon=9)
    replicas.start(0)
    replicas.stagger(3, segment=3)
    ends = collect(replicas, population, 9, seed=0, epoch=1).ends
    assert [[np.flatnonzero(row)[0] for row in agent] for agent in ends] == [[8, 5, 2]] * 2


def test_agents_of_few_replicas_are_of_different_ages():
    replicas, population = setup(count=6, agents=3, horizon=12)
    replicas.start(0)
    replicas.stagger(2, segment=3)  # 6 steps between an agent's replicas: two segments
    ends = collect(replicas, population, 12, seed=0, epoch=1).ends
    assert [[np.flatnonzero(row)[0] for row in agent] for agent in ends] == [[11, 5], [8, 2], [11, 5]]


def test_noise_depends_on_seed_epoch_and_replica_alone():
    spec = action_spec(make_replicas("point-maze", 1, horizon=5).action_space)
    noise = action_noise(3, 7, 5, 20, spec)
    np.testing.assert_array_equal(action_noise(3, 7, 2, 20, spec), noise[:, :2])  # a shard sees the same
    np.testing.assert_array_equal(action_noise(3, 7, 5, 8, spec), noise[:8])
    for other in (action_noise(4, 7, 5, 20, spec), action_noise(3, 8, 5, 20, spec)):
        assert abs(np.corrcoef(other.ravel(), noise.ravel())[0, 1]) < 0.2
    assert abs(np.corrcoef(noise[:, 0].ravel(), noise[:, 1].ravel())[0, 1]) < 0.4
    many = action_noise(0, 1, 200, 50, spec)
    assert abs(many.mean()) < 0.02
    assert many.std() == pytest.approx(1, abs=0.02)


def test_a_replica_that_breaks_is_left_out_from_then_on():
    replicas, population = setup(walk_env.BROKEN, count=30)
    replicas.start(0)
    trajectory = collect(replicas, population, 10, seed=0, epoch=1)
    broken = ~trajectory.sound
    assert 3 <= broken.any(axis=-1).sum() <= 20
    assert not broken[..., :3].any()
    assert (broken[..., 3:].all(axis=-1) == broken.any(axis=-1)).all()
    assert torch.isfinite(trajectory.log_probs).all()
    replicas.start(1)
    assert np.isfinite(replicas.observation).all()


@pytest.mark.parametrize(
    ("env", "settings", "message"),
    [
        ("ant-mazes", {}, "unknown environment 'ant-mazes' .did you mean 'ant-maze'"),
        ("ant-empty", {"features": ("hight",)}, "unknown feature 'hight'"),
        (walk_env.CONTINUOUS, {"features": ("2",)}, "unknown feature '2'.*indices of the observation"),
        ("point-maze", {"settings": {"mapp": "u"}}, "unknown setting 'mapp' .did you mean 'map'"),
    ],
)
def test_bad_environments_are_refused(env, settings, message):
    with pytest.raises(UsageError, match=message):
        make_replicas(env, 2, horizon=5, **settings)


def test_unbounded_actions_are_refused():
    replicas = make_replicas(walk_env.UNBOUNDED, 2, horizon=5)
    with pytest.raises(UsageError, match="unbounded"):
        action_spec(replicas.action_space)
