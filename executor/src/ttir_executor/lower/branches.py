"""Control flow: the function's basic blocks, ``scf.for``, ``scf.if`` and ``scf.while``.

Scalars that loops carry are phis. Blocks that loops carry live in two buffers that swap roles every iteration; index
blocks that only move by a uniform step keep their initial expression plus one running scalar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ttir_executor.lower.nest import Buffer, Shifted, strips
from ttir_executor.lower.plan import FOREVER, uniform_step
from ttir_executor.lower.strip import Uni, int_literal, llvm_type, scalar_int
from ttir_executor.ttir.ir import BasicBlock, Op, TTIRError, Type, UnsupportedTTIR, Value, elem_bytes

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering

TERMINATORS = frozenset(
    {
        "scf.yield",
        "scf.condition",
        "tt.return",
        "cf.br",
        "cf.cond_br",
        "tt.reduce.return",
        "tt.scan.return",
        "tt.map_elementwise.return",
    }
)


def scalar(low: Lowering, value: Value) -> str:
    """The register of a scalar."""
    binding = low.env.get(value)
    if not isinstance(binding, Uni):
        raise TTIRError(f"scalar {value.name} has no value here")
    return binding.val


# ---- basic blocks


def lower_cfg(low: Lowering, blocks: list[BasicBlock]) -> None:
    """All blocks of the kernel's body, in the order of ``ttir/flow.py``."""

    def ends(op: Op | None) -> None:
        if op is not None and op.name != "tt.return":
            raise TTIRError(f"block ends in {op.name}")
        if op is not None and op.operands:
            raise UnsupportedTTIR("a kernel that returns a value", op.loc)
        low.e.jump("program_end")

    _Blocks(low, blocks, ends).run()


def lower_function(low: Lowering, blocks: list[BasicBlock]) -> list[Uni]:
    """Lower all blocks of a function on scalars in place; return its results."""
    e, end = low.e, low.e.new_label("returned")
    edges: list[tuple[str, list[Uni]]] = []

    def ends(op: Op | None) -> None:
        if op is None or op.successors:
            raise TTIRError("a function that returns nothing")
        edges.append((e.label, [Uni(scalar(low, value), llvm_type(value.type)) for value in op.operands]))
        e.jump(end)

    _Blocks(low, blocks, ends).run()
    e.start(end)
    if any([value.ty for value in values] != [value.ty for value in edges[0][1]] for _, values in edges):
        raise TTIRError("a function that returns values of different types")
    columns = zip(*(values for _, values in edges), strict=True)
    labels = [label for label, _ in edges]
    return [
        Uni(
            e.phi(column[0].ty, *((value.val, label) for value, label in zip(column, labels, strict=True))),
            column[0].ty,
        )
        for column in columns
    ]


class _Blocks:
    """Basic blocks while they are lowered, every one after all that branch to it.

    Scalar arguments of a block are phis; block values are written by every edge into one buffer. No branch leads back,
    so that nothing that an edge passes on lies in the buffers it writes to.

    Args:
        ends: writes what comes after a block that leads to no other; takes its last operation.
    """

    def __init__(self, low: Lowering, blocks: list[BasicBlock], ends: Callable[[Op | None], None]):
        self.low = low
        self.blocks = blocks
        self.ends = ends
        self.targets = {block.label: block for block in blocks}
        self.labels = {block.label: low.e.new_label("block") for block in blocks}
        self.edges: dict[str, list[tuple[str, list[str]]]] = {}
        """label of a block -> (LLVM block that an edge comes from, the scalars it passes)"""

    def run(self) -> None:
        """Lower all of them."""
        low, e = self.low, self.low.e
        open_: list[tuple[BasicBlock, list[tuple[str, int]]]] = []
        for block in self.blocks[1:]:
            low.env.update({a: low.allocate(a.type, FOREVER) for a in block.args if a.type.is_block})
        for k, block in enumerate(self.blocks):
            if k > 0:
                e.start(self.labels[block.label])
                slots = []
                for argument in _scalars(block.args):
                    register = e.fresh()
                    slots.append((register, len(e.lines)))
                    e.lines.append("")
                    low.env[argument] = Uni(register, llvm_type(argument.type))
                open_.append((block, slots))
            low.count_block(block)
            low.lower_ops(block)
            self._terminate(block.ops[-1] if block.ops else None)
        for block, slots in open_:
            for position, (argument, (register, line)) in enumerate(zip(_scalars(block.args), slots, strict=True)):
                pairs = ", ".join(f"[ {values[position]}, %{source} ]" for source, values in self.edges[block.label])
                e.lines[line] = f"  {register} = phi {llvm_type(argument.type)} {pairs}"

    def _terminate(self, op: Op | None) -> None:
        e = self.low.e
        if op is None or (op.name, len(op.successors)) not in (("cf.br", 1), ("cf.cond_br", 2)):
            self.ends(op)
            return
        if len(op.successors) == 1:
            self._edge(*op.successors[0])
            return
        # an edge of its own for each side: a phi takes one value for each block it comes from
        sides = [e.new_label("edge") for _ in op.successors]
        e.branch(scalar(self.low, op.operands[0]), *sides)
        for side, successor in zip(sides, op.successors, strict=True):
            e.start(side)
            self._edge(*successor)

    def _edge(self, target: str, values: list[Value]) -> None:
        """Pass values to a block, and branch to it."""
        low, block = self.low, self.targets[target]
        if [value.type for value in values] != [argument.type for argument in block.args]:
            raise TTIRError(f"a branch to {target} with values of other types than it takes")
        for argument, value in zip(block.args, values, strict=True):
            held = low.env.get(argument)
            if isinstance(held, Buffer):
                low.materialise(value, held)
        passed = [scalar(low, value) for value in _scalars(values)]
        self.edges.setdefault(target, []).append((low.e.label, passed))
        low.e.jump(self.labels[target])


def _scalars(values: list[Value]) -> list[Value]:
    return [value for value in values if not value.type.is_block]


# ---- loops


@dataclass
class _Carried:
    """How one loop-carried value is held."""

    kind: str
    """``scalar``, ``shift`` (uniformly moving index) or ``swap`` (two buffers)"""
    type: Type
    registers: list[str]
    initial: list[str]
    lines: list[int]
    nexts: list[str]
    buffers: tuple[Buffer, ...] = ()


def _prepare(low: Lowering, initial: Value, argument: Value, yielded: Value | None, last: int) -> _Carried:
    """Choose how to hold the value (until position ``last``) before the loop, and create its initial state."""
    type_ = argument.type
    if not type_.is_block:
        return _Carried("scalar", type_, [], [scalar(low, initial)], [], [])
    index_like = type_.elem == "ptr" or not type_.is_float
    if yielded is not None and index_like and uniform_step(yielded, argument) is not None:
        return _Carried("shift", type_, [], ["0"], [], [])
    first, second = low.allocate(type_, last), low.allocate(type_, last)
    assert type_.shape is not None
    with strips(low, type_.shape) as nest:
        nest.write(first, nest.eval(initial))
    return _Carried("swap", type_, [], [first.pointer, second.pointer], [], [], (first, second))


def _phi_types(carried: _Carried) -> list[str]:
    if carried.kind == "scalar":
        return [llvm_type(carried.type)]
    if carried.kind == "shift":
        return [llvm_type(carried.type)]
    return ["ptr", "ptr"]


def _open(low: Lowering, carried: list[_Carried]) -> None:
    """Write placeholders for the phis at the loop's head."""
    for item in carried:
        for _ in item.initial:
            item.registers.append(low.e.fresh())
            item.lines.append(len(low.e.lines))
            low.e.lines.append("")


def _bind(low: Lowering, item: _Carried, value: Value, initial: Value) -> None:
    """Bind the value inside the loop (and after it)."""
    if item.kind == "scalar":
        low.env[value] = Uni(item.registers[0], llvm_type(item.type))
    elif item.kind == "shift":
        low.env[value] = Shifted(initial, item.registers[0])
    else:
        low.env[value] = Buffer(item.registers[0], item.type)


def _destine(low: Lowering, item: _Carried, yielded: Value, body: BasicBlock) -> None:
    """Let a value that is only computed to be carried on go straight into the other buffer."""
    if item.kind == "swap" and yielded.op is not None and yielded.op.block is body and yielded not in low.destination:
        low.destination[yielded] = Buffer(item.registers[1], item.type)


def _advance(low: Lowering, item: _Carried, argument: Value, yielded: Value) -> None:
    """Set the phis' next values at the loop's end."""
    e = low.e
    if item.kind == "scalar":
        item.nexts = [scalar(low, yielded)]
        return
    if item.kind == "shift":
        total = item.registers[0]
        for op, addend in uniform_step(yielded, argument) or []:
            total = scalar_int(e, "add", llvm_type(item.type), total, _increment(low, op, addend))
        item.nexts = [total]
        return
    target = Buffer(item.registers[1], item.type)
    if low.env.get(yielded) != target:
        assert item.type.shape is not None
        with strips(low, item.type.shape) as nest:
            nest.write(target, nest.eval(yielded))
    item.nexts = [item.registers[1], item.registers[0]]


def _increment(low: Lowering, op: Op, addend: Value) -> str:
    """The uniform addend as a scalar; in bytes for a pointer."""
    e = low.e
    source = addend
    while source.op is not None and source.type.is_block and source.op.name != "arith.constant":
        source = source.op.operands[0]
    if source.type.is_block:
        assert source.op is not None
        literal = int_literal(source.op.attrs["value"])
        if literal is None:
            raise TTIRError("a uniform index increment that is not an integer")
        text = str(literal)
    else:
        text = scalar(low, source)
    if op.name != "tt.addptr":
        return text
    ty = llvm_type(source.type.scalar())
    if ty != "i64" and int_literal(text) is None:
        text = e.cast("sext", ty, text, "i64")
    pointee = op.operands[0].type.pointee
    assert pointee is not None
    return scalar_int(e, "mul", "i64", text, str(elem_bytes(pointee)))


def _close(low: Lowering, carried: list[_Carried], before: str, latch: str) -> None:
    """Fill in the phis, once both edges are known."""
    for item in carried:
        for register, ty, initial, line, following in zip(
            item.registers, _phi_types(item), item.initial, item.lines, item.nexts, strict=True
        ):
            low.e.lines[line] = f"  {register} = phi {ty} [ {initial}, %{before} ], [ {following}, %{latch} ]"


def _step_limit(low: Lowering, *bodies: BasicBlock) -> None:
    """Charge one iteration to the program's budget; leave the kernel when it is spent or the time is over."""
    e = low.e
    weight = sum(_work(op) for body in bodies for op in body.ops)
    before = e.op("load i64, ptr %steps")
    left = e.bin("sub", "i64", before, str(weight))
    e.do(f"store i64 {left}, ptr %steps")
    fine, spent, clock = e.new_label("steps"), e.new_label("spent"), e.new_label("clock")
    crossed = e.bin("lshr", "i64", e.bin("xor", "i64", before, left), str(_CLOCK_BITS))
    e.branch(e.bin("icmp eq", "i64", crossed, "0"), fine, spent, likely=True)
    e.start(spent)
    e.branch(e.bin("icmp slt", "i64", left, "0"), "abort_steps", clock, likely=False)
    e.start(clock)
    e.branch(e.call("dk_late", "i1", ("ptr", "%ctx")), "abort_time", fine, likely=False)
    e.start(fine)


_CLOCK_BITS = 18
"""the clock is read each time the budget falls by 2 to this power"""


def _work(op: Op) -> int:
    """Rough cost of one operation, in strips; nested regions charge for themselves."""
    if op.name.startswith("tt.atomic"):
        return 64  # a loop around an atomic may be a lock that nobody will release: programs run one after another
    elements = max((value.type.numel for value in (*op.operands, *op.results)), default=1)
    if op.name in ("tt.dot", "tt.dot_scaled"):
        elements = op.results[0].type.numel * (op.operands[0].type.shape or (1,))[-1] // 4
    return max(1, elements // 16)


def for_loop(low: Lowering, op: Op) -> None:
    """``scf.for``: bounds may be data; a non-positive step ends it at once."""
    e = low.e
    body = op.regions[0].blocks[0]
    terminator = body.ops[-1] if body.ops and body.ops[-1].name == "scf.yield" else None
    yields = terminator.operands if terminator is not None else []
    arguments, initials = body.args[1:], op.operands[3:]
    start, stop, step = (scalar(low, v) for v in op.operands[:3])
    ty = llvm_type(body.args[0].type)
    carried = [
        _prepare(low, i, a, y, low.lifetimes.last(r))
        for i, a, y, r in zip(initials, arguments, yields, op.results, strict=True)
    ]
    outer_cost = low.cost
    before, head, inside, after = e.label, e.new_label("for"), e.new_label("for_body"), e.new_label("for_end")
    e.jump(head)
    e.start(head)
    variable = e.fresh()
    line = len(e.lines)
    e.lines.append("")
    _open(low, carried)
    less = "ult" if op.attrs.get("unsigned") else "slt"
    again = e.bin(f"icmp {less}", ty, variable, stop)
    again = e.bin("and", "i1", again, e.bin("icmp sgt", ty, step, "0"))
    e.branch(again, inside, after)
    e.start(inside)
    _step_limit(low, body)
    low.env[body.args[0]] = Uni(variable, ty)
    for item, argument, initial, value in zip(carried, arguments, initials, yields, strict=True):
        _bind(low, item, argument, initial)
        _destine(low, item, value, body)
    low.count_block(body)
    low.lower_ops(body)
    for item, argument, value in zip(carried, arguments, yields, strict=True):
        _advance(low, item, argument, value)
    following = e.bin("add", ty, variable, step)
    latch = e.label
    e.jump(head)
    e.lines[line] = f"  {variable} = phi {ty} [ {start}, %{before} ], [ {following}, %{latch} ]"
    _close(low, carried, before, latch)
    e.start(after)
    low.cost = outer_cost
    for item, result, initial in zip(carried, op.results, initials, strict=True):
        _bind(low, item, result, initial)


def while_loop(low: Lowering, op: Op) -> None:
    """``scf.while``: the first region tests and passes values on, the second is the body."""
    e = low.e
    test, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
    condition, terminator = test.ops[-1], body.ops[-1] if body.ops else None
    if condition.name != "scf.condition":
        raise TTIRError("scf.while without scf.condition")
    yields = terminator.operands if terminator is not None and terminator.name == "scf.yield" else []
    carried = [_prepare(low, i, a, None, FOREVER) for i, a in zip(op.operands, test.args, strict=True)]
    passed = condition.operands[1:]
    buffers = {k: low.allocate(v.type, FOREVER) for k, v in enumerate(passed) if v.type.is_block and v not in test.args}
    outer_cost = low.cost
    before, head, inside, after = e.label, e.new_label("while"), e.new_label("while_body"), e.new_label("while_end")
    e.jump(head)
    e.start(head)
    _open(low, carried)
    for item, argument, initial in zip(carried, test.args, op.operands, strict=True):
        _bind(low, item, argument, initial)
    _step_limit(low, test, body)
    low.count_block(test)
    low.lower_ops(test)
    outgoing = [_forward(low, value, buffers.get(k)) for k, value in enumerate(passed)]
    e.branch(scalar(low, condition.operands[0]), inside, after)
    e.start(inside)
    for argument, binding in zip(body.args, outgoing, strict=True):
        low.env[argument] = binding
    low.count_block(body)
    low.lower_ops(body)
    for item, argument, value in zip(carried, test.args, yields, strict=True):
        _advance(low, item, argument, value)
    latch = e.label
    e.jump(head)
    _close(low, carried, before, latch)
    e.start(after)
    low.cost = outer_cost
    for result, binding in zip(op.results, outgoing, strict=True):
        low.env[result] = binding


def _forward(low: Lowering, value: Value, buffer: Buffer | None) -> Uni | Buffer | Shifted:
    if buffer is not None:
        return low.materialise(value, buffer)
    binding = low.env.get(value)
    if binding is None:
        raise TTIRError(f"value {value.name} has no definition here")
    return binding


def if_else(low: Lowering, op: Op) -> None:
    """``scf.if``: scalar results are phis, block results are written by either side into one buffer."""
    e = low.e
    condition = scalar(low, op.operands[0])
    buffers = [low.allocate_for(r) if r.type.is_block else None for r in op.results]
    yes, no, end = e.new_label("then"), e.new_label("else"), e.new_label("endif")
    outer_cost = low.cost
    e.branch(condition, yes, no)
    edges: list[tuple[str, list[str]]] = []
    for label, region in ((yes, op.regions[0]), (no, op.regions[1] if len(op.regions) > 1 else None)):
        e.start(label)
        values: list[str] = []
        if region is not None:
            block = region.blocks[0]
            low.count_block(block)
            low.lower_ops(block)
            yields = block.ops[-1].operands if block.ops and block.ops[-1].name == "scf.yield" else []
            for value, buffer in zip(yields, buffers, strict=True):
                if buffer is None:
                    values.append(scalar(low, value))
                else:
                    low.materialise(value, buffer)
                    values.append("")
        edges.append((e.label, values))
        e.jump(end)
    e.start(end)
    low.cost = outer_cost
    for k, (result, buffer) in enumerate(zip(op.results, buffers, strict=True)):
        if buffer is not None:
            low.env[result] = buffer
        else:
            ty = llvm_type(result.type)
            low.env[result] = Uni(e.phi(ty, *((values[k], label) for label, values in edges)), ty)
