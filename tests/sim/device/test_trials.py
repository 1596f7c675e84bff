"""Autotuning times configurations by their skeletons: the same times and choice as by executing them, and no effect."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.executor.skeleton.measure import Measured
from drkernel.sim.gpu import trials
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.gpu.random_numbers import DeviceRandom
from harness import names_of_executed

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


def _executed(monkeypatch: pytest.MonkeyPatch, worth: int = 0) -> list[str]:
    """The names of the launches that are executed from now on; trials are counted from ``worth`` bytes on."""
    monkeypatch.setattr(trials, "WORTH_BYTES", worth)
    monkeypatch.setattr(trials, "TUNING_BYTES", worth)
    return names_of_executed(monkeypatch)


def _tuned(body: Any, monkeypatch: pytest.MonkeyPatch, worth: int) -> tuple[Any, torch.Tensor, list[str]]:
    """Launch once: times by configuration, what was written, and the launches that were executed."""
    kernel = triton.autotune(CONFIGS, key=["n"])(triton.jit(body))
    with monkeypatch.context() as patch, sim.device("h100"):
        executed = _executed(patch, worth)
        x, out = torch.ones(10_000, device="cuda"), torch.zeros(10_000, device="cuda")
        kernel[lambda meta: (triton.cdiv(10_000, meta["BLOCK"]),)](x, out, 10_000)
        times = {str(config): found for config, found in kernel.configs_timings.items()}
        return times, out.cpu(), executed


def test_trials_are_timed_alike_and_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, values, executed = _tuned(scale, monkeypatch, 0)
    run, same, all_of_them = _tuned(scale, monkeypatch, 1 << 60)
    assert counted == run and len(counted) == 3
    assert values.eq(2).all() and torch.equal(values, same)
    assert len(executed) == 1 and len(all_of_them) == 4


@pytest.mark.parametrize("body", [accumulate, count])
def test_kernels_that_read_what_they_write_are_executed(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, tuning such a kernel without ``reset_to_zero`` spoils its result, and that must be seen."""
    _, values, executed = _tuned(body, monkeypatch, 0)
    assert len(executed) == 4
    assert values[0] == (4 if body is accumulate else 4 * 10_000 / 8)


def ragged(x, ends, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.load(ends + row), tl.load(ends + row + 1), BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < tl.load(ends + row + 1), other=0.0)
    tl.store(out + row, tl.sum(total))


def test_a_tuner_follows_data_that_tells_programs_where_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {}
    for worth in (0, 1 << 60):
        kernel = triton.autotune(CONFIGS, key=["n"])(triton.jit(ragged))
        with monkeypatch.context() as patch, sim.device("h100"):
            executed = _executed(patch, worth)
            ends = torch.tensor([0, 10, 5000, 10_000], device="cuda", dtype=torch.int32)
            x, out = torch.ones(10_000, device="cuda"), torch.zeros(3, device="cuda")
            kernel[(3,)](x, ends, out, 10_000)
            times[worth] = [found[0] for found in kernel.configs_timings.values()]
            assert out.tolist() == [10, 4990, 5000] and len(executed) == (4 if worth else 1)
    assert times[0] == pytest.approx(times[1 << 60], rel=0.05)


def widths(x, out, rows, cols, ROWS: tl.constexpr, PASSES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums rows of which the later ones are longer, as often as said."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, 256), tl.float32)
    for _ in range(PASSES):
        for start in range(0, (tl.program_id(0) + 1) * cols // tl.num_programs(0), 256):
            total += tl.load(x + row[:, None] * cols + start + tl.arange(0, 256)[None, :])
    tl.store(out + row, tl.sum(total, axis=1))


def test_a_tuner_looks_at_few_programs_and_fewer_of_what_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Measured] = []

    def watched(*args: Any) -> Measured | None:
        measured = original(*args)
        assert measured is not None
        found.append(measured)
        return measured

    original = trials.trial_of
    monkeypatch.setattr(trials, "trial_of", watched)
    configs = [triton.Config({"ROWS": 2, "PASSES": passes}, num_warps=4) for passes in (2, 1, 8, 4)]
    kernel = triton.autotune(configs, key=["rows"])(triton.jit(widths))
    with sim.device("h100"):
        x, out = torch.ones(8192, 4096, device="cuda"), torch.zeros(8192, device="cuda")
        kernel[lambda meta: (8192 // meta["ROWS"],)](x, out, 8192, 4096)
        assert out[-4:].tolist() == [4096.0] * 4
    first, chosen, *slower = found
    assert kernel.best_config is configs[1]
    assert max(first.sampled, chosen.sampled) < first.stats.programs == 4096
    assert max(one.sampled for one in slower) < chosen.sampled  # known to be slower, not by how much
    times = [kernel.configs_timings[config][0] for config in configs]
    assert min(times) == times[1] and times[2] > times[3] > times[1]


@triton.jit
def grow(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def test_a_benchmark_executes_a_kernel_once_for_its_checks_and_times_it_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100") as device:
        x = torch.randn(4096, device="cuda")

        def call() -> torch.Tensor:
            out = torch.empty_like(x)
            grow[(4,)](x, out, 4096, BLOCK=1024)
            return out

        times = [triton.testing.do_bench(call) for _ in range(4)]
        # the first benchmark runs twice, because it compiles
        assert len(executed) == 1 and len(device.launches) == 5
        assert max(times) == pytest.approx(min(times))
        torch.testing.assert_close(call().cpu(), x.cpu() + 1)


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


def test_a_benchmark_counts_programs_that_take_turns_without_executing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    times, results = {}, {}
    for worth in (0, 1 << 60):
        with monkeypatch.context() as patch, sim.device("h100"):
            executed = _executed(patch, worth)
            x = torch.arange(4096.0, device="cuda")
            kept: list[torch.Tensor] = []

            def call(x: torch.Tensor = x, kept: list[torch.Tensor] = kept) -> None:
                out, turns = torch.empty(256, device="cuda"), torch.zeros(2, device="cuda", dtype=torch.int32)
                total_in_turn[(16,)](x, out, turns, turns[1:], 4096, BLOCK=256)
                kept[:] = [out, turns]

            call()
            executed.clear()
            times[worth] = triton.testing.do_bench(call)
            assert executed == (["total_in_turn"] if worth else [])
            results[worth] = [one.cpu() for one in kept]
    assert times[0] == pytest.approx(times[1 << 60], rel=0.02)
    assert results[0][1].tolist() == [0, 16]
    for one, other in zip(results[0], results[1 << 60], strict=True):
        torch.testing.assert_close(one, other)


@triton.jit
def add_to(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) + tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def add_atomically(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("kernel", [add_to, add_atomically])
def test_every_call_of_a_benchmark_counts_that_adds_to_what_is_there(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100"):
        x, out = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")

        def call() -> None:
            kernel[(4,)](x, out, 1000, BLOCK=256)

        call()
        executed.clear()
        for _ in range(3):
            triton.testing.do_bench(call)
        assert not executed
        x += 1  # what they read changes: they must come first
        assert len(executed) == 3 and out.eq(4).all()
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


def test_a_benchmark_of_programs_that_wait_for_later_ones_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100"):
        out = torch.zeros(8 * 64, device="cuda")

        def call() -> None:
            wait_for_the_next[(8,)](torch.zeros(8, device="cuda", dtype=torch.int32), out, 8, BLOCK=64)

        call()
        executed.clear()
        times = [triton.testing.do_bench(call) for _ in range(2)]
        assert len(executed) == 2 and times[0] == times[1]
        assert out[-1] == 7


@pytest.mark.parametrize("look", ["copy", "operator", "kernel", "view", "own input", "drop the input"])
def test_what_a_benchmark_wrote_is_there_when_something_looks(look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100") as device:
        x, out = torch.zeros(64, device="cuda"), torch.empty(8, 8, device="cuda")
        grow[(1,)](x, torch.empty_like(x), 64, BLOCK=64)
        executed.clear()

        def call() -> None:
            grow[(1,)](x, out.view(-1), 64, BLOCK=64)

        triton.testing.do_bench(call)
        triton.testing.do_bench(call)
        assert not executed
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
        assert executed[0] == "grow" and executed.count("grow") == (2 if look == "kernel" else 1)
        assert not device.findings


def test_steps_of_a_benchmark_that_feed_each_other_are_all_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100"):
        x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
        grow[(1,)](x, torch.empty_like(x), 64, BLOCK=64)
        executed.clear()

        def call() -> None:
            grow[(1,)](x, y, 64, BLOCK=64)
            grow[(1,)](y, x, 64, BLOCK=64)

        for _ in range(3):
            triton.testing.do_bench(call)
        assert not executed
        assert x.tolist() == [6] * 64 and y.tolist() == [5] * 64 and len(executed) == 6


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


def test_pointers_in_memory_lead_to_what_a_benchmark_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100"):
        x, y, z = (torch.zeros(64, device="cuda") for _ in range(3))
        grow[(1,)](x, y, 64, BLOCK=64)
        x.fill_(4)
        executed.clear()
        triton.testing.do_bench(lambda: grow[(1,)](x, y, 64, BLOCK=64))
        assert not executed
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
def test_a_kernel_that_takes_its_pointers_from_memory_is_counted_like_others(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100") as device:
        xs, outs, call = _group()
        times = [triton.testing.do_bench(call)]  # runs twice, because it compiles: once with all checks
        assert executed == ["grow_grouped"]
        used = torch.cuda.memory_allocated()
        times += [triton.testing.do_bench(call) for _ in range(2)]
        assert executed == ["grow_grouped"] and max(times) == pytest.approx(min(times))
        if look == "operator":
            assert (outs[1] + 1).eq(3).all()
        elif look == "change an input":
            xs[2].zero_()
        elif look == "drop the inputs":
            xs.clear()
            assert torch.cuda.memory_allocated() == used - 3 * 4 * 4096 and len(executed) == 1
        elif look == "move the table":
            other = torch.empty(8, device="cuda")
            other.copy_(torch.arange(8.0))
        elif look == "drop all":
            del call
            xs.clear()
            outs.clear()
            assert len(executed) == 1 and torch.cuda.memory_allocated() == 0
            assert device.engine.heap.dropped_bytes == 0
            return
        for k, out in enumerate(outs):
            assert out.cpu().eq(k + 1).all()
        assert executed == ["grow_grouped"] * 2 and device.engine.heap.dropped_bytes == 0


def test_what_postponed_launches_keep_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100", budget_bytes=1 << 20) as device:
        xs, outs, call = _group(count=2, n=32_768)
        for _ in range(2):
            triton.testing.do_bench(call)
        xs.clear()
        assert len(executed) == 1 and device.engine.heap.dropped_bytes == 2 * 4 * 32_768
        more = torch.zeros(150_000, device="cuda")
        assert len(executed) == 2 and device.engine.heap.dropped_bytes == 0
        assert outs[1].cpu().eq(2).all() and more.sum() == 0


def test_launches_on_addresses_are_not_postponed(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100"):
        x, y = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
        grow[(1,)](Address(x), y, 64, BLOCK=64)
        x.fill_(4)
        executed.clear()
        triton.testing.do_bench(lambda: grow[(1,)](Address(x), y, 64, BLOCK=64))
        assert executed == ["grow"] and y.tolist() == [5] * 64


def _normalised(x: torch.Tensor) -> torch.Tensor:
    spread = x - x.max(dim=1).values[:, None]
    return spread.exp() / spread.exp().sum(dim=1)[:, None]


def _computed(monkeypatch: pytest.MonkeyPatch, worth: int) -> list[str]:
    """The names of the operators that are computed from now on."""
    monkeypatch.setattr(trials, "WORTH_BYTES", worth)
    computed: list[str] = []
    original = DeviceEngine.computed

    def seen(self: DeviceEngine, rule: Any, args: Any, kwargs: Any) -> Any:
        computed.append(rule.base)
        return original(self, rule, args, kwargs)

    monkeypatch.setattr(DeviceEngine, "computed", seen)
    return computed


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
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed, computed = _executed(monkeypatch), _computed(monkeypatch, 0)
    with sim.device("h100") as device:
        x = torch.randn(4096, device="cuda", requires_grad=True)
        y, dy = Double.apply(x), torch.ones(4096, device="cuda")
        calls: list[int] = []

        def call() -> None:
            calls.append(1)
            y.backward(dy, retain_graph=True)

        for _ in range(3):
            triton.testing.do_bench(call)
        assert executed == ["double_slope"] and "add_" not in computed
        if look == "gradient":
            assert x.grad.cpu().eq(2 * len(calls)).all() and len(executed) == len(calls)
        elif look == "change":
            dy.zero_()
            assert x.grad.cpu().eq(2 * len(calls)).all()
        else:
            x.grad = None
            del x, y, dy, call
            assert len(executed) == 1 and device.engine.heap.dropped_bytes == 0


def test_a_repeated_launch_is_void_only_if_nobody_read_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    executed = _executed(monkeypatch)
    with sim.device("h100"):
        x, out = torch.zeros(64, device="cuda"), torch.empty(64, device="cuda")
        total = torch.zeros(64, device="cuda")
        grow[(1,)](x, out, 64, BLOCK=64)
        out.zero_()
        executed.clear()

        def call() -> None:
            grow[(1,)](x, out, 64, BLOCK=64)
            total.add_(out)

        for _ in range(3):
            triton.testing.do_bench(call)
        assert not executed
        assert total.tolist() == [3] * 64


WORK = {"max", "sub", "exp", "sum", "div", "mm"}


def test_a_benchmarks_operators_are_priced_and_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    times, ran = {}, {}
    for worth in (0, 1 << 60):
        with monkeypatch.context() as patch, sim.device("h100"):
            computed = _computed(patch, worth)
            x = torch.randn(64, 64, device="cuda")
            times[worth] = [triton.testing.do_bench(lambda: f(x)) for f in (_normalised, lambda x: x @ x)]  # noqa: B023
            ran[worth] = WORK & set(computed)
    assert times[0] == times[1 << 60] and min(times[0]) > 0
    assert not ran[0] and ran[1 << 60] == WORK


@pytest.mark.parametrize("look", ["copy", "operator", "kernel", "change", "drop"])
def test_what_a_benchmarks_operators_make_is_there_when_something_looks(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sim.device("h100"):
        computed = _computed(monkeypatch, 0)
        x = torch.randn(8, 64, device="cuda")
        before, kept = x.cpu(), {}

        def call() -> None:
            kept["y"] = _normalised(x)

        triton.testing.do_bench(call)
        assert not WORK & set(computed)
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
        assert set(computed) >= {"max", "exp", "sum", "div"}


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


def test_numbers_drawn_late_are_those_of_when_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for many in (0, 1 << 60):
        with monkeypatch.context() as patch, sim.device("h100"):
            patch.setattr(trials, "DRAWN_BYTES", many)
            patch.setattr(trials, "WORTH_BYTES", 0)
            found.append(_drawing())
    for late, now in zip(*found, strict=True):
        assert torch.equal(late, now) and late.float().std() > 0


def test_inputs_that_nobody_looks_at_are_never_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "DRAWN_BYTES", 0)
    executed = _executed(monkeypatch)
    drawn: list[str] = []
    original = DeviceRandom.drawing

    def drawing(self: DeviceRandom, rule: Any, args: Any, kwargs: Any) -> Any:
        call = original(self, rule, args, kwargs)
        return lambda: (drawn.append(rule.base), call())[1]

    monkeypatch.setattr(DeviceRandom, "drawing", drawing)
    with sim.device("h100"):
        grow[(1,)](torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda"), 64, BLOCK=64)
        executed.clear()
        for size in (2000, 3000):
            x = torch.randn(size, 8, device="cuda").T.contiguous().view(-1) * 2
            out = torch.empty_like(x)
            triton.testing.do_bench(lambda x=x, out=out: grow[(24,)](x, out, x.numel(), BLOCK=1024))
        assert not drawn and not executed
        assert out.std() > 1 and drawn == ["randn"]


def test_a_draw_that_cannot_be_made_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "DRAWN_BYTES", 0)
    with sim.device("h100"):
        with pytest.raises(RuntimeError, match="std"):
            torch.empty(64, device="cuda").normal_(0.0, -1.0)
        with pytest.raises(RuntimeError):
            torch.rand(8, device="cuda", dtype=torch.int32)
        with pytest.raises(torch.OutOfMemoryError):
            torch.rand(1 << 38, device="cuda")
