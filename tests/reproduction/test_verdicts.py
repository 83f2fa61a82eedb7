"""Verdicts on made-up numbers: both directions, undecided, and not run."""

import pytest

from kmyriad.reproduction.verdicts import BUDGETS, CLAIMS, WORLDS, Outcome, ahead

SEEDS = (0, 1, 56, 123)
JUDGES = {claim.number: claim.judge for claim in CLAIMS}


def near(mean, apart=0.01):
    """Four seeds around a mean."""
    return {seed: mean + apart * offset for seed, offset in zip(SEEDS, (-1.0, 0.4, -0.4, 1.0), strict=True)}


def entropies(**by_agents):
    return {f"entropy/{world}/{name[1:]}": near(mean) for world in WORLDS for name, mean in by_agents.items()}


def test_ahead_needs_the_interval_and_three_seeds_in_four():
    assert ahead({"a": near(1), "b": near(0)}, "a", "b") == 1
    assert ahead({"a": near(0), "b": near(1)}, "a", "b") == -1
    assert ahead({"a": {0: 1.0, 1: -1.0}, "b": {0: 0.0, 1: 0.0}}, "a", "b") == 0
    assert ahead({"a": {0: 1.0}, "b": {0: 0.0}}, "a", "b") == 0  # one seed decides nothing
    assert ahead({"a": {0: 1.0}, "b": {1: 0.0}}, "a", "b") is None
    many = dict.fromkeys(range(20), 0.0)
    some = {seed: 1.0 if seed < 12 else -0.1 for seed in range(20)}  # the interval is clear of 0, the seeds are not
    assert ahead({"a": some, "b": many}, "a", "b") == 0


def test_three_seeds_decide_nothing():
    """Else a campaign that has half ended would say what its rest may undo."""
    for seeds, sign in (((0, 1, 56), 0), (SEEDS, 1)):
        ours, theirs = ({seed: near(mean)[seed] for seed in seeds} for mean in (1, 0))
        assert ahead({"a": ours, "b": theirs}, "a", "b") == sign
    level = success(0.9, 0.9, 0.1, "final")
    few = {name: {seed: value for seed, value in each.items() if seed != 0} for name, each in level.items()}
    assert (JUDGES[8](level).outcome, JUDGES[8](few).outcome) == (CONFIRMED, UNDECIDED)
    falling = {
        name: {seed: value for seed, value in each.items() if seed != 0} for name, each in budget(5, 4, 3, 2, 1).items()
    }
    assert JUDGES[5](falling).outcome == UNDECIDED


def test_without_runs_nothing_is_said():
    assert {claim.judge({}).outcome for claim in CLAIMS} == {Outcome.NOT_RUN}
    assert [claim.number for claim in CLAIMS] == [*range(1, 16)]


def success(best, single, random, what):
    means = {"best": best, "single": single, "random": random}
    return {f"{what}/{world}/{init}": near(mean) for world in WORLDS for init, mean in means.items()}


def kl(ten, fifty, floor=0.01):
    found = {f"kl/{world}/{agents}": near(mean) for world in WORLDS for agents, mean in ((10, ten), (50, fifty))}
    return found | {f"kl_floor/{world}/{agents}": near(floor) for world in WORLDS for agents in (10, 50)}


def long(fifth, end):
    return {f"long_{when}/{m}": near(v) for when, row in (("fifth", fifth), ("end", end)) for m, v in row.items()}


def budget(*means):
    return {f"budget/{size}": near(mean) for size, mean in zip(BUDGETS, means, strict=True)}


def steps(one, ten, fifty, same_rate):
    means = {"1": one, "10": ten, "50": fifty, "50-one-rate": same_rate}
    return {f"steps/ant-empty/{name}": near(mean) for name, mean in means.items()}


def weighted(value, gradient):
    return {"weighted/value": {0: value}, "weighted/gradient": {0: gradient}}


def opposite(right, left):
    return {"opposite/top-right": dict(enumerate(right)), "opposite/top-left": dict(enumerate(left))}


CONFIRMED, REFUTED, UNDECIDED = Outcome.CONFIRMED, Outcome.REFUTED, Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("number", "facts", "expected"),
    [
        (1, entropies(_1=5, _10=4, _50=3), CONFIRMED),
        (1, entropies(_1=3, _10=4, _50=3.5), REFUTED),
        (1, entropies(_1=4, _10=4, _50=3), UNDECIDED),
        (2, entropies(_1=5, _10=4.9, _50=3), CONFIRMED),
        (2, entropies(_1=5, _10=4, _50=3), REFUTED),
        (2, entropies(_1=5, _50=3) | {"entropy/ant-empty/10": near(4.75, apart=0.2)}, UNDECIDED),
        (2, entropies(_1=5, _10=4.9) | {"entropy/ant-empty/50": near(4.6, apart=0.5)}, UNDECIDED),  # a third of what?
        (2, entropies(_1=5, _10=4.9, _50=4.9), REFUTED),
        (3, steps(1, 2, 3, 3), CONFIRMED),
        (3, steps(3, 2, 1, 1), REFUTED),
        (3, steps(1, 2, 3, 2), UNDECIDED),
        (3, steps(2, 1, 3, 3), UNDECIDED),  # ten are faster than one, yet fifty are slower
        (3, steps(1, 2, 3, 1.5), REFUTED),  # slower only for another rate
        (4, entropies(_1=3, _10=4, _50=5), CONFIRMED),
        (4, entropies(_1=5, _10=4, _50=3), REFUTED),
        (4, entropies(_1=5, _10=4, _50=5), UNDECIDED),
        (5, budget(1, 2, 3, 4, 5), CONFIRMED),
        (5, budget(5, 4, 3, 2, 1), REFUTED),
        (5, budget(1, 3, 2, 5, 4), UNDECIDED),
        (6, kl(0.5, 1.0), CONFIRMED),
        (6, kl(1.0, 0.5), REFUTED),
        (6, kl(0.5, 0.5), UNDECIDED),
        (6, kl(0.5, 1.0, floor=0.6), UNDECIDED),
        (6, kl(0.5, 1.0) | {f"kl_floor/{world}/50": near(0.7) for world in WORLDS}, REFUTED),  # the floor alone grew
        (7, success(0.6, 0.3, 0.1, "early"), CONFIRMED),
        (7, success(0.3, 0.6, 0.1, "early"), REFUTED),
        (7, success(0.6, 0.1, 0.1, "early"), UNDECIDED),
        (8, success(0.8, 0.8, 0, "final"), CONFIRMED),
        (8, success(0.9, 0.5, 0, "final"), REFUTED),
        (8, success(0.6, 0.8, 0, "final"), UNDECIDED),
        (8, success(0.02, 0.02, 0, "final"), UNDECIDED),  # level, as neither has learned
        (9, success(0.9, 0.8, 0.1, "final"), CONFIRMED),
        (9, success(0.9, 0.1, 0.5, "final"), REFUTED),
        (9, success(0.9, 0.1, 0.1, "final"), UNDECIDED),
        (10, long({1: 5, 10: 4, 50: 3}, {1: 6, 10: 5.8, 50: 5.5}), CONFIRMED),
        (10, long({1: 5, 10: 4, 50: 3}, {1: 6, 10: 4, 50: 3}), REFUTED),
        (10, long({1: 5, 10: 4, 50: 3}, {1: 6, 10: 5, 50: 5}), UNDECIDED),
        (11, {"ppo/inside": near(0.9), "ppo/outside": near(0.05)}, CONFIRMED),
        (11, {"ppo/inside": near(0.9), "ppo/outside": near(0.7)}, REFUTED),
        (11, {"ppo/inside": near(0.7), "ppo/outside": near(0.1)}, UNDECIDED),
        (12, opposite((1, 1, 1, 0), (1, 1, 1, 1)), CONFIRMED),
        (12, opposite((0, 0, 0, 1), (1, 1, 1, 1)), REFUTED),
        (12, opposite((1, 1), (1, 1)), UNDECIDED),
        (13, {"rate/ant-empty": near(9000)}, UNDECIDED),
        (14, {"accuracy/10": near(0.7)}, CONFIRMED),
        (14, {"accuracy/10": near(0.1)}, REFUTED),
        (14, {"accuracy/10": near(0.2)}, UNDECIDED),
        (15, weighted(1e-8, 1e-7), CONFIRMED),
        (15, weighted(0.1, 1e-7), REFUTED),
        (15, weighted(1e-8, 0.1), REFUTED),
    ],
)
def test_a_claim_is_judged_by_its_rule(number, facts, expected):
    finding = JUDGES[number](facts)
    assert finding.outcome == expected
    assert finding.ours
