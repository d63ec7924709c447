"""Pages that are made from the code: commands, scenario keys, names, the changelog, the notebook."""

import base64
import inspect
import json
import re
import runpy
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer.main

import cutwater
import cutwater.extend
from cutwater.cli.main import app
from cutwater.scenario.reference import markdown, rows
from cutwater.scenario.sections import SECTIONS

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
NOTEBOOK = "examples/notebook.ipynb"


def pages(root: Path) -> dict[str, str | bytes]:
    """Every page by its path below docs/."""
    made: dict[str, str | bytes] = {
        "reference/commands.md": commands(),
        "reference/scenario.md": scenario_keys(),
        "reference/changelog.md": (root / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    return made | notebook(json.loads((root / NOTEBOOK).read_text(encoding="utf-8")))


def commands() -> str:
    """Every command with its arguments and options, from what --help is made of."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    parts = [
        "# Commands\n\nMade from the commands themselves; `cutwater COMMAND --help` says the same. What "
        "prints results has a table for people and `--json` for programs; progress and complaints go to "
        "standard error. What a command's end means is told under [exit codes](exit-codes.md).\n\n",
        "| command | what it does |\n|---|---|\n",
        *(
            f"| [`{name}`](#cutwater-{name}) | {_paragraphs(one)[0]} |\n"
            for name, one in group.commands.items()
        ),
    ]
    for name, command in group.commands.items():
        parts.extend(_command(name, command))
    return "".join(parts)


def _command(name: str, command: click.Command) -> Iterator[str]:
    yield f"\n## `cutwater {name}` {{: #cutwater-{name} }}\n\n"
    for text in _paragraphs(command):
        example = text.removeprefix("Example: ")
        yield f"```console\n$ {example}\n```\n\n" if example != text else f"{text}\n\n"
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option)]
    if arguments:
        yield "| argument | meaning |\n|---|---|\n"
        for one in arguments:
            yield f"| `{one.name.upper() if one.name else ''}` | {_cell(getattr(one, 'help', '') or '')} |\n"
        yield "\n"
    yield "| option | takes | default | meaning |\n|---|---|---|---|\n"
    for option in options:
        yield _option(option)


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{one}`" for one in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag else f"`{_takes(option)}`" + (", repeatable" if option.multiple else "")
    shown = option.show_default
    default = shown if isinstance(shown, str) else _default(option)
    return f"| {names} | {takes} | {_cell(default)} | {_cell(option.help or '')} |\n"


def _takes(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return " or ".join(map(str, option.type.choices))
    return str(option.type.name).removesuffix(" range")


def _default(option: click.Option) -> str:
    value = option.default
    if option.is_flag or value is None or callable(value) or str(value).startswith("Sentinel"):
        return "required" if option.required else ""
    return f"`{getattr(value, 'value', value)}`"


def _paragraphs(command: click.Command) -> list[str]:
    return [text.replace("\\[", "[") for text in (command.help or "").split("\n\n")]


def _cell(text: str) -> str:
    return text.replace("\\[", "[").replace("|", "\\|").replace("\n", " ")


def scenario_keys() -> str:
    """Every section of a scenario with its keys, from the schema."""
    parts = [
        "# Scenario keys\n\nMade from the schema that checks scenarios; `cutwater scenario` prints the same "
        "in a terminal, `cutwater scenario --check FILE` names every mistake in a file, and `cutwater "
        "scenario --json-schema` is for editors. What the sections are for: [Planning](../planning.md) and "
        "[Training](../training.md).\n\n## At the top\n\n",
        markdown(rows("top")),
    ]
    for section in SECTIONS.values():
        parts.append(f"\n## `{section.title}` {{: #{section.key} }}\n\n")
        parts.append(f"{section.meaning[0].upper()}{section.meaning[1:]}.\n\n{markdown(rows(section.key))}")
    return "".join(parts)


def details_of_names(complain: Callable[..., None]) -> str:
    """Every public name with its signature and docstring, to follow the tables of the page of names."""
    meaning = runpy.run_path(str(Path(__file__).parents[1] / "api_page.py"))["meaning"]
    parts = []
    for module in (cutwater, cutwater.extend):
        parts.append(f"\n## `{module.__name__}`, name by name\n")
        for name, home in sorted(module._HOME.items()):
            for undescribed in _undescribed(home, name, meaning):
                complain("%s has no docstring", undescribed)
            parts.append(f"\n::: {home}.{name}\n")
    return "".join(parts)


def _undescribed(home: str, name: str, meaning: Callable[[str, str], str]) -> Iterator[str]:
    """The name, and what is public of a class, where nothing says what it is."""
    try:
        meaning(home, name)
    except AssertionError:
        yield f"{home}.{name}"
    found = getattr(import_module(home), name)
    for member, value in _members(found).items() if inspect.isclass(found) else ():
        function = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if not member.startswith("_") and inspect.isfunction(function) and not inspect.getdoc(function):
            yield f"{home}.{name}.{member}"


def _members(found: type) -> dict[str, Any]:
    """Of a class and what it inherits from the package's own; another library's are not ours to describe."""
    own = [one for one in reversed(found.__mro__) if one.__module__.split(".")[0] == cutwater.__name__]
    return {member: value for one in own for member, value in vars(one).items()}


def notebook(book: dict[str, Any]) -> dict[str, str | bytes]:
    """The notebook as it was run: its cells, what they print, and their figures."""
    parts, figures = [], {}
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(f"{source}\n\n")
            continue
        parts.append(f"```python\n{source}\n```\n\n")
        for output in cell["outputs"]:
            data = output.get("data", {})
            text = "".join(output.get("text", data.get("text/plain", "")))
            if "image/png" in data:
                path = f"tutorials/notebook-{len(figures) + 1}.png"
                figures[path] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Figure {len(figures)}]({Path(path).name})\n\n")
            elif text.strip():
                parts.append(f"```text\n{_COLOURS.sub('', text).rstrip()}\n```\n\n")
    return {"tutorials/notebook.md": "".join(parts), **figures}
