"""How many registers a thread of a Triton kernel needs, read off its TTIR: what is live at once, over the threads.

An estimate for kernels that are not compiled for the target. Index arithmetic is left out (compilers recompute it), and
so are the operands of ``tt.dot`` that come from memory (they are kept in shared memory). Beyond
:data:`MAX_REGISTERS` values are spilled: written to local memory and read back.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkernel.sim.executor.lower.lifetime import Lifetimes
from drkernel.sim.executor.lower.plan import is_index_like, walk
from drkernel.sim.executor.ttir.ir import Function, Value, elem_bytes

MAX_REGISTERS = 255
"""a thread's limit on every GPU here; what is needed beyond is spilled"""
BASE_REGISTERS = 20
"""addresses, counters and temporaries; ptxas on element-wise and row kernels, sm_90"""


@dataclass(frozen=True)
class Pressure:
    """Registers of one thread, and the bytes that do not fit into them."""

    registers: int
    spilled_bytes: int


def register_pressure(function: Function, threads: int) -> Pressure:
    """The estimate for programs of ``threads`` threads."""
    words = BASE_REGISTERS + live_bytes(function) / 4.0 / threads
    return Pressure(int(min(words, MAX_REGISTERS)), int(4 * max(0.0, words - MAX_REGISTERS)))


def live_bytes(function: Function) -> float:
    """The most bytes of block values that a program holds in registers at one place."""
    ops = walk(function.body)
    inline = {id(v) for op in ops for v in op.results if v.type.is_block and is_index_like(v)}
    lifetimes = Lifetimes(function, inline)
    changes: list[tuple[int, int, float]] = []

    def live(value: Value, begin: int, end: int) -> None:
        if end >= begin:
            nbytes = float(value.type.numel * elem_bytes(value.type.elem))
            # at one place what ends goes before what begins: element by element one takes the other's registers
            changes.extend([(begin, 1, nbytes), (end, 0, -nbytes)])

    for op in ops:
        for value in op.results:
            if value.type.is_block and id(value) not in inline and not _elsewhere(value):
                live(value, lifetimes.end(op), lifetimes.last(value))
        if op.name in ("scf.for", "scf.while"):
            for argument in op.regions[0].blocks[0].args:
                if argument.type.is_block and argument.type.elem != "ptr":
                    live(argument, lifetimes.start(op), lifetimes.end(op))
    total = most = 0.0
    for _, _, change in sorted(changes):
        total += change
        most = max(most, total)
    return most


def _elsewhere(value: Value) -> bool:
    """Whether a value takes no registers of its own: a dot's operand in shared memory, or what a loop carries on."""
    users = {user.name for user in value.uses}
    from_memory = (
        value.op is not None and value.op.name == "tt.load" and users <= {"tt.dot", "tt.trans", "tt.dot_scaled"}
    )
    return from_memory or "scf.yield" in users
