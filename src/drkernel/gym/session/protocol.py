"""The session interface that the judge needs, whatever the device: the candidate's answers, and what can be
observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

import torch

from drkernel.gym.device import Device, Observable
from drkernel.gym.request import EvalSettings
from drkernel.gym.session.answers import CallResult, Choice, LoadResult, Output, TimedCalls
from drkernel.sim.gpu.engine import Schedule
from drkernel.sim.gpu.interfere import Interference
from drkernel.sim.process.call_record import Form
from drkernel.sim.wire.tape import Tape
from drkernel.tasks.sharing import TensorMemory
from drkernel.verdict import ObservedBy, Profile, SandboxReport


class Session(Protocol):
    """One candidate in one runner; every method blocks at most until the session's deadline.

    Methods raise :class:`~drkernel.gym.session.answers.SessionError` for whatever a candidate does.
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

    def time(
        self,
        sets: Sequence[Sequence[Any]],
        *,
        order: Sequence[int],
        flush_bytes: int,
        keep: int | None = None,
        dry: bool = False,
    ) -> TimedCalls:
        """Call with one of the sets of arguments after another, timed, the GPU's caches flushed before each."""

    def profile(self, arguments: Sequence[Any], *, calls: int = 1) -> Profile:
        """Return where the device time of one call goes, averaged over ``calls``."""


class OpensSessions(Protocol):
    """The session factory's interface that the judge needs."""

    def open(self, settings: EvalSettings, *, data_free: bool = False) -> Session:
        """A fresh runner on the settings' device: a :class:`TimedSession` where times are measured.

        ``data_free``: its simulated device holds no data, and counts and models at sizes that nobody could execute.
        """
