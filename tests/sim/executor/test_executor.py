"""What the executor reports besides results: findings of the sanitizers, counters, prints, limits, refusals."""

import math

import pytest
import torch
import triton
import triton.language as tl

from harness import executing
from ttir_executor.allocations import MemoryMap
from ttir_executor.compiled import Checks, StepLimit, compile_ttir
from ttir_executor.ttir.ir import TTIRError, UnsupportedTTIR

ALL = Checks(uninitialized=True, race=True)


@triton.jit
def copy_kernel(x, out, n, extra, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + k, mask=k < n + extra, other=0.0)
    tl.store(out + k, value, mask=k < n)


@triton.jit
def shifted_store_kernel(x, out, n, by, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + k + by, tl.load(x + k, mask=k < n), mask=k < n)


# ---- out of bounds, misaligned


@pytest.mark.parametrize("checks", [Checks(), ALL], ids=["plain", "checked"])
def test_read_past_the_end(checks: Checks) -> None:
    x, out = torch.randn(100), torch.zeros(100)
    with executing(checks) as log:
        copy_kernel[(2,)](x, out, 100, 3, BLOCK=64)
    (finding,) = log.findings
    assert (finding.kind, finding.severity, finding.count) == ("out_of_bounds", "error", 3)
    assert (finding.kernel, finding.arg, finding.offset_bytes) == ("copy_kernel", "x", 400)
    assert finding.program == (1, 0, 0)
    assert finding.file is not None and finding.file.endswith("test_executor.py")
    source = copy_kernel.src.splitlines()
    assert finding.line is not None
    first = copy_kernel.fn.__code__.co_firstlineno
    assert "tl.load" in copy_kernel.fn.__code__.co_filename or finding.line - first in range(1, len(source) + 2)
    assert torch.equal(out, x), "lanes in bounds still ran"


SHIFT = """module {{
  tt.func public @shift(%out: !tt.ptr<i32>, %n: i32) attributes {{noinline = false}} {{
    %by = arith.constant {by} : i32
    %shifted = arith.{op} %n, %by : i32
    tt.store %out, %shifted : !tt.ptr<i32>
    %at = tt.addptr %out, %shifted : !tt.ptr<i32>, i32
    %one = arith.constant 1 : i32
    tt.store %at, %one : !tt.ptr<i32>
    tt.return
  }}
}}
"""


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("by", [31, 32, 33, 70, -1, 1 << 40])
@pytest.mark.parametrize("op", ["shli", "shrui", "shrsi"])
def test_a_scalar_shifted_by_its_width_or_more_is_defined_wherever_it_is_used(op, by, optimised, monkeypatch) -> None:
    """LLVM leaves it undefined. An address made of it could be one when it is checked and another when it is used."""
    monkeypatch.setattr("ttir_executor.lower.jit.PROMOTE_AFTER", 0 if optimised else 1e9)
    out, memory = torch.full((64,), -5, dtype=torch.int32), MemoryMap()
    memory.add(out.data_ptr(), 4 * 64)
    kernel = compile_ttir(SHIFT.format(op=op, by=by), name=f"shift {op} {by} {optimised}")
    result = kernel.run((1, 1, 1), [out.data_ptr(), -7], memory, checks=ALL)
    amount = by % (1 << 32)
    wanted = {
        "shli": (-7 << amount if amount < 32 else 0) % (1 << 32),
        "shrui": (-7 % (1 << 32)) >> amount if amount < 32 else 0,
        "shrsi": -7 >> min(amount, 31),
    }[op]
    wanted -= (1 << 32) * (wanted >= 1 << 31)
    inside = 0 <= wanted < 64
    assert [finding.kind for finding in result.findings] == ([] if inside else ["out_of_bounds"])
    assert int(out[0]) == (1 if wanted == 0 else wanted)
    assert not inside or int(out[wanted]) == 1


@pytest.mark.parametrize("by", [1, -1, 1 << 40, -(1 << 40)])
def test_wild_stores_change_nothing(by: int) -> None:
    x = torch.randn(64)
    whole = torch.full((3 * 64,), -5.0)
    out = whole[64:128].clone()
    with executing() as log:
        shifted_store_kernel[(1,)](x, out, 64, by, BLOCK=64)
    assert log.kinds() == ["out_of_bounds"]
    inside = max(0, 64 - abs(by))
    assert log.findings[0].count == 64 - inside
    assert (whole == -5).all()


def test_neighbouring_tensors_are_not_one() -> None:
    """An address past one argument is out of bounds although another allocation lies there."""
    base = torch.randn(256)
    memory = MemoryMap()
    memory.add(base.data_ptr(), 512, initialized=True)
    memory.add(base.data_ptr() + 512, 512, initialized=True)
    with executing() as log:
        copy_kernel[(1,)](base, torch.zeros(8), 8, 0, BLOCK=8)
    kernel = compile_ttir(log.ttir[0])
    names = [param.name for param in kernel.params]
    args = {"x": base.data_ptr() + 500, "out": base.data_ptr() + 512, "n": 8, "extra": 0}
    result = kernel.run((1, 1, 1), [args[name] for name in names], memory)
    assert [f.kind for f in result.findings] == ["out_of_bounds"]
    assert result.findings[0].arg == "x"
    assert result.findings[0].count == 5


@pytest.mark.parametrize("checks", [Checks(), ALL], ids=["plain", "checked"])
def test_misaligned(checks: Checks) -> None:
    x, out = torch.randn(64), torch.zeros(64)
    with executing() as log:
        copy_kernel[(1,)](x, out, 8, 0, BLOCK=8)
    kernel, memory = compile_ttir(log.ttir[0]), MemoryMap()
    for tensor in (x, out):
        memory.add(tensor.data_ptr(), tensor.nbytes, initialized=True)
    values = {"x": x.data_ptr() + 2, "out": out.data_ptr(), "n": 8, "extra": 0}
    result = kernel.run((1, 1, 1), [values[p.name] for p in kernel.params], memory, checks=checks)
    assert [(f.kind, f.arg, f.offset_bytes, f.count) for f in result.findings] == [("misaligned", "x", 2, 8)]


@pytest.mark.parametrize("address", [0, 7, 1 << 63, (1 << 64) - 16, (1 << 64) - 1])
def test_pointers_into_nothing(address: int) -> None:
    """Whatever a pointer argument holds, nothing outside the allocations is touched."""
    out = torch.zeros(64)
    with executing() as log:
        copy_kernel[(1,)](torch.zeros(64), out, 64, 0, BLOCK=64)
    kernel, memory = compile_ttir(log.ttir[0]), MemoryMap()
    memory.add(out.data_ptr(), out.nbytes, initialized=True)
    for checks in (Checks(), ALL):
        values = {"x": address, "out": out.data_ptr(), "n": 64, "extra": 0}
        result = kernel.run((1, 1, 1), [values[p.name] for p in kernel.params], memory, checks=checks)
        assert [f.kind for f in result.findings] == ["out_of_bounds"]
        assert result.findings[0].count == 64


@triton.jit
def through_kernel(place, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    source = tl.load(place).to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(source + at))


def test_what_is_gone_is_named_so() -> None:
    gone, place, out = torch.zeros(64), torch.zeros(1, dtype=torch.int64), torch.zeros(32)
    place[0] = gone.data_ptr()
    with executing() as log:
        through_kernel[(1,)](place, torch.zeros(32), 32)
    kernel, memory = compile_ttir(log.ttir[0]), MemoryMap()
    for tensor in (gone, place, out):
        memory.add(tensor.data_ptr(), tensor.nbytes, initialized=True)
    addresses = {"place": place.data_ptr(), "out": out.data_ptr()}
    kinds = []
    for _ in range(2):
        result = kernel.run((1, 1, 1), [addresses[p.name] for p in kernel.params], memory, checks=ALL)
        kinds.append([finding.kind for finding in result.findings])
        if not result.findings:
            memory.remove(gone.data_ptr())
    assert kinds == [[], ["use_after_free"]]


@triton.jit
def divided_kernel(out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, at // n + (at + 7) % tl.load(out + at))


def test_a_division_by_zero_is_told_where_all_elements_make_it() -> None:
    with executing(ALL) as log:
        divided_kernel[(1,)](torch.zeros(32, dtype=torch.int32), 3, BLOCK=32)  # lanes alone divide by zero
        divided_kernel[(1,)](torch.zeros(32, dtype=torch.int32), 0, BLOCK=32)
    assert [[one.kind for one in result.findings] for result in log.results] == [[], ["division_by_zero"]]


@triton.jit
def hinted_kernel(x, out, START: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK) + START, 16), 16)
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + at))


def test_hints_that_do_not_hold() -> None:
    x = torch.zeros(96)
    with executing(ALL) as log:
        for start in (0, 16, 1, 8):
            hinted_kernel[(1,)](x, torch.zeros(64), START=start, BLOCK=64)
    told = [[one.kind for one in result.findings] for result in log.results]
    assert told == [[], [], ["false_hint"], []]  # four elements are moved at once, and eight is a multiple of four


@triton.jit
def hinted_scalar_kernel(x, out, step, BLOCK: tl.constexpr):
    first = tl.multiple_of((1 - tl.program_id(0)) * step, 12)
    out += tl.program_id(0) * BLOCK
    tl.store(out + tl.arange(0, BLOCK), tl.load(x + 24 + first + tl.arange(0, BLOCK)))


def test_a_scalar_that_is_no_multiple_of_what_is_said() -> None:
    x = torch.zeros(112)
    with executing(ALL) as log:
        for programs, step in ((1, 24), (4, 12), (2, 6)):
            hinted_scalar_kernel[(programs,)](x, torch.zeros(256), step, BLOCK=64)
    assert [[one.kind for one in result.findings] for result in log.results] == [[], [], ["false_hint"]]


@triton.jit
def scattered_kernel(x, out, SHARE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at // SHARE, tl.load(x + at))


def test_lanes_of_one_store_that_meet() -> None:
    with executing(ALL) as log:
        scattered_kernel[(1,)](torch.randn(32), torch.zeros(32), SHARE=1, BLOCK=32)
        scattered_kernel[(1,)](torch.ones(32), torch.zeros(32), SHARE=4, BLOCK=32)
        assert log.kinds() == []
        scattered_kernel[(1,)](torch.randn(32), torch.zeros(32), SHARE=4, BLOCK=32)
    assert log.kinds() == ["race"]


@triton.jit
def atomic_at_kernel(out, at):
    tl.atomic_add(out + at, 1.0)


def test_atomics_are_checked() -> None:
    out = torch.zeros(8)
    with executing() as log:
        atomic_at_kernel[(4,)](out, 8)
        atomic_at_kernel[(4,)](out, -1)
        atomic_at_kernel[(4,)](out, 3)
    assert log.kinds() == ["out_of_bounds", "out_of_bounds"]
    assert out.tolist() == [0, 0, 0, 4, 0, 0, 0, 0]


@triton.jit
def read_through_kernel(addresses, out):
    pointer = tl.load(addresses).to(tl.pointer_type(tl.float32))
    tl.store(out, tl.load(pointer))


def test_addresses_from_memory() -> None:
    value, out = torch.tensor([2.5]), torch.zeros(1)
    for address, good in ((value.data_ptr(), True), (value.data_ptr() + (1 << 30), False), (8, False)):
        with executing() as log:
            log.reachable = [value]
            read_through_kernel[(1,)](torch.tensor([address]), out)
        assert log.kinds() == ([] if good else ["out_of_bounds"])
    assert out.item() == 0.0, "a load that is refused gives zero"


# ---- uninitialised memory


def _fresh(log, *tensors: torch.Tensor) -> None:
    log.fresh.update(t.untyped_storage().data_ptr() for t in tensors)


def test_read_of_memory_nothing_wrote() -> None:
    x, out = torch.zeros(100), torch.zeros(100)
    with executing(ALL) as log:
        _fresh(log, x)
        copy_kernel[(2,)](x, out, 100, 0, BLOCK=64)
    (finding,) = log.findings
    assert (finding.kind, finding.arg, finding.offset_bytes) == ("uninitialized", "x", 0)
    assert finding.count == 100


@triton.jit
def write_then_read_kernel(scratch, out, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.store(scratch + k, k.to(tl.float32), mask=k % 2 == 0)
    tl.store(out + k, tl.load(scratch + k))


def test_what_the_kernel_wrote_itself_is_initialised() -> None:
    scratch, out = torch.zeros(64), torch.zeros(64)
    with executing(ALL) as log:
        _fresh(log, scratch, out)
        write_then_read_kernel[(1,)](scratch, out, BLOCK=64)
    (finding,) = log.findings
    assert (finding.kind, finding.count, finding.offset_bytes) == ("uninitialized", 32, 4)


def test_checks_off_means_off() -> None:
    x = torch.zeros(64)
    with executing(Checks()) as log:
        _fresh(log, x)
        copy_kernel[(1,)](x, torch.zeros(64), 64, 0, BLOCK=64)
    assert not log.findings


# ---- races


@triton.jit
def overlapping_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(out + k, tl.load(x + tl.program_id(0)) + tl.zeros((BLOCK,), tl.float32), mask=k < n)


def test_two_programs_write_one_place() -> None:
    out = torch.zeros(64)
    with executing(ALL) as log:
        overlapping_kernel[(4,)](torch.arange(4.0), out, 16, 64, BLOCK=16)
        assert not log.findings
        overlapping_kernel[(4,)](torch.arange(4.0), out, 15, 64, BLOCK=16)
    (finding,) = log.findings
    assert (finding.kind, finding.severity, finding.arg, finding.count) == ("race", "error", "out", 3)
    assert finding.offset_bytes == 60


def test_writing_the_same_value_is_only_a_warning() -> None:
    with executing(ALL) as log:
        overlapping_kernel[(4,)](torch.ones(4), torch.zeros(64), 8, 64, BLOCK=16)
    assert [(f.kind, f.severity) for f in log.findings] == [("race", "warning")]


@triton.jit
def half_kernel(x, out, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + k, tl.load(x + k))


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8, torch.float64])
def test_no_race_between_neighbouring_elements(dtype: torch.dtype) -> None:
    x, out = torch.ones(64, dtype=dtype), torch.zeros(64, dtype=dtype)
    with executing(ALL) as log:
        half_kernel[(64,)](x, out, BLOCK=1)
        half_kernel[(16,)](x, out, BLOCK=4)
    assert not log.findings


# ---- loops, locks, prints, asserts


@triton.jit
def endless_kernel(out):
    value = tl.load(out)
    while value == 0:
        value = tl.load(out)
    tl.store(out, value)


@triton.jit
def dead_lock_kernel(lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass


@pytest.mark.parametrize("kernel", [endless_kernel, dead_lock_kernel])
def test_endless_loops_end(kernel) -> None:
    with pytest.raises(StepLimit, match=kernel.fn.__name__), executing(step_limit=100_000):
        kernel[(2,)](torch.zeros(1, dtype=torch.int32))


@triton.jit
def slow_kernel(out, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(n):
        total = tl.sin(total + i)
    tl.store(out + tl.arange(0, BLOCK), total)


def test_time_limit() -> None:
    with pytest.raises(StepLimit, match="seconds"), executing(time_limit=0.2):
        slow_kernel[(1,)](torch.zeros(1 << 16), 1 << 24, BLOCK=1 << 16)


@triton.jit
def print_kernel(x, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.device_print("value", tl.load(x + k), k * 2)
    tl.device_print("program", tl.program_id(0))


def test_device_print() -> None:
    with executing() as log:
        print_kernel[(2,)](torch.tensor([1.5, -2.0]), BLOCK=2)
    lines = [line for result in log.results for line in result.prints]
    assert "pid (0, 0, 0) idx (1) value: (operand 0) -2.000000" in lines
    assert "pid (1, 0, 0) idx (1) value: (operand 1) 2" in lines
    assert "pid (1, 0, 0) idx () program: 1" in lines


@triton.jit
def formats_kernel(x, u, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.device_print("hex", tl.load(x + k), hex=True)
    tl.device_print("unsigned", tl.load(u + k))
    tl.device_print("wide", tl.load(x + k).to(tl.int64) * 4503599627370497)
    tl.device_print("pointer", x + k)
    tl.device_print("text")


def test_printed_numbers_read_as_on_a_card() -> None:
    """Axes are padded, and hexadecimal, unsigned and wide numbers, and addresses are C's."""
    x = torch.tensor([-2, 15] * 8, dtype=torch.int16)
    with executing() as log:
        formats_kernel[(1,)](x, torch.full((16,), 200, dtype=torch.uint8), BLOCK=16)
    lines = [line for result in log.results for line in result.prints]
    for line in ("idx ( 0) hex: 0xfffe", "idx (15) hex: 0x000f", "idx ( 3) unsigned: 200"):
        assert f"pid (0, 0, 0) {line}" in lines
    assert "pid (0, 0, 0) idx ( 1) wide: 67553994410557455" in lines
    assert f"pid (0, 0, 0) idx ( 2) pointer: {x.data_ptr() + 4:#x}" in lines
    assert "pid (0, 0, 0) text" in [line.replace(": ", " ").rstrip() for line in lines]


@triton.jit
def assert_kernel(x, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    tl.device_assert(tl.load(x + k, mask=k < n, other=1.0) > 0, "must be positive")


def test_device_assert() -> None:
    with executing() as log:
        assert_kernel[(1,)](torch.tensor([1.0, 2.0, -3.0]), 3, BLOCK=4, debug=True)
        assert_kernel[(1,)](torch.tensor([1.0, 2.0, 3.0]), 3, BLOCK=4, debug=True)
    (finding,) = log.findings
    assert finding.kind == "assert"
    assert "must be positive" in finding.message
    assert finding.line is not None


# ---- counters


def test_counts_of_a_copy() -> None:
    x, out = torch.zeros(1024), torch.zeros(1024)
    with executing() as log:
        copy_kernel[(4,)](x, out, 1000, 0, BLOCK=256)
    stats = log.results[0].stats
    assert stats.programs == 4
    assert stats.load_sectors == 1000 * 4 / 32
    assert stats.store_sectors == 1000 * 4 / 32
    assert dict((base, (read, written)) for base, read, written in stats.footprint) == {
        x.data_ptr(): (4000.0, 0.0),
        out.data_ptr(): (0.0, 4000.0),
    }
    assert set(log.results[0].written) == {out.data_ptr()}


@triton.jit
def counted_kernel(x, out, n, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    value = tl.load(x + k)
    for _ in range(n):
        value = value * 2.0 + 1.0
    tl.store(out + k, tl.exp(value))
    tl.atomic_add(out, tl.sum(value, 0))


@triton.jit
def dot_kernel(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def test_counts_of_arithmetic() -> None:
    with executing() as log:
        counted_kernel[(3,)](torch.zeros(64), torch.zeros(64), 5, BLOCK=64)
        half = torch.zeros(16, 16, dtype=torch.float16)
        dot_kernel[(2,)](half, half.clone(), torch.zeros(16, 16), N=16)
        dot_kernel[(2,)](torch.zeros(16, 16), torch.zeros(16, 16), torch.zeros(16, 16), N=16)
    first, second, third = (result.stats for result in log.results)
    assert first.flops["fp32"] == 3 * (5 * 2 * 64 + 64)
    assert first.flops["sfu"] == 3 * 64
    assert (first.atomics, first.max_same_address_atomics) == (3, 3)
    assert second.flops["tensor_fp16"] == 2 * 2 * 16**3
    assert third.flops["tensor_tf32"] == 2 * 2 * 16**3


@triton.jit
def precise_dot(a, b, c, HOW: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    start = tl.full((N, N), 0.0, tl.float32)
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), start, input_precision=HOW))


@pytest.mark.parametrize(
    ("how", "left", "right", "expected"),
    [
        ("tf32x3", 1 + 2**-11, 1 + 2**-11, 1 + 2**-10),  # one part each is 1 + 2**-10, and (2**-11)**2 is left out
        ("tf32x3", 1 + 2**-20, 1.0, 1 + 2**-20),
        ("bf16x3", 1 + 2**-9 + 2**-20, 1.0, 1 + 2**-9),  # sixteen bits of twenty-four
        ("bf16x3", 1 + 2**-9, 1 + 2**-9, 1 + 2**-8),
        ("bf16x6", 1 + 2**-9 + 2**-20, 1.0, 1 + 2**-9 + 2**-20),
        ("bf16x6", 1 + 2**-9, 1 + 2**-9, (1 + 2**-9) ** 2),
        ("bf16x6", math.inf, 1 + 2**-9, math.inf),
        ("ieee", 1 + 2**-11, 1 + 2**-11, (1 + 2**-11) ** 2),
    ],
)
def test_products_made_of_narrower_ones_lose_what_a_card_loses(how: str, left: float, right: float, expected: float):
    a, b = torch.zeros(16, 16), torch.zeros(16, 16)
    a[:, 3], b[3] = left, right
    c = torch.zeros(16, 16)
    with executing():
        precise_dot[(1,)](a, b, c, HOW=how, N=16)
    assert c.unique().tolist() == [expected]


@triton.jit
def half_sums(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), out_dtype=tl.float16))


def test_sums_in_fp16_are_rounded_after_each_instruction_of_a_tensor_core() -> None:
    a, b = torch.zeros(64, 64, dtype=torch.float16), torch.ones(64, 64, dtype=torch.float16)
    a[:, 0], a[:, 16::16] = 2048.0, 1.0  # which 2048 loses each time; three at once it would not
    c = torch.zeros(64, 64, dtype=torch.float16)
    with executing():
        half_sums[(1,)](a, b, c, N=64)
    assert c.unique().tolist() == [2048.0]


def test_sectors_of_strided_reads() -> None:
    @triton.jit
    def strided_kernel(x, out, stride, BLOCK: tl.constexpr):
        k = tl.arange(0, BLOCK)
        tl.store(out + k, tl.load(x + k * stride))

    globals()["strided_kernel"] = strided_kernel
    with executing() as log:
        for stride in (1, 2, 8, 16):
            strided_kernel[(1,)](torch.zeros(64 * 16), torch.zeros(64), stride, BLOCK=64)
    assert [result.stats.load_sectors for result in log.results] == [8, 16, 64, 64]


# ---- refusals


@triton.jit
def asm_kernel(x, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise("ld.global.f32 $0, [$1];", "=f,f", [tl.load(x + k)], tl.float32, True, 1)
    tl.store(x + k, value)


def test_what_is_not_supported_says_so_with_its_line() -> None:
    line = asm_kernel.fn.__code__.co_firstlineno + 3
    with pytest.raises(UnsupportedTTIR, match=rf"ld\.global\.f32.*test_executor\.py:{line}"), executing():
        asm_kernel[(1,)](torch.zeros(16), BLOCK=16)


def test_arguments_must_fit() -> None:
    with executing() as log:
        copy_kernel[(1,)](torch.zeros(8), torch.zeros(8), 8, 0, BLOCK=8)
    kernel = compile_ttir(log.ttir[0])
    with pytest.raises(TTIRError, match="takes 4 arguments, not 1"):
        kernel.run((1, 1, 1), [1], MemoryMap())


def test_kernels_survive_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """More kernels than the cache holds: evicted ones free their code, the rest go on working."""
    monkeypatch.setattr("ttir_executor.compiled._CACHE_SIZE", 4)
    with executing() as log:
        copy_kernel[(1,)](torch.zeros(8), torch.zeros(8), 8, 0, BLOCK=8)
    for k in range(30):
        kernel = compile_ttir(log.ttir[0] + f"// {k}\n")
        x, out = torch.full((8,), float(k)), torch.zeros(8)
        memory = MemoryMap()
        for tensor in (x, out):
            memory.add(tensor.data_ptr(), tensor.nbytes, initialized=True)
        values = {"x": x.data_ptr(), "out": out.data_ptr(), "n": 8, "extra": 0}
        kernel.run((1, 1, 1), [values[p.name] for p in kernel.params], memory)
        assert (out == k).all()


# ---- threads


@triton.jit
def busy_kernel(x, out, n, rounds, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + k, mask=k < n)
    for _ in range(rounds):
        value = tl.sqrt(value * value + 1.0)
    tl.store(out + k, value, mask=k < n + 3)


def test_threads_change_nothing() -> None:
    """Results, counts and findings are those of one thread."""
    n = 20_000 - 3
    x = torch.randn(n).abs()
    seen = []
    for threads in (1, 4):
        out = torch.zeros(n)
        with executing(threads=threads) as log:
            busy_kernel[(triton.cdiv(n, 32),)](x, out, n, 300, BLOCK=32)
        (result,) = log.results
        seen.append((out, result.stats.flops, result.stats.load_sectors, result.stats.programs, result.findings))
    assert torch.equal(seen[0][0], seen[1][0])
    assert seen[0][1:4] == seen[1][1:4]
    assert [f.message for f in seen[0][4]] == [f.message for f in seen[1][4]]
    assert seen[0][4][0].count == 3


def test_threads_stop_together() -> None:
    with pytest.raises(StepLimit), executing(threads=4, step_limit=1000):
        busy_kernel[(256,)](torch.zeros(64), torch.zeros(64), 64, 1 << 20, BLOCK=32)
