"""The functions inside ``tt.reduce``, ``tt.scan`` and ``tt.map_elementwise``, on strips of elements.

A function without loops and early returns runs on all lanes at once; both sides of its branches are computed, which has
no effects, and lanes choose. Any other runs on one lane after another, as the code of a program does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttir_executor.lower import branches as control
from ttir_executor.lower.elementwise import ELEMENTWISE, apply
from ttir_executor.lower.emit import vec
from ttir_executor.lower.nest import Buffer, Nest, constant_text, lanes
from ttir_executor.lower.strip import Strip, Uni, Vec, llvm_type, to_vec
from ttir_executor.ttir.ir import BasicBlock, Op, TTIRError, UnsupportedTTIR, Value

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
    e = low.e
    if all(isinstance(value, Uni) for value in (condition, yes, no)):
        texts = [to_vec(e, value, 1) for value in (condition, yes, no)]
        return Uni(e.op(f"select i1 {texts[0]}, {yes.ty} {texts[1]}, {yes.ty} {texts[2]}"), yes.ty)
    vt, texts = vec(width, yes.ty), [to_vec(e, value, width) for value in (condition, yes, no)]
    return Vec(e.op(f"select {vec(width, 'i1')} {texts[0]}, {vt} {texts[1]}, {vt} {texts[2]}"), yes.ty)


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
