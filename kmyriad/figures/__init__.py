"""Figures fit for a paper: each function takes plain data and returns a matplotlib `Figure`; `save` writes it."""

from kmyriad.figures.colours import head_colour
from kmyriad.figures.curves import entropy_by_budget, entropy_curves, success_curves
from kmyriad.figures.divergence import kl_matrix
from kmyriad.figures.goals import goal_map
from kmyriad.figures.ground import draw_terrain
from kmyriad.figures.look import COLUMN, FULL, save
from kmyriad.figures.visits import head_heatmaps, visitation_map

__all__ = [
    "COLUMN",
    "FULL",
    "draw_terrain",
    "entropy_by_budget",
    "entropy_curves",
    "goal_map",
    "head_colour",
    "head_heatmaps",
    "kl_matrix",
    "save",
    "success_curves",
    "visitation_map",
]
