"""Races: kernels that hide one behind aliases, casts, sizes or atomics, and honest ones that look alike."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from harness import executing

from drkernel.sim.executor.compiled import Checks


@triton.jit
def aliases_kernel(a, b, o, N: tl.constexpr):
    k = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(a + k, 1.0)
    else:
        tl.store(b + k, 2.0)


@triton.jit
def shift_in_place_kernel(a, b, o, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(a + k, tl.load(a + k + 1))


@triton.jit
def integer_pointer_kernel(a, b, o, N: tl.constexpr):
    place = (a.to(tl.int64) + 4).to(tl.pointer_type(tl.float32))
    tl.store(place + tl.arange(0, N), tl.program_id(0) + 1.0)


@triton.jit
def bytes_kernel(a, b, o, N: tl.constexpr):
    """One program stores words under a mask, the other reads single bytes of them."""
    k = tl.arange(0, N)
    if tl.program_id(0) == 0:
        tl.store(a + k, 3.0, mask=k < 10)
    else:
        tl.store(o + k, tl.load(a.to(tl.pointer_type(tl.int8)) + k * 4 + 3, mask=k < 10, other=0))


@triton.jit
def wide_store_kernel(a, b, o, N: tl.constexpr):
    """One program stores eight bytes, the other one in the middle of them; both by addresses made from integers."""
    address = a.to(tl.int64)
    if tl.program_id(0) == 0:
        tl.store(address.to(tl.pointer_type(tl.int64)), -1)
    else:
        tl.store((address + 5).to(tl.pointer_type(tl.int8)), 7)


@triton.jit
def zeroed_by_one_kernel(a, b, o, N: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(o, 0.0)
    tl.atomic_add(o, tl.sum(tl.load(b + tl.program_id(0) * N + tl.arange(0, N)), 0))


@triton.jit
def finished_by_the_last_kernel(a, b, o, N: tl.constexpr):
    """The last program comes last here, but not on a GPU."""
    tl.atomic_add(o, tl.sum(tl.load(b + tl.program_id(0) * N + tl.arange(0, N)), 0))
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(o + 1, tl.sqrt(tl.load(o)))


@triton.jit
def race_beside_atomics_kernel(a, b, o, N: tl.constexpr):
    tl.atomic_add(o, 1.0)
    tl.store(a, tl.program_id(0) * 1.0)


@triton.jit
def read_then_written_kernel(a, b, o, N: tl.constexpr):
    if tl.program_id(0) == 1:
        tl.store(a, 5.0)
    else:
        tl.store(o, tl.load(a))


RACES = [
    aliases_kernel, shift_in_place_kernel, integer_pointer_kernel, bytes_kernel, wide_store_kernel,
    zeroed_by_one_kernel, finished_by_the_last_kernel, race_beside_atomics_kernel, read_then_written_kernel,
]  # fmt: skip


@triton.jit
def halo_kernel(a, b, o, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    left, right = tl.load(b + k - 1, mask=k > 0, other=0.0), tl.load(b + k + 1)
    tl.store(o + k, left + right)


@triton.jit
def histogram_kernel(a, b, o, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    tl.atomic_add(o + (tl.load(b + k) > 0).to(tl.int32), 1.0)


@triton.jit
def own_slots_kernel(a, b, o, N: tl.constexpr):
    """Zeroed, added to and read by the same program."""
    k, slots = tl.arange(0, N), o + tl.program_id(0) * N
    tl.store(slots + k, 0.0)
    tl.debug_barrier()
    tl.atomic_add(slots + k % 4, tl.load(b + k))
    tl.debug_barrier()
    tl.store(a + tl.program_id(0), tl.sum(tl.load(slots + k), 0))


@triton.jit
def last_to_arrive_kernel(a, b, o, N: tl.constexpr):
    """A ticket says who is last; everything else has been written by then."""
    pid = tl.program_id(0)
    tl.store(a + pid, tl.sum(tl.load(b + pid * N + tl.arange(0, N)), 0))
    if tl.atomic_add(o, 1.0) == tl.num_programs(0) - 1:
        tl.store(o + 1, tl.load(a) + tl.load(a + 1))


@triton.jit
def neighbouring_bytes_kernel(a, b, o, N: tl.constexpr):
    tl.store(o.to(tl.pointer_type(tl.int8)) + tl.program_id(0), 1)


@triton.jit
def masked_off_kernel(a, b, o, N: tl.constexpr):
    k = tl.arange(0, N)
    tl.store(o + k, tl.load(b + k * 1000000, mask=k < 0, other=1.0), mask=tl.program_id(0) == 0)


HONEST = [
    halo_kernel, histogram_kernel, own_slots_kernel, last_to_arrive_kernel, neighbouring_bytes_kernel,
    masked_off_kernel,
]  # fmt: skip


def _findings(kernel: triton.JITFunction) -> list:
    a, b, o = torch.zeros(64), torch.randn(64), torch.zeros(64)
    with executing(Checks(uninitialized=True, race=True)) as log:
        kernel[(2,)](a, a[4:] if kernel is aliases_kernel else b, o, N=16)
    return log.findings


@pytest.mark.parametrize("kernel", RACES, ids=lambda kernel: kernel.__name__)
def test_a_race_is_found(kernel: triton.JITFunction) -> None:
    findings = _findings(kernel)
    assert {(finding.kind, finding.severity) for finding in findings} == {("race", "error")}
    assert all(finding.line for finding in findings)


@pytest.mark.parametrize("kernel", HONEST, ids=lambda kernel: kernel.__name__)
def test_an_honest_kernel_is_not_accused(kernel: triton.JITFunction) -> None:
    assert not _findings(kernel)


@triton.jit
def flag_kernel(flag):
    tl.store(flag, 1.0)


def test_the_same_value_from_several_programs_is_a_warning() -> None:
    with executing(Checks(race=True)) as log:
        flag_kernel[(8,)](torch.zeros(1))
    assert [(finding.kind, finding.severity) for finding in log.findings] == [("race", "warning")]


@triton.jit
def far_kernel(x, o, stride, offset, N: tl.constexpr):
    k = tl.arange(0, N)
    tl.store(o + k, tl.load(x + k * stride + offset))


@pytest.mark.parametrize(
    ("stride", "offset"),
    [(1, 1), (1, -1), (1, 2**31 - 1), (1, 2**40), (1, -(2**40)), (1, 2**61), (2**27, 0), (2**26, 0), (-1, 0)],
)
def test_addresses_out_of_bounds(stride: int, offset: int) -> None:
    """One off, before the start, past the address space, and products that wrap in 32 bits."""
    with executing() as log:
        far_kernel[(1,)](torch.zeros(64), torch.zeros(64), stride, offset, N=64)
    assert log.kinds() == ["out_of_bounds"]
