import numpy as np
import pytest
import torch

from kmyriad.envs.symmetry import SignedOrder
from kmyriad.objective import spread
from kmyriad.population.codes import agent_codes


def ways_of(particles, owners, codes, views=()):
    return spread.ways_of(torch.from_numpy(particles), torch.from_numpy(owners), codes, views).numpy()


def along_own_way(*arrays):
    return spread.along_own_way(*(torch.from_numpy(array) for array in arrays)).numpy()


def clouds(codes, turn, size=200, noise=0.1, seed=0):
    """(particles, owners): each agent's around its code, brought into the features by `turn` (f, c)."""
    rng = np.random.default_rng(seed)
    centres = codes @ turn.T
    points = centres[:, None] + noise * rng.normal(size=(len(codes), size, turn.shape[0]))
    return points.reshape(-1, turn.shape[0]).astype(np.float32), np.repeat(np.arange(len(codes)), size)


@pytest.mark.parametrize("features", [2, 3, 17])
def test_ways_are_those_that_agents_already_have(features):
    codes = agent_codes(10, 2)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(features, 2)))[0]
    particles, owners = clouds(codes, turn)
    np.testing.assert_allclose(ways_of(particles, owners, codes), codes @ turn.T, atol=0.05)


@pytest.mark.parametrize(
    ("agents", "size", "features"), [(10, 2, 3), (10, 3, 2), (2, 2, 2), (5, 5, 3), (4, 2, 1), (7, 1, 3)]
)
def test_ways_are_no_longer_than_codes_and_as_wide_apart_as_features_allow(agents, size, features):
    codes = agent_codes(agents, size)
    particles, owners = clouds(codes, np.random.default_rng(2).normal(size=(features, codes.shape[1])))
    ways = ways_of(particles, owners, codes)
    centred = codes - codes.mean(axis=0)
    apart = [np.linalg.norm(v[:, None] - v, axis=-1) for v in (ways, centred)]
    assert (apart[0] <= apart[1] + 1e-6).all()
    if features >= np.linalg.matrix_rank(centred):
        np.testing.assert_allclose(apart[0], apart[1], atol=1e-6)


def test_two_agents_go_opposite_ways():
    codes = agent_codes(2, 2)
    particles, owners = clouds(codes, np.eye(2))
    ways = ways_of(particles, owners, codes)
    np.testing.assert_allclose(ways[0], -ways[1], atol=1e-12)


def test_no_other_orthogonal_map_brings_agents_further_along_their_ways():
    codes, rng = agent_codes(6, 2), np.random.default_rng(3)
    particles, owners = clouds(codes, rng.normal(size=(3, 2)), noise=1.0)
    offsets = particles - particles.mean(axis=0)
    best = (offsets * ways_of(particles, owners, codes)[owners]).sum()
    for _ in range(200):
        other = codes @ np.linalg.qr(rng.normal(size=(3, 2)))[0].T
        assert (offsets * other[owners]).sum() < best


def test_symmetries_leave_the_ways_as_they_are():
    """Mirrors of x and y: an agent's way and that of its mirror image are mirror images, whatever chance brought."""
    mirrors = [SignedOrder(np.arange(3), np.array([x, y, 1], np.float32)) for x in (1, -1) for y in (1, -1)]
    codes = agent_codes(8, 2)
    particles = np.random.default_rng(4).normal(size=(800, 3)).astype(np.float32)
    owners = np.repeat(np.arange(8), 100)
    ways = ways_of(particles, owners, codes, mirrors)
    for x, y in ((-1, 1), (1, -1)):
        twins = [int(np.argmin(np.linalg.norm(codes - code * (x, y), axis=1))) for code in codes]
        np.testing.assert_allclose(ways[twins], ways * (x, y, 1), atol=1e-9)
    free = ways_of(particles, owners, codes)
    assert np.abs(free[:, 2]).max() > 1e-3  # by themselves they are anywhere


def test_states_are_worth_how_far_along_their_own_way_they_are():
    ways = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    particles = np.array([[2, 0, 5], [-2, 0, -5], [0, 2, 5], [0, -2, -5]], np.float32)  # 2 from the middle, in x and y
    asked = np.array([[4, 1, 9], [4, 1, 9]], np.float32)
    np.testing.assert_allclose(along_own_way(particles, asked, np.array([0, 1]), ways), np.tanh([2.0, -0.5]), rtol=1e-6)
    assert np.isfinite(along_own_way(np.ones((5, 3), np.float32), asked, np.array([0, 1]), ways)).all()
