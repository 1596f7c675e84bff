"""Orders a function's basic blocks: every block comes after all blocks that branch to it.

Triton prints them in whatever order its passes leave, so the order in the text does not show what runs first.
"""

from __future__ import annotations

from drkernel.sim.executor.ttir.ir import BasicBlock, Region, TTIRError, UnsupportedTTIR


def order_blocks(region: Region) -> None:
    """Sort the blocks of a function's body, entry first.

    Raises:
        UnsupportedTTIR: branches that lead back: loops are ``scf`` operations, which count their steps.
        TTIRError: a branch to a block that is not there, or a block that nothing branches to.
    """
    by_label = {block.label: block for block in region.blocks}
    finished: list[BasicBlock] = []
    open_: set[int] = set()
    done: set[int] = set()
    stack = [(region.blocks[0], iter(_successors(region.blocks[0])))]
    open_.add(id(region.blocks[0]))
    while stack:
        block, targets = stack[-1]
        label = next(targets, None)
        if label is None:
            stack.pop()
            done.add(id(block))
            finished.append(block)
            continue
        target = by_label.get(label)
        if target is None:
            raise TTIRError(f"a branch to {label}, which is not there")
        if id(target) in done:
            continue
        if id(target) in open_:
            raise UnsupportedTTIR("a branch backwards")
        open_.add(id(target))
        stack.append((target, iter(_successors(target))))
    if len(finished) != len(region.blocks):
        raise TTIRError("a block that nothing branches to")
    region.blocks[:] = reversed(finished)


def _successors(block: BasicBlock) -> list[str]:
    return [label for op in block.ops for label, _ in op.successors]
