import numpy as np
import pytest

from kmyriad.errors import UsageError
from kmyriad.objective.discriminant import log_probability_of_owner
from kmyriad.objective.entropy import log_ball_volume
from kmyriad.objective.rewards import estimate_entropy, estimate_novelty
from kmyriad.rollout.collect import Visits


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


def test_diversity_adds_how_well_the_state_tells_its_head():
    pool = [segment(0), segment(1, scale=3.0, broken=True)]
    among_all, diverse = estimate_novelty(pool, 4), estimate_novelty(pool, 4, diversity=0.5)
    assert diverse.entropy == among_all.entropy
    everything = np.concatenate([part.features[part.sound] for part in pool])
    heads = np.concatenate([np.nonzero(part.sound)[0] for part in pool])
    for place in [(0, 0, 0), (1, 3, 6), (1, 4, 19)]:
        told = log_probability_of_owner(everything, heads, 2, pool[1].features[place][None], np.array(place[:1]))
        assert diverse.rewards[place] == pytest.approx(float(among_all.rewards[place] + 0.5 * told[0]), rel=1e-4)
    assert (diverse.rewards[~pool[1].sound] == 0).all()
    alone = [Visits(part.features[:1], None, part.sound[:1]) for part in pool]
    np.testing.assert_array_equal(estimate_novelty(alone, 4, 0.5).rewards, estimate_novelty(alone, 4).rewards)


def test_diversity_prefers_what_only_the_own_head_visits():
    """Two clusters, head 0 in both of them, head 1 only in the second: for head 0 the first is worth more."""
    rng = np.random.default_rng(0)
    features = rng.normal(0, 0.1, (2, 5, 20, 2)).astype(np.float32)
    features[0, :, 10:] += 9.0
    features[1] += 9.0
    visits = Visits(features, None, np.ones((2, 5, 20), bool))
    gain = estimate_novelty([visits], 4, diversity=1.0).rewards - estimate_novelty([visits], 4).rewards
    assert gain[0, :, :10].mean() > gain[0, :, 10:].mean() + 1


def test_heads_are_worth_more_where_they_are_expected():
    pool, ahead = [segment(0)], np.array([(5.0, 0.0), (-5.0, 0.0)], np.float32)
    gain = estimate_novelty(pool, 4, 1.0, ahead).rewards - estimate_novelty(pool, 4, 1.0).rewards
    right = pool[0].features[..., 0] > 0
    assert gain[0][right[0]].mean() > gain[0][~right[0]].mean() + 1
    assert gain[1][right[1]].mean() < gain[1][~right[1]].mean() - 1


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
