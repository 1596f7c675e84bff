"""Elementwise operations of TTIR on strips."""

from ttir_executor.lower.emit import Emitter, is_literal
from ttir_executor.lower.libdevice import extern
from ttir_executor.lower.mathlib import math_call
from ttir_executor.lower.numbers import Numbers, from_bits, narrowed, round_to, to_bits
from ttir_executor.lower.strip import Lin, Strip, Uni, Vec, add, extend, int_literal, llvm_type, mul, numbers_of
from ttir_executor.ttir.ir import Op, Type, UnsupportedTTIR, elem_bytes

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
    kind = llvm_type(result)
    if op.name == "arith.select" and isinstance(args[0], Uni) and not all(isinstance(a, Uni) for a in args):
        yes, no = (numbers_of(e, a, width) for a in args[1:])
        return Vec(e.op(f"select i1 {args[0].val}, {yes.vector} {yes.text}, {no.vector} {no.text}"), kind)
    if all(isinstance(a, Uni) for a in args):
        return Uni(compute(op, [numbers_of(e, a, 1) for a in args], types, result).text, kind)
    return Vec(compute(op, [numbers_of(e, a, width) for a in args], types, result).text, kind)


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


def compute(op: Op, a: list[Numbers], types: list[Type], result: Type) -> Numbers:
    """The operation on operands of as many lanes."""
    name, x = op.name, a[0]
    if name in _FLOAT_BINARY:
        return round_to(x.binary(_FLOAT_BINARY[name], a[1]), result.elem)
    if name in _FLOAT_EXTREMA:
        return x.call(_FLOAT_EXTREMA[name], a[1])
    if name in ("arith.addi", "arith.subi", "arith.muli"):  # i1
        return x & a[1] if name == "arith.muli" else x ^ a[1]
    if name in _INT_BINARY:
        return x.binary(_INT_BINARY[name], a[1])
    if name in _INT_EXTREMA:
        return x.call(_INT_EXTREMA[name], a[1])
    if name in _SHIFTS:
        return shift(_SHIFTS[name], x, a[1])
    if name in DIVISIONS:
        return divide(_QUOTIENTS.get(name, "ceil"), x, a[1])
    if name in _MATH:
        return round_to(math_call(_MATH[name], a), result.elem)
    if name in _CASTS:
        return cast(op, x, types[0], result)
    return _other(op, a, result)


def _other(op: Op, a: list[Numbers], result: Type) -> Numbers:
    name, x = op.name, a[0]
    if name == "arith.select":
        return x.choose(a[1], a[2])
    if name in ("arith.cmpi", "arith.cmpf"):
        return x.compare(op.attrs["word0"], a[1])
    if name == "arith.negf":
        return -x
    if name == "math.fma":
        return round_to(x.call("fma", a[1], a[2]), result.elem)
    if name == "tt.mulhiui":
        return x.high_product(a[1], signed=False)
    if name == "tt.clampf":
        low, high = ("maximum", "minimum") if "all" in op.attrs.get("propagateNan", "") else ("maxnum", "minnum")
        return x.call(low, a[1]).call(high, a[2])
    if name == "math.absi":
        return abs(x)
    if name in ("math.ctlz", "math.cttz", "math.ctpop"):
        return x.call(name[5:])
    if name == "tt.extern_elementwise":
        return extern(op, a, llvm_type(result))
    raise UnsupportedTTIR(name, op.loc)


def shift(how: str, x: Numbers, amount: Numbers) -> Numbers:
    """Shifts by the width or more give 0 (or the sign), as the hardware's clamped shift does."""
    if is_literal(amount.text) and x.width == 1:
        if (int_literal(amount.text) or 0) % (1 << amount.bits) < x.bits:  # a negative one is a large one
            return x.binary(how, amount)
        # LLVM's result would be poison: an address made of it may be another where it is checked than where it is used
        return x.binary(how, x.bits - 1) if how == "ashr" else x & 0
    over = amount.compare("uge", x.bits)
    shifted = x.binary(how, over.choose(x.bits - 1, amount).resized(x.bits))
    return shifted if how == "ashr" else over.choose(0, shifted)


def divide(how: str, x: Numbers, y: Numbers) -> Numbers:
    """Integer division that cannot trap: by zero gives 0 (remainder: the dividend), and MIN / -1 wraps."""
    if how == "ceil":
        return divide("sdiv", x + y - 1, y)
    by_zero = y.equals(0)
    divisor = by_zero.choose(1, y)
    signed = how in ("sdiv", "srem")
    if signed:
        by_minus = divisor.equals(-1)
        divisor = by_minus.choose(1, divisor)
    if x.ty == "i32" and x.width > 1:
        # quotients of 32-bit integers are exact in double: the fraction is at least 2^-31 away from the next integer
        over, under = (one.to("sitofp" if signed else "uitofp", "double") for one in (x, divisor))
        quotient = (over / under).to("fptosi" if signed else "fptoui", x.ty)
    else:
        quotient = x.binary("sdiv" if signed else "udiv", divisor)
    if how in ("srem", "urem"):
        rest = x - quotient * divisor
        return by_minus.choose(0, rest) if signed else rest
    if signed:
        quotient = by_minus.choose(0 - x, quotient)
    return by_zero.choose(0, quotient)


def cast(op: Op, x: Numbers, source: Type, target: Type) -> Numbers:
    """Conversions between element types."""
    name, kind = op.name, llvm_type(target)
    if name in ("arith.extf", "arith.truncf", "tt.fp_to_fp"):
        return _cast_float(op, x, source, target)
    if name in ("arith.sitofp", "arith.uitofp"):
        return round_to(x.to(name[6:], kind), target.elem)
    if name in ("arith.fptosi", "arith.fptoui"):
        found = x.to_integer(f"i{max(16, target.bits)}", signed=name == "arith.fptosi")
        return found.resized(target.bits)  # there is no instruction for 8 bits: they are the lower ones of 16
    if name == "arith.trunci":
        return x.to("trunc", kind)
    if name in ("tt.bitcast", "arith.bitcast"):
        if source.elem == "i1" or target.elem == "i1":
            return x.to("zext" if source.bits < target.bits else "trunc", kind)
        if source.bits != target.bits:
            raise UnsupportedTTIR(f"bitcast from {source.elem} to {target.elem}", op.loc)
        bits = to_bits(x, source.elem) if source.is_float else x
        return from_bits(bits, target.elem) if target.is_float else bits
    raise UnsupportedTTIR(name, op.loc)


def _cast_float(op: Op, x: Numbers, source: Type, target: Type) -> Numbers:
    """Between float types: to nearest even, or towards zero where the operation says so."""
    rounding = op.attrs.get("rounding", "rtne")
    if rounding not in ("rtne", "rtz"):
        raise UnsupportedTTIR(f"{op.name} with rounding {rounding}", op.loc)
    if target.elem == "f64":
        return x if x.ty == "double" else x.to("fpext", "double")
    if target.bits > source.bits or source.elem == target.elem:
        return x
    return narrowed(x, target.elem, {"rtne": "rn", "rtz": "rz"}[rounding])
