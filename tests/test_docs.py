"""README.md and docs/: the site builds, every command and all Python in them runs, every link leads somewhere."""

import functools
import glob
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import gymnasium
import pytest
import torch

import kmyriad
from kmyriad import cli
from kmyriad.config import RULES, JumpstartConfig, PretrainConfig, even_split
from kmyriad.envs.rendering import RenderError
from kmyriad.sweeps.worker import perform

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

RUN = ("bash", "python", "toml")
NOT_RUN = ("console", "text", "bibtex")
"""Blocks in these languages are only shown. `console`: installing, `make` targets and TensorBoard's server, which
change the machine, take long or never end. `text`: formulas and output. A `toml` block is written to the file that its
title names."""

REPLICAS, HORIZON, SEGMENT = 20, 50, 25
PRETRAIN_STEPS, RESUME_STEPS, JUMPSTART_STEPS, SELECTION_STEPS = 3000, 4000, 5000, 1500
CRITIC_EPOCHS, EPISODES = 2, 40
"""What all runs are cut down to."""


@dataclass(frozen=True)
class Block:
    language: str
    line: int
    """Where its text begins."""
    text: str
    title: str = ""


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    pattern = r"^```(\w*)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^```$"
    found = re.finditer(pattern, text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], text[: match.start(3)].count("\n") + 1, match[3], match[2] or "") for match in found]


def prose_of(page: Path) -> str:
    """The text without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


PAGES_THAT_RUN = [page for page in PAGES if any(block.language in RUN for block in blocks_of(page))]


# What is in the pages


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_name_their_language(page):
    for block in blocks_of(page):
        assert block.language in RUN + NOT_RUN, f"line {block.line}: {block.language!r} is neither run nor known"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_images_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", prose_of(page)):
        if not re.match(r"https?://|mailto:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{target} is not there"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_agents_and_iterations_have_one_name(page):
    """The paper's words may be quoted; a head is a layer, of which there is one per agent."""
    allowed = r'"(heads?|epochs?)"|a head per agent|(update|critic)[-_]epochs|benchmarks/epoch\.py'
    text = re.sub(allowed, "", page.read_text())
    assert not re.findall(r".*\b(?:[Hh]eads?|[Ee]pochs?)\b.*", text)


def test_the_reference_has_every_block_and_command():
    settings = (ROOT / "docs/reference/config.md").read_text()
    blocks = {type(field.default) for config in (PretrainConfig, JumpstartConfig) for field in fields(config)}
    for block in blocks | {*RULES.values()}:
        assert f"<!-- make: settings {block.__name__} -->" in settings
    commands = (ROOT / "docs/reference/cli.md").read_text()
    for command in cli.COMMANDS:
        assert f"<!-- make: help {command} -->" in commands


# The site


def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = [*(tmp_path / "site").rglob("*.html")]
    assert len(pages) >= len(PAGES) - 1
    for page in pages:
        html = page.read_text()
        assert "make: " not in html.replace("cmake: ", ""), f"{page.name} has a marker left"
        assert not re.findall(r"<(?:script|img|iframe)[^>]* src=\"?https?:", html), f"{page.name} loads from elsewhere"
        assert not re.findall(r"<link[^>]* rel=\"?(?:stylesheet|preconnect)[^>]* href=\"?https?:", html)
    assert "<code>neighbours</code>" in (tmp_path / "site/reference/config.html").read_text()
    assert "--selection-steps" in (tmp_path / "site/reference/cli.html").read_text()
    assert "km.load_population" in (tmp_path / "site/reference/python.html").read_text()


# What the pages tell to run


@pytest.mark.parametrize("page", PAGES_THAT_RUN, ids=name_of)
@pytest.mark.usefixtures("_in_a_folder_of_its_own", "_small_functions")
def test_what_a_page_tells_to_run_runs(page):
    namespace = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)
        elif block.language == "toml":
            Path(block.title).write_text(shortened_plan(block.text))
        elif block.language == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                if words := shlex.split(line, comments=True):
                    run_command([name for word in words for name in (sorted(glob.glob(word)) or [word])])


def run_command(words: list[str]) -> None:
    """A command of kmyriad, in this process: importing torch anew for each would take minutes."""
    assert words[0] == "kmyriad", f"{shlex.join(words)} is no command of kmyriad; mark its block as console"
    if words[1:2] == ["video"] and not can_draw():
        return
    code: object = 0
    try:
        cli.main(shortened(words[1:]))
    except SystemExit as stop:
        code = stop.code
    assert not code, f"{shlex.join(words)} ended with exit code {code}"


def shortened(arguments: list[str]) -> list[str]:
    """The same command with settings that take a second or two."""
    command, *rest = arguments
    settings: dict[str, float] = {}
    if command == "pretrain" and "--resume" not in rest:
        replicas = even_split(REPLICAS, int(value_of("agents", rest) or 10))
        settings = {"total-steps": PRETRAIN_STEPS, "replicas": replicas, "horizon": HORIZON, "rollout-steps": SEGMENT}
    elif command == "pretrain" and value_of("total-steps", rest):
        settings = {"total-steps": RESUME_STEPS}
    elif command == "jumpstart" and "--resume" not in rest:
        replicas = even_split(REPLICAS, int(value_of("top", rest) or 1))
        settings = {"total-steps": JUMPSTART_STEPS, "replicas": replicas, "rollout-steps": SEGMENT}
        settings |= {"selection-steps": SELECTION_STEPS, "critic-epochs": CRITIC_EPOCHS}
        if value_of("init", rest) == "random":  # has no source to take the horizon from
            settings |= {"horizon": HORIZON}
    elif command == "select" and "--stored" not in rest:
        settings = {"steps": SELECTION_STEPS}
    elif command in ("evaluate", "report", "pack") or (command == "export" and "--episodes" in rest):
        settings = {"episodes": EPISODES}
    elif command == "video":
        settings = {"seconds": 0.5}
    for name, value in settings.items():
        while f"--{name}" in rest:
            at = rest.index(f"--{name}")
            del rest[at : at + 2]
        rest += [f"--{name}", str(value)]
    return [command, *rest]


def shortened_plan(text: str) -> str:
    """A sweep's file with settings that take a second or two, in place of every `total_steps`."""
    sizes = {"replicas": REPLICAS, "rollout_steps": SEGMENT, "horizon": HORIZON}
    pretrain = {"total_steps": PRETRAIN_STEPS, **sizes}
    jumpstart = {"total_steps": JUMPSTART_STEPS, "selection_steps": SELECTION_STEPS, **sizes}
    lines, settings = [], {}
    for line in text.splitlines():
        if line.startswith("["):
            settings = pretrain if line.startswith("[pretrain.") else jumpstart
        is_size = line.startswith("total_steps = ")
        lines += [f"{name} = {value}" for name, value in settings.items()] if is_size else [line]
    return "\n".join(lines) + "\n"


def value_of(name: str, arguments: list[str]) -> str | None:
    return arguments[arguments.index(f"--{name}") + 1] if f"--{name}" in arguments else None


@functools.cache
def can_draw() -> bool:
    env = gymnasium.make("kmyriad/PointMaze-v0", render_mode="rgb_array", width=8, height=8)
    env.reset()
    try:
        env.render()
    except RenderError:
        return False
    finally:
        env.close()
    return True


@pytest.fixture
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    """Nothing that a page does is left behind: files, registered environments, the number of threads."""
    monkeypatch.chdir(tmp_path)
    known, threads = dict(gymnasium.registry), torch.get_num_threads()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(os.environ, "MINARI_DATASETS_PATH", "")
    torch.set_num_threads(1)  # small networks; spinning threads would slow a busy machine down
    yield
    torch.set_num_threads(threads)
    for name in [name for name in sys.modules if name.startswith("kmyriad_")]:  # of an exported folder
        del sys.modules[name]
    gymnasium.registry.clear()
    gymnasium.registry.update(known)


class InThisProcess:
    """Stands for the processes of a sweep, as importing torch anew for each of them would take long."""

    room = 1

    def __init__(self, count):
        self._ended = {}

    def start(self, name, call):
        perform(call.function, str(call.arguments))
        self._ended[name] = "it ended without a word"

    def ended(self):
        ended, self._ended = self._ended, {}
        return ended

    def stop(self):
        pass


@pytest.fixture
def _small_functions(monkeypatch):
    """The functions that take long, with the settings that `shortened` gives the commands."""
    pretrain, jumpstart = kmyriad.pretrain, kmyriad.jumpstart

    @functools.wraps(pretrain)
    def small_pretrain(*positional, **settings):
        if not settings.get("resume"):
            replicas = even_split(REPLICAS, settings.get("agents", 10))
            settings |= {"total_steps": PRETRAIN_STEPS, "replicas": replicas}
            settings |= {"horizon": HORIZON, "rollout_steps": SEGMENT}
        return pretrain(*positional, **settings)

    @functools.wraps(jumpstart)
    def small_jumpstart(*positional, **settings):
        if not settings.get("resume"):
            replicas = even_split(REPLICAS, settings.get("top", 1))
            settings |= {"total_steps": JUMPSTART_STEPS, "replicas": replicas, "rollout_steps": SEGMENT}
            settings |= {"selection_steps": SELECTION_STEPS, "critic_epochs": CRITIC_EPOCHS}
        return jumpstart(*positional, **settings)

    monkeypatch.setattr("kmyriad.sweeps.sweep.Processes", InThisProcess)
    monkeypatch.setattr(kmyriad, "pretrain", small_pretrain)
    monkeypatch.setattr(kmyriad, "jumpstart", small_jumpstart)
    monkeypatch.setattr(kmyriad, "select", functools.partial(kmyriad.select, steps=SELECTION_STEPS))
