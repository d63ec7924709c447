"""The server's pages and answers. It keeps only caches: a page sends all it wants with every request."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from cutwater.base.errors import CutwaterError, ScenarioError
from cutwater.codec.registry import in_words
from cutwater.plan.fleet import SCHEDULES
from cutwater.plan.jobs import OBJECTIVES
from cutwater.plan.latency import PHASES
from cutwater.report.html import SCRIPTS, STYLES, asset, fill
from cutwater.report.run_report import list_entry, report_data
from cutwater.runs.confined import Folder, find_runs
from cutwater.runs.reader import stamp
from cutwater.web.answers import details_answer, plan_answer, plan_csv, plan_json, size_answer
from cutwater.web.catalogue import GIVEN, ZOO, Catalogue
from cutwater.web.files import export_jobs, export_toml, from_toml
from cutwater.web.fleet_text import MOST_CLIENTS, scaled, to_csv
from cutwater.web.guard import Guard
from cutwater.web.jobs import jobs_answer, read_jobs_asked
from cutwater.web.state import PLANNERS, Asked, read_asked, read_clients

_OWN = (
    "planner.css",
    *("wire.js", "cells.js", "chosen.js", "fleet.js", "step.js", "view.js", "controls.js", "crossing.js"),
    *("dialogs.js", "size.js", "jobs.js", "planner.js", "runs.js"),
)
_SHARED = ("phases.css", *STYLES, *SCRIPTS)
_KINDS = {"css": "text/css", "js": "text/javascript"}
MOST_COMPARED = 6


@dataclass(frozen=True)
class Site:
    """What one server offers."""

    start: dict[str, Any]
    """The scenario that the page opens with."""
    catalogue: Catalogue = field(default_factory=Catalogue)
    runs: Folder | None = None

    def app(self, host: str = "127.0.0.1", token: str | None = None) -> Guard:
        """The server, guarded."""
        posts = (
            ("plan", self._plan),
            ("details", self._details),
            ("size", self._size),
            ("jobs", self._jobs),
            ("fleet", self._fleet),
            ("scenario", self._scenario),
        )
        routes = [
            Route("/", lambda _: _page("planner.html")),
            Route("/runs", lambda _: _page("runs.html")),
            Route("/view", lambda _: _view()),
            Route("/assets/{name}", _asset),
            Route("/api/start", self._start),
            Route("/api/runs", self._runs),
            Route("/api/report", self._report),
            *(Route(f"/api/{name}", _posted(answer), methods=["POST"]) for name, answer in posts),
            Route("/api/export/{kind}", _posted(self._export), methods=["POST"]),
        ]
        handlers: dict[Any, Any] = dict.fromkeys((CutwaterError, HTTPException), _refused)
        return Guard(Starlette(routes=routes, exception_handlers=handlers), host, token)

    def _start(self, _request: Request) -> Response:
        given = self.catalogue.given
        label = (given or {}).get("model", {}).get("name") or (given or {}).get("profile", "")
        return JSONResponse(
            {
                "scenario": self.start,
                "models": ZOO,
                "profiles": self.catalogue.profiles(),
                "given": {"key": GIVEN, "label": label} if given else None,
                "planners": PLANNERS,
                "phases": PHASES,
                "schedules": SCHEDULES,
                "objectives": OBJECTIVES,
                "codecs": [{"name": name, "text": in_words(name)} for name in self.catalogue.codecs],
                "most_clients": MOST_CLIENTS,
                "runs": self.runs is not None,
                "version": version("cutwater"),
            }
        )

    def _ask(self, body: Any) -> Asked:
        return read_asked(body, self.catalogue)

    def _plan(self, body: Any, _request: Request) -> Response:
        return Response(plan_answer(self._ask(body)), media_type="application/octet-stream")

    def _details(self, body: Any, _request: Request) -> Response:
        table = body if isinstance(body, dict) else {}
        ends = table.get("range")
        if not (isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)):
            raise ScenarioError(f"the range of the curve is {ends!r}, but must be two numbers in FLOPS")
        return JSONResponse(details_answer(self._ask(table.get("scenario")), *map(float, ends)))

    def _size(self, body: Any, _request: Request) -> Response:
        table = body if isinstance(body, dict) else {}
        return JSONResponse(size_answer(self._ask(table.get("scenario")), table.get("round")))

    def _jobs(self, body: Any, _request: Request) -> Response:
        return JSONResponse(jobs_answer(read_jobs_asked(body, self.catalogue)))

    def _fleet(self, body: Any, _request: Request) -> Response:
        table = dict(body) if isinstance(body, dict) else body
        change = table.pop("scale", None) if isinstance(table, dict) else None
        fleet = read_clients(table)
        if change is not None:
            fleet = scaled(fleet, change)
        return JSONResponse({"count": len(fleet), "csv": to_csv(fleet)})

    def _scenario(self, body: Any, _request: Request) -> Response:
        content = body.get("toml") if isinstance(body, dict) else None
        if not isinstance(content, str):
            raise ScenarioError('the request has no scenario: send it as text, {"toml": …}')
        return JSONResponse(from_toml(content, self.catalogue))

    def _export(self, body: Any, request: Request) -> Response:
        kind = request.path_params["kind"]
        if kind == "jobs.toml":
            return PlainTextResponse(export_jobs(read_jobs_asked(body, self.catalogue), self.catalogue))
        asked = self._ask(body)
        if kind == "scenario.toml":
            return PlainTextResponse(export_toml(asked, self.catalogue))
        if kind == "plan.json":
            return PlainTextResponse(plan_json(asked))
        if kind == "plan.csv":
            return PlainTextResponse(plan_csv(asked))
        if kind == "fleet.csv":
            return PlainTextResponse(to_csv(asked.problem.fleet))
        raise HTTPException(404, f"there is no export {kind!r}")

    def _runs(self, _request: Request) -> Response:
        if self.runs is None:
            return JSONResponse({"folder": None, "runs": []})
        found = [list_entry(name, self.runs.inside(name)) for name in find_runs(self.runs)]
        return JSONResponse(
            {"folder": self.runs.name, "runs": sorted(found, key=lambda run: -run["written"])}
        )

    def _report(self, request: Request) -> Response:
        names = request.query_params.getlist("run")
        if self.runs is None or not names:
            raise HTTPException(404, "no folder of runs is open here: start with --runs DIR")
        if len(names) > MOST_COMPARED:
            raise ScenarioError(f"{len(names)} runs are asked for, but {MOST_COMPARED} at most are compared")
        folders = [(name if name != "." else self.runs.name, self.runs.inside(name)) for name in names]
        tag = f'"{"+".join(stamp(folder) for _, folder in folders)}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return JSONResponse(report_data(folders), headers={"ETag": tag})


def _posted(answer: Callable[[Any, Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError) as error:
            raise ScenarioError(f"the request is not JSON: {error}") from error
        # In a thread, so that a long count of a model does not keep others waiting for a short plan.
        try:
            return await run_in_threadpool(answer, body, request)
        except RecursionError as error:
            raise ScenarioError("the request is nested too deeply: no scenario needs that") from error

    return endpoint


def _page(name: str) -> Response:
    content = files("cutwater.web").joinpath("assets", name).read_text(encoding="utf-8")
    return Response(content, media_type="text/html")


def _view() -> Response:
    """The report's own page, which asks for its data instead of holding it."""
    styles = "".join(f'<link rel="stylesheet" href="/assets/{name}">' for name in ("phases.css", *STYLES))
    scripts = "".join(f'<script src="/assets/{name}" defer></script>' for name in SCRIPTS)
    parts = {
        "title": "Run · Cutwater",
        "policy": "",
        "styles": styles,
        "scripts": scripts,
        "live": ' data-live="/api/report"',
        "data": "{}",
    }
    return Response(fill(asset("report.html"), **parts), media_type="text/html")


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name in _SHARED:
        content = asset(name)
    elif name in _OWN:
        content = files("cutwater.web").joinpath("assets", name).read_text(encoding="utf-8")
    else:
        raise HTTPException(404, f"there is no {name!r}")
    return Response(content, media_type=_KINDS[name.rpartition(".")[2]])


def _refused(_request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    return JSONResponse({"error": str(error)}, 422)
