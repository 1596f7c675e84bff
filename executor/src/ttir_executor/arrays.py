"""Kernels on numpy arrays: ``run(text, grid, arguments)``."""

from collections.abc import Sequence

import numpy as np

from ttir_executor.allocations import MemoryMap
from ttir_executor.compiled import DEFAULT_TIME_LIMIT, compile_ttir
from ttir_executor.results import Checks, LaunchResult, Param
from ttir_executor.ttir.ir import elem_bytes


def run(
    text: str,
    grid: Sequence[int],
    arguments: Sequence[np.ndarray | int | float],
    *,
    checks: Checks = Checks(race=True),
    time_limit: float = DEFAULT_TIME_LIMIT,
) -> LaunchResult:
    """Execute a kernel over a grid of one to three axes.

    Args:
        text: the kernel's TTIR, as in ``compiled.asm["ttir"]`` of Triton.
        grid: programs along each axis.
        arguments: one for each parameter of the text: arrays for pointers, which the kernel changes in place, numbers
            for the rest. What numpy has no type for (bf16, fp8) are integers of the same width.
        checks: sanitizers besides bounds and alignment, which are always checked.
        time_limit: seconds.

    Raises:
        ValueError: an argument does not fit its parameter; malformed text (``TTIRError``).
        NotImplementedError: the kernel does what is not supported (``UnsupportedTTIR``).
        StepLimit: a program loops without end, or the limit of time was passed.
    """
    if not 1 <= len(grid) <= 3 or min(grid) < 1:
        raise ValueError(f"a grid has one to three axes of at least one program, not {tuple(grid)}")
    kernel = compile_ttir(text)
    if len(arguments) != len(kernel.params):
        raise ValueError(f"kernel {kernel.name} takes {len(kernel.params)} arguments, not {len(arguments)}")
    memory = MemoryMap()
    given = [_word(param, value, memory) for param, value in zip(kernel.params, arguments, strict=True)]
    x, y, z = (*map(int, grid), 1, 1)[:3]
    return kernel.run((x, y, z), given, memory, checks=checks, time_limit=time_limit)


def _word(param: Param, value: np.ndarray | int | float, memory: MemoryMap) -> int | float:
    """What a kernel receives: an array's address, which becomes part of ``memory``, or a number."""
    if not param.is_pointer:
        if isinstance(value, np.ndarray):
            raise ValueError(f"{param.name} is a number, not an array")
        return value
    if not isinstance(value, np.ndarray):
        raise ValueError(f"{param.name} is a pointer: it takes an array, not {value!r}")
    if not (value.flags.c_contiguous and value.flags.writeable):
        raise ValueError(f"{param.name} takes a contiguous array that may be written to")
    size = elem_bytes(param.type.pointee or "i8")
    if value.itemsize != size:
        raise ValueError(f"{param.name} points to {param.type.pointee}, {size} bytes each, not to {value.dtype}")
    address = value.ctypes.data
    found = memory.find(address)
    if value.nbytes and (found is None or (found.base, found.nbytes) != (address, value.nbytes)):  # not given twice
        memory.add(address, value.nbytes, label=param.name, initialized=True)
    return address
