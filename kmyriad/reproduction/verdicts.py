"""From numbers per seed to verdicts: each claim of the paper names its rule, a pure function of what was measured.

Groups are compared paired by seed. One is *ahead* of another if both have at least four seeds, the 95 % interval of the
mean difference excludes 0, and three in four seeds agree; otherwise it is not decided.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.stats import spearmanr

from kmyriad.evaluation.statistics import Mean, mean_of

Facts = Mapping[str, Mapping[int, float]]
"""What was measured, such as "entropy/ant-empty/10", by seed."""

WORLDS = ("ant-empty", "ant-maze", "ant-pyramid", "ant-cave")
BUDGETS = (1, 2, 4, 6, 8)
"""Trajectories per update in units of the smallest budget: 500, 1000, 2000, 3000 and 4000 in the paper."""
CLOSE = 0.3
"""Nats within which entropies count as close."""
LEVEL = 0.1
"""Success rates this near count as level."""
LEARNED = 0.5
"""Success rate from which on a task counts as learned."""
TREND = 0.7
"""Spearman's correlation below which there is no trend."""
FLOAT_ERROR = 1e-5
AGENTS = (1, 10, 50)
AGREE = 0.75
"""Part of the seeds that must agree."""
LEAST_SEEDS = 4
"""That both groups must have: with fewer nothing is decided, so that a campaign half done decides nothing either."""


class Outcome(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    NOT_RUN = "not run"
    TOO_SMALL = "not judged, the runs are too small"


@dataclass(frozen=True)
class Finding:
    """What a rule says of the facts."""

    outcome: Outcome
    ours: str = ""
    """The numbers that it rests on, in words."""


Judge = Callable[[Facts], Finding]


@dataclass(frozen=True)
class Claim:
    number: int
    claim: str
    paper: str
    """Where the paper says it, and its numbers."""
    rule: str
    """What would confirm or refute it, in words."""
    target: str
    """What `kmyriad reproduce` must be asked for; empty if no run is needed."""
    judge: Judge


def difference(facts: Facts, first: str, second: str) -> Mean | None:
    """`first` minus `second`, paired by seed; None if they share none."""
    ours, theirs = facts.get(first, {}), facts.get(second, {})
    paired = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return mean_of(paired) if paired else None


def ahead(facts: Facts, first: str, second: str) -> int | None:
    """1 if `first` is ahead of `second`, -1 if it is behind, 0 if that is not decided; None without common seeds."""
    mean = difference(facts, first, second)
    if mean is None:
        return None
    signs = [np.sign(facts[first][seed] - facts[second][seed]) for seed in facts[first] if seed in facts[second]]
    if mean.count < LEAST_SEEDS or mean.margin is None or abs(mean.mean) <= mean.margin:
        return 0
    sign = 1 if mean.mean > 0 else -1
    return sign if np.mean(np.array(signs) == sign) >= AGREE else 0


def side_of(facts: Facts, name: str, bound: float) -> int | None:
    """1 if the mean of `name` is above `bound` beyond doubt, -1 if below, 0 if not decided, None if not measured."""
    return ahead({**facts, "bound": dict.fromkeys(facts.get(name, {}), bound)}, name, "bound")


def together(signs: Sequence[int | None]) -> Outcome:
    """Confirmed if all are 1, refuted if any is -1, else undecided; not run if one is missing."""
    if not signs or None in signs:
        return Outcome.NOT_RUN
    if -1 in signs:
        return Outcome.REFUTED
    return Outcome.CONFIRMED if all(sign == 1 for sign in signs) else Outcome.UNDECIDED


def _orders(*pairs: tuple[str, str], beside: Mapping[str, Sequence[tuple[str, str]]] | None = None) -> Judge:
    """The rule that the first of each pair is ahead of the second; pairs `beside` it, by a title, are only told."""

    def judge(facts: Facts) -> Finding:
        told = [_words(facts, pairs)]
        told += [f"{title}: {words}" for title, others in (beside or {}).items() if (words := _words(facts, others))]
        return Finding(together([ahead(facts, *pair) for pair in pairs]), ". ".join(told))

    return judge


def _words(facts: Facts, pairs: Sequence[tuple[str, str]]) -> str:
    """`ant-empty 1 - 10: +0.31 ± 0.12` for every pair that was measured."""
    told = []
    for pair in pairs:
        mean = difference(facts, *pair)
        if mean is not None:
            ours, theirs = (name.split("/")[1:] for name in pair)
            common = [part for part in ours if part in theirs]
            first, second = (" ".join(part for part in parts if part not in common) for parts in (ours, theirs))
            told.append(" ".join([*common, f"{first} - {second}:", mean.text("+.3g")]))
    return "; ".join(told)


def _mean(facts: Facts, name: str) -> float | None:
    values = [*facts.get(name, {}).values()]
    return float(np.mean(values)) if values else None


def close_to_one(facts: Facts) -> Finding:
    """Claim 2: |H1 - H10| below CLOSE, and below a third of H1 - H50; both with the uncertainty of all three."""
    one, ten, fifty = (facts.get(f"entropy/ant-empty/{agents}", {}) for agents in AGENTS)
    seeds = [seed for seed in one if seed in ten and seed in fifty]
    if not seeds:
        return Finding(Outcome.NOT_RUN)
    near, far = ({seed: one[seed] - other[seed] for seed in seeds} for other in (ten, fifty))
    room = {  # four sides of the claim, each linear in what was measured
        "below": {seed: CLOSE - near[seed] for seed in seeds},
        "above": {seed: CLOSE + near[seed] for seed in seeds},
        "below a third": {seed: far[seed] / 3 - near[seed] for seed in seeds},
        "above a third": {seed: far[seed] / 3 + near[seed] for seed in seeds},
    }
    pairs = [("entropy/ant-empty/1", f"entropy/ant-empty/{agents}") for agents in (10, 50)]
    return Finding(together([side_of(room, name, 0.0) for name in room]), _words(facts, pairs))


def fifty_slower(facts: Facts) -> Finding:
    """Claim 3: steps to a mark are more for fifty than for ten and for ten than for one, also at one rate for all.

    Refuted if fifty take fewer than ten or than one.
    """
    one, ten, fifty, one_rate = (f"steps/ant-empty/{name}" for name in ("1", "10", "50", "50-one-rate"))
    pairs = [(fifty, ten), (ten, one), (one_rate, ten)]
    signs = [ahead(facts, *pair) for pair in pairs]
    outcome = together(signs)
    if outcome == Outcome.REFUTED and -1 not in (signs[0], signs[2], ahead(facts, fifty, one)):
        outcome = Outcome.UNDECIDED
    mark = _mean(facts, "mark/ant-empty")
    at = "" if mark is None else f"to {mark:.2f} nats: "
    return Finding(outcome, at + _words(facts, pairs))


def more_trajectories(facts: Facts) -> Finding:
    """Claim 5: entropy at equal updates rises with the budget: 4 of 4 or 3 of 4 steps up; refuted below rho 0.7.

    What it does at equal steps is told beside it.
    """
    means = [_mean(facts, f"budget/{budget}") for budget in BUDGETS]
    known = [mean for mean in means if mean is not None]
    if len(known) < len(means):
        return Finding(Outcome.NOT_RUN)
    rises, rho = _trend(known)
    ours = f"at equal updates {_listed(known)}, {rises} of {len(known) - 1} rise, rho {rho:.2f}"
    at_equal_steps = [_mean(facts, f"budget_steps/{budget}") for budget in BUDGETS]
    if None not in at_equal_steps:
        same = [mean for mean in at_equal_steps if mean is not None]
        up, trend = _trend(same)
        ours += f"; at equal steps {_listed(same)}, {up} of {len(same) - 1} rise, rho {trend:.2f}"
    seeds = min(len(facts[f"budget/{budget}"]) for budget in BUDGETS)
    if rho < TREND:
        return Finding(Outcome.UNDECIDED if seeds < LEAST_SEEDS else Outcome.REFUTED, ours)
    widest = ahead(facts, f"budget/{BUDGETS[-1]}", f"budget/{BUDGETS[0]}")
    return Finding(Outcome.CONFIRMED if rises >= len(known) - 2 and widest == 1 else Outcome.UNDECIDED, ours)


def _trend(values: Sequence[float]) -> tuple[int, float]:
    """(how many steps from one budget to the next are up, Spearman's correlation with the budget)."""
    rho = float(spearmanr(BUDGETS, values).statistic) if len({*values}) > 1 else 0.0
    return int((np.diff(values) > 0).sum()), rho


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.2f}" for value in values)


def divergence_grows(facts: Facts) -> Finding:
    """Claim 6: KL of fifty above that of ten in all worlds, each less its floor of shuffled labels, and above it."""
    net = {
        f"net/{world}/{agents}": _minus(facts, f"kl/{world}/{agents}", f"kl_floor/{world}/{agents}")
        for world in WORLDS
        for agents in (10, 50)
    }
    outcome = together([ahead(net, f"net/{world}/50", f"net/{world}/10") for world in WORLDS])
    if outcome == Outcome.CONFIRMED and not all(side_of(net, name, 0.0) == 1 for name in net):
        outcome = Outcome.UNDECIDED
    told = []
    for world in WORLDS:
        ten, fifty = (_mean(net, f"net/{world}/{agents}") for agents in (10, 50))
        if ten is not None and fifty is not None:
            told.append(f"{world} {ten:.3f} to {fifty:.3f}")
    return Finding(outcome, f"above the floor: {', '.join(told)}" if told else "")


def _minus(facts: Facts, first: str, second: str) -> dict[int, float]:
    ours, theirs = facts.get(first, {}), facts.get(second, {})
    return {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}


def level_at_the_end(facts: Facts) -> Finding:
    """Claim 8: final success of best minus single within LEVEL in every world; refuted if best is ahead by more.

    Where neither has learned the task, that they are level says nothing.
    """
    signs: list[int | None] = []
    pairs = [(f"final/{world}/best", f"final/{world}/single") for world in WORLDS]
    for pair in pairs:
        mean = difference(facts, *pair)
        if mean is None:
            signs.append(None)
        elif mean.margin is None or mean.count < LEAST_SEEDS:
            signs.append(0)
        elif abs(mean.mean) + mean.margin <= LEVEL:
            signs.append(int(max(_mean(facts, name) or 0.0 for name in pair) >= LEARNED))
        else:
            signs.append(-1 if mean.mean - mean.margin > LEVEL else 0)
    return Finding(together(signs), _words(facts, pairs))


def gap_narrows(facts: Facts) -> Finding:
    """Claim 10: one agent is ahead at the end, by less than at a fifth of the long run."""
    order = [ahead(facts, "long_end/1", f"long_end/{agents}") for agents in (10, 50)]
    gaps: dict[str, dict[int, float]] = {}
    for agents in (10, 50):
        for when in ("fifth", "end"):
            gaps[f"gap_{when}/{agents}"] = _minus(facts, f"long_{when}/1", f"long_{when}/{agents}")
    pairs = [(f"gap_fifth/{agents}", f"gap_end/{agents}") for agents in (10, 50)]
    words = _words(facts, [("long_end/1", f"long_end/{agents}") for agents in (10, 50)])
    narrower = [difference(gaps, *pair) for pair in pairs]
    told = [f"{agents}: {by.text('+.3g')}" for agents, by in zip((10, 50), narrower, strict=True) if by is not None]
    outcome = together([*order, *(ahead(gaps, *pair) for pair in pairs)])
    return Finding(outcome, f"{words}; narrower than at a fifth by {', '.join(told)}" if told else "")


def regions(facts: Facts) -> Finding:
    """Claim 11: median success of PPO alone above 0.8 inside 4.5 m and below 0.2 outside; refuted beyond 0.5."""
    inside, outside = ([*facts.get(f"ppo/{where}", {}).values()] for where in ("inside", "outside"))
    if not inside or not outside:
        return Finding(Outcome.NOT_RUN)
    near, far = float(np.median(inside)), float(np.median(outside))
    ours = f"median success inside {near:.2f}, outside {far:.2f}"
    if min(len(inside), len(outside)) < 3:
        return Finding(Outcome.UNDECIDED, ours)
    if near > 0.8 and far < 0.2:
        return Finding(Outcome.CONFIRMED, ours)
    return Finding(Outcome.REFUTED if near < 0.5 or far > 0.5 else Outcome.UNDECIDED, ours)


def opposite_ways(facts: Facts) -> Finding:
    """Claim 12: for both goals two agents succeed by windings of opposite sign, in three seeds at least."""
    found = [[*facts.get(f"opposite/{goal}", {}).values()] for goal in ("top-right", "top-left")]
    if not all(found):
        return Finding(Outcome.NOT_RUN)
    ours = ", ".join(f"{int(sum(seeds))} of {len(seeds)} seeds" for seeds in found)
    if all(len(seeds) >= 3 and sum(seeds) >= 3 for seeds in found):
        return Finding(Outcome.CONFIRMED, ours)
    is_rare = any(len(seeds) >= 3 and sum(seeds) < len(seeds) / 2 for seeds in found)
    return Finding(Outcome.REFUTED if is_rare else Outcome.UNDECIDED, ours)


def clusters(facts: Facts) -> Finding:
    """Claim 14: a held-out classifier tells the agent from where it ends, three times as often as chance."""
    values = facts.get("accuracy/10", {})
    if not values:
        return Finding(Outcome.NOT_RUN)
    ours = f"accuracy {mean_of([*values.values()])}, chance 0.10"
    if side_of(facts, "accuracy/10", 0.3) == 1:
        return Finding(Outcome.CONFIRMED, ours)
    at_chance = side_of(facts, "accuracy/10", 0.3) == -1 and side_of(facts, "accuracy/10", 0.1) != 1
    return Finding(Outcome.REFUTED if at_chance else Outcome.UNDECIDED, ours)


def throughput(facts: Facts) -> Finding:
    """Claim 13: rates are stated beside the paper's; another machine confirms or refutes nothing."""
    rates = {name.partition("/")[2]: _mean(facts, name) for name in facts if name.startswith("rate/")}
    told = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items() if rate is not None)
    return Finding(Outcome.UNDECIDED if told else Outcome.NOT_RUN, f"steps/s on one core: {told}" if told else "")


def estimators_agree(facts: Facts) -> Finding:
    """Claim 15: at importance weight 1 the weighted estimator and its gradient differ from Eq. 1's by float error."""
    value, gradient = (_mean(facts, f"weighted/{what}") for what in ("value", "gradient"))
    if value is None or gradient is None:
        return Finding(Outcome.NOT_RUN)
    ours = f"largest difference: value {value:.1e} nats, gradient {gradient:.1e} of its largest entry"
    return Finding(Outcome.CONFIRMED if max(value, gradient) < FLOAT_ERROR else Outcome.REFUTED, ours)


def _entropy(world: str, agents: int) -> str:
    return f"entropy/{world}/{agents}"


def _early(measure: str) -> list[tuple[str, str]]:
    """Best of fifty against a single policy, and that against random, in every world."""
    order = (("best", "single"), ("single", "random"))
    return [
        (f"{measure}/{world}/{first}", f"{measure}/{world}/{second}") for world in WORLDS for first, second in order
    ]


CLAIMS = [
    Claim(
        1,
        "at a fixed budget one agent has the highest entropy in Empty and Maze",
        "entropy curves, 4 runs",
        "H1 ahead of H10 and of H50 at the end, in both worlds; refuted if either is reversed",
        "entropy-curves",
        _orders(*((_entropy(w, 1), _entropy(w, m)) for w in ("ant-empty", "ant-maze") for m in (10, 50))),
    ),
    Claim(
        2,
        "ten agents come close to one",
        '"close"',
        "|H1 - H10| < 0.3 nats and < (H1 - H50) / 3 in Empty, each beyond doubt; refuted if one fails beyond doubt",
        "entropy-curves",
        close_to_one,
    ),
    Claim(
        3,
        "fifty are slower in Empty",
        "entropy curves",
        "steps to one entropy for all: fifty > ten > one, also with one rate, as the paper's fifty have 2.5 times it;"
        " refuted if fifty are faster",
        "entropy-curves",
        fifty_slower,
    ),
    Claim(
        4,
        "fifty are ahead in Pyramid and Cave",
        "entropy curves",
        "H50 ahead of H10 and of H1 in both; refuted if behind in either",
        "entropy-curves",
        _orders(*((_entropy(w, 50), _entropy(w, m)) for w in ("ant-pyramid", "ant-cave") for m in (10, 1))),
    ),
    Claim(
        5,
        "more trajectories per update raise the entropy of ten agents",
        "budget figure: 500, 1k, 2k, 3k, 4k, 4 runs",
        "fresh episodes at equal updates: rises over at least 3 of 4 steps, the most ahead of the fewest; refuted if"
        " Spearman < 0.7; equal steps are told beside it",
        "budget",
        more_trajectories,
    ),
    Claim(
        6,
        "KL between agents grows from ten to fifty in every world",
        "Empty .9869 to 1.3337, Maze .5980 to 1.0230, Pyramid .5340 to .8807, Cave .8804 to 1.0432",
        "KL less its floor of shuffled labels, as many episodes and states of every agent: fifty ahead of ten in four"
        " of four; refuted if behind in any",
        "kl-table",
        divergence_grows,
    ),
    Claim(
        7,
        "PPO from the best of fifty is ahead of a single policy and of random early",
        "success rates, 300 replicas, 10M steps",
        "mean success over the first third of all steps, selection and practice counted: best ahead of single ahead of"
        " random in four of four",
        "success-rates",
        _orders(*_early("early"), beside={"Over the first third of all updates": _early("early_updates")}),
    ),
    Claim(
        8,
        "near convergence the single policy is level with the best of fifty",
        '"comparable"',
        "final success in fresh episodes within 0.1 in four of four, one of them at least 0.5; refuted if best is ahead"
        " by more in any",
        "success-rates",
        level_at_the_end,
    ),
    Claim(
        9,
        "both pretrained starts beat random within the budget",
        '"clearly"',
        "final success in fresh episodes: best and single ahead of random in four of four; refuted if behind in any",
        "success-rates",
        _orders(*((f"final/{w}/{init}", f"final/{w}/random") for w in WORLDS for init in ("best", "single"))),
    ),
    Claim(
        10,
        "over five times the updates in Empty one stays ahead and the gap narrows",
        "long run, 600M steps",
        "H1 ahead at the end; its gap to ten and to fifty smaller than at a fifth",
        "long-run",
        gap_narrows,
    ),
    Claim(
        11,
        "PPO alone solves goals within 4.5 m and fails beyond",
        "median and IQR of 6 runs, 15M steps",
        "median success > 0.8 inside and < 0.2 outside; refuted if inside < 0.5 or outside > 0.5",
        "goal-regions",
        regions,
    ),
    Claim(
        12,
        "two PointMaze agents reach a goal by opposite ways",
        "two goals, top right and top left",
        "both succeed with windings of opposite sign, three seeds, both goals; refuted if in less than half",
        "point-maze",
        opposite_ways,
    ),
    Claim(
        13,
        "120M steps in 40 to 51 minutes, PPO 10M in 25",
        "39,000 to 55,600 steps/s; PPO 6,250 to 6,700 (GPU)",
        "rates are stated beside it; another machine decides nothing",
        "entropy-curves",
        throughput,
    ),
    Claim(
        14,
        "agents form clusters of their own",
        "a picture of ten agents",
        "a held-out classifier of the agent from its last x, y: above 3/m; refuted below it and not above chance",
        "diversity",
        clusters,
    ),
    Claim(
        15,
        "at importance weight 1 the weighted estimator is Eq. 1",
        "appendix",
        "value and gradient to float error, with weights normalised over the batch (MEPOL's form; as printed it fails)",
        "",
        estimators_agree,
    ),
]
