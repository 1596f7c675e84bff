"""``tt.dot_scaled``: a product of microscaling formats, whose blocks of 16 or 32 elements share a factor.

Elements and factors are multiplied in float, which is exact but at the very ends of its range, and the products are
those of ``tt.dot``. Scales are ``e8m0`` bytes (powers of two, 255 for NaN) or ``e4m3``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttir_executor.lower.dot import multiply
from ttir_executor.lower.emit import vec
from ttir_executor.lower.nest import Buffer, Index, Nest, strips
from ttir_executor.lower.rounding import constant
from ttir_executor.lower.strip import Strip, Uni, Vec, shift_and_mask, to_vec
from ttir_executor.ttir.ir import Op, Type, UnsupportedTTIR, Value

if TYPE_CHECKING:
    from ttir_executor.lower.block_cost import BlockCost
    from ttir_executor.lower.function import Lowering


def dot_scaled(low: Lowering, op: Op) -> None:
    """``D = (A · scales of A) · (B · scales of B) + C``.

    Two ``e2m1`` elements share a byte, the first in its low half.
    """
    result = op.results[0]
    if result.type.elem != "f32":
        raise UnsupportedTTIR(f"a scaled dot into {result.type.elem}", op.loc)
    count_scaled_products(low.cost, op)
    rank = len(result.type.shape or ())
    operands = iter(op.operands)
    left = _operand(low, op, "lhs", operands, rank - 1)
    right = _operand(low, op, "rhs", operands, rank - 2)
    multiply(low, op, left, right, next(operands))


def count_scaled_products(cost: BlockCost, op: Op) -> None:
    """Add the multiplications and additions, by the unit that does them."""
    packed = 2 if op.attrs["lhs"] == "e2m1" and op.attrs["lhs_k_pack"] == "true" else 1
    products = op.results[0].type.numel * (op.operands[0].type.shape or (1,))[-1] * packed
    formats = {op.attrs["lhs"], op.attrs["rhs"]}
    unit = "tensor_bf16" if "bf16" in formats else "tensor_fp16" if "fp16" in formats else "tensor_fp8"
    cost.flops[unit] += 2 * products


def _operand(low: Lowering, op: Op, side: str, operands, axis: int) -> Buffer:  # type: ignore[no-untyped-def]
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
            ty = vec(nest.width, "float")
            text = low.e.bin("fmul", ty, to_vec(low.e, element, nest.width), to_vec(low.e, factor, nest.width))
            element = _strip(text, nest.width)
        nest.write(buffer, element)
    return buffer


def _strip(text: str, width: int) -> Strip:
    return Uni(text, "float") if width == 1 else Vec(text, "float")


def _half_of_a_byte(nest: Nest, value: Value, axis: int) -> Strip:
    """``e2m1`` elements: a sign, two bits of exponent, one of mantissa."""
    e, width = nest.low.e, nest.width
    source = list(nest.index)
    source[axis] = shift_and_mask(e, nest.index[axis], 1, None, width)
    it = vec(width, "i32")

    def number(k: int) -> str:
        return constant(k, width, "i32")

    byte = e.cast("zext", vec(width, "i8"), to_vec(e, nest.eval(value, tuple(source)), width), it)
    half = to_vec(e, shift_and_mask(e, nest.index[axis], 0, 1, width), width)
    bits = e.bin("lshr", it, byte, e.bin("shl", it, half, number(2)))
    exponent = e.bin("and", it, e.bin("lshr", it, bits, number(1)), number(3))
    mantissa = e.bin("and", it, bits, number(1))
    condition = vec(width, "i1")
    normal = e.bin("icmp ne", it, exponent, number(0))
    steps = e.op(f"select {condition} {normal}, {it} {e.bin('sub', it, exponent, number(1))}, {it} {number(0)}")
    leading = e.op(f"select {condition} {normal}, {it} {number(2)}, {it} {number(0)}")
    halves = e.bin("shl", it, e.bin("or", it, leading, mantissa), steps)
    ft = vec(width, "float")
    size = e.bin("fmul", ft, e.cast("uitofp", it, halves, ft), constant(0.5, width, "float"))
    sign = e.bin("shl", it, e.bin("and", it, bits, number(8)), number(28))
    return _strip(e.cast("bitcast", it, e.bin("or", it, e.cast("bitcast", ft, size, it), sign), ft), width)


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
    it, condition = vec(width, "i32"), vec(width, "i1")
    byte = e.cast("zext", vec(width, "i8"), to_vec(e, found, width), it)
    bits = e.bin("shl", it, byte, constant(23, width, "i32"))
    for special, pattern in ((0, 1 << 22), (255, 0x7FC00000)):  # 2 to the -127 is no normal number
        same = e.bin("icmp eq", it, byte, constant(special, width, "i32"))
        bits = e.op(f"select {condition} {same}, {it} {constant(pattern, width, 'i32')}, {it} {bits}")
    return _strip(e.cast("bitcast", it, bits, vec(width, "float")), width)
