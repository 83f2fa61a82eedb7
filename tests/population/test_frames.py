import gymnasium
import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import config_from
from kmyriad.envs.ant import FEATURES, TURNING, mirror
from kmyriad.envs.symmetry import Mirror, SignedOrder, Turning
from kmyriad.population.distributions import action_spec
from kmyriad.population.frames import Views
from kmyriad.population.population import Population
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.state import load_population
from kmyriad.training.pretrain import initial_state

ANT = {"agents": 4, "replicas": 8, "horizon": 12, "segment": 6, "epochs": 4}


def swap(size, first, second, flipped):
    """Two numbers in each other's place, and one with another sign."""
    order, signs = np.arange(size), np.ones(size, np.float32)
    order[[first, second]], signs[flipped] = [second, first], -1
    return SignedOrder(order, signs)


BOTH_FLIPPED = SignedOrder(np.arange(3), np.array([-1, -1, 1], np.float32))
MIRRORS = (Mirror(swap(6, 0, 1, 2), swap(3, 0, 1, 2)), Mirror(swap(6, 3, 4, 5), BOTH_FLIPPED))
WAYS = np.array([(1, 0), (-1, 1), (0, -1), (-1, -1)], np.float32)


def mirrored_population(turning=None, **settings) -> Population:
    actions = action_spec(gymnasium.spaces.Box(-1, 1, (3,), np.float32))
    views = Views.towards(WAYS, 6, 3, MIRRORS, turning)
    net = Population(4, 6, actions, trunk=(16,), adapter=8, views=views, normalises=True, seed=1, **settings)
    net.see(3 * torch.rand(4, 50, 6), torch.ones(4, 50, dtype=bool))
    return net


def test_agents_see_what_is_across_an_axis_in_the_mirror_of_that_axis():
    numbers = torch.arange(1.0, 7.0).expand(4, 2, 6)
    seen = Views.towards(WAYS, 6, 3, MIRRORS).inputs(numbers)[:, 0].tolist()
    assert seen == [[1, 2, 3, 4, 5, 6], [2, 1, -3, 4, 5, 6], [1, 2, 3, 5, 4, -6], [2, 1, -3, 5, 4, -6]]


def test_a_view_undoes_itself_and_deviations_keep_their_signs():
    views = Views.towards(WAYS, 62, 8, (mirror(0), mirror(1)))
    observations, outputs = torch.randn(4, 3, 62), torch.randn(4, 3, 16)
    torch.testing.assert_close(views.inputs(views.inputs(observations)), observations, rtol=0, atol=0)
    torch.testing.assert_close(views.outputs(views.outputs(outputs)), outputs, rtol=0, atol=0)
    assert (views.outputs(outputs.abs())[..., 8:] > 0).all()


def test_agents_with_all_in_common_do_in_the_mirror_what_others_do_without():
    net = mirrored_population(own_rate=0.1)
    world = torch.randn(1, 5, 6)
    in_mirrors = Views.towards(WAYS, 6, 3, MIRRORS).inputs(world.expand(4, 5, 6))
    policy = net(in_mirrors)
    for way, x, y in ((1, True, False), (2, False, True), (3, True, True)):
        expected = policy.mean[0].detach().numpy()
        for mirror_of_axis in [m for m, there in zip(MIRRORS, (x, y), strict=True) if there]:
            expected = mirror_of_axis.action(expected)
        np.testing.assert_allclose(policy.mean[way].detach(), expected, atol=1e-6)


def test_the_normaliser_learns_what_agents_see():
    net = mirrored_population()
    before = net.normaliser.mean.clone()
    seen = torch.zeros(4, 1000, 6)
    seen[:, :, 5] = torch.tensor([7.0, 7.0, -7.0, -7.0])[:, None]  # in the mirror of y a 7, for the last two
    seen[0, :500] = torch.nan
    net.see(seen, seen.isfinite().all(-1))
    assert net.normaliser.mean[5] > 6 > before[5]


@pytest.mark.parametrize("turning", [None, Turning(0, 3, (1,), (2, 5))])
@pytest.mark.parametrize("own_rate", [None, 0.1])
def test_heads_take_their_views_with_them(own_rate, turning):
    net = mirrored_population(turning, own_rate=own_rate)
    for parameter in net.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    observations = 20 * torch.randn(4, 5, 6)  # some beyond the normaliser's limit
    policy = net(observations)
    torch.testing.assert_close(net.select([3, 1])(observations[[3, 1]]).mean, policy.mean[[3, 1]])
    for index in range(4):
        alone = net.head(index)(observations[index])
        torch.testing.assert_close(alone.mean, policy.mean[index])
        torch.testing.assert_close(alone.log_sigma, policy.log_sigma[index])


@pytest.mark.parametrize("mirrors", [(), (mirror(0), mirror(1))])
def test_in_a_turned_view_every_way_lies_straight_ahead(mirrors):
    angles = np.deg2rad([0, 30, 100, 215, 350])
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    world = torch.randn(5, 1, 62)
    world[:, 0, [FEATURES["x"].start, FEATURES["y"].start]] = torch.from_numpy(3 * ways)  # 3 m on its way each
    world[:, 0, FEATURES["yaw"].start] = torch.from_numpy(angles)  # and facing it
    world[:, 0, FEATURES["angle_to_target"].start] = torch.from_numpy(-angles)
    seen = Views.towards(ways, 62, 8, mirrors, TURNING).inputs(world)[:, 0].numpy()
    np.testing.assert_allclose(seen[:, FEATURES["x"].start], 3, atol=1e-5)
    np.testing.assert_allclose(seen[:, FEATURES["y"].start], 0, atol=1e-5)
    ahead, target = seen[:, FEATURES["yaw"].start], seen[:, FEATURES["angle_to_target"].start]
    # The mirror of x swaps front and back: one that faces its way turns its back on it there.
    facing = np.where(ways[:, 0] < 0, np.pi, 0) if mirrors else np.zeros(5)
    np.testing.assert_allclose(np.cos(ahead), np.cos(facing), atol=1e-5)
    np.testing.assert_allclose(np.cos(target), np.cos(facing), atol=1e-5)
    others = np.delete(np.arange(62), [TURNING.x, TURNING.y, *TURNING.headings, *TURNING.bearings])
    straight = Views.towards(ways, 62, 8, mirrors).inputs(world)[:, 0].numpy()
    np.testing.assert_array_equal(seen[:, others], straight[:, others])


def test_ants_start_as_mirror_images_of_each_other():
    replicas = make_replicas("ant-empty", 8, horizon=12, settings={"reset_noise": 0.0})
    settings = ANT | {"env": "ant-empty", "compass": 1.0, "own_rate": 0.1}
    mirrored = initial_state(config_from(settings | {"mirrors": True}), replicas).population
    assert mirrored.directions is not None
    assert (mirrored.directions >= 0).all()
    replicas.start(0)
    standing = torch.from_numpy(replicas.observation[:1]).expand(4, 1, 62)  # at the origin
    means = mirrored(standing).mean.detach()[:, 0].numpy()
    np.testing.assert_allclose(means[2], mirror(0).action(means[0]), atol=1e-6)  # to the left, as to the right
    np.testing.assert_allclose(means[3], mirror(1).action(means[1]), atol=1e-6)
    assert np.abs(means[2] - means[0]).max() > 1e-4


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("point-maze", {"compass": 1.0, "mirrors": True}),  # a ball's world has no mirrors
        ("ant-empty", {"mirrors": False}),
        ("ant-empty", {"compass": 0.0}),
        ("ant-empty", {"features": ("yaw", "x")}),  # whose first two are no place
    ],
)
def test_without_mirrors_agents_see_the_world_as_it_is(env, changes, tmp_path):
    run = kmyriad.pretrain(env, out=tmp_path / "run", **ANT | {"epochs": 1} | changes)
    assert load_population(run).views is None


@pytest.mark.parametrize("turns", [False, True])
def test_a_run_with_views_goes_on_as_if_never_stopped(turns, tmp_path):
    settings = ANT | {"checkpoint_every": 2, "turns": turns}
    whole = kmyriad.pretrain("ant-empty", out=tmp_path / "whole", **settings)
    kmyriad.pretrain("ant-empty", out=tmp_path / "parts", **settings | {"epochs": 2})
    parts = kmyriad.pretrain("ant-empty", out=tmp_path / "parts", resume=True, epochs=4)
    ours, theirs = load_population(whole), load_population(parts)
    assert ours.views is not None
    assert (ours.views.turns is not None) == turns
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name]), name
