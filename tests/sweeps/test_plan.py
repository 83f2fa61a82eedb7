"""What a sweep's file asks for, and what is refused before anything is trained."""

import copy

import pytest

from kmyriad import UsageError
from kmyriad.config import JumpstartConfig, settings_of, with_settings
from kmyriad.runs.run import create_run
from kmyriad.sweeps.plan import make_plan, read_plan
from kmyriad.sweeps.sweep import plan_of

EXAMPLE = """
folder = "runs/agents"

[pretrain.populations]
total_steps = 1e5
trunk_hidden = [32, 16]
grid = { env = ["point-maze", "ant-maze"], agents = [1, 10], seed = [0, 1] }

[jumpstart.best]
source = "populations"
where = { env = "point-maze", agents = 10 }
grid = { goal = [[1, -2], [-1, -2]], gamma = [0.99] }

[jumpstart.random]
init = "random"
grid = { source = ["ant-empty"], seed = [3] }
goal = [6, 3]

[slurm]
timeout_min = 60
"""


def written(tmp_path, text):
    path = tmp_path / "many.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_jobs(tmp_path):
    plan = read_plan(written(tmp_path, EXAMPLE))
    assert str(plan.folder) == "runs/agents"
    assert [job.name for job in plan.jobs] == [
        *(f"populations-{env}-agents-{agents}-seed-{seed}" for env in ("point-maze", "ant-maze") for agents in (1, 10)
          for seed in (0, 1)),
        *(f"best-point-maze-agents-10-seed-{seed}-goal-{goal}-gamma-0.99" for goal in ("1--2", "-1--2")
          for seed in (0, 1)),
        "random-source-ant-empty-seed-3",
    ]  # fmt: skip
    first, last, random = settings_of(plan.jobs[0].config), plan.jobs[-2], settings_of(plan.jobs[-1].config)
    assert (first["env"], first["agents"], first["total_steps"], first["threads"]) == ("point-maze", 1, 100_000, 1)
    assert (first["trunk_hidden"], first["env_settings"]) == ((32, 16), {"decimation": 5})
    assert last.after == "populations-point-maze-agents-10-seed-1"
    start = settings_of(last.config)
    assert (start["source"], start["seed"]) == (f"runs/agents/{last.after}", 1)  # the seed of what it starts from
    assert (start["goal"], start["gamma"]) == ((-1.0, -2.0), 0.99)
    assert (start["env"], start["env_settings"], start["horizon"]) == ("point-maze", {"decimation": 5}, 200)
    assert (random["source"], random["init"], random["seed"], plan.jobs[-1].after) == ("ant-empty", "random", 3, None)
    assert plan.by == ["gamma"]
    assert plan.slurm == {"timeout_min": 60}


def test_the_folder_is_named_after_the_file_or_as_asked(tmp_path):
    path = written(tmp_path, "[pretrain.a]\nenv = 'point-maze'")
    assert str(read_plan(path).folder) == "runs/many"
    assert str(read_plan(path, tmp_path).folder) == str(tmp_path)
    assert [job.name for job in read_plan(path).jobs] == ["a"]


def test_presets_are_those_of_the_command_line():
    paper, quick = make_plan({"pretrain": {"a": {"grid": {"preset": ["paper", "quick"]}}}}, "x").jobs
    assert (paper.config.rule, quick.config.rule) == ("reinforce", "actor_critic")
    assert make_plan({"pretrain": {"a": {"update": "trust_region"}}}, "x").jobs[0].config.rule == "trust_region"


def test_a_run_from_elsewhere_can_be_the_source(tmp_path):
    config = make_plan({"pretrain": {"a": {"env": "point-maze"}}}, "x").jobs[0].config
    create_run(tmp_path / "old", config)
    stage = {"source": str(tmp_path / "old"), "goal": [1, -2], "seed": 4}
    (job,) = make_plan({"jumpstart": {"best": stage}}, "x").jobs
    assert isinstance(job.config, JumpstartConfig)
    assert (job.config.start.source, job.config.run.seed, job.after) == (str(tmp_path / "old"), 4, None)
    assert with_settings(job.config, {"seed": 4}) == job.config


STAGE = {"env": "point-maze", "grid": {"seed": [0, 1]}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "there is nothing to train"),
        ({"pretrain": {}}, "there is nothing to train"),
        ({"pretrein": {}}, "unknown 'pretrein' at the top level (did you mean 'pretrain'?)"),
        ({"pretrain": 3}, "pretrain must be a table"),
        ({"pretrain": {"agents": 10}}, "pretrain.agents: the stage must be a table"),
        ({"pretrain": {"a": {"agnts": 10}}}, "pretrain.a: unknown setting 'agnts' (did you mean 'agents'?)"),
        ({"pretrain": {"a": {"agents": -1}}}, "pretrain.a: agents must be between 1 and 10000; got -1"),
        ({"pretrain": {"a": {"agents": [1, 10]}}}, "pretrain.a: agents must be a whole number; got [1, 10]"),
        ({"pretrain": {"a": {"env": "ant-mace"}}}, "unknown environment 'ant-mace'"),
        ({"pretrain": {"a": {"preset": "slow"}}}, "unknown preset 'slow'"),
        ({"pretrain": {"a": {"grid": {"seed": 3}}}}, "seed in grid must be a list of values, one at least; got 3"),
        ({"pretrain": {"a": {"grid": {"seed": []}}}}, "seed in grid must be a list of values"),
        ({"pretrain": {"a": {"seed": 1, "grid": {"seed": [1]}}}}, "seed is set both in the stage and in its grid"),
        ({"pretrain": {"a": {"grid": {"seed": [1, 1]}}}}, "two runs would be called a-seed-1"),
        ({"pretrain": {"a" * 201: STAGE}}, "is longer than 200 bytes"),
        ({"pretrain": {"a": STAGE}, "jumpstart": {"a": STAGE}}, "two stages are called 'a'"),
        ({"pretrain": {"a": STAGE}, "jumpstart": {"b": {"goal": [1, -2]}}}, "jumpstart.b: source is missing"),
        (
            {"pretrain": {"a": STAGE}, "jumpstart": {"b": {"source": "aa"}}},
            "source 'aa' is no stage (a), and there is no run folder aa",
        ),
        (
            {"pretrain": {"a": STAGE}, "jumpstart": {"b": {"source": "a", "goal": [1, 1]}}},
            "goal (1, 1) cannot be reached",
        ),
        (
            {"pretrain": {"a": STAGE}, "jumpstart": {"b": {"source": "a", "where": {"agents": 3}}}},
            "no run of stage 'a'",
        ),
        (
            {"pretrain": {"a": STAGE}, "jumpstart": {"b": {"source": "a", "where": {"agent": 3}}}},
            "unknown setting 'agent'",
        ),
        ({"pretrain": {"a": STAGE}, "jumpstart": {"b": {"source": "a", "init": "single"}}}, "takes a run of one agent"),
        (
            {"jumpstart": {"b": {"source": "ant-empty", "init": "random", "where": {"agents": 3}}}},
            "where chooses among",
        ),
        ({"pretrain": {"a": STAGE}, "slurm": 3}, "slurm must be a table"),
    ],
)
def test_bad_plans_are_one_sentence(content, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        make_plan(content, "runs/x")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not [*tmp_path.iterdir()]


def test_bad_files_are_one_sentence(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*nowhere.toml"):
        read_plan(tmp_path / "nowhere.toml")
    with pytest.raises(UsageError, match=r"many.toml is no TOML: Expected '=' .*line 1"):
        read_plan(written(tmp_path, "agents 10"))
    with pytest.raises(UsageError, match="is no TOML"):
        read_plan(written(tmp_path, "a = '\udcff'".encode("utf-8", "surrogateescape").decode("latin-1") + "\n["))
    with pytest.raises(UsageError, match=r"many.toml: pretrain.a: unknown setting"):
        read_plan(written(tmp_path, "[pretrain.a]\nagnts = 3"))
    with pytest.raises(UsageError, match="folder must be text"):
        read_plan(written(tmp_path, "folder = 3\n[pretrain.a]"))


WRONG = [None, "x", "", -1, 1e300, True, [], {}, [None], {"a": []}, 10**30, [[]], ["x", 3], float("nan")]
VALID = {
    "folder": "runs/x",
    "pretrain": {"a": {"env": "point-maze", "agents": 2, "preset": "quick", "grid": {"seed": [0], "gamma": [0.9]}}},
    "jumpstart": {"b": {"source": "a", "where": {"agents": 2}, "goal": [1, -2], "grid": {"seed": [0]}}},
    "slurm": {"timeout_min": 3},
}


def places(content, path=()):
    for name, value in content.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from places(value, (*path, name))


@pytest.mark.parametrize("place", [*places(VALID)], ids=".".join)
def test_anything_anywhere_is_a_plan_or_one_sentence(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in WRONG:
        content = copy.deepcopy(VALID)
        table = content
        for name in place[:-1]:
            table = table[name]
        table[place[-1]] = wrong
        sentence = ""
        try:
            assert plan_of(content).jobs
        except UsageError as error:
            sentence = str(error)
        assert "\n" not in sentence
    assert not [*tmp_path.iterdir()]
