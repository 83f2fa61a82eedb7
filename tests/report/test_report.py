"""The page's data and words; what a browser makes of it is in test_browser.py."""

import base64
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.cli import main
from kmyriad.config import JumpstartConfig, PretrainConfig, with_settings
from kmyriad.envs.plane import Plane
from kmyriad.errors import UsageError
from kmyriad.processes import Share
from kmyriad.report import attempts, page, section, words, write_report
from kmyriad.report.paths import ERROR, pack_paths, settled, thinned
from kmyriad.rollout.collect import Trajectory, Visits
from kmyriad.runs.run import append_metrics, create_run, open_run
from tests.made_up_run import made_up_jumpstart, made_up_run, walks

TINY = {
    "agents": 2,
    "replicas": 4,
    "horizon": 12,
    "rollout_steps": 12,
    "trunk_hidden": (8,),
    "agent_hidden": 8,
    "critic_hidden": (8, 8),
    "threads": 1,
}
ITERATION = TINY["replicas"] * TINY["rollout_steps"]
"""Environment steps."""
HOSTILE = "</script><script>alert(1)</script>\u2028<img src=x onerror=alert(1)>&amp;\"'`$(id)"


def data_of(path):
    """What the page at `path` holds."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    return json.loads(text)["runs"]


def unpacked(packed):
    """(m, p, n, 2), metres."""
    grid = np.frombuffer(base64.b64decode(packed["xy"]), "<i2")
    shape = packed["agents"], packed["episodes"], len(packed["steps"]), 2
    return grid.reshape(shape) * packed["scale"] + packed["origin"]


def all_valid(xy):
    return Visits(xy, xy, np.ones(xy.shape[:3], bool))


def test_a_trained_run_is_played_once_and_again_only_when_it_must(tmp_path, capsys):
    run = kmyriad.pretrain("point-maze", out=tmp_path / "run", total_steps=ITERATION, **TINY)
    out = tmp_path / "report.html"
    played, shown_per_agent = [], []
    for episodes, iterations in ((4, 1), (4, 1), (None, 1), (None, 1), (6, 1), (None, 1), (6, 2), (6, 2)):
        if iterations > len(run.metrics()):
            kmyriad.pretrain(out=run.path, resume=True, total_steps=iterations * ITERATION)
        capsys.readouterr()
        main(["report", str(run.path), "--out", str(out), *([] if episodes is None else ["--episodes", str(episodes)])])
        said = capsys.readouterr().err
        assert "wrote" in said
        played.append(f"playing fresh episodes of {run.path}" in said)
        (shown,) = data_of(out)
        assert shown["missing"] == []
        assert len(shown["agents"]) == 2
        assert shown["paths"]["episodes"] == shown["episodes"]
        shown_per_agent.append(shown["episodes"])
    # 300 where nothing else is asked for; six do not take the place of 300 of the same checkpoint
    assert shown_per_agent == [2, 2, 150, 150, 3, 150, 3, 3]
    assert played == [True, False, True, False, True, False, True, False]


def test_without_a_checkpoint_what_is_stored_is_shown_however_many_are_asked_for(tmp_path):
    run = made_up_run(tmp_path / "run", walks([0, 90], episodes=4))
    shown = section.section_of(run, episodes=2)
    assert (shown["episodes"], shown["missing"]) == (4, [])


def test_other_peoples_environments_have_maps_of_their_features(tmp_path):
    run = kmyriad.pretrain("MountainCarContinuous-v0", out=tmp_path / "car", total_steps=ITERATION, **TINY)
    write_report([run], tmp_path / "report.html", episodes=4)
    (shown,) = data_of(tmp_path / "report.html")
    assert shown["missing"] == []
    assert len(shown["agents"]) == 2
    position, velocity = shown["ground"]["axes"]
    assert (position["name"], position["unit"]) == ("observation 0", "")
    assert (position["per"], velocity["per"]) == (pytest.approx(1.8 / 20), pytest.approx(0.14 / 20))
    assert shown["goal_radius"] == 1  # pages count in cells where a cell is no square
    low, high = shown["ground"]["extent"][:2]
    assert low * position["per"] < -0.5 < high * position["per"]
    assert shown["ground"]["walls"] is shown["ground"]["relief"] is None
    assert "cells of 0.09 in observation 0 by 0.007 in observation 1" in " ".join(shown["summary"])


def test_a_single_feature_has_a_map_with_one_axis(tmp_path):
    run = kmyriad.pretrain(
        "MountainCarContinuous-v0", features=("0",), out=tmp_path / "car", total_steps=ITERATION, **TINY
    )
    shown = section.section_of(run, episodes=4)
    assert [axis["name"] for axis in shown["ground"]["axes"]] == ["observation 0"]
    assert shown["missing"] == []


@pytest.mark.parametrize(
    ("kind", "settings", "metrics", "missing"),
    [
        (PretrainConfig, {}, None, ["no entropy yet", "has no checkpoint yet"]),
        (PretrainConfig, {}, '{"iteration": 1}\n', ["no entropy yet", "has no checkpoint yet"]),
        (PretrainConfig, {}, '{"iteration": 1, "entropy"', ["no entropy yet", "has no checkpoint yet"]),
        (PretrainConfig, {"env": "nowhere-v7"}, "{}\n", ["line 1 of", "no entropy yet", "has no checkpoint yet"]),
        (
            PretrainConfig,
            {"env": "ant-maze"},
            '{"iteration": 1, "env_steps": 5, "entropy": null}\n',
            ["no entropy", "no checkpoint yet"],
        ),
        (JumpstartConfig, {}, None, ["no success yet"]),
        (JumpstartConfig, {"env": "x", "goal": (1, 2)}, None, ["no success yet", "unknown environment 'x'"]),
        (JumpstartConfig, {"goal": (1, 2)}, None, ["no success yet", "unknown environment ''"]),
    ],
)
def test_whatever_a_run_lacks_its_page_says(kind, settings, metrics, missing, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(with_settings(kind(), settings).as_json()))
    if metrics is not None:
        (tmp_path / "metrics.jsonl").write_text(metrics)
    write_report([open_run(tmp_path)], tmp_path / "report.html")
    (shown,) = data_of(tmp_path / "report.html")
    assert len(shown["missing"]) == len(missing)
    for sentence, part in zip(shown["missing"], missing, strict=True):
        assert part in sentence
    assert shown["summary"]


@pytest.mark.parametrize(
    ("kind", "block", "wrong", "message"),
    [
        (PretrainConfig, "world", {"env": 5}, "env must be text; got 5"),
        (PretrainConfig, "population", {"agents": ["x"]}, r"agents must be a whole number; got \['x'\]"),
        (PretrainConfig, "run", {"total_steps": "many"}, "total_steps must be a whole number; got 'many'"),
        (JumpstartConfig, "task", {"goal": [1, "a"]}, "each of goal must be a finite number; got 'a'"),
        (JumpstartConfig, "start", {"init": []}, r"unknown init \[\]; known: best, single, random"),
        (JumpstartConfig, "start", {"init": HOSTILE}, "unknown init '</script>"),
    ],
)
def test_a_run_of_damaged_settings_has_no_page(kind, block, wrong, message, tmp_path):
    content = kind().as_json()
    content[block] |= wrong
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(UsageError, match=f"{tmp_path} cannot be opened: {message}"):
        write_report([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_one_agent_one_iteration_and_a_stored_evaluation_without_a_checkpoint(tmp_path):
    run = made_up_run(tmp_path / "run", walks([90]), entropies=[float("nan")])
    shown = section.section_of(run)
    assert shown["missing"] == ["No curve: the metrics have no entropy yet."]
    assert shown["summary"][0].startswith("One agent explored without reward: the Ant on open flat ground (ant-empty)")
    assert "it came to 10 cells of 1 m" in shown["summary"][1]


def test_a_damaged_evaluation_is_told(tmp_path):
    run = made_up_run(tmp_path / "run", walks([90]))
    run.evaluation_path.write_bytes(b"torn")
    assert section.section_of(run)["missing"] == [
        f"No episodes to show: {run.path} has no checkpoint yet; let it train for an iteration first."
    ]


def test_a_jumpstart_shows_its_goal_and_success(tmp_path):
    shown = section.section_of(made_up_jumpstart(tmp_path / "jump", goal_radius=0.5))
    assert (shown["kind"], shown["goal"], shown["goal_radius"]) == ("jumpstart", [-4, -8], 0.5)
    assert shown["curve"]["name"] == "success"
    assert (shown["curve"]["x"][0], shown["curve"]["y"][-1]) == (1000, 0.7)
    assert shown["summary"] == [
        "Learned to reach the goal (-4, -8) m: the Ant in a maze (ant-maze), 5,000 environment steps (10 iterations).",
        "It began with the agent that did best on the task, from runs/maze.",
        "In the last iterations 70% of the episodes reached the goal; it was first half of them or more after 4,000"
        " environment steps.",
    ]
    assert shown["missing"] == ["No episodes to show: there is no run folder runs/maze; check the name."]
    assert "command" not in shown


def test_a_jumpstart_shows_where_it_goes_before_and_after(tmp_path):
    small = {"horizon": 40, "replicas": 8, "rollout_steps": 20, "trunk_hidden": (8,), "agent_hidden": 8, "threads": 1}
    source = kmyriad.pretrain("point-maze", agents=2, total_steps=640, out=tmp_path / "source", **small)
    start = {
        "goal": (1.0, -2.0),
        "total_steps": 3000,
        "selection_steps": 1200,
        "replicas": 8,
        "rollout_steps": 20,
        "threads": 1,
    }
    for init, titles in (("best", ["before", "after"]), ("random", ["after"])):
        run = kmyriad.jumpstart(source, init=init, out=tmp_path / init, **start)
        shown = section.section_of(run)
        assert shown["missing"] == []
        assert [one["title"] for one in shown["attempts"]] == titles
        for one in shown["attempts"]:
            assert 0 <= one["success"] <= 1
            assert (one["paths"]["agents"], one["paths"]["episodes"]) == (1, 40)
        left, right, bottom, top = shown["ground"]["extent"]
        assert left < 1.0 < right
        assert bottom < -2.0 < top


def test_success_on_the_page_is_of_the_first_episode_of_each_replica(monkeypatch):
    dones, success = torch.zeros(2, 1, 4, 6, dtype=torch.bool)
    dones[0, :, 2] = True  # all four fall after three steps,
    success[0, 1:3, 4:] = True  # two of them get there in the next episode,
    success[0, 3, 1:] = True  # and one got there before it fell
    features, nothing = torch.zeros(1, 4, 6, 2), torch.zeros(1, 4, 6)
    ran = Trajectory(
        features=features,
        xy=features,
        valid=torch.ones_like(dones),
        dones=dones,
        terminated=dones,
        success=success,
        rewards=nothing,
        episode_steps=torch.tensor([0, 1, 2, 0, 1, 2]).expand(1, 4, 6),
        observations=features,
        actions=features,
        log_probs=nothing,
        next_observations=None,
        last_observations=None,
        share=Share(1, 4),
    )
    packed = []
    monkeypatch.setattr(attempts, "play", lambda *arguments, **named: ran)
    monkeypatch.setattr(attempts, "pack_paths", lambda visits, plane, radius: packed.append(visits.valid))
    shown = attempts._attempt(None, None, None, 1.0)
    assert (shown["success"], shown["episodes"]) == (0.25, 4)
    assert packed[0].sum(axis=-1).tolist() == [[3, 3, 3, 2]]


def test_a_jumpstart_without_a_goal_shows_its_return(tmp_path):
    asked = {"env": "Hopper", "init": "random", "source": "Hopper", "total_steps": 2_000_000}
    run = create_run(tmp_path / "jump", with_settings(JumpstartConfig(), asked))
    append_metrics(run, {"iteration": 1, "env_steps": 10, "success": None, "return": 7.0})
    shown = section.section_of(run)
    assert shown["curve"] == {"name": "return", "x": [10], "y": [7.0]}
    assert shown["summary"] == [
        "Learned to earn the reward of its environment: Hopper, 10 of 2 million environment steps (1 iteration).",
        "It began with fresh weights, without pretraining.",
        "In the last iterations its episodes earned 7 on average.",
    ]
    assert shown["missing"] == []


def test_long_curves_are_thinned_and_keep_their_end(tmp_path):
    run = create_run(tmp_path / "long", PretrainConfig())
    rows = [{"iteration": i, "env_steps": i, "entropy": float(i)} for i in range(1, 5002)]
    run.metrics_path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    curve = section.section_of(run)["curve"]
    assert len(curve["x"]) <= section.CURVE_POINTS
    assert curve["x"][-1] == 5001
    assert curve["x"] == sorted(curve["x"])


# Words


def test_the_sentences_of_a_population():
    rows = [
        {"iteration": 1, "env_steps": 10, "entropy": -3.0, "particles": 10},
        {"iteration": 2, "env_steps": 20, "entropy": 0.5, "particles": 100},
        {"iteration": 3, "env_steps": 2_345_678, "entropy": 4.25, "particles": 100},
    ]
    measures = {
        "covered_cells": 60,
        "covered_cells_per_agent": [10, 30],
        "kl_between_agents": [3.0, 0.4],
        "kl_floor": 0.5,
    }
    config = with_settings(PretrainConfig(), {"env": "ant-maze", "agents": 2, "total_steps": 9_000_000})
    plane = Plane(("x", "y"), ("m", "m"), (0.5, 0.5), (0.0, 0.0))
    assert words.pretraining_summary(config, rows, measures, 15, plane) == [
        "2 agents explored without reward: the Ant in a maze (ant-maze), 2.35 million of 9 million environment steps"
        " (3 iterations).",
        "The entropy of the states that all agents visit together rose from 0.50 nats (iteration 2, the first with"
        " whole episodes) to 4.25 nats.",
        "In 30 fresh episodes all agents together came to 60 cells of 0.5 m, 2.0 times as many as the best single"
        " agent, agent 1, with 30 cells in its 15 episodes.",
        "The KL of an agent's states from those of the others is 1.70 nats on average; agents that all behave alike"
        " would show 0.50 with as many episodes. Agent 1 does not lie above that.",
    ]


@pytest.mark.parametrize(
    ("kl", "end"),
    [
        ([2.0, 2.0], "Every agent lies above that."),
        ([0.3, 0.4], "By this measure the agents do not differ."),
        ([9.0, 0.4, 0.3, 9.0], "Agents 1 and 2 do not lie above that."),
        ([99.0] + [0.1] * 8, "8 of 9 agents do not lie above that."),
    ],
)
def test_the_difference_between_agents_is_told_honestly(kl, end):
    (*_, sentence) = words.pretraining_summary(PretrainConfig(), [], {"kl_between_agents": kl, "kl_floor": 0.5})
    assert sentence.endswith(end)


# Paths


METRES = Plane(("x", "y"), ("m", "m"), (1.0, 1.0), (0.0, 0.0))


def test_paths_come_back_to_the_millimetre():
    xy = walks([0, 90, 200]) + np.random.default_rng(0).normal(0, 0.3, (3, 4, 60, 2)).astype(np.float32)
    packed = pack_paths(all_valid(xy), METRES, radius=0.1)
    assert packed["steps"] == list(range(1, 61))  # nothing can be left out
    np.testing.assert_allclose(unpacked(packed), xy, atol=1e-3)


@pytest.mark.parametrize("steps", [1, 2, 3, 59, 60, 200])
def test_points_that_lines_make_up_for_are_left_out(steps):
    xy = walks([0, 90], steps=steps).astype(np.float64)
    kept = thinned(xy, 0.1)
    assert (kept[0], kept[-1]) == (0, steps - 1)
    assert len(kept) <= (13 if steps >= 20 else steps)


def test_what_is_left_out_lies_near_the_lines():
    rng = np.random.default_rng(0)
    turns = rng.normal(0, 0.1, (4, 5, 300)).cumsum(axis=2)
    xy = (0.1 * np.stack([np.cos(turns), np.sin(turns)], axis=-1)).cumsum(axis=2)
    packed = pack_paths(all_valid(xy.astype(np.float32)), METRES, radius=1.0)
    steps = np.array(packed["steps"])
    assert len(steps) < 150
    lines = [
        np.stack([np.interp(np.arange(1, 301), steps, way[:, axis]) for axis in (0, 1)], axis=-1)
        for way in unpacked(packed).reshape(20, -1, 2)
    ]
    assert np.linalg.norm(np.array(lines) - xy.reshape(20, 300, 2), axis=-1).max() < ERROR + 0.01


def test_broken_episodes_stay_where_they_last_were_valid():
    xy = walks([0, 90], episodes=2)
    visits = all_valid(xy.copy())
    visits.valid[0, 0, 5:], visits.xy[0, 0, 5:] = False, 1e9
    visits.valid[0, 1], visits.xy[0, 1] = False, np.nan
    visits.xy[1, 0, 7] = np.inf
    places = settled(visits, (3.0, 4.0))
    np.testing.assert_array_equal(places[0, 0, 5:], np.broadcast_to(xy[0, 0, 4], (55, 2)))
    np.testing.assert_array_equal(places[0, 1], np.broadcast_to((3.0, 4.0), (60, 2)))
    np.testing.assert_array_equal(places[1, 0, 6:], np.broadcast_to(xy[1, 0, 6], (54, 2)))
    np.testing.assert_array_equal(places[1, 1], xy[1, 1])


# The file


def test_a_large_run_stays_small(tmp_path):
    rng = np.random.default_rng(0)
    xy = rng.normal(0, 0.2, (50, 6, 600, 2)).cumsum(axis=2).astype(np.float32)
    write_report([made_up_run(tmp_path / "run", xy, env="ant-cave")], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 2_000_000


def test_the_same_run_gives_the_same_bytes_in_ascii_data(tmp_path):
    run = made_up_run(tmp_path / "run", walks([0, 90]))
    pages = []
    for name in ("a.html", "b.html"):
        write_report([run], tmp_path / name)
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]


def test_hostile_text_cannot_leave_the_data(tmp_path):
    assert json.loads(page.script_json(HOSTILE)) == HOSTILE
    assert not set("<>&\u2028") & set(page.script_json([HOSTILE, {HOSTILE: HOSTILE}]))
    run = made_up_run(tmp_path / HOSTILE.replace("/", "|"), walks([0]))
    write_report([run], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert (text.count("<script"), text.count("<img")) == (3, 0)
    (shown,) = data_of(tmp_path / "report.html")
    assert shlex.split(shown["command"]) == ["kmyriad", "jumpstart", str(run.path), "--goal"]


def test_a_placeholder_in_a_name_is_only_text(tmp_path):
    write_report([made_up_run(tmp_path / "{{ script }}", walks([0]))], tmp_path / "report.html")
    assert data_of(tmp_path / "report.html")[0]["name"] == "{{ script }}"


def test_a_run_that_looks_like_an_option_is_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = section.section_of(made_up_run(Path("--help"), walks([0])))
    assert shown["command"] == "kmyriad jumpstart ./--help --goal"


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [made_up_run(tmp_path / folder / "same", walks([0])) for folder in ("a", "b")]
    write_report(runs, tmp_path / "report.html")
    assert [shown["name"] for shown in data_of(tmp_path / "report.html")] == [str(run.path) for run in runs]


def test_videos_are_inside_while_there_is_room_and_linked_else(tmp_path):
    run = made_up_run(tmp_path / "runs" / "one", walks([0]))
    videos = run.path / "videos"
    videos.mkdir()
    (videos / "b small.mp4").write_bytes(b"small")
    (videos / "a:large.mp4").write_bytes(bytes(page.SIZE))
    (videos / "c.mp4").mkdir()
    write_report([run], tmp_path / "pages" / "report.html")
    (shown,) = data_of(tmp_path / "pages" / "report.html")
    large, small = shown["videos"]
    assert large == {"name": "a:large.mp4", "link": "../runs/one/videos/a%3Alarge.mp4"}
    assert small == {"name": "b small.mp4", "source": "data:video/mp4;base64,c21hbGw="}
    assert "c.mp4" in shown["missing"][0]


def test_the_vendored_library_is_the_version_that_is_noted():
    vendor = Path(page.__file__).parent / "vendor"
    version = re.search(r"\(v([\d.]+)\)", (vendor / "uPlot.iife.min.js").read_text()[:200])[1]
    assert f"uPlot {version} (MIT" in (vendor / "README.md").read_text()
    assert "MIT License" in (vendor / "uPlot.LICENSE").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no run folder nowhere"),
        (["."], ". is no run folder: it has no config.json"),
        ([".", "--episodes", "0"], "--episodes must be at least 1; got 0"),
        (["run", "--out", "."], "'.' names no file or folder; give a name"),
        (["run", "--out", "run"], "cannot write the page run: it is a folder; name a file, such as run/report.html"),
        (["run", "--out", "run/config.json/page.html"], "cannot write the page run/config.json/page.html"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, tmp_path, monkeypatch, capsys):
    made_up_run(tmp_path / "run", walks([0]))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["report", *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_no_run_at_all_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["report"])
    assert caught.value.code == 2


def test_write_report_raises_for_what_cannot_be_written(tmp_path):
    with pytest.raises(UsageError, match="cannot write the page"):
        write_report([made_up_run(tmp_path / "run", walks([0]))], tmp_path)
