"""``tl.inline_asm_elementwise``: packs elements into registers as Triton does, and runs the PTX on them.

``pack`` neighbouring elements go into as few registers of at most 32 bits as hold them, operand by operand; results
come back in the same way. Which elements are neighbours is left open by Triton (it depends on the layout): here they
are neighbours in row-major order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ttir_executor.lower.emit import Emitter, vec
from ttir_executor.lower.nest import strips
from ttir_executor.lower.numbers import Numbers, from_bits, to_bits
from ttir_executor.lower.ptx import Machine, bits_of, execute
from ttir_executor.lower.runtime import Ctx
from ttir_executor.lower.strip import Uni, Vec, llvm_type, to_vec
from ttir_executor.ttir.ir import FLOAT_BITS, Op, Type, UnsupportedTTIR
from ttir_executor.ttir.ptx import read_ptx, shown

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering

_CONSTRAINT = {"r": 32, "f": 32, "h": 16, "l": 64, "d": 64, "b": 1, "c": 8}
"""register class -> bits"""


def inline_asm(low: Lowering, op: Op) -> None:
    """Lower the operation: results go to scratch memory, or are scalars."""
    shape = op.results[0].type.shape
    if shape is None:
        values = _run(low, op, [low.scalar(v) for v in op.operands], 1)
        for result, value in zip(op.results, values, strict=True):
            low.env[result] = Uni(value, llvm_type(result.type))
        return
    outputs = [low.allocate_for(result) for result in op.results]
    with strips(low, shape) as nest:
        lanes = [to_vec(low.e, nest.eval(v), nest.width) for v in op.operands]
        for buffer, value in zip(outputs, _run(low, op, lanes, nest.width), strict=True):
            kind = Uni if nest.width == 1 else Vec
            nest.write(buffer, kind(value, llvm_type(buffer.type)))
    for result, buffer in zip(op.results, outputs, strict=True):
        low.env[result] = buffer


def _run(low: Lowering, op: Op, operands: list[str], width: int) -> list[str]:
    """The results' lanes, of operands' lanes."""
    e, pack = low.e, int(op.attrs["pack"])
    groups = max(1, width // pack)
    classes, ties = _constraints(op)
    machine = Machine(e, groups, op.attrs["asm"], op.loc, lambda name: _special(low, name))
    assembly = read_ptx(op.attrs["asm"])
    for name, kind in assembly.registers.items():
        try:
            bits = bits_of(kind.rpartition(".")[2].strip())
        except KeyError:
            raise UnsupportedTTIR(f"registers of type {kind} in the inline assembly {shown(op.attrs['asm'])}") from None
        machine.values[name] = machine.number(0, bits)
    outputs = [pack // _per_register(v.type, pack) for v in op.results]
    packed = [
        text
        for value, lanes in zip(op.operands, operands, strict=True)
        for text in _pack(e, _bits(e, lanes, value.type, width), value.type, pack, width)
    ]
    if len(classes) != sum(outputs) + len(packed):
        raise UnsupportedTTIR(
            f"{len(classes)} constraints for {sum(outputs)} results and {len(packed)} operands", op.loc
        )
    for k, bits in enumerate(classes):
        machine.values[f"${k}"] = machine.number(0, bits)
    for k, (text, held) in enumerate(zip(packed, _operand_bits(op, pack), strict=True), start=sum(outputs)):
        if held > classes[k]:
            raise UnsupportedTTIR(f"an operand of {held} bits in a register of {classes[k]}", op.loc)
        machine.values[f"${k}"] = Numbers(e, text, f"i{held}", groups).resized(classes[k])
        if k in ties:
            machine.values[f"${ties[k]}"] = machine.values[f"${k}"]
    for statement in assembly.statements:
        execute(machine, statement)
    results, first = [], 0
    for value, count in zip(op.results, outputs, strict=True):
        registers = [machine.values[f"${first + k}"] for k in range(count)]
        results.append(_unpack(e, machine, registers, value.type, pack, width))
        first += count
    return results


def _constraints(op: Op) -> tuple[list[int], dict[int, int]]:
    """Bits of each register, and which operand shares a result's register."""
    classes: list[int] = []
    ties: dict[int, int] = {}
    for part in (part.strip() for part in op.attrs["constraints"].split(",")):
        if part.startswith("~"):
            continue
        letter = part.lstrip("=&+")
        if re.fullmatch(r"\d+", letter) and int(letter) < len(classes):
            ties[len(classes)] = int(letter)
            classes.append(classes[int(letter)])
        elif letter in _CONSTRAINT:
            classes.append(_CONSTRAINT[letter])
        else:
            raise UnsupportedTTIR(f"the constraint {part!r} of inline assembly", op.loc)
    return classes, ties


def _element_bits(type_: Type) -> int:
    return FLOAT_BITS[type_.elem] if type_.is_float else type_.bits


def _per_register(type_: Type, pack: int) -> int:
    """Elements that share a register of 32 bits."""
    bits = _element_bits(type_)
    if bits == 1 and pack > 1:
        raise UnsupportedTTIR("inline assembly on several truth values at a time")
    return min(max(1, 32 // bits), pack)


def _operand_bits(op: Op, pack: int) -> list[int]:
    """Bits in each register of the operands."""
    return [
        _element_bits(value.type) * _per_register(value.type, pack)
        for value in op.operands
        for _ in range(pack // _per_register(value.type, pack))
    ]


def _bits(e: Emitter, text: str, type_: Type, width: int) -> str:
    return to_bits(Numbers(e, text, llvm_type(type_), width), type_.elem).text if type_.is_float else text


def _shuffled(e: Emitter, first: str, second: str, width: int, lanes: list[int], ty: str) -> str:
    """Lanes of two vectors of ``width`` (which may be one) lanes, counted through both."""
    if width == 1:
        first, second = (e.op(f"insertelement <1 x {ty}> poison, {ty} {text}, i64 0") for text in (first, second))
    source = f"<{width} x {ty}>"
    if len(lanes) == 1:
        chosen = first if lanes[0] < width else second
        return e.op(f"extractelement {source} {chosen}, i64 {lanes[0] % width}")
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return e.op(f"shufflevector {source} {first}, {source} {second}, <{len(lanes)} x i32> <{mask}>")


def _pack(e: Emitter, text: str, type_: Type, pack: int, width: int) -> list[str]:
    """Registers of elements: lane g of register r holds elements g*pack + r*per ... of the strip."""
    bits, per = _element_bits(type_), _per_register(type_, pack)
    if pack == 1:
        return [text]
    groups, ty = max(1, width // pack), f"i{bits}"
    wide = vec(groups, f"i{bits * per}")
    registers = []
    for register in range(pack // per):
        total = ""
        for k in range(per):
            lanes = [(group * pack + register * per + k) % width for group in range(groups)]
            piece = text if width == 1 else _shuffled(e, text, text, width, lanes, ty)
            if per > 1:
                placed = Numbers(e, piece, ty, groups).resized(bits * per)
                piece = (placed << k * bits if k else placed).text
            total = e.bin("or", wide, total, piece) if total else piece
        registers.append(total)
    return registers


def _unpack(e: Emitter, m: Machine, registers: list[Numbers], type_: Type, pack: int, width: int) -> str:
    """The lanes of a result, from its registers."""
    bits, per = _element_bits(type_), _per_register(type_, pack)
    pieces = []
    for known in registers:
        if known.bits < bits * per:
            raise UnsupportedTTIR(f"a result of {bits * per} bits in a register of {known.bits}")
        pieces += [(known >> k * bits if k else known).resized(bits).text for k in range(per)]
    lanes, held, ty = pieces, m.width, f"i{bits}"
    while len(lanes) > 1:  # side by side: all groups of element 0, of element 1, ...
        lanes = [
            _shuffled(e, a, b, held, list(range(2 * held)), ty) for a, b in zip(lanes[::2], lanes[1::2], strict=True)
        ]
        held *= 2
    text = lanes[0]
    if pack > 1:
        order = [(at % pack) * m.width + at // pack for at in range(width)]
        text = _shuffled(e, text, text, held, order, ty)
    return from_bits(Numbers(e, text, ty, width), type_.elem).text if type_.is_float else text


# ---- special registers


def _special(low: Lowering, name: str) -> str | None:
    """A special register as a 64-bit scalar; None for one that differs between threads, or that is unknown."""
    e = low.e
    place = re.fullmatch(r"%(n?)ctaid\.([xyz])", name)
    if place is not None:
        return f"%grid.{place.group(2)}" if place.group(1) else e.cast("zext", "i32", f"%pid.{place.group(2)}", "i64")
    if name in ("%smid", "%nsmid"):
        known = low.context("processors", Ctx.PROCESSORS)
        count = e.call("llvm.umax.i64", "i64", ("i64", known), ("i64", "1"))
        return count if name == "%nsmid" else e.bin("urem", "i64", e.op("load i64, ptr %program.slot"), count)
    if name in ("%globaltimer", "%globaltimer_lo", "%clock", "%clock64"):
        slot = e.op(f"getelementptr i64, ptr %ctx, i64 {Ctx.CLOCK}")
        now = e.bin("add", "i64", e.op(f"load i64, ptr {slot}"), str(CLOCK_STEP))
        e.do(f"store i64 {now}, ptr {slot}")
        return now
    return None


CLOCK_STEP = 32
"""what a clock advances by at each look: programs have no time of their own, only an order"""
CLOCKS = ("%globaltimer", "%clock")
"""special registers, by prefix, whose values depend on the order of programs"""
