"""Kernels on exact values beside the native executor: what each launch leaves in memory, element by element."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from harness import executing
from ttir_executor.allocations import Allocation, MemoryMap
from ttir_executor.compiled import CompiledKernel
from ttir_executor.exact.bits import floats_of
from ttir_executor.exact.field import Field
from ttir_executor.exact.interpreter import run_exact
from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import FLOAT_BITS, elem_bytes

ELEMS = {torch.float16: "f16", torch.float32: "f32"}
ROUGH = {"f16": 2e-3, "bf16": 1.6e-2, **dict.fromkeys(("f8E4M3FN", "f8E4M3FNUZ"), 0.07), "f8E5M2": 0.14}
"""largest relative errors, for casts that do not round"""
INTEGERS: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


@dataclass
class Launches:
    """What became of launches."""

    field: Field
    undecided: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """elements whose float is not the native executor's"""
    compared: int = 0
    written: dict[int, Exact] = field(default_factory=dict)
    """address of an allocation -> its floats after the last launch"""


@contextmanager
def evaluating(reachable: list[torch.Tensor] | None = None) -> Iterator[Launches]:
    """Let Triton launches on CPU tensors run natively and on exact values, which begin with the tensors' numbers.

    Floats begin as independent variables named by their place among the launch's allocations.

    Args:
        reachable: tensors that kernels reach by addresses in memory.
    """
    found = Launches(Field(11))
    native = CompiledKernel.run
    patch = pytest.MonkeyPatch()

    def run(kernel: CompiledKernel, grid: Any, args: Sequence[Any], memory: MemoryMap, **options: Any) -> Any:
        function = kernel.function
        elems = {
            allocation.base: value.type.pointee
            for value, given in zip(function.args, args, strict=True)
            if value.type.elem == "ptr" and (allocation := memory.find(int(given))) is not None
        }
        for tensor in reachable or []:
            elems[tensor.untyped_storage().data_ptr()] = ELEMS[tensor.dtype]
        exact = ExactMemory(found.field)
        names = {base: str(k) for k, base in enumerate(sorted(elems))}
        for allocation in memory.all():
            exact.add(allocation.base, allocation.nbytes)
            _fill(exact, allocation, elems.get(allocation.base) or "i8", names.get(allocation.base, "other"))
        try:
            run_exact(function, grid, [float(x) if isinstance(x, float) else int(x) for x in args], exact)
        except Undecided as error:
            found.undecided.append(str(error))
            return native(kernel, grid, args, memory, **options)
        result = native(kernel, grid, args, memory, **options)
        for allocation in memory.all():
            elem = elems.get(allocation.base)
            if elem is not None and allocation.base in result.written:
                _compare(found, exact, allocation, elem)
        return result

    patch.setattr(CompiledKernel, "run", run)
    try:
        with executing() as log:
            log.reachable = reachable if reachable is not None else []
            yield found
    finally:
        patch.undo()


def _places(allocation: Allocation, elem: str) -> np.ndarray:
    size = elem_bytes(elem)
    return allocation.base + size * np.arange(allocation.nbytes // size)


def _numbers(allocation: Allocation, elem: str) -> np.ndarray:
    raw = ctypes.string_at(allocation.base, allocation.nbytes)
    size = elem_bytes(elem)
    integers = np.frombuffer(raw, INTEGERS[size], allocation.nbytes // size).astype(np.int64)
    return floats_of(integers, elem) if elem in FLOAT_BITS else integers


def _fill(memory: ExactMemory, allocation: Allocation, elem: str, name: str) -> None:
    if allocation.nbytes < elem_bytes(elem):
        return
    numbers = _numbers(allocation, elem)
    value = Exact.drawn(memory.field, name, numbers) if elem in FLOAT_BITS else numbers
    memory.write(_places(allocation, elem), elem, value)


def _compare(found: Launches, memory: ExactMemory, allocation: Allocation, elem: str) -> None:
    value, want = memory.read(_places(allocation, elem), elem), _numbers(allocation, elem)
    if not isinstance(value, Exact):
        bad = np.flatnonzero(value != want)
        got: np.ndarray = value
    else:
        found.written[allocation.base] = value
        got = value.f
        rough = ROUGH.get(elem, 1e-4)
        with np.errstate(invalid="ignore"):
            near = np.abs(got - want) <= rough * (1 + np.abs(want))
        bad = np.flatnonzero(~(near | (got == want) | (np.isnan(got) & np.isnan(want))))
    found.compared += 1
    if bad.size:
        k = bad[0]
        found.wrong.append(f"{bad.size} of {want.size} {elem}, first at {k}: {got[k]} instead of {want[k]}")
