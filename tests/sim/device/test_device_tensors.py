"""Tensors of the simulated device under host code written for CUDA: factories, moves, operators, refusals."""

import copy
import gc
import io
import pickle

import pytest
import torch
import torch.nn.functional as F

from drkernel import sim
from drkernel.sim.gpu import random_numbers
from drkernel.sim.gpu.random_numbers import DeviceRandom
from drkernel.sim.host.tensor import DeviceTensor
from drkernel.sim.wire.commands import ProtocolError, UnsupportedOp


def on_device(value) -> bool:
    return isinstance(value, DeviceTensor) and value.is_cuda and value.device == torch.device("cuda", 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, 3, device="cuda"),
        lambda: torch.ones((2, 3), device="cuda:0", dtype=torch.float16),
        lambda: torch.empty(2, 3, device=torch.device("cuda")),
        lambda: torch.full((2,), 7, device=0),
        lambda: torch.arange(5, device="cuda"),
        lambda: torch.linspace(0, 1, 5, device="cuda"),
        lambda: torch.eye(3, device="cuda"),
        lambda: torch.rand(2, device="cuda"),
        lambda: torch.randn(2, 3, device="cuda", dtype=torch.bfloat16),
        lambda: torch.randint(0, 5, (3,), device="cuda"),
        lambda: torch.randperm(5, device="cuda"),
        lambda: torch.tensor([1.0, 2.0], device="cuda"),
        lambda: torch.tensor(3, device="cuda:0"),
        lambda: torch.as_tensor([1, 2], device="cuda"),
        lambda: torch.as_tensor([1, 2]).cuda(),
        lambda: torch.asarray([1, 2], device="cuda"),
        lambda: torch.scalar_tensor(2.0, device="cuda"),
        lambda: torch.zeros_like(torch.ones(2), device="cuda"),
        lambda: torch.empty_strided((2, 3), (1, 2), device="cuda"),
        lambda: torch.tril_indices(3, 3, device="cuda"),
        lambda: torch.ones(2).cuda(),
        lambda: torch.ones(2).cuda(0),
        lambda: torch.ones(2).cuda("cuda:0", non_blocking=True),
        lambda: torch.ones(2).cuda(torch.device("cuda")),
        lambda: torch.ones(2).to("cuda"),
        lambda: torch.ones(2).to(0),
        lambda: torch.ones(2).to(torch.device("cuda:0"), torch.float16),
        lambda: torch.ones(2).to("cuda", torch.float64, non_blocking=True),
        lambda: torch.ones(2).to(device="cuda", dtype=torch.int32),
        lambda: torch.ones(2).to(torch.ones(1, device="cuda")),
        lambda: torch.ones(2).type("torch.cuda.HalfTensor"),
        lambda: torch.ones(2).pin_memory().cuda(),
        lambda: torch.ones(2, device="cuda").new_zeros(3),
        lambda: torch.ones(2, device="cuda").new_tensor([1.0]),
        lambda: torch.ones(2, device="cuda").new_full((2,), 3.0),
        lambda: torch.ones(2).new_zeros(3, device="cuda"),
        lambda: torch.cuda.FloatTensor(3).zero_(),
        lambda: torch.cuda.FloatTensor([1.0, 2.0]),
        lambda: torch.cat([torch.ones(2, device="cuda"), torch.ones(1, device="cuda")]),
        lambda: torch.stack([torch.ones(2, device="cuda")] * 2),
        lambda: torch.from_numpy(torch.ones(2).numpy()).cuda(),
        lambda: torch.complex(torch.ones(2, device="cuda"), torch.ones(2, device="cuda")),
        lambda: torch.ones(2, 2, device="cuda").to(memory_format=torch.contiguous_format),
        lambda: torch.ones(2, device="cuda").float().half().double().long().bool(),
        lambda: torch.Tensor(2, 3).cuda(),
    ],
)
def test_every_way_to_make_a_device_tensor(dev, make):
    assert on_device(make())


def test_values_survive_the_round_trip(dev):
    for dtype in (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int8,
        torch.uint8,
        torch.int64,
        torch.bool,
        torch.complex64,
        torch.float8_e4m3fn,
    ):
        host = (torch.randn(4, 5) * 10).to(dtype)
        back = host.cuda().cpu()
        assert type(back) is torch.Tensor and back.dtype == dtype
        assert back.view(torch.uint8).tolist() == host.view(torch.uint8).tolist()


def test_strides_survive(dev):
    host = torch.randn(4, 6, 5).permute(2, 0, 1)
    device = host.cuda()
    assert device.stride() == host.stride() and torch.equal(device.cpu(), host)
    images = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).cuda()
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert images[:, 1].stride() == (48, 12, 3) and images[:, 1].storage_offset() == 1


def test_what_it_says_of_itself(dev):
    x = torch.zeros(2, 3, device="cuda")
    assert x.is_cuda and not x.is_cpu and not x.is_meta and x.get_device() == 0 and x.device.type == "cuda"
    assert x.device.index == 0 and x.data_ptr() != 0 and x.data_ptr() % 16 == 0
    assert x.type() == "torch.cuda.FloatTensor"
    assert x.untyped_storage().nbytes() == 24 and x.nbytes == 24 and x.element_size() == 4
    assert repr(x) == "tensor([[0., 0., 0.],\n        [0., 0., 0.]], device='cuda:0')"
    assert f"{torch.tensor(1.5, device='cuda'):.2f}" == "1.50"
    assert len(x) == 2 and bool(torch.ones(1, device="cuda")) and int(torch.tensor(3, device="cuda")) == 3
    assert [row.sum().item() for row in x] == [0.0, 0.0]
    assert x.tolist() == [[0.0] * 3] * 2 and torch.is_tensor(x) and isinstance(x, torch.Tensor)
    assert not x.is_pinned() and not x.is_sparse and x.layout == torch.strided
    assert isinstance(hash(x), int) and x.is_floating_point()


def test_operators_agree_with_the_host(dev):
    a, b = torch.randn(6, 5), torch.randn(5, 4)
    x, y = a.cuda(), b.cuda()
    pairs = [
        (x @ y, a @ b),
        (x.softmax(-1), a.softmax(-1)),
        (F.gelu(x), F.gelu(a)),
        (x.sum(0, keepdim=True), a.sum(0, keepdim=True)),
        (x.max(1).values, a.max(1).values),
        (x.max(1).indices, a.max(1).indices),
        (torch.sort(x, descending=True)[0], torch.sort(a, descending=True)[0]),
        (torch.topk(x, 2).indices, torch.topk(a, 2).indices),
        (torch.where(x > 0, x, 0.0), torch.where(a > 0, a, 0.0)),
        (x[x > 0], a[a > 0]),
        (x[[0, 2], 1:3], a[[0, 2], 1:3]),
        (x[torch.tensor([0, 2])], a[[0, 2]]),
        (x[torch.tensor([0, 2], device="cuda")], a[[0, 2]]),
        (torch.einsum("ij,jk->ki", x, y), torch.einsum("ij,jk->ki", a, b)),
        (F.layer_norm(x, (5,)), F.layer_norm(a, (5,))),
        (F.conv1d(x[None], torch.ones(3, 6, 3, device="cuda")), F.conv1d(a[None], torch.ones(3, 6, 3))),
        (x.unfold(1, 3, 1), a.unfold(1, 3, 1)),
        (2 * x + 1, 2 * a + 1),
        (x + torch.tensor(2.0), a + 2.0),
        (x.cumsum(0), a.cumsum(0)),
        (torch.cat(torch.split(x, 2), 1), torch.cat(torch.split(a, 2), 1)),
        (x.reshape(-1).view(5, 6).t().contiguous(), a.reshape(-1).view(5, 6).t().contiguous()),
        (x.std(), a.std()),
        (x.norm(), a.norm()),
        (torch.linalg.norm(x, dim=1), torch.linalg.norm(a, dim=1)),
        (torch.bmm(x[None], y[None]), torch.bmm(a[None], b[None])),
        (F.interpolate(x[None, None], scale_factor=2), F.interpolate(a[None, None], scale_factor=2)),
        (F.pad(x, (1, 2)), F.pad(a, (1, 2))),
        (x.argmax(), a.argmax()),
        (torch.meshgrid(x[0], y[0], indexing="ij")[0], torch.meshgrid(a[0], b[0], indexing="ij")[0]),
    ]
    for got, expected in pairs:
        assert on_device(got)
        torch.testing.assert_close(got.cpu(), expected)


def test_in_place_and_out(dev):
    x = torch.zeros(4, 4, device="cuda")
    x[1] = 5
    x[:, 2] += torch.arange(4, device="cuda")
    x[2, 3].fill_(9)
    x.view(-1)[0] = torch.tensor(7.0)
    x[x == 5] = -1
    expected = torch.zeros(4, 4)
    expected[1] = 5
    expected[:, 2] += torch.arange(4)
    expected[2, 3] = 9
    expected[0, 0] = 7
    expected[expected == 5] = -1
    assert torch.equal(x.cpu(), expected)
    out = torch.empty(4, 4, device="cuda")
    assert torch.add(x, 1, out=out) is out and torch.equal(out.cpu(), expected + 1)
    out.copy_(torch.ones(4, 4))
    assert out.sum().item() == 16
    host = torch.empty(4, 4)
    host.copy_(out * 2, non_blocking=True)
    assert host.sum().item() == 32
    y = x
    y += 1
    assert y is x
    torch.manual_seed(0)
    assert x.normal_().std().item() > 0 and x.uniform_(-1, 1).abs().max().item() <= 1
    x.data = torch.ones(2, device="cuda")
    assert x.tolist() == [1.0, 1.0]


def test_operators_change_shapes_in_place(dev):
    x = torch.arange(6.0).reshape(2, 3)
    for change in (
        lambda t: t.t_(),
        lambda t: t.transpose_(0, 1),
        lambda t: t.as_strided_((3, 2), (1, 3)),
        lambda t: t.unsqueeze_(0),
        lambda t: F.adaptive_avg_pool1d(t.reshape(1, 2, 3).transpose(1, 2), 1),
    ):
        with torch.no_grad():
            assert torch.equal(change(x.cuda()).cpu(), change(x.clone()))


def test_views_share_memory_and_one_object_a_handle(dev):
    x = torch.zeros(3, 4, device="cuda")
    row = x[1]
    row.add_(2)
    assert x.sum().item() == 8 and row.data_ptr() == x.data_ptr() + 16
    assert x.t().data_ptr() == x.data_ptr() and row._base is x
    assert x.untyped_storage().data_ptr() == row.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", ["asarray", "from_dlpack"])
def test_copies_that_are_asked_for_share_no_memory(dev, name):
    x = torch.ones(3, device="cuda")
    shared, copied = getattr(torch, name)(x), getattr(torch, name)(x, copy=True)
    x.zero_()
    assert shared.tolist() == [0.0] * 3 and copied.tolist() == [1.0] * 3


def test_asarray_refuses_an_alias_of_another_dtype_and_detaches_where_no_gradient_is_wanted(dev):
    x = torch.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(ValueError, match="can't alias"):
        torch.asarray(x, dtype=torch.float64, copy=False)
    assert not torch.asarray(x, requires_grad=False).requires_grad and torch.asarray(obj=x) is x


@pytest.mark.parametrize("read", [lambda x: x.numpy(), lambda x: __import__("numpy").asarray(x)])
def test_numpy_is_refused_as_by_cuda(dev, read):
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        read(torch.ones(2, device="cuda"))


def test_mixed_devices_are_refused_as_by_cuda(dev):
    x = torch.ones(3, device="cuda")
    for mix in (
        lambda: x + torch.ones(3),
        lambda: torch.ones(3) * x,
        lambda: torch.cat([x, torch.ones(3)]),
        lambda: torch.ones(3, 3) @ x,
        lambda: F.linear(x, torch.ones(2, 3)),
        lambda: torch.where(x > 0, torch.ones(3), x),
    ):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            mix()
    assert (x * torch.tensor(2.0)).tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        torch.ones(3)[torch.tensor([0], device="cuda")]
    with pytest.raises((RuntimeError, TypeError), match="Expected all tensors to be on the same device"):
        torch.ones(3).add_(x)


def test_an_unknown_device_index_is_refused(dev):
    for use in (
        lambda: torch.zeros(2, device="cuda:1"),
        lambda: torch.ones(2).cuda(1),
        lambda: torch.ones(2).to("cuda:3"),
    ):
        with pytest.raises(RuntimeError, match="CUDA error: invalid device ordinal"):
            use()


def test_copies_of_objects(dev):
    x = torch.randn(3, device="cuda")
    y = copy.deepcopy(x)
    y.zero_()
    assert x.abs().sum().item() > 0 and on_device(y)
    assert copy.copy(x).data_ptr() == x.data_ptr()
    buffer = io.BytesIO()
    torch.save({"x": x}, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, map_location="cpu")["x"], x.cpu())
    buffer.seek(0)
    assert on_device(torch.load(buffer)["x"])
    assert torch.equal(pickle.loads(pickle.dumps(x)).cpu(), x.cpu())


def test_memory_is_accounted_freed_and_limited():
    with sim.device("h100", memory_bytes=1 << 20) as dev:
        before = torch.cuda.memory_allocated()
        x = torch.zeros(1000, device="cuda")
        view = x[10:]
        assert torch.cuda.memory_allocated() - before == 4000
        del x
        gc.collect()
        assert torch.cuda.memory_allocated() - before == 4000, "a view keeps the storage"
        del view
        gc.collect()
        assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() >= 4000
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            torch.zeros(1 << 20, device="cuda")
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.zeros(1 << 20, device="cuda")
        assert torch.zeros(1000, device="cuda").sum().item() == 0
        assert dev.engine.heap.used_bytes < 1 << 20


def test_fresh_memory_is_poisoned(dev):
    assert torch.empty(5, device="cuda").isnan().all().item()
    assert torch.empty_like(torch.ones(5, device="cuda")).isnan().all().item()
    assert (torch.empty(5, dtype=torch.int32, device="cuda") != 0).all().item()


def test_what_is_not_offered_fails_by_name(dev):
    x = torch.ones(4, 4, device="cuda")
    with pytest.raises((UnsupportedOp, NotImplementedError), match="sparse"):
        x.to_sparse()


def test_census_of_operators_and_copies(dev):
    x = torch.ones(100).cuda()
    y = x.view(10, 10).t() + 1
    y.relu_()
    assert dev.operators == {"aten.add": 1, "aten.relu_": 1}
    y.cpu()
    y.sum().item()
    assert dev.copies == {"host to device": 1, "device to host": 2}
    profile = dev.profile()
    assert {row.name for row in profile.rows} >= {"aten.add", "memcpy host to device", "memcpy device to host"}
    assert profile.kind == "modelled" and profile.total_seconds > 0
    dev.reset_counters()
    assert dev.operators == {} and dev.copies == {} and dev.profile().rows == ()


def test_tensors_outlive_the_device_quietly():
    with sim.device("h100"):
        x = torch.ones(3, device="cuda")
        graph = (torch.ones(3, device="cuda", requires_grad=True) * 2).sum()
    with pytest.raises(RuntimeError, match="simulated device"):
        x + 1
    del x, graph
    gc.collect()


def test_a_script_gets_as_many_generators_as_the_device_keeps(monkeypatch):
    monkeypatch.setattr(random_numbers, "MAX_GENERATORS", 3)
    numbers = DeviceRandom()
    drawn = [torch.rand(2, generator=numbers.generator(k)) for k in range(3)]
    assert all(torch.equal(one, drawn[0]) for one in drawn) and numbers.generator(2) is numbers.generator(2)
    for number in (3, -1):
        with pytest.raises(ProtocolError, match="at most 3"):
            numbers.generator(number)


def test_conjugates_are_numbers(dev):
    """Host code's tensors show no bit that says conjugate, and the device's operators would not look at one."""
    host = torch.randn(4, 6, dtype=torch.complex64)
    functions = (
        lambda t: t.conj().imag, lambda t: (t.conj() * t).real, lambda t: torch.view_as_real(t.mH @ t),
        lambda t: t.conj() + 1, lambda t: torch.fft.hfft2(t), lambda t: torch.fft.ihfftn(t.real),
        lambda t: torch.linalg.vecdot(t, t + 1),
    )  # fmt: skip
    for function in functions:
        torch.testing.assert_close(function(host.cuda()).cpu(), function(host))
    grads = []
    for device in ("cpu", "cuda"):
        size, angle = (torch.tensor([1.0, 2.0], device=device, requires_grad=True) for _ in range(2))
        weights = torch.tensor([1 + 2j, 3 - 1j], device=device)
        (torch.polar(size, angle) * weights).imag.sum().backward()
        grads.append((size.grad.cpu(), angle.grad.cpu()))
    torch.testing.assert_close(grads[0], grads[1])
    assert (host.conj().cuda().cpu() == host.conj()).all() and (host.conj().imag.cuda().cpu() == -host.imag).all()


def test_saved_tensors_can_wait_in_pinned_memory(dev):
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        x = torch.arange(3.0, device="cuda", requires_grad=True)
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0]


def test_lists_of_tensors_go_to_one_operator_as_on_a_gpu(dev):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)).cuda()
    host = copy.deepcopy(model).cpu()
    data = torch.randn(4, 3)
    for one, x in ((model, data.cuda()), (host, data)):
        one(x).square().sum().backward()
        norm = torch.nn.utils.clip_grad_norm_(one.parameters(), 0.1, foreach=True)
        torch.optim.AdamW(one.parameters(), 0.1).step()
    assert dev.operators["aten._foreach_norm"] == dev.operators["aten._foreach_addcdiv_"] == 1
    assert "aten.addcdiv_" not in dev.operators and norm > 0
    for a, b in zip(model.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(a.cpu(), b)
    fused = [torch.arange(3.0, device=device, requires_grad=True) for device in ("cpu", "cuda")]
    for x in fused:
        (x * x).sum().backward()
        torch.optim.Adagrad([x], 0.1, weight_decay=0.1, fused=True).step()
    torch.testing.assert_close(fused[0], fused[1].cpu())
    xs = [torch.rand(3, device="cuda") for _ in range(2)]
    for name in ("cos", "sigmoid", "log1p", "trunc", "erf"):
        for got, x in zip(getattr(torch, f"_foreach_{name}")(xs), xs, strict=True):
            assert torch.equal(got, getattr(torch, name)(x))


def conjugated(z: torch.Tensor) -> list:
    """What host code sees of conjugated and negated views, and writes through them."""
    view, column = z.conj(), z.conj().imag
    view.mul_(1j)
    view[0].add_(2)
    view[1, :2] = 5 - 1j
    column.add_(1)
    target = torch.zeros_like(z)
    target.conj().copy_(view)
    target.mT.conj().imag.copy_(column.mT)
    return [
        z, view, column, view.t(), view.split(2)[1], view.conj(), view.real, view + z, view.abs(), view @ view.mH,
        torch.vdot(view[:, 0], z[:, 0]), torch.stack([view, z]), view.sum(), view.clone(), view.to(torch.complex128),
        view.resolve_conj(), column.cumsum(0), column.double(), column.resolve_neg(), target,
        torch.tensor(view.tolist()), torch.fft.ifft(z, dim=0),
    ]  # fmt: skip


def test_a_conjugated_tensor_is_a_view() -> None:
    """In place operators through it reach the tensor below, and PyTorch's bits tell it from a copy."""
    z = torch.randn(4, 3, dtype=torch.complex64)
    with sim.device("h100"):
        for want, got in zip(conjugated(z.clone()), conjugated(z.cuda()), strict=True):
            torch.testing.assert_close(got.cpu().resolve_conj().resolve_neg(), want.resolve_conj().resolve_neg())
            assert (got.is_conj(), got.is_neg()) == (want.is_conj(), want.is_neg())
        w = z.cuda().requires_grad_()
        ((w.conj() * z.cuda()).sum() + (w @ w.mH).real.sum()).abs().backward()
        gradient = w.grad.cpu()
        with pytest.raises(RuntimeError, match="unresolved conjugated tensors"):
            torch.view_as_real(w.detach().conj())
        with pytest.raises(RuntimeError, match="conjugate view tensors when converting to a different dtype"):
            w.detach().conj().view(torch.float32)
        with pytest.raises(UnsupportedOp, match="mm into a conjugated view"):
            torch.mm(z.cuda(), z.cuda().mH, out=torch.zeros(4, 4, dtype=z.dtype, device="cuda").conj())
    v = z.clone().requires_grad_()
    ((v.conj() * z).sum() + (v @ v.mH).real.sum()).abs().backward()
    torch.testing.assert_close(gradient, v.grad)


@pytest.mark.parametrize("form", [(0, 2, 1), (2, 0, 1)])
def test_casts_to_whole_numbers_keep_the_layout(form) -> None:
    x = torch.randn(3, 4, 5).permute(form)
    with sim.device("h100"):
        assert {kind: x.cuda().to(kind).stride() for kind in (torch.int32, torch.uint8)} == {
            kind: x.to(kind).stride() for kind in (torch.int32, torch.uint8)
        }


def test_tensors_that_share_memory_keep_forms_of_their_own() -> None:
    with sim.device("h100"):
        x, y, other = torch.zeros(3, device="cuda"), torch.zeros(2, 4, device="cuda"), torch.zeros(5, device="cuda")
        x.set_(y)
        other.data = y
        y.t_().add_(1)
        assert (x.shape, other.shape, y.shape) == ((2, 4), (2, 4), (4, 2))
        assert float(x.sum()) == float(other.sum()) == 8
        with pytest.raises(RuntimeError, match="Could not set tensor of type float to a tensor of type c10::Half"):
            torch.zeros(3, device="cuda", dtype=torch.half).set_(y)


def test_errors_name_dimensions_below_zero_and_refuse_complex_indices() -> None:
    with sim.device("h100"):
        x = torch.zeros(2, 3, device="cuda")
        with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got 2"):
            x.sort(dim=2)
        with pytest.raises(IndexError, match="tensors used as indices must be long, int, byte or bool"):
            x[torch.ones(1, dtype=torch.complex64, device="cuda")]
        with pytest.raises(RuntimeError, match="'weight' must be 2-D"):  # before the index, which is out of bounds
            F.embedding(torch.tensor([5], device="cuda"), torch.ones(2, 3, 4, device="cuda"))
        assert torch.fft.fftn(torch.tensor(3.0, device="cuda")).item() == 3  # no dimension, nothing to do


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_convolutions_lie_as_cudnn_has_them(kind) -> None:
    """Channels last where an operand is, but in double precision."""
    x = torch.randn(2, 4, 6, 6).to(kind, memory_format=torch.channels_last)
    with sim.device("h100"):
        out = F.conv2d(x.cuda(), torch.randn(3, 4, 3, 3).to("cuda", kind))
        assert out.is_contiguous(memory_format=torch.channels_last) == (kind == torch.float32)


def test_modules_go_to_a_device_by_its_number() -> None:
    with sim.device("h100"):
        for there in (torch.nn.Linear(2, 2).to(0), torch.nn.Linear(2, 2).to(device=torch.cuda.current_device())):
            assert on_device(there.weight)
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.nn.Linear(2, 2).to(1)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_norms_of_long_vectors_are_as_exact_as_sums_by_trees(order: int) -> None:
    x = torch.rand(1 << 20) + 0.5
    wanted = x.double().norm(order).float()
    with sim.device("h100"):
        y = x.cuda()
        each = torch._foreach_norm([y], order)[0]
        for got in (y.norm(order), torch.dist(y, torch.zeros_like(y), order), each):
            torch.testing.assert_close(got.cpu(), wanted, rtol=3e-7, atol=0)
        assert y.half().norm(order).dtype == torch.half
