"""Access control: bearer token, body size, request rate; and the headers that keep pages safe."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/health", "/ready", "/login", "/static/watch.css", "/static/watch.js"})
"""paths answered without a token: they reveal nothing about jobs"""

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class GuardError(ValueError):
    """The service must not start with this configuration; the message says what to change."""


def check_binding(host: str, token: str | None) -> None:
    """Refuse to listen beyond this machine without a token. Raises :class:`GuardError`."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback and not token:
        raise GuardError(
            f"listening on {host} without a token would let anyone run code here: set DRKERNEL_TOKEN (or --token-file) "
            "or listen on 127.0.0.1"
        )
    if token is not None and len(token) < 16:
        raise GuardError("the token is too short to be secret: at least 16 characters")
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise GuardError("the token has characters that no header can carry: use letters and digits, without blanks")


@dataclass
class Bucket:
    """A token bucket: ``rate`` per second, at most ``burst`` at once."""

    rate: float
    burst: float
    level: float = field(init=False)
    at: float = field(init=False)

    def __post_init__(self) -> None:
        self.level, self.at = self.burst, time.monotonic()

    def take(self) -> float:
        """Return 0 when allowed, else the seconds until it will be."""
        now = time.monotonic()
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level >= 1.0:
            self.level -= 1.0
            return 0.0
        return (1.0 - self.level) / self.rate


class Guard:
    """ASGI middleware around the whole service.

    Bodies are read here, bounded in size and time, before anything of the application runs.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, max_body: int, rate: float, body_s: float = 60.0):
        self.app, self.token, self.max_body, self.rate, self.body_s = app, token, max_body, rate, body_s
        self.buckets: dict[str, Bucket] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse early, or pass the request on with its body read and headers added."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        guarded = _with_headers(send)
        refusal = self._refuse(Request(scope))
        body = b""
        if refusal is None and scope["method"] not in ("GET", "HEAD"):
            try:
                async with asyncio.timeout(self.body_s):
                    body = await self._body(receive)
            except TimeoutError:
                refusal = _error(408, f"the body did not arrive within {self.body_s:g} s", {"connection": "close"})
            except _TooLarge:
                refusal = _error(413, f"the body is larger than {self.max_body} bytes", {"connection": "close"})
            except ClientDisconnect:
                return
        if refusal is not None:
            await refusal(scope, receive, guarded)
        else:
            await self.app(scope, _again(body, receive), guarded)

    def _refuse(self, request: Request) -> Response | None:
        path = request.scope["path"]
        foreign = self._foreign(request)
        if foreign is not None:
            return _error(403, foreign)
        if self.token is not None and path not in OPEN_PATHS and not self._authorised(request):
            if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
                return RedirectResponse("/login", status_code=303)
            return _error(
                401, "a bearer token is required: Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"}
            )
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return _error(400, "malformed Content-Length")
        if int(length) > self.max_body:
            return _error(413, f"the body is larger than {self.max_body} bytes", {"connection": "close"})
        if self.rate > 0 and path not in OPEN_PATHS:
            wait = self._bucket(request).take()
            if wait:
                return _error(429, "too many requests", {"retry-after": f"{max(1, round(wait))}"})
        return None

    def _foreign(self, request: Request) -> str | None:
        """Return why a browser's request does not come from this service's own page; None when it may.

        Without a token the service is bound to this machine, but a web page could still reach it: through a host name
        that resolves here (so names other than localhost are refused), or by posting across sites.
        """
        host, *others = request.headers.getlist("host") or [""]
        if self.token is None and (others or not _names_this_machine(host)):
            return f"the host {host[:100]!r} is not this machine's: use http://127.0.0.1, or set a token"
        origin = request.headers.get("origin")
        if origin is not None and request.method not in ("GET", "HEAD") and origin.partition("://")[2] != host:
            return "a page of another site may not ask for this"
        return None

    def _authorised(self, request: Request) -> bool:
        assert self.token is not None
        given = request.headers.get("authorization", "")
        if given.lower().startswith("bearer "):
            return hmac.compare_digest(given[7:].strip().encode(), self.token.encode())
        # the live page cannot set headers: it carries the token in a cookie that /login set
        return hmac.compare_digest(request.cookies.get("drkernel_token", "").encode(), self.token.encode())

    def _bucket(self, request: Request) -> Bucket:
        client = request.client.host if request.client else "?"
        if client not in self.buckets:
            if len(self.buckets) > 10_000:
                self.buckets.clear()
            self.buckets[client] = Bucket(self.rate, 4 * self.rate)
        return self.buckets[client]

    async def _body(self, receive: Receive) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.max_body:
                raise _TooLarge
            if not message.get("more_body", False):
                return b"".join(parts)


def _names_this_machine(host: str) -> bool:
    name = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    try:
        return name.lower() == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


class _TooLarge(Exception):
    pass


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that yields the body in one message, then forwards further messages."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.setdefault("headers", [])
            present = {name.lower() for name, _ in headers}
            headers += [(k.encode(), v.encode()) for k, v in SECURITY_HEADERS.items() if k.encode() not in present]
        await send(message)

    return wrapped


def _error(status: int, message: str, headers: dict[str, Any] | None = None) -> JSONResponse:
    return JSONResponse({"detail": message}, status_code=status, headers=headers)
