"""What host code of published libraries does around kernels: each of these once failed or gave another result."""

import copy
import math
import pickle
import sys
import threading
import types
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
import triton.testing
import triton.tools.tensor_descriptor
from triton.language.extra import libdevice

from drkernel import sim


@triton.autotune([triton.Config({"BLOCK": size}) for size in (128, 256, 512, 1024)], key=["n"])
@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def test_a_benchmark_does_not_contain_the_tuning() -> None:
    with sim.device("h100"):
        x = torch.randn(100_000, device="cuda")
        out = torch.empty_like(x)

        def call() -> None:
            add_one[lambda meta: (triton.cdiv(100_000, meta["BLOCK"]),)](x, out, 100_000)

        first, second = triton.testing.do_bench(call), triton.testing.do_bench(call)
    assert first == pytest.approx(second) and second < 0.01


def test_a_benchmark_does_not_contain_what_only_the_first_call_does(dev: sim.SimDevice) -> None:
    x = torch.randn(1 << 20, device="cuda")
    cache: list[Any] = []

    def call() -> torch.Tensor:
        if not cache:
            cache.append(triton.testing.do_bench(lambda: x.sort()))
        return x + 1

    assert triton.testing.do_bench(call) == pytest.approx(triton.testing.do_bench(lambda: x + 1))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_host_tensors_move_to_the_device_in_every_mode(mode: Any) -> None:
    with sim.device("h100"), mode():
        host, there = torch.zeros(3), torch.ones(3, device="cuda")
        for moved in (
            host.to("cuda"), host.cuda(), host.to("cuda", torch.float16), host.to(device="cuda"), host.to(there),
            host.to(there, non_blocking=True), host.half().to(there, copy=True), host.type_as(there),
            torch.ops.aten.to.other(host, there), torch.zeros_like(host, device="cuda"),
        ):  # fmt: skip
            assert moved.device == torch.device("cuda", 0)
            assert (moved + there).tolist() == [1.0] * 3
        for back in (there.to(host), there.type_as(host), there.cpu()):
            assert back.device.type == "cpu"
            assert back.tolist() == [1.0] * 3


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_allclose_of_device_tensors(mode: Any) -> None:
    with sim.device("h100") as dev, mode():
        x = torch.tensor([1.0, float("nan"), 3.0], device="cuda")
        assert not torch.allclose(x, x) and torch.allclose(x, x, equal_nan=True)
        near = x[::2] + 1e-3
        assert not torch.allclose(near, x[::2]) and near.allclose(x[::2], atol=1e-2, rtol=0)
        assert not torch.allclose(x[:1], x[2:]) and torch.allclose(x[:1].half(), x[:1].half())
        assert dev.copies["device to host"] == 6
        with pytest.raises(RuntimeError, match="same device"):
            torch.allclose(x, x.cpu())


@triton.jit
def copy_block(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


class StandsForATensor:
    """As flag-gems' StridedBuffer: an address and a dtype."""

    def __init__(self, tensor: torch.Tensor, address: int | None = None):
        self.tensor, self.dtype, self.address = tensor, tensor.dtype, address

    def data_ptr(self) -> int:
        return self.tensor.data_ptr() if self.address is None else self.address


def test_kernel_arguments_that_stand_for_tensors(dev: sim.SimDevice) -> None:
    x = torch.arange(16.0, device="cuda")
    out = torch.empty_like(x)
    copy_block[(1,)](StandsForATensor(x), StandsForATensor(out), 16)
    assert torch.equal(out.cpu(), x.cpu())
    with pytest.raises(ValueError, match="cpu tensor"):
        copy_block[(1,)](torch.ones(16), out, 16)
    with pytest.raises(RuntimeError, match="illegal memory access"):  # an address that lies in no storage
        copy_block[(1,)](StandsForATensor(x, torch.ones(16).data_ptr()), out, 16)


@triton.jit
def from_descriptor(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None], x.load([0, 0]).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_descriptors_of_fp8(dtype: torch.dtype, dev: sim.SimDevice) -> None:
    x = torch.randn(32, 32).to(dtype)
    out = torch.empty(32, 32, device="cuda")
    descriptor = triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(x.cuda(), [32, 32])
    from_descriptor[(1,)](descriptor, out, 32)
    assert torch.equal(out.cpu(), x.float())


@triton.jit
def backwards(x, out, BLOCK: tl.constexpr, INDEX: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.gather(tl.load(x + at), (BLOCK - 1 - at).to(INDEX), axis=0))


@pytest.mark.parametrize("index", [tl.int8, tl.int16, tl.int32, tl.int64])
def test_gather_with_indices_of_any_width(index: Any, dev: sim.SimDevice) -> None:
    x = torch.randn(32)
    out = torch.empty(32, device="cuda")
    backwards[(1,)](x.cuda(), out, 32, index)
    assert torch.equal(out.cpu(), x.flip(0))


def test_writing_through_gaps_leaves_the_gaps_unwritten(dev: sim.SimDevice) -> None:
    gaps = torch.empty_strided((3,), (4,), device="cuda")
    gaps.copy_(torch.ones(3))
    assert gaps.sum().item() == 3 and not dev.findings
    out = torch.empty(4, device="cuda")
    copy_block[(1,)](gaps, out, 4)
    assert [(f.kind, f.offset_bytes, f.count) for f in dev.findings] == [("uninitialized", 4, 3)]
    assert out.isnan().tolist() == [False, True, True, True]  # and hold what fresh memory holds


def test_empty_slices_of_memory_that_nothing_wrote_are_read() -> None:
    with sim.device("h100") as device:
        rows = torch.empty(4, 8, device="cuda")
        assert (rows[2, :0] + 1).sum().item() == 0.0 and not device.findings


@pytest.mark.parametrize("way", [{"fused": True}, {"foreach": True, "weight_decay": 0.1}])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD])
def test_optimisers_step_all_parameters_at_once(kind: Any, way: dict[str, Any]) -> None:
    start, plain = torch.randn(3, 5), {**way, "fused": False, "foreach": False}

    def stepped(device: str, options: dict[str, Any]) -> torch.Tensor:
        weight = torch.nn.Parameter(start.to(device, copy=True))
        optimiser = kind([weight], lr=0.1, **options)
        for _ in range(2):
            optimiser.zero_grad()
            weight.pow(2).sum().backward()
            optimiser.step()
        return weight.detach().cpu()

    with sim.device("h100"):
        torch.testing.assert_close(stepped("cuda", way), stepped("cpu", plain))


def test_modules_are_reparametrised_and_images_resized(dev: sim.SimDevice) -> None:
    layer = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 3).cuda())
    assert layer(torch.ones(2, 3, device="cuda")).shape == (2, 3)
    image = torch.rand(1, 2, 6, 6, requires_grad=True)
    there = image.detach().cuda().requires_grad_()
    for options in ({"mode": "nearest-exact"}, {"mode": "bicubic", "antialias": True}):
        for x in (image, there):
            torch.nn.functional.interpolate(x, size=(4, 3), **options).pow(2).sum().backward()
    assert image.grad is not None and there.grad is not None
    torch.testing.assert_close(there.grad.cpu(), image.grad)
    assert torch.diag(image[0, 0].detach().cuda(), 1).tolist() == image[0, 0].diag(1).tolist()


def test_operators_that_libraries_call(dev: sim.SimDevice) -> None:
    a = torch.eye(3) * 4 + torch.rand(3, 3)
    a = a @ a.T
    there = a.cuda()
    assert torch.allclose(torch.linalg.inv(there).cpu(), torch.linalg.inv(a))
    assert torch.allclose(torch.linalg.cholesky(there).cpu(), torch.linalg.cholesky(a))
    assert torch.allclose(torch.linalg.solve(there, there[0]).cpu(), torch.linalg.solve(a, a[0]))
    with pytest.raises(RuntimeError, match="singular"):
        torch.linalg.inv(torch.zeros(3, 3, device="cuda"))
    x, y = (torch.randint(-128, 128, (32, 32), dtype=torch.int8) for _ in range(2))
    assert torch.equal(torch._int_mm(x.cuda(), y.cuda()).cpu(), x.int() @ y.int())
    eighth = torch.rand(32, 64).to(torch.float8_e4m3fn), torch.rand(16, 64).to(torch.float8_e4m3fn)
    rows, columns = torch.rand(32, 1), torch.rand(1, 16)
    product = torch._scaled_mm(
        eighth[0].cuda(), eighth[1].cuda().t(), rows.cuda(), columns.cuda(), out_dtype=torch.float32
    )
    assert torch.allclose(product.cpu(), eighth[0].float() @ eighth[1].float().T * rows * columns)
    layer, data = torch.nn.PReLU().cuda(), torch.tensor([-2.0, 3.0], device="cuda", requires_grad=True)
    layer(data).sum().backward()
    assert data.grad is not None and layer.weight.grad is not None
    assert (data.grad.tolist(), layer.weight.grad.tolist()) == ([0.25, 1.0], [-2.0])


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_products_of_halves_keep_their_sums_where_fp32_is_asked_for(half: torch.dtype, dev: sim.SimDevice) -> None:
    torch.manual_seed(0)
    a, b, c = torch.randn(8, 64).to(half), torch.randn(64, 4).to(half), torch.randn(8, 4)
    mine, theirs, more = a.cuda(), b.cuda(), c.cuda()
    found = [
        torch.mm(mine, theirs, out_dtype=torch.float32),
        torch.bmm(mine[None], theirs[None], out_dtype=torch.float32)[0],
        torch.addmm(more, mine, theirs, out_dtype=torch.float32, beta=2.0),
    ]
    exact = a.double() @ b.double()
    for got, wanted in zip(found, (exact, exact, exact + 2.0 * c), strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.mm(mine, theirs, out_dtype=half).cpu(), exact.to(half))
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype"):
        torch.mm(more, more.T, out_dtype=half)


def test_small_things_of_the_host(dev: sim.SimDevice) -> None:
    torch.cuda.nvtx.range_push("a range")
    torch.cuda.nvtx.range_pop()
    with torch.cuda.nvtx.range("another"):
        pass
    x = torch.ones(3, device="cuda")
    shared = torch.utils.dlpack.from_dlpack(x)
    shared += 1
    assert x.tolist() == [2.0] * 3
    assert torch.from_dlpack(torch.ones(2)).tolist() == [1.0, 1.0]
    assert torch.ones(3).pin_memory().is_pinned() and torch.empty(3, pin_memory=True).is_pinned()
    assert not torch.ones(3).is_pinned()
    assert x[1:]._typed_storage().data_ptr() == x.data_ptr() and x._typed_storage().size() == 3


def test_scales_of_microscaling_formats_are_tensors(dev: sim.SimDevice) -> None:
    host = torch.tensor([1.0, 6.0, 0.25, 1.6])
    scales = host.cuda().to(torch.float8_e8m0fnu)
    assert scales.float().tolist() == host.to(torch.float8_e8m0fnu).float().tolist() == [1.0, 8.0, 0.25, 2.0]
    assert torch.cat([scales, scales]).view(torch.uint8).tolist() == [127, 130, 125, 128] * 2
    halves = torch.empty(4, dtype=torch.float4_e2m1fn_x2, device="cuda")
    assert halves.view(torch.uint8).shape == halves.cpu().shape == (4,)


def test_the_state_of_a_generator_is_a_seed_and_an_offset(dev: sim.SimDevice) -> None:
    torch.cuda.manual_seed(7)
    generator = torch.cuda.default_generators[0]
    assert generator.get_state().view(torch.int64).tolist() == [7, 0]
    first = torch.rand(4, device="cuda")
    seed, offset = generator.get_state().view(torch.int64).tolist()
    assert seed == 7 and offset > 0
    state = generator.get_state()
    second = torch.rand(4, device="cuda")
    generator.set_state(state)
    assert torch.equal(torch.rand(4, device="cuda"), second)
    assert not torch.equal(first, second)
    torch.cuda.manual_seed(7)
    assert torch.equal(torch.rand(4, device="cuda"), first)
    made_up = torch.tensor([3, 400]).view(torch.uint8)
    generator.set_state(made_up)
    third = torch.rand(4, device="cuda")
    generator.set_state(made_up)
    assert torch.equal(torch.rand(4, device="cuda"), third)
    torch.cuda.manual_seed(7)
    torch.manual_seed(7)  # one seed draws the same on both sides: what a model is built from
    assert torch.equal(torch.rand(4, device="cuda").cpu(), torch.rand(4))
    assert torch.equal(torch.randn(4, device="cuda").cpu(), torch.randn(4))


def test_threads_that_host_code_starts_have_the_device() -> None:
    with sim.device("h100"):
        x, found = torch.ones(64, device="cuda"), []

        def work(number: int) -> None:
            out = torch.empty(64, device="cuda")
            for _ in range(5):
                copy_block[(1,)](x * number, out, 64)
            found.append((number, out.sum().item()))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [(number, 64.0 * number) for number in range(4)]
    assert threading.Thread.start.__module__ == "threading"


@triton.jit
def directed(x, y, z, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(z + at)
    tl.store(out + 0 * BLOCK + at, libdevice.add_rd(a, b))
    tl.store(out + 1 * BLOCK + at, libdevice.sub_rd(a, b))
    tl.store(out + 2 * BLOCK + at, libdevice.mul_rd(a, b))
    tl.store(out + 3 * BLOCK + at, libdevice.div_rd(a, b))
    tl.store(out + 4 * BLOCK + at, libdevice.rcp_rd(a))
    tl.store(out + 5 * BLOCK + at, libdevice.sqrt_rd(tl.abs(a)))
    tl.store(out + 6 * BLOCK + at, libdevice.fma_rd(a, b, c))
    tl.store(out + 7 * BLOCK + at, libdevice.add_ru(a, b))
    tl.store(out + 8 * BLOCK + at, libdevice.sub_ru(a, b))
    tl.store(out + 9 * BLOCK + at, libdevice.mul_ru(a, b))
    tl.store(out + 10 * BLOCK + at, libdevice.div_ru(a, b))
    tl.store(out + 11 * BLOCK + at, libdevice.rcp_ru(a))
    tl.store(out + 12 * BLOCK + at, libdevice.sqrt_ru(tl.abs(a)))
    tl.store(out + 13 * BLOCK + at, libdevice.fma_ru(a, b, c))
    tl.store(out + 14 * BLOCK + at, libdevice.add_rz(a, b))
    tl.store(out + 15 * BLOCK + at, libdevice.sub_rz(a, b))
    tl.store(out + 16 * BLOCK + at, libdevice.mul_rz(a, b))
    tl.store(out + 17 * BLOCK + at, libdevice.div_rz(a, b))
    tl.store(out + 18 * BLOCK + at, libdevice.rcp_rz(a))
    tl.store(out + 19 * BLOCK + at, libdevice.sqrt_rz(tl.abs(a)))
    tl.store(out + 20 * BLOCK + at, libdevice.fma_rz(a, b, c))


@triton.jit
def directed_conversions(x, n, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b = tl.load(x + at), tl.load(n + at)
    tl.store(out + 0 * BLOCK + at, libdevice.double2float_rd(a))
    tl.store(out + 1 * BLOCK + at, libdevice.double2float_ru(a))
    tl.store(out + 2 * BLOCK + at, libdevice.double2float_rz(a))
    tl.store(out + 3 * BLOCK + at, libdevice.int2float_rd(b))
    tl.store(out + 4 * BLOCK + at, libdevice.int2float_ru(b))
    tl.store(out + 5 * BLOCK + at, libdevice.int2float_rz(b))


def rounded(got: float, mode: str, side: Callable[[float], int]) -> bool:
    """Whether ``got`` is next to the exact result on the side that ``mode`` names; ``side(x)`` is the sign of the exact
    result less ``x``."""
    down = mode == "rd" or (mode == "rz" and side(0.0) > 0)
    beyond = torch.nextafter(torch.tensor(got), torch.tensor(math.inf if down else -math.inf)).item()
    return side(got) * side(beyond) < 0 or (side(got) == 0 and got < math.inf)


def test_directed_roundings() -> None:
    dice = torch.Generator().manual_seed(0)
    x, y, z = (
        torch.randn(256, generator=dice) * 10.0 ** torch.randint(-3, 4, (256,), generator=dice) for _ in range(3)
    )
    x[:5], y[:5] = torch.tensor([6.0, 3e38, -1e-38, 1.0, -1.0]), torch.tensor([3.0, 1e-3, 1e7, 1e-38, 1e-38])
    z[:2] = torch.tensor([1e-30, -1e-30])
    wide, whole = (
        torch.randn(256, generator=dice, dtype=torch.float64),
        torch.randint(-(2**31), 2**31, (256,), generator=dice),
    )
    with sim.device("h100"):
        out, converted = torch.empty(3, 7, 256, device="cuda"), torch.empty(2, 3, 256, device="cuda")
        directed[(1,)](x.cuda(), y.cuda(), z.cuda(), out, BLOCK=256)
        directed_conversions[(1,)](wide.cuda(), whole.int().cuda(), converted, BLOCK=256)
        found, converted = out.tolist(), converted.tolist()

    def sign(value: Fraction) -> int:
        return (value > 0) - (value < 0)

    def side_of_root(square: Fraction) -> Callable[[float], int]:
        return lambda near: 1 if near < 0 else sign(square - Fraction(near) ** 2)

    for at, (a, b, c) in enumerate(zip(*(map(Fraction, value.tolist()) for value in (x, y, z)), strict=True)):
        exact = (a + b, a - b, a * b, a / b, 1 / a, None, a * b + c)
        for mode, rows in zip(("rd", "ru", "rz"), found, strict=True):
            for operation, (want, row) in enumerate(zip(exact, rows, strict=True)):
                side = (
                    side_of_root(abs(a))
                    if want is None
                    else lambda near, want=want: (
                        sign(want - Fraction(near)) if math.isfinite(near) else (-1 if near > 0 else 1)
                    )
                )
                assert rounded(row[at], mode, side), (operation, mode, at, row[at])
    for values, rows in zip((wide.tolist(), whole.tolist()), converted, strict=True):
        for mode, row in zip(("rd", "ru", "rz"), rows, strict=True):
            for want, got in zip(values, row, strict=True):
                assert rounded(got, mode, lambda near, want=want: sign(Fraction(want) - Fraction(near)))


@triton.jit
def bessel(x, zero, one, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(zero + at, libdevice.cyl_bessel_i0(tl.load(x + at)))
    tl.store(one + at, libdevice.cyl_bessel_i1(tl.load(x + at)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_modified_bessel_functions(dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-90, 90, 252), torch.tensor([0.0, 20.0, -714.5, math.nan])]).to(dtype)
    with sim.device("h100"):
        zero, one = (torch.empty(256, dtype=dtype, device="cuda") for _ in range(2))
        bessel[(1,)](x.cuda(), zero, one, BLOCK=256)
        found = zero.cpu(), one.cpu()
    wanted = tuple(f(x.double()).to(dtype) for f in (torch.special.i0, torch.special.i1))
    torch.testing.assert_close(found, wanted, rtol=2e-15 if dtype == torch.float64 else 1e-6, atol=0, equal_nan=True)


def test_the_limits_of_random_numbers_are_no_sizes(dev: sim.SimDevice) -> None:
    assert torch.randint(2**40, (64,), device="cuda").shape == (64,)
    assert torch.randint(-(2**40), 2**40, (2, 3), device="cuda").shape == (2, 3)
    assert torch.normal(1e12, 1.0, (5,), device="cuda").shape == (5,)
    with pytest.raises(torch.OutOfMemoryError):
        torch.randint(2, (2**40,), device="cuda")


def test_weights_go_to_pytorchs_device_without_memory_and_come_back_by_loaders(dev: sim.SimDevice) -> None:
    """What accelerate does for ``from_pretrained``, first without memory, then by the class of what was there."""
    x = torch.randn(3, 4, device="cuda").t()
    like = torch.empty(2, device="meta")
    for moved in (x.to("meta"), x.cpu().to(torch.device("meta")), x.to(like), torch.empty_like(x, device="meta")):
        assert type(moved) is torch.Tensor and moved.is_meta and moved.shape == x.shape
    assert x.to("meta").stride() == x.stride() and x.to(device="meta", dtype=torch.half).dtype == torch.half
    for send in (torch.Tensor.cuda, lambda one: one.to("cuda"), lambda one: one.to(x)):
        with pytest.raises(NotImplementedError, match=r"^Cannot copy out of meta tensor; no data!$"):
            send(like)
    layer = torch.nn.Linear(4, 4, device="cuda").to("meta")
    assert layer.weight.is_meta and layer.to_empty(device="cuda").weight.is_cuda
    kind: Any = type(layer.weight)
    for value in (torch.ones(2), torch.ones(2, device="cuda")):
        made = kind(value, requires_grad=False)
        assert isinstance(made, torch.nn.Parameter) and not made.requires_grad and made.device == value.device


def test_a_module_moves_away_while_a_graph_holds_its_weights() -> None:
    with sim.device("h100"):
        layer, x = torch.nn.Linear(3, 3).cuda(), torch.ones(2, 3, device="cuda")
        out = layer(x).relu()  # as accelerate's offloading leaves it
        weight, before = layer.weight, out.sum().item()
        assert layer.cpu().weight is weight and not weight.is_cuda and out.sum().item() == before
        with pytest.raises(RuntimeError, match="before running forward"):
            out.sum().backward()
        layer.cuda()(x).sum().backward()
        assert weight.is_cuda and weight.grad is not None and weight.grad.eq(2).all()


def test_a_compiled_module_says_that_it_is_one_and_has_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = types.SimpleNamespace(OptimizedModule=type("OptimizedModule", (), {}))
    monkeypatch.setitem(sys.modules, "torch._dynamo.eval_frame", frame)
    with sim.device("h100"):
        compiled = torch.compile(torch.nn.Linear(3, 3).cuda())
        again, other = copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))
        for one in (compiled, again, other):
            assert isinstance(one, frame.OptimizedModule) and isinstance(one, torch.nn.Module)
            assert one._orig_mod.weight.equal(compiled.weight)
        assert again.weight is not compiled.weight and other._call is not compiled._call
