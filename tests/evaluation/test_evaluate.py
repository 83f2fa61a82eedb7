"""`kmyriad evaluate`: its numbers, computed again from the stored episodes by brute force, and what it says."""

import json
import math
import shutil

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import digamma

import kmyriad
from kmyriad.cli import main
from kmyriad.config import JumpstartConfig, PretrainConfig, with_settings
from kmyriad.evaluation.comparison import labels_of
from kmyriad.evaluation.evaluate import current_evaluation, evaluate, play, stored_evaluation, world_of
from kmyriad.report.section import section_of
from kmyriad.runs.checkpoints import checkpoint_path
from kmyriad.runs.run import create_run, open_run
from kmyriad.runs.tensor_file import read_tensor_file, write_tensor_file
from tests import walk_env
from tests.cli.test_cli import kmyriad as command

TINY = {"replicas": 6, "horizon": 20, "rollout_steps": None, "total_steps": 2 * 6 * 20, "threads": 1}
TINY |= {"trunk_hidden": (8,), "agent_hidden": 8}
FIGURES = {f"here-{name}.{kind}" for name in ("entropy", "agents", "visitation", "kl") for kind in ("png", "svg")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of three agents, never changed."""
    return kmyriad.pretrain("point-maze", agents=3, out=tmp_path_factory.mktemp("runs") / "here", **TINY)


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained.path, tmp_path / "here")
    return open_run(tmp_path / "here")


def evaluated(run, *arguments):
    main(["evaluate", str(run.path), "--episodes", "12", "--threads", "1", *arguments])
    return json.loads((run.path / "evaluation.json").read_text())


def clouds(values, valid):
    return [values[agent][valid[agent]] for agent in range(len(valid))]


def entropy(points, k=5):
    radius = np.maximum(np.sort(cdist(points, points), axis=1)[:, k], 1e-6)
    n, d = points.shape
    ball = math.pi ** (d / 2) / math.gamma(d / 2 + 1)
    return math.log(n) - digamma(k) + np.log(ball * radius**d).mean()


def kl(p, q, k=5):
    own, other = np.sort(cdist(p, p), axis=1)[:, k], np.sort(cdist(p, q), axis=1)[:, k - 1]
    ratio = np.maximum(other, 1e-6) / np.maximum(own, 1e-6)
    return p.shape[1] * np.log(ratio).mean() + math.log(len(q) / (len(p) - 1))


def test_the_real_command_tells_and_writes_the_numbers(run):
    shown = command(
        *["evaluate", str(run.path), "--episodes", "12", "--threads", "1", "--figures", "figures"],
        folder=run.path.parent,
    ).stdout
    facts = json.loads((run.path / "evaluation.json").read_text())
    visits = stored_evaluation(run).visits
    assert visits.features.shape == (3, 4, 20, 2)
    assert (facts["agents"], facts["episodes"], facts["iteration"]) == (3, 12, 2)

    agents = [cloud.astype(np.float64) for cloud in clouds(visits.features, visits.valid)]
    assert facts["entropy"] == pytest.approx(entropy(np.concatenate(agents)), abs=1e-4)
    assert facts["entropy_per_agent"] == pytest.approx([entropy(agent) for agent in agents], abs=1e-4)
    others = [np.concatenate(agents[:agent] + agents[agent + 1 :]) for agent in range(3)]
    each = [kl(agent, rest) for agent, rest in zip(agents, others, strict=True)]
    assert facts["kl_between_agents"] == pytest.approx(each, abs=1e-3)
    assert facts["kl_between_agents_mean"] == pytest.approx(np.mean(each), abs=1e-3)
    assert facts["entropy_per_agent_mean"] == pytest.approx(np.mean(facts["entropy_per_agent"]))
    assert facts["covered_cells_per_agent_mean"] == pytest.approx(np.mean(facts["covered_cells_per_agent"]))
    pairs = [[kl(p, q) if p is not q else 0 for q in agents] for p in agents]
    np.testing.assert_allclose(facts["kl_pairs"], pairs, atol=1e-3)
    cells = [{(math.floor(x / 0.45), math.floor(y / 0.45)) for x, y in agent} for agent in agents]
    assert facts["covered_cells_per_agent"] == [len(one) for one in cells]
    assert facts["covered_cells"] == len(set.union(*cells))

    words = " ".join(shown.split())
    assert "here: 3 agents in point-maze after iteration 2 (240 env steps), on 12 fresh episodes of 20 steps." in words
    assert f"KL of each agent from all others: {np.mean(each):.2f} nats on average" in words
    assert f"would show {facts['kl_floor']:.2f}." in words
    assert {path.name for path in (run.path.parent / "figures").iterdir()} == FIGURES


def test_another_seed_gives_other_episodes_and_the_same_seed_the_same(run):
    first, again, other = (evaluated(run, "--seed", seed) for seed in ("1", "1", "2"))
    assert first == again
    assert first["entropy"] != other["entropy"]


def test_the_json_goes_where_asked(run, tmp_path):
    asked = tmp_path / "new" / "numbers.json"
    main(["evaluate", str(run.path), "--episodes", "3", "--threads", "1", "--json", str(asked)])
    assert json.loads(asked.read_text())["episodes"] == 3
    assert not (run.path / "evaluation.json").exists()


def test_one_agent_has_no_kl(tmp_path, capsys):
    run = kmyriad.pretrain("point-maze", agents=1, out=tmp_path / "one", **TINY)
    facts = evaluated(run)
    assert "kl_between_agents" not in facts
    assert "kl_pairs" not in facts
    assert facts["covered_cells"] == facts["covered_cells_per_agent"][0]
    assert "There is no KL between agents: there is only one." in capsys.readouterr().out


def test_what_agents_were_told_of_the_robot_is_named(tmp_path, capsys):
    """By the command, on the page, and in what runs are compared by."""
    runs = [
        kmyriad.pretrain("ant-empty", agents=2, out=tmp_path / name, priors=priors, **TINY)
        for name, priors in (("told", True), ("untold", False))
    ]
    mirrors = ["mirror of x", "mirror of y"]
    assert [evaluated(run)["priors"] for run in runs] == [mirrors, []]
    shown = capsys.readouterr().out
    assert shown.count("Priors: agents see the world in its symmetries (mirror of x, mirror of y).") == 1
    told = "Agents were told of the robot that it is symmetric: mirror of x, mirror of y."
    assert [told in section_of(run, 4)["summary"] for run in runs] == [True, False]
    groups = kmyriad.compare(runs).pretraining
    assert [group.name["priors"] for group in groups] == ["none", "mirror of x, mirror of y"]
    assert labels_of(groups) == ["no priors", "told of mirror of x, mirror of y"]


def test_other_peoples_environments_are_covered_in_their_features(tmp_path, capsys):
    walk_env.register()
    run = kmyriad.pretrain(walk_env.CONTINUOUS, agents=2, out=tmp_path / "walk", **TINY)
    facts = evaluated(run, "--figures", str(tmp_path / "figures"))
    assert facts["covered_cells"] >= max(facts["covered_cells_per_agent"])
    assert facts["features"] == ["0", "1"]
    assert "Covered cells of 1 in observation 0 by 1 in observation 1:" in capsys.readouterr().out
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert drawn == {"walk-entropy", "walk-kl", "walk-agents", "walk-visitation"}


def test_a_stored_evaluation_counts_while_it_is_of_the_newest_checkpoint(run):
    evaluate(run, threads=1)
    stored = run.evaluation_path.read_bytes()
    assert current_evaluation(run, threads=1).visits.valid.shape == (3, 100, 20)
    assert run.evaluation_path.read_bytes() == stored
    path = checkpoint_path(run.checkpoints, 2)
    newer = read_tensor_file(path)
    newer.facts["iteration"] = 3
    write_tensor_file(checkpoint_path(run.checkpoints, 3), newer)
    assert current_evaluation(run, threads=1).measures["iteration"] == 3
    assert stored_evaluation(run).measures["iteration"] == 3


def test_a_stored_evaluation_counts_if_it_has_episodes_enough(run):
    def kept():
        return stored_evaluation(run).visits.valid.shape[1]

    evaluate(run, episodes=6, threads=1)
    assert kept() == 2
    stored = run.evaluation_path.read_bytes()
    assert current_evaluation(run, threads=1, episodes=6).visits.valid.shape == (3, 2, 20)
    assert current_evaluation(run, threads=1, episodes=7).visits.valid.shape == (3, 2, 20)  # as many as 3 agents share
    assert run.evaluation_path.read_bytes() == stored
    assert current_evaluation(run, threads=1, episodes=3).visits.valid.shape == (3, 1, 20)
    assert run.evaluation_path.read_bytes() == stored  # fewer do not take the place of more
    assert current_evaluation(run, threads=1, episodes=9).visits.valid.shape == (3, 3, 20)
    assert kept() == 3
    assert current_evaluation(run, threads=1).visits.valid.shape == (3, 100, 20)
    assert kept() == 100
    evaluate(run, episodes=303, threads=1)
    assert current_evaluation(run, threads=1).visits.valid.shape == (3, 101, 20)  # more are better


def test_without_a_checkpoint_what_is_stored_will_do(run):
    evaluate(run, episodes=6, threads=1)
    for path in run.checkpoints.iterdir():
        path.unlink()
    for episodes in (None, 6, 9):
        assert current_evaluation(run, threads=1, episodes=episodes).visits.valid.shape == (3, 2, 20)


def test_an_evaluation_need_not_be_kept(run):
    evaluation = evaluate(run.path, episodes=6, threads=1, keep=False)
    assert evaluation.visits.valid.shape == (3, 2, 20)
    assert stored_evaluation(run) is None


def test_a_damaged_evaluation_is_made_again(run, capfd):
    run.evaluation_path.write_bytes(b"torn")
    assert current_evaluation(run, threads=1).visits.valid.shape == (3, 100, 20)
    assert "the stored evaluation is not used: " in capfd.readouterr().err
    assert stored_evaluation(run).visits.valid.shape == (3, 100, 20)


def test_a_stored_evaluation_is_what_was_measured(run):
    evaluation, stored = evaluate(run, episodes=6, threads=1), stored_evaluation(run)
    assert stored.measures == evaluation.measures
    for name, array in vars(evaluation.visits).items():
        np.testing.assert_array_equal(getattr(stored.visits, name), array, strict=True)


def test_a_run_plays_whole_episodes(run, tmp_path):
    played, again = (play(run, episodes=7, threads=1) for _ in range(2))
    assert played.valid.shape == (3, 2, 20)
    assert played.dones[..., -1].all()
    assert not played.dones[..., :-1].any()
    assert (played.episode_steps.numpy() == np.arange(20)).all()
    np.testing.assert_array_equal(played.xy, again.xy)
    assert not np.array_equal(played.xy, play(run.path, episodes=7, seed=1, threads=1).xy)
    goal = (1.0, -2.0)
    settings = {"replicas": 4, "rollout_steps": 10, "selection_steps": 60, "total_steps": 61, "critic_hidden": (8,)}
    jump = kmyriad.jumpstart(run, goal=goal, goal_radius=1.8, out=tmp_path / "jump", threads=1, **settings)
    on_task = play(jump, episodes=8, threads=1)
    assert on_task.valid.shape == (1, 8, 20)
    there = np.linalg.norm(on_task.xy.numpy() - np.array(goal), axis=-1) <= 1.8
    np.testing.assert_array_equal(on_task.success, np.maximum.accumulate(there, axis=-1))
    assert there.any()


def test_the_world_of_a_run_is_there_to_draw(run, tmp_path):
    world = world_of(run)
    assert world.terrain is not None
    walk_env.register()
    walk = create_run(tmp_path / "walk", with_settings(PretrainConfig(), {"env": walk_env.CONTINUOUS}))
    assert world_of(walk) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no run folder nowhere"),
        (["here", "--episodes", "0"], "episodes must be between 1 and"),
        (["here", "--seed", "-1"], "seed must be between 0 and"),
        (["bare"], "bare has no checkpoint yet"),
        (["jump"], "jump is a jumpstart run; name the pretraining run that it started from"),
        (["old"], "old cannot be opened: its settings are of format 1, and this kmyriad reads format 2"),
        (["here", "--threads", "0"], "threads must be between 1 and 4096; got 0"),
        (["here", "--episodes", "3", "--json", "here/config.json/x.json"], "cannot write here/config.json/x.json"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, run, monkeypatch, capsys):
    monkeypatch.chdir(run.path.parent)
    create_run(run.path.parent / "bare", run.config)
    create_run(run.path.parent / "jump", JumpstartConfig())
    create_run(run.path.parent / "old", run.config).config_path.write_text('{"env": "ant-maze", "heads": 3}')
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", *arguments])
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("lacks", ["population.common_output_weight", "architecture"])
def test_policies_of_another_version_are_one_sentence(lacks, run, capsys):
    path = checkpoint_path(run.checkpoints, 2)
    stored = read_tensor_file(path)
    stored.tensors.pop(lacks, None)
    stored.facts.pop(lacks, None)
    write_tensor_file(path, stored)
    with pytest.raises(SystemExit) as stopped:
        main(["evaluate", str(run.path)])
    assert stopped.value.code == 2
    assert "do not fit this version of kmyriad" in " ".join(capsys.readouterr().err.split())
