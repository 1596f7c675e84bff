"""The answers of a session: the records of a load and a call, and the error when there is none."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch

from drkernel.gym.device import ClockReading
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.engine import Schedule
from drkernel.sim.gpu.interfere import Interference
from drkernel.sim.process.control_socket import CallRecord, Form
from drkernel.verdict import CandidateError

ErrorKind = Literal["compile_error", "runtime_error", "timeout", "out_of_memory", "tampering", "infra_error"]
BEFORE_AN_ANSWER = ("timeout", "out_of_memory")
"""limits that end a call before anything is known of its answer"""


class SessionError(Exception):
    """A command failed: the candidate's fault or, with ``infra_error``, the machinery's.

    After an exception of the candidate's own code the session may still be used; after anything else every further
    command raises again.
    """

    def __new__(cls, kind: ErrorKind, *_: Any) -> "SessionError":
        """One of :class:`CandidateFailed` where it is the candidate's alone."""
        return super().__new__(cls if kind in ("infra_error", "tampering") else CandidateFailed)

    def __init__(self, kind: ErrorKind, detail: CandidateError, record: CallRecord | None = None):
        super().__init__(f"{kind}: {detail.type}: {detail.message}")
        self.kind: ErrorKind = kind
        self.detail = detail
        self.record = record
        """the device's record of the call that failed"""


class CandidateFailed(SessionError):
    """It raised, crashed or met a limit; neither the machinery's fault nor an attack on it."""


class CallTerms(TypedDict, total=False):
    """How a session is to call."""

    poison: Literal["nan", "zero", "random"] | None
    """the contents of fresh memory from now on"""
    interference: Interference | None
    """what happens to the candidate's own launches in this call alone; it must be among what the session observes"""
    forms: Sequence[Form | None] | None
    """shape and dtype of each expected output (None for one that is not a tensor): an output of another form is only
    described, and all are when their number differs"""
    only: Sequence[int] | None
    """places of the launches that a device of the judge's own skips, and no others"""
    schedule: Schedule | None
    """the order in which it runs programs"""


@dataclass(frozen=True)
class ParameterSpec:
    """One entry of the candidate's state dict."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class LoadResult:
    """The result of loading a candidate."""

    type: str
    """class of the constructed object, as the runner reports it"""
    parameters: dict[str, ParameterSpec]
    """its state dict: names, shapes and dtypes, buffers included"""
    seconds: float
    """wall seconds that the runner took"""
    loads_itself: bool = False
    """whether a module of it loads state in a way of its own: all of it is loaded at once, then"""


@dataclass(frozen=True)
class Output:
    """One returned value. For a tensor on the device every field is the device's knowledge, not the runner's."""

    value: torch.Tensor | int | float | bool | None
    """None also for a tensor that does not have the requested form, or is not on the device: it is only described"""
    handle: int | None
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype | None
    device: str
    python_type: str
    """the class that the runner claims, e.g. 'DeviceTensor', 'Tensor', 'list'"""
    storage: int | None
    """device address of the storage it is a view of"""
    address: int | None
    """device address of its first element"""


@dataclass(frozen=True)
class Choice:
    """One specialisation of a kernel, as Triton's tuner may choose it."""

    kernel: str
    constexprs: dict[str, str]
    """by name, as ``repr`` writes them"""
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class ToldLaunch:
    """A kernel that the runner reports as launched, once or more."""

    name: str
    identity: str
    """distinguishes kernels of the same name"""
    times: int


@dataclass(frozen=True)
class Observed:
    """The facts known about one call besides its outputs, as far as the device allows (``JobSession.observes``)."""

    launches: Sequence[LaunchRecord | ToldLaunch]
    """launches of the candidate's own kernels, in order"""
    operators: dict[str, int]
    """ATen operators with device work -> times run"""
    mutated: list[int]
    """handles of inputs whose bytes changed since the judge last put or wrote them"""
    device: CallRecord | None
    """everything that the judge's own device observed: data flow, copies, host reads, late work, memory errors, races,
    modelled time; None on a real GPU, where none of it can be observed"""
    overrun: int = 0
    """allocations behind which something was written, on a real GPU"""


@dataclass(frozen=True)
class CallResult:
    """The result of one call of the module."""

    outputs: list[Output]
    python_type: str
    """class of the returned value, as the runner reports it"""
    record: Observed
    seconds: float
    """wall seconds that the runner took, on the judge's clock"""
    arguments: list[Any]
    """the call's arguments with every tensor replaced by its handle: give them again to call on the same tensors"""


@dataclass(frozen=True)
class TimedCalls:
    """Calls timed one after another, the caches of the GPU flushed before each."""

    device_seconds: tuple[float, ...]
    """one per call, between two events on the device"""
    wall_seconds: float
    """the whole block by the judge's clock, flushes included, the sending of outputs not"""
    kept: list[Output]
    """outputs of the requested call"""
    clocks: tuple[ClockReading, ...] = ()
    """the GPU's before and after the block; none where it cannot be read"""


@dataclass(frozen=True)
class Plain:
    """An argument of a session's ``call`` that is taken literally, even when it equals a handle."""

    value: Any
