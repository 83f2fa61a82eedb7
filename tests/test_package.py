"""What must hold for the package as a whole."""

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "kmyriad"
FILES = sorted(PACKAGE.rglob("*.py"))

ROOMS = [
    "errors",
    "checks",
    "torchrun",
    "envs",
    "engines",
    "config",
    "presets",
    "processes",
    "population",
    "rollout",
    "objective",
    "updates",
    "runs",
    "evaluation",
    "training",
    "sweeps",
    "figures",
    "video",
    "report",
    "exporters",
    "reproduction",
    "cli",
    "__main__",
]
"""The way data flows: a room may import from itself and from those above it."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Rooms of this package that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively: say from where"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("kmyriad.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_data(path):
    level = {room: index for index, room in enumerate(ROOMS)}
    if path == PACKAGE / "__init__.py":
        return  # the public names come from everywhere
    here = level[room_of(path)]
    for room in imports_of(path):
        assert room in level, f"{path.name} imports {room} from the package itself; import it from where it lives"
        assert level[room] <= here, f"{path.name} imports {room}, which comes later"


def test_every_room_is_there_and_has_its_place():
    assert {room_of(path) for path in FILES} - {"__init__"} == set(ROOMS)


def test_the_root_holds_few_modules():
    """What is not a room of its own goes into one."""
    assert len({path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}) <= 6


def test_types_are_for_others_too():
    assert (PACKAGE / "py.typed").is_file()


def asks_for(call: ast.Call, name: str) -> bool:
    """Whether a call asks if something is of the class `name`, alone or among others, under whatever module."""
    named = {getattr(node, "id", getattr(node, "attr", None)) for kind in call.args[1:] for node in ast.walk(kind)}
    return ast.unparse(call.func) in ("isinstance", "issubclass") and name in named


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nobody_asks_whether_an_environment_is_ours(path):
    """What an environment can is told by `Replicas.engine`; only its own room knows the class."""
    if room_of(path) != "envs":
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        assert not [ast.unparse(call) for call in calls if asks_for(call, "WorldVectorEnv")]


def test_such_a_question_would_be_seen():
    for asked, seen in (
        ("isinstance(env, WorldVectorEnv)", True),
        ("isinstance(env, (Other, vector_env.WorldVectorEnv))", True),
        ("isinstance(env, Other | WorldVectorEnv)", True),
        ("isinstance(WorldVectorEnv, type)", False),
        ("WorldVectorEnv(world, 1)", False),
    ):
        call = ast.parse(asked, mode="eval").body
        assert isinstance(call, ast.Call)
        assert asks_for(call, "WorldVectorEnv") == seen


READS_OTHERS = PACKAGE / "runs" / "foreign.py"
"""The one file that reads other libraries' checkpoints, which are torch's: with the reader that knows tensors and plain
containers alone."""


def is_restricted(call: ast.Call) -> bool:
    """`torch.load(..., weights_only=True)`, said in so many words."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return ast.unparse(call.func) == "torch.load" and given.get("weights_only") == "True" and None not in given


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_can_run_code_from_a_file(path):
    """No pickle, torch.load, eval or exec, under any name they are commonly reached by."""
    tree = ast.parse(path.read_text())
    allowed = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_restricted(node)]
    assert not allowed or path == READS_OTHERS
    kept = {id(part) for call in allowed for part in (call, *call.keywords)}
    for node in ast.walk(tree):
        if id(node) in kept:
            continue
        if isinstance(node, ast.Import):
            modules = {alias.name.split(".")[0] for alias in node.names}
            assert not modules & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in {
                "pickle",
                "cloudpickle",
                "dill",
                "joblib",
                "marshal",
                "shelve",
            }
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"eval", "exec", "compile", "torch.load", "torch.save", "np.load", "np.save"}
        if isinstance(node, ast.keyword):
            assert node.arg not in {"allow_pickle", "weights_only"}


def test_the_public_names_are_there():
    import kmyriad

    for name in kmyriad.__all__:
        assert getattr(kmyriad, name) is not None
    with pytest.raises(AttributeError):
        _ = kmyriad.nothing


def test_the_version_is_the_installed_ones():
    from importlib.metadata import version

    import kmyriad

    assert kmyriad.__version__ == version("kmyriad")


def test_a_wheel_holds_what_the_page_needs(tmp_path):
    """Built as `pip install .` builds it, from a copy of what git tracks."""
    source = tmp_path / "source"
    source.mkdir()
    archive = subprocess.run(["git", "ls-files", "-z"], cwd=PACKAGE.parent, capture_output=True, check=True).stdout
    for name in filter(None, archive.decode().split("\0")):
        if name.startswith("kmyriad/") or "/" not in name:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PACKAGE.parent / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = [*PACKAGE.glob("report/assets/*"), *PACKAGE.glob("report/vendor/*"), PACKAGE / "py.typed", *FILES]
    assert len(wanted) > 100
    assert {str(path.relative_to(PACKAGE.parent)) for path in wanted} <= names
    assert not [name for name in names if name.startswith("tests/")]
