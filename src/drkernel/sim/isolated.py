"""The simulated device in a process of its own, so that host code cannot reach memory, counters or the clock.

Two sockets lead into the device process: the *host* socket carries the untrusted side's commands, the *control* socket
the judge's. The host sees only tensors it made or was granted. ``serve_device`` is that process; ``connect_host`` and
``DeviceControl`` are the two ends.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from drkernel.sim.engine import POISONS, DeviceEngine, DeviceFault, LaunchRecord
from drkernel.sim.executor import SimFinding
from drkernel.sim.interfere import INTERFERENCES, Interference
from drkernel.sim.protocol import (
    LaunchCommand,
    LaunchRefused,
    ProtocolError,
    Ref,
    TensorSpec,
    UnsupportedOp,
    decode,
    encode,
)
from drkernel.sim.spec import get_spec
from drkernel.sim.wire import ConnectionLost, bytes_of, describe, receive, send, tensor_of
from drkernel.verdict import Profile

_ERRORS: dict[str, type[Exception]] = {
    cls.__name__: cls
    for cls in (
        RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, UnsupportedOp, ProtocolError,
        DeviceFault, LaunchRefused, torch.OutOfMemoryError,
    )
}  # fmt: skip


@dataclass(frozen=True)
class OutputSpec:
    """What a returned handle is, as the device knows it."""

    spec: TensorSpec
    storage: int
    """address of the storage that the tensor is a view of"""


@dataclass(frozen=True)
class CallRecord:
    """What the device saw between two marks of the judge."""

    launches: list[LaunchRecord]
    operators: dict[str, int]
    """ATen operators with device work -> times run"""
    copies: dict[str, int]
    """'host to device' and 'device to host' -> times"""
    findings: list[SimFinding]
    prints: list[str]
    profile: Profile
    fault: str | None = None
    """the illegal access that made the device unusable"""
    host_reads: int = 0
    """values and copies that the host got from the device, and looks at its clock"""
    late_work: list[str] = field(default_factory=list)
    """commands that arrived, and were refused, while the device was frozen before this call"""
    outputs: list[OutputSpec | None] = field(default_factory=list)


# ---- the device process


class _DeviceServer:
    """Serves both sockets, one command at a time."""

    def __init__(self, engine: DeviceEngine, host: socket.socket, control: socket.socket):
        self.engine = engine
        self.host = host
        self.control = control
        self.visible: set[int] = set()
        self.pinned: set[int] = set()
        self.frozen = False
        self.late: list[str] = []
        self.stopped = False

    def run(self) -> None:
        """Until the judge says shutdown or its socket closes. A host that breaks the protocol is cut off."""
        selector = selectors.DefaultSelector()
        selector.register(self.host, selectors.EVENT_READ, self._serve_host)
        selector.register(self.control, selectors.EVENT_READ, self._serve_control)
        while not self.stopped:
            for key, _ in selector.select():
                try:
                    key.data()
                except ConnectionLost:
                    if key.fileobj is self.control:
                        return
                    selector.unregister(key.fileobj)
                except ProtocolError as error:
                    if key.fileobj is self.control:
                        raise
                    selector.unregister(key.fileobj)
                    self._cut_off(str(error))

    def _cut_off(self, why: str) -> None:
        with contextlib.suppress(ConnectionLost):
            send(self.host, {"error": ["ProtocolError", why]})
        self.host.close()

    def _serve_host(self) -> None:
        header, payload = receive(self.host, max_payload=self.engine.memory_bytes)
        self._answer(self.host, self._host_command, header, payload)

    def _serve_control(self) -> None:
        header, payload = receive(self.control)
        self._answer(self.control, self._control_command, header, payload)

    def _answer(self, sock: socket.socket, command: Any, header: Any, payload: bytearray) -> None:
        if not isinstance(header, dict) or not isinstance(header.get("do"), str):
            raise ProtocolError("a message must be an object that says what to do")
        try:
            result, data = command(header, payload)
        except ProtocolError:
            raise
        except Exception as error:  # whatever an operator raises is the host's to see, as an error of the same name
            send(sock, {"error": _named(error)})
            return
        send(sock, {"ok": result}, data)

    def _host_command(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        self._free_of_host(header.get("free", ()))
        what = header["do"]
        if self.frozen:
            self.late.append(f"{what} {header.get('name', '')}".strip()[:100])
            raise RuntimeError("the device takes no commands between calls: the module has already returned")
        if what == "op":
            args, kwargs = decode(header.get("args")), decode(header.get("kwargs"))
            if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(header.get("name"), str):
                raise ProtocolError("an operator needs a name, a list and a mapping")
            self._check_visible([args, kwargs])
            return encode(self._show(self.engine.op(header["name"], args, kwargs))), b""
        if what == "launch":
            command = _launch_of(header)
            self._check_visible(list(command.args))
            self.engine.launch(command)
            return None, b""
        if what == "resources":
            warps, stages = _small(header.get("num_warps")), _small(header.get("num_stages"))
            return list(self.engine.resources(str(header.get("ttir")), warps, stages)), b""
        if what == "upload":
            return encode(self._show(self.engine.upload(tensor_of(header, payload)))), b""
        if what == "download":
            ref = decode(header.get("tensor"))
            self._check_visible([ref])
            tensor = self.engine.download(ref)
            return describe(tensor), bytes_of(tensor)
        if what == "generator":
            seed, state = header.get("seed"), header.get("state")
            if (seed is not None and not isinstance(seed, int)) or (state is not None and not isinstance(state, str)):
                raise ProtocolError("a generator takes an integer seed or a text state")
            return self.engine.generator(int(header.get("number", 0)), seed=seed, state=state), b""
        if what == "query":
            return encode(self.engine.query(str(header.get("what")))), b""
        raise ProtocolError(f"the device knows no command {what!r}")

    def _free_of_host(self, handles: Any) -> None:
        if not isinstance(handles, list):
            raise ProtocolError("handles to free must be a list")
        for handle in handles:
            if isinstance(handle, int) and handle in self.visible:
                self.visible.discard(handle)
                if handle not in self.pinned:
                    self.engine.free(handle)

    def _show(self, result: Any) -> Any:
        """Results become visible to the host."""
        for value in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(value, TensorSpec):
                self.visible.add(value.handle)
            elif isinstance(value, (list, tuple)):
                self._show(value)
        return result

    def _check_visible(self, value: Any) -> None:
        if isinstance(value, Ref):
            if value.handle not in self.visible:
                raise ProtocolError(f"no tensor with handle {value.handle} is visible here")
        elif isinstance(value, dict):
            self._check_visible(list(value.values()))
        elif isinstance(value, list):
            for item in value:
                self._check_visible(item)

    def _control_command(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        engine, what = self.engine, header["do"]
        if what == "put":
            spec = engine.register(tensor_of(header, payload))
            self.pinned.add(spec.handle)
            if header.get("grant", True):
                self.visible.add(spec.handle)
            return encode(spec), b""
        if what == "get":
            tensor = self._held(header["handle"])
            return describe(tensor), bytes_of(tensor)
        if what == "overwrite":
            self._held(header["handle"]).copy_(tensor_of(header, payload))
            return None, b""
        if what == "free":
            self._release([int(handle) for handle in header["handles"]])
            return None, b""
        if what == "begin":
            engine.reset_counters()
            self.frozen = False
            return None, b""
        if what == "end":
            return self._end(header), b""
        if what == "frozen":
            self.frozen = bool(header["on"])
            return None, b""
        if what == "interfere":
            engine.interference = INTERFERENCES[INTERFERENCES.index(header["how"])]
            return None, b""
        if what == "poison":
            engine.poison_policy = POISONS[POISONS.index(header["policy"])]
            return None, b""
        if what == "seed":
            engine.random.seed(int(header["seed"]))
            return None, b""
        if what == "shutdown":
            self.stopped = True
            return None, b""
        raise ProtocolError(f"the device knows no control command {what!r}")

    def _end(self, header: dict) -> dict[str, Any]:
        """The record of the call, and what the handles that the host returned really are. They stay until released."""
        self.frozen = bool(header.get("freeze", False))
        outputs: list[Any] = []
        for handle in header.get("outputs", ()):
            if handle not in self.visible:
                outputs.append(None)
                continue
            self.pinned.add(handle)
            tensor = self.engine.tensor(handle)
            outputs.append([encode(self.engine.register(tensor)), tensor.untyped_storage().data_ptr()])
        record = _record_of(self.engine)
        record["extra"] = {"late": self.late, "outputs": outputs}
        self.late = []
        return record

    def _held(self, handle: int) -> torch.Tensor:
        """A tensor that the judge has put or been given as an output, and not released."""
        if handle not in self.pinned:
            raise ValueError(f"handle {handle} is not held by the judge: never put or returned, or already released")
        return self.engine.tensor(handle)

    def _release(self, handles: list[int]) -> None:
        """Judge's side lets go; the host keeps what it can still see."""
        for handle in handles:
            self.pinned.discard(handle)
            if handle not in self.visible:
                self.engine.free(handle)


def _named(error: Exception) -> list[str]:
    """An error as name and text. A host allocator out of memory is the simulated GPU out of memory."""
    name = type(error).__name__
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        return ["OutOfMemoryError", f"CUDA out of memory. {str(error).splitlines()[0] if str(error) else ''}".strip()]
    return [name if name in _ERRORS else "RuntimeError", str(error)[:20_000]]


def serve_device(
    spec_name: str,
    host: socket.socket,
    control: socket.socket,
    *,
    checks: str = "auto",
    memory_bytes: int | None = None,
) -> None:
    """Be the device until the judge shuts it down or goes away."""
    engine = DeviceEngine(get_spec(spec_name), checks=checks, memory_bytes=memory_bytes)
    _DeviceServer(engine, host, control).run()


def _record_of(engine: DeviceEngine) -> dict[str, Any]:
    counters = engine.counters
    return {
        "launches": [asdict(launch) for launch in counters.launches],
        "operators": dict(counters.operators),
        "copies": dict(counters.copies),
        "findings": [asdict(finding) for finding in counters.findings],
        "prints": counters.prints,
        "profile": engine.profile().model_dump(mode="json"),
        "fault": engine.fault,
        "host_reads": engine.host_reads.count,
    }


def _launch_of(header: dict) -> LaunchCommand:
    try:
        grid = tuple(int(size) for size in header["grid"])
        if len(grid) != 3 or not isinstance(header["ttir"], str):
            raise ValueError("grid must have three sizes and ttir must be text")
        return LaunchCommand(
            name=str(header["name"])[:200],
            identity=str(header["identity"])[:500],
            ttir=header["ttir"],
            grid=grid,
            args=tuple(decode(header["args"])),
            num_warps=_small(header["num_warps"]),
            num_stages=_small(header["num_stages"]),
            constexprs={str(k)[:100]: str(v)[:200] for k, v in dict(header["constexprs"]).items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"malformed launch: {error}") from error


def _small(value: Any) -> int:
    """A number of warps or stages."""
    return max(1, min(32, int(value)))


# ---- the host's end


class SocketChannel:
    """The device behind a socket. Frees ride along with the next command."""

    def __init__(self, sock: socket.socket):
        self._sock = sock
        self._lock = threading.RLock()
        self._pending_free: list[int] = []

    def _ask(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> tuple[Any, bytearray]:
        with self._lock:
            pending, self._pending_free = self._pending_free, []
            send(self._sock, {**header, "free": pending}, payload)
            answer, data = receive(self._sock)
        return _unwrap(answer), data

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        return decode(self._ask({"do": "op", "name": name, "args": encode(args), "kwargs": encode(kwargs)})[0])

    def launch(self, command: LaunchCommand) -> None:
        header = {**asdict(command), "args": encode(command.args), "do": "launch"}
        self._ask(header)

    def resources(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        asked = {"do": "resources", "ttir": ttir, "num_warps": num_warps, "num_stages": num_stages}
        registers, spills, shared = self._ask(asked)[0]
        return registers, spills, shared

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        return decode(self._ask({"do": "upload", **describe(tensor)}, bytes_of(tensor))[0])

    def download(self, ref: Ref) -> torch.Tensor:
        described, data = self._ask({"do": "download", "tensor": encode(ref)})
        return tensor_of(described, data)

    def free(self, handle: int) -> None:
        self._pending_free.append(handle)

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        return self._ask({"do": "generator", "number": number, "seed": seed, "state": state})[0]

    def query(self, what: str) -> Any:
        return decode(self._ask({"do": "query", "what": what})[0])


def _unwrap(answer: Any) -> Any:
    if isinstance(answer, dict) and "ok" in answer:
        return answer["ok"]
    if isinstance(answer, dict) and "error" in answer:
        name, message = answer["error"]
        raise _ERRORS.get(name, RuntimeError)(message)
    raise ProtocolError("malformed answer")


@contextmanager
def connect_host(spec_name: str, sock: socket.socket) -> Iterator[Any]:
    """Host code in this block runs on the device behind ``sock``; yields the :class:`DeviceLink`."""
    from drkernel.sim.context import BelowModes, host_side

    with host_side(get_spec(spec_name), BelowModes(SocketChannel(sock))) as link:
        yield link


# ---- the judge's end


class DeviceControl:
    """The judge's handle on a device process. Every call takes at most the seconds of :meth:`set_timeout`."""

    def __init__(self, sock: socket.socket, timeout: float | None = None):
        self._sock = sock
        self._lock = threading.Lock()
        self._seconds = timeout

    def _ask(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> tuple[Any, bytearray]:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        with self._lock:
            send(self._sock, header, payload, deadline=deadline)
            answer, data = receive(self._sock, deadline=deadline)
        return _unwrap(answer), data

    def set_timeout(self, seconds: float | None) -> None:
        """Seconds that each later call may take."""
        self._seconds = seconds

    def put_tensor(self, tensor: torch.Tensor, *, grant: bool = True) -> TensorSpec:
        """Put a host tensor into device memory, where it stays until freed; the host side may use it when granted."""
        return decode(self._ask({"do": "put", "grant": grant, **describe(tensor)}, bytes_of(tensor))[0])

    def get_tensor(self, handle: int) -> torch.Tensor:
        """Read a device tensor back."""
        described, data = self._ask({"do": "get", "handle": handle})
        return tensor_of(described, data)

    def overwrite(self, handle: int, tensor: torch.Tensor) -> None:
        """Replace a device tensor's contents in place."""
        self._ask({"do": "overwrite", "handle": handle, **describe(tensor)}, bytes_of(tensor))

    def free(self, *handles: int) -> None:
        """Let handles go; what the host still refers to stays until it lets go too."""
        self._ask({"do": "free", "handles": list(handles)})

    def begin_call(self) -> None:
        """Reset counters and clock, and take the host's commands."""
        self._ask({"do": "begin"})

    def end_call(self, *, freeze: bool = False, outputs: Iterable[int] = ()) -> CallRecord:
        """Everything since :meth:`begin_call`. ``freeze`` refuses the host's commands from now on (they are counted).

        ``outputs`` are handles the host claims to return: ``record.outputs`` says what they are (``None`` for a handle
        that is not the host's), and they stay until :meth:`free`.
        """
        record = self._ask({"do": "end", "freeze": freeze, "outputs": list(outputs)})[0]
        return _record_from(record)

    def set_frozen(self, on: bool) -> None:
        """Refuse (or take) the host's commands, without touching counters."""
        self._ask({"do": "frozen", "on": on})

    def interfere(self, how: Interference) -> None:
        """From now on "skip" kernel launches, or "disturb" what they write; "none" lets them be."""
        self._ask({"do": "interfere", "how": how})

    def set_poison(self, policy: str) -> None:
        """What fresh memory holds: "nan", "zero" or "random"."""
        if policy not in POISONS:
            raise ValueError(f"poison must be one of {', '.join(POISONS)}, not {policy!r}")
        self._ask({"do": "poison", "policy": policy})

    def seed(self, seed: int) -> None:
        """Seed the device's generator."""
        self._ask({"do": "seed", "seed": seed})

    def shutdown(self) -> None:
        """End the device process."""
        with contextlib.suppress(ConnectionLost, OSError, ProtocolError):
            self._ask({"do": "shutdown"})


def _record_from(data: dict[str, Any]) -> CallRecord:
    """A record as the device process sends it, as objects."""
    extra = data.get("extra", {})
    return CallRecord(
        launches=[
            LaunchRecord(**{**launch, "grid": tuple(launch["grid"]), "written": tuple(launch["written"])})
            for launch in data["launches"]
        ],
        operators=data["operators"],
        copies=data["copies"],
        findings=[SimFinding(**{**f, "program": _as_tuple(f.get("program"))}) for f in data["findings"]],
        prints=data["prints"],
        profile=Profile.model_validate(data["profile"]),
        fault=data["fault"],
        host_reads=data["host_reads"],
        late_work=extra.get("late", []),
        outputs=[None if item is None else OutputSpec(decode(item[0]), item[1]) for item in extra.get("outputs", ())],
    )


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
