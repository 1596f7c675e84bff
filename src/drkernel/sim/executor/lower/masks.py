"""Whether a mask holds in all lanes of a strip, by its two ends: comparisons of what is linear need no more."""

from __future__ import annotations

from drkernel.sim.executor.lower.nest import FORWARDING, Index, Nest
from drkernel.sim.executor.lower.strip import Lin, Strip, Uni, scalar_int
from drkernel.sim.executor.ttir.ir import Op, Value

_ORDERED = {"slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"}


class _Open(Exception):
    """The ends do not tell."""


def holds_throughout(nest: Nest, mask: Value) -> Uni | None:
    """Whether the mask is true in every lane where the nest stands; None where that takes a look at each lane."""
    try:
        found = _Ends(nest).eval(mask, nest.index)
    except _Open:
        return None
    return found if isinstance(found, Uni) else None


class _Ends:
    """A nest in which a truth value at an index stands for all lanes."""

    def __init__(self, nest: Nest):
        self.nest, self.low, self.width = nest, nest.low, nest.width

    def eval(self, value: Value, index: Index) -> Strip:
        """Of truth values, whether all are true; of others, the lanes."""
        op, binding = value.op, self.low.env.get(value)
        if value.type.elem != "i1" or not value.type.is_block or isinstance(binding, Uni):
            return self.nest.eval(value, index)
        if binding is not None or op is None:
            raise _Open
        if op.name == "arith.constant":
            return self.nest.eval(value, index)
        if op.name == "arith.andi":
            one, other = (self.eval(operand, index) for operand in op.operands)
            if not isinstance(one, Uni) or not isinstance(other, Uni):
                raise _Open
            return Uni(scalar_int(self.low.e, "and", "i1", one.val, other.val), "i1")
        if op.name == "arith.cmpi":
            return self._compared(op, value, index)
        if op.name in FORWARDING:
            return FORWARDING[op.name](self, op, value, index)  # type: ignore[arg-type]
        raise _Open

    def _compared(self, op: Op, value: Value, index: Index) -> Uni:
        e, how = self.low.e, op.attrs["word0"]
        sides = [self.nest.eval(operand, index) for operand in op.operands]
        if all(isinstance(side, Uni) for side in sides):
            found = self.nest.eval(value, index)
            assert isinstance(found, Uni)
            return found
        ty, first, last, fine = sides[0].ty, list[str](), list[str](), list[str]()
        if how not in _ORDERED:
            raise _Open
        for side in sides:
            if isinstance(side, Uni):
                first.append(side.val)
                last.append(side.val)
            elif isinstance(side, Lin) and isinstance(side.step, int):
                end = scalar_int(e, "add", ty, side.base, str(side.step * (self.width - 1)))
                onward = f"{how[0]}{'ge' if side.step > 0 else 'le'}"  # what wraps around is not between its ends
                fine.append(e.bin(f"icmp {onward}", ty, end, side.base))
                first.append(side.base)
                last.append(end)
            else:
                raise _Open
        held = e.bin("and", "i1", e.bin(f"icmp {how}", ty, *first), e.bin(f"icmp {how}", ty, *last))
        for condition in fine:
            held = e.bin("and", "i1", held, condition)
        return Uni(held, "i1")
