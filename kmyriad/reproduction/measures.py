"""What finished runs tell: numbers per seed, from fresh episodes and from their metrics.

Fresh episodes take a while; what they told is kept in a file beside the runs, so that measuring can be stopped too.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kmyriad.errors import UsageError
from kmyriad.evaluation.comparison import steps_before_learning
from kmyriad.evaluation.evaluate import SEED, Evaluation, current_evaluation, play
from kmyriad.evaluation.measures import K
from kmyriad.evaluation.statistics import smoothed
from kmyriad.objective.divergence import kl_to_others
from kmyriad.objective.entropy import knn_entropy, particle_rewards, weighted_knn_entropy
from kmyriad.objective.neighbours import nearest_neighbours
from kmyriad.objective.scale import scaled_visits
from kmyriad.reproduction.plan import (
    AGENTS,
    LONGER,
    RING_GOALS,
    SIZES,
    STARTS,
    ZONES,
    Method,
    Size,
    budget_run,
    goal_run,
    region_run,
    ring_run,
    run_name,
)
from kmyriad.reproduction.verdicts import BUDGETS, WORLDS
from kmyriad.rollout.collect import Segment, Trajectory, Visits
from kmyriad.runs.checkpoints import checkpoint_iterations
from kmyriad.runs.files import read_json, write_json
from kmyriad.runs.progress import say
from kmyriad.runs.run import Run, open_run
from kmyriad.runs.state import load_population

NEIGHBOURS = 5
"""Of the classifier of agents."""
FINAL_ROWS = 3
"""Updates at the end of a run whose entropy is averaged."""
KL_STATES = 2000
"""Of every agent, at most."""
AT_A_TIME = 1000
"""Episodes that are played at once."""
SUCCESS_EPISODES = 100
EARLY = 1 / 3
"""Part of a jump-start that counts as early."""
SOLVED = 0.5
"""Success rate from which on an agent's way to a goal is asked for."""

Numbers = dict[str, dict[int, float]]


def facts_of(folder: Path, size: Size, method: Method) -> Numbers:
    """Everything that the finished runs in `folder` tell about the claims."""
    facts: Numbers = {}
    for what, error in weighted_errors().items():
        _put(facts, f"weighted/{what}", 0, error)
    for world in WORLDS:
        _populations(facts, folder, size, world)
        _steps_to_mark(facts, folder, size, method, world)
        _goals(facts, folder, size, world)
    for seed in SIZES[size].seeds:
        _budgets(facts, folder, size, seed)
        for agents in AGENTS:
            path = folder / run_name("ant-empty", agents, seed, "long")
            _put(facts, f"long_fifth/{agents}", seed, _entropy_after(path, 1 / LONGER))
            _put(facts, f"long_end/{agents}", seed, _entropy_after(path, 1.0))
        for goal in RING_GOALS:
            _ring(facts, folder, goal, seed)
    for zone in ZONES:
        for seed in SIZES[size].region_seeds:
            run = finished(folder / region_run(zone, seed))
            if run is not None:
                _put(facts, f"ppo/{zone}", seed, fresh_success(run))
    return facts


def finished(path: Path) -> Run | None:
    """The run in a folder, None if there is none that has made all of its steps."""
    run = open_run(path) if (path / "config.json").exists() else None
    return run if run is not None and run.is_finished else None


def evaluation_of(run: Run, size: Size) -> Evaluation:
    return current_evaluation(run, threads=1, episodes=SIZES[size].episodes)


def _populations(facts: Numbers, folder: Path, size: Size, world: str) -> None:
    """Entropy, KL and throughput of the populations in a world; how well ten agents are told apart."""
    for agents, seed, run in _runs(folder, size, world):
        evaluation = evaluation_of(run, size)
        _put(facts, f"entropy/{world}/{agents}", seed, evaluation.measures["entropy"])
        _put(facts, f"rate/{world}/{agents}", seed, _rate(run))
        if agents > 1:
            told = fresh_kl(run, SIZES[size].kl_episodes)
            _put(facts, f"kl/{world}/{agents}", seed, told["kl"])
            _put(facts, f"kl_floor/{world}/{agents}", seed, told["floor"])
        if (world, agents) == ("ant-empty", 10):
            visits = evaluation.visits
            _put(facts, "accuracy/10", seed, accuracy(visits.xy[:, :, -1], visits.valid[:, :, -1]))


def _runs(folder: Path, size: Size, world: str) -> Iterator[tuple[int, int, Run]]:
    for agents in AGENTS:
        for seed in SIZES[size].seeds:
            run = finished(folder / run_name(world, agents, seed))
            if run is not None:
                yield agents, seed, run


def _steps_to_mark(facts: Numbers, folder: Path, size: Size, method: Method, world: str) -> None:
    """Steps after which training's entropy was first at a mark: the same for all runs in a world.

    The mark is what the group with the lowest entropy has at the end, on average over its seeds. A run that never comes
    there counts with all of its steps, which is the least that it would take.
    """
    names = {str(agents): [run_name(world, agents, seed) for seed in SIZES[size].seeds] for agents in AGENTS}
    names["50-one-rate"] = [run_name(world, 50, seed, "one-rate") for seed in SIZES[size].seeds]
    curves: dict[str, dict[int, Any]] = {}
    for name, paths in names.items():
        for seed, path in zip(SIZES[size].seeds, paths, strict=True):
            run = finished(folder / path)
            if run is not None:
                curves.setdefault(name, {})[seed] = _entropies(run)
    ends = [np.mean([ys[-FINAL_ROWS:].mean() for _, ys in of_seeds.values()]) for of_seeds in curves.values()]
    if not ends:
        return
    mark = float(min(ends))
    for seed in SIZES[size].seeds:
        _put(facts, f"mark/{world}", seed, mark)
    for name, of_seeds in curves.items():
        for seed, (steps, entropies) in of_seeds.items():
            there = np.flatnonzero(np.array(smoothed(entropies.tolist())) >= mark)
            _put(facts, f"steps/{world}/{name}", seed, steps[there[0]] if there.size else steps[-1])
    if method == "ours" and f"steps/{world}/50" in facts:  # ours has one rate for any number of agents
        facts[f"steps/{world}/50-one-rate"] = dict(facts[f"steps/{world}/50"])


def _budgets(facts: Numbers, folder: Path, size: Size, seed: int) -> None:
    """Entropy of fresh episodes, as many for every budget: after all updates, and after the steps of the smallest."""
    for budget in BUDGETS:
        run = finished(folder / budget_run(size, budget, seed))
        if run is None:
            continue
        updates = int(run.last_row()["iteration"])
        early = min(checkpoint_iterations(run.checkpoints), key=lambda one: abs(one - updates / budget))
        episodes = SIZES[size].episodes
        _put(facts, f"budget/{budget}", seed, fresh_entropy(run, updates, episodes))
        _put(facts, f"budget_steps/{budget}", seed, fresh_entropy(run, early, episodes))


def _goals(facts: Numbers, folder: Path, size: Size, world: str) -> None:
    """Success of jump-starts in a world, of each seed on average over its goals in a zone."""
    for start in STARTS:
        for zone, count in SIZES[size].goals.items():
            for seed in SIZES[size].seeds:
                paths = [folder / goal_run(world, start, zone, number, seed) for number in range(count)]
                runs = [run for path in paths if (run := finished(path)) is not None]
                if not runs or len(runs) < len(paths):
                    continue
                where = "" if zone == "outside" else f"_{zone}"
                _put(facts, f"final{where}/{world}/{start}", seed, np.mean([fresh_success(run) for run in runs]))
                for name, x in (("early", "env_steps"), ("early_updates", "iteration")):
                    _put(
                        facts, f"{name}{where}/{world}/{start}", seed, np.mean([early_success(run, x) for run in runs])
                    )
                if zone == "outside":
                    _put(facts, f"rate/PPO in {world}", seed, np.mean([_rate(run) for run in runs]))


def _ring(facts: Numbers, folder: Path, goal: str, seed: int) -> None:
    """Whether the two agents of a seed come to a goal of the PointMaze by opposite ways."""
    ways = []
    for agent in (0, 1):
        run = finished(folder / ring_run(agent, goal, seed))
        if run is None:
            return
        told = fresh_way(run)
        _put(facts, f"ring_success/{goal}/{agent}", seed, told["success"])
        _put(facts, f"winding/{goal}/{agent}", seed, told["winding"])
        ways.append(told)
    both = all((way["success"] or 0.0) >= SOLVED for way in ways)
    turns = [way["winding"] or 0.0 for way in ways]
    _put(facts, f"opposite/{goal}", seed, float(both and turns[0] * turns[1] < 0))


def fresh_entropy(run: Run, iteration: int, episodes: int) -> float:
    """Entropy of about `episodes` fresh episodes of the population that a run had after an iteration."""

    def measured() -> float:
        trajectory = play(run, episodes, SEED, threads=1, population=load_population(run, iteration))
        visits, unit = scaled_visits(_first_episodes(trajectory), run.pretraining.world.feature_scale)
        return knn_entropy(visits.features[visits.valid], K) + unit

    return float(_kept(run, f"entropy after iteration {iteration} in {episodes} episodes", measured))


def fresh_kl(run: Run, episodes: int) -> dict[str, float]:
    """`kl` between each agent and all others, and its `floor` where episodes are dealt at random.

    Of every agent as many episodes and states, whatever their number is: with fewer the estimate is another one.
    """

    def measured() -> dict[str, float]:
        agents = run.pretraining.population.agents
        rounds = -(-episodes * agents // AT_A_TIME)
        parts = [_first_episodes(play(run, agents * (episodes // rounds), SEED + n, threads=1)) for n in range(rounds)]
        features, valid = (np.concatenate([getattr(part, name) for part in parts], 1) for name in ("features", "valid"))
        visits, _ = scaled_visits(Visits(features, features[..., :2], valid), run.pretraining.world.feature_scale)
        rng = np.random.default_rng(SEED)
        order = rng.permutation(valid.shape[0] * valid.shape[1])
        return {
            "kl": _kl(visits.features, visits.valid, rng),
            "floor": _kl(_dealt(visits.features, order), _dealt(visits.valid, order), rng),
        }

    told: dict[str, float] = _kept(run, f"kl in {episodes} episodes of every agent", measured)
    return told


def _dealt(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """`values` (m, p, ...) of episodes, dealt to the agents in another order (m * p,)."""
    return values.reshape(-1, *values.shape[2:])[order].reshape(values.shape)


def _kl(features: NDArray[np.float32], valid: NDArray[np.bool_], rng: np.random.Generator) -> float:
    clouds = [features[agent][valid[agent]] for agent in range(len(valid))]
    size = min(KL_STATES, *map(len, clouds))
    return float(kl_to_others(clouds, K, size, rng).mean())


def fresh_success(run: Run) -> float:
    """Part of fresh episodes in which a jump-start's policy comes to the goal."""

    def measured() -> float:
        trajectory = play(run, SUCCESS_EPISODES, SEED, threads=1)
        return float(_successes(trajectory).any(axis=-1).mean())

    return float(_kept(run, f"success in {SUCCESS_EPISODES} episodes", measured))


def fresh_way(run: Run) -> dict[str, float | None]:
    """`success` of a jump-start in the ring, and the median `winding` of its successes."""

    def measured() -> dict[str, float | None]:
        trajectory = play(run, SUCCESS_EPISODES, SEED, threads=1)
        success = _successes(trajectory)[0]
        paths = trajectory.xy[0].cpu().numpy()
        turns = [winding(path[: first + 1]) for path, first in _until(paths, success)]
        return {"success": len(turns) / len(success), "winding": float(np.median(turns)) if turns else None}

    told: dict[str, float | None] = _kept(run, f"way in {SUCCESS_EPISODES} episodes", measured)
    return told


def _until(paths: NDArray[np.float32], success: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.float32], int]]:
    """Those of `paths` (p, T, 2) that succeed, and the step in which each does."""
    return ((path, int(there.argmax())) for path, there in zip(paths, success, strict=True) if there.any())


def winding(path: NDArray[np.floating]) -> float:
    """How many turns round the origin a path (T, 2) makes, anti-clockwise above 0."""
    angles = np.unwrap(np.arctan2(path[:, 1].astype(np.float64), path[:, 0]))
    return float((angles[-1] - angles[0]) / (2 * np.pi))


def early_success(run: Run, x: str) -> float:
    """Mean success over the first part of a jump-start, by training's own episodes, against "env_steps" or "iteration".

    Of steps, those of selecting and practising count, without any success: the policy is not there yet. Until the first
    episodes have ended there is none either.
    """
    rows = run.metrics()
    known = [(row[x], row["success"]) for row in rows if row.get("success") is not None]
    selected = steps_before_learning(run)[0] if x == "env_steps" else 0
    places, success = np.array([(0, 0.0), (selected, 0.0), *known], np.float64).T
    last = EARLY * (run.config.run.total_steps if x == "env_steps" else rows[-1]["iteration"])
    grid = np.unique([0.0, *places[places < last], last])
    return float(np.trapezoid(np.interp(grid, places, success), grid) / last)


def _successes(trajectory: Trajectory) -> NDArray[np.bool_]:
    """(m, p, T), whether the first episode of each replica had succeeded."""
    if trajectory.success is None:
        raise UsageError("the environment does not tell whether a goal was reached; give a goal")
    return (trajectory.success & trajectory.in_first_episode).cpu().numpy()


def _first_episodes(trajectory: Trajectory) -> Visits:
    return Segment(trajectory.features, trajectory.xy, trajectory.valid & trajectory.in_first_episode).visits


def _kept(run: Run, what: str, measured: Callable[[], Any]) -> Any:
    """What a run's folder says about `what` at its last iteration, else what is measured now."""
    path = run.path / "reproduction.json"
    told = read_json(path) if path.exists() else {}
    what = f"iteration {run.last_row().get('iteration', 0)}, {what}"
    if what not in told:
        say(f"measuring {run.name}: {what}")
        told[what] = measured()
        write_json(path, told)
    return told[what]


def accuracy(ends: NDArray[np.float32], valid: NDArray[np.bool_]) -> float | None:
    """How often the agent is told from where an episode ended, (m, p, 2), by its neighbours among the others' ends.

    Every episode is held out in turn. None where an agent has fewer than two.
    """
    agents, points = np.nonzero(valid)[0], ends[valid]
    if valid.sum(axis=1).min() < 2:
        return None
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(apart, np.inf)
    nearest = agents[np.argsort(apart, axis=1, kind="stable")[:, :NEIGHBOURS]]
    told = np.array([np.bincount(row, minlength=len(valid)).argmax() for row in nearest])
    return float((told == agents).mean())


def weighted_errors() -> dict[str, float]:
    """Claim 15: how far the weighted form is from Eq. 1 when every weight is 1, on a fixed cloud of points.

    `value` in nats. `gradient` with respect to the logarithms of the weights, from autograd against the closed form
    that policies are trained with, as part of its largest entry.
    """
    points = np.random.default_rng(0).normal(size=(500, 3))
    neighbours = nearest_neighbours(points, K)
    log_weights = torch.zeros(500, dtype=torch.float64, requires_grad=True)
    weighted = weighted_knn_entropy(log_weights, neighbours, 3)
    (gradient,) = torch.autograd.grad(weighted, log_weights)
    rewards = particle_rewards(neighbours, 3).numpy().astype(np.float64)
    closed = (rewards - rewards.mean()) / len(points)
    return {
        "value": abs(float(weighted.detach()) - knn_entropy(points, K)),
        "gradient": float(np.abs(gradient.numpy() - closed).max() / np.abs(closed).max()),
    }


def _rate(run: Run) -> float:
    """Environment steps per second, on one core."""
    return float(np.mean([row["steps_per_second"] for row in run.metrics()]))


def _entropies(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = [(row["env_steps"], row["entropy"]) for row in run.metrics() if row.get("entropy") is not None]
    steps, entropies = np.array(rows, np.float64).reshape(-1, 2).T
    return steps, entropies


def _entropy_after(path: Path, part: float) -> float | None:
    """The entropy that a run had after a part of its steps, by training's own episodes."""
    run = finished(path)
    if run is None:
        return None
    steps, entropies = _entropies(run)
    last = int(np.searchsorted(steps, part * steps[-1] - 0.5)) + 1
    return float(entropies[max(0, last - FINAL_ROWS) : last].mean())


def _put(facts: Numbers, name: str, seed: int, value: Any) -> None:
    if value is not None and np.isfinite(value):
        facts.setdefault(name, {})[seed] = float(value)


def rows_of(folder: Path, names: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Metrics of those runs that are finished."""
    return [run.metrics() for name in names if (run := finished(folder / name)) is not None]
