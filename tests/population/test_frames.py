import gymnasium
import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import PretrainConfig, with_settings
from kmyriad.envs.ant import mirror
from kmyriad.envs.symmetry import SignedOrder, Symmetry, group_of
from kmyriad.population.codes import agent_codes
from kmyriad.population.distributions import action_spec
from kmyriad.population.frames import Frames, moved_codes, moved_features, seen_alike
from kmyriad.population.population import Population
from kmyriad.rollout.replicas import make_replicas
from kmyriad.runs.state import load_population
from kmyriad.training.pretrain import initial_state
from tests.conftest import are_one_policy

SMALL = {"agents": 4, "replicas": 8, "horizon": 20, "rollout_steps": 10, "neighbours": 3, "threads": 1}
SMALL |= {"trunk_hidden": (16,), "agent_hidden": 8, "critic_hidden": (8, 8), "total_steps": 480}


def signed(order, signs):
    return SignedOrder(np.array(order), np.array(signs, np.float32))


MIRRORS = (
    Symmetry(signed(range(6), [-1, 1, 1, 1, 1, 1]), signed([1, 0, 2], [1, 1, -1]), "mirror of x"),
    Symmetry(signed(range(6), [1, -1, 1, 1, 1, -1]), signed([0, 1, 2], [-1, -1, 1]), "mirror of y"),
)
QUARTER_TURN = Symmetry(signed([1, 0, 2], [-1, 1, 1]), signed([1, 0], [-1, 1]), "quarter turn")
"""x becomes -y, and y becomes x."""


def framed_population(**settings) -> Population:
    group = group_of(MIRRORS)
    views, codes = seen_alike(agent_codes(4, 2), [view.observation.of((0, 1)) for view in group])
    actions = action_spec(gymnasium.spaces.Box(-1, 1, (3,), np.float32))
    net = Population(
        4,
        6,
        actions,
        frames=Frames([group[view] for view in views]),
        codes=torch.from_numpy(codes),
        normalises=True,
        trunk_hidden=(16, 8),
        agent_hidden=8,
        seed=1,
        **settings,
    )
    for parameter in net.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return net


def test_symmetries_come_to_a_group():
    assert [view.name for view in group_of(MIRRORS)] == [
        "",
        "mirror of x",
        "mirror of y",
        "mirror of x and mirror of y",
    ]
    assert len(group_of([QUARTER_TURN])) == 4
    assert group_of([]) == []


@pytest.mark.parametrize("symmetry", [*MIRRORS, QUARTER_TURN, mirror(0), mirror(1)])
def test_an_inverse_brings_everything_back(symmetry):
    for part in (symmetry.observation, symmetry.action):
        numbers = np.random.default_rng(0).normal(size=(5, part.order.size))
        np.testing.assert_array_equal(part.inverse(part(numbers)), numbers)
        np.testing.assert_allclose(numbers @ part.matrix.T, part(numbers))


def test_codes_go_as_the_features_that_symmetries_move():
    group = [view.observation.of((2, 0, 1)) for view in group_of(MIRRORS)]  # z x y
    assert moved_features(group, 2) == [1, 2]
    assert [np.diag(matrix).tolist() for matrix in moved_codes(group, 3)] == [
        [1, 1, 1],
        [-1, 1, 1],
        [1, -1, 1],
        [-1, -1, 1],
    ]
    turns = [view.observation.of((0, 1)) for view in group_of([QUARTER_TURN])]
    assert moved_features(turns, 2) == [0, 1]
    assert moved_features(turns, 1) == []  # x alone is no turn


def test_a_symmetry_that_brings_other_numbers_into_the_features_is_none_of_theirs():
    assert QUARTER_TURN.observation.of((0, 1)) is not None
    assert QUARTER_TURN.observation.of((0,)) is None


def test_four_agents_are_one_policy_in_four_mirrors():
    views, codes = seen_alike(agent_codes(4, 2), [view.observation.of((0, 1)) for view in group_of(MIRRORS)])
    assert sorted(views) == [0, 1, 2, 3]
    np.testing.assert_allclose(codes, np.full((4, 2), np.sqrt(0.5)), atol=1e-6)


@pytest.mark.parametrize("agents", [2, 5, 10, 50])
def test_mirror_images_have_one_code_and_it_is_seen_in_their_view(agents):
    group = [view.observation.of((0, 1)) for view in group_of(MIRRORS)]
    codes = agent_codes(agents, 3)
    views, seen = seen_alike(codes, group)
    for code, view, there in zip(codes, views, seen, strict=True):
        np.testing.assert_allclose(moved_codes(group, codes.shape[1])[view] @ code, there, atol=1e-5)
    if agents > 2:
        assert (seen[:, :2] >= 0).all()


def test_agents_do_in_the_mirror_what_others_do_without():
    net, world = framed_population(), torch.randn(5, 6)
    views, _ = seen_alike(agent_codes(4, 2), [view.observation.of((0, 1)) for view in group_of(MIRRORS)])
    straight = views.index(0)
    expected = net.agent(straight)(world)
    for agent, view in enumerate(views):
        symmetry = group_of(MIRRORS)[view]
        # The mirrors are their own inverses: what is seen there is the world.
        found = net.agent(agent)(torch.from_numpy(symmetry.observation(world.numpy())))
        np.testing.assert_allclose(
            symmetry.action(found.mean.detach().numpy()), expected.mean.detach().numpy(), atol=1e-5
        )


def test_agents_take_their_frames_with_them():
    net, observations = framed_population(), torch.randn(4, 5, 6)
    net.see(torch.randn(4, 9, 6), torch.ones(4, 9, dtype=torch.bool))
    policy = net(observations)
    for agent in range(4):
        alone = net.agent(agent)(observations[agent])
        torch.testing.assert_close(alone.mean, policy.mean[agent])
        torch.testing.assert_close(alone.log_std, policy.log_std[agent])
    chosen = net.select([3, 1])
    torch.testing.assert_close(chosen(observations[[3, 1]]).mean, policy.mean[[3, 1]])
    again = Population.build(net.architecture())
    again.load_state_dict(net.state_dict())
    torch.testing.assert_close(again(observations).mean, policy.mean, rtol=0, atol=0)


def test_what_a_frame_gives_back_undoes_what_it_takes():
    """Also where a symmetry is not its own inverse: an action seen in the view is done in the world."""
    group = group_of([QUARTER_TURN])
    frames = Frames(group)
    done = frames.outputs(torch.randn(4, 3, 4))
    for agent, view in enumerate(group):
        seen = torch.from_numpy(view.action(done[agent, :, :2].numpy()))
        torch.testing.assert_close(
            frames.outputs(torch.cat([seen, seen], -1).expand(4, 3, 4))[agent, :, :2], done[agent, :, :2]
        )


def test_ants_start_as_mirror_images_of_each_other():
    replicas = make_replicas("ant-empty", 4, horizon=20)
    population = initial_state(with_settings(PretrainConfig(), SMALL | {"env": "ant-empty"}), replicas).population
    assert population.frames is not None
    replicas.start(0)
    standing = replicas.observation[:, None]
    means = population(standing).mean.detach()[:, 0].numpy()
    np.testing.assert_allclose(means[1], mirror(0).action(means[0]), atol=1e-6)
    np.testing.assert_allclose(means[3], mirror(1).action(means[0]), atol=1e-6)


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("point-maze", {}),  # a ball's world has no symmetries
        ("ant-empty", {"priors": False}),
        ("ant-empty", {"agents": 1}),
        ("ant-empty", {"code_size": None}),
        ("ant-empty", {"features": ("yaw", "linear_velocity", "quaternion")}),
    ],
)
def test_without_priors_agents_see_the_world_as_it_is(env, changes, tmp_path, capsys):
    run = kmyriad.pretrain(env, out=tmp_path / "run", **SMALL | changes)
    assert load_population(run).frames is None
    assert "priors:" not in capsys.readouterr().err


def test_a_run_names_its_priors(tmp_path, capsys):
    run = kmyriad.pretrain("ant-empty", out=tmp_path / "run", **SMALL)
    assert load_population(run).frames is not None
    assert run.config.population.priors
    assert "symmetries (mirror of x, mirror of y); --no-priors" in " ".join(capsys.readouterr().err.split())


def test_a_run_with_frames_goes_on_as_if_never_stopped(tmp_path):
    settings = SMALL | {"checkpoint_every": 2, "agents": 6, "replicas": 12, "total_steps": 720}
    whole = kmyriad.pretrain("ant-empty", out=tmp_path / "whole", **settings)
    kmyriad.pretrain("ant-empty", out=tmp_path / "stopped", **settings | {"total_steps": 360})
    stopped = kmyriad.pretrain(out=tmp_path / "stopped", resume=True, total_steps=720)
    ours, theirs = load_population(whole), load_population(stopped)
    assert ours.frames is not None
    assert not are_one_policy(ours)
    for name, tensor in ours.state_dict().items():
        torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=0, atol=0)
