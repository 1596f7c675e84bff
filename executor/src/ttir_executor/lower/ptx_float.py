"""PTX instructions on floats: arithmetic, functions, comparisons and conversions.

Approximate functions are computed to the accuracy of ``mathlib.py``, which is within what PTX promises of them. NaN
results are PTX's canonical NaN.
"""

from ttir_executor.lower.elementwise import round_to_odd
from ttir_executor.lower.mathlib import math_call
from ttir_executor.lower.ptx_integer import INTEGER, Instruction, Machine, bits_of, compare_integers, kind_of, need
from ttir_executor.lower.rounding import from_bits, round_to, suffix, to_bits
from ttir_executor.ttir.ir import FLOAT_BITS
from ttir_executor.ttir.ptx import Statement

FORMATS = {"f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}
"""PTX type -> element type"""
_NAN = {"f64": 0x7FFFFFFFFFFFFFFF, "f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF, "e4m3": 0x7F, "e5m2": 0x7F}
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def is_float(kind: str) -> bool:
    """Whether a type is a float, or a packed one."""
    return kind.removesuffix("x2") in FORMATS


def _lanes(kind: str) -> str:
    """The LLVM element type that holds a format's values."""
    return "double" if kind == "f64" else "float"


def to_float(m: Machine, bits: str, kind: str) -> str:
    """Values of a format's bits."""
    return from_bits(m.e, bits, FORMATS[kind], m.width)


def to_integer(m: Machine, value: str, kind: str) -> str:
    """Bits of values that the format holds; NaN becomes the canonical one."""
    found = to_bits(m.e, value, FORMATS[kind], m.width)
    bits = FLOAT_BITS[FORMATS[kind]]
    ty = m.lanes(_lanes(kind))
    return m.select(m.e.bin("fcmp uno", ty, value, value), m.number(_NAN[kind], bits), found, m.ints(bits))


def narrowed(m: Machine, value: str, source: str, target: str, rounding: str) -> str:
    """Values of ``source`` (``f32`` or ``f64`` lanes) rounded to ``target``; gives its lanes."""
    if source == "f64" and target != "f64":
        single = m.e.cast("fptrunc", m.lanes("double"), value, m.floats)
        near = (
            single
            if target == "f32"
            else round_to(m.e, round_to_odd(m.e, value, single, m.width), FORMATS[target], m.width)
        )
    else:
        near = round_to(m.e, value, FORMATS[target], m.width)
    if rounding == "rn" or target == source:
        return near
    return _neighbour(m, value, near, source, target, rounding)


def _neighbour(m: Machine, value: str, near: str, source: str, target: str, rounding: str) -> str:
    """``near``, or the value of the format next to it on the side that the rounding asks for."""
    ty, bits = m.lanes(_lanes(source)), FLOAT_BITS[FORMATS[target]]
    wide = m.e.cast("fpext", m.floats, near, ty) if source == "f64" else near
    raw = to_bits(m.e, near, FORMATS[target], m.width)
    inward = m.e.bin("sub", m.ints(bits), raw, m.number(1, bits))
    outward = m.e.bin("add", m.ints(bits), raw, m.number(1, bits))
    negative = m.e.bin("icmp slt", m.ints(bits), raw, m.number(0, bits))
    if rounding == "rz":
        magnitudes = (_function(m, "fabs", _lanes(source), each) for each in (wide, value))
        moves = m.e.bin("fcmp ogt", ty, *magnitudes)
        chosen = inward
    elif rounding == "rm":
        moves = m.e.bin("fcmp ogt", ty, wide, value)
        chosen = m.select(negative, outward, inward, m.ints(bits))
    else:
        moves = m.e.bin("fcmp olt", ty, wide, value)
        chosen = m.select(negative, inward, outward, m.ints(bits))
    return from_bits(m.e, m.select(moves, chosen, raw, m.ints(bits)), FORMATS[target], m.width)


def _function(m: Machine, name: str, ty: str, *values: str) -> str:
    """An intrinsic on float lanes."""
    vt = m.lanes(ty)
    return m.e.call(f"llvm.{name}.{suffix(m.width, ty)}", vt, *((vt, value) for value in values))


def _flushed(m: Machine, value: str, s: Statement, kind: str) -> str:
    """Subnormal fp32 values as zeros of their sign, where the instruction says ``.ftz``."""
    if not s.has("ftz") or kind not in ("f32", "f16", "bf16"):
        return value
    least = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}[kind]
    small = m.e.bin("fcmp olt", m.floats, _function(m, "fabs", "float", value), m.real(least))
    zero = _function(m, "copysign", "float", m.real(0.0), value)
    return m.select(small, zero, value, m.floats)


def _finished(m: Machine, value: str, s: Statement, kind: str) -> str:
    """A result after ``.ftz``, ``.sat`` and ``.relu``."""
    value, ty = _flushed(m, value, s, kind), m.lanes(_lanes(kind))
    if s.has("sat"):
        low = _function(m, "maxnum", _lanes(kind), value, m.real(0.0, _lanes(kind)))
        value = _function(m, "minnum", _lanes(kind), low, m.real(1.0, _lanes(kind)))
    if s.has("relu"):
        below = m.e.bin("fcmp ole", ty, value, m.real(0.0, _lanes(kind)))  # NaN stays
        value = m.select(below, m.real(0.0, _lanes(kind)), value, ty)
    return value


def _arithmetic(m: Machine, s: Statement) -> None:
    """``add sub mul fma`` and ``div``, in the roundings and formats that they have."""
    need(m, s, 4 if s.name in ("fma", "mad") else 3, *_ROUNDINGS, "ftz", "sat", "relu", "full", "approx", "noftz")
    rounding = next((mode for mode in _ROUNDINGS if s.has(mode)), "rn")
    kind = kind_of(m, s)
    if rounding != "rn" and kind != "f32":
        raise m.refuse()

    def of(values: list[str], each: str) -> str:
        lanes = [_flushed(m, to_float(m, value, each), s, each) for value in values]
        return to_integer(m, _finished(m, _rounded(m, s.name, lanes, each, rounding), s, each), each)

    m.apply(s, kind, of)


def _rounded(m: Machine, name: str, lanes: list[str], kind: str, rounding: str) -> str:
    """One operation, rounded once: narrow formats by way of fp32 or fp64, which hold sums and products with room."""
    op = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}.get(name)
    ty = _lanes(kind)
    if kind == "f64" or (kind == "f32" and rounding == "rn"):
        return m.e.bin(op, m.lanes(ty), *lanes) if op else _function(m, "fma", ty, *lanes)
    double = m.lanes("double")
    wide = [m.e.cast("fpext", m.floats, lane, double) for lane in lanes]
    if op in ("fmul", "fdiv"):
        if op == "fdiv" and rounding != "rn":
            raise m.refuse()
        exact = m.e.bin(op, double, *wide)
    else:  # a sum of floats may need more than the 53 bits of a double; their product never does
        a, b = wide if op else [m.e.bin("fmul", double, *wide[:2]), wide[2]]
        b = m.e.op(f"fneg {double} {b}") if name == "sub" else b
        exact = _sum_to_odd(m, a, b)
        if rounding == "rm":  # what cancels is minus zero then
            smaller = _function(m, "minimum", "double", _sign(m, a), _sign(m, b))
            minus = m.e.bin("fcmp oeq", double, exact, m.real(0.0, "double"))
            exact = m.select(minus, _function(m, "copysign", "double", exact, smaller), exact, double)
    return narrowed(m, exact, "f64", kind, rounding)


def _sum_to_odd(m: Machine, a: str, b: str) -> str:
    """a + b of doubles whose last bit tells whether it is exact, so that a second rounding is right."""
    double, flag = m.lanes("double"), m.ints(64)
    total = m.e.bin("fadd", double, a, b)
    back = m.e.bin("fsub", double, total, a)  # Knuth's two-sum
    error = m.e.bin(
        "fadd",
        double,
        m.e.bin("fsub", double, a, m.e.bin("fsub", double, total, back)),
        m.e.bin("fsub", double, b, back),
    )
    bits = m.e.cast("bitcast", double, total, flag)
    exact = m.e.bin("fcmp ueq", double, error, m.real(0.0, "double"))
    odd = m.e.bin("icmp ne", flag, m.e.bin("and", flag, bits, m.number(1, 64)), m.number(0, 64))
    outward = m.e.bin("fcmp ogt", double, m.e.bin("fmul", double, error, _sign(m, total)), m.real(0.0, "double"))
    up, down = (m.e.bin("add", flag, bits, m.number(step, 64)) for step in (1, -1))
    moved = m.select(outward, up, down, flag)
    keeps = m.e.bin("or", m.flag, exact, odd)
    return m.e.cast("bitcast", flag, m.select(keeps, bits, moved, flag), double)


def _sign(m: Machine, value: str) -> str:
    return _function(m, "copysign", "double", m.real(1.0, "double"), value)


def _extremum(m: Machine, s: Statement) -> None:
    """``min`` and ``max``: the number where one operand is NaN, unless ``.NaN``; minus zero is below zero."""
    need(m, s, 3, "ftz", "NaN", "xorsign", "abs")
    kind = kind_of(m, s)

    def of(values: list[str], each: str) -> str:
        a, b = (_flushed(m, to_float(m, value, each), s, each) for value in values)
        ty, name = m.lanes(_lanes(each)), {"min": "minimum", "max": "maximum"}[s.name]
        if s.has("xorsign"):
            flipped = m.e.bin("xor", m.ints(bits_of(each)), *values)
            small, large = (_function(m, "fabs", _lanes(each), v) for v in (a, b))
            picked, signs = pick(small, large, ty, name, each), to_float(m, flipped, each)
            return to_integer(m, _function(m, "copysign", _lanes(each), picked, signs), each)
        return to_integer(m, pick(a, b, ty, name, each), each)

    def pick(a: str, b: str, ty: str, name: str, each: str) -> str:
        found = _function(m, name, _lanes(each), a, b)
        if s.has("NaN"):
            return found
        found = m.select(m.e.bin("fcmp uno", ty, b, b), a, found, ty)
        return m.select(m.e.bin("fcmp uno", ty, a, a), b, found, ty)

    m.apply(s, kind, of)


def _sign_bits(m: Machine, s: Statement) -> None:
    """``abs`` and ``neg``, on bits."""
    need(m, s, 2, "ftz")
    kind = kind_of(m, s)

    def of(values: list[str], each: str) -> str:
        value, bits = values[0], bits_of(each)
        if s.has("ftz"):
            value = to_bits(m.e, _flushed(m, to_float(m, value, each), s, each), FORMATS[each], m.width)
        top = 1 << (bits - 1)
        if s.name == "abs":
            return m.e.bin("and", m.ints(bits), value, m.number(top - 1, bits))
        return m.e.bin("xor", m.ints(bits), value, m.number(top, bits))

    m.apply(s, kind, of)


def _copysign(m: Machine, s: Statement) -> None:
    need(m, s, 3)
    kind = kind_of(m, s)
    a, b = (to_float(m, m.read(operand, kind), kind) for operand in s.operands[1:])
    value = _function(m, "copysign", _lanes(kind), b, a)
    m.write(s.operands[0], to_bits(m.e, value, FORMATS[kind], m.width), kind)


_MATH = {"ex2": "exp2", "lg2": "log2", "sin": "sin", "cos": "cos", "tanh": "tanh", "sqrt": "sqrt", "rsqrt": "rsqrt"}


def _math(m: Machine, s: Statement) -> None:
    """Functions of one operand."""
    need(m, s, 2, "approx", "ftz", "rn")
    kind = kind_of(m, s)

    def of(values: list[str], each: str) -> str:
        ty = _lanes(each)
        value = _flushed(m, to_float(m, values[0], each), s, each)
        if s.name == "rcp":
            found = m.e.bin("fdiv", m.lanes(ty), m.real(1.0, ty), value)
        else:
            found = math_call(m.e, _MATH[s.name], [value], ty, m.width)
        # the PTX manual has tanh.approx.f32 within 2^-11
        precision = "tf32" if (s.name, each) == ("tanh", "f32") else FORMATS[each]
        found = round_to(m.e, found, precision, m.width) if each != "f64" else found
        return to_integer(m, _flushed(m, found, s, each), each)

    m.apply(s, kind, of)


def _setp(m: Machine, s: Statement) -> None:
    """``setp.how[.and|or|xor].type p[|q], a, b[, c]``."""
    joins = [part for part in s.opcode[2:-1] if part in ("and", "or", "xor")]
    if len(s.operands) != 3 + len(joins) or len(s.opcode) - len(joins) - s.has("ftz") != 3:
        raise m.refuse()
    how, kind = s.opcode[1], kind_of(m, s)
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    result = _compare(m, s, how, a, b, kind)
    targets = [part.strip() for part in s.operands[0].split("|")]
    for target, value in zip(targets, (result, m.not_(result)), strict=False):
        if joins:
            value = m.e.bin(joins[0], m.flag, value, m.read(s.operands[3], "pred"))
        m.write(target, value, "pred")


_FLOAT_COMPARE = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq",
                  "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord",
                  "nan": "uno"}  # fmt: skip


def _compare(m: Machine, s: Statement, how: str, a: str, b: str, kind: str) -> str:
    if kind not in FORMATS:
        return compare_integers(m, how, a, b, kind)
    if how not in _FLOAT_COMPARE:
        raise m.refuse()
    x, y = (_flushed(m, to_float(m, value, kind), s, kind) for value in (a, b))
    return m.e.bin(f"fcmp {_FLOAT_COMPARE[how]}", m.lanes(_lanes(kind)), x, y)


# ---- conversions


def _cvt(m: Machine, s: Statement) -> None:
    """``cvt``: between integers, between floats, across, and packed."""
    if len(s.opcode) < 3:
        raise m.refuse()
    target, source, modifiers = s.opcode[-2], s.opcode[-1], s.opcode[1:-2]
    known = {*_ROUNDINGS, *_WHOLE, "ftz", "sat", "relu", "satfinite", "rna"}
    if set(modifiers) - known:
        raise m.refuse()
    try:
        bits_of(target), bits_of(source)
    except KeyError:
        raise m.refuse() from None
    if target.endswith("x2") or source.endswith("x2"):
        _packed(m, s, target, source)
        return
    if len(s.operands) != 2:
        raise m.refuse()
    value = m.read(s.operands[1], source)
    m.write(s.operands[0], converted(m, s, value, source, target), "b32" if target == "tf32" else target)


def converted(m: Machine, s: Statement, value: str, source: str, target: str) -> str:
    """One conversion of bits to bits."""
    rounding = next((mode for mode in _ROUNDINGS if s.has(mode)), "rn")
    if target == "tf32" and source == "f32":
        return _tf32(m, s, value)
    if is_float(source) and is_float(target):
        return _between_floats(m, s, value, source, target, rounding)
    if is_float(source):
        return _float_to_integer(m, s, value, source, target)
    if is_float(target):
        return _integer_to_float(m, s, value, source, target, rounding)
    return _between_integers(m, s, value, source, target)


def _between_integers(m: Machine, s: Statement, value: str, source: str, target: str) -> str:
    wide, bits = 128, bits_of(target)
    if not s.has("sat"):
        return m.resize(value, bits_of(source), bits, signed=source.startswith("s"))
    number = m.resize(value, bits_of(source), wide, signed=source.startswith("s"))
    signed = target.startswith("s")
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    ty = m.ints(wide)
    for name, bound in (("smax", low), ("smin", high)):
        number = m.e.call(f"llvm.{name}.{suffix(m.width, 'i128')}", ty, (ty, number), (ty, m.number(bound, wide)))
    return m.resize(number, wide, bits)


def _float_to_integer(m: Machine, s: Statement, value: str, source: str, target: str) -> str:
    how = next((name for mode, name in _WHOLE.items() if s.has(mode)), None)
    if how is None:
        raise m.refuse()
    bits, ty = bits_of(target), _lanes(source)
    lanes = _flushed(m, to_float(m, value, source), s, source)
    whole = _function(m, how, ty, lanes)
    name = f"llvm.fpto{'s' if target.startswith('s') else 'u'}i.sat.{suffix(m.width, f'i{bits}')}.{suffix(m.width, ty)}"
    found = m.e.call(name, m.ints(bits), (m.lanes(ty), whole))
    if source == "f64" or bits == 64:  # NaN: the number whose top bit alone is set
        nan = m.e.bin("fcmp uno", m.lanes(ty), lanes, lanes)
        found = m.select(nan, m.number(1 << (bits - 1), bits), found, m.ints(bits))
    return found


def _integer_to_float(m: Machine, s: Statement, value: str, source: str, target: str, rounding: str) -> str:
    bits, cast = bits_of(source), "sitofp" if source.startswith("s") else "uitofp"
    if bits == 64 and (rounding != "rn" or target not in ("f32", "f64")):
        raise m.refuse()  # a number of 64 bits is not exact in fp64
    if bits == 64:
        return to_integer(m, m.e.cast(cast, m.ints(bits), value, m.lanes(_lanes(target))), target)
    exact = m.e.cast(cast, m.ints(bits), value, m.lanes("double"))
    return to_integer(m, _finished(m, narrowed(m, exact, "f64", target, rounding), s, target), target)


def _between_floats(m: Machine, s: Statement, value: str, source: str, target: str, rounding: str) -> str:
    lanes = _flushed(m, to_float(m, value, source), s, source)
    how = next((name for mode, name in _WHOLE.items() if s.has(mode)), None)
    if how is not None:
        if source != target:
            raise m.refuse()
        lanes = _function(m, how, _lanes(source), lanes)
    wide = "f64" if source == "f64" else "f32"
    if target == "f64" and wide == "f32":
        lanes = m.e.cast("fpext", m.floats, lanes, m.lanes("double"))
    else:
        lanes = narrowed(m, lanes, wide, target, rounding)
    lanes = _finished(m, lanes, s, target)
    if s.has("satfinite") and target in ("f16", "bf16"):
        largest = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep127")}[target]
        infinite = m.e.bin("fcmp oeq", m.floats, _function(m, "fabs", "float", lanes), m.real(float("inf")))
        lanes = m.select(infinite, _function(m, "copysign", "float", m.real(largest), lanes), lanes, m.floats)
    return to_integer(m, lanes, target)


def _tf32(m: Machine, s: Statement, value: str) -> str:
    """fp32 with ten bits of mantissa: to nearest with ties away from zero (``rna``) or to even (``rn``), or cut."""
    ty = m.ints(32)
    if s.has("rna"):
        rounded = m.e.bin("add", ty, value, m.number(1 << 12, 32))
    elif s.has("rn"):
        odd = m.e.bin("and", ty, m.e.bin("lshr", ty, value, m.number(13, 32)), m.number(1, 32))
        rounded = m.e.bin("add", ty, m.e.bin("add", ty, value, odd), m.number((1 << 12) - 1, 32))
    elif s.has("rz"):
        rounded = value
    else:
        raise m.refuse()
    rounded = m.e.bin("and", ty, rounded, m.number(-(1 << 13), 32))
    lanes = to_float(m, value, "f32")
    magnitude = _function(m, "fabs", "float", lanes)
    finite = m.e.bin("fcmp olt", m.floats, magnitude, m.real(float("inf")))
    kept = m.select(finite, rounded, value, ty)
    nan = m.e.bin("fcmp uno", m.floats, lanes, lanes)
    kept = m.select(nan, m.number(_NAN["f32"], 32), kept, ty)
    return to_bits(m.e, _finished(m, to_float(m, kept, "f32"), s, "f32"), "f32", m.width)


def _packed(m: Machine, s: Statement, target: str, source: str) -> None:
    """Two conversions: of two fp32 operands (the first goes to the upper half), or of both halves of one."""
    out = target.removesuffix("x2")
    if not target.endswith("x2") or out not in FORMATS:
        raise m.refuse()
    if source == "f32":
        if len(s.operands) != 3:
            raise m.refuse()
        low, high = m.read(s.operands[2], "f32"), m.read(s.operands[1], "f32")
        each = "f32"
    else:
        each = source.removesuffix("x2")
        if len(s.operands) != 2 or not source.endswith("x2") or each not in FORMATS:
            raise m.refuse()
        both, wide, half = m.read(s.operands[1], source), bits_of(source), bits_of(each)
        low = m.resize(both, wide, half)
        high = m.resize(m.e.bin("lshr", m.ints(wide), both, m.number(half, wide)), wide, half)
    if out.startswith("e") and not (s.has("satfinite") and s.has("rn")):
        raise m.refuse()
    bits, total = bits_of(out) if not out.startswith("e") else 8, bits_of(target)
    pieces = [m.resize(converted(m, s, value, each, out), bits, total) for value in (low, high)]
    upper = m.e.bin("shl", m.ints(total), pieces[1], m.number(bits, total))
    m.write(s.operands[0], m.e.bin("or", m.ints(total), pieces[0], upper), f"b{total}")


_BY_TYPE: dict[str, Instruction] = {
    "add": _arithmetic, "sub": _arithmetic, "mul": _arithmetic, "div": _arithmetic, "fma": _arithmetic,
    "mad": _arithmetic, "min": _extremum, "max": _extremum, "abs": _sign_bits, "neg": _sign_bits,
}  # fmt: skip
_ALWAYS: dict[str, Instruction] = {
    "copysign": _copysign, "rcp": _math, **dict.fromkeys(_MATH, _math), "setp": _setp, "cvt": _cvt,
}  # fmt: skip


def execute(m: Machine, s: Statement) -> None:
    """One statement. Raises :class:`UnsupportedTTIR` with the text of the assembly for an unknown instruction."""
    m.statement = s
    if s.no_work:
        return
    instruction = _ALWAYS.get(s.name)
    if instruction is None and is_float(s.opcode[-1]):
        instruction = _BY_TYPE.get(s.name)
    if instruction is None:
        instruction = INTEGER.get(s.name)
    if instruction is None or not s.operands:
        raise m.refuse()
    try:
        instruction(m, s)
    except KeyError:
        raise m.refuse() from None
