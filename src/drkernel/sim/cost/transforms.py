"""Fourier transforms as cuFFT runs them, and direct factorisations of matrices as cuSOLVER and cuBLAS do."""

import math
from dataclasses import dataclass

from drkernel.sim.cost.pointwise import streaming
from drkernel.sim.cost.records import Grid, KernelWork, MetaCall, Unpriced, read, scratch, write

# ---- Fourier transforms

FFT_BLOCK = 8192
"""Points of a transform that one block keeps in shared memory; longer ones take several passes over memory."""
FFT_EFFICIENCY = 0.85
"""Share of a copy's bandwidth that a pass of a transform reaches along a strided dimension or through shared memory."""
SMALL_PRIMES = (2, 3, 5, 7, 11, 13)
"""Radices that cuFFT has kernels for; other lengths go by Bluestein's algorithm, two transforms of twice the length."""
BLUESTEIN_PASSES = 5
BUTTERFLY_FLOPS = 5.0
"""Operations per point and power of two of a complex transform; a real one takes half."""


def fourier(call: MetaCall) -> list[KernelWork]:
    """``_fft_c2c``, ``_fft_r2c``, ``_fft_c2r``: one or more passes a dimension, then the norm as a pass of its own."""
    source, out = call.inputs[0], call.outputs[0]
    real = "c2c" not in call.base
    whole = max((source, out), key=lambda meta: meta.elements)
    points = float(whole.elements)
    unit = "fp64" if "128" in whole.dtype or whole.dtype == "float64" else "fp32"
    axes = call.numbers("dim") or [-1]
    passes = [n for axis in axes for n in _passes(whole.shape[axis] if whole.shape else 1)]
    work: list[KernelWork] = []
    for number, length in enumerate(passes):
        first, last = number == 0, number == len(passes) - 1
        between = float(max(source.nbytes, out.nbytes))
        moved = [read(source) if first else scratch(between), write(out) if last else scratch(between, write=True)]
        flops = points * BUTTERFLY_FLOPS * math.log2(max(2, length)) * (0.5 if real and first else 1.0)
        work.append(streaming(call.base, moved, points / 2, {unit: flops, "int": 4.0 * points}, FFT_EFFICIENCY))
    elements = float(out.elements)
    if call.number("normalization", 0):
        work.append(streaming("mul", [read(out), write(out)], elements, {unit: 2.0 * elements}))
    if "r2c" in call.base and not call.flag("onesided", True):
        work.append(streaming("conjugate", [read(out), write(out)], elements / 2, {"int": 12.0 * elements}, 0.8))
    if "c2r" in call.base:  # the library overwrites its input, so that it is copied first
        work.insert(0, streaming("clone", [read(source), scratch(float(source.nbytes), write=True)], points / 2, {}))
    return work


def _passes(length: int) -> list[int]:
    """Points that each pass over memory transforms, for one dimension."""
    if length < 2:
        return []
    rest = length
    for prime in SMALL_PRIMES:
        while rest % prime == 0:
            rest //= prime
    if rest > 1:
        return [2 * length] * BLUESTEIN_PASSES
    count = max(1, math.ceil(math.log(length) / math.log(FFT_BLOCK)))
    return [max(2, round(length ** (1 / count)))] * count


# ---- factorisations


@dataclass(frozen=True)
class Factorisation:
    """A direct method on n x n matrices: ``flops`` n^3 operations, and a chain of n dependent steps.

    A step of a single large matrix is a few small kernels (``step`` seconds); of a batch of small ones a barrier in a
    block that holds one (``block_step``). ``solves``: right-hand sides count as columns. The constants are orders of
    magnitude from the libraries' published throughput, not fits: docs/cost_model.md says how far to trust them.
    """

    flops: float
    step: float
    block_step: float = 0.4e-6


DIRECT: dict[str, Factorisation] = {
    **dict.fromkeys(("linalg_cholesky_ex", "cholesky"), Factorisation(1 / 3, 0.5e-6)),
    **dict.fromkeys(
        ("linalg_lu_factor_ex", "linalg_lu", "_linalg_solve_ex", "_linalg_det", "_linalg_slogdet"),
        Factorisation(2 / 3, 2.5e-6, 0.8e-6),
    ),
    "linalg_inv_ex": Factorisation(2.0, 3.5e-6, 1.2e-6),
    "cholesky_inverse": Factorisation(2 / 3, 1.0e-6),
    "geqrf": Factorisation(4 / 3, 4.0e-6, 1.5e-6),
    "linalg_qr": Factorisation(8 / 3, 5.0e-6, 2.0e-6),
    "linalg_householder_product": Factorisation(4 / 3, 2.0e-6, 1.0e-6),
}
SOLVES: dict[str, Factorisation] = {
    "linalg_solve_triangular": Factorisation(1.0, 0.3e-6),
    "triangular_solve": Factorisation(1.0, 0.3e-6),
    "linalg_lu_solve": Factorisation(2.0, 0.6e-6),
    "cholesky_solve": Factorisation(2.0, 0.6e-6),
}
LEVEL_3_SHARE = 0.35
"""Share of the fp32 peak that the products inside a factorisation reach on average over its shrinking blocks."""
BLOCK_MATRIX = 256
"""Matrices up to this size are factored by one block each where there are several."""


def factorisation(call: MetaCall) -> list[KernelWork]:
    """A direct factorisation or solve: the larger of its products and its traffic, after its chain of steps."""
    matrix = call.inputs[1 if call.base in ("cholesky_solve", "triangular_solve") else 0]
    if len(matrix.shape) < 2:
        raise Unpriced(f"{call.base} of a tensor of {len(matrix.shape)} dimensions")
    unit = {"float32": "fp32", "float64": "fp64"}.get(matrix.dtype)
    if unit is None:
        raise Unpriced(f"{call.base} of {matrix.dtype}")
    method = DIRECT.get(call.base) or SOLVES[call.base]
    rows, columns = matrix.shape[-2:]
    size = min(rows, columns)
    batch = matrix.elements / max(1, rows * columns)
    wide = float(max(rows, columns))
    if call.base in SOLVES:
        wide = max(call.out.elements / max(1.0, batch * size), 1.0)
    flops = method.flops * batch * size * size * wide
    # copied by column first, then worked on in place
    accesses = (*(read(meta, 2.0) for meta in call.inputs), *map(write, call.outputs))
    blocks, chain = 1e9, batch * size * method.step
    if size <= BLOCK_MATRIX and batch > 1:
        blocks, chain = batch, math.ceil(batch / (4.0 * call.spec.sm_count)) * size * method.block_step
    grid = Grid(256, 4, 16.0)
    return [KernelWork(call.base, accesses, {unit: flops}, blocks, grid, 1.0, LEVEL_3_SHARE, serial_seconds=chain)]


def lu_unpack(call: MetaCall) -> list[KernelWork]:
    """Two triangles copied out, and a permutation matrix from the pivots."""
    elements = float(sum(meta.elements for meta in call.outputs))
    accesses = [*map(read, call.inputs), *map(write, call.outputs)]
    return [streaming(call.base, accesses, elements, {"int": 12.0 * elements}, 0.8)]
