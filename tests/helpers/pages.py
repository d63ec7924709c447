"""Pages of the documentation as programs: their blocks are run in order, and what they show is compared.

- A block with a title is that file, written where the page is run.
- A block of Python without one is run; a block of text right below it is what it prints.
- A block of console has commands after `$ `; below each is what it prints to standard output.
- `…` stands for any text in a line, a line of `…` alone for any lines.
- A number may be off by a twentieth, as what was trained may be on another processor; a hash may be any.

Blocks of other languages (sh among them) are for reading.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from cutwater.cli.main import main as cutwater

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HASH = re.compile(r"\b[0-9a-f]{16}\b")
_NUMBER = re.compile(r"\d(?:[\d,]*\d)?(?:\.\d+)?")
_TITLE = re.compile(r'title="([^"]+)"')


class Block(NamedTuple):
    """One block of a page."""

    language: str
    title: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """All of them, in order."""
    found = []
    for match in _BLOCK.finditer(page):
        title = _TITLE.search(match[2])
        found.append(
            Block(match[1], title[1] if title else "", match[3], page.count("\n", 0, match.start()) + 1)
        )
    return found


def run_page(path: Path, folder: Path, exports: Mapping[str, str] | None = None) -> int:
    """Run a page in a folder, which must be the current one; the number of outputs that were compared.

    ``exports`` stand in for values that the page exports, such as a port that is free.
    """
    return Runner(path, folder, exports).run()


class Runner:
    """Runs one page; what its Python defines stays from block to block."""

    def __init__(self, path: Path, folder: Path, exports: Mapping[str, str] | None = None) -> None:
        self.path, self.folder = path, folder
        self.forced = dict(exports or {})
        self.exports: dict[str, str] = {}
        self.names: dict[str, object] = {"__name__": "page"}
        self.compared = 0
        self.commands = _commands(folder.parent / f"{folder.name}-bin")

    def run(self) -> int:
        all_ = blocks(self.path.read_text(encoding="utf-8"))
        for block, after in zip(all_, [*all_[1:], None], strict=True):
            where = f"{self.path.name}:{block.line}"
            if block.title:
                (self.folder / block.title).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / block.title).write_text(block.text, encoding="utf-8")
            elif block.language == "python":
                said = self.python(block.text, where)
                if after is not None and after.language == "text":
                    self.compare(after.text, said, where)
            elif block.language == "console":
                for command, shown in commands(block.text):
                    self.compare(shown, self.shell(command, where), f"{where}: {command}")
        return self.compared

    def python(self, code: str, where: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile(code, where, "exec"), self.names)
        return said.getvalue()

    def shell(self, command: str, where: str) -> str:
        exported = re.fullmatch(r"export (\w+)=(\S+)", command)
        if exported:
            value = exported[2].replace("$PWD", str(self.folder))
            self.exports[exported[1]] = self.forced.get(exported[1], value)
            return ""
        words = shlex.split(command.partition("<<")[0], comments=True)
        if words[0] == "cutwater" and not set(command) & set("|><&;$"):
            return called(words)
        if words[0] == "python" and len(words) == 2 and words[1].endswith(".py"):
            with contextlib.redirect_stdout(io.StringIO()) as said:
                runpy.run_path(str(self.folder / words[1]), run_name="__main__")
            return said.getvalue()
        scripts = Path(find_spec("flwr").origin).parents[4] / "bin" if find_spec("flwr") else self.commands
        paths = os.pathsep.join([str(self.commands), str(scripts), os.environ["PATH"]])
        environment = os.environ | {"PATH": paths} | self.exports
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, f"{where}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def compare(self, shown: str, said: str, where: str) -> None:
        if not shown.strip():
            return
        self.compared += 1
        pattern = "".join(_pattern(line) for line in _lines(shown))
        found = re.fullmatch(pattern, "".join(f"{line}\n" for line in _lines(said)))
        numbers = [_value(text) for text in _NUMBER.findall(_HASH.sub("", shown))]
        near = found and all(
            abs(_value(came) - wanted) <= 0.05 * abs(wanted)
            for came, wanted in zip(found.groups(), numbers, strict=True)
        )
        assert near, f"{where} shows\n\n{shown}\nbut this came:\n\n{said}"


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with what is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = next((k for k, line in enumerate(lines) if not line.endswith("\\")), len(lines) - 1) + 1
        if "<<END" in lines[0]:
            count = lines.index("END") + 1
        yield "\n".join(lines[:count]), "\n".join(lines[count:])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def _pattern(line: str) -> str:
    """A line as it may come, with a group for each number."""
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    tokens = re.split(rf"({_HASH.pattern}|{_NUMBER.pattern}|…| +)", line)
    return "".join(map(_token, tokens)) + r"\n"


def _token(text: str) -> str:
    if _HASH.fullmatch(text):
        return _HASH.pattern
    if _NUMBER.fullmatch(text):
        return f"({_NUMBER.pattern})"
    return {"…": ".*?"}.get(text, " +" if text and not text.strip() else re.escape(text))


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def called(words: list[str]) -> str:
    """A command of ours in this process, because torch takes seconds to import."""
    before, sys.argv = sys.argv, words
    try:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            cutwater()
    except SystemExit as end:
        if end.code not in (0, None):
            raise AssertionError(f"{shlex.join(words)} ended with {end.code}: {said.getvalue()}") from end
    finally:
        sys.argv = before
    return said.getvalue()


def _commands(folder: Path) -> Path:
    """`cutwater` and `python` for the shell, whatever environment the tests run in."""
    folder.mkdir(exist_ok=True)
    for name, arguments in {"python": "", "cutwater": "-m cutwater "}.items():
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {arguments}"$@"\n', encoding="utf-8")
        script.chmod(0o755)
    return folder
