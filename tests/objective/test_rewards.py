import numpy as np
import pytest
import torch

from kmyriad.config import PretrainConfig, with_settings
from kmyriad.errors import UsageError
from kmyriad.objective.entropy import log_ball_volume
from kmyriad.objective.rewards import Estimate, exact_rewards, novelty_rewards, rewards_of, slide
from kmyriad.objective.spread import along_own_way, ways_of
from kmyriad.population.codes import agent_codes
from kmyriad.rollout.collect import Segment


def segment(seed, scale=1.0, broken=False):
    features = torch.from_numpy(np.random.default_rng(seed).normal(0, scale, (2, 5, 20, 2))).float()
    valid = torch.ones(2, 5, 20, dtype=torch.bool)
    if broken:
        valid[1, 3, 7:] = False
    return Segment(features, features, valid)


def test_novelty_is_the_volume_that_holds_k_others_of_the_whole_pool():
    pool = [segment(0), segment(1, scale=3.0, broken=True)]
    novelty = novelty_rewards(pool, 4)
    everything = torch.cat([part.features[part.valid] for part in pool])
    assert novelty.particles == len(everything) == 400 - 13
    for place in [(0, 0, 0), (1, 3, 6), (1, 4, 19)]:
        distances = (everything - pool[1].features[place]).norm(dim=1).sort().values
        assert novelty.rewards[place] == pytest.approx(float(log_ball_volume(distances[4], 2)), rel=1e-4)
    assert (novelty.rewards[~pool[1].valid] == 0).all()


def test_diversity_tells_how_far_along_its_way_an_agent_is_and_was():
    pool, codes = [segment(0), segment(1, scale=3.0, broken=True)], agent_codes(2, 2)
    pool[0].valid[0, 2, 19] = False
    among_all, diverse = novelty_rewards(pool, 4), novelty_rewards(pool, 4, 0.5, codes)
    assert diverse.entropy == among_all.entropy
    np.testing.assert_array_equal(diverse.rewards, among_all.rewards)
    everything = torch.cat([part.features[part.valid] for part in pool])
    agents = torch.cat([part.valid.nonzero()[:, 0] for part in pool])
    ways = ways_of(everything, agents, codes)
    for agent, replica, step in [(0, 0, 0), (1, 3, 6), (1, 4, 19)]:
        for index, of_then in ((step + 1, pool[1].features[:, :, step]), (0, pool[0].features[:, :, 19])):
            told = along_own_way(everything, of_then[agent, replica][None], torch.tensor([agent]), ways)
            assert diverse.along[agent, replica, index] == pytest.approx(0.5 * float(told[0]), rel=1e-4)
    known = torch.cat([pool[0].valid[:, :, 19:], pool[1].valid], dim=2)
    assert not known.all()
    np.testing.assert_array_equal(diverse.along.isnan(), ~known)
    assert novelty_rewards(pool, 4, 0.5).along is None, "nobody has a code"
    assert novelty_rewards(pool[1:], 4, 0.5, codes).along[:, :, 0].isnan().all(), "nothing is known of before"


def test_diversity_drives_agents_further_apart():
    pool = [segment(0)]
    pool[0].features[0, ..., 0] += 3
    along = novelty_rewards(pool, 4, 1.0, agent_codes(2, 2)).along[..., 1:]
    right = pool[0].features[..., 0]
    assert np.corrcoef(along[0].ravel(), right[0].ravel())[0, 1] > 0.9
    assert np.corrcoef(along[1].ravel(), right[1].ravel())[0, 1] < -0.9


def test_its_entropy_is_eq_1_where_the_newest_segment_is_all():
    pool = [segment(3, broken=True)]
    assert novelty_rewards(pool, 4).entropy == pytest.approx(exact_rewards(pool, 4).entropy, abs=1e-6)


def test_its_entropy_is_near_eq_1_where_the_newest_is_a_fair_sample():
    pool = [segment(seed) for seed in range(30)]
    assert novelty_rewards(pool, 4).entropy == pytest.approx(exact_rewards(pool, 4).entropy, abs=0.15)


def test_a_far_particle_is_worth_more():
    pool = [segment(0), segment(1)]
    pool[1].features[0, 0, 0] = torch.tensor([30.0, 0.0])
    rewards = novelty_rewards(pool, 4).rewards
    assert rewards[0, 0, 0] == rewards.max()


def test_a_newest_segment_without_a_valid_step_is_worth_nothing():
    empty = segment(1)
    empty.valid[:] = False
    assert (novelty_rewards([segment(0), empty], 4).rewards == 0).all()


def test_too_few_particles_are_told():
    with pytest.raises(UsageError, match=r"needs more than 500 valid particles; there are 200: .*or fewer neighbours"):
        novelty_rewards([segment(0)], 500)


def test_the_pool_is_the_newest_segments_of_one_horizon():
    segments, pool = [segment(seed) for seed in range(5)], []
    for number, newest in enumerate(segments, start=1):
        pool = slide(pool, newest, 3)
        assert [id(part) for part in pool] == [id(part) for part in segments[max(0, number - 3) : number]]
    assert slide(pool, segments[0], 1) == [segments[0]]


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        ({"diversity_weight": 0.0}, (0.0,)),
        ({}, (0.5, agent_codes(2, 2))),
        ({"code_size": 1}, (0.5, agent_codes(2, 1))),
        ({"code_size": None}, (0.0,)),
    ],
)
def test_the_settings_choose_what_a_critic_learns_from(settings, arguments):
    pool = [segment(0), segment(1, scale=3.0, broken=True)]
    config = with_settings(PretrainConfig(), {"agents": 2, "neighbours": 4, "diversity_weight": 0.5} | settings)
    found, expected = rewards_of(pool, config), novelty_rewards(pool, 4, *arguments)
    assert (found.entropy, found.particles) == (expected.entropy, expected.particles)
    np.testing.assert_array_equal(found.rewards, expected.rewards)
    assert (found.along is None) == (expected.along is None)
    if expected.along is not None:
        np.testing.assert_array_equal(found.along, expected.along)
    assert not isinstance(found, Estimate)


@pytest.mark.parametrize("rule", ["reinforce", "trust_region"])
def test_without_a_critic_the_objective_is_the_exact_gradient(rule):
    pool = [segment(0), segment(1, scale=3.0, broken=True)]
    settings = {"agents": 2, "neighbours": 4, "update": rule, "rollout_steps": None}
    found, expected = rewards_of(pool, with_settings(PretrainConfig(), settings)), exact_rewards(pool, 4)
    assert isinstance(found, Estimate)
    assert (found.entropy, found.particles) == (expected.entropy, expected.particles)
    np.testing.assert_array_equal(found.rewards, expected.rewards)
