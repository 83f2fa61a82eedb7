import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from kmyriad.errors import UsageError
from kmyriad.objective import neighbours
from kmyriad.objective.neighbours import HIGH_DIMENSION, Neighbours


def as_arrays(found: Neighbours) -> Any:
    return SimpleNamespace(indices=found.indices.numpy(), distances=found.distances.numpy())


def nearest_in(points: NDArray[np.floating], queries: NDArray[np.floating], k: int) -> Any:
    return as_arrays(neighbours.nearest_in(points, queries, k))


def nearest_neighbours(points: NDArray[np.floating], k: int) -> Any:
    return as_arrays(neighbours.nearest_neighbours(points, k))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def all_distances(points: NDArray[np.floating], queries: NDArray[np.floating]) -> NDArray[np.float64]:
    """(n, N), in float64."""
    differences = np.asarray(queries, np.float64)[:, None] - np.asarray(points, np.float64)[None]
    return np.sqrt((differences**2).sum(axis=2))


def assert_nearest(found: Any, distances: NDArray[np.float64], k: int, tolerance: float = 1e-6) -> None:
    """`found` against a table of `distances` (n, N): the right distances, to k different points.

    `tolerance` is absolute: what rounding the coordinates to float32 may do.
    """
    assert found.indices.shape == found.distances.shape == (len(distances), k)
    assert found.indices.dtype == np.int64
    assert found.distances.dtype == np.float32
    np.testing.assert_allclose(found.distances, np.sort(distances, axis=1)[:, :k], rtol=1e-5, atol=tolerance)
    claimed = np.take_along_axis(distances, found.indices, axis=1)
    np.testing.assert_allclose(claimed, found.distances, rtol=1e-5, atol=tolerance)
    assert all(len(set(row)) == k for row in found.indices.tolist())


def assert_nearest_others(points: NDArray[np.floating], k: int, tolerance: float = 1e-6) -> Any:
    found = nearest_neighbours(points, k)
    distances = all_distances(points, points)
    np.fill_diagonal(distances, np.inf)
    assert_nearest(found, distances, k, tolerance)
    return found


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, HIGH_DIMENSION, HIGH_DIMENSION + 1, 29, 130])
@pytest.mark.parametrize("k", [1, 5])
def test_equal_to_brute_force(dimension: int, k: int) -> None:
    points = rng().normal(size=(400, dimension))
    assert_nearest_others(points, k)
    queries = rng(1).normal(size=(90, dimension)) * 2
    assert_nearest(nearest_in(points, queries, k), all_distances(points, queries), k)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), dimension=st.sampled_from([1, 2, 3, 11]), number=st.integers(2, 40), side=st.integers(1, 4))
def test_equal_to_brute_force_with_any_duplicates(data: st.DataObject, dimension: int, number: int, side: int) -> None:
    generator = rng(data.draw(st.integers(0, 2**32 - 1)))
    points = generator.integers(-side, side, (number, dimension)).astype(np.float64)
    assert_nearest_others(points, data.draw(st.integers(1, number - 1)))
    queries = generator.integers(-side, side, (10, dimension)).astype(np.float64)
    k = data.draw(st.integers(1, number))
    assert_nearest(nearest_in(points, queries, k), all_distances(points, queries), k)


def test_same_neighbour_sets_as_scikit_learn() -> None:
    points = rng().normal(size=(5000, 3))
    _, expected = NearestNeighbors(n_neighbors=6, algorithm="ball_tree").fit(points).kneighbors(points)
    found = nearest_neighbours(points, 5)
    # Two candidates for the last place may differ by less than float32 tells apart.
    assert (np.sort(found.indices) == np.sort(expected[:, 1:])).all(axis=1).mean() > 0.999


@pytest.mark.parametrize("dimension", [2, 12])
def test_near_points_far_from_the_origin_keep_their_order(dimension: int) -> None:
    assert_nearest_others(1e6 + 0.01 * rng().normal(size=(300, dimension)), 5)


def test_near_points_far_from_each_other_keep_their_order_in_many_dimensions() -> None:
    # The expanded form |x|^2 + |y|^2 - 2xy sees only noise here: its error is larger than the squared distances.
    clusters = np.repeat([-64.0, 64.0], 300)[:, None] + 0.05 * rng().normal(size=(600, 12))
    points = clusters.astype(np.float32) - clusters.astype(np.float32).mean(axis=0)
    assert_nearest_others(points, 5, tolerance=1e-5)


@pytest.mark.parametrize("dimension", [2, 12])
@pytest.mark.parametrize("copies", [2, 5, 6, 7, 50])
def test_copies_are_neighbours_at_distance_zero_and_self_is_not(dimension: int, copies: int) -> None:
    points = np.repeat(rng().normal(size=(20, dimension)), copies, axis=0)
    points = points[rng(1).permutation(len(points))]
    found = assert_nearest_others(points, 5)
    assert ((found.distances == 0).sum(axis=1) == min(5, copies - 1)).all()


@pytest.mark.parametrize("dimension", [3, 12])
@pytest.mark.parametrize("values", [[3.7], [0.0, -0.0]])
def test_all_points_equal(dimension: int, values: list[float]) -> None:
    found = assert_nearest_others(rng().choice(values, (40, dimension)), 5)
    assert (np.bincount(found.indices.ravel()) == 5).all(), "each copy is the neighbour of as many others"


def test_many_equal_points_do_not_take_quadratic_time() -> None:
    points = rng().normal(size=(120_000, 3))
    points[:100_000] = 1.0
    start = time.perf_counter()
    found = nearest_neighbours(points, 5)
    nearest_in(points, points, 5)
    assert time.perf_counter() - start < 8, "a KD-tree with 100,000 equal points in one leaf takes more than 20 s"
    assert (found.distances[:100_000] == 0).all()
    assert (found.indices != np.arange(len(points))[:, None]).all()


def test_points_closer_than_float32_can_square() -> None:
    points = np.array([[0.0], [1e-30], [2e-30], [3e-30], [1.0]])
    found = nearest_neighbours(points - points.mean(), 2)
    assert (found.indices != np.arange(5)[:, None]).all()
    points = np.array([[-3e-30], [-1e-30], [0.0], [1e-30], [3e-30]])
    found = nearest_neighbours(points, 2)
    assert (found.indices != np.arange(5)[:, None]).all()
    assert all(len(set(row)) == 2 for row in found.indices.tolist())


def test_one_stray_point() -> None:
    points = rng().normal(size=(500, 2))
    points[3] = 1e10
    found = nearest_neighbours(points, 3)
    assert found.distances[3] == pytest.approx(np.sqrt(2) * 1e10, rel=1e-5)


def test_smallest_inputs() -> None:
    found = nearest_neighbours(np.array([[0.0, 0.0], [3.0, 4.0]]), 1)
    assert found.indices.tolist() == [[1], [0]]
    assert found.distances.tolist() == [[5.0], [5.0]]
    assert nearest_in(np.zeros((1, 1)), np.ones((1, 1)), 1).distances.tolist() == [[1.0]]


def test_input_is_left_alone_and_may_be_strided() -> None:
    points = rng().normal(size=(6, 400)).astype(np.float32).T[::2, ::-1]
    before = points.copy()
    assert_nearest_others(points, 4)
    assert (points == before).all()


@pytest.mark.parametrize("dimension", [3, 16])
def test_results_do_not_depend_on_the_number_of_threads(dimension: int) -> None:
    points = np.round(rng().normal(size=(4000, dimension)), 1)  # rounded, for ties
    results = []
    for threads in (1, 2, 2):
        with threadpool_limits(threads):
            results.append((nearest_neighbours(points, 5), nearest_in(points, points[::-3], 5)))
    for result in results[1:]:
        for first, other in zip(results[0], result, strict=True):
            assert (first.indices == other.indices).all()
            assert (first.distances == other.distances).all()


def test_many_points_are_compared_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    points = rng().normal(size=(500, 12))
    whole = nearest_neighbours(points, 5)
    monkeypatch.setattr(neighbours, "LARGEST_TABLE", 7 * 500)
    parts = nearest_neighbours(points, 5)
    np.testing.assert_array_equal(parts.indices, whole.indices)
    np.testing.assert_array_equal(parts.distances, whole.distances)


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_bad_k(k: Any) -> None:
    message = f"k must be a whole number of at least 1; got {k}"
    with pytest.raises(UsageError, match=message):
        nearest_neighbours(np.zeros((9, 2)), k)
    with pytest.raises(UsageError, match=message):
        nearest_in(np.eye(2), np.eye(2), k)


@pytest.mark.parametrize("shape", [(5,), (0, 2), (5, 0), (5, 2, 2)])
def test_bad_shape(shape: tuple[int, ...]) -> None:
    message = r"must be an array \(number of points, dimensions\).*got shape"
    with pytest.raises(UsageError, match=f"points {message}"):
        nearest_neighbours(np.zeros(shape), 1)
    with pytest.raises(UsageError, match=f"points {message}"):
        nearest_in(np.zeros(shape), np.zeros((4, 2)), 1)
    with pytest.raises(UsageError, match=f"queries {message}"):
        nearest_in(np.zeros((4, 2)), np.zeros(shape), 1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_bad_value_names_its_row(value: float) -> None:
    points = rng().normal(size=(20, 2))
    bad = points.copy()
    bad[7, 1] = bad[9, 0] = value
    with pytest.raises(UsageError, match=r"points must be finite.* row 7 is"):
        nearest_neighbours(bad, 2)
    with pytest.raises(UsageError, match=r"queries must be finite.* row 7 is"):
        nearest_in(points, bad, 2)


@pytest.mark.parametrize(("number", "k"), [(1, 1), (5, 5), (5, 6)])
def test_too_few_points(number: int, k: int) -> None:
    with pytest.raises(UsageError, match=f"k = {k} neighbours need at least {k + 1} points; got {number}"):
        nearest_neighbours(np.zeros((number, 2)), k)


def test_too_few_points_to_search_in() -> None:
    with pytest.raises(UsageError, match="k = 6 neighbours need at least 6 points; got 5"):
        nearest_in(np.zeros((5, 2)), np.zeros((9, 2)), 6)


def test_dimensions_differ() -> None:
    with pytest.raises(UsageError, match="points have 2 dimensions and queries 3"):
        nearest_in(np.zeros((5, 2)), np.zeros((9, 3)), 2)
