"""Values that cross between judge and runner: what crosses to a device, tuples and mappings as they are, and host
tensors as raw bytes. Never pickle; a value of any other type is refused by name.
"""

from dataclasses import dataclass
from typing import Any

import torch

from drkernel.sim.wire.commands import Decoder, ProtocolError, TensorSpec, decode, encode
from drkernel.sim.wire.frames import bytes_of, describe, tensor_of


@dataclass(frozen=True)
class Granted:
    """A device tensor that the judge has granted, in the place of an argument."""

    spec: TensorSpec


def pack(value: Any) -> tuple[Any, bytes]:
    """Pack ``value`` as (JSON-able data, bytes of its tensors). Raises ``TypeError`` for types that cannot cross."""
    parts: list[memoryview] = []  # copied once, when all are known
    size = 0

    def beyond(value: Any) -> Any:
        nonlocal size
        if isinstance(value, Granted):
            return {"granted": encode(value.spec)}
        if isinstance(value, tuple):
            return {"tuple": [encode(item, beyond) for item in value]}
        if isinstance(value, dict):
            return {"mapping": [[encode(key, beyond), encode(item, beyond)] for key, item in value.items()]}
        if not isinstance(value, torch.Tensor):
            return None
        if value.device.type != "cpu":
            raise TypeError(f"a tensor on {value.device} cannot cross; give host tensors")
        parts.append(data := bytes_of(value))
        start, size = size, size + len(data)
        return {"tensor": {**describe(value), "at": [start, len(data)], "grad": value.requires_grad}}

    try:
        return encode(value, beyond), b"".join(parts)
    except ProtocolError as error:
        raise TypeError(str(error)) from None


def unpack(data: Any, payload: bytes | bytearray | memoryview) -> Any:
    """Unpack the output of :func:`pack`. Raises :class:`ProtocolError` on anything else."""

    def tensor(body: Any, depth: int) -> torch.Tensor:
        start, size = body["at"]
        made = tensor_of(body, bytearray(memoryview(payload)[start : start + size]))
        return made.requires_grad_() if body.get("grad") else made

    def items(body: Any, depth: int) -> list[Any]:
        return [decode(item, depth + 1, beyond) for item in body]

    beyond: dict[str, Decoder] = {
        "granted": lambda body, depth: Granted(decode(body)),
        "tuple": lambda body, depth: tuple(items(body, depth)),
        "mapping": lambda body, depth: dict(items(pair, depth) for pair in body),
        "tensor": tensor,
    }
    return decode(data, 0, beyond)
