"""PTX instructions, on registers that are LLVM vectors of integers: on integers, predicates and bits, then on floats.

Approximate functions are computed to the accuracy of ``mathlib.py``, which is within what PTX promises of them. NaN
results are PTX's canonical NaN.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ttir_executor.lower.elementwise import divide, shift
from ttir_executor.lower.emit import Emitter
from ttir_executor.lower.libdevice import byte_perm, distance
from ttir_executor.lower.mathlib import math_call
from ttir_executor.lower.numbers import Numbers, constant, drop_bits, from_bits, in_double, narrowed, round_to, to_bits
from ttir_executor.ttir.ir import UnsupportedTTIR
from ttir_executor.ttir.ptx import Statement, shown

_NUMBER = re.compile(r"^[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_HEX_FLOAT = re.compile(r"^0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})$")
_DECIMAL = re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+[eE][-+]?\d+|\d+\.\d*[eE][-+]?\d+)$")


def bits_of(kind: str) -> int:
    """Width of a PTX type: ``u32``, ``b16``, ``f16x2``, ``pred``, ``e4m3x2`` ..."""
    if kind == "pred":
        return 1
    packed = re.fullmatch(r"(f16|bf16|e4m3|e5m2|[us]16)x2", kind)
    if packed is not None:
        return 16 if packed.group(1).startswith("e") else 32
    if kind in ("e4m3", "e5m2"):
        return 8
    if kind in ("tf32", "bf16"):
        return 32 if kind == "tf32" else 16
    number = re.fullmatch(r"[busf](\d+)", kind)
    if number is None or int(number.group(1)) not in (8, 16, 32, 64):
        raise KeyError(kind)
    return int(number.group(1))


@dataclass
class Machine:
    """The registers of one piece of assembly; every register holds one integer a lane."""

    e: Emitter
    width: int
    text: str
    """the assembly, for messages"""
    loc: str
    """where it stands"""
    special: Callable[[str], str | None]
    """a special register's 64-bit scalar; None for one that is not simulated"""
    values: dict[str, Numbers] = field(default_factory=dict)
    statement: Statement | None = None

    def number(self, value: int, bits: int) -> Numbers:
        """A constant in every lane."""
        kind = f"i{bits}"
        return Numbers(self.e, constant(value & ((1 << bits) - 1), self.width, kind), kind, self.width)

    def refuse(self) -> UnsupportedTTIR:
        """The error for what the reader does not know."""
        part = self.statement.text if self.statement is not None else ""
        return UnsupportedTTIR(f"the instruction {shown(part)} of the inline assembly {shown(self.text)}", self.loc)

    def read(self, operand: str, kind: str) -> Numbers:
        """An operand as an integer of the type's width. Raises :class:`UnsupportedTTIR` where it has another width."""
        bits = bits_of(kind)
        negated = operand.startswith("!")
        name = operand.lstrip("!")
        if name.startswith("{"):
            return self._joined(name, bits)
        known = self.values.get(name)
        if known is None:
            literal = _literal(name, kind)
            if literal is not None:
                return self.number(literal, bits)
            found = self.special(name) if name.startswith("%") else None
            if found is None:
                raise self.refuse()
            return Numbers(self.e, self.e.splat(found, self.width, "i64"), "i64", self.width).resized(bits)
        if known.bits != bits and (known.bits < bits or self.statement is None or self.statement.name != "cvt"):
            raise self.refuse()
        value = known.resized(bits)
        return ~value if negated and bits == 1 else value

    def inputs(self, s: Statement, kind: str) -> list[Numbers]:
        """The operands after the first, all of one type."""
        return [self.read(operand, kind) for operand in s.operands[1:]]

    def _parts(self, operand: str, bits: int) -> tuple[list[str], int]:
        """The registers of ``{low, ..., high}``, and the bits of each."""
        parts = [part.strip() for part in operand.strip("{} ").split(",")]
        each = bits // max(1, len(parts))
        if each * len(parts) != bits or each < 8:
            raise self.refuse()
        return parts, each

    def _joined(self, operand: str, bits: int) -> Numbers:
        """``{low, ..., high}`` as one integer."""
        parts, each = self._parts(operand, bits)
        total = self.number(0, bits)
        for k, part in enumerate(parts):
            total = total | self.read(part, f"b{each}").resized(bits) << k * each
        return total

    def write(self, operand: str, value: Numbers, kind: str) -> None:
        """Set a register, or the parts of ``{low, ..., high}``; where a guard is off, it keeps what it had."""
        if operand.startswith("{"):
            parts, each = self._parts(operand, value.bits)
            for k, part in enumerate(parts):
                self.write(part, (value >> k * each).resized(each), f"b{each}")
            return
        if operand == "_":
            return
        known = self.values.get(operand)
        if known is None or known.bits < value.bits:
            raise self.refuse()
        wide = value.resized(known.bits, signed=kind.startswith("s"))
        if self.statement is not None and self.statement.guard:
            condition = self.read(self.statement.guard, "pred")
            wide = (~condition if self.statement.negated else condition).choose(wide, known)
        self.values[operand] = wide

    def apply(self, s: Statement, kind: str, of: Callable[[list[Numbers], str], Numbers]) -> None:
        """Apply ``of(bits, type)`` to the operands after the first, for a packed type to both halves; and write it."""
        values = self.inputs(s, kind)
        if not kind.endswith("x2"):
            self.write(s.operands[0], of(values, kind), kind)
            return
        each, total = kind.removesuffix("x2"), self.number(0, 32)
        for k in range(2):
            parts = [(value >> 16 * k).resized(16) for value in values]
            total = total | of(parts, each).resized(32) << 16 * k
        self.write(s.operands[0], total, kind)


def _literal(text: str, kind: str) -> int | None:
    """The bits of an immediate operand; None where it is none."""
    if _NUMBER.match(text):
        return int(text.rstrip("U"), 0) if not re.match(r"^[-+]?0\d", text) else int(text.rstrip("U"), 8)
    written = _HEX_FLOAT.match(text)
    if written is not None:
        single = written.group(1) in "fF"
        if len(written.group(2)) != (8 if single else 16) or (kind == "f64") == single:
            return None
        return int(written.group(2), 16)
    if _DECIMAL.match(text) and kind in ("f32", "f64"):
        code, word = ("<f", "<I") if kind == "f32" else ("<d", "<Q")
        return int(struct.unpack(word, struct.pack(code, float(text)))[0])
    return None


Instruction = Callable[[Machine, Statement], None]


def kind_of(m: Machine, s: Statement) -> str:
    """The instruction's type: its last modifier."""
    try:
        bits_of(s.opcode[-1])
    except KeyError:
        raise m.refuse() from None
    return s.opcode[-1]


def need(m: Machine, s: Statement, operands: int, *modifiers: str) -> None:
    """Refuse an instruction with another number of operands, or with modifiers (but the type) that are not known."""
    extra = set(s.opcode[1:-1]) - set(modifiers)
    if len(s.operands) != operands or extra:
        raise m.refuse()


Rule = Callable[[Machine, Statement, str, list[Numbers]], Numbers]


def _of_one_type(operands: int, rule: Rule, *modifiers: str) -> Instruction:
    """An instruction whose operands and result have one type, which may be packed."""

    def instruction(m: Machine, s: Statement) -> None:
        need(m, s, operands, *modifiers)
        m.apply(s, kind_of(m, s), lambda values, kind: rule(m, s, kind, values))

    return instruction


def _sign(kind: str) -> str:
    return "s" if kind.startswith("s") else "u"


def _complement(m: Machine, s: Statement, kind: str, values: list[Numbers]) -> Numbers:
    return values[0].equals(0).resized(bits_of(kind)) if s.name == "cnot" else ~values[0]


def _add(m: Machine, s: Statement, kind: str, values: list[Numbers]) -> Numbers:
    if not s.has("sat"):
        return values[0].binary(s.name, values[1])
    if kind != "s32":
        raise m.refuse()
    return values[0].call(f"s{s.name}.sat", values[1])


def _extremum(m: Machine, s: Statement, kind: str, values: list[Numbers]) -> Numbers:
    found = values[0].call(_sign(kind) + s.name, values[1])
    if s.has("relu") and _sign(kind) != "s":
        raise m.refuse()
    return found.call("smax", 0) if s.has("relu") else found


def _product(m: Machine, s: Statement) -> None:
    """``mul`` and ``mad``: the low or high half of the product, or all of it."""
    adds = s.name == "mad"
    need(m, s, 4 if adds else 3, "lo", "hi", "wide")
    kind = out = kind_of(m, s)
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    bits, signed = a.bits, kind.startswith("s")
    if s.has("wide"):
        if bits > 32:
            raise m.refuse()
        out = f"{kind[0]}{2 * bits}"
        value = a.resized(2 * bits, signed=signed) * b.resized(2 * bits, signed=signed)
    elif s.has("hi"):
        value = a.high_product(b, signed=signed)
    elif s.has("lo"):
        value = a * b
    else:
        raise m.refuse()
    if adds:
        value = value + m.read(s.operands[3], out)
    m.write(s.operands[0], value, out)


def _count(m: Machine, s: Statement) -> None:
    """``popc`` and ``clz``."""
    need(m, s, 2)
    (value,) = m.inputs(s, kind_of(m, s))
    m.write(s.operands[0], value.call("ctpop" if s.name == "popc" else "ctlz").resized(32), "u32")


def _shift(m: Machine, s: Statement) -> None:
    """``shl`` and ``shr``: by as many bits as there are or more gives 0, or the sign."""
    need(m, s, 3)
    kind = kind_of(m, s)
    value, amount = m.read(s.operands[1], kind), m.read(s.operands[2], "u32")
    how = "shl" if s.name == "shl" else "ashr" if kind.startswith("s") else "lshr"
    m.write(s.operands[0], shift(how, value, amount), kind)


def _funnel(m: Machine, s: Statement) -> None:
    """``shf``: 32 bits of {b, a} shifted left or right."""
    need(m, s, 4, "l", "r", "wrap", "clamp")
    a, b, amount = m.inputs(s, "b32")
    both = b.resized(64) << 32 | a.resized(64)
    amount = (amount & 31 if s.has("wrap") else amount.call("umin", 32)).resized(64)
    both = both << amount >> 32 if s.has("l") else both >> amount
    m.write(s.operands[0], both.resized(32), "b32")


def _lop3(m: Machine, s: Statement) -> None:
    """Any function of three bits, by its table of eight."""
    need(m, s, 5)
    values = [m.read(operand, "b32") for operand in s.operands[1:4]]
    try:
        table = int(s.operands[4], 0)
    except ValueError:
        raise m.refuse() from None
    inverse = [~value for value in values]
    total = m.number(0, 32)
    for row in range(8):
        if table >> row & 1:
            x, y, z = (values[k] if row >> (2 - k) & 1 else inverse[k] for k in range(3))
            total = total | x & y & z
    m.write(s.operands[0], total, "b32")


def _field(m: Machine, s: Statement) -> None:
    """``bfe``: bits [start, start + length) of a number, with its sign where it has one."""
    need(m, s, 4)
    kind = kind_of(m, s)
    bits, how = bits_of(kind), "ashr" if kind.startswith("s") else "lshr"
    value = m.read(s.operands[1], kind)
    start, length = ((m.read(o, "u32") & 255).call("umin", bits) for o in s.operands[2:])
    double = 2 * bits  # so that bits beyond the number are its sign, or 0
    wide = value.resized(double, signed=how == "ashr").binary(how, start.resized(double))
    away = (double - length).resized(double)
    none = length.equals(0)
    away = none.choose(0, away)
    wide = none.choose(0, (wide << away).binary(how, away))
    m.write(s.operands[0], wide.resized(bits), kind)


def _insert(m: Machine, s: Statement) -> None:
    """``bfi``: the low bits of one number in place of those of another."""
    need(m, s, 5)
    kind = kind_of(m, s)
    bits, double = bits_of(kind), 2 * bits_of(kind)
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    start, length = ((m.read(o, "u32") & 255).call("umin", bits).resized(double) for o in s.operands[3:])
    ones = (length.number(1) << length) - 1
    mask = (ones << start).resized(bits)
    inside = (a.resized(double) << start).resized(bits) & mask
    m.write(s.operands[0], inside | b & ~mask, kind)


def _dot4(m: Machine, s: Statement) -> None:
    """``dp4a``: four products of bytes, added to a number."""
    if len(s.operands) != 4 or len(s.opcode) != 3:
        raise m.refuse()
    a, b, total = m.inputs(s, "b32")
    for k in range(4):
        x, y = (
            (value >> 8 * k).resized(8).resized(32, signed=kind == "s32")
            for value, kind in zip((a, b), s.opcode[1:], strict=True)
        )
        total = total + x * y
    m.write(s.operands[0], total, "b32")


def _selp(m: Machine, s: Statement) -> None:
    need(m, s, 4)
    kind = kind_of(m, s)
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    m.write(s.operands[0], m.read(s.operands[3], "pred").choose(a, b), kind)


_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
            "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}  # fmt: skip


def compare_integers(m: Machine, how: str, a: Numbers, b: Numbers, kind: str) -> Numbers:
    """A predicate of two integers."""
    if how not in _COMPARE:
        raise m.refuse()
    plain = _COMPARE[how]
    return a.compare(plain if plain in ("eq", "ne") else _sign(kind) + plain, b)


INTEGER: dict[str, Instruction] = {
    "mov": _of_one_type(2, lambda m, s, kind, v: v[0]),
    **dict.fromkeys(("and", "or", "xor"), _of_one_type(3, lambda m, s, kind, v: v[0].binary(s.name, v[1]))),
    **dict.fromkeys(("not", "cnot"), _of_one_type(2, _complement)),
    **dict.fromkeys(("add", "sub"), _of_one_type(3, _add, "sat")),
    **dict.fromkeys(("min", "max"), _of_one_type(3, _extremum, "relu")),
    **dict.fromkeys(("div", "rem"), _of_one_type(3, lambda m, s, kind, v: divide(_sign(kind) + s.name, v[0], v[1]))),
    "abs": _of_one_type(2, lambda m, s, kind, v: abs(v[0])),
    "neg": _of_one_type(2, lambda m, s, kind, v: -v[0]),
    "brev": _of_one_type(2, lambda m, s, kind, v: v[0].call("bitreverse")),
    "sad": _of_one_type(4, lambda m, s, kind, v: distance(v[0], v[1], signed=_sign(kind) == "s") + v[2]),
    "prmt": _of_one_type(4, lambda m, s, kind, v: byte_perm(v)),
    **dict.fromkeys(("mul", "mad"), _product), **dict.fromkeys(("popc", "clz"), _count),
    **dict.fromkeys(("shl", "shr"), _shift), "shf": _funnel, "lop3": _lop3, "bfe": _field, "bfi": _insert,
    "dp4a": _dot4, "selp": _selp,
}  # fmt: skip


# ---- floats

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


def _float_extremum(m: Machine, s: Statement) -> None:
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


# ---- conversions of floats


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
    return _flushed(x, s, source).call(how).to_integer(f"i{bits_of(target)}", signed=target.startswith("s"))


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
    "mad": _arithmetic, "min": _float_extremum, "max": _float_extremum, "abs": _sign_bits, "neg": _sign_bits,
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
