"""Registers, shared memory and errors by Triton's own compiler, cached by content, safe against its crashes."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from drkernel.base.files import cache_folder
from drkernel.base.procs import JsonProcess, ProcessFailure
from drkernel.sim import target as compile_target
from drkernel.sim.spec import get_spec
from drkernel.sim.target import TargetCompileError, compile_for_target, strip_locations
from kernels_for_target import add_ttir, matmul_ttir

H100 = get_spec("h100")


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compile_target, "_memory", {})


@pytest.mark.parametrize("gpu", ["h100", "a100", "b200", "mi300x"])
def test_a_simple_kernel_takes_few_registers_on_every_target(gpu: str) -> None:
    spec = get_spec(gpu)
    found = compile_for_target(add_ttir(spec), spec, num_warps=4, num_stages=3)
    assert found.registers is not None
    assert 4 <= found.registers <= 64 and found.spills == 0 and found.shared_bytes == 0
    assert found.occupancy_blocks_per_sm == spec.max_threads_per_sm // (4 * spec.warp_size)


def test_pipeline_stages_cost_shared_memory_and_shared_memory_costs_occupancy() -> None:
    text = matmul_ttir(H100)
    stage = (128 * 64 + 64 * 128) * 2
    two, three = (compile_for_target(text, H100, num_warps=8, num_stages=n) for n in (2, 3))
    assert three.shared_bytes - two.shared_bytes == stage
    assert three.occupancy_blocks_per_sm <= two.occupancy_blocks_per_sm
    assert H100.smem_per_sm // three.occupancy_blocks_per_sm >= three.shared_bytes


def test_too_much_shared_memory_is_the_error_that_a_launch_would_raise() -> None:
    with pytest.raises(
        TargetCompileError, match=r"out of resource: shared memory, Required: \d+, Hardware limit: 232448"
    ) as error:
        compile_for_target(matmul_ttir(H100), H100, num_warps=8, num_stages=8)
    assert error.value.kind == "OutOfResources"


def test_spills_are_counted() -> None:
    spec = get_spec("a100")
    text = matmul_ttir(spec)
    assert compile_for_target(text, spec, num_warps=8, num_stages=2).spills == 0
    cramped = compile_for_target(text, spec, num_warps=8, num_stages=2, options={"maxnreg": 40})
    assert cramped.registers is not None and cramped.registers <= 40
    assert cramped.spills is not None and cramped.spills > 0
    with pytest.raises(TargetCompileError, match="Insufficient registers"):  # ptxas in its own words
        compile_for_target(matmul_ttir(H100), H100, num_warps=8, num_stages=2, options={"maxnreg": 32})


def test_outcomes_are_cached_by_content_in_memory_and_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict] = []
    real = compile_target._compiler.ask

    def counting(request: dict, seconds: float) -> dict:
        asked.append(request)
        return real(request, seconds)

    monkeypatch.setattr(compile_target._compiler, "ask", counting)
    text = add_ttir(H100)
    first = compile_for_target(text, H100, num_warps=4, num_stages=3)
    assert (
        compile_for_target(text.replace("kernels_elementwise", "elsewhere"), H100, num_warps=4, num_stages=3) == first
    )
    monkeypatch.setattr(compile_target, "_memory", {})
    assert compile_for_target(text, H100, num_warps=4, num_stages=3) == first
    assert len(asked) == 1
    assert len(list(cache_folder("compile").iterdir())) == 1
    compile_for_target(text, H100, num_warps=8, num_stages=3)
    assert len(asked) == 2
    (entry, *_) = cache_folder("compile").iterdir()
    entry.write_text("{ torn")  # a damaged entry is compiled again
    monkeypatch.setattr(compile_target, "_memory", {})
    with pytest.warns(UserWarning, match="damaged"):
        compile_for_target(text, H100, num_warps=4, num_stages=3)
        compile_for_target(text, H100, num_warps=8, num_stages=3)
    assert len(asked) == 3 and b"registers" in entry.read_bytes()


def test_an_unwritable_cache_only_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert compile_for_target(add_ttir(H100), H100, num_warps=4, num_stages=3).registers


def test_errors_of_the_compiler_are_told_in_its_own_words_and_remembered() -> None:
    bad = 'module {\n  tt.func public @k(%x: !tt.ptr<f32>) {\n    "tt.nonsense"() : () -> ()\n    tt.return\n  }\n}\n'
    for _ in range(2):
        with pytest.raises(TargetCompileError, match=r"nonsense"):
            compile_for_target(bad, H100, num_warps=4, num_stages=3)
    with pytest.raises(TargetCompileError, match="num_warps must be a power of 2"):
        compile_for_target(add_ttir(H100), H100, num_warps=3, num_stages=3)


def test_a_compiler_that_dies_or_hangs_is_replaced_and_its_failure_is_not_cached() -> None:
    compiler = JsonProcess("drkernel.sim.compile_worker")
    request = {"ttir": strip_locations(add_ttir(H100)), "backend": "cuda", "arch": 90, "warp_size": 32,
               "options": {"num_warps": 4, "num_stages": 3}}  # fmt: skip
    try:
        assert "registers" in compiler.ask(request, 120.0)
        assert compiler.pid is not None
        os.kill(compiler.pid, signal.SIGKILL)
        with suppress(ProcessFailure):  # or it was seen to be dead
            compiler.ask(request, 120.0)
        assert "registers" in compiler.ask(request, 120.0)  # a new one
        with pytest.raises(ProcessFailure, match="within 0 s"):
            compiler.ask(request, 0.0)
        assert "registers" in compiler.ask(request, 120.0)
    finally:
        compiler.close()


def test_locations_are_stripped_whatever_they_hold() -> None:
    text = (
        '#loc = loc("a (b.py":1:2)\nmodule {\n  func @f(%x: f32 loc("x)"(#loc))) {\n    %0 = op %x : f32 loc(#loc3)\n'
        '    return loc(callsite(#loc1 at "q\\"(" (#loc2)))\n  } loc(#loc)\n} loc(#loc)\n#loc1 = loc("z":3:4)\n'
    )
    assert strip_locations(text) == "module {\n  func @f(%x: f32) {\n    %0 = op %x : f32\n    return\n  }\n}\n"
