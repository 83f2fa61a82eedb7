"""Wrong types in every field of a stored run, thrown at every command: a sentence or an answer, never a traceback."""

import contextlib
import io
import json
import shutil
import tempfile

import pytest
import torch

import kmyriad
from kmyriad.cli import COMMANDS, main
from kmyriad.runs.checkpoints import checkpoint_iterations, checkpoint_path
from kmyriad.runs.tensor_file import TensorFile, read_tensor_file, write_tensor_file

WRONG = [None, "x", "", -1, 1e300, True, [], {}, [None], {"a": []}, 10**30]
SMALL = {"horizon": 10, "replicas": 4, "rollout_steps": 5, "neighbours": 2, "trunk_hidden": (4,), "agent_hidden": 4}
GOAL = ["--goal", "1", "-2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A population and a jump-start from it, each with an evaluation or a few rows."""
    folder = tmp_path_factory.mktemp("made")
    run = kmyriad.pretrain("point-maze", agents=2, total_steps=60, threads=1, out=folder / "run", **SMALL)
    kmyriad.evaluate(run, episodes=4)
    kmyriad.jumpstart(
        run, goal=(1, -2), total_steps=400, selection_steps=60, replicas=4, rollout_steps=5, threads=1,
        out=folder / "start",
    )  # fmt: skip
    return folder


@pytest.fixture
def copy_of(made, tmp_path):
    def make(name="run"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        return shutil.copytree(made / name, tmp_path / name)

    return make


def commands_on(folder, out):
    run = str(folder)
    yield ["runs", str(folder.parent)]
    yield ["report", run, "--out", str(out / "page.html"), "--episodes", "4"]
    yield ["evaluate", run, "--episodes", "4", "--threads", "1"]
    yield ["select", run, "--stored", *GOAL]
    yield ["compare", run]
    (out / "sweep.toml").write_text(f"[jumpstart.best]\nsource = {json.dumps(run)}\ngoal = [1, -2]\n")
    yield ["sweep", str(out / "sweep.toml"), "--list"]
    yield ["export", run, "--to", "cleanrl", "--agent", "0", "--out", tempfile.mkdtemp(dir=out)]
    yield ["pack", run, "--no-page", "--episodes", "4", "--threads", "1", "--out", str(out / "run.kmyriad")]
    yield ["video", run, "--agents", "7"]
    yield ["pretrain", "--out", run, "--resume"]
    yield ["jumpstart", "--out", run, "--resume"]
    yield ["reproduce", run, "--out", str(out / "paper")]  # takes names of figures, and a run is none


def answer(arguments):
    """(exit code, what was said); anything but an answer or a sentence raises."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main(arguments)
            code = 0
        except SystemExit as error:
            code = error.code or 0
    assert "Traceback" not in said.getvalue()
    assert code in (0, 1, 2)
    return code, said.getvalue()


def opens(folder):
    """Whether a run can be opened; if it cannot, the sentence is one line."""
    try:
        kmyriad.open_run(folder)
    except kmyriad.UsageError as error:
        return "\n" in str(error)
    return True


def test_every_command_is_thrown_at(tmp_path):
    assert {words[0] for words in commands_on(tmp_path, tmp_path)} == set(COMMANDS)


@pytest.mark.parametrize("name", ["run", "start"])
def test_every_setting_of_a_stored_run(copy_of, tmp_path, name):
    folder = copy_of(name)
    path = folder / "config.json"
    good = json.loads(path.read_text())
    places = [(key,) for key in good]
    places += [(block, key) for block, told in good.items() if isinstance(told, dict) for key in told]
    assert len(places) > 25
    for *outer, key in places:
        for wrong in [*WRONG, "missing"]:
            bad = json.loads(json.dumps(good))
            target = bad[outer[0]] if outer else bad
            if wrong == "missing":
                del target[key]
            else:
                target[key] = wrong
            path.write_text(json.dumps(bad))
            if not opens(folder):
                assert answer(["runs", str(tmp_path)])[0] == 0
                code, said = answer(["report", str(folder), "--out", str(tmp_path / "page.html")])
                assert (code, said.count("\n")) == (2, 1), (outer, key, wrong, said)


@pytest.mark.parametrize(
    "content", ["", "[]", "null", "{", '"x"', "{}", '{"format": 1}', '{"format": 2}', "[" * 100_000]
)
def test_settings_that_are_none(copy_of, tmp_path, content):
    folder = copy_of()
    (folder / "config.json").write_text(content)
    for arguments in commands_on(folder, tmp_path):
        code, said = answer(arguments)
        assert code == (0 if arguments[0] == "runs" else 2), said


@pytest.mark.parametrize(
    "key", ["iteration", "env_steps", "entropy", "entropy_per_agent", "covered_cells", "still_agents"]
)
def test_every_kind_of_metric(copy_of, tmp_path, key):
    folder = copy_of()
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for wrong in WRONG:
        rows[-1][key] = wrong
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for arguments in commands_on(folder, tmp_path):
            if arguments[0] in ("runs", "report", "compare"):
                answer(arguments)


def forge(path, facts):
    """The file with other facts and a right checksum."""
    good = read_tensor_file(path)
    write_tensor_file(path, TensorFile(good.tensors, good.facts | facts))


def test_every_fact_of_a_forged_checkpoint(copy_of, made, tmp_path):
    newest = checkpoint_path(made / "run" / "checkpoints", checkpoint_iterations(made / "run" / "checkpoints")[0])
    facts = read_tensor_file(newest).facts
    for key in facts:
        for wrong in ["x", None, [], -5, {"agents": "x"}]:
            folder = copy_of()
            for path in (folder / "checkpoints").iterdir():
                forge(path, {key: wrong})
            for arguments in (
                ["evaluate", str(folder), "--episodes", "4"],
                ["pretrain", "--out", str(folder), "--resume"],
            ):
                answer(arguments)


def test_every_fact_of_a_forged_evaluation(copy_of, made, tmp_path):
    facts = read_tensor_file(made / "run" / "evaluation.safetensors").facts
    for key in facts:
        for wrong in ["x", None, [], -5.5, {"a": 1}, [["x"]]]:
            folder = copy_of()
            forge(folder / "evaluation.safetensors", {key: wrong})
            for arguments in commands_on(folder, tmp_path):
                if arguments[0] in ("report", "select", "compare"):
                    answer(arguments)


def test_tensors_of_wrong_shapes_and_names(copy_of, tmp_path):
    for name, tensors in (
        ("evaluation.safetensors", {}),
        ("evaluation.safetensors", {"features": torch.zeros(2), "valid": torch.zeros(2)}),
        (
            "evaluation.safetensors",
            {"features": torch.zeros(1, 1, 1, 2), "valid": torch.zeros(1, 1, 2, dtype=torch.bool)},
        ),
        ("checkpoints", {}),
        ("checkpoints", {"population.trunk_weights.0": torch.zeros(3)}),
    ):
        folder = copy_of()
        targets = sorted((folder / name).iterdir()) if name == "checkpoints" else [folder / name]
        for path in targets:
            write_tensor_file(path, TensorFile(tensors, read_tensor_file(path).facts))
        for arguments in commands_on(folder, tmp_path):
            answer(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["pretrain", "point-maze", "--out", ""],
        ["pretrain", "point-maze", "--out", "x" * 300],
        ["pretrain", "point-maze", "--agents", "1e99"],
        ["pretrain", "point-maze", "--critic-hidden"],
        ["pretrain", "point-maze", "--env-setting", "horizon=5"],
        ["pretrain", "point-maze", "--env-setting", "max_episode_steps=3"],
        ["pretrain", "point-maze", "--env-setting", "decimation=1.5"],
        ["pretrain", "point-maze", "--env-setting", "start=[1]"],
        ["pretrain", "ant-maze", "--env-setting", "size=3.5"],
        ["pretrain", "ant-maze", "--env-setting", "terrain_seed=x"],
        ["pretrain", "ant-maze", "--env-setting", "map=5"],
        ["pretrain", "ant-maze", "--env-setting", "goal=[1,2,3,4]"],
        ["compare"],
        ["compare", "nowhere"],
        ["report", "nowhere"],
        ["jumpstart", "point-maze", "--init", "random", "--goal", "1"],
        ["jumpstart", "point-maze", "--init", "random", "--goal", "nan", "1"],
        ["jumpstart"],
    ],
)  # fmt: skip
def test_bad_arguments(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = answer(arguments)
    assert code == 2
    assert said
    assert not (tmp_path / "runs").exists()
