"""Framed messages over a socket: a JSON header and raw bytes. Sizes are bounded; nothing is ever unpickled.

A *deadline* is a value of ``time.monotonic()`` by which the whole message must have crossed, however slowly the other
side sends it. Tensors cross as a description (dtype, shape, stride) in the header and their elements as bytes.
"""

import hashlib
import json
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from drkernel.sim.wire.commands import DTYPES, ProtocolError

MAX_HEADER = 16 << 20
MAX_PAYLOAD = 8 << 30
MAX_DIMENSIONS = 64
AT_ONCE = 64 << 20
"""bytes that are reserved for a message before they have arrived; the system gives memory as they do"""
Payload = bytes | bytearray | memoryview | list[memoryview]
"""bytes, in one piece or several"""
_FRAME = struct.Struct("<IQ")


class ConnectionLost(ConnectionError):
    """The other side has closed the connection."""


def send(sock: socket.socket, header: Any, payload: Payload = b"", *, deadline: float | None = None) -> None:
    """Send one message. Raises :class:`ConnectionLost` when the other side is gone, ``TimeoutError`` after the
    deadline."""
    text = json.dumps(header, separators=(",", ":")).encode()
    parts = payload if isinstance(payload, list) else [payload]
    size = sum(map(len, parts))
    head = _FRAME.pack(len(text), size) + text
    if size < 65536:
        head, parts = b"".join([head, *parts]), []
    try:
        for part in (head, *parts):
            if deadline is not None:
                sock.settimeout(_left(deadline))
            sock.sendall(part)
    except TimeoutError:
        raise
    except OSError as error:
        raise ConnectionLost("the other side closed the connection") from error


def receive(
    sock: socket.socket, *, deadline: float | None = None, max_header: int = MAX_HEADER,
    max_payload: int = MAX_PAYLOAD, strict: bool = True,
) -> tuple[Any, bytearray]:  # fmt: skip
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
    data = bytearray(min(size, AT_ONCE))
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


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two host tensors have the same form and are equal bit for bit, NaN included."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.stride() != right.stride() or not left.is_contiguous():
        left, right = left.contiguous(), right.contiguous()
    return np.array_equal(_words(left), _words(right))


def _words(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor, in units as large as its size allows: numpy compares those many times as fast
    as torch does bytes."""
    found = tensor.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy()
    return found.view(np.int64) if found.size % 8 == 0 else found


def elements_of(header: dict[str, Any], payload: bytearray | memoryview) -> torch.Tensor:
    """The contiguous tensor of a message, over the memory of its bytes.

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
        return flat.reshape(shape)
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ProtocolError(f"malformed tensor in message: {error}") from error


def tensor_of(header: dict[str, Any], payload: bytearray | memoryview) -> torch.Tensor:
    """Build the tensor of a message, in memory of its own; strides of a dense permutation are kept, others become
    contiguous.

    Raises :class:`ProtocolError` when description and bytes do not agree.
    """
    tensor = elements_of(header, payload)
    shape, dtype, count = list(tensor.shape), tensor.dtype, tensor.numel()
    try:
        stride = [int(step) for step in header.get("stride", tensor.stride())]
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"malformed tensor in message: {error}") from error
    if count == 0 or stride == list(tensor.stride()) or len(stride) != len(shape):
        return tensor.clone()
    order = sorted(range(len(shape)), key=lambda dim: -stride[dim])
    dense = torch.empty([shape[dim] for dim in order], dtype=dtype)
    permuted = dense.permute([order.index(dim) for dim in range(len(shape))])
    return permuted.copy_(tensor) if list(permuted.stride()) == stride else tensor.clone()


def tensor_or_form(header: dict[str, Any], payload: bytearray | memoryview) -> torch.Tensor:
    """:func:`tensor_of`, or a meta tensor of the form that a header without ``contents`` describes."""
    if header.get("contents", True):
        return tensor_of(header, payload)
    try:
        shape, stride = [int(n) for n in header["shape"]], [int(n) for n in header["stride"]]
        if min((*shape, *stride), default=0) < 0 or len(shape) != len(stride):
            raise ValueError("sizes and strides are not negative, and one for each dimension")
        return torch.empty_strided(shape, stride, dtype=DTYPES[header["dtype"]], device="meta")
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ProtocolError(f"malformed tensor in message: {error}") from error


# ---- the tape of a device: which commands ran, on which tensors, without values; for an exact evaluation by the judge
#
# A tape has an entry a command, as JSON: `["given", spec, digest, part]` for a tensor that came from outside (`part`:
# the place of its contents beside the tape, None where they are too large), `["op", name, args, kwargs, result]` and
# `["launch", kernel, grid, args, written]`, with the storages that were written; the texts of its kernels are beside
# it. `["call", True]` and `["call", False]` stand where a call begins and ends.


MOST_ENTRIES = 20_000
_CUT = "cut"
MOST_CONTENTS = 64 << 10
"""bytes of one tensor whose contents are recorded; of others the digest tells whether the judge knows them"""
MOST_DIGESTED = 64 << 20


def digest_of(tensor: torch.Tensor) -> str:
    """Names a tensor's contents and type, whatever its shape and strides."""
    return hashlib.blake2b(bytes_of(tensor), digest_size=16, person=str(tensor.dtype)[6:].encode()[:16]).hexdigest()


@dataclass(frozen=True)
class Tape:
    """What was recorded, as the judge reads it."""

    entries: list[list[Any]]
    kernels: dict[str, str]
    contents: list[torch.Tensor]

    @property
    def whole(self) -> bool:
        """Whether no command is missing."""
        return [_CUT] not in self.entries[-1:]


class TapeRecorder:
    """Records the commands of a device process."""

    def __init__(self) -> None:
        self.on = False
        """whether anything is recorded"""
        self.names_inputs = True
        """whether the contents of what the judge gives to calls are known"""
        self._entries: list[list[Any]] = []
        self._contents: list[torch.Tensor] = []
        self._kernels: dict[str, str] = {}

    def add(self, *entry: Any) -> None:
        """Record a command; beyond :data:`MOST_ENTRIES` the tape ends, and says so."""
        if not self.on:
            return
        if len(self._entries) < MOST_ENTRIES:
            self._entries.append([*entry])
        elif len(self._entries) == MOST_ENTRIES:
            self._entries.append([_CUT])

    def launch(self, kernel: str, ttir: str, grid: Any, args: Any, written: Iterable[int]) -> None:
        """Record a launch; ``written``: where the storages begin into which it wrote."""
        if self.on:
            self._kernels[kernel] = ttir
            self.add("launch", kernel, list(grid), args, sorted(written))

    def given(self, spec: Any, tensor: torch.Tensor, named: bool = True) -> None:
        """Record a tensor that comes from outside; ``spec`` is encoded. Its contents are known if it is ``named``."""
        if not self.on:
            return
        nbytes = tensor.numel() * tensor.element_size()
        part = len(self._contents) if named and nbytes <= MOST_CONTENTS else None
        if part is not None:
            self._contents.append(tensor.detach().clone(memory_format=torch.contiguous_format))
        self.add("given", spec, digest_of(tensor) if named and nbytes <= MOST_DIGESTED else "", part)

    def take(self) -> tuple[dict[str, Any], bytes]:
        """Everything recorded so far, as a message; the tape goes on."""
        headers, data = [], bytearray()
        for tensor in self._contents:
            elements = bytes_of(tensor)
            headers.append({**describe(tensor), "bytes": len(elements)})
            data += elements
        return {"entries": self._entries, "contents": headers, "kernels": self._kernels}, bytes(data)
