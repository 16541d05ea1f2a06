"""Who may talk to the studio: only this machine's browser, after the one-time link was opened.

A page of another site can send requests to 127.0.0.1, and DNS rebinding can make its name point there. So every request
must name this server as its host; one that changes something must come from the server's own pages; and all need a
cookie that only the one-time link hands out.
"""

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send no origin with forms
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_REFUSED = "This request was refused. Open the studio with the link that `fairveil studio` printed."
_MOST_BYTES = 2**20
#: Headers that decide; given twice, a server and a proxy may read different ones.
_ONCE = (b"host", b"origin", b"content-length", b"sec-fetch-site")


def report_policy(script: str | None = None) -> str:
    """For reports, which are pages of their own with inline styles: no requests, no access to the studio.

    script: the hash of the only script that may run; by default none may.
    """
    may, sandbox = ("", "sandbox") if script is None else (f"script-src '{script}'; ", "sandbox allow-scripts")
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; {may}{sandbox}; frame-ancestors 'none'"


class Guard:
    """Checks every request before the application sees it, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"fairveil-studio-{port}"  # cookies are shared by all ports of a host
        self._token: str | None = token
        self._session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        names = [name.lower() for name, _ in scope["headers"]]
        if any(names.count(name) > 1 for name in _ONCE) or not self._from_here(scope["method"], headers):
            await _answer(send, 403, _REFUSED)
        elif not self._known(headers):
            await self._admit(scope, send)
        elif not _is_small(headers.get("content-length", "0")) or "transfer-encoding" in headers:
            await _answer(send, 413, "This form is too large.")
        else:
            await self._app(scope, receive, _with_headers(send))

    def _from_here(self, method: str, headers: dict[str, str]) -> bool:
        """Whether a request names this server as its host and, where it must, as its origin."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return False
        return origin == f"http://{host}" if origin is not None else method in ("GET", "HEAD")

    def _known(self, headers: dict[str, str]) -> bool:
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return False
        return found is not None and hmac.compare_digest(found.value.encode(), self._session.encode())

    async def _admit(self, scope: Scope, send: Send) -> None:
        """Hand out the session cookie for the one-time token."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        right = self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())
        if scope["method"] != "GET" or scope["path"] != "/" or not right:
            await _answer(send, 403, _REFUSED)
            return
        self._token = None
        cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(send, 303, "", {"location": "/", "set-cookie": cookie})


def _is_small(length: str) -> bool:
    return length.isascii() and length.isdigit() and len(length) < 10 and int(length) <= _MOST_BYTES


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name for name, _ in message.get("headers", [])}
            more = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in given]
            message = {**message, "headers": [*message.get("headers", []), *more]}
        await send(message)

    return sending


async def _answer(send: Send, status: int, text: str, headers: dict[str, Any] | None = None) -> None:
    every = {"content-type": "text/plain; charset=utf-8", **_HEADERS, **(headers or {})}
    raw = [(name.encode(), str(value).encode()) for name, value in every.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": text.encode()})
