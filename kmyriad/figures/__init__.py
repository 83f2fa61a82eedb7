"""Figures fit for a paper: each function takes plain data and returns a matplotlib `Figure`; `save` writes it."""

from kmyriad.figures.colours import agent_colour, heading_colour
from kmyriad.figures.comparison import draw_comparison
from kmyriad.figures.coverage import coverage_bars
from kmyriad.figures.curves import entropy_by_budget, entropy_curves, success_curves
from kmyriad.figures.divergence import kl_matrix
from kmyriad.figures.episodes import episode_paths
from kmyriad.figures.goals import goal_map
from kmyriad.figures.ground import draw_terrain
from kmyriad.figures.learning import learning_curves
from kmyriad.figures.look import COLUMN, FULL, new_figure, save
from kmyriad.figures.visits import agent_heatmaps, visitation_map

__all__ = [
    "COLUMN",
    "FULL",
    "agent_colour",
    "agent_heatmaps",
    "coverage_bars",
    "draw_comparison",
    "draw_terrain",
    "entropy_by_budget",
    "entropy_curves",
    "episode_paths",
    "goal_map",
    "heading_colour",
    "kl_matrix",
    "learning_curves",
    "new_figure",
    "save",
    "success_curves",
    "visitation_map",
]
