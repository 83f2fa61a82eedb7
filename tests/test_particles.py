import numpy as np
import pytest

from kmyriad.entropy.estimators import log_ball_volume
from kmyriad.errors import UsageError
from kmyriad.particles import estimate_entropy, estimate_novelty
from kmyriad.rollout import Visits


def segment(seed, scale=1.0, broken=False):
    features = np.random.default_rng(seed).normal(0, scale, (2, 5, 20, 2)).astype(np.float32)
    sound = np.ones((2, 5, 20), bool)
    if broken:
        sound[1, 3, 7:] = False
    return Visits(features, None, sound)


def test_novelty_is_the_volume_that_holds_k_others_of_the_whole_pool():
    pool = [segment(0), segment(1, scale=3.0, broken=True)]
    novelty = estimate_novelty(pool, 4)
    everything = np.concatenate([part.features[part.sound] for part in pool])
    assert novelty.particles == len(everything) == 400 - 13
    for place in [(0, 0, 0), (1, 3, 6), (1, 4, 19)]:
        distances = np.sort(np.linalg.norm(everything - pool[1].features[place], axis=1))
        assert novelty.rewards[place] == pytest.approx(float(log_ball_volume(distances[4], 2)), rel=1e-4)
    assert (novelty.rewards[~pool[1].sound] == 0).all()


def test_its_entropy_is_eq_1_where_the_newest_segment_is_all():
    pool = [segment(3, broken=True)]
    assert estimate_novelty(pool, 4).entropy == pytest.approx(estimate_entropy(pool, 4).entropy, abs=1e-6)


def test_its_entropy_is_near_eq_1_where_the_newest_is_a_fair_sample():
    pool = [segment(seed) for seed in range(30)]
    assert estimate_novelty(pool, 4).entropy == pytest.approx(estimate_entropy(pool, 4).entropy, abs=0.15)


def test_a_far_particle_is_worth_more():
    pool = [segment(0), segment(1)]
    pool[1].features[0, 0, 0] = (30.0, 0.0)
    rewards = estimate_novelty(pool, 4).rewards
    assert rewards[0, 0, 0] == rewards.max()


def test_a_newest_segment_without_a_sound_step_is_worth_nothing():
    empty = segment(1)
    empty.sound[:] = False
    assert (estimate_novelty([segment(0), empty], 4).rewards == 0).all()


def test_too_few_particles_are_told():
    with pytest.raises(UsageError, match="needs more than 500 sound particles; there are 200"):
        estimate_novelty([segment(0)], 500)
