"""Where episodes went, packed small for a page: int16 steps of millimetres to centimetres, thinned out in time."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmyriad.envs.plane import Plane
from kmyriad.report.ground import page_scale
from kmyriad.rollout.collect import Visits

ERROR = 0.1
"""Part of a goal's radius that a straight line between kept points may miss a point left out by."""

UNITS = 32_000
"""Steps of the grid from the middle of all positions to the farthest."""


def pack_paths(visits: Visits, plane: Plane, radius: float) -> dict[str, Any]:
    """All episodes (m, p) of `visits`, as plain JSON.

    `xy` is base64 of little-endian int16 (m, p, n, 2), in units of `scale` from `origin`, as the page counts; `steps`
    (n,) tells after which control step each of the n points was reached. `radius` is that of goals on the page.
    """
    xy = settled(visits, plane.start) / np.array(page_scale(plane))
    kept = thinned(xy, ERROR * radius)
    low, high = xy.min(axis=(0, 1, 2)), xy.max(axis=(0, 1, 2))
    origin = (low + high) / 2
    scale = max(float((high - low).max()) / 2, 1e-3) / UNITS
    grid = np.rint((xy[:, :, kept] - origin) / scale).astype("<i2")
    agents, episodes = xy.shape[:2]
    return {
        "agents": agents,
        "episodes": episodes,
        "steps": (kept + 1).tolist(),
        "origin": origin.tolist(),
        "scale": scale,
        "xy": base64.b64encode(grid.tobytes()).decode(),
    }


def corners(packed: dict[str, Any]) -> NDArray[np.float64]:
    """(2, 2), the lower and the upper corner of the square that packed paths lie in."""
    reach = packed["scale"] * UNITS
    return np.array(packed["origin"]) + np.array([[-reach, -reach], [reach, reach]])


def settled(visits: Visits, start: tuple[float, float]) -> NDArray[np.float64]:
    """(m, p, T, 2), positions, where an episode whose physics broke stays where it last was valid."""
    steps = visits.valid.shape[2]
    valid = visits.valid & np.isfinite(visits.xy).all(axis=-1)
    valid = np.logical_and.accumulate(valid, axis=2)
    last = np.maximum.accumulate(np.where(valid, np.arange(steps), 0), axis=2)
    xy = np.take_along_axis(visits.xy.astype(np.float64), last[..., None], axis=2)
    xy[~valid[:, :, 0]] = start
    return xy


def thinned(xy: NDArray[np.float64], error: float) -> NDArray[np.intp]:
    """(n,), indices of steps, evenly apart and with the first and last, between which lines miss at most `error`."""
    steps = xy.shape[2]
    kept = np.arange(steps)
    for apart in range(2, steps // 10 + 1):
        fewer = np.unique(np.append(np.arange(0, steps, apart), steps - 1))
        if _miss(xy, fewer) > error:
            break
        kept = fewer
    return kept


def _miss(xy: NDArray[np.float64], kept: NDArray[np.intp]) -> float:
    """The largest distance between `xy` (m, p, T, 2) and the lines between its `kept` points, at the same times."""
    steps = np.arange(xy.shape[2])
    before = (np.searchsorted(kept, steps, side="right") - 1).clip(0, len(kept) - 2)
    first, second = kept[before], kept[before + 1]
    part = ((steps - first) / (second - first))[:, None]
    lines = xy[:, :, first] * (1 - part) + xy[:, :, second] * part
    return float(np.linalg.norm(lines - xy, axis=-1).max())
