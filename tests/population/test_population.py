import math

import gymnasium
import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, Normal

from kmyriad.errors import UsageError
from kmyriad.population.codes import agent_codes
from kmyriad.population.distributions import action_spec
from kmyriad.population.population import AgentPolicy, Population
from tests.conftest import are_one_policy

BOX = action_spec(gymnasium.spaces.Box(-1, 1, (3,), np.float32))
CHOICE = action_spec(gymnasium.spaces.Discrete(4))


def population(agents=3, actions=BOX, **settings) -> Population:
    return Population(agents, 6, actions, trunk_hidden=(16, 8), agent_hidden=8, seed=1, **settings)


def test_sizes_are_the_papers_by_default():
    net = Population(10, 62, action_spec(gymnasium.spaces.Box(-1, 1, (8,), np.float32)))
    shapes = {name: tuple(parameter.shape) for name, parameter in net.named_parameters()}
    assert shapes["trunk_weights.0"] == (62, 512)
    assert shapes["trunk_weights.1"] == (512, 256)
    assert shapes["adapter_weight"] == (10, 256, 256)
    assert shapes["output_weight"] == (10, 256, 16)


def test_one_forward_pass_equals_a_loop_over_agents():
    net = population()
    observations = torch.randn(3, 5, 6)
    policy = net(observations)
    for agent in range(3):
        alone = net.agent(agent)(observations[agent])
        torch.testing.assert_close(alone.mean, policy.mean[agent])
        torch.testing.assert_close(alone.log_std, policy.log_std[agent])
        few = net.select([agent])(observations[agent : agent + 1])
        torch.testing.assert_close(few.mean[0], policy.mean[agent])


def test_agents_differ_and_the_seed_decides():
    observations = torch.randn(1, 4, 6).expand(3, 4, 6)
    means = population()(observations).mean
    assert not torch.allclose(means[0], means[1])
    torch.testing.assert_close(population()(observations).mean, means, rtol=0, atol=0)


def test_agents_with_something_in_common_start_as_one_policy():
    observations = torch.randn(1, 4, 6).expand(3, 4, 6)
    together = population(codes=torch.eye(3))
    assert are_one_policy(together)
    alone = population(1)(observations[:1]).mean
    torch.testing.assert_close(together(observations).mean, alone.expand(3, -1, -1))


def test_what_is_their_own_counts_by_its_rate_and_what_is_common_for_all():
    observations = torch.zeros(3, 1, 6)
    net = population(codes=torch.eye(3), code_rate=0.1)
    before = net(observations).mean.detach()
    net.code_output_bias.data[1] += 2.0
    net.common_output_bias.data += 1.0
    moved = net(observations).mean.detach() - before
    torch.testing.assert_close(moved, torch.tensor([1.0, 1.2, 1.0]).view(3, 1, 1).expand_as(moved))


def test_all_layers_are_linear_in_the_code():
    net = population(codes=torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), code_rate=0.5)
    before = {name: layer.detach() for name, layer in net.agents_layers().items()}
    for name in before:
        net.get_parameter(f"code_{name}").data[:] = torch.tensor([1.0, 3.0]).view(2, 1, 1)
    for name, layer in net.agents_layers().items():
        moved = layer.detach() - before[name]
        torch.testing.assert_close(moved, torch.tensor([0.5, 3.0, 0.0]).view(3, 1, 1).expand_as(moved))


@pytest.mark.parametrize("codes", [torch.eye(3), torch.randn(3, 2)])
def test_agents_with_something_in_common_act_the_same_on_their_own(codes):
    net = population(codes=codes, code_rate=0.2)
    observations = torch.randn(3, 5, 6)
    for parameter in net.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    means = net(observations).mean
    assert not are_one_policy(net)
    chosen = net.select([2, 0])
    assert chosen.codes is None
    torch.testing.assert_close(net(observations, net.agents_layers()).mean, means)
    torch.testing.assert_close(chosen(observations[[2, 0]]).mean, means[[2, 0]])
    torch.testing.assert_close(net.agent(1)(observations[1]).mean, means[1])


def test_std_starts_at_its_setting_and_stays_in_bounds():
    net = population(initial_std=0.22, std_range=(0.1, 0.5))
    std = net(torch.randn(3, 200, 6)).log_std.exp().detach()
    assert std.mean().item() == pytest.approx(0.22, rel=0.05)
    net.output_bias.data += 10
    assert net(torch.randn(3, 5, 6)).log_std.exp().max().item() == pytest.approx(0.5)
    net.output_bias.data -= 20
    assert net(torch.randn(3, 5, 6)).log_std.exp().min().item() == pytest.approx(0.1)


def test_log_probabilities_are_torchs():
    policy = population()(torch.randn(3, 5, 6))
    actions = policy.sample(torch.randn(3, 5, 3))
    reference = Independent(Normal(policy.mean, policy.log_std.exp()), 1)
    torch.testing.assert_close(policy.log_prob(actions), reference.log_prob(actions))
    choice = population(actions=CHOICE)(torch.randn(3, 5, 6))
    picked = choice.sample(torch.from_numpy(CHOICE.noise(np.random.default_rng(0), (3, 5, 4))))
    torch.testing.assert_close(choice.log_prob(picked), Categorical(logits=choice.logits).log_prob(picked.argmax(-1)))


def test_discrete_samples_follow_the_probabilities():
    logits = torch.tensor([0.0, math.log(2), math.log(5), math.log(2)])
    net = population(1, CHOICE)
    net.output_weight.data.zero_()
    net.output_bias.data[:] = logits
    noise = torch.from_numpy(CHOICE.noise(np.random.default_rng(0), (1, 20_000, 4)))
    frequencies = net(torch.zeros(1, 20_000, 6)).sample(noise).mean((0, 1))
    torch.testing.assert_close(frequencies, torch.tensor([0.1, 0.2, 0.5, 0.2]), atol=0.02, rtol=0)


def test_squashing_fills_the_range_of_the_action_space():
    spec = action_spec(gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)))
    squashed = spec.squash(torch.tensor([[0.0, 0.0], [50.0, -50.0]]))
    np.testing.assert_allclose(squashed, [[0.0, 0.5], [2.0, 0.0]])
    assert squashed.dtype == torch.float32
    assert CHOICE.squash(torch.eye(4)[[2, 0]]).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.Box(-np.inf, np.inf, (2,)), "is unbounded"),
        (gymnasium.spaces.Text(3), "is not supported"),
        (gymnasium.spaces.Dict({"arm": gymnasium.spaces.Discrete(3)}), "is not supported"),
    ],
)
def test_other_action_spaces_are_refused(space, message):
    with pytest.raises(UsageError, match=message):
        action_spec(space)


def test_an_action_range_bounds_what_the_environment_leaves_open():
    space = gymnasium.spaces.Box(np.array([-np.inf, -0.5], np.float32), np.array([np.inf, np.inf], np.float32))
    spec = action_spec(space, (-2.0, 3.0))
    assert (spec.low.tolist(), spec.high.tolist()) == ([-2.0, -0.5], [3.0, 3.0])


@pytest.mark.parametrize(
    ("space", "choices"),
    [
        (gymnasium.spaces.Discrete(3, start=1), (3,)),
        (gymnasium.spaces.MultiDiscrete([3, 2, 4]), (3, 2, 4)),
        (gymnasium.spaces.MultiDiscrete([[3, 2], [2, 5]]), (3, 2, 2, 5)),
        (gymnasium.spaces.MultiBinary(3), (2, 2, 2)),
    ],
)
def test_several_choices_are_one_action(space, choices):
    """Probabilities are those of independent choices, and sampling follows them."""
    spec = action_spec(space)
    assert (spec.size, spec.is_discrete) == (sum(choices), True)
    population = Population(2, 4, spec, trunk_hidden=(8,), agent_hidden=8)
    rng = np.random.default_rng(0)
    with torch.no_grad():
        policy = population(torch.from_numpy(rng.normal(size=(2, 1, 4)).astype(np.float32)).expand(2, 20_000, 4))
    raw = policy.sample(torch.from_numpy(spec.noise(rng, (2, 20_000, spec.size))))
    chosen = spec.squash(raw[0].detach()).reshape(20_000, len(choices))
    probabilities = [part.softmax(-1)[0, 0].detach().numpy() for part in policy.logits.split(choices, dim=-1)]
    for choice, expected in zip(chosen.T, probabilities, strict=True):
        np.testing.assert_allclose(np.bincount(choice, minlength=len(expected)) / 20_000, expected, atol=0.02)
    own = np.prod([p[c] for p, c in zip(probabilities, chosen[0], strict=True)])
    assert float(policy.log_prob(raw)[0, 0]) == pytest.approx(np.log(own), abs=1e-4)
    entropy = sum(-(p * np.log(p)).sum() for p in probabilities)
    assert float(policy.entropy()[0, 0]) == pytest.approx(entropy, abs=1e-4)
    assert Population.build(population.architecture()).actions.choices == spec.choices


def test_a_plain_policy_is_of_one_agent():
    with pytest.raises(UsageError, match="made of a population of one; got one of 3"):
        AgentPolicy(population())


def test_an_agent_out_of_range_is_refused():
    with pytest.raises(UsageError, match="agent must be between 0 and 2; got 3"):
        population().agent(3)


def test_gradients_do_not_depend_on_the_number_of_threads():
    """Not at the default's sizes either, where products are large enough to be shared out."""
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            generator = torch.Generator().manual_seed(1)
            codes = torch.from_numpy(agent_codes(10, 2))
            population = Population(
                10,
                62,
                action_spec(gymnasium.spaces.Box(-1, 1, (8,))),
                trunk_hidden=(256, 128),
                agent_hidden=64,
                activation="elu",
                codes=codes,
            )
            with torch.no_grad():
                for parameter in population.parameters():
                    parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
            policy = population(torch.randn(10, 63, 62, generator=generator))
            log_probs = policy.log_prob(torch.randn(policy.mean.shape, generator=generator))
            (log_probs * torch.randn(log_probs.shape, generator=generator)).sum().backward()
            found.append([log_probs.detach(), *(parameter.grad for parameter in population.parameters())])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
