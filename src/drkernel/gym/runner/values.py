"""Values that cross between judge and runner: plain data as JSON, host tensors as raw bytes. Never pickle.

Tuples come back as lists, except where they are marked; a value of any other type is refused by name.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from drkernel.sim.wire.commands import DTYPES, ProtocolError, TensorSpec, decode, encode
from drkernel.sim.wire.frames import bytes_of, describe, tensor_of

_DEPTH = 32


@dataclass(frozen=True)
class Granted:
    """A device tensor that the judge has granted, in the place of an argument."""

    spec: TensorSpec


def pack(value: Any) -> tuple[Any, bytes]:
    """Pack ``value`` as (JSON-able data, bytes of its tensors). Raises ``TypeError`` for types that cannot cross."""
    payload = _Payload()
    return _pack(value, payload), b"".join(payload.parts)


@dataclass
class _Payload:
    """The elements of tensors, to be copied once, when all are known."""

    parts: list[memoryview] = field(default_factory=list)
    size: int = 0


def _pack(value: Any, payload: _Payload) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return {"f": repr(float(value))}
    if isinstance(value, complex):
        return {"c": [repr(value.real), repr(value.imag)]}
    if isinstance(value, torch.dtype):
        return {"d": str(value).removeprefix("torch.")}
    if isinstance(value, Granted):
        return {"g": encode(value.spec)}
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu":
            raise TypeError(f"a tensor on {value.device} cannot cross; give host tensors")
        data = bytes_of(value)
        start = payload.size
        payload.parts.append(data)
        payload.size += len(data)
        return {"x": {**describe(value), "at": [start, len(data)], "grad": value.requires_grad}}
    if isinstance(value, list):
        return [_pack(item, payload) for item in value]
    if isinstance(value, tuple):
        return {"u": [_pack(item, payload) for item in value]}
    if isinstance(value, dict):
        return {"o": [[_pack(key, payload), _pack(item, payload)] for key, item in value.items()]}
    raise TypeError(f"a value of type {type(value).__name__} cannot cross between judge and runner")


def unpack(data: Any, payload: bytes | bytearray | memoryview, depth: int = 0) -> Any:
    """Unpack the output of :func:`pack`. Raises :class:`ProtocolError` on anything else."""
    if depth > _DEPTH:
        raise ProtocolError("value nested too deeply")
    if data is None or isinstance(data, (bool, int, str)):
        return data
    if isinstance(data, list):
        return [unpack(item, payload, depth + 1) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ProtocolError("malformed value in message")
    ((tag, body),) = data.items()
    try:
        if tag == "f":
            return float(body)
        if tag == "c":
            return complex(float(body[0]), float(body[1]))
        if tag == "d":
            return DTYPES[body]
        if tag == "g":
            return Granted(decode(body))
        if tag == "u":
            return tuple(unpack(item, payload, depth + 1) for item in body)
        if tag == "o":
            return {unpack(key, payload, depth + 1): unpack(item, payload, depth + 1) for key, item in body}
        if tag == "x":
            start, size = body["at"]
            tensor = tensor_of(body, bytearray(memoryview(payload)[start : start + size]))
            return tensor.requires_grad_() if body.get("grad") else tensor
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise ProtocolError(f"malformed {tag!r} value in message") from error
    raise ProtocolError(f"no value has the tag {tag!r}")
