"""Whether a mask holds in all lanes of a strip, or in none: by its two ends, where it compares what is linear."""

from __future__ import annotations

from ttir_executor.lower.nest import FORWARDING, Index, Nest
from ttir_executor.lower.strip import Lin, Strip, Uni, int_literal, scalar_int
from ttir_executor.ttir.ir import Op, Value

_ORDERED = {"slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"}


class _Open(Exception):
    """The ends do not tell."""


def holds_throughout(nest: Nest, mask: Value) -> Uni | None:
    """Surely true in every lane where the nest stands; None where that takes a look at each lane."""
    return _told(nest, mask, truth=True)


def holds_nowhere(nest: Nest, mask: Value) -> Uni | None:
    """Surely false in every lane; None where that takes a look at each lane."""
    return _told(nest, mask, truth=False)


def _told(nest: Nest, mask: Value, *, truth: bool) -> Uni | None:
    try:
        found = _Ends(nest, truth=truth).eval(mask, nest.index)
    except _Open:
        return None
    return found if isinstance(found, Uni) else None


class _Ends:
    """A nest in which, for truth values, whether all lanes have the same given truth stands for the lanes."""

    def __init__(self, nest: Nest, *, truth: bool):
        self.nest, self.low, self.width, self.truth = nest, nest.low, nest.width, truth

    def eval(self, value: Value, index: Index) -> Strip:
        """Of truth values, whether all are as given; of others, the lanes."""
        op, binding = value.op, self.low.env.get(value)
        if value.type.elem != "i1":
            return self.nest.eval(value, index)
        if not value.type.is_block or isinstance(binding, Uni) or (op is not None and op.name == "arith.constant"):
            return self._same(self.nest.eval(value, index))
        if binding is not None or op is None:
            raise _Open
        if op.name in ("arith.andi", "arith.ori"):
            one, other = (self._uniform(operand, index) for operand in op.operands)
            both = (op.name == "arith.andi") is self.truth  # else one of them is enough
            return Uni(scalar_int(self.low.e, "and" if both else "or", "i1", one.val, other.val), "i1")
        if op.name == "arith.cmpi":
            return self._compared(op, value, index)
        if op.name in FORWARDING:
            return FORWARDING[op.name](self, op, value, index)  # type: ignore[arg-type]
        raise _Open

    def _uniform(self, value: Value, index: Index) -> Uni:
        found = self.eval(value, index)
        if not isinstance(found, Uni):
            raise _Open
        return found

    def _same(self, found: Strip) -> Uni:
        if not isinstance(found, Uni):
            raise _Open
        if self.truth:
            return found
        literal = int_literal(found.val)
        if literal is not None:
            return Uni("false" if literal else "true", "i1")
        return Uni(self.low.e.bin("xor", "i1", found.val, "true"), "i1")

    def _compared(self, op: Op, value: Value, index: Index) -> Uni:
        e, how = self.low.e, op.attrs["word0"]
        sides = [self.nest.eval(operand, index) for operand in op.operands]
        if all(isinstance(side, Uni) for side in sides):
            return self._same(self.nest.eval(value, index))
        if how not in _ORDERED:
            raise _Open
        ty, first, last, conditions = sides[0].ty, list[str](), list[str](), list[str]()
        for side in sides:
            if isinstance(side, Uni):
                first.append(side.val)
                last.append(side.val)
            elif isinstance(side, Lin) and isinstance(side.step, int):
                end = scalar_int(e, "add", ty, side.base, str(side.step * (self.width - 1)))
                onward = f"{how[0]}{'ge' if side.step > 0 else 'le'}"  # what wraps around is not between its ends
                conditions.append(e.bin(f"icmp {onward}", ty, end, side.base))
                first.append(side.base)
                last.append(end)
            else:
                raise _Open
        for ends in (first, last):
            held = e.bin(f"icmp {how}", ty, *ends)
            conditions.append(held if self.truth else e.bin("xor", "i1", held, "true"))
        merged = conditions[0]
        for condition in conditions[1:]:
            merged = e.bin("and", "i1", merged, condition)
        return Uni(merged, "i1")
