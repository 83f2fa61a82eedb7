"""A run in one file: what goes in comes out, everything that takes a run takes it, and a bad one is one sentence."""

import contextlib
import io
import json
import zipfile

import pytest
import torch

import kmyriad as km
from kmyriad import cli
from kmyriad.config import with_settings
from kmyriad.runs import pack as packing
from kmyriad.runs.pack import LARGEST, encode_pack, read_pack
from kmyriad.runs.run import append_metrics
from kmyriad.runs.tensor_file import TensorFile, read_tensor_file, write_tensor_file
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


def test_sentences_name_the_file(tmp_path):
    """And not the temporary folder that it is opened in."""
    file = km.pack(untrained_jumpstart(tmp_path / "run"), tmp_path / "packed", page=False, threads=1)
    with pytest.raises(km.UsageError, match="packed is a jumpstart run; name the pretraining run"):
        km.evaluate(file, 4)


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


def forged(members, **changes):
    """The same run with other settings of its world."""
    config = json.loads(members["config.json"])
    config["world"] |= {"features": [], "feature_scale": []} | changes
    return encode_pack(members | {"config.json": json.dumps(config).encode()})


@pytest.mark.parametrize(
    ("env", "settings"),
    [("os:system", {"command": "touch evil"}), ("subprocess:getoutput", {"cmd": "touch evil"})],
)
def test_a_file_does_not_choose_what_is_run(members, env, settings, tmp_path, monkeypatch):
    """An environment can be any function of any module, and its settings what it is called with."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file.kmyriad"
    file.write_bytes(forged(members, env=env, env_settings=settings))
    for use in (
        lambda: km.open_run(file),
        lambda: km.evaluate(file, 4),
        lambda: km.select(file, GOAL),
        lambda: km.jumpstart(file, goal=GOAL, out=tmp_path / "run"),
        lambda: km.export(file, "cleanrl", tmp_path / "out", agent=0),
        lambda: km.pack(file, tmp_path / "again"),
        lambda: km.write_report([file], tmp_path / "page.html"),
    ):
        with pytest.raises(km.UsageError, match=f"has the environment '{env}', which is code") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file.kmyriad"]
    assert km.load_population(file).agents == 4  # which makes no environment
    assert km.open_run(file, trusted=True).env == env


def test_ones_own_environment_opens_where_it_is_trusted(tmp_path):
    run = untrained_run(tmp_path / "run", with_settings(CASES["own range"], {"env": "tests.walk_env:Walk"}))
    file = km.pack(run, tmp_path / "walk.kmyriad", page=False, episodes=4, threads=1)
    with pytest.raises(km.UsageError, match="unzip it and name the folder"):
        km.evaluate(file, 4)
    assert km.evaluate(km.open_run(file, trusted=True), 4, threads=1).visits.valid.shape[0] == 2
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path / "unzipped")
    assert km.evaluate(tmp_path / "unzipped", 4, threads=1).visits.valid.shape[0] == 2


def test_policies_of_another_shape_than_told_are_one_sentence(members, tmp_path):
    """With right checksums: whoever forges a file computes them."""
    (name,) = [name for name in members if name.startswith("checkpoints/")]
    (tmp_path / "good").write_bytes(members[name])
    good = read_tensor_file(tmp_path / "good")
    architecture = good.facts["architecture"]
    wrongs = [None, -1, 0, 3, 10**9, 10**18, 1.5, "x", [], [-1], [10**9], {}, True]
    changes = [{key: wrong} for key in architecture for wrong in wrongs if wrong != architecture[key]]
    said = []
    for change in changes:
        told = good.facts | {"architecture": architecture | change}
        write_tensor_file(tmp_path / "forged", TensorFile(good.tensors, told))
        data = encode_pack(members | {name: (tmp_path / "forged").read_bytes()})
        (tmp_path / "file").write_bytes(data)
        try:
            km.load_population(tmp_path / "file")(torch.zeros(4, 1, 4))
        except km.UsageError as error:
            said.append(str(error))
    assert not [sentence for sentence in said if "\n" in sentence]
    assert len(changes) - len(said) < 8  # harmless: the rate of codes that there are none of, and the like


@pytest.mark.parametrize("how", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_to_compress_are_refused(members, how, tmp_path):
    """Which pack never uses, and which take any memory to undo."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    assert "it holds" in refused(tmp_path / "file", buffer.getvalue())


def test_what_is_written_about_a_packed_run_stays(runs, tmp_path, monkeypatch, capsys):
    """Its own folder is a temporary one."""
    monkeypatch.chdir(tmp_path)
    cli.main(["evaluate", str(runs / "maze.kmyriad"), "--episodes", "4", "--threads", "1"])
    told = capsys.readouterr().err
    assert f"episodes of {runs / 'maze.kmyriad'}" in told
    assert "wrote maze/evaluation.json" in told
    assert json.loads((tmp_path / "maze/evaluation.json").read_text())["agents"] == 4


def test_the_page_in_a_file_names_the_file(members):
    assert b"kmyriad jumpstart maze.kmyriad --goal" in members["report.html"]
    assert "platform" not in json.loads(members["versions.json"])


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
