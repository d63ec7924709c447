"""`make chaos`: its scenarios name tests that there are, and its verdicts say what was seen."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SCRIPT = TESTS.parent / "scripts" / "chaos.py"
CHAOS = runpy.run_path(str(SCRIPT))
SCENARIOS = CHAOS["scenarios"]()
Case, Scenario = CHAOS["Case"], CHAOS["Scenario"]
TWO = Scenario("two tests", ("a/test_a.py::test_one", "a/test_b.py"))


def test_there_are_thirty_scenarios():
    assert list(SCENARIOS) == list(range(1, 31))


@pytest.mark.parametrize("test", sorted({test for each in SCENARIOS.values() for test in each.tests}))
def test_a_scenario_names_a_test_that_there_is(test):
    file, _, name = test.partition("::")
    tree = ast.parse((TESTS / file).read_text())
    assert not name or name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_whatever_is_marked_chaos_belongs_to_a_scenario():
    """No other target runs it."""
    named = {test for each in SCENARIOS.values() for test in each.tests}
    for path in TESTS.rglob("test_*.py"):
        file, tree = path.relative_to(TESTS).as_posix(), ast.parse(path.read_text())
        marked = [node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_marked(node)]
        if "pytestmark" in path.read_text() and "mark.chaos" in _pytestmark(tree):
            marked = [
                node.name
                for node in tree.body
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            ]
        for name in marked:
            assert named & {file, f"{file}::{name}"}, f"{file}::{name} is run by no target"


def _is_marked(node):
    return any("mark.chaos" in ast.unparse(each) for each in node.decorator_list)


def _pytestmark(tree):
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    return "".join(ast.unparse(node) for node in assigned if ast.unparse(node.targets[0]) == "pytestmark")


def case(test, passed=True, skipped="", figures=()):
    return Case(test, passed, skipped, 1.0, tuple(figures))


ONE, B1, B2 = "a/test_a.py::test_one", "a/test_b.py::test_x", "a/test_b.py::test_y"


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ([case(ONE), case(B1), case(B2)], "held"),
        ([case(ONE), case(B1), case(B2, passed=False)], "DID NOT HOLD"),
        ([case(ONE), case(B1, passed=False, skipped="no rights")], "SKIPPED (no rights)"),
        ([case(ONE, passed=False), case(B1, passed=False, skipped="no rights")], "DID NOT HOLD"),
        ([case(ONE)], "DID NOT HOLD"),
        ([], "DID NOT HOLD"),
        ([case("a/test_a.py::test_one_more"), case(B1)], "DID NOT HOLD"),
    ],
)
def test_a_scenario_holds_if_each_of_its_tests_was_run_and_passed(cases, verdict):
    assert CHAOS["row"](3, TWO, cases).verdict == verdict


def test_figures_are_added_up_or_the_largest_is_shown():
    cases = [
        case(ONE, figures=[("kills", "20"), ("known after s", "4.25")]),
        case(B1, figures=[("kills", "1030"), ("known after s", "4.1"), ("by", "veth")]),
    ]
    assert CHAOS["row"](3, TWO, cases).figures == "kills 1,050; known after s 4.25; by veth"


def test_where_cases_are_the_figure_those_that_passed_are_counted():
    scenario = TWO._replace(cases="cuts")
    cases = [case(ONE), case(B1), case(B2, passed=False, skipped="no rights")]
    assert CHAOS["row"](3, scenario, cases).figures == "cuts 2"


def test_every_scenario_has_a_figure():
    recording = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py") if _records(path)}
    for number, scenario in SCENARIOS.items():
        files = {test.partition("::")[0] for test in scenario.tests}
        assert scenario.cases or files & recording, f"scenario {number} has no figure"


def _records(path):
    return "record_property(" in path.read_text()


def test_a_report_of_pytest_is_read_with_its_seed_figures_and_skips(tmp_path):
    """A real run: the seed reaches schedules and hypothesis, and a skipped test is told as skipped."""
    (tmp_path / "tests" / "a").mkdir(parents=True)
    (tmp_path / "tests" / "a" / "test_a.py").write_text(
        "import os, pytest\n"
        "def test_one(record_property): record_property('seed', os.environ['CUTWATER_SEED'])\n"
        "def test_two(): pytest.skip('not here')\n"
        "@pytest.mark.parametrize('k', [1, 2])\n"
        "def test_three(k): assert k == 1\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = chaos\n")
    code = (
        "import runpy, sys\n"
        f"chaos = runpy.run_path({str(SCRIPT)!r})\n"
        f"chaos['run'].__globals__['ROOT'] = __import__('pathlib').Path({str(tmp_path)!r})\n"
        "for each in chaos['run']([chaos['Scenario']('x', ('a/test_a.py',))], 42): print('case', *each[:3])\n"
        "print(chaos['told'](chaos['run']([chaos['Scenario']('x', ('a/test_a.py',))], 42)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seen = [line for line in done.stdout.splitlines() if line.startswith("case ")]
    assert sorted(seen) == [
        "case a/test_a.py::test_one True ",
        "case a/test_a.py::test_three False ",
        "case a/test_a.py::test_three True ",
        "case a/test_a.py::test_two False not here",
    ]
    assert done.stdout.splitlines()[-1] == "seed 42"


def test_tests_of_a_file_run_in_its_order():
    """The last of a file's may end what all before it use."""
    tests = SCENARIOS[2].tests
    assert list(tests) != sorted(tests), "or names alone would tell"
    assert sorted(set(tests), key=CHAOS["_place"]) == list(tests), "as they are listed"
