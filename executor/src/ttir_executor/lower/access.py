"""Loads and stores: a short checked fast path inline, everything else in the native helpers.

Whether a mask holds in all lanes of a strip, or in none: by its two ends, where it compares what is linear.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttir_executor.lower.emit import Emitter, vec
from ttir_executor.lower.nest import FORWARDING, Index, Nest, strips
from ttir_executor.lower.numbers import Numbers, from_bits, to_bits
from ttir_executor.lower.runtime import ACQUIRE, AccessKind, Ctx, EntryWord, Kind
from ttir_executor.lower.strip import Lin, Strip, Uni, int_literal, llvm_type, numbers_of, scalar_int, strip_of, to_vec
from ttir_executor.ttir.ir import Op, TTIRError, Type, Value, elem_bytes

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering


_ORDERED = {"slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"}


class _Open(Exception):
    """The ends do not tell."""


def holds_throughout(nest: Nest, mask: Value) -> Uni | None:
    """Surely true in every lane where the nest stands; None where that takes a look at each lane."""
    return _told(nest, mask, truth=True)


def holds_nowhere(nest: Nest, mask: Value) -> Uni | None:
    """Surely false in every lane; None where that takes a look at each lane."""
    return _told(nest, mask, truth=False)


def _told(nest: Nest, mask: Value, *, truth: bool) -> Uni | None:
    try:
        found = _Ends(nest, truth=truth).eval(mask, nest.index)
    except _Open:
        return None
    return found if isinstance(found, Uni) else None


class _Ends:
    """A nest in which, for truth values, whether all lanes have the same given truth stands for the lanes."""

    def __init__(self, nest: Nest, *, truth: bool):
        self.nest, self.low, self.width, self.truth = nest, nest.low, nest.width, truth

    def eval(self, value: Value, index: Index) -> Strip:
        """Of truth values, whether all are as given; of others, the lanes."""
        op, binding = value.op, self.low.env.get(value)
        if value.type.elem != "i1":
            return self.nest.eval(value, index)
        if not value.type.is_block or isinstance(binding, Uni) or (op is not None and op.name == "arith.constant"):
            return self._same(self.nest.eval(value, index))
        if binding is not None or op is None:
            raise _Open
        if op.name in ("arith.andi", "arith.ori"):
            one, other = (self._uniform(operand, index) for operand in op.operands)
            both = (op.name == "arith.andi") is self.truth  # else one of them is enough
            return Uni(scalar_int(self.low.e, "and" if both else "or", "i1", one.val, other.val), "i1")
        if op.name == "arith.cmpi":
            return self._compared(op, value, index)
        if op.name in FORWARDING:
            return FORWARDING[op.name](self, op, value, index)  # type: ignore[arg-type]
        raise _Open

    def _uniform(self, value: Value, index: Index) -> Uni:
        found = self.eval(value, index)
        if not isinstance(found, Uni):
            raise _Open
        return found

    def _same(self, found: Strip) -> Uni:
        if not isinstance(found, Uni):
            raise _Open
        if self.truth:
            return found
        literal = int_literal(found.val)
        if literal is not None:
            return Uni("false" if literal else "true", "i1")
        return Uni(self.low.e.bin("xor", "i1", found.val, "true"), "i1")

    def _compared(self, op: Op, value: Value, index: Index) -> Uni:
        e, how = self.low.e, op.attrs["word0"]
        sides = [self.nest.eval(operand, index) for operand in op.operands]
        if all(isinstance(side, Uni) for side in sides):
            return self._same(self.nest.eval(value, index))
        if how not in _ORDERED:
            raise _Open
        ty, first, last, conditions = sides[0].ty, list[str](), list[str](), list[str]()
        for side in sides:
            if isinstance(side, Uni):
                first.append(side.val)
                last.append(side.val)
            elif isinstance(side, Lin) and isinstance(side.step, int):
                end = scalar_int(e, "add", ty, side.base, str(side.step * (self.width - 1)))
                onward = f"{how[0]}{'ge' if side.step > 0 else 'le'}"  # what wraps around is not between its ends
                conditions.append(e.bin(f"icmp {onward}", ty, end, side.base))
                first.append(side.base)
                last.append(end)
            else:
                raise _Open
        for ends in (first, last):
            held = e.bin(f"icmp {how}", ty, *ends)
            conditions.append(held if self.truth else e.bin("xor", "i1", held, "true"))
        return Uni(all_of(e, conditions), "i1")


WARP_LANES = 32
MAX_SYNCHRONISING = 64
"""elements of the largest block of atomics or volatile loads that may order programs"""


def is_volatile(op: Op) -> bool:
    """A load that others may wait with."""
    return op.name == "tt.load" and op.attrs.get("isVolatile") == "true"


@dataclass(frozen=True)
class KnownEntry:
    """Registers with the bounds and sector maps of one argument's allocation."""

    entry: str
    base: str
    end: str
    read_map: str
    write_map: str

    def last(self, e: Emitter, nbytes: int) -> str:
        """The last address at which ``nbytes`` still fit; 0 when they never do."""
        return e.call("llvm.usub.sat.i64", "i64", ("i64", self.end), ("i64", str(nbytes)))


def load_entry(e: Emitter, entry: str) -> KnownEntry:
    """Read an allocation entry once, at the kernel's start."""

    def word(index: int, ty: str) -> str:
        return e.op(f"load {ty}, ptr {e.op(f'getelementptr i64, ptr {entry}, i64 {index}')}")

    return KnownEntry(
        entry,
        word(EntryWord.BASE, "i64"),
        word(EntryWord.END, "i64"),
        word(EntryWord.READ_MAP, "ptr"),
        word(EntryWord.WRITE_MAP, "ptr"),
    )


def counted_bytes(pointer: Type) -> int:
    """Bytes that an access of all elements asks for where they lie side by side: whole sectors of 32 bytes."""
    return max(32, pointer.numel * memory_bytes(pointer))


def memory_bytes(pointer: Type) -> int:
    """Bytes of what a pointer points to."""
    if pointer.pointee is None:
        raise TTIRError("memory access through something that is not a pointer")
    return elem_bytes(pointer.pointee)


@dataclass
class Lanes:
    """One strip's access: addresses, active lanes, and how they lie."""

    address: Strip
    mask: Strip | None
    width: int
    size: int
    site: int
    known: KnownEntry | None
    numel: int
    """elements of the whole access"""
    how: AccessKind = AccessKind.LOAD
    warp: str = "0"
    """the number of the warp that stores them, where its requests count one by one"""

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
    lanes = Lanes(
        address, mask, width, elem_bytes(pointee.elem), low.site(op, op.operands[0]), low.entry_of(op.operands[0]),
        op.results[0].type.numel, AccessKind.VOLATILE if is_volatile(op) and low.checked else AccessKind.LOAD,
    )  # fmt: skip
    _watch_hints(low, nest, lanes, op.operands[0])
    if low.checked and len(op.operands) == 2:
        low.unfilled.append(lanes.site)
        filled, ty = low.context("fill", Ctx.FILL), f"i{lanes.bits}"
        raw_other = low.e.splat(filled if ty == "i64" else low.e.cast("trunc", "i64", filled, ty), width, ty)
    else:
        raw_other = to_memory(low.e, to_vec(low.e, other, width), pointee, width)
    text = from_memory(low.e, _load_bits(low, lanes, raw_other), pointee, width)
    return strip_of(Numbers(low.e, text, llvm_type(pointee), width))


def _load_bits(low: Lowering, lanes: Lanes, other: str) -> str:
    e = low.e
    vt = vec(lanes.width, f"i{lanes.bits}")
    fast = fast_condition(low, lanes) if lanes.how is AccessKind.LOAD else None
    if fast is None:
        return _slow_load(low, lanes, other, vt)
    condition, base = fast
    assert lanes.known is not None
    yes, no, end = e.new_label("fast"), e.new_label("slow"), e.new_label("loaded")
    _branch_fast(low, lanes, condition, base, yes, no, AccessKind.LOAD)
    e.start(yes)
    pointer = e.cast("inttoptr", "i64", base, "ptr")
    value = e.op(f"load {vt}, ptr {pointer}, align {lanes.size}")
    mark(e, lanes.known, lanes.how, base, lanes.width * lanes.size)
    e.jump(end)
    e.start(no)
    slow = _slow_load(low, lanes, other, vt)
    slow_label = e.label
    e.jump(end)
    e.start(end)
    return e.phi(vt, (value, yes), (slow, slow_label))


def _slow_load(low: Lowering, lanes: Lanes, other: str, vt: str) -> str:
    e = low.e
    address = to_vec(e, lanes.address, lanes.width)
    e.do(f"store {vec(lanes.width, 'i64')} {address}, ptr %lanes.addr, align 64")
    e.do(f"store {vt} {other}, ptr %lanes.data, align 64")
    _call_lanes(low, lanes.how, lanes)
    value = e.op(f"load {vt}, ptr %lanes.data, align 64")
    if lanes.how is AccessKind.VOLATILE and lanes.numel <= MAX_SYNCHRONISING:
        for k in range(lanes.width):
            one = address if lanes.width == 1 else e.op(f"extractelement {vec(lanes.width, 'i64')} {address}, i64 {k}")
            e.call("dk_sync", "void", ("ptr", "%ctx"), ("i64", one), ("i64", str(ACQUIRE)))
    return value


def _call_lanes(low: Lowering, how: AccessKind, lanes: Lanes) -> None:
    entry = lanes.known.entry if lanes.known is not None else "null"
    low.e.call(
        "dk_lanes",
        "void",
        ("ptr", "%ctx"),
        ("ptr", entry),
        ("ptr", "%lanes.addr"),
        ("ptr", "%lanes.data"),
        ("i64", str(max(lanes.width, 32 // lanes.size) if lanes.numel * lanes.size < 32 else lanes.width)),
        ("i64", mask_bits(low.e, lanes)),
        ("i64", str(lanes.site)),
        ("i64", str(lanes.size)),
        ("i64", str(int(how))),
        ("i64", lanes.warp),
    )


def warp_of(e: Emitter, shape: tuple[int, ...], index: Index) -> str:
    """The number, from 1, of the warp that stores a strip of a block with one axis; "0" for other blocks.

    A store goes to L2 as each warp asks for it, while loads of the same sector meet in L1. Warps hold neighbouring
    elements where a block has one axis; of several axes Triton's layout puts the one along memory first, whichever it
    is. Elements that follow each other in memory are a run, and counted as a whole.
    """
    long = [axis for axis, size in enumerate(shape) if size > 1]
    if len(long) != 1 or shape[long[0]] <= WARP_LANES:
        return "0"
    along = index[long[0]]
    first = to_vec(e, along, 1) if isinstance(along, Uni) else along.base if isinstance(along, Lin) else None
    if first is None:
        return "0"
    wide = e.cast("zext", "i32", first, "i64") if first.startswith("%") else first
    return e.bin("add", "i64", e.bin("lshr", "i64", wide, str(WARP_LANES.bit_length() - 1)), "1")


def mask_bits(e: Emitter, lanes: Lanes) -> str:
    """The active lanes as the bits of a 64-bit word."""
    if lanes.mask is None:
        return str((1 << lanes.width) - 1)
    return numbers_of(e, lanes.mask, lanes.width).packed().resized(64).text


def fast_condition(low: Lowering, lanes: Lanes) -> tuple[str, str] | None:
    """(register that is true when the strip is one full contiguous aligned run in bounds, its first address)."""
    known = lanes.known
    found = run_condition(low, lanes) if known is not None else None
    if known is None or found is None:
        return None
    e, (conditions, base) = low.e, found
    # both sides unsigned: an address near the top of the space must not wrap past the end
    conditions.append(e.bin("icmp uge", "i64", base, known.base))
    conditions.append(e.bin("icmp ule", "i64", base, known.last(e, lanes.width * lanes.size)))
    return all_of(e, conditions), base


def all_of(e: Emitter, conditions: list[str]) -> str:
    """Whether all of them are true."""
    merged = conditions[0] if conditions else "true"
    for condition in conditions[1:]:
        merged = e.bin("and", "i1", merged, condition)
    return merged


def run_condition(low: Lowering, lanes: Lanes) -> tuple[list[str], str] | None:
    """(registers that are all true when the strip is one full contiguous aligned run, its first address); None where
    it cannot be one."""
    e = low.e
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
        address = numbers_of(e, lanes.address, lanes.width)
        base = e.op(f"extractelement {address.vector} {address.text}, i64 0")
        first = address.held(e.splat(base, lanes.width, "i64"))
        expected = first + address.held(e.iota(lanes.width, "i64", lanes.size))
        conditions.append(address.equals(expected).packed().equals(-1).text)
    if lanes.size > 1:
        low_bits = e.bin("and", "i64", base, str(lanes.size - 1))
        conditions.append(e.bin("icmp eq", "i64", low_bits, "0"))
    if isinstance(lanes.mask, Uni):
        conditions.append(lanes.mask.val)
    elif lanes.mask is not None:
        held = numbers_of(e, lanes.mask, lanes.width).packed()
        conditions.append((held if lanes.width == 1 else held.equals(-1)).text)
    return conditions, base


def _branch_fast(low: Lowering, lanes: Lanes, condition: str, base: str, yes: str, no: str, how: AccessKind) -> None:
    """To ``yes`` when the strip is a plain run and, in a checked build, its shadows raise no question."""
    e = low.e
    if not low.checked:
        e.branch(condition, yes, no, likely=True)
        return
    assert lanes.known is not None
    ask = e.new_label("shadows")
    e.branch(condition, ask, no, likely=True)
    e.start(ask)
    fine = e.call(
        "dk_run", "i1", ("ptr", "%ctx"), ("ptr", lanes.known.entry), ("i64", base),
        ("i64", str(lanes.width * lanes.size)), ("i64", str(int(how))),
    )  # fmt: skip
    e.branch(fine, yes, no, likely=True)


def mark(e: Emitter, known: KnownEntry, how: AccessKind, base: str, nbytes: int, number: str = "1") -> None:
    """Note the 32-byte sectors of a run in an allocation's map, under a number."""
    sectors = known.write_map if how is AccessKind.STORE else known.read_map
    offset = Numbers(e, base, "i64", 1) - Numbers(e, known.base, "i64", 1)
    start = e.op(f"getelementptr i8, ptr {sectors}, i64 {(offset >> 5).text}")
    whole = max(1, nbytes // 32)
    e.do(f"store {vec(whole, 'i8')} {e.splat(number, whole, 'i8')}, ptr {start}, align 1")
    if nbytes > 1:
        last = offset + (nbytes - 1) >> 5
        e.do(f"store i8 {number}, ptr {e.op(f'getelementptr i8, ptr {sectors}, i64 {last.text}')}")


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
    lanes = Lanes(
        address,
        nest.eval(mask) if mask is not None else None,
        nest.width,
        memory_bytes(pointer.type),
        low.site(op, pointer),
        low.entry_of(pointer),
        pointer.type.numel,
        warp=warp_of(e, pointer.type.shape or (), nest.index),
    )
    _watch_hints(low, nest, lanes, pointer)
    raw = to_memory(e, to_vec(e, data, nest.width), pointee, nest.width)
    vt = vec(nest.width, f"i{lanes.bits}")
    fast = fast_condition(low, lanes)
    if fast is None:
        _slow_store(low, lanes, raw, vt)
        return
    condition, base = fast
    assert lanes.known is not None
    yes, no, end = e.new_label("fast"), e.new_label("slow"), e.new_label("stored")
    _branch_fast(low, lanes, condition, base, yes, no, AccessKind.STORE)
    e.start(yes)
    e.do(f"store {vt} {raw}, ptr {e.cast('inttoptr', 'i64', base, 'ptr')}, align {lanes.size}")
    mark(e, lanes.known, AccessKind.STORE, base, lanes.width * lanes.size)
    e.jump(end)
    e.start(no)
    _slow_store(low, lanes, raw, vt)
    e.jump(end)
    e.start(end)


def _slow_store(low: Lowering, lanes: Lanes, raw: str, vt: str) -> None:
    e = low.e
    address = to_vec(e, lanes.address, lanes.width)
    e.do(f"store {vec(lanes.width, 'i64')} {address}, ptr %lanes.addr, align 64")
    e.do(f"store {vt} {raw}, ptr %lanes.data, align 64")
    if low.checked and lanes.width > 1:
        e.call(
            "dk_clash", "void", ("ptr", "%ctx"), ("ptr", "%lanes.addr"), ("ptr", "%lanes.data"),
            ("i64", mask_bits(e, lanes)), ("i64", str(lanes.site)), ("i64", str(lanes.size)),
            ("i64", lanes.known.base if lanes.known is not None else "0"),
        )  # fmt: skip
    _call_lanes(low, AccessKind.STORE, lanes)


def _watch_hints(low: Lowering, nest: Nest, lanes: Lanes, pointer: Value) -> None:
    """Record an access whose offsets are not as ``tl.multiple_of`` and ``tl.max_contiguous`` say: a GPU may move what
    lies beside its first element instead. Of unmasked accesses of blocks with one axis."""
    count = _hinted(pointer, lanes.size)
    if not low.checked or lanes.mask is not None or count < 2 or lanes.width < count:
        return
    e, base = low.e, nest.eval(pointer.op.operands[0])  # type: ignore[union-attr]
    if not isinstance(base, Uni):
        return
    address, width = numbers_of(e, lanes.address, lanes.width), lanes.width
    vt = address.vector
    first = ", ".join(f"i32 {lane - lane % count}" for lane in range(width))
    leader = address.held(e.op(f"shufflevector {vt} {address.text}, {vt} {address.text}, <{width} x i32> <{first}>"))
    steps = "<" + ", ".join(f"i64 {lane % count * lanes.size}" for lane in range(width)) + ">"
    beside = address.equals(leader + address.held(steps))
    whole = (leader & count * lanes.size - 1).equals(0)
    fine = (beside & whole).packed().equals(-1)
    unaligned = (numbers_of(e, base, 1) & 15).compare("ne", 0)  # then nothing was said of it
    low.note_unless((fine | unaligned).text, Kind.HINT, lanes.site)


def _hinted(pointer: Value, size: int) -> int:
    """How many elements a thread may move at once because a hint says so; 0 where none does."""
    op = pointer.op
    if op is None or op.name != "tt.addptr" or len(pointer.type.shape or ()) != 1:
        return 0
    base, offset = (operand.op for operand in op.operands)
    if base is None or base.name != "tt.splat" or offset is None:
        return 0
    return min(16 // size, hint(offset, "contiguity"), hint(offset, "divisibility"))


def hint(op: Op, name: str) -> int:
    """What source code says of a value with one axis, or none; 0 where it says nothing."""
    said = re.fullmatch(r"dense<(\d+)>", op.attrs.get(f"tt.{name}", ""))
    return int(said[1]) if said is not None else 0


def to_memory(e: Emitter, text: str, type_: Type, width: int) -> str:
    """Register lanes as memory bits."""
    x = Numbers(e, text, llvm_type(type_), width)
    if type_.is_float:
        return to_bits(x, type_.elem).text
    return x.resized(8).text if type_.elem == "i1" else text


def from_memory(e: Emitter, text: str, type_: Type, width: int) -> str:
    """Memory bits as register lanes."""
    if type_.is_float:
        return from_bits(Numbers(e, text, f"i{type_.bits}", width), type_.elem).text
    return Numbers(e, text, "i8", width).compare("ne", 0).text if type_.elem == "i1" else text
