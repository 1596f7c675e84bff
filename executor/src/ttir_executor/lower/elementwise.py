"""Elementwise operations of TTIR on strips."""

from ttir_executor.lower.emit import Emitter, splat_literal, vec
from ttir_executor.lower.libdevice import extern
from ttir_executor.lower.mathlib import math_call
from ttir_executor.lower.rounding import constant, from_bits, round_to, suffix, to_bits
from ttir_executor.lower.strip import (
    Lin,
    Strip,
    Uni,
    Vec,
    add,
    extend,
    int_literal,
    llvm_type,
    mul,
    to_vec,
)
from ttir_executor.ttir.ir import FLOAT_BITS, Op, Type, UnsupportedTTIR, elem_bytes

_FLOAT_BINARY = {"arith.addf": "fadd", "arith.subf": "fsub", "arith.mulf": "fmul", "arith.divf": "fdiv",
                 "tt.precise_divf": "fdiv", "arith.remf": "frem"}  # fmt: skip
_FLOAT_EXTREMA = {"arith.maximumf": "maximum", "arith.minimumf": "minimum", "arith.maxnumf": "maxnum",
                  "arith.minnumf": "minnum"}  # fmt: skip
_INT_BINARY = {"arith.andi": "and", "arith.ori": "or", "arith.xori": "xor"}
_INT_EXTREMA = {"arith.maxsi": "smax", "arith.minsi": "smin", "arith.maxui": "umax", "arith.minui": "umin"}
_SHIFTS = {"arith.shli": "shl", "arith.shrsi": "ashr", "arith.shrui": "lshr"}
_QUOTIENTS = {"arith.divsi": "sdiv", "arith.divui": "udiv", "arith.remsi": "srem", "arith.remui": "urem"}
DIVISIONS = frozenset((*_QUOTIENTS, "arith.ceildivsi"))
"""of integers"""
_MATH = {"math.exp": "exp", "math.exp2": "exp2", "math.log": "log", "math.log2": "log2", "math.sin": "sin",
         "math.cos": "cos", "math.tan": "tan", "math.tanh": "tanh", "math.erf": "erf", "math.sqrt": "sqrt",
         "math.rsqrt": "rsqrt", "math.floor": "floor", "math.ceil": "ceil", "math.absf": "fabs",
         "tt.precise_sqrt": "sqrt", "math.trunc": "trunc", "math.round": "round", "math.roundeven": "roundeven",
         "math.powf": "pow", "math.atan2": "atan2", "math.log1p": "log1p", "math.expm1": "expm1",
         "math.cbrt": "cbrt", "math.atan": "atan", "math.log10": "log10"}  # fmt: skip
_CASTS = {"arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.extsi",
          "arith.extui", "arith.trunci", "arith.index_cast", "arith.bitcast", "tt.bitcast", "tt.fp_to_fp",
          "tt.int_to_ptr", "tt.ptr_to_int"}  # fmt: skip
_OTHER = {"arith.addi", "arith.subi", "arith.muli", "tt.addptr", "arith.select", "arith.cmpi", "arith.cmpf",
          "arith.negf", "math.fma", "tt.mulhiui", "tt.clampf", "math.absi", "tt.extern_elementwise",
          "arith.ceildivsi", "math.ctlz", "math.ctpop", "math.cttz"}  # fmt: skip
ELEMENTWISE = frozenset(
    {*_FLOAT_BINARY, *_FLOAT_EXTREMA, *_INT_BINARY, *_INT_EXTREMA, *_SHIFTS, *_QUOTIENTS, *_MATH, *_CASTS, *_OTHER}
)
"""operations that act on each element alone"""

SPECIAL_FUNCTION = frozenset(name for name in _MATH if name not in ("math.absf", "math.floor", "math.ceil")) | {
    "tt.extern_elementwise", "arith.divf", "tt.precise_divf",
}  # fmt: skip
"""operations that a GPU runs on its special function units"""


def apply(e: Emitter, op: Op, args: list[Strip], width: int) -> Strip:
    """One elementwise operation on strips of ``width`` lanes; uniform when all its inputs are."""
    result = op.results[0].type
    types = [operand.type for operand in op.operands]
    affine = _affine(e, op.name, args, types, result, width)
    if affine is not None:
        return affine
    if op.name == "arith.select" and isinstance(args[0], Uni) and not all(isinstance(a, Uni) for a in args):
        vt = vec(width, llvm_type(result))
        return Vec(
            e.op(f"select i1 {args[0].val}, {vt} {to_vec(e, args[1], width)}, {vt} {to_vec(e, args[2], width)}"),
            llvm_type(result),
        )
    if all(isinstance(a, Uni) for a in args):
        return Uni(compute(e, op, [a.val for a in args if isinstance(a, Uni)], types, result, 1), llvm_type(result))
    return Vec(compute(e, op, [to_vec(e, a, width) for a in args], types, result, width), llvm_type(result))


def _affine(e: Emitter, name: str, args: list[Strip], types: list[Type], result: Type, width: int) -> Strip | None:
    """Integer arithmetic that may stay linear in the lane."""
    if name in ("arith.addi", "arith.subi") and types[0].elem != "i1":
        return add(e, args[0], args[1], width, "add" if name == "arith.addi" else "sub")
    if name == "arith.muli" and types[0].elem != "i1":
        return mul(e, args[0], args[1], width)
    if name == "tt.addptr":
        assert types[0].pointee is not None
        offset = extend(e, args[1], "i64", width)
        return add(e, args[0], mul(e, offset, Uni(str(elem_bytes(types[0].pointee)), "i64"), width), width)
    if name in ("arith.extsi", "arith.trunci", "arith.extui", "arith.index_cast"):
        target = llvm_type(result)
        if name == "arith.trunci" and target == "i1":
            return None
        return extend(e, args[0], target, width, signed=name != "arith.extui")
    if name in ("tt.bitcast", "arith.bitcast") and (types[0].elem == result.elem):
        return args[0]
    if name in ("tt.int_to_ptr", "tt.ptr_to_int") and types[0].bits == result.bits:
        return args[0]
    if name == "arith.shli" and isinstance(args[0], Lin) and isinstance(args[1], Uni) and args[1].val.isdigit():
        return mul(e, args[0], Uni(str(1 << int(args[1].val)), args[0].ty), width)
    return None


def compute(e: Emitter, op: Op, a: list[str], types: list[Type], result: Type, width: int) -> str:
    """The operation on LLVM operands of one shape."""
    name = op.name
    ty = llvm_type(types[0])
    vt = vec(width, ty)
    if name in _FLOAT_BINARY:
        return round_to(e, e.op(f"{_FLOAT_BINARY[name]} {vt} {a[0]}, {a[1]}"), result.elem, width)
    if name in _FLOAT_EXTREMA:
        return e.call(f"llvm.{_FLOAT_EXTREMA[name]}.{suffix(width, ty)}", vt, (vt, a[0]), (vt, a[1]))
    if name in ("arith.addi", "arith.subi", "arith.muli"):  # i1
        return e.op(f"{'and' if name == 'arith.muli' else 'xor'} {vt} {a[0]}, {a[1]}")
    if name in _INT_BINARY:
        return e.op(f"{_INT_BINARY[name]} {vt} {a[0]}, {a[1]}")
    if name in _INT_EXTREMA:
        return e.call(f"llvm.{_INT_EXTREMA[name]}.{suffix(width, ty)}", vt, (vt, a[0]), (vt, a[1]))
    if name in _SHIFTS:
        return _shift(e, _SHIFTS[name], a, ty, width)
    if name in DIVISIONS:
        return divide(e, _QUOTIENTS.get(name, "ceil"), a, ty, width)
    if name in _MATH:
        return round_to(e, math_call(e, _MATH[name], a, ty, width), result.elem, width)
    if name in _CASTS:
        return cast(e, op, a[0], types[0], result, width)
    return _other(e, op, a, types, result, width)


def _other(e: Emitter, op: Op, a: list[str], types: list[Type], result: Type, width: int) -> str:
    name, ty = op.name, llvm_type(types[0])
    vt, bt = vec(width, ty), vec(width, "i1")
    if name == "arith.select":
        rt = vec(width, llvm_type(result))
        return e.op(f"select {bt} {a[0]}, {rt} {a[1]}, {rt} {a[2]}")
    if name == "arith.cmpi":
        return e.op(f"icmp {op.attrs['word0']} {vt} {a[0]}, {a[1]}")
    if name == "arith.cmpf":
        return e.op(f"fcmp {op.attrs['word0']} {vt} {a[0]}, {a[1]}")
    if name == "arith.negf":
        return e.op(f"fneg {vt} {a[0]}")
    if name == "math.fma":
        value = e.call(f"llvm.fma.{suffix(width, ty)}", vt, (vt, a[0]), (vt, a[1]), (vt, a[2]))
        return round_to(e, value, result.elem, width)
    if name == "tt.mulhiui":
        bits = int(ty[1:])
        wide = vec(width, f"i{2 * bits}")
        x, y = (e.cast("zext", vt, v, wide) for v in a)
        high = e.bin("lshr", wide, e.bin("mul", wide, x, y), splat_literal(str(bits), width, f"i{2 * bits}"))
        return e.cast("trunc", wide, high, vt)
    if name == "tt.clampf":
        kind = ("maximum", "minimum") if "all" in op.attrs.get("propagateNan", "") else ("maxnum", "minnum")
        low = e.call(f"llvm.{kind[0]}.{suffix(width, ty)}", vt, (vt, a[0]), (vt, a[1]))
        return e.call(f"llvm.{kind[1]}.{suffix(width, ty)}", vt, (vt, low), (vt, a[2]))
    if name == "math.absi":
        negative = e.bin("icmp slt", vt, a[0], constant(0, width, ty))
        return e.op(f"select {bt} {negative}, {vt} {e.op(f'sub {vt} {constant(0, width, ty)}, {a[0]}')}, {vt} {a[0]}")
    if name in ("math.ctlz", "math.cttz"):
        return e.call(f"llvm.{name[5:]}.{suffix(width, ty)}", vt, (vt, a[0]), ("i1", "false"))
    if name == "math.ctpop":
        return e.call(f"llvm.ctpop.{suffix(width, ty)}", vt, (vt, a[0]))
    if name == "tt.extern_elementwise":
        return extern(e, op, a, types, result, width)
    raise UnsupportedTTIR(name, op.loc)


def _shift(e: Emitter, op: str, a: list[str], ty: str, width: int) -> str:
    """Shifts by the width or more give 0 (or the sign), as the hardware's clamped shift does."""
    vt, bits = vec(width, ty), int(ty[1:])
    if a[1].lstrip("<").startswith(("%", "zero")) or width > 1:
        over = e.bin("icmp uge", vt, a[1], constant(bits, width, ty))
        amount = e.op(f"select {vec(width, 'i1')} {over}, {vt} {constant(bits - 1, width, ty)}, {vt} {a[1]}")
        shifted = e.op(f"{op} {vt} {a[0]}, {amount}")
        if op == "ashr":
            return shifted
        return e.op(f"select {vec(width, 'i1')} {over}, {vt} {constant(0, width, ty)}, {vt} {shifted}")
    if (int_literal(a[1]) or 0) % (1 << bits) < bits:  # a negative one is a large one
        return e.op(f"{op} {vt} {a[0]}, {a[1]}")
    # LLVM's result would be poison: an address made of it may be another where it is checked than where it is used
    if op == "ashr":
        return e.op(f"{op} {vt} {a[0]}, {bits - 1}")
    return e.op(f"and {vt} {a[0]}, {constant(0, width, ty)}")


def divide(e: Emitter, op: str, a: list[str], ty: str, width: int) -> str:
    """Integer division that cannot trap: by zero gives 0 (remainder: the dividend), and MIN / -1 wraps."""
    vt, bt = vec(width, ty), vec(width, "i1")
    zero, one, minus = (constant(k, width, ty) for k in (0, 1, -1))
    if op == "ceil":
        adjusted = e.bin("sub", vt, e.bin("add", vt, a[0], a[1]), one)
        return divide(e, "sdiv", [adjusted, a[1]], ty, width)
    by_zero = e.bin("icmp eq", vt, a[1], zero)
    divisor = e.op(f"select {bt} {by_zero}, {vt} {one}, {vt} {a[1]}")
    signed = op in ("sdiv", "srem")
    if signed:
        by_minus = e.bin("icmp eq", vt, divisor, minus)
        divisor = e.op(f"select {bt} {by_minus}, {vt} {one}, {vt} {divisor}")
    if ty == "i32" and width > 1:
        # quotients of 32-bit integers are exact in double: the fraction is at least 2^-31 away from the next integer
        dt = vec(width, "double")
        to_float = "sitofp" if signed else "uitofp"
        ratio = e.bin("fdiv", dt, e.op(f"{to_float} {vt} {a[0]} to {dt}"), e.op(f"{to_float} {vt} {divisor} to {dt}"))
        quotient = e.op(f"{'fptosi' if signed else 'fptoui'} {dt} {ratio} to {vt}")
    else:
        quotient = e.op(f"{'sdiv' if signed else 'udiv'} {vt} {a[0]}, {divisor}")
    if op in ("srem", "urem"):
        rest = e.bin("sub", vt, a[0], e.bin("mul", vt, quotient, divisor))
        return rest if not signed else e.op(f"select {bt} {by_minus}, {vt} {zero}, {vt} {rest}")
    if signed:
        negated = e.bin("sub", vt, zero, a[0])
        quotient = e.op(f"select {bt} {by_minus}, {vt} {negated}, {vt} {quotient}")
    return e.op(f"select {bt} {by_zero}, {vt} {zero}, {vt} {quotient}")


def cast(e: Emitter, op: Op, a: str, source: Type, target: Type, width: int) -> str:
    """Conversions between element types."""
    st, tt = llvm_type(source), llvm_type(target)
    sv, tv = vec(width, st), vec(width, tt)
    name = op.name
    if name in ("arith.extf", "arith.truncf", "tt.fp_to_fp"):
        return _cast_float(e, op, a, source, target, width)
    if name in ("arith.sitofp", "arith.uitofp"):
        return round_to(e, e.op(f"{name[6:]} {sv} {a} to {tv}"), target.elem, width)
    if name in ("arith.fptosi", "arith.fptoui"):
        return e.call(f"llvm.{name[6:]}.sat.{suffix(width, tt)}.{suffix(width, st)}", tv, (sv, a))
    if name == "arith.trunci":
        return e.cast("trunc", sv, a, tv)
    if name in ("tt.bitcast", "arith.bitcast"):
        if source.bits != target.bits and not (source.elem == "i1" or target.elem == "i1"):
            raise UnsupportedTTIR(f"bitcast from {source.elem} to {target.elem}", op.loc)
        if source.elem == "i1" or target.elem == "i1":
            return e.op(f"{'zext' if source.bits < target.bits else 'trunc'} {sv} {a} to {tv}")
        bits = to_bits(e, a, source.elem, width) if source.is_float else a
        return from_bits(e, bits, target.elem, width) if target.is_float else bits
    raise UnsupportedTTIR(name, op.loc)


def _cast_float(e: Emitter, op: Op, a: str, source: Type, target: Type, width: int) -> str:
    """Between float types: to nearest even, or towards zero where the operation says so."""
    st, tt = llvm_type(source), llvm_type(target)
    sv, tv = vec(width, st), vec(width, tt)
    rounding = op.attrs.get("rounding", "rtne")
    if rounding not in ("rtne", "rtz"):
        raise UnsupportedTTIR(f"{op.name} with rounding {rounding}", op.loc)
    if tt == "double":
        return a if st == tt else e.op(f"fpext {sv} {a} to {tv}")
    if target.bits > source.bits or source.elem == target.elem:
        return a
    single = a
    if st == "double":
        single = e.op(f"fptrunc {sv} {a} to {tv}")
        if target.elem != "f32":
            single = round_to_odd(e, a, single, width)
    near = round_to(e, single, target.elem, width)
    return near if rounding == "rtne" else _towards_zero(e, a, near, st, target.elem, width)


def _magnitude(e: Emitter, a: str, ty: str, width: int) -> str:
    return e.call(f"llvm.fabs.{suffix(width, ty)}", vec(width, ty), (vec(width, ty), a))


def round_to_odd(e: Emitter, a: str, near: str, width: int) -> str:
    """``near`` (the float nearest to double ``a``) so changed that rounding it once more gives what ``a`` gives."""
    dt, ft, it, bt = vec(width, "double"), vec(width, "float"), vec(width, "i32"), vec(width, "i1")
    wide = e.cast("fpext", ft, near, dt)
    over = e.bin("fcmp ogt", dt, _magnitude(e, wide, "double", width), _magnitude(e, a, "double", width))
    bits = e.cast("bitcast", ft, near, it)
    inward = e.op(f"select {bt} {over}, {it} {e.bin('sub', it, bits, constant(1, width, 'i32'))}, {it} {bits}")
    inexact = e.bin("fcmp one", dt, wide, a)
    odd = e.bin("or", it, inward, e.cast("zext", bt, inexact, it))
    return e.cast("bitcast", it, odd, ft)


def _towards_zero(e: Emitter, a: str, near: str, ty: str, elem: str, width: int) -> str:
    """The neighbour of ``near`` on the side of zero where rounding went the other way."""
    wide = near if ty == "float" else e.cast("fpext", vec(width, "float"), near, vec(width, "double"))
    over = e.bin("fcmp ogt", vec(width, ty), _magnitude(e, wide, ty, width), _magnitude(e, a, ty, width))
    bits = to_bits(e, near, elem, width)
    it = vec(width, f"i{FLOAT_BITS[elem]}")
    step = e.cast("zext", vec(width, "i1"), over, it)
    return from_bits(e, e.bin("sub", it, bits, step), elem, width)
