"""Accesses of a data-free kernel (``skeleton/slim.py``): checked, counted and marked, but nothing is moved.

Only steering data is moved, by ``dk_place``, which knows where the contents of an allocation are, if it has any.
Sectors are marked with the number of the running group of programs, so that one map records which group touched each
sector last.

Along which axis of a block neighbouring elements lie side by side in memory, from the text of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttir_executor.lower.access import (
    KnownEntry,
    Lanes,
    all_of,
    fast_condition,
    from_memory,
    holds_nowhere,
    holds_throughout,
    mark,
    mask_bits,
    run_condition,
    to_memory,
    warp_of,
)
from ttir_executor.lower.elementwise import ELEMENTWISE
from ttir_executor.lower.emit import WIDTH, vec
from ttir_executor.lower.nest import Binding, Nest, Shifted, constant_text, strips
from ttir_executor.lower.numbers import Numbers
from ttir_executor.lower.runtime import SECTOR_BYTES, AccessKind, Ctx
from ttir_executor.lower.strip import Lin, Strip, Uni, int_literal, llvm_type, to_vec
from ttir_executor.ttir.ir import Op, TTIRError, Type, Value, elem_bytes
from ttir_executor.ttir.verify import trans_order

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering


_FORWARD = frozenset({"ttg.convert_layout", "arith.extsi", "arith.extui", "arith.trunci", "tt.bitcast"})
"""operations that leave a small step as it is"""
_SUMS = frozenset({"arith.addi", "arith.subi"})


def run_axis(pointer: Value, env: dict[Value, Binding]) -> int:
    """The axis along which a block of pointers steps by one element: the last one, unless another surely does.

    A guess that costs speed where it is wrong: who follows it looks at the addresses. Less than a sector is not worth
    it.
    """
    shape = pointer.type.shape or ()
    size = elem_bytes(pointer.type.pointee or "i8")
    if len(shape) < 2 or pointer.type.numel * size < SECTOR_BYTES:
        return len(shape) - 1
    steps = _Steps(env)
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1 and steps.of(pointer, axis) == size:
            return axis
    return len(shape) - 1


class _Steps:
    """By how much values change from one element to the next along an axis; None where the text does not say."""

    def __init__(self, env: dict[Value, Binding]):
        self.env = env
        self.memo: dict[tuple[int, int], int | None] = {}

    def of(self, value: Value, axis: int) -> int | None:
        if not value.type.is_block:
            return 0
        key = (id(value), axis)
        if key not in self.memo:
            self.memo[key] = None  # where it depends on itself
            self.memo[key] = self._of(value, axis)
        return self.memo[key]

    def _of(self, value: Value, axis: int) -> int | None:
        binding, op = self.env.get(value), value.op
        if isinstance(binding, Shifted):
            return self.of(binding.initial, axis)
        if op is None:
            return None
        if op.name == "tt.make_range":
            return 1
        if op.name in ("tt.splat", "arith.constant"):
            return 0 if not op.attrs.get("value", "").startswith("[") else None
        if op.name == "tt.expand_dims":
            new = int(op.attrs["axis"])
            return 0 if axis == new else self.of(op.operands[0], axis - (axis > new))
        if op.name == "tt.broadcast":
            return 0 if (op.operands[0].type.shape or ())[axis] == 1 else self.of(op.operands[0], axis)
        if op.name == "tt.trans":
            return self.of(op.operands[0], trans_order(op)[axis])
        return self._arithmetic(op, axis)

    def _arithmetic(self, op: Op, axis: int) -> int | None:
        steps = [self.of(operand, axis) for operand in op.operands]
        if op.name in _FORWARD:
            return steps[0]
        if op.name in ELEMENTWISE and not any(step != 0 for step in steps):
            return 0
        if op.name == "tt.addptr":
            base, offset = steps
            size = elem_bytes(op.operands[0].type.pointee or "i8")
            return None if base is None or offset is None else base + size * offset
        if op.name in _SUMS:
            one, other = steps
            return None if one is None or other is None else one + (other if op.name == "arith.addi" else -other)
        if op.name == "arith.muli":
            for one, other in ((0, 1), (1, 0)):
                factor, step = _number(op.operands[one]), steps[other]
                if factor is not None and step is not None:
                    return factor * step
        return None


def _number(value: Value) -> int | None:
    """The whole number that all elements of a value are; None where the text does not say."""
    while value.op is not None and value.op.name in ("tt.splat", "tt.broadcast", "tt.expand_dims"):
        value = value.op.operands[0]
    if value.op is None or value.op.name != "arith.constant" or value.op.attrs["value"].startswith("["):
        return None
    try:
        return int_literal(constant_text(value.op.attrs["value"], value.type))
    except (TTIRError, ValueError):
        return None


TOUCH_LANES = 64
"""elements looked at at a time; nothing is loaded, so that this may be more than a vector register holds"""
_HOW = {"load": AccessKind.LOAD, "store": AccessKind.STORE, "atomic": AccessKind.ATOMIC}


def place(low: Lowering, entry: str, address: str, size: int, site: int) -> str:
    """Where the element at an address really is: a register of type ``ptr``, always accessible. Without contents there
    it is the site that steers, if there is one (-1: none)."""
    arguments = ("ptr", "%ctx"), ("ptr", entry), ("i64", address), ("i64", str(size)), ("i64", str(site))
    return low.e.call("dk_place", "ptr", *arguments)


def count(low: Lowering, op: Op) -> None:
    """``dk.count``: what was left out is part of the basic block's work."""
    left_out = op.cost  # type: ignore[attr-defined]
    for name in ("load_bytes", "store_bytes", "atomics"):
        setattr(low.cost, name, getattr(low.cost, name) + getattr(left_out, name))
    low.cost.flops.update(left_out.flops)
    low.cost.entered.update(left_out.entered)


def trips(low: Lowering, op: Op) -> None:
    """``dk.trips``: a loop of which nothing is left but its work, as often as it would have run."""
    e = low.e
    outer = low.cost
    slot = low.open_counter()
    count(low, op)
    low.cost = outer
    ty = llvm_type(op.operands[0].type)
    start, stop, step = (Numbers(e, low.scalar(value), ty, 1) for value in op.operands)
    less = "ult" if op.attrs.get("unsigned") else "slt"
    runs = start.compare(less, stop) & (step > 0)
    safe = runs.choose(step, 1)
    times = (stop - start - 1).binary("udiv", safe) + 1
    add = runs.choose(times.resized(64), 0)
    e.do(f"store i64 {(add.held(e.op(f'load i64, ptr {slot}')) + add).text}, ptr {slot}")


def touch(low: Lowering, op: Op) -> None:
    """``dk.touch``: an access of which only the place matters."""
    how = _HOW[op.attrs["how"]]
    pointer, mask = op.operands[0], op.operands[1] if len(op.operands) > 1 else None
    _touch(low, op, pointer, mask, how)


def _touch(low: Lowering, op: Op, pointer: Value, mask: Value | None, how: AccessKind) -> None:
    """Long runs at once, what is none in the strips that a kernel with data would use, so that counts are the same."""
    shape = pointer.type.shape or ()
    mark = low.e.cast("trunc", "i64", low.context("mark", Ctx.MARK), "i8")
    axis = run_axis(pointer, low.env) if how is AccessKind.LOAD else len(shape) - 1
    access = _Access(low, pointer, mask, how, mark, low.site(op, pointer), low.entry_of(pointer), axis)
    long = shape[axis] if shape and how is not AccessKind.ATOMIC else 1
    if access.across:
        with strips(low, (*shape[:axis], *shape[axis + 1 :], long), min(TOUCH_LANES, long)) as turned:
            *others, along = turned.index
            index = (*others[:axis], along, *others[axis:])
            access.wide(Nest(low, turned.width, index, Uni("0", "i32"), ()))
    else:
        with strips(low, shape, max(WIDTH, min(TOUCH_LANES, long))) as nest:
            access.wide(nest)


@dataclass
class _Access:
    """One access of the kernel, being lowered."""

    low: Lowering
    pointer: Value
    mask: Value | None
    how: AccessKind
    mark: str
    site: int
    known: KnownEntry | None
    axis: int
    """which strips run along"""

    @property
    def across(self) -> bool:
        """Whether it runs along another axis than a kernel with data does, which goes there lane by lane."""
        return self.axis != len(self.pointer.type.shape or ()) - 1

    def wide(self, nest: Nest) -> None:
        """A strip of any width: as one run, or in strips of :data:`WIDTH`."""
        if nest.width > WIDTH:
            self.runs(nest, lambda: self.in_strips(nest))
        else:
            self.strip(nest)

    def strip(self, nest: Nest) -> None:
        """As a kernel with data does it: a run, or lane by lane."""
        self.runs(nest, lambda: self._each(self._lanes(nest)))

    def runs(self, nest: Nest, otherwise: Callable[[], None]) -> None:
        """Mark the lanes as one run of memory where they are one, else do as said."""
        e, lanes = self.low.e, self._lanes(nest, ends=True)
        by_sector = self.across or self.known is None
        if self.how is AccessKind.ATOMIC or (by_sector and lanes.width == 1):
            found = None
        elif by_sector:
            found = run_condition(self.low, lanes)
        else:
            fast = fast_condition(self.low, lanes)
            found = fast and ([fast[0]], fast[1])
        if found is None:
            otherwise()
            return
        yes, no, done = e.new_label("run"), e.new_label("no_run"), e.new_label("touched")
        e.branch(all_of(e, found[0]), yes, no, likely=True)
        e.start(yes)
        nbytes = lanes.width * lanes.size
        if by_sector:
            e.branch(self._sectors(found[1], nbytes, "0"), done, no, likely=True)
        else:
            assert self.known is not None
            mark(e, self.known, self.how, found[1], nbytes, self.mark)
            e.jump(done)
        e.start(no)
        idle = holds_nowhere(nest, self.mask) if self.mask is not None else None
        if idle is not None:
            none, some = e.new_label("none"), e.new_label("some")
            e.branch(idle.val, none, some)
            e.start(none)
            self._call(lanes, "0")
            e.jump(done)
            e.start(some)
        otherwise()
        e.jump(done)
        e.start(done)

    def _sectors(self, base: str, nbytes: int, warp: str) -> str:
        """Note and count the sectors of a run as lane by lane; false where it is not within one allocation."""
        entry = self.known.entry if self.known is not None else "null"
        return self.low.e.call(
            "dk_touch_run", "i1", ("ptr", "%ctx"), ("ptr", entry), ("i64", base), ("i64", str(nbytes)),
            ("i64", str(self.site)), ("i64", str(int(self.how))), ("i64", warp),
        )  # fmt: skip

    def in_strips(self, wide: Nest) -> None:
        """The lanes of a wide strip, :data:`WIDTH` at a time."""
        e, along = self.low.e, wide.index[self.axis]
        assert isinstance(along, Lin)
        with e.loop(wide.width, WIDTH) as loop:
            base = e.bin("add", "i32", along.base, loop.var)
            index = (*wide.index[: self.axis], Lin(base, 1, "i32"), *wide.index[self.axis + 1 :])
            self.strip(Nest(self.low, WIDTH, index, Uni("0", "i32"), ()))

    def _lanes(self, nest: Nest, *, ends: bool = False) -> Lanes:
        """The lanes where the nest stands. ``ends``: with a mask that may stand for all of them at once."""
        address = nest.eval(self.pointer)
        active: Strip | None = None
        if self.mask is not None:
            whole = holds_throughout(nest, self.mask) if ends and not isinstance(address, Uni) else None
            active = whole or nest.eval(self.mask)
        uniform = isinstance(address, Uni) and isinstance(active, (Uni, type(None)))
        size = elem_bytes(self.pointer.type.pointee or "i8")
        width = 1 if uniform else nest.width
        stores = self.how is AccessKind.STORE
        warp = warp_of(self.low.e, self.pointer.type.shape or (), nest.index) if stores else "0"
        return Lanes(address, active, width, size, self.site, self.known, self.pointer.type.numel, warp=warp)

    def _each(self, lanes: Lanes) -> None:
        """Lane by lane, in the native helper."""
        addresses = to_vec(self.low.e, lanes.address, lanes.width)
        self.low.e.do(f"store {vec(lanes.width, 'i64')} {addresses}, ptr %lanes.addr, align 64")
        self._call(lanes, mask_bits(self.low.e, lanes))

    def _call(self, lanes: Lanes, active: str) -> None:
        assumed = max(lanes.width, 32 // lanes.size) if lanes.numel * lanes.size < 32 else lanes.width
        self.low.e.call(
            "dk_touch", "void",
            ("ptr", "%ctx"), ("ptr", self.known.entry if self.known is not None else "null"), ("ptr", "%lanes.addr"),
            ("i64", str(assumed)), ("i64", active), ("i64", str(lanes.site)), ("i64", str(lanes.size)),
            ("i64", str(int(self.how))), ("i64", lanes.warp),
        )  # fmt: skip


def fetch(low: Lowering, op: Op) -> None:
    """``dk.fetch``: a load whose values steer; zero where the memory has no contents, and noted."""
    e = low.e
    pointer, mask = op.operands[0], op.operands[1] if len(op.operands) > 1 else None
    other = op.operands[2] if len(op.operands) > 2 else None
    result = op.results[0]
    _touch(low, op, pointer, mask, AccessKind.LOAD)
    pointee = Type(pointer.type.pointee or "i8")
    site, known, reg = len(low.sites) - 1, low.entry_of(pointer), llvm_type(pointee)
    entry = known.entry if known is not None else "null"
    buffer = low.allocate_for(result) if result.type.is_block else None
    size = elem_bytes(pointee.elem)
    with strips(low, pointer.type.shape or (), 1) as nest:
        address = to_vec(e, nest.eval(pointer), 1)
        missing = to_vec(e, nest.eval(other), 1) if other is not None else low.zero(reg)
        active = to_vec(e, nest.eval(mask), 1) if mask is not None else "true"
        before, go, done = e.label, e.new_label("fetch"), e.new_label("fetched")
        e.branch(active, go, done)
        e.start(go)
        raw = e.op(f"load i{8 * size}, ptr {place(low, entry, address, size, site)}, align 1")
        value, label = from_memory(e, raw, pointee, 1), e.label
        e.jump(done)
        e.start(done)
        seen = Uni(e.phi(reg, (missing, before), (value, label)), reg)
        if buffer is not None:
            nest.write(buffer, seen)
        else:
            low.env[result] = seen
    if buffer is not None:
        low.env[result] = buffer


def put(low: Lowering, op: Op) -> None:
    """``dk.put``: a store of what steers, now or later."""
    e = low.e
    pointer, value = op.operands[:2]
    mask = op.operands[2] if len(op.operands) > 2 else None
    _touch(low, op, pointer, mask, AccessKind.STORE)
    pointee = Type(pointer.type.pointee or "i8")
    known, size = low.entry_of(pointer), elem_bytes(pointee.elem)
    entry = known.entry if known is not None else "null"
    with strips(low, pointer.type.shape or (), 1) as nest:
        address, lane = to_vec(e, nest.eval(pointer), 1), to_vec(e, nest.eval(value), 1)
        raw = to_memory(e, lane, pointee, 1)
        active = to_vec(e, nest.eval(mask), 1) if mask is not None else "true"
        go, done = e.new_label("put"), e.new_label("put_done")
        e.branch(active, go, done)
        e.start(go)
        e.do(f"store i{8 * size} {raw}, ptr {place(low, entry, address, size, -1)}, align 1")
        e.jump(done)
        e.start(done)


HANDLERS = {"dk.count": count, "dk.trips": trips, "dk.touch": touch, "dk.fetch": fetch, "dk.put": put}
