"""Loads, stores and atomics: a short checked fast path inline, everything else in the runtime helpers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drkernel.sim.lower.emit import Emitter, vec
from drkernel.sim.lower.nest import Index, Nest, strips
from drkernel.sim.lower.rounding import from_bits, round_to, to_bits
from drkernel.sim.lower.runtime import Entry
from drkernel.sim.lower.strip import Lin, Strip, Uni, Vec, llvm_type, to_vec
from drkernel.sim.ttir.ir import Op, TTIRError, Type, UnsupportedOp, Value, elem_bytes

if TYPE_CHECKING:
    from drkernel.sim.lower.kernel import Lowering


@dataclass(frozen=True)
class KnownEntry:
    """Registers with the bounds and sector maps of one argument's allocation."""

    entry: str
    base: str
    end: str
    read_map: str
    write_map: str


def load_entry(e: Emitter, entry: str) -> KnownEntry:
    """Read an allocation entry once, at the kernel's start."""

    def word(index: int, ty: str) -> str:
        return e.op(f"load {ty}, ptr {e.op(f'getelementptr i64, ptr {entry}, i64 {index}')}")

    return KnownEntry(
        entry,
        word(Entry.BASE, "i64"),
        word(Entry.END, "i64"),
        word(Entry.READ_MAP, "ptr"),
        word(Entry.WRITE_MAP, "ptr"),
    )


def memory_bytes(pointer: Type) -> int:
    """Bytes of what a pointer points to."""
    if pointer.pointee is None:
        raise TTIRError("memory access through something that is not a pointer")
    return elem_bytes(pointer.pointee)


@dataclass
class _Lanes:
    """One strip's access: addresses, active lanes, and how they lie."""

    address: Strip
    mask: Strip | None
    width: int
    size: int
    site: int
    known: KnownEntry | None

    @property
    def bits(self) -> int:
        return 8 * self.size


def load(low: Lowering, nest: Nest, op: Op, index: Index) -> Strip:
    """``tt.load`` of one strip: inactive lanes give ``other`` (zero without it)."""
    pointee = Type(op.operands[0].type.pointee or "i8")
    address = nest.eval(op.operands[0], index)
    mask = nest.eval(op.operands[1], index) if len(op.operands) > 1 else None
    other = (
        nest.eval(op.operands[2], index)
        if len(op.operands) > 2
        else Uni(low.zero(llvm_type(pointee)), llvm_type(pointee))
    )
    uniform = isinstance(address, Uni) and isinstance(mask, (Uni, type(None))) and isinstance(other, Uni)
    width = 1 if uniform else nest.width
    lanes = _Lanes(
        address, mask, width, elem_bytes(pointee.elem), low.site(op, op.operands[0]), low.entry_of(op.operands[0])
    )
    raw_other = _to_memory(low.e, to_vec(low.e, other, width), pointee, width)
    raw = _load_bits(low, lanes, raw_other)
    text = _from_memory(low.e, raw, pointee, width)
    ty = llvm_type(pointee)
    return Uni(text, ty) if width == 1 else Vec(text, ty)


def _load_bits(low: Lowering, lanes: _Lanes, other: str) -> str:
    e = low.e
    vt = vec(lanes.width, f"i{lanes.bits}")
    fast = _fast_condition(low, lanes)
    if fast is None:
        return _slow_load(low, lanes, other, vt)
    condition, base = fast
    assert lanes.known is not None
    yes, no, end = e.new_label("fast"), e.new_label("slow"), e.new_label("loaded")
    e.branch(condition, yes, no, likely=True)
    e.start(yes)
    pointer = e.cast("inttoptr", "i64", base, "ptr")
    value = e.op(f"load {vt}, ptr {pointer}, align {lanes.size}")
    _mark(e, lanes.known, lanes.known.read_map, base, lanes.width * lanes.size)
    e.jump(end)
    e.start(no)
    slow = _slow_load(low, lanes, other, vt)
    slow_label = e.label
    e.jump(end)
    e.start(end)
    return e.phi(vt, (value, yes), (slow, slow_label))


def _slow_load(low: Lowering, lanes: _Lanes, other: str, vt: str) -> str:
    e = low.e
    address = to_vec(e, lanes.address, lanes.width)
    e.do(f"store {vec(lanes.width, 'i64')} {address}, ptr %lanes.addr, align 64")
    e.do(f"store {vt} {other}, ptr %lanes.data, align 64")
    _call_lanes(low, "load", lanes)
    return e.op(f"load {vt}, ptr %lanes.data, align 64")


def _call_lanes(low: Lowering, kind: str, lanes: _Lanes) -> None:
    entry = lanes.known.entry if lanes.known is not None else "null"
    low.e.call(
        f"dk_{kind}_{lanes.size}",
        "void",
        ("ptr", "%ctx"),
        ("ptr", entry),
        ("ptr", "%lanes.addr"),
        ("ptr", "%lanes.data"),
        ("i64", str(lanes.width)),
        ("i64", _mask_bits(low.e, lanes)),
        ("i64", str(lanes.site)),
    )


def _mask_bits(e: Emitter, lanes: _Lanes) -> str:
    if lanes.mask is None:
        return str((1 << lanes.width) - 1)
    text = to_vec(e, lanes.mask, lanes.width)
    if lanes.width == 1:
        return e.cast("zext", "i1", text, "i64")
    narrow = e.cast("bitcast", f"<{lanes.width} x i1>", text, f"i{lanes.width}")
    return e.cast("zext", f"i{lanes.width}", narrow, "i64")


def _fast_condition(low: Lowering, lanes: _Lanes) -> tuple[str, str] | None:
    """(register that is true when the strip is one full contiguous aligned run in bounds, its first address)."""
    e, known = low.e, lanes.known
    if known is None or low.checked:
        return None
    conditions: list[str] = []
    if lanes.width == 1:
        base = to_vec(e, lanes.address, 1)
    elif isinstance(lanes.address, Uni):
        return None
    elif isinstance(lanes.address, Lin):
        base = lanes.address.base
        if isinstance(lanes.address.step, int):
            if lanes.address.step != lanes.size:
                return None
        else:
            conditions.append(e.bin("icmp eq", "i64", lanes.address.step, str(lanes.size)))
    else:
        vt = vec(lanes.width, "i64")
        base = e.op(f"extractelement {vt} {lanes.address.val}, i64 0")
        expected = e.bin("add", vt, e.splat(base, lanes.width, "i64"), e.iota(lanes.width, "i64", lanes.size))
        same = e.bin("icmp eq", vt, lanes.address.val, expected)
        whole = e.cast("bitcast", f"<{lanes.width} x i1>", same, f"i{lanes.width}")
        conditions.append(e.bin("icmp eq", f"i{lanes.width}", whole, "-1"))
    end = e.bin("add", "i64", base, str(lanes.width * lanes.size))
    conditions.append(e.bin("icmp uge", "i64", base, known.base))
    conditions.append(e.bin("icmp ule", "i64", end, known.end))
    if lanes.size > 1:
        low_bits = e.bin("and", "i64", base, str(lanes.size - 1))
        conditions.append(e.bin("icmp eq", "i64", low_bits, "0"))
    if lanes.mask is not None:
        text = to_vec(e, lanes.mask, lanes.width)
        if lanes.width == 1:
            conditions.append(text)
        else:
            whole = e.cast("bitcast", f"<{lanes.width} x i1>", text, f"i{lanes.width}")
            conditions.append(e.bin("icmp eq", f"i{lanes.width}", whole, "-1"))
    merged = conditions[0]
    for condition in conditions[1:]:
        merged = e.bin("and", "i1", merged, condition)
    return merged, base


def _mark(e: Emitter, known: KnownEntry, sectors: str, base: str, nbytes: int) -> None:
    """Note the 32-byte sectors of a run in an allocation's map."""
    offset = e.bin("sub", "i64", base, known.base)
    first = e.bin("lshr", "i64", offset, "5")
    start = e.op(f"getelementptr i8, ptr {sectors}, i64 {first}")
    whole = max(1, nbytes // 32)
    if whole == 1:
        e.do(f"store i8 1, ptr {start}")
    else:
        ones = "<" + ", ".join(["i8 1"] * whole) + ">"
        e.do(f"store <{whole} x i8> {ones}, ptr {start}, align 1")
    if nbytes > 1:
        last = e.bin("lshr", "i64", e.bin("add", "i64", offset, str(nbytes - 1)), "5")
        e.do(f"store i8 1, ptr {e.op(f'getelementptr i8, ptr {sectors}, i64 {last}')}")


def store(low: Lowering, op: Op) -> None:
    """``tt.store`` of a whole block or a scalar."""
    pointer, value = op.operands[0], op.operands[1]
    mask = op.operands[2] if len(op.operands) > 2 else None
    with strips(low, pointer.type.shape or ()) as nest:
        _store_strip(low, nest, op, pointer, value, mask)


def _store_strip(low: Lowering, nest: Nest, op: Op, pointer: Value, value: Value, mask: Value | None) -> None:
    e = low.e
    pointee = Type(pointer.type.pointee or "i8")
    address, data = nest.eval(pointer), nest.eval(value)
    lanes = _Lanes(
        address,
        nest.eval(mask) if mask is not None else None,
        nest.width,
        memory_bytes(pointer.type),
        low.site(op, pointer),
        low.entry_of(pointer),
    )
    raw = _to_memory(e, to_vec(e, data, nest.width), pointee, nest.width)
    vt = vec(nest.width, f"i{lanes.bits}")
    fast = _fast_condition(low, lanes)
    if fast is None:
        _slow_store(low, lanes, raw, vt)
        return
    condition, base = fast
    assert lanes.known is not None
    yes, no, end = e.new_label("fast"), e.new_label("slow"), e.new_label("stored")
    e.branch(condition, yes, no, likely=True)
    e.start(yes)
    e.do(f"store {vt} {raw}, ptr {e.cast('inttoptr', 'i64', base, 'ptr')}, align {lanes.size}")
    _mark(e, lanes.known, lanes.known.write_map, base, lanes.width * lanes.size)
    e.jump(end)
    e.start(no)
    _slow_store(low, lanes, raw, vt)
    e.jump(end)
    e.start(end)


def _slow_store(low: Lowering, lanes: _Lanes, raw: str, vt: str) -> None:
    e = low.e
    address = to_vec(e, lanes.address, lanes.width)
    e.do(f"store {vec(lanes.width, 'i64')} {address}, ptr %lanes.addr, align 64")
    e.do(f"store {vt} {raw}, ptr %lanes.data, align 64")
    _call_lanes(low, "store", lanes)


def _to_memory(e: Emitter, text: str, type_: Type, width: int) -> str:
    """Register lanes as memory bits."""
    if type_.is_float:
        return to_bits(e, text, type_.elem, width)
    if type_.elem == "i1":
        return e.cast("zext", vec(width, "i1"), text, vec(width, "i8"))
    return text


def _from_memory(e: Emitter, text: str, type_: Type, width: int) -> str:
    if type_.is_float:
        return from_bits(e, text, type_.elem, width)
    if type_.elem == "i1":
        return e.bin("icmp ne", vec(width, "i8"), text, e.splat("0", width, "i8"))
    return text


# ---- atomics: lanes one by one, in order; programs run one after another, so a plain read-modify-write is atomic


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
        ty = f"i{8 * elem_bytes(pointee.elem)}"
        same = e.bin("icmp eq", ty, _to_memory(e, old, pointee, 1), _to_memory(e, lane, pointee, 1))
        reg = llvm_type(pointee)
        return e.op(f"select i1 {same}, {reg} {second}, {reg} {old}")

    _atomic(low, op, pointer, [expected, new], None, pointee, update)


def _atomic(
    low: Lowering, op: Op, pointer: Value, values: list[Value], mask: Value | None, pointee: Type, update
) -> None:  # type: ignore[no-untyped-def]
    e = low.e
    size, reg = memory_bytes(pointer.type), llvm_type(pointee)
    site, known = low.site(op, pointer), low.entry_of(pointer)
    low.cost.atomics += pointer.type.numel
    result = op.results[0] if op.results and op.results[0].uses else None
    block = pointer.type.shape is not None
    buffer = low.allocate(op.results[0].type) if block and result is not None else None
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
            "dk_atomic_access", "i1",
            ("ptr", "%ctx"), ("ptr", entry), ("i64", address), ("i64", str(size)), ("i64", str(site)),
        )  # fmt: skip
        e.branch(allowed, go, done, likely=True)
        e.start(go)
        place = e.cast("inttoptr", "i64", address, "ptr")
        old = _from_memory(e, e.op(f"load i{8 * size}, ptr {place}"), pointee, 1)
        new = update(old, lanes[0], lanes[1] if len(lanes) > 1 else "")
        e.do(f"store i{8 * size} {_to_memory(e, new, pointee, 1)}, ptr {place}")
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


def _combine(low: Lowering, op: Op, kind: str, old: str, lane: str, pointee: Type) -> str:
    e, ty = low.e, llvm_type(pointee)
    if kind == "fadd":
        return round_to(e, e.bin("fadd", ty, old, lane), pointee.elem, 1)
    if kind in ("exch", "xchg"):
        return lane
    if kind in ("add", "and", "or", "xor"):
        return e.bin(kind, ty, old, lane)
    if kind in ("max", "min", "umax", "umin") and not pointee.is_float:
        name = {"max": "smax", "min": "smin"}.get(kind, kind)
        return e.call(f"llvm.{name}.{ty}", ty, (ty, old), (ty, lane))
    raise UnsupportedOp(f"atomic {kind} on {pointee.elem}", op.loc)


# ---- prints and asserts


def device_assert(low: Lowering, op: Op) -> None:
    """``tl.device_assert``: a finding when any element is false."""
    message = next((part for part in op.attrs.values() if part), "")
    site = low.site(op, None, message)
    e = low.e
    condition = op.operands[0]
    with strips(low, condition.type.shape or ()) as nest:
        text = to_vec(e, nest.eval(condition), nest.width)
        if nest.width > 1:
            bits = e.cast("bitcast", f"<{nest.width} x i1>", text, f"i{nest.width}")
            text = e.bin("icmp eq", f"i{nest.width}", bits, "-1")
        bad, fine = e.new_label("assert_bad"), e.new_label("assert_fine")
        e.branch(text, fine, bad, likely=True)
        e.start(bad)
        e.call("dk_assert", "void", ("ptr", "%ctx"), ("i64", str(site)))
        e.jump(fine)
        e.start(fine)


def device_print(low: Lowering, op: Op) -> None:
    """``tl.device_print``: every element of every operand, as a number."""
    e = low.e
    for position, operand in enumerate(op.operands):
        site = low.site(op, None, f"{op.attrs.get('prefix', '')}[{position}]")
        with strips(low, operand.type.shape or (), 1) as nest:
            text, ty = to_vec(e, nest.eval(operand), 1), llvm_type(operand.type)
            if ty == "float":
                text = e.cast("fpext", "float", text, "double")
            elif ty != "double":
                text = e.cast("uitofp" if ty == "i1" else "sitofp", ty, text, "double")
            flat = to_vec(e, nest.flat, 1)
            wide = e.cast("zext", "i32", flat, "i64") if flat.startswith("%") else flat
            e.call("dk_print", "void", ("ptr", "%ctx"), ("i64", str(site)), ("i64", wide), ("double", text))
