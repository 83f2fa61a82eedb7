"""`kmyriad video`: the written file is decoded again and looked at."""

import json
import shutil
import subprocess
import sys

import imageio_ffmpeg
import numpy as np
import pytest
from matplotlib.colors import to_rgb

import kmyriad
from kmyriad.cli import main
from kmyriad.config import JumpstartConfig, with_settings
from kmyriad.envs.rendering import fixed_view
from kmyriad.envs.scene import SceneRenderer, view_of
from kmyriad.errors import UsageError
from kmyriad.figures import agent_colour
from kmyriad.runs.run import open_run
from kmyriad.video.film import choose_agents, film
from kmyriad.video.mp4 import write_mp4
from tests import walk_env
from tests.cli.test_cli import kmyriad as command

# imageio_ffmpeg.read_frames leaves its pipes to the garbage collector.
pytestmark = [pytest.mark.usefixtures("_opengl"), pytest.mark.filterwarnings("ignore::ResourceWarning")]

TINY = {
    "replicas": 6,
    "horizon": 20,
    "rollout_steps": 20,
    "total_steps": 1,
    "trunk_hidden": (8,),
    "agent_hidden": 8,
    "threads": 1,
}
"""One iteration."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Three balls in a maze, 20 control steps per second, episodes of 20."""
    return kmyriad.pretrain("point-maze", agents=3, out=tmp_path_factory.mktemp("runs") / "balls", **TINY)


def frames(path):
    """(facts, frames (n, height, width, 3)) of a video."""
    reader = imageio_ffmpeg.read_frames(str(path))
    facts = next(reader)
    width, height = facts["size"]
    return facts, np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader])


def shows(picture, colour, least=20):
    """Whether at least that many pixels have a flat colour, or nearly: H.264 halves the resolution of colours."""
    distance = np.abs(picture.astype(int) - 255 * np.array(to_rgb(colour))).max(axis=-1)
    return (distance < 30).sum() >= least


def told(arguments, capsys):
    """What a command that fails says."""
    with pytest.raises(SystemExit) as stopped:
        main(["video", *map(str, arguments)])
    assert stopped.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_the_real_command_films_all_agents_in_one_scene(run):
    out = command("video", str(run.path), folder=run.path.parent)
    path = run.path / "videos" / "balls-scene.mp4"
    assert out.stdout.strip() == str(path)
    assert "frame 20/20" in out.stderr
    facts, pictures = frames(path)
    assert len(pictures) == 20
    assert facts["size"] == (800, 634)  # the legend is below the scene
    assert facts["fps"] == pytest.approx(20)
    assert (facts["codec"], facts["pix_fmt"].split("(")[0]) == ("h264", "yuv420p")
    assert np.abs(pictures[-1].astype(int) - pictures[0]).max() > 60
    for agent in range(3):
        assert shows(pictures[10], agent_colour(agent, 3))
    assert [path.name for path in (run.path / "videos").iterdir()] == ["balls-scene.mp4"]


def test_a_grid_shows_the_agents_asked_for(run, tmp_path):
    out = tmp_path / "new" / "grid.mp4"
    main(["video", str(run.path), "--layout", "grid", "--agents", "2,0", "--seconds", "0.4", "--out", str(out)])
    facts, pictures = frames(out)
    assert len(pictures) == 8
    assert facts["size"] == (720, 360)
    left, right = pictures[:, :, :360], pictures[:, :, 360:]
    for half, agent, other in ((left, 2, 0), (right, 0, 2)):
        assert shows(half[0], agent_colour(agent, 3), least=300)
        assert not shows(half[0][:40], agent_colour(other, 3))
        assert np.abs(half[-1].astype(int) - half[0])[40:].max() > 30


def test_two_runs_stand_side_by_side_under_their_names(run, tmp_path):
    other = tmp_path / "jump"
    shutil.copytree(run.path, other)
    task = {"env": run.env, "env_settings": run.env_settings, "horizon": 20, "rollout_steps": 20, "goal": (0.0, -2.0)}
    (other / "config.json").write_text(json.dumps(with_settings(JumpstartConfig(), task).as_json()))
    casts = [choose_agents(run, [1]), choose_agents(open_run(other))]
    plain, made = (
        next(film(casts, goal=goal, layout=layout, seconds=0.1).frames)
        for goal, layout in ((None, "grid"), (None, "scene"))
    )
    assert plain.shape[1] == 480 + 8 + 720
    assert made.shape == (36 + 560 + 34, 600 + 8 + 600, 3)
    left, right = made[:, :600], made[:, 608:]
    assert shows(left, agent_colour(1, 3))
    assert not shows(left, agent_colour(2, 3))
    assert shows(right, agent_colour(2, 3))
    for half in (left, right):
        assert (half[:36] < 100).any(), "a caption"
        red, green, blue = half[36:-40].astype(int).transpose(2, 0, 1)
        assert ((green > red + 40) & (green > blue + 40)).sum() > 500, "the jump-start's goal"


def test_a_video_from_python(run, tmp_path):
    path = kmyriad.write_video(run.path, tmp_path / "film.mp4", [1], against=run, layout="grid", seconds=0.2)
    assert path == tmp_path / "film.mp4"
    facts, pictures = frames(path)
    assert len(pictures) == 4
    assert facts["size"] == (480 + 8 + 720, 36 + 720)
    assert shows(pictures[0][:, :480], agent_colour(1, 3), least=300)
    with pytest.raises(UsageError, match="there is no agent 3 in"):
        kmyriad.write_video(run, path, [3])


def test_frames_are_what_the_world_is_at_its_control_rate(run):
    made = film([choose_agents(run)], seconds=2.5)
    assert (made.count, made.fps) == (50, pytest.approx(20))
    fast = film([choose_agents(run)], seconds=1, camera="top")
    assert next(fast.frames).shape == (634, 800, 3)


def test_a_crowd_of_one_is_the_replica_in_another_colour(make_vec):
    env = make_vec("kmyriad/AntCave-v0", 2, render_mode="rgb_array", width=120, height=80, threads=1)
    env.reset(seed=3)
    for _ in range(5):
        env.step(np.ones((2, 8), np.float32))
    alone = env.render()[1]
    crowd = SceneRenderer(env.world, 2, 120, 80)
    view, physics = fixed_view(env.world, "follow"), env.get_state().physics
    orange = crowd.render(physics[1:], [(0.93, 0.55, 0.2)], view)
    assert (np.abs(orange.astype(int) - alone).max(axis=-1) > 40).mean() < 0.02  # fewer slices: edges differ
    blue = crowd.render(physics[1:], [(0, 0, 1)], view)
    moved = physics.copy()
    moved[0, 1] += 1.5  # x
    both = crowd.render(moved, [(1, 0, 0), (0, 0, 1)], view_of(np.array([[-2.0, -2.0], [3.0, 2.0]]), env.world, 1.5))
    assert not shows(orange, (0, 0, 0.7), 5)
    for picture, colours in ((blue, "b"), (both, "rb")):
        strongest = picture.astype(int).argmax(axis=-1)
        strong = np.ptp(picture.astype(int), axis=-1) > 80
        for colour in "rgb":
            assert ((strongest == "rgb".index(colour)) & strong).any() == (colour in colours)
    crowd.close()


def test_only_nine_agents_unless_asked(tmp_path, capsys):
    run = kmyriad.pretrain("point-maze", agents=12, out=tmp_path / "many", **TINY | {"replicas": 12})
    cast = choose_agents(run)
    assert (cast.agents, cast.left_out) == (tuple(range(9)), 3)
    main(["video", str(run.path), "--seconds", "0.1", "--layout", "grid"])
    assert "the first 9 of 12 agents; choose others with --agents" in capsys.readouterr().err
    assert frames(run.path / "videos" / "many-grid.mp4")[0]["size"] == (720, 720)
    assert choose_agents(run, [11, 11]).agents == (11, 11)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agents", "0,3"], "there is no agent 3 in"),
        (["--agents", "0-2"], "--agents takes numbers with commas between"),
        (["--goal", "0", "0"], "it lies inside a wall"),
        (["--goal", "1"], "--goal takes x y or x y z; got 1 numbers"),
        (["--seconds", "0"], "--seconds must be above 0"),
        (["--out", "film.avi"], "--out must end in .mp4"),
        (["--seed", "-3"], "--seed must be 0 or above"),
        (["--out", "config.json/film.mp4"], "cannot write the video config.json/film.mp4"),
        (["--against", "nowhere"], "there is no run folder nowhere"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(arguments, message, run, tmp_path, monkeypatch, capsys):
    shutil.copytree(run.path, tmp_path / "run", ignore=shutil.ignore_patterns("videos"))
    monkeypatch.chdir(tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    assert message in told([".", *arguments], capsys)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_without_checkpoint_and_other_worlds_are_refused(run, tmp_path, capsys):
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(run.config_path, bare)
    assert "bare has no checkpoint yet" in told([bare], capsys)
    ant = tmp_path / "ant"
    shutil.copytree(run.path, ant)
    settings = with_settings(run.pretraining, {"env": "ant-empty"})
    (ant / "config.json").write_text(json.dumps(settings.as_json()))
    assert "the runs are of different worlds" in told([run.path, "--against", ant], capsys)


def test_environments_that_cannot_render_are_refused(tmp_path, capsys):
    walk_env.register()
    run = kmyriad.pretrain(walk_env.CONTINUOUS, agents=2, out=tmp_path / "walk", **TINY)
    assert "cannot render pictures" in told([run.path, "--layout", "grid"], capsys)
    assert "draws its own pictures, one for each agent; use --layout grid" in told([run.path], capsys)
    assert not (run.path / "videos").exists()


FULL_DISK = """
import resource, sys
from pathlib import Path
import numpy as np
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # the encoder inherits it
from kmyriad.errors import UsageError
from kmyriad.video.mp4 import write_mp4
rng = np.random.default_rng(0)
noise = (rng.integers(0, 256, (64, 64, 3), dtype=np.uint8) for _ in range(int(sys.argv[2])))
try:
    write_mp4(Path(sys.argv[1]), noise, 10)
except UsageError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
@pytest.mark.parametrize("count", [5, 300])
def test_a_full_disk_leaves_the_old_video(count, tmp_path):
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")
    result = subprocess.run(
        [sys.executable, "-B", "-c", FULL_DISK, str(path), str(count)], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"cannot write the video {path}: the encoder stopped early")
    assert result.stderr == ""
    assert [entry.name for entry in tmp_path.iterdir()] == ["film.mp4"]
    assert path.read_bytes() == b"old"


def test_frames_that_cannot_be_made_leave_no_file(tmp_path):
    def broken():
        yield np.zeros((32, 32, 3), np.uint8)
        raise UsageError("no more")

    with pytest.raises(UsageError, match="no more"):
        write_mp4(tmp_path / "film.mp4", broken(), 10)
    assert list(tmp_path.iterdir()) == []
