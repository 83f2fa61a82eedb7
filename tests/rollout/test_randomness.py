import gymnasium
import numpy as np
import pytest

from kmyriad.population.distributions import action_spec
from kmyriad.rollout.randomness import action_noise, generator, reset_seed


def test_noise_depends_on_seed_iteration_and_replica_alone():
    spec = action_spec(gymnasium.spaces.Box(-1, 1, (2,), np.float32))
    noise = action_noise(3, 7, np.arange(5), 20, spec)
    shard = np.array([1, 4])  # sees the same
    np.testing.assert_array_equal(action_noise(3, 7, shard, 20, spec), noise[:, shard])
    np.testing.assert_array_equal(action_noise(3, 7, np.arange(5), 8, spec), noise[:8])
    for other in (action_noise(4, 7, np.arange(5), 20, spec), action_noise(3, 8, np.arange(5), 20, spec)):
        assert abs(np.corrcoef(other.ravel(), noise.ravel())[0, 1]) < 0.2
    assert abs(np.corrcoef(noise[:, 0].ravel(), noise[:, 1].ravel())[0, 1]) < 0.4
    many = action_noise(0, 1, np.arange(200), 50, spec)
    assert abs(many.mean()) < 0.02
    assert many.std() == pytest.approx(1, abs=0.02)


def test_every_purpose_has_a_generator_of_its_own():
    drawn = [generator(*key).random() for key in ((0, 1), (0, 2), (1, 1), (0, 1, 1), (0, 1, 2))]
    assert len(set(drawn)) == len(drawn)
    assert generator(0, 1, 2).random() == drawn[-1]


def test_reset_seeds_depend_on_seed_and_iteration():
    seeds = [reset_seed(seed, iteration) for seed in range(3) for iteration in range(3)]
    assert len(set(seeds)) == 9
    assert seeds[4] == reset_seed(1, 1)
