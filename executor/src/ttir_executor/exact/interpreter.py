"""Evaluation of TTIR on exact values, all programs of a grid at once."""

from collections.abc import Sequence
from math import prod
from weakref import WeakKeyDictionary

import numpy as np

from ttir_executor.exact import access, frames, operations
from ttir_executor.exact.frames import Evaluation, Frame, Handler, Step
from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.shapes import DTYPES, Array
from ttir_executor.exact.values import Exact
from ttir_executor.ttir.ir import BasicBlock, Function, Op, Region, Type, Value

_decoded: WeakKeyDictionary[Function, dict[BasicBlock, list[Step]]] = WeakKeyDictionary()


def run_exact(
    function: Function,
    grid: Sequence[int],
    args: Sequence[int | float],
    memory: ExactMemory,
    *,
    deadline: float | None = None,
    most_elements: int = 1 << 18,
) -> None:
    """Evaluate a kernel over a grid.

    Args:
        args: one for each parameter; addresses for pointers.
        deadline: by ``time.thread_time()``.
        most_elements: of the copies of one block that programs evaluated together have; programs that may wait for
            each other run one after another.

    Raises:
        Undecided: what exact values do not have, by name and line; what was written until then stays.
    """
    x, y, z = (*map(int, grid), 1, 1)[:3]
    try:
        with np.errstate(all="ignore"):
            _evaluate(function, (x, y, z), args, memory, deadline, most_elements)
    except (LookupError, ValueError, TypeError, AttributeError, AssertionError, OverflowError, MemoryError) as error:
        # text that keeps the shape rules can still name attributes or use types that make no sense
        raise Undecided(f"kernel {function.name}: {error!r}") from error


def _evaluate(
    function: Function,
    grid: tuple[int, int, int],
    args: Sequence[int | float],
    memory: ExactMemory,
    deadline: float | None,
    most_elements: int,
) -> None:
    steps = _decoded.get(function)
    if steps is None:
        steps = _decoded[function] = {}
        _decode(function.body, steps)
    ops = [op for block in steps.values() for op, _, _ in block]
    largest = max((value.type.numel for op in ops for value in op.results), default=1)
    piece = 1 if _may_wait(function, ops) else max(1, most_elements // largest)
    given = [_argument(memory, value.type, number) for value, number in zip(function.args, args, strict=True)]
    count = prod(grid)
    for start in range(0, count, piece):
        programs = np.arange(start, min(count, start + piece))
        frame = Frame(Evaluation(memory, grid, programs, steps, deadline), programs.size)
        frame.env.update(zip(function.args, given, strict=True))
        frames.run_blocks(frame, function.body)


def _argument(memory: ExactMemory, type_: Type, given: int | float) -> Array:
    if type_.is_float:
        return Exact.constant(memory.field, float(given), type_.bits)
    number = int(given) & ((1 << type_.bits) - 1)
    if type_.bits > 1 and number >> (type_.bits - 1):
        number -= 1 << type_.bits
    return np.array([number], DTYPES[type_.elem])


def _may_wait(function: Function, ops: list[Op]) -> bool:
    """Whether a program may wait for another: a loop of open end looks at memory that others change."""
    loops = [op for op in ops if op.name == "scf.while"]
    inside = [op for loop in loops for region in loop.regions for op in _inside(region)]
    return any(op.name.startswith("tt.atomic") or op.attrs.get("isVolatile") == "true" for op in inside)


def _inside(region: Region) -> list[Op]:
    found = []
    for block in region.blocks:
        for op in block.ops:
            found.append(op)
            for inner in op.regions:
                found += _inside(inner)
    return found


# ---- decoding


def _decode(region: Region, steps: dict[BasicBlock, list[Step]]) -> None:
    """What evaluates each operation, and which values of its block are dead after it."""
    uses_of = {block: {value for op in block.ops for value in _used(op)} for block in region.blocks}
    for block in region.blocks:
        own = set(block.args) | {value for op in block.ops for value in op.results}
        found: list[Step] = []
        ends = bool(block.ops) and (bool(block.ops[-1].successors) or block.ops[-1].name in _TERMINATORS)
        needed = _used(block.ops[-1]) if ends else set()
        needed |= {value for other, uses in uses_of.items() if other is not block for value in uses}
        for op in reversed(block.ops[:-1] if ends else block.ops):
            uses = _used(op) & own
            dead = tuple((uses | set(op.results)) - needed)
            needed |= uses
            found.append((op, _handler(op), dead))
        steps[block] = found[::-1]
        for op in block.ops:
            for inner in op.regions:
                _decode(inner, steps)


def _used(op: Op) -> set[Value]:
    """The values that an operation reads."""
    found = set(op.operands) | set(access.behind(op)) | {value for _, passed in op.successors for value in passed}
    for region in op.regions:
        for inner in _inside(region):
            found |= set(inner.operands) | set(access.behind(inner))
            found |= {value for _, passed in inner.successors for value in passed}
    return found


_TERMINATORS = frozenset(
    {
        "scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return",
    }
)  # fmt: skip


def _handler(op: Op) -> Handler:
    return _HANDLERS.get(op.name, _undecided)


def _undecided(frame: Frame, op: Op) -> None:
    raise Undecided(f"{op.name} ({op.loc})" if op.loc else op.name)


def _program_id(frame: Frame, op: Op) -> Array:
    axis = "xyz".index(op.attrs.get("word0", "x"))
    programs, (x, y, z) = frame.programs(), frame.run.grid
    if (x, y, z)[axis] == 1:
        return np.zeros(1, np.int32)
    return (programs % x, programs // x % y, programs // (x * y))[axis].astype(np.int32)


def _programs(frame: Frame, op: Op) -> Array:
    return np.array([frame.run.grid["xyz".index(op.attrs.get("word0", "x"))]], np.int32)


def _nothing(frame: Frame, op: Op) -> None:
    return None


_HANDLERS: dict[str, Handler] = {
    **operations.HANDLERS, **access.HANDLERS,
    "scf.for": frames.for_loop, "scf.if": frames.if_else, "scf.while": frames.while_loop,
    "tt.get_program_id": _program_id, "tt.get_num_programs": _programs,
    **dict.fromkeys(
        ("tt.print", "tt.assert", "ttg.barrier", "gpu.barrier", "tt.debug_barrier", "llvm.intr.assume"), _nothing
    ),
}  # fmt: skip
