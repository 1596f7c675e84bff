"""PTX registers as LLVM vectors of integers: reading operands, writing results, and what instructions are told."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ttir_executor.lower.emit import Emitter, vec
from ttir_executor.lower.rounding import constant
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
