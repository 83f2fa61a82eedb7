"""Measure a finished run, once: fresh episodes, and what its metrics tell."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kmyriad.envs.world import World
from kmyriad.errors import UsageError
from kmyriad.evaluation.comparison import steps_before_learning
from kmyriad.evaluation.evaluate import SEED, current_evaluation, play, world_of
from kmyriad.evaluation.measures import K
from kmyriad.objective.divergence import kl_to_others
from kmyriad.objective.entropy import knn_entropy, particle_rewards, weighted_knn_entropy
from kmyriad.objective.neighbours import nearest_neighbours
from kmyriad.objective.scale import scaled_visits
from kmyriad.reproduction.commits import commits_of
from kmyriad.reproduction.grids import grid_of
from kmyriad.reproduction.measured import Measured
from kmyriad.reproduction.plan import Scale
from kmyriad.rollout.collect import Segment, Trajectory, Visits
from kmyriad.runs.checkpoints import checkpoint_iterations
from kmyriad.runs.run import Run
from kmyriad.runs.state import load_population

NEIGHBOURS = 5
"""Of the classifier of agents."""
KL_STATES = 2000
"""Of every agent, at most."""
AT_A_TIME = 1000
"""Episodes that are played at once."""
SUCCESS_EPISODES = 100
EARLY = 1 / 3
"""Part of a jump-start that counts as early."""
MOST_ROWS = 200
"""Of a learning curve: more than a figure can show apart."""
POINTS = 1000
"""States that are kept one by one, of all agents together."""
MOST_COLOURS = 10
"""Agents that a picture of single states can tell apart."""
AT_EQUAL_STEPS = 0.02
"""Part of its steps, or one update, by which a checkpoint may be off those of the smallest budget."""


def measure(run: Run, scale: Scale, *, shows_where: bool) -> Measured:
    """What a finished run tells; with `shows_where` also where its agents go."""
    world = world_of(run) if shows_where else None
    rows = run.metrics()
    found: dict[str, float | None] = {"steps_per_second": float(np.mean([row["steps_per_second"] for row in rows]))}
    is_population = run.command == "pretrain"
    told = _of_population(run, scale, world) if is_population else _of_jump_start(run, world)
    curve = curve_of(rows, "entropy" if is_population else "success")
    return replace(told, measures=found | told.measures, curve=curve, commits=commits_of(run.path))


def _of_population(run: Run, scale: Scale, world: World | None) -> Measured:
    agents = run.pretraining.population.agents
    evaluation = current_evaluation(run, threads=1, episodes=scale.episodes)
    xy, valid = evaluation.visits.xy, evaluation.visits.valid
    found = {"entropy": evaluation.measures["entropy"], "entropy_at_equal_steps": at_equal_steps(run, scale)}
    if agents > 1:
        found |= fresh_kl(run, scale.kl_episodes)
        found["accuracy"] = accuracy(xy[:, :, -1], valid[:, :, -1])
    told = Measured({name: value for name, value in found.items() if value is not None}, {})
    if world is None:
        return told
    groups = [[0], [1]] if agents == 2 else [[*range(agents)]]
    maps = [grid_of(xy[group][valid[group]], world).as_json() for group in groups]
    return replace(told, maps=maps, points=_some(xy, valid) if 2 < agents <= MOST_COLOURS else [])


def _some(xy: NDArray[np.floating], valid: NDArray[np.bool_]) -> list[list[list[int]]]:
    """Some states of each agent of `xy` (m, p, T, 2), x and y in centimetres."""
    rng = np.random.default_rng(SEED)
    clouds = [places[counts] for places, counts in zip(xy, valid, strict=True)]
    chosen = [rng.permutation(len(cloud))[: POINTS // len(clouds)] for cloud in clouds]
    return [np.rint(100 * cloud[some]).astype(int).tolist() for cloud, some in zip(clouds, chosen, strict=True)]


def _of_jump_start(run: Run, world: World | None) -> Measured:
    """Success; of an agent that was asked for, not chosen, also its way to the goal."""
    trajectory = play(run, SUCCESS_EPISODES, SEED, threads=1)
    success = _successes(trajectory)
    found: dict[str, float | None] = {
        "success": float(success.any(axis=-1).mean()),
        "early": early_success(run, "env_steps"),
        "early_updates": early_success(run, "iteration"),
    }
    if run.jumpstart.start.agent is not None:
        turns = [winding(path) for path in _until(trajectory.xy[0].cpu().numpy(), success[0])]
        found["winding"] = float(np.median(turns)) if turns else None
    told = Measured({name: value for name, value in found.items() if value is not None}, {})
    if world is None:
        return told
    assert trajectory.success is not None
    before = trajectory.valid & trajectory.in_first_episode & ~trajectory.success
    return replace(told, maps=[grid_of(trajectory.xy[before].cpu().numpy(), world).as_json()])


def curve_of(rows: list[dict[str, Any]], key: str) -> dict[str, list[float]]:
    """Every n-th of the rows that have the value, so that few are left; the last one is among them."""
    known = [row for row in rows if row.get(key) is not None]
    thinned = known[:: -max(1, -(-len(known) // MOST_ROWS))][::-1]
    return {name: [round(row[name], 5) for row in thinned] for name in ("iteration", "env_steps", key)}


def at_equal_steps(run: Run, scale: Scale) -> float | None:
    """The entropy after as many steps as the smallest budget has in all, if there is a checkpoint of about then."""
    wanted = scale.steps_of_smallest_budget / run.config.rollouts.steps_per_iteration
    nearest = min(checkpoint_iterations(run.checkpoints), key=lambda one: abs(one - wanted))
    if abs(nearest - wanted) > max(1, AT_EQUAL_STEPS * wanted):
        return None
    return fresh_entropy(run, nearest, scale.episodes)


def fresh_entropy(run: Run, iteration: int, episodes: int) -> float:
    """Entropy of about `episodes` fresh episodes of the population that a run had after an iteration."""
    trajectory = play(run, episodes, SEED, threads=1, population=load_population(run, iteration))
    visits, unit = scaled_visits(_first_episodes(trajectory), run.pretraining.world.feature_scale)
    return knn_entropy(visits.features[visits.valid], K) + unit


def fresh_kl(run: Run, episodes: int) -> dict[str, float | None]:
    """`kl` between each agent and all others, and its `kl_floor` where episodes are dealt at random.

    Of every agent as many episodes and states, whatever their number is: with fewer the estimate is another one.
    """
    agents = run.pretraining.population.agents
    rounds = -(-episodes * agents // AT_A_TIME)
    parts = [_first_episodes(play(run, agents * (episodes // rounds), SEED + n, threads=1)) for n in range(rounds)]
    features, valid = (np.concatenate([getattr(part, name) for part in parts], 1) for name in ("features", "valid"))
    visits, _ = scaled_visits(Visits(features, features[..., :2], valid), run.pretraining.world.feature_scale)
    rng = np.random.default_rng(SEED)
    order = rng.permutation(valid.shape[0] * valid.shape[1])
    return {
        "kl": _kl(visits.features, visits.valid, rng),
        "kl_floor": _kl(_dealt(visits.features, order), _dealt(visits.valid, order), rng),
    }


def _dealt(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """`values` (m, p, ...) of episodes, dealt to the agents in another order (m * p,)."""
    return values.reshape(-1, *values.shape[2:])[order].reshape(values.shape)


def _kl(features: NDArray[np.float32], valid: NDArray[np.bool_], rng: np.random.Generator) -> float:
    clouds = [features[agent][valid[agent]] for agent in range(len(valid))]
    size = min(KL_STATES, *map(len, clouds))
    return float(kl_to_others(clouds, K, size, rng).mean())


def _until(paths: NDArray[np.float32], success: NDArray[np.bool_]) -> Iterator[NDArray[np.float32]]:
    """Those of `paths` (p, T, 2) that succeed, up to the step in which they do."""
    return (path[: there.argmax() + 1] for path, there in zip(paths, success, strict=True) if there.any())


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
