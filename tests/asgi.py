"""A minimal browser for an ASGI application in the same process: requests, cookies, no redirects."""

import asyncio
from dataclasses import dataclass
from urllib.parse import unquote, urlencode, urlsplit


@dataclass(frozen=True)
class Answer:
    status_code: int
    headers: dict
    content: bytes

    @property
    def text(self):
        return self.content.decode()


class Browser:
    """Sends requests to an application as if it were at `base`."""

    def __init__(self, app, base):
        self.app, self.host, self.cookies = app, urlsplit(base).netloc, {}

    def get(self, address, headers=None):
        return self.send("GET", address, headers)

    def post(self, address, form=None, headers=None, content=None):
        body = urlencode(form or {}, doseq=True).encode() if content is None else content
        kind = {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(body))}
        return self.send("POST", address, {**kind, **(headers or {})}, body)

    def send(self, method, address, headers=None, body=b""):
        parts = urlsplit(address)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        every = {"host": self.host, **({"cookie": cookies} if cookies else {}), **(headers or {})}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(parts.path), "raw_path": parts.path.encode(), "query_string": parts.query.encode(),
            "root_path": "", "headers": [(k.lower().encode(), v.encode()) for k, v in every.items()],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        answer = asyncio.run(self._exchange(scope, body))
        for pair in [v for k, v in answer[1] if k == "set-cookie"]:
            name, _, value = pair.partition(";")[0].partition("=")
            self.cookies[name] = value
        return Answer(answer[0], dict(answer[1]), answer[2])

    async def _exchange(self, scope, body):
        sent = []
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return waiting.pop(0) if waiting else {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await self.app(scope, receive, send)
        start = sent[0]
        headers = [(name.decode().lower(), value.decode()) for name, value in start["headers"]]
        return start["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])
