"""Who may ask, how much and how often: token, size of bodies, rate of requests; a server that bounds slow clients."""

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import re
import resource
import socket
import time
from collections.abc import Generator
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from drkernel.config import ConfigError
from drkernel.episode.meter import RateLimiter
from drkernel.verdict import printable

OPEN_PATHS = frozenset({"/health", "/ready", "/login", "/static/style.css", "/static/watch.css", "/static/watch.js"})
"""paths answered without a token: they reveal nothing about jobs"""

access = logging.getLogger("drkernel.access")
POLLED = frozenset({"/health", "/ready", "/metrics", "/v1/state", "/v1/worker/heartbeat", "/v1/worker/lease"})
"""paths that are asked for all the time; only their failures are logged"""

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class GuardError(ConfigError):
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


class Guard:
    """ASGI middleware around the whole service.

    Bodies are read here, bounded in size and time, before anything of the application runs.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, max_body: int, rate: float, body_s: float = 60.0):
        self.app, self.token, self.max_body, self.rate, self.body_s = app, token, max_body, rate, body_s
        self.buckets: dict[str, RateLimiter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse early, or pass the request on with its body read and headers added."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        guarded = _logged(scope, _with_headers(send))
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
            bucket = self._bucket(request)
            if wait := bucket.wait_for(1):
                bucket.wait_for(-1)  # what is refused takes nothing
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

    def _bucket(self, request: Request) -> RateLimiter:
        client = request.client.host if request.client else "?"
        if client not in self.buckets:
            if len(self.buckets) > 10_000:
                self.buckets.clear()
            self.buckets[client] = RateLimiter(60 * self.rate, burst=4 * self.rate)
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
    name = re.sub(r":[0-9]*$", "", host) if host.count(":") == 1 or "]:" in host else host
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


def _logged(scope: Scope, send: Send) -> Send:
    """Write the access log: client, method, path without query, status, seconds until the answer began."""
    start = time.monotonic()

    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start" and not (scope["path"] in POLLED and message["status"] < 400):
            client = (scope.get("client") or ("-",))[0]
            path = printable(scope["path"][:200], lines=False)
            seconds = time.monotonic() - start
            access.info("%s %s %s %d %.3f s", client, scope["method"], path, message["status"], seconds)
        await send(message)

    return wrapped


def _error(status: int, message: str, headers: dict[str, Any] | None = None) -> JSONResponse:
    return JSONResponse({"detail": message}, status_code=status, headers=headers)


# ---- The HTTP server under the application: uvicorn, with limits for slow clients from the first byte on
#
# uvicorn itself waits indefinitely for a request's headers and does not bound their size. Here, a connection is closed
# when its headers are not complete after some seconds, or too large. Bodies are limited in ``guard.py``.


HEADER_S = 10.0
"""seconds for the headers of a request"""
HEADER_BYTES = 64 << 10


def protocol(header_s: float = HEADER_S) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol (httptools if installed, else h11) with limits on headers."""
    base: Any
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as base
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as base

    class Patient(base):
        """Closes connections whose headers are slow or large."""

        _deadline: asyncio.TimerHandle | None = None
        _header_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Start the timer for the first headers."""
            super().connection_made(transport)
            self._arm()

        def data_received(self, data: bytes) -> None:
            """Count bytes; outside a request they are headers, and the timer runs."""
            waiting = not self._in_request()
            super().data_received(data)
            if self._in_request():
                self._disarm()
            elif waiting:
                self._header_bytes += len(data)
                if self._header_bytes > HEADER_BYTES:
                    self.transport.abort()
                elif self._deadline is None:
                    self._arm()

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop the timer."""
            self._disarm()
            super().connection_lost(exc)

        def _in_request(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _arm(self) -> None:
            self._deadline = self.loop.call_later(header_s, self.transport.abort)

        def _disarm(self) -> None:
            self._header_bytes = 0
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Patient


class DrainingServer(uvicorn.Server):
    """Exits normally after a signal, once drained; uvicorn's own server would re-raise the signal and die of it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Treat SIGINT and SIGTERM as requests to stop."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def server(application: Any, *, header_s: float = HEADER_S, drain_s: float = 5.0) -> uvicorn.Server:
    """Return a server that is not running yet; open connections get ``drain_s`` seconds after the application has
    stopped."""
    config = uvicorn.Config(
        application,
        http=protocol(header_s),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(drain_s),
    )
    return DrainingServer(config)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket listening at this address. Raises :class:`GuardError`."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # clients that connect before the server runs wait instead of being refused
    except OSError as error:
        listener.close()
        raise GuardError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
    return listener


def many_connections() -> None:
    """Raise this process's limit on open connections to the system's maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
