import numpy as np
import torch

from kmyriad.population.normaliser import LIMIT, Normaliser


def test_mean_and_variance_are_those_of_everything_seen():
    rng = np.random.default_rng(0)
    parts = [rng.normal(rng.normal(0, 50, 4), rng.uniform(0.1, 9, 4), (n, 4)).astype(np.float32) for n in (7, 1, 300)]
    normaliser = Normaliser(4)
    for part in parts:
        normaliser.see(torch.from_numpy(part))
    everything = np.concatenate(parts).astype(np.float64)
    np.testing.assert_allclose(normaliser.mean, everything.mean(0), rtol=1e-6)
    np.testing.assert_allclose(normaliser.variance, everything.var(0), rtol=1e-6)
    assert float(normaliser.count) == 308


def test_normalised_observations_are_standard_and_cut_off():
    rows = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (1000, 2)).astype(np.float32))
    normaliser = Normaliser(2)
    normaliser.see(rows)
    normal = normaliser(rows)
    assert normal.mean(0).abs().max() < 1e-5
    assert (normal.std(0) - 1).abs().max() < 1e-2
    assert normaliser(torch.full((1, 2), 1e9)).max() == LIMIT


def test_what_never_changes_stays_finite():
    normaliser = Normaliser(1)
    normaliser.see(torch.full((100, 1), 7.0))
    assert normaliser(torch.tensor([[7.0], [7.5]])).tolist() == [[0.0], [LIMIT]]
