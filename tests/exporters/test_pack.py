"""A run in one file: what goes in comes out, everything that takes a run takes it, and a bad one is one sentence."""

import contextlib
import io
import json
import zipfile

import pytest
import torch

import kmyriad as km
from kmyriad import cli
from kmyriad.runs import pack as packing
from kmyriad.runs.pack import LARGEST, encode_pack, read_pack
from kmyriad.runs.run import append_metrics
from tests.exporters.untrained import CASES, untrained_jumpstart, untrained_run

GOAL = (1.0, -2.0)
TINY = {
    "replicas": 8,
    "rollout_steps": 10,
    "total_steps": 2000,
    "selection_steps": 1000,
    "critic_epochs": 1,
    "threads": 1,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run = untrained_run(folder / "maze", CASES["the paper's"])
    append_metrics(run, {"iteration": 1, "env_steps": 1000, "entropy": 1.0})
    km.pack(run, folder / "maze.kmyriad", episodes=8, threads=1)
    yield folder
    torch.set_num_threads(threads)


@pytest.fixture
def members(runs):
    return read_pack(runs / "maze.kmyriad")


def same(one, other):
    return all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())


def test_policies_come_out_as_they_went_in(runs, members):
    assert same(km.load_population(runs / "maze"), km.load_population(runs / "maze.kmyriad"))
    assert (runs / "maze.kmyriad").stat().st_size < LARGEST
    assert {"config.json", "versions.json", "metrics.jsonl", "README.md", "report.html"} < {*members}
    card = members["README.md"].decode()
    assert "4 policies in `point-maze`" in card
    assert "covered cells: " in card
    assert not [name for name in members if "optimizer" in name]


def test_the_same_run_gives_the_same_bytes(runs, tmp_path):
    for name in ("a", "b"):
        km.pack(runs / "maze", tmp_path / name, page=False, threads=1)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_select_jumpstart_and_export_take_it(runs, tmp_path):
    file = runs / "maze.kmyriad"
    assert km.select(file, GOAL, steps=800, threads=1) == km.select(runs / "maze", GOAL, steps=800, threads=1)
    run = km.jumpstart(file, goal=GOAL, agent=1, out=tmp_path / "run", **TINY)
    assert run.jumpstart.start.source == str(file)
    opened = km.jumpstart(km.open_run(file), goal=GOAL, agent=1, out=tmp_path / "again", **TINY)
    assert opened.jumpstart.start.source == str(file)
    assert same(km.load_population(run), km.load_population(opened))
    km.export(file, "cleanrl", tmp_path / "out", agent=1)
    km.pack(file, tmp_path / "packed again", page=False, threads=1)
    assert same(km.load_population(file), km.load_population(tmp_path / "packed again"))


def test_a_jumpstart_is_packed_with_its_critic(tmp_path):
    run = untrained_jumpstart(tmp_path / "run")
    append_metrics(run, {"iteration": 1, "env_steps": 1000, "success": 0.5, "return": None})
    file = km.pack(run, tmp_path / "run.kmyriad", page=False)
    folder = km.export(file, "cleanrl", tmp_path / "out")
    assert json.loads((folder / "policy.json").read_text())["critic_hidden"] == [16, 8]
    assert "success: 0.5" in read_pack(file)["README.md"].decode()


def test_a_large_page_is_left_out(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("kmyriad.exporters.pack.LARGEST", 1000)
    file = km.pack(runs / "maze", tmp_path / "small", episodes=8, threads=1)
    assert "report.html" not in read_pack(file)
    assert "left out report.html" in capsys.readouterr().err
    assert same(km.load_population(runs / "maze"), km.load_population(file))


def test_it_cannot_be_resumed(runs):
    with pytest.raises(km.UsageError, match="is a packed run, which cannot be resumed"):
        km.pretrain(out=runs / "maze.kmyriad", resume=True)


def test_the_command(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cli.main(["pack", str(runs / "maze"), "--no-page", "--threads", "1"])
    assert "wrote maze.kmyriad" in capsys.readouterr().err
    assert km.load_population("maze.kmyriad").agents == 4


def zipped(entries, **settings):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return buffer.getvalue()


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(km.UsageError) as caught:
        km.load_population(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_hostile_files_are_one_sentence(members, tmp_path, monkeypatch):
    file, whole = tmp_path / "file", [*members.items()]
    (checkpoint,) = [name for name in members if name.startswith("checkpoints/")]
    for name in ("../../evil", "/tmp/evil", "checkpoints/../evil", "evil.py", "checkpoints/", "config.json/x"):
        assert "it holds" in refused(file, zipped([*whole, (name, b"x")]))
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = zipped([*whole, ("config.json", b"{}")])
    assert "it holds 'config.json'" in refused(file, twice)
    assert "no settings or no policies" in refused(file, zipped([("config.json", members["config.json"])]))
    assert "no settings or no policies" in refused(file, zipped([(checkpoint, members[checkpoint])]))
    monkeypatch.setattr(packing, "LARGEST_UNPACKED", 10_000_000)
    bomb = zipped(
        [*((name, data) for name, data in whole if name != "report.html"), ("report.html", bytes(50_000_000))]
    )
    assert len(bomb) < 1_000_000
    assert "holds more than 10,000,000 bytes" in refused(file, bomb)
    for config in (b"", b"[]", b"{}", b"\xff", b'{"format": 2, "command": "pretrain", "world": {"env": 5}}'):
        refused(file, zipped([("config.json", config), (checkpoint, members[checkpoint])]))
    for weights in (b"", b"\x80\x04K\x01.", members[checkpoint][:-1], members[checkpoint].replace(b"a", b"b", 1)):
        refused(file, zipped([("config.json", members["config.json"]), (checkpoint, weights)]))


def test_damaged_files_are_one_sentence(runs, tmp_path):
    file, data = tmp_path / "file", (runs / "maze.kmyriad").read_bytes()
    assert "neither a run's folder nor a packed run" in refused(file, b"")
    assert "neither a run's folder nor a packed run" in refused(file, b"PK")
    for part in range(1, 20):
        assert "is damaged" in refused(file, data[: 4 + part * len(data) // 20 - part])
    population = km.load_population(runs / "maze")
    for place in range(0, len(data), len(data) // 40):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        file.write_bytes(damaged)
        with contextlib.suppress(km.UsageError):
            assert same(population, km.load_population(file))  # what was damaged is nothing that counts


def test_only_known_members_are_packed():
    with pytest.raises(AssertionError):
        encode_pack({"evil.py": b""})
