"""Real kernels on exact values: their floats are the native executor's, and what is computed is told from how."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from all_cases import CASES, REACHABLE
from exactly import evaluate, evaluating
from kernels_attention import forward_kernel
from kernels_matmul import matmul_kernel, split_k_kernel
from kernels_nn import layer_norm_kernel, softmax_kernel
from ttir_executor.exact.field import Field
from ttir_executor.exact.values import Exact, ExactComparison, compare

UNROUNDED = {
    "narrow_arithmetic_rounds_each_step", "type_promotion", "cast_towards_zero", "atomics", "reduce_half",
    "matmul_types", "flash_attention_single", "dot_precisions",
}  # fmt: skip
"""cases that narrow or saturate values on their way, which ideal values do not"""
UNDECIDED = {"scaled_products": "tt.dot_scaled", "libdevice_functions": "the external function '__nv_j0f'"}


@pytest.mark.parametrize("name", CASES)
def test_floats_are_the_native_executors(name: str) -> None:
    with evaluating(REACHABLE) as found:
        list(CASES[name].run("cpu"))
    REACHABLE.clear()
    assert bool(found.undecided) == (name in UNDECIDED), found.undecided
    assert not any(UNDECIDED.get(name, "") not in reason for reason in found.undecided[-1:])
    assert bool(found.wrong) == (name in UNROUNDED), found.wrong
    assert found.compared or found.undecided


# ---- pairs of kernels that compute the same, and slips


ROWS, COLUMNS, BLOCK = 4, 40, 16


@triton.jit
def softmax_blocks(x, y, n, limit, SIZE: tl.constexpr):
    """One pass for the maximum and the sum; the row ends at ``limit`` columns for the sum."""
    row = tl.program_id(0)
    m, s = -float("inf"), 0.0
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(x + row * n + at, mask=at < limit, other=-float("inf"))
        new = tl.maximum(m, tl.max(value, 0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(value - new), 0)
        m = new
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(x + row * n + at, mask=at < n, other=0.0)
        tl.store(y + row * n + at, tl.exp2((value - m) * 1.4426950408889634) / s, mask=at < n)


@triton.jit
def norm_one_pass(x, w, b, y, n, eps, residual, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    mean = tl.sum(value, 0) / n
    variance = tl.sum(value * value, 0) / n - mean * mean
    weight, bias = tl.load(w + at, mask=at < n), tl.load(b + at, mask=at < n)
    result = (value - mean) * tl.rsqrt(variance + eps) * weight + bias
    tl.store(y + row * n + at, result + value * residual, mask=at < n)


@triton.jit
def attention_plain(q, k, v, y, n, scale, CAUSAL: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    rows, columns, d = tl.arange(0, SIZE), tl.arange(0, SIZE), tl.arange(0, D)
    first = tl.load(q + rows[:, None] * D + d[None, :], mask=rows[:, None] < n, other=0.0)
    scores = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    keys = tl.load(k + columns[:, None] * D + d[None, :], mask=columns[:, None] < n, other=0.0)
    scores = tl.dot(first, tl.trans(keys)) * scale
    keep = columns[None, :] < n
    if CAUSAL:
        keep = keep & (columns[None, :] <= rows[:, None])
    scores = tl.where(keep, scores, -float("inf"))
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    weights = weights / tl.sum(weights, 1)[:, None]
    values = tl.load(v + columns[:, None] * D + d[None, :], mask=columns[:, None] < n, other=0.0)
    tl.store(y + rows[:, None] * D + d[None, :], tl.dot(weights, values), mask=rows[:, None] < n)


@triton.jit
def logsumexp_whole(x, y, n, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    m = tl.max(value, 0)
    tl.store(y + row, m + tl.log(tl.sum(tl.exp(value - m), 0)))


@triton.jit
def logsumexp_blocks(x, y, n, limit, SIZE: tl.constexpr):
    row = tl.program_id(0)
    m, s = -float("inf"), 0.0
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(x + row * n + at, mask=at < limit, other=-float("inf"))
        new = tl.maximum(m, tl.max(value, 0))
        s = s * tl.exp(m - new) + tl.sum(tl.exp(value - new), 0)
        m = new
    tl.store(y + row, (m * 1.4426950408889634 + tl.log2(s)) * 0.6931471805599453)


@triton.jit
def cross_entropy_direct(x, target, y, n, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    m = tl.max(value, 0)
    shifted = tl.exp(value - m)
    chosen = tl.sum(tl.where(at == tl.load(target + row), value, 0.0), 0)
    tl.store(y + row, m + tl.log(tl.sum(shifted, 0)) - chosen)


@triton.jit
def cross_entropy_of_softmax(x, target, y, n, smoothing, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    shifted = tl.exp(value - tl.max(value, 0))
    probability = tl.sum(tl.where(at == tl.load(target + row), shifted, 0.0), 0) / tl.sum(shifted, 0)
    tl.store(y + row, -tl.log(probability) + smoothing)


@triton.jit
def gelu_by_tanh(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + at, mask=at < n)
    inner = 0.7978845608028654 * (value + 0.044715 * value * value * value)
    tl.store(y + at, 0.5 * value * (1.0 + libdevice.tanh(inner)), mask=at < n)


@triton.jit
def gelu_by_sigmoid(x, y, n, COEFFICIENT: tl.constexpr, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    value = tl.load(x + at, mask=at < n)
    inner = 1.5957691216057308 * value * (1.0 + COEFFICIENT * value * value)
    tl.store(y + at, value * tl.sigmoid(inner), mask=at < n)


@triton.jit
def running_whole(x, y, n, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    tl.store(y + row * n + at, tl.cumsum(value, 0), mask=at < n)


@triton.jit
def _add(a, b):
    c = b + a
    return c + (a - a)


@triton.jit
def running_blocks(x, y, n, carry, SIZE: tl.constexpr):
    row = tl.program_id(0)
    before = 0.0
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(x + row * n + at, mask=at < n, other=0.0)
        tl.store(y + row * n + at, tl.associative_scan(value, 0, _add) + before, mask=at < n)
        before += tl.sum(value, 0) * carry


def _values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Pair:
    """Two ways to compute one thing, the second with an argument that makes it another."""

    def __init__(self, inputs: dict[str, torch.Tensor], output: tuple[int, ...]):
        self.inputs, self.output = inputs, output

    def compare(self, one: Callable[..., Any], other: Callable[..., Any]) -> tuple[Exact, Exact, ExactComparison]:
        """Each is a launch that takes the inputs and the output."""
        field = Field(5)
        found = []
        for launch in (one, other):
            output = torch.zeros(self.output)
            found.append(evaluate(field, lambda: launch(*self.inputs.values(), output), self.inputs, output))  # noqa: B023
        return found[0], found[1], compare(found[0], found[1])


def _softmax(limit: int = COLUMNS) -> tuple:
    return (
        Pair({"x": _values(ROWS, COLUMNS)}, (ROWS, COLUMNS)),
        lambda x, y: softmax_kernel[(ROWS,)](x, y, COLUMNS, COLUMNS, BLOCK=64),
        lambda x, y: softmax_blocks[(ROWS,)](x, y, COLUMNS, limit, SIZE=BLOCK),
    )


def _norm(eps: float = 1e-5, residual: float = 0.0) -> tuple:
    rows = torch.zeros(2, ROWS)
    inputs = {"x": _values(ROWS, COLUMNS), "w": _values(COLUMNS, seed=1), "b": _values(COLUMNS, seed=2)}
    return (
        Pair(inputs, (ROWS, COLUMNS)),
        lambda x, w, b, y: layer_norm_kernel[(ROWS,)](x, w, b, y, *rows.clone(), COLUMNS, 1e-5, BLOCK=BLOCK),
        lambda x, w, b, y: norm_one_pass[(ROWS,)](x, w, b, y, COLUMNS, eps, residual, SIZE=64),
    )


def _attention(causal: bool, factor: float = 1.0) -> tuple:
    n, d, scale = 40, 16, 0.25
    options = {"CAUSAL": causal, "D": d}
    return (
        Pair({name: _values(n, d, seed=k) for k, name in enumerate("qkv")}, (n, d)),
        lambda q, k, v, y: attention_plain[(1,)](q, k, v, y, n, scale, SIZE=64, **options),
        lambda q, k, v, y: forward_kernel[(3, 1)](
            q, k, v, y, torch.zeros(n), scale * factor, n, BM=16, BN=16, **options
        ),
    )


def _logsumexp(limit: int = COLUMNS) -> tuple:
    return (
        Pair({"x": _values(ROWS, COLUMNS)}, (ROWS,)),
        lambda x, y: logsumexp_whole[(ROWS,)](x, y, COLUMNS, SIZE=64),
        lambda x, y: logsumexp_blocks[(ROWS,)](x, y, COLUMNS, limit, SIZE=BLOCK),
    )


def _cross_entropy(smoothing: float = 0.0) -> tuple:
    target = torch.tensor([3, 0, 39, 17])
    return (
        Pair({"x": _values(ROWS, COLUMNS)}, (ROWS,)),
        lambda x, y: cross_entropy_direct[(ROWS,)](x, target, y, COLUMNS, SIZE=64),
        lambda x, y: cross_entropy_of_softmax[(ROWS,)](x, target, y, COLUMNS, smoothing, SIZE=64),
    )


def _gelu(coefficient: float = 0.044715) -> tuple:
    return (
        Pair({"x": _values(100)}, (100,)),
        lambda x, y: gelu_by_tanh[(2,)](x, y, 100, SIZE=64),
        lambda x, y: gelu_by_sigmoid[(2,)](x, y, 100, COEFFICIENT=coefficient, SIZE=64),
    )


def _product(inner: int = 70) -> tuple:
    m, n, k = 40, 24, 70
    tiles = {"BM": 16, "BN": 16, "BK": 16}
    return (
        Pair({"a": _values(m, k), "b": _values(k, n, seed=1)}, (m, n)),
        lambda a, b, c: split_k_kernel[(6, 3)](a, b, c, m, n, k, SPLIT=3, **tiles),
        lambda a, b, c: matmul_kernel[(6,)](a, b, c, m, n, inner, k, 1, n, 1, n, 1, GROUP=2, **tiles),
    )


def _running(carry: float = 1.0) -> tuple:
    return (
        Pair({"x": _values(ROWS, COLUMNS)}, (ROWS, COLUMNS)),
        lambda x, y: running_whole[(ROWS,)](x, y, COLUMNS, SIZE=64),
        lambda x, y: running_blocks[(ROWS,)](x, y, COLUMNS, carry, SIZE=BLOCK),
    )


SAME = {
    "softmax": _softmax(), "layer norm": _norm(), "attention": _attention(False), "causal": _attention(True),
    "logsumexp": _logsumexp(), "cross entropy": _cross_entropy(), "gelu": _gelu(), "product": _product(),
    "running sum": _running(),
}  # fmt: skip
SLIPS = {
    "a column": _softmax(limit=COLUMNS - 1), "eps": _norm(eps=0.0),
    "another eps": _norm(eps=1.1e-5), "a residual": _norm(residual=1e-6), "a scale": _attention(False, 1.0001),
    "a causal scale": _attention(True, 1.0001), "a summand": _logsumexp(COLUMNS - 1), "smoothing": _cross_entropy(1e-7),
    "a coefficient": _gelu(0.0447), "an inner column": _product(inner=69), "a carry": _running(1.00001),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_two_ways_are_equal(name: str) -> None:
    pair, one, other = SAME[name]
    x, y, comparison = pair.compare(one, other)
    assert np.abs(x.f - y.f).max() < 1e-6
    assert comparison.equal.all()


@pytest.mark.parametrize("name", SLIPS)
def test_slips_differ(name: str) -> None:
    pair, one, other = SLIPS[name]
    _, _, comparison = pair.compare(one, other)
    assert comparison.unequal.any()
    assert comparison.differ.any()
