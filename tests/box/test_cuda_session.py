"""A session whose runner holds the tensors: everything but the GPU on the CPU, and all of it with ``-m gpu``."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
import triton
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from drkernel.gym.languages import LANGUAGES
from drkernel.gym.request import EvalSettings
from drkernel.gym.runner import child
from drkernel.gym.runner.child import PASSED
from drkernel.gym.runner.cuda import CudaRunner, Launches, LaunchLog
from drkernel.gym.runner.launcher import JobTerms, Launcher, clean_environment
from drkernel.gym.runner.values import pack
from drkernel.gym.sandbox.layers import RunnerLimits, gpu_facts
from drkernel.gym.session.base import MAX_ANSWER
from drkernel.gym.session.cuda import CudaSession, _told_launches
from drkernel.gym.session.factory import DeviceMissing
from drkernel.gym.session.protocol import SessionError
from drkernel.gym.session.simulated import SimulatedSession

SCALE = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(n))
    def forward(self, x, k=1):
        return x * self.scale * k, x.sum()
"""
TRITON = """
import torch, triton
import triton.language as tl
@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * 2, mask=offsets < n)
class ModelNew:
    def __call__(self, x):
        out = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return torch.relu(out)
"""


UNDER_RELU = "aten.clamp_min"


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def session(request, open_on):
    with open_on(request.param) as session:
        yield session


WRITES_BEHIND = """
import ctypes, torch
class ModelNew:
    def __call__(self, x, behind):
        out = torch.empty_like(x)
        out.copy_(torch.where(x.isnan(), 0, x))
        last = [x, out][behind].as_strided((1,), (1,), x.numel()) if behind < 2 else out
        last.fill_(1.0)
        return out, x.untyped_storage().nbytes() - x.nbytes, x.as_strided((1,), (1,), x.numel()).isnan().item()
"""


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_a_write_behind_an_allocation_shows_and_a_read_there_is_nan(session, behind):
    """Of an input, of what the candidate allocates; and no write, no finding."""
    session.load(WRITES_BEHIND, [], {}, seed=0)
    result = session.call([torch.ones(1000), behind])
    assert result.record.overrun == (behind < 2) and result.outputs[1].value > 0
    assert bool(result.outputs[2].value) == (behind != 0) and result.record.mutated == []
    session.release([result.outputs[0].handle, *result.arguments])
    assert session.call([torch.ones(1000), 2]).record.overrun == 0


def test_outputs_are_read_when_the_whole_card_is_idle(monkeypatch):
    """A candidate may replace PyTorch's function for that."""
    waited, runner = [], object.__new__(CudaRunner)
    monkeypatch.setattr("drkernel.gym.runner.cuda._wait_for_card", lambda: waited.append(1))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    runner._device = torch.device("cuda:0")
    runner._synchronize()
    assert waited


def test_errors_end_as_on_a_simulated_gpu(session):
    session.load("class ModelNew:\n    def __call__(self, x):\n        return x @ x", [], {}, seed=0)
    with pytest.raises(SessionError) as caught:
        session.call([torch.ones(2, 3)])
    assert caught.value.kind == "runtime_error" and caught.value.detail.line == 3
    assert session.call([torch.eye(3)]).outputs[0].value.sum() == 3


def test_calls_are_timed_one_by_one(session):
    source = "import time\nclass ModelNew:\n    def __call__(self, x, s):\n        time.sleep(s); return x + s"
    session.load(source, [], {}, seed=0)
    handle = session.put(torch.zeros(4))
    timed = session.time([[handle, 0.02], [handle, 0.05]], order=[0, 1], flush_bytes=1 << 20, keep=1)
    assert 0.02 <= timed.device_seconds[0] < timed.device_seconds[1] <= sum(timed.device_seconds) < timed.wall_seconds
    assert len(timed.device_seconds) == 2
    assert torch.allclose(timed.kept[0].value, torch.full((4,), 0.05))
    dry = session.time([[handle, 5.0]], order=[0] * 3, flush_bytes=1 << 20, dry=True)
    assert len(dry.device_seconds) == 3 and dry.wall_seconds < 5


def test_sending_outputs_is_in_nobodys_time(session):
    """The clone, the copy to the host and the sending were in the judge's time of the block."""
    source = """
import torch
class ModelNew:
    def __init__(self):
        self.held = torch.ones(64 << 20, dtype=torch.uint8)
    def __call__(self, x):
        return self.held
"""
    session.load(source, [], {}, seed=0)
    sets = [[session.put(torch.zeros(4))]]
    without = min(session.time(sets, order=[0] * 5, flush_bytes=1).wall_seconds for _ in range(5))
    timed = [session.time(sets, order=[0] * 5, flush_bytes=1, keep=2) for _ in range(5)]
    assert {len(one.kept[0].value) for one in timed} == {64 << 20}
    assert min(one.wall_seconds for one in timed) < without + 5e-3  # to clone them alone takes longer


def test_timed_calls_find_other_contents_at_one_address(session):
    """What is remembered by address is wrong, and an output that is an argument stays as it was returned."""
    session.load("class ModelNew:\n    def __call__(self, x):\n        return x.add_(1), x.data_ptr()", [], {}, seed=0)
    sets = [[session.put(torch.full((4,), float(value)))] for value in (10, 20)]
    for keep, value in enumerate([11, 21, 11]):
        kept = session.time(sets, order=[0, 1, 0], flush_bytes=1, keep=keep).kept
        assert kept[0].value.tolist() == [value] * 4
    source = "places = []\nclass ModelNew:\n    def __call__(self, x):\n        places.append(x.data_ptr())\n"
    session.load(source + "        return len(set(places))", [], {}, seed=0)
    assert session.time(sets, order=[0, 1] * 5, flush_bytes=1, keep=9).kept[0].value == 1


def test_an_output_that_is_computed_when_it_is_read_is_refused(session):
    source = """
import torch
class Tensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
class ModelNew:
    def __call__(self, x):
        return [x.as_subclass(Tensor)]
"""
    session.load(source, [], {}, seed=0)
    with pytest.raises(SessionError, match="no plain tensor") as caught:
        session.time([[session.put(torch.zeros(4))]], order=[0], flush_bytes=1, keep=0)
    assert caught.value.kind == "runtime_error"


def test_a_profile_comes_back(session):
    session.load(SCALE, [3], {}, seed=0)
    profile = session.profile([torch.ones(2, 3)], calls=2)
    assert profile.kind == "measured"
    assert (profile.elapsed_seconds > 0) == (session.device.kind == "cuda")  # a trace of the CPU has no device work


def test_a_profile_moves_host_tensors_to_the_device(monkeypatch, tmp_path):
    """They stayed on the host, where a kernel cannot read them. 'meta' stands for a device other than the host."""
    monkeypatch.setattr(JITFunction, "run", JITFunction.run)  # and back after the runner's wrapper
    monkeypatch.setattr(CompiledKernel, "__getitem__", CompiledKernel.__getitem__)
    channel, other = socket.socketpair()
    seen = []
    with channel, other:
        runner = CudaRunner(channel, str(tmp_path), "meta")
        runner._module = lambda *arguments: seen.extend(arguments)
        data, payload = pack([torch.ones(2, 3), 4])
        runner._profile({"inputs": data, "calls": 1}, bytearray(payload))
    assert seen[0].device.type == "meta" and seen[0].shape == (2, 3) and seen[1] == 4


def test_the_operator_that_launches_relus_kernel():
    """A kernel of a trace belongs to the innermost operator, which the test on a GPU names."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.relu(torch.ones(3))
    names = [event.name for event in profiler.events()]
    assert names[-2:] == ["aten::relu", UNDER_RELU.replace(".", "::")]


LIES = [{"events": []}, {"events": [-1.0]}, {"events": ["x"]}, 3]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_times_of_the_wrong_form_are_tampering(session, monkeypatch, lie):
    monkeypatch.setattr(session, "_ask_for_data", lambda header, payload, **sizes: (lie, bytearray()))
    with pytest.raises(SessionError) as caught:
        session.time([[]], order=[0], flush_bytes=1)
    assert caught.value.kind == "tampering"


@pytest.mark.parametrize("seconds", [0.0, -0.0, -1e-6])
def test_a_call_that_took_no_time_is_tampering(session, monkeypatch, seconds):
    """It went on to the statistics, which refused it as the machine's fault, and that is never scored."""
    answer = {"events": [1e-3, seconds], "outputs": [], "type": "Tensor"}
    monkeypatch.setattr(session, "_ask_for_data", lambda header, payload, **sizes: (answer, bytearray()))
    with pytest.raises(SessionError) as caught:
        session.time([[]], order=[0, 0], flush_bytes=1)
    assert caught.value.kind == "tampering"


def test_an_empty_block_may_take_no_time(session, monkeypatch):
    answer = {"events": [0.0], "outputs": [], "type": "NoneType"}
    monkeypatch.setattr(session, "_ask_for_data", lambda header, payload, **sizes: (answer, bytearray()))
    assert session.time([[]], order=[0], flush_bytes=1, dry=True).device_seconds == (0.0,)


class Kernel:
    def __init__(self, number):
        def kernel(): ...

        kernel.__name__ = kernel.__qualname__ = f"kernel_{number}_of_a_name_that_says_what_it_is_for"
        self.fn = kernel


def test_tunings_launches_fit_an_answer(monkeypatch):
    """Every launch had an entry of its own: a tuner of 48 configurations made an answer that was too long."""
    monkeypatch.setattr(JITFunction, "run", lambda *args, **kwargs: None)  # and back after the log's wrapper
    monkeypatch.setattr(CompiledKernel, "__getitem__", CompiledKernel.__getitem__)
    log = LaunchLog()
    log.install()
    kernels = [Kernel(number) for number in range(1000)]
    with log.recording(skip=False) as launches:
        for kernel in kernels:
            for _ in range(100):
                JITFunction.run(kernel, grid=(1,), warmup=False)
        JITFunction.run(Kernel(1000), grid=(1,), warmup=True)  # compiles only
    told = launches.told()
    assert len(json.dumps(told)) < MAX_ANSWER // 4
    assert [launch.name for launch in _told_launches(told)] == [kernel.fn.__name__ for kernel in kernels]
    assert {launch.times for launch in _told_launches(told)} == {100}


def test_more_kernels_than_an_answer_holds_are_left_out():
    launches = Launches()
    for number in range(100_000):
        launches.add("kernel", f"{number}" + "\N{CJK UNIFIED IDEOGRAPH-4E2D}" * 1000)
    assert len(launches.told()) > 500 and len(json.dumps(launches.told())) < MAX_ANSWER
    assert launches.told()[0]["identity"].startswith("0")


@pytest.mark.parametrize("times", [[0], [-1], [True], ["3"], [1.5], [3, 4]], ids=str)
def test_a_count_of_launches_that_contradicts_itself_is_refused(times):
    with pytest.raises(ValueError, match="a kernel"):
        _told_launches([{"name": "double", "identity": "candidate.double", "times": count} for count in times])


def test_disturbing_is_not_offered(session):
    session.load(SCALE, [3], {}, seed=0)
    with pytest.raises(ValueError, match="'disturb' is not offered for Triton"):
        session.call([torch.ones(3)], interference="disturb")


def test_asking_for_a_gpu_that_is_not_there(gym):
    with pytest.raises(DeviceMissing, match="no cuda:99 on this machine"):
        gym.factory.open(EvalSettings(device="cuda:99"))


def start(gym, device: str) -> SessionError:
    """The error of a session whose runner cannot start."""
    launcher = gym.factory._alive()
    with pytest.raises(SessionError) as caught:
        CudaSession(launcher, EvalSettings(), launcher.spawn(JobTerms(device, RunnerLimits(), 0)))
    return caught.value


def test_a_runner_that_cannot_start_cuda_is_not_the_candidates_fault(gym):
    """It was: the first request to it ended in a runtime error."""
    error = start(gym, "cuda:999")
    assert error.kind == "infra_error" and error.detail.type == "RunnerNotStarted"
    assert "cuda:999" in error.detail.message and "does not start: " in error.detail.message


CARDS = [
    ("cuda:1", {"CUDA_VISIBLE_DEVICES": "5,7"}, ["CUDA_VISIBLE_DEVICES=7"]),
    ("cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-8a1f, 3"}, ["CUDA_VISIBLE_DEVICES=GPU-8a1f"]),
    ("cuda:2", {}, ["CUDA_VISIBLE_DEVICES=2"]),
    (
        "cuda:0",
        {"CUDA_VISIBLE_DEVICES": "MIG-77", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        ["CUDA_VISIBLE_DEVICES=MIG-77", "CUDA_DEVICE_ORDER=PCI_BUS_ID"],
    ),
]


@pytest.mark.parametrize("device, environment, seen", CARDS)
def test_a_runner_is_shown_the_card_that_the_judge_means_and_no_other(gym, monkeypatch, device, environment, seen):
    """It was shown all of them, whatever the judge's own list said. Without a GPU it says what it was shown."""
    if torch.cuda.is_available():
        pytest.skip("on a machine with a GPU the runner would start")
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("drkernel.gym.session.factory.SessionFactory._stock", lambda *_: None)
    opened = []
    monkeypatch.setattr(gym.factory, "_take", lambda launcher, terms: opened.append(terms))
    with pytest.raises(SessionError) as caught:
        gym.factory.open(EvalSettings(device=device))
    assert f"{device}, as cuda:0 {' '.join(seen)}, does not start" in caught.value.detail.message
    assert [terms.device for terms in opened] == [device]  # the verdict's name stays the one that was asked for
    usual = 2 * EvalSettings().deadline_s
    assert (
        opened[0].limits.cpu_s >= usual + 2 * LANGUAGES["cuda"].compile_s
    )  # the deadline grows by it once the source is known


REVEALED = """
import os
class ModelNew:
    def __call__(self):
        print(sorted(os.environ.items()))
        return 1
"""


GIVEN = {
    "LD_LIBRARY_PATH": "/opt/driver/lib", "CUDA_HOME": "/opt/cuda", "CUDA_PATH": "/opt/cuda",
    "TRITON_LIBCUDA_PATH": "/opt/driver/lib", "CC": "/usr/bin/cc",
    "CXX": "/usr/bin/c++", "CUDAHOSTCXX": "/usr/bin/c++",
}  # fmt: skip
SECRET = {"HF_TOKEN": "s3cret", "DRKERNEL_TOKEN": "s3cret", "LD_AUDIT_": "s3cret", "CUDA_SECRET": "s3cret"}


@pytest.fixture
def with_paths(monkeypatch):
    for name, value in {**GIVEN, **SECRET}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("gpu", [True, False])
def test_paths_of_cuda_pass_and_nothing_secret_does(with_paths, monkeypatch, tmp_path, gpu):
    """They were dropped, so that a toolkit or driver outside of the usual folders was not found."""
    given = clean_environment()
    assert set(PASSED) == set(GIVEN) and GIVEN.items() <= given.items()
    threads = {f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")}
    assert set(given) == {*GIVEN, *threads, "PATH", "LANG", "HOME"}
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", {**given, **SECRET})
    child._enter(str(tmp_path), "/usr/bin", gpu=gpu)
    assert (GIVEN.items() <= os.environ.items()) == gpu and (GIVEN.keys().isdisjoint(os.environ)) != gpu
    assert "s3cret" not in os.environ.values() and os.environ["HOME"] == str(tmp_path)


@pytest.mark.slow
def test_a_zygotes_runners_find_the_paths_of_cuda(with_paths):
    launcher = Launcher()
    try:
        for device in ("cpu", "sim:h200"):
            job = launcher.spawn(JobTerms(device, RunnerLimits(), 1 << 28))
            with (CudaSession if device == "cpu" else SimulatedSession)(launcher, EvalSettings(), job) as session:
                session.load(REVEALED, [], {}, seed=0)
                session.call([])
                revealed = session.stdout()
            assert "s3cret" not in revealed and "PATH" in revealed
            assert all((repr(given) in revealed) == (device == "cpu") for given in GIVEN.items())
    finally:
        launcher.close()


def test_a_runner_may_read_cudas_own_folders_of_a_search_path_only(monkeypatch, tmp_path):
    for name in ("driver/libcuda.so.1", "cuda/bin/nvcc", "gcc/bin/gcc", "private/notes"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    driver, cuda, gcc, private = (str(tmp_path / name) for name in ("driver", "cuda", "gcc", "private"))
    before = gpu_facts()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{private}:{driver}::lib")
    monkeypatch.setenv("CUDA_HOME", cuda)
    monkeypatch.setenv("CUDA_PATH", private)
    monkeypatch.setenv("CC", f"{gcc}/bin/gcc")
    monkeypatch.setenv("CXX", f"{private}/bin/none")
    assert set(gpu_facts()) - set(before) == {driver, cuda, gcc}


COUNTS = """
import threading, time
class ModelNew:
    def __init__(self):
        self.count = 0
        threading.Thread(target=self.run, daemon=True).start()
    def run(self):
        while True:
            self.count += 1
            time.sleep(0.001)
    def __call__(self):
        return self.count
"""


def test_a_candidate_stands_still_while_its_reference_is_timed(open_on):
    """Work that it went on starting in a thread would slow the reference."""
    with open_on("cpu", EXECUTES) as session:
        session.load(COUNTS, [], {}, seed=0)
        before = session.call([]).outputs[0].value
        with session.stopped():
            time.sleep(0.5)
        after = session.call([]).outputs[0].value
        assert after - before < 200
        time.sleep(0.5)
        assert session.call([]).outputs[0].value - after > 250


STARTS_AS_THE_DRIVER = """
import fcntl, os, socket, threading
def named():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write("of-driver")
class ModelNew:
    def __call__(self):
        thread = threading.Thread(target=named)
        thread.start()
        thread.join()
        os.close(os.memfd_create("x"))
        open("/proc/sys/kernel/random/boot_id").close()
        with open("compiled", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listening.bind("\\0of-driver")
        listening.listen()
        try:
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect("\\0of-driver")
        except PermissionError:
            print("not connected", flush=True)
        return 1
"""


def test_what_nvidias_driver_does_when_it_starts_is_allowed(open_on):
    """Each of these was refused, and cuInit failed with error 304 on the first card that this ran on; without the lock
    torch.compile compiles nothing."""
    with open_on("cpu", EXECUTES) as session:
        session.load(STARTS_AS_THE_DRIVER, [], {}, seed=0)
        session.call([])
        assert session.stdout().strip() == "not connected"


EXECUTES = RunnerLimits(memory_bytes=1 << 30, allow_exec=True, processes=512, open_files=4096)
COMPILES = """
from triton.runtime.build import compile_module_from_src
SOURCE = '''
#include <Python.h>
static struct PyModuleDef probe = {PyModuleDef_HEAD_INIT, "probe"};
PyMODINIT_FUNC PyInit_probe(void) { return PyModule_Create(&probe); }
'''
class ModelNew:
    def __call__(self):
        return int(compile_module_from_src(SOURCE, "probe").__name__ == "probe")
"""


def test_a_compiler_in_the_sandbox_reads_pythons_headers(open_on):
    """As root with Python under a home that is closed to others it did not: the compiler had lost what lets it."""
    with open_on("cpu", EXECUTES) as session:
        session.load(COMPILES, [], {}, seed=0)
        assert session.call([]).outputs[0].value == 1, session.stdout()


COMPILED = """
import torch
def forward(x):
    return torch.relu(x * 2) + 1
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.compiled = torch.compile(forward)
    def forward(self, x):
        return self.compiled(x)
"""


@pytest.mark.slow
def test_a_candidate_may_compile(open_on):
    """Dynamo reads the source of whatever watches operators, and Landlock hides it."""
    with open_on("cpu", EXECUTES) as session:
        session.load(COMPILED, [], {}, seed=0)
        first = session.call([torch.ones(2, 3)])
        assert first.outputs[0].value.tolist() == [[3.0] * 3] * 2, session.stdout()
        assert first.record.operators.keys().isdisjoint({"aten.mul", "aten.relu"})  # one compiled loop
        assert session.call([torch.zeros(2, 3)]).outputs[0].value.sum() == 6
        timed = session.time([first.arguments], order=[0] * 3, flush_bytes=1, keep=1)
        assert timed.kept[0].value.sum() == 18


MACHINE_CODE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
class ModelNew:
    def __call__(self):
        signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
        kernel = triton.compile(ASTSource(double, signature, {"BLOCK": 256}), target=GPUTarget("cuda", 90, 32))
        return len(kernel.asm["cubin"])
"""


def test_a_kernel_compiles_to_machine_code_in_the_sandbox(open_on):
    """By ptxas, a program of its own; no driver is needed for it."""
    with open_on("cpu", EXECUTES) as session:
        session.load(TRITON.partition("class ModelNew")[0] + MACHINE_CODE, [], {}, seed=0)
        assert session.call([]).outputs[0].value > 1000, session.stdout()


BUILT = """
import torch
from torch.utils.cpp_extension import load_inline
built = load_inline("built", cpp_sources="torch::Tensor twice(torch::Tensor x) { return x * 2; }", functions=["twice"])
class ModelNew:
    def __call__(self, x):
        return built.twice(x)
"""


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("ninja") and shutil.which("g++")), reason="needs ninja and g++")
def test_an_extension_builds_in_the_sandbox(open_on):
    """By ninja and g++, with torch's headers; on a card nvcc beside them."""
    limits = RunnerLimits(memory_bytes=4 << 30, allow_exec=True, processes=512, open_files=4096, cpu_s=300)
    with open_on("cpu", limits, deadline_s=300) as session:
        session.load(BUILT, [], {}, seed=0)
        assert session.call([torch.ones(3)]).outputs[0].value.tolist() == [2.0] * 3


REACHES_THE_DRIVER = """
import os, shutil
os.environ["CC"] = "/bin/false"
from triton.backends.nvidia.driver import CudaUtils
class ModelNew:
    def __call__(self):
        return int(callable(CudaUtils().load_binary))
"""


@pytest.mark.slow
def test_tritons_driver_helper_is_built_once_for_all_runners(monkeypatch, tmp_path):
    """Every candidate built it. A library with the driver's functions, which do nothing, stands for libcuda.so.1."""
    driver = Path(triton.__file__).parent / "backends/nvidia/driver.c"
    names = set(re.findall(r"\bcu[A-Z]\w+", driver.read_text()))
    stub = tmp_path / "stub.c"
    stub.write_text("".join(f"int {name}() {{ return 0; }}\n" for name in sorted(names)))
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", stub], check=True)
    tmp_path.chmod(0o755)
    monkeypatch.setenv("TRITON_LIBCUDA_PATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    launcher = Launcher()
    try:
        for _ in range(2):
            with CudaSession(launcher, EvalSettings(), launcher.spawn(JobTerms("cpu", EXECUTES, 0))) as session:
                session.load(REACHES_THE_DRIVER, [], {}, seed=0)
                assert session.call([]).outputs[0].value == 1, session.stdout()
    finally:
        launcher.close()


def test_the_candidate_finds_the_variables_of_its_card(gym):
    launcher = gym.factory._alive()
    job = launcher.spawn(JobTerms("cpu", RunnerLimits(), 0, visible={"CUDA_VISIBLE_DEVICES": "GPU-8a1f"}))
    source = """
import os
class ModelNew:
    def __call__(self):
        return int(os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-8a1f")
"""
    with CudaSession(launcher, EvalSettings(), job) as session:
        session.load(source, [], {}, seed=0)
        assert session.call([]).outputs[0].value == 1


def test_a_runner_that_dies_before_it_greets_is_not_the_candidates_fault(gym):
    launcher = gym.factory._alive()
    job = launcher.spawn(JobTerms("cpu", RunnerLimits(), 0))
    job.result.close()
    job.result, closed = socket.socketpair()
    closed.close()
    with pytest.raises(SessionError) as caught:
        CudaSession(launcher, EvalSettings(), job)
    assert caught.value.kind == "infra_error" and "the runner did not start" in caught.value.detail.message


def runs_triton(session, flush_bytes):
    """A kernel and an operator of PyTorch's: values, launches, the knock-out, times, whose time is whose."""
    session.load(TRITON, [], {}, seed=0)
    x = torch.randn(1000)
    result = session.call([x], poison="nan")
    assert torch.equal(result.outputs[0].value, torch.relu(x * 2))
    assert [launch.name for launch in result.record.launches] == ["double"]
    assert result.record.operators in ({UNDER_RELU: 1}, {"aten.relu": 1})
    skipped = session.call([x], poison="nan", interference="skip").outputs[0].value
    assert not torch.equal(skipped, torch.relu(x * 2))
    handle = session.put(x)
    timed = session.time([[handle]], order=[0] * 5, flush_bytes=flush_bytes, keep=3)
    assert min(timed.device_seconds) > 0 and sum(timed.device_seconds) < timed.wall_seconds
    assert torch.equal(timed.kept[0].value, torch.relu(x * 2))
    rows = {row.name: row.owner for row in session.profile([handle], calls=3).rows}
    assert rows.pop("double") == "custom" and set(rows.values()) == {"library"}
    return rows


@pytest.mark.gpu
def test_triton_on_the_gpu(session):
    if session.device.name != "cuda:0":
        pytest.skip("needs the GPU")
    assert UNDER_RELU in runs_triton(session, 256 << 20)
