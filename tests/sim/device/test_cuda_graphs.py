"""CUDA graphs: a replay does to memory what the captured commands do, a capture does nothing."""

import pytest
import torch
import triton
import triton.language as tl

from drkernel import sim
from drkernel.sim.gpu.datafree import DataFree


@triton.jit
def add_to(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(out + at, mask=at < n) + tl.load(x + at, mask=at < n), mask=at < n)


def test_replay_reads_and_writes_the_memory_of_the_capture(dev: sim.SimDevice) -> None:
    x, total = torch.ones(300, device="cuda"), torch.zeros(300, device="cuda")
    index = torch.arange(299, -1, -1, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        add_to[(2,)](x, total, 300, 256)  # warm up
    graph = torch.cuda.CUDAGraph()
    before = len(dev.launches)
    with torch.cuda.graph(graph, stream=side):
        assert torch.cuda.is_current_stream_capturing()
        doubled = x * 2
        add_to[(2,)](doubled[index], total, 300, 256)
        total.add_(1)
        result = total.sum(0, keepdim=True).view(1, 1)
    assert not torch.cuda.is_current_stream_capturing()
    assert len(dev.launches) == before
    assert total.cpu().eq(1).all()
    for step in range(1, 4):
        x.copy_(torch.arange(300.0) * step)
        graph.replay()
    want = 1 + sum(2.0 * step * torch.arange(299.0, -1, -1) + 1 for step in range(1, 4))
    assert torch.equal(total.cpu(), want)
    assert result.item() == want.sum().item()
    assert torch.equal(doubled.cpu(), 6 * torch.arange(300.0))
    assert len(dev.launches) == before + 3
    assert not dev.findings


def test_a_training_step_replayed_is_the_step_itself() -> None:
    torch.manual_seed(0)
    host = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
    data = [torch.randn(32, 8) for _ in range(4)]
    start = {name: value.clone() for name, value in host.state_dict().items()}

    def step(model: torch.nn.Module, x: torch.Tensor, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimiser.step()

    optimiser = torch.optim.SGD(host.parameters(), 0.1)
    for x in (data[0], *data):
        step(host, x, optimiser)
    with sim.device("h100"):
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)).cuda()
        model.load_state_dict(start)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        x = data[0].cuda()
        step(model, x, optimiser)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(model, x, optimiser)
        for batch in data:
            x.copy_(batch)
            graph.replay()
        got = {name: value.cpu() for name, value in model.state_dict().items()}
    for name, value in host.state_dict().items():
        torch.testing.assert_close(got[name], value, rtol=1e-5, atol=1e-6)


def test_forms_that_change_in_place_are_replayed_where_they_changed(dev: sim.SimDevice) -> None:
    x, w = torch.zeros(3, 4, device="cuda"), torch.arange(20.0, device="cuda").view(4, 5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x @ w
        before = y + 1
        y.t_()
        after = y * torch.arange(3.0, device="cuda")
        y.unsqueeze_(0)
        of_row = x[0] @ w  # which takes a dimension away from a product of matrices
    for step in (1.0, 2.0):
        x.copy_(torch.arange(12.0).view(3, 4) * step)
        graph.replay()
        want = x.cpu() @ w.cpu()
        assert torch.equal(before.cpu(), want + 1)
        assert torch.equal(after.cpu(), want.T * torch.arange(3.0))
        assert torch.equal(y.cpu(), want.T[None]) and torch.equal(of_row.cpu(), want[0])


def test_draws_differ_between_replays_and_memory_is_freed(dev: sim.SimDevice) -> None:
    x = torch.zeros(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.rand(1000, device="cuda")
        inner = drawn * 2
        x.copy_(inner)
    used = torch.cuda.memory_allocated()
    del inner
    assert torch.cuda.memory_allocated() == used  # the graph still writes there
    graph.replay()
    first = x.cpu()
    graph.replay()
    second = x.cpu()
    assert not torch.equal(first, second) and torch.equal(second, drawn.cpu() * 2)
    assert 0.8 < second.mean() < 1.2
    graph.reset()
    assert torch.cuda.memory_allocated() < used


def test_a_replay_costs_the_host_one_launch(dev: sim.SimDevice) -> None:
    x = torch.zeros(16, device="cuda")

    def work() -> None:
        for _ in range(200):
            x.add_(1)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()

    def seconds(call) -> float:  # type: ignore[no-untyped-def]
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e-3

    eager, replayed = seconds(work), seconds(graph.replay)
    assert x.cpu().eq(400).all()
    assert replayed < 0.8 * eager
    assert triton.testing.do_bench_cudagraph(work) <= eager * 1e3


@pytest.mark.parametrize("what", ["item", "cpu", "upload", "synchronize", "nonzero", "nested"])
def test_what_cannot_be_captured_fails_as_on_cuda(what: str, dev: sim.SimDevice) -> None:
    calls = {
        "item": lambda x: x[0].item(), "cpu": lambda x: x.cpu(), "upload": lambda x: x.copy_(torch.ones(4)),
        "synchronize": lambda x: torch.cuda.synchronize(), "nonzero": lambda x: x.nonzero(),
        "nested": lambda x: torch.cuda.CUDAGraph().capture_begin(),
    }  # fmt: skip
    x = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match="CUDA error"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.add_(1)
        calls[what](x)
    assert x.tolist() == [1, 1, 1, 1]


def test_graphed_callables(dev: sim.SimDevice) -> None:
    layer = torch.nn.Linear(4, 4).cuda()
    sample = torch.randn(2, 4, device="cuda", requires_grad=True)
    x = torch.randn(2, 4, device="cuda", requires_grad=True)
    want = layer(x)
    (want_gradient,) = torch.autograd.grad(want.sum(), x)
    graphed = torch.cuda.make_graphed_callables(layer, (sample,))
    got = graphed(x)
    (gradient,) = torch.autograd.grad(got.sum(), x)
    torch.testing.assert_close(got.detach().cpu(), want.detach().cpu())
    torch.testing.assert_close(gradient.cpu(), want_gradient.cpu())


@triton.jit
def stepped(out, by, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(out + at) + tl.load(by))


def test_without_data_a_capture_changes_no_contents_and_a_replay_costs_the_same() -> None:
    def work(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        for _ in range(20):
            stepped[(1,)](x, count, N=64)
        return count + 1

    seconds = {}
    for data in (True, False):
        with sim.device("h100", data_free=None if data else DataFree()) as dev:
            x, count = torch.zeros(64, device="cuda"), torch.ones(1, dtype=torch.int64, device="cuda")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                count.add_(1)
                more = work(x, count)
            assert count.item() == 1
            dev.reset_counters()
            graph.replay()
            assert count.item() == 2 and more.item() == 3
            seconds[data] = dev.profile().elapsed_seconds
    assert seconds[True] == pytest.approx(seconds[False]) and seconds[False] < 20 * 30e-6
