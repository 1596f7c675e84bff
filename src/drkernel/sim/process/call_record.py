"""The record of one call, as the judge reads it from a device process."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from drkernel.sim.gpu.accounts import LaunchRecord, facts_of
from drkernel.sim.gpu.dataflow import Passed
from drkernel.sim.gpu.datafree import DataDependence
from drkernel.sim.gpu.device_journal import detailed, launches_of, modelled
from drkernel.sim.spec import GPUSpec
from drkernel.sim.wire.commands import ProtocolError, TensorSpec, decode
from drkernel.sim.wire.frames import tensor_of
from drkernel.verdict import Profile
from ttir_executor.compiled import SimFinding

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
            replace(launch, seconds=cost.seconds, **facts_of(cost))
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
    priced, executed = launches_of(record.journal), sum(not launch.suppressed for launch in record.recorded)
    if priced is not None and priced != executed:
        raise ValueError("the journal has another number of launches than the record")
    return record


def parts_of(headers: Iterable[dict], payload: bytearray) -> Iterator[tuple[dict, memoryview]]:
    """Yield each header with its share of the bytes."""
    start, view = 0, memoryview(payload)
    for header in headers:
        end = start + header["bytes"]
        yield header, view[start:end]
        start = end
