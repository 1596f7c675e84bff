"""Kernels that a GPU would refuse or spill: found without compiling, and equal to what the compiler says."""

import pytest
import torch
import triton
import triton.language as tl

from accumulators import MOVED, modelled
from drkernel import sim
from drkernel.sim import target
from drkernel.sim.cost.pressure import block_pressure, register_pressure
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.spec import get_spec
from drkernel.sim.target import (
    OverShared,
    PassesFailed,
    compile_for_target,
    exact_shared,
    shared_bound,
    shared_bytes,
    with_or_without,
)
from kernels_for_target import matmul
from kernels_nn import softmax_kernel
from launches import Commands
from ttir_executor.compiled import compile_ttir
from ttir_executor.ttir.parser import parse_ttir


@triton.jit
def passes_kernel(a, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TWICE: tl.constexpr):
    """Two accumulators that one loop takes over from another, as attention's stages do."""
    rows, cols, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    one, other = tl.zeros((BM, BN), tl.float32), tl.zeros((BM, BN), tl.float32)
    for stage in tl.static_range(1 + TWICE):
        for k in range(stage * K, (stage + 1) * K, BK):
            x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
            y = tl.load(b + (k + inner)[:, None] * BN + cols[None, :])
            one = tl.dot(x, y, one)
            other = tl.dot(x * 2, y, other)
    at = rows[:, None] * BN + cols[None, :]
    tl.store(out + at, one)
    tl.store(out + BM * BN + at, other)


def run_matmul(tile: tuple[int, int, int], warps: int, stages: int) -> None:
    m, n, k = tile
    a, b, c = (torch.zeros(512, 512, device="cuda") for _ in range(3))
    matmul[(512 // m, 512 // n)](a, b, c, 512, 512, 512, m, n, k, num_warps=warps, num_stages=stages)


def test_what_the_gpu_refuses_is_refused_with_tritons_words(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(monkeypatch)
    with sim.device("h200"), pytest.raises(triton.runtime.errors.OutOfResources) as raised:
        run_matmul((128, 128, 64), 8, 6)
    (command,) = commands.given
    with pytest.raises(Exception, match="shared memory") as compiled:
        compile_for_target(command.ttir, get_spec("h200"), num_warps=8, num_stages=6)
    assert str(raised.value) == str(compiled.value)


@pytest.mark.parametrize(
    ("tile", "warps", "stages"), [((128, 128, 64), 8, 3), ((64, 128, 32), 4, 4), ((64, 64, 64), 4, 2)]
)
def test_shared_memory_is_the_compilers(
    monkeypatch: pytest.MonkeyPatch, tile: tuple[int, int, int], warps: int, stages: int
) -> None:
    commands, spec = Commands(monkeypatch), get_spec("h200")
    with sim.device("h200"):
        run_matmul(tile, warps, stages)
    (command,) = commands.given
    exact = exact_shared(command.ttir, spec, warps, stages)
    assert exact == compile_for_target(command.ttir, spec, num_warps=warps, num_stages=stages).shared_bytes
    assert exact <= shared_bound(compile_ttir(command.ttir).function, command.ttir, stages)


def test_small_kernels_do_not_run_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "exact_shared", lambda *_: pytest.fail("compiled"))
    with sim.device("h200"):
        x = torch.zeros(4, 1000, device="cuda")
        softmax_kernel[(4,)](x, torch.empty_like(x), 1000, 1000, 1024)
        run_matmul((32, 32, 32), 4, 3)


def test_the_limit_is_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(monkeypatch)
    with sim.device("h200"):
        run_matmul((128, 128, 64), 8, 3)
    (command,) = commands.given
    function = compile_ttir(command.ttir).function
    assert shared_bytes(function, command.ttir, get_spec("h200"), 8, 3) == 196608
    with pytest.raises(OverShared, match="Hardware limit: 166912"):
        shared_bytes(function, command.ttir, get_spec("a100"), 8, 4)


def test_autotune_skips_what_does_not_fit() -> None:
    configs = [
        triton.Config({"BM": 256, "BN": 256, "BK": 128}, num_warps=4, num_stages=6),
        triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_warps=4, num_stages=2),
    ]
    tuned = triton.autotune(configs=configs, key=["M"])(matmul)
    with sim.device("h200"):
        a, b, c = (torch.ones(256, 256, device="cuda") for _ in range(3))
        tuned[lambda meta: (256 // meta["BM"], 256 // meta["BN"])](a, b, c, 256, 256, 256)
        assert bool((c == 256).all())
    assert tuned.best_config.kwargs["BM"] == 32


def test_text_that_upsets_the_passes_ends_only_their_process() -> None:
    with pytest.raises(PassesFailed):
        exact_shared("module { this is no TTIR }", get_spec("h200"), 4, 3)


def test_a_loop_holds_what_it_takes_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands(monkeypatch)
    with sim.device("h200"):
        a, b = torch.zeros(128, 256, device="cuda"), torch.zeros(256, 64, device="cuda")
        for twice in (0, 1):
            out = torch.empty(2, 128, 64, device="cuda")
            passes_kernel[(1,)](a.half(), b.half(), out, 64, BM=128, BN=64, BK=32, TWICE=twice, num_warps=4)
    once, twice = (register_pressure(compile_ttir(one.ttir).function, 128) for one in commands.given[-2:])
    assert twice.registers == once.registers < 255 and twice.spilled_bytes == once.spilled_bytes == 0


def test_registers_are_near_the_compilers_and_spills_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    commands, spec = Commands(monkeypatch), get_spec("h200")
    with sim.device("h200"):
        x = torch.zeros(2, 8192, device="cuda")
        for warps in (1, 4, 8):
            softmax_kernel[(2,)](x, torch.empty_like(x), 8192, 8192, 8192, num_warps=warps)
    for command in commands.given:
        found = register_pressure(compile_ttir(command.ttir).function, command.num_warps * 32)
        real = compile_for_target(command.ttir, spec, num_warps=command.num_warps, num_stages=3)
        assert real.registers is not None and abs(found.registers - real.registers) <= 24
        assert (found.spilled_bytes > 0) == bool(real.spills)


@triton.jit
def mish_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    powered = tl.exp(2.0 * tl.log(1.0 + tl.exp(value)))
    tl.store(out + at, value * ((powered - 1.0) / (powered + 1.0)), mask=at < n)


@triton.jit
def erf_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, 0.5 * value * (1.0 + tl.erf(value * 0.70710678)), mask=at < n)


@triton.jit
def rms_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    weight = tl.load(out + at, mask=at < n, other=0.0)
    scale = tl.rsqrt(tl.sum(value * value, axis=0) / n + 1e-6)
    tl.store(out + tl.program_id(0) * n + at, value * scale * weight, mask=at < n)


@pytest.mark.parametrize(
    ("kernel", "real"), [(mish_kernel, (32, 48, 90)), (rms_kernel, (48, 80, 156)), (erf_kernel, (40, 69, 147))]
)
def test_registers_of_element_wise_and_row_kernels_are_those_of_machine_code(
    kernel: triton.JITFunction, real: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By ptxas 12.8 for sm_90, at 16, 32 and 64 elements a thread of four warps."""
    commands = Commands(monkeypatch)
    with sim.device("h100"):
        x = torch.zeros(2 << 13, device="cuda")
        for elements in (16, 32, 64):
            kernel[(1,)](x, torch.empty_like(x), 128 * elements, 128 * elements, num_warps=4)
    found = [register_pressure(compile_ttir(one.ttir).function, 128).registers for one in commands.given]
    assert all(0.85 < one / other < 1.21 for one, other in zip(found, real, strict=True))


@pytest.mark.parametrize(("rows", "cols", "warps"), MOVED)
def test_accumulators_spill_about_as_the_compilers_do(rows: int, cols: int, warps: int) -> None:
    found, real = modelled(rows, cols, warps), MOVED[rows, cols, warps]
    assert found == real == 0 if rows == cols == 128 else 0.6 < found / real < 1.67


def test_spilling_costs_time() -> None:
    times = []
    for warps in (1, 16):
        with sim.device("h200", data_free=DataFree()) as device:
            x = torch.empty(1024, 65536, device="cuda")
            out = torch.empty_like(x)
            device.reset_counters()
            softmax_kernel[(1024,)](x, out, 65536, 65536, 65536, num_warps=warps)
            times.append(device.profile().elapsed_seconds)
    assert times[0] > 1.3 * times[1]


@pytest.mark.parametrize(
    ("marked", "plain"),
    [
        ("} {tt.warp_specialize}", "} {}"),
        ("} {tt.num_stages = 2 : i32, tt.warp_specialize}", "} {tt.num_stages = 2 : i32}"),
        ("} {tt.warp_specialize, ttg.x}", "} {ttg.x}"),
    ],
)
def test_loops_whose_warps_cannot_be_told_apart_here_are_compiled_with_all_alike(marked: str, plain: str) -> None:
    tried: list[str] = []

    def work(text: str) -> int:
        tried.append(text)
        if "warp_specialize" in text:
            raise PassesFailed("PassManager::run failed")
        return 7

    assert with_or_without(marked, work, PassesFailed) == 7 and tried == [marked, plain]

    def fails(text: str) -> int:
        raise PassesFailed(text)

    with pytest.raises(PassesFailed, match="num_stages"):
        with_or_without("} {tt.num_stages = 2 : i32}", fails, PassesFailed)


def _long_kernel(products: int) -> str:
    lines = [f"%v{k + 1} = arith.mulf %v{k}, %v{max(0, k - 3)} : tensor<128xf32>" for k in range(products)]
    return f"""module {{
tt.func public @k(%x: !tt.ptr<f32>) {{
    %r = tt.make_range {{end = 128 : i32, start = 0 : i32}} : tensor<128xi32>
    %s = tt.splat %x : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>>
    %p = tt.addptr %s, %r : tensor<128x!tt.ptr<f32>>, tensor<128xi32>
    %v0 = tt.load %p : tensor<128x!tt.ptr<f32>>
    {chr(10).join(lines)}
    tt.store %p, %v{products} : tensor<128x!tt.ptr<f32>>
    tt.return
}}
}}"""


def test_what_a_long_kernel_holds() -> None:
    """Six thousand operations, as unrolled loops have them."""
    (block,) = block_pressure(parse_ttir(_long_kernel(6000)))
    assert block.held == 4 * 128 * 4 * 0.5  # the next product's two factors, and those of the two after it
