"""``torch.cuda`` while a device is simulated: its answers, streams and events, and that everything is put back."""

import threading

import pytest
import torch

from drkernel import sim
from drkernel.sim.spec import get_spec, known_gpus


@pytest.mark.parametrize("name", known_gpus())
def test_queries_answer_from_the_spec(name):
    spec = get_spec(name)
    with sim.device(name):
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1 and torch.cuda.current_device() == 0
        assert torch.cuda.get_device_name() == spec.full_name
        assert torch.cuda.get_device_capability() == spec.capability
        properties = torch.cuda.get_device_properties("cuda")
        assert properties.multi_processor_count == spec.sm_count and properties.total_memory == spec.hbm_bytes
        assert torch.cuda.mem_get_info()[1] == spec.hbm_bytes
        assert torch.cuda.is_bf16_supported() and torch.accelerator.is_available()
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
        assert (torch.version.hip is not None) == (spec.vendor == "amd")


def test_devices_and_contexts(dev):
    torch.cuda.set_device(0)
    assert torch.device(0) == torch.device("cuda", 0) and torch.device("cuda").index is None
    with torch.cuda.device(0), torch.cuda.device_of(torch.zeros(1, device="cuda")):
        assert torch.zeros(1, device="cuda").is_cuda
    for wrong in (lambda: torch.cuda.set_device(1), lambda: torch.cuda.device(2).__enter__()):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            wrong()


def test_the_accelerator_answers_as_cuda_does(dev):
    one = {"device_index", "set_device_index", "set_device_idx", "set_stream"}
    kept = torch.zeros(1 << 20, device="cuda")
    for name in set(torch.accelerator.__all__) - one - {"Graph"}:
        assert getattr(torch.accelerator, name)() == getattr(torch.accelerator, name)()
    torch.accelerator.set_stream(torch.cuda.Stream())
    torch.accelerator.set_device_index("cuda:0")
    with torch.accelerator.device_index(0):
        assert torch.accelerator.get_memory_info() == torch.cuda.mem_get_info()
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated() == kept.nbytes
    assert torch.bfloat16 in torch.accelerator.get_device_capability("cuda:0")["supported_dtypes"]
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.accelerator.set_device_index(1)


def test_streams_and_events_of_any_device(dev):
    stream, cuda = torch.Stream(device="cuda"), torch.cuda.Stream
    assert isinstance(stream, cuda) and isinstance(torch.Stream(), cuda)
    start, end = torch.Event(device="cuda", enable_timing=True), torch.Event(enable_timing=True)
    start.record(stream)
    torch.ones(1 << 20, device="cuda") + 1
    end.record()
    assert start.elapsed_time(end) > 0
    with pytest.raises(RuntimeError):  # as without a device: a CPU has none
        torch.Event(device="cpu").record()


def test_the_default_device_is_where_tensors_are_made(dev):
    made = {
        "tensor": lambda: torch.tensor(0.5), "list": lambda: torch.tensor([1, 2]), "zeros": lambda: torch.zeros(2),
        "asarray": lambda: torch.asarray([1.0]), "as_tensor": lambda: torch.as_tensor([1.0]),
        "weights": lambda: torch.nn.Linear(2, 2).weight, "gradient": lambda: torch.tensor([1.0], requires_grad=True),
        "drawn": lambda: torch.rand(2, generator=torch.Generator("cuda")), "eye": lambda: torch.eye(2),
        "copy": lambda: torch.tensor(torch.ones(2, device="cuda")),
    }  # fmt: skip
    with torch.device("cuda"):
        assert torch.get_default_device() == torch.device("cuda", 0)
        assert {name: str(make().device) for name, make in made.items()} == dict.fromkeys(made, "cuda:0")
        with torch.device("cpu"):
            assert torch.get_default_device() == torch.device("cpu")
        assert torch.tensor(0.5, device="cpu").device == torch.zeros(2, device="cpu").device == torch.device("cpu")
        assert torch.tensor([1.5, 2.5]).tolist() == [1.5, 2.5] and torch.tensor([1.0], requires_grad=True).requires_grad
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(torch.tensor([1.0]).device.type))
        thread.start()
        thread.join()
        assert elsewhere == ["cpu"]  # the default is a thread's own
        assert torch.arange(6).reshape(3, 2)[[0, 2]].tolist() == [[0, 1], [4, 5]]
    torch.set_default_device("cuda")
    try:
        assert torch.randn(2).is_cuda
    finally:
        torch.set_default_device(None)
    assert torch.tensor(0.5).device == torch.get_default_device() == torch.device("cpu")
    assert type(torch.zeros(2)) is torch.Tensor


def test_tensors_of_the_device_can_be_elements(dev):
    x = torch.arange(4, dtype=torch.float64, device="cuda")
    for made in (torch.tensor([x[1], x[2]]), torch.tensor([x[1], x[2]], device="cuda"), x.new_tensor([x[1], x[2]])):
        assert made.tolist() == [1.0, 2.0] and made.dtype == torch.float64
    assert torch.tensor([[x[1], 7], [x[2], x[3]]]).tolist() == [[1.0, 7.0], [2.0, 3.0]]
    assert torch.tensor([x[1]], device="cuda").is_cuda and not torch.tensor([x[1]]).is_cuda


def test_memory_statistics(dev):
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(1 << 20, device="cuda")
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == torch.cuda.memory_allocated() == 4 << 20
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.max_memory_allocated() == 4 << 20
    stats = torch.cuda.memory_stats()
    assert stats["num_ooms"] == stats["num_alloc_retries"] == stats["active_bytes.small_pool.peak"] == 0
    assert stats["reserved_bytes.all.peak"] == torch.cuda.memory_stats_as_nested_dict()["active_bytes"]["all"]["peak"]
    assert "CUDA OOMs: 0" in torch.cuda.memory_summary() and torch.cuda.memory_snapshot() == []
    assert torch.cuda.get_allocator_backend() == "native"
    for size in (1 << 50, 1 << 45):
        with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
            torch.empty(size, device="cuda")


def test_facts_that_scripts_print(dev):
    assert torch.backends.cuda.is_built() and torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() >= 8000 and torch.cuda.is_initialized()
    properties = torch.cuda.get_device_properties(0)
    assert len(str(properties.uuid)) == 36 and properties.clock_rate > 1e6
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaProfilerStart())
    assert runtime.cudaMemGetInfo(0) == torch.cuda.mem_get_info()
    torch.cuda._sleep(1000)


def test_waits_are_told_in_debug_mode(dev):
    x = torch.arange(4.0, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert torch.cuda.get_sync_debug_mode() == 2
        for wait in (lambda: x[1].item(), lambda: x.nonzero(), lambda: x.cpu(), lambda: x[x > 1]):
            with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
                wait()
        assert (x * 2).to("cpu", non_blocking=True).tolist() == [0.0, 2.0, 4.0, 6.0]
        torch.cuda.set_sync_debug_mode("warn")
        with pytest.warns(UserWarning, match="synchronizing"):
            assert x[1].item() == 1.0
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert x[1].item() == 1.0


def test_tensors_leave_for_other_libraries(dev):
    x = torch.arange(3.0, device="cuda", requires_grad=True)
    assert x.numpy(force=True).tolist() == [0.0, 1.0, 2.0]
    shared = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x.detach()))
    assert shared.data_ptr() == x.data_ptr() and x.share_memory_() is x and x.is_shared()
    host = torch.ones(2)
    assert torch.from_dlpack(torch.to_dlpack(host)).data_ptr() == host.data_ptr()


def test_one_gpu_is_parallel_data_too(dev):
    layer = torch.nn.Linear(3, 2).cuda()
    x = torch.ones(4, 3, device="cuda")
    assert torch.equal(torch.nn.DataParallel(layer)(x), layer(x))
    assert torch.equal(torch.nn.DataParallel(layer)(torch.ones(4, 3)), layer(x))


def test_tangents_that_are_zero(dev):
    x = torch.tensor([2.0, 3.0], device="cuda")
    value, slope = torch.func.jvp(lambda a: a * a.detach().ceil(), (x,), (torch.ones_like(x),))
    assert value.tolist() == [4.0, 9.0] and slope.tolist() == [2.0, 3.0]
    for device in ("cpu", "cuda"):  # of which torch keeps no memory
        x = torch.randn(20, 20, device=device, requires_grad=True)
        (zeros,) = torch.autograd.grad(x.sgn().sum(), x)
        assert (zeros + 1).sum().item() == 400.0 and torch.isclose(zeros, zeros).all()


def test_events_read_the_modelled_clock(dev):
    x = torch.ones(1 << 20, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(20):
        x = x + 1
    end.record()
    torch.cuda.synchronize()
    row = next(row for row in dev.profile().rows if row.name == "aten.add")
    assert start.elapsed_time(end) == pytest.approx(row.seconds * 1e3, rel=0.3)
    with pytest.raises(RuntimeError, match="must be recorded"):
        start.elapsed_time(torch.cuda.Event(enable_timing=True))
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(torch.cuda.Event())


def test_streams(dev):
    side = torch.cuda.Stream()
    assert torch.cuda.current_stream() == torch.cuda.default_stream() and torch.cuda.current_stream().cuda_stream == 0
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() is side and side.cuda_stream != 0
        x = torch.ones(3, device="cuda") * 2
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    side.wait_stream(torch.cuda.current_stream())
    event = side.record_event()
    torch.cuda.current_stream().wait_event(event)
    event.wait(), event.synchronize(), side.synchronize()
    assert side.query() and event.query() and x.tolist() == [2.0] * 3
    x.record_stream(side)
    same = torch.cuda.ExternalStream(side.cuda_stream)
    assert same == side != torch.cuda.default_stream() and len({same, side}) == 1
    with torch.cuda.StreamContext(same):
        assert torch.cuda.current_stream() == side == torch.cuda.get_stream_from_external(side.cuda_stream)
        assert torch._C._cuda_getCurrentRawStream(0) == side.cuda_stream
    assert torch.cuda.Stream.priority_range() == (0, -5) and isinstance(side, torch.cuda.streams.Stream)


def test_random_state_is_the_devices_own(dev):
    torch.manual_seed(1)
    host_first = torch.randn(3)
    torch.manual_seed(1)
    torch.randn(3, device="cuda")
    assert torch.equal(torch.randn(3), host_first), "drawing on the device leaves the host's generator alone"
    state = torch.cuda.get_rng_state()
    first = torch.rand(4, device="cuda").cpu()
    torch.nn.functional.dropout(torch.ones(100, device="cuda"), 0.5)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(4, device="cuda").cpu(), first)
    torch.cuda.manual_seed(11)
    assert torch.cuda.initial_seed() == 11
    second = torch.rand(5, device="cuda")
    torch.cuda.manual_seed_all(11)
    assert torch.equal(torch.rand(5, device="cuda"), second)
    generator = torch.Generator(device="cuda").manual_seed(5)
    assert generator.device.type == "cuda"
    third = torch.rand(5, device="cuda", generator=generator)
    assert torch.equal(torch.rand(5, device="cuda", generator=generator.manual_seed(5)), third)
    with torch.random.fork_rng(devices=[0]):
        inside = torch.rand(2, device="cuda").cpu()
    assert torch.equal(torch.rand(2, device="cuda").cpu(), inside)
    dropped = torch.nn.functional.dropout(torch.ones(1000, device="cuda"), 0.5)
    assert 300 < (dropped == 0).sum().item() < 700


def test_generators_of_the_wrong_device_are_refused(dev):
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
        torch.rand(3, device="cuda", generator=torch.Generator())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        torch.rand(3, generator=torch.Generator(device="cuda"))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.zeros(3, device="cuda").normal_(generator=torch.Generator())


def snapshot() -> dict:
    """Everything that a device replaces, by identity."""
    import triton
    import triton.compiler
    import triton.testing
    from triton.language.semantic import TritonSemantic

    owners = (
        torch, torch.cuda, torch.cuda.random, torch.accelerator, torch.version, torch._VF, torch.nn.functional,
        torch.Tensor, triton, triton.compiler, triton.compiler.compiler, triton.testing, TritonSemantic,
    )  # fmt: skip
    found: dict = {(owner.__name__, name): id(value) for owner in owners for name, value in vars(owner).items()}
    found["modes"] = (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack())
    found["driver"] = id(triton.runtime.driver._active)
    return found


def test_everything_is_put_back_also_after_an_error():
    with sim.device("h100"):  # what torch loads lazily on first use is loaded now
        torch.ones(2, device="cuda").sum().item()
    before = snapshot()
    with sim.device("h100"):
        assert snapshot() != before
    assert snapshot() == before
    with pytest.raises(ZeroDivisionError), sim.device("a100"):
        raise ZeroDivisionError
    assert snapshot() == before
    assert not torch.cuda.is_available()
    with pytest.raises((RuntimeError, AssertionError), match="CUDA"):
        torch.zeros(2, device="cuda")


def test_devices_do_not_nest(dev):
    with pytest.raises(RuntimeError, match="already active"), sim.device("a100"):
        pass
    assert torch.cuda.get_device_name() == dev.spec.full_name


def test_wrong_arguments_are_named():
    for wrong, message in (
        ({"name": "gtx970"}, "no GPU named 'gtx970'"),
        ({"checks": "often"}, "checks must be"),
        ({"depth": "deep"}, "depth must be"),
    ):
        with pytest.raises(ValueError, match=message), sim.device(**wrong):
            pass
    with sim.device("h100"):
        pass
