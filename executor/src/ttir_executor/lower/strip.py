"""Values of one strip: uniform, linear (base + step·lane) or a full vector, with affine integer arithmetic.

Integers that are linear in the lane stay symbolic, so that a load can see that its addresses are contiguous. Arithmetic
of one width is exact, wrapping included. A linear value that is widened stays linear only where its step is a small
number: then it is taken not to wrap around within a strip (Triton's own axis analysis takes no index to wrap at all).
"""

from dataclasses import dataclass

from ttir_executor.lower.emit import Emitter, is_literal, vec
from ttir_executor.lower.numbers import Numbers
from ttir_executor.ttir.ir import Type


@dataclass(frozen=True)
class Uni:
    """The same scalar in every lane."""

    val: str
    ty: str


@dataclass(frozen=True)
class Lin:
    """``base + step·lane``; integers and addresses only. ``step`` is a number or a register."""

    base: str
    step: int | str
    ty: str


@dataclass(frozen=True)
class Vec:
    """One LLVM vector."""

    val: str
    ty: str


Strip = Uni | Lin | Vec

_SMALL_STEP = 1 << 12


def llvm_type(type_: Type) -> str:
    """Register type of an element: narrow floats are held as ``float`` that is exactly representable."""
    if type_.elem == "f64":
        return "double"
    if type_.is_float:
        return "float"
    return "i64" if type_.elem in ("ptr", "index") else type_.elem


def int_literal(value: str) -> int | None:
    """The number an integer literal stands for; None for a register."""
    if value in ("true", "false"):
        return int(value == "true")
    return int(value) if is_literal(value) and value.lstrip("-").isdigit() else None


def scalar_int(e: Emitter, op: str, ty: str, a: str, b: str) -> str:
    """Scalar add/sub/mul/shl/and/or/lshr with constants folded."""
    x, y = int_literal(a), int_literal(b)
    if x is not None and y is not None:
        folded = _fold(op, x, y)
        if folded is not None:
            return str(wrap(folded, ty))
    if op in ("add", "sub", "shl", "lshr", "or") and y == 0:
        return a
    if op == "add" and x == 0:
        return b
    if op == "mul" and y == 1:
        return a
    if op == "mul" and x == 1:
        return b
    if op in ("mul", "and") and 0 in (x, y):
        return "0"
    return e.op(f"{op} {ty} {a}, {b}")


def _fold(op: str, x: int, y: int) -> int | None:
    if op == "add":
        return x + y
    if op == "sub":
        return x - y
    if op == "mul":
        return x * y
    if op == "and":
        return x & y
    return None


def wrap(value: int, ty: str) -> int:
    """Two's complement value of an integer type."""
    bits = int(ty[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if bits > 1 and value >> (bits - 1) else value


def to_vec(e: Emitter, value: Strip, width: int) -> str:
    """The value as one LLVM vector (a scalar when ``width`` is 1)."""
    if isinstance(value, Vec):
        return value.val
    if isinstance(value, Uni):
        return e.splat(value.val, width, value.ty)
    if width == 1:
        return value.base
    vt = vec(width, value.ty)
    base = int_literal(value.base)
    if isinstance(value.step, int) and base is not None:
        lanes = ", ".join(f"{value.ty} {wrap(base + lane * value.step, value.ty)}" for lane in range(width))
        return f"<{lanes}>"
    if isinstance(value.step, int):
        offsets = e.iota(width, value.ty, value.step)
    else:
        offsets = e.bin("mul", vt, e.splat(value.step, width, value.ty), e.iota(width, value.ty))
    if base == 0:
        return offsets
    return e.bin("add", vt, e.splat(value.base, width, value.ty), offsets)


def numbers_of(e: Emitter, value: Strip, width: int) -> Numbers:
    """The value as numbers to calculate with."""
    return Numbers(e, to_vec(e, value, width), value.ty, width)


def strip_of(x: Numbers) -> Strip:
    """The value of a strip, as calculated."""
    return Uni(x.text, x.ty) if x.width == 1 else Vec(x.text, x.ty)


def add(e: Emitter, a: Strip, b: Strip, width: int, op: str = "add") -> Strip:
    """``a + b`` (or ``a - b``) of one integer type, linear where both are."""
    if isinstance(a, Uni) and isinstance(b, Uni):
        return Uni(scalar_int(e, op, a.ty, a.val, b.val), a.ty)
    if not isinstance(a, Vec) and not isinstance(b, Vec):
        base_a, step_a = (a.base, a.step) if isinstance(a, Lin) else (a.val, 0)
        base_b, step_b = (b.base, b.step) if isinstance(b, Lin) else (b.val, 0)
        step = _combine_steps(e, op, a.ty, step_a, step_b)
        base = scalar_int(e, op, a.ty, base_a, base_b)
        return Uni(base, a.ty) if step == 0 else Lin(base, step, a.ty)
    if isinstance(b, Uni) and int_literal(b.val) == 0:
        return a
    vt = vec(width, a.ty)
    return Vec(e.op(f"{op} {vt} {to_vec(e, a, width)}, {to_vec(e, b, width)}"), a.ty)


def _combine_steps(e: Emitter, op: str, ty: str, a: int | str, b: int | str) -> int | str:
    if isinstance(a, int) and isinstance(b, int):
        return a + b if op == "add" else a - b
    merged = scalar_int(e, op, ty, str(a), str(b))
    literal = int_literal(merged)
    return literal if literal is not None else merged


def mul(e: Emitter, a: Strip, b: Strip, width: int) -> Strip:
    """``a · b`` of one integer type, linear when one side is uniform."""
    if isinstance(a, Uni) and isinstance(b, Uni):
        return Uni(scalar_int(e, "mul", a.ty, a.val, b.val), a.ty)
    if isinstance(a, Uni) and isinstance(b, Lin):
        a, b = b, a
    if isinstance(a, Lin) and isinstance(b, Uni):
        factor = int_literal(b.val)
        step: int | str
        if isinstance(a.step, int) and factor is not None:
            step = a.step * factor
        else:
            step = scalar_int(e, "mul", a.ty, str(a.step), b.val)
        base = scalar_int(e, "mul", a.ty, a.base, b.val)
        return Uni(base, a.ty) if step == 0 else Lin(base, step, a.ty)
    vt = vec(width, a.ty)
    return Vec(e.bin("mul", vt, to_vec(e, a, width), to_vec(e, b, width)), a.ty)


def extend(e: Emitter, a: Strip, ty: str, width: int, *, signed: bool = True) -> Strip:
    """Widen (or narrow) an integer; a linear value stays linear when it is widened as signed."""
    if a.ty == ty:
        return a
    narrower = int(ty[1:]) < int(a.ty[1:])
    cast = "trunc" if narrower else ("sext" if signed else "zext")

    def scalar(value: str) -> str:
        literal = int_literal(value)
        if literal is not None:
            if cast == "zext":
                literal &= (1 << int(a.ty[1:])) - 1
            elif a.ty == "i1" and cast == "sext":
                literal = -literal
            return str(wrap(literal, ty))
        return e.op(f"{cast} {a.ty} {value} to {ty}")

    if isinstance(a, Uni):
        return Uni(scalar(a.val), ty)
    if isinstance(a, Lin) and cast == "sext" and isinstance(a.step, int) and abs(a.step) <= _SMALL_STEP:
        return Lin(scalar(a.base), a.step, ty)
    return Vec(e.op(f"{cast} {vec(width, a.ty)} {to_vec(e, a, width)} to {vec(width, ty)}"), ty)


def shift_and_mask(e: Emitter, a: Strip, shift: int, mask: int | None, width: int) -> Strip:
    """``(a >> shift) & mask`` of a non-negative i32 index."""
    if isinstance(a, Uni):
        value = scalar_int(e, "lshr", "i32", a.val, str(shift)) if int_literal(a.val) is None else None
        if value is None:
            number = (int_literal(a.val) or 0) >> shift
            return Uni(str(number if mask is None else number & mask), "i32")
        return Uni(value if mask is None else scalar_int(e, "and", "i32", value, str(mask)), "i32")
    if shift == 0 and mask is None:
        return a
    found = numbers_of(e, a, width)
    found = found >> shift if shift else found
    return Vec((found if mask is None else found & mask).text, "i32")
