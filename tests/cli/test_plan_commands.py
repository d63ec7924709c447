"""`cutwater plan`, `compare`, `sweep` and `whatif`, as people and programs see them."""

import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from subprocess import PIPE

import pytest

from cutwater.cli.main import main
from cutwater.plan.latency import OVERLAP, PHASES
from cutwater.plan.value import Plan
from cutwater.profile.values import Cut, Profile

LAYERS = 6
SCENARIO = """
profile = "profile.json"
[server]
compute = "300 GFLOPS"
[session]
epochs = 2
[[client]]
name = "slow"
compute = "1 GFLOPS"
rate = "20 MB/s"
samples = 3000
[[client]]
name = "fast"
compute = "50 GFLOPS"
rate = "2 MB/s"
samples = 1000
[[client]]
name = "far"
compute = "3 GFLOPS"
up = "1 MB/s"
down = "4 MB/s"
samples = 900
min_cut = 2
"""


def small_profile():
    cuts = tuple(
        Cut(
            cut=i,
            name=f"block{i}",
            stage="body",
            client_bits=40_000 * i * i,
            client_forward_flops=2e6 * i,
            client_backward_flops=4e6 * i,
            server_forward_flops=2e6 * (LAYERS - i),
            server_backward_flops=4e6 * (LAYERS - i),
            smashed_bits=60_000 // i,
            gradient_bits=60_000 // i,
            client_memory_bits=200_000 * i,
        )
        for i in range(1, LAYERS + 1)
    )
    return Profile("small", "1x8x8", 10, "exact", 2.0, 32, "sgd", cuts)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "profile.json").write_text(json.dumps(small_profile().to_json()))
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run a command on the scenario; exit code, standard output, standard error."""

    def run(command, *more, change=("", "")):
        path = folder / "scenario.toml"
        path.write_text(SCENARIO.replace(*change))
        monkeypatch.setattr(sys, "argv", ["cutwater", command, str(path), *more])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        return exit_.value.code or 0, printed.out, printed.err

    return run


def test_a_plan_as_json_has_what_programs_look_for(run):
    code, out, err = run("plan", "--json")
    data = json.loads(out)
    assert (code, err) == (0, "")
    assert data["planner"] == "exact"
    assert data["lower_bound"] <= data["latency"] <= data["lower_bound"] * (1 + 1e-9)
    assert [client["name"] for client in data["clients"]] == ["slow", "fast", "far"]
    for client in data["clients"]:
        assert set(client) == {
            *("name", "cut", "share", "mode", "latency", "phases"),
            *("schedule", "up", "down", "alone", "bytes_up", "bytes_down", "second_cut"),
        }
        assert set(client["phases"]) == {*PHASES, OVERLAP}
        assert (client["schedule"], client["phases"][OVERLAP]) == ("in turn", 0)
        assert sum(client["phases"].values()) == pytest.approx(client["latency"])
    assert sum(client["share"] for client in data["clients"]) <= 300e9 * (1 + 1e-9)


def test_a_plan_for_people_explains_itself(run):
    code, out, _ = run("plan")
    assert code == 0
    for word in ("slow", "fast", "far", "split", "no plan is faster", "What would help most"):
        assert word in out


def test_the_written_plan_is_the_printed_one(run, folder):
    path = folder / "deep" / "plan.json"
    _, out, _ = run("plan", "--json", "--out", str(path), "--planner", "alternating")
    assert Plan.from_json(json.loads(path.read_text())) == Plan.from_json(json.loads(out))


def test_options_reach_the_planner(run):
    _, out, _ = run("plan", "--planner", "splitfed", "--option", "cut=3", "--json")
    assert {client["cut"] for client in json.loads(out)["clients"]} == {3}
    _, out, _ = run("plan", "--option", "leftover=none", "--json")
    assert json.loads(out)["planner"] == "exact"
    code, _, err = run("plan", "--option", "cut")
    assert (code, err.count("\n")) == (2, 1)
    code, _, err = run("plan", "--option", "speed=9")
    assert code == 2
    assert "has no option 'speed'" in err


@pytest.mark.parametrize(
    ("planner", "option", "message"),
    [
        ("greedy", "portions=1.5", "portions is 1.5, but must be a whole number from 1 to 100,000"),
        ("greedy", "portions=null", "portions is None"),
        ("greedy", "portions=true", "portions is True"),
        ("greedy", "portions=10000000000", "portions is 10000000000"),
        ("greedy", "portions=" + "9" * 5000, "portions is '9999"),
        ("greedy", "portions=" + "[" * 100_000, "portions is '[[["),
        ("random", "seed=-1", "seed is -1, but must be a whole number from 0 to"),
        ("random", "seed=x", "seed is 'x'"),
        ("random", "seed=null", "seed is None"),
        ("alternating", "iterations=1.5", "iterations is 1.5"),
        ("alternating", "iterations=x", "iterations is 'x'"),
        ("splitfed", "cut=true", "cut is True, but must be a whole number from 1 to 5 or 'best'"),
        ("exact", "problem=1", "planner 'exact' has no option 'problem'"),
        ("exact", "planner=x", "planner 'exact' has no option 'planner'"),
        ("exact", "name=x", "planner 'exact' has no option 'name'"),
    ],
)
def test_a_senseless_option_is_one_sentence_and_exit_code_2(run, planner, option, message):
    code, out, err = run("plan", "--planner", planner, "--option", option)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_large_fleet_shows_its_slowest_clients(run):
    fleet = '[fleet]\nclients = 100\ncompute = "9 GFLOPS"\nrate = "1 MB/s"\nsamples = [1, 900]\n'
    cut = SCENARIO.index("[[client]]")
    _, out, _ = run("plan", change=(SCENARIO[cut:], fleet))
    assert "… and 60 faster clients" in out


def test_all_planners_side_by_side(run):
    code, out, _ = run("compare", "--json")
    data = json.loads(out)
    entries = {entry["planner"]: entry for entry in data["planners"]}
    assert code == 0
    assert {"exact", "alternating", "fedavg", "splitfed", "greedy", "random", "exhaustive"} <= entries.keys()
    assert data["planners"][0]["planner"] in ("exact", "exhaustive")
    assert entries["exhaustive"]["latency"] == pytest.approx(entries["exact"]["latency"])
    assert all(entry["gap"] >= 0 and entry["planning_seconds"] > 0 for entry in entries.values())
    _, table, _ = run("compare")
    assert "Above optimum" in table


def test_what_codecs_parts_and_a_round_trip_are_worth_is_below_the_planners(run):
    _, out, _ = run("compare", "--json")
    cells = json.loads(out)["worth"]
    near = {(cell["codec"], cell["micro_batches"]): cell for cell in cells if cell["rtt"] is None}
    far = {(cell["codec"], cell["micro_batches"]): cell for cell in cells if cell["rtt"] == 0.1}
    assert near.keys() == far.keys() == {("fp32", 1), ("fp32", 2), ("fp32", 4), ("fp32", 8)}
    assert all(cell["latency"] > near[key]["latency"] for key, cell in far.items())
    _, table, _ = run("compare")
    assert "\nfp32, rtt 100 ms " in table
    assert "what clients limit codecs and schedules to is left out" in table
    _, out, _ = run("compare", "--help")
    assert "round trip" in " ".join(out.split())


def test_a_planner_without_a_plan_is_named_beside_the_others(run):
    _, out, _ = run("compare", "--json", change=("min_cut = 2", "forbidden = [6]"))
    entries = {entry["planner"]: entry for entry in json.loads(out)["planners"]}
    assert "client 'far' can't use it" in entries["fedavg"]["error"]
    _, table, _ = run("compare", change=("min_cut = 2", "forbidden = [6]"))
    assert "no plan by fedavg" in table
    _, out, _ = run("compare", "--planner", "exact", "--planner", "greedy", "--json")
    assert [entry["planner"] for entry in json.loads(out)["planners"]] == ["exact", "greedy"]


FREE = dict.fromkeys((f.name for f in fields(Cut) if f.name.endswith(("bits", "flops"))), 0)


@pytest.mark.parametrize("command", ["plan", "compare", "whatif"])
@pytest.mark.parametrize("sent", [0, 60_000])
def test_a_model_that_costs_nothing_is_no_crash(run, folder, command, sent):
    profile = small_profile()
    cuts = tuple(replace(cut, **FREE | {"smashed_bits": sent}) for cut in profile.cuts)
    (folder / "profile.json").write_text(json.dumps(replace(profile, cuts=cuts).to_json()))
    for arguments in ((), ("--json",)):
        code, out, err = run(command, *arguments)
        assert (code, err.strip()) == (0, "")
    data = json.loads(out)
    assert [*data.get("planners", ()), data][0]["latency"] == 0


@pytest.mark.parametrize(
    ("option", "value", "count"),
    [("--server", "1 GFLOPS:9 TFLOPS", 7), ("--rate", "0.1 MB/s:50 MB/s", 7), ("--clients", "1:3", 3)],
)
def test_sweeps_over_server_rate_and_clients(run, folder, option, value, count):
    figure = folder / "sweep.svg"
    code, out, _ = run("sweep", option, value, "--points", "7", "--json", "--plot", str(figure))
    data = json.loads(out)
    assert (code, data["swept"], len(data["points"])) == (0, option[2:], count)
    latencies = [round(point["latency"]["exact"], 6) for point in data["points"]]
    assert latencies == sorted(latencies, reverse=option != "--clients")
    assert all(
        point["latency"]["exact"] <= point["latency"]["fedavg"] * (1 + 1e-9) for point in data["points"]
    )
    assert "Round latency" in figure.read_text()
    _, table, _ = run("sweep", option, value, "--points", "7", "--log", "--planner", "exact")
    assert "exact" in table


def test_a_generated_fleet_is_drawn_anew_for_every_number(run):
    fleet = '[fleet]\nclients = 3\ncompute = "9 GFLOPS"\nrate = "1 MB/s"\nsamples = [1, 900]\n'
    cut = SCENARIO.index("[[client]]")
    code, out, _ = run(
        "sweep", "--clients", "1:200", "--points", "3", "--json", change=(SCENARIO[cut:], fleet)
    )
    assert code == 0
    assert [point["value"] for point in json.loads(out)["points"]] == [1, 100, 200]


def test_where_a_planner_has_no_plan_its_line_has_a_gap(run, folder):
    figure = folder / "sweep.png"
    arguments = ("--server", "1 GFLOPS:2 GFLOPS", "--points", "2", "--plot", str(figure))
    code, out, _ = run("sweep", *arguments, "--json", change=("min_cut = 2", "forbidden = [6]"))
    assert code == 0
    assert json.loads(out)["points"][0]["latency"]["fedavg"] is None
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "0 things are given to sweep"),
        (("--server", "1 GFLOPS:2 GFLOPS", "--clients", "1:2"), "2 things are given to sweep"),
        (("--server", "1 GFLOPS"), "--server is '1 GFLOPS', but must be a range \"LOW:HIGH\""),
        (("--server", "2 GFLOPS:1 GFLOPS"), "low end must be below"),
        (("--server", "1:2"), "must be a number with a unit"),
        (("--clients", "0:5"), "at least 1"),
        (("--clients", "1:²"), "--clients is '²', but must be a whole number of at least 1"),
        (("--clients", "1:--5"), "--clients is '--5'"),
        (("--clients", "1:٣"), "--clients is '٣'"),
        (("--clients", f"1:{'9' * 5000}"), "and below 2**63"),
        (("--clients", "1:9"), "lists 3 clients, not 9"),
        (("--rate", "1 MB/s:2 MB/s", "--plot", "x.gif"), "a figure can't be written as 'x.gif'"),
        (("--rate", "1 MB/s:2 MB/s", "--planner", "best"), "there is no planner 'best'"),
    ],
)
def test_a_senseless_sweep_is_refused(run, arguments, message):
    code, out, err = run("sweep", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_what_more_of_everything_is_worth(run):
    code, out, _ = run("whatif", "--json")
    data = json.loads(out)
    assert code == 0
    assert len(data["changes"]) + data["others"] == 1 + 2 * 3
    assert data["changes"][0]["saved"] > 0
    code, out, _ = run("whatif", "--compute", "2 GFLOPS", "--rate", "8 Mbit/s", "--top", "1")
    assert code == 0
    assert "each is planned anew; none of 6 other changes saves more than" in out


def test_a_change_of_ones_own_is_planned_anew_and_priced(run):
    text = "clients with rate < 2.5 MB/s: rate = 2.5 MB/s; server compute x2"
    prices = ("[session]", '[prices]\ncompute = "0.1 EUR / GFLOPS / h"\nlink = "1 EUR / MB/s / h"\n[session]')
    code, out, _ = run("whatif", "--json", "--change", text, "--change", "slow removed", change=prices)
    asked = {each["change"]: each for each in json.loads(out)["asked"]}
    assert code == 0
    # 300 GFLOPS more; "fast" gets 0.5 MB/s both ways, and "far" 1.5 MB/s up and as much less down.
    assert asked[text]["cost"] == pytest.approx(30 + 0.5)
    assert asked[text]["saved_per_money"] == pytest.approx(asked[text]["saved"] / 30.5)
    assert asked["slow removed"]["saved"] > 0
    code, out, _ = run("whatif", change=prices)
    assert "The most for the money, of all: +1 " in out


def test_the_most_for_the_money_is_told_of_all_changes_and_ranked_by(run):
    prices = ("[session]", '[prices]\ncompute = "1e-9 EUR / GFLOPS"\nlink = "1 EUR / MB/s"\n[session]')
    for top in ("1", "7"):
        code, out, _ = run("whatif", "--top", top, change=prices)
        assert code == 0
        assert "The most for the money, of all: +1 GFLOPS at the server" in out
    code, out, _ = run("whatif", "--top", "1", "--by", "money", "--json", change=prices)
    data = json.loads(out)
    assert data["changes"] == [data["most_for_money"]]
    assert data["most_for_money"]["kind"] == "server compute"
    assert data["others"] == 3  # links; devices have no price
    code, out, _ = run("whatif", "--top", "1", "--by", "money", change=prices)
    assert "none of 3 other changes that cost money saves more than" in out
    for by, message in (("money", "nothing costs any: add [prices]"), ("euros", "--by is 'euros'")):
        code, out, err = run("whatif", "--by", by)
        assert (code, out) == (2, "")
        assert message in err


def test_more_clients_on_a_shared_line_than_are_ranked_still_get_an_answer(run):
    fleet = """[fleet]
clients = 60
compute = ["1 GFLOPS", "9 GFLOPS"]
rate = "2 MB/s"
samples = 300
[uplink]
capacity = "20 MB/s"
"""
    text = SCENARIO[: SCENARIO.index("[[client]]")] + fleet
    code, out, _ = run("whatif", "--change", "uplink capacity x2", change=(SCENARIO, text))
    assert code == 0
    assert "uplink capacity x2" in out
    assert "of 60 clients that share links, single changes are not ranked" in out
    code, out, err = run("whatif", change=(SCENARIO, text))
    assert (code, out) == (2, "")
    assert "ask for changes of your own, such as 'uplink capacity x2'" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rates up", "the change 'rates up' can't be read: write 'all rates x1.2'"),
        ("c9 rate x2", "the fleet has no client 'c9'"),
        ("far..slow removed", "the range 'far..slow' ends before it begins"),
        ("all removed", "leaves no clients"),
        ("all rates x-1", "must be by a number above 0"),
        ("all rates - 90 GB/s", "leaves nothing, or less, of what there is"),
        ("all samples = 1.5", "the amount of the change 'all samples = 1.5' is '1.5'"),
        ("uplink capacity x2", "of a link that is not shared: add [uplink]"),
        ("clients with rate < 2 MB/s and fast: rate x2", "the condition 'fast' of 'clients with"),
        ("all rates = 3", "must be a number with a unit such as '4 MB/s'"),
        ("micro_batches = 64", "micro_batches is 64, but the mini-batches"),
        ("all wire int7", "the codec of the wire is 'int7'"),
    ],
)
def test_a_change_that_can_not_be_made_is_one_sentence(run, text, message):
    code, out, err = run("whatif", "--change", text)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


BAD = [
    ('"1 GFLOPS"', '"0 GFLOPS"', "client 'slow' compute is '0 GFLOPS'"),
    ('"1 GFLOPS"', '"-1 GFLOPS"', "client 'slow' compute is '-1 GFLOPS'"),
    ('"1 GFLOPS"', '"nan GFLOPS"', "client 'slow' compute is 'nan GFLOPS'"),
    ('"1 GFLOPS"', "1", "client 'slow' compute is 1"),
    ('"20 MB/s"', '"0 MB/s"', "client 'slow' rate is '0 MB/s'"),
    ("samples = 3000", "samples = 0", "client 'slow' samples is 0"),
    ("samples = 3000", "samples = nan", "client 'slow' samples is nan"),
    ("samples = 3000\n", "", "client 'slow' lacks samples"),
    ('name = "fast"', 'name = "slow"', "client 'slow' appears more than once"),
    ("min_cut = 2", "min_cut = 7", "client 'far' has min_cut 7, but 'small' has only 6 layers"),
    ("min_cut = 2", 'memory = "1 kB"', "client 'far' has memory 1 kB"),
    ("[session]", "[sessoin]", "unknown key 'sessoin': did you mean 'session'"),
    ('"300 GFLOPS"', '"-300 GFLOPS"', "[server] compute is '-300 GFLOPS'"),
    ("epochs = 2", "epochs = 0", "epochs is 0"),
]


@pytest.mark.parametrize("command", ["plan", "compare", "whatif"])
@pytest.mark.parametrize(("old", "new", "message"), BAD)
def test_bad_input_is_one_sentence_and_exit_code_2(run, command, old, new, message):
    code, out, err = run(command, change=(old, new))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_server_without_compute_beside_a_client_that_needs_it(run, folder):
    broken = SCENARIO.replace('"300 GFLOPS"', '"0 GFLOPS"').replace("min_cut = 2", 'memory = "60 kB"')
    code, out, err = run("plan", change=(SCENARIO, broken))
    assert (code, out) == (2, "")
    assert "client 'far' can't train the whole model in its 60 kB of memory" in err
    code, _, _ = run("plan", change=('"300 GFLOPS"', '"0 GFLOPS"'))
    assert code == 0


def test_a_missing_file_and_an_unknown_planner_are_named(run, folder):
    code, _, err = run("plan", "--planner", "exat")
    assert (code, "did you mean 'exact'" in err) == (2, True)
    (folder / "profile.json").unlink()
    code, _, err = run("plan")
    assert (code, "profile.json can't be read" in err) == (2, True)


@pytest.mark.parametrize("command", ["plan", "compare", "sweep", "whatif"])
def test_help_shows_an_example(monkeypatch, capsys, command):
    monkeypatch.setattr(sys, "argv", ["cutwater", command, "--help"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 0
    assert f"Example: cutwater {command} examples/paper-ten.toml" in capsys.readouterr().out


def test_planning_from_a_saved_profile_never_imports_torch(folder):
    code = (
        "import sys; from cutwater.cli.main import main\n"
        f"sys.argv = ['cutwater', 'plan', {str(folder / 'scenario.toml')!r}, '--json']\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["planner"] == "exact"


def test_the_library_plans_in_a_few_lines(folder):
    code = (
        "import cutwater, sys\n"
        f"plan = cutwater.solve(cutwater.load_scenario({str(folder / 'scenario.toml')!r}).problem())\n"
        "assert plan.gap <= 1e-9 and 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


COMMAND = [sys.executable, "-m", "cutwater"]


def cutwater(*arguments, **options):
    """The command as a process of its own, since a console's width and letters are its process's."""
    return subprocess.run([*COMMAND, *arguments], text=True, check=False, **options)


def test_a_narrow_terminal_cuts_no_number_short(folder):
    wide, narrow = (
        cutwater(
            "plan", str(folder / "scenario.toml"), env={**os.environ, "COLUMNS": str(columns)}, stdout=PIPE
        )
        for columns in (200, 40)
    )
    assert "Latency" in wide.stdout
    assert narrow.stdout == wide.stdout


def test_a_name_is_shown_as_it_is_and_not_as_a_picture(run):
    code, out, _ = run("plan", change=('name = "far"', 'name = "fe80::a:b:1"'))
    assert code == 0
    assert "fe80::a:b:1" in out


def test_a_terminal_without_the_letters_still_shows_the_rest(folder):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = cutwater("whatif", str(folder / "scenario.toml"), env=environment, capture_output=True)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "slow" in done.stdout


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_who_has_seen_enough_is_no_error(folder, more):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        done = cutwater("plan", str(folder / "scenario.toml"), *more, stdout=nobody, stderr=PIPE)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_output_that_finds_no_room_is_one_sentence(folder, more, unbuffered):
    """Python itself tries once more, at its end, what is left in a buffer."""
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = cutwater("plan", str(folder / "scenario.toml"), *more, stdout=full, stderr=PIPE, env=env)
    assert done.returncode == 2
    assert done.stderr == (
        "cutwater: nothing more can be written: there is no space left; make room and run it again\n"
    )


def test_a_plan_is_written_as_its_name_says_and_tells_the_knee(run, folder):
    code, out, _ = run("plan", "--out", str(folder / "plan.csv"), "--all")
    assert code == 0
    assert "The knee: a server of" in out
    lines = (folder / "plan.csv").read_text().splitlines()
    assert lines[0].startswith("name,cut,second_cut,share_flops,mode")
    assert [line.split(",")[0] for line in lines[1:]] == ["slow", "fast", "far"]
    data = json.loads(run("plan", "--json")[1])
    assert data["knee"]["floor"] < data["knee"]["latency"] < data["knee"]["without"]
    swept = json.loads(run("sweep", "--server", "100 GFLOPS:900 GFLOPS", "--points", "2", "--json")[1])
    assert swept["knee"] == data["knee"]


def test_the_smallest_server_for_a_round(run):
    target = json.loads(run("plan", "--json")[1])["latency"] * 1.1
    data = json.loads(run("size", "--round", f"{target!r} s", "--json")[1])
    assert data["cheapest"] is None
    compute = data["server"]["compute"]
    for part, meets in ((1, True), (0.999, False)):
        change = ('"300 GFLOPS"', f'"{compute * part!r} FLOPS"')
        found = json.loads(run("plan", "--json", change=change)[1])["latency"]
        assert (found <= target * (1 + 1e-9)) == meets
    prices = ("[session]", '[prices]\ncompute = "1 EUR / GFLOPS / h"\nlink = "1 EUR / MB/s / h"\n[session]')
    code, out, _ = run("size", "--round", f"{target!r} s", change=prices)
    assert code == 0
    assert "The cheapest mix costs" in out
    code, out, err = run("size", "--round", "1 ms")
    assert (code, out) == (2, "")
    assert "no server makes a round take 1 ms: " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("mark", "mine"), [("", ","), ("\ufeff", ";"), ("\ufeff\n", "\t"), ("", "\t")])
def test_a_fleet_is_read_from_csv_with_any_separator(run, folder, mark, mine):
    rows = (("name", "compute", "rate", "samples"), ("a", "1 GFLOPS", "2 MB/s", "300"))
    (folder / "fleet.csv").write_text(mark + "\n".join(mine.join(row) for row in rows), encoding="utf-8")
    clients = SCENARIO[SCENARIO.index("[[client]]") :]
    code, out, err = run("plan", "--json", change=(clients, ""))
    assert (code, "clients" in err) == (2, True)
    listed = ('profile = "profile.json"', 'profile = "profile.json"\nclients = "fleet.csv"')
    text = SCENARIO.replace(*listed).replace(clients, "")
    (folder / "scenario.toml").write_text(text)
    code, out, err = run("plan", "--json", change=(SCENARIO, text))
    assert (code, err) == (0, "")
    assert [client["name"] for client in json.loads(out)["clients"]] == ["a"]
