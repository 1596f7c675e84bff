"""Modules, autograd, optimisers, autocast and checkpoints on the simulated device."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn

from drkernel.sim.host.tensor import DeviceTensor


class Block(nn.Module):
    """A bit of everything: parameters, buffers, a shared weight, norms, convolution, attention."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8, bias=False)
        self.tied = self.down
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("offset", torch.arange(8.0))
        self.layer_norm = nn.LayerNorm(8)

    def forward(self, x):
        h = F.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        h = h + self.tied(F.silu(self.up(self.layer_norm(h)))) * self.scale + self.offset
        h = F.scaled_dot_product_attention(h[:, None], h[:, None], h[:, None])[:, 0]
        return h.mean(1)


def pair():
    torch.manual_seed(0)
    host = Block()
    return host, copy.deepcopy(host).cuda()


def test_a_module_moves_and_computes_as_on_the_host(dev):
    host, device = pair()
    assert all(isinstance(p, nn.Parameter) and p.is_cuda for p in device.parameters())
    assert device.offset.is_cuda and device.tied is device.down
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(device(x.cuda()).cpu(), host(x))
    device.eval(), host.eval()
    with torch.no_grad():
        torch.testing.assert_close(device(x.cuda()).cpu(), host(x))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        device(x)


def test_backward_agrees_with_the_host(dev):
    host, device = pair()
    x = torch.randn(2, 3, 8, 8)
    moved = x.cuda().requires_grad_()
    mine = x.clone().requires_grad_()
    device(moved).square().sum().backward()
    host(mine).square().sum().backward()
    torch.testing.assert_close(moved.grad.cpu(), mine.grad)
    for (name, a), (_, b) in zip(device.named_parameters(), host.named_parameters(), strict=True):
        assert isinstance(a.grad, DeviceTensor), name
        torch.testing.assert_close(a.grad.cpu(), b.grad, msg=name)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
    ],
)
def test_optimisers_step_as_on_the_host(dev, make):
    host, device = pair()
    x = torch.randn(2, 3, 8, 8)
    for module, data in ((host, x), (device, x.cuda())):
        optimiser = make(module.parameters())
        for _ in range(3):
            optimiser.zero_grad()
            module(data).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
    for (name, a), (_, b) in zip(device.named_parameters(), host.named_parameters(), strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach(), msg=name, rtol=1e-3, atol=1e-4)


def test_state_dicts_cross_both_ways(dev):
    host, device = pair()
    other = Block()
    other.load_state_dict(device.state_dict())
    for a, b in zip(other.state_dict().values(), host.state_dict().values(), strict=True):
        assert type(a) is torch.Tensor and torch.equal(a, b)
    target = Block().cuda()
    target.load_state_dict(host.state_dict())
    assert all(value.is_cuda for value in target.state_dict().values())
    assert torch.equal(target.up.weight.cpu(), host.up.weight)
    buffer = io.BytesIO()
    torch.save(device.state_dict(), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location="cuda")
    assert all(value.is_cuda for value in loaded.values())
    target.load_state_dict(loaded, assign=True)
    assert target.up.weight.is_cuda


def test_parameters_stay_the_same_objects_where_modules_move(dev):
    """An optimiser that was made before trains what was moved."""
    model = torch.nn.Linear(3, 2)
    weight, optimizer = model.weight, torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(1, 3)).sum().backward()
    for place in ("cuda", "cpu", "cuda"):
        before = weight.detach().cpu().clone()
        model.to(place)
        assert model.weight is weight and weight.device.type == weight.grad.device.type == place
        optimizer.step()
        torch.testing.assert_close(before - weight.detach().cpu(), torch.full((2, 3), 0.5))
    model.half()
    assert model.weight is weight and weight.dtype == weight.grad.dtype == torch.float16


def test_deepcopy_and_to_dtype_and_back(dev):
    _, device = pair()
    clone = copy.deepcopy(device)
    clone.up.weight.data.zero_()
    assert device.up.weight.abs().sum().item() > 0 and clone.tied is clone.down
    clone.half()
    assert clone.up.weight.dtype == torch.float16 and clone.up.weight.is_cuda
    assert clone.up.weight.detach().cpu().dtype == torch.float16
    clone.to(torch.bfloat16).to("cpu")
    assert not clone.up.weight.is_cuda and clone.up.weight.dtype == torch.bfloat16
    clone.to("cuda:0", torch.float32)
    assert clone.up.weight.is_cuda and clone.up.weight.dtype == torch.float32
    parameter = nn.Parameter(torch.ones(2))
    parameter.data = parameter.data.cuda()
    assert parameter.is_cuda and isinstance(parameter, nn.Parameter) and parameter.requires_grad


def test_modules_made_on_the_device(dev):
    linear = nn.Linear(4, 3, device="cuda", dtype=torch.bfloat16)
    assert linear(torch.ones(2, 4, device="cuda", dtype=torch.bfloat16)).shape == (2, 3)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.constant_(linear.bias, 0.5)
    assert linear.bias.tolist() == [0.5] * 3
    embedding = nn.Embedding(10, 4, device="cuda")
    tokens = torch.tensor([[1, 2], [3, 4]], device="cuda")
    embedding(tokens).sum().backward()
    assert embedding.weight.grad.sum().item() == 16


@pytest.mark.parametrize("kind", ["lstm", "gru", "mha", "transformer", "pool", "dropout", "conv_transpose", "loss"])
def test_common_layers(dev, kind):
    torch.manual_seed(0)
    layers = {
        "lstm": (nn.LSTM(4, 6, batch_first=True), torch.randn(2, 5, 4), lambda out: out[0]),
        "gru": (nn.GRU(4, 6, 2), torch.randn(5, 2, 4), lambda out: out[0]),
        "mha": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(2, 5, 8), None),
        "transformer": (nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), torch.randn(5, 2, 8), None),
        "pool": (nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(2), nn.Flatten()), torch.randn(2, 3, 8, 8), None),
        "dropout": (nn.Dropout(0.0), torch.randn(2, 3), None),
        "conv_transpose": (nn.ConvTranspose2d(3, 4, 3, stride=2), torch.randn(2, 3, 5, 5), None),
        "loss": (nn.CrossEntropyLoss(label_smoothing=0.1), torch.randn(4, 5), None),
    }
    module, x, pick = layers[kind]
    extra = (x,) if kind == "transformer" else (torch.tensor([1, 0, 4, 2]),) if kind == "loss" else ()
    host_x, device_x = x.clone().requires_grad_(), x.cuda().requires_grad_()
    device_extra = tuple(value.cuda() for value in extra)
    expected = module(host_x, *extra)
    moved = copy.deepcopy(module).cuda()
    got = moved(device_x, *device_extra)
    expected, got = (pick(expected), pick(got)) if pick else (expected, got)
    torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
    expected.sum().backward(), got.sum().backward()
    torch.testing.assert_close(device_x.grad.cpu(), host_x.grad, rtol=1e-4, atol=1e-5)


def test_autocast(dev):
    linear = nn.Linear(8, 8).cuda()
    x = torch.randn(4, 8, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = linear(x)
        assert out.dtype == torch.bfloat16 and (x @ x.T).dtype == torch.bfloat16
        assert out.float().softmax(-1).dtype == torch.float32
        assert F.layer_norm(out, (8,)).dtype == torch.float32
    assert linear(x).dtype == torch.float32
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        loss = linear(x).float().square().mean()
    loss.backward()
    assert linear.weight.grad.dtype == torch.float32
    with torch.amp.autocast("cuda", enabled=False):
        assert linear(x).dtype == torch.float32


def test_grad_scaler(dev):
    linear = nn.Linear(4, 4).cuda()
    optimiser = torch.optim.SGD(linear.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = linear(torch.ones(2, 4, device="cuda")).float().square().mean()
    before = linear.weight.detach().clone()
    scaler.scale(loss).backward()
    scaler.step(optimiser)
    scaler.update()
    assert not torch.equal(before.cpu(), linear.weight.detach().cpu())


@triton.jit
def square_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, value * value, mask=offsets < n)


@triton.jit
def square_backward_kernel(x, grad, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n) * tl.load(grad + offsets, mask=offsets < n)
    tl.store(out + offsets, 2 * value, mask=offsets < n)


class Square(torch.autograd.Function):
    """A Triton kernel each way."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        square_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        square_backward_kernel[(triton.cdiv(x.numel(), 64),)](x, grad.contiguous(), out, x.numel(), BLOCK=64)
        return out


def test_autograd_functions_around_kernels(dev):
    x = torch.randn(100, device="cuda", requires_grad=True)
    (Square.apply(x * 2) + 1).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 8 * x.detach().cpu())
    assert [launch.name for launch in dev.launches] == ["square_kernel", "square_backward_kernel"]


def test_activation_checkpoints_and_hooks(dev):
    from torch.utils.checkpoint import checkpoint

    x = torch.randn(10, device="cuda", requires_grad=True)
    seen = []
    x.register_hook(lambda grad: seen.append(grad.is_cuda))
    checkpoint(lambda value: Square.apply(value).sin(), x, use_reentrant=False).sum().backward()
    expected = 2 * x.detach().cpu() * (x.detach().cpu() ** 2).cos()
    torch.testing.assert_close(x.grad.cpu(), expected)
    assert seen == [True] and len(dev.launches) == 3


def test_no_grad_inference_mode_and_functional_gradients(dev):
    x = torch.ones(3, device="cuda", requires_grad=True)
    with torch.inference_mode():
        assert (x * 2).tolist() == [2.0] * 3
    with torch.no_grad():
        assert not (x * 2).requires_grad
    (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    assert gradient.tolist() == [3.0] * 3 and second.tolist() == [6.0] * 3


def test_a_kernel_in_a_module_with_parameters(dev):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((64,), 3.0))

        def forward(self):
            return Square.apply(self.weight)

    layer = Layer().cuda()
    layer().sum().backward()
    assert layer.weight.grad.tolist() == [6.0] * 64


@pytest.mark.parametrize(
    "make, whole",
    [
        (lambda: (nn.LSTM(8, 8), torch.randn(5, 2, 8)), "aten.lstm"),
        (lambda: (nn.GRU(8, 8, 2), torch.randn(5, 2, 8)), "aten.gru"),
        (
            lambda: (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.randn(2, 5, 8)),
            "aten._scaled_dot_product_flash_attention_for_cpu",
        ),
        (lambda: (nn.Dropout(0.5), torch.randn(4, 8)), "aten.native_dropout"),
        (lambda: (nn.RMSNorm(8), torch.randn(4, 8)), "aten._fused_rms_norm"),
    ],
)
def test_what_a_gpu_runs_as_one_library_call_arrives_as_one(dev, make, whole):
    module, x = make()
    module = module.cuda()
    with torch.no_grad():
        module(x.cuda())
    assert dev.operators[whole] >= 1 and sum(dev.operators.values()) < 40


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_that_a_gpu_has_kernels_for_arrive_as_one_and_are_right(dev, dtype):
    host = nn.Sequential(nn.RMSNorm(16, eps=1e-5), nn.SiLU(), nn.Mish()).to(dtype)
    x, upstream = torch.randn(3, 5, 16, dtype=dtype), torch.randn(3, 5, 16, dtype=dtype)
    on_device = copy.deepcopy(host).cuda()
    there = x.cuda().requires_grad_()
    on_device(there).backward(upstream.cuda())
    counted = dict(dev.operators)
    x.requires_grad_()
    host(x).backward(upstream)
    close = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 0.2, "rtol": 0.05}
    torch.testing.assert_close(there.grad.cpu(), x.grad, **close)
    torch.testing.assert_close(on_device[0].weight.grad.cpu(), host[0].weight.grad, **close)
    for name in ("_fused_rms_norm", "_fused_rms_norm_backward", "silu_backward", "mish_backward"):
        assert counted[f"aten.{name}"] == 1
    assert "aten.rsqrt" not in counted and "aten.sigmoid" not in counted


def test_autocast_and_library_calls_together(dev):
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).cuda(), torch.randn(2, 5, 8, device="cuda")
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        out = module(x, x, x, need_weights=False)[0]
    assert out.dtype == torch.bfloat16
    assert dev.operators["aten._scaled_dot_product_flash_attention_for_cpu"] == 1
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(torch.rand(3, device="cuda"), torch.rand(3, device="cuda"))
    assert F.binary_cross_entropy(torch.full((3,), 0.5, device="cuda"), torch.ones(3, device="cuda")).item() > 0
