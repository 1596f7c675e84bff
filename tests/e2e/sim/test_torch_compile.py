"""``torch.compile`` in scripts: TorchInductor's own kernels on the simulated device, else eagerly with one warning."""

import json

import pytest
from test_cli_sim import drkernel_sim, script

COMPILED = """
import torch, warnings

warnings.filterwarnings("error", message=".*runs eagerly")

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(64, 128), torch.nn.LayerNorm(128)
    def forward(self, x):
        return torch.softmax(self.norm(torch.nn.functional.gelu(self.linear(x))), -1)

@torch.compile(mode="default")
def chain(x, y, *, k=2):
    return torch.relu(x * k + y).sum(-1), x, x.view(torch.int32)

layer, x = Layer().cuda().eval(), torch.randn(16, 64, device="cuda")
compiled = torch.compile(layer)
with torch.no_grad():
    for rows in (x, x * 2, torch.randn(5, 64, device="cuda")):
        torch.testing.assert_close(compiled(rows), layer(rows))
assert compiled.linear is layer.linear and isinstance(layer.linear.weight, torch.nn.Parameter)
assert layer.linear.weight.device.type == "cuda"
result, same, bits = chain(x, x + 1, k=3)
torch.testing.assert_close(result, torch.relu(x * 3 + x + 1).sum(-1))
assert same.data_ptr() == x.data_ptr()
assert bits.dtype == torch.int32 and torch.equal(bits, x.view(torch.int32))
assert torch.randn(3, device="cuda").device.type == "cuda"
conv = torch.nn.Conv2d(4, 4, 3, padding=1).cuda()
images = torch.randn(2, 4, 6, 6, device="cuda")
with torch.no_grad():
    torch.testing.assert_close(torch.compile(conv)(images), conv(images))

norm, other = torch.nn.BatchNorm1d(64).cuda(), torch.nn.BatchNorm1d(64).cuda()
@torch.compile
def below(a):
    return norm(a) - 1
@torch.compile
def writes(a, b):
    a.sub_(b)
    return below(a), torch.add(4, 3.5)
before = x.clone()
with torch.no_grad():
    rows, made = writes(x, x * 0.5)
    torch.testing.assert_close(x, before / 2)
    torch.testing.assert_close(rows, other(x) - 1)
torch.testing.assert_close(norm.running_var, other.running_var)
assert norm.num_batches_tracked.item() == 1 and made.device.type == "cpu" and made.item() == 7.5
"""
EAGER = """
import torch, warnings

@torch.compile
class Plus(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + 1

assert Plus.apply(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
x = torch.ones(4, device="cuda", requires_grad=True)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    y = torch.compile(lambda v: v * 3)(x)
    z = torch.compile(lambda v: v * 4)(x)
    (y + z).sum().backward()
assert x.grad.tolist() == [7.0] * 4
assert len(said) == 1 and "runs eagerly" in str(said[0].message) and "gradients" in str(said[0].message), said
def before_it_is_whole():
    @torch.compile
    def early(v):
        return late(v) if v.dim() > 3 else v + 1
    result = early(torch.ones(2, device="cuda"))
    def late(v):
        return v
    return result
assert before_it_is_whole().tolist() == [2.0, 2.0]
with torch.accelerator.device_index(0), torch.accelerator.device_index(None):
    torch.ones(1, device="cuda")
"""


def test_a_compiled_module_runs_inductors_kernels_and_gives_the_same_values(tmp_path):
    done = drkernel_sim(script(tmp_path, COMPILED), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["error"] is None and report["findings"] == []
    names = {row["kernel"] for row in report["launches"]}
    assert any("softmax" in name and "layer_norm" in name for name in names)
    assert any("relu_sum" in name for name in names)
    assert any("batch_norm" in name for name in names)


def test_a_class_is_handed_back_and_what_records_gradients_runs_eagerly_with_one_warning(tmp_path):
    done = drkernel_sim(script(tmp_path, EAGER), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["error"] is None and report["launches"] == []


def test_a_candidate_runs_eagerly_with_a_warning():
    import torch

    from device_process import device_process

    with device_process("h200"):
        with pytest.warns(UserWarning, match=r"torch\.compile runs eagerly"):
            compiled = torch.compile(mode="max-autotune")(lambda y: y + 1)
        assert compiled(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
