import json
import os
import platform
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.config import JumpstartConfig, PretrainConfig, WorldConfig, config_from_json, with_settings
from kmyriad.errors import UsageError
from kmyriad.rollout.collect import Segment
from kmyriad.runs.checkpoints import checkpoint_path
from kmyriad.runs.run import (
    append_metrics,
    create_run,
    list_runs,
    locked,
    open_run,
    save_selection,
    truncate_metrics,
)
from kmyriad.runs.state import load_last_horizon, save_last_horizon
from kmyriad.runs.tensor_file import CheckpointError, TensorFile, read_tensor_file, write_tensor_file
from tests.runs.test_tensor_file import full_disk

CONFIG = with_settings(PretrainConfig(), {"env": "ant-maze", "total_steps": 3000, "features": ["x", "y"], "seed": 7})
JUMPSTART = with_settings(JumpstartConfig(), {"env": "ant-cave", "env_settings": {"size": 7}, "goal": (1, 2)})


@pytest.fixture
def run(tmp_path):
    return create_run(tmp_path / "deep" / "ant", CONFIG)


def test_a_new_run_holds_what_was_asked_for(run):
    opened = open_run(run.path)
    assert opened == run
    assert open_run(run) is run
    assert opened.name == "ant"
    assert opened.config == CONFIG
    assert opened.versions["python"] == platform.python_version()
    assert opened.versions["kmyriad"] == kmyriad.__version__
    assert opened.versions["torch"] == torch.__version__
    assert opened.versions["numpy"] == np.__version__
    assert set(opened.versions) == {"python", "kmyriad", "torch", "mujoco", "gymnasium", "numpy", "platform"}
    assert opened.checkpoints.is_dir()
    assert (opened.metrics(), opened.last_row(), opened.is_finished) == ([], {}, False)
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "config.json", "versions.json"]


def test_what_made_a_run_and_where_it_is(run, tmp_path):
    jump = create_run(tmp_path / "jump", JUMPSTART)
    assert (run.command, run.env, run.env_settings, run.pretraining) == ("pretrain", "ant-maze", {}, CONFIG)
    assert (jump.command, jump.env, jump.env_settings, jump.jumpstart) == (
        *("jumpstart", "ant-cave"),
        *({"size": 7}, JUMPSTART),
    )
    with pytest.raises(UsageError, match="jump is a jumpstart run; name the pretraining run that it started from"):
        _ = jump.pretraining
    with pytest.raises(UsageError, match="ant is a pretrain run; name a jump-start"):
        _ = run.jumpstart


def test_a_folder_that_holds_a_run_is_not_taken(run, tmp_path):
    with pytest.raises(UsageError, match="already holds a run; continue it with --resume"):
        create_run(run.path, PretrainConfig())
    assert open_run(run.path).config == open_run(str(run.path)).config == CONFIG

    leftover = tmp_path / "leftover"
    (leftover / "checkpoints").mkdir(parents=True)
    assert create_run(leftover, CONFIG).config == CONFIG  # empty folders are no run
    (leftover / "config.json").unlink()
    write_tensor_file(checkpoint_path(leftover / "checkpoints", 1), TensorFile({}, {}))
    with pytest.raises(UsageError, match="already holds a run"):
        create_run(leftover, CONFIG)
    checkpoint_path(leftover / "checkpoints", 1).unlink()
    (leftover / "metrics.jsonl").touch()
    with pytest.raises(UsageError, match="already holds a run"):
        create_run(leftover, CONFIG)


def test_a_run_that_cannot_be_created_is_one_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot create a run in .*file"):
        create_run(tmp_path / "file", CONFIG)
    with pytest.raises(UsageError, match="'rate' in env_settings must be numbers"):
        create_run(tmp_path / "nan", replace(CONFIG, world=WorldConfig(env_settings={"rate": float("nan")})))
    assert not (tmp_path / "nan").exists()
    with full_disk(10), pytest.raises(UsageError, match="cannot create a run"):
        create_run(tmp_path / "full", CONFIG)
    with pytest.raises(UsageError, match="is no run folder"):
        open_run(tmp_path / "full")
    with pytest.raises(UsageError, match=r"the name xxx.* is longer than 200 bytes"):
        create_run(tmp_path / ("x" * 300), CONFIG)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000], ids=["", "{", "[1]", "bytes", "["]
)
def test_a_damaged_config_is_one_clear_error(run, content):
    (run.path / "config.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"config\.json is damaged") as caught:
        open_run(run.path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "its settings are of format 1, and this kmyriad reads format 2"),
        ({"format": 3}, "its settings are of format 3, and this kmyriad reads format 2"),
        ({"command": "train"}, "command must be one of pretrain, jumpstart; got 'train'"),
        ({"world": None}, "the settings must have a block 'world'; got None"),
        ({"world": {}}, "block 'world' does not name its environment; add the setting 'env' again"),
        ({"objective": {"k": 5}}, "unknown setting 'k' in block 'objective'"),
        ({"update": {"rule": "sgd"}}, "unknown update 'sgd'"),
        ({"run": CONFIG.as_json()["run"] | {"seed": -1}}, "seed must be between 0 and"),
        ({"run": CONFIG.as_json()["run"] | {"replicas": 7}}, "7 replicas cannot be split evenly over 10 agents"),
    ],
)
def test_a_config_with_other_settings_than_there_are_is_one_clear_error(run, change, message):
    run.config_path.write_text(json.dumps(CONFIG.as_json() | change))
    with pytest.raises(UsageError, match=message) as caught:
        open_run(run.path)
    assert str(caught.value).startswith(f"{run.path} cannot be opened: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("block", [name for name, told in CONFIG.as_json().items() if isinstance(told, dict)])
def test_a_setting_that_was_added_since_has_its_default(run, block):
    """As in a run that was stored before there was such a setting."""
    told = CONFIG.as_json()
    for name in [name for name in told[block] if name not in ("rule", "env")]:
        older = {**told, block: {key: value for key, value in told[block].items() if key != name}}
        run.config_path.write_text(json.dumps(older))
        opened, default = open_run(run.path).config.as_json()[block][name], PretrainConfig().as_json()[block][name]
        assert opened == default


def test_a_run_of_the_old_format_is_refused_in_one_sentence(run):
    run.config_path.write_text(json.dumps({"command": "pretrain", "env": "ant-maze", "epochs": 3, "heads": 10}))
    with pytest.raises(UsageError, match=r"its settings are of format 1.* open it with the kmyriad that its") as caught:
        open_run(run.path)
    assert "\n" not in str(caught.value)


def test_what_is_no_run_cannot_be_opened(tmp_path):
    with pytest.raises(UsageError, match=r"there is no run folder .*missing"):
        open_run(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"it has no config\.json"):
        open_run(tmp_path)


def test_runs_are_listed_newest_first_and_damaged_ones_with_them(tmp_path):
    assert list_runs(tmp_path / "missing") == []
    runs = [create_run(tmp_path / name, CONFIG) for name in ("b", "c", "a", "broken")]
    (tmp_path / "broken" / "config.json").write_bytes(b"{")
    for seconds, run in enumerate(runs):
        os.utime(run.path / "config.json", (seconds, seconds))
    (tmp_path / "other").mkdir()
    (tmp_path / "file").touch()
    assert [run.name for run in list_runs(tmp_path)] == ["broken", "a", "c", "b"]
    assert list_runs(tmp_path / "file") == []


def test_metrics_come_back_row_by_row(run):
    rows = [
        {"iteration": iteration, "env_steps": 1000 * iteration, "entropy": 0.1 * iteration, "note": "line\nbreak é"}
        for iteration in (1, 2, 3)
    ]
    for done, row in enumerate(rows):
        assert (run.last_row(), run.is_finished) == (rows[done - 1] if done else {}, False)
        append_metrics(run, row)
    assert run.metrics() == rows
    assert (run.last_row(), run.is_finished) == (rows[-1], True)
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 3


def test_the_last_row_of_ten_thousand_agents(run):
    """Longer than any other: it must not be cut."""
    append_metrics(run, {"iteration": 1})
    row = {"iteration": 2, "entropy_per_agent": [-1 / 3] * 10_000, "covered_cells_per_agent": [123_456] * 10_000}
    append_metrics(run, row)
    assert run.last_row() == row


def test_numbers_that_json_lacks_become_null(run):
    row = {"iteration": 1, "loss": float("nan"), "agents": [np.float32("inf"), np.float32(0.5)], "deep": {"x": -np.inf}}
    append_metrics(run, row | {"count": np.int64(7)})
    assert run.metrics() == [{"iteration": 1, "loss": None, "agents": [None, 0.5], "deep": {"x": None}, "count": 7}]


@pytest.mark.parametrize(
    "row", [{}, {"iteration": "1"}, {"iteration": 1.0}, {"iteration": 1, "tensor": torch.zeros(1)}], ids=str
)
def test_bad_rows_are_refused(run, row):
    with pytest.raises(UsageError, match=r"integer 'iteration'|metrics\.jsonl: .*JSON"):
        append_metrics(run, row)
    assert run.metrics() == []


def test_a_full_disk_leaves_no_half_row(run):
    append_metrics(run, {"iteration": 1})
    size = run.metrics_path.stat().st_size
    for room in (0, 5):
        with full_disk(size + room), pytest.raises(UsageError, match=r"iteration 2 to .*metrics\.jsonl"):
            append_metrics(run, {"iteration": 2, "long": "x" * 100})
        assert run.metrics_path.stat().st_size == size
    append_metrics(run, {"iteration": 2})
    assert [row["iteration"] for row in run.metrics()] == [1, 2]


def test_a_last_line_torn_anywhere_is_left_out_and_dropped(run):
    for iteration in (1, 2, 3):
        append_metrics(run, {"iteration": iteration, "entropy": iteration / 3})
    whole = run.metrics_path.read_bytes()
    second_end = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for size in range(second_end, len(whole)):
        run.metrics_path.write_bytes(whole[:size])
        assert run.last_row()["iteration"] == run.metrics()[-1]["iteration"] == 2
        assert truncate_metrics(run, 9) == 0
        assert run.metrics_path.read_bytes() == whole[:second_end]
    assert not (run.path / "metrics-dropped.jsonl").exists()


def test_metrics_ahead_of_the_checkpoint_are_cut_and_kept_apart(run):
    assert truncate_metrics(run, 3) == 0
    for iteration in range(1, 6):
        append_metrics(run, {"iteration": iteration, "entropy": iteration / 3})
    whole = run.metrics_path.read_bytes()
    lines = whole.splitlines(keepends=True)
    leftover = run.path / ".metrics.jsonl.99999999.tmp"
    leftover.write_bytes(b"half")
    assert truncate_metrics(run, 3) == 2
    assert not leftover.exists()
    assert [row["iteration"] for row in run.metrics()] == [1, 2, 3]
    dropped = run.path / "metrics-dropped.jsonl"
    assert dropped.read_bytes() == b"".join(lines[3:])
    for iteration in (4, 5):
        append_metrics(run, {"iteration": iteration, "entropy": iteration / 3})
    assert run.metrics_path.read_bytes() == whole
    assert truncate_metrics(run, 0) == 5
    assert run.metrics() == []
    assert dropped.read_bytes() == b"".join(lines[3:] + lines)


def test_what_a_living_process_is_writing_stays(run):
    name = f".evaluation.safetensors.{os.getppid()}.tmp"
    (run.path / name).write_bytes(b"half")
    truncate_metrics(run, 0)
    assert (run.path / name).exists()


@pytest.mark.parametrize("damage", [b'{"iteration": 2', b"", b"[]", b'{"entropy": 1}', b"\xff", b"\0" * 10], ids=repr)
def test_a_damaged_middle_line_is_named(run, damage):
    run.metrics_path.write_bytes(b'{"iteration": 1}\n' + damage + b'\n{"iteration": 3}\n')
    for read in (run.metrics, lambda: truncate_metrics(run, 3)):
        with pytest.raises(UsageError, match=r"line 2 of .*metrics\.jsonl is damaged") as caught:
            read()
        assert "\n" not in str(caught.value)
    assert damage in run.metrics_path.read_bytes()
    run.metrics_path.write_bytes(b'{"iteration": 1}\n' + damage + b"\n")
    with pytest.raises(UsageError, match=r"the last line of .*metrics\.jsonl is damaged"):
        run.last_row()


def test_a_full_disk_leaves_the_metrics_as_they_were(run):
    for iteration in (1, 2):
        append_metrics(run, {"iteration": iteration})
    whole = run.metrics_path.read_bytes()
    with full_disk(5), pytest.raises(UsageError, match=r"cannot rewrite .*metrics\.jsonl"):
        truncate_metrics(run, 1)
    assert run.metrics_path.read_bytes() == whole
    assert not list(run.path.glob(".*"))


def segment(steps, first, dtype=np.float32):
    """Visits of two agents with three replicas each, numbered from `first`."""
    features = np.arange(first, first + 2 * 3 * steps * 4, dtype=dtype).reshape(2, 3, steps, 4)
    valid = np.arange(2 * 3 * steps).reshape(2, 3, steps) % 5 != first % 5
    return Segment(*(torch.from_numpy(array) for array in (features, -features[..., ::2], valid)))


def test_the_last_horizon_comes_back(run):
    assert load_last_horizon(run) is None
    save_last_horizon(run, [segment(1, 9)])
    pool = [segment(5, 0), segment(7, 1000), segment(5, 2000)]
    save_last_horizon(run, pool)
    read = load_last_horizon(run)
    for name in ("features", "xy", "valid"):
        expected = np.concatenate([getattr(one, name) for one in pool], axis=2)
        np.testing.assert_array_equal(getattr(read, name), expected, strict=True)


def test_a_horizon_that_cannot_be_stored_or_is_damaged_is_one_clear_error(run):
    one = segment(2, 0)
    with pytest.raises(CheckpointError, match=r"'features' must be a dense torch tensor of integers, floats or bools"):
        save_last_horizon(run, [Segment(one.features.to(torch.complex64), one.xy, one.valid)])
    assert not run.last_horizon_path.exists()
    save_last_horizon(run, [one])
    run.last_horizon_path.write_bytes(run.last_horizon_path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"last_horizon\.safetensors .*damaged"):
        load_last_horizon(run)


@pytest.mark.parametrize(
    "change",
    [
        {"features": None},
        {"valid": None},
        {"valid": torch.ones(2, 3, 4)},
        {"valid": torch.ones(2, 3, dtype=torch.bool)},
        {"valid": torch.ones(2, 3, 4, dtype=torch.bool)},
        {"features": torch.ones(2, 3, 5)},
        {"xy": torch.ones(2, 3, 5, 3)},
        {"features": torch.ones(2, 0, 5, 4), "valid": torch.ones(2, 0, 5, dtype=torch.bool), "xy": None},
    ],
    ids=str,
)
def test_visits_of_no_one_shape_are_refused(run, change):
    save_last_horizon(run, [segment(5, 0)])
    tensors = read_tensor_file(run.last_horizon_path).tensors | change
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    write_tensor_file(run.last_horizon_path, TensorFile(tensors, {}))
    with pytest.raises(CheckpointError, match=r"last_horizon\.safetensors is malformed: it holds no visits"):
        load_last_horizon(run)


def test_config_metrics_and_selection_are_plain_json(run):
    append_metrics(run, {"iteration": 1})
    assert json.loads((run.path / "config.json").read_text()) == CONFIG.as_json()
    assert config_from_json(json.loads((run.path / "config.json").read_text())) == CONFIG
    assert [json.loads(line) for line in run.metrics_path.read_text().splitlines()] == [{"iteration": 1}]
    save_selection(run, {"env_steps": np.int64(40), "standings": [{"shortfall": float("inf")}]})
    assert json.loads(run.selection_path.read_text()) == {"env_steps": 40, "standings": [{"shortfall": None}]}


def replaced_by_a_pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "versions.json", "last_horizon.safetensors"])
def test_a_pipe_in_place_of_a_file_does_not_hang(run, name):
    """In a process of its own, which may be killed."""
    replaced_by_a_pipe(run.path / name)
    readers = {
        "config.json": "open_run(path)",
        "metrics.jsonl": "open_run(path).metrics()",
        "versions.json": "open_run(path).versions",
        "last_horizon.safetensors": "load_last_horizon(open_run(path))",
    }
    code = f"""
import sys
from kmyriad.errors import UsageError
from kmyriad.runs.run import list_runs, open_run, truncate_metrics
from kmyriad.runs.state import load_last_horizon
path = sys.argv[1]
assert [run.name for run in list_runs(path + "/..")] == ["ant"]
if {name!r} == "metrics.jsonl":
    for read in (open_run(path).last_row, lambda: truncate_metrics(open_run(path), 0)):
        try:
            read()
        except UsageError as error:
            assert str(error).endswith("it is no regular file"), error
        else:
            raise AssertionError
try:
    {readers[name]}
except UsageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(run.path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{name}: it is no regular file" in done.stdout
    assert done.stdout.count("\n") == 1


HOLDER = """
import sys, time
from kmyriad.runs.run import locked, open_run
with locked(open_run(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_locked_run_is_refused_to_another_process_until_its_holder_is_gone(run):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(UsageError, match="ant is being trained by another process; wait until it ends") as caught:
            locked(run).__enter__()
        assert "\n" not in str(caught.value)
    finally:
        holder.kill()  # kill -9: it cannot tidy up
        holder.wait()
        holder.stdout.close()
    assert (run.path / "lock").exists()
    with locked(run), pytest.raises(UsageError, match="is being trained by another process"), locked(run):
        pass
    with locked(run):  # whoever ends well lets go of it as well
        pass


def test_a_folder_that_cannot_be_locked_is_one_clear_error(run):
    (run.path / "lock").mkdir()
    with pytest.raises(UsageError, match=r"cannot lock .*ant: Is a directory; check that the folder can be written to"):
        locked(run).__enter__()
