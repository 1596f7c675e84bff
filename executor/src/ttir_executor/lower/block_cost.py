"""The work of a basic block of a kernel when it runs once, counted from its text."""

from collections import Counter
from dataclasses import dataclass, field

from ttir_executor.lower import access
from ttir_executor.lower.elementwise import ELEMENTWISE, SPECIAL_FUNCTION
from ttir_executor.ttir.ir import Op
from ttir_executor.ttir.ptx import operations


@dataclass
class BlockCost:
    """The work of one execution of a basic block, counted statically."""

    flops: Counter[str] = field(default_factory=Counter)
    load_bytes: int = 0
    store_bytes: int = 0
    atomics: int = 0
    entered: Counter[int] = field(default_factory=Counter)
    """which blocks of the function it stands for (``plan.blocks_of``): itself, and those left out of a skeleton"""


def count_operation(cost: BlockCost, op: Op) -> None:
    """Add the work of a load, a store, an elementwise operation on blocks or inline assembly."""
    if op.name == "tt.load":
        cost.load_bytes += access.counted_bytes(op.operands[0].type)
    elif op.name == "tt.store":
        cost.store_bytes += access.counted_bytes(op.operands[0].type)
    elif op.name == "tt.elementwise_inline_asm":
        for unit, count in operations(op.attrs["asm"]).items():
            cost.flops[unit] += -(-count * op.results[0].type.numel // int(op.attrs["pack"]))
    elif op.name in ELEMENTWISE and op.results and op.results[0].type.is_block:
        count_elementwise(cost, op, op.results[0].type.numel)


def float_unit(elem: str) -> str:
    """The unit of arithmetic on an element type."""
    return {"f64": "fp64", "f16": "fp16", "bf16": "bf16"}.get(elem, "fp32")


def count_elementwise(cost: BlockCost, op: Op, numel: int) -> None:
    """Add an elementwise operation's work, by the unit that does it."""
    type_ = op.results[0].type
    operand = op.operands[0].type
    if op.name in SPECIAL_FUNCTION:
        cost.flops["sfu"] += numel
    elif type_.is_float or operand.is_float:
        unit = float_unit(operand.elem if operand.is_float else type_.elem)
        cost.flops[unit] += 2 * numel if op.name == "math.fma" else numel
    elif type_.elem != "ptr" and type_.elem != "i1":
        cost.flops["int"] += numel
