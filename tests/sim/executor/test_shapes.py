"""Properties over shapes that do not divide the block, strides, offsets and masks drawn at random."""

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance_cases import randn
from harness import Log, executing
from kernels_elementwise import add_kernel, strided_kernel
from kernels_matmul import run_matmul
from ttir_executor.lower import jit

COMMON = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with pytest.MonkeyPatch.context() as patch, executing() as running:
        patch.setattr(jit, "PROMOTE_AFTER", 0.0)  # the quick tier runs the other tests
        yield running


def _clean(log: Log) -> None:
    found = [finding.message for finding in log.findings]
    log.results.clear()
    assert not found, found


@COMMON
@given(n=st.integers(1, 2000), offset=st.integers(0, 7), block=st.sampled_from([1, 2, 16, 64, 256]))
def test_elementwise_on_slices(log: Log, n: int, offset: int, block: int) -> None:
    x, y = randn(n + offset), randn(n + offset, seed=1)
    out = torch.full((n + offset,), -9.0)
    add_kernel[(triton.cdiv(n, block),)](x[offset:], y[offset:], out[offset:], n, BLOCK=block)
    assert torch.equal(out[offset:], x[offset:] + y[offset:])
    assert (out[:offset] == -9).all()
    _clean(log)


@COMMON
@given(
    rows=st.integers(1, 40),
    cols=st.integers(1, 70),
    step_r=st.integers(1, 3),
    step_c=st.integers(1, 3),
    transpose=st.booleans(),
    blocks=st.sampled_from([(1, 4), (16, 32), (8, 8), (2, 64), (32, 1)]),
)
def test_strided_blocks(
    log: Log, rows: int, cols: int, step_r: int, step_c: int, transpose: bool, blocks: tuple[int, int]
) -> None:
    base = randn(rows * step_r, cols * step_c)
    x = base[::step_r, ::step_c]
    x = x.t() if transpose else x
    out = torch.zeros(x.shape)
    grid = (triton.cdiv(x.shape[0], blocks[0]), triton.cdiv(x.shape[1], blocks[1]))
    strided_kernel[grid](x, out, *x.shape, *x.stride(), BR=blocks[0], BC=blocks[1])
    assert torch.equal(out, x * 2)
    _clean(log)


@COMMON
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(1, 70),
    turned=st.booleans(),
    blocks=st.sampled_from([(16, 16, 16), (32, 32, 16), (16, 64, 32), (64, 16, 16)]),
)
def test_matmul_shapes(log: Log, m: int, n: int, k: int, turned: bool, blocks: tuple[int, int, int]) -> None:
    a = randn(m, k, dtype=torch.float16)
    b = randn(n, k, seed=1, dtype=torch.float16).t() if turned else randn(k, n, seed=1, dtype=torch.float16)
    got = run_matmul(a, b, torch.float32, "cpu", blocks)
    assert torch.allclose(got.double(), a.double() @ b.double(), atol=1e-4)
    _clean(log)


@triton.jit
def masked_statistics_kernel(x, out, rows, cols, stride, BR: tl.constexpr, BC: tl.constexpr):
    """Reductions along both axes and a scan, under a mask that cuts both."""
    r, c = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BC)
    mask = (r < rows)[:, None] & (c < cols)[None, :]
    value = tl.load(x + r[:, None] * stride + c[None, :], mask=mask, other=0.0)
    tl.store(out + r, tl.sum(value, 1), mask=r < rows)
    low = tl.where(mask, value, float("inf"))
    tl.store(out + rows + r, tl.min(low, 1), mask=r < rows)
    prefix = tl.cumsum(value, 1)
    last = tl.sum(tl.where((c == cols - 1)[None, :], prefix, 0.0), 1)
    tl.store(out + 2 * rows + r, last, mask=r < rows)
    tl.atomic_add(out + 3 * rows + c, tl.sum(value, 0), mask=c < cols)


@COMMON
@given(rows=st.integers(1, 40), cols=st.integers(1, 64), pad=st.integers(0, 5), block=st.sampled_from([1, 4, 16, 32]))
def test_masked_statistics(log: Log, rows: int, cols: int, pad: int, block: int) -> None:
    x = randn(rows, cols + pad)[:, :cols]
    out = torch.zeros(3 * rows + cols)
    masked_statistics_kernel[(triton.cdiv(rows, block),)](
        x, out, rows, cols, x.stride(0), BR=block, BC=triton.next_power_of_2(cols)
    )
    d = x.double()
    want = torch.cat([d.sum(1), d.amin(1), d.sum(1), d.sum(0)])
    assert torch.allclose(out.double(), want, atol=1e-4)
    _clean(log)


@triton.jit
def ragged_gather_kernel(x, index, out, n, width, BLOCK: tl.constexpr, BW: tl.constexpr):
    """Rows chosen by data, with an index that is -1 where nothing is to be read."""
    r, c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, BW)
    at = tl.load(index + r, mask=r < n, other=-1)
    mask = (at >= 0)[:, None] & (c < width)[None, :]
    value = tl.load(x + at[:, None] * width + c[None, :], mask=mask, other=-1.0)
    tl.store(out + r[:, None] * width + c[None, :], value, mask=(r < n)[:, None] & (c < width)[None, :])


@COMMON
@given(n=st.integers(1, 50), width=st.integers(1, 33), data=st.data(), block=st.sampled_from([1, 8, 32]))
def test_rows_by_index(log: Log, n: int, width: int, data: st.DataObject, block: int) -> None:
    index = torch.tensor(data.draw(st.lists(st.integers(-1, 9), min_size=n, max_size=n)))
    x, out = randn(10, width), torch.zeros(n, width)
    ragged_gather_kernel[(triton.cdiv(n, block),)](
        x, index, out, n, width, BLOCK=block, BW=triton.next_power_of_2(width)
    )
    assert torch.equal(out, torch.where((index >= 0)[:, None], x[index.clamp(min=0)], -1.0))
    _clean(log)
