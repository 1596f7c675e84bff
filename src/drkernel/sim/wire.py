"""Framed messages over a socket: a JSON header and raw bytes. Sizes are bounded; nothing is ever unpickled."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from drkernel.sim.protocol import ProtocolError

MAX_HEADER = 16 << 20
MAX_PAYLOAD = 8 << 30
_FRAME = struct.Struct("<IQ")


class ConnectionLost(ConnectionError):
    """The other side is gone."""


def send(sock: socket.socket, header: Any, payload: bytes | memoryview = b"") -> None:
    """Send one message. Raises :class:`ConnectionLost` when the other side is gone."""
    text = json.dumps(header, separators=(",", ":")).encode()
    try:
        if len(payload) < 65536:
            sock.sendall(_FRAME.pack(len(text), len(payload)) + text + bytes(payload))
        else:
            sock.sendall(_FRAME.pack(len(text), len(payload)) + text)
            sock.sendall(payload)
    except (BrokenPipeError, ConnectionResetError, OSError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise ConnectionLost("the other side closed the connection") from error


def receive(sock: socket.socket) -> tuple[Any, bytearray]:
    """Receive one message. Raises :class:`ConnectionLost` at its end, :class:`ProtocolError` on a malformed one."""
    head_size, payload_size = _FRAME.unpack(_exactly(sock, _FRAME.size))
    if head_size > MAX_HEADER or payload_size > MAX_PAYLOAD:
        raise ProtocolError(f"message of {head_size} + {payload_size} bytes is over the limit")
    raw = _exactly(sock, head_size)
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("message header is not valid JSON") from error
    return header, _exactly(sock, payload_size)


def _exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        try:
            count = sock.recv_into(view[got:], min(size - got, 1 << 20))
        except (ConnectionResetError, BrokenPipeError) as error:
            raise ConnectionLost("the other side closed the connection") from error
        if count == 0:
            raise ConnectionLost("the other side closed the connection")
        got += count
    return data
