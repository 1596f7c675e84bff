"""``tt.dot``: operands packed in scratch memory, a register-blocked multiply-add kernel.

``tt.dot_scaled``: a product of microscaling formats, whose blocks of 16 or 32 elements share a factor.

Elements and factors are multiplied in float, which is exact but at the very ends of its range, and the products are
those of ``tt.dot``. Scales are ``e8m0`` bytes (powers of two, 255 for NaN) or ``e4m3``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ttir_executor.lower.emit import WIDTH, Emitter
from ttir_executor.lower.nest import Buffer, Index, Nest, lanes, split_index, strips
from ttir_executor.lower.numbers import Numbers, round_to
from ttir_executor.lower.strip import Strip, Uni, llvm_type, numbers_of, shift_and_mask, strip_of
from ttir_executor.ttir.ir import Op, TTIRError, Type, UnsupportedTTIR, Value

if TYPE_CHECKING:
    from ttir_executor.lower.block_cost import BlockCost
    from ttir_executor.lower.function import Lowering


PRODUCTS = frozenset({"tt.dot", "tt.dot_scaled"})
_COLUMNS = 4
"""register block: rows x (columns strips); 24 accumulators of 32 vector registers"""

_INSTRUCTION = 16
"""halves of a row that one instruction of a tensor core multiplies"""

_SPLITS = {
    "tf32x3": ("tf32", 2, ((1, 0), (0, 1))),
    "bf16x3": ("bf16", 2, ((1, 0), (0, 1))),
    "bf16x6": ("bf16", 3, ((1, 1), (2, 0), (0, 2), (1, 0), (0, 1))),
}
"""precision of an fp32 product made of narrower ones -> format and number of an operand's parts, largest first; which
parts are multiplied before the largest two, in the order in which Triton adds them up"""


def dot(low: Lowering, op: Op) -> None:
    """``D = A · B + C`` of the last two dimensions; leading ones are a batch.

    Narrow floats multiply exactly and accumulate in float; tf32 drops the low 13 mantissa bits of its inputs as the
    tensor core does. tf32x3, bf16x3 and bf16x6 split their inputs into narrower parts, and leave products of small
    parts out.
    """
    a, b, c = op.operands[:3]
    if a.type.shape is None or b.type.shape is None:
        raise TTIRError("tt.dot of an operand that is not a matrix")
    accumulate = _accumulator(op, a.type, op.results[0].type)
    count_products(low.cost, op)
    split = _SPLITS.get(op.attrs.get("inputPrecision", "ieee")) if a.type.elem == "f32" else None
    if split is None:
        multiply(low, op, _operand(low, op, a, accumulate), _operand(low, op, b, accumulate), c)
        return
    kind, count, pairs = split
    left, right = _parts(low, a, kind, count), _parts(low, b, kind, count)
    multiply(low, op, left[0], right[0], c, [(left[i], right[j]) for i, j in pairs])


def multiply(
    low: Lowering, op: Op, left: Buffer, right: Buffer, c: Value, before: Sequence[tuple[Buffer, Buffer]] = ()
) -> None:
    """Bind the result of ``op`` to the product of two operands in the accumulator's type, plus ``c``.

    ``before``: products that are summed up before; where that sum is NaN (of what is left of an infinity), it counts
    for nothing.
    """
    result = op.results[0]
    *batch, m, n = result.type.shape or ()
    k = (left.type.shape or ())[-1]
    out = low.destination.get(result) or low.allocate_for(result)
    batches = result.type.numel // (m * n)
    with low.e.loop(batches) as outer:
        head = split_index(low.e, Uni(outer.var, "i32"), tuple(batch), 1)
        offsets = [_offset(low.e, outer.var, size) for size in (m * k, k * n, m * n)]
        products = [*before, (left, right)]
        _matrix(low, c, result.type, products, out, offsets, (m, n, k), head, llvm_type(result.type))
    low.env[result] = out


def _offset(e: Emitter, batch: str, size: int) -> str:
    return str(int(batch) * size) if not batch.startswith("%") else e.bin("mul", "i32", batch, str(size))


def _accumulator(op: Op, a: Type, result: Type) -> str:
    ty = llvm_type(result)
    if ty in ("float", "double", "i32"):
        return ty
    raise UnsupportedTTIR(f"a dot of {a.elem} into {result.elem}", op.loc)


def count_products(cost: BlockCost, op: Op) -> None:
    """Add the multiplications and additions of a product, by the unit that does them."""
    unit, operations = work_of(op)
    cost.flops[unit] += int(operations)


def work_of(op: Op) -> tuple[str, float]:
    """(unit, operations) of one product: a multiplication and an addition for each.

    Those of microscaling formats go by the wider operand; two of four bits are the unit ``tensor_fp4``.
    """
    products = op.results[0].type.numel * (op.operands[0].type.shape or (1,))[-1]
    if op.name == "tt.dot_scaled":
        formats = [op.attrs["lhs"], op.attrs["rhs"]]
        packed = 2 if formats[0] == "e2m1" and op.attrs["lhs_k_pack"] == "true" else 1
        units = {"bf16": "tensor_bf16", "fp16": "tensor_fp16", "e4m3": "tensor_fp8", "e5m2": "tensor_fp8"}
        return next((unit for name, unit in units.items() if name in formats), "tensor_fp4"), 2.0 * products * packed
    elem = op.operands[0].type.elem
    precision = op.attrs.get("inputPrecision", "ieee")
    if elem == "f32":
        unit = "fp32_dot" if precision == "ieee" else "tensor_tf32"
        factor = 3 if precision in ("tf32x3", "bf16x3") else 6 if precision == "bf16x6" else 1
    else:
        factor = 1
        unit = {"f16": "tensor_fp16", "bf16": "tensor_bf16", "i8": "tensor_int8", "f64": "tensor_fp64"}.get(
            elem, "tensor_fp8"
        )
    return unit, 2.0 * products * factor


def factors_of(op: Op) -> tuple[Value, Value]:
    """The two operands of a product, without their scales."""
    return op.operands[0], op.operands[2 if op.attrs.get("lhs_scaled") == "true" else 1]


def _operand(low: Lowering, op: Op, value: Value, accumulate: str) -> Buffer:
    """An operand in scratch memory, in the accumulator's type and rounded as the unit rounds its inputs."""
    assert value.type.shape is not None
    truncate = value.type.elem == "f32" and op.attrs.get("inputPrecision", "ieee") == "tf32"
    held = Buffer("", value.type).cell
    binding = low.env.get(value)
    if isinstance(binding, Buffer) and not truncate and held == accumulate:
        return binding
    target = Type({"float": "f32", "double": "f64"}.get(accumulate, accumulate), value.type.shape)
    buffer = low.allocate(target)
    with strips(low, value.type.shape) as nest:
        x = numbers_of(low.e, nest.eval(value), nest.width)
        if accumulate.startswith("i"):
            x = x.resized(int(accumulate[1:]), signed=True)
        elif truncate:
            x = (x.as_bits_of("i32") & -(1 << 13)).as_bits_of("float")
        nest.write(buffer, strip_of(x))
    return buffer


def _parts(low: Lowering, value: Value, kind: str, count: int) -> list[Buffer]:
    """An operand as a sum of numbers of a narrower format, each rounded from what those before it leave."""
    assert value.type.shape is not None
    buffers = [low.allocate(Type("f32", value.type.shape)) for _ in range(count)]
    with strips(low, value.type.shape) as nest:
        left = numbers_of(low.e, nest.eval(value), nest.width)
        for place, buffer in enumerate(buffers):
            part = round_to(left, kind)
            nest.write(buffer, strip_of(part))
            if place < count - 1:
                left = left - part
    return buffers


def _matrix(low: Lowering, c: Value, type_: Type, products, out, offsets, sizes, head, accumulate: str) -> None:  # type: ignore[no-untyped-def]
    """One matrix product, or several that are added up, tile by tile of the register block."""
    m, n, _k = sizes
    width = min(WIDTH if accumulate != "double" else 8, n)
    columns = max(d for d in (1, 2, _COLUMNS) if width * d <= n)
    rows = max(d for d in (1, 2, 4) if d <= m)
    e = low.e
    with e.loop(m, rows) as i, e.loop(n, width * columns) as j:
        accumulators = []
        for r in range(rows):
            row = _plus(e, i.var, r)
            for q in range(columns):
                column = _plus(e, j.var, q * width)
                nest = _nest(low, c, head, row, column, width)
                accumulators.append(numbers_of(e, nest.eval(c), width))
        *before, last = products
        sums = [one.number(0.0) for one in accumulators] if before else accumulators
        for pair in before:
            sums = _inner(low, pair, offsets, sizes, i.var, j.var, rows, columns, sums)
        if before:
            sums = [one.is_nan().choose(0.0, one) for one in sums]
        sums = _inner(low, last, offsets, sizes, i.var, j.var, rows, columns, sums, halves=type_.elem == "f16")
        if before:
            sums = [one + start for one, start in zip(sums, accumulators, strict=True)]
        for r in range(rows):
            for q in range(columns):
                value = sums[r * columns + q]
                value = round_to(value, type_.elem) if type_.is_float else value
                place = _place(e, offsets[2], _plus(e, i.var, r), n, _plus(e, j.var, q * width))
                pointer = e.op(f"getelementptr {accumulate}, ptr {out.pointer}, i32 {place}")
                e.do(f"store {value.vector} {value.text}, ptr {pointer}, align {value.bits // 8}")


def _nest(low: Lowering, c: Value, head: Index, row: str, column: str, width: int) -> Nest:
    index = (*head, Uni(row, "i32"), lanes(column, width))
    return Nest(low, width, index, Uni("0", "i32"), ())


def _plus(e: Emitter, base: str, offset: int) -> str:
    if not base.startswith("%"):
        return str(int(base) + offset)
    return base if offset == 0 else e.bin("add", "i32", base, str(offset))


def _place(e: Emitter, offset: str, row: str, stride: int, column: str) -> str:
    """offset + row·stride + column."""
    total = str(int(row) * stride) if not row.startswith("%") else e.bin("mul", "i32", row, str(stride))
    for part in (column, offset):
        if part == "0":
            continue
        if total.startswith("%") or part.startswith("%"):
            total = part if total == "0" else e.bin("add", "i32", total, part)
        else:
            total = str(int(total) + int(part))
    return total


def _inner(low, buffers, offsets, sizes, i, j, rows, columns, start, halves=False):  # type: ignore[no-untyped-def]
    """The loop over k: one broadcast of A per row, one strip of B per column, a multiply-add each.

    ``halves``: sums are fp16, which every instruction of a tensor core rounds to.
    """
    e = low.e
    _m, n, k = sizes
    ty, width, vt, align = start[0].ty, start[0].width, start[0].vector, start[0].bits // 8
    left = [
        e.op(f"getelementptr {ty}, ptr {buffers[0].pointer}, i32 {_place(e, offsets[0], _plus(e, i, r), k, '0')}")
        for r in range(rows)
    ]
    right = e.op(f"getelementptr {ty}, ptr {buffers[1].pointer}, i32 {_place(e, offsets[1], '0', n, j)}")

    def body(step: str, sums: list[Numbers]) -> list[Numbers]:
        at = str(int(step) * n) if not step.startswith("%") else e.bin("mul", "i32", step, str(n))
        strips_b = []
        for q in range(columns):
            pointer = e.op(f"getelementptr {ty}, ptr {right}, i32 {_plus(e, at, q * width)}")
            strips_b.append(start[0].held(e.op(f"load {vt}, ptr {pointer}, align {align}")))
        merged = list(sums)
        for r in range(rows):
            value = e.op(f"load {ty}, ptr {e.op(f'getelementptr {ty}, ptr {left[r]}, i32 {step}')}, align {align}")
            lane = start[0].held(e.splat(value, width, ty))
            for q in range(columns):
                so_far = merged[r * columns + q]
                merged[r * columns + q] = (
                    lane.call("fma", strips_b[q], so_far) if lane.is_float else lane * strips_b[q] + so_far
                )
        return merged

    together = min(_INSTRUCTION, k) if halves else 1

    def steps(first: str, sums: list[Numbers]) -> list[Numbers]:
        for place in range(together):
            sums = body(_plus(e, first, place), sums)
        return [round_to(one, "f16") for one in sums] if halves else sums

    if k == together:
        return steps("0", start)
    with e.loop(k, together) as loop:
        carried = [one.held(e.carry(loop, vt, one.text)) for one in start]
        finals = steps(loop.var, carried)
        for before, after in zip(carried, finals, strict=True):
            loop.nexts[before.text] = after.text
    return finals


def dot_scaled(low: Lowering, op: Op) -> None:
    """``D = (A · scales of A) · (B · scales of B) + C``.

    Two ``e2m1`` elements share a byte, the first in its low half.
    """
    result = op.results[0]
    if result.type.elem != "f32":
        raise UnsupportedTTIR(f"a scaled dot into {result.type.elem}", op.loc)
    count_products(low.cost, op)
    rank = len(result.type.shape or ())
    operands = iter(op.operands)
    left = _scaled_operand(low, op, "lhs", operands, rank - 1)
    right = _scaled_operand(low, op, "rhs", operands, rank - 2)
    multiply(low, op, left, right, next(operands))


def _scaled_operand(low: Lowering, op: Op, side: str, operands, axis: int) -> Buffer:  # type: ignore[no-untyped-def]
    """An operand in scratch memory, as floats times their scales; ``axis`` is that of the sum."""
    value = next(operands)
    scale = next(operands) if op.attrs[f"{side}_scaled"] == "true" else None
    shape = list(value.type.shape or ())
    packed = None
    if op.attrs[side] == "e2m1":
        other = 2 * len(shape) - 3 - axis
        packed = axis if op.attrs[f"{side}_k_pack"] == "true" else other
        shape[packed] *= 2
    buffer = low.allocate(Type("f32", tuple(shape)))
    with strips(low, tuple(shape)) as nest:
        element = nest.eval(value) if packed is None else _half_of_a_byte(nest, value, packed)
        if scale is not None:
            factor = _factor(nest, scale, shape[axis], axis)
            product = numbers_of(low.e, element, nest.width) * numbers_of(low.e, factor, nest.width)
            element = strip_of(product)
        nest.write(buffer, element)
    return buffer


def _half_of_a_byte(nest: Nest, value: Value, axis: int) -> Strip:
    """``e2m1`` elements: a sign, two bits of exponent, one of mantissa."""
    e, width = nest.low.e, nest.width
    source = list(nest.index)
    source[axis] = shift_and_mask(e, nest.index[axis], 1, None, width)
    byte = numbers_of(e, nest.eval(value, tuple(source)), width).resized(32)
    half = numbers_of(e, shift_and_mask(e, nest.index[axis], 0, 1, width), width)
    bits = byte >> (half << 2)
    exponent = bits >> 1 & 3
    mantissa = bits & 1
    normal = exponent.compare("ne", 0)
    steps = normal.choose(exponent - 1, 0)
    leading = normal.choose(bits.number(2), 0)
    size = ((leading | mantissa) << steps).to("uitofp", "float") * 0.5
    sign = (bits & 8) << 28
    return strip_of((size.as_bits_of("i32") | sign).as_bits_of("float"))


def _factor(nest: Nest, scale: Value, length: int, axis: int) -> Strip:
    """The scale of each element; scales are (..., row of A or column of B, block of the sum)."""
    e, width = nest.low.e, nest.width
    shape = scale.type.shape or (1,)
    block = shift_and_mask(e, nest.index[axis], (length // shape[-1]).bit_length() - 1, None, width)
    other = nest.index[2 * len(nest.index) - 3 - axis]
    index: Index = (*nest.index[:-2], other, block)
    found = nest.eval(scale, index)
    if scale.type.is_float:
        return found
    byte = numbers_of(e, found, width).resized(32)
    bits = byte << 23
    for special, pattern in ((0, 1 << 22), (255, 0x7FC00000)):  # 2 to the -127 is no normal number
        bits = byte.equals(special).choose(pattern, bits)
    return strip_of(bits.as_bits_of("float"))
