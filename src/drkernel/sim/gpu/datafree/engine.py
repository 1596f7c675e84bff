"""A simulated GPU without data: everything is counted and modelled as usual, nothing is computed.

Kernel launches without data: counted by running their skeletons, cached, and checked for missing steering data.

ATen operators without data: shapes always, values when everything they depend on is known and small.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from drkernel.sim.gpu.argument_checks import check_arguments
from drkernel.sim.gpu.dataflow import DataFlow
from drkernel.sim.gpu.datafree.records import (
    RECURRENT,
    DataDependence,
    DataFree,
    DependsOnData,
    recurrent_results,
)
from drkernel.sim.gpu.emulated import layout_of_cudnn
from drkernel.sim.gpu.engine import DeviceEngine, DeviceFault
from drkernel.sim.gpu.heap import DeviceHeap, Held
from drkernel.sim.gpu.index_checks import DeviceAssert, check_indices
from drkernel.sim.gpu.operator_rules import OperatorRule, rule_of
from drkernel.sim.gpu.pricing import Depth
from drkernel.sim.gpu.random_numbers import DeviceRandom
from drkernel.sim.gpu.shapes import bare, mapped, on_meta, prepare_shapes, tensors_in
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target.shared_memory import KernelResources
from drkernel.sim.wire.commands import LaunchCommand, Ref, TensorSpec, UnsupportedOp
from ttir_executor.compiled import DEFAULT_STEP_LIMIT, DEFAULT_TIME_LIMIT, CompiledKernel, LaunchResult, StepLimit
from ttir_executor.launch import LaunchLimits
from ttir_executor.skeleton.measure import Clock, SampledCounts, SampleSettings, measure
from ttir_executor.skeleton.slim import Skeleton, SteeringRead, skeleton_of

_STANDS_FOR = 4
"""programs whose steps one program may make where programs steer one another"""
_REMEMBERED = 512
"""launches whose counts are kept: the same launch on other memory counts the same"""


@dataclass(frozen=True)
class Counted:
    """A launch, counted."""

    measured: SampledCounts
    dependences: tuple[DataDependence, ...]
    written: tuple[int, ...]
    """addresses of the storages that the launch wrote"""


class LaunchCounter:
    """Counts launches on the memory of one data-free device."""

    def __init__(self, heap: DeviceHeap, settings: DataFree):
        self.heap, self.settings = heap, settings
        self._known: OrderedDict[Any, tuple[tuple[int, ...], SampledCounts]] = OrderedDict()

    def count(
        self,
        command: LaunchCommand,
        clock: Clock,
        weights: Sequence[float],
        rough: SampleSettings | None = None,
        bound: float = math.inf,
    ) -> Counted:
        """Count one launch. What it wrote has no contents any more. ``weights``: what entering each block costs a
        program; ``rough``: how well to count it, if not as any launch, and ``bound``: modelled seconds beyond which
        its time need not be known.

        Raises:
            StepLimit: a program loops beyond its budget, or all of it takes too long here.
        """
        skeleton = skeleton_of(command.ttir, command.name)
        held = [self.heap.held(arg.handle) if isinstance(arg, Ref) else None for arg in command.args]
        dependences = list(self._dependences(skeleton, command, held))
        measured = self._measured(skeleton, command, held, clock, weights, rough, bound)
        if measured.without_data is not None and not dependences:
            dependences.append(_steered(command.name, measured.without_data, "an address that it got from memory"))
        written = tuple(use.base for use in measured.uses if use.written.value)
        kept = self._kept(skeleton, held)
        for base in written:
            if base not in kept:
                self.heap.forget(base)
        return Counted(measured, tuple(dependences), written)

    # ---- counting once

    def _measured(
        self,
        skeleton: Skeleton,
        command: LaunchCommand,
        held: Sequence[Held | None],
        clock: Clock,
        weights: Sequence[float],
        rough: SampleSettings | None,
        bound: float,
    ) -> SampledCounts:
        args = [
            one.spec.address if one is not None else arg for one, arg in zip(held, command.args, strict=True)
        ]  # fmt: skip
        key, bases = _pattern(command, held)
        cacheable = not skeleton.reads and not skeleton.lowered.dynamic_pointers
        if cacheable and key in self._known:
            self._known.move_to_end(key)
            before, measured = self._known[key]
            return _moved(measured, dict(zip(before, bases, strict=True)))
        # where programs take work from a counter, the first to run here does that of many
        share = min(_STANDS_FOR, math.prod(command.grid)) if skeleton.serial else 1
        limits = LaunchLimits(DEFAULT_STEP_LIMIT * share, DEFAULT_TIME_LIMIT)
        terms = skeleton, command.grid, args, self.heap.memory, limits
        if rough is not None:
            return measure(*terms, rough, clock, weights, bound)
        found = measure(*terms, self.settings.sample, clock, weights)
        if cacheable and not found.findings:
            self._known[key] = (bases, found)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    # ---- what steers

    def _dependences(
        self, skeleton: Skeleton, command: LaunchCommand, held: Sequence[Held | None]
    ) -> list[DataDependence]:
        """Return loads and atomics that decide control flow or addresses and read missing contents."""
        named = {param.name: one for param, one in zip(skeleton.kernel.params, held, strict=True)}
        written = {named[name].base for name in skeleton.loose if name in named and named[name] is not None}  # type: ignore[union-attr]
        found = []
        for read in skeleton.reads:
            one = named.get(read.argument) if read.argument is not None else None
            if one is not None and (not self.heap.has_contents(one) or one.base in written):
                by = f"argument {read.argument!r}"
                found.append(_steered(command.name, _place(read), by, read.decides, one.base))
        return list(dict.fromkeys(found))

    def _kept(self, skeleton: Skeleton, held: Sequence[Held | None]) -> set[int]:
        """Return the storages into which the launch writes only steering data, so that their contents are right."""
        named = {param.name: one for param, one in zip(skeleton.kernel.params, held, strict=True)}
        followed = {one.base for name, one in named.items() if one is not None and name in skeleton.followed}
        loose = {one.base for name, one in named.items() if one is not None and name in skeleton.loose}
        return set() if None in skeleton.loose else followed - loose


def _steered(kernel: str, place: str, by: str, decides: str = "where it goes", base: int = 0) -> DataDependence:
    message = f"kernel {kernel} depends on data: {place} of {by} decides {decides}, and reads what has no contents"
    return DataDependence("steering", f"{kernel}, {place}", message, base)


def _place(read: SteeringRead) -> str:
    what = "an atomic" if "atomic" in read.operation else "a load"
    line = read.loc.rpartition("/")[2]
    return f"{what} at {line}" if line else what


def _pattern(command: LaunchCommand, held: Sequence[Held | None]) -> tuple[Any, tuple[int, ...]]:
    """Return what a launch's counts depend on besides contents, and its storages, which appear there by number."""
    bases: list[int] = []
    args: list[Any] = []
    for one, arg in zip(held, command.args, strict=True):
        if one is None:
            args.append((type(arg).__name__, arg))
            continue
        if one.base not in bases:
            bases.append(one.base)
        args.append((bases.index(one.base), one.spec.address - one.base, one.nbytes))
    key = (command.ttir, command.grid, command.num_warps, command.num_stages, tuple(args))
    return key, tuple(bases)


def _moved(measured: SampledCounts, places: dict[int, int]) -> SampledCounts:
    """Return the same counts for other storages."""
    uses = tuple(replace(use, base=places[use.base]) for use in measured.uses)
    footprint = tuple((places[base], read, written) for base, read, written in measured.stats.footprint)
    parts = tuple((places[base], read, written) for base, read, written in measured.stats.parts)
    sites = tuple((n, places.get(base, base), asked, lanes) for n, base, asked, lanes in measured.stats.sites)
    return replace(measured, uses=uses, stats=replace(measured.stats, footprint=footprint, parts=parts, sites=sites))


class ShapeOperators:
    """Runs operators on the meta tensors of a heap, and on contents where that is possible."""

    def __init__(self, heap: DeviceHeap, random: DeviceRandom, settings: DataFree):
        self.heap, self.random, self.settings = heap, random, settings

    def run(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], inputs: Sequence[Held]) -> Any:
        """Run the operator on meta tensors, and update the heap's contents. ``inputs`` are all tensors among the
        arguments.

        Raises:
            DependsOnData: the shape of the result depends on values that are missing.
            UnsupportedOp: the shape of its result cannot be determined.
        """
        known = all(self.heap.has_contents(held) for held in inputs)
        small = known and sum(held.nbytes for held in inputs) <= self._limit(inputs)
        try:
            result = self._shapes(rule, args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if not _is_missing(error):
                raise
            if not known:
                self._refuse(rule, error)
            return self._from_values(rule, args, kwargs)
        outputs = tensors_in(result)
        if (
            small
            and not rule.allocates
            and sum(out.untyped_storage().nbytes() for out in outputs) <= self._limit(outputs)
        ):
            self._follow(rule, args, kwargs, outputs)
        else:
            self._lose(rule, args, kwargs)
        return result

    def _limit(self, tensors: Sequence[Any]) -> int:
        """Return the size, in bytes, up to which values are computed: integers often steer a program, floats hardly
        ever."""
        whole = all(not (t.spec.dtype if isinstance(t, Held) else t.dtype).is_floating_point for t in tensors)
        return self.settings.contents_bytes if whole and tensors else self.settings.operator_bytes

    # ---- shapes

    def _shapes(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        check_arguments(rule.base, rule.parameters, args, kwargs)
        named = {key: value for key, value in kwargs.items() if key != "generator"}
        if rule.base in RECURRENT and rule.call._overloadname == "input":
            return recurrent_results(rule.base, *args)
        if rule.takes_device:
            named["device"] = torch.device("meta")
        result = on_meta(rule.call, args, named)
        if rule.base in ("convolution", "_convolution"):
            return result.contiguous(memory_format=layout_of_cudnn(*args[:2]))
        return result

    def _refuse(self, rule: OperatorRule, error: Exception) -> None:
        if rule.sized_by_data or torch.Tag.data_dependent_output in rule.call.tags or "data-independent" in str(error):
            raise DependsOnData(
                f"the result of {rule.label} depends on data in its shape or value, and this device has no data"
            ) from None
        raise UnsupportedOp(f"{rule.label} without data: the shape of its result is unknown") from None

    # ---- values

    def _from_values(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An operator whose shapes depend on values that are there: its results become meta tensors with contents."""

        def without_data(value: torch.Tensor) -> torch.Tensor:
            form = bare(value)
            self.heap.fill(self.heap.register(form), value)
            return form

        return mapped(self._values(rule, args, kwargs), without_data)

    def _follow(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        """Also compute the values, of new storages and of those that the operator writes."""
        fresh = [not self.heap.base_of(out) for out in outputs]
        if not any(fresh) and not rule.written:
            return  # views
        values = tensors_in(self._values(rule, args, kwargs))
        for out, new, value in zip(outputs, fresh, values, strict=True):
            if new and out.numel():
                self.heap.fill(self.heap.register(out), value)

    def _values(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        views, named = mapped(args, self._view), {key: mapped(value, self._view) for key, value in kwargs.items()}
        check_indices(rule.base, rule.label, views, named)
        return self.random.run(rule, views, named) if rule.draws else rule.call(*views, **named)

    def _view(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self.heap.contents(self.heap.of(tensor))
        assert found is not None
        return found

    def _lose(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Drop the contents of what the operator writes."""
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs)
        for key in rule.written:
            for tensor in tensors_in(given.get(key)):
                self.heap.forget(self.heap.base_of(tensor))


def _is_missing(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, NotImplementedError) or "meta tensor" in text.lower() or "data-dependent" in text.lower()


class DataFreeEngine(DeviceEngine):
    """One simulated GPU whose memory is addresses only. Dependences on data are among its counts."""

    def __init__(
        self,
        spec: GPUSpec,
        settings: DataFree | None = None,
        *,
        memory_bytes: int | None = None,
        depth: Depth = "ttir",
        budget_bytes: int | None = None,
    ):
        self.settings = settings or DataFree()
        super().__init__(spec, checks="off", memory_bytes=memory_bytes, depth=depth, budget_bytes=budget_bytes)
        prepare_shapes()
        self._operators = ShapeOperators(self.heap, self.random, self.settings)
        self._launches = LaunchCounter(self.heap, self.settings)
        self._bytes_written: dict[int, float] = {}

    def _new_heap(self) -> DeviceHeap:
        return DeviceHeap(self.memory_bytes, self.budget_bytes, contents_bytes=self.settings.contents_bytes)

    def _new_flow(self) -> DataFlow:
        return DataFlow(self.heap, values=False)

    def reset_counters(self) -> None:
        """Reset counters and clock."""
        super().reset_counters()
        self._bytes_written = {}

    # ---- tensors

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        """Copy a host tensor in."""
        self._refuse_after_fault()
        nbytes = tensor.numel() * tensor.element_size()
        self.heap.require(nbytes)
        self.accounts.copy("host to device", nbytes)
        spec = self.register(tensor)
        self.flow.upload(self.heap.held(spec.handle))
        return spec

    def download(self, ref: Ref) -> torch.Tensor:
        """Copy a device tensor to the host: zeros, and a recorded dependence, if it has no contents."""
        self._refuse_after_fault()
        held = self.heap.held(ref.handle)
        spec = held.spec
        self.flow.read(held)
        self.accounts.copy("device to host", spec.dtype.itemsize * held.tensor.numel())
        contents = self.heap.contents(held)
        if contents is not None:
            return self._to_host(contents.clone(memory_format=torch.preserve_format))
        self._host_reads(f"a copy of a {_form(held)} to the host")
        return self._to_host(torch.zeros((), dtype=spec.dtype).expand(spec.shape))

    def contents(self, handle: int) -> torch.Tensor | None:
        """Return a tensor's contents; None if they are unknown."""
        return self.heap.contents(self.heap.held(handle))

    def overwrite(self, handle: int, tensor: torch.Tensor | None) -> None:
        """Replace a tensor's contents, where they may be kept; by nothing, if None is given."""
        held = self.heap.held(handle)
        contents = self.heap.contents(held)
        if tensor is not None and contents is not None:
            contents.copy_(tensor)
        else:
            self.heap.forget(held.base)

    # ---- what was written since the counters were reset

    def was_written(self, held: Held) -> bool:
        """Whether anything was written to the storage of a tensor."""
        return self._bytes_written.get(held.base, 0.0) > 0.0

    def covered(self, held: Held) -> float:
        """Return the share of a tensor's storage that was certainly written; repeated writes count repeatedly."""
        return min(1.0, self._bytes_written.get(held.base, 0.0) / held.nbytes) if held.nbytes else 1.0

    def _wrote(self, base: int, nbytes: float) -> None:
        self._bytes_written[base] = self._bytes_written.get(base, 0.0) + nbytes

    def free(self, handle: int) -> None:
        """Drop a handle; memory goes when the last tensor over it does."""
        base = self.heap.held(handle).base
        super().free(handle)
        if self.memory.find(base) is None:
            self._bytes_written.pop(base, None)

    def _host_reads(self, what: str) -> None:
        message = f"the host reads {what}, which has no contents in a data-free run"
        self.counters.missed(DataDependence("host_read", what, message))
        if self.settings.on_read == "refuse":
            raise DependsOnData(message)

    # ---- operators

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator on shapes; results are :class:`TensorSpec` where they are tensors."""
        self._refuse_after_fault()
        rule = rule_of(name)
        args, kwargs = rule.normal(args, kwargs)
        inputs: list[Held] = []
        real_args = [self._resolve(value, inputs) for value in args]
        real_kwargs = {key: self._resolve(value, inputs) for key, value in kwargs.items()}
        if rule.base in ("_local_scalar_dense", "equal") and not all(map(self.heap.has_contents, inputs)):
            self._host_reads(f"the value of {rule.label} on a {_form(inputs[0])}")
            result: Any = False if rule.base == "equal" else torch.zeros((), dtype=inputs[0].spec.dtype).item()
        else:
            result = self._run(rule, real_args, real_kwargs, inputs)
        for held in self._written(rule, args, kwargs):
            self.heap.refresh(held)
            self._wrote(held.base, held.tensor.numel() * held.spec.dtype.itemsize)
        outputs = [self.heap.register(tensor) for tensor in tensors_in(result)]
        old = {held.base for held in inputs}
        for held in outputs:
            if held.base not in old and not rule.allocates:
                self._wrote(held.base, held.nbytes)
        self._account(name, rule, outputs, args, kwargs)
        return self._specs(result)

    def _run(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], inputs: list[Held]) -> Any:
        try:
            return self._operators.run(rule, args, kwargs, inputs)
        except DeviceAssert as error:
            self.fault = str(error)
            raise DeviceFault(str(error)) from None
        except DependsOnData as error:
            self.counters.missed(DataDependence("shape", rule.label, str(error)))
            raise

    def _specs(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.heap.register(value).spec
        if isinstance(value, (list, tuple)):
            return type(value)(self._specs(item) for item in value)
        return self._to_host(value)

    # ---- launches

    def _execute(
        self, kernel: CompiledKernel, command: LaunchCommand, resources: KernelResources | None, place: int
    ) -> None:
        try:
            clock = partial(self.modelled_seconds, command, resources)
            rough = self.settings.tuning if self.trials.purpose == "tuning" else None
            bound = self.trials.bound(command)
            counted = self._launches.count(command, clock, self.weights(command), rough, bound)
        except StepLimit as error:
            self.fault = str(error)
            raise
        for dependence in counted.dependences:
            self.counters.missed(dependence)
        held = [self.heap.held(value.handle) for value in command.args if isinstance(value, Ref)]
        measured = counted.measured
        for use in measured.uses:
            if use.written.value:
                self._wrote(use.base, use.written.low)
        self.trials.timed(command, clock, measured.stats)
        result = LaunchResult(measured.findings, measured.stats, 0.0, (), counted.written)
        looked_at = min(measured.sampled, measured.stats.programs)
        sampled = {"looked_at": looked_at, "error": measured.error, "rough": rough is not None}
        self.finish_launch(command, held, result, resources, **sampled)


def new_engine(
    spec: GPUSpec, *, checks: str, memory_bytes: int | None, depth: Depth, data_free: DataFree | None,
    budget_bytes: int | None = None,
) -> DeviceEngine:  # fmt: skip
    """Create a device with data, or without if settings for that are given.

    Raises:
        ValueError: an invalid value of ``checks`` or ``depth``.
    """
    if data_free is not None:
        return DataFreeEngine(spec, data_free, memory_bytes=memory_bytes, depth=depth, budget_bytes=budget_bytes)
    return DeviceEngine(spec, checks=checks, memory_bytes=memory_bytes, depth=depth, budget_bytes=budget_bytes)


def _form(held: Held) -> str:
    return f"{str(held.spec.dtype).removeprefix('torch.')} tensor of shape {list(held.spec.shape)}"
