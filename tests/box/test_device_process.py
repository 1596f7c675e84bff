"""Host code on a device in another process: what crosses the sockets, and who dies with whom."""

import os
import signal
import subprocess

import pytest
import torch
import triton
import triton.language as tl
from torch import nn

from device_process import device_process
from drkernel import sim
from drkernel.sim.wire.frames import ConnectionLost
from farm import PYTHON
from places import KIT
from waiting import gone, until


@triton.jit
def double_kernel(x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(x + offsets, tl.load(x + offsets, mask=inside) * 2, mask=inside)


def test_the_device_dies():
    with device_process() as device:
        x = torch.ones(3, device="cuda")
        assert x.sum().item() == 3
        os.kill(device.process.pid, signal.SIGKILL)
        device.process.join(10)
        with pytest.raises(ConnectionLost):
            x + 1
    with sim.device("h100"):
        assert torch.ones(2, device="cuda").sum().item() == 2


@pytest.fixture(scope="module")
def dev():
    with device_process() as device:
        yield device


@pytest.fixture(autouse=True)
def fresh(request):
    if "dev" in request.fixturenames:
        request.getfixturevalue("dev").control.begin_call()


def test_operators_launches_and_records_cross(dev):
    x = torch.arange(1000, device="cuda").float()
    double_kernel[(4,)](x, 1000, BLOCK=256)
    double_kernel[(4,)](x, 1000, BLOCK=256)
    assert torch.equal(x.cpu(), torch.arange(1000) * 4.0)
    record = dev.control.end_call()
    assert [launch.name for launch in record.launches] == ["double_kernel"] * 2
    assert record.launches[0].grid == (4, 1, 1) and record.launches[0].seconds > 0
    assert record.copies == {"device to host": 1} and "aten.arange" in record.operators
    assert record.profile.kind == "modelled" and record.findings == [] and record.prints == []


def test_cuda_graphs_are_refused_by_name(dev):
    with pytest.raises(Exception, match="CUDAGraph is not offered"):
        torch.cuda.CUDAGraph()


def test_a_module_trains(dev):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).cuda()
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    x = torch.randn(64, 8, device="cuda")
    losses = []
    for _ in range(5):
        optimiser.zero_grad()
        loss = (module(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_random_state_and_resources_and_errors_cross(dev):
    torch.manual_seed(3)
    first = torch.rand(4, device="cuda").tolist()
    state = torch.cuda.get_rng_state()
    torch.manual_seed(3)
    assert torch.rand(4, device="cuda").tolist() == first
    assert torch.equal(torch.cuda.get_rng_state(), state)
    generator = torch.Generator("cuda").manual_seed(9)
    assert torch.rand(2, device="cuda", generator=generator).shape == (2,)
    x = torch.ones(64, device="cuda")
    assert double_kernel.warmup(x, 64, BLOCK=64, grid=(1,)).n_regs > 0
    with pytest.raises(RuntimeError, match="size of tensor a"):
        x + torch.ones(3, device="cuda")
    with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.zeros(1 << 40, device="cuda")
    with pytest.raises(triton.runtime.errors.OutOfResources, match="threads"):
        double_kernel[(1,)](x, 64, BLOCK=64, num_warps=64)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x[None] @ x[:, None]).dtype == torch.bfloat16


def test_the_host_dies_and_the_device_with_it():
    code = (
        f"import os, signal, sys\nsys.path.append({str(KIT)!r})\n"
        "import torch\nfrom device_process import device_process\n"
        "with device_process() as dev:\n    torch.ones(2, device='cuda').sum().item()\n"
        "    print(dev.process.pid, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    # the device has inherited standard output: its end says that the device is gone, or at least about to be
    until(lambda: gone(pid))
