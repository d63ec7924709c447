"""What --help of every command says."""

import re
from itertools import pairwise

import click
import pytest
import typer.main
from typer.testing import CliRunner

from cutwater.cli.main import app

COMMANDS = typer.main.get_command(app)
assert isinstance(COMMANDS, click.Group)
ARGUMENTS = {
    "scenario": "One section, such as train; all if not given.",
    "profile": "A model by name, or your own as package.module:function.",
    "plan": "A TOML file: model or profile, server, session, clients.",
    "jobs": "A TOML file: the server, and a job table for each model.",
    "compare": "A TOML file: model or profile, server, session, clients.",
    "sweep": "A TOML file: model or profile, server, session, clients.",
    "size": "A TOML file: model or profile, server, session, clients.",
    "whatif": "A TOML file: model or profile, server, session, clients.",
    "data": "A TOML file: model or profile, server, session, clients.",
    "train": "A TOML file: model or profile, server, session, clients.",
    "verify": "A TOML file: model or profile, server, session, clients.",
    "evaluate": "The folder of a run, as cutwater train leaves it.",
    "predict": "The folder of a run, as cutwater train leaves it.",
    "export": "The folder of a run, as cutwater train leaves it.",
    "runs": "Run folders, or folders that hold some.",
    "reproduce": "Which to make, such as clients server; all unless given.",
    "report": "Run folders, as cutwater train leaves them.",
    "web": "A scenario to open with.",
    "fleet": "A TOML file: model or profile, server, session, clients.",
    "audit": "The folder of a run.",
    "probe": "Measure its model, in parts of its size; a small CNN if not given.",
    "scaffold": "A new or empty folder.",
    "turns": "Where the socket is, or is to be.",
    "coverage": "Libraries or models, such as timm; all unless given.",
    "examples": "A new or empty folder to copy them into.",
}


def helped(command, width="100"):
    result = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": width, "TERMINAL_WIDTH": width})
    assert result.exit_code == 0
    return result.output


def words(text):
    """The text without lines and frames."""
    return re.sub(r"[\s│]+", " ", text)


def test_every_command_is_tested_here():
    assert set(COMMANDS.commands) == set(ARGUMENTS)


@pytest.mark.parametrize("command", ARGUMENTS)
def test_help_explains_the_argument_and_gives_an_example(command):
    text = words(helped(command))
    assert ARGUMENTS[command] in text
    assert f"Example: cutwater {command} " in text


def bracketed(command):
    """What stands in brackets in the texts that a command's help is made of."""
    texts = [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
    return [found for text in texts for found in re.findall(r"\[+[^][]+\]+", text.replace("\\[", "["))]


@pytest.mark.parametrize("command", ARGUMENTS)
def test_no_help_loses_what_stands_in_brackets(command):
    """Rich takes brackets for markup, and leaves out what it does not know, unless they are escaped."""
    shown = words(helped(command, "400"))
    for text in bracketed(COMMANDS.commands[command]):
        assert text in shown


def test_there_are_brackets_to_lose():
    every = {text for command in COMMANDS.commands.values() for text in bracketed(command)}
    assert {"[train]", "[data]", "[[client]]"} <= every


@pytest.mark.parametrize("width", ["60", "80", "100"])
def test_paragraphs_are_wrapped_to_the_width_of_the_terminal(width):
    """A line ends where the next word has no room."""
    for command in ARGUMENTS:
        paragraphs = helped(command, width).split("╭")[0].split("Usage:")[1]
        for paragraph in re.split(r"\n\s*\n", paragraphs)[1:]:
            lines = [line.strip() for line in paragraph.strip().split("\n")]
            for line, following in pairwise(lines):
                assert len(line) + 1 + len(following.split()[0]) > int(width) - 3, (command, line)
