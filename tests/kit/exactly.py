"""Kernels on exact values beside the native executor: what each launch leaves in memory, element by element."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from harness import executing
from ttir_executor.allocations import Allocation, MemoryMap
from ttir_executor.compiled import CompiledKernel
from ttir_executor.exact.field import Field
from ttir_executor.exact.interpreter import run_exact
from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import FLOAT_BITS, elem_bytes, floats_of

ELEMS = {torch.float16: "f16", torch.float32: "f32"}
ROUGH = {"f16": 2e-3, "bf16": 1.6e-2, **dict.fromkeys(("f8E4M3FN", "f8E4M3FNUZ"), 0.07), "f8E5M2": 0.14}
"""largest relative errors, for casts that do not round"""
INTEGERS: dict[int, Any] = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class Launches:
    """What became of launches."""

    def __init__(self) -> None:
        self.field = Field(11)
        self.undecided: list[str] = []
        self.wrong: list[str] = []
        """elements whose float is not the native executor's"""
        self.compared = 0


def evaluate(field: Field, launch: Callable[[], None], inputs: dict[str, torch.Tensor], output: torch.Tensor) -> Exact:
    """What launches on CPU tensors leave in ``output``, of independent variables in ``inputs``.

    Other floats begin as the whole numbers that they are.
    """
    memory = ExactMemory(field)
    names = {tensor.data_ptr(): name for name, tensor in inputs.items()}
    known: set[int] = set()

    def run(kernel: CompiledKernel, grid: Any, args: Sequence[Any], places: MemoryMap, **options: Any) -> Any:
        elems = _elements(kernel, args, places)
        for allocation in places.all():
            if allocation.base not in known:
                known.add(allocation.base)
                memory.add(allocation.base, allocation.nbytes)
                _fill(memory, allocation, elems[allocation.base], names.get(allocation.base, ""))
        run_exact(kernel.function, grid, args, memory)
        return None

    with pytest.MonkeyPatch.context() as patch, executing() as log:
        patch.setattr(CompiledKernel, "run", run)
        log.results = []
        launch()
    elem = ELEMS[output.dtype]
    size = elem_bytes(elem)
    found = memory.read(output.data_ptr() + size * np.arange(output.numel()), elem)
    assert isinstance(found, Exact)
    return found


def _elements(kernel: CompiledKernel, args: Sequence[Any], memory: MemoryMap) -> dict[int, str]:
    """Address of each allocation that arguments point to -> the type of its elements."""
    return {
        allocation.base: value.type.pointee or "i8"
        for value, given in zip(kernel.function.args, args, strict=True)
        if value.type.elem == "ptr" and (allocation := memory.find(int(given))) is not None
    }


@contextmanager
def evaluating(reachable: list[torch.Tensor]) -> Iterator[Launches]:
    """Let Triton launches on CPU tensors run natively and on exact values, which begin with the tensors' numbers.

    Args:
        reachable: tensors that kernels reach by addresses in memory.
    """
    found = Launches()
    native = CompiledKernel.run

    def run(kernel: CompiledKernel, grid: Any, args: Sequence[Any], memory: MemoryMap, **options: Any) -> Any:
        elems = _elements(kernel, args, memory)
        elems |= {tensor.untyped_storage().data_ptr(): ELEMS[tensor.dtype] for tensor in reachable}
        exact = ExactMemory(found.field)
        for k, allocation in enumerate(memory.all()):
            exact.add(allocation.base, allocation.nbytes)
            _fill(exact, allocation, elems[allocation.base], str(k))
        try:
            run_exact(kernel.function, grid, args, exact)
        except Undecided as error:
            found.undecided.append(str(error))
            return native(kernel, grid, args, memory, **options)
        result = native(kernel, grid, args, memory, **options)
        for allocation in memory.all():
            if allocation.base in result.written:
                _compare(found, exact, allocation, elems[allocation.base])
        return result

    with pytest.MonkeyPatch.context() as patch, executing() as log:
        patch.setattr(CompiledKernel, "run", run)
        log.reachable = reachable
        yield found


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
    value: Any = numbers
    if elem in FLOAT_BITS:
        value = Exact.drawn(memory.field, name, numbers) if name else Exact.whole(memory.field, numbers)
    memory.write(_places(allocation, elem), elem, value)


def _compare(found: Launches, memory: ExactMemory, allocation: Allocation, elem: str) -> None:
    value, want = memory.read(_places(allocation, elem), elem), _numbers(allocation, elem)
    if not isinstance(value, Exact):
        bad = np.flatnonzero(value != want)
        got: np.ndarray = value
    else:
        got = value.f
        rough = ROUGH.get(elem, 1e-4)
        with np.errstate(invalid="ignore"):
            near = np.abs(got - want) <= rough * (1 + np.abs(want))
        bad = np.flatnonzero(~(near | (got == want) | (np.isnan(got) & np.isnan(want))))
    found.compared += 1
    if bad.size:
        k = bad[0]
        found.wrong.append(f"{bad.size} of {want.size} {elem}, first at {k}: {got[k]} instead of {want[k]}")
