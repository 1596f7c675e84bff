"""What is run only to be timed is counted: the same times, choice and values as if all was carried out, for less.

``execution="late"`` has the device put off what it may at any size; "at once" carries all out, to compare with.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.gpu.datafree import DataFree
from launches import Record

CONFIGS = [triton.Config({"BLOCK": size}, num_warps=warps) for size, warps in ((64, 1), (256, 4), (1024, 8))]


def scale(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def accumulate(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) + tl.load(x + at, mask=at < n), mask=at < n)


def count(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 8, tl.load(x + at, mask=at < n, other=0.0), mask=at < n)


def _tuned(body: Any, n: int = 10_000, execution: Any = "late") -> tuple[Any, torch.Tensor, int]:
    """Launch once: times by configuration, what was written, and how many launches were carried out."""
    kernel = triton.autotune(CONFIGS, key=["n"])(triton.jit(body))
    with sim.device("h100", execution=execution) as dev:
        x, out = torch.ones(n, device="cuda"), torch.zeros(n, device="cuda")
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        times = {str(config): found for config, found in kernel.configs_timings.items()}
        assert len(dev.launches) == 1 + len(CONFIGS), "trials are launches, too"
        return times, out.cpu(), Record(dev).ran(body.__name__)


def test_trials_are_timed_alike_and_not_executed() -> None:
    counted, values, few = _tuned(scale)
    run, same, every = _tuned(scale, execution="at once")
    assert counted == run and len(counted) == 3
    assert values.eq(2).all() and torch.equal(values, same)
    assert (few, every) == (1, 4)


def test_by_itself_a_device_counts_trials_where_that_pays() -> None:
    """With two tensors of 4 bytes: from 256 KiB on."""
    assert _tuned(scale, (1 << 15) - 1, "auto")[2] == 4
    assert _tuned(scale, 1 << 15, "auto")[2] == 1


@pytest.mark.parametrize("body", [accumulate, count])
def test_kernels_that_read_what_they_write_are_executed(body: Any) -> None:
    """As on a GPU, tuning such a kernel without ``reset_to_zero`` spoils its result, and that must be seen."""
    _, values, executed = _tuned(body)
    assert executed == 4
    assert values[0] == (4 if body is accumulate else 4 * 10_000 / 8)


def ragged(x, ends, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.load(ends + row), tl.load(ends + row + 1), BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < tl.load(ends + row + 1), other=0.0)
    tl.store(out + row, tl.sum(total))


def test_a_tuner_follows_data_that_tells_programs_where_to_go() -> None:
    times = []
    for execution, ran in (("late", 1), ("at once", 4)):
        kernel = triton.autotune(CONFIGS, key=["n"])(triton.jit(ragged))
        with sim.device("h100", execution=execution) as dev:  # type: ignore[arg-type]
            ends = torch.tensor([0, 10, 5000, 10_000], device="cuda", dtype=torch.int32)
            x, out = torch.ones(10_000, device="cuda"), torch.zeros(3, device="cuda")
            kernel[(3,)](x, ends, out, 10_000)
            times.append([found[0] for found in kernel.configs_timings.values()])
            assert out.tolist() == [10, 4990, 5000] and Record(dev).ran("ragged") == ran
    assert times[0] == pytest.approx(times[1], rel=0.05)


def widths(x, out, rows, cols, ROWS: tl.constexpr, PASSES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums rows of which the later ones are longer, as often as said."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, 256), tl.float32)
    for _ in range(PASSES):
        for start in range(0, (tl.program_id(0) + 1) * cols // tl.num_programs(0), 256):
            total += tl.load(x + row[:, None] * cols + start + tl.arange(0, 256)[None, :])
    tl.store(out + row, tl.sum(total, axis=1))


WIDTHS = [triton.Config({"ROWS": 2, "PASSES": passes}, num_warps=4) for passes in (2, 1, 8, 4)]


def _tune_widths(rows: int) -> tuple[Any, torch.Tensor]:
    kernel = triton.autotune(WIDTHS, key=["rows"])(triton.jit(widths))
    x, out = torch.ones(rows, 4096, device="cuda"), torch.zeros(rows, device="cuda")
    kernel[lambda meta: (rows // meta["ROWS"],)](x, out, rows, 4096)
    return kernel, out


def test_a_tuner_chooses_the_fastest_and_the_others_are_slower_by_what_they_do() -> None:
    with sim.device("h100"):
        kernel, out = _tune_widths(128)
        assert out[-4:].tolist() == [4096.0] * 4
    assert kernel.best_config is WIDTHS[1]
    times = [kernel.configs_timings[config][0] for config in WIDTHS]
    assert min(times) == times[1] and times[2] > times[3] > times[1]


def test_a_tuner_looks_at_few_programs_and_fewer_of_what_is_slower() -> None:
    with sim.device("h100", data_free=DataFree.of_script()) as dev:
        kernel, _ = _tune_widths(8192)
        first, chosen, *slower, last = dev.launches
    assert kernel.best_config is WIDTHS[1]
    assert max(first.looked_at, chosen.looked_at) < last.programs == 4096
    assert max(one.looked_at for one in slower) < chosen.looked_at  # known to be slower, not by how much


@pytest.fixture
def late() -> Iterator[sim.SimDevice]:
    """A device that carries out nothing before something looks."""
    with sim.device("h100", execution="late") as device:
        yield device


@triton.jit
def grow(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def test_a_benchmark_executes_a_kernel_once_for_its_checks_and_times_it_alike(late: sim.SimDevice) -> None:
    x = torch.randn(4096, device="cuda")

    def call() -> torch.Tensor:
        out = torch.empty_like(x)
        grow[(4,)](x, out, 4096, BLOCK=1024)
        return out

    times = [triton.testing.do_bench(call) for _ in range(4)]
    # the first benchmark runs twice where its kernel has to be compiled, which depends on what the cache holds
    assert Record(late).ran("grow") == 1 and len(late.launches) in (4, 5)
    assert max(times) == pytest.approx(min(times))
    torch.testing.assert_close(call().cpu(), x.cpu() + 1)


@pytest.mark.parametrize(("n", "more"), [((1 << 19) - 1, 2), (1 << 19, 0)])
def test_by_itself_a_device_counts_a_benchmark_where_that_pays(n: int, more: int) -> None:
    """With two tensors of 4 bytes: from 4 MiB on."""
    with sim.device("h100", checks="off") as dev:
        x, out = torch.ones(n, device="cuda"), torch.empty(n, device="cuda")
        grow[(512,)](x, out, n, BLOCK=1024)
        for _ in range(2):
            triton.testing.do_bench(lambda: grow[(512,)](x, out, n, BLOCK=1024))
        assert Record(dev).ran("grow") == 1 + more
        assert out[-2:].tolist() == [2, 2]


@triton.jit
def total_in_turn(x, out, lock, count, n, BLOCK: tl.constexpr):
    """Programs add to the same block one after another; the first one writes it."""
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * BLOCK + at)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) > 0:
        value += tl.load(out + at)
    tl.store(out + at, value)
    tl.atomic_add(count, 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_a_benchmark_counts_programs_that_take_turns_without_executing_them() -> None:
    times, results = [], []
    for execution, more in (("late", 0), ("at once", 1)):
        with sim.device("h100", execution=execution) as dev:  # type: ignore[arg-type]
            x = torch.arange(4096.0, device="cuda")
            kept: list[torch.Tensor] = []

            def call(x: torch.Tensor = x, kept: list[torch.Tensor] = kept) -> None:
                out, turns = torch.empty(256, device="cuda"), torch.zeros(2, device="cuda", dtype=torch.int32)
                total_in_turn[(16,)](x, out, turns, turns[1:], 4096, BLOCK=256)
                kept[:] = [out, turns]

            call()
            times.append(triton.testing.do_bench(call))
            assert Record(dev).ran("total_in_turn") == 1 + more
            results.append([one.cpu() for one in kept])
    assert times[0] == pytest.approx(times[1], rel=0.02)
    assert results[0][1].tolist() == [0, 16]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@triton.jit
def add_atomically(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("kernel", [triton.jit(accumulate), add_atomically])
def test_every_call_of_a_benchmark_counts_that_adds_to_what_is_there(kernel: Any, late: sim.SimDevice) -> None:
    record = Record(late)
    x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")

    def call() -> None:
        kernel[(4,)](x, out, 1000, BLOCK=256)

    call()
    for _ in range(3):
        triton.testing.do_bench(call)
    assert record.ran(kernel.__name__) == 1
    x += 1  # what they read changes: they must come first
    assert record.ran(kernel.__name__) == 4 and out.eq(4).all()
    triton.testing.do_bench(call)
    assert out.eq(6).all()


@triton.jit
def wait_for_the_next(flags, out, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.atomic_xchg(flags + pid, 1)
    if pid + 1 < tl.num_programs(0):
        while tl.atomic_add(flags + pid + 1, 0) == 0:
            pass
    tl.store(out + pid * BLOCK + tl.arange(0, BLOCK), pid)


def test_a_benchmark_of_programs_that_wait_for_later_ones_is_executed(late: sim.SimDevice) -> None:
    out = torch.zeros(8 * 64, device="cuda")

    def call() -> None:
        wait_for_the_next[(8,)](torch.zeros(8, device="cuda", dtype=torch.int32), out, 8, BLOCK=64)

    call()
    times = [triton.testing.do_bench(call) for _ in range(2)]
    assert Record(late).ran("wait_for_the_next") == 3 and times[0] == times[1]
    assert out[-1] == 7


@pytest.mark.parametrize("look", ["copy", "operator", "kernel", "view", "own input", "drop the input"])
def test_what_a_benchmark_wrote_is_there_when_something_looks(look: str, late: sim.SimDevice) -> None:
    record = Record(late)
    x, out = torch.zeros(64, device="cuda"), torch.empty(8, 8, device="cuda")
    grow[(1,)](x, torch.empty_like(x), 64, BLOCK=64)

    def call() -> None:
        grow[(1,)](x, out.view(-1), 64, BLOCK=64)

    triton.testing.do_bench(call)
    triton.testing.do_bench(call)
    assert record.ran("grow") == 1
    if look == "copy":
        assert out.cpu().eq(1).all()
    elif look == "operator":
        assert out.sum() == 64
    elif look == "kernel":
        more = torch.empty_like(out)
        grow[(1,)](out, more, 64, BLOCK=64)
        assert more.cpu().eq(2).all()
    elif look == "view":
        assert out[3:5, 2].tolist() == [1, 1]
    elif look == "own input":
        x.add_(10)
        assert out.cpu().eq(1).all()
    else:
        del x, call
        assert out.cpu().eq(1).all()
    assert record.ran("grow") == (3 if look == "kernel" else 2)
    assert not record.findings


def test_steps_of_a_benchmark_that_feed_each_other_are_all_carried_out(late: sim.SimDevice) -> None:
    record = Record(late)
    x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    grow[(1,)](x, torch.empty_like(x), 64, BLOCK=64)

    def call() -> None:
        grow[(1,)](x, y, 64, BLOCK=64)
        grow[(1,)](y, x, 64, BLOCK=64)

    for _ in range(3):
        triton.testing.do_bench(call)
    assert record.ran("grow") == 1
    assert x.tolist() == [6] * 64 and y.tolist() == [5] * 64 and record.ran("grow") == 7


@triton.jit
def grow_behind(table, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(x + at) + 1)


class Address:
    """Stands for a tensor in a launch."""

    def __init__(self, tensor: torch.Tensor):
        self.address, self.dtype = tensor.data_ptr(), tensor.dtype

    def data_ptr(self) -> int:
        return self.address


def test_pointers_in_memory_lead_to_what_a_benchmark_wrote(late: sim.SimDevice) -> None:
    x, y, z = (torch.zeros(64, device="cuda") for _ in range(3))
    grow[(1,)](x, y, 64, BLOCK=64)
    x.fill_(4)
    triton.testing.do_bench(lambda: grow[(1,)](x, y, 64, BLOCK=64))
    assert Record(late).ran("grow") == 1
    grow_behind[(1,)](torch.tensor([y.data_ptr()], device="cuda"), z, BLOCK=64)
    assert z.tolist() == [6] * 64


@triton.jit
def grow_grouped(sources, targets, n, BLOCK: tl.constexpr):
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(sources + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    out = tl.load(targets + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def _group(count: int = 3, n: int = 4096) -> tuple[list[torch.Tensor], list[torch.Tensor], Any]:
    """Tensors that a kernel finds by a table of addresses, their results, and a launch on them."""
    xs = [torch.full((n,), float(k), device="cuda") for k in range(count)]
    outs = [torch.empty_like(x) for x in xs]
    tables = [torch.tensor([t.data_ptr() for t in ts], device="cuda") for ts in (xs, outs)]
    return xs, outs, lambda: grow_grouped[(count, n // 1024)](*tables, n, BLOCK=1024)


@pytest.mark.parametrize(
    "look", ["copy", "operator", "change an input", "drop the inputs", "move the table", "drop all"]
)
def test_a_kernel_that_takes_its_pointers_from_memory_is_counted_like_others(look: str, late: sim.SimDevice) -> None:
    record = Record(late)
    xs, outs, call = _group()
    times = [triton.testing.do_bench(call)]  # runs twice, because it compiles: once with all checks
    assert record.ran("grow_grouped") == 1
    used = torch.cuda.memory_allocated()
    times += [triton.testing.do_bench(call) for _ in range(2)]
    assert record.ran("grow_grouped") == 1 and max(times) == pytest.approx(min(times))
    if look == "operator":
        assert (outs[1] + 1).eq(3).all()
    elif look == "change an input":
        xs[2].zero_()
    elif look == "drop the inputs":
        xs.clear()
        assert torch.cuda.memory_allocated() == used - 3 * 4 * 4096 and record.ran("grow_grouped") == 1
    elif look == "move the table":
        other = torch.empty(8, device="cuda")
        other.copy_(torch.arange(8.0))
    elif look == "drop all":
        del call
        xs.clear()
        outs.clear()
        assert record.ran("grow_grouped") == 1 and torch.cuda.memory_allocated() == record.kept_bytes == 0
        return
    for k, out in enumerate(outs):
        assert out.cpu().eq(k + 1).all()
    assert record.ran("grow_grouped") == 2 and record.kept_bytes == 0


def test_what_postponed_launches_keep_makes_room() -> None:
    with sim.device("h100", budget_bytes=1 << 20, execution="late") as dev:
        record = Record(dev)
        xs, outs, call = _group(count=2, n=32_768)
        for _ in range(2):
            triton.testing.do_bench(call)
        xs.clear()
        assert record.ran("grow_grouped") == 1 and record.kept_bytes == 2 * 4 * 32_768
        more = torch.zeros(150_000, device="cuda")
        assert record.ran("grow_grouped") == 2 and record.kept_bytes == 0
        assert outs[1].cpu().eq(2).all() and more.sum() == 0


def test_a_long_benchmark_carries_out_what_it_wrote_first(late: sim.SimDevice) -> None:
    """What waits is bounded: 64 launches."""
    x, outs = torch.zeros(64, device="cuda"), [torch.empty(64, device="cuda") for _ in range(65)]
    grow[(1,)](x, torch.empty_like(x), 64, BLOCK=64)
    for upto, ran in ((64, 1), (65, 1 + 64)):
        triton.testing.do_bench(lambda upto=upto: [grow[(1,)](x, out, 64, BLOCK=64) for out in outs[:upto]])
        assert Record(late).ran("grow") == ran
    assert all(out.eq(1).all() for out in outs)


def test_launches_on_addresses_are_not_postponed(late: sim.SimDevice) -> None:
    x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
    grow[(1,)](Address(x), y, 64, BLOCK=64)
    x.fill_(4)
    triton.testing.do_bench(lambda: grow[(1,)](Address(x), y, 64, BLOCK=64))
    assert Record(late).ran("grow") == 2 and y.tolist() == [5] * 64


def _normalised(x: torch.Tensor) -> torch.Tensor:
    spread = x - x.max(dim=1).values[:, None]
    return spread.exp() / spread.exp().sum(dim=1)[:, None]


@triton.jit
def double_slope(dy, dx, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dx + at, 2 * tl.load(dy + at, mask=at < n), mask=at < n)


class Double(torch.autograd.Function):
    """2 x, whose backward is a kernel."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        dx = torch.empty_like(dy)
        double_slope[(4,)](dy, dx, 4096, BLOCK=1024)
        return dx


@pytest.mark.parametrize("look", ["gradient", "drop", "change"])
def test_gradients_that_add_up_in_a_benchmark_are_not_computed_before_something_looks(
    look: str, late: sim.SimDevice
) -> None:
    record = Record(late)
    x = torch.randn(4096, device="cuda", requires_grad=True)
    y, dy = Double.apply(x), torch.ones(4096, device="cuda")
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        y.backward(dy, retain_graph=True)

    for _ in range(3):
        triton.testing.do_bench(call)
    assert record.ran("double_slope") == 1 and not record.ran("add_")
    if look == "gradient":
        assert x.grad.cpu().eq(2 * len(calls)).all() and record.ran("double_slope") == len(calls)
    elif look == "change":
        dy.zero_()
        assert x.grad.cpu().eq(2 * len(calls)).all()
    else:
        x.grad = None
        del x, y, dy, call
        assert record.ran("double_slope") == 1 and record.kept_bytes == 0


def test_a_repeated_launch_is_void_only_if_nobody_read_its_result(late: sim.SimDevice) -> None:
    x, out = torch.zeros(64, device="cuda"), torch.empty(64, device="cuda")
    total = torch.zeros(64, device="cuda")
    grow[(1,)](x, out, 64, BLOCK=64)
    out.zero_()

    def call() -> None:
        grow[(1,)](x, out, 64, BLOCK=64)
        total.add_(out)

    for _ in range(3):
        triton.testing.do_bench(call)
    assert Record(late).ran("grow") == 1
    assert total.tolist() == [3] * 64


WORK = ("max", "sub", "exp", "sum", "div", "mm")


def test_a_benchmarks_operators_are_priced_and_not_computed() -> None:
    times, ran = [], []
    for execution in ("late", "at once"):
        with sim.device("h100", execution=execution) as dev:  # type: ignore[arg-type]
            x = torch.randn(64, 64, device="cuda")
            times.append([triton.testing.do_bench(lambda: f(x)) for f in (_normalised, lambda x: x @ x)])  # noqa: B023
            ran.append([name for name in WORK if Record(dev).ran(name)])
    assert times[0] == times[1] and min(times[0]) > 0
    assert ran == [[], list(WORK)]


@pytest.mark.parametrize(("n", "ran"), [((1 << 20) - 1, True), (1 << 20, False)])
def test_by_itself_a_device_prices_operators_alone_where_that_pays(n: int, ran: bool, dev: sim.SimDevice) -> None:
    """From 4 MiB of operands on, of floating-point numbers."""
    x, whole = torch.ones(n, device="cuda"), torch.ones(n, device="cuda", dtype=torch.int32)
    triton.testing.do_bench(lambda: x.exp())
    triton.testing.do_bench(lambda: whole.neg())
    assert bool(Record(dev).ran("exp")) == ran and Record(dev).ran("neg")


@pytest.mark.parametrize("look", ["copy", "operator", "kernel", "change", "drop"])
def test_what_a_benchmarks_operators_make_is_there_when_something_looks(look: str, late: sim.SimDevice) -> None:
    x = torch.randn(8, 64, device="cuda")
    before, kept = x.cpu(), {}

    def call() -> None:
        kept["y"] = _normalised(x)

    triton.testing.do_bench(call)
    assert not Record(late).ran(*WORK)
    y = kept.pop("y")
    wanted = _normalised(before)
    if look == "operator":
        wanted, y = wanted + 1, y + 1
    elif look == "kernel":
        wanted, out = wanted + 1, torch.empty_like(y)
        grow[(1,)](y, out, 512, BLOCK=512)
        y = out
    elif look == "change":
        x.zero_()
    elif look == "drop":
        del x
        kept["other"] = torch.full((8, 64), 7.0, device="cuda")
    torch.testing.assert_close(y.cpu(), wanted)
    assert all(Record(late).ran(name) for name in ("max", "exp", "sum", "div"))


# ---- many random numbers


def _drawing() -> list[torch.Tensor]:
    """Draws in several ways, and what operators, views and kernels make of them."""
    torch.cuda.manual_seed(7)
    generator = torch.Generator(device="cuda").manual_seed(5)
    x = torch.randn(64, 32, device="cuda") * 0.5 - 2.3
    y = torch.rand(32, 64, device="cuda", generator=generator)
    turned = y.T.contiguous()
    z = torch.empty(64, 32, device="cuda", dtype=torch.float16)
    z[32:].normal_(3.0, 0.1, generator=generator)
    z[:32].uniform_(-1.0, 1.0)
    narrow = turned.to(torch.float8_e5m2).to(torch.float32)
    turned += 1
    torch.cuda.manual_seed(8)
    linear = torch.nn.Linear(32, 16, device="cuda")
    grown = torch.empty_like(x)
    grow[(2,)](x, grown, x.numel(), BLOCK=1024)
    noise = torch.nn.functional.dropout(torch.ones(64, device="cuda"))
    before = torch.randn(64, 32, device="cuda")
    doubled = before * 2
    before.uniform_(0.0, 1.0)
    torch.rand(64, device="cuda")
    kept = [
        doubled,
        before,
        x,
        y,
        turned,
        z,
        narrow,
        linear.weight,
        linear.bias,
        grown,
        noise,
        torch.rand(3, device="cuda"),
    ]
    return [one.detach().cpu() for one in kept]


def test_numbers_drawn_late_are_those_of_when_they_were_asked_for() -> None:
    found = []
    for execution in ("late", "at once"):
        with sim.device("h100", execution=execution):  # type: ignore[arg-type]
            found.append(_drawing())
    for late, now in zip(*found, strict=True):
        assert torch.equal(late, now) and late.float().std() > 0


def test_inputs_that_nobody_looks_at_are_never_drawn(late: sim.SimDevice) -> None:
    record = Record(late)
    grow[(1,)](torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda"), 64, BLOCK=64)
    for size in (2000, 3000):
        x = torch.randn(size, 8, device="cuda").T.contiguous().view(-1) * 2
        out = torch.empty_like(x)
        triton.testing.do_bench(lambda x=x, out=out: grow[(24,)](x, out, x.numel(), BLOCK=1024))
    assert not record.ran("randn") and record.ran("grow") == 1
    assert out.std() > 1 and record.ran("randn") == 1


@pytest.mark.parametrize(("n", "ran"), [((1 << 22) - 1, 1), (1 << 22, 0)])
def test_by_itself_a_device_draws_many_numbers_late(n: int, ran: int, dev: sim.SimDevice) -> None:
    """From 16 MiB on."""
    x = torch.rand(n, device="cuda")
    assert Record(dev).ran("rand") == ran
    assert 0 < x[-1] < 1 and Record(dev).ran("rand") == 1


def test_a_draw_that_cannot_be_made_says_so_at_once(late: sim.SimDevice) -> None:
    with pytest.raises(RuntimeError, match="std"):
        torch.empty(64, device="cuda").normal_(0.0, -1.0)
    with pytest.raises(RuntimeError):
        torch.rand(8, device="cuda", dtype=torch.int32)
    with pytest.raises(torch.OutOfMemoryError):
        torch.rand(1 << 38, device="cuda")


def test_when_to_carry_out_is_one_of_three_words() -> None:
    with pytest.raises(ValueError, match="execution='never' is not one of auto, late, at once"):
        sim.device("h100", execution="never")  # type: ignore[arg-type]
