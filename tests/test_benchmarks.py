"""The benchmarks run and write one flat object of figures. How large the figures are is for a quiet machine to say."""

import json
import subprocess
import sys
from pathlib import Path

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
