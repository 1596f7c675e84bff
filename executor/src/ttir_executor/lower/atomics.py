"""What runs lane by lane, in order: atomics, prints, assertions. Programs run one after another, so a plain
read-modify-write is atomic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ttir_executor.lower import touch
from ttir_executor.lower.access import MAX_SYNCHRONISING, from_memory, memory_bytes, to_memory
from ttir_executor.lower.emit import Emitter
from ttir_executor.lower.nest import strips
from ttir_executor.lower.numbers import Numbers, round_to
from ttir_executor.lower.runtime import ACQUIRE, LOOKS, RELEASE, Kind
from ttir_executor.lower.strip import Uni, llvm_type, to_vec
from ttir_executor.ttir.ir import Op, Type, UnsupportedTTIR, Value, elem_bytes

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering, Printed

Update = Callable[[str, str, str], str]
"""(old value, first operand, second operand) to the new value"""


def sync_flags(op: Op) -> int:
    """Return what an atomic does to the order of programs: a sum of ``ACQUIRE`` and ``RELEASE``, or ``LOOKS``; 0 for
    other operations.

    An update whose old value is unused acquires nothing, because the value it met cannot have mattered. Large blocks of
    atomics do not order anything either: they accumulate, or hand out places. A relaxed look at one number orders
    nothing, and may be what a program waits with.
    """
    if op.name not in ("tt.atomic_rmw", "tt.atomic_cas") or op.operands[0].type.numel > MAX_SYNCHRONISING:
        return 0
    order = op.attrs.get("word1" if op.name == "tt.atomic_rmw" else "word0", "relaxed")
    used = any(result.uses for result in op.results)
    flags = ACQUIRE * (used and order in ("acquire", "acq_rel")) + RELEASE * (order in ("release", "acq_rel"))
    return flags or LOOKS * (used and op.operands[0].type.numel == 1)


def atomic_rmw(low: Lowering, op: Op) -> None:
    """``tt.atomic_rmw``: add, max, min, and, or, xor, exchange; the old values are its result."""
    kind = op.attrs["word0"]
    pointer, value = op.operands[0], op.operands[1]
    mask = op.operands[2] if len(op.operands) > 2 else None
    pointee = Type(pointer.type.pointee or "i32")

    def update(old: str, lane: str, _: str) -> str:
        return _combine(low, op, kind, old, lane, pointee)

    _atomic(low, op, pointer, [value], mask, pointee, update)


def atomic_cas(low: Lowering, op: Op) -> None:
    """``tt.atomic_cas``: write the new value where memory equals the expected one; bits are compared."""
    pointer, expected, new = op.operands
    pointee = Type(pointer.type.pointee or "i32")
    e = low.e

    def update(old: str, lane: str, second: str) -> str:
        reg = llvm_type(pointee)
        return _same_bits(e, old, lane, pointee).choose(Numbers(e, second, reg, 1), Numbers(e, old, reg, 1)).text

    _atomic(low, op, pointer, [expected, new], None, pointee, update)


def _atomic(
    low: Lowering, op: Op, pointer: Value, values: list[Value], mask: Value | None, pointee: Type, update: Update
) -> None:
    e = low.e
    size, reg = memory_bytes(pointer.type), llvm_type(pointee)
    site, known = low.site(op, pointer), low.entry_of(pointer)
    result = op.results[0] if op.results and op.results[0].uses else None
    block = pointer.type.shape is not None
    buffer = low.allocate_for(op.results[0]) if block and result is not None else None
    scalar_slot = "%lanes.data"
    with strips(low, pointer.type.shape or (), 1) as nest:
        address = to_vec(e, nest.eval(pointer), 1)
        lanes = [to_vec(e, nest.eval(v), 1) for v in values]
        active = to_vec(e, nest.eval(mask), 1) if mask is not None else "true"
        zero = low.zero(reg)
        test, go, done = e.new_label("atomic"), e.new_label("atomic_go"), e.new_label("atomic_done")
        before = e.label
        e.branch(active, test, done)
        e.start(test)
        entry = known.entry if known is not None else "null"
        allowed = e.call(
            "dk_atomic", "i1",
            ("ptr", "%ctx"), ("ptr", entry), ("i64", address), ("i64", str(size)), ("i64", str(site)),
        )  # fmt: skip
        e.branch(allowed, go, done, likely=True)
        e.start(go)
        if "steers" in op.attrs:  # in a data-free launch, memory is not where its address says
            place = touch.place(low, entry, address, size, site)
        else:
            place = e.cast("inttoptr", "i64", address, "ptr")
        old = from_memory(e, e.op(f"load i{8 * size}, ptr {place}"), pointee, 1)
        new = update(old, lanes[0], lanes[1] if len(lanes) > 1 else "")
        e.do(f"store i{8 * size} {to_memory(e, new, pointee, 1)}, ptr {place}")
        if low.checked and sync_flags(op):
            flags = str(sync_flags(op))
            if op.name == "tt.atomic_cas":  # one that fails changes nothing: it can only acquire
                same = _same_bits(e, old, lanes[0], pointee)
                flags = e.op(f"select i1 {same.text}, i64 {flags}, i64 {sync_flags(op) & ACQUIRE}")
            e.call("dk_sync", "void", ("ptr", "%ctx"), ("i64", address), ("i64", flags))
        go_end = e.label
        e.jump(done)
        e.start(done)
        seen = e.phi(reg, (zero, before), (zero, test), (old, go_end))
        if buffer is not None:
            nest.write(buffer, Uni(seen, reg))
        elif result is not None:
            e.do(f"store {'i8' if reg == 'i1' else reg} {seen}, ptr {scalar_slot}, align 64")
            low.env[result] = Uni(seen, reg)
    if buffer is not None and result is not None:
        low.env[result] = buffer


def _same_bits(e: Emitter, old: str, expected: str, pointee: Type) -> Numbers:
    ty = f"i{8 * elem_bytes(pointee.elem)}"
    left, right = (Numbers(e, to_memory(e, value, pointee, 1), ty, 1) for value in (old, expected))
    return left.equals(right)


def _combine(low: Lowering, op: Op, kind: str, old: str, lane: str, pointee: Type) -> str:
    before, given = (Numbers(low.e, text, llvm_type(pointee), 1) for text in (old, lane))
    if kind == "fadd":
        return round_to(before + given, pointee.elem).text
    if kind in ("exch", "xchg"):
        return lane
    if pointee.is_float and kind in ("and", "or", "xor"):
        if pointee.bits == 16:  # how the front end writes a descriptor's min and max
            return before.call("minnum" if kind == "and" else "maxnum", given).text
        bits = [one.as_bits_of(f"i{one.bits}") for one in (before, given)]
        return bits[0].binary(kind, bits[1]).as_bits_of(before.ty).text
    if kind in ("add", "and", "or", "xor"):
        return before.binary(kind, given).text
    if kind in ("max", "min", "umax", "umin") and not pointee.is_float:
        return before.call({"max": "smax", "min": "smin"}.get(kind, kind), given).text
    raise UnsupportedTTIR(f"atomic {kind} on {pointee.elem}", op.loc)


# ---- ``tl.device_assert`` and ``tl.device_print``


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
