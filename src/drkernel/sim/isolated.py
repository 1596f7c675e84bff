"""The simulated device in a process of its own, so that host code cannot reach memory, counters or the clock.

Two sockets lead into the device process: the *host* socket carries the untrusted side's commands, the *control* socket
the judge's. The host sees only tensors it made or was granted. ``serve_device`` is that process; ``connect_host`` and
``DeviceControl`` are the two ends.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from drkernel.sim.engine import DeviceEngine, DeviceFault
from drkernel.sim.protocol import DTYPES, LaunchCommand, ProtocolError, Ref, TensorSpec, UnsupportedOp, decode, encode
from drkernel.sim.spec import get_spec
from drkernel.sim.wire import ConnectionLost, receive, send
from drkernel.verdict import Profile

_ERRORS: dict[str, type[Exception]] = {
    cls.__name__: cls
    for cls in (
        RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, UnsupportedOp, ProtocolError,
        DeviceFault, torch.OutOfMemoryError,
    )
}  # fmt: skip


@dataclass(frozen=True)
class CallRecord:
    """What the device saw between two marks of the judge."""

    launches: list[dict[str, Any]]
    operators: dict[str, int]
    copies: dict[str, int]
    findings: list[dict[str, Any]]
    prints: list[str]
    profile: Profile
    fault: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


# ---- the device process


class _DeviceServer:
    """Serves both sockets, one command at a time."""

    def __init__(self, engine: DeviceEngine, host: socket.socket, control: socket.socket):
        self.engine = engine
        self.host = host
        self.control = control
        self.visible: set[int] = set()
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
                    send(self.host, {"error": ["ProtocolError", str(error)]})
                    selector.unregister(key.fileobj)
                    self.host.close()

    def _serve_host(self) -> None:
        header, payload = receive(self.host)
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
            name = type(error).__name__
            send(sock, {"error": [name if name in _ERRORS else "RuntimeError", str(error)]})
            return
        send(sock, {"ok": result}, data)

    def _host_command(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        for handle in header.get("free", ()):
            if handle in self.visible:
                self.visible.discard(handle)
                self.engine.free(handle)
        what = header["do"]
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
        if what == "upload":
            return encode(self._show(self.engine.upload(_tensor_of(header, payload)))), b""
        if what == "download":
            ref = decode(header.get("tensor"))
            self._check_visible([ref])
            tensor = self.engine.download(ref)
            return _describe(tensor), _bytes_of(tensor)
        if what == "query":
            return encode(self.engine.query(str(header.get("what")))), b""
        raise ProtocolError(f"the device knows no command {what!r}")

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
            spec = engine.register(_tensor_of(header, payload))
            if header.get("grant", True):
                self.visible.add(spec.handle)
            return encode(spec), b""
        if what == "get":
            tensor = engine.tensor(int(header["handle"]))
            return _describe(tensor), _bytes_of(tensor)
        if what == "overwrite":
            engine.tensor(int(header["handle"])).copy_(_tensor_of(header, payload))
            return None, b""
        if what == "free":
            self.visible.discard(int(header["handle"]))
            engine.free(int(header["handle"]))
            return None, b""
        if what == "begin":
            engine.reset_counters()
            return None, b""
        if what == "end":
            return _record_of(engine), b""
        if what == "suppress":
            engine.suppress = bool(header["on"])
            return None, b""
        if what == "seed":
            torch.manual_seed(int(header["seed"]))
            return None, b""
        if what == "shutdown":
            self.stopped = True
            return None, b""
        raise ProtocolError(f"the device knows no control command {what!r}")


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
            num_warps=max(1, min(32, int(header["num_warps"]))),
            num_stages=max(1, min(32, int(header["num_stages"]))),
            constexprs={str(k)[:100]: str(v)[:200] for k, v in dict(header["constexprs"]).items()},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"malformed launch: {error}") from error


# ---- tensors as bytes


def _describe(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.numpy()).cast("B") if flat.numel() else memoryview(b"")


def _tensor_of(header: dict, payload: bytearray) -> torch.Tensor:
    """The tensor of a message; strides of a dense permutation are kept, others become contiguous."""
    try:
        dtype = DTYPES[header["dtype"]]
        shape = [int(size) for size in header["shape"]]
        count = 1
        for size in shape:
            if size < 0:
                raise ValueError("negative size")
            count *= size
        if len(payload) != count * dtype.itemsize:
            raise ValueError(f"{len(payload)} bytes for {count} elements of {header['dtype']}")
        flat = torch.frombuffer(payload, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        tensor = flat.reshape(shape)
        stride = [int(step) for step in header.get("stride", tensor.stride())]
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ProtocolError(f"malformed tensor in message: {error}") from error
    if count == 0 or stride == list(tensor.stride()) or len(stride) != len(shape):
        return tensor.clone()
    order = sorted(range(len(shape)), key=lambda dim: -stride[dim])
    dense = torch.empty([shape[dim] for dim in order], dtype=dtype)
    permuted = dense.permute([order.index(dim) for dim in range(len(shape))])
    return permuted.copy_(tensor) if list(permuted.stride()) == stride else tensor.clone()


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

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        return decode(self._ask({"do": "upload", **_describe(tensor)}, _bytes_of(tensor))[0])

    def download(self, ref: Ref) -> torch.Tensor:
        described, data = self._ask({"do": "download", "tensor": encode(ref)})
        return _tensor_of(described, data)

    def free(self, handle: int) -> None:
        self._pending_free.append(handle)

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
    """The judge's handle on a device process. Every call has the socket's timeout."""

    def __init__(self, sock: socket.socket, timeout: float | None = None):
        self._sock = sock
        self._lock = threading.Lock()
        sock.settimeout(timeout)

    def _ask(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> tuple[Any, bytearray]:
        with self._lock:
            send(self._sock, header, payload)
            answer, data = receive(self._sock)
        return _unwrap(answer), data

    def set_timeout(self, seconds: float | None) -> None:
        """Seconds that later calls may take."""
        self._sock.settimeout(seconds)

    def put_tensor(self, tensor: torch.Tensor, *, grant: bool = True) -> TensorSpec:
        """Put a host tensor into device memory; the host side may use it when granted."""
        return decode(self._ask({"do": "put", "grant": grant, **_describe(tensor)}, _bytes_of(tensor))[0])

    def get_tensor(self, handle: int) -> torch.Tensor:
        """Read a device tensor back."""
        described, data = self._ask({"do": "get", "handle": handle})
        return _tensor_of(described, data)

    def overwrite(self, handle: int, tensor: torch.Tensor) -> None:
        """Replace a device tensor's contents in place."""
        self._ask({"do": "overwrite", "handle": handle, **_describe(tensor)}, _bytes_of(tensor))

    def free(self, handle: int) -> None:
        """Drop a handle."""
        self._ask({"do": "free", "handle": handle})

    def begin_call(self) -> None:
        """Reset counters and clock."""
        self._ask({"do": "begin"})

    def end_call(self) -> CallRecord:
        """Everything since :meth:`begin_call`."""
        record = self._ask({"do": "end"})[0]
        return CallRecord(**{**record, "profile": Profile.model_validate(record["profile"])})

    def suppress_launches(self, on: bool) -> None:
        """Record launches without executing them."""
        self._ask({"do": "suppress", "on": on})

    def seed(self, seed: int) -> None:
        """Seed the device's generator."""
        self._ask({"do": "seed", "seed": seed})

    def shutdown(self) -> None:
        """End the device process."""
        try:
            self._ask({"do": "shutdown"})
        except (ConnectionLost, OSError, ProtocolError):
            return
