"""Along which axis of a block neighbouring elements lie side by side in memory, from the text of the kernel."""

from __future__ import annotations

from ttir_executor.lower.elementwise import ELEMENTWISE
from ttir_executor.lower.nest import Binding, Shifted, constant_text
from ttir_executor.lower.runtime import SECTOR_BYTES
from ttir_executor.lower.strip import int_literal
from ttir_executor.ttir.ir import Op, TTIRError, Value, elem_bytes
from ttir_executor.ttir.verify import trans_order

_FORWARD = frozenset({"ttg.convert_layout", "arith.extsi", "arith.extui", "arith.trunci", "tt.bitcast"})
"""operations that leave a small step as it is"""
_SUMS = frozenset({"arith.addi", "arith.subi"})


def run_axis(pointer: Value, env: dict[Value, Binding]) -> int:
    """The axis along which a block of pointers steps by one element: the last one, unless another surely does.

    A guess that costs speed where it is wrong: who follows it looks at the addresses. Less than a sector is not worth
    it.
    """
    shape = pointer.type.shape or ()
    size = elem_bytes(pointer.type.pointee or "i8")
    if len(shape) < 2 or pointer.type.numel * size < SECTOR_BYTES:
        return len(shape) - 1
    steps = _Steps(env)
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1 and steps.of(pointer, axis) == size:
            return axis
    return len(shape) - 1


class _Steps:
    """By how much values change from one element to the next along an axis; None where the text does not say."""

    def __init__(self, env: dict[Value, Binding]):
        self.env = env
        self.memo: dict[tuple[int, int], int | None] = {}

    def of(self, value: Value, axis: int) -> int | None:
        if not value.type.is_block:
            return 0
        key = (id(value), axis)
        if key not in self.memo:
            self.memo[key] = None  # where it depends on itself
            self.memo[key] = self._of(value, axis)
        return self.memo[key]

    def _of(self, value: Value, axis: int) -> int | None:
        binding, op = self.env.get(value), value.op
        if isinstance(binding, Shifted):
            return self.of(binding.initial, axis)
        if op is None:
            return None
        if op.name == "tt.make_range":
            return 1
        if op.name in ("tt.splat", "arith.constant"):
            return 0 if not op.attrs.get("value", "").startswith("[") else None
        if op.name == "tt.expand_dims":
            new = int(op.attrs["axis"])
            return 0 if axis == new else self.of(op.operands[0], axis - (axis > new))
        if op.name == "tt.broadcast":
            return 0 if (op.operands[0].type.shape or ())[axis] == 1 else self.of(op.operands[0], axis)
        if op.name == "tt.trans":
            return self.of(op.operands[0], trans_order(op)[axis])
        return self._arithmetic(op, axis)

    def _arithmetic(self, op: Op, axis: int) -> int | None:
        steps = [self.of(operand, axis) for operand in op.operands]
        if op.name in _FORWARD:
            return steps[0]
        if op.name in ELEMENTWISE and not any(step != 0 for step in steps):
            return 0
        if op.name == "tt.addptr":
            base, offset = steps
            size = elem_bytes(op.operands[0].type.pointee or "i8")
            return None if base is None or offset is None else base + size * offset
        if op.name in _SUMS:
            one, other = steps
            return None if one is None or other is None else one + (other if op.name == "arith.addi" else -other)
        if op.name == "arith.muli":
            for one, other in ((0, 1), (1, 0)):
                factor, step = _number(op.operands[one]), steps[other]
                if factor is not None and step is not None:
                    return factor * step
        return None


def _number(value: Value) -> int | None:
    """The whole number that all elements of a value are; None where the text does not say."""
    while value.op is not None and value.op.name in ("tt.splat", "tt.broadcast", "tt.expand_dims"):
        value = value.op.operands[0]
    if value.op is None or value.op.name != "arith.constant" or value.op.attrs["value"].startswith("["):
        return None
    try:
        return int_literal(constant_text(value.op.attrs["value"], value.type))
    except (TTIRError, ValueError):
        return None
