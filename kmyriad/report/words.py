"""What came of a run, in sentences made from its numbers. Whatever number is missing leaves its sentence out."""

import math
from collections.abc import Sequence
from typing import Any

from kmyriad.evaluation.statistics import smoothed

WORLDS = {
    "ant-empty": "the Ant on open flat ground",
    "ant-maze": "the Ant in a maze",
    "ant-cave": "the Ant between pits",
    "ant-pyramid": "the Ant between stepped pyramids",
    "point-maze": "the ball in a maze",
}

BEGINNINGS = {
    "best": "the head that did best on the task",
    "single": "a policy pretrained alone",
    "random": "fresh weights, without pretraining",
}

FULL = 0.9
"""Part of the last epoch's particles that an epoch needs for its entropy to compare: before, the pool still fills."""

FEW = 6
"""Heads that a sentence names; of more it gives the number."""


def pretraining_summary(
    config: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    measures: dict[str, Any] | None = None,
    episodes: int = 0,
    cell: float | None = None,
) -> list[str]:
    """Sentences about a population.

    `rows` are its metrics; `measures` are those of `episodes` fresh ones per head, with cells of `cell` metres.
    """
    measures = measures or {}
    sentences = [
        _pretraining(config, rows),
        _entropy(rows),
        _coverage(measures, episodes, cell),
        _difference(measures),
    ]
    return [sentence for sentence in sentences if sentence]


def jumpstart_summary(config: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences about a policy that learned to reach a goal."""
    goal = point(config.get("goal"))
    place = "" if goal is None else f" ({', '.join(f'{coordinate:g}' for coordinate in goal)}) m"
    task = "earn the reward of its environment" if goal is None else f"reach the goal{place}"
    sentences = [
        f"Learned to {task}: {_world(config)}{_amount_of_training(config, rows)}.",
        _beginning(config),
        _success(rows),
    ]
    return [sentence for sentence in sentences if sentence]


def amount(count: float) -> str:
    """`1600000` to "1.6 million"."""
    return f"{count / 1e6:.3g} million" if count >= 1e6 else f"{count:,.0f}"


def number(value: Any) -> float | None:
    """`value` if it is a finite number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None


def point(value: Any) -> list[float] | None:
    """`value` if it is a point of two or three finite coordinates."""
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        return None
    numbers = [found for found in map(number, value) if found is not None]
    return numbers if len(numbers) == len(value) else None


def _pretraining(config: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    agents = number(config.get("agents"))
    who = "A population" if agents is None else "One head" if agents == 1 else f"{agents} heads"
    return f"{who} explored without reward: {_world(config)}{_amount_of_training(config, rows)}."


def _world(config: dict[str, Any]) -> str:
    env = str(config.get("env", "an unknown environment"))
    return f"{WORLDS[env]} ({env})" if env in WORLDS else env


def _amount_of_training(config: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ", without a single finished epoch"
    steps, done, asked = number(rows[-1].get("env_steps")), rows[-1]["epoch"], number(config.get("epochs"))
    epochs = f"{done:,} epochs" if asked is None else f"{done:,} of {asked:,} epochs"
    return f", {epochs}" if steps is None else f", {amount(steps)} environment steps ({epochs})"


def _entropy(rows: Sequence[dict[str, Any]]) -> str:
    known = [row for row in rows if number(row.get("entropy")) is not None]
    if not known:
        return ""
    last = known[-1]
    enough = FULL * (number(last.get("particles")) or 0)
    first = next((row for row in known if (number(row.get("particles")) or 0) >= enough), last)
    if first is last:
        return f"The entropy of the states that all heads visit together is {last['entropy']:.2f} nats."
    verb = "rose" if last["entropy"] > first["entropy"] else "fell"
    since = f" (epoch {first['epoch']}, the first with whole episodes)" if first is not known[0] else ""
    return (
        f"The entropy of the states that all heads visit together {verb} from {first['entropy']:.2f} nats{since}"
        f" to {last['entropy']:.2f} nats."
    )


def _coverage(measures: dict[str, Any], episodes: int, cell: float | None) -> str:
    together, each = number(measures.get("covered_cells")), measures.get("covered_cells_per_head") or []
    if together is None:
        return ""
    played = f"In {episodes * max(len(each), 1):,} fresh episodes"
    squares = "squares" if cell is None else f"squares of {cell:g} m"
    if len(each) < 2:
        return f"{played} it came to {together:,} {squares}."
    best = max(each)
    return (
        f"{played} all heads together came to {together:,} {squares}, {together / max(best, 1):.1f} times as many as"
        f" the best single head, head {each.index(best)}, with {best:,} squares in its {episodes:,} episodes."
    )


def _difference(measures: dict[str, Any]) -> str:
    each = [number(value) for value in measures.get("kl_between_heads") or []]
    floor, known = number(measures.get("kl_floor")), [value for value in each if value is not None]
    if floor is None or not known:
        return ""
    mean = sum(known) / len(known)
    alike = [str(head) for head, value in enumerate(each) if value is not None and value <= floor]
    told = (
        f"The KL of a head's states from those of the others is {mean:.2f} nats on average; heads that all behave alike"
        f" would show {floor:.2f} with as many episodes."
    )
    if mean <= floor:
        return f"{told} By this measure the heads do not differ."
    if not alike:
        return f"{told} Every head lies above that."
    if len(alike) > FEW:
        return f"{told} {len(alike)} of {len(each)} heads do not lie above that."
    names = alike[0] if len(alike) == 1 else f"{', '.join(alike[:-1])} and {alike[-1]}"
    verb = "Head {} does" if len(alike) == 1 else "Heads {} do"
    return f"{told} {verb.format(names)} not lie above that."


def _beginning(config: dict[str, Any]) -> str:
    init, source = config.get("init"), config.get("source")
    if not init:
        return ""
    origin = f", from {source}" if source and init != "random" else ""
    return f"It began with {BEGINNINGS.get(str(init), str(init))}{origin}."


def _success(rows: Sequence[dict[str, Any]]) -> str:
    known = [row for row in rows if number(row.get("success")) is not None]
    if not known:
        return ""
    rates = smoothed([row["success"] for row in known])
    sentence = f"In the last epochs {rates[-1]:.0%} of the episodes reached the goal"
    paired = zip(known, rates, strict=True)
    half = next((row for row, rate in paired if rate >= 0.5 and number(row.get("env_steps")) is not None), None)
    if half is not None:
        return f"{sentence}; it was first half of them or more after {amount(half['env_steps'])} environment steps."
    return f"{sentence}."
