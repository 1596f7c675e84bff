"""The HTTP server under the application: uvicorn, with limits for slow clients from the first byte on.

uvicorn itself waits indefinitely for a request's headers and does not bound their size. Here, a connection is closed
when its headers are not complete after some seconds, or too large. Bodies are limited in ``guard.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Generator
from typing import Any

import uvicorn

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
    """Return a socket listening at this address. Raises ``OSError``."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)  # clients that connect before the server runs wait instead of being refused
    except OSError:
        listener.close()
        raise
    return listener


def many_connections() -> None:
    """Raise this process's limit on open connections to the system's maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
