"""The benchmarks run and write one flat object of figures. How large the figures are is for a quiet machine to say."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kmyriad.objective.rewards import estimate_novelty
from kmyriad.rollout.collect import Visits
from kmyriad.training import pretrain as pretraining

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_stepping_writes_its_figures(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, BENCHMARKS / "stepping.py", "--quick", "--replicas", "8", "--json", report]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    figures = json.loads(report.read_text())["figures"]
    assert set(figures) == {
        "vs_bare_batch",
        "vs_gymnasium",
        "vs_envpool",
        "maze_vs_flat",
        "pyramid_vs_flat",
        "cave_vs_flat",
    }
    assert all(value > 0 for name, value in figures.items() if name != "vs_envpool")
    assert "vs_bare_batch" in result.stdout


@pytest.mark.parametrize(
    ("asked", "segments", "factors"),
    [
        ({}, 8, 1.0),
        ({"pool_horizons": 0.5}, 4, 1.0),
        ({"pool_horizons": 0.01}, 1, 1.0),
        ({"feature_scales": (1.0, 3.0)}, 8, (1.0, 3.0)),
        ({"feature_scales": "deviation"}, 8, (0.5, 0.25)),
    ],
)
def test_study_trains_with_pools_that_no_setting_gives(monkeypatch, tmp_path, asked, segments, factors):
    monkeypatch.syspath_prepend(BENCHMARKS)
    study = import_module("study")
    features = np.random.default_rng(0).normal(size=(1, 10, 20, 2)).astype(np.float32)
    features *= (2.0, 4.0) / features.std((0, 1, 2))
    visits = Visits(features, None, np.ones((1, 10, 20), bool))

    def train(folder, settings):
        pool = []
        for _ in range(20):
            pool = pretraining.slide(pool, SimpleNamespace(visits=visits), 8)
        return settings, len(pool), pretraining.estimate_novelty([visits], 4)

    monkeypatch.setattr(study, "train_one", train)
    settings, kept, novelty = study.train_variant(tmp_path, {"seed": 1, **asked})
    assert (settings, kept) == ({"seed": 1}, segments)
    scaled = Visits(features * np.float32(factors), None, visits.sound)
    np.testing.assert_allclose(novelty.rewards, estimate_novelty([scaled], 4).rewards, rtol=1e-3, atol=1e-3)
    assert pretraining.estimate_novelty is estimate_novelty
