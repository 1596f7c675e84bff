"""Reductions and scans with any combine region, and histograms.

The functions inside ``tt.reduce``, ``tt.scan`` and ``tt.map_elementwise``, on strips of elements.

A function without loops and early returns runs on all lanes at once; both sides of its branches are computed, which has
no effects, and lanes choose. Any other runs on one lane after another, as the code of a program does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ttir_executor.lower import branches as control
from ttir_executor.lower.block_cost import BlockCost, count_elementwise
from ttir_executor.lower.elementwise import ELEMENTWISE, apply
from ttir_executor.lower.emit import WIDTH, vec
from ttir_executor.lower.nest import Buffer, Index, Nest, constant_text, lanes, split_flat, split_index, strips
from ttir_executor.lower.plan import walk
from ttir_executor.lower.strip import Lin, Strip, Uni, Vec, add, llvm_type, mul, numbers_of, strip_of, to_vec
from ttir_executor.ttir.ir import BasicBlock, Op, Region, TTIRError, UnsupportedTTIR, Value

if TYPE_CHECKING:
    from ttir_executor.lower.function import Lowering


def run_region(low: Lowering, op: Op, values: list[Strip], width: int) -> list[Strip]:
    """Inline the function inside ``op`` for ``values``, one strip for each argument; return its results."""
    blocks = op.regions[0].blocks
    if len(blocks[0].args) != len(values):
        raise TTIRError(f"the combine region of {op.name} takes {len(blocks[0].args)} values")
    if len(blocks) == 1 and _straight(blocks[0]):
        return _run_block(low, op, blocks[0], dict(zip(blocks[0].args, values, strict=True)), width)
    if width == 1:
        return list(_run_lane(low, op, [Uni(to_vec(low.e, value, 1), value.ty) for value in values]))
    return _lane_by_lane(low, op, values, width)


def _straight(block: BasicBlock) -> bool:
    """Whether there is nothing but arithmetic and branches that join again."""
    for inner in block.ops[:-1]:
        if inner.name == "scf.if" and len(inner.regions) == 2:
            if not all(_straight(region.blocks[0]) for region in inner.regions):
                return False
        elif inner.name != "arith.constant" and inner.name not in ELEMENTWISE:
            return False
    return True


def _run_block(low: Lowering, op: Op, block: BasicBlock, known: dict[Value, Strip], width: int) -> list[Strip]:
    """A block of scalar operations on all lanes at once; gives what its last operation returns."""

    def find(value: Value) -> Strip:
        if value in known:
            return known[value]
        outer = low.env.get(value)
        if isinstance(outer, Uni):
            return outer
        raise UnsupportedTTIR(f"a function inside {op.name} that uses a block from outside", op.loc)

    for inner in block.ops[:-1]:
        if inner.name == "arith.constant":
            known[inner.results[0]] = Uni(
                constant_text(inner.attrs["value"], inner.results[0].type), llvm_type(inner.results[0].type)
            )
        elif inner.name == "scf.if":
            condition = find(inner.operands[0])
            sides = [_run_block(low, op, region.blocks[0], known, width) for region in inner.regions]
            for result, yes, no in zip(inner.results, *sides, strict=True):
                known[result] = _select(low, condition, yes, no, width)
        else:
            known[inner.results[0]] = apply(low.e, inner, [find(v) for v in inner.operands], width)
    return [find(value) for value in block.ops[-1].operands]


def _select(low: Lowering, condition: Strip, yes: Strip, no: Strip, width: int) -> Strip:
    """Lanes of one side or the other; both have been computed, which has no effects."""
    uniform = all(isinstance(value, Uni) for value in (condition, yes, no))
    flag, one, other = (numbers_of(low.e, value, 1 if uniform else width) for value in (condition, yes, no))
    found = flag.choose(one, other)
    return Uni(found.text, found.ty) if uniform else Vec(found.text, found.ty)


def _lane_by_lane(low: Lowering, op: Op, values: list[Strip], width: int) -> list[Strip]:
    """The function on each lane, by way of scratch memory."""
    first = op.regions[0].blocks[0]
    returned = next(block.ops[-1] for block in op.regions[0].blocks if not block.ops[-1].successors)
    inputs = [low.allocate(argument.type.with_shape((width,))) for argument in first.args]
    outputs = [low.allocate(value.type.with_shape((width,))) for value in returned.operands]
    whole = Nest(low, width, (lanes("0", width),), lanes("0", width), (width,))
    for buffer, value in zip(inputs, values, strict=True):
        whole.write(buffer, value)
    with low.e.loop(width) as loop:
        at = Uni(loop.var, "i32")
        one = Nest(low, 1, (at,), at, (width,))
        results = _run_lane(low, op, [_scalar(one, buffer) for buffer in inputs])
        for buffer, result in zip(outputs, results, strict=True):
            one.write(buffer, result)
    return [whole.read(buffer, whole.index) for buffer in outputs]


def _scalar(nest: Nest, buffer: Buffer) -> Uni:
    value = nest.read(buffer, nest.index)
    assert isinstance(value, Uni)
    return value


def _run_lane(low: Lowering, op: Op, values: list[Uni]) -> list[Uni]:
    """The function on scalars, with loops, branches and returns as they are."""
    blocks = op.regions[0].blocks
    low.env.update(zip(blocks[0].args, values, strict=True))
    outer, low.inside_function = low.cost, True
    try:
        return control.lower_function(low, blocks)
    finally:
        low.cost, low.inside_function = outer, False


def map_elementwise(low: Lowering, op: Op) -> None:
    """``tt.map_elementwise``: a scalar function on every element, or on each ``pack`` neighbours at a time."""
    count_combined(low.cost, op)
    pack, shape = int(op.attrs.get("pack", "1")), op.operands[0].type.shape or ()
    outputs = [low.allocate_for(result) for result in op.results]
    if pack == 1:
        with strips(low, shape) as nest:
            values = [nest.eval(value) for value in op.operands]
            for value, buffer in zip(run_region(low, op, values, nest.width), outputs, strict=True):
                nest.write(buffer, value)
    else:
        _map_packed(low, op, pack, outputs)
    for result, buffer in zip(op.results, outputs, strict=True):
        low.env[result] = buffer


def _map_packed(low: Lowering, op: Op, pack: int, outputs: list[Buffer]) -> None:
    """Call by call: the function takes ``pack`` elements of the first operand, then of the second, and so on."""
    inputs = [low.buffer_of(value) for value in op.operands]
    with low.e.loop(op.operands[0].type.numel // pack) as loop:
        first = mul(low.e, Uni(loop.var, "i32"), Uni(str(pack), "i32"), 1)
        places = [add(low.e, first, Uni(str(k), "i32"), 1) for k in range(pack)]
        flat = [Buffer(buffer.pointer, buffer.type.with_shape((buffer.type.numel,))) for buffer in inputs]
        nest = Nest(low, 1, (), first, ())
        values = run_region(low, op, [nest.read(buffer, (place,)) for buffer in flat for place in places], 1)
        for k, value in enumerate(values):
            nest.write(outputs[k // pack], value, places[k % pack])


COMBINED = frozenset({"tt.reduce", "tt.scan", "tt.map_elementwise"})
"""operations that apply a function of their own to every element"""


def count_combined(cost: BlockCost, op: Op) -> None:
    """Add the work of the function that an operation applies to every element."""
    for inner, times in repeated(op.regions[0]):
        if inner.name in ELEMENTWISE and inner.results:
            count_elementwise(cost, inner, op.operands[0].type.numel * times)


def repeated(region: Region) -> list[tuple[Op, int]]:
    """The operations of a function inside an operation, each with how often a call runs it; loops of which the text
    does not say how long they are count once (:func:`unknown_length`)."""
    found = []
    for op in (op for block in region.blocks for op in block.ops):
        times = _rounds(op)
        found.append((op, 1))
        for body in op.regions:
            found += [(inner, inside * (1 if times is None else times)) for inner, inside in repeated(body)]
    return found


def unknown_length(region: Region) -> bool:
    """Whether a function inside an operation has a loop whose rounds its text does not say."""
    return any(_rounds(op) is None for op in walk(region))


def _rounds(op: Op) -> int | None:
    if op.name == "scf.while":
        return None
    if op.name != "scf.for":
        return 1
    makers = [bound.op for bound in op.operands[:3]]
    if any(maker is None or maker.name != "arith.constant" for maker in makers):
        return None
    first, last, step = (int(maker.attrs["value"]) for maker in makers if maker is not None)
    return len(range(first, last, step)) if step > 0 else None


def _axis(op: Op) -> int:
    shape = op.operands[0].type.shape
    axis = int(op.attrs.get("axis", "0"))
    if shape is None or not 0 <= axis < len(shape):
        raise TTIRError(f"{op.name} along axis {axis} of {shape}")
    return axis


def reduce(low: Lowering, op: Op) -> None:
    """``tt.reduce``: lanes first, then across lanes; or, along an outer axis, strip by strip."""
    count_combined(low.cost, op)
    shape, axis = op.operands[0].type.shape, _axis(op)
    assert shape is not None
    outputs = [low.allocate_for(r) if r.type.is_block else None for r in op.results]
    if axis == len(shape) - 1:
        _reduce_last(low, op, shape, outputs)
    else:
        _reduce_outer(low, op, shape, axis, outputs)
    for result, buffer in zip(op.results, outputs, strict=True):
        if buffer is not None:
            low.env[result] = buffer


def _vectors(low: Lowering, values: list[Strip], width: int) -> list[Strip]:
    """Strips as full vectors, so that they can be carried by a loop."""
    return [strip_of(numbers_of(low.e, value, width)) for value in values]


def _reduce_last(low: Lowering, op: Op, shape: tuple[int, ...], outputs: list[Buffer | None]) -> None:
    e = low.e
    size = shape[-1]
    width = min(WIDTH, size)
    rows = op.operands[0].type.numel // size
    with e.loop(rows) as outer:
        row = Uni(outer.var, "i32")
        head = split_index(e, row, shape[:-1], 1)
        base = mul(e, row, Uni(str(size), "i32"), 1)

        def strip(column: str) -> list[Strip]:
            nest = Nest(low, width, (*head, lanes(column, width)), add(e, base, lanes(column, width), width), shape)
            return _vectors(low, [nest.eval(v) for v in op.operands], width)

        total = strip("0")
        if size > width:
            total = _accumulate(low, op, size // width - 1, width, total, lambda k: strip(_column(low, k, width)))
        values = _across(low, op, total, width)
        for value, buffer, result in zip(values, outputs, op.results, strict=True):
            if buffer is None:
                low.env[result] = value
            else:
                Nest(low, 1, (), row, ()).write(buffer, value, row)


def _column(low: Lowering, trip: str, width: int) -> str:
    """First column of strip ``trip + 1``."""
    e = low.e
    if not trip.startswith("%"):
        return str((int(trip) + 1) * width)
    return e.bin("mul", "i32", e.bin("add", "i32", trip, "1"), str(width))


def _accumulate(
    low: Lowering, op: Op, trips: int, width: int, start: list[Strip], strip: Callable[[str], list[Strip]],
    then: Callable[[list[Strip], str], None] | None = None,
) -> list[Strip]:  # fmt: skip
    """Combine ``start`` with ``strip(0) ... strip(trips - 1)`` in a loop; ``then`` takes what there is after each."""
    if trips == 1:
        merged = run_region(low, op, [*start, *strip("0")], width)
        if then is not None:
            then(merged, "0")
        return merged
    with low.e.loop(trips) as loop:
        before = [numbers_of(low.e, value, width) for value in start]
        carried = [one.held(low.e.carry(loop, one.vector, one.text)) for one in before]
        merged = _vectors(low, run_region(low, op, [*map(strip_of, carried), *strip(loop.var)], width), width)
        if then is not None:
            then(merged, loop.var)
        for one, value in zip(carried, merged, strict=True):
            loop.nexts[one.text] = to_vec(low.e, value, width)
    return merged


def _across(low: Lowering, op: Op, values: list[Strip], width: int) -> list[Uni]:
    """Fold the lanes of vectors into scalars, halving every time."""
    e = low.e
    while width > 1:
        half = width // 2
        low_half = ", ".join(f"i32 {k}" for k in range(half))
        high_half = ", ".join(f"i32 {k + half}" for k in range(half))
        left: list[Strip] = []
        right: list[Strip] = []
        for value in values:
            text, vt = to_vec(e, value, width), vec(width, value.ty)
            for mask, side in ((low_half, left), (high_half, right)):
                if half == 1:
                    lane = mask.split()[1]
                    side.append(Uni(e.op(f"extractelement {vt} {text}, i32 {lane}"), value.ty))
                else:
                    side.append(Vec(e.op(f"shufflevector {vt} {text}, {vt} poison, <{half} x i32> <{mask}>"), value.ty))
        values = run_region(low, op, [*left, *right], half)
        width = half
    return [Uni(to_vec(e, v, 1), v.ty) for v in values]


def _reduce_outer(low: Lowering, op: Op, shape: tuple[int, ...], axis: int, outputs: list[Buffer | None]) -> None:
    """Along an axis that is not the last: whole strips of the result, one step of the axis at a time."""
    rest = shape[:axis] + shape[axis + 1 :]
    with strips(low, rest) as out:

        def strip(position: str) -> list[Strip]:
            index: Index = (*out.index[:axis], Uni(position, "i32"), *out.index[axis:])
            nest = Nest(low, out.width, index, Uni("0", "i32"), ())
            return _vectors(low, [nest.eval(v, index) for v in op.operands], out.width)

        total = strip("0")
        if shape[axis] > 1:
            total = _accumulate(low, op, shape[axis] - 1, out.width, total, lambda k: strip(_column(low, k, 1)))
        for value, buffer in zip(total, outputs, strict=True):
            assert buffer is not None
            out.write(buffer, value)


def scan(low: Lowering, op: Op) -> None:
    """``tt.scan``: inclusive prefix combination along an axis, forwards or in reverse."""
    count_combined(low.cost, op)
    shape, axis = op.operands[0].type.shape, _axis(op)
    assert shape is not None
    e = low.e
    reverse = op.attrs.get("reverse") == "true"
    outputs = [low.allocate_for(r) for r in op.results]
    inputs = [low.buffer_of(v) for v in op.operands]
    rest = shape[:axis] + shape[axis + 1 :]
    contiguous = axis != len(shape) - 1 and rest[-1] >= 4
    with strips(low, rest, WIDTH if contiguous and rest[-1] >= WIDTH else 1) as out:

        def at(position: str) -> Index:
            return (*out.index[:axis], Uni(position, "i32"), *out.index[axis:])

        def read(position: str) -> list[Strip]:
            return _vectors(low, [out.read(buffer, at(position)) for buffer in inputs], out.width)

        def write(values: list[Strip], position: str) -> None:
            place = out.linear(shape, at(position))
            for value, buffer in zip(values, outputs, strict=True):
                out.write(buffer, value, place)

        first = str(shape[axis] - 1) if reverse else "0"
        total = read(first)
        write(total, first)
        if shape[axis] > 1:

            def step(trip: str) -> str:
                if not trip.startswith("%"):
                    return str(shape[axis] - 2 - int(trip) if reverse else int(trip) + 1)
                if reverse:
                    return e.bin("sub", "i32", str(shape[axis] - 2), trip)
                return e.bin("add", "i32", trip, "1")

            _accumulate(
                low, op, shape[axis] - 1, out.width, total, lambda k: read(step(k)), lambda v, k: write(v, step(k))
            )
    for result, buffer in zip(op.results, outputs, strict=True):
        low.env[result] = buffer


def histogram(low: Lowering, op: Op) -> None:
    """``tt.histogram``: counts of 0 ... bins-1; other values count nowhere."""
    e = low.e
    result = op.results[0]
    assert result.type.shape is not None
    bins, ty = result.type.shape[0], llvm_type(result.type)
    buffer = low.allocate_for(result)
    with strips(low, result.type.shape) as nest:
        nest.write(buffer, Uni("0", ty))
    with strips(low, op.operands[0].type.shape or (), 1) as nest:
        value = numbers_of(e, nest.eval(op.operands[0]), 1)
        inside = value.compare("ult", bins)
        if len(op.operands) > 1:
            inside = inside & numbers_of(e, nest.eval(op.operands[1]), 1)
        go, done = e.new_label("bin"), e.new_label("bin_done")
        e.branch(inside.text, go, done)
        e.start(go)
        slot = e.op(f"getelementptr {ty}, ptr {buffer.pointer}, i64 {value.resized(64).text}")
        e.do(f"store {ty} {e.bin('add', ty, e.op(f'load {ty}, ptr {slot}'), '1')}, ptr {slot}")
        e.jump(done)
        e.start(done)
    low.env[result] = buffer


__all__ = ["Lin", "histogram", "reduce", "scan", "split_flat"]
