"""The device side: owns memory, runs operators and kernels, counts, and models time; with data or without.

A :class:`DeviceEngine` receives commands (``wire/commands.py``) and nothing else; host code holds handles. It is used
directly in-process and, behind a socket, in a process of its own. Everything that arrives is checked here: operators
against a list, launches by the executor's memory map.
"""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch

from drkernel.sim.cost.operators import in_order, read_only
from drkernel.sim.gpu.accounts import ILLEGAL, Accounts, Counters, LaunchRecord, bytes_told
from drkernel.sim.gpu.argument_checks import check_arguments
from drkernel.sim.gpu.counting import Counted
from drkernel.sim.gpu.dataflow import DataFlow
from drkernel.sim.gpu.datafree import DataFree, FormOperators
from drkernel.sim.gpu.device_journal import LaunchEntry, priced
from drkernel.sim.gpu.emulated import convolution_operands
from drkernel.sim.gpu.heap import DeviceHeap, Held, foresee, plain_arguments
from drkernel.sim.gpu.index_checks import DeviceAssert, check_indices
from drkernel.sim.gpu.interfere import IEEE, TF32, HostReads, Interference, disturbed
from drkernel.sim.gpu.lazy import LazyWork
from drkernel.sim.gpu.operator_rules import FREE_OPERATORS, OperatorRule, rule_of
from drkernel.sim.gpu.pricing import Depth, Target, check_words, price_launch, weights_of
from drkernel.sim.gpu.random_numbers import DeviceRandom
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target import KernelResources
from drkernel.sim.wire.commands import GeneratorRef, LaunchCommand, ProtocolError, Ref, TensorSpec
from drkernel.verdict import Profile
from ttir_executor.compiled import (
    Checks,
    CompiledKernel,
    LaunchResult,
    LaunchStats,
    SimFinding,
    StepLimit,
    compile_ttir,
    prepare,
)
from ttir_executor.order import IN_ORDER, Order, draw_order

MAX_GRID_X, MAX_GRID_YZ = 2**31 - 1, 65535
"""largest grids that CUDA launches"""
MOST_KERNELS = 256
"""kernels of which a device keeps what it has worked out"""
SAMPLED_PROGRAMS = 4096
"""programs of a launch that the sanitizers look at when checks are "auto" (all, where programs may synchronise)"""

ERROR_BYTES = 8
"""bytes that the host is assumed to learn of values from one error of an operator"""
GENERATOR_BYTES = 16
"""bytes that it learns from a generator's state: a GPU keeps a seed and an offset"""


class DeviceFault(RuntimeError):
    """A kernel made an illegal memory access; as on a GPU, the device is unusable afterwards."""


@dataclass(frozen=True)
class Schedule:
    """How the programs of launches are scheduled, which of a large grid are examined, and random contents of memory."""

    seed: int = 0
    """secret where a candidate could exploit it"""
    permuted: bool = False
    """whether programs run in an order drawn for each launch instead of by number"""


class DeviceEngine:
    """One simulated GPU. Not thread-safe: one command at a time."""

    def __init__(
        self, spec: GPUSpec, *, checks: str = "auto", memory_bytes: int | None = None, depth: Depth = "ttir",
        budget_bytes: int | None = None, data_free: DataFree | None = None,
    ):  # fmt: skip
        """Create a device. ``memory_bytes``: the GPU's memory; ``budget_bytes``: the limit on this machine's memory;
        ``data_free``: without data, as these say. Raises ``ValueError`` for unknown ``checks`` or ``depth``."""
        check_words(checks, depth)
        prepare()
        self.spec = spec
        self.data_free = data_free
        self.checks = checks if data_free is None else "off"
        self.target = Target(spec, depth)
        self._loaded = lru_cache(MOST_KERNELS)(self._load)
        self._weights = lru_cache(MOST_KERNELS)(partial(weights_of, spec=spec))
        self.memory_bytes = memory_bytes or spec.hbm_bytes
        contents = None if data_free is None else data_free.contents_bytes
        self.heap = DeviceHeap(self.memory_bytes, budget_bytes, contents_bytes=contents)
        self.accounts = Accounts(spec)
        self.random = DeviceRandom()
        self.interference: Interference = "none"
        self.skip_only: frozenset[int] | None = None
        """under "skip": the launches of a call, by place, that are not executed; None for all"""
        self.host_reads = HostReads()
        self.flow = DataFlow(self.heap, values=data_free is None)
        self.schedule = Schedule()
        self.work = LazyWork(self)
        self._forms = None if data_free is None else FormOperators(self)
        self.fault: str | None = None

    def run_script(self, *, lazy: bool) -> None:
        """Serve a script that a person runs: nothing will ask what its results were made of, and if ``lazy``, long
        launches wait until something looks at what they write."""
        self.flow = DataFlow(self.heap, values=False)
        self.work.purpose = "script" if lazy else "result"
        self.accounts.conv_tf32 = None

    # ---- tensors

    def tensor(self, ref: Ref | int) -> torch.Tensor:
        """The tensor behind a handle, which may be read and written."""
        held = self.heap.held(ref.handle if isinstance(ref, Ref) else ref)
        self.work.before([held.base], changes=True)
        return held.tensor

    def register(self, tensor: torch.Tensor) -> TensorSpec:
        """Register a tensor, with its contents where the device keeps those."""
        return self.heap.put(tensor).spec

    def contents(self, handle: int) -> torch.Tensor | None:
        """Return a tensor's contents; None if they are unknown, as they may be without data."""
        held = self.heap.held(handle)
        self.work.before([held.base], changes=True)
        return self.heap.contents(held)

    def overwrite(self, handle: int, tensor: torch.Tensor | None) -> None:
        """Replace a tensor's contents; None, on a device without data: they are no longer known."""
        contents = self.contents(handle)
        if tensor is not None and contents is not None:
            contents.copy_(tensor)
        elif self.data_free is None:
            raise ProtocolError("a device with data takes contents")
        else:
            self.heap.forget(self.heap.held(handle).base)

    def free(self, handle: int) -> None:
        """Drop a handle; memory goes when the last tensor over it does, and no postponed launch needs it."""
        if not self.work.keeps(handle):
            self.release(handle)

    def release(self, handle: int) -> None:
        """Drop a handle now."""
        base = self.heap.free(handle)
        if base is not None:
            self.accounts.freed(base)

    # ---- operators

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator; results are :class:`TensorSpec` where they are tensors."""
        self._refuse_after_fault()
        rule = rule_of(name)
        args, kwargs = rule.normal(args, kwargs)
        inputs: list[Held] = []
        real_args = [self._resolve(value, inputs) for value in args]
        real_kwargs = {key: self._resolve(value, inputs) for key, value in kwargs.items()}
        check_arguments(rule.base, rule.parameters, real_args, real_kwargs, rule.values)
        written = self._written(rule, args, kwargs)
        if self._forms is None:
            result = self._run(rule, real_args, real_kwargs, inputs)
        else:
            result = self._forms.run(rule, real_args, real_kwargs, inputs, written)
        for held in written:
            self.heap.refresh(held)
        if self.heap.has_unwritten:
            self._follow_writes(rule, written, inputs)
        outputs: list[Held] = []
        handed_out = self._hand_out(result, rule, outputs)
        self._account(name, rule, inputs, outputs, written, in_order(name, args, kwargs))
        return handed_out

    def _run(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], inputs: list[Held]) -> Any:
        """Return an operator's results, or tensors for those that are still to come."""
        if rule.makes_from_size:
            self.heap.require_factory(args, kwargs)
        result = self.work.operator(rule, args, kwargs, inputs)
        if result is not None:
            return result
        if not (rule.allocates or rule.by_form or rule.base in FREE_OPERATORS):
            self.work.before([one.base for one in inputs], changes=bool(rule.written))
        if not rule.makes_from_size:
            self.heap.require(foresee(rule, args, kwargs, self.heap.budget - 2 * self.heap.used_bytes))
        return self.computed(rule, args, kwargs)

    def _resolve(self, value: Any, inputs: list[Held]) -> Any:
        """Replace handles by the objects they stand for, and collect the tensors."""
        if isinstance(value, Ref):
            held = self.heap.held(value.handle)
            inputs.append(held)
            return held.tensor
        if isinstance(value, (list, tuple)):
            return [self._resolve(item, inputs) for item in value]
        if isinstance(value, GeneratorRef):
            return self.random.generator(value.number)
        return value

    def computed(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return an operator's results. An error reveals something about values to the host, and is counted as such."""
        try:
            check_indices(rule.base, rule.label, args, kwargs)
            if self.accounts.conv_tf32:
                args = convolution_operands(rule.base, args)
            self.counters.executed[rule.base] += 1
            return self.random.run(rule, args, kwargs) if rule.draws else rule.call(*args, **kwargs)
        except DeviceAssert as error:
            self.accounts.told_host(ERROR_BYTES)
            refused = rule.refusal(args, kwargs)
            if refused is not None:
                raise refused from None
            if self.interference == "none":  # disturbed indices are not the candidate's
                self.fault = str(error)
            raise DeviceFault(str(error)) from None
        except Exception as error:
            if isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
                raise self.heap.out_of_memory("The operator's result does not fit.") from None
            self.accounts.told_host(ERROR_BYTES)
            error.args = (without_values(str(error), args, kwargs),)
            raise

    def _hand_out(self, value: Any, rule: OperatorRule, outputs: list[Held]) -> Any:
        """Convert results for the host; fresh memory is poisoned."""
        if isinstance(value, torch.Tensor):
            if rule.allocates:
                self.work.poison(value)
            outputs.append(self.heap.register(value, initialized=not rule.allocates))
            return outputs[-1].spec
        if isinstance(value, (list, tuple)):
            return type(value)(self._hand_out(item, rule, outputs) for item in value)
        return self._to_host(value)

    def _to_host(self, value: Any) -> Any:
        """Record a value that leaves the device; every such value passes here."""
        return None if value is None else self.host_reads.pass_on(value, self.interference == "disturb")

    def _written(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> list[Held]:
        """The tensors that the operator has written."""
        written: list[Held] = []
        for key in rule.written:
            self._resolve(args[key] if isinstance(key, int) else kwargs.get(key), written)
        return written

    def _follow_writes(self, rule: OperatorRule, written: list[Held], inputs: list[Held]) -> None:
        """Record what the operator has written, and report reads of memory that nothing wrote."""
        if self.checks != "off" and rule.base not in FREE_OPERATORS:
            for held in inputs:
                if not any(held is other for other in written):
                    self._report_unwritten(rule, held)
        for held in written:
            self.heap.mark_written(held)

    def _report_unwritten(self, rule: OperatorRule, held: Held) -> None:
        missing = self.heap.unwritten(held)
        if missing is None:
            return
        nbytes, offset = missing
        message = (
            f"{rule.label} reads memory that nothing wrote: {nbytes} bytes of a tensor of shape "
            f"{list(held.spec.shape)}, the first at byte {offset} of its storage"
        )
        self.counters.findings.append(
            SimFinding("uninitialized", message, rule.label, None, None, None, None, offset, 1, "warning")
        )

    def _account(
        self, name: str, rule: OperatorRule, every: list[Held], outputs: list[Held], written: list[Held],
        given: list[Any],
    ) -> None:  # fmt: skip
        """Record the operator's work: none if it only made memory, or views of its inputs. ``every``: the tensors among
        its arguments, ``given``: these in the schema's order."""
        inputs: list[Held] = []
        self._resolve(read_only(name, given), inputs)
        storages = {held.base for held in inputs}
        views = not rule.written and bool(outputs) and all(held.base in storages for held in outputs)
        if rule.allocates or rule.only_metadata or views:
            self.accounts.host_work()
        elif rule.base == "_local_scalar_dense":
            self.accounts.copy("device to host", inputs[0].spec.dtype.itemsize)
            self.flow.read(inputs[0])
        else:
            self.accounts.operator(name, rule.label, inputs, outputs, given)
            self.accounts.told_host(bytes_told(rule, inputs, outputs))
            self.flow.operator(rule, every, outputs, written)

    # ---- launches

    def launch(self, command: LaunchCommand) -> None:
        """Execute (or, under the knock-out test, skip) one kernel launch and add its modelled time."""
        self._refuse_after_fault()
        if not self._programs(command.grid):
            return
        full_products = self.interference == "full_products"
        terms = command.ttir, command.name, command.num_warps, command.num_stages
        kernel, resources = self._loaded(*terms, full_products)
        place = len(self.counters.launches)
        if self.interference == "skip" and (self.skip_only is None or place in self.skip_only):
            self.flow.skipped()
            self.counters.launches.append(self._record_of(command, suppressed=True))
            return
        self._execute(kernel, command, resources, place)

    def _load(
        self, ttir: str, name: str, num_warps: int, num_stages: int, full_products: bool
    ) -> tuple[CompiledKernel, KernelResources | None]:
        """A kernel and its resources; refuses one that the GPU would refuse."""
        kernel = compile_ttir(ttir.replace(TF32, IEEE) if full_products else ttir, name=name)
        return kernel, self.target.resources(kernel, ttir, num_warps, num_stages)

    def _programs(self, grid: tuple[int, int, int]) -> int:
        """The programs of a grid: 0 when a size is 0, as in Triton's launchers. Raises beyond the GPU's limits."""
        x, y, z = grid
        if x * y * z <= 0:
            return 0
        if min(grid) < 1 or x > MAX_GRID_X or (self.spec.vendor == "nvidia" and max(y, z) > MAX_GRID_YZ):
            limits = f"at most {MAX_GRID_X} x {MAX_GRID_YZ} x {MAX_GRID_YZ}"
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument (grid {grid}; {limits})")
        return x * y * z

    def _execute(
        self, kernel: CompiledKernel, command: LaunchCommand, resources: KernelResources | None, place: int
    ) -> None:
        held = [self.heap.held(value.handle) for value in command.args if isinstance(value, Ref)]
        if self.work.launch(command, held, resources, place):
            return
        run = partial(self._run_checked, kernel, command, plain_arguments(command, held), held, place)
        result = disturbed(run, held, self.heap.noise) if self.interference == "disturb" else run()
        self.work.executed(command, held, result.stats)
        self.finish_launch(command, held, result, resources)

    def _run_checked(
        self, kernel: CompiledKernel, command: LaunchCommand, args: list[Any], held: Sequence[Held], place: int
    ) -> LaunchResult:
        """Execute a launch with the checks of this device. ``place``: its number since the counters were reset."""
        seed = f"{self.schedule.seed}:{place}"
        on = self.heap.tables_fit(held, must=self.checks == "full") and self.checks != "off"
        sample = SAMPLED_PROGRAMS if self.checks == "auto" else None
        checks = Checks(uninitialized=on, race=on, sample=sample, seed=seed)
        order = draw_order(seed, self._programs(command.grid)) if self.schedule.permuted else IN_ORDER
        return self.run_kernel(kernel, command.grid, args, checks, order, self.weights(command))

    def run_late(
        self, kernel: CompiledKernel, command: LaunchCommand, args: list[Any], held: Sequence[Held], place: int
    ) -> None:
        """Execute a launch that has been counted, and record what its execution alone shows."""
        result = self._run_checked(kernel, command, args, held, place)
        self.work.executed(command, held, result.stats)
        self._record_findings(result)
        self._raise_if_illegal(result)

    def run_kernel(
        self, kernel: CompiledKernel, grid: tuple[int, int, int], args: list[Any], checks: Checks, order: Order,
        weights: tuple[float, ...] = (),
    ) -> LaunchResult:  # fmt: skip
        """Execute a kernel, and no more. ``weights``: what entering each block costs a program."""
        processors = self.spec.sm_count
        self.counters.executed[kernel.name] += 1
        try:
            return kernel.watched(
                grid, args, self.heap.memory, checks=checks, order=order, processors=processors, weights=weights
            )
        except StepLimit as error:  # on a GPU the launch, and whatever waits for it, would never end
            if self.interference == "none":
                self.fault = f"CUDA error: the launch timed out and was terminated\n{error}"
            raise

    def finish_launch(
        self, command: LaunchCommand, held: Sequence[Held], result: LaunchResult, resources: KernelResources | None,
        counted: Counted | None = None,
    ) -> None:  # fmt: skip
        """Record a launch that was executed, or ``counted``."""
        self._record_findings(result)
        self.flow.launch(held, result.stats.footprint, counted.measured.uses if counted else ())
        launch = LaunchEntry(command.name, command.ttir, command.num_warps, command.num_stages, result.stats, resources)
        record = self._record_of(
            command,
            written=result.written,
            unique_bytes=float(sum(read + written for _, read, written in result.stats.footprint)),
            registers=resources.registers if resources else None,
            spills=resources.spills if resources else None,
            shared_bytes=resources.shared_bytes if resources else None,
            occupancy=resources.occupancy_blocks_per_sm if resources else None,
            **(counted.facts if counted else {}),
        )
        self.accounts.launched(launch, record)
        self._raise_if_illegal(result)

    def _record_findings(self, result: LaunchResult) -> None:
        self.counters.findings += result.findings
        self.counters.prints += result.prints

    def _raise_if_illegal(self, result: LaunchResult) -> None:
        """Fail for an illegal access; after a failed assertion the next command fails, as on a GPU, where the launch
        itself has long returned."""
        for finding in result.findings:
            if finding.kind in ILLEGAL and finding.severity == "error":
                self.fault = f"CUDA error: {ILLEGAL[finding.kind]}\n{finding.message}"
                raise DeviceFault(self.fault)
            if finding.kind == "assert" and self.interference == "none":
                self.fault = self.fault or f"CUDA error: device-side assert triggered\n{finding.message}"

    def modelled_seconds(self, command: LaunchCommand, resources: KernelResources | None, stats: LaunchStats) -> float:
        """The modelled seconds of a launch with these counts, from the current L2 state, which is left unchanged."""
        l2 = copy.deepcopy(self.accounts.l2)
        terms = (command.ttir, command.num_warps, command.num_stages, stats, resources, self.spec, l2)
        return priced(lambda: price_launch(*terms)).seconds

    def weights(self, command: LaunchCommand) -> tuple[float, ...]:
        """What entering each block of a launch's kernel costs a program, in clocks."""
        return self._weights(command.ttir, command.num_warps, command.num_stages)

    def _record_of(self, command: LaunchCommand, *, suppressed: bool = False, **facts: Any) -> LaunchRecord:
        return LaunchRecord(
            command.name, command.identity, command.grid, command.num_warps, command.num_stages, command.constexprs,
            0.0, suppressed, **facts,
        )  # fmt: skip

    def resources(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        """Registers and spilled words a thread, and bytes of shared memory a program, on the target."""
        return self.target.figures(ttir, num_warps, num_stages)

    # ---- copies, random numbers, facts

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        """Copy a host tensor in."""
        self._refuse_after_fault()
        nbytes = tensor.numel() * tensor.element_size()
        self.heap.require(nbytes)
        self.accounts.copy("host to device", nbytes)
        held = self.heap.put(tensor.clone(memory_format=torch.preserve_format) if self.data_free is None else tensor)
        self.flow.upload(held)
        return held.spec

    def download(self, ref: Ref) -> torch.Tensor:
        """Copy a device tensor out."""
        self._refuse_after_fault()
        held, contents = self.heap.held(ref.handle), self.contents(ref.handle)
        self.flow.read(held)
        self.accounts.copy("device to host", held.tensor.numel() * held.spec.dtype.itemsize)
        if contents is None:
            assert self._forms is not None, "with data all storages have contents"
            return self._to_host(self._forms.download(held))
        return self._to_host(contents.clone(memory_format=torch.preserve_format))

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        """Seed a generator, or set its state; returns both."""
        if seed is None and state is None:
            self.accounts.told_host(GENERATOR_BYTES)
        return self.random.command(number, seed, state)

    def query(self, what: str) -> Any:
        """Facts for host code, and small requests."""
        facts: dict[str, Callable[[], Any]] = {
            "used_bytes": lambda: self.heap.used_bytes,
            "peak_bytes": lambda: self.heap.peak_bytes,
            "memory_bytes": lambda: self.memory_bytes,
            "elapsed_seconds": lambda: self.accounts.timeline.elapsed_seconds,
            "device_seconds": lambda: self.accounts.timeline.device_seconds,
            "synchronize": self._synchronize,
            "flush": self.accounts.flush,
            "module": self.accounts.module,
            "reset_peak": lambda: setattr(self.heap, "peak_bytes", self.heap.used_bytes),
            "contents_bytes": lambda: self.heap.contents_bytes,
            "sleep": lambda: self.accounts.timeline.sleep(int(number)),
        }
        what, _, number = what.partition(" ")
        if what not in facts or number.isdecimal() != (what == "sleep"):
            raise ProtocolError(f"no device fact named {what!r}")
        value = facts[what]()
        if what.endswith("_seconds") or what in ("used_bytes", "peak_bytes"):  # data may have decided these
            self.accounts.told_host(8)
        return self._to_host(value) if what.endswith("_seconds") else value

    def _synchronize(self) -> None:
        self._refuse_after_fault()
        self.accounts.synchronize()

    def _refuse_after_fault(self) -> None:
        if self.fault is not None:
            raise DeviceFault(self.fault)

    # ---- the judge's side

    @property
    def counters(self) -> Counters:
        """The counts since the last reset."""
        return self.accounts.counters

    def reset_counters(self) -> None:
        """Reset counters and clock; the L2 state is that of a flushed cache."""
        self.accounts.reset()
        self.flow.reset()
        self.host_reads.begin(replay=self.interference == "disturb")

    def profile(self) -> Profile:
        """Modelled time since the last reset, by kernel and operator."""
        return self.accounts.profile()


# ---- texts of errors


MAX_MESSAGE = 2000
_NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf)\b")
_COMMON = frozenset(str(number) for number in range(10))
"""digits that messages use for dimensions and counts of arguments; a value may hide behind one, for 8 bytes' charge"""


def without_values(message: str, args: list[Any], options: dict[str, Any]) -> str:
    """``message`` with numbers that the caller did not know replaced by ``?``."""
    known = set(_COMMON)
    for value in (*args, *options.values()):
        _collect(value, known)
    text = _NUMBER.sub(lambda found: found[0] if found[0].lstrip("+-") in known else "?", message)
    return text[:MAX_MESSAGE]


def _collect(value: Any, known: set[str]) -> None:
    if isinstance(value, torch.Tensor):
        known.update(map(str, (*value.shape, *value.stride(), value.dim(), value.numel())))
    elif isinstance(value, (list, tuple)):
        known.add(str(len(value)))
        for item in value:
            _collect(item, known)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        known.update((str(value), f"{value:g}"))
