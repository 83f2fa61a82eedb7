"""What came of a run, in sentences made from its numbers. Whatever number is missing leaves its sentence out."""

import math
from collections.abc import Sequence
from typing import Any

from kmyriad.checks import is_number
from kmyriad.config import JumpstartConfig, PretrainConfig
from kmyriad.envs import WORLDS, describe
from kmyriad.envs.plane import Plane
from kmyriad.evaluation.statistics import smoothed

BEGINNINGS = {
    "best": "the agent that did best on the task",
    "single": "a policy pretrained alone",
    "random": "fresh weights, without pretraining",
    "policy": "a policy that was trained elsewhere",
}

FULL = 0.9
"""Part of the last iteration's particles that another needs for its entropy to compare: the pool fills at first."""

FEW = 6
"""Agents that a sentence names; of more it gives the number."""


def pretraining_summary(
    config: PretrainConfig,
    rows: Sequence[dict[str, Any]],
    measures: dict[str, Any] | None = None,
    episodes: int = 0,
    plane: Plane | None = None,
) -> list[str]:
    """Sentences about a population.

    `rows` are its metrics; `measures` are those of `episodes` fresh ones per agent, with the cells of `plane`.
    """
    measures = measures or {}
    sentences = [
        _pretraining(config, rows),
        _priors(measures),
        _entropy(rows),
        _coverage(measures, episodes, plane),
        _difference(measures),
    ]
    return [sentence for sentence in sentences if sentence]


def jumpstart_summary(config: JumpstartConfig, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Sentences about a policy that learned to reach a goal, or to earn the reward of its environment."""
    goal = ", ".join(config.task.goal_words)
    unit = " m" if config.task.env in WORLDS else ""
    task = f"reach the goal ({goal}){unit}" if goal else "earn the reward of its environment"
    sentences = [
        f"Learned to {task}: {describe(config.task.env)}{_amount_of_training(config, rows)}.",
        _beginning(config),
        _success(rows) if goal else _return(rows),
    ]
    return [sentence for sentence in sentences if sentence]


def amount(count: float) -> str:
    """`1600000` to "1.6 million"."""
    return f"{count / 1e6:.3g} million" if count >= 1e6 else f"{count:,.0f}"


def number(value: Any) -> float | None:
    """`value` if it is a finite number."""
    return value if is_number(value) and math.isfinite(value) else None


def _pretraining(config: PretrainConfig, rows: Sequence[dict[str, Any]]) -> str:
    agents = config.population.agents
    who = "One agent" if agents == 1 else f"{agents} agents"
    return f"{who} explored without reward: {describe(config.world.env)}{_amount_of_training(config, rows)}."


def _priors(measures: dict[str, Any]) -> str:
    names = measures.get("priors")
    return f"Agents were told of the robot that it is symmetric: {', '.join(names)}." if names else ""


def _amount_of_training(config: PretrainConfig | JumpstartConfig, rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ", without a single finished iteration"
    steps, count = number(rows[-1].get("env_steps")), rows[-1]["iteration"]
    done = "1 iteration" if count == 1 else f"{count:,} iterations"
    if steps is None:
        return f", {done}"
    asked = config.run.total_steps
    part = "" if steps >= asked else f" of {amount(asked)}"
    return f", {amount(steps)}{part} environment steps ({done})"


def _entropy(rows: Sequence[dict[str, Any]]) -> str:
    known = [row for row in rows if number(row.get("entropy")) is not None]
    if not known:
        return ""
    last = known[-1]
    enough = FULL * (number(last.get("particles")) or 0)
    first = next((row for row in known if (number(row.get("particles")) or 0) >= enough), last)
    if first is last:
        return f"The entropy of the states that all agents visit together is {last['entropy']:.2f} nats."
    verb = "rose" if last["entropy"] > first["entropy"] else "fell"
    since = f" (iteration {first['iteration']}, the first with whole episodes)" if first is not known[0] else ""
    return (
        f"The entropy of the states that all agents visit together {verb} from {first['entropy']:.2f} nats{since}"
        f" to {last['entropy']:.2f} nats."
    )


def _coverage(measures: dict[str, Any], episodes: int, plane: Plane | None) -> str:
    together, each = number(measures.get("covered_cells")), measures.get("covered_cells_per_agent") or []
    if together is None:
        return ""
    played = f"In {episodes * max(len(each), 1):,} fresh episodes"
    squares = "cells" if plane is None else f"cells of {plane.cell_words}"
    if len(each) < 2:
        return f"{played} it came to {together:,} {squares}."
    best = max(each)
    return (
        f"{played} all agents together came to {together:,} {squares}, {together / max(best, 1):.1f} times as many as"
        f" the best single agent, agent {each.index(best)}, with {best:,} cells in its {episodes:,} episodes."
    )


def _difference(measures: dict[str, Any]) -> str:
    each = [number(value) for value in measures.get("kl_between_agents") or []]
    floor, known = number(measures.get("kl_floor")), [value for value in each if value is not None]
    if floor is None or not known:
        return ""
    mean = sum(known) / len(known)
    alike = [str(agent) for agent, value in enumerate(each) if value is not None and value <= floor]
    told = (
        f"The KL of an agent's states from those of the others is {mean:.2f} nats on average; agents that all behave"
        f" alike would show {floor:.2f} with as many episodes."
    )
    if mean <= floor:
        return f"{told} By this measure the agents do not differ."
    if not alike:
        return f"{told} Every agent lies above that."
    if len(alike) > FEW:
        return f"{told} {len(alike)} of {len(each)} agents do not lie above that."
    names = alike[0] if len(alike) == 1 else f"{', '.join(alike[:-1])} and {alike[-1]}"
    verb = "Agent {} does" if len(alike) == 1 else "Agents {} do"
    return f"{told} {verb.format(names)} not lie above that."


def _beginning(config: JumpstartConfig) -> str:
    start = config.start
    origin = f", from {start.policy or start.source}" if start.init != "random" else ""
    return f"It began with {BEGINNINGS[start.init]}{origin}."


def _return(rows: Sequence[dict[str, Any]]) -> str:
    known = [row["return"] for row in rows if number(row.get("return")) is not None]
    return f"In the last iterations its episodes earned {smoothed(known)[-1]:.4g} on average." if known else ""


def _success(rows: Sequence[dict[str, Any]]) -> str:
    known = [row for row in rows if number(row.get("success")) is not None]
    if not known:
        return ""
    rates = smoothed([row["success"] for row in known])
    sentence = f"In the last iterations {rates[-1]:.0%} of the episodes reached the goal"
    paired = zip(known, rates, strict=True)
    half = next((row for row, rate in paired if rate >= 0.5 and number(row.get("env_steps")) is not None), None)
    if half is not None:
        return f"{sentence}; it was first half of them or more after {amount(half['env_steps'])} environment steps."
    return f"{sentence}."
