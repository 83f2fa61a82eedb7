"""The k nearest neighbours of every point, exactly: duplicates, far-off coordinates and many dimensions included.

On the CPU a KD-tree is asked. On another device all distances are compared, a table of bounded size at a time; beyond
`MOST_PAIRS` of them the points go to the CPU's tree and the answer comes back.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pykdtree.kdtree import KDTree
from torch import Tensor

from kmyriad.errors import UsageError
from kmyriad.population.moments import column_means

HIGH_DIMENSION = 10
"""Up to this many dimensions a KD-tree is asked; above it a tree visits nearly all points, and all are compared."""

LARGEST_TABLE = 2**23
"""Distances held at a time where all are compared: 64 MiB, or 32 on a device."""

MOST_PAIRS = 2**36
"""Pairs of points and queries that are compared on a device: a few seconds of a GPU, by its memory's speed (reckoned,
not measured). A tree on the CPU has done 600,000 points by then."""

LARGEST_COORDINATE = 1e17
"""Beyond it squared distances overflow float32."""

COPIES_SAMPLE = 2000
"""Points looked at to see whether points repeat."""

POINTS_PER_CELL = 8
SORTED_AXES = 3
"""Points are sorted by grid cells on their first axes only; more axes than three would get one or two cells each."""


@dataclass(frozen=True)
class Neighbours:
    """The k nearest of every one of n points."""

    indices: Tensor
    """(n, k), int64: rows of the points searched."""
    distances: Tensor
    """(n, k), float32: ascending."""


Points = NDArray[np.floating] | Tensor
"""Rows of numbers; neighbours come back as tensors on the same device."""


def nearest_neighbours(points: Points, k: int) -> Neighbours:
    """The k nearest *other* points of each of `points` (N, d), N > k.

    Distances are exact for the points as float32, after their mean was subtracted. Copies of a point are its
    neighbours at distance 0; where it has more than k, each copy takes the next ones in a ring, so that no copy is
    everyone's neighbour (on the CPU; on a device they are any of them).
    """
    points = _tensor(points)
    _check_k(k)
    _check_points(points, "points")
    if len(points) <= k:
        raise UsageError(f"k = {k} neighbours need at least {k + 1} points; got {len(points)}: lower k or add points")
    centred = _centred(points, _centre(points))
    if _is_compared(centred, len(centred)):
        return _compare(centred, centred, k, are_same=True)
    return _from_cpu(_others_in_tree(centred.cpu().numpy(), k), points.device)


def nearest_in(points: Points, queries: Points, k: int) -> Neighbours:
    """The k nearest of `points` (N, d), N >= k, to each of `queries` (n, d); an equal point counts, at distance 0."""
    points, queries = _tensor(points), _tensor(queries)
    _check_k(k)
    _check_points(points, "points")
    _check_points(queries, "queries")
    if points.shape[1] != queries.shape[1]:
        raise UsageError(
            f"points have {points.shape[1]} dimensions and queries {queries.shape[1]}; give both the same features"
        )
    if len(points) < k:
        raise UsageError(f"k = {k} neighbours need at least {k} points; got {len(points)}: lower k or add points")
    centre = _centre(points)
    centred, centred_queries = _centred(points, centre), _centred(queries, centre)
    if _is_compared(centred, len(queries)):
        return _compare(centred, centred_queries, k)
    return _from_cpu(_in_tree(centred.cpu().numpy(), centred_queries.cpu().numpy(), k), points.device)


Found = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Rows and distances, (n, k) each."""


def _is_compared(points: Tensor, queries: int) -> bool:
    """Whether all pairs are compared on the device where they are."""
    is_worth_it = len(points) * queries <= MOST_PAIRS or points.shape[1] > HIGH_DIMENSION
    return points.device.type != "cpu" and is_worth_it


def _from_cpu(found: Found, device: torch.device) -> Neighbours:
    return Neighbours(*(torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in found))


def _compare(points: Tensor, queries: Tensor, k: int, are_same: bool = False) -> Neighbours:
    """By comparing every one of `queries` (n, d) with every one of `points` (N, d), `LARGEST_TABLE` pairs at a time.

    If they `are_same`, a point is not its own neighbour. Differences are squared one by one: |q|^2 + |p|^2 - 2 qp would
    be faster, and off by centimetres at 50 m.
    """
    indices, distances = [], []
    for start in range(0, len(queries), rows := max(1, LARGEST_TABLE // len(points))):
        asked = queries[start : start + rows]
        table = torch.cdist(asked, points, compute_mode="donot_use_mm_for_euclid_dist")
        if are_same:
            table.diagonal(start).fill_(torch.inf)
        found = table.topk(k, dim=1, largest=False)
        indices.append(found.indices)
        distances.append(found.values)
    return Neighbours(torch.cat(indices), torch.cat(distances))


def _others_in_tree(centred: NDArray[np.float32], k: int) -> Found:
    """`nearest_neighbours` on the CPU."""
    if not _has_copies(centred):
        return _without_self(*_search(centred, centred, k + 1))
    cloud = _sort(centred)
    distinct = len(cloud.distinct)
    groups, distances = _without_self(*_search(cloud.distinct, cloud.distinct, min(k + 1, distinct)))
    if distinct == len(centred):
        return cloud.in_original_order(cloud.order[groups], distances)

    groups = np.concatenate([np.arange(distinct)[:, None], groups], axis=1)
    distances = np.concatenate([np.zeros((distinct, 1), np.float32), distances], axis=1)
    copies = cloud.count[groups]
    copies[:, 0] -= 1
    column, copy = _first_copies(copies, k)
    groups, distances = np.take_along_axis(groups, column, 1), np.take_along_axis(distances, column, 1)
    me = cloud.group
    next_in_ring = (np.arange(len(me)) - cloud.start[me] + 1)[:, None] + copy[me]
    copy = np.where(column[me] == 0, next_in_ring % cloud.count[me, None], copy[me])
    return cloud.in_original_order(cloud.order[cloud.start[groups[me]] + copy], distances[me])


def _in_tree(centred: NDArray[np.float32], centred_queries: NDArray[np.float32], k: int) -> Found:
    """`nearest_in` on the CPU."""
    if not _has_copies(centred):
        return _search(centred, centred_queries, k)
    cloud, asked = _sort(centred), _sort(centred_queries)
    groups, distances = _search(cloud.distinct, asked.distinct, min(k, len(cloud.distinct)))
    column, copy = _first_copies(cloud.count[groups], k)
    rows = cloud.order[cloud.start[np.take_along_axis(groups, column, 1)] + copy]
    return asked.in_original_order(rows[asked.group], np.take_along_axis(distances, column, 1)[asked.group])


def _tensor(points: Points) -> Tensor:
    return points if isinstance(points, Tensor) else torch.from_numpy(np.ascontiguousarray(points))


def _check_k(k: int) -> None:
    if not isinstance(k, int | np.integer) or k < 1:
        raise UsageError(f"k must be a whole number of at least 1; got {k!r}")


def _check_points(points: Tensor, name: str) -> None:
    if points.ndim != 2 or points.shape[0] == 0 or points.shape[1] == 0:
        shape = tuple(points.shape)
        raise UsageError(f"{name} must be an array (number of points, dimensions), both at least 1; got shape {shape}")
    fit = points.abs() <= LARGEST_COORDINATE
    if not fit.all():
        row = int((~fit).any(dim=1).nonzero()[0])
        raise UsageError(
            f"{name} must be finite, up to {LARGEST_COORDINATE:g}; row {row} is {points[row].tolist()}, leave it out"
        )


def _centre(points: Tensor) -> Tensor:
    return column_means(points)


def _centred(points: Tensor, centre: Tensor) -> Tensor:
    """Centred before it is rounded to float32, whose steps are a millimetre at 10 km but a micrometre at 10 m."""
    return (points - centre).float().contiguous()


@dataclass(frozen=True)
class _Cloud:
    """Points sorted so that near ones are near in memory and equal ones are next to each other."""

    distinct: NDArray[np.float32]
    """(u, d), one of each group of equal points."""
    start: NDArray[np.int64]
    """(u,), where each group begins in the sorted order."""
    count: NDArray[np.int64]
    """(u,), how many points each group has."""
    order: NDArray[np.int64]
    """(n,), the row of each sorted point."""

    @property
    def group(self) -> NDArray[np.int64]:
        """(n,), the group of each sorted point."""
        return np.repeat(np.arange(len(self.count)), self.count)

    def in_original_order(self, indices: NDArray[np.int64], distances: NDArray[np.float32]) -> Found:
        """Neighbours (n, k) of the sorted points as those of the points."""
        rows, unsorted = np.empty_like(indices), np.empty_like(distances)
        rows[self.order], unsorted[self.order] = indices, distances
        return rows, unsorted


def _has_copies(points: NDArray[np.float32]) -> bool:
    """Whether points (n, d) repeat so often that a sample shows it; a few copies do no harm to a KD-tree.

    Trajectories lie in memory as they lie in space, so without copies sorting would only cost time.
    """
    few = points[:: max(1, len(points) // COPIES_SAMPLE)]
    return len(np.unique(_hashes(few))) < len(few)


def _sort(points: NDArray[np.float32]) -> _Cloud:
    """`points` (n, d) by grid cell, and by a hash within a cell.

    A KD-tree is two to four times faster on sorted points, and would take quadratic time over equal ones, since it
    cannot split them. Two different points with one hash could at worst leave a group of equal ones in two parts,
    which `_without_self` allows for.
    """
    key = (_cells(points) << np.uint64(32)) | (_hashes(points) >> np.uint64(32))
    order = np.argsort(key, kind="stable")
    points = points[order]
    is_first = np.ones(len(points), np.bool_)
    is_first[1:] = (points[1:] != points[:-1]).any(axis=1)
    start = np.flatnonzero(is_first)
    return _Cloud(points[start], start, np.diff(start, append=len(points)), order)


def _hashes(points: NDArray[np.float32]) -> NDArray[np.uint64]:
    """(n,), a number per point that equal points share."""
    bits = (points + np.float32(0)).view(np.uint32)  # -0 becomes 0, which it equals
    hashed = np.zeros(len(points), np.uint64)
    for column in range(points.shape[1]):
        hashed = (hashed ^ bits[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(32)
    return hashed


def _cells(points: NDArray[np.float32]) -> NDArray[np.uint64]:
    """(n,), the number of the grid cell that each point is in; the outermost cells reach out to infinity."""
    axes = min(points.shape[1], SORTED_AXES)
    per_axis = max(1, round((len(points) / POINTS_PER_CELL) ** (1 / axes)))
    # Quantiles of a few points: one stray point must not squeeze all others into one cell.
    few = points[:: max(1, len(points) // 1000), :axes].astype(np.float64)
    low, high = np.quantile(few, (0.01, 0.99), axis=0)
    scaled = (points[:, :axes] - low) / np.maximum(high - low, np.finfo(np.float32).tiny) * per_axis
    cells = np.clip(scaled, 0, per_axis - 1).astype(np.uint64)
    return cells @ (np.uint64(per_axis) ** np.arange(axes, dtype=np.uint64))


def _search(points: NDArray[np.float32], queries: NDArray[np.float32], k: int) -> Found:
    """Rows of `points` (N, d) and distances, both (n, k), of the k nearest to each of `queries` (n, d)."""
    if points.shape[1] > HIGH_DIMENSION:
        return _search_all(points, queries, k)
    distances, indices = KDTree(points).query(queries, k=k)
    return indices.reshape(-1, k).astype(np.int64), distances.reshape(-1, k)


def _search_all(points: NDArray[np.float32], queries: NDArray[np.float32], k: int) -> Found:
    """As `_search`, by comparing every query with every point, some queries at a time.

    |q|^2 + |p|^2 - 2 qp is one matrix product, in float64 so that near points stay in order; the distances of those
    found are then computed without its rounding.
    """
    everyone = torch.from_numpy(points).double()
    squares = everyone.square().sum(1)
    rows, found = max(1, LARGEST_TABLE // len(points)), []
    for part in torch.split(torch.from_numpy(queries), rows):
        asked = part.double()
        squared = torch.addmm(squares[None], asked, everyone.T, alpha=-2)  # less |q|^2, which orders nothing
        found.append(squared.topk(k, dim=1, largest=False).indices)
    indices = torch.cat(found).numpy()
    distances = np.linalg.norm(points[indices] - queries[:, None], axis=-1)
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(indices, order, 1), np.take_along_axis(distances, order, 1)


def _without_self(indices: NDArray[np.int64], distances: NDArray[np.float32]) -> Found:
    """Both (n, k) less one column: the point itself, or the last where other points at distance 0 took its place."""
    n, k = indices.shape
    is_self = indices == np.arange(n)[:, None]
    is_self[:, -1] |= ~is_self.any(axis=1)
    return indices[~is_self].reshape(n, k - 1), distances[~is_self].reshape(n, k - 1)


def _first_copies(copies: NDArray[np.int64], k: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first k points of each row, where column c stands for `copies[:, c]` points; every row has at least k.

    Returns (n, k), (n, k): the column of each of these points, and which of the column's copies it is.
    """
    n, columns = copies.shape
    copies = np.minimum(copies, k)
    column = np.repeat(np.tile(np.arange(columns), n), copies.ravel())
    ends = np.cumsum(copies)
    copy = np.arange(len(column)) - np.repeat(ends - copies.ravel(), copies.ravel())
    row_starts = ends.reshape(n, columns)[:, -1] - copies.sum(axis=1)
    first = row_starts[:, None] + np.arange(k)
    return column[first], copy[first]
