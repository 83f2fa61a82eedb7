"""What must hold for the package as a whole."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "kmyriad"
FILES = sorted(PACKAGE.rglob("*.py"))

ROOMS = [
    "errors",
    "version",
    "envs",
    "config",
    "jumpstart_config",
    "presets",
    "population",
    "rollout",
    "objective",
    "updates",
    "runs",
    "evaluation",
    "training",
    "figures",
    "video",
    "report",
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
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name.split(".")[1] for name in names if name and name.startswith("kmyriad.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_data(path):
    level = {room: index for index, room in enumerate(ROOMS)}
    if path == PACKAGE / "__init__.py":
        return  # the public names come from everywhere
    here = level[room_of(path)]
    for room in imports_of(path):
        assert level[room] <= here, f"{path.name} imports {room}, which comes later"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_can_run_code_from_a_file(path):
    """No pickle, torch.load, eval or exec, under any name they are commonly reached by."""
    for node in ast.walk(ast.parse(path.read_text())):
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
