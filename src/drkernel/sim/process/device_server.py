"""The simulated device in a process of its own, so that host code cannot reach memory, counters or the clock.

Two sockets lead into the device process. The *host* socket carries the untrusted side's commands, the *control* socket
the judge's (``control_socket.py``). The host sees only tensors that it made or was granted. ``serve_device`` is that
process, ``connect_host`` the host's end of it.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.gpu.heap import over_budget
from drkernel.sim.gpu.pricing import Depth
from drkernel.sim.host.attach import BelowModes, host_side
from drkernel.sim.process.control_socket import MAX_LATE, ControlDesk, named, unwrap
from drkernel.sim.spec import get_spec
from drkernel.sim.wire.commands import DTYPES, LaunchCommand, ProtocolError, Ref, TensorSpec, decode, encode
from drkernel.sim.wire.frames import ConnectionLost, bytes_of, describe, receive, send, tensor_of, tensor_or_form

MAX_KERNELS = 4096
"""most different kernels that one host may launch"""
SMALL_BYTES = 1 << 20
"""tensors up to here are sent without asking whether the device wants their elements"""

# ---- the device process


class _DeviceServer:
    """Serves both sockets, one command at a time."""

    def __init__(self, engine: DeviceEngine, host: socket.socket, control: socket.socket):
        self.host = host
        self.control = control
        self.desk = ControlDesk(engine)
        self._aside: ControlDesk | None = None
        """the device with data, while one without data takes the commands"""
        self._kernels: dict[str, str] = {}

    @property
    def engine(self) -> DeviceEngine:
        """The device that takes the commands."""
        return self.desk.engine

    def run(self) -> None:
        """Serve until the judge sends shutdown or closes its socket. A host that breaks the protocol is cut off."""
        selector = selectors.DefaultSelector()
        selector.register(self.host, selectors.EVENT_READ, self._serve_host)
        selector.register(self.control, selectors.EVENT_READ, self._serve_control)
        while not self.desk.stopped:
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
        header, payload = receive(self.host, max_payload=min(self.engine.memory_bytes, self.engine.heap.budget))
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
            send(sock, {"error": named(error)})
            return
        send(sock, {"ok": result}, data)

    def _control_command(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        if header["do"] != "without_data":
            return self.desk.command(header, payload)
        if (budget := header["budget"]) is None and self._aside is not None:
            self.desk, self._aside = self._aside, None
        elif budget is not None and self._aside is None:
            self.desk.frozen, self._aside, spec = True, self.desk, self.engine.spec
            self.desk = ControlDesk(DeviceEngine(spec, data_free=DataFree(), budget_bytes=budget))
            self.engine.heap.handles = self._aside.engine.heap.handles  # none of theirs is taken for another's
        return None, b""

    def _host_command(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        self._free_of_host(header.get("free", ()))
        what = header["do"]
        if self.desk.frozen:
            if len(self.desk.late) < MAX_LATE:
                self.desk.late.append(f"{what} {header.get('name', '')}".strip()[:100])
            raise RuntimeError("the device takes no commands between calls: the module has already returned")
        if what == "op":
            args, kwargs = decode(header.get("args")), decode(header.get("kwargs"))
            if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(header.get("name"), str):
                raise ProtocolError("an operator needs a name, a list and a mapping")
            self._check_visible([args, kwargs])
            result = encode(self._show(self.engine.op(header["name"], args, kwargs)))
            self.desk.tape.add("op", header["name"], header.get("args"), header.get("kwargs"), result)
            return result, b""
        if what == "launch":
            command = self._launch_of(header)
            self._check_visible(list(command.args))
            self.engine.launch(command)
            self.desk.tape.launch(
                header["kernel"], command.ttir, command.grid, header["args"], self.engine.flow.written
            )
            return None, b""
        if what == "resources":
            warps, stages = _small(header.get("num_warps")), _small(header.get("num_stages"))
            return list(self.engine.resources(str(header.get("ttir")), warps, stages)), b""
        if what == "upload":
            tensor = self._uploaded(header, payload)
            result = encode(self._show(self.engine.upload(tensor)))
            self.desk.tape.given(result, tensor)
            return result, b""
        if what == "download":
            ref = decode(header.get("tensor"))
            self._check_visible([ref])
            tensor = self.engine.download(ref)
            if self.desk.without_data and tensor.numel() > 1 and not any(tensor.stride()):
                return {**describe(tensor), "zeros": True}, b""
            return describe(tensor), bytes_of(tensor)
        if what == "generator":
            seed, state = header.get("seed"), header.get("state")
            if (seed is not None and not isinstance(seed, int)) or (state is not None and not isinstance(state, str)):
                raise ProtocolError("a generator takes an integer seed or a text state")
            return self.engine.generator(int(header.get("number", 0)), seed=seed, state=state), b""
        if what == "query":
            return encode(self.engine.query(str(header.get("what")))), b""
        raise ProtocolError(f"the device knows no command {what!r}")

    def _uploaded(self, header: dict, payload: bytearray) -> torch.Tensor:
        """Return the tensor of a message; without elements only on a device without data.

        Raises:
            OverBudget: it is so large that its elements were not even sent.
        """
        tensor = tensor_or_form(header, payload)
        if tensor.is_meta and not self.desk.without_data:
            nbytes = tensor.numel() * tensor.element_size()
            raise over_budget(nbytes, self.engine.heap.host_bytes, self.engine.heap.budget)
        return tensor

    def _launch_of(self, header: dict) -> LaunchCommand:
        """Decode a launch; a kernel's text is sent with its first launch, and later ones name it."""
        try:
            kernel, grid = str(header["kernel"]), tuple(int(size) for size in header["grid"])
            if isinstance(header.get("ttir"), str):
                if len(self._kernels) >= MAX_KERNELS:
                    raise ValueError(f"more than {MAX_KERNELS} kernels in one session")
                self._kernels[kernel] = header["ttir"]
            if len(grid) != 3 or kernel not in self._kernels:
                raise ValueError("grid must have three sizes, and the kernel's text must have been sent")
            return LaunchCommand(
                name=str(header["name"])[:200], identity=str(header["identity"])[:500], ttir=self._kernels[kernel],
                grid=grid, args=tuple(decode(header["args"])), num_warps=_small(header["num_warps"]),
                num_stages=_small(header["num_stages"]),
                constexprs={str(k)[:100]: str(v)[:200] for k, v in dict(header["constexprs"]).items()},
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"malformed launch: {error}") from error

    def _free_of_host(self, handles: Any) -> None:
        if not isinstance(handles, list):
            raise ProtocolError("handles to free must be a list")
        for handle in handles:
            for desk in (self.desk, self._aside):
                if desk is not None and isinstance(handle, int) and handle in desk.visible:
                    desk.visible.discard(handle)
                    if handle not in desk.pinned:
                        desk.engine.free(handle)

    def _show(self, result: Any) -> Any:
        """Make results visible to the host."""
        for value in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(value, TensorSpec):
                self.desk.visible.add(value.handle)
            elif isinstance(value, (list, tuple)):
                self._show(value)
        return result

    def _check_visible(self, value: Any) -> None:
        if isinstance(value, Ref):
            if value.handle not in self.desk.visible:
                raise ProtocolError(f"no tensor with handle {value.handle} is visible here")
        elif isinstance(value, dict):
            self._check_visible(list(value.values()))
        elif isinstance(value, list):
            for item in value:
                self._check_visible(item)


def serve_device(
    spec_name: str, host: socket.socket, control: socket.socket, *, checks: str = "auto",
    memory_bytes: int | None = None, depth: Depth = "ttir", budget_bytes: int | None = None,
) -> None:  # fmt: skip
    """Run as the device until the judge shuts it down or disconnects."""
    spec = get_spec(spec_name)
    engine = DeviceEngine(spec, checks=checks, memory_bytes=memory_bytes, depth=depth, budget_bytes=budget_bytes)
    _DeviceServer(engine, host, control).run()


def _small(value: Any) -> int:
    """Validate a number of warps or stages."""
    return max(1, min(32, int(value)))


# ---- the host's end


class SocketChannel:
    """A channel to the device behind a socket. Frees are sent with the next command."""

    def __init__(self, sock: socket.socket):
        self._sock = sock
        self._lock = threading.RLock()
        self._pending_free: list[int] = []
        self._kernels: dict[str, str] = {}  # text of a kernel that the device has -> its name there

    def _ask(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> tuple[Any, bytearray]:
        with self._lock:
            pending, self._pending_free = self._pending_free, []
            send(self._sock, {**header, "free": pending}, payload)
            answer, data = receive(self._sock)
        return unwrap(answer), data

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        return decode(self._ask({"do": "op", "name": name, "args": encode(args), "kwargs": encode(kwargs)})[0])

    def launch(self, command: LaunchCommand) -> None:
        kernel = self._kernels.get(command.ttir) or f"k{len(self._kernels)}"
        header = {
            "do": "launch", "kernel": kernel, "name": command.name, "identity": command.identity, "grid": command.grid,
            "args": encode(command.args), "num_warps": command.num_warps, "num_stages": command.num_stages,
            "constexprs": command.constexprs,
        }  # fmt: skip
        if command.ttir not in self._kernels:
            header["ttir"] = command.ttir
        self._ask(header)
        self._kernels[command.ttir] = kernel

    def resources(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        asked = {"do": "resources", "ttir": ttir, "num_warps": num_warps, "num_stages": num_stages}
        registers, spills, shared = self._ask(asked)[0]
        return registers, spills, shared

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        nbytes = tensor.numel() * tensor.element_size()
        if nbytes > SMALL_BYTES and nbytes > int(self.query("contents_bytes")):
            return decode(self._ask({"do": "upload", "contents": False, **describe(tensor)})[0])
        return decode(self._ask({"do": "upload", **describe(tensor)}, bytes_of(tensor))[0])

    def download(self, ref: Ref) -> torch.Tensor:
        described, data = self._ask({"do": "download", "tensor": encode(ref)})
        if described.get("zeros"):
            return torch.zeros((), dtype=DTYPES[described["dtype"]]).expand(described["shape"])
        return tensor_of(described, data)

    def free(self, handle: int) -> None:
        self._pending_free.append(handle)

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        return self._ask({"do": "generator", "number": number, "seed": seed, "state": state})[0]

    def query(self, what: str) -> Any:
        return decode(self._ask({"do": "query", "what": what})[0])


@contextmanager
def connect_host(spec_name: str, sock: socket.socket) -> Iterator[Any]:
    """Host code in this block runs on the device behind ``sock``; yields the :class:`DeviceLink`."""
    with host_side(get_spec(spec_name), BelowModes(SocketChannel(sock))) as link:
        yield link
