"""Bytes in flight, read off real TTIR."""

from __future__ import annotations

import triton
import triton.language as tl
from kernels_for_target import add_ttir, matmul_ttir, ttir

from drkernel.sim.cost.inflight import bytes_in_flight
from drkernel.sim.spec import get_spec

H100 = get_spec("h100")


@triton.jit
def row_sum(x, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    start = tl.load(out + tl.program_id(0))
    for i in tl.range(0, n, BLOCK, num_stages=STAGES):
        acc += tl.load(x + i + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(acc) + start)


@triton.jit
def store_only(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))


def row_sum_ttir(block: int, stages: int | None) -> str:
    signature = {"x": "*fp16", "out": "*fp32", "n": "i32", "BLOCK": "constexpr", "STAGES": "constexpr"}
    return ttir(H100, row_sum, signature, {"BLOCK": block, "STAGES": stages})  # type: ignore[dict-item]


def test_straight_line_loads_are_all_under_way_at_once() -> None:
    assert bytes_in_flight(add_ttir(H100), 3) == 2 * 1024 * 4


def test_a_loop_keeps_one_iteration_or_as_many_as_its_pipeline_is_deep() -> None:
    plain = row_sum_ttir(512, None)
    assert bytes_in_flight(plain, 1) == bytes_in_flight(plain, 4) == 512 * 2
    assert bytes_in_flight(row_sum_ttir(512, 3), 3) == 2 * 512 * 2


def test_loops_around_a_dot_are_pipelined() -> None:
    text = matmul_ttir(H100, 128, 128, 64)
    tile = (128 * 64 + 64 * 128) * 2
    assert [bytes_in_flight(text, stages) for stages in (1, 2, 4)] == [tile, tile, 3 * tile]


def test_a_kernel_without_loads_has_none() -> None:
    assert bytes_in_flight(ttir(H100, store_only, {"out": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": 64}), 3) is None
