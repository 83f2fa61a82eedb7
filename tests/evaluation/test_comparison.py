"""`kmyriad compare`: means and intervals, computed by hand."""

import json

import numpy as np
import pytest

import kmyriad
from kmyriad.cli import main
from kmyriad.config import JumpstartConfig, PretrainConfig, with_settings
from kmyriad.evaluation.comparison import compare, jumpstart_values, labels_of, steps_before_learning
from kmyriad.evaluation.evaluate import Evaluation, evaluate, stored_evaluation
from kmyriad.rollout.collect import Visits
from kmyriad.runs.run import create_run, open_run
from tests.cli.test_cli import kmyriad as command

T_OF_2_RUNS, T_OF_3_RUNS = 12.7062047362, 4.3026527297
"""97.5 % quantiles of Student's t with 1 and 2 degrees of freedom, from a table."""

SUCCESS = [None, 0.0, 0.2, 0.4, 0.6, 0.8] + [0.9] * 10


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Two runs that differ in their seed, with small stored evaluations."""
    settings = {"agents": 2, "replicas": 4, "horizon": 20, "rollout_steps": None, "total_steps": 80, "threads": 1}
    settings |= {"trunk_hidden": (8,), "agent_hidden": 8}
    folder = tmp_path_factory.mktemp("runs")
    runs = [kmyriad.pretrain("point-maze", seed=seed, out=folder / f"seed-{seed}", **settings) for seed in (0, 1)]
    for run in runs:
        evaluate(run, episodes=300, threads=1)
    return runs


def written_run(path, rows, config):
    """A run folder made by hand."""
    run = create_run(path, config)
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return open_run(path)


def jumpstart(path, success=SUCCESS, steps=1000, **settings):
    rows = [
        {"iteration": iteration, "env_steps": iteration * steps, "success": value, "return": 0.0}
        for iteration, value in enumerate(success, start=1)
    ]
    settings = {"env": "ant-empty", "goal": [6, 3], "horizon": 100} | settings
    return written_run(path, rows, with_settings(JumpstartConfig(), settings))


def pretraining(path, **settings):
    rows = [
        {"iteration": iteration, "env_steps": iteration * 1000, "entropy": 1.0 + iteration} for iteration in (1, 2, 3)
    ]
    settings = {"env": "ant-maze", "update": "reinforce", "agents": 2, "horizon": 100} | settings
    return written_run(path, rows, with_settings(PretrainConfig(), settings))


def looked_at(entropies, env_steps=5000):
    """What stands for evaluations: run name to entropy."""
    visits = Visits(np.zeros((2, 3, 4, 2), np.float32), None, np.ones((2, 3, 4), bool))
    kl = {"kl_between_agents": [1.0, 2.0], "kl_floor": 0.25}
    return lambda run: Evaluation(visits, {"entropy": entropies[run.name], "env_steps": env_steps, **kl})


def test_the_real_command_gives_the_mean_and_interval_of_the_stored_evaluations(seeds, tmp_path):
    names = [str(run.path) for run in seeds]
    shown = command("compare", *names, "--json", "c.json", "--figures", "figures", folder=tmp_path).stdout
    (group,) = json.loads((tmp_path / "c.json").read_text())["pretraining"]
    assert (group["env"], group["update"], group["agents"]) == ("point-maze decimation=5", "actor_critic", 2)
    stored = [stored_evaluation(run).measures for run in seeds]
    for name, of in (("entropy", float), ("kl_between_agents", np.mean), ("kl_floor", float), ("covered_cells", float)):
        a, b = (of(measures[name]) for measures in stored)
        found = group["measures"][name]
        assert found["values"] == [a, b]
        assert found["mean"] == pytest.approx((a + b) / 2)
        assert found["margin"] == pytest.approx(T_OF_2_RUNS * abs(a - b) / 2)
        form = ".0f" if name == "covered_cells" else ".2f"
        assert f"{found['mean']:{form}} ± {found['margin']:{form}}" in shown
    assert [found["values"] for name, found in group["measures"].items() if name == "episodes"] == [[300, 300]]
    assert group["doubts"] == []
    assert shown.startswith("2 pretraining runs in 1 group: mean ± 95 % interval.")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "entropy.png",
        "entropy.svg",
    }


def test_runs_are_grouped_by_world_update_and_agents(tmp_path):
    runs = [
        pretraining(tmp_path / "a", seed=0),
        pretraining(tmp_path / "b", agents=10),
        pretraining(tmp_path / "c", seed=1),
        pretraining(tmp_path / "d", env="ant-cave"),
        pretraining(tmp_path / "e", env_settings={"size": 7}),
        pretraining(tmp_path / "f", update="trust_region"),
    ]
    groups = compare(runs, looked_at(dict.fromkeys("abcdef", 2.0))).pretraining
    assert [[run.name for run in group.runs] for group in groups] == [["d"], ["a", "c"], ["b"], ["f"], ["e"]]
    assert groups[1].mean("entropy").count == 2
    assert groups[1].mean("covered_cells") is None
    assert groups[0].mean("kl_between_agents").mean == 1.5
    assert groups[0].mean("kl_between_agents").margin is None


def test_what_makes_a_mean_questionable_is_told(tmp_path):
    runs = [pretraining(tmp_path / "a"), pretraining(tmp_path / "b", horizon=600, features=["x"])]
    (group,) = compare(runs, looked_at({"a": 1.0, "b": 2.0})).pretraining
    assert group.doubts == [
        "its runs differ in horizon: 100, 600",
        "its runs differ in features: ('x',), ()",
        "some of its runs have the same seed",
    ]
    runs = [jumpstart(tmp_path / "c", goal=(1, 2)), jumpstart(tmp_path / "d", seed=1), jumpstart(tmp_path / "e")]
    assert compare(runs).jumpstarts[0].doubts == []
    runs = [jumpstart(tmp_path / f"from-{source}", source=source) for source in "xy"]
    assert compare(runs).jumpstarts[0].doubts == ["some of its runs have the same seed"]
    runs = [jumpstart(tmp_path / f"of-one-{seed}", source="x", seed=seed) for seed in (0, 1)]
    assert "start from one pretraining run" in compare(runs).jumpstarts[0].doubts[0]
    runs = [jumpstart(tmp_path / f"rate-{rate}", seed=seed, gamma=rate) for seed, rate in enumerate((0.99, 1.0))]
    assert compare(runs).jumpstarts[0].doubts == ["its runs differ in gamma: 0.99, 1"]
    runs = [jumpstart(tmp_path / "f"), jumpstart(tmp_path / "g", horizon=50, steps=500)]
    assert compare(runs).jumpstarts[0].doubts == [
        "its runs differ in horizon: 100, 50",
        "its runs differ in env_steps: 16,000, 8,000",
        "some of its runs have the same seed",
    ]


def test_success_of_a_jumpstart(tmp_path):
    values = jumpstart_values(jumpstart(tmp_path / "a"))
    assert values["final_success"] == pytest.approx(0.9)
    heights = [0.0, 0.2, 0.4, 0.6, 0.8] + [0.9] * 10
    assert values["area"] == pytest.approx((sum(heights) - 0.45) / 16)  # from no success at step 0
    assert values["steps_to_half"] == 7000  # the mean of five iterations
    assert values["env_steps"] == 16_000


def test_a_jumpstart_that_never_learns_has_no_steps_to_half(tmp_path):
    runs = [
        jumpstart(tmp_path / "a", seed=0),
        jumpstart(tmp_path / "b", seed=1, success=[0.1] * 16),
        jumpstart(tmp_path / "c", seed=2, success=[0.2] * 8 + [0.5] * 8),
    ]
    (group,) = compare(runs).jumpstarts
    final = group.mean("final_success")
    a, b, c = 0.9, 0.1, 0.2 * 2 / 10 + 0.5 * 8 / 10
    assert final.mean == pytest.approx((a + b + c) / 3)
    assert final.margin == pytest.approx(T_OF_3_RUNS * np.std([a, b, c], ddof=1) / 3**0.5)
    assert (group.mean("steps_to_half").mean, group.mean("steps_to_half").count) == (10_000, 2)


def test_goals_of_one_seed_are_averaged_before_the_interval(tmp_path):
    """Six runs of two seeds are two independent values."""
    levels = {0: (0.2, 0.3, 0.4), 1: (0.5, 0.6, 0.7)}
    runs = [
        jumpstart(tmp_path / f"{seed}-{goal}", seed=seed, goal=(goal, 0), success=[level] * 16)
        for seed, of_seed in levels.items()
        for goal, level in enumerate(of_seed)
    ]
    (group,) = compare(runs).jumpstarts
    final = group.mean("final_success")
    assert group.seeds == [0, 1]
    assert (final.mean, final.count) == (pytest.approx(0.45), 2)
    assert final.margin == pytest.approx(T_OF_2_RUNS * 0.15)
    assert group.by_seed("steps_to_half") == {1: 1000.0}  # every goal of seed 1 began there, none of seed 0 did
    assert group.doubts == []


def test_a_seed_counts_only_if_all_of_its_goals_have_the_measure(tmp_path):
    runs = [jumpstart(tmp_path / f"{goal}", goal=(goal, 0), success=[goal / 10] * 16) for goal in (2, 7)]
    assert compare(runs).jumpstarts[0].mean("steps_to_half") is None


def test_differences_are_paired_by_seed_and_goal(tmp_path):
    """Goals differ more than starts do; only what both starts were given counts."""
    gains = {0: 0.1, 1: 0.2, 2: 0.15}
    runs = [jumpstart(tmp_path / "more", seed=0, goal=(9, 9)), jumpstart(tmp_path / "other", seed=7)]
    for seed, gain in gains.items():
        for goal, level in ((1, 0.1), (2, 0.6)):
            for init, success in (("random", level), ("best", level + gain)):
                name = f"{init}-{seed}-{goal}"
                runs.append(jumpstart(tmp_path / name, seed=seed, goal=(goal, 0), init=init, success=[success] * 16))
    found = compare(runs)
    (difference,) = found.jumpstart_differences
    assert (difference.first.label, difference.second.label) == ("best agent", "random start")
    assert difference.by_seed("final_success") == pytest.approx(gains)
    final = difference.mean("final_success")
    assert (final.mean, final.count) == (pytest.approx(0.15), 3)
    assert final.margin == pytest.approx(T_OF_3_RUNS * np.std([*gains.values()], ddof=1) / 3**0.5)
    assert difference.mean("steps_to_half") is None
    told = found.as_json()["jumpstart_differences"][0]
    assert (told["first"], told["second"]["init"]) == ({"env": "ant-empty", "init": "best"}, "random")
    assert told["measures"]["final_success"]["by_seed"] == pytest.approx(
        {str(seed): gain for seed, gain in gains.items()}
    )


def test_differences_are_between_groups_of_one_world(tmp_path):
    runs = [
        pretraining(tmp_path / "one", agents=1),
        pretraining(tmp_path / "two", agents=2),
        pretraining(tmp_path / "two-1", agents=2, seed=1),
        pretraining(tmp_path / "cave", env="ant-cave"),
    ]
    found = compare(runs, looked_at({"one": 2.0, "two": 2.5, "two-1": 9.0, "cave": 4.0}))
    (difference,) = found.pretraining_differences
    assert difference.by_seed("entropy") == {0: -0.5}
    assert difference.mean("entropy").margin is None
    assert difference.mean("covered_cells") is None
    lonely = compare([runs[0], runs[2]], looked_at({"one": 2.0, "two-1": 9.0})).pretraining_differences
    assert [one.mean("entropy") for one in lonely] == [None]


def test_settings_named_by_the_user_tell_groups_apart(tmp_path):
    sources = [pretraining(tmp_path / f"w{weight}", diversity_weight=weight) for weight in (0.0, 1.0)]
    jumpstarts = [jumpstart(tmp_path / f"j{source.name}", source=str(source.path)) for source in sources]
    found = compare([*sources, *jumpstarts], looked_at({"w0.0": 1.0, "w1.0": 3.0}), by=["diversity-weight"])
    assert [group.label for group in found.jumpstarts] == [
        "best agent, diversity weight 0.0",
        "best agent, diversity weight 1.0",
    ]
    assert found.pretraining_differences[0].by_seed("entropy") == {0: -2.0}
    assert labels_of(found.pretraining) == ["diversity weight 0.0", "diversity weight 1.0"]
    assert labels_of(found.pretraining[:1]) == ["REINFORCE, 2 agents, diversity weight 0.0"]
    with pytest.raises(kmyriad.UsageError, match="did you mean 'diversity_weight'"):
        compare(sources, by=["diversity"])


def test_what_a_jumpstart_spent_before_it_learned(tmp_path):
    run = jumpstart(tmp_path / "a", replicas=10, rollout_steps=25, critic_warm_up=3)
    assert steps_before_learning(run) == (750, 1500)


def test_mixed_runs_make_two_tables_and_figures(tmp_path, seeds, capsys):
    folders = [seeds[0].path]
    folders += [jumpstart(tmp_path / f"best-{seed}", seed=seed).path for seed in (0, 1)]
    folders += [jumpstart(tmp_path / f"random-{seed}", seed=seed, init="random").path for seed in (0, 1)]
    main(["compare", *map(str, folders), "--figures", str(tmp_path / "figures"), "--json", str(tmp_path / "c.json")])
    shown = capsys.readouterr().out
    assert "1 pretraining run in 1 group" in shown
    assert "4 jump-start runs in 2 groups" in shown
    assert "Differences paired by seed: mean ± 95 % interval." in shown
    assert "ant-empty best agent random start 2 +0.00 ± 0.00" in " ".join(shown.split())
    found = json.loads((tmp_path / "c.json").read_text())
    assert [group["init"] for group in found["jumpstarts"]] == ["best", "random"]
    assert {path.stem for path in (tmp_path / "figures").iterdir()} == {
        "entropy",
        "success",
    }


def test_runs_may_stand_behind_the_settings_that_tell_groups_apart(tmp_path, capsys):
    folders = [jumpstart(tmp_path / f"{lr}", learning_rate=lr).path for lr in (0.001, 0.002)]
    main(["compare", "--by", "learning-rate", *map(str, folders)])
    assert "2 jump-start runs in 2 groups" in capsys.readouterr().out


def test_runs_of_several_lengths_make_a_figure_of_budgets(tmp_path):
    entropies, steps = {}, {}
    for budget in (1, 4):
        for seed in (0, 1):
            run = pretraining(tmp_path / f"{budget}-{seed}", seed=seed)
            entropies[run.name], steps[run.name] = 2.0 + budget + seed, 1000 * budget
    runs = [open_run(tmp_path / name) for name in entropies]
    found = compare(runs, lambda run: looked_at(entropies, steps[run.name])(run))
    figure = kmyriad.figures.draw_comparison(found)["ant-maze-budget"]
    (line,) = figure.axes[0].get_lines()
    np.testing.assert_allclose(line.get_xdata(), [10, 40])
    np.testing.assert_allclose(line.get_ydata(), [3.5, 6.5])
    assert "its runs differ in env_steps: 1,000, 4,000" in found.pretraining[0].doubts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the folders of at least one run"),
        (["nowhere"], "there is no run folder nowhere"),
        (["new", "./new"], "is named twice"),
        (["new"], "new has no success rates yet"),
        (["bare"], "bare has no checkpoint yet"),
    ],
)
def test_bad_input_is_one_sentence(arguments, message, tmp_path, monkeypatch, capsys):
    jumpstart(tmp_path / "new", success=[None])
    pretraining(tmp_path / "bare")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["compare", *arguments])
    assert stopped.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
