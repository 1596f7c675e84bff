"""PTX instructions on integers, predicates and bits.

PTX registers as LLVM vectors of integers: reading operands, writing results, and what instructions are told.
"""

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ttir_executor.lower.elementwise import divide
from ttir_executor.lower.emit import Emitter, vec
from ttir_executor.lower.libdevice import byte_perm
from ttir_executor.lower.rounding import constant, suffix
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
    values: dict[str, tuple[int, str]] = field(default_factory=dict)
    """name -> (bits, LLVM value)"""
    statement: Statement | None = None

    # ---- types and constants

    def ints(self, bits: int) -> str:
        """LLVM type of a register of ``bits``."""
        return vec(self.width, f"i{bits}")

    @property
    def floats(self) -> str:
        """LLVM type of fp32 lanes."""
        return vec(self.width, "float")

    def lanes(self, ty: str) -> str:
        """LLVM type of ``float`` or ``double`` lanes."""
        return vec(self.width, ty)

    @property
    def flag(self) -> str:
        """LLVM type of predicates."""
        return vec(self.width, "i1")

    def number(self, value: int, bits: int) -> str:
        """A constant in every lane."""
        value &= (1 << bits) - 1
        if bits == 1:
            return constant_flag(bool(value), self.width)
        return constant(value, self.width, f"i{bits}")

    def real(self, value: float, ty: str = "float") -> str:
        """A floating constant in every lane."""
        return constant(value, self.width, ty)

    def refuse(self) -> UnsupportedTTIR:
        """The error for what the reader does not know."""
        part = self.statement.text if self.statement is not None else ""
        return UnsupportedTTIR(f"the instruction {shown(part)} of the inline assembly {shown(self.text)}", self.loc)

    # ---- conversions of integers

    def resize(self, value: str, source: int, target: int, *, signed: bool = False) -> str:
        """Truncate, or extend by zeros or the sign."""
        if source == target:
            return value
        how = "trunc" if target < source else "sext" if signed else "zext"
        return self.e.cast(how, self.ints(source), value, self.ints(target))

    def select(self, condition: str, yes: str, no: str, ty: str) -> str:
        """Lanes of one or the other."""
        return self.e.op(f"select {self.flag} {condition}, {ty} {yes}, {ty} {no}")

    def not_(self, flag: str) -> str:
        """The other truth values."""
        return self.e.bin("xor", self.flag, flag, constant_flag(True, self.width))

    # ---- operands

    def read(self, operand: str, kind: str) -> str:
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
            wide = self.e.splat(found, self.width, "i64")
            return self.resize(wide, 64, bits)
        if known[0] != bits and (known[0] < bits or self.statement is None or self.statement.name != "cvt"):
            raise self.refuse()
        value = self.resize(known[1], known[0], bits)
        return self.not_(value) if negated and bits == 1 else value

    def _joined(self, operand: str, bits: int) -> str:
        """``{low, ..., high}`` as one integer."""
        parts = [part.strip() for part in operand.strip("{} ").split(",")]
        each = bits // max(1, len(parts))
        if each * len(parts) != bits or each < 8:
            raise self.refuse()
        total = self.number(0, bits)
        for k, part in enumerate(parts):
            piece = self.resize(self.read(part, f"b{each}"), each, bits)
            shifted = self.e.bin("shl", self.ints(bits), piece, self.number(k * each, bits))
            total = self.e.bin("or", self.ints(bits), total, shifted)
        return total

    def write(self, operand: str, value: str, kind: str) -> None:
        """Set a register, or the parts of ``{low, ..., high}``; where a guard is off, it keeps what it had."""
        bits = bits_of(kind)
        if operand.startswith("{"):
            parts = [part.strip() for part in operand.strip("{} ").split(",")]
            each = bits // max(1, len(parts))
            if each * len(parts) != bits or each < 8:
                raise self.refuse()
            for k, part in enumerate(parts):
                shifted = self.e.bin("lshr", self.ints(bits), value, self.number(k * each, bits))
                self.write(part, self.resize(shifted, bits, each), f"b{each}")
            return
        if operand == "_":
            return
        known = self.values.get(operand)
        if known is None or known[0] < bits:
            raise self.refuse()
        wide = self.resize(value, bits, known[0], signed=kind.startswith("s"))
        guard = self.statement.guard if self.statement is not None else ""
        if guard:
            condition = self.read(guard, "pred")
            if self.statement is not None and self.statement.negated:
                condition = self.not_(condition)
            wide = self.select(condition, wide, known[1], self.ints(known[0]))
        self.values[operand] = (known[0], wide)

    def apply(self, s: Statement, kind: str, of: Callable[[list[str], str], str]) -> None:
        """Apply ``of(bits, type)`` to the operands after the first, for a packed type to both halves; and write it."""
        values = [self.read(operand, kind) for operand in s.operands[1:]]
        if not kind.endswith("x2"):
            self.write(s.operands[0], of(values, kind), kind)
            return
        each, total = kind.removesuffix("x2"), self.number(0, 32)
        for k in range(2):
            shift = self.number(16 * k, 32)
            parts = [self.resize(self.e.bin("lshr", self.ints(32), v, shift), 32, 16) for v in values]
            piece = self.e.bin("shl", self.ints(32), self.resize(of(parts, each), 16, 32), shift)
            total = self.e.bin("or", self.ints(32), total, piece)
        self.write(s.operands[0], total, kind)


def constant_flag(value: bool, width: int) -> str:
    """The same truth value in every lane."""
    text = "true" if value else "false"
    return text if width == 1 else "<" + ", ".join([f"i1 {text}"] * width) + ">"


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


def _intrinsic(m: Machine, name: str, bits: int, *values: str) -> str:
    ty = m.ints(bits)
    return m.e.call(f"llvm.{name}.{suffix(m.width, f'i{bits}')}", ty, *((ty, value) for value in values))


def _mov(m: Machine, s: Statement) -> None:
    need(m, s, 2)
    kind = kind_of(m, s)
    m.write(s.operands[0], m.read(s.operands[1], kind), kind)


_PLAIN = {"and": "and", "or": "or", "xor": "xor"}


def _logic(m: Machine, s: Statement) -> None:
    need(m, s, 3)
    kind = kind_of(m, s)
    a, b = (m.read(operand, kind) for operand in s.operands[1:])
    m.write(s.operands[0], m.e.bin(_PLAIN[s.name], m.ints(bits_of(kind)), a, b), kind)


def _not(m: Machine, s: Statement) -> None:
    need(m, s, 2)
    kind = kind_of(m, s)
    bits = bits_of(kind)
    value = m.read(s.operands[1], kind)
    if s.name == "cnot":
        zero = m.e.bin("icmp eq", m.ints(bits), value, m.number(0, bits))
        m.write(s.operands[0], m.resize(zero, 1, bits), kind)
    else:
        m.write(s.operands[0], m.e.bin("xor", m.ints(bits), value, m.number(-1, bits)), kind)


def _add(m: Machine, s: Statement) -> None:
    need(m, s, 3, "sat")
    kind = kind_of(m, s)
    if s.has("sat") and kind != "s32":
        raise m.refuse()

    def of(values: list[str], each: str) -> str:
        if s.has("sat"):
            return _intrinsic(m, f"s{s.name}.sat", 32, *values)
        return m.e.bin(s.name, m.ints(bits_of(each)), *values)

    m.apply(s, kind, of)


def _extremum(m: Machine, s: Statement) -> None:
    need(m, s, 3, "relu")
    kind = kind_of(m, s)

    def of(values: list[str], each: str) -> str:
        found = _intrinsic(m, f"{'s' if each.startswith('s') else 'u'}{s.name}", bits_of(each), *values)
        return _intrinsic(m, "smax", bits_of(each), found, m.number(0, bits_of(each))) if s.has("relu") else found

    if s.has("relu") and not kind.startswith("s"):
        raise m.refuse()
    m.apply(s, kind, of)


def _product(m: Machine, s: Statement) -> None:
    """``mul`` and ``mad``: the low or high half of the product, or all of it."""
    adds = s.name == "mad"
    need(m, s, 4 if adds else 3, "lo", "hi", "wide")
    kind = kind_of(m, s)
    bits, signed = bits_of(kind), kind.startswith("s")
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    wide = m.ints(2 * bits)
    product = m.e.bin(
        "mul", wide, m.resize(a, bits, 2 * bits, signed=signed), m.resize(b, bits, 2 * bits, signed=signed)
    )
    out = kind
    if s.has("wide"):
        if bits > 32:
            raise m.refuse()
        out = f"{kind[0]}{2 * bits}"
        value = product
    elif s.has("hi"):
        value = m.resize(m.e.bin("lshr", wide, product, m.number(bits, 2 * bits)), 2 * bits, bits)
    elif s.has("lo"):
        value = m.resize(product, 2 * bits, bits)
    else:
        raise m.refuse()
    if adds:
        value = m.e.bin("add", m.ints(bits_of(out)), value, m.read(s.operands[3], out))
    m.write(s.operands[0], value, out)


def _division(m: Machine, s: Statement) -> None:
    need(m, s, 3)
    kind = kind_of(m, s)
    name = ("s" if kind.startswith("s") else "u") + s.name
    values = [m.read(operand, kind) for operand in s.operands[1:]]
    m.write(s.operands[0], divide(m.e, name, values, f"i{bits_of(kind)}", m.width), kind)


def _one_operand(m: Machine, s: Statement) -> None:
    """``abs neg popc clz brev``."""
    need(m, s, 2)
    kind = kind_of(m, s)
    bits = bits_of(kind)
    value = m.read(s.operands[1], kind)
    if s.name in ("popc", "clz"):
        flag = () if s.name == "popc" else (("i1", "false"),)
        name = f"llvm.{'ctpop' if s.name == 'popc' else 'ctlz'}.{suffix(m.width, f'i{bits}')}"
        count = m.e.call(name, m.ints(bits), (m.ints(bits), value), *flag)
        m.write(s.operands[0], m.resize(count, bits, 32), "u32")
        return
    if s.name == "brev":
        m.write(s.operands[0], _intrinsic(m, "bitreverse", bits, value), kind)
        return
    negative = m.e.bin("sub", m.ints(bits), m.number(0, bits), value)
    if s.name == "abs":
        below = m.e.bin("icmp slt", m.ints(bits), value, m.number(0, bits))
        negative = m.select(below, negative, value, m.ints(bits))
    m.write(s.operands[0], negative, kind)


def _shift(m: Machine, s: Statement) -> None:
    """``shl`` and ``shr``: by 32 bits or more gives 0, or the sign."""
    need(m, s, 3)
    kind = kind_of(m, s)
    bits = bits_of(kind)
    value, amount = m.read(s.operands[1], kind), m.read(s.operands[2], "u32")
    over = m.e.bin("icmp uge", m.ints(32), amount, m.number(bits, 32))
    bounded = m.resize(m.select(over, m.number(bits - 1, 32), amount, m.ints(32)), 32, bits)
    how = "shl" if s.name == "shl" else "ashr" if kind.startswith("s") else "lshr"
    shifted = m.e.bin(how, m.ints(bits), value, bounded)
    if how != "ashr":
        shifted = m.select(over, m.number(0, bits), shifted, m.ints(bits))
    m.write(s.operands[0], shifted, kind)


def _funnel(m: Machine, s: Statement) -> None:
    """``shf``: 32 bits of {b, a} shifted left or right."""
    need(m, s, 4, "l", "r", "wrap", "clamp")
    a, b, amount = (m.read(operand, "b32") for operand in s.operands[1:])
    wide = m.ints(64)
    both = m.e.bin("shl", wide, m.resize(b, 32, 64), m.number(32, 64))
    both = m.e.bin("or", wide, both, m.resize(a, 32, 64))
    if s.has("wrap"):
        amount = m.e.bin("and", m.ints(32), amount, m.number(31, 32))
    else:
        amount = _intrinsic(m, "umin", 32, amount, m.number(32, 32))
    amount = m.resize(amount, 32, 64)
    if s.has("l"):
        both = m.e.bin("lshr", wide, m.e.bin("shl", wide, both, amount), m.number(32, 64))
    else:
        both = m.e.bin("lshr", wide, both, amount)
    m.write(s.operands[0], m.resize(both, 64, 32), "b32")


def _lop3(m: Machine, s: Statement) -> None:
    """Any function of three bits, by its table of eight."""
    need(m, s, 5)
    a, b, c = (m.read(operand, "b32") for operand in s.operands[1:4])
    try:
        table = int(s.operands[4], 0)
    except ValueError:
        raise m.refuse() from None
    ty = m.ints(32)
    inverse = [m.e.bin("xor", ty, value, m.number(-1, 32)) for value in (a, b, c)]
    total = m.number(0, 32)
    for row in range(8):
        if table >> row & 1:
            x, y, z = ((a, b, c)[k] if row >> (2 - k) & 1 else inverse[k] for k in range(3))
            total = m.e.bin("or", ty, total, m.e.bin("and", ty, m.e.bin("and", ty, x, y), z))
    m.write(s.operands[0], total, "b32")


def _prmt(m: Machine, s: Statement) -> None:
    need(m, s, 4)
    values = [m.read(operand, "b32") for operand in s.operands[1:]]
    m.write(s.operands[0], byte_perm(m.e, values, m.width), "b32")


def _field(m: Machine, s: Statement) -> None:
    """``bfe``: bits [start, start + length) of a number, with its sign where it has one."""
    need(m, s, 4)
    kind = kind_of(m, s)
    bits, signed = bits_of(kind), kind.startswith("s")
    value = m.read(s.operands[1], kind)
    start, length = (m.e.bin("and", m.ints(32), m.read(o, "u32"), m.number(255, 32)) for o in s.operands[2:])
    double = 2 * bits  # so that bits beyond the number are its sign, or 0
    wide = m.resize(value, bits, double, signed=signed)
    beyond = _intrinsic(m, "umin", 32, start, m.number(bits, 32))
    wide = m.e.bin("ashr" if signed else "lshr", m.ints(double), wide, m.resize(beyond, 32, double))
    kept = _intrinsic(m, "umin", 32, length, m.number(bits, 32))
    away = m.resize(m.e.bin("sub", m.ints(32), m.number(double, 32), kept), 32, double)
    none = m.e.bin("icmp eq", m.ints(32), kept, m.number(0, 32))
    away = m.select(none, m.number(0, double), away, m.ints(double))
    wide = m.e.bin("shl", m.ints(double), wide, away)
    wide = m.e.bin("ashr" if signed else "lshr", m.ints(double), wide, away)
    wide = m.select(none, m.number(0, double), wide, m.ints(double))
    m.write(s.operands[0], m.resize(wide, double, bits), kind)


def _insert(m: Machine, s: Statement) -> None:
    """``bfi``: the low bits of one number in place of those of another."""
    need(m, s, 5)
    kind = kind_of(m, s)
    bits = bits_of(kind)
    ty, double = m.ints(bits), 2 * bits
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    start, length = (m.e.bin("and", m.ints(32), m.read(o, "u32"), m.number(255, 32)) for o in s.operands[3:])
    start, length = (_intrinsic(m, "umin", 32, v, m.number(bits, 32)) for v in (start, length))
    one = m.number(1, double)
    ones = m.e.bin("sub", m.ints(double), m.e.bin("shl", m.ints(double), one, m.resize(length, 32, double)), one)
    mask = m.resize(m.e.bin("shl", m.ints(double), ones, m.resize(start, 32, double)), double, bits)
    moved = m.e.bin("shl", m.ints(double), m.resize(a, bits, double), m.resize(start, 32, double))
    inside = m.e.bin("and", ty, m.resize(moved, double, bits), mask)
    outside = m.e.bin("and", ty, b, m.e.bin("xor", ty, mask, m.number(-1, bits)))
    m.write(s.operands[0], m.e.bin("or", ty, inside, outside), kind)


def _dot4(m: Machine, s: Statement) -> None:
    """``dp4a``: four products of bytes, added to a number."""
    if len(s.operands) != 4 or len(s.opcode) != 3:
        raise m.refuse()
    a, b = (m.read(operand, "b32") for operand in s.operands[1:3])
    total = m.read(s.operands[3], "b32")
    for k in range(4):
        bytes_ = []
        for value, kind in zip((a, b), s.opcode[1:], strict=True):
            part = m.resize(m.e.bin("lshr", m.ints(32), value, m.number(8 * k, 32)), 32, 8)
            bytes_.append(m.resize(part, 8, 32, signed=kind == "s32"))
        total = m.e.bin("add", m.ints(32), total, m.e.bin("mul", m.ints(32), *bytes_))
    m.write(s.operands[0], total, "b32")


def _sad(m: Machine, s: Statement) -> None:
    need(m, s, 4)
    kind = kind_of(m, s)
    bits, sign = bits_of(kind), "s" if kind.startswith("s") else "u"
    a, b, c = (m.read(operand, kind) for operand in s.operands[1:])
    gap = m.e.bin("sub", m.ints(bits), _intrinsic(m, f"{sign}max", bits, a, b), _intrinsic(m, f"{sign}min", bits, a, b))
    m.write(s.operands[0], m.e.bin("add", m.ints(bits), gap, c), kind)


def _selp(m: Machine, s: Statement) -> None:
    need(m, s, 4)
    kind = kind_of(m, s)
    a, b = (m.read(operand, kind) for operand in s.operands[1:3])
    m.write(s.operands[0], m.select(m.read(s.operands[3], "pred"), a, b, m.ints(bits_of(kind))), kind)


_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
            "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}  # fmt: skip


def compare_integers(m: Machine, how: str, a: str, b: str, kind: str) -> str:
    """A predicate of two integers."""
    if how not in _COMPARE:
        raise m.refuse()
    plain = _COMPARE[how]
    sign = "" if plain in ("eq", "ne") else "s" if kind.startswith("s") else "u"
    return m.e.bin(f"icmp {sign}{plain}", m.ints(bits_of(kind)), a, b)


INTEGER: dict[str, Instruction] = {
    "mov": _mov, "and": _logic, "or": _logic, "xor": _logic, "not": _not, "cnot": _not, "add": _add, "sub": _add,
    "min": _extremum, "max": _extremum, "mul": _product, "mad": _product, "div": _division, "rem": _division,
    "abs": _one_operand, "neg": _one_operand, "popc": _one_operand, "clz": _one_operand, "brev": _one_operand,
    "shl": _shift, "shr": _shift, "shf": _funnel, "lop3": _lop3, "prmt": _prmt, "bfe": _field, "bfi": _insert,
    "dp4a": _dot4, "sad": _sad, "selp": _selp,
}  # fmt: skip
