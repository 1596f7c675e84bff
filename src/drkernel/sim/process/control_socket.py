"""The judge's connection to a device process: both ends of the control socket.

:class:`ControlDesk` runs in the device process and executes the judge's commands; :class:`DeviceControl` is the judge's
handle. Everything that a call needs is sent in one message before it (inputs, poison, interference) and one after it:
its :class:`CallRecord`, with the outputs, and which inputs have changed since the judge put them.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.dataflow import Passed
from drkernel.sim.gpu.datafree import DataDependence, DependsOnData
from drkernel.sim.gpu.device_journal import TOO_LONG, LaunchEntry, detailed, entries_of, modelled
from drkernel.sim.gpu.engine import DeviceEngine, DeviceFault, Schedule
from drkernel.sim.gpu.heap import POISONS, OverBudget
from drkernel.sim.gpu.interfere import INTERFERENCES, Interference
from drkernel.sim.spec import GPUSpec
from drkernel.sim.wire.commands import LaunchRefused, ProtocolError, TensorSpec, UnsupportedOp, decode, encode
from drkernel.sim.wire.frames import (
    MAX_PAYLOAD,
    ConnectionLost,
    Payload,
    Tape,
    TapeRecorder,
    bytes_of,
    describe,
    elements_of,
    fields_of,
    receive,
    same_bytes,
    send,
    tensor_of,
    tensor_or_form,
)
from drkernel.verdict import Profile
from ttir_executor.compiled import SimFinding
from ttir_executor.ttir.ir import UnsupportedTTIR


class NotHeld(ValueError):
    """The judge named a tensor that it does not hold. This is the judge's own mistake, whatever the host does."""


_ERRORS: dict[str, type[Exception]] = {
    cls.__name__: cls
    for cls in (
        RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, UnsupportedOp, ProtocolError,
        DependsOnData, DeviceFault, LaunchRefused, NotHeld, OverBudget, torch.OutOfMemoryError,
    )
}  # fmt: skip


MAX_LAUNCHES, MAX_RECORDS, MAX_PRINTED = 16384, 256, 64 << 10
"""Limits of one call: launches in its record (a call with more is refused), findings, characters of kernels' prints."""
_OF_NOISE = 0x6E6F697365
"""sets random contents apart from whatever else is drawn from a call's seed"""
MAX_LATE = 256
"""most late commands that are remembered"""

# ---- the record of one call, as the judge reads it


Form = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype that a tensor must have for its elements to be sent."""


@dataclass(frozen=True)
class OutputSpec:
    """A returned handle, as the device knows it."""

    spec: TensorSpec
    storage: int
    """address of the storage that the tensor is a view of"""
    value: torch.Tensor | None
    """contents when the call ended; None if not of the form that the judge asked for, too large, or on a data-free
    device"""
    covered: float | None = None
    """on a data-free device: share of its elements certainly written since the call began. Elements written by several
    launches count several times"""


@dataclass(frozen=True)
class CallRecord:
    """The observations of the device between two marks of the judge."""

    spec_name: str
    """the GPU whose time is modelled"""
    recorded: list[LaunchRecord]
    """the launches, without their times"""
    operators: dict[str, int]
    """ATen operators with device work -> times run"""
    copies: dict[str, int]
    """'host to device' and 'device to host' -> times"""
    findings: list[SimFinding]
    prints: list[str]
    fault: str | None = None
    """the illegal access that made the device unusable"""
    host_reads: int = 0
    """how often the host read values or copies from the device, or its clock"""
    host_bytes: int = 0
    """bytes that the host learnt this way: by copies, flags, sizes that depend on data, errors, times"""
    late_work: list[str] = field(default_factory=list)
    """commands that arrived, and were refused, while the device was frozen before this call"""
    mutated: list[int] = field(default_factory=list)
    """handles of granted inputs whose bytes changed since the judge last put or wrote them"""
    outputs: list[OutputSpec | None] = field(default_factory=list)
    reaching: dict[str, int] = field(default_factory=dict)
    """ATen operators that compute something that reaches the outputs -> times run"""
    of_given: bool = False
    """whether one of them reads what was given, or what PyTorch made of it"""
    uploads_reach: bool = False
    """whether something that the host sent reaches the outputs"""
    passed_on: Passed | None = None
    """set when every output equals what an own kernel had read from PyTorch: bit for bit, or nearly"""
    dependences: list[DataDependence] = field(default_factory=list)
    """where data was missed, on a data-free device"""
    journal: str = ""
    """everything that was done, with counts (sim/gpu/device_journal.py)"""
    storages: dict[int, int] = field(default_factory=dict)
    """address of each storage that the judge holds -> its name in the journal"""

    @property
    def profile(self) -> Profile:
        """Modelled time, computed in this process from what the device reports was done, when first asked for."""
        return modelled(self.spec_name, self.journal).profile

    def detailed_profile(self, source: str) -> Profile:
        """:attr:`profile` with what limits own kernels, and the lines of ``source`` at which their time goes."""
        return detailed(self.profile, self.spec_name, self.journal, source)

    @cached_property
    def launches(self) -> list[LaunchRecord]:
        """The launches with the times of the journal; skipped ones have none."""
        time = modelled(self.spec_name, self.journal)
        costs = iter(time.launches)
        return [
            replace(launch, seconds=cost.seconds, **cost.facts)
            if time.complete and not launch.suppressed and (cost := next(costs)) is not None
            else launch
            for launch in self.recorded
        ]


def decoded_record(spec: GPUSpec, data: dict[str, Any], payload: bytearray) -> CallRecord:
    """Decode a record sent by the device process.

    Raises :class:`ProtocolError` when it is malformed or inconsistent.
    """
    try:
        return _checked_record(spec, data, payload)
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise ProtocolError(f"malformed record: {error}") from error


def _checked_record(spec: GPUSpec, data: dict[str, Any], payload: bytearray) -> CallRecord:
    present = [output for output in data["outputs"] if output is not None and output["bytes"] is not None]
    values = iter([tensor_of(header, part) for header, part in parts_of(present, payload)])
    outputs = [
        None
        if o is None
        else OutputSpec(decode(o["spec"]), o["storage"], None if o["bytes"] is None else next(values), o.get("covered"))
        for o in data["outputs"]
    ]
    lists: dict[str, list[Any]] = {
        "recorded": [
            LaunchRecord(**{**launch, "grid": tuple(launch["grid"]), "written": tuple(launch["written"])})
            for launch in data.pop("launches")
        ],
        "findings": [SimFinding(**{**f, "program": f["program"] and tuple(f["program"])}) for f in data["findings"]],
        "outputs": outputs,
    }
    more = {
        "dependences": [DataDependence(**one) for one in data["dependences"]], "spec_name": spec.name,
        "storages": {int(address): int(name) for address, name in data["storages"]},
    }  # fmt: skip
    record = CallRecord(**{**data, **lists, **more})
    if record.journal != TOO_LONG:
        priced = sum(isinstance(entry, LaunchEntry) for entry in entries_of(record.journal))
        if priced != sum(not launch.suppressed for launch in record.recorded):
            raise ValueError("the journal has another number of launches than the record")
    return record


def parts_of(headers: Iterable[dict], payload: bytearray) -> Iterator[tuple[dict, memoryview]]:
    """Yield each header with its share of the bytes."""
    start, view = 0, memoryview(payload)
    for header in headers:
        end = start + header["bytes"]
        yield header, view[start:end]
        start = end


# ---- in the device process


class ControlDesk:
    """Executes the judge's commands; knows what the host may see and what the judge holds."""

    def __init__(self, engine: DeviceEngine):
        self.engine = engine
        self.without_data = engine.data_free is not None
        engine.accounts.keep_journal = True
        self.visible: set[int] = set()
        """handles that the host may name"""
        self.pinned: set[int] = set()
        """handles that stay until the judge lets go"""
        self.frozen = False
        """whether the host's commands are refused"""
        self.late: list[str] = []
        self.stopped = False
        self.tape = TapeRecorder()
        self._given: dict[int, torch.Tensor | None] = {}
        """granted inputs, with what they held when the judge last put or wrote them"""
        self._returned: list[tuple[int, torch.Tensor]] = []
        self._commands = {
            "put": self._put, "get": self._get, "overwrite": self._overwrite, "free": self._free, "begin": self._begin,
            "end": self._end, "changed": self._changed, "frozen": self._freeze,
            "shutdown": self._shutdown, "record": self._record, "tape": lambda header, payload: self.tape.take(),
        }  # fmt: skip

    def command(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        """Execute one command of the judge; return (answer, bytes)."""
        if header["do"] not in self._commands:
            raise ProtocolError(f"the device knows no control command {header['do']!r}")
        return self._commands[header["do"]](header, payload)

    def _put(self, header: dict, payload: bytearray | memoryview) -> tuple[Any, Any]:
        tensor = tensor_or_form(header, payload)
        if not self.without_data:
            self.engine.heap.require_host(2 * _size_of(tensor))
        spec = self.engine.register(tensor)
        self.pinned.add(spec.handle)
        if header.get("grant", True):
            self.visible.add(spec.handle)
            self._given[spec.handle] = None if self.without_data else elements_of(header, payload)
        self.tape.given(encode(spec), tensor, self.tape.names_inputs)
        return encode(spec), b""

    def _get(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        tensor = self.engine.contents(self._held(header["handle"]))
        if tensor is None:
            raise ValueError("the tensor has no contents: the device is without data")
        if _size_of(tensor) > header.get("most_bytes", MAX_PAYLOAD):
            raise ValueError(f"the tensor has {_size_of(tensor)} bytes, more than asked for")
        return describe(tensor), bytes_of(tensor)

    def _overwrite(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        handle = self._held(header["handle"])
        self.engine.overwrite(handle, tensor_of(header, payload) if header.get("contents", True) else None)
        if self.tape.on:
            spec = self.engine.heap.held(handle).spec
            self.tape.given(encode(spec), self.engine.tensor(handle), self.tape.names_inputs)
        if self._given.get(handle) is not None:
            self._given[handle] = self.engine.tensor(handle).clone()
        return None, b""

    def _free(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        released = set(header["handles"])
        for handle in released:
            self.pinned.discard(handle)
            self._given.pop(handle, None)
            if handle not in self.visible:  # the host keeps what it can still see
                self.engine.free(handle)
        self._returned = [(handle, copy) for handle, copy in self._returned if handle not in released]
        return None, b""

    def _begin(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        self._set(header)
        self.tape.add("call", True)
        specs = [self._put(put, part)[0] for put, part in parts_of(header.get("puts", ()), payload)]
        self.engine.schedule = Schedule(**header["schedule"]) if header.get("schedule") else Schedule()
        self.engine.heap.noise.manual_seed(self.engine.schedule.seed ^ _OF_NOISE)
        self.engine.reset_counters()
        self.frozen = False
        return specs, b""

    def _set(self, header: dict) -> None:
        if header.get("poison") is not None:
            self.engine.heap.poison_policy = POISONS[POISONS.index(header["poison"])]
        if header.get("interference") is not None:
            self.engine.interference = INTERFERENCES[INTERFERENCES.index(header["interference"])]
            only = header.get("only")
            self.engine.skip_only = None if only is None else frozenset(only)

    def _end(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        """Return the record of the call, and the actual tensors of the handles that the host returned. They stay until
        released.

        The form of a tensor is checked before its elements: a tensor not of the requested form is neither copied nor
        sent.
        """
        self.frozen = bool(header.get("freeze", False))
        self.tape.add("call", False)
        interfered = self.engine.interference != "none"
        self._set(header)
        outputs, data = self._outputs(header)
        mutated = self._mutated()
        if len(self.engine.counters.launches) > MAX_LAUNCHES:
            raise RuntimeError(f"more than {MAX_LAUNCHES} kernel launches in one call")
        tensors = [self.engine.tensor(handle) for handle in header.get("outputs", ()) if handle in self.visible]
        places = {self.engine.heap.held(handle).base for handle in self.pinned}
        journal, names = self.engine.accounts.named_journal(places)
        changed = [self.engine.tensor(handle) for handle in mutated]
        record = {**_record_of(self.engine, tensors, changed), "late_work": self.late}
        record |= {"mutated": mutated, "outputs": outputs}
        record |= {"journal": journal, "storages": list(names.items())}
        self.late = []
        if interfered:
            self.engine.fault = None  # kernels that work on what others did not write go astray
        return record, data

    def _outputs(self, header: dict) -> tuple[list[Any], list[memoryview]]:
        """Return the tensors of the handles that the host returned, and the elements of those of the requested form."""
        handles = header.get("outputs", ())
        forms = header.get("forms") or [None] * len(handles)
        left = header.get("most_bytes", MAX_PAYLOAD)
        outputs: list[Any] = []
        data: list[memoryview] = []
        for handle, form in zip(handles, forms, strict=True):
            if handle not in self.visible:
                outputs.append(None)
                continue
            self.pinned.add(handle)
            held = self.engine.heap.held(handle)
            value = None if self.without_data else self.engine.tensor(handle)
            self.engine.heap.refresh(held)
            described = {} if value is None else describe(value)
            sent = value is not None and _size_of(value) <= left
            if value is not None and sent and form in (None, [described["shape"], described["dtype"]]):
                left -= _size_of(value)
                copy = value.clone(memory_format=torch.contiguous_format)
                self._returned.append((handle, copy))
                data.append(bytes_of(copy))
                described["bytes"] = _size_of(value)
            covered = self.engine.flow.covered(held) if self.without_data else None
            known = {"spec": encode(held.spec), "storage": held.base, "covered": covered}
            outputs.append({"bytes": None, **described, **known})
        return outputs, data

    def _mutated(self) -> list[int]:
        """Return the granted inputs whose contents changed since the judge put them; without data, those into whose
        storage something was written since the call began."""
        if self.without_data:
            written, heap = self.engine.flow.was_written, self.engine.heap
            return [handle for handle in self._given if written(heap.held(handle))]
        copies = [(handle, copy) for handle, copy in self._given.items() if copy is not None]
        return [handle for handle, copy in copies if not same_bytes(self.engine.tensor(handle), copy)]

    def _changed(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        changed = [handle for handle, copy in self._returned if not same_bytes(self.engine.tensor(handle), copy)]
        return list(dict.fromkeys(changed)), b""

    def _freeze(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        if header.get("seed") is not None:
            self.engine.random.command(0, int(header["seed"]), None)
        if header.get("conv_tf32") is not None:
            self.engine.accounts.conv_tf32 = bool(header["conv_tf32"])
        self.frozen = bool(header["on"])
        return None, b""

    def _record(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        self.tape.on, self.tape.names_inputs = True, bool(header["inputs"])
        return None, b""

    def _shutdown(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        self.stopped = True
        return None, b""

    def _held(self, handle: int) -> int:
        """Return the handle of a tensor that the judge has put or received as an output, and not released."""
        if handle not in self.pinned:
            raise NotHeld(f"handle {handle} is not held by the judge: never put or returned, or already released")
        return handle


def _size_of(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor's elements; more than its storage has if it is expanded."""
    return tensor.numel() * tensor.element_size()


def _record_of(engine: DeviceEngine, outputs: list[torch.Tensor], changed: list[torch.Tensor]) -> dict[str, Any]:
    counters, flow = engine.counters, engine.flow.slice(outputs, changed)
    facts = zip(flow.reaches, flow.copied, flow.copied_library, strict=True)
    return {
        "launches": [
            {**fields_of(launch), "reaches": reaches, "copied": copied, "copied_library": of_library}
            for launch, (reaches, copied, of_library) in zip(counters.launches, facts, strict=True)
        ],
        "reaching": flow.operators,
        "of_given": flow.of_given,
        "uploads_reach": flow.uploads,
        "passed_on": flow.passed_on,
        "operators": dict(counters.operators),
        "copies": dict(counters.copies),
        "findings": [fields_of(finding) for finding in counters.findings[:MAX_RECORDS]],
        "prints": list(_first(counters.prints, MAX_PRINTED)),
        "fault": engine.fault,
        "host_reads": engine.host_reads.count,
        "host_bytes": counters.host_bytes,
        "dependences": [fields_of(dependence) for dependence in counters.dependences],
    }


def _first(lines: Iterable[str], characters: int) -> Iterator[str]:
    """Yield lines until that many characters are reached."""
    for line in lines:
        if (characters := characters - len(line) - 1) < 0:
            return
        yield line


def named(error: Exception) -> list[str]:
    """Encode an error as name and text. An out-of-memory error of the host's allocator counts as the simulated
    GPU's."""
    name = "UnsupportedOp" if isinstance(error, UnsupportedTTIR) else type(error).__name__
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return ["OutOfMemoryError", f"CUDA out of memory. {str(error).splitlines()[0] if str(error) else ''}".strip()]
    return [name if name in _ERRORS else "RuntimeError", str(error)[:20_000]]


def unwrap(answer: Any) -> Any:
    """Return the result in an answer, or raise the error that it names."""
    if isinstance(answer, dict) and "ok" in answer:
        return answer["ok"]
    if isinstance(answer, dict) and "error" in answer:
        name, message = answer["error"]
        raise _ERRORS.get(name, RuntimeError)(message)
    raise ProtocolError("malformed answer")


# ---- in the judge


class DeviceControl:
    """The judge's handle of a device process. Every call takes at most the seconds of :meth:`set_timeout`."""

    def __init__(self, sock: socket.socket, spec: GPUSpec, timeout: float | None = None):
        self._sock = sock
        self._spec = spec
        self._lock = threading.Lock()
        self._seconds = timeout

    def _ask(self, header: dict[str, Any], payload: Payload = b"", *, most_bytes: int = 0) -> tuple[Any, bytearray]:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        with self._lock:
            send(self._sock, header, payload, deadline=deadline)
            answer, data = receive(self._sock, deadline=deadline, max_payload=most_bytes, strict=False)
        return unwrap(answer), data

    def set_timeout(self, seconds: float | None) -> None:
        """Set the time limit, in seconds, of each later call."""
        self._seconds = seconds

    def put_tensor(self, tensor: torch.Tensor, *, grant: bool = True) -> TensorSpec:
        """Put a host tensor into device memory, where it stays until freed; with ``grant`` the host side may use it.

        A data-free device also takes meta tensors: forms without elements.
        """
        header, elements = _crossing(tensor)
        return decode(self._ask({"do": "put", "grant": grant, **header}, elements)[0])

    def get_tensor(self, handle: int, *, most_bytes: int = MAX_PAYLOAD) -> torch.Tensor:
        """Read a device tensor back. Raises ``ValueError`` when it is larger than ``most_bytes``."""
        described, data = self._ask({"do": "get", "handle": handle, "most_bytes": most_bytes}, most_bytes=most_bytes)
        return tensor_of(described, data)

    def overwrite(self, handle: int, tensor: torch.Tensor) -> None:
        """Replace a device tensor's contents in place."""
        header, elements = _crossing(tensor)
        self._ask({"do": "overwrite", "handle": handle, **header}, elements)

    def free(self, *handles: int) -> None:
        """Release handles; tensors that the host still refers to stay until it releases them too."""
        self._ask({"do": "free", "handles": list(handles)})

    def begin_call(
        self, puts: Sequence[torch.Tensor] = (), *, poison: str | None = None,
        interference: Interference | None = None, only: Sequence[int] | None = None, schedule: Schedule | None = None,
    ) -> list[TensorSpec]:  # fmt: skip
        """Reset counters and clock, and take the host's commands; new inputs and settings ride along."""
        if poison is not None and poison not in POISONS:
            raise ValueError(f"poison must be one of {', '.join(POISONS)}, not {poison!r}")
        crossing = [_crossing(tensor) for tensor in puts]
        headers = [{**header, "bytes": len(elements)} for header, elements in crossing]
        message = {
            "do": "begin", "puts": headers, "poison": poison, "interference": interference,
            "only": None if only is None else list(only),
            "schedule": None if schedule is None else fields_of(schedule),
        }  # fmt: skip
        return [decode(spec) for spec in self._ask(message, [elements for _, elements in crossing])[0]]

    def end_call(
        self, *, freeze: bool = False, outputs: Iterable[int] = (), forms: Sequence[Form] | None = None,
        most_bytes: int = MAX_PAYLOAD, interference: Interference | None = None,
    ) -> CallRecord:  # fmt: skip
        """Return everything since :meth:`begin_call`. ``freeze`` refuses (and counts) the host's commands from now on.

        ``outputs`` are the handles that the host claims to return. ``record.outputs`` describes them (``None`` for a
        handle that is not the host's), and they stay until :meth:`free`. Elements are sent only for outputs of the
        requested form, ``most_bytes`` of them in total.
        """
        asked = None if forms is None else [[list(shape), str(dtype)[6:]] for shape, dtype in forms]
        message = {
            "do": "end", "freeze": freeze, "outputs": list(outputs), "forms": asked, "most_bytes": most_bytes,
            "interference": interference,
        }  # fmt: skip
        return decoded_record(self._spec, *self._ask(message, most_bytes=most_bytes))

    def changed(self) -> list[int]:
        """Return the handles of returned outputs whose bytes changed since the call's end."""
        return [int(handle) for handle in self._ask({"do": "changed"})[0]]

    def record(self, *, inputs: bool = True) -> None:
        """Record commands from here on. ``inputs``: what is given to calls is known by its contents (1 ms a MB)."""
        self._ask({"do": "record", "inputs": inputs})

    def tape(self) -> Tape:
        """The commands since the device was told to record them."""
        answer, data = self._ask({"do": "tape"}, most_bytes=MAX_PAYLOAD)
        contents = [tensor_of(header, part) for header, part in parts_of(answer["contents"], data)]
        return Tape(answer["entries"], answer["kernels"], contents)

    def set_frozen(self, on: bool, *, seed: int | None = None, conv_tf32: bool | None = None) -> None:
        """Refuse (or accept) the host's commands, without touching counters."""
        self._ask({"do": "frozen", "on": on, "seed": seed, "conv_tf32": conv_tf32})

    def without_data(self, budget_bytes: int | None) -> None:
        """Have a new device without data take all commands, with this limit on its memory here; None: the one with data
        again, as it was."""
        self._ask({"do": "without_data", "budget": budget_bytes})

    def shutdown(self) -> None:
        """End the device process."""
        with contextlib.suppress(ConnectionLost, OSError, ProtocolError):
            self._ask({"do": "shutdown"})


def _crossing(tensor: torch.Tensor) -> tuple[dict[str, Any], memoryview]:
    """Encode a tensor as header and elements; a meta tensor has none."""
    if tensor.device.type == "meta":
        return {**describe(tensor), "contents": False}, memoryview(b"")
    return describe(tensor), bytes_of(tensor)
