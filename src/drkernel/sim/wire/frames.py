"""Framed messages over a socket: a JSON header and raw bytes. Sizes are bounded; nothing is ever unpickled.

A *deadline* is a value of ``time.monotonic()`` by which the whole message must have crossed, however slowly the other
side sends it. Tensors cross as a description (dtype, shape, stride) in the header and their elements as bytes.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

import torch

from drkernel.sim.wire.commands import DTYPES, ProtocolError

MAX_HEADER = 16 << 20
MAX_PAYLOAD = 8 << 30
MAX_DIMENSIONS = 64
_FRAME = struct.Struct("<IQ")


class ConnectionLost(ConnectionError):
    """The other side has closed the connection."""


def send(
    sock: socket.socket, header: Any, payload: bytes | bytearray | memoryview = b"", *, deadline: float | None = None
) -> None:
    """Send one message. Raises :class:`ConnectionLost` when the other side is gone, ``TimeoutError`` after the
    deadline."""
    text = json.dumps(header, separators=(",", ":")).encode()
    try:
        if deadline is not None:
            sock.settimeout(_left(deadline))
        if len(payload) < 65536:
            sock.sendall(_FRAME.pack(len(text), len(payload)) + text + bytes(payload))
        else:
            sock.sendall(_FRAME.pack(len(text), len(payload)) + text)
            sock.sendall(payload)
    except TimeoutError:
        raise
    except OSError as error:
        raise ConnectionLost("the other side closed the connection") from error


def receive(
    sock: socket.socket,
    *,
    deadline: float | None = None,
    max_header: int = MAX_HEADER,
    max_payload: int = MAX_PAYLOAD,
    strict: bool = True,
) -> tuple[Any, bytearray]:
    """Receive one message. ``strict`` refuses NaN and infinities in the header, which are not JSON.

    Raises :class:`ConnectionLost` at the end of the stream, :class:`ProtocolError` on a malformed message,
    ``TimeoutError`` after the deadline.
    """
    head_size, payload_size = _FRAME.unpack(_exactly(sock, _FRAME.size, deadline))
    if head_size > max_header or payload_size > max_payload:
        raise ProtocolError(f"message of {head_size} + {payload_size} bytes is over the limit")
    raw = _exactly(sock, head_size, deadline)
    try:
        header = json.loads(raw, parse_constant=_refuse if strict else None)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("message header is not valid JSON") from error
    return header, _exactly(sock, payload_size, deadline)


def _refuse(name: str) -> None:
    """Refuse a non-finite number: where one is allowed, it crosses as text."""
    raise ValueError(f"{name} is not JSON")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    return left


def _exactly(sock: socket.socket, size: int, deadline: float | None) -> bytearray:
    """Read ``size`` bytes. Memory grows with what has arrived, not with what was announced."""
    data = bytearray(min(size, 1 << 20))
    got = 0
    while got < size:
        if got == len(data):
            data.extend(bytes(min(size - got, len(data))))
        try:
            if deadline is not None:
                sock.settimeout(_left(deadline))
            with memoryview(data) as view:
                count = sock.recv_into(view[got:])
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost("the other side closed the connection") from error
        if count == 0:
            raise ConnectionLost("the other side closed the connection")
        got += count
    return data


def fields_of(record: Any) -> dict[str, Any]:
    """A dataclass as an object of a header: its fields as they are, where ``asdict`` would copy all that they hold."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


# ---- tensors


def describe(tensor: torch.Tensor) -> dict[str, Any]:
    """Describe a host tensor for a header: dtype, shape and stride."""
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the elements of a host tensor in row-major order."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy().data).cast("B") if flat.numel() else memoryview(b"")


def tensor_of(header: dict[str, Any], payload: bytearray | memoryview) -> torch.Tensor:
    """Build the tensor of a message; strides of a dense permutation are kept, others become contiguous.

    Raises :class:`ProtocolError` when description and bytes do not agree.
    """
    try:
        dtype = DTYPES[header["dtype"]]
        shape = [int(size) for size in header["shape"]]
        if len(shape) > MAX_DIMENSIONS or any(size >> 63 for size in shape):
            raise ValueError("more dimensions, or a larger one, than a tensor has")
        count = 1
        for size in shape:
            if size < 0:
                raise ValueError("negative size")
            count *= size
        if len(payload) != count * dtype.itemsize:
            raise ValueError(f"{len(payload)} bytes for {count} elements of {header['dtype']}")
        flat = torch.frombuffer(payload, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        tensor = flat.reshape(shape)
        stride = [int(step) for step in header.get("stride", tensor.stride())]
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ProtocolError(f"malformed tensor in message: {error}") from error
    if count == 0 or stride == list(tensor.stride()) or len(stride) != len(shape):
        return tensor.clone()
    order = sorted(range(len(shape)), key=lambda dim: -stride[dim])
    dense = torch.empty([shape[dim] for dim in order], dtype=dtype)
    permuted = dense.permute([order.index(dim) for dim in range(len(shape))])
    return permuted.copy_(tensor) if list(permuted.stride()) == stride else tensor.clone()
