"""Measures and page from made-up data; the whole command is slow."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from html import escape
from pathlib import Path

import numpy as np
import pytest

import kmyriad
from kmyriad.config import with_settings
from kmyriad.presets import jumpstart_preset
from kmyriad.reproduction.commits import commits_of, current_commit, note_commit
from kmyriad.reproduction.draw import DRAWN, draw
from kmyriad.reproduction.figures import (
    BLUE,
    GREEN,
    Curve,
    HeatMap,
    curve_panels,
    goal_panels,
    heat_grid,
    region_figure,
)
from kmyriad.reproduction.grids import grid_of
from kmyriad.reproduction.measured import Measured, write_measured
from kmyriad.reproduction.measures import accuracy, early_success, weighted_errors, winding
from kmyriad.reproduction.page import TOO_SMALL, page_of
from kmyriad.reproduction.paper import CHOICES, ITEMS, KL_TABLE
from kmyriad.reproduction.plan import TARGETS, plan_of
from kmyriad.reproduction.reproduce import groups_of, provenance, tables_of, verdict_of
from kmyriad.reproduction.verdicts import CLAIMS, WORLDS
from kmyriad.runs.run import append_metrics, create_run

RUN_STEPS = 1_000


def claims_of(facts, size, runs=None):
    return [verdict_of(claim, facts, size) | provenance(claim, size, "paper", runs or {}) for claim in CLAIMS]


def test_a_page_is_escaped_and_loads_nothing():
    facts = {"entropy/<b>": {0: 1.0, 1: 2.0}, "kl/ant-maze/10": {0: 0.75}, "kl_floor/ant-maze/10": {0: 0.25}}
    about = {"command": "<script>", "judges": False}
    page = page_of(about, claims_of(facts, "quick"), tables_of(facts), [])
    assert "<script" not in page
    assert "<b>" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert TOO_SMALL in page
    assert "0.5980 ± 0.0267</td><td>0.7500</td><td>0.2500</td><td>0.5000" in page
    for item in ITEMS:
        assert escape(item.name) in page
    assert all(claim.target in page for claim in CLAIMS)
    assert "reproduce success-rates --size quick --method paper" in page
    assert "0 of 2 runs measured, seeds 0, 1" in page
    assert "Commit: not trained yet" in page
    assert len(CHOICES) == page.split("Where the paper is open")[1].split("</table>")[0].count("<tr>") - 1


def test_runs_of_the_smallest_size_judge_nothing():
    facts = {f"weighted/{what}": {0: error} for what, error in weighted_errors().items()}
    small, large = (claims_of(facts, size)[-1] for size in ("quick", "desk"))
    assert large["verdict"] == "confirmed"
    assert small["verdict"] == "not judged, the runs are too small"
    assert small["ours"] == large["ours"]


def test_the_estimators_agree_in_value_and_gradient():
    errors = weighted_errors()
    assert errors["value"] < 1e-12
    assert errors["gradient"] < 1e-5


def test_every_item_of_the_paper_is_known():
    assert {item.target for item in ITEMS} - {"", "any"} == {*TARGETS}
    assert {*DRAWN} | {"kl-table"} == {*TARGETS}
    assert sorted(number for item in ITEMS for number in item.claims) == [*range(1, 16)]
    assert {*KL_TABLE} == {*WORLDS}


def test_ends_tell_agents_apart_where_these_go_different_ways():
    rng = np.random.default_rng(0)
    apart = rng.normal(size=(4, 20, 2)) + 50 * np.arange(4)[:, None, None]
    assert accuracy(apart, np.ones((4, 20), bool)) == 1.0
    assert accuracy(rng.normal(size=(4, 20, 2)), np.ones((4, 20), bool)) < 0.5


def test_winding_is_of_opposite_signs_round_opposite_sides():
    angles = np.linspace(-np.pi / 2, 3 * np.pi / 4, 50)
    path = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert winding(path) == pytest.approx(5 / 8)
    assert winding(path * [-1, 1]) == pytest.approx(-5 / 8)


def test_early_success_pays_for_selection(tmp_path):
    config = with_settings(
        jumpstart_preset("paper", "best"),
        {"env": "ant-empty", "goal": (6, 3), "horizon": 10, "replicas": 10, "total_steps": RUN_STEPS},
    )
    run = create_run(tmp_path / "run", config)
    for iteration in range(1, 9):  # 200 steps of selecting, then 100 an iteration
        append_metrics(run, {"iteration": iteration, "env_steps": 200 + 100 * iteration, "success": 1.0})
    by_steps, by_updates = early_success(run, "env_steps"), early_success(run, "iteration")
    assert by_steps == pytest.approx((0.5 * 100 + 100 / 3) / (RUN_STEPS / 3))
    assert by_updates > by_steps
    assert by_updates == pytest.approx((0.5 + (8 / 3 - 1)) / (8 / 3))


def test_commits_are_noted_by_run(tmp_path):
    assert commits_of(tmp_path) == []
    for _ in range(2):
        note_commit(tmp_path)
    assert commits_of(tmp_path) == [current_commit()]
    (tmp_path / "commits.json").write_text('{"commits": ["0123456789"]}')  # another one began it
    note_commit(tmp_path)
    assert commits_of(tmp_path) == ["0123456789", current_commit()]


def test_a_claim_names_the_commits_of_its_runs():
    runs = {f"ant-empty-10-agents-seed-{seed}": Measured({}, {}, commits=["b", "a"][: seed + 1]) for seed in (0, 1)}
    told = provenance(CLAIMS[13], "quick", "paper", runs)
    assert (told["runs_measured"], told["runs"], told["commit"]) == (2, 2, "b, a")


def test_a_page_says_which_runs_it_is_of(tmp_path):
    jobs = plan_of(["diversity", "kl-table"], "quick", "paper", tmp_path).jobs
    runs = {f"ant-empty-10-agents-seed-{seed}": Measured({}, {}) for seed in (0,)}
    assert groups_of(jobs, runs) == [("ant-empty-10-agents", "0", "1"), ("others", "", "14 runs")]
    assert groups_of(jobs, {job.name: runs["ant-empty-10-agents-seed-0"] for job in jobs})[-1][1:] == ("0, 1", "")


def test_figures_without_any_run_are_left_out(tmp_path):
    drawn = draw(TARGETS, {}, "quick", "ours", tmp_path)
    assert [picture.path.stem for picture in drawn] == ["goal-maps"]  # which needs none


def test_a_page_of_what_there_is_needs_no_training(tmp_path):
    """As in a clone of the repository, which has what runs told and no run."""
    jobs = plan_of(TARGETS, "desk", "paper", tmp_path / "runs").jobs
    curve = {"iteration": [1, 200], "env_steps": [20_000, 4_000_000], "entropy": [0.5, 1.5]}
    for job in jobs:
        if job.name.startswith("ant-empty-1-agents-seed") or job.name == "ant-empty-10-agents-seed-0":
            told = Measured({"entropy": 1.5, "steps_per_second": 5e3}, curve, commits=["0123456789"])
            world = kmyriad.make_world("ant-empty")
            shown = replace(told, maps=[grid_of(np.zeros((9, 2)), world).as_json()], points=[[[1, 2], [3, 4]]] * 10)
            write_measured(tmp_path / "runs", job, "desk", "paper", shown)
    page = kmyriad.reproduce("all", size="desk", method="paper", out=tmp_path, train=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("figures", "index.html", "measured", "tables.json", "verdicts.json")
    ]
    content = json.loads((tmp_path / "verdicts.json").read_text())
    assert content["runs_measured"] == "5 of 352"
    verdicts = {claim["number"]: claim for claim in content["claims"]}
    assert verdicts[15]["verdict"] == "confirmed"
    assert {verdicts[number]["verdict"] for number in range(1, 13)} == {"not run"}
    assert (verdicts[1]["runs_measured"], verdicts[1]["commit"]) == (5, "0123456789")
    assert "ant-empty-1-agents</td><td>0, 1, 56, 123</td><td></td>" in page.read_text()
    assert "So far of 5 of 52 runs." in page.read_text()
    drawn = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    assert drawn == {"budget", "budget-steps", "diversity", "entropy-curves", "goal-maps", "heatmaps"}


def rows(*values):
    return [{"iteration": number + 1, "entropy": value, "success": 0.5} for number, value in enumerate(values)]


def test_figures_are_drawn_from_odd_data_too():
    world = kmyriad.make_world("ant-maze")
    points = np.random.default_rng(0).normal(size=(100, 2))
    curves = {
        "one": Curve(BLUE, [rows(1, 2, 3), rows(2, 3)]),
        "none": Curve(GREEN, []),
        "lone": Curve(GREEN, [rows(1)]),
    }
    drawn, empty = curve_panels({"a": curves, "b": {}}).axes
    assert [text.get_text() for text in empty.texts] == ["not run"]
    assert not drawn.texts
    assert len(curve_panels({"a": curves}, "iteration", "success", median=True).axes) == 1
    maps = [HeatMap("1 Agent", grid_of(points, world)), HeatMap("the maze", goal=(2.0, 2.0))]
    maps.append(HeatMap("nothing", grid_of(points[:0], world)))
    assert len(heat_grid({"Maze env": (world, maps), "none": (world, maps[1:])}).axes) == 5
    assert len(goal_panels({"Maze": (world, [(4.0, 4.0)])}).axes) == 1
    assert len(region_figure(world, [(6.0, 0.0)], [(2.0, 2.0)], curves).axes) == 2


def seconds_of_children():
    """Processor time of all processes that were started from here and have ended, and of theirs."""
    used = os.times()
    return used.children_user + used.children_system


@pytest.mark.slow
@pytest.mark.parametrize("method", ["paper", "ours"])
def test_all_of_it_at_the_smallest_size(tmp_path, method):
    """From nothing, in under twenty minutes of one core, so that others may be busy; killed on the way, it goes on."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "kmyriad", "reproduce", "all", "--size", "quick", "--method", method]
    began = seconds_of_children()
    process = subprocess.Popen([*command, "--out", str(out)], stderr=subprocess.DEVNULL)
    first = out / "runs" / "ant-empty-1-agents-seed-0" / "metrics.jsonl"
    while not first.exists() and process.poll() is None:
        time.sleep(0.2)
    process.kill()
    process.wait()
    assert not (out / "index.html").exists()
    subprocess.run([*command, "--out", str(out)], check=True, stderr=subprocess.DEVNULL)
    assert seconds_of_children() - began < 20 * 60
    assert TOO_SMALL in (out / "index.html").read_text()
    drawn = {path.stem for path in (out / "figures").glob("*.png")}
    assert drawn == {*DRAWN} | {"budget-steps", "success-rates-steps"}
    claims = json.loads((out / "verdicts.json").read_text())["claims"]
    assert [claim["number"] for claim in claims] == [*range(1, 16)]
    assert {claim["verdict"] for claim in claims} == {"not judged, the runs are too small"}
    assert all(claim["ours"] for claim in claims)
    page, finished = (out / "index.html").read_text(), seconds_of_children()
    assert max(path.stat().st_size for path in (out / "measured").iterdir()) < 20_000
    shutil.rmtree(out / "runs")
    shutil.rmtree(out / "packs")
    subprocess.run([*command, "--out", str(out)], check=True, stderr=subprocess.DEVNULL)
    assert seconds_of_children() - finished < 60  # nothing is trained or measured again
    assert (out / "index.html").read_text() == page


def test_the_docs_have_every_figure_and_table_of_the_paper():
    text = (Path(__file__).parents[2] / "docs" / "results" / "reproduction.md").read_text()
    for item in ITEMS:
        rows = [line for line in text.splitlines() if line.startswith(f"| {item.name} |")]
        assert len(rows) == 1, item.name
        assert item.target in ("", "any") or f"`kmyriad reproduce {item.target}`" in rows[0]
    assert all(f"| {open_point} | {chosen} |" in text for open_point, chosen in CHOICES)
