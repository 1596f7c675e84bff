"""A TTIR function as LLVM IR: ``void NAME(ptr context, i64 first, i64 last)`` runs programs [first, last) in order."""

from dataclasses import dataclass
from typing import Literal

from ttir_executor.lower import access, atomics, combine, dot, inline_asm, touch
from ttir_executor.lower import branches as control
from ttir_executor.lower.block_cost import BlockCost, count_operation
from ttir_executor.lower.elementwise import ELEMENTWISE
from ttir_executor.lower.emit import Emitter, float_literal
from ttir_executor.lower.nest import Binding, Buffer, Index, Nest, Shifted, constant_text, strips
from ttir_executor.lower.plan import (
    FOREVER,
    SHAPE_OPS,
    SOURCES,
    Arena,
    Lifetimes,
    Plan,
    Planner,
    argument_of,
    blocks_of,
    walk,
)
from ttir_executor.lower.runtime import Ctx, Kind, Status
from ttir_executor.lower.strip import Strip, Uni, int_literal, llvm_type
from ttir_executor.ttir.ir import BasicBlock, Function, Op, TTIRError, Type, UnsupportedTTIR, Value
from ttir_executor.ttir.parser import split_top

_ARENA_LIMIT = 512 << 20


Printed = Literal["float", "signed", "unsigned", "hex", "pointer"]


@dataclass(frozen=True)
class Site:
    """A place in the kernel that touches memory."""

    op: str
    loc: str
    argument: str | None = None
    """name of the pointer argument that the address derives from, where that is certain"""
    message: str = ""
    """text of a ``device_print`` or ``device_assert``"""
    shape: tuple[int, ...] | None = None
    """types of the printed operands"""
    printed: Printed = "float"
    bits: int = 64
    """of a printed integer"""
    number: int = -1
    """number of the operation (``Op.number``)"""


@dataclass(frozen=True)
class Lowered:
    """LLVM IR of a kernel, and the facts that its runner needs."""

    text: str
    symbol: str
    arena_bytes: int
    sites: tuple[Site, ...]
    blocks: tuple[BlockCost, ...]
    needs_disjoint: bool
    """valid only when no two pointer arguments share memory"""
    has_atomics: bool
    synchronises: bool
    """programs may agree on an order: there are atomics that release or acquire, or volatile loads"""
    waits: bool
    """a program may wait for another: a loop of open end looks at memory that others change"""
    has_prints: bool
    reads_clock: bool
    dynamic_pointers: bool
    """whether some address does not derive from one known argument"""
    unfilled: tuple[Site, ...]
    """masked loads without ``other``"""


class Lowering:
    """State while one function is lowered."""

    def __init__(self, function: Function, *, checked: bool, allow_store_fusion: bool):
        self.function = function
        self.checked = checked
        self.plan: Plan = Planner(function, allow_store_fusion).run()
        self.e = Emitter()
        self.env: dict[Value, Binding] = {}
        self.destination: dict[Value, Buffer] = {}
        self.lifetimes = Lifetimes(function, self.plan.inline)
        self.arena = Arena()
        self.current: Op | None = None
        self.sites: list[Site] = []
        self.costs: list[BlockCost] = []
        self.numbers = {id(block): k for k, block in enumerate(blocks_of(function))}
        self.cost = BlockCost()
        self.inside_function = False
        """set while the function inside an operation is lowered; its work was counted with the operation"""
        self.entries: dict[Value, access.KnownEntry] = {}
        self.globals: list[str] = []
        self.dynamic = False
        self.unfilled: list[int] = []
        self.labels: dict[str, str] = {}

    # ---- whole function

    def run(self) -> Lowered:
        """Lower everything.

        Raises:
            UnsupportedTTIR: an operation, type or shape that is not simulated.
        """
        e = self.e
        self._prologue()
        blocks = self.function.body.blocks
        control.lower_cfg(self, blocks)
        e.start("program_end")
        e.call("dk_sort", "void", ("ptr", "%ctx"), ("i64", str(len(self.costs))))
        e.do("%program.next = add i64 %program, 1")
        e.do("%program.more = icmp ult i64 %program.next, %last")
        e.branch("%program.more", "program_more", "return")
        e.start("program_more")
        e.do("%program.low = and i64 %program.next, 63")
        e.branch(e.bin("icmp eq", "i64", "%program.low", "0"), "program_clock", "program_start", likely=False)
        e.start("program_clock")
        late = e.call("dk_late", "i1", ("ptr", "%ctx"))
        e.branch(late, "abort_time", "program_start", likely=False)
        e.start("return")
        e.do("ret void")
        for label, code in (("abort_steps", Status.STEPS), ("abort_time", Status.TIME)):
            e.start(label)
            status = e.op(f"getelementptr i64, ptr %ctx, i64 {Ctx.STATUS}")
            e.do(f"store i64 {int(code)}, ptr {status}")
            e.do("ret void")
        ops = walk(self.function.body)
        return Lowered(
            text=self._module(),
            symbol="kernel",
            arena_bytes=self.arena.size + 64,
            sites=tuple(self.sites),
            blocks=tuple(self.costs),
            needs_disjoint=self.plan.loads_fused_into_stores,
            has_atomics=any(op.name.startswith("tt.atomic") for op in ops),
            synchronises=any(_may_synchronise(op) for op in ops),
            waits=_may_wait(self.function, ops),
            has_prints=any(op.name == "tt.print" for op in ops),
            reads_clock=any(clock in op.attrs.get("asm", "") for op in ops for clock in inline_asm.CLOCKS),
            dynamic_pointers=self.dynamic,
            unfilled=tuple(self.sites[site] for site in self.unfilled),
        )

    def _prologue(self) -> None:
        e = self.e
        e.do("%lanes.addr = alloca [16 x i64], align 64")
        e.do("%lanes.data = alloca [16 x i64], align 64")
        arena = self.context("arena", Ctx.ARENA, "ptr")
        e.do(f"%arena = getelementptr i8, ptr {arena}, i64 0")
        args = self.context("args", Ctx.ARGS, "ptr")
        entries = self.context("arg_entries", Ctx.ARG_ENTRIES, "ptr")
        for k, argument in enumerate(self.function.args):
            if argument.type.is_block:
                raise UnsupportedTTIR("a block as a kernel argument")
            slot = e.op(f"getelementptr i64, ptr {args}, i64 {k}")
            self.env[argument] = Uni(self._argument(slot, argument.type), llvm_type(argument.type))
            if argument.type.elem == "ptr":
                pointer = e.op(f"getelementptr ptr, ptr {entries}, i64 {k}")
                self.entries[argument] = access.load_entry(e, e.op(f"load ptr, ptr {pointer}"))
        for axis, word in (("x", Ctx.GRID_X), ("y", Ctx.GRID_Y), ("z", Ctx.GRID_Z)):
            e.do(f"%grid.{axis}.p = getelementptr i64, ptr %ctx, i64 {word}")
            e.do(f"%grid.{axis} = load i64, ptr %grid.{axis}.p")
        e.do(f"%steps = getelementptr i64, ptr %ctx, i64 {Ctx.STEPS}")
        e.do(f"%step.limit = load i64, ptr {e.op(f'getelementptr i64, ptr %ctx, i64 {Ctx.STEP_LIMIT}')}")
        counts = self.context("counts", Ctx.BLOCKS, "ptr")
        e.do(f"%counts = getelementptr i8, ptr {counts}, i64 0")
        for name, word in _PROGRAM_WORDS.items():
            e.do(f"%{name} = getelementptr i64, ptr %ctx, i64 {word}")
        e.do("%plane = mul i64 %grid.x, %grid.y")
        e.do("%programs = mul i64 %plane, %grid.z")
        e.jump("program_start")
        e.start("program_start")
        e.do(
            "%program = phi i64 [ %first, %entry ], [ %program.next, %program_more ], [ %program.next, %program_clock ]"
        )
        self._next_program()
        for axis in "xyz":
            e.do(f"%pid.{axis} = trunc i64 %pid.{axis}64 to i32")
            e.do(f"%grid32.{axis} = trunc i64 %grid.{axis} to i32")

    def _next_program(self) -> None:
        """Which program stands at this place of the launch's order, and a new segment for it."""
        e = self.e
        factor, shift = e.op("load i64, ptr %order.factor"), e.op("load i64, ptr %order.shift")
        place = e.bin("add", "i64", e.bin("mul", "i64", "%program", factor), shift)
        pid = e.bin("urem", "i64", place, "%programs")
        e.do(f"store i64 {pid}, ptr %program.slot")
        segment = e.bin("add", "i64", e.op("load i64, ptr %segment.slot"), "1")
        for slot, value in (("segment", segment), ("first", segment), ("acquired", "0")):
            e.do(f"store i64 {value}, ptr %{slot}.slot")
        e.do("store i64 %step.limit, ptr %steps")
        e.do(f"%pid.z64 = udiv i64 {pid}, %plane")
        e.do(f"%in_plane = urem i64 {pid}, %plane")
        e.do("%pid.y64 = udiv i64 %in_plane, %grid.x")
        e.do("%pid.x64 = urem i64 %in_plane, %grid.x")

    def _argument(self, slot: str, type_: Type) -> str:
        """A launch argument from its 64-bit slot: integers by value, floats as a double."""
        e, ty = self.e, llvm_type(type_)
        if ty in ("float", "double"):
            value = e.op(f"load double, ptr {slot}")
            return value if ty == "double" else e.cast("fptrunc", "double", value, "float")
        value = e.op(f"load i64, ptr {slot}")
        return value if ty == "i64" else e.cast("trunc", "i64", value, ty)

    def context(self, name: str, word: int, ty: str = "i64") -> str:
        """Load one word of the launch context."""
        pointer = self.e.op(f"getelementptr i64, ptr %ctx, i64 {word}")
        return self.e.op(f"load {ty}, ptr {pointer}")

    def _module(self) -> str:
        body = "\n".join(self.e.lines)
        declares = "\n".join(self.e.declares.values())
        header = "define void @kernel(ptr noalias %ctx, i64 %first, i64 %last) {\nentry:"
        weights = '!0 = !{!"branch_weights", i32 1000, i32 1}\n!1 = !{!"branch_weights", i32 1, i32 1000}'
        return "\n".join([*self.globals, declares, header, body, "}", weights, ""])

    # ---- blocks and operations

    def open_counter(self) -> str:
        """Open a new execution counter for the operations that follow; return its address."""
        self.cost = BlockCost()
        self.costs.append(self.cost)
        return self.e.op(f"getelementptr i64, ptr %counts, i64 {len(self.costs) - 1}")

    def count_block(self, block: BasicBlock) -> None:
        """Open the execution counter of the block being written."""
        if self.inside_function:
            self.cost = BlockCost()
            return
        e, slot = self.e, self.open_counter()
        if not any(op.name == "dk.count" for op in block.ops[:1]):  # a skeleton's blocks say whose they are
            self.cost.entered[self.numbers[id(block)]] += 1
        e.do(f"store i64 {e.bin('add', 'i64', e.op(f'load i64, ptr {slot}'), '1')}, ptr {slot}")

    def lower_ops(self, block: BasicBlock) -> None:
        """All operations of a block but its terminator."""
        for op in block.ops:
            if op.name not in control.TERMINATORS:
                self.lower_op(op)

    def lower_op(self, op: Op) -> None:
        """One operation: scalars now; blocks now, or left to their consumer."""
        outer, self.current = self.current, op
        self._lower(op)
        self.current = outer

    def _lower(self, op: Op) -> None:
        count_operation(self.cost, op)
        handler = _HANDLERS.get(op.name)
        if handler is not None:
            handler(self, op)
        elif op.results and not op.results[0].type.is_block:
            self._scalar(op)
        elif (
            op.name in ELEMENTWISE or op.name in SHAPE_OPS or op.name in SOURCES or op.name in ("tt.load", "tt.gather")
        ):
            for value in op.results:
                if id(value) not in self.plan.inline and value.uses:
                    self.env[value] = self.materialise(value, self.destination.get(value))
                elif op.name == "tt.load" and not value.uses:
                    self.materialise(value, None)  # an unused load still touches memory
        else:
            raise UnsupportedTTIR(op.name, op.loc)

    def _scalar(self, op: Op) -> None:
        value = op.results[0]
        if op.name == "arith.constant":
            self.env[value] = Uni(constant_text(op.attrs["value"], value.type), llvm_type(value.type))
            return
        nest = Nest(self, 1, (), Uni("0", "i32"), ())
        if op.name in ELEMENTWISE:
            result: Strip = nest.eval_op(op, value, ())
        elif op.name == "tt.unsplat":
            result = nest.eval(op.operands[0], tuple(Uni("0", "i32") for _ in op.operands[0].type.shape or ()))
        elif op.name in ("tt.load", "ub.poison"):
            result = nest.eval_op(op, value, ())
        else:
            raise UnsupportedTTIR(op.name, op.loc)
        if not isinstance(result, Uni):
            raise TTIRError(f"{op.name} gives no scalar")
        self.env[value] = result
        if (multiple := access.hint(op, "divisibility")) and result.ty.startswith("i"):
            self.note_multiple(op, result, multiple)

    # ---- buffers

    def allocate(self, type_: Type, last: int = -1) -> Buffer:
        """Scratch memory for a block, needed until position ``last`` (at least to the end of this operation)."""
        assert type_.shape is not None
        cell = {"float": 4, "i1": 1}.get(llvm_type(type_)) or (8 if llvm_type(type_) == "double" else 0)
        cell = cell or max(1, int(llvm_type(type_)[1:]) // 8)
        nbytes = -(-type_.numel * cell // 64) * 64 + 64
        op = self.current
        now, end = (self.lifetimes.start(op), self.lifetimes.end(op)) if op is not None else (0, FOREVER)
        offset = self.arena.take(nbytes, now, max(last, end))
        if self.arena.size > _ARENA_LIMIT:
            raise UnsupportedTTIR(f"a kernel that holds over {_ARENA_LIMIT >> 20} MiB of blocks")
        return Buffer(self.e.op(f"getelementptr i8, ptr %arena, i64 {offset}"), type_)

    def allocate_for(self, value: Value) -> Buffer:
        """Scratch memory for a value, until its last use."""
        return self.allocate(value.type, self.lifetimes.last(value))

    def materialise(self, value: Value, into: Buffer | None) -> Buffer:
        """Compute a block value now, into ``into`` or fresh scratch memory."""
        assert value.type.shape is not None
        buffer = into or self.allocate_for(value)
        bound = value in self.env
        with strips(self, value.type.shape) as nest:
            if bound or value.op is None:
                lanes = nest.eval(value)
            else:
                lanes = nest.eval_op(value.op, value, nest.index)
            nest.write(buffer, lanes)
        return buffer

    def buffer_of(self, value: Value) -> Buffer:
        """The block value in scratch memory, computed there if it is not yet."""
        binding = self.env.get(value)
        return binding if isinstance(binding, Buffer) else self.materialise(value, None)

    def constant_block(self, op: Op, type_: Type) -> Buffer:
        """A constant with one value per element, as a global."""
        flat = op.attrs["value"].replace("[", "").replace("]", "")
        parts = split_top(flat)
        if len(parts) != type_.numel:
            raise TTIRError(f"a constant of {len(parts)} values for {type_.numel} elements")
        name = f"@constant{len(self.globals)}"
        buffer = Buffer(name, type_)
        cell = buffer.cell
        cells = []
        for part in parts:
            text = constant_text(part, type_)
            cells.append(f"{cell} {int(text == 'true') if cell == 'i8' and text in ('true', 'false') else text}")
        self.globals.append(f"{name} = private constant [{len(cells)} x {cell}] [{', '.join(cells)}], align 64")
        return buffer

    # ---- memory

    def site(
        self,
        op: Op,
        pointer: Value | None,
        *,
        message: str = "",
        shape: tuple[int, ...] | None = None,
        printed: Printed = "float",
        bits: int = 64,
    ) -> int:
        """Number of the place where ``op`` accesses memory or prints."""
        argument = argument_of(pointer) if pointer is not None else None
        name = argument.name.lstrip("%") if argument is not None else None
        self.sites.append(Site(op.name, op.loc, name, message, shape, printed, bits, op.number))
        return len(self.sites) - 1

    def entry_of(self, pointer: Value) -> access.KnownEntry | None:
        """Bounds of the allocation that a pointer derives from; None when that is only known at run time."""
        argument = argument_of(pointer)
        known = self.entries.get(argument) if argument is not None else None
        if known is None:
            self.dynamic = True
        return known

    def load(self, nest: Nest, op: Op, index: Index) -> Strip:
        """A ``tt.load`` at ``index``."""
        return access.load(self, nest, op, index)

    def scalar(self, value: Value) -> str:
        """The register of a scalar."""
        return control.scalar(self, value)

    def watch_divisor(self, op: Op, divisor: Strip) -> None:
        """Record an integer division by a zero that is the same for all elements. Lanes of a block may divide by zero
        where nothing looks at their quotient."""
        if not isinstance(divisor, Uni) or int_literal(divisor.val) not in (None, 0):
            return
        site = self.site(op, None)  # in every build: programs of one launch that are not examined share its tables
        if self.checked:
            self.note_unless(self.e.bin("icmp ne", divisor.ty, divisor.val, "0"), Kind.DIVISION, site)

    def note_multiple(self, op: Op, value: Uni, multiple: int) -> None:
        """Record a scalar that is no multiple of what ``tl.multiple_of`` says: a GPU may move what lies beside."""
        site = self.site(op, None)  # in every build, as above
        if self.checked:
            wide = value.val if value.ty == "i64" else self.e.cast("sext", value.ty, value.val, "i64")
            rest = self.e.bin("srem", "i64", wide, str(multiple))
            self.note_unless(self.e.bin("icmp eq", "i64", rest, "0"), Kind.HINT, site)

    def note_unless(self, fine: str, kind: Kind, site: int) -> None:
        """Record a finding where a flag is off."""
        e = self.e
        bad, after = e.new_label("bad"), e.new_label("after")
        e.branch(fine, after, bad, likely=True)
        e.start(bad)
        e.call("dk_note", "void", ("ptr", "%ctx"), ("i64", str(int(kind))), ("i64", str(site)))
        e.jump(after)
        e.start(after)

    def zero(self, ty: str) -> str:
        """A literal zero."""
        return float_literal(0.0, ty) if ty in ("float", "double") else ("false" if ty == "i1" else "0")


_PROGRAM_WORDS = {
    "program.slot": Ctx.PROGRAM, "segment.slot": Ctx.SEGMENT, "first.slot": Ctx.FIRST_SEGMENT,
    "acquired.slot": Ctx.ACQUIRED, "order.factor": Ctx.ORDER_FACTOR, "order.shift": Ctx.ORDER_SHIFT,
}  # fmt: skip


def _may_synchronise(op: Op) -> bool:
    """Whether an access may order programs."""
    return access.is_volatile(op) or atomics.sync_flags(op) != 0


def _may_wait(function: Function, ops: list[Op]) -> bool:
    """Whether some loop that need not end looks at memory that other programs change."""
    loops = [op for op in ops if op.name == "scf.while"]
    inside = [other for loop in loops for region in loop.regions for other in walk(region)]
    if len(function.body.blocks) > 1:  # branches of any form: there may be a loop among them
        inside = ops
    return any(access.is_volatile(op) or op.name.startswith("tt.atomic") for op in inside)


def _program_id(low: Lowering, op: Op) -> None:
    axis = op.attrs.get("word0", "x")
    if axis not in ("x", "y", "z"):
        raise TTIRError(f"{op.name} of axis {axis!r}")
    name = "pid" if op.name == "tt.get_program_id" else "grid32"
    low.env[op.results[0]] = Uni(f"%{name}.{axis}", "i32")


def _nothing(low: Lowering, op: Op) -> None:
    return None


_HANDLERS = {
    "tt.get_program_id": _program_id,
    "tt.get_num_programs": _program_id,
    "tt.store": access.store,
    "tt.atomic_rmw": atomics.atomic_rmw,
    "tt.atomic_cas": atomics.atomic_cas,
    "tt.assert": atomics.device_assert,
    "tt.print": atomics.device_print,
    "tt.reduce": combine.reduce,
    "tt.scan": combine.scan,
    "tt.histogram": combine.histogram,
    "tt.map_elementwise": combine.map_elementwise,
    "tt.elementwise_inline_asm": inline_asm.inline_asm,
    "tt.dot": dot.dot,
    "tt.dot_scaled": dot.dot_scaled,
    "scf.for": control.for_loop,
    "scf.if": control.if_else,
    "scf.while": control.while_loop,
    "ttg.barrier": _nothing,
    "gpu.barrier": _nothing,
    "tt.debug_barrier": _nothing,
    "llvm.intr.assume": _nothing,
    **touch.HANDLERS,
}

__all__ = ["Lowered", "Lowering", "Shifted", "Site"]
