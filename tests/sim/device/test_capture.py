"""Unmodified Triton host code on the simulated device: every way to launch, and what is recorded of it."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.wire.commands import UnsupportedOp


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=inside), mask=inside)


def operands(n: int = 1000):
    return torch.randn(n, device="cuda"), torch.randn(n, device="cuda"), torch.empty(n, device="cuda")


def test_constexprs_by_position_and_by_keyword(dev):
    x, y, out = operands()
    add_kernel[(4,)](x, y, out, 1000, 256)
    torch.testing.assert_close(out, x + y)
    out.zero_()
    add_kernel[(2,)](x_ptr=x, y_ptr=y, out_ptr=out, n=1000, BLOCK=512, num_warps=8, num_stages=2)
    torch.testing.assert_close(out, x + y)
    first, second = dev.launches
    assert first.constexprs == {"BLOCK": "256"} and first.grid == (4, 1, 1) and first.num_warps == 4
    assert second.constexprs == {"BLOCK": "512"} and second.grid == (2, 1, 1)
    assert (second.num_warps, second.num_stages) == (8, 2)
    assert first.identity == second.identity
    assert first.identity.startswith(f"{__name__}.add_kernel@")


def test_identity_is_of_the_function_not_of_its_name(dev):
    def make(factor):
        if factor == 2:

            @triton.jit
            def kernel(x):
                tl.store(x, 2.0)
        else:

            @triton.jit
            def kernel(x):
                tl.store(x, 3.0)

        return kernel

    x = torch.zeros(1, device="cuda")
    make(2)[(1,)](x)
    make(3)[(1,)](x)
    first, second = dev.launches
    assert first.name == second.name == "kernel"
    assert first.identity != second.identity


def test_a_grid_may_be_a_function(dev):
    x, y, out = operands()
    add_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, out, 1000, BLOCK=128)
    assert dev.launches[-1].grid == (8, 1, 1)


def test_autotune_tries_every_config_and_keeps_the_fastest_modelled(dev):
    hooks = []

    @triton.autotune(
        configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 1), (1024, 4), (256, 2))],
        key=["n"],
    )
    @triton.jit
    def tuned(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        value = tl.load(x_ptr + offsets, mask=inside) + tl.load(y_ptr + offsets, mask=inside)
        tl.store(out_ptr + offsets, value, mask=inside)

    n = 1 << 18
    x, y, out = operands(n)
    grid = lambda meta: hooks.append(meta["BLOCK"]) or (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    tuned[grid](x, y, out, n)
    torch.testing.assert_close(out, x + y)
    tried = {launch.constexprs["BLOCK"] for launch in dev.launches}
    assert tried == {"64", "1024", "256"}
    best = str(tuned.best_config.kwargs["BLOCK"])
    seconds = {launch.constexprs["BLOCK"]: launch.seconds for launch in dev.launches[:3]}
    assert seconds[best] == min(seconds.values())
    before = len(dev.launches)
    tuned[grid](x, y, out, n)
    assert len(dev.launches) == before + 1, "the choice is kept for the same key"
    assert dev.launches[-1].constexprs["BLOCK"] == best


def test_autotune_restores_and_resets_and_prunes(dev):
    pruned = []

    def prune(configs, named_args, **kwargs):
        pruned.append(len(configs))
        return configs[:2]

    @triton.autotune(
        configs=[triton.Config({"BLOCK": block}) for block in (64, 128, 256)],
        key=["n"],
        restore_value=["x_ptr"],
        reset_to_zero=["count"],
        prune_configs_by={"early_config_prune": prune},
    )
    @triton.jit
    def increment(x_ptr, count, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = offsets < n
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=inside) + 1, mask=inside)
        tl.atomic_add(count, 1)

    x, count = torch.zeros(256, device="cuda"), torch.zeros(1, device="cuda", dtype=torch.int32)
    increment[lambda meta: (triton.cdiv(256, meta["BLOCK"]),)](x, count, 256)
    assert pruned == [3]
    assert torch.equal(x.cpu(), torch.ones(256))
    assert count.item() == 256 // increment.best_config.kwargs["BLOCK"]


def test_heuristics_compute_constexprs_from_arguments(dev):
    @triton.heuristics(
        {"BLOCK": lambda args: triton.next_power_of_2(args["n"]), "EVEN": lambda args: args["n"] % 2 == 0}
    )
    @triton.jit
    def doubled(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        value = tl.load(x + offsets, mask=offsets < n)
        if EVEN:
            value *= 2
        tl.store(x + offsets, value, mask=offsets < n)

    even, odd = torch.ones(6, device="cuda"), torch.ones(7, device="cuda")
    doubled[(1,)](even, 6)
    doubled[(1,)](odd, 7)
    assert even.tolist() == [2.0] * 6 and odd.tolist() == [1.0] * 7
    assert [launch.constexprs["EVEN"] for launch in dev.launches] == ["True", "False"]


def test_warmup_compiles_and_launches_nothing(dev):
    kernel = add_kernel.warmup(torch.float32, torch.float32, torch.float32, 1000, BLOCK=256, grid=(4,))
    assert "tt.func public @add_kernel" in kernel.asm["ttir"]
    assert dev.launches == []
    x, y, out = operands()
    kernel = add_kernel.warmup(x, y, out, 1000, BLOCK=256, grid=(4,))
    kernel[(4, 1, 1)](x, y, out, 1000, 256)
    torch.testing.assert_close(out, x + y)


def test_the_targets_texts_are_compiled_when_they_are_asked_for(dev):
    kernel = add_kernel.warmup(torch.float32, torch.float32, torch.float32, 1000, BLOCK=256, grid=(4,))
    assert "ttg.num-warps" in kernel.asm["ttgir"]
    assert ".entry add_kernel" in kernel.asm["ptx"] and kernel.asm["ptx"] is kernel.asm.get("ptx")
    assert "llir" in kernel.asm and "cubin" not in kernel.asm and kernel.asm.get("amdgcn") is None
    options = {"arch": "sm80", "maxnreg": 40}
    chosen = add_kernel.warmup(torch.float32, torch.float32, torch.float32, 1000, BLOCK=256, grid=(4,), **options)
    assert "cuda:80" in chosen.asm["ttgir"] and ".maxnreg 40" in chosen.asm["ptx"]
    with pytest.raises(UnsupportedOp, match="cubin"):
        kernel.asm["cubin"]
    with pytest.raises(KeyError, match="amdgcn"):
        kernel.asm["amdgcn"]


def test_a_launch_returns_a_kernel_with_what_host_code_reads_of_it(dev):
    x, y, out = operands()
    kernel = add_kernel[(4,)](x, y, out, 1000, BLOCK=256, num_warps=2)
    assert kernel.metadata.num_warps == 2 and kernel.metadata.name == "add_kernel"
    assert set(kernel.asm) >= {"ttir"} and kernel.hash


@triton.jit
def scaled(value, FACTOR: tl.constexpr):
    return value * FACTOR


def test_a_function_as_constexpr_and_tuples_as_arguments(dev):
    @triton.jit
    def apply(x, pointers, sizes, FUNCTION: tl.constexpr, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        value = FUNCTION(tl.load(x + offsets), FACTOR)
        tl.store(pointers[0] + offsets, value, mask=offsets < sizes[0])
        tl.store(pointers[1] + offsets, value + 1, mask=offsets < sizes[1])

    x = torch.arange(16, device="cuda").float()
    a, b = torch.zeros(16, device="cuda"), torch.zeros(16, device="cuda")
    apply[(1,)](x, (a, b), (10, 5), FUNCTION=scaled, FACTOR=2, BLOCK=16)
    assert a.cpu().tolist() == [2.0 * k for k in range(10)] + [0.0] * 6
    assert b.cpu().tolist() == [2.0 * k + 1 for k in range(5)] + [0.0] * 11


def test_scalars_of_every_kind(dev):
    @triton.jit
    def scalars(out, i, big, f, flag, none, one):
        if none is None:
            tl.store(out, i)
        tl.store(out + 1, big)
        tl.store(out + 2, f)
        tl.store(out + 3, flag)
        tl.store(out + 4, one)

    out = torch.zeros(5, device="cuda", dtype=torch.float64)
    scalars[(1,)](out, -7, 1 << 40, 0.5, True, None, 1)
    assert out.tolist() == [-7.0, float(1 << 40), 0.5, 1.0, 1.0]


def test_views_and_offsets_reach_the_kernel(dev):
    x = torch.randn(64, 64, device="cuda")
    out = torch.zeros(64, 64, device="cuda")
    add_kernel[(1,)](x[3], x[5], out[7], 64, BLOCK=64)
    assert x[3].data_ptr() - x.data_ptr() == 3 * 64 * 4
    torch.testing.assert_close(out[7], x[3] + x[5])
    assert out[6].abs().sum().item() == 0 and out[8].abs().sum().item() == 0


def test_pre_and_post_hooks(dev):
    seen = []

    @triton.jit
    def kernel(x):
        tl.store(x, 1.0)

    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append("pre"))
    kernel[(1,)](torch.zeros(1, device="cuda"))
    assert seen == ["pre"]


def test_launch_hooks_of_the_runtime(dev):
    from triton import knobs

    seen = []
    knobs.runtime.launch_enter_hook.add(lambda metadata: seen.append(("enter", metadata.get()["name"])))
    knobs.runtime.launch_exit_hook.add(lambda metadata: seen.append(("exit", metadata.get()["name"])))
    try:
        x, y, out = operands()
        add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
    finally:
        for hooks in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
            for call in list(hooks.calls):
                hooks.remove(call)
    assert seen == [("enter", "add_kernel"), ("exit", "add_kernel")]


def test_load_hooks_of_the_runtime_once_a_kernel(dev):
    from triton import knobs

    seen = []

    @triton.jit
    def empty_kernel():
        pass

    def note(module, function, name, group, digest):
        seen.append((name, digest))

    hooks = (knobs.runtime.kernel_load_start_hook, knobs.runtime.kernel_load_end_hook)
    for hook in hooks:
        hook.add(note)
    try:
        empty_kernel[(2,)]()
        empty_kernel[(3,)]()
    finally:
        for hook in hooks:
            hook.remove(note)
    assert [name for name, _ in seen] == ["empty_kernel"] * 2 and len(set(seen)) == 1


FACTOR = tl.constexpr(2)


@triton.jit
def factor_kernel(out):
    tl.store(out, FACTOR)


def test_a_kernel_is_refused_when_a_global_value_that_it_used_has_changed(dev, monkeypatch):
    out = torch.zeros(1, device="cuda")
    factor_kernel[(1,)](out)
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(3))
    with pytest.raises(RuntimeError, match="FACTOR has changed"):
        factor_kernel[(1,)](out)
    assert out.item() == 2


def test_do_bench_gives_modelled_milliseconds(dev):
    x, y, out = operands(1 << 16)
    call = partial(add_kernel[(64,)], x, y, out, 1 << 16, BLOCK=1024)
    milliseconds = triton.testing.do_bench(call, warmup=1, rep=2)
    assert milliseconds == pytest.approx((dev.launches[-1].seconds + dev.spec.event_overhead) * 1e3, rel=1e-6)
    assert triton.testing.do_bench_cudagraph(call) == pytest.approx(dev.launches[-1].seconds * 1e3, rel=1e-6)


def test_the_driver_answers_what_tutorials_ask(dev):
    properties = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
    assert properties["multiprocessor_count"] == dev.spec.sm_count
    target = triton.runtime.driver.active.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)
    assert triton.runtime.driver.active.get_active_torch_device() == torch.device("cuda", 0)


def test_amd_target():
    with sim.device("mi300x") as device:
        assert triton.runtime.driver.active.get_current_target().backend == "hip"
        x, y, out = operands()
        add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
        torch.testing.assert_close(out, x + y)
        assert len(device.launches) == 1


def test_errors_are_those_of_a_gpu(dev):
    x, y, out = operands()
    with pytest.raises(ValueError, match=r"Pointer argument \(at 0\) cannot be accessed from Triton \(cpu tensor\?\)"):
        add_kernel[(4,)](torch.randn(1000), y, out, 1000, BLOCK=256)
    with pytest.raises(triton.CompilationError) as refused:
        add_kernel[(4,)](x, y, out, 1000, BLOCK=100)
    assert "code_generator.py" not in {Path(entry.path).name for entry in refused.traceback}
    with pytest.raises(TypeError, match="BLOCK"):
        add_kernel[(4,)](x, y, out, 1000)
    with pytest.raises((TypeError, KeyError), match="SIZE"):
        add_kernel[(4,)](x, y, out, 1000, BLOCK=256, SIZE=3)
    assert dev.launches == []


def test_an_empty_grid_launches_nothing_and_a_huge_one_is_refused_as_on_a_gpu(dev):
    x, y, out = operands()
    add_kernel[(0,)](x, y, out, 1000, BLOCK=256)
    with pytest.raises(RuntimeError, match="invalid argument"):
        add_kernel[(1, 70_000)](x, y, out, 1000, BLOCK=256)
    assert dev.launches == []


def test_descriptors_in_the_kernel_need_an_allocator_on_hopper_as_on_a_gpu():
    @triton.jit
    def inner(out, BLOCK: tl.constexpr):
        return tl.make_tensor_descriptor(out, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])

    @triton.jit
    def outer(out, BLOCK: tl.constexpr):
        inner(out, BLOCK).store([0, 0], tl.full((BLOCK, BLOCK), 1.0, tl.float32))

    from triton.runtime import _allocation

    def run():
        out = torch.zeros(16, 16, device="cuda")
        outer[(1,)](out, BLOCK=16)
        return out.sum().item()

    token = _allocation._allocator.set(_allocation._NULL_ALLOCATOR)
    try:
        with sim.device("h100"), pytest.raises(RuntimeError, match="no allocator was set"):
            run()
        with sim.device("a100"):
            assert run() == 256
    finally:
        _allocation._allocator.reset(token)


def test_more_threads_than_a_program_may_have(dev):
    x, y, out = operands()
    with pytest.raises(triton.runtime.errors.OutOfResources, match="threads, Required: 2048, Hardware limit: 1024"):
        add_kernel[(4,)](x, y, out, 1000, BLOCK=256, num_warps=64)


def test_a_kernel_outlives_its_device():
    for name in ("h100", "h100", "a100"):
        with sim.device(name) as device:
            x, y, out = operands()
            add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
            torch.testing.assert_close(out, x + y)
            assert len(device.launches) == 1
            kernel = add_kernel.warmup(x, y, out, 1000, BLOCK=256, grid=(4,))
    with pytest.raises(RuntimeError, match=r"inside 'with sim\.device"):
        kernel[(4, 1, 1)](x, y, out, 1000, 256)


def test_triton_is_itself_again_afterwards():
    compile_before, driver_before = triton.compile, triton.runtime.driver._active
    with pytest.raises(ZeroDivisionError), sim.device("h100"):
        assert triton.compile is not compile_before
        raise ZeroDivisionError
    assert triton.compile is compile_before and triton.runtime.driver._active is driver_before


def test_a_grid_is_of_whole_numbers(dev):
    """As Triton's own launcher has it, which takes NumPy's and refuses fractions, whole ones too."""
    x = torch.arange(1000.0, device="cuda")
    out = torch.empty_like(x)
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        add_kernel[(1000 / 250,)](x, x, out, 1000, 256)
    add_kernel[(np.int64(4),)](x, x, out, 1000, 256)
    assert torch.equal(out, x + x)
