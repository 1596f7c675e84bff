"""Shape rules of TTIR operations, checked before anything is lowered.

Lowered code reads and writes scratch memory by the shapes in the text, so text whose shapes contradict each other must
never get there: it may come from hostile code. Element types need no rules of their own here, LLVM checks those.
"""

from collections.abc import Callable
from math import prod

from ttir_executor.ttir.ir import Function, Op, Region, TTIRError, Type, UnsupportedTTIR, Value

MAX_NUMEL = 1 << 20
"""elements of a block; Triton's own limit"""
MAX_OPS = 50_000
"""lines of one kernel's text"""

Rule = Callable[[Op], None]


def verify(function: Function) -> None:
    """Check every operation.

    Raises:
        TTIRError: shapes or structure that contradict themselves; names the operation and its source line.
    """
    for argument in function.args:
        _sizes(argument.type, "an argument")
    _region(function.body, top=True)


def _region(region: Region, *, top: bool = False) -> None:
    parent = region.blocks[0].parent
    if not top and len(region.blocks) != 1 and (parent is None or parent.name not in _FUNCTIONS):
        raise UnsupportedTTIR("an early return inside a nested function", parent.loc if parent is not None else "")
    for block in region.blocks:
        for value in block.args:
            _sizes(value.type, "a block argument")
        for op in block.ops:
            for value in (*op.operands, *op.results):
                _sizes(value.type, op.name)
            try:
                _RULES.get(op.name, _elementwise)(op)
            except (IndexError, KeyError, ValueError) as error:
                if isinstance(error, TTIRError):
                    raise
                raise TTIRError(f"{_where(op)} is malformed: {error!r}") from None
            for inner in op.regions:
                _region(inner)


def _where(op: Op) -> str:
    return f"{op.name} at {op.loc}" if op.loc else op.name


def _need(condition: bool, op: Op, what: str) -> None:
    if not condition:
        raise TTIRError(f"{_where(op)}: {what}")


def _sizes(type_: Type, what: str) -> None:
    if type_.shape is None:
        return
    if not type_.shape or any(size < 1 or size & (size - 1) for size in type_.shape):
        raise TTIRError(f"{what} has shape {type_.shape}; sizes must be powers of two")
    if prod(type_.shape) > MAX_NUMEL:
        raise TTIRError(f"{what} has {prod(type_.shape)} elements; the limit is {MAX_NUMEL}")


def _shape(value: Value) -> tuple[int, ...]:
    if value.type.shape is None:
        raise ValueError(f"{value.name} is no block")
    return value.type.shape


def _elementwise(op: Op) -> None:
    """All operands and results have one shape (anything unknown is refused later, by name)."""
    shapes = {value.type.shape for value in (*op.operands, *op.results)}
    _need(len(shapes) <= 1, op, f"operands and results of shapes {sorted(map(str, shapes))}")


def _select(op: Op) -> None:
    """The condition may also be a scalar."""
    condition, *rest = [*op.operands, *op.results]
    shapes = {value.type.shape for value in rest}
    _need(len(shapes) == 1, op, "sides of different shapes")
    _need(condition.type.shape is None or condition.type.shape in shapes, op, "a condition of another shape")


def _memory(op: Op) -> None:
    _need(bool(op.operands) and op.operands[0].type.elem == "ptr", op, "an address that is not a pointer")
    _elementwise(op)


def _constant(op: Op) -> None:
    _need(len(op.results) == 1, op, "needs one result")


def _make_range(op: Op) -> None:
    start, end = int(op.attrs["start"]), int(op.attrs["end"])
    _need(_shape(op.results[0]) == (end - start,), op, f"a range of {end - start} elements")


def _splat(op: Op) -> None:
    _need(op.operands[0].type.shape is None and op.results[0].type.is_block, op, "makes a block of a scalar")


def _unsplat(op: Op) -> None:
    _need(op.operands[0].type.numel == 1 and op.results[0].type.shape is None, op, "takes a block of one element")


def _expand_dims(op: Op) -> None:
    axis, source = int(op.attrs["axis"]), _shape(op.operands[0])
    _need(0 <= axis <= len(source), op, f"axis {axis}")
    _need(_shape(op.results[0]) == (*source[:axis], 1, *source[axis:]), op, "a result of the wrong shape")


def _broadcast(op: Op) -> None:
    source, target = _shape(op.operands[0]), _shape(op.results[0])
    fits = len(source) == len(target) and all(a in (1, b) for a, b in zip(source, target, strict=True))
    _need(fits, op, f"{source} to {target}")


def _reshape(op: Op) -> None:
    _need(op.operands[0].type.numel == op.results[0].type.numel, op, "another number of elements")
    _need(op.operands[0].type.is_block and op.results[0].type.is_block, op, "takes and gives a block")


def trans_order(op: Op) -> list[int]:
    """The permutation of a ``tt.trans``."""
    return [int(k) for k in op.attrs["order"].partition(":")[2].strip(" >").split(",")]


def _trans(op: Op) -> None:
    order, source = trans_order(op), _shape(op.operands[0])
    _need(sorted(order) == list(range(len(source))), op, f"order {order}")
    _need(_shape(op.results[0]) == tuple(source[k] for k in order), op, "a result of the wrong shape")


def _join(op: Op) -> None:
    source = op.operands[0].type.shape or ()
    _need(op.operands[1].type.shape == op.operands[0].type.shape, op, "sides of different shapes")
    _need(_shape(op.results[0]) == (*source, 2), op, "a result of the wrong shape")


def _split(op: Op) -> None:
    source = _shape(op.operands[0])
    _need(source[-1] == 2 and len(op.results) == 2, op, "takes a last dimension of 2")
    wanted = source[:-1] or None
    _need(all(result.type.shape == wanted for result in op.results), op, "a result of the wrong shape")


def _cat(op: Op) -> None:
    first, second = _shape(op.operands[0]), _shape(op.operands[1])
    _need(first == second and _shape(op.results[0]) == (2 * first[0], *first[1:]), op, "a result of the wrong shape")


def _gather(op: Op) -> None:
    source, index = _shape(op.operands[0]), _shape(op.operands[1])
    axis = int(op.attrs["axis"])
    _need(0 <= axis < len(source) and len(index) == len(source), op, f"axis {axis}")
    same = all(a == b for k, (a, b) in enumerate(zip(source, index, strict=True)) if k != axis)
    _need(same and _shape(op.results[0]) == index, op, "shapes that do not fit")


_FUNCTIONS = frozenset({"tt.reduce", "tt.scan", "tt.map_elementwise"})
"""operations with a function on scalars inside"""


def _function(op: Op, args: int, returns: list[Type]) -> None:
    """The one region of ``op`` takes ``args`` scalars and returns ``returns``, wherever it ends."""
    _need(len(op.regions) == 1, op, "needs one region")
    blocks = op.regions[0].blocks
    _need(all(value.type.shape is None for block in blocks for value in block.args), op, "a region that takes blocks")
    _need(len(blocks[0].args) == args, op, "a combine region that takes other values")
    _need(all(block.ops for block in blocks), op, "an empty combine region")
    ends = [block.ops[-1] for block in blocks if not block.ops[-1].successors]
    _need(bool(ends), op, "a combine region without an end")
    fits = all([value.type for value in end.operands] == returns for end in ends)
    _need(fits, op, "a combine region that returns other values")


def _combiner(op: Op) -> None:
    _function(op, 2 * len(op.operands), [value.type.scalar() for value in op.operands])
    _need(
        [value.type.scalar() for value in op.results] == [value.type.scalar() for value in op.operands],
        op,
        "results of other types than the operands",
    )


def _reduce(op: Op) -> None:
    source, axis = _shape(op.operands[0]), int(op.attrs.get("axis", "0"))
    _need(0 <= axis < len(source), op, f"axis {axis} of {source}")
    _need(all(value.type.shape == source for value in op.operands), op, "operands of different shapes")
    wanted = (*source[:axis], *source[axis + 1 :]) or None
    _need(len(op.results) == len(op.operands), op, "needs a result for each operand")
    _need(all(result.type.shape == wanted for result in op.results), op, "a result of the wrong shape")
    _combiner(op)


def _scan(op: Op) -> None:
    source, axis = _shape(op.operands[0]), int(op.attrs.get("axis", "0"))
    _need(0 <= axis < len(source), op, f"axis {axis} of {source}")
    _need(len(op.results) == len(op.operands), op, "needs a result for each operand")
    _need(all(v.type.shape == source for v in (*op.operands, *op.results)), op, "values of different shapes")
    _combiner(op)


def _map_elementwise(op: Op) -> None:
    shape, pack = _shape(op.operands[0]), int(op.attrs.get("pack", "1"))
    _need(all(v.type.shape == shape for v in (*op.operands, *op.results)), op, "values of different shapes")
    _need(pack > 0 and prod(shape) % pack == 0, op, f"{pack} elements at a time")
    _function(op, pack * len(op.operands), [value.type.scalar() for value in op.results for _ in range(pack)])


def _assembly(op: Op) -> None:
    shapes = {value.type.shape for value in (*op.operands, *op.results)}
    _need(len(shapes) == 1 and bool(op.results), op, "values of different shapes")
    pack = int(op.attrs["pack"])
    _need(pack in (1, 2, 4, 8, 16), op, f"{pack} elements at a time")
    _need(len(op.attrs["constraints"]) < 4096 and len(op.attrs["asm"]) < 65536, op, "too long")


def _histogram(op: Op) -> None:
    _need(len(_shape(op.results[0])) == 1, op, "gives a block of one dimension")
    _need(len(op.operands) in (1, 2), op, "takes values and perhaps a mask")
    _need(len({_shape(value) for value in op.operands}) == 1, op, "a mask of another shape")


def _dot(op: Op) -> None:
    a, b, c, d = (_shape(value) for value in (*op.operands[:3], op.results[0]))
    _need(len(a) == len(b) == len(c) >= 2 and c == d, op, "operands of different ranks")
    fits = a[:-2] == b[:-2] == c[:-2] and a[-1] == b[-2] and (a[-2], b[-1]) == c[-2:]
    _need(fits, op, f"{a} times {b} into {c}")


def _dot_scaled(op: Op) -> None:
    operands = iter(op.operands)
    shapes = []
    for side, k in (("lhs", -1), ("rhs", -2)):
        value = next(operands)
        shape, four_bits = list(_shape(value)), op.attrs[side] == "e2m1"
        kind = {"e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "bf16": "bf16", "fp16": "f16", "e2m1": "i8"}.get(op.attrs[side])
        _need(value.type.elem == kind and len(shape) >= 2, op, f"{value.type.elem} as {op.attrs[side]}")
        if four_bits:
            shape[k if op.attrs[f"{side}_k_pack"] == "true" else -3 - k] *= 2
        if op.attrs[f"{side}_scaled"] == "true":
            scale = next(operands)
            scales, rows = _shape(scale), (*shape[:-2], shape[-3 - k])
            _need(scale.type.elem in ("i8", "f8E4M3FN"), op, f"scales of {scale.type.elem}")
            _need(scales[:-1] == rows and shape[k] >= scales[-1], op, f"scales of shape {scales} for {tuple(shape)}")
        shapes.append(tuple(shape))
    (a, b), c, d = shapes, _shape(next(operands)), _shape(op.results[0])
    fits = len(a) == len(b) and a[:-2] == b[:-2] and a[-1] == b[-2] and c == d == (*a[:-1], b[-1])
    _need(fits and next(operands, None) is None, op, f"{a} times {b} into {c}")


def _same_types(op: Op, *groups: list[Type]) -> None:
    _need(all(group == groups[0] for group in groups), op, "carried values of different types")


def _yielded(region: Region) -> list[Type]:
    block = region.blocks[0]
    last = block.ops[-1] if block.ops else None
    return [value.type for value in last.operands] if last is not None and last.name == "scf.yield" else []


def _for(op: Op) -> None:
    body = op.regions[0].blocks[0]
    counter = body.args[0].type
    _need(counter.shape is None and counter.elem in ("i32", "i64", "index"), op, "a counter that is not an integer")
    _need(all(bound.type == counter for bound in op.operands[:3]), op, "bounds of other types than the counter")
    carried = [value.type for value in op.operands[3:]]
    _same_types(op, carried, [a.type for a in body.args[1:]], [r.type for r in op.results], _yielded(op.regions[0]))


def _if(op: Op) -> None:
    _need(op.operands[0].type == Type("i1"), op, "a condition that is not an i1")
    results = [result.type for result in op.results]
    _need(not results or len(op.regions) == 2, op, "results without an else region")
    _same_types(op, results, *(_yielded(region) for region in op.regions))


def _while(op: Op) -> None:
    test, body = (region.blocks[0] for region in op.regions)
    _need(bool(test.ops) and test.ops[-1].name == "scf.condition", op, "needs scf.condition")
    condition, *passed = test.ops[-1].operands
    _need(condition.type == Type("i1"), op, "a condition that is not an i1")
    carried = [value.type for value in op.operands]
    _same_types(op, carried, [a.type for a in test.args], _yielded(op.regions[1]))
    _same_types(op, [v.type for v in passed], [a.type for a in body.args], [r.type for r in op.results])


def _anything(op: Op) -> None:
    """Nothing to check: uses scalars, or checked together with its parent."""


_RULES: dict[str, Rule] = {
    "arith.constant": _constant, "ub.poison": _constant, "arith.select": _select,
    "tt.load": _memory, "tt.store": _memory, "tt.atomic_rmw": _memory, "tt.atomic_cas": _memory,
    "tt.make_range": _make_range, "tt.splat": _splat, "tt.unsplat": _unsplat, "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast, "tt.reshape": _reshape, "tt.trans": _trans, "tt.join": _join, "tt.split": _split,
    "tt.cat": _cat, "tt.gather": _gather, "tt.reduce": _reduce, "tt.scan": _scan, "tt.histogram": _histogram,
    "tt.dot": _dot, "scf.for": _for, "scf.if": _if, "scf.while": _while,
    "scf.yield": _anything, "scf.condition": _anything, "tt.reduce.return": _anything, "tt.scan.return": _anything,
    "tt.map_elementwise.return": _anything,
    "cf.br": _anything, "cf.cond_br": _anything, "tt.return": _anything, "tt.print": _anything,
    "tt.assert": _anything, "tt.map_elementwise": _map_elementwise, "tt.dot_scaled": _dot_scaled, "tt.call": _anything,
    "tt.elementwise_inline_asm": _assembly,
}  # fmt: skip
