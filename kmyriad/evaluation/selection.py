"""Which agent already does what a task asks for: a race that spends episodes on those still in the running."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, t

from kmyriad.checks import converted
from kmyriad.config import TaskConfig
from kmyriad.engines.make import GoalPoint, resolved
from kmyriad.errors import UsageError
from kmyriad.evaluation.evaluate import stored_evaluation
from kmyriad.population.population import Population
from kmyriad.processes import device_here
from kmyriad.rollout.collect import Segment, Visits, collect
from kmyriad.rollout.randomness import SELECTION, generator, reset_seed
from kmyriad.rollout.replicas import Replicas
from kmyriad.rollout.task import Task
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run, open_run
from kmyriad.runs.state import load_last_horizon, load_population

EPISODES_PER_ROUND = 5

EPISODES_OF_ONE = 30
"""That an agent plays where there is none to race with."""

EPISODES_PER_AGENT = 20
"""That selecting may take for each agent on average, where nothing else is asked for."""


@dataclass(frozen=True)
class Trials:
    """Episodes of several agents."""

    success: NDArray[np.bool_] | None
    """(h, e), None where the task is to earn a return."""
    shortfall: NDArray[np.floating]
    """(h, e), how far from success: metres from the goal at the closest, or minus the return."""
    steps: NDArray[np.int64]
    """(h, e), until success; anything where there was none."""


Play = Callable[[Sequence[int], int, int], Trials]
"""`play(agents, episodes, round)`: fresh episodes."""


@dataclass(frozen=True)
class Standing:
    """What is known about one agent."""

    agent: int
    episodes: int
    successes: int
    shortfall: float
    """The mean over episodes."""
    success_steps: tuple[int, ...]
    """How many steps each of its successes took."""
    interval: tuple[float, float]
    """Of the success rate (Clopper & Pearson 1934) or the mean return (Student), at the race's confidence."""
    by_return: bool = False
    """Whether the task is to earn a return."""

    @property
    def success(self) -> float:
        return self.successes / self.episodes if self.episodes else 0.0

    @property
    def steps(self) -> float | None:
        """The mean over successes; None without any."""
        return float(np.mean(self.success_steps)) if self.success_steps else None

    @property
    def described(self) -> str:
        low, high = self.interval
        if self.by_return:
            return f"return {-self.shortfall:.4g} ({low:.4g} to {high:.4g}) in {self.episodes} episodes"
        return f"success {self.success:.2f} ({low:.2f} to {high:.2f}) in {self.episodes} episodes"


@dataclass(frozen=True)
class Ranking:
    standings: list[Standing]
    """The best agent first: by success rate, then by shortfall, then by number."""
    episodes: int
    """Played in all."""
    is_certain: bool
    """Whether all others were shown to succeed less often than the first, at the race's confidence."""

    @property
    def best(self) -> int:
        return self.standings[0].agent

    @property
    def is_by_shortfall(self) -> bool:
        """No agent ever succeeded, so that only the shortfall ranks them."""
        return all(standing.successes == 0 and not standing.by_return for standing in self.standings)


def select(
    run: Run | str | Path,
    goal: Sequence[float] | Mapping[str, float] = (),
    goal_radius: float | None = None,
    *,
    steps: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    stored: bool = False,
) -> Ranking:
    """Rank the agents of a pretraining run by how often they come to a goal, or by their return where there is none.

    The goal is a point in the first features of the run, such as (6, 3), or in some by name, such as {"x": 10}.

    With `stored` by the episodes kept with the run, without simulating any; else by at most `steps` environment steps
    of fresh ones (None: as many as the number of agents asks for).
    """
    run = open_run(run)
    task = task_in(run, goal, goal_radius)
    return rank_stored(task, run) if stored else rank_agents(task, load_population(run), steps, seed, threads)


def task_in(run: Run, goal: Sequence[float] | Mapping[str, float] = (), goal_radius: float | None = None) -> Task:
    """The task of coming to a goal, or of earning its reward, in the environment that a run was pretrained in."""
    world, asked = run.pretraining.world, TaskConfig(**named_goal(goal), goal_radius=goal_radius)
    return Task(
        world.env,
        world.env_settings,
        world.horizon,
        asked.goal,
        asked.goal_radius,
        asked.goal_names,
        world.features,
        world.engine,
        device_here(run.config.run.device),
    )


def named_goal(goal: Any) -> dict[str, Any]:
    """The settings `goal` and `goal_names` from a point, or from coordinates by name."""
    if isinstance(goal, Mapping):
        return {"goal": tuple(goal.values()), "goal_names": tuple(goal)}
    return {"goal": goal, "goal_names": ()}


def rank_agents(
    task: Task,
    population: Population,
    steps: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    agents: Sequence[int] | None = None,
) -> Ranking:
    """`agents` (all, if None) of `population` race on `task`, for at most so many environment steps."""
    agents = range(population.agents) if agents is None else agents
    per_round = EPISODES_OF_ONE if len(agents) == 1 else EPISODES_PER_ROUND
    steps = task.horizon * max(EPISODES_PER_AGENT * len(agents), EPISODES_OF_ONE) if steps is None else steps
    say(f"trying agents: {len(agents)}; {steps:,} environment steps at most")
    return race(trials(task, population, seed, threads), agents, budget=steps // task.horizon, per_round=per_round)


def rank_stored(task: Task, run: Run) -> Ranking:
    """The agents of `run` by the episodes stored with it, without simulating any: its evaluation's, or training's last.

    With segments a row of training's last horizon is the end of one episode and the beginning of the next.
    """
    evaluation = stored_evaluation(run)
    visits = load_last_horizon(run) if evaluation is None else evaluation.visits
    if not task.goal or visits is None:
        raise UsageError(f"{run.given} has no stored episodes to rank agents for a goal by; leave --stored out")
    replicas = task.replicas(1, threads=1)  # refuses a goal that cannot be reached, and knows how far things are
    replicas.close()
    distance, radius = distances(task, replicas, visits)
    there = distance <= radius
    return rank_episodes(Trials(np.asarray(there.any(axis=-1)), distance.min(axis=-1), first_steps(there)))


def ranking_as_json(ranking: Ranking, horizon: int) -> dict[str, Any]:
    """Plain JSON, with the environment steps that it took."""
    standings = [
        {**converted(dataclasses.asdict(standing)), "success": standing.success, "steps": standing.steps}
        for standing in ranking.standings
    ]
    return {"env_steps": ranking.episodes * horizon, "is_certain": ranking.is_certain, "standings": standings}


def race(
    play: Play, agents: Sequence[int], *, budget: int, confidence: float = 0.95, per_round: int = EPISODES_PER_ROUND
) -> Ranking:
    """Rank `agents` by success rate, or by return where success is not told, with at most `budget` episodes.

    A round is `per_round` episodes of every agent, then of that half of the agents in the running whose rates may be
    highest (upper bounds, as in LUCB, Kalyanakrishnan et al. 2012). An agent is out once its rate lies below the
    leader's beyond doubt: with probability `confidence` the best agent is never out (a union bound over agents and
    rounds). The race ends when one is left or the budget is spent.
    """
    if not agents:
        raise UsageError("there are no agents to choose from; give at least one")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must lie between 0 and 1; got {confidence}")
    if budget < len(agents):
        raise UsageError(f"a budget of {budget} episodes is less than one for each of {len(agents)} agents; raise it")
    record = {agent: _Record() for agent in agents}
    running = active = list(agents)
    left = budget
    rounds = max(1, math.ceil(budget / per_round))
    doubt = (1 - confidence) / (len(agents) * rounds)
    round_index = 0
    while left and (len(running) > 1 or not round_index):
        active = active[:left]
        episodes = min(per_round, left // len(active))
        played = play(active, episodes, round_index)
        for row, agent in enumerate(active):
            record[agent].add(played, row)
        left -= episodes * len(active)
        round_index += 1
        running = _in_the_running(record, running, doubt)
        hopeful = sorted(running, key=lambda agent: (-record[agent].interval(doubt)[1], record[agent].mean_shortfall))
        active = hopeful[: math.ceil(len(hopeful) / 2)]
    return _ranking(record, running, 1 - confidence)


def rank_episodes(played: Trials, confidence: float = 0.95) -> Ranking:
    """Rank agents by episodes that all of them have played before."""
    record = {agent: _Record() for agent in range(len(played.shortfall))}
    for agent, one in record.items():
        one.add(played, agent)
    running = _in_the_running(record, list(record), (1 - confidence) / len(record))
    return _ranking(record, running, 1 - confidence)


def trials(task: Task, population: Population, seed: int, threads: int | None = None) -> Play:
    """What `selection.race` calls to let agents of `population` try the task, all in one vector environment."""
    seed = int(generator(seed, SELECTION).integers(2**62))  # other noise than training sees

    def play(agents: Sequence[int], episodes: int, round_index: int) -> Trials:
        replicas = task.replicas(len(agents) * episodes, threads)
        replicas.start(reset_seed(seed, round_index))
        trajectory = collect(replicas, population.select(agents), task.horizon, seed, round_index)
        replicas.close()
        counts = trajectory.in_first_episode
        if task.goal:
            visits = Segment(trajectory.features, trajectory.xy, trajectory.valid & counts).visits
            shortfall = distances(task, replicas, visits)[0].min(axis=-1)
        else:
            shortfall = -np.where(counts, trajectory.rewards, 0).sum(axis=-1)
        success = np.zeros(counts.shape, bool) if trajectory.success is None else (trajectory.success & counts).numpy()
        solved = None if trajectory.success is None else np.asarray(success.any(axis=-1))
        return Trials(solved, shortfall, first_steps(success))

    return play


def distances(task: Task, replicas: Replicas, visits: Visits) -> tuple[NDArray[np.floating[Any]], float]:
    """((m, e, T), how far from the task's goal episodes were; how near is near enough).

    In a world that is metres, seen from above. In other environments it is the goal's radii, and 1 is near enough.
    """
    if replicas.world is not None:
        offsets = visits.xy - np.asarray(task.goal[:2], np.float32)
        distance, radius = np.linalg.norm(offsets, axis=-1), task.goal_radius or replicas.world.goal_radius
    else:
        goal = resolved(GoalPoint(task.goal, task.goal_names, task.goal_radius), replicas.engine.features)
        assert goal is not None
        distance, radius = goal.distance(visits.features), 1.0
    return np.where(visits.valid, distance, np.inf), radius


def first_steps(success: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(...), how many steps until `success` (..., T) is true for the first time; 1 where it never is."""
    return success.argmax(axis=-1) + 1


def _in_the_running(record: dict[int, "_Record"], agents: Sequence[int], doubt: float) -> list[int]:
    """Those of `agents` whose success rate, or return, may be the highest."""
    leader = max(record[agent].interval(doubt)[0] for agent in agents)
    return [agent for agent in agents if record[agent].interval(doubt)[1] >= leader]


def _ranking(record: dict[int, "_Record"], running: list[int], doubt: float) -> Ranking:
    standings = [one.standing(agent, doubt) for agent, one in record.items()]
    order = sorted(standings, key=lambda s: (-s.success, s.shortfall, s.agent))
    order.sort(key=lambda s: s.agent not in running)  # who is out stays behind, however lucky its few episodes were
    return Ranking(order, sum(s.episodes for s in standings), len(running) == 1)


class _Record:
    """Episodes of one agent."""

    def __init__(self) -> None:
        self.success: list[bool] = []
        self.shortfall: list[float] = []
        self.steps: list[int] = []
        self.by_return = False

    def add(self, played: Trials, row: int) -> None:
        self.shortfall += played.shortfall[row].tolist()
        if played.success is None:
            self.by_return = True
        else:
            self.success += played.success[row].tolist()
            self.steps += played.steps[row][played.success[row]].tolist()

    @property
    def mean_shortfall(self) -> float:
        return float(np.mean(self.shortfall)) if self.shortfall else math.inf

    def interval(self, doubt: float) -> tuple[float, float]:
        if self.by_return:
            return mean_interval(-np.array(self.shortfall), doubt)
        return success_interval(sum(self.success), len(self.success), doubt)

    def standing(self, agent: int, doubt: float) -> Standing:
        return Standing(
            agent,
            len(self.shortfall),
            sum(self.success),
            self.mean_shortfall,
            tuple(self.steps),
            self.interval(doubt),
            self.by_return,
        )


def mean_interval(values: NDArray[np.floating], doubt: float) -> tuple[float, float]:
    """Student's two-sided interval of a mean of values (n,) that misses it with probability `doubt`."""
    if len(values) < 2:
        return -math.inf, math.inf
    margin = float(t.ppf(1 - doubt / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return float(values.mean()) - margin, float(values.mean()) + margin


def success_interval(successes: int, episodes: int, doubt: float) -> tuple[float, float]:
    """The exact two-sided interval of a success rate that misses it with probability `doubt` at most."""
    if episodes == 0:
        return 0.0, 1.0
    low = float(beta.ppf(doubt / 2, successes, episodes - successes + 1)) if successes else 0.0
    high = float(beta.ppf(1 - doubt / 2, successes + 1, episodes - successes)) if successes < episodes else 1.0
    return low, high
