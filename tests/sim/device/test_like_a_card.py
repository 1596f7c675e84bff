"""Host code of published libraries and of Triton's own tests that a card runs: each of these once failed, or gave
another result."""

import copy
import io
import math
from collections.abc import Callable, Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from drkernel import sim
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.wire.commands import UnsupportedOp


@triton.jit
def scale(out, x, factor: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * factor)


@triton.jit(repr=lambda specialization: f"by_{int(specialization.constants['factor'])}")
def renamed(out, x, factor: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * factor)


def pair() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(32, device="cuda"), torch.arange(32.0, device="cuda")


# ---- Triton's host side


def test_an_override_of_a_kernels_ir_is_what_runs(tmp_path: Path, dev: sim.SimDevice) -> None:
    out, x = pair()
    text = scale[(1,)](out, x, 10.0, 32).asm["ttir"]
    for stage in ("ttir", "ptx"):
        (tmp_path / f"other.{stage}").write_text(text)
    config = triton.Config({}, ir_override=str(tmp_path / "other.ttir"))
    triton.autotune([config], key=[])(scale)[(1,)](out, x, 2.0, 32)
    assert torch.equal(out, x * 10)
    late = triton.Config({}, ir_override=str(tmp_path / "other.ptx"))
    with pytest.raises(UnsupportedOp, match=r"other\.ptx"):
        triton.autotune([late], key=[])(scale)[(1,)](out, x, 3.0, 32)


def test_a_listener_hears_of_each_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[dict[str, Any]] = []
    monkeypatch.setattr(triton.knobs.compilation, "listener", lambda **told: heard.append(told))
    with sim.device("h100"):
        out, x = pair()
        for factor in (5.0, 5.0, 6.0):
            scale[(1,)](out, x, factor, 32, num_warps=2)
    assert [told["metadata"]["num_warps"] for told in heard] == [2, 2]
    assert all(told["src"].fn is scale and told["times"].total >= 0 for told in heard)


def test_a_file_of_ttir_compiles_and_launches(tmp_path: Path, dev: sim.SimDevice) -> None:
    out, x = pair()
    path = tmp_path / "kernel.ttir"
    path.write_text(scale[(1,)](out, x, 4.0, 32).asm["ttir"])
    kernel = triton.compile(str(path))
    out.zero_()
    kernel[(1,)](out, x)
    assert kernel.name == "scale" and torch.equal(out, x * 4)


def test_another_cards_text_is_that_cards(dev: sim.SimDevice) -> None:
    source = ASTSource(scale, {"out": "*fp32", "x": "*fp32"}, {"factor": 2.0, "BLOCK": 32})
    assert ".target sm_100" in triton.compile(source, target=GPUTarget("cuda", 100, 32)).asm["ptx"]


def test_a_kernels_repr_names_it() -> None:
    with sim.device("h100") as gpu:
        out, x = pair()
        kernel = renamed[(1,)](out, x, 3.0, 32)
        assert kernel.name == kernel.metadata.name == gpu.launches[-1].name == "by_3"


def test_compiled_kernels_are_by_device_and_stay_apart_from_another_cards() -> None:
    with sim.device("h100"):
        scale[(1,)](*pair(), 7.0, 32)
        first = dict(scale.device_caches[torch.cuda.current_device()][0])
        assert first
    with sim.device("a100"):
        assert not scale.device_caches[0][0]
    assert not vars(scale)["device_caches"]


def test_a_kernel_addresses_pinned_host_memory(dev: sim.SimDevice) -> None:
    host = torch.arange(64.0).pin_memory()
    scale[(1,)](host[32:], host, 2.0, 32)
    assert host[32:].is_pinned() and host.tolist() == [*range(32), *range(0, 64, 2)]
    with pytest.raises(ValueError, match="cannot be accessed"):
        scale[(1,)](torch.empty(32), host, 2.0, 32)


@triton.jit
def asserting(x):
    tl.device_assert(tl.load(x) > 0, "not positive")


def test_a_failed_assertion_is_told_when_the_host_synchronises(dev: sim.SimDevice) -> None:
    asserting[(1,)](torch.ones(1, device="cuda"), debug=True)
    torch.cuda.synchronize()
    asserting[(1,)](torch.zeros(1, device="cuda"), debug=True)
    with pytest.raises(RuntimeError, match="device-side assert triggered"):
        torch.cuda.synchronize()


@triton.jit
def extremes(least, most, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at[:, None] * BLOCK + at[None])
    least.atomic_min([0, 0], value)
    most.atomic_max([0, 0], value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_extremes_of_halves_through_descriptors(dtype: torch.dtype, dev: sim.SimDevice) -> None:
    x, out = torch.randn(16, 16, dtype=dtype), torch.zeros(2, 16, 16, dtype=dtype, device="cuda")
    extremes[(3,)](*[TensorDescriptor.from_tensor(part, [16, 16]) for part in out], x.cuda(), 16)
    assert torch.equal(out.cpu(), torch.stack([x.clamp(max=0), x.clamp(min=0)]))


# ---- PyTorch's


class Named(torch.Tensor):
    """A subclass as libraries have them: results are of it, too."""


class Wrapper(torch.Tensor):
    """A tensor around a tensor, as quantised weights are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner: torch.Tensor):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        unwrapped = [value.inner if isinstance(value, Wrapper) else value for value in args]
        result = func(*unwrapped, **(kwargs or {}))
        return Wrapper(result) if func is torch.ops.aten.detach.default else result


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: Any) -> torch.Tensor:
        return x @ weight.inner

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def test_subclasses_of_device_tensors(dev: sim.SimDevice) -> None:
    x = torch.arange(4.0, device="cuda").as_subclass(Named)
    doubled = x * 2
    assert isinstance(doubled, Named) and doubled.is_cuda and doubled.tolist() == [0, 2, 4, 6]
    weight = Wrapper(torch.eye(4, device="cuda")).requires_grad_()
    row = torch.arange(4.0, device="cuda")[None]
    assert torch.equal(Product.apply(row, weight), row)
    assert torch.equal(row @ weight, row) and torch.equal(weight + torch.ones(4, device="cuda"), weight.inner + 1)


def test_jagged_nested_tensors(dev: sim.SimDevice) -> None:
    parts = [torch.full((length, 3), float(length), device="cuda") for length in (2, 4)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert nested.sum().item() == 60 and [one.shape[0] for one in (nested * 2).unbind()] == [2, 4]


def test_eager_flex_attention() -> None:
    flex = pytest.importorskip("torch.nn.attention.flex_attention").flex_attention
    with sim.device("h100"), torch.no_grad():
        q = torch.randn(1, 2, 16, 16, device="cuda")
        expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        torch.testing.assert_close(flex(q, q, q), expected)
        with torch.enable_grad():  # traces its function on fake tensors of the GPU, gradients included
            gradients = []
            for attend in (flex, torch.nn.functional.scaled_dot_product_attention):
                x = q.clone().requires_grad_()
                gradients += torch.autograd.grad(attend(x, x, x).square().sum(), x)
        torch.testing.assert_close(*gradients)


def test_gradient_of_a_frozen_batch_norm() -> None:
    norm, x = torch.nn.BatchNorm2d(3).eval(), torch.randn(2, 3, 4, 4)
    norm.running_var.uniform_(0.5, 2)
    results = []
    with sim.device("h100"):
        for place in ("cpu", "cuda"):
            given = x.detach().to(place).requires_grad_()
            norm.to(place)(given).square().sum().backward()
            results.append(given.grad.cpu())
    torch.testing.assert_close(results[0], results[1])


def test_a_histogram_of_integers_divides_as_integers_do(dev: sim.SimDevice) -> None:
    x = torch.tensor([0, 1, 1, 3, 3, 9], dtype=torch.int32, device="cuda")
    assert torch.histc(x, 4, 0, 3).tolist() == [1, 2, 0, 2]
    assert torch.histc(x, 2).tolist() == [5, 1] and torch.histc(x.float(), 2).tolist() == [5, 1]


@pytest.mark.parametrize("data", [True, False])
def test_products_pools_and_convolutions_of_integers_are_refused_as_by_cuda(data: bool) -> None:
    with sim.device("h100", data_free=None if data else DataFree()):
        x = torch.ones(1, 2, 8, 8, dtype=torch.int64, device="cuda")
        for kernel, call in (
            ("addmm_cuda", lambda: x[0, 0] @ x[0, 0]), ("baddbmm_cuda", lambda: x[0] @ x[0]),
            ("slow_conv2d_cuda", lambda: torch.nn.functional.conv2d(x, x[:, :, :3, :3])),
            ("max_pool2d_with_indices_out_cuda_frame", lambda: torch.nn.functional.max_pool2d(x, 2)),
            ("addmv_impl_cuda", lambda: x[0, 0] @ x[0, 0, 0]), ("dot", lambda: x[0, 0, 0] @ x[0, 0, 0]),
        ):  # fmt: skip
            with pytest.raises(NotImplementedError, match=f"\"{kernel}\" not implemented for 'Long'"):
                call()
        assert (x[0, 0, :0] @ x[0, 0]).shape == (0, 8) and torch.matmul(x.float(), x.float()).shape == x.shape


def test_magnitudes_of_booleans_are_themselves(dev: sim.SimDevice) -> None:
    assert torch.tensor([True, False], device="cuda").abs().tolist() == [True, False]


@triton.jit
def moved(out, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at).to(out.dtype.element_ty))


def converted(value: float, source: torch.dtype, target: torch.dtype, wide: int, signed: bool) -> int:
    """What ``cvt.rzi`` to ``wide`` bits and the lower bits of that make of a number."""
    low, high = (-(1 << (wide - 1)), (1 << (wide - 1)) - 1) if signed else (0, (1 << wide) - 1)
    if math.isnan(value):
        found = 1 << (wide - 1) if source == torch.float64 or wide == 64 else 0
    else:
        found = max(low, min(high, math.trunc(value) if math.isfinite(value) else (high if value > 0 else low)))
    found %= 1 << torch.iinfo(target).bits
    return found - (1 << torch.iinfo(target).bits) if found > torch.iinfo(target).max else found


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_floats_that_fit_into_no_whole_number(source: torch.dtype, dev: sim.SimDevice) -> None:
    odd = [math.nan, math.inf, -math.inf, 1e10, -1e10, 1e20, -1e20, 300.0, -300.0, 3.7, -3.7, 70000.0, 2.0**31, 2.0**63]
    x = torch.tensor([*odd, -(2.0**63), 0.5], device="cuda").to(source)
    values = x.tolist()
    for target in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        out, bits = torch.empty(16, dtype=target, device="cuda"), torch.iinfo(target).bits
        moved[(1,)](out, x, 16)
        of_kernel = [converted(one, source, target, max(16, bits), target != torch.uint8) for one in values]
        assert out.tolist() == of_kernel, (source, target)
        wide = 64 if target == torch.uint8 else max(16, bits)
        of_operator = [converted(one, source, target, wide, signed=True) for one in values]
        assert x.to(target).tolist() == of_operator == out.zero_().copy_(x).tolist(), (source, target)
    for target in (torch.uint16, torch.uint32, torch.uint64):
        assert torch.tensor([3.7, 0.0], device="cuda").to(source).to(target).tolist() == [3, 0]


def test_uploads_are_cast_and_laid_out_by_the_host(dev: sim.SimDevice) -> None:
    x = torch.randn(2, 3, 4, 5)
    last = x.to(memory_format=torch.channels_last)
    for to in (torch.Tensor.cuda, lambda value, **form: value.to("cuda", **form)):
        assert to(x, memory_format=torch.channels_last).stride() == last.stride()
        assert to(last, memory_format=torch.contiguous_format).stride() == x.stride()
        assert to(x).stride() == x.stride() and to(last).stride() == last.stride()
    operators = dev.operators
    halves = x.to("cuda", torch.float16)
    assert dev.operators == operators  # what crosses over are halves: the GPU casts nothing
    assert halves.cpu().equal(x.half())
    assert halves.copy_(x * 2).cpu().equal(x.half() * 2)


def test_a_quotient_may_be_asked_not_to_be_rounded(dev: sim.SimDevice) -> None:
    x = torch.tensor([3.0, -5.0], device="cuda")
    assert (
        torch.div(x, 2, rounding_mode=None).tolist() == x.clone().div_(2.0, rounding_mode=None).tolist() == [1.5, -2.5]
    )


def _indices(i: torch.Tensor, j: torch.Tensor) -> list[Any]:
    lists = [
        [slice(None), 1],
        [i, j],
        [[0, 1], [0, 1]],
        [i, slice(None), [0, 1]],
        [None, 0],
        [..., 0],
        [0, 1],
        [0.0, 1.0],
    ]
    return [*lists, [True, False], [], [[]], [(0, 1), (1, 2)], ((0, 1), (1, 2)), (slice(None), [[0, 1], [1, 2]])]


def test_lists_are_indices_as_torch_takes_them(dev: sim.SimDevice) -> None:
    x, i, j = torch.arange(24.0).view(2, 3, 4), torch.tensor([0, 1]), torch.tensor([1, 2])
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        pairs = list(zip(_indices(i, j), _indices(i.cuda(), j.cuda()), strict=True))
        for there, here in pairs:
            found = x.cuda()[here]
            assert found.shape == x[there].shape and found.cpu().equal(x[there]), there
    changed, wanted = x.cuda(), x.clone()
    for there, here in pairs:
        changed[here] += 1
        wanted[there] += 1
    assert changed.cpu().equal(wanted)


@triton.jit
def merge(p, x, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    if KIND == "and":
        tl.atomic_and(p + at, tl.load(x + at))
    elif KIND == "or":
        tl.atomic_or(p + at, tl.load(x + at))
    else:
        tl.atomic_xor(p + at, tl.load(x + at))


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, torch.int32), (torch.float64, torch.int64)])
@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_bitwise_atomics_of_floats_are_of_their_bits(
    kind: str, dtype: torch.dtype, bits: torch.dtype, dev: sim.SimDevice
) -> None:
    x, y = torch.full((16,), 1.5, dtype=dtype), torch.arange(-6, 10).to(dtype)
    p = x.cuda()
    merge[(1,)](p, y.cuda(), kind, 16)
    wanted = getattr(torch, f"bitwise_{kind}")(x.view(bits), y.view(bits))
    assert p.cpu().view(bits).equal(wanted)


@pytest.mark.parametrize("change", ["unsqueeze_", "t_", "resize_", "as_strided_", "transpose_"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_shapes_change_in_place_without_gradients(change: str, mode: Any, dev: sim.SimDevice) -> None:
    terms: Any = {"unsqueeze_": (-1,), "resize_": (2, 3), "as_strided_": ((2, 2), (1, 2)), "transpose_": (0, 1)}
    outside = torch.ones(3, 4, device="cuda")
    with mode():
        for x in (torch.ones(3, 4, device="cuda"), outside):
            wanted = getattr(torch.ones(3, 4), change)(*terms.get(change, ()))
            assert getattr(x, change)(*terms.get(change, ())) is x
            assert x.stride() == wanted.stride() and x.cpu().equal(wanted)


def test_hardswish_has_the_outer_slopes_at_its_bends(dev: sim.SimDevice) -> None:
    """PyTorch's CUDA kernel and its decomposition for compilers agree: flat up to -3, one from 3 on."""
    x = torch.tensor([-4.0, -3, 0, 3, 4], device="cuda", requires_grad=True)
    torch.nn.functional.hardswish(x).sum().backward()
    assert x.grad.tolist() == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_lengths_of_ctc_loss_may_be_anywhere(where: str, dev: sim.SimDevice) -> None:
    probabilities, targets = torch.randn(10, 2, 5).log_softmax(-1), torch.randint(1, 5, (2, 4))
    lengths = torch.tensor([10, 9]), torch.tensor([4, 3])
    expected = torch.nn.functional.ctc_loss(probabilities, targets, *lengths)
    there = [length.to(where) for length in lengths]
    loss = torch.nn.CTCLoss()(probabilities.cuda(), targets.to(where), *there)
    torch.testing.assert_close(loss.cpu(), expected)


def test_small_questions_about_the_device(dev: sim.SimDevice) -> None:
    with torch.cuda.device(0) as _, torch.cuda.device("cuda") as _:
        chosen = torch.cuda.device(0)
    assert chosen.idx == 0 and isinstance(chosen, torch.cuda.device)
    flags = torch.tensor([True, False], device="cuda")
    assert not torch.ops.aten._is_all_true(flags).item() and torch.ops.aten._is_any_true(flags).item()


# ---- forms that change late, and what other processes get


def test_resizing_keeps_memory_and_shows_what_nothing_wrote() -> None:
    with sim.device("h100") as gpu:
        x = torch.arange(6.0, device="cuda")
        view = x[2:4]
        assert x.resize_(2, 2).tolist() == [[0, 1], [2, 3]]
        grown = x.resize_(3, 4).flatten().tolist()
        assert grown[:6] == [0, 1, 2, 3, 4, 5] and all(map(math.isnan, grown[6:]))
        x.fill_(7)
        assert view.tolist() == [7, 7] and gpu.engine.heap.used_bytes == 48
        images = torch.ones(2, 3, 4, 5, device="cuda").resize_(1, 2, 2, 2, memory_format=torch.channels_last)
        assert images.stride() == (8, 1, 4, 2)
        assert x.resize_as_(images).stride() == (8, 4, 2, 1)
        with pytest.raises(torch.OutOfMemoryError):
            x.resize_(10**12)
        with pytest.raises(RuntimeError, match="require grad"):
            torch.ones(2, device="cuda", requires_grad=True).resize_(3)


def test_resizing_without_data() -> None:
    with sim.device("h100", data_free=DataFree()):
        x = torch.empty(6, device="cuda").resize_(100_000, 1000)
        assert (x + 1).shape == (100_000, 1000)


SENT: list[Callable[[Any], Any]] = [
    lambda module: module.cuda(),
    lambda module: module.to("cuda", torch.float32),
    lambda module: module.to(torch.device("cuda")),
]


@pytest.mark.parametrize("send", SENT)
def test_lazy_modules_are_made_where_they_were_sent(send: Any, dev: sim.SimDevice) -> None:
    layers = torch.nn.LazyConv2d(4, 3), torch.nn.LazyBatchNorm2d(), torch.nn.Flatten(), torch.nn.LazyLinear(3)
    model, x = send(torch.nn.Sequential(*layers)), torch.randn(2, 8, 5, 5)
    found = model(x.cuda())
    found.sum().backward()
    assert all(part.is_cuda and part.dtype == torch.float32 for part in model.parameters())
    assert all(isinstance(part, torch.nn.Parameter) and part.grad.is_cuda for part in model.parameters())
    assert model[1].running_mean.is_cuda and model[3].weight.shape == (3, 36)
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    model[1].reset_running_stats()
    torch.testing.assert_close(model.cpu()(x), found.cpu(), atol=1e-5, rtol=1e-5)


def test_lazy_modules_are_made_where_they_were_told_to_be(dev: sim.SimDevice) -> None:
    with torch.device("cuda"):
        inside = torch.nn.LazyLinear(4)
    for module in (inside, torch.nn.LazyLinear(4, device="cuda")):
        assert module(torch.randn(2, 8, device="cuda")).is_cuda and module.weight.is_cuda
    assert torch.nn.LazyLinear(4)(torch.randn(2, 8)).device.type == "cpu"


def test_a_tensor_for_another_process_outlives_its_copy_on_the_host(dev: sim.SimDevice) -> None:
    with pytest.warns(UserWarning, match="copied for the other process"):
        sent = ForkingPickler.dumps(torch.nn.Parameter(torch.arange(3.0, device="cuda")))
    back = ForkingPickler.loads(sent)
    assert back.is_cuda and back.tolist() == [0, 1, 2] and isinstance(back, torch.nn.Parameter)


def test_what_frames_of_a_compiler_ask_of_a_cuda_build(dev: sim.SimDevice) -> None:
    import torch._dynamo

    torch._dynamo.reset()
    with torch.autograd.profiler.emit_nvtx(), torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        assert torch.ones(3, device="cuda").sum().item() == 3
    with pytest.raises(UnsupportedOp, match="_nested_tensor_from_tensor_list"):  # not: mixed devices
        torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device="cuda")


@pytest.mark.parametrize("shape", [(2, 1, 1, 5), (1, 5), (2, 4, 3, 1), (1, 1, 3, 5), (1, 1, 1, 1)])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_mask_of_attention_is_spread_over_heads_and_rows(shape: tuple[int, ...], kind: torch.dtype) -> None:
    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8)
    mask = torch.rand(shape) > 0.3 if kind == torch.bool else torch.randn(shape)
    mask = mask | (torch.arange(shape[-1]) == 0) if kind == torch.bool else mask  # a row sees something
    attend = torch.nn.functional.scaled_dot_product_attention
    expected = attend(q, k, k, attn_mask=mask.expand(2, 4, 3, 5).contiguous())
    with sim.device("h100"), torch.no_grad():
        found = attend(*(one.cuda() for one in (q, k, k)), attn_mask=mask.cuda())
        torch.testing.assert_close(found.cpu(), expected, atol=1e-5, rtol=1e-5)


# ---- what PyTorch takes another way on a GPU


@pytest.mark.parametrize("lengths", [(7, 4, 2), (5, 3, 1)])
def test_an_encoders_padding_comes_to_zero_as_nested_tensors_leave_it(lengths: tuple[int, ...]) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(16)).eval()
    torch.nn.init.normal_(encoder.norm.bias)
    x, padding = torch.randn(3, 7, 16), torch.arange(7) >= torch.tensor(lengths)[:, None]
    scattered = padding.flip(1)
    with torch.no_grad():
        wanted = [encoder(x, src_key_padding_mask=mask) for mask in (padding, scattered)]
    with sim.device("h100"), torch.no_grad():
        encoder.cuda()
        found = [encoder(x.cuda(), src_key_padding_mask=mask.cuda()).cpu() for mask in (padding, scattered)]
        assert encoder.use_nested_tensor
        # the processor's nested result ends with the longest row; a mask that is not at the end keeps the plain path
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        assert encoder.norm.bias.cpu().expand(7 - lengths[1], 16).equal(found[0][1, lengths[1] :])
        with torch.device("cuda"):  # any mode keeps it to the plain path
            plain = encoder(x.cuda(), src_key_padding_mask=padding.cuda())
        assert plain[1, lengths[1] :].ne(encoder.norm.bias).all()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    with sim.device("h100"):
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/here", rank=0, world_size=1)
        yield
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
def test_collectives_of_gloo() -> None:
    x, out = torch.arange(4.0, device="cuda"), torch.zeros(4, device="cuda")
    torch.distributed.all_reduce(x, async_op=True).wait()
    torch.distributed.all_gather_into_tensor(out, x)
    rows = [torch.zeros(4, device="cuda")]
    torch.distributed.all_gather(rows, x + 1)
    torch.distributed.barrier()
    assert out.tolist() == [0, 1, 2, 3] and rows[0].tolist() == [1, 2, 3, 4] and x._version == 0


@pytest.mark.usefixtures("group")
def test_data_parallel_modules() -> None:
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2).cuda(), device_ids=[0])
    module(torch.ones(1, 3, device="cuda")).sum().backward()
    assert module.module.weight.grad.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_copies_of_views_share_the_copy_of_their_memory(dev: sim.SimDevice) -> None:
    x = torch.arange(4.0, device="cuda")
    x.note = ["told"]
    copied = copy.deepcopy({"whole": x, "part": x[1:], "again": x, "bits": x.view(torch.int32)})
    copied["whole"].fill_(1)
    assert copied["part"].tolist() == [1, 1, 1] and copied["again"] is copied["whole"]
    assert copied["bits"].tolist() == [0x3F800000] * 4 and x.tolist() == [0, 1, 2, 3]
    assert copied["whole"].note == ["told"] and copied["whole"].note is not x.note
    leaf = torch.ones(2, device="cuda", requires_grad=True)
    leaf.sum().backward()
    assert copy.deepcopy(leaf).grad.tolist() == [1, 1]
    weight = torch.nn.Parameter(leaf.detach())
    weight.sum().backward()
    assert copy.deepcopy(weight).grad is None  # a parameter's gradient stays behind


PLACES: list[Any] = [None, "cuda", "cpu", {"cuda:0": "cpu"}, lambda storage, place: storage.cuda()]


@pytest.mark.parametrize("place", PLACES)
def test_checkpoints_are_what_a_gpu_writes(place: Any, dev: sim.SimDevice) -> None:
    x, file = torch.arange(4.0, device="cuda"), io.BytesIO()
    module = torch.nn.Linear(2, 2).cuda()
    torch.save(
        {"whole": x, "part": x[1:].reshape(3, 1), "weight": module.weight, "i": x.to(torch.complex64).conj()}, file
    )
    assert b"drkernel" not in file.getvalue() and b"cuda:0" in file.getvalue()
    file.seek(0)
    found = torch.load(file, map_location=place)
    assert {one.is_cuda for one in found.values()} == {place not in ("cpu", {"cuda:0": "cpu"})}
    found["whole"].fill_(5)
    assert found["part"].tolist() == [[5], [5], [5]] and found["i"].tolist() == [0, 1, 2, 3]
    assert isinstance(found["weight"], torch.nn.Parameter) and found["weight"].equal(
        module.weight.to(found["weight"].device)
    )
    file = io.BytesIO()
    torch.save([module, x], file, _use_new_zipfile_serialization=False)
    file.seek(0)
    again, y = torch.load(file, weights_only=False, map_location="cuda")
    assert y.tolist() == [0, 1, 2, 3] and again(x.view(2, 2)).is_cuda


def test_a_default_tensor_type_of_the_gpu(dev: sim.SimDevice) -> None:
    try:
        for kind in ("torch.cuda.HalfTensor", torch.cuda.FloatTensor):
            torch.set_default_tensor_type(kind)
            made = torch.zeros(2), torch.tensor([0.5]), torch.nn.Linear(2, 2).weight
            assert all(one.is_cuda and one.dtype == getattr(kind, "dtype", torch.float16) for one in made)
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.zeros(2).device.type == "cpu" and torch.zeros(2).dtype == torch.float32


def test_tensors_are_printed_as_a_gpus_are(dev: sim.SimDevice) -> None:
    x = torch.ones(2, device="cuda", requires_grad=True)
    assert repr(torch.ones(1, 0, device="cuda", dtype=torch.int8)) == (
        "tensor([], device='cuda:0', size=(1, 0), dtype=torch.int8)"
    )
    assert (
        repr(x.double()) == "tensor([1., 1.], device='cuda:0', dtype=torch.float64,\n       grad_fn=<ToCopyBackward0>)"
    )
    assert str(x) == "tensor([1., 1.], device='cuda:0', requires_grad=True)"
    assert str(x.detach().as_subclass(Named)) == "Named([1., 1.], device='cuda:0')"
    assert str(x.repeat(6) * 2).endswith("2.], device='cuda:0',\n       grad_fn=<MulBackward0>)")


def test_older_ways_to_make_and_to_change_tensors(dev: sim.SimDevice) -> None:
    x = torch.ones(2, device="cuda", dtype=torch.float64)
    assert x.new([1, 2]).tolist() == [1, 2] and x.new((3,)).dtype == torch.float64 and x.new([1]).is_cuda
    assert x.new(2, 3).shape == x.new(torch.Size([2, 3])).shape == (2, 3)
    assert torch.tensor([1.0], pin_memory=True).is_pinned()
    assert torch.empty_permuted((2, 3, 4), (1, 0, 2), device="cuda").stride() == (4, 8, 1)
    with pytest.raises(TypeError, match="only implemented on CPU"):
        x.apply_(lambda value: value + 1)


def test_storages_share_and_show_their_memory(dev: sim.SimDevice) -> None:
    x = torch.arange(6.0, device="cuda")
    storage = x[2:].untyped_storage()
    torch.empty(0, device="cuda").set_(storage, 2, (2, 2)).add_(1)
    assert x.tolist() == x.storage().tolist() == [0, 1, 3, 4, 5, 6] and x.storage()[3] == 4
    assert torch.empty(0, device="cuda").set_(x.storage(), 1, (2,), (2,)).tolist() == [1, 4]
    assert torch.empty(0, dtype=torch.int16, device="cuda").set_(storage).shape == (12,)
    for given in (storage, x.storage()):
        torch.tensor(given, dtype=torch.float32, device="cuda")[5] += 1
        torch.as_tensor(given, dtype=torch.float32)[4] += 1
        torch.tensor(given, dtype=torch.float32, device="cpu")[4] = 9
    assert x.tolist() == [0, 1, 3, 4, 7, 8]
    copied = storage.clone()
    storage.fill_(0)
    assert x.tolist() == [0] * 6 and sum(copied.cpu()) > 0 and storage[0] == 0
    with pytest.raises(UnsupportedOp, match="resize_ of a storage"):
        storage.resize_(0)
    assert not hasattr(storage, "nonsense")


def test_tensors_are_exchanged_below_their_objects(dev: sim.SimDevice) -> None:
    one, other = torch.ones(2, device="cuda"), torch.zeros(2, device="cuda")
    torch.utils.swap_tensors(one, other)
    assert one.add_(3).tolist() == [3, 3] and other.tolist() == [1, 1]
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer = torch.nn.Linear(2, 2)
        weight = layer.weight
        assert layer.cuda().half().weight is weight and weight.is_cuda and weight.dtype == torch.float16
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_a_branch_chosen_by_the_device(dev: sim.SimDevice) -> None:
    x = torch.ones(3, device="cuda")
    made = [torch.cond(x.sum() > at, lambda x: x + torch.ones_like(x), lambda x: x - 1, (x,)) for at in (0, 9)]
    assert [one.tolist() for one in made] == [[2, 2, 2], [0, 0, 0]]


class MakesMore(torch.Tensor):
    """Names the GPU around each function."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert torch.zeros(2, device="cuda").is_cuda
        return super().__torch_function__(func, types, args, kwargs or {})


def test_code_of_subclasses_may_name_the_gpu(dev: sim.SimDevice) -> None:
    for x in (torch.ones(3).as_subclass(MakesMore), torch.ones(3, device="cuda").as_subclass(MakesMore)):
        y = x + 1
        assert isinstance(y, MakesMore) and y.sum().item() == 6
    masked = torch.masked.masked_tensor(torch.arange(3.0, device="cuda"), torch.tensor([True, False, True]).cuda())
    assert masked.sum().get_data().item() == 2


class StaticFunction(torch.Tensor):
    @staticmethod
    def __torch_function__(func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def, override]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_a_subclass_may_treat_functions_in_a_static_method(dev: sim.SimDevice) -> None:
    x = torch.ones(3, device="cuda").as_subclass(StaticFunction)
    assert isinstance(x, StaticFunction) and (x + 1).tolist() == [2, 2, 2]


def test_sources_in_cuda_are_refused_by_name(dev: sim.SimDevice) -> None:
    add = torch.cuda.jiterator._create_jit_fn("template <typename T> T add(T x, T y) { return x + y; }")
    with pytest.raises(UnsupportedOp, match="jiterator"):
        add(torch.ones(2, device="cuda"), torch.ones(2, device="cuda"))
    with pytest.raises(UnsupportedOp, match="_compile_kernel"):
        torch.cuda._compile_kernel("", "name")


# ---- what PyTorch's own tests found


def test_a_view_knows_the_whole_of_its_storage(dev: sim.SimDevice) -> None:
    x = torch.arange(10.0, device="cuda")
    assert x[2:5].untyped_storage().nbytes() == 40 and x[1:3].untyped_storage().tolist() == x.untyped_storage().tolist()
    x.resize_(5)
    assert x.shape == (5,) and x.untyped_storage().nbytes() == 40


def test_a_generators_state_goes_to_another_one(dev: sim.SimDevice) -> None:
    one, other = (torch.Generator("cuda").manual_seed(seed) for seed in (3, 4))
    torch.rand(3, generator=one, device="cuda")
    other.set_state(one.get_state())
    third, alias = one.clone_state(), one.graphsafe_get_state()
    drawn = [torch.rand(3, generator=g, device="cuda") for g in (one, other, third)]
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])
    assert alias.get_state().tolist() == one.get_state().tolist() != torch.Generator("cuda").get_state().tolist()


def test_streams_are_torchs_and_a_block(dev: sim.SimDevice) -> None:
    stream = torch.cuda.Stream()
    assert isinstance(stream, torch.Stream) and isinstance(torch.cuda.Event(), torch.Event)
    with stream as entered, torch.Stream("cuda") as inner:
        assert entered is stream and torch.cuda.current_stream() == inner
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_the_device_sleeps_as_long_as_it_is_asked_to(dev: sim.SimDevice) -> None:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.cuda._sleep(10**7)
    end.record()
    assert start.elapsed_time(end) == pytest.approx(1e10 / dev.spec.boost_clock_hz, rel=0.01)


def test_what_torch_cuda_lacks_is_refused_by_name() -> None:
    before = getattr(torch._C, "_cuda_hostMemoryStats", None)  # a CUDA build's own
    with sim.device("h100"):
        for refused, name in (
            (torch.cuda.host_memory_stats, "_cuda_hostMemoryStats"),
            (torch.cuda.tunable.enable, "_cuda_tunableop_enable"),
            (lambda: torch.cuda.Event().ipc_handle(), r"Event\.ipc_handle"),
            (lambda: torch.cuda.CUDAGraph().debug_dump("x"), r"CUDAGraph\.debug_dump"),
        ):
            with pytest.raises(UnsupportedOp, match=name):
                refused()
        assert not hasattr(torch.cuda.Event(), "anything") and torch.cuda.graphs.CUDAGraph is torch.cuda.CUDAGraph
        with pytest.raises(torch.cuda.CudaError, match="out of memory"):
            torch.cuda.check_error(2)
        with pytest.raises(ValueError, match="Invalid fraction"):
            torch.cuda.set_per_process_memory_fraction(2.0)
        with pytest.warns(UserWarning, match="CUDA Graph is empty"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass
    assert getattr(torch._C, "_cuda_hostMemoryStats", None) is before and not torch.cuda.is_available()


@pytest.mark.parametrize("dtype", (torch.float16, torch.complex64, torch.bool, torch.int8))
def test_deterministic_algorithms_fill_what_nothing_has_written(dtype: torch.dtype) -> None:
    def unwritten(value: torch.Tensor) -> bool:
        most = True if dtype == torch.bool else None if dtype.is_floating_point or dtype.is_complex else 127
        return bool((value.isnan() if most is None else value.eq(most)).all())

    with sim.device("h100"):
        some = torch.zeros(3, dtype=dtype, device="cuda")
        torch.use_deterministic_algorithms(True)
        try:
            made = torch.empty(4, dtype=dtype, device="cuda"), torch.empty_like(some), some.new_empty(2, 2)
            grown = torch.zeros(3, dtype=dtype, device="cuda").resize_(7)
            assert all(map(unwritten, made)) and unwritten(grown[3:]) and not grown[:3].any()
        finally:
            torch.use_deterministic_algorithms(False)


def test_gradients_by_indices_that_nothing_checks() -> None:
    results = []
    with sim.device("h100"):
        torch.use_deterministic_algorithms(True)
        try:
            for device in ("cpu", "cuda"):  # on a GPU replicated borders go by _unsafe_index here
                x = torch.arange(16.0, device=device).reshape(1, 1, 4, 4).requires_grad_()
                padded = torch.nn.functional.pad(x, (1, 2, 0, 1), mode="replicate")
                (padded * torch.arange(float(padded.numel()), device=device).view_as(padded)).sum().backward()
                assert x.grad is not None
                results.append((padded.detach().cpu(), x.grad.cpu()))
            with pytest.raises(RuntimeError, match="device-side assert"):
                torch.ops.aten._unsafe_index(x[0, 0], [torch.tensor([9], device="cuda")])
        finally:
            torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, *results))


def test_segments_whose_lengths_are_trusted_are_checked_all_the_same(dev: sim.SimDevice) -> None:
    x = torch.arange(5.0, device="cuda")
    lengths = torch.tensor([2, 3], device="cuda")
    assert torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True).tolist() == [1.0, 9.0]
    with pytest.raises(RuntimeError, match="lengths"):
        torch.segment_reduce(x, "sum", lengths=lengths + 9, unsafe=True)
