"""The judge with a runner that holds the tensors: everything but the GPU on the CPU, and all of it with ``-m gpu``.

On the CPU no Triton kernel runs, so a candidate there has no kernel of its own; what is tested is the flow: weights,
checks, blocks in turns, kept outputs, clocks and the floor. The interval of a reference against itself is real.
"""

import re
import time

import pytest
import torch

from corpus_grading import entry_named, task_named
from drkernel.gym.judge import measured_timing as cuda
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.judge import Trial, evaluate
from drkernel.gym.judge.measured_timing import Block
from drkernel.gym.languages import TracedKernel
from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.runner.launcher import JobTerms
from drkernel.gym.sandbox.layers import RunnerLimits
from drkernel.gym.session.cuda import CudaSession, Trace, read_trace
from drkernel.sim.spec import get_spec, own_card, spec_called
from drkernel.task import Task
from drkernel.tasks.oracle import tolerance_for
from drkernel.verdict import Profile, ProfileRow
from gym_harness import grade as grade_on

SETTINGS = EvalSettings(device="cuda:0", profile=None, trials=10, deadline_s=60, memory_bytes=1 << 30)
TERMS = SETTINGS.model_dump() | {"checks": 1, "other_calls": False, "knock_out": False, "trials": 1}
EXECUTES = RunnerLimits(allow_exec=True, processes=512, open_files=4096)
MODULE = """
import time
import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(96)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        {body}
"""


class CpuFactory:
    """Opens 'CUDA' sessions whose device is the CPU."""

    def __init__(self, gym):
        self.launcher = gym.factory._alive()
        self.health, self.close = dict, lambda: None

    def open(self, settings: EvalSettings) -> CudaSession:
        return CudaSession(self.launcher, settings, self.launcher.spawn(JobTerms("cpu", EXECUTES, 0)))


@pytest.fixture
def on_cpu(gym, monkeypatch):
    monkeypatch.setattr(cuda, "FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr(cuda, "BLOCK_SECONDS", 1e-3)
    monkeypatch.setattr("drkernel.gym.judge.checks.DEVICES", ("cuda", "cpu"))
    return CpuFactory(gym)


def grade(factory, source: str, task: Task | None = None, **settings):
    terms = SETTINGS.model_dump() | settings
    return grade_on(task or "layer_norm", source, factory, **terms)


def test_flow_times_and_findings(on_cpu):
    verdict = grade(on_cpu, MODULE.format(body="return self.norm(x)"))
    cheats = {finding.kind for finding in verdict.findings if finding.severity == "hack"}
    assert cheats - {"clock_disagreement"} == {"no_custom_kernel"}  # a busy machine's clock is not what is tested
    assert verdict.correctness.passed_calls == verdict.correctness.checked_calls >= 4
    assert verdict.timing.kind == "measured" and len(verdict.timing.samples) >= 10
    assert verdict.speedup.low <= verdict.speedup.value <= verdict.speedup.high
    left = {item.check for item in verdict.not_checked}
    assert left >= {"copy_kernel", "race", "late_work", "decoy_kernel (results disturbed)"}
    assert "host_compute" not in left  # the host's work is in a measured time
    assert verdict.coverage_source == "runner"
    assert verdict.coverage == 0.0 and verdict.reference_timing.seconds > 0


INLINE = """
from torch.utils.cpp_extension import load_inline
build = load_inline
SOURCE = "__global__ void norm_rows(const float* x, float* out, int n) {}"
"""


@pytest.mark.parametrize("kernel", ["norm_rows(float const*, float*, int)", "cublas_gemv(float const*)"])
def test_a_cuda_candidates_launches_are_told_by_the_trace(on_cpu, monkeypatch, kernel):
    """On the CPU no kernel runs: one of a recorded trace is put into the trace that the runner sends."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    traces = []

    def with_a_kernel(data):
        traces.append(read_trace(data))
        return Trace((TracedKernel(kernel, 1e-4, None),), (), 1e-4)

    monkeypatch.setattr("drkernel.gym.session.cuda.read_trace", with_a_kernel)
    verdict = grade(on_cpu, INLINE + MODULE.format(body="return self.norm(x)"))
    kinds = {finding.kind for finding in verdict.findings if finding.severity == "hack"} - {"clock_disagreement"}
    assert verdict.language == "cuda" and verdict.correctness.passed_calls == verdict.correctness.checked_calls
    assert len(traces) >= verdict.correctness.checked_calls  # every checked call sent a trace of its own
    assert "decoy_kernel (launches skipped)" in {item.check for item in verdict.not_checked}
    if kernel.startswith("norm_rows"):
        assert kinds == set() and verdict.coverage == 1.0 and verdict.coverage_source == "runner"
    else:
        assert kinds == {"no_custom_kernel"} and verdict.coverage == 0.0


@pytest.fixture
def own_kernel(monkeypatch):
    """Every trace holds a kernel of a CUDA C++ candidate's own, so that it is no hack to begin with."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    trace = Trace((TracedKernel("norm_rows(float const*, float*, int)", 1e-4, None),), (), 1e-4)
    monkeypatch.setattr("drkernel.gym.session.cuda.read_trace", lambda data: trace)


def test_a_wrong_answer_in_a_timed_call_is_found(on_cpu, own_kernel):
    verdict = grade(on_cpu, INLINE + MODULE.format(body="return self.norm(x) if self.calls < 12 else x * 0"))
    assert verdict.status == "incorrect" and verdict.speedup is None
    assert "wrong_when_timed" in [finding.kind for finding in verdict.findings]


def test_what_writes_behind_an_allocation_is_incorrect(on_cpu, own_kernel):
    """On a simulated GPU it is an illegal access; PyTorch's allocator has room there, so that a real one goes on."""
    body = "y = torch.empty_like(x).copy_(x); y.as_strided((1,), (1,), y.numel()).zero_(); return self.norm(y)"
    verdict = grade(on_cpu, INLINE + MODULE.format(body=body))
    assert verdict.status == "incorrect" and verdict.speedup is None
    found = next(finding for finding in verdict.findings if finding.kind == "out_of_bounds")
    assert found.severity == "bug" and found.evidence["allocations"] == 1


def test_a_candidate_that_fails_when_timed_fails(on_cpu, own_kernel):
    verdict = grade(on_cpu, INLINE + MODULE.format(body="assert self.calls < 12; return self.norm(x)"))
    assert verdict.status == "runtime_error" and verdict.error.type == "AssertionError" and verdict.speedup is None


DOUBLE = """
import time
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        time.sleep({seconds})
        return x * 2
def get_inputs():
    return [torch.rand({size})]
def get_init_inputs():
    return []
"""


def double(size: int, seconds: float) -> tuple[str, Task]:
    """A candidate that is the reference with another name, and the task."""
    reference = DOUBLE.format(size=size, seconds=seconds)
    return INLINE + reference.replace("class Model(", "class ModelNew("), Task(id="double", reference=reference)


def test_a_kept_output_of_some_size_accuses_nobody(on_cpu, own_kernel):
    """Its clone, its way to the host and its sending were in the judge's time of the block: clock_disagreement."""
    verdict = grade(on_cpu, *double(size=1 << 18, seconds=0.0), checks=1, other_calls=False, knock_out=False)
    assert verdict.is_correct, verdict.findings


SIZED = """
import torch
ROWS = 4000
class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.randn(24))
        self.calls = 0
        self.kept = None
    def forward(self, x, where):
        {body}
        return torch.softmax(x * self.gain, -1), x.argmax(-1), where + 1
def get_inputs():
    return [torch.randn(ROWS, 24), torch.randint(100, (ROWS,))]
def get_init_inputs():
    return []
"""


def sized(body: str = "pass") -> tuple[str, Task]:
    """A candidate, the reference with ``body`` in front, and a task that is checked at 16 rows and timed at 4000."""
    task = Task(id="sized", reference=SIZED.format(name="Model", body="pass"), profiles={"tiny": {"ROWS": 16}})
    return INLINE + SIZED.format(name="ModelNew", body=body), task


def test_a_card_checks_small_and_times_the_tasks_own_sizes(on_cpu, own_kernel, monkeypatch):
    """`tiny` was timed. Inputs go over in parts, and of outputs a part comes back."""
    monkeypatch.setattr("drkernel.gym.session.cuda.PART", 1 << 14)
    source, task = sized()
    verdict = grade(on_cpu, source, task, profile="tiny", co_judge="off")
    assert verdict.is_correct, (verdict.error, verdict.correctness, verdict.findings)
    assert (verdict.checked_at.profile, verdict.timed_at.profile) == ("tiny", None)
    assert any("4000" in words for words in verdict.timed_at.inputs) and verdict.untimed is None
    assert verdict.timing.kind == "measured" and len(verdict.timing.samples) >= 10
    small = grade(on_cpu, source, task, profile="tiny", time_at="checked", co_judge="off")
    assert small.timed_at == small.checked_at


REMEMBERS = """
        if len(x) > 16:
            self.kept = self.kept or (torch.softmax(x * self.gain, -1), x.argmax(-1), where + 1)
            return self.kept"""


@pytest.mark.parametrize(
    "body, said",
    [
        ("x = x if len(x) < 4000 else x * 0.5", "is wrong|should be"),
        ("x = x if len(x) < 4000 else x[:-1]", "outputs are"),
        (REMEMBERS, "should be"),
    ],
)
def test_what_is_wrong_at_the_tasks_own_sizes_alone_is_found(on_cpu, own_kernel, body, said):
    source, task = sized(body)
    verdict = grade(on_cpu, source, task, **{**TERMS, "profile": "tiny"})
    assert verdict.status == "incorrect" and verdict.speedup is None, verdict.findings
    (finding,) = [one for one in verdict.findings if one.kind == "wrong_when_timed"]
    assert re.search(said, finding.message), finding.message


def test_own_sizes_beyond_this_machine_are_said_and_the_checked_ones_timed(on_cpu, own_kernel, monkeypatch):
    monkeypatch.setattr(cuda, "default_budget", lambda: 4000 * 24)
    source, task = sized()
    verdict = grade(on_cpu, source, task, **{**TERMS, "profile": "tiny"})
    assert verdict.timed_at == verdict.checked_at and verdict.timing.kind == "measured"
    assert "inputs and weights take" in verdict.untimed


def test_a_choice_that_rounding_flips_is_no_mistake():
    rule, values = tolerance_for("fp32"), torch.zeros(5000, dtype=torch.long)
    flipped = torch.where(torch.arange(5000) < 5, 1, values)
    assert cuda.compare_samples([flipped], [values], rule).passed_calls == 1
    assert cuda.compare_samples([torch.where(torch.arange(5000) < 10, 1, values)], [values], rule).passed_calls == 0
    exact = torch.randn(5000)
    assert cuda.compare_samples([exact * (1 + 1e-5)], [exact], rule).passed_calls == 1
    assert cuda.compare_samples([exact * (1 + 1e-2)], [exact], rule).passed_calls == 0


@pytest.mark.slow
def test_a_compiled_baseline_is_measured(on_cpu, own_kernel):
    """Dynamo read the source of what counts operators, which Landlock hides."""
    source, task = double(size=64, seconds=0.0)
    verdict = grade(on_cpu, source, task, baseline="compile", deadline_s=300)
    assert verdict.is_correct and verdict.baseline == "compile", (verdict.status, verdict.error, verdict.findings)
    assert verdict.reference_timing.seconds > 0


@pytest.mark.slow
def test_two_pools_never_use_one_card_at_once(on_cpu, own_kernel, monkeypatch, tmp_path):
    """Each of a pool's slots timed on a card, beside every other pool's. Two names, as two judges may give it."""
    monkeypatch.setattr("drkernel.gym.device.LOCKS", str(tmp_path))
    monkeypatch.setattr("drkernel.gym.device.uuid_of", lambda device: "GPU-fake")
    spans, whole = [], Trial.run

    def run(trial, side, session):
        start = time.monotonic()
        whole(trial, side, session)
        spans.append((start, time.monotonic()))

    monkeypatch.setattr(Trial, "run", run)
    source, task = double(size=64, seconds=0.02)
    with LocalPool(1, judge=evaluate, factory=on_cpu) as one, LocalPool(1, judge=evaluate, factory=on_cpu) as other:
        requests = [
            EvalRequest(task=task, candidate=source, settings=EvalSettings(**{**TERMS, "device": device}))
            for device in ("cuda:0", "cuda:1")
        ]
        futures = [pool.submit(request) for pool, request in zip((one, other), requests, strict=True)]
        assert [future.result(120).status for future in futures] == ["correct"] * 2
    first, second = sorted(spans)
    assert first[1] <= second[0]


FORGED = """
import drkernel.gym.runner.cuda
whole = drkernel.gym.runner.cuda._HostMark.elapsed_time
drkernel.gym.runner.cuda._HostMark.elapsed_time = lambda self, end: whole(self, end) * 0.3
"""


def test_forged_events_condemn_and_gain_nothing(on_cpu, own_kernel, monkeypatch):
    """Three tenths of the time were a speedup of three."""
    monkeypatch.setattr(cuda, "BLOCK_SECONDS", 0.05)
    source, task = double(size=64, seconds=0.005)
    verdict = grade(on_cpu, FORGED + source, task)
    assert verdict.status == "hack" and [finding.kind for finding in verdict.findings] == ["clock_disagreement"]
    assert 0.5 < verdict.speedup.value < 1.5


TIMELESS = """
import torch
import drkernel.gym.runner.cuda
drkernel.gym.runner.cuda._HostMark.elapsed_time = lambda self, end: 0.0
"""


def test_forged_events_of_no_time_are_tampering(on_cpu, own_kernel):
    verdict = grade(on_cpu, INLINE + TIMELESS + MODULE.format(body="return self.norm(x)"))
    assert verdict.is_of_candidate and verdict.speedup is None
    assert "tampering" in [finding.kind for finding in verdict.findings], verdict.status


def test_a_reference_that_fails_is_not_the_candidates_fault(on_cpu, monkeypatch):
    monkeypatch.setitem(cuda.WRAPPERS, "eager", "\nclass ModelNew: pass\n")
    verdict = grade(on_cpu, MODULE.format(body="return self.norm(x)"))
    assert verdict.status == "invalid_request" and "the reference does not run on the GPU" in verdict.error.message


FULL = """
class ModelNew(Model):
    calls = 0
    def forward(self, *inputs):
        ModelNew.calls += 1
        if ModelNew.calls > {calls}:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().forward(*inputs)
"""


@pytest.mark.parametrize("calls", [0, 3, 16])  # in the warm-up, in a timed block, and when it is profiled
def test_a_reference_that_finds_no_memory_on_a_shared_gpu_is_tried_again(on_cpu, own_kernel, monkeypatch, calls):
    monkeypatch.setitem(cuda.WRAPPERS, "eager", FULL.format(calls=calls))
    verdict = grade(on_cpu, INLINE + MODULE.format(body="return self.norm(x)"))
    assert (verdict.status, verdict.is_of_candidate) == ("infra_error", False)
    assert verdict.error.type == "ReferenceOutOfMemory" and "Tried to allocate" in verdict.error.message


def test_a_candidate_that_finds_no_memory_on_the_gpu_is_out_of_memory(on_cpu, own_kernel):
    body = "if self.calls > 12: raise torch.OutOfMemoryError('CUDA out of memory.')\n        return self.norm(x)"
    assert grade(on_cpu, INLINE + MODULE.format(body=body)).status == "out_of_memory"


def test_no_gpu_is_an_invalid_request_that_says_so(gym):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    verdict = grade(gym.factory, MODULE.format(body="return self.norm(x)"))
    assert verdict.status == "invalid_request" and "no cuda:0 on this machine" in verdict.error.message


@pytest.mark.slow
def test_a_reference_against_itself_contains_one_in_most_runs(on_cpu, own_kernel, monkeypatch):
    """Nominally 95%; 12 runs with the real noise of a CPU that others use too, so the bar is 9."""
    monkeypatch.setattr(cuda, "BLOCK_SECONDS", 0.05)
    source, task = double(size=1 << 14, seconds=0.0)
    values = []
    for _ in range(12):
        verdict = grade(on_cpu, source, task, **{**TERMS, "trials": 40})
        assert verdict.speedup is not None, (verdict.status, verdict.error, verdict.correctness)
        values.append((verdict.speedup.low, verdict.speedup.value, verdict.speedup.high))
    assert sum(low <= 1.0 <= high for low, _, high in values) >= 9, values


class TestConclusions:
    """What follows from times and profiles, on made-up ones."""

    def conclude(self, ours: Block, theirs: Block, monkeypatch, task: str = "softmax"):
        side = ExpectedSide(EvalRequest(task=task_named(task), candidate="", settings=SETTINGS))
        monkeypatch.setattr(cuda, "gpu_name", lambda device: "NVIDIA H200")
        empty = Profile(kind="measured", device="cuda:0", total_seconds=0, elapsed_seconds=0)
        pairs = cuda._Pairs(side, None, None)
        pairs.ours, pairs.theirs = [ours] * 4, [theirs] * 4
        return cuda._conclude(pairs, empty, empty, SETTINGS)

    def test_clocks_that_disagree_condemn(self, monkeypatch):
        escaping = Block((1e-6,) * 5, 5e-3)
        found = self.conclude(escaping, Block((1e-3,) * 5, 5.1e-3), monkeypatch)
        assert [f.kind for f in found.findings] == ["clock_disagreement"]

    def test_a_time_under_the_floor_condemns(self, monkeypatch):
        bandwidth = get_spec("h200").dram_bandwidth
        read = 24 * 100 * 4 / bandwidth
        found = self.conclude(Block((read / 2,) * 5, 0.0), Block((read * 3,) * 5, 0.0), monkeypatch)
        assert [f.kind for f in found.findings] == ["below_roofline"]

    def test_a_reference_that_reads_less_than_its_inputs_lifts_the_floor(self, monkeypatch):
        read = 24 * 100 * 4 / get_spec("h200").dram_bandwidth
        found = self.conclude(Block((read / 4,) * 5, 0.0), Block((read / 2,) * 5, 0.0), monkeypatch)
        assert found.findings == [] and found.speedup.value == pytest.approx(2.0)

    def test_only_launched_kernels_are_the_candidates_own(self):
        rows = [
            ProfileRow(name="softmax_kernel", owner="custom", calls=1, seconds=1e-6, share=0.5),
            ProfileRow(name="ampere_sgemm", owner="custom", calls=1, seconds=1e-6, share=0.5),
        ]
        profile = Profile(kind="measured", device="cuda:0", rows=tuple(rows), total_seconds=2e-6, elapsed_seconds=3e-6)
        assert cuda.owned(profile, {"softmax_kernel"}).coverage == 0.5

    @pytest.mark.parametrize(
        "called, name",
        [
            ("NVIDIA H200", "h200"), ("NVIDIA H100 PCIe", "h100_pcie"), ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA GeForce RTX 4090", "rtx4090"), ("NVIDIA A100-SXM4-40GB", "a100_40"), ("NVIDIA H100 NVL", None),
            ("NVIDIA GH200 480GB", "gh200"), ("NVIDIA GH200 144G HBM3e", None), ("NVIDIA H20", None),
            ("NVIDIA RTX A6000", "rtx_a6000"), ("NVIDIA RTX 6000 Ada Generation", None),
        ],
    )  # fmt: skip
    def test_gpus_are_known_by_their_full_name(self, called, name):
        """Words of it were looked up: an RTX 4090 was unknown, an H100 PCIe and an NVL taken for the H100."""
        spec = spec_called(called)
        assert (None if spec is None else spec.name) == name

    def test_a_gpu_without_a_card_is_named_with_the_fix(self, monkeypatch, tmp_path):
        """Its times were held against no floor, and the verdict was silent; a card of its name is known."""
        monkeypatch.setattr(cuda, "gpu_name", lambda device: "NVIDIA H20")
        (unchecked,) = cuda.without_floor(SETTINGS)
        assert unchecked.check == "below_roofline"
        assert "'NVIDIA H20'" in unchecked.why and "--co-judge sim:card.yaml" in unchecked.why
        monkeypatch.setattr("drkernel.sim.spec._own", {})
        monkeypatch.setenv("DRKERNEL_CARDS", "{}")
        (tmp_path / "mine.yaml").write_text("base: h100\nfields: {full_name: NVIDIA H20, hbm_bandwidth: 4.0e12}\n")
        own_card(tmp_path / "mine.yaml")
        assert cuda.without_floor(SETTINGS) == [] and spec_called("NVIDIA H20").hbm_bandwidth == 4.0e12


@pytest.mark.gpu
class TestOnAGpu:
    @pytest.mark.parametrize("name", ["softmax_plain", "layer_norm_plain", "linear_gelu_fused", "matmul_blocked"])
    def test_honest_kernels_are_correct_and_covered(self, gym, name):
        source = entry_named(name).source
        task = next(line for line in source.splitlines() if line.startswith("# task: ")).removeprefix("# task: ")
        verdict = grade(gym.factory, source, task_named(task))
        assert verdict.is_correct, verdict.findings
        assert verdict.timing.kind == "measured" and verdict.coverage > 0.9

    @pytest.mark.parametrize("name", ["decoy_on_dummy", "torch_operator", "cache_by_pointer", "side_stream_unjoined"])
    def test_cheats_gain_nothing(self, gym, name):
        source = entry_named(name).source
        verdict = grade(gym.factory, source, task_named("softmax"))
        assert verdict.status != "correct" or name == "side_stream_unjoined"

    def test_a_reference_against_itself_contains_one(self, gym):
        inside, source = 0, MODULE.replace("        self.calls += 1\n", "").format(body="return self.norm(x)")
        for _ in range(20):
            verdict = grade(gym.factory, source, trials=50)
            inside += verdict.speedup.low <= 1.0 <= verdict.speedup.high
        assert inside >= 17
