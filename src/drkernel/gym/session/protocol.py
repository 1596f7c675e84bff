"""The session interface that the judge needs, whatever the device: the candidate's answers, and what can be
observed.

The answers of a session: the records of a load and a call, and the error when there is none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch

from drkernel.gym.device import Device, Observable
from drkernel.gym.request import EvalSettings
from drkernel.gym.session.clocks import ClockReading
from drkernel.sim.gpu.engine import Schedule
from drkernel.sim.gpu.interfere import Interference
from drkernel.sim.process.call_record import CallRecord, Form
from drkernel.sim.wire.frames import Tape
from drkernel.tasks.sharing import TensorMemory
from drkernel.verdict import CandidateError, ObservedBy, Profile, SandboxReport

ErrorKind = Literal["compile_error", "runtime_error", "timeout", "out_of_memory", "tampering", "infra_error"]
BEFORE_AN_ANSWER = ("timeout", "out_of_memory")
"""limits that end a call before anything is known of its answer"""


class SessionError(Exception):
    """A command failed: the candidate's fault or, with ``infra_error``, the machinery's.

    After an exception of the candidate's own code the session may still be used; after anything else every further
    command raises again.
    """

    def __init__(self, kind: ErrorKind, detail: CandidateError, record: CallRecord | None = None):
        super().__init__(f"{kind}: {detail.type}: {detail.message}")
        self.kind: ErrorKind = kind
        self.detail = detail
        self.record = record
        """the device's record of the call that failed"""


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


class OwnLaunch(Protocol):
    """A launch of a kernel of the candidate's own."""

    @property
    def name(self) -> str:
        """The kernel function's name."""

    @property
    def identity(self) -> str:
        """Distinguishes kernels of the same name."""


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
    times: int


@dataclass(frozen=True)
class Observed:
    """The facts known about one call besides its outputs, as far as the device allows (``Session.observes``)."""

    launches: Sequence[OwnLaunch]
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

    @property
    def mutated(self) -> list[int]:
        """Handles of inputs whose bytes changed since the judge last put or wrote them."""
        return self.record.mutated


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
    """An argument of :meth:`Session.call` that is taken literally, even when it equals a handle."""

    value: Any


class Session(Protocol):
    """One candidate in one runner; every method blocks at most until the session's deadline.

    Methods raise :class:`~drkernel.gym.session.protocol.SessionError` for whatever a candidate does.
    """

    device: Device
    most_output_bytes: int
    """maximum bytes of a call's outputs that are transferred; beyond it an output is only described"""

    @property
    def observes(self) -> Mapping[Observable, ObservedBy]:
        """The observables of this candidate here, with the side that observes them; anything missing goes unchecked."""

    def load(
        self,
        source: str,
        init_args: list[Any],
        init_kwargs: dict[str, Any],
        *,
        seed: int,
        conv_tf32: bool = False,
        built_there: bool = False,
        preferred: Sequence[Choice] = (),
    ) -> LoadResult:
        """Import the source, seed torch, construct ``ModelNew(*init_args, **init_kwargs)``, put it on the device.

        ``built_there``: the constructor's tensors are made on the device; ``preferred``: what a tuner is to choose.
        """

    starts_from: dict[str, torch.Tensor]
    """state that calls change, as it is to be before every call"""

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Copy values into parameters and buffers in place."""

    def call(
        self,
        arguments: Sequence[Any],
        *,
        poison: Literal["nan", "zero", "random"] | None = None,
        interference: Interference | None = None,
        forms: Sequence[Form | None] | None = None,
        only: Sequence[int] | None = None,
        schedule: Schedule | None = None,
    ) -> CallResult:
        """Call the module. ``interference`` must be among what the session observes: 'skip' or 'disturb'.

        With ``only``, 'skip' is of the launches at those places; it needs a device that is the judge's own, and so does
        ``schedule``, the order of programs, which is ignored elsewhere.

        ``forms`` are those that the outputs must have; of one of another form only the description comes.
        """

    def put(self, tensor: torch.Tensor) -> int:
        """Copy a host tensor into a new allocation on the device; returns its handle."""

    def write(self, handle: int, tensor: torch.Tensor) -> None:
        """Replace the contents of an input in place."""

    def read(self, handle: int) -> torch.Tensor:
        """Return a tensor's current contents."""

    def region(self, handle: int) -> TensorMemory | None:
        """Return an input's memory region; None where only the runner knows it."""

    def state(self, forms: Mapping[str, Form]) -> dict[str, Output]:
        """Return the current contents of entries of the candidate's state dict that have the requested form."""

    def set_mode(self, training: bool) -> None:
        """``module.train(training)``, where the candidate is a module."""

    def limit(self, seconds: float) -> None:
        """Limit the candidate to this many more seconds."""

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do ``work``, which must not raise, while the candidate answers the next request."""

    def changed(self) -> list[int]:
        """Return the handles of outputs whose bytes changed since the call that returned them."""

    def release(self, handles: Iterable[int]) -> None:
        """Release inputs and outputs."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Limit the block's requests to ``seconds``; exceeding it ends the session."""

    @property
    def over(self) -> bool:
        """Whether the session has ended, so that nothing more can be requested."""

    def report(self) -> SandboxReport:
        """The sandbox layers that are on."""

    def stdout(self) -> str:
        """The candidate's output so far."""

    def kill(self) -> None:
        """End the session."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class RecordedSession(Session, Protocol):
    """A session on a device of the judge's own, which can record the candidate's commands."""

    def record(self) -> None:
        """Record what the candidate does on the device, from loading on."""

    def tape(self) -> Tape:
        """What was recorded."""


@runtime_checkable
class TimedSession(Session, Protocol):
    """A session on a device whose times can be measured."""

    no_clock: str | None
    """why the GPU's clock could not be read; None where it was, or nothing was timed yet"""

    def time(
        self,
        sets: Sequence[Sequence[Any]],
        *,
        order: Sequence[int],
        flush_bytes: int,
        keep: int | None = None,
        dry: bool = False,
        moves: Sequence[float] = (),
        moved: Sequence[int] = (),
        sample: int | None = None,
    ) -> TimedCalls:
        """Call with one of the sets of arguments after another, timed, the GPU's caches flushed before each."""

    def stopped(self) -> AbstractContextManager[None]:
        """Its processes stand still in the block."""

    def put_in_parts(self, tensor: torch.Tensor) -> int:
        """Copy a host tensor of any size onto the device, to be timed with."""

    def profile(self, arguments: Sequence[Any], *, calls: int = 1) -> Profile:
        """Return where the device time of one call goes, averaged over ``calls``."""


class OpensSessions(Protocol):
    """The session factory's interface that the judge needs."""

    def open(self, settings: EvalSettings, *, data_free: bool = False) -> Session:
        """A fresh runner on the settings' device: a :class:`TimedSession` where times are measured.

        ``data_free``: its simulated device holds no data, and counts and models at sizes that nobody could execute.
        """
