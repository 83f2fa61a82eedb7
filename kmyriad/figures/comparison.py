"""The figures of a comparison of runs."""

from collections import defaultdict

from matplotlib.figure import Figure

from kmyriad.envs import WORLDS
from kmyriad.evaluation.comparison import Comparison, Group, labels_of, steps_before_learning
from kmyriad.figures.curves import entropy_by_budget
from kmyriad.figures.learning import learning_curves
from kmyriad.figures.seeds import Rows, averaged


def draw_comparison(found: Comparison) -> dict[str, Figure]:
    """By name: learning curves of all worlds side by side for each kind of run, entropy by budget for each world."""
    drawn = {}
    if found.pretraining:
        drawn["entropy"] = learning_curves(_curves(found.pretraining, "entropy"), "entropy")
    for env, groups in _by_world(found.pretraining).items():
        budgets = {group.label: _budgets(group) for group in groups}
        if all(_is_series(seeds) for seeds in budgets.values()):
            name = "".join(letter if letter.isalnum() else "-" for letter in env)
            drawn[f"{name}-budget"] = entropy_by_budget(budgets)
    if found.jumpstarts:
        curves = _curves(found.jumpstarts, "success")
        drawn["success"] = learning_curves(curves, "success", spent=_spent(found.jumpstarts))
    return drawn


def _curves(groups: list[Group], y: str) -> dict[str, dict[str, list[Rows]]]:
    """By world and group: for each seed its rows, averaged over its goals."""
    worlds: dict[str, dict[str, list[Rows]]] = defaultdict(dict)
    for group, label in zip(groups, labels_of(groups), strict=True):
        of_seed = {seed: [run.metrics() for run in group.runs if run.config.run.seed == seed] for seed in group.seeds}
        worlds[_title(group)][label] = [averaged(label, rows, "env_steps", y) for rows in of_seed.values()]
    return worlds


def _spent(groups: list[Group]) -> dict[str, dict[str, tuple[float, float]]]:
    """By world and group: environment steps until an agent was selected, and until it learned, over all runs."""
    worlds: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    for group, label in zip(groups, labels_of(groups), strict=True):
        spent = [steps_before_learning(run) for run in group.runs]
        selected, learning = (sum(steps) / len(spent) for steps in zip(*spent, strict=True))
        worlds[_title(group)][label] = (selected, learning)
    return worlds


def _title(group: Group) -> str:
    """`ant-maze size=7` to "Ant Maze (size 7)"."""
    env, *settings = group.name["env"].split(" ")
    words = env.replace("-", " ").title() if env in WORLDS else env
    return f"{words} ({', '.join(setting.replace('=', ' ') for setting in settings)})" if settings else words


def _by_world(groups: list[Group]) -> dict[str, list[Group]]:
    worlds = defaultdict(list)
    for group in groups:
        worlds[group.name["env"]].append(group)
    return worlds


def _budgets(group: Group) -> list[list[dict[str, float | None]]]:
    """For each seed, the entropies reached by its runs of different lengths."""
    seeds = defaultdict(list)
    for run, values in zip(group.runs, group.values, strict=True):
        episodes = (values["env_steps"] or 0) / run.pretraining.world.horizon
        seeds[run.config.run.seed].append({"episodes": episodes, "entropy": values["entropy"]})
    return [*seeds.values()]


def _is_series(seeds: list[list[dict[str, float | None]]]) -> bool:
    """Whether all seeds were trained with the same budgets, more than one."""
    budgets = [{row["episodes"] for row in rows} for rows in seeds]
    return len(budgets[0]) > 1 and all(one == budgets[0] for one in budgets)
