"""``tl.device_print`` and ``tl.device_assert``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttir_executor.lower.nest import strips
from ttir_executor.lower.runtime import Kind
from ttir_executor.lower.strip import llvm_type, to_vec
from ttir_executor.ttir.ir import Op, Type

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering, Printed


def device_assert(low: Lowering, op: Op) -> None:
    """A finding for every strip in which an element is false."""
    site = low.site(op, None, message=op.attrs.get("text", ""))
    e = low.e
    condition = op.operands[0]
    with strips(low, condition.type.shape or ()) as nest:
        text = to_vec(e, nest.eval(condition), nest.width)
        if nest.width > 1:
            bits = e.cast("bitcast", f"<{nest.width} x i1>", text, f"i{nest.width}")
            text = e.bin("icmp eq", f"i{nest.width}", bits, "-1")
        low.note_unless(text, Kind.ASSERT, site)


def device_print(low: Lowering, op: Op) -> None:
    """Every element of every operand, as a number; the text in front is what Triton prints."""
    e = low.e
    prefix = op.attrs.get("text", "")
    if not op.operands:
        site = low.site(op, None, message=prefix, shape=None)
        e.call("dk_print", "void", ("ptr", "%ctx"), ("i64", str(site)), ("i64", "0"), ("i64", "0"))
    signs = op.attrs.get("signed", "").split(",")
    for position, operand in enumerate(op.operands):
        text = prefix + (f"(operand {position}) " if len(op.operands) > 1 else "")
        ty = llvm_type(operand.type)
        signed = position >= len(signs) or signs[position].strip() != "0"
        printed = _printed(operand.type, signed, bool(op.attrs.get("hex")))
        bits = int(ty[1:]) if ty.startswith("i") else 64
        site = low.site(op, None, message=text, shape=operand.type.shape or (), printed=printed, bits=bits)
        with strips(low, operand.type.shape or (), 1) as nest:
            value = to_vec(e, nest.eval(operand), 1)
            if printed == "float":
                value = e.cast("fpext", ty, value, "double") if ty != "double" else value
                value = e.cast("bitcast", "double", value, "i64")
            elif bits < 64:
                value = e.cast("sext" if printed == "signed" else "zext", ty, value, "i64")
            flat = to_vec(e, nest.flat, 1)
            wide = e.cast("zext", "i32", flat, "i64") if flat.startswith("%") else flat
            e.call("dk_print", "void", ("ptr", "%ctx"), ("i64", str(site)), ("i64", wide), ("i64", value))


def _printed(type_: Type, signed: bool, as_hex: bool) -> Printed:
    if type_.elem == "ptr":
        return "pointer"
    if type_.is_float:
        return "float"
    return "hex" if as_hex else "signed" if signed else "unsigned"
