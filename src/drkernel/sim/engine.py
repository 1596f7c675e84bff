"""The device side: owns memory, runs operators and kernels, counts, and models time.

A :class:`DeviceEngine` receives commands (``protocol.py``) and nothing else; host code holds handles. It is used
directly in-process and, behind a socket, in a process of its own. Whatever arrives is checked here: operators against
a list, launches by the executor's memory map.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch

from drkernel.sim.compile_target import KernelResources, TargetCompileError, compile_for_target
from drkernel.sim.cost.inflight import bytes_in_flight
from drkernel.sim.cost.launch import launch_cost
from drkernel.sim.cost.operators import TensorMeta, operator_cost
from drkernel.sim.cost.timeline import FLUSH_BYTES, L2State, Timeline
from drkernel.sim.executor import Checks, LaunchResult, SimFinding, compile_ttir
from drkernel.sim.interfere import HostReads, Interference, disturb_changes, flat_extent
from drkernel.sim.memory import MemoryMap
from drkernel.sim.operator_rules import FACTORIES, FREE_OPERATORS, check_allowed
from drkernel.sim.protocol import GeneratorRef, LaunchCommand, LaunchRefused, ProtocolError, Ref, TensorSpec
from drkernel.sim.random import DeviceRandom
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Profile

SMALL_LAUNCH_PROGRAMS = 4096
"""launches up to this many programs get every check when checks are "auto" """

MAX_GRID_X, MAX_GRID_YZ = 2**31 - 1, 65535
"""largest grids that CUDA launches"""

Depth = Literal["ttir", "full"]
"""how far kernels are compiled: Triton's own IR, or machine code of the target (registers, shared memory)"""

POISONS = ("nan", "zero", "random")
"""what memory that nothing has been written to may hold"""

_ALLOCATORS = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


class DeviceFault(RuntimeError):
    """An illegal memory access by a kernel; as on a GPU, the device is unusable afterwards."""


@dataclass(frozen=True)
class LaunchRecord:
    """One launch that happened."""

    name: str
    identity: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    constexprs: dict[str, str]
    seconds: float
    suppressed: bool
    written: tuple[int, ...] = ()
    """addresses of the storages that the kernel wrote"""
    copied: bool = False
    """everything that it wrote is, element for element, another of its arguments"""
    bound: str = "latency"
    """what limits its modelled time: memory, compute or latency"""
    roofline: float = 0.0
    """fraction of the roofline reached"""
    unique_bytes: float = 0.0
    """distinct bytes read plus distinct bytes written, in whole sectors"""
    dram_bytes: float = 0.0
    flops: float = 0.0
    registers: int | None = None
    """per thread; this and what follows are known when the device compiles to depth "full" """
    spills: int | None = None
    shared_bytes: int | None = None
    occupancy: int | None = None
    """programs resident on one SM"""


@dataclass
class Counters:
    """What happened since the last reset."""

    launches: list[LaunchRecord] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    findings: list[SimFinding] = field(default_factory=list)
    prints: list[str] = field(default_factory=list)


class DeviceEngine:
    """One simulated GPU. Not thread-safe: one command at a time."""

    def __init__(self, spec: GPUSpec, *, checks: str = "auto", memory_bytes: int | None = None, depth: Depth = "ttir"):
        if checks not in ("auto", "full", "off"):
            raise ValueError(f"checks must be 'auto', 'full' or 'off', not {checks!r}")
        if depth not in get_args(Depth):
            raise ValueError(f"depth must be 'ttir' or 'full', not {depth!r}")
        self.spec = spec
        self.checks = checks
        self.depth = depth
        self.memory_bytes = memory_bytes or spec.hbm_bytes
        self.memory = MemoryMap()
        self.counters = Counters()
        self.l2 = L2State(spec)
        self.timeline = Timeline(spec)
        self.interference: Interference = "none"
        self.host_reads = HostReads()
        self.random = DeviceRandom()
        self.poison_policy = "nan"
        self.fault: str | None = None
        self._tensors: dict[int, torch.Tensor] = {}
        self._handles: dict[int, int] = {}  # id(tensor object) -> handle
        self._storages: dict[int, int] = {}  # address -> live handles
        self._next = itertools.count(1)
        self.used_bytes = 0
        self.peak_bytes = 0

    # ---- tensors

    def tensor(self, ref: Ref | int) -> torch.Tensor:
        """The tensor behind a handle."""
        handle = ref.handle if isinstance(ref, Ref) else ref
        try:
            return self._tensors[handle]
        except KeyError:
            raise ProtocolError(f"no tensor with handle {handle} on the device") from None

    def register(self, tensor: torch.Tensor, *, initialized: bool = True) -> TensorSpec:
        """Give a tensor a handle (its old one, when it has one) and put its storage on the memory map."""
        handle = self._handles.get(id(tensor))
        if handle is None:
            handle = next(self._next)
            self._tensors[handle] = tensor
            self._handles[id(tensor)] = handle
            self._retain(tensor, initialized)
        elif initialized:
            self.memory.mark_initialized(*_extent(tensor))
        return TensorSpec(
            handle,
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            tensor.dtype,
            tensor.data_ptr(),
        )

    def _retain(self, tensor: torch.Tensor, initialized: bool) -> None:
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if size == 0:
            return
        if address in self._storages:
            self._storages[address] += 1
            return
        if self.used_bytes + size > self.memory_bytes:
            raise self._out_of_memory(f"Tried to allocate {size} bytes.")
        self._storages[address] = 1
        self.used_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self.memory.add(address, size, initialized=initialized)

    def _reserve(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse a factory's result that does not fit, before this machine's memory is touched."""
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        size = args[0] if args and isinstance(args[0], list) else []
        nbytes = math.prod(size) * dtype.itemsize if all(isinstance(n, int) for n in size) else 0
        if self.used_bytes + nbytes > self.memory_bytes:
            raise self._out_of_memory(f"Tried to allocate {nbytes} bytes.")

    def _out_of_memory(self, why: str) -> torch.OutOfMemoryError:
        return torch.OutOfMemoryError(
            f"CUDA out of memory. {why} GPU 0 has a total capacity of {self.memory_bytes} bytes of which "
            f"{self.memory_bytes - self.used_bytes} bytes is free."
        )

    def free(self, handle: int) -> None:
        """Drop a handle; memory goes when the last tensor over it does."""
        tensor = self._tensors.pop(handle, None)
        if tensor is None:
            return
        self._handles.pop(id(tensor), None)
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if size == 0 or address not in self._storages:
            return
        self._storages[address] -= 1
        if self._storages[address] == 0:
            del self._storages[address]
            self.used_bytes -= size
            self.memory.remove(address)
            self.l2.forget(address)

    # ---- commands

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator; results are :class:`TensorSpec` where they are tensors."""
        self._refuse_after_fault()
        overload = check_allowed(name)
        base = name.partition(".")[0]
        inputs: list[torch.Tensor] = []
        real_args = [self._resolve(value, inputs) for value in args]
        real_kwargs = {key: self._resolve(value, inputs) for key, value in kwargs.items()}
        if base in FACTORIES:
            self._reserve(real_args, real_kwargs)
        try:
            result = self.random.run(overload, real_args, real_kwargs)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
                raise self._out_of_memory(str(error).partition("\n")[0]) from error
            raise
        outputs = [value for value in _leaves(result) if isinstance(value, torch.Tensor)]
        fresh = base in _ALLOCATORS
        if fresh:
            for value in outputs:
                poison(value, self.poison_policy)
        self._account(name, base, inputs, outputs, real_args)
        return self._hand_out(result, initialized=not fresh)

    def _resolve(self, value: Any, inputs: list[torch.Tensor]) -> Any:
        """Handles as what they stand for; tensors are also collected."""
        if isinstance(value, Ref):
            inputs.append(self.tensor(value))
            return inputs[-1]
        if isinstance(value, GeneratorRef):
            return self.random.generator(value.number)
        if isinstance(value, (list, tuple)):
            return [self._resolve(item, inputs) for item in value]
        return value

    def _hand_out(self, value: Any, initialized: bool) -> Any:
        """Results as the host sees them."""
        if isinstance(value, torch.Tensor):
            return self.register(value, initialized=initialized)
        if isinstance(value, (list, tuple)):
            return type(value)(self._hand_out(item, initialized) for item in value)
        return self._to_host(value)

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        """Seed a generator, or set its state; returns both."""
        return self.random.command(number, seed, state)

    def _to_host(self, value: Any) -> Any:
        """Every value that leaves the device passes here."""
        return None if value is None else self.host_reads.pass_on(value, self.interference == "disturb")

    def _account(self, name: str, base: str, inputs: list, outputs: list, args: Any) -> None:
        if base in FREE_OPERATORS or _is_view(inputs, outputs):
            self.timeline.add_host()
            return
        if base == "_local_scalar_dense":
            self.counters.copies["device to host"] += 1
            self.timeline.add_copy("memcpy device to host", inputs[0].element_size(), synchronizes=True)
            return
        self.counters.operators[f"aten.{base}"] += 1
        metas_in, metas_out = [meta_of(t) for t in inputs], [meta_of(t) for t in outputs]
        self.timeline.add("library", f"aten.{base}", operator_cost(name, metas_in, metas_out, args, self.spec, self.l2))

    def launch(self, command: LaunchCommand) -> None:
        """Execute (or, under the knock-out test, skip) one kernel launch and add its modelled time."""
        self._refuse_after_fault()
        programs = self._programs(command.grid)
        if programs == 0:
            return
        kernel = compile_ttir(command.ttir, name=command.name)
        resources = self._compile(command.ttir, command.num_warps, command.num_stages) if self.depth == "full" else None
        if self.interference == "skip":
            self._record(command, 0.0, suppressed=True)
            return
        on = self.checks == "full" or (self.checks == "auto" and programs <= SMALL_LAUNCH_PROGRAMS)
        disturbed = self.interference == "disturb"
        before = [(flat, flat.clone()) for flat in self._extents(command)] if disturbed else []
        result = kernel.run(
            command.grid,
            self._addresses(command.args),
            self.memory,
            checks=Checks(uninitialized=on, race=on),
        )
        for flat, old in before:
            disturb_changes(flat, old)
        self._finish_launch(command, result, resources)

    def _programs(self, grid: tuple[int, int, int]) -> int:
        """Programs of a grid; none when a size is 0, as Triton's launchers have it. Raises beyond the GPU's limits."""
        x, y, z = grid
        if x * y * z <= 0:
            return 0
        if min(grid) < 1 or x > MAX_GRID_X or (self.spec.vendor == "nvidia" and max(y, z) > MAX_GRID_YZ):
            limits = f"at most {MAX_GRID_X} x {MAX_GRID_YZ} x {MAX_GRID_YZ}"
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument (grid {grid}; {limits})")
        return x * y * z

    def resources(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        """Registers and spilled words a thread, and bytes of shared memory a program, on the target."""
        found = self._compile(ttir, num_warps, num_stages)
        return found.registers or 0, found.spills or 0, found.shared_bytes

    def _compile(self, ttir: str, num_warps: int, num_stages: int) -> KernelResources:
        try:
            return compile_for_target(ttir, self.spec, num_warps=num_warps, num_stages=num_stages, depth="full")
        except TargetCompileError as error:
            raise LaunchRefused(f"{error.kind}: {error}") from error

    def _extents(self, command: LaunchCommand) -> list[torch.Tensor]:
        return [flat_extent(self.tensor(value)) for value in command.args if isinstance(value, Ref)]

    def _addresses(self, args: Iterable[Any]) -> list[int | float]:
        return [self.tensor(value).data_ptr() if isinstance(value, Ref) else value for value in args]

    def _finish_launch(self, command: LaunchCommand, result: LaunchResult, resources: KernelResources | None) -> None:
        self.counters.findings += result.findings
        self.counters.prints += result.prints
        cost = launch_cost(
            result.stats,
            command.num_warps,
            self.spec,
            self.l2,
            num_stages=command.num_stages,
            in_flight=bytes_in_flight(command.ttir, command.num_stages),
            shared_bytes=resources.shared_bytes if resources else 0,
            registers=(resources.registers or 0) if resources else 0,
        )
        self.timeline.add("custom", command.name, cost)
        self._record(
            command,
            cost.seconds,
            written=result.written,
            copied=self._copied(command, result.written),
            bound=cost.bound,
            roofline=cost.roofline,
            unique_bytes=float(sum(read + written for _, read, written in result.stats.footprint)),
            dram_bytes=cost.dram_bytes,
            flops=cost.total_flops,
            registers=resources.registers if resources else None,
            spills=resources.spills if resources else None,
            shared_bytes=resources.shared_bytes if resources else None,
            occupancy=resources.occupancy_blocks_per_sm if resources else None,
        )
        illegal = [f for f in result.findings if f.kind in ("out_of_bounds", "misaligned") and f.severity == "error"]
        if illegal:
            self.fault = illegal[0].message
            raise DeviceFault(f"CUDA error: an illegal memory access was encountered\n{illegal[0].message}")

    def _arguments(self, command: LaunchCommand, written: tuple[int, ...], wanted: bool) -> list[torch.Tensor]:
        """The tensors among the arguments whose storage the kernel wrote (``wanted`` True) or did not write."""
        tensors = [self.tensor(value) for value in command.args if isinstance(value, Ref)]
        return [tensor for tensor in tensors if (tensor.untyped_storage().data_ptr() in written) == wanted]

    def _copied(self, command: LaunchCommand, written: tuple[int, ...]) -> bool:
        """Whether each tensor that the kernel wrote equals an argument that it only read."""
        sources = self._arguments(command, written, False)
        targets = self._arguments(command, written, True)
        return bool(targets) and all(any(_same_elements(t, s) for s in sources) for t in targets)

    def _record(self, command: LaunchCommand, seconds: float, *, suppressed: bool = False, **facts: Any) -> None:
        self.counters.launches.append(
            LaunchRecord(
                command.name, command.identity, command.grid, command.num_warps, command.num_stages,
                command.constexprs, seconds, suppressed, **facts,
            )
        )  # fmt: skip

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        """Copy a host tensor in."""
        self._refuse_after_fault()
        self._count_copy("host to device", tensor)
        return self.register(tensor.clone(memory_format=torch.preserve_format))

    def download(self, ref: Ref) -> torch.Tensor:
        """Copy a device tensor out."""
        self._refuse_after_fault()
        tensor = self.tensor(ref)
        self._count_copy("device to host", tensor)
        return self._to_host(tensor.clone(memory_format=torch.preserve_format))

    def _count_copy(self, direction: str, tensor: torch.Tensor) -> None:
        self.counters.copies[direction] += 1
        self.timeline.add_copy(f"memcpy {direction}", tensor.numel() * tensor.element_size(), synchronizes=True)

    def query(self, what: str) -> Any:
        """Facts for host code."""
        facts: dict[str, Callable[[], Any]] = {
            "used_bytes": lambda: self.used_bytes,
            "peak_bytes": lambda: self.peak_bytes,
            "memory_bytes": lambda: self.memory_bytes,
            "elapsed_seconds": lambda: self.timeline.elapsed_seconds,
            "device_seconds": lambda: self.timeline.device_seconds,
            "synchronize": self._synchronize,
            "flush": self._flush,
            "reset_peak": self._reset_peak,
        }
        if what not in facts:
            raise ProtocolError(f"no device fact named {what!r}")
        value = facts[what]()
        return self._to_host(value) if what.endswith("_seconds") else value

    def _synchronize(self) -> None:
        self._refuse_after_fault()
        self.timeline.synchronize()

    def _reset_peak(self) -> None:
        self.peak_bytes = self.used_bytes

    def _flush(self) -> None:
        """Empty L2 by a fill of :data:`FLUSH_BYTES`, as benchmarks do."""
        buffer = TensorMeta((FLUSH_BYTES,), (1,), "int8", -1)
        self.timeline.add(
            "library",
            "L2 flush (benchmark)",
            operator_cost("zero_.default", [buffer], [buffer], [], self.spec, self.l2),
        )
        self.l2.forget(-1)

    def _refuse_after_fault(self) -> None:
        if self.fault is not None:
            raise DeviceFault(f"CUDA error: an illegal memory access was encountered\n{self.fault}")

    # ---- the judge's side

    def reset_counters(self) -> None:
        """Start counting and timing anew; the L2 state is that of a flushed cache."""
        self.counters = Counters()
        self.l2 = L2State(self.spec)
        self.timeline = Timeline(self.spec)
        self.host_reads.begin(replay=self.interference == "disturb")

    def profile(self) -> Profile:
        """Modelled time since the last reset, by kernel and operator."""
        return self.timeline.profile(f"sim:{self.spec.name}")


def poison(tensor: torch.Tensor, policy: str = "nan") -> None:
    """Fill fresh memory with what a kernel must not rely on: NaN (a pattern for integers), zeros, or random values."""
    if tensor.numel() == 0:
        return
    floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    if policy == "zero" or (policy == "random" and tensor.dtype == torch.bool):
        tensor.zero_()
    elif policy == "random":
        _fill_random(tensor, floating)
    elif floating and tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(0x7F)
    elif floating:
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.view(torch.uint8).fill_(0x7D) if tensor.is_contiguous() and tensor.dim() else tensor.fill_(0x7D)


def _fill_random(tensor: torch.Tensor, floating: bool) -> None:
    """Plausible values from a generator of their own, so that the device's random state does not move."""
    if floating:
        tensor.copy_(torch.randn(tensor.shape, generator=_POISON_RANDOM))
    else:
        tensor.copy_(torch.randint(0, 100, tensor.shape, generator=_POISON_RANDOM))


def _same_elements(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal in order of elements, whatever the shapes; a cast counts as equal."""
    if left.numel() != right.numel() or left.numel() == 0:
        return False
    return torch.equal(left.reshape(-1), right.reshape(-1).to(left.dtype))


_POISON_RANDOM = torch.Generator().manual_seed(0x5EED)


def meta_of(tensor: torch.Tensor) -> TensorMeta:
    """What the cost model needs to know of a tensor."""
    return TensorMeta(
        tuple(tensor.shape),
        tuple(tensor.stride()),
        str(tensor.dtype).removeprefix("torch."),
        tensor.untyped_storage().data_ptr() if tensor.device.type != "meta" else id(tensor.untyped_storage()),
    )


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and byte count of the region a tensor spans."""
    if tensor.numel() == 0:
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_view(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    """A new tensor over an input's storage: no device work."""
    if not inputs or not outputs:
        return False
    storages = {t.untyped_storage().data_ptr() for t in inputs}
    return all(
        out.untyped_storage().data_ptr() in storages and not any(out is inp for inp in inputs) for out in outputs
    )
