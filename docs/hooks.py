"""MkDocs hooks: the reference pages are made from the code when the site is built, so that nothing is written twice.

A line such as `<!-- make: settings PopulationConfig -->` in a page is replaced by what the function `settings` returns.
"""

import ast
import contextlib
import dataclasses
import inspect
import io
import os
import re
import textwrap
import types
from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from unittest.mock import patch

from mkdocs.exceptions import PluginError

import kmyriad
from kmyriad import cli, config, envs, presets
from kmyriad.checks import Between
from kmyriad.envs.make import make_world

MARKER = re.compile(r"^<!-- make: (?P<what>\w+)(?: (?P<arguments>.+?))? -->$", re.MULTILINE)

WIDTH = 100
"""Characters of a line of help."""

NUMBERS_OF_AGENTS = (1, 10, 50)
"""That presets are shown for."""

OTHERS = "others"
"""Stands for all environments that have no settings of their own in a preset."""

LARGE = 1e6
"""Limits beyond this only keep out what cannot be meant, and are not shown."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What MkDocs calls with the text of every page."""
    return MARKER.sub(_made, markdown)


def _made(match: re.Match[str]) -> str:
    make = MAKERS.get(match["what"])
    if make is None:
        raise PluginError(f"unknown marker {match[0]!r}; known: {', '.join(MAKERS)}")
    return make(*(match["arguments"] or "").split())


# Settings


def settings(block_name: str) -> str:
    """A table of one block of settings: name, type, default, meaning."""
    block = getattr(config, block_name)
    hints = get_type_hints(block, include_extras=True)
    meanings = _field_docs(block)
    here, there = _default_block(config.PretrainConfig(), block), _default_block(config.JumpstartConfig(), block)
    rows = []
    for field in dataclasses.fields(block):
        default = _code(_value(here or there, field.name))
        if here and there and _value(here, field.name) != _value(there, field.name):
            default += f"; jump-start {_code(_value(there, field.name))}"
        rows.append((_code(field.name), _type(hints[field.name]), default, meanings.get(field.name, "")))
    return f"{inspect.getdoc(block)}\n\n{_table(('setting', 'type', 'default', 'meaning'), rows)}"


def _default_block(whole: Any, block: type) -> Any:
    """The block of this type in a config as it is by default; of other update rules, with their own defaults."""
    for field in dataclasses.fields(whole):
        if type(getattr(whole, field.name)) is block:
            return getattr(whole, field.name)
    is_rule = isinstance(whole, config.PretrainConfig) and block in config.RULES.values()
    return block() if is_rule else None


def _value(block: Any, name: str) -> str:
    return _text(getattr(block, name))


def _text(value: Any) -> str:
    """A setting's value as one would type it."""
    if value is None:
        return "none"
    if isinstance(value, tuple | list):
        return " ".join(map(_text, value)) or "empty"
    if isinstance(value, dict):
        return " ".join(f"{name}={_text(entry)}" for name, entry in value.items()) or "empty"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value) or "empty"


def _type(hint: Any) -> str:
    """An annotation in words, with its limits."""
    origin, parameters = get_origin(hint), get_args(hint)
    if origin is Annotated:
        limits = [one for one in parameters[1:] if isinstance(one, Between)]
        return _type(parameters[0]) + "".join(map(_limits, limits))
    if origin in (Union, types.UnionType):
        return " or ".join("none" if one is type(None) else _type(one) for one in parameters)
    if origin is Literal:
        return ", ".join(map(_code, parameters))
    if origin is tuple and parameters[-1] is Ellipsis:
        return f"list of {_type(parameters[0])}"
    if origin is tuple:
        return f"{len(parameters)} x {_type(parameters[0])}"
    return "names and values" if origin is dict else hint.__name__


def _limits(limits: Between) -> str:
    if limits.high < LARGE:
        return f" ({limits.low:g} to {limits.high:g})"
    return f" (at least {limits.low:g})" if limits.low > -LARGE else ""


def _field_docs(block: type) -> dict[str, str]:
    """The string under each field of a dataclass."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(block))).body[0]
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for pair in pairwise(definition.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                found[name] = " ".join(words.split())
    return found


# Presets


def preset_tables() -> str:
    """What each preset of pretraining, and each method, changes."""
    parts = []
    for name, make in presets.PRESETS.items():
        found = {
            f"{env} {agents}": _difference(presets.preset(name, env, agents, method="ours"), _defaults(agents))
            for env in [*envs.WORLDS, OTHERS]
            for agents in NUMBERS_OF_AGENTS
        }
        parts.append(_preset(name, make, "world: agents", "what differs from the defaults", _alike(found)))
    for name, method in presets.METHODS.items():
        found = {
            f"any {agents}": _difference(presets.preset("quick", OTHERS, agents, method=name), _defaults(agents))
            for agents in NUMBERS_OF_AGENTS
        }
        what = "what differs from the defaults"
        parts.append(_preset(f"method {name}", method, "world: agents", what, _alike(found)))
    return "\n\n".join(parts)


def _defaults(agents: int) -> config.PretrainConfig:
    return config.with_settings(config.PretrainConfig(), {"agents": agents})


def _alike(found: dict[str, str]) -> dict[str, list[str]]:
    """Whose difference is the same, by the difference."""
    rows: dict[str, list[str]] = {}
    for whose, difference in found.items():
        rows.setdefault(difference or "nothing", []).append(whose)
    return rows


def jumpstart_preset_tables() -> str:
    """What each preset of jump-starts changes, by the way to start."""
    parts = []
    for name, make in presets.JUMPSTART_PRESETS.items():
        rows: dict[str, list[str]] = {}
        for init in get_args(config.Init):
            base = config.with_settings(config.JumpstartConfig(), {"init": init})
            difference = _difference(presets.jumpstart_preset(name, init), base)
            rows.setdefault(difference or "nothing", []).append(init)
        parts.append(_preset(name, make, "init", "what differs from the defaults", rows))
    return "\n\n".join(parts)


def _preset(name: str, make: Callable[..., Any], who: str, what: str, rows: dict[str, list[str]]) -> str:
    """A heading, what the preset says of itself, and a table; a row for those that it does the same to."""
    shown = [(_grouped(whose), difference) for difference, whose in rows.items()]
    return f"### {name}\n\n{inspect.getdoc(make)}\n\n{_table((who, what), shown)}"


def _grouped(whose: list[str]) -> str:
    """`ant-empty 10, ant-empty 50, ant-cave 10` to `ant-empty: 10, 50; ant-cave: 10`."""
    found: dict[str, list[str]] = {}
    for one in whose:
        name, _, agents = one.rpartition(" ")
        found.setdefault(name, []).append(agents)
    if len(found) == len(envs.WORLDS) + 1 and len({tuple(agents) for agents in found.values()}) == 1:
        return f"all: {', '.join(next(iter(found.values())))}"
    return "; ".join(f"{name}: {', '.join(agents)}" if name else ", ".join(agents) for name, agents in found.items())


def _difference(made: Any, base: Any) -> str:
    ours, theirs = config.settings_of(made), config.settings_of(base)
    told = [(name, value) for name, value in ours.items() if theirs.get(name) != value and name != "env"]
    return ", ".join(f"`{name}` {_text(value)}" for name, value in told)


# Command line


def help_text(command: str = "") -> str:
    """What `kmyriad COMMAND --help` prints."""
    printed = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        cli.main([*([command] if command else []), "--help"])
    lines = [_wrapped(line.rstrip()) for line in printed.getvalue().rstrip().splitlines()]
    return "```text\n" + "\n".join(lines) + "\n```"


def _wrapped(line: str) -> str:
    """Text outside of the boxes is not wrapped by itself."""
    return textwrap.fill(line, WIDTH, break_long_words=False) if len(line) > WIDTH else line


# Worlds


def worlds() -> str:
    """A table of the worlds."""
    rows = []
    for name, row in envs.WORLDS.items():
        world = make_world(name)
        sizes = (str(world.features.observation_size), str(world.model.nu))
        words = (_code(name), _code(row.id), row.sentence)
        rows.append((*words, *sizes, " ".join(row.features), f"{world.goal_radius:g} m"))
    titles = ("name", "Gymnasium id", "what it is", "observation", "action", "entropy features", "goal radius")
    return _table(titles, rows)


def features(world: str) -> str:
    """A table of the named features of a world."""
    rows = make_world(world).features.as_rows()
    return _table(
        ("name", "where", "unit", "meaning"),
        [(_code(name), _code(where), unit, meaning) for name, where, unit, meaning in rows],
    )


def world_settings(world: str) -> str:
    """A table of what the maker of a world takes."""
    module, _, name = envs.WORLDS[world].maker.partition(":")
    maker = getattr(import_module(module), name)
    hints, (_, meanings) = get_type_hints(maker, include_extras=True), _parted(maker)
    rows = []
    for parameter in inspect.signature(maker).parameters.values():
        if parameter.name not in envs.WORLDS[world].settings:
            kind = "name or rows" if hints[parameter.name] is object else _type(hints[parameter.name])
            rows.append((_code(parameter.name), kind, _code(_text(parameter.default)), meanings[parameter.name]))
    return _table(("setting", "type", "default", "meaning"), rows)


# Python


def python() -> str:
    """Signatures and docstrings of all public names."""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": [], "Modules": []}
    for name in sorted(kmyriad.__all__, key=str.lower):
        public = getattr(kmyriad, name)
        if inspect.ismodule(public):
            kinds["Modules"].append(_module(name, public))
        elif inspect.isclass(public) and issubclass(public, Exception):
            kinds["Errors"].append(f"### km.{name}\n\n{_docstring(public)}")
        elif inspect.isclass(public):
            kinds["Classes"].append(_class(name, public))
        elif callable(public):
            kinds["Functions"].append(f"### km.{name}\n\n{_signature(f'km.{name}', public)}\n\n{_docstring(public)}")
    return "\n\n".join(f"## {title}\n\n" + "\n\n".join(parts) for title, parts in kinds.items() if parts)


def _class(name: str, public: type) -> str:
    rows = []
    if dataclasses.is_dataclass(public):
        meanings = _field_docs(public)
        for field in dataclasses.fields(public):
            rows.append((_code(field.name), _code(_annotation(field.type)), meanings.get(field.name, "")))
    for attribute, member in vars(public).items():
        if attribute.startswith("_") or not (document := _first_paragraph(member)):
            continue
        if inspect.isfunction(member):
            rows.append((_code(f"{attribute}{_short(member)}"), _code(_returned(member)), document))
        elif hasattr(member, "func") or isinstance(member, property):
            getter = getattr(member, "fget", None) or member.func
            rows.append((_code(attribute), _code(_returned(getter)), document))
    return f"### km.{name}\n\n{_docstring(public)}\n\n{_table(('name', 'type', 'meaning'), rows) if rows else ''}"


def _module(name: str, module: types.ModuleType) -> str:
    own = [one for one, member in vars(module).items() if getattr(member, "__module__", "") == module.__name__]
    rows = []
    for one in getattr(module, "__all__", own):
        member = getattr(module, one)
        if not one.startswith("_") and inspect.isfunction(member):
            rows.append((_code(f"{one}{_short(member)}"), _first_paragraph(member)))
    return f"### km.{name}\n\n{_docstring(module)}\n\n{_table(('function', 'what it does'), rows)}"


def _signature(name: str, function: Callable[..., Any]) -> str:
    """As a code block, one parameter per line where they do not fit one line."""
    signature = inspect.signature(function)
    whole = _plain(f"{name}{signature}")
    if len(whole) > WIDTH:
        parts: list[str] = []
        marked = False
        for parameter in signature.parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY and not marked:
                parts, marked = [*parts, "*"], True
            parts.append(_plain(str(parameter)))
        returned = _annotation(signature.return_annotation)
        whole = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f") -> {returned}"
    return f"```python\n{whole}\n```"


def _short(function: Callable[..., Any]) -> str:
    """`(run, out, *, seed=0)`: without annotations."""
    signature = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return _plain(str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)))


def _returned(function: Callable[..., Any]) -> str:
    return _annotation(inspect.signature(function).return_annotation)


def _annotation(annotation: Any) -> str:
    return _plain(inspect.formatannotation(annotation) if not isinstance(annotation, str) else annotation)


def _plain(text: str) -> str:
    """Without modules, addresses and quotes around annotations; arrays by their type."""
    text = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"'[^']*'|\b(?!km\.)(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", _kept_if_quoted, text)
    return re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]", r"NDArray[\1]", text)


def _kept_if_quoted(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("'") else ""


def _docstring(public: Any) -> str:
    """As Markdown: the arguments as a list. Dataclasses without words of their own have their signature there."""
    text, arguments = _parted(public)
    if inspect.isclass(public) and text.startswith(f"{public.__name__}("):
        return ""
    listed = "\n".join(f"- `{name}`: {words}" for name, words in arguments.items())
    return f"{text}\n\n{listed}"


def _parted(public: Any) -> tuple[str, dict[str, str]]:
    """What a docstring says, and what it says of each argument."""
    text, _, arguments = (inspect.getdoc(public) or "").partition("\nArgs:\n")
    items = re.findall(r"^(\w+): (.*(?:\n .*)*)", textwrap.dedent(arguments), re.MULTILINE)
    return text.rstrip(), {name: " ".join(words.split()) for name, words in items}


def _first_paragraph(public: Any) -> str:
    return " ".join((inspect.getdoc(public) or "").split("\n\n")[0].split())


# Markdown


def _code(text: str) -> str:
    return f"`{text}`"


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


MAKERS: dict[str, Callable[..., str]] = {
    "features": features,
    "help": help_text,
    "jumpstart_presets": jumpstart_preset_tables,
    "presets": preset_tables,
    "python": python,
    "settings": settings,
    "world_settings": world_settings,
    "worlds": worlds,
}
"""What a marker may ask for."""
