"""A device without data in a process of its own: what the judge asks of it, and its budget."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from device_process import device_process
from drkernel.sim.gpu.device_journal import LaunchEntry, Operator, entries_of
from drkernel.sim.gpu.heap import OverBudget


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


def test_memory_beyond_the_budget_is_refused_across_the_process() -> None:
    """The first test here: one device at a time is active in a process, and the others share theirs."""
    with device_process(budget_bytes=16 << 20) as device:
        with pytest.raises(OverBudget, match=r"64\.0 MiB more"):
            torch.empty(1 << 24).cuda()
        with pytest.raises(OverBudget):
            device.control.put_tensor(torch.empty(1 << 22))
        assert torch.ones(4).cuda().sum().item() == 4.0


@pytest.fixture(scope="module")
def dev() -> Iterator[Any]:
    with device_process() as device:
        device.control.without_data(64 << 20)
        yield device


def test_a_call_is_counted_without_data(dev: Any) -> None:
    specs = dev.control.begin_call([torch.empty(1 << 24, 64, device="meta"), torch.arange(8)])
    x = torch.empty(1 << 24, 64, device="cuda")
    kept = torch.arange(100).cuda()
    lost = torch.arange(1 << 22).cuda()
    assert kept.sum().item() == 4950 and lost.cpu().shape == (1 << 22,) and not lost.cpu().any()
    out = torch.empty_like(x)
    scale_kernel[(1 << 20,)](x, out, x.numel(), BLOCK=1024)
    record = dev.control.end_call(outputs=[out._handle, 12345])
    assert [spec.shape for spec in specs] == [(1 << 24, 64), (8,)]
    assert record.outputs[0].covered == 1.0 and record.outputs[0].value is None and record.outputs[1] is None
    assert record.mutated == []
    entries = entries_of(record.journal)
    (launch,) = [entry for entry in entries if isinstance(entry, LaunchEntry)]
    assert record.launches[0].programs == 1 << 20 and [sum(use) for _, *use in launch.stats.footprint] == [1 << 32] * 2
    assert [entry.name for entry in entries if isinstance(entry, Operator)] == ["sum.default"]
    assert "int64 tensor of shape [4194304]" in record.dependences[0].message


def test_the_judge_sees_that_an_input_was_written(dev: Any) -> None:
    given = dev.control.put_tensor(torch.empty(1 << 24, device="meta"))
    dev.control.begin_call()
    x = dev.link.wrap(given)
    x.mul_(2)
    assert dev.control.end_call().mutated == [given.handle]
