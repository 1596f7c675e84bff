"""The command protocol between host code and the simulated device.

Host code talks to a device only through a :class:`Channel`; the device may live in the same process or in another one.
Values cross as plain data: tensors as :class:`Ref` (an integer handle), torch's enumerations by name. Nothing is ever
unpickled, so the device side can be trusted while the host side is hostile.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import torch

DTYPES = {
    str(value).removeprefix("torch."): value
    for value in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
        torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
        torch.bool, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_MEMORY_FORMATS = {
    str(value).removeprefix("torch."): value
    for value in (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
}
Decoder = Callable[[Any, int], Any]
"""makes a value of what a tag marks, at a depth of nesting"""


class ProtocolError(RuntimeError):
    """A message violates the protocol."""


class UnsupportedOp(RuntimeError):
    """The simulated device does not support an operator, a kernel operation or a call; the message names it."""


class LaunchRefused(RuntimeError):
    """The target cannot run a kernel; the message is ``"<name of Triton's exception>: <its message>"``."""


@dataclass(frozen=True)
class Ref:
    """A tensor on the device, by handle."""

    handle: int


@dataclass(frozen=True)
class GeneratorRef:
    """A random number generator of the device; number 0 is its default one."""

    number: int


@dataclass(frozen=True)
class TensorSpec:
    """The host's description of a device tensor."""

    handle: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    address: int
    storage: int
    """bytes of the whole storage"""


@dataclass(frozen=True)
class LaunchCommand:
    """One kernel launch. ``ttir`` is the kernel after Triton's front end; ``args`` fit its parameters in order."""

    name: str
    identity: str
    """module, qualified name and source hash of the jitted function"""
    ttir: str
    grid: tuple[int, int, int]
    args: tuple[Any, ...]
    num_warps: int = 4
    num_stages: int = 3
    constexprs: dict[str, str] = field(default_factory=dict)


class Channel(Protocol):
    """The host's connection to a device."""

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator (``"add.Tensor"``); tensors are :class:`Ref`, results :class:`TensorSpec`."""

    def launch(self, command: LaunchCommand) -> None:
        """Launch a kernel."""

    def resources(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        """Compile for the target; return registers and spilled words per thread, and shared bytes per program."""

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        """Copy a host tensor to the device."""

    def download(self, ref: Ref) -> torch.Tensor:
        """Copy a device tensor to the host."""

    def free(self, handle: int) -> None:
        """Drop a handle."""

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        """Seed a generator of the device or set its state (hexadecimal); returns its ``seed`` and ``state``."""

    def query(self, what: str) -> Any:
        """Answer a query about the device: memory in use, modelled time."""


def encode(value: Any, beyond: Callable[[Any], Any] = lambda value: None) -> Any:
    """Encode a value as JSON-able data; raise :class:`ProtocolError` for one that cannot cross.

    ``beyond`` encodes what else may cross, or in another way than here; it returns None for the rest.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if (found := beyond(value)) is not None:
        return found
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": repr(value)}
    if isinstance(value, complex):
        return {"c": [repr(value.real), repr(value.imag)]}
    if isinstance(value, Ref):
        return {"t": value.handle}
    if isinstance(value, GeneratorRef):
        return {"g": value.number}
    if isinstance(value, TensorSpec):
        place = str(value.dtype).removeprefix("torch."), value.address, value.storage
        return {"s": [value.handle, list(value.shape), list(value.stride), value.offset, *place]}
    if isinstance(value, torch.dtype):
        return {"d": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"m": str(value).removeprefix("torch.")}
    if isinstance(value, torch.layout):
        return {"l": str(value).removeprefix("torch.")}
    if isinstance(value, (tuple, list, torch.Size)):
        return [encode(item, beyond) for item in value]
    if isinstance(value, dict):
        return {"o": {str(key): encode(item) for key, item in value.items()}}
    raise ProtocolError(f"a value of type {type(value).__name__} cannot cross to another process")


def decode(data: Any, depth: int = 0, beyond: Mapping[str, Decoder] = MappingProxyType({})) -> Any:
    """Decode the output of :func:`encode`; raise :class:`ProtocolError` on anything else.

    ``beyond`` decodes by their tags what another ``beyond`` encoded.
    """
    if depth > 32:
        raise ProtocolError("message nested too deeply")
    if data is None or isinstance(data, (bool, int, float, str)):
        return data
    if isinstance(data, list):
        return [decode(item, depth + 1, beyond) for item in data]
    if not isinstance(data, dict) or len(data) != 1:
        raise ProtocolError("malformed value in message")
    ((tag, body),) = data.items()
    try:
        return (beyond.get(tag) or _DECODERS[tag])(body, depth)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ProtocolError(f"malformed {tag!r} value in message") from error


def _decode_spec(body: Any, depth: int) -> TensorSpec:
    handle, shape, stride, offset, dtype, *place = body
    return TensorSpec(int(handle), tuple(shape), tuple(stride), int(offset), DTYPES[dtype], *map(int, place))


_DECODERS: dict[str, Decoder] = {
    "f": lambda body, depth: float(body),
    "c": lambda body, depth: complex(float(body[0]), float(body[1])),
    "t": lambda body, depth: Ref(int(body)),
    "g": lambda body, depth: GeneratorRef(int(body)),
    "s": _decode_spec,
    "d": lambda body, depth: DTYPES[body],
    "m": lambda body, depth: _MEMORY_FORMATS[body],
    "l": lambda body, depth: {"strided": torch.strided}[body],
    "o": lambda body, depth: {key: decode(item, depth + 1) for key, item in body.items()},
}
