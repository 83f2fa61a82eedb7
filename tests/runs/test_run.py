import json
import os
import platform

import numpy as np
import pytest
import torch

import kmyriad
from kmyriad.errors import UsageError
from kmyriad.runs.run import (
    append_metrics,
    create_run,
    list_runs,
    load_last_epoch,
    open_run,
    save_last_epoch,
    truncate_metrics,
)
from kmyriad.runs.tensor_file import Checkpoint, CheckpointError, checkpoint_path, write_checkpoint
from tests.runs.test_tensor_file import full_disk

CONFIG = {"env": "ant-maze", "epochs": 3, "rate": 0.1, "features": ["x", "y"]}


@pytest.fixture
def run(tmp_path):
    return create_run(tmp_path / "deep" / "ant", CONFIG)


def test_a_new_run_holds_what_was_asked_for(run):
    opened = open_run(run.path)
    assert opened == run
    assert opened.name == "ant"
    assert opened.config == CONFIG
    assert opened.versions["python"] == platform.python_version()
    assert opened.versions["kmyriad"] == kmyriad.__version__
    assert opened.versions["torch"] == torch.__version__
    assert opened.versions["numpy"] == np.__version__
    assert set(opened.versions) == {"python", "kmyriad", "torch", "mujoco", "gymnasium", "numpy", "platform"}
    assert opened.checkpoints.is_dir()
    assert (opened.metrics(), opened.epochs_done, opened.is_finished) == ([], 0, False)
    assert sorted(path.name for path in run.path.iterdir()) == ["checkpoints", "config.json", "versions.json"]


def test_a_folder_that_holds_a_run_is_not_taken(run, tmp_path):
    with pytest.raises(UsageError, match="already holds a run; continue it with --resume"):
        create_run(run.path, {})
    assert open_run(run.path).config == open_run(str(run.path)).config == CONFIG

    leftover = tmp_path / "leftover"
    (leftover / "checkpoints").mkdir(parents=True)
    assert create_run(leftover, {}).config == {}  # empty folders are no run
    (leftover / "config.json").unlink()
    write_checkpoint(checkpoint_path(leftover / "checkpoints", 1), Checkpoint({}, {}))
    with pytest.raises(UsageError, match="already holds a run"):
        create_run(leftover, {})


def test_a_run_that_cannot_be_created_is_one_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot create a run in .*file"):
        create_run(tmp_path / "file", {})
    with pytest.raises(UsageError, match=r"config\.json: .*JSON"):
        create_run(tmp_path / "nan", {"rate": float("nan")})
    assert not (tmp_path / "nan").exists()
    with full_disk(10), pytest.raises(UsageError, match="cannot create a run"):
        create_run(tmp_path / "full", CONFIG)
    with pytest.raises(UsageError, match="is no run folder"):
        open_run(tmp_path / "full")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000], ids=["", "{", "[1]", "bytes", "["]
)
def test_a_damaged_config_is_one_clear_error(run, content):
    (run.path / "config.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"config\.json is damaged") as caught:
        open_run(run.path)
    assert "\n" not in str(caught.value)


def test_what_is_no_run_cannot_be_opened(tmp_path):
    with pytest.raises(UsageError, match=r"there is no run folder .*missing"):
        open_run(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"it has no config\.json"):
        open_run(tmp_path)


def test_runs_are_listed_newest_first(tmp_path):
    assert list_runs(tmp_path / "missing") == []
    runs = [create_run(tmp_path / name, {}) for name in ("b", "c", "a", "broken")]
    for seconds, run in enumerate(runs):
        os.utime(run.path / "config.json", (seconds, seconds))
    (tmp_path / "broken" / "config.json").write_bytes(b"{")
    (tmp_path / "other").mkdir()
    (tmp_path / "file").touch()
    assert [run.name for run in list_runs(tmp_path)] == ["a", "c", "b"]


def test_metrics_come_back_row_by_row(run):
    rows = [{"epoch": epoch, "entropy": 0.1 * epoch, "note": "line\nbreak é"} for epoch in (1, 2, 3)]
    for done, row in enumerate(rows):
        assert (run.epochs_done, run.is_finished) == (done, False)
        append_metrics(run, row)
    assert run.metrics() == rows
    assert (run.epochs_done, run.is_finished) == (3, True)
    assert len((run.path / "metrics.jsonl").read_text().splitlines()) == 3


def test_numbers_that_json_lacks_become_null(run):
    row = {"epoch": 1, "loss": float("nan"), "heads": [np.float32("inf"), np.float32(0.5)], "deep": {"x": -np.inf}}
    append_metrics(run, row | {"count": np.int64(7)})
    assert run.metrics() == [{"epoch": 1, "loss": None, "heads": [None, 0.5], "deep": {"x": None}, "count": 7}]


@pytest.mark.parametrize("row", [{}, {"epoch": "1"}, {"epoch": 1.0}, {"epoch": 1, "tensor": torch.zeros(1)}], ids=str)
def test_bad_rows_are_refused(run, row):
    with pytest.raises(UsageError, match=r"integer 'epoch'|metrics\.jsonl: .*JSON"):
        append_metrics(run, row)
    assert run.metrics() == []


def test_a_full_disk_leaves_no_half_row(run):
    append_metrics(run, {"epoch": 1})
    size = run.metrics_path.stat().st_size
    for room in (0, 5):
        with full_disk(size + room), pytest.raises(UsageError, match=r"epoch 2 to .*metrics\.jsonl"):
            append_metrics(run, {"epoch": 2, "long": "x" * 100})
        assert run.metrics_path.stat().st_size == size
    append_metrics(run, {"epoch": 2})
    assert [row["epoch"] for row in run.metrics()] == [1, 2]


def test_a_last_line_torn_anywhere_is_left_out_and_dropped(run):
    for epoch in (1, 2, 3):
        append_metrics(run, {"epoch": epoch, "entropy": epoch / 3})
    whole = run.metrics_path.read_bytes()
    second_end = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for size in range(second_end, len(whole)):
        run.metrics_path.write_bytes(whole[:size])
        assert run.epochs_done == 2
        truncate_metrics(run, 9)
        assert run.metrics_path.read_bytes() == whole[:second_end]


def test_metrics_ahead_of_the_checkpoint_are_cut(run):
    truncate_metrics(run, 3)
    for epoch in range(1, 6):
        append_metrics(run, {"epoch": epoch, "entropy": epoch / 3})
    whole = run.metrics_path.read_bytes()
    leftover = run.path / ".metrics.jsonl.123.tmp"
    leftover.write_bytes(b"half")
    truncate_metrics(run, 3)
    assert not leftover.exists()
    assert [row["epoch"] for row in run.metrics()] == [1, 2, 3]
    for epoch in (4, 5):
        append_metrics(run, {"epoch": epoch, "entropy": epoch / 3})
    assert run.metrics_path.read_bytes() == whole
    truncate_metrics(run, 0)
    assert run.metrics() == []


@pytest.mark.parametrize("damage", [b'{"epoch": 2', b"", b"[]", b'{"entropy": 1}', b"\xff", b"\0" * 10], ids=repr)
def test_a_damaged_middle_line_is_named(run, damage):
    run.metrics_path.write_bytes(b'{"epoch": 1}\n' + damage + b'\n{"epoch": 3}\n')
    for read in (run.metrics, lambda: truncate_metrics(run, 3)):
        with pytest.raises(UsageError, match=r"line 2 of .*metrics\.jsonl is damaged") as caught:
            read()
        assert "\n" not in str(caught.value)
    assert damage in run.metrics_path.read_bytes()


def test_a_full_disk_leaves_the_metrics_as_they_were(run):
    for epoch in (1, 2):
        append_metrics(run, {"epoch": epoch})
    whole = run.metrics_path.read_bytes()
    with full_disk(5), pytest.raises(UsageError, match=r"cannot rewrite .*metrics\.jsonl"):
        truncate_metrics(run, 1)
    assert run.metrics_path.read_bytes() == whole
    assert not list(run.path.glob(".*"))


def test_arrays_of_the_last_epoch_come_back(run):
    assert load_last_epoch(run) is None
    save_last_epoch(run, {"old": np.zeros(3)})
    features = np.arange(12.0).reshape(3, 4)
    read_only = np.arange(3)
    read_only.flags.writeable = False
    arrays = {
        "head 0/features": features.astype(np.float32),
        "backwards": features[::-1, ::2],
        "transposed": features.T,
        "seeds": np.array([2**64 - 1], np.uint64),
        "alive": np.array([True, False]),
        "scalar": np.array(3.5),
        "none": np.zeros((0, 3)),
        "big-endian": np.arange(3, dtype=">i4"),
        "read only": read_only,
    }
    save_last_epoch(run, arrays)
    read = load_last_epoch(run)
    assert read is not None
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(read[name], array, strict=name != "big-endian")


def test_bad_or_damaged_arrays_are_one_clear_error(run):
    for array in (np.array(["a"]), np.array([None]), np.zeros(1, "datetime64[s]")):
        with pytest.raises(UsageError, match="'names'"):
            save_last_epoch(run, {"names": array})
    save_last_epoch(run, {"a": np.ones(9)})
    run.last_epoch_path.write_bytes(run.last_epoch_path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"last_epoch\.safetensors .*damaged"):
        load_last_epoch(run)


def test_config_and_metrics_are_plain_json(run):
    append_metrics(run, {"epoch": 1})
    assert json.loads((run.path / "config.json").read_text()) == CONFIG
    assert [json.loads(line) for line in run.metrics_path.read_text().splitlines()] == [{"epoch": 1}]
