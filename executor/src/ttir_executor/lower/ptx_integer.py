"""PTX instructions on integers, predicates and bits.

PTX registers as LLVM vectors of integers: reading operands, writing results, and what instructions are told.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ttir_executor.lower.elementwise import divide, shift
from ttir_executor.lower.emit import Emitter
from ttir_executor.lower.libdevice import byte_perm, distance
from ttir_executor.lower.numbers import Numbers, constant
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
