"""What is said of mistakes in a user's own code, and how commands end when nobody reads or waits for them."""

import os
import subprocess
import sys

import pytest

from cutwater.base.errors import CutwaterError, RunError
from cutwater.base.usercode import find, look_beside

SCENARIO = """
[model]
name = "broken_model:{function}"
input = "4"

[server]
compute = "1 GFLOPS"

[session]
steps = 1
batch_size = 2

[fleet]
clients = 2
compute = ["1 MFLOPS", "2 MFLOPS"]
rate = ["1 MB/s", "2 MB/s"]
samples = [4, 6]
seed = 3
"""
CODE = """
def build():
    raise ValueError("no such width")
"""


def command(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-m", "cutwater", *map(str, arguments)],
        stderr=subprocess.PIPE,
        text=True,
        **{"env": environment, "stdout": subprocess.PIPE, **options},
    )


@pytest.fixture
def broken(tmp_path):
    (tmp_path / "scenario.toml").write_text(SCENARIO.format(function="build"))
    (tmp_path / "broken_model.py").write_text(CODE)
    return tmp_path / "scenario.toml"


def test_a_mistake_in_a_users_code_is_told_with_file_and_line_and_debug_shows_the_way(broken):
    plain, debug = (command("plan", broken, *more) for more in ((), ("--debug",)))
    for process in (plain, debug):
        assert process.wait() == 2
    said = plain.stderr.read()
    assert f"ValueError: no such width, at {broken.parent}/broken_model.py:3" in said
    assert "Traceback" not in said
    shown = debug.stderr.read()
    assert "Traceback" in shown
    assert 'raise ValueError("no such width")' in shown
    assert shown.splitlines()[-1] == said.splitlines()[-1]


def test_modules_are_looked_for_beside_the_scenario_first_then_in_the_current_folder(tmp_path, monkeypatch):
    here, beside = tmp_path / "here", tmp_path / "beside"
    for folder in (here, beside):
        folder.mkdir()
        (folder / "found_first.py").write_text(f"def where():\n    return {folder.name!r}\n")
    (here / "only_here.py").write_text("def where():\n    return 'only here'\n")
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    look_beside(beside)
    assert find("found_first:where", "loss", RunError)() == "beside"
    assert find("only_here:where", "loss", RunError)() == "only here"
    # Another scenario whose module has the same name would silently get the first one's.
    look_beside(here)
    with pytest.raises(CutwaterError, match=r"found_first was imported from .*beside.* before"):
        find("found_first:where", "loss", RunError)


def test_a_module_that_can_not_be_read_is_told_with_its_line(tmp_path, monkeypatch):
    (tmp_path / "misspelt_module.py").write_text("x = 1\ndef (:\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    look_beside(tmp_path)
    with pytest.raises(RunError, match=r"SyntaxError: .*, at .*misspelt_module.py:2\)"):
        find("misspelt_module:loss", "loss", RunError)


def test_a_closed_standard_output_is_no_traceback(tmp_path):
    shell = f"{sys.executable} -m cutwater scenario train >&-"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, env=environment, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


INTERRUPTED = """
import sys
from cutwater.cli.start import main

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupts())
sys.argv = ["cutwater", "data", {scenario!r}]
main()
"""


@pytest.mark.parametrize("module", ["typer", "cutwater.cli.main", "cutwater.federate.from_scenario"])
def test_an_interrupt_while_modules_are_imported_is_no_traceback(broken, module):
    code = INTERRUPTED.format(module=module, scenario=str(broken))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
