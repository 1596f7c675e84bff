"""A session on a real GPU, which the runner controls.

It has the methods of a simulated session, and two more: :meth:`CudaSession.time` and :meth:`CudaSession.profile`. Here
the runner reports values, times and launches, so less is certain: the judge compares outputs with its own oracle, and
the device's times must agree with ``wall_seconds``, the judge's clock around the whole block.

Which kernels ran, for how long, and what launched them is read here from a profiler's trace, as Kineto writes it. The
candidate's process could forge it: :func:`read_trace` refuses one that contradicts itself, and coverage is marked as
reported by the runner.
"""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Unpack

import torch
from torch.utils._pytree import tree_map, tree_map_only

from drkernel.gym.device import CardClock, ClockReading, NoClock, Observable
from drkernel.gym.languages import TRITON, TracedKernel, recognise
from drkernel.gym.request import EvalSettings
from drkernel.gym.runner.launcher import JobHandle, Launcher
from drkernel.gym.runner.processes import signal_tree
from drkernel.gym.runner.values import Granted, pack
from drkernel.gym.session.base import EXIT_SECONDS, MAX_OUTPUTS, JobSession, claims_of, plain_of, sizes_of
from drkernel.gym.session.protocol import CallResult, CallTerms, Observed, Output, Plain, TimedCalls, ToldLaunch
from drkernel.sim.process.control_socket import Form
from drkernel.sim.wire.commands import DTYPES, TensorSpec
from drkernel.sim.wire.frames import bytes_of, describe, tensor_of
from drkernel.tasks.sharing import TensorMemory
from drkernel.verdict import ObservedBy, Owner, Profile, ProfileRow

MAX_TRACE = 64 << 20
"""bytes of a trace"""
MAX_EVENTS = 1_000_000
PART = 64 << 20
"""bytes of a large input that are sent at once"""
MAX_ROWS = 200
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True)
class Trace:
    """The activity of a GPU between the start and the end of a profile."""

    kernels: tuple[TracedKernel, ...]
    """in order of their start"""
    copies: tuple[TracedKernel, ...]
    """and fills, by the GPU's copy engine or runtime, of no operator"""
    elapsed: float
    """seconds from the first start to the last end; 0 without device work"""


def read_trace(data: bytes | bytearray) -> Trace:
    """Parse a trace. Raises ``ValueError`` for data that is not a trace, or that is impossible."""
    document = json.loads(bytes(data))
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list) or len(events) > MAX_EVENTS:
        raise ValueError("a trace is an object with a list of traceEvents")
    operators, launching = _operators(events), _launching(events)
    kernels: list[tuple[float, TracedKernel]] = []
    copies: list[TracedKernel] = []
    starts: list[float] = []
    ends: list[float] = []
    for event in events:
        kind = event.get("cat") if isinstance(event, dict) else None
        if kind in _DEVICE and event.get("ph") == "X":
            start, seconds = float(event["ts"]), float(event["dur"]) * 1e-6
            if not (0 <= seconds < 1e6 and abs(start) < 1e18):
                raise ValueError("a kernel of the trace has no finite time")
            starts.append(start)
            ends.append(start + seconds * 1e6)
            name = str(event["name"])[:500]
            correlation = _id(event, "correlation")
            host = launching.get(correlation) if correlation is not None else None
            if kind == "kernel":
                kernels.append((start, TracedKernel(name, seconds, operators.get(_id(event)), host)))
            else:
                copies.append(TracedKernel(name, seconds, None, host))
    elapsed = (max(ends) - min(starts)) * 1e-6 if ends else 0.0
    kernels.sort(key=lambda pair: pair[0])
    return Trace(tuple(kernel for _, kernel in kernels), tuple(copies), elapsed)


def _operators(events: list[Any]) -> dict[Any, str]:
    """Map external ids to the operator that the host was in."""
    return {
        _id(event): str(event.get("name"))[:200]
        for event in events
        if isinstance(event, dict) and event.get("cat") == "cpu_op" and _id(event) is not None
    }


def _launching(events: list[Any]) -> dict[Any, float]:
    """Map correlation ids to the host seconds of the runtime's call."""
    calls = [event for event in events if isinstance(event, dict) and event.get("cat") in _RUNTIME]
    timed = [event for event in calls if isinstance(event.get("dur"), (int, float)) and 0 <= event["dur"] < 1e12]
    return {_id(event, "correlation"): event["dur"] * 1e-6 for event in timed}


def _id(event: dict[str, Any], key: str = "External id") -> Any:
    arguments = event.get("args")
    found = arguments.get(key) if isinstance(arguments, dict) else None
    return found if isinstance(found, int) and found > 0 else None


def profile_of(trace: Trace, own: Collection[str], device: str, calls: int) -> Profile:
    """Return the device seconds of one call by kernel or operator; ``own`` are the names of the candidate's kernels.

    Rows of the trace are averaged over ``calls``.
    """
    rows: dict[tuple[str, Owner], list[float]] = {}
    owned = [(*_owned(kernel, own), kernel) for kernel in trace.kernels]
    for name, owner, work in [*owned, *((copy.name, "copy", copy) for copy in trace.copies)]:
        row = rows.setdefault((name, owner), [0, 0.0, 0.0])
        row[0] += 1
        row[1] += work.seconds
        row[2] += work.host_seconds or 0.0
    total = sum(seconds for _, seconds, _ in rows.values())
    shown = sorted(rows.items(), key=lambda row: -row[1][1])[:MAX_ROWS]
    return Profile(
        kind="measured",
        device=device,
        rows=tuple(
            ProfileRow(
                name=name[:200],
                owner=owner,
                calls=max(1, round(count / calls)),
                seconds=seconds / calls,
                host_seconds=host / calls if host else None,
                share=seconds / total if total > 0 else 0.0,
            )
            for (name, owner), (count, seconds, host) in shown
        ),
        total_seconds=total / calls,
        elapsed_seconds=trace.elapsed / calls,
    )


def _owned(kernel: TracedKernel, own: Collection[str]) -> tuple[str, Owner]:
    if kernel.operator is not None and kernel.of_pytorch:
        return kernel.operator.replace("::", ".", 1), "library"
    return kernel.name, "custom" if kernel.name in own else "library"


class CudaSession(JobSession):
    """One candidate on one GPU."""

    def __init__(self, launcher: Launcher, settings: EvalSettings, job: JobHandle):
        self._handles: set[int] = set()
        self._source = ""
        self._language = TRITON
        self._clock: CardClock | None = None
        self.no_clock: str | None = None
        super().__init__(launcher, settings, job)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Its processes stand still in the block: none starts work that would slow another session's."""
        signal_tree(self._job.pids["runner"], signal.SIGSTOP)
        try:
            yield
        finally:
            signal_tree(self._job.pids["runner"], signal.SIGCONT)

    def kill(self) -> None:
        """End the session, and wait until its processes have left the GPU to the next."""
        super().kill()
        self._job.wait_until_gone(EXIT_SECONDS)

    @property
    def observes(self) -> Mapping[Observable, ObservedBy]:
        """The observables that the runner can report for a candidate in this language."""
        return self._language.observes(self.device)

    def _before_load(self, source: str, conv_tf32: bool) -> None:
        """A language with a slow compiler gets more time."""
        self._source, self._language = source, recognise(source)
        self._left += self._language.compile_s

    # ---- calls

    def call(self, arguments: Sequence[Any], **terms: Unpack[CallTerms]) -> CallResult:
        """Call as on a simulated GPU; the runner sends outputs up to ``most_output_bytes``, of whatever form.

        The GPU schedules programs as it likes, whatever ``schedule`` says. Raises ``ValueError`` for an interference
        that this session does not offer, and for one with ``only`` some launches.
        """
        poison, interference, only = (terms.get(name) for name in ("poison", "interference", "only"))
        if interference not in (None, "none") and (interference not in self.observes or only is not None):
            raise ValueError(f"{interference!r} is not offered for {self._language.title} on {self.device.name}")
        self._begin_again()
        data, payload = pack(tree_map(self._argument, list(arguments)))
        start = time.monotonic()
        most, traced = self.most_output_bytes, self._language.told_by == "trace"
        header = {
            "do": "call", "inputs": data, "poison": poison, "interference": interference, "most_bytes": most,
            "trace": traced,
        }  # fmt: skip
        answer, elements = self._ask_for_data(header, payload, most_bytes=most + MAX_TRACE * traced)
        seconds = time.monotonic() - start
        return self._checked(lambda: self._result(answer, elements, list(arguments), seconds))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Plain):
            return value.value
        if isinstance(value, int) and not isinstance(value, bool) and value in self._handles:
            return Granted(TensorSpec(value, (), (), 0, torch.float32, 0, 0))
        return value

    def _result(self, answer: Any, elements: bytearray, arguments: list[Any], seconds: float) -> CallResult:
        granted = [int(handle) for handle in answer["granted"]]
        self._handles.update(granted)
        handles = iter(granted)
        named = tree_map_only(torch.Tensor, lambda _: next(handles), arguments)
        record = Observed(
            launches=self._launches(answer, elements),
            operators={str(name): int(count) for name, count in answer["operators"].items()},
            mutated=[int(handle) for handle in answer["mutated"]],
            device=None,
            overrun=int(answer["broken"]),
        )
        return CallResult(_outputs(answer, elements), str(answer["type"])[:100], record, seconds, named)

    def _launches(self, answer: Any, elements: bytearray) -> list[ToldLaunch]:
        """The candidate's own kernels that were launched, by Triton's hook or by the trace."""
        if self._language.told_by == "hook":
            return _told_launches(answer["launches"])
        trace = read_trace(_last_bytes(answer, elements))
        counts = Counter(kernel.name for kernel in self._language.own(self._source, trace.kernels))
        return [ToldLaunch(name, name, times) for name, times in counts.items()]

    # ---- tensors

    def put(self, tensor: torch.Tensor) -> int:
        handle = self._ask({"do": "put", "tensor": describe(tensor)}, bytes(bytes_of(tensor)))
        number = self._checked(lambda: int(handle))
        self._handles.add(number)
        return number

    def put_in_parts(self, tensor: torch.Tensor) -> int:
        """Copy a host tensor of any size; its handle is for :meth:`time` and :meth:`profile` alone."""
        if tensor.nbytes <= PART or not tensor.dim():
            return self.put(tensor)
        number = int(self._ask({"do": "reserve", "tensor": describe(tensor)}))
        self._handles.add(number)
        rows = max(1, PART * len(tensor) // tensor.nbytes)
        for row, part in zip(range(0, len(tensor), rows), tensor.split(rows), strict=True):
            header = {"do": "fill", "handle": number, "row": row, "tensor": describe(part.contiguous())}
            self._ask(header, bytes(bytes_of(part)))
        return number

    def write(self, handle: int, tensor: torch.Tensor) -> None:
        self._ask({"do": "write", "handle": handle, "tensor": describe(tensor)}, bytes(bytes_of(tensor)))

    def read(self, handle: int) -> torch.Tensor:
        most = self._settings.memory_bytes
        described, elements = self._ask_for_data({"do": "read", "handle": handle, "most_bytes": most}, most_bytes=most)
        return self._checked(lambda: tensor_of(described, elements))

    def region(self, handle: int) -> TensorMemory | None:
        """Return None: only the runner knows where inputs are."""
        return None

    def changed(self) -> list[int]:
        answer = self._ask({"do": "changed"})
        return self._checked(lambda: [int(handle) for handle in answer])

    def release(self, handles: Iterable[int]) -> None:
        released = list(handles)
        self._ask({"do": "release", "handles": released})
        self._handles -= set(released)

    def state(self, forms: Mapping[str, Form]) -> dict[str, Output]:
        """Return the current contents of entries of the candidate's state dict, as the runner reports them."""
        most = self._settings.memory_bytes
        header = {"do": "state", "names": list(forms), "most_bytes": most}
        answer, elements = self._ask_for_data(header, most_bytes=most)
        return dict(zip(forms, self._checked(lambda: _outputs(answer, elements, len(forms))), strict=False))

    # ---- time

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
        """Call once for each entry of ``order``, which names one of the sets of arguments (handles and plain values).

        All calls find their inputs at the same addresses. ``flush_bytes`` are written before each, more than the GPU's
        caches hold. ``keep`` is the call whose outputs come back, by a request of their own: they are in nobody's time.
        ``dry`` does everything but call the module: what a block costs by itself. ``moves`` are shares of a tensor's
        length, one for each call, by which the elements of the tensors at the places ``moved`` are moved on. With the
        seed ``sample``, elements at places that follow from it come back of large outputs.
        """
        self._begin_again()
        data, payload = pack(tree_map(self._argument, [list(arguments) for arguments in sets]))
        header = {
            "do": "time", "sets": data, "order": list(order), "flush_bytes": flush_bytes, "keep": keep, "dry": dry,
            "moves": list(moves), "moved": list(moved), "starts_from": list(self.starts_from),
        }  # fmt: skip
        clocks = self._clock_now()
        start = time.perf_counter()
        answer = self._ask(header, payload)
        wall = time.perf_counter() - start
        clocks += self._clock_now()

        def read() -> TimedCalls:
            events = tuple(float(seconds) for seconds in answer["events"])
            if len(events) != len(order) or not all(0 <= seconds < 1e6 for seconds in events):
                raise ValueError("a time for each call is expected")
            if not dry and min(events, default=1.0) <= 0:
                raise ValueError("a call took no time")
            return TimedCalls(events, wall, [], clocks)

        timed = self._checked(read)
        return timed if keep is None else replace(timed, kept=self._kept(sample))

    def _clock_now(self) -> tuple[ClockReading, ...]:
        """What the GPU's clock says; nothing where it cannot be read, and then :attr:`no_clock` says why."""
        try:
            self._clock = self._clock or CardClock(self.device)
            return (self._clock.read(),)
        except NoClock as error:
            self.no_clock = str(error)
            return ()

    def _kept(self, sample: int | None) -> list[Output]:
        """The outputs that the last timed block kept."""
        most = self.most_output_bytes
        answer, elements = self._ask_for_data({"do": "kept", "most_bytes": most, "sample": sample}, most_bytes=most)
        outputs = self._checked(lambda: _outputs(answer, elements, sampled=sample is not None))
        self.release([output.handle for output in outputs if output.handle is not None])
        return outputs

    def profile(self, arguments: Sequence[Any], *, calls: int = 1) -> Profile:
        """Return where the device time of one call goes, from the profiler's trace, averaged over ``calls``.

        A kernel is the candidate's own when its language says so and no operator of PyTorch launched it.
        """
        data, payload = pack(tree_map(self._argument, list(arguments)))
        header = {"do": "profile", "inputs": data, "calls": calls}
        answer, elements = self._ask_for_data(header, payload, most_bytes=MAX_TRACE)

        def read() -> Profile:
            trace = read_trace(_last_bytes(answer, elements))
            own = {kernel.name for kernel in self._language.own(self._source, trace.kernels)}
            return profile_of(trace, own, self.device.name, calls)

        return self._checked(read)


def _told_launches(entries: Any) -> list[ToldLaunch]:
    """The hook's count. Raises ``ValueError`` for one that contradicts itself."""
    told = [ToldLaunch(str(entry["name"])[:200], str(entry["identity"])[:500], entry["times"]) for entry in entries]
    if any(type(launch.times) is not int or launch.times < 1 for launch in told):
        raise ValueError("a kernel that is launched is launched a number of times")
    if len({(launch.name, launch.identity) for launch in told}) < len(told):
        raise ValueError("a kernel is counted twice")
    return told


def _outputs(answer: Any, elements: bytearray, most: int = MAX_OUTPUTS, *, sampled: bool = False) -> list[Output]:
    """The outputs of an answer; of those that are ``sampled`` the value is a part of the elements."""
    view, start, outputs = memoryview(elements), 0, []
    for claim in claims_of(answer, most):
        kind = str(claim.get("type"))[:100]
        if claim.get("handle") is None:
            value = plain_of(claim["value"]) if "value" in claim else None
            outputs.append(Output(value, None, (), (), None, "host", kind, None, None))
            continue
        shape, stride, dtype = sizes_of(claim["shape"]), sizes_of(claim["stride"]), DTYPES[claim["dtype"]]
        tensor = None
        if claim["bytes"] is not None:
            end = start + int(claim["bytes"])
            part = {"dtype": claim["dtype"], "shape": [claim["sampled"]]} if sampled else claim
            tensor = tensor_of(part, view[start:end])
            start = end
        storage, address = claim["storage"], claim["address"]
        reach = sum(size * step * dtype.itemsize for size, step in zip(shape, stride, strict=True))
        if type(storage) is not int or type(address) is not int or not 0 <= address <= address + reach < 1 << 62:
            raise ValueError("a tensor must fit its memory")
        place = (str(claim["device"])[:50], kind, storage, address)
        outputs.append(Output(tensor, claim["handle"], shape, stride, dtype, *place))
    return outputs


def _last_bytes(answer: Any, elements: bytearray) -> bytearray:
    """The trace, which comes behind the outputs' elements."""
    count = int(answer["trace"]["bytes"])
    if not 0 <= count <= len(elements):
        raise ValueError("a trace is longer than what was sent")
    return elements[len(elements) - count :]
