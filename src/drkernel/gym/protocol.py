"""What the judge and a session say to each other: one candidate in one runner, seen from the judge's side.

The judge is written against these protocols and nothing else, so that a session may be a sandboxed process with a
simulated GPU, one with a real GPU, or an object in the same process in a test.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch

from drkernel.gym.request import EvalSettings
from drkernel.sim.isolated import CallRecord
from drkernel.verdict import CandidateError, SandboxReport

ErrorKind = Literal["compile_error", "runtime_error", "timeout", "out_of_memory", "tampering", "infra_error"]


class SessionError(Exception):
    """The candidate (or, for ``infra_error``, the machinery) ended the session; no further call is possible."""

    def __init__(self, kind: ErrorKind, detail: CandidateError):
        super().__init__(f"{kind}: {detail.type}: {detail.message}")
        self.kind: ErrorKind = kind
        self.detail = detail


@dataclass(frozen=True)
class ParameterSpec:
    """One entry of the candidate module's ``state_dict()``, buffers included."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class LoadResult:
    """What loading the candidate gave."""

    seconds: float
    """wall seconds of executing the source and building ``ModelNew``"""
    parameters: dict[str, ParameterSpec]


@dataclass(frozen=True)
class Output:
    """One leaf of what ``forward`` returned, in order."""

    value: torch.Tensor | int | float | bool | None
    """read by the judge from the device; a CPU tensor for a tensor"""
    handle: int | None
    """device handle of a tensor, kept alive until released"""
    device: str
    """'cuda:0' for a device tensor, 'cpu' for a host tensor, '' for a number"""
    python_type: str
    """name of the class the candidate returned, e.g. 'Tensor' or 'Parameter'"""
    storage: int | None = None
    """device address of the tensor's storage"""
    stride: tuple[int, ...] = ()


@dataclass(frozen=True)
class CallResult:
    """One call of the candidate's ``forward``."""

    outputs: list[Output]
    record: CallRecord
    """what the device saw during this call alone"""
    seconds: float = 0.0
    """wall seconds that the runner took"""


class Session(Protocol):
    """One candidate in one runner. Every method may raise :class:`SessionError`; all have the session's deadline."""

    device_name: str

    def __enter__(self) -> Session: ...

    def __exit__(self, *exc: object) -> None: ...

    def load(self, source: str, init_args: list[Any], init_kwargs: dict[str, Any], *, seed: int) -> LoadResult:
        """Execute the source and build ``ModelNew(*init_args, **init_kwargs)`` after ``torch.manual_seed(seed)``."""

    def parameters(self) -> dict[str, ParameterSpec]:
        """The module's ``state_dict()``: names, shapes and dtypes."""

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Copy values into the module's state in place, strictly; possible between any two calls."""

    def put(self, tensor: torch.Tensor) -> int:
        """A new tensor on the device for the candidate to read; returns its handle."""

    def write(self, handle: int, tensor: torch.Tensor) -> None:
        """New contents for a tensor that was put: same handle, same address, same Python object in the runner."""

    def call(self, arguments: list[Any]) -> CallResult:
        """``forward(*arguments)``; tensors are given as :class:`Handle`, other values as they are."""

    def read(self, handle: int) -> torch.Tensor:
        """A device tensor as it is now."""

    def release(self, handles: list[int]) -> None:
        """Let go of tensors that were put or returned."""

    def suppress_launches(self, on: bool) -> None:
        """From now on the device records launches without executing them."""

    def set_poison(self, policy: Literal["nan", "zero", "random"]) -> None:
        """What fresh, never written device memory holds from now on."""

    def report(self) -> SandboxReport:
        """Which isolation layers are active."""

    def stdout(self) -> str:
        """What the candidate printed so far, truncated."""


@dataclass(frozen=True)
class Handle:
    """An argument of :meth:`Session.call` that is a tensor on the device."""

    number: int


class SessionFactory(Protocol):
    """Opens sessions: owns whatever is kept warm between them."""

    def open(self, settings: EvalSettings) -> Session:
        """A fresh runner. Raises :class:`SessionError` of kind ``infra_error`` when none can be had."""
