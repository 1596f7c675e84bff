"""Library calls of CUDA on the simulated device: one operator each, and the right numbers."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from drkernel import sim
from drkernel.sim.wire.commands import UnsupportedOp


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False}]
)
def test_recurrent_layers_are_one_operator(kind: type[torch.nn.RNNBase], options: dict) -> None:
    torch.manual_seed(0)
    layer = kind(8, 16, **options).eval()
    x = torch.randn(5, 3, 8)
    with torch.no_grad():
        expected = layer(x)[0]
        with sim.device("h100") as dev:
            layer.cuda()
            x_cuda = x.cuda()
            dev.reset_counters()
            out = layer(x_cuda)[0].cpu()
            assert list(dev.operators)[-1] in ("aten.lstm", "aten.gru", "aten.rnn_tanh")
            assert "aten.addmm" not in dev.operators
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_attention_is_one_operator(mask: str) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 7, 16), torch.randn(2, 3, 9, 16), torch.randn(2, 3, 9, 16)
    options: dict = {"is_causal": True} if mask == "causal" else {}
    if mask == "bool":
        options = {"attn_mask": torch.rand(7, 9) > 0.3}
    if mask == "float":
        options = {"attn_mask": torch.randn(2, 3, 7, 9)}
    expected = F.scaled_dot_product_attention(q, k, v, scale=0.3, **options)
    with sim.device("h100") as dev, torch.no_grad():
        on_device = {key: value.cuda() if isinstance(value, torch.Tensor) else value for key, value in options.items()}
        out = F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), scale=0.3, **on_device)
        assert "aten._scaled_dot_product_flash_attention_for_cpu" in dev.operators and "aten.bmm" not in dev.operators
        out = out.cpu()
    torch.testing.assert_close(out, expected)


def test_forms_that_the_operator_does_not_take_go_their_usual_way() -> None:
    q, v = torch.randn(2, 3, 7, 16), torch.randn(2, 3, 7, 8)
    expected = F.scaled_dot_product_attention(q, q, v)
    with sim.device("h100") as dev, torch.no_grad():
        out = F.scaled_dot_product_attention(q.cuda(), q.cuda(), v.cuda()).cpu()
        assert "aten.bmm" in dev.operators
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("heads", [4, 2])
def test_attention_and_its_gradient_are_one_operator_each(heads: int) -> None:
    torch.manual_seed(0)
    operands = [torch.randn(2, count, 9, 16, dtype=torch.float64) for count in (4, heads, heads)]
    results = []
    with sim.device("h100") as dev:
        for place, dtype in (("cpu", torch.float64), ("cuda", torch.float16)):
            given = [operand.detach().to(place, dtype).requires_grad_() for operand in operands]
            out = F.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=heads != 4)
            out.square().sum().backward()
            results.append([out.detach().cpu().double(), *(one.grad.cpu().double() for one in given)])
        assert dev.operators["aten._scaled_dot_product_flash_attention_for_cpu_backward"] == 1
        assert not {"aten.bmm", "aten._safe_softmax"} & set(dev.operators)
    for on_gpu, exact in zip(*results[::-1], strict=True):
        torch.testing.assert_close(on_gpu, exact, rtol=5e-3, atol=5e-3)


def test_attention_takes_the_kernels_that_are_allowed() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sim.device("h100") as dev, torch.no_grad():
        q = torch.randn(1, 2, 5, 16, device="cuda")
        for dtype, allowed in ((torch.float32, SDPBackend.MATH), (torch.float64, SDPBackend.MATH)):
            with sdpa_kernel(allowed):
                F.scaled_dot_product_attention(*[q.to(dtype)] * 3)
        assert "aten._scaled_dot_product_flash_attention_for_cpu" not in dev.operators
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
            F.scaled_dot_product_attention(q, q, q)
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(q, q[:, :1].half().repeat(1, 3, 1, 1), q)


@pytest.mark.parametrize("kernel", ["flash", "efficient", "cudnn"])
def test_kernels_of_attention_have_their_own_names_and_gradients(kernel: str) -> None:
    torch.manual_seed(0)
    call = getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}_attention")
    exact = [torch.randn(2, 3, 40, 16, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    expected = F.scaled_dot_product_attention(*exact)
    expected.square().sum().backward()
    sums = (exact[0] @ exact[1].mT / 4).logsumexp(-1)
    with sim.device("h100"):
        ours = [one.detach().half().cuda().requires_grad_() for one in exact]
        form = torch.backends.cuda.SDPAParams(*ours, None, 0.0, False, False)  # type: ignore[call-arg]
        double = torch.backends.cuda.SDPAParams(*[x.double() for x in ours], None, 0.0, False, False)  # type: ignore[call-arg]
        can = getattr(torch.backends.cuda, f"can_use_{kernel}_attention")
        assert can(form) and not can(double)
        out, found, *_ = call(*ours, *(() if kernel == "flash" else (None, True)))
        out.square().sum().backward()
        on_gpu = [one.detach().cpu().double() for one in (out, found.flatten(2)[..., :40], *(x.grad for x in ours))]
        assert found.shape == {"flash": (2, 3, 40), "efficient": (2, 3, 64), "cudnn": (2, 3, 40, 1)}[kernel]
        with pytest.raises(RuntimeError, match="does not take"):
            call(*[x.double() for x in ours], *(() if kernel == "flash" else (None, True)))
    for one, right in zip(on_gpu, (expected, sums, *(x.grad for x in exact)), strict=True):
        torch.testing.assert_close(one, right, rtol=5e-3, atol=5e-3)


def test_attention_that_does_not_fit_makes_no_mask_and_is_differentiable_once(dev: sim.SimDevice) -> None:
    q = torch.randn(1, 2, 5, 16, device="cuda", requires_grad=True)
    mask = torch.ones(5, 5, dtype=torch.bool, device="cuda")
    F.scaled_dot_product_attention(q, q, q[..., :8], attn_mask=mask)
    assert "aten.bmm" in dev.operators and "aten.zeros_like" not in dev.operators
    loss = F.scaled_dot_product_attention(q, q, q).square().sum() + q.pow(3).sum()
    (gradient,) = torch.autograd.grad(loss, q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.square().sum().backward()


@pytest.mark.parametrize(
    ("shapes", "mask"),
    [
        (((3, 4, 6, 8), (1, 4, 5, 8)), None),
        (((2, 4, 0, 8), (2, 4, 5, 8)), None),
        (((2, 4, 6, 8), (2, 4, 0, 8)), None),
        (((0, 4, 6, 8), (0, 4, 5, 8)), None),
        (((1, 4, 6, 8), (1, 4, 5, 8)), (4, 6, 5)),
        (((2, 4, 6, 8), (2, 4, 5, 8)), (5,)),
    ],
)
def test_attention_that_is_spread_or_empty(shapes: tuple[Any, Any], mask: Any) -> None:
    """Batches and masks that PyTorch spreads, and operands without elements, for which no fused kernel is taken."""
    q, k = (torch.randn(shape) for shape in shapes)
    v = torch.randn(shapes[1])
    extra = torch.zeros(1, 1) if mask is None else torch.randn(mask)
    with sim.device("h100"):
        given = None if mask is None else extra.cuda()
        found = F.scaled_dot_product_attention(q.cuda(), k.cuda(), v.cuda(), attn_mask=given).cpu()
    scores = q.double() @ k.double().mT / math.sqrt(8) + extra
    torch.testing.assert_close(found.double(), scores.softmax(-1) @ v.double(), rtol=1e-4, atol=1e-5)


def test_the_operator_of_attention_refuses_what_its_kernel_divides_by(dev: sim.SimDevice) -> None:
    operands = [torch.zeros(1, 2, rows, 8, device="cuda") for rows in (0, 5, 5)]
    with pytest.raises(RuntimeError, match="do not fit"):
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*operands)


def test_a_mask_of_another_dtype_is_refused(dev: sim.SimDevice) -> None:
    q = torch.randn(1, 2, 5, 16, device="cuda")
    for dtype in (torch.float16, torch.int64):
        with pytest.raises(RuntimeError, match="Expected attn_mask dtype"):
            F.scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(5, 5, dtype=dtype, device="cuda"))


@pytest.mark.parametrize(
    ("shape", "weight", "words"),
    [((), None, "at least 1-dimensional"), ((1, 3), None, "Given normalized_shape"), ((3,), (2,), "weight to be of")],
)
def test_shapes_of_rms_norm_are_refused_as_on_a_gpu(shape: Any, weight: Any, words: str, dev: sim.SimDevice) -> None:
    given = None if weight is None else torch.ones(weight, device="cuda")
    with pytest.raises(RuntimeError, match=words):
        F.rms_norm(torch.randn(2, 3, device="cuda"), shape, given)


SCORES, LABELS = torch.zeros(5, 4), torch.full((5, 4), 9)
REFUSED: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "inconsistent target": lambda scores, labels: F.multi_margin_loss(scores, labels),
    "same number of dim": lambda scores, labels: scores.scatter_add_(1, labels[0], scores),
    "Size does not match": lambda scores, labels: scores.gather(0, labels.repeat(1, 2)),
}


@pytest.mark.parametrize("words", REFUSED)
def test_forms_are_refused_before_an_index_is_looked_at(words: str, dev: sim.SimDevice) -> None:
    """A GPU's host code raises, and the device can still be used; an index out of bounds alone makes it unusable."""
    with pytest.raises(RuntimeError) as raised:
        REFUSED[words](SCORES.cuda(), LABELS.cuda())
    assert "device-side assert" not in str(raised.value) and words in str(raised.value), raised.value
    assert torch.ones(3, device="cuda").sum().item() == 3
    with pytest.raises(RuntimeError, match="device-side assert"):
        F.multi_margin_loss(SCORES.cuda(), LABELS[:, 0].cuda())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_tritons_own_cublas_multiplies_by_a_transposed_matrix(dtype: torch.dtype, dev: sim.SimDevice) -> None:
    from triton._C.libtriton import nvidia

    made = torch.float16 if dtype == torch.float8_e4m3fn else dtype
    a, b = torch.randn(64, 32, device="cuda").to(dtype), torch.randn(48, 32, device="cuda").to(dtype)
    c = torch.empty(64, 48, device="cuda", dtype=made)
    blas = nvidia.cublas.CublasLt(torch.empty(1024, device="cuda", dtype=torch.uint8))
    blas.matmul(a, b, c)
    product = a.cpu().double() @ b.cpu().double().T
    torch.testing.assert_close(c.cpu().double(), product, rtol=1e-2, atol=1e-2)
    if dtype == made:
        blas.gemm(a, b, c, c, 0.5, 2.0)
        torch.testing.assert_close(c.cpu().double(), 2.5 * product, rtol=2e-2, atol=2e-2)
    with pytest.raises(UnsupportedOp, match="block_scaled_matmul_mxfp8"):
        blas.block_scaled_matmul_mxfp8(a, b, c, a, b)


def test_a_compiler_of_ones_own_is_not_called_and_a_warning_says_so(dev: sim.SimDevice) -> None:
    def compiler(module, inputs):
        raise AssertionError("it is not called")

    with pytest.warns(UserWarning, match="double runs eagerly.* a backend of one's own is not called"):

        @torch.compile(backend=compiler)
        def double(x):
            return x * 2

    assert double(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]


def test_a_view_as_another_dtype_comes_back_from_a_compiler_as_that(dev: sim.SimDevice) -> None:
    from drkernel.sim.inductor import Twins

    twins, x = Twins(), torch.randn(3, 8, device="cuda")
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        twin = twins.of(x[1:])
        views = [twin.view(torch.int32), twin.view(torch.int16)[1:, 3:9], twin.view(torch.float64)[:, 1:]]
    rows = x.cpu()[1:]
    expected = [rows.view(torch.int32), rows.view(torch.int16)[1:, 3:9], rows.view(torch.float64)[:, 1:]]
    for view, right in zip(views, expected, strict=True):
        found = twins.original(view).cpu()
        assert found.dtype == right.dtype and torch.equal(found, right)


def test_dropout_is_one_operator_and_nothing_stays_replaced() -> None:
    before = (torch._VF.dropout, F.scaled_dot_product_attention)
    with sim.device("h100") as dev, torch.no_grad():
        out = F.dropout(torch.ones(1000, device="cuda"), 0.5, training=True).cpu()
        assert dev.operators["aten.native_dropout"] == 1 and "aten.bernoulli_" not in dev.operators
        assert F.dropout(torch.ones(4), 0.5, training=True).device.type == "cpu"
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert (torch._VF.dropout, F.scaled_dot_product_attention) == before


def test_gradients_still_flow() -> None:
    layer = torch.nn.LSTM(4, 4)
    x = torch.randn(3, 2, 4)
    layer(x)[0].sum().backward()
    expected = layer.weight_ih_l0.grad
    assert expected is not None
    with sim.device("h100"):
        copy = torch.nn.LSTM(4, 4)
        copy.load_state_dict(layer.state_dict())
        copy.cuda()
        copy(x.cuda())[0].sum().backward()
        assert copy.weight_ih_l0.grad is not None
        grad = copy.weight_ih_l0.grad.cpu()
    torch.testing.assert_close(grad, expected)
