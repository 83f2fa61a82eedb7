import gymnasium
import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import PretrainConfig, with_settings
from kmyriad.envs.ant import FEATURES, TURNING, mirror
from kmyriad.envs.symmetry import Mirror, SignedOrder, Turning
from kmyriad.population.distributions import action_spec
from kmyriad.population.frames import Frames, directions
from kmyriad.population.population import Population
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.state import load_population
from kmyriad.training.pretrain import initial_state
from tests.conftest import are_one_policy

ITERATION = 8 * 6
SMALL = {"agents": 4, "replicas": 8, "horizon": 12, "rollout_steps": 6, "total_steps": 4 * ITERATION}
COMPASS = SMALL | {"compass": 1.0}


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
    frames = Frames.towards(WAYS, 6, 3, MIRRORS, turning)
    sizes = {"trunk_hidden": (16,), "agent_hidden": 8}
    net = Population(4, 6, actions, frames=frames, normalises=True, seed=1, **sizes, **settings)
    net.see(3 * torch.rand(4, 50, 6), torch.ones(4, 50, dtype=bool))
    return net


def test_agents_see_what_is_across_an_axis_in_the_mirror_of_that_axis():
    numbers = torch.arange(1.0, 7.0).expand(4, 2, 6)
    seen = Frames.towards(WAYS, 6, 3, MIRRORS).inputs(numbers)[:, 0].tolist()
    assert seen == [[1, 2, 3, 4, 5, 6], [2, 1, -3, 4, 5, 6], [1, 2, 3, 5, 4, -6], [2, 1, -3, 5, 4, -6]]


def test_a_mirrored_frame_undoes_itself_and_deviations_keep_their_signs():
    frames = Frames.towards(WAYS, 62, 8, (mirror(0), mirror(1)))
    observations, outputs = torch.randn(4, 3, 62), torch.randn(4, 3, 16)
    torch.testing.assert_close(frames.inputs(frames.inputs(observations)), observations, rtol=0, atol=0)
    torch.testing.assert_close(frames.outputs(frames.outputs(outputs)), outputs, rtol=0, atol=0)
    assert (frames.outputs(outputs.abs())[..., 8:] > 0).all()


def test_agents_with_all_in_common_do_in_the_mirror_what_others_do_without():
    net = mirrored_population(own_rate=0.1)
    world = torch.randn(1, 5, 6)
    in_mirrors = Frames.towards(WAYS, 6, 3, MIRRORS).inputs(world.expand(4, 5, 6))
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
def test_agents_take_their_frames_with_them(own_rate, turning):
    net = mirrored_population(turning, own_rate=own_rate)
    for parameter in net.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    observations = 20 * torch.randn(4, 5, 6)  # some beyond the normaliser's limit
    policy = net(observations)
    torch.testing.assert_close(net.select([3, 1])(observations[[3, 1]]).mean, policy.mean[[3, 1]])
    for index in range(4):
        alone = net.agent(index)(observations[index])
        torch.testing.assert_close(alone.mean, policy.mean[index])
        torch.testing.assert_close(alone.log_std, policy.log_std[index])


@pytest.mark.parametrize("mirrors", [(), (mirror(0), mirror(1))])
def test_in_a_turned_frame_every_way_lies_straight_ahead(mirrors):
    angles = np.deg2rad([0, 30, 100, 215, 350])
    ways = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    world = torch.randn(5, 1, 62)
    world[:, 0, [FEATURES["x"].start, FEATURES["y"].start]] = torch.from_numpy(3 * ways)  # 3 m on its way each
    world[:, 0, FEATURES["yaw"].start] = torch.from_numpy(angles)  # and facing it
    world[:, 0, FEATURES["angle_to_target"].start] = torch.from_numpy(-angles)
    seen = Frames.towards(ways, 62, 8, mirrors, TURNING).inputs(world)[:, 0].numpy()
    np.testing.assert_allclose(seen[:, FEATURES["x"].start], 3, atol=1e-5)
    np.testing.assert_allclose(seen[:, FEATURES["y"].start], 0, atol=1e-5)
    ahead, target = seen[:, FEATURES["yaw"].start], seen[:, FEATURES["angle_to_target"].start]
    # The mirror of x swaps front and back: one that faces its way turns its back on it there.
    facing = np.where(ways[:, 0] < 0, np.pi, 0) if mirrors else np.zeros(5)
    np.testing.assert_allclose(np.cos(ahead), np.cos(facing), atol=1e-5)
    np.testing.assert_allclose(np.cos(target), np.cos(facing), atol=1e-5)
    others = np.delete(np.arange(62), [TURNING.x, TURNING.y, *TURNING.headings, *TURNING.bearings])
    straight = Frames.towards(ways, 62, 8, mirrors).inputs(world)[:, 0].numpy()
    np.testing.assert_array_equal(seen[:, others], straight[:, others])


def test_ants_start_as_mirror_images_of_each_other():
    replicas = make_replicas("ant-empty", 8, horizon=12, settings={"reset_noise": 0.0})
    settings = SMALL | {"env": "ant-empty", "compass": 1.0, "own_rate": 0.1}
    mirrored = initial_state(with_settings(PretrainConfig(), settings | {"mirrors": True}), replicas).population
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
    run = kmyriad.pretrain(env, out=tmp_path / "run", **SMALL | {"total_steps": ITERATION} | changes)
    assert load_population(run).frames is None


@pytest.mark.parametrize("turns", [False, True])
def test_a_run_with_frames_goes_on_as_if_never_stopped(turns, tmp_path):
    settings = SMALL | {"checkpoint_every": 2, "turns": turns}
    whole = kmyriad.pretrain("ant-empty", out=tmp_path / "whole", **settings)
    kmyriad.pretrain("ant-empty", out=tmp_path / "parts", **settings | {"total_steps": 2 * ITERATION})
    parts = kmyriad.pretrain("ant-empty", out=tmp_path / "parts", resume=True, total_steps=4 * ITERATION)
    ours, theirs = load_population(whole), load_population(parts)
    assert ours.frames is not None
    assert (ours.frames.turns is not None) == turns
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, value in ours.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name]), name


def test_directions_are_evenly_around_the_first_two_features():
    np.testing.assert_allclose(directions(4, 2), [(1, 0), (0, 1), (-1, 0), (0, -1)], atol=1e-6)
    np.testing.assert_allclose(directions(4, 3), [(1, 0, 0), (0, 1, 0), (-1, 0, 0), (0, -1, 0)], atol=1e-6)
    np.testing.assert_allclose(directions(2, 1), [(1,), (-1,)])


def test_agents_start_as_one_policy_and_part_by_what_all_learn(tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", own_rate=0.1, **COMPASS)
    replicas = make_replicas("point-maze", 8, horizon=12)
    before, after = initial_state(run.pretraining, replicas).population, load_population(run)
    observations = torch.randn(1, 5, 4).expand(4, 5, 4)
    assert are_one_policy(before)
    after.adapter_weight.data.zero_(), after.adapter_bias.data.zero_()
    after.output_weight.data.zero_(), after.output_bias.data.zero_()
    assert not torch.allclose(after(observations).mean[0], after(observations).mean[2], atol=1e-6)


@pytest.mark.parametrize("direction_rate", [0.0, 0.1])
def test_a_run_with_a_compass_goes_on_as_if_never_stopped(direction_rate, tmp_path):
    settings = COMPASS | {"checkpoint_every": 2, "direction_rate": direction_rate}
    whole = kmyriad.pretrain("point-maze", out=tmp_path / "whole", **settings)
    kmyriad.pretrain("point-maze", out=tmp_path / "parts", **settings | {"total_steps": 2 * ITERATION})
    parts = kmyriad.pretrain("point-maze", out=tmp_path / "parts", resume=True, total_steps=4 * ITERATION)
    for ours, theirs in zip(load_population(whole).parameters(), load_population(parts).parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("changes", [{"agents": 1}, {"compass": 0.0}, {"update": "reinforce", "rollout_steps": None}])
def test_without_others_or_a_critic_there_is_no_direction(changes, tmp_path):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", **COMPASS | changes)
    assert load_population(run).directions is None
