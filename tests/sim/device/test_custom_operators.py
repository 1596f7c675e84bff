"""Operators that host code defines itself, and extensions that cannot be built here."""

import sys
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.wire.commands import UnsupportedOp


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, at < n), at < n)


def launch(x: torch.Tensor, out: torch.Tensor) -> None:
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)


@torch.library.custom_op("drkernel_test::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, device="cuda")
    launch(x, out)
    return out


@torch.library.custom_op("drkernel_test::double_into", mutates_args=("out",), device_types="cuda")
def double_into(x: torch.Tensor, out: torch.Tensor) -> None:
    launch(x, out)


@torch.library.triton_op("drkernel_test::triton_doubled", mutates_args={})
def triton_doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    torch.library.wrap_triton(double_kernel)[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


def test_custom_operators_run_their_host_code_and_its_launches_count() -> None:
    with sim.device("h200") as device:
        x = torch.randn(100, device="cuda")
        want = 2 * x.cpu()
        torch.testing.assert_close(doubled(x).cpu(), want)
        torch.testing.assert_close(triton_doubled(x).cpu(), want)
        out = torch.empty_like(x)
        double_into(x, out)
        torch.testing.assert_close(out.cpu(), want)
        assert [record.name for record in device.launches] == ["double_kernel"] * 3
        torch.library.opcheck(triton_doubled, (x,), test_utils="test_faketensor")
        torch.library.opcheck(doubled, (x,), test_utils="test_aot_dispatch_dynamic")


@doubled.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


doubled.register_autograd(lambda ctx, gradient: doubled(gradient))


def test_gradients_of_a_custom_operator_go_through_its_own() -> None:
    with sim.device("h200") as device:
        x = torch.randn(100, device="cuda", requires_grad=True)
        doubled(x).mul(3).sum().backward()
        assert x.grad is not None and x.grad.eq(6).all()
        assert [record.name for record in device.launches] == ["double_kernel"] * 2


def test_the_fake_kernel_of_a_custom_operator_answers_for_shapes_and_the_real_one_for_values() -> None:
    with sim.device("h200") as device:
        with torch._subclasses.FakeTensorMode():
            form = doubled(torch.empty(3, 5))
        assert form.shape == (3, 5) and not device.launches
        assert doubled(torch.ones(3, 5, device="cuda")).sum() == 30 and len(device.launches) == 1


def test_kernels_registered_for_cuda_run() -> None:
    library = torch.library.Library("drkernel_test_cuda", "DEF")
    library.define("twice(Tensor x, *, float scale=1.0) -> Tensor")
    library.define("made(int n, *, Device? device=None) -> Tensor")
    library.define("anywhere(Tensor x) -> Tensor")

    def twice(x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        out = torch.empty_like(x)
        launch(x, out)
        return out * scale

    def made(n: int, *, device: torch.device | None = None) -> torch.Tensor:
        assert device is not None and device.type == "cuda"
        return torch.ones(n, device=device)

    library.impl("twice", twice, "CUDA")
    library.impl("made", made, "CUDA")
    library.impl("anywhere", lambda x: x - 1, "CompositeExplicitAutograd")
    with sim.device("h200") as device:
        x = torch.ones(100, device="cuda")
        assert torch.ops.drkernel_test_cuda.twice(x, scale=3.0).eq(6).all()
        assert torch.ops.drkernel_test_cuda.made(4, device="cuda").tolist() == [1, 1, 1, 1]
        assert torch.ops.drkernel_test_cuda.anywhere(x).eq(0).all()
        assert [record.name for record in device.launches] == ["double_kernel"]


def test_kernels_that_replace_pytorchs_own_on_cuda_run_while_their_library_lives() -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        launch(x, out)
        return out

    def zeros(size: list[int], **options: Any) -> torch.Tensor:
        assert options["device"].type == "cuda"
        return torch.full(size, 5.0, device=options["device"])

    with sim.device("h200") as device:
        x = torch.full((100,), -1.0, device="cuda")
        library = torch.library.Library("aten", "IMPL")
        library.impl("abs", scaled, "CUDA")
        library.impl("zeros", zeros, "CUDA")
        assert torch.abs(x).eq(-2).all() and x.abs().eq(-2).all()
        assert torch.zeros(3, device="cuda").tolist() == [5, 5, 5] and torch.zeros(3).tolist() == [0, 0, 0]
        library._destroy()
        assert torch.abs(x).eq(1).all() and torch.zeros(3, device="cuda").tolist() == [0, 0, 0]
        assert [record.name for record in device.launches] == ["double_kernel"] * 2


def test_kernels_that_replace_pytorchs_own_are_given_numbers_as_they_are() -> None:
    given: list[Any] = []

    def less(x: torch.Tensor, other: Any, *, alpha: float = 1) -> torch.Tensor:
        given.append(other)
        return x.copy_(x + -alpha * other)

    with sim.device("h200"):
        x = torch.ones(100, device="cuda")
        library = torch.library.Library("aten", "IMPL")
        library.impl("sub_.Tensor", less, "CUDA")
        assert x.sub_(2.5, alpha=2).eq(-4).all() and x.sub_(torch.ones(100, device="cuda")).eq(-5).all()
        library._destroy()
        assert given[0] == 2.5 and isinstance(given[1], torch.Tensor) and len(given) == 2
        assert x.sub_(1).eq(-6).all() and len(given) == 2


def test_a_wrapped_kernel_is_launched_outside_of_a_triton_op_too() -> None:
    with sim.device("h200") as device:
        x = torch.ones(100, device="cuda")
        out = torch.empty_like(x)
        torch.library.wrap_triton(double_kernel)[(2,)](x, out, 100, BLOCK=64)
        assert out.eq(2).all() and len(device.launches) == 1


def test_an_exported_program_runs_on_the_device() -> None:
    class Shifted(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).relu() + self.shift + torch.arange(4, device=x.device)

    with sim.device("h200"):
        layer, x, y = Shifted(4, 4).cuda(), torch.ones(2, 4, device="cuda"), torch.randn(3, 4, device="cuda")
        layer.shift = torch.ones(4, device="cuda")  # neither a parameter nor a buffer
        with pytest.raises(UnsupportedOp, match="strict=True"):
            torch.export.export(layer, (x,), strict=True)
        program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},))
        assert "'meta'" not in program.graph_module.code
        assert program.module()(y).equal(layer(y))


def test_make_fx_writes_down_what_ran() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    with sim.device("h200"):
        x, y, weight = torch.ones(3, device="cuda"), torch.randn(3, device="cuda"), torch.randn(3, device="cuda")
        graph = make_fx(lambda x: x.sin() * weight + torch.ones(3, device=x.device))(x)
        assert graph(y).equal(y.sin() * weight + 1)


def test_an_operator_of_a_kernel_passes_torchs_own_checks() -> None:
    @torch.library.triton_op("drkernel_test::double_checked", mutates_args={})
    def double(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        torch.library.wrap_triton(double_kernel)[(2,)](x, out, 100, BLOCK=64)
        return out

    double.register_autograd(lambda ctx, gradient: 2 * gradient, setup_context=lambda ctx, inputs, output: None)
    with sim.device("h200"):
        torch.library.opcheck(double, (torch.randn(100, device="cuda", requires_grad=True),))


def test_what_looks_at_a_gpu_from_outside_is_refused_by_name() -> None:
    with sim.device("h200"):
        import triton.profiler as proton

        with pytest.raises(UnsupportedOp, match=r"Proton \(triton\.profiler\.start\)"):
            proton.start("name")
        activity = torch.profiler.ProfilerActivity
        with proton.scope("here"), torch.profiler.profile(activities=[activity.CPU]):
            torch.ones(3, device="cuda")
        for both in (
            lambda: torch.profiler.profile(activities=[activity.CPU, activity.CUDA]),
            lambda: torch.autograd.profiler.profile(use_device="cuda"),
        ):
            with pytest.warns(UserWarning, match=r"GPU's part of torch\.profiler is not offered"), both() as profiled:
                torch.ones(3, device="cuda").sin()
            assert "aten::sin" in profiled.key_averages().table(sort_by="cuda_time_total")
        with pytest.raises(UnsupportedOp, match="NCCL"):
            torch.distributed.init_process_group("nccl", rank=0, world_size=1)
        with pytest.raises(UnsupportedOp, match=r"_nccl_version.*no group"):
            torch.cuda.nccl.version()
    assert not isinstance(sys.modules.get("triton.profiler"), type(proton))


def test_an_operator_without_host_code_is_refused_by_name() -> None:
    library = torch.library.Library("drkernel_test", "FRAGMENT")
    library.define("nameless(Tensor x) -> Tensor")
    with sim.device("h200"), pytest.raises((UnsupportedOp, NotImplementedError), match="nameless"):
        torch.ops.drkernel_test.nameless(torch.ones(3, device="cuda"))


def test_inference_mode_may_view_what_was_made_outside() -> None:
    with sim.device("h200"):
        x = torch.arange(6.0, device="cuda").view(2, 1, 3)
        with torch.inference_mode():
            y = x.squeeze(1)
            z = (y + 1).view(-1)
            z.add_(1)
            made = torch.zeros(3, 1, device="cuda").squeeze(1).add_(2)
        assert z.tolist() == [2, 3, 4, 5, 6, 7] and made.tolist() == [2, 2, 2]
        y.mul_(2)
        assert x.flatten().tolist() == [0, 2, 4, 6, 8, 10]


def test_extensions_fail_by_name_and_the_module_comes_back() -> None:
    before = sys.modules.get("torch.utils.cpp_extension")
    with sim.device("h200"):
        from torch.utils.cpp_extension import BuildExtension, include_paths, load_inline

        assert BuildExtension.with_options(use_ninja=False) and all("include" in path for path in include_paths())
        with pytest.raises(UnsupportedOp, match="CUDA extensions are not offered"):
            load_inline(name="m", cpp_sources="", functions=[])
    assert sys.modules.get("torch.utils.cpp_extension") is before


def test_code_written_by_inductor_finds_what_it_imports() -> None:
    with sim.device("h200"):
        from torch._C import _cuda_getCurrentRawStream as get_raw_stream

        empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
        reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
        with torch.cuda._DeviceGuard(0):
            torch.cuda.set_device(0)
            get_raw_stream(0)
            x = torch.arange(12.0, device="cuda").view(3, 4)
            out = empty_strided_cuda((3, 4), (4, 1), torch.float32)
            torch._C._dynamo.guards.assert_size_stride(out, (3, 4), (4, 1))
            launch(x, out)
        assert out.is_cuda and out.flatten().tolist() == [2.0 * k for k in range(12)]
        for view in (reinterpret_tensor, torch.ops.inductor._reinterpret_tensor):
            assert view(out, (2, 2), (4, 1), 1).tolist() == [[2, 4], [10, 12]]


def test_a_librarys_kernel_may_leave_its_work_to_pytorchs_own() -> None:
    """By the key of kernels for every device: below modes, where PyTorch takes device tensors for those of meta."""
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    aten = torch.ops.aten
    with sim.device("h100"):
        out, x = torch.zeros(2, 3, device="cuda"), torch.ones(2, 3, device="cuda")
        assert aten.copy_.default.redispatch(below, out, x) is out
        assert out.cpu().equal(torch.ones(2, 3))
        host = aten._to_copy.default.redispatch(below, x, device=torch.device("cpu"))
        assert host.equal(torch.ones(2, 3))
        assert aten.clone.default.redispatch(below, out).cpu().equal(host)


def test_a_compiled_kernel_needs_no_constants_behind_its_arguments() -> None:
    with sim.device("h100"):
        x, out = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
        kernel = double_kernel[(1,)](x, torch.empty_like(x), 64, BLOCK=64)
        kernel[(1, 1, 1)](x, out, 64)
        assert out.cpu().equal(torch.full((64,), 2.0))
        with pytest.raises(ValueError, match="shorter"):
            kernel[(1, 1, 1)](x, out)


def test_a_tensor_without_memory_is_a_null_pointer_wherever_it_is() -> None:
    """Libraries hand over ``torch.empty(0)`` of the host for a result that is not wanted."""
    with sim.device("h100"):
        out, nothing = torch.zeros(64, device="cuda"), torch.empty(0, device="cpu")
        double_kernel[(1,)](nothing, out, 0, BLOCK=64)
        assert not out.cpu().any()
        with pytest.raises(ValueError, match="cpu tensor"):
            double_kernel[(1,)](torch.empty(1), out, 0, BLOCK=64)
