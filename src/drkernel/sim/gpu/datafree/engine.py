"""A simulated GPU without data: everything is counted and modelled as usual, nothing is computed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from drkernel.sim.gpu.dataflow import DataFlow
from drkernel.sim.gpu.datafree.addresses import AddressHeap
from drkernel.sim.gpu.datafree.launches import LaunchCounter, sample_of
from drkernel.sim.gpu.datafree.operators import ShapeOperators, tensors_in
from drkernel.sim.gpu.datafree.records import (
    MAX_CALLS,
    DataDependence,
    DataFree,
    DataFreeRecord,
    DependsOnData,
    OperatorCall,
)
from drkernel.sim.gpu.engine import DeviceEngine, DeviceFault
from drkernel.sim.gpu.heap import Held
from drkernel.sim.gpu.index_checks import DeviceAssert
from drkernel.sim.gpu.operator_rules import OperatorRule, rule_of
from drkernel.sim.gpu.resources import Depth
from drkernel.sim.gpu.shapes import prepare_shapes
from drkernel.sim.spec import GPUSpec
from drkernel.sim.target.compile import KernelResources
from drkernel.sim.wire.commands import GeneratorRef, LaunchCommand, Ref, TensorSpec
from ttir_executor.compiled import CompiledKernel, LaunchResult, StepLimit


class DataFreeEngine(DeviceEngine):
    """One simulated GPU whose memory is addresses only. Dependences on data are recorded in :attr:`record`."""

    heap: AddressHeap

    def __init__(
        self,
        spec: GPUSpec,
        settings: DataFree | None = None,
        *,
        memory_bytes: int | None = None,
        depth: Depth = "ttir",
        budget_bytes: int | None = None,
    ):
        super().__init__(spec, checks="off", memory_bytes=memory_bytes, depth=depth, budget_bytes=budget_bytes)
        prepare_shapes()
        self.settings = settings or DataFree()
        self._operators = ShapeOperators(self.heap, self.random, self.settings)
        self._launches = LaunchCounter(self.heap, self.settings)
        self._record_of_run = DataFreeRecord()
        self._counted = 0
        self._bytes_written: dict[int, float] = {}

    def _new_heap(self) -> AddressHeap:
        return AddressHeap(self.memory_bytes, self.budget_bytes)

    def _new_flow(self) -> DataFlow:
        return DataFlow(self.heap, values=False)

    @property
    def record(self) -> DataFreeRecord:
        """The record of the commands since the last reset, besides counters and times."""
        found = self._record_of_run
        launches = [launch for launch in self.counters.launches if not launch.suppressed]
        wrong, total = 0.0, self.accounts.timeline.device_seconds
        for sample, launch in zip(found.samples, launches, strict=False):
            if sample.rough:
                total -= launch.seconds
            else:
                wrong += sample.error * launch.seconds
        return replace(found, error=wrong / total if total else 0.0)

    def missed(self, dependence: DataDependence) -> None:
        """Record a place at which data is missing."""
        self._record_of_run.missed(dependence)

    def reset_counters(self) -> None:
        """Reset counters and clock."""
        super().reset_counters()
        self._record_of_run, self._counted, self._bytes_written = DataFreeRecord(), 0, {}

    # ---- tensors

    def register(self, tensor: torch.Tensor) -> TensorSpec:
        """Register a tensor: with its contents up to the limit of the settings, otherwise its form alone."""
        if tensor.device.type == "meta":
            return self.heap.register(tensor).spec
        held = self.heap.register(
            torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        )  # fmt: skip
        if held.nbytes <= self.settings.contents_bytes:
            self.heap.fill(held, tensor)
        return held.spec

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
        if self.heap.has_contents(held):
            return self._to_host(self.heap.view(held).clone(memory_format=torch.preserve_format))
        self._host_reads(f"a copy of a {_form(held)} to the host")
        return self._to_host(torch.zeros((), dtype=spec.dtype).expand(spec.shape))

    def contents(self, handle: int) -> torch.Tensor | None:
        """Return a tensor's contents; None if they are unknown."""
        held = self.heap.held(handle)
        return self.heap.view(held) if self.heap.has_contents(held) else None

    def overwrite(self, handle: int, tensor: torch.Tensor | None) -> None:
        """Replace a tensor's contents, where they may be kept; by nothing, if None is given."""
        held = self.heap.held(handle)
        if tensor is not None and self.heap.has_contents(held):
            self.heap.view(held).copy_(tensor)
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
        self.missed(DataDependence("host_read", what, message))
        if self.settings.on_read == "refuse":
            raise DependsOnData(message)

    def query(self, what: str) -> Any:
        """Facts for host code, and small requests."""
        return self.settings.contents_bytes if what == "contents_bytes" else super().query(what)

    # ---- operators

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator on shapes; results are :class:`TensorSpec` where they are tensors."""
        self._refuse_after_fault()
        rule = rule_of(name)
        args, kwargs = rule.normal(args, kwargs)
        inputs: list[Held] = []
        held_args = [self._held(value, inputs) for value in args]
        held_kwargs = {key: self._held(value, inputs) for key, value in kwargs.items()}
        if rule.base in ("_local_scalar_dense", "equal") and not all(map(self.heap.has_contents, inputs)):
            self._host_reads(f"the value of {rule.label} on a {_form(inputs[0])}")
            result: Any = False if rule.base == "equal" else torch.zeros((), dtype=inputs[0].spec.dtype).item()
        else:
            result = self._run(rule, held_args, held_kwargs, inputs)
        for held in self._written(rule, args, kwargs):
            self.heap.refresh(held)
            self._wrote(held.base, held.tensor.numel() * held.spec.dtype.itemsize)
        outputs = [self.heap.register(tensor) for tensor in tensors_in(result)]
        old = {held.base for held in inputs}
        for held in outputs:
            if held.base not in old and not rule.allocates:
                self._wrote(held.base, held.nbytes)
        self._account(name, rule, outputs, args, kwargs)
        self._note_call(name, inputs, outputs)
        return self._specs(result)

    def _run(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], inputs: list[Held]) -> Any:
        try:
            return self._operators.run(rule, args, kwargs, inputs)
        except DeviceAssert as error:
            self.fault = str(error)
            raise DeviceFault(str(error)) from None
        except DependsOnData as error:
            self.missed(DataDependence("shape", rule.label, str(error)))
            raise

    def _held(self, value: Any, inputs: list[Held]) -> Any:
        if isinstance(value, Ref):
            inputs.append(self.heap.held(value.handle))
            return inputs[-1]
        if isinstance(value, GeneratorRef):
            return self.random.generator(value.number)
        return [self._held(item, inputs) for item in value] if isinstance(value, (list, tuple)) else value

    def _specs(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.heap.register(value).spec
        if isinstance(value, (list, tuple)):
            return type(value)(self._specs(item) for item in value)
        return self._to_host(value)

    def _note_call(self, name: str, inputs: list[Held], outputs: list[Held]) -> None:
        """Remember the operator, where it is device work."""
        calls, counted = self._record_of_run.calls, sum(self.counters.operators.values())
        if counted > self._counted and len(calls) < MAX_CALLS:
            calls.append(OperatorCall(name, _forms(inputs), _forms(outputs)))
        self._counted = counted

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
            self.missed(dependence)
        held = [self.heap.held(value.handle) for value in command.args if isinstance(value, Ref)]
        measured = counted.measured
        for use in measured.uses:
            if use.written.value:
                self._wrote(use.base, use.written.low)
        self.trials.timed(command, clock, measured.stats)
        sizes = {one.base: one.nbytes for one in held}
        self._record_of_run.samples.append(sample_of(measured, sizes, rough=rough is not None))
        result = LaunchResult(measured.findings, measured.stats, 0.0, (), counted.written)
        self.finish_launch(command, held, result, resources)


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


def _forms(tensors: list[Held]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((str(held.spec.dtype).removeprefix("torch."), held.spec.shape) for held in tensors)
