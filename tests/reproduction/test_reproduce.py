"""Plan and page from made-up data; the whole command is slow."""

import json

import numpy as np
import pytest

import kmyriad
from kmyriad.reproduction.measures import accuracy, weighted_error
from kmyriad.reproduction.page import TOO_SMALL, page_of
from kmyriad.reproduction.plan import TARGETS, plan_of
from kmyriad.reproduction.reproduce import tables_of, verdicts_of


@pytest.mark.parametrize("size", ["quick", "desk", "paper"])
@pytest.mark.parametrize("method", ["paper", "ours"])
def test_runs_that_figures_share_are_planned_once(tmp_path, size, method):
    names = [job.name for job in plan_of(TARGETS, size, method, tmp_path).jobs]
    assert len({*names}) == len(names)
    curves = [job.name for job in plan_of(["entropy-curves"], size, method, tmp_path).jobs]
    assert {job.name for job in plan_of(["kl-table", "heatmaps", "diversity"], size, method, tmp_path).jobs} <= {
        *curves
    }


def test_bad_targets_are_one_sentence():
    for names in (["nothing"], ["point-maze"], []):
        with pytest.raises(kmyriad.UsageError):
            kmyriad.reproduce(names)


def test_a_page_is_escaped_and_loads_nothing():
    facts = {"entropy/<b>": {0: 1.0, 1: 2.0}, "weighted_error": {0: weighted_error()}}
    about = {"command": "<script>", "judges": False}
    page = page_of(about, verdicts_of(facts), tables_of(facts), {})
    assert "<script" not in page
    assert "<b>" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert TOO_SMALL in page
    assert "confirmed" in page


def test_ends_tell_agents_apart_where_these_go_different_ways():
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(4, 20, 2)) + 50 * np.arange(4)[:, None, None]
    assert accuracy(apart, np.ones((4, 20), bool)) == 1.0
    assert accuracy(rng.normal(size=(4, 20, 2)), np.ones((4, 20), bool)) < 0.5


@pytest.mark.slow
def test_all_of_it_at_the_smallest_size(tmp_path):
    page = kmyriad.reproduce("all", size="quick", out=tmp_path)
    assert TOO_SMALL in page.read_text()
    assert len(json.loads((tmp_path / "verdicts.json").read_text())["claims"]) == 15
