"""PTX instructions on floats: arithmetic, functions, comparisons and conversions.

Approximate functions are computed to the accuracy of ``mathlib.py``, which is within what PTX promises of them. NaN
results are PTX's canonical NaN.
"""

from ttir_executor.lower.mathlib import math_call
from ttir_executor.lower.numbers import Numbers
from ttir_executor.lower.ptx_integer import INTEGER, Instruction, Machine, bits_of, compare_integers, kind_of, need
from ttir_executor.lower.rounding import drop_bits, from_bits, in_double, narrowed, round_to, to_bits
from ttir_executor.ttir.ptx import Statement

FORMATS = {"f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2"}
"""PTX type -> element type"""
_NAN = {"f64": 0x7FFFFFFFFFFFFFFF, "f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF, "e4m3": 0x7F, "e5m2": 0x7F}
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_WHOLE = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def is_float(kind: str) -> bool:
    """Whether a type is a float, or a packed one."""
    return kind.removesuffix("x2") in FORMATS


def to_float(bits: Numbers, kind: str) -> Numbers:
    """Values of a format's bits."""
    return from_bits(bits, FORMATS[kind])


def to_integer(x: Numbers, kind: str) -> Numbers:
    """Bits of values that the format holds; NaN becomes the canonical one."""
    found = to_bits(x, FORMATS[kind])
    return x.is_nan().choose(_NAN[kind], found)


def _flushed(x: Numbers, s: Statement, kind: str) -> Numbers:
    """Subnormal fp32 values as zeros of their sign, where the instruction says ``.ftz``."""
    if not s.has("ftz") or kind not in ("f32", "f16", "bf16"):
        return x
    small = abs(x) < {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}[kind]
    return small.choose(x.number(0.0).call("copysign", x), x)


def _finished(x: Numbers, s: Statement, kind: str) -> Numbers:
    """A result after ``.ftz``, ``.sat`` and ``.relu``."""
    x = _flushed(x, s, kind)
    if s.has("sat"):
        x = x.call("maxnum", 0.0).call("minnum", 1.0)
    return (x <= 0.0).choose(0.0, x) if s.has("relu") else x  # NaN stays


def _rounding(s: Statement) -> str:
    return next((mode for mode in _ROUNDINGS if s.has(mode)), "rn")


def _arithmetic(m: Machine, s: Statement) -> None:
    """``add sub mul fma`` and ``div``, in the roundings and formats that they have."""
    need(m, s, 4 if s.name in ("fma", "mad") else 3, *_ROUNDINGS, "ftz", "sat", "relu", "full", "approx", "noftz")
    rounding, kind = _rounding(s), kind_of(m, s)
    if rounding != "rn" and (kind != "f32" or s.name == "div"):
        raise m.refuse()

    def of(values: list[Numbers], each: str) -> Numbers:
        lanes = [_flushed(to_float(value, each), s, each) for value in values]
        return to_integer(_finished(_rounded(s.name, lanes, each, rounding), s, each), each)

    m.apply(s, kind, of)


def _rounded(name: str, x: list[Numbers], kind: str, rounding: str) -> Numbers:
    """One operation, rounded once: narrow formats by way of fp32 or fp64, which hold sums and products with room."""
    name = "fma" if name == "mad" else name
    if kind == "f64" or (kind == "f32" and rounding == "rn"):
        return x[0].call("fma", *x[1:]) if name == "fma" else x[0].binary(f"f{name}", x[1])
    wide = [one.to("fpext", "double") for one in x]
    return narrowed(in_double(name, wide, rounding), FORMATS[kind], rounding)


def _extremum(m: Machine, s: Statement) -> None:
    """``min`` and ``max``: the number where one operand is NaN, unless ``.NaN``; minus zero is below zero."""
    need(m, s, 3, "ftz", "NaN", "xorsign", "abs")

    def of(values: list[Numbers], each: str) -> Numbers:
        a, b = (_flushed(to_float(value, each), s, each) for value in values)
        if not s.has("xorsign"):
            return to_integer(pick(a, b), each)
        signs = to_float(values[0] ^ values[1], each)
        return to_integer(pick(abs(a), abs(b)).call("copysign", signs), each)

    def pick(a: Numbers, b: Numbers) -> Numbers:
        found = a.call({"min": "minimum", "max": "maximum"}[s.name], b)
        return found if s.has("NaN") else a.is_nan().choose(b, b.is_nan().choose(a, found))

    m.apply(s, kind_of(m, s), of)


def _sign_bits(m: Machine, s: Statement) -> None:
    """``abs`` and ``neg``, on bits."""
    need(m, s, 2, "ftz")

    def of(values: list[Numbers], each: str) -> Numbers:
        value, top = values[0], 1 << (bits_of(each) - 1)
        if s.has("ftz"):
            value = to_bits(_flushed(to_float(value, each), s, each), FORMATS[each])
        return value & top - 1 if s.name == "abs" else value ^ top

    m.apply(s, kind_of(m, s), of)


def _copysign(m: Machine, s: Statement) -> None:
    need(m, s, 3)
    kind = kind_of(m, s)
    a, b = (to_float(value, kind) for value in m.inputs(s, kind))
    m.write(s.operands[0], to_bits(b.call("copysign", a), FORMATS[kind]), kind)


_MATH = {"ex2": "exp2", "lg2": "log2", "sin": "sin", "cos": "cos", "tanh": "tanh", "sqrt": "sqrt", "rsqrt": "rsqrt"}


def _math(m: Machine, s: Statement) -> None:
    """Functions of one operand."""
    need(m, s, 2, "approx", "ftz", "rn")

    def of(values: list[Numbers], each: str) -> Numbers:
        value = _flushed(to_float(values[0], each), s, each)
        found = 1.0 / value if s.name == "rcp" else math_call(_MATH[s.name], [value])
        # the PTX manual has tanh.approx.f32 within 2^-11
        precision = "tf32" if (s.name, each) == ("tanh", "f32") else FORMATS[each]
        return to_integer(_flushed(round_to(found, precision), s, each), each)

    m.apply(s, kind_of(m, s), of)


def _setp(m: Machine, s: Statement) -> None:
    """``setp.how[.and|or|xor].type p[|q], a, b[, c]``."""
    joins = [part for part in s.opcode[2:-1] if part in ("and", "or", "xor")]
    if len(s.operands) != 3 + len(joins) or len(s.opcode) - len(joins) - s.has("ftz") != 3:
        raise m.refuse()
    how, kind = s.opcode[1], kind_of(m, s)
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    result = _compare(m, s, how, a, b, kind)
    targets = [part.strip() for part in s.operands[0].split("|")]
    for target, value in zip(targets, (result, ~result), strict=False):
        joined = value.binary(joins[0], m.read(s.operands[3], "pred")) if joins else value
        m.write(target, joined, "pred")


_FLOAT_COMPARE = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq",
                  "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord",
                  "nan": "uno"}  # fmt: skip


def _compare(m: Machine, s: Statement, how: str, a: Numbers, b: Numbers, kind: str) -> Numbers:
    if kind not in FORMATS:
        return compare_integers(m, how, a, b, kind)
    if how not in _FLOAT_COMPARE:
        raise m.refuse()
    x, y = (_flushed(to_float(value, kind), s, kind) for value in (a, b))
    return x.compare(_FLOAT_COMPARE[how], y)


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


def converted(m: Machine, s: Statement, value: Numbers, source: str, target: str) -> Numbers:
    """One conversion of bits to bits."""
    if target == "tf32" and source == "f32":
        return _tf32(m, s, to_float(value, source))
    if is_float(source) and is_float(target):
        return _between_floats(m, s, to_float(value, source), source, target)
    if is_float(source):
        return _float_to_integer(m, s, to_float(value, source), source, target)
    if is_float(target):
        return _integer_to_float(m, s, value, source, target)
    return _between_integers(s, value, source, target)


def _between_integers(s: Statement, value: Numbers, source: str, target: str) -> Numbers:
    bits, signed = bits_of(target), target.startswith("s")
    if not s.has("sat"):
        return value.resized(bits, signed=source.startswith("s"))
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    number = value.resized(128, signed=source.startswith("s"))
    return number.call("smax", low).call("smin", high).resized(bits)


def _float_to_integer(m: Machine, s: Statement, x: Numbers, source: str, target: str) -> Numbers:
    how = next((name for mode, name in _WHOLE.items() if s.has(mode)), None)
    if how is None:
        raise m.refuse()
    x, bits = _flushed(x, s, source), bits_of(target)
    found = x.call(how).to_integer(f"i{bits}", signed=target.startswith("s"))
    if source == "f64" or bits == 64:  # NaN: the number whose top bit alone is set
        found = x.is_nan().choose(1 << (bits - 1), found)
    return found


def _integer_to_float(m: Machine, s: Statement, value: Numbers, source: str, target: str) -> Numbers:
    rounding, cast = _rounding(s), "sitofp" if source.startswith("s") else "uitofp"
    if value.bits == 64:  # a number of 64 bits is not exact in fp64
        if rounding != "rn" or target not in ("f32", "f64"):
            raise m.refuse()
        return to_integer(value.to(cast, "double" if target == "f64" else "float"), target)
    exact = narrowed(value.to(cast, "double"), FORMATS[target], rounding)
    return to_integer(_finished(exact, s, target), target)


def _between_floats(m: Machine, s: Statement, x: Numbers, source: str, target: str) -> Numbers:
    x = _flushed(x, s, source)
    how = next((name for mode, name in _WHOLE.items() if s.has(mode)), None)
    if how is not None:
        if source != target:
            raise m.refuse()
        x = x.call(how)
    if target == "f64" and x.ty == "float":
        x = x.to("fpext", "double")
    else:
        x = narrowed(x, FORMATS[target], _rounding(s))
    x = _finished(x, s, target)
    if s.has("satfinite") and target in ("f16", "bf16"):
        largest = {"f16": 65504.0, "bf16": float.fromhex("0x1.fep127")}[target]
        infinite = abs(x).equals(float("inf"))
        x = infinite.choose(x.number(largest).call("copysign", x), x)
    return to_integer(x, target)


def _tf32(m: Machine, s: Statement, x: Numbers) -> Numbers:
    """fp32 with ten bits of mantissa: to nearest with ties away from zero (``rna``) or to even (``rn``), or cut."""
    if s.has("rna"):
        rounded = round_to(x, "tf32")
    elif s.has("rn"):
        rounded = drop_bits(x, 13)
    elif s.has("rz"):
        rounded = (x.as_bits_of("i32") & -(1 << 13)).as_bits_of("float")
    else:
        raise m.refuse()
    return to_integer(_finished(x.is_nan().choose(x, rounded), s, "f32"), "f32")


def _packed(m: Machine, s: Statement, target: str, source: str) -> None:
    """Two conversions: of two fp32 operands (the first goes to the upper half), or of both halves of one."""
    out = target.removesuffix("x2")
    if not target.endswith("x2") or out not in FORMATS:
        raise m.refuse()
    if source == "f32":
        if len(s.operands) != 3:
            raise m.refuse()
        high, low = m.inputs(s, "f32")
        each = "f32"
    else:
        each = source.removesuffix("x2")
        if len(s.operands) != 2 or not source.endswith("x2") or each not in FORMATS:
            raise m.refuse()
        both = m.read(s.operands[1], source)
        half = both.bits // 2
        low, high = both.resized(half), (both >> half).resized(half)
    if out.startswith("e") and not (s.has("satfinite") and s.has("rn")):
        raise m.refuse()
    total = bits_of(target)
    lower, upper = (converted(m, s, value, each, out).resized(total) for value in (low, high))
    m.write(s.operands[0], lower | upper << total // 2, f"b{total}")


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
