"""The server as it is started by the command: right answers for its own page, none for anybody else."""

import http.client
import json
import re
import shutil
import socket

import numpy as np
import pytest
from running import SCENARIO, start
from typer.testing import CliRunner

from cutwater.cli.main import app
from cutwater.plan.latency import PHASES
from cutwater.web.guard import LARGEST_BODY

JSON = {"Content-Type": "application/json"}


def decode(answer: bytes) -> dict:
    """The plan as the page decodes it."""
    end = answer.index(b"\n") + 1
    head = json.loads(answer[:end])
    columns = np.frombuffer(answer[end:], "<f8").reshape(len(head["columns"]), head["count"])
    return head | dict(zip(head["columns"], columns, strict=True))


def opened(server) -> dict:
    return json.loads(server.get("/api/start")[2])["scenario"]


def test_the_page_opens_with_the_scenario_it_was_given(server, scenario_file):
    start = json.loads(server.get("/api/start")[2])
    assert start["scenario"]["server"] == "20 GFLOPS"
    assert start["scenario"]["sections"]["train"]["rounds"] == 3
    assert start["phases"] == list(PHASES)
    for path in (
        "/",
        "/runs",
        "/view",
        *(f"/assets/{name}" for name in ("core.js", "phases.css", "planner.js")),
    ):
        status, _, body = server.get(path)
        assert status == 200, path
        assert body
        assert not re.search(rb"(src|href)=[\"'](https?:)?//", body), path


@pytest.mark.parametrize("planner", ["exact", "alternating", "fedavg", "greedy"])
def test_a_plan_is_bit_for_bit_what_the_command_gives(server, scenario_file, planner):
    status, _, answer = server.post("/api/plan", opened(server) | {"planner": planner})
    assert status == 200
    shown = decode(answer)
    done = CliRunner().invoke(app, ["plan", str(scenario_file), "--planner", planner, "--json"])
    told = json.loads(done.output)
    for key in ("latency", "layers", "server_compute"):
        assert shown[key] == told[key]
    assert shown["gap"] == told["latency"] / told["lower_bound"] - 1
    assert shown["speed_up"] == shown["fedavg"] / told["latency"]
    slowest = [client["latency"] > told["latency"] * (1 - 1e-6) for client in told["clients"]]
    assert shown["last"].tolist() == slowest
    assert shown["cut"].tolist() == [client["cut"] for client in told["clients"]]
    assert shown["share"].tolist() == [client["share"] for client in told["clients"]]
    for phase in PHASES:
        assert shown[phase].tolist() == [client["phases"][phase] for client in told["clients"]]


def test_details_hold_the_curve_the_knee_and_every_planner(server):
    body = {"scenario": opened(server), "range": [1e8, 1e12]}
    details = json.loads(server.post("/api/details", body)[2])
    assert details["curve"]["latency"] == sorted(details["curve"]["latency"], reverse=True)
    assert 1e8 < details["knee"]["compute"] < 1e12
    rows = {row["planner"]: row for row in details["planners"]}
    assert rows["exact"]["gap"] < 1e-9
    assert rows["fedavg"]["latency"] >= rows["exact"]["latency"]
    assert len(details["layer_names"]) == 6


def test_ten_thousand_clients_are_planned_and_a_hundred_thousand_and_one_refused(server):
    draw = {"compute": ["1 GFLOPS", "9 GFLOPS"], "rate": "1 MB/s", "samples": [50, 90], "seed": 1}
    body = opened(server) | {"fleet": {"draw": draw | {"clients": 10_000}}}
    shown = decode(server.post("/api/plan", body)[2])
    assert len(shown["cut"]) == 10_000
    assert shown["share"].sum() <= 20e9 * (1 + 1e-9)
    body["fleet"] = {"draw": draw | {"clients": 100_001}}
    status, _, answer = server.post("/api/plan", body)
    assert status == 422
    assert "100,000 at most" in json.loads(answer)["error"]


@pytest.mark.parametrize("kind", ["scenario.toml", "plan.json", "plan.csv", "fleet.csv"])
def test_every_export_downloads(server, kind):
    status, _, body = server.post(f"/api/export/{kind}", opened(server))
    assert status == 200
    assert b"c1" in body


def test_every_answer_forbids_what_is_not_its_own(server):
    for method, path in (("GET", "/"), ("GET", "/nothing"), ("GET", "/api/start"), ("POST", "/api/plan")):
        _, headers, _ = server.ask(method, path)
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8710", "localhost.evil.example", "", "[::1", "127.0.0.1.evil"]
)
def test_a_foreign_name_that_leads_here_gets_nothing(server, host):
    status, _, body = server.get("/api/start", Host=host)
    assert status in (400, 421)
    assert b"scenario" not in body


@pytest.mark.parametrize("host", ["localhost", "localhost:99", "127.0.0.1", "[::1]:80", socket.gethostname()])
def test_names_and_addresses_of_this_machine_are_served(server, host):
    assert server.get("/api/start", Host=host)[0] == 200


def test_another_sites_page_can_not_ask(server):
    body = json.dumps(opened(server)).encode()
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        assert server.ask("POST", "/api/plan", body, JSON | {"Origin": origin})[0] == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert server.ask("POST", "/api/plan", body, {"Content-Type": kind})[0] == 415
    own = f"http://127.0.0.1:{server.port}"
    assert server.ask("POST", "/api/plan", body, JSON | {"Origin": own})[0] == 200
    assert server.get("/api/plan")[0] == 405


def test_a_body_beyond_the_limit_is_refused_announced_or_not(server):
    announced = JSON | {"Content-Length": str(LARGEST_BODY + 1)}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest("POST", "/api/fleet")
    for key, value in announced.items():
        connection.putheader(key, value)
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    pieces = (b"x" * 2**20 for _ in range(LARGEST_BODY // 2**20 + 2))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("POST", "/api/fleet", pieces, JSON, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has hung up in the middle, which is as good
    finally:
        connection.close()
    assert server.get("/api/start")[0] == 200


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"\xff", b"null", b"[]", b'"a"', b"NaN", b"9" * 5000]
)
def test_nonsense_is_answered_with_a_sentence(server, body):
    for path in ("plan", "details", "fleet", "scenario", "export/plan.json"):
        status, _, answer = server.ask("POST", f"/api/{path}", body, JSON)
        assert status == 422, (path, answer)
        assert json.loads(answer)["error"]


def test_half_a_character_is_refused_where_it_comes_in(server):
    csv = "name,compute,rate,samples\n\ud800,1 GFLOPS,1 MB/s,3\n"
    body = opened(server) | {"fleet": {"csv": csv}}
    for path in ("plan", "export/scenario.toml", "export/plan.csv", "export/fleet.csv"):
        status, _, answer = server.post(f"/api/{path}", body)
        assert (status, "half of a character" in json.loads(answer)["error"]) == (422, True)
    assert server.post("/api/fleet", {"csv": csv})[0] == 422
    for sections in ({"train": {"lr": "\ud800"}}, {"train": {"\ud800": 1}}):
        assert server.post("/api/export/scenario.toml", opened(server) | {"sections": sections})[0] == 422


def test_what_is_nested_too_deeply_for_an_answer_is_told_so(server):
    body = json.dumps(opened(server) | {"sections": {"train": {"lr": "NESTED"}}})
    for depth in (300, 600, 900, 950):
        nested = "[" * depth + "]" * depth
        asked = body.replace('"NESTED"', nested).encode()
        assert server.ask("POST", "/api/export/scenario.toml", asked, JSON)[0] in (200, 422)
        toml = SCENARIO.replace("lr = 0.05", f"lr = {nested}")
        assert server.post("/api/scenario", {"toml": toml})[0] in (200, 422)


def test_a_request_can_not_name_code_or_files(server, tmp_path):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for name in ("evil:model", f"{tmp_path}/evil.py:model", "os:abort", "cutwater.cli.main:main"):
        status, _, answer = server.post("/api/plan", opened(server) | {"model": {"name": name}})
        assert (status, "may run" in json.loads(answer)["error"]) == (422, True)
    body = opened(server)
    del body["model"]
    for path in ("/etc/passwd", "../scenario.toml", str(server.folder / "sfl" / "profile.json")):
        assert server.post("/api/plan", body | {"profile": path})[0] == 422
        assert server.post("/api/scenario", {"toml": f'profile = "{path}"\n'})[0] == 422
        assert server.post("/api/scenario", {"toml": f'clients = "{path}"\n'})[0] == 422
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../state.py",
        "/assets/%2e%2e/state.py",
        "/assets/paper-ten.toml",
        "/api/report?run=../scenario",
        "/api/report?run=/etc",
        "/api/report?run=sfl/../..",
        "/api/report?run=%2e%2e",
        "/api/report?run=sfl%00",
        "/api/report?run=linked",
        "/api/report?run=nothing",
        "/api/report",
    ],
)
def test_nothing_outside_of_the_given_folder_is_read(server, path, tmp_path):
    outside = shutil.copytree(server.folder / "sfl", tmp_path / "outside")
    (server.folder / "linked").unlink(missing_ok=True)
    (server.folder / "linked").symlink_to(outside)
    try:
        status, _, body = server.get(path)
        assert status in (404, 422)
        assert json.loads(body)["error"]
        assert "linked" not in [run["name"] for run in json.loads(server.get("/api/runs")[2])["runs"]]
    finally:
        (server.folder / "linked").unlink(missing_ok=True)


def test_runs_are_listed_and_reported_and_unchanged_ones_cost_nothing(server):
    found = json.loads(server.get("/api/runs")[2])
    assert {run["name"] for run in found["runs"]} == {"sfl", "study/fedavg"}
    assert all(run["rounds"] == 3 and run["accuracy"] > 0 for run in found["runs"])
    _, headers, body = server.get("/api/report?run=sfl&run=study/fedavg")
    runs = json.loads(body)["runs"]
    assert [run["name"] for run in runs] == ["sfl", "study/fedavg"]
    assert [line["weights_sha256"] for line in runs[0]["lines"]] == [
        line["weights_sha256"] for line in runs[1]["lines"]
    ]
    assert server.get("/api/report?run=sfl&run=study/fedavg", If_None_Match=headers["etag"])[0] == 304


def test_a_given_host_needs_the_token_everywhere_and_the_link_brings_it(tmp_path):
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(SCENARIO)
    for server in start(tmp_path, str(scenario), "--host", "127.0.0.1"):
        token = re.search(r"token=(\S+)", server.url)[1]
        assert len(token) >= 32
        for path in ("/", "/api/start", "/assets/core.js"):
            assert server.get(path)[0] == 401
            assert server.get(path, Cookie="cutwater-token=wrong")[0] == 401
        assert server.get("/?token=wrong")[0] == 401
        assert server.post("/api/fleet", {})[0] == 401
        status, headers, _ = server.get(f"/?token={token}")
        assert (status, headers["location"]) == (303, "/")
        cookie = headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert server.get("/api/start", Cookie=cookie.partition(";")[0])[0] == 200
        assert server.get("/api/start", Authorization=f"Bearer {token}")[0] == 200
        assert server.get("/api/start", Authorization=f"Bearer {token}", Host="evil.example")[0] == 421


def test_without_a_host_the_server_listens_on_loopback_alone(server):
    assert server.url.startswith("http://127.0.0.1:")
    addresses = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((address, server.port), timeout=5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.toml"], "nowhere.toml can't be read"),
        (["--runs", "nowhere"], "nowhere is no folder"),
        (["--profiles", "nowhere"], "nowhere is no folder"),
        (["--host", "256.1.1.1"], "can't listen on 256.1.1.1"),
        (["--host", "a..b"], "can't listen on a..b"),
    ],
)
def test_a_mistake_at_the_start_is_one_sentence(arguments, sentence):
    done = CliRunner().invoke(app, ["web", *arguments])
    assert sentence in str(done.exception)
