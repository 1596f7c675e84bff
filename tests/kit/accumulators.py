"""Matrix products whose accumulators spill, and what the compilers' code moves for that."""

from drkernel.sim.cost.pressure import block_pressure, register_limit, spilled_bytes
from drkernel.sim.spec import get_spec
from kernels_for_target import matmul_ttir
from ttir_executor.compiled import compile_ttir

H200 = get_spec("h200")
MOVED = {(128, 128, 4): 0, (128, 256, 4): 332, (256, 256, 8): 320, (256, 256, 4): 1368}
"""rows and columns of a tile, warps -> words that one round of the loop moves to and from local memory in ptxas's code;
``tests/e2e/sim/test_ptxas.py`` asks it again"""


def product_of(rows: int, cols: int) -> str:
    """The TTIR of a product with such tiles."""
    return matmul_ttir(H200, rows, cols, 32)


def modelled(rows: int, cols: int, warps: int) -> float:
    """The words that the model has a thread move in a round."""
    threads = 32 * warps
    blocks = block_pressure(compile_ttir(product_of(rows, cols)).function)
    (loop,) = (each for each in blocks if each.tile)
    return spilled_bytes(loop, threads, register_limit(threads)) / 4 / threads
