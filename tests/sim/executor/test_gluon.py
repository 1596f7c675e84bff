"""Gluon: kernels on registers run, as their layouts change no value; what is not sequential is refused by name."""

import pytest
import torch

from drkernel import sim
from launches import fresh, launch

gluon = pytest.importorskip("triton.experimental.gluon")
gl = pytest.importorskip("triton.experimental.gluon.language")


@gluon.jit
def center_rows(x, out, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    rows_first: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    columns_first: gl.constexpr = gl.BlockedLayout([4, 1], [4, 8], [1, 4], [0, 1])
    m = gl.arange(0, ROWS, layout=gl.SliceLayout(1, rows_first))
    n = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, rows_first))
    value = gl.load(x + m[:, None] * COLUMNS + n[None])
    centered = value - (gl.sum(value, 1) / COLUMNS)[:, None]
    turned = gl.convert_layout(centered, columns_first)
    i = gl.arange(0, ROWS, layout=gl.SliceLayout(1, columns_first))
    j = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, columns_first))
    gl.store(out + j[None] * ROWS + i[:, None], turned)


@gluon.jit
def by_shared_memory(x, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    at = gl.arange(0, BLOCK, layout=layout)
    held = gl.allocate_shared_memory(gl.float32, [BLOCK], shared)
    held.store(gl.load(x + at))
    gl.store(out + at, held.load(layout))


def test_layouts_change_no_value() -> None:
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    (_, got), record = launch(center_rows, (1,), x, fresh(64, 32), 32, 64)
    assert not record.findings
    torch.testing.assert_close(got.double(), (x.double() - x.double().mean(1, keepdim=True)).T, atol=1e-6, rtol=0)


def test_shared_memory_is_refused_by_name(dev: sim.SimDevice) -> None:
    x = torch.randn(128, device="cuda")
    with pytest.raises(Exception, match=r"ttg\.local_alloc.*memdesc.*test_gluon\.py"):
        by_shared_memory[(1,)](x, torch.empty_like(x), 128)
