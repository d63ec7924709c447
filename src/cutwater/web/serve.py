"""Starting the server: where it listens, its token, and the first page ready before the first visitor."""

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cutwater.base.errors import CutwaterError, EngineError
from cutwater.base.folders import examples_folder
from cutwater.runs.confined import Folder
from cutwater.scenario.file import Scenario
from cutwater.web import NO_WEB_SERVER
from cutwater.web.answers import details_answer, plan_answer
from cutwater.web.app import Site
from cutwater.web.catalogue import GIVEN, Catalogue
from cutwater.web.files import from_scenario, from_toml
from cutwater.web.state import read_asked

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Listening:
    """A socket that visitors can already queue at, and the link to open."""

    socket: socket.socket
    host: str
    token: str | None

    @property
    def url(self) -> str:
        """What to open in a browser."""
        port = self.socket.getsockname()[1]
        host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(self.host, self.host)
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}/" + (f"?token={self.token}" if self.token else "")


def listen(host: str | None, port: int) -> Listening:
    """Bind to this machine alone, or, where a host is given, to that and with a token."""
    token = secrets.token_urlsafe(24) if host is not None else None
    name = host or LOOPBACK
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(1024)  # who opens the link before the server is up waits instead of being refused
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as error:  # the latter of a name that no host can have
        why = getattr(error, "strerror", None) or error
        raise EngineError(f"can't listen on {name} port {port} ({why}): try another --port, or 0") from error
    return Listening(bound, name, token)


def make_site(scenario: Scenario | None, runs: Folder | None, profiles: Folder | None) -> Site:
    """What to offer: the owner's scenario, or the paper's ten clients."""
    catalogue = Catalogue(profiles, scenario)
    if scenario is None:
        text = (examples_folder() / "paper-ten.toml").read_text(encoding="utf-8")
        return Site(from_toml(text, catalogue), catalogue, runs)
    start = from_scenario(scenario, profile=None if catalogue.given is None else GIVEN)
    return Site(start, catalogue, runs)


def serve(site: Site, listening: Listening, started: Callable[[], None] = lambda: None) -> None:
    """Serve until interrupted."""
    try:
        import uvicorn

        from cutwater.web.doors import Doors
    except ImportError as error:
        raise CutwaterError(NO_WEB_SERVER) from error
    app = site.app(listening.host, listening.token)
    threading.Thread(target=_warm, args=(site,), daemon=True).start()
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, http=Doors().protocol(), server_header=False
    )
    started()
    uvicorn.Server(config).run(sockets=[listening.socket])


def _warm(site: Site) -> None:
    """Have the first model's profile, counted or kept, and load compiled code while the browser opens."""
    with suppress(CutwaterError):  # the page shows the sentence
        asked = read_asked(site.start, site.catalogue)
        plan_answer(asked)
        details_answer(asked, 1e11, 1e12)
