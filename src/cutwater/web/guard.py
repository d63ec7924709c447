"""Who may ask, and what an answer may do: the rules around every request, in one place.

- The Host header must name this machine, so that a foreign site whose name is bent to 127.0.0.1 gets nothing.
- A request that changes or computes must come from a page of this server (Origin) and be JSON.
- With a token, every request needs it: as a cookie, set by opening the link once, or as a bearer.
- A body is read up to a limit and no further.
- Every answer forbids scripts, styles and connections that are not this server's own.
"""

import asyncio
import contextlib
import hmac
import ipaddress
import json
import re
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 16 * 2**20
"""Bytes: a fleet of 100,000 clients as CSV takes about 6 MB."""
_MOST_DRAINED, _DRAIN_SECONDS = 4 * LARGEST_BODY, 10.0
"""Bytes and seconds of a body that is too large which are passed over before the answer."""
_HOST = re.compile(r"[\w.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.%]+\](:[0-9]{1,5})?")
"""A Host header: a name or an address and perhaps a port, nobody's name before it."""
COOKIE = "cutwater-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """The outermost layer of the server."""

    def __init__(self, app: App, host: str, token: str | None = None) -> None:
        self._app, self._token = app, token
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it with a sentence."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {key.lower(): value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            if refusal[0] == 413:
                await _drained(receive)
            return await _answer(send, *refusal)
        if self._token is not None and (cookie := self._first_visit(scope)) is not None:
            return await _answer(send, 303, "", (b"location", b"/"), (b"set-cookie", cookie))
        return await self._app(scope, _limited(receive), _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        if not self._is_here(headers.get(b"host", "")):
            return 421, "this address is not one of this server: open it as it was printed when it started"
        if self._token is not None and not self._has_token(scope, headers):
            return 401, "this server needs its token: open the link that was printed when it started"
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get(b"origin")
            if origin is not None and urlsplit(origin).netloc != headers.get(b"host"):
                return 403, "only a page of this server may ask this"
            if headers.get(b"content-type", "").partition(";")[0].strip() != "application/json":
                return 415, "a request must be JSON"
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, too_large()
        return None

    def _is_here(self, host: str) -> bool:
        """A name of this machine, or a plain address: only names can be bent to lead here."""
        name = _name_of(host)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True

    def _has_token(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        given = [_cookie(headers.get(b"cookie", "")), _query_token(scope)]
        given.append(headers.get(b"authorization", "").removeprefix("Bearer "))
        wanted = (self._token or "").encode()
        return any(hmac.compare_digest(one.encode(), wanted) for one in given)

    def _first_visit(self, scope: Scope) -> bytes | None:
        """The link with the token sets a cookie and leads to the page without it, out of sight."""
        if scope["method"] != "GET" or not _query_token(scope):
            return None
        return f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/; Max-Age=2592000".encode()


def _name_of(host: str) -> str:
    """The name in a Host header, without its port; nothing where it is no Host."""
    if not _HOST.fullmatch(host):
        return ""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def too_large() -> str:
    """What is said to a body beyond the limit."""
    return f"a request has {LARGEST_BODY // 2**20} MiB at most: use a smaller fleet, or cutwater plan"


def _limited(receive: Receive) -> Receive:
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST_BODY:
            await _drained(receive)
            raise HTTPException(413, too_large())
        return message

    return limited


async def _drained(receive: Receive) -> None:
    """Let the rest of a body come, up to a point: who is still sending would see a reset, not the answer."""
    left = _MOST_DRAINED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {key.lower() for key, _ in message.get("headers", [])}
            message["headers"] = [*message.get("headers", []), *(h for h in HEADERS if h[0] not in own)]
        await send(message)

    return sending


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _query_token(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return parse_qs(query.decode("latin-1")).get("token", [""])[0]


async def _answer(send: Send, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"error": text}).encode()
    kind = (b"content-type", b"application/json")
    await send({"type": "http.response.start", "status": status, "headers": [kind, *HEADERS, *headers]})
    await send({"type": "http.response.body", "body": body})
