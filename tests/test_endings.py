"""Environments that end early, such as CartPole: what an episode is, everywhere."""

import numpy as np
import pytest
import torch

import kmyriad as km
from kmyriad.config import with_settings
from kmyriad.evaluation.measures import visit
from kmyriad.evaluation.selection import rank_agents, trials
from kmyriad.population.distributions import action_spec
from kmyriad.population.population import Population
from kmyriad.rollout.collect import collect, without_termination
from kmyriad.rollout.replicas import make_replicas
from kmyriad.rollout.task import Task
from kmyriad.training.jumpstart import PATIENCE, SLOW, episode_limit, remember_successes
from kmyriad.updates.actor_critic import _evaluate
from tests import walk_env

walk_env.register()

HORIZON = 60


def walkers(*speeds):
    """A population of agents that walk east at these speeds, a step's part of the way to the edge, without noise."""
    replicas = make_replicas(walk_env.ENDING, 1, horizon=HORIZON)
    population = Population(
        len(speeds), 2, action_spec(replicas.action_space), trunk_hidden=(4,), agent_hidden=4, initial_std=1e-4,
        std_range=(1e-6, 1.0),
    )  # fmt: skip
    with torch.no_grad():
        for parameter in population.parameters():
            parameter.zero_()
        population.output_bias[:, 0, 0] = torch.atanh(torch.tensor(speeds) / 0.6)
        population.output_bias[:, 0, 2:] = float(np.log(1e-4))
    return replicas, population


def test_an_agent_that_falls_early_earns_less_than_one_that_stays():
    """As long as it stays it earns 1 a step: whoever walks off the edge at once does not earn again after a reset."""
    _, population = walkers(0.3, 0.05)
    task = Task(walk_env.ENDING, {}, HORIZON, ())
    played = trials(task, population, seed=0)([0, 1], 3, 0)
    fast, slow = -played.shortfall.mean(axis=1)
    steps_to_the_edge = walk_env.EDGE / 0.3
    assert fast == pytest.approx(steps_to_the_edge, abs=1.5)
    assert slow == pytest.approx(walk_env.EDGE / 0.05, abs=3)
    ranking = rank_agents(task, population)
    assert ranking.best == 1
    assert ranking.is_certain
    assert ranking.standings[0].by_return
    low, high = ranking.standings[0].interval
    assert low <= slow <= high


def test_success_is_counted_by_episode():
    """An agent that succeeds in one of five short episodes has a rate of about 0.2, not of one in a horizon."""
    _, population = walkers(0.3)
    task = Task(walk_env.LUCKY, {}, HORIZON, ())
    played = trials(task, population, seed=0)([0], 400, 0)
    assert played.success.mean() == pytest.approx(0.2, abs=0.06)


def test_evaluation_sees_one_episode_of_each_replica():
    replicas, population = walkers(0.3, 0.05)
    replicas = make_replicas(walk_env.ENDING, 8, horizon=HORIZON)
    visits = visit(population, replicas, HORIZON)
    steps = visits.valid.sum(axis=-1)
    np.testing.assert_allclose(steps[0], walk_env.EDGE / 0.3, atol=1.5)
    np.testing.assert_allclose(steps[1], walk_env.EDGE / 0.05, atol=3)
    first_end = np.argmin(visits.valid[0, 0])
    assert visits.valid[0, 0, :first_end].all()
    assert not visits.valid[0, 0, first_end:].any()


def test_a_termination_is_followed_by_the_next_episode():
    """In pretraining the pool goes on after a reset, and so does the value: an end is worth what the start is worth."""
    _, population = walkers(0.3)
    replicas = make_replicas(walk_env.ENDING, 4, horizon=HORIZON)
    replicas.start(0)
    trajectory = collect(replicas, population, 40, seed=0, iteration=1, keep_next_observations=True)
    assert trajectory.terminated.any()
    one_stream = without_termination(trajectory)
    assert not one_stream.terminated.any()
    np.testing.assert_array_equal(one_stream.dones, trajectory.dones)
    ended = trajectory.terminated
    assert (one_stream.next_observations[ended].abs() < 0.1).all(), "the start of the next episode"
    assert (trajectory.next_observations[ended][:, 0] > walk_env.EDGE - 0.2).all(), "what was really reached"
    torch.testing.assert_close(one_stream.next_observations[~ended], trajectory.next_observations[~ended])
    replicas.close()


def test_an_end_does_not_pay_in_pretraining():
    """With rewards 0 and values of -1 everywhere, no step is better than another: also not the one that ends."""
    _, population = walkers(0.3)
    replicas = make_replicas(walk_env.ENDING, 4, horizon=HORIZON)
    replicas.start(0)
    trajectory = collect(replicas, population, 40, seed=0, iteration=1, keep_next_observations=True)

    def minus_one(observations):
        return -torch.ones(observations.shape[:2])

    rewards = torch.full(trajectory.valid.shape, -(1 - 0.9))
    for told, pays in ((trajectory, True), (without_termination(trajectory), False)):
        _, advantages = _evaluate(
            minus_one, told.observations, told.next_observations, told, rewards, gamma=0.9, gae_lambda=0.0
        )
        at_ends = advantages[trajectory.terminated]
        assert bool((at_ends > 0.5).all()) is pays
        if not pays:
            torch.testing.assert_close(advantages, torch.zeros_like(advantages), atol=1e-6, rtol=0)


def test_pretraining_where_episodes_end_early(tmp_path):
    run = km.pretrain(
        walk_env.ENDING, agents=2, replicas=20, horizon=30, rollout_steps=10, total_steps=2000, out=tmp_path / "run"
    )
    evaluation = km.evaluate(run, episodes=20)
    assert not evaluation.visits.valid.all()
    assert np.isfinite(evaluation.measures["entropy"])


def test_a_segment_without_one_valid_step_leaves_the_normaliser_as_it_was():
    population = Population(1, 2, walkers(0.1)[1].actions, trunk_hidden=(4,), agent_hidden=4, normalises=True)
    population.see(torch.randn(1, 2, 5, 2), torch.ones(1, 2, 5, dtype=torch.bool))
    before = {name: value.clone() for name, value in population.normaliser.state_dict().items()}
    population.see(torch.randn(1, 2, 5, 2), torch.zeros(1, 2, 5, dtype=torch.bool))
    for name, value in population.normaliser.state_dict().items():
        assert torch.equal(value, before[name]), name
        assert torch.isfinite(value).all()


@pytest.mark.parametrize(
    "draw",
    [lambda rng, n: rng.integers(20, 200, n), lambda rng, n: np.exp(rng.normal(np.log(80), 0.6, n))],
    ids=["uniform", "lognormal"],
)
def test_the_limit_of_episodes_does_not_shut_successes_out(draw):
    """Successes that take longer than the limit are never seen. Yet the limit settles where few are lost."""
    from types import SimpleNamespace

    config = with_settings(km.JumpstartConfig(), {"goal": (1, 1), "horizon": 200, "rollout_steps": 25})
    state, rng = SimpleNamespace(success_steps=[]), np.random.default_rng(0)
    for _ in range(300):
        limit = episode_limit(config, state)
        taken = np.ceil(draw(rng, 40)).astype(int)
        seen = taken[taken <= limit]
        trajectory = SimpleNamespace(
            episode_steps=torch.from_numpy(seen - 1),
            dones=torch.ones(len(seen), dtype=torch.bool),
            success=torch.ones(len(seen), dtype=torch.bool),
        )
        remember_successes(state, trajectory)
    possible = np.ceil(draw(rng, 20_000))
    possible = possible[possible <= 200]
    assert (possible <= episode_limit(config, state)).mean() > 0.9
    quick = SimpleNamespace(success_steps=[30] * 100)
    assert episode_limit(config, quick) == np.ceil(PATIENCE * 30), SLOW


def test_the_budget_of_selection_grows_with_agents_and_horizon():
    """Fifty agents get as many episodes each as ten; the best is found, or nearly."""
    rng, regrets = np.random.default_rng(0), []
    from kmyriad.evaluation.selection import EPISODES_PER_AGENT, Trials, race

    for _ in range(40):
        rates = rng.beta(0.25, 2.0, size=50)

        def play(agents, episodes, _, rates=rates):
            success = rng.random((len(agents), episodes)) < rates[list(agents), None]
            return Trials(success, np.where(success, 0.0, 1.0), np.ones(success.shape, int))

        regrets.append(rates.max() - rates[race(play, range(50), budget=50 * EPISODES_PER_AGENT).best])
    assert np.mean(regrets) < 0.03
    _, population = walkers(*[0.1] * 12)
    ranking = rank_agents(Task(walk_env.ENDING, {}, 20, ()), population)
    assert ranking.episodes <= 12 * EPISODES_PER_AGENT
    assert min(standing.episodes for standing in ranking.standings) >= 5
