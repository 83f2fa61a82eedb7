from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist  # type: ignore[import-untyped]

from kmyriad.errors import UsageError
from kmyriad.objective.divergence import kl_divergence, kl_of_one, kl_to_others, pairwise_kl
from kmyriad.objective.neighbours import nearest_neighbours


def normal(seed: int, number: int, dimension: int, mean: float = 0.0, deviation: float = 1.0) -> NDArray[np.float64]:
    return mean + deviation * np.random.default_rng(seed).normal(size=(number, dimension))


def gaussian_kl(dimension: int, mean: float, deviation: float) -> float:
    """D(N(mean, deviation^2) || N(0, 1)), the same on every axis."""
    return dimension * (0.5 * (deviation**2 + mean**2 - 1) - np.log(deviation))


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize(("shift", "deviation"), [(0.0, 1.0), (1.0, 1.0), (0.0, 0.5), (0.5, 0.7)])
def test_gaussians(dimension: int, shift: float, deviation: float) -> None:
    mean = shift / np.sqrt(dimension)
    p, q = normal(1, 10_000, dimension, mean, deviation), normal(2, 15_000, dimension)
    expected = gaussian_kl(dimension, mean, deviation)
    assert kl_divergence(p, q) == pytest.approx(expected, abs=0.03 + 0.05 * expected)


@pytest.mark.parametrize("dimension", [2, 12])
@pytest.mark.parametrize("k", [1, 5])
def test_equal_to_the_formula_by_brute_force(dimension: int, k: int) -> None:
    p, q = normal(1, 200, dimension, 0.3), normal(2, 150, dimension)
    rho = np.sort(cdist(p, p), axis=1)[:, k]
    nu = np.sort(cdist(p, q), axis=1)[:, k - 1]
    expected = dimension / 200 * np.log(nu / rho).sum() + np.log(150 / 199)
    assert kl_divergence(p, q, k) == pytest.approx(expected, abs=1e-5)


def test_it_is_not_symmetric_and_does_not_depend_on_scale_or_place() -> None:
    narrow, wide = normal(1, 3000, 2, 0.0, 0.3), normal(2, 3000, 2)
    assert kl_divergence(wide, narrow) > 1.2 * kl_divergence(narrow, wide)
    moved = kl_divergence(1e5 + 50 * narrow, 1e5 + 50 * wide)
    assert moved == pytest.approx(kl_divergence(narrow, wide), abs=1e-3)


def test_duplicates_give_finite_values() -> None:
    equal, spread = np.ones((50, 2)), normal(1, 60, 2)
    assert 10 < kl_divergence(equal, spread) < 100
    assert np.isfinite(kl_divergence(spread, equal))
    assert kl_divergence(equal, equal) == pytest.approx(np.log(50 / 49))
    few_places = np.repeat(normal(2, 8, 2), 20, axis=0)
    assert np.isfinite(kl_divergence(few_places, spread))
    assert np.isfinite(kl_divergence(spread, few_places))


def test_bad_points_are_refused() -> None:
    good, bad = normal(1, 20, 2), normal(2, 20, 2)
    bad[11] = np.nan
    with pytest.raises(UsageError, match=r"points must be finite.* row 11"):
        kl_divergence(good, bad)
    with pytest.raises(UsageError, match=r"points must be finite.* row 11"):
        kl_divergence(bad, good)
    with pytest.raises(UsageError, match="k = 5 neighbours need at least 6 points; got 5"):
        kl_divergence(good[:5], good)
    with pytest.raises(UsageError, match="k = 5 neighbours need at least 5 points; got 1"):
        kl_divergence(good, good[:1])


def test_each_agent_against_the_others() -> None:
    clouds = [normal(1, 400, 2), normal(2, 300, 2), normal(3, 200, 2, 4.0)]
    result = kl_to_others(clouds)
    assert result.shape == (3,)
    assert result[0] == kl_divergence(clouds[0], np.concatenate([clouds[1], clouds[2]]))
    assert result[1] == kl_divergence(clouds[1], np.concatenate([clouds[0], clouds[2]]))
    assert result[2] == kl_divergence(clouds[2], np.concatenate([clouds[0], clouds[1]]))
    assert result[2] > 3 > 1 > result[0], "the far agent differs most"


def test_clouds_may_be_one_array() -> None:
    clouds = normal(1, 4 * 100, 2).reshape(4, 100, 2)
    assert (kl_to_others(clouds) == kl_to_others(list(clouds))).all()
    assert (pairwise_kl(clouds) == pairwise_kl(list(clouds))).all()


def test_one_agent_has_nothing_to_compare() -> None:
    result = kl_to_others([normal(1, 40, 2)])
    assert result.shape == (1,)
    assert np.isnan(result).all()
    assert pairwise_kl([normal(1, 40, 2)]).tolist() == [[0.0]]


def test_subsample() -> None:
    clouds = [normal(1, 4000, 2), normal(2, 3000, 2, 1.0)]
    full = kl_to_others(clouds)
    some = kl_to_others(clouds, subsample=1500, rng=np.random.default_rng(0))
    np.testing.assert_allclose(some, full, atol=0.15)
    assert (some != full).all()
    assert (some == kl_to_others(clouds, subsample=1500, rng=np.random.default_rng(0))).all()
    whole = kl_to_others([clouds[1], clouds[1] + 1], subsample=3000, rng=np.random.default_rng(0))
    np.testing.assert_allclose(whole, kl_to_others([clouds[1], clouds[1] + 1]), rtol=1e-6)


@pytest.mark.parametrize("size", [0, 31])
def test_bad_subsample(size: int) -> None:
    clouds = [normal(1, 40, 2), normal(2, 30, 2)]
    with pytest.raises(UsageError, match=f"between 1 and the smallest cloud's 30 points; got {size}"):
        kl_to_others(clouds, subsample=size, rng=np.random.default_rng(0))
    with pytest.raises(UsageError, match="subsample = 20 needs rng"):
        kl_to_others(clouds, subsample=20)


def test_pairs() -> None:
    clouds = [normal(1, 200, 3), normal(2, 300, 3, 1.0), normal(3, 250, 3, 0.0, 2.0)]
    table = pairwise_kl(clouds, k=4)
    for i in range(3):
        for j in range(3):
            assert table[i, j] == (kl_divergence(clouds[i], clouds[j], 4) if i != j else 0)


@pytest.mark.parametrize("compare", [kl_to_others, pairwise_kl])
def test_bad_clouds(compare: Callable[[list[NDArray[np.float64]]], NDArray[np.float64]]) -> None:
    with pytest.raises(UsageError, match="clouds is empty"):
        compare([])
    with pytest.raises(UsageError, match=r"same dimensions; got shapes \[\(9, 2\), \(9, 3\)\]"):
        compare([np.zeros((9, 2)), np.zeros((9, 3))])
    with pytest.raises(UsageError, match=r"got shapes \[\(9,\)\]"):
        compare([np.zeros(9)])


def test_neighbours_that_are_known_are_not_searched_again() -> None:
    rng = np.random.default_rng(0)
    clouds = [rng.normal(agent, 1, (80, 2)).astype(np.float32) for agent in range(3)]
    known = [kl_of_one(clouds, agent, 4, nearest_neighbours(clouds[agent], 4)) for agent in range(3)]
    np.testing.assert_array_equal(known, kl_to_others(clouds, 4))
