"""A writer of LLVM IR text: names, labels, loops, constants, and the vector types of strips."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ttir_executor.ttir.ir import UnsupportedTTIR

MAX_LINES = 300_000
"""most instructions of one kernel; a longer one would take minutes to compile"""
WIDTH = 16
"""lanes of a strip: a block value is computed this many elements at a time"""


def vec(width: int, ty: str) -> str:
    """LLVM type of ``width`` lanes of ``ty``; a plain scalar for one lane."""
    return ty if width == 1 else f"<{width} x {ty}>"


def float_literal(value: float, ty: str) -> str:
    """An LLVM constant: ``value``, rounded to single precision for ``float``."""
    if ty == "float" and value == value and abs(value) < 3.4e38:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    if value != value and ty == "float":
        return "0x7FF8000000000000"
    return f"0x{bits:016X}"


def splat_literal(value: str, width: int, ty: str) -> str:
    """A constant vector with every lane ``value``."""
    if width == 1:
        return value
    if value in ("0", "0x0000000000000000", "false", "zeroinitializer"):
        return "zeroinitializer"
    return "<" + ", ".join([f"{ty} {value}"] * width) + ">"


def is_literal(value: str) -> bool:
    """Whether an operand is a constant rather than a register."""
    return not value.startswith("%")


@dataclass
class Loop:
    """An open counted loop: its variable and the values it carries."""

    var: str
    head: str
    carried: list[tuple[str, str, str, int]] = field(default_factory=list)
    """(register, type, initial value, index of the placeholder line)"""
    nexts: dict[str, str] = field(default_factory=dict)


class Emitter:
    """Lines of one LLVM function body. Registers are numbered; ``label`` is the block being written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declares: dict[str, str] = {}
        self.label = "entry"
        self._registers = 0
        self._labels = 0

    def fresh(self) -> str:
        """A new register name."""
        self._registers += 1
        return f"%v{self._registers}"

    def new_label(self, hint: str) -> str:
        """A new block label."""
        self._labels += 1
        return f"{hint}{self._labels}"

    def op(self, text: str) -> str:
        """Append ``%new = text`` and return the register."""
        register = self.fresh()
        self.lines.append(f"  {register} = {text}")
        if len(self.lines) > MAX_LINES:
            raise UnsupportedTTIR(f"a kernel of over {MAX_LINES} native instructions")
        return register

    def bin(self, op: str, ty: str, a: str, b: str) -> str:
        """A two-operand instruction (arithmetic or comparison)."""
        return self.op(f"{op} {ty} {a}, {b}")

    def cast(self, op: str, source: str, value: str, target: str) -> str:
        """A conversion instruction."""
        return self.op(f"{op} {source} {value} to {target}")

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {text}")

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        """Unconditional branch."""
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, *, likely: bool | None = None) -> None:
        """Conditional branch, with a weight where one side is expected."""
        weight = "" if likely is None else (", !prof !0" if likely else ", !prof !1")
        self.do(f"br i1 {condition}, label %{yes}, label %{no}{weight}")

    def phi(self, ty: str, *incoming: tuple[str, str]) -> str:
        """A phi of (value, label) pairs."""
        return self.op(f"phi {ty} " + ", ".join(f"[ {value}, %{label} ]" for value, label in incoming))

    def declare(self, name: str, result: str, *params: str) -> str:
        """Declare an external or intrinsic function once; returns its name."""
        self.declares[name] = f"declare {result} @{name}({', '.join(params)})"
        return name

    def call(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """Call with (type, value) arguments; declares the callee."""
        self.declare(name, result, *(ty for ty, _ in args))
        text = f"call {result} @{name}({', '.join(f'{ty} {value}' for ty, value in args)})"
        if result == "void":
            self.do(text)
            return ""
        return self.op(text)

    def call_defined(self, name: str, definition: str, result: str, *args: tuple[str, str]) -> str:
        """Call a function whose definition goes into the module, once."""
        self.declares[name] = definition
        return self.op(f"call {result} @{name}({', '.join(f'{ty} {value}' for ty, value in args)})")

    # ---- loops

    @contextmanager
    def loop(self, count: int, step: int = 1) -> Iterator[Loop]:
        """``for var in range(0, count, step)`` with ``count`` known and positive; a single trip makes no loop."""
        if count <= step:
            yield Loop("0", "")
            return
        before, head, after = self.label, self.new_label("loop"), self.new_label("done")
        self.jump(head)
        self.start(head)
        var = self.fresh()
        placeholder = len(self.lines)
        self.lines.append("")
        loop = Loop(var, head)
        loop.carried.append((var, "i32", "0", placeholder))
        yield loop
        following = self.op(f"add nuw nsw i32 {var}, {step}")
        loop.nexts[var] = following
        more = self.op(f"icmp ult i32 {following}, {count}")
        latch = self.label
        for register, ty, initial, line in loop.carried:
            self.lines[line] = f"  {register} = phi {ty} [ {initial}, %{before} ], [ {loop.nexts[register]}, %{latch} ]"
        self.branch(more, head, after)
        self.start(after)

    def carry(self, loop: Loop, ty: str, initial: str) -> str:
        """A value carried by an open loop; must be called before anything else is written in its body."""
        register = self.fresh()
        placeholder = len(self.lines)
        self.lines.append("")
        loop.carried.append((register, ty, initial, placeholder))
        return register

    # ---- vectors

    def splat(self, value: str, width: int, ty: str) -> str:
        """All lanes equal to a scalar."""
        if width == 1:
            return value
        if is_literal(value):
            return splat_literal(value, width, ty)
        first = self.op(f"insertelement {vec(width, ty)} poison, {ty} {value}, i64 0")
        return self.op(
            f"shufflevector {vec(width, ty)} {first}, {vec(width, ty)} poison, <{width} x i32> zeroinitializer"
        )

    def iota(self, width: int, ty: str, step: int = 1) -> str:
        """The constant vector 0, step, 2·step ..."""
        return "<" + ", ".join(f"{ty} {lane * step}" for lane in range(width)) + ">"
