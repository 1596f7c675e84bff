"""Reads the PTX of ``tl.inline_asm_elementwise``: statements, register declarations, and their number by unit."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ttir_executor.ttir.ir import UnsupportedTTIR

MAX_STATEMENTS = 2000
"""of one piece of assembly"""
_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_GUARD = re.compile(r"^@(!?)\s*(%?[\w$]+)\s+")
_REGISTER = re.compile(r"^\.reg\s+((?:\.v[24]\s+)?\.\w+)\s+(.*)$", re.DOTALL)
_NO_WORK = frozenset({"griddepcontrol", "membar", "fence", "bar", "barrier", "nanosleep", "pragma"})
"""orders threads or programs, or tells the scheduler something; programs here run to their end one after another"""
_SPECIAL = frozenset({"ex2", "lg2", "sin", "cos", "tanh", "rcp", "sqrt", "rsqrt"})


@dataclass(frozen=True)
class Statement:
    """One instruction: ``@guard opcode operands;``."""

    text: str
    opcode: tuple[str, ...]
    """its parts between dots"""
    operands: tuple[str, ...]
    guard: str = ""
    negated: bool = False

    @property
    def name(self) -> str:
        """The instruction without its modifiers."""
        return self.opcode[0]

    def has(self, modifier: str) -> bool:
        """Whether a modifier is there."""
        return modifier in self.opcode[1:]

    @property
    def no_work(self) -> bool:
        """Whether the instruction computes nothing."""
        return self.name in _NO_WORK


@dataclass(frozen=True)
class Assembly:
    """A piece of assembly."""

    statements: tuple[Statement, ...]
    registers: dict[str, str]
    """declared name -> PTX type without its dot"""


@lru_cache(maxsize=256)
def read_ptx(text: str) -> Assembly:
    """Parse PTX as inline assembly has it: ``$0`` are operands, ``$$`` is a dollar, ``%%`` a percent sign.

    Raises:
        UnsupportedTTIR: labels, directives and whatever else is not an instruction; holds the text.
    """
    plain = _COMMENTS.sub(" ", text).replace("$$", "$").replace("%%", "%")
    registers: dict[str, str] = {}
    statements: list[Statement] = []
    for part in _split(plain):
        declared = _REGISTER.match(part)
        if declared is not None:
            registers.update(_declared(declared.group(1).strip(". "), declared.group(2), text))
        elif part.startswith(".pragma"):
            continue
        else:
            statements.append(_statement(part, text))
        if len(statements) > MAX_STATEMENTS or len(registers) > MAX_STATEMENTS:
            raise UnsupportedTTIR(f"inline assembly of over {MAX_STATEMENTS} statements")
    return Assembly(tuple(statements), registers)


def _split(text: str) -> list[str]:
    """Statements; braces that open or close a scope are dropped, those of vector operands stay."""
    parts, current, inside = [], "", False
    for character in text:
        if character == "{" and current.strip():
            inside = True
        elif character == "{" or (character == "}" and not inside):
            continue
        elif character == "}":
            inside = False
        elif character == ";" and not inside:
            parts.append(" ".join(current.split()))
            current = ""
            continue
        current += character
    parts.append(" ".join(current.split()))
    return [part for part in parts if part]


def _declared(kind: str, names: str, text: str) -> dict[str, str]:
    """``%r<3>, p`` -> the registers %r0, %r1, %r2 and p."""
    found = {}
    for name in (part.strip() for part in names.split(",")):
        numbered = re.fullmatch(r"(%?[\w$]+)<(\d{1,3})>", name)
        if numbered is not None:
            found.update({f"{numbered.group(1)}{k}": kind for k in range(int(numbered.group(2)))})
        elif re.fullmatch(r"%?[\w$]+", name):
            found[name] = kind
        else:
            raise UnsupportedTTIR(f"the register declaration {name!r} in the inline assembly {shown(text)}")
    return found


def _statement(part: str, text: str) -> Statement:
    guard = _GUARD.match(part)
    body = part[guard.end() :] if guard is not None else part
    opcode, _, rest = body.partition(" ")
    if not re.fullmatch(r"[a-z][\w]*(?:(?:\.|::)\w+)*", opcode):
        raise UnsupportedTTIR(f"the inline assembly {shown(text)}, at {shown(part)}")
    operands = tuple(operand.strip() for operand in re.split(r",(?![^{]*\})", rest) if operand.strip())
    return Statement(
        part,
        tuple(opcode.split(".")),
        operands,
        guard.group(2) if guard is not None else "",
        guard is not None and guard.group(1) == "!",
    )


def shown(text: str) -> str:
    """The text on one line, for messages."""
    line = " ".join(text.split())
    return repr(line if len(line) <= 400 else line[:400] + " ...")


def counts_of(statement: Statement) -> dict[str, float]:
    """The instructions of a statement by unit, where it is one of the machine's, or two for a pair of numbers."""
    types = statement.opcode[1:]
    if statement.name in _SPECIAL or (statement.name == "div" and any(t.startswith("f") for t in types)):
        return {"sfu": 2 if any(t.endswith("x2") for t in types) else 1}
    if statement.name == "cvt":
        return {"sfu" if "f64" in types else "int": 1}
    if statement.name in ("div", "rem"):
        return {"int": 28}
    for name, unit in (("f64", "fp64"), ("f32", "fp32"), ("f16", "fp16"), ("bf16", "bf16")):
        if name in types or f"{name}x2" in types:
            return {unit: 2 if f"{name}x2" in types else 1}
    return {"int": 2 if any(t.endswith("64") for t in types) else 1}


def operations(text: str, counted: Callable[[Statement], dict[str, float]] = counts_of) -> Counter[str]:
    """Instructions of one execution by the unit that runs them: ``sfu``, ``fp64``, ``fp32``, ``fp16``, ``bf16`` or
    ``int``. ``counted`` gives those of a statement."""
    found: Counter[str] = Counter()
    for statement in read_ptx(text).statements:
        if not statement.no_work:
            found.update(counted(statement))  # type: ignore[arg-type]
    return found
