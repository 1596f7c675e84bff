"""A device without data: shapes, contents of what is small, launches by samples, and what depends on data."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.gpu.datafree import DataFree, DependsOnData
from drkernel.sim.gpu.device_journal import LaunchEntry
from drkernel.sim.gpu.heap import OverBudget
from ttir_executor.compiled import LaunchStats


@triton.jit
def scale_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


@triton.jit
def narrow_kernel(x, out, n, BLOCK: tl.constexpr):
    """Right up to 2^31 elements."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


@triton.jit
def half_kernel(x, out, n, BLOCK: tl.constexpr):
    """Writes the first half alone."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n // 2), mask=at < n // 2)


@triton.jit
def rows_kernel(index, table, out, columns, BLOCK: tl.constexpr):
    row = tl.load(index + tl.program_id(0))
    at = tl.arange(0, BLOCK)
    value = tl.load(table + row * columns + at, mask=at < columns)
    tl.store(out + tl.program_id(0).to(tl.int64) * columns + at, value, mask=at < columns)


@triton.jit
def sums_kernel(x, count, out, n, FLOATS: tl.constexpr, BLOCK: tl.constexpr):
    """Adds up what is not nothing, or what is counted."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + at, mask=at < n, other=0.0))
    if (tl.abs(total) > 1e-8) if FLOATS else (tl.load(count) > 0):
        tl.atomic_add(out, total)
        tl.store(out + 1 + tl.program_id(0), total)


@triton.jit
def outside_kernel(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + 1, 0.0)


@pytest.fixture
def dev() -> Iterator[Any]:
    with sim.device("h100", data_free=DataFree()) as device:
        device.engine.accounts.keep_journal = True
        yield device


def _counted(dev: Any) -> list[LaunchStats]:
    """The counts of each launch."""
    return [entry.stats for entry in dev.engine.accounts.entries if isinstance(entry, LaunchEntry)]


def test_convolutions_have_channels_last_where_an_operand_has(dev: Any) -> None:
    x, weight = torch.empty(2, 8, 6, 6, device="cuda"), torch.empty(4, 8, 3, 3, device="cuda")
    plain, last = (torch.conv2d(x, each) for each in (weight, weight.to(memory_format=torch.channels_last)))
    assert plain.is_contiguous() and last.is_contiguous(memory_format=torch.channels_last)


def _scale(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


# ---- operators


def test_operators_on_shapes_cost_what_they_cost_with_data() -> None:
    def run() -> tuple[tuple[int, ...], dict[str, int]]:
        x = torch.randn(64, 256, device="cuda")
        layer = torch.nn.Linear(256, 512).cuda()
        y = torch.nn.functional.layer_norm(layer(x).relu(), (512,)).sum(0)
        return tuple(y.shape), {}

    times = []
    for data_free in (None, DataFree(operator_bytes=0, contents_bytes=0)):
        with sim.device("h100", data_free=data_free) as device:
            assert run() == ((512,), {})
            times.append((device.profile().total_seconds, device.operators))
    assert times[0] == times[1]


def test_an_operator_that_only_the_cuda_build_has(dev: Any) -> None:
    x = torch.randn(64, 256, device="cuda", requires_grad=True)
    weight = torch.ones(256, device="cuda", requires_grad=True)
    torch.nn.functional.rms_norm(x, (256,), weight).sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape and weight.grad is not None
    assert dev.operators["aten._fused_rms_norm_backward"] == 1


def test_tensors_larger_than_any_machine(dev: Any) -> None:
    x = torch.empty(1 << 33, device="cuda", dtype=torch.float32)
    assert x.relu_().add(1).shape == (1 << 33,)
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(1 << 35, device="cuda", dtype=torch.float32)


def test_what_is_small_keeps_its_contents(dev: Any) -> None:
    host = torch.arange(12).reshape(3, 4)
    x = host.cuda()
    assert torch.equal(x.t().cpu(), host.t()) and x[1, 2].item() == 6
    assert torch.equal((x + torch.ones(4, device="cuda", dtype=torch.int64)).cpu(), host + 1)
    x[0] = 7
    assert x.sum().item() == host[1:].sum().item() + 28
    assert x.nonzero().shape == (12, 2) and x[x > 8].shape == (3,)
    assert torch.arange(100_000, device="cuda").max().item() == 99_999
    assert dev.engine.counters.dependences == []


def test_what_is_large_has_none(dev: Any) -> None:
    x = torch.randn(1 << 20, 64, device="cuda")
    assert x.sum().item() == 0.0 and float(x[0, 0]) == 0.0
    assert x.cpu().shape == x.shape
    with pytest.raises(DependsOnData, match="nonzero"):
        x.nonzero()
    with pytest.raises(DependsOnData):
        x[x > 0]
    assert {dependence.kind for dependence in dev.engine.counters.dependences} == {"host_read", "shape"}


def test_contents_go_when_they_are_written_over(dev: Any) -> None:
    x, large = torch.zeros(1 << 20, device="cuda"), torch.randn(1 << 20, 64, device="cuda")
    x.copy_(large[:, 0])
    x[0].item()
    small = torch.zeros(64, device="cuda")
    scale_kernel[(1,)](small, small, 64, BLOCK=64)
    small[0].item()
    assert len(dev.engine.counters.dependences) == 1  # the same sentence twice


@triton.jit
def far_kernel(place, x, BLOCK: tl.constexpr):
    tl.store(x + tl.load(place) + tl.arange(0, BLOCK) + 1_000_000_000, 0.0)


def test_what_lies_outside_by_a_made_up_address_is_no_fault(dev: Any) -> None:
    """Of a kernel that takes addresses from memory without contents; one that takes none has its fault."""
    large, x = torch.randn(1 << 20, 64, device="cuda").int(), torch.zeros(64, device="cuda")
    with pytest.raises(DependsOnData, match="decides an address"):
        far_kernel[(1,)](large, x, BLOCK=64)
    assert not dev.findings and [each.kind for each in dev.engine.counters.dependences] == ["steering"]
    x.sum().item()  # the device goes on
    with pytest.raises(RuntimeError, match="illegal memory access"):
        far_kernel[(1,)](torch.zeros(1, device="cuda", dtype=torch.int32), x, BLOCK=64)


@triton.jit
def listed_kernel(sources, targets, n, BLOCK: tl.constexpr):
    """Takes both of its addresses from memory, once more after it has stored."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for k in range(2):
        x = tl.load(sources + k).to(tl.pointer_type(tl.float32))
        out = tl.load(targets + k).to(tl.pointer_type(tl.float32))
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def test_addresses_that_are_known_lead_to_memory_without_contents(dev: Any) -> None:
    n = 1 << 20
    x, out = ([torch.randn(n, device="cuda") for _ in range(2)] for _ in range(2))
    tables = [torch.tensor([one.data_ptr() for one in each], device="cuda") for each in (x, out)]
    listed_kernel[(n // 1024,)](*tables, n, BLOCK=1024)
    assert not dev.engine.counters.dependences
    assert sum(written for _, _, written in _counted(dev)[-1].footprint) == 2 * 4 * n
    with pytest.raises(DependsOnData, match="decides an address"):
        listed_kernel[(n // 1024,)](torch.randn(1 << 20, 64, device="cuda").long(), tables[1], n, BLOCK=1024)


def test_a_caller_may_refuse_reads() -> None:
    settings = DataFree(on_read="refuse", contents_bytes=0, operator_bytes=0)
    with sim.device("h100", data_free=settings), pytest.raises(DependsOnData, match="the host reads"):
        torch.ones(4, device="cuda").sum().item()


def test_indices_are_checked_where_they_are_known(dev: Any) -> None:
    with pytest.raises(RuntimeError, match=r"index|assert"):
        torch.nn.functional.embedding(torch.tensor([5]).cuda(), torch.zeros(4, 8, device="cuda"))


# ---- launches


def test_a_launch_is_modelled_as_with_data() -> None:
    times = []
    for data_free in (None, DataFree()):
        with sim.device("h100", data_free=data_free) as device:
            _scale(torch.randn(1 << 20, device="cuda"))
            times.append((device.launches[0].seconds, device.launches[0].unique_bytes, device.launches[0].flops))
    assert times[0] == times[1]


def test_a_large_launch_is_sampled(dev: Any) -> None:
    x = torch.randn(1 << 29, device="cuda", dtype=torch.float16)
    out = torch.empty_like(x)
    scale_kernel[(1 << 19,)](x, out, x.numel(), BLOCK=1024)
    (launch,), (counts,) = dev.launches, _counted(dev)
    assert launch.programs == 1 << 19 and 16 < launch.looked_at < 50_000 and launch.error < 0.01
    assert [use for _, *use in counts.footprint] == [[1 << 30, 0], [0, 1 << 30]]
    assert counts.load_sectors == 2048 / 32 * launch.programs
    assert dev.launches[0].seconds == pytest.approx(2 * (1 << 30) / 3.0e12, rel=0.15)


def test_the_same_launch_on_other_memory_is_counted_once(dev: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from drkernel.sim.gpu import counting

    counted: list[int] = []
    original = counting.measure
    monkeypatch.setattr(counting, "measure", lambda *args: counted.append(1) or original(*args))
    outs = [_scale(torch.randn(1 << 20, 4, device="cuda")) for _ in range(3)]
    assert len(counted) == 1
    for out, counts in zip(outs, _counted(dev), strict=True):
        assert out.data_ptr() in [base for base, *_ in counts.footprint]


def test_coverage_of_outputs(dev: Any) -> None:
    x = torch.randn(1 << 24, 16, device="cuda")
    whole, half, stale = _scale(x), torch.empty_like(x), torch.empty_like(x)
    half_kernel[(triton.cdiv(x.numel(), 1024),)](x, half, x.numel(), BLOCK=1024)
    shares = [dev.engine.flow.covered(dev.engine.heap.held(out._handle)) for out in (whole, half, stale, x)]
    assert shares == [1.0, 0.5, 0.0, 1.0]


def test_a_branch_that_sums_decide_is_taken(dev: Any) -> None:
    """It has no alternative, so that is the most that a launch can do; of whole numbers it depends."""
    x, count, out = (torch.empty(n, device="cuda", dtype=d) for n, d in ((1 << 16, None), (1, torch.int64), (65, None)))
    sums_kernel[(64,)](x, count, out, 1 << 16, FLOATS=True, BLOCK=1024)
    (stats,) = _counted(dev)
    assert (stats.atomics, stats.store_sectors) == (64, 64) and dev.engine.counters.dependences == []
    sums_kernel[(64,)](x, count, out, 1 << 16, FLOATS=False, BLOCK=1024)
    assert [each.kind for each in dev.engine.counters.dependences] == ["steering"]


def test_indices_steer(dev: Any) -> None:
    """A gather by known rows reads those; by unknown ones it is said to depend on data."""
    table, out = torch.randn(4096, 1024, device="cuda"), torch.empty(512, 1024, device="cuda")
    rows_kernel[(512,)](torch.arange(0, 4096, 8).cuda(), table, out, 1024, BLOCK=1024)
    read = {base: read for base, read, _ in _counted(dev)[0].footprint}
    assert read[table.data_ptr()] == 512 * 4096 and dev.engine.counters.dependences == []
    unknown = torch.randn(1 << 20, 8, device="cuda").argmax(1)
    rows_kernel[(512,)](unknown, table, out, 1024, BLOCK=1024)
    (found,) = dev.engine.counters.dependences
    assert found.kind == "steering" and "'index'" in found.message and "test_datafree.py" in found.where


def test_indices_that_overflow_at_the_real_size_are_found(dev: Any) -> None:
    x = torch.randn(1 << 32, device="cuda", dtype=torch.float16)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        narrow_kernel[(1 << 22,)](x, torch.empty_like(x), x.numel(), BLOCK=1024)


def test_illegal_accesses_are_found(dev: Any) -> None:
    with pytest.raises(RuntimeError, match="illegal memory access"):
        outside_kernel[(1 << 20,)](torch.empty(1 << 30, device="cuda"), 0, BLOCK=1024)


# ---- the budget


def test_a_device_with_data_stays_inside_its_budget() -> None:
    with sim.device("h100", budget_bytes=64 << 20):
        with pytest.raises(OverBudget, match=r"256.0 MiB more.*budget of 64.0 MiB .* --no-data"):
            torch.zeros(1 << 26, device="cuda")
        rows = torch.randn(8192, 1, device="cuda")
        with pytest.raises(OverBudget, match=r"256\.0 MiB more"):
            rows + rows.t()
        with pytest.raises(OverBudget):
            torch.empty(1 << 26).cuda()
        assert (rows + 1).sum().item() != 0.0


@triton.jit
def product_kernel(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, col = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, n, K):
        inner = k + tl.arange(0, K)
        total = tl.dot(tl.load(a + row[:, None] * n + inner), tl.load(b + inner[:, None] * n + col), total)
    tl.store(c + row[:, None] * n + col, total.to(tl.float16))


def test_what_a_tuner_tries_is_counted_roughly_for_a_person() -> None:
    """The same choice, and the same time for what is chosen, after looking at far fewer programs."""
    shapes = [(64, 64, 32), (128, 128, 32), (128, 128, 64), (32, 32, 32)]
    configs = [triton.Config(dict(zip("MNK", shape, strict=True)), num_warps=4) for shape in shapes]
    found = []
    for settings in (DataFree(), DataFree.of_script()):
        tuned = triton.autotune(configs, key=["n"])(product_kernel)
        with sim.device("h100", data_free=settings) as device:
            a, b, c = (torch.empty(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(3))
            tuned[lambda meta: (4096 // meta["M"], 4096 // meta["N"])](a, b, c, 4096)
            *trials, _ = device.launches
            assert len(trials) == len(configs) and device.engine.accounts.sampling_error < 0.05
            assert [launch.rough for launch in device.launches] == [settings.tuning is not None] * 4 + [False]
            found.append((tuned.best_config, device.launches[-1].seconds, sum(one.looked_at for one in trials)))
    full, rough = found
    assert rough[0] == full[0] and rough[1] == pytest.approx(full[1], rel=0.02)
    assert rough[2] < full[2] / 3
