"""``--baseline compile`` on a simulated GPU: TorchInductor writes the kernels; what it cannot has no time."""

import os
import subprocess
import time

import psutil
import pytest

from corpus_grading import entry_named, task_named
from drkernel.base.procs import JsonProcess
from drkernel.gym.judge import compiled_reference
from drkernel.gym.judge.compiled_reference import START_SECONDS, NotCompiled, compiled_baseline
from drkernel.gym.judge.modelled_timing import reference_profile_at
from drkernel.sim.spec import get_spec
from drkernel.tasks.reference import load_reference
from farm import PYTHON

SPEC = get_spec("h100")
ROWS, COLUMNS = 8192, 8192
REFERENCE = f"""
import time, torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones({COLUMNS}))
    def forward(self, x):
        BODY
def get_inputs():
    return [torch.randn({ROWS}, {COLUMNS})]
"""


def reference(body: str) -> str:
    return REFERENCE.replace("BODY", body)


CHAIN = reference("return torch.softmax(torch.relu(x * self.scale + 1.0), dim=-1)")


@pytest.fixture(scope="module")
def compiler():
    compiler = JsonProcess("drkernel.gym.judge.compiled_reference", SPEC.model_dump_json(), START_SECONDS)
    yield compiler
    compiler.close()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch, compiler):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_reference, "_compiler_for", lambda spec: compiler)
    compiled_baseline.cache_clear()


def test_a_chain_is_one_kernel_of_inductors_and_no_faster_than_the_card() -> None:
    found = compiled_baseline(CHAIN, SPEC, conv_tf32=False)
    (row,) = found.rows
    assert row.name.startswith("triton_") and "softmax" in row.name and row.owner == "library"
    eager = reference_profile_at(SPEC, load_reference(CHAIN), conv_tf32=False)
    assert len(eager.rows) == 4
    assert 2 * ROWS * COLUMNS * 4 / SPEC.hbm_bandwidth <= found.total_seconds < 0.6 * eager.total_seconds


def test_products_stay_library_calls() -> None:
    found = compiled_baseline(reference("return torch.tanh(x @ x)"), SPEC, conv_tf32=False)
    assert {row.name.partition("_")[0] for row in found.rows} == {"aten.mm", "triton"}


def test_a_second_process_takes_it_from_the_cache(monkeypatch) -> None:
    first = compiled_baseline(CHAIN, SPEC, conv_tf32=False)
    compiled_baseline.cache_clear()

    def none(spec):
        raise AssertionError("it compiled again")

    monkeypatch.setattr(compiled_reference, "_compiler_for", none)
    assert compiled_baseline(CHAIN, SPEC, conv_tf32=False) == first
    with pytest.raises(AssertionError, match="again"):
        compiled_baseline(CHAIN, get_spec("a100"), conv_tf32=False)


def test_what_is_not_one_graph_has_no_time_and_says_why() -> None:
    broken = reference("y = x + 1.0; torch._dynamo.graph_break(); return y * 2.0")
    with pytest.raises(NotCompiled, match="graph_break"):
        compiled_baseline(broken, SPEC, conv_tf32=False)


def test_a_reference_that_hangs_the_compiler_costs_its_deadline_and_no_other_reference(monkeypatch) -> None:
    monkeypatch.setattr(compiled_reference, "COMPILE_SECONDS", 2.0)
    hangs = CHAIN.replace(
        "import time, torch", f"import os, time, torch\nif os.getpid() != {os.getpid()}: time.sleep(60)"
    )
    with pytest.raises(NotCompiled, match="more than 2 s"):
        compiled_baseline(hangs, SPEC, conv_tf32=False)
    monkeypatch.setattr(compiled_reference, "COMPILE_SECONDS", 150.0)
    assert compiled_baseline(CHAIN, SPEC, conv_tf32=False).total_seconds > 0


def test_a_compile_ends_with_its_judge() -> None:
    lines = [
        "import subprocess, sys",
        "from drkernel.base.procs import JsonProcess",
        "from drkernel.sim.spec import get_spec",
        "spec = get_spec('h100').model_dump_json()",
        "compiler = JsonProcess('drkernel.gym.judge.compiled_reference', spec, 240)",
        "compiler._start(); print(compiler.pid, flush=True)",
        "asked = {'source': 'import time; time.sleep(200)', 'conv_tf32': False, 'seconds': 99, 'memory_bytes': 10**9}",
        "compiler.ask(asked, 200)",
    ]
    judge = subprocess.Popen([PYTHON, "-c", "\n".join(lines)], stdout=subprocess.PIPE, text=True)
    assert judge.stdout is not None
    compiling = psutil.Process(int(judge.stdout.readline()))
    time.sleep(0.5)
    judge.kill()
    judge.wait()
    assert psutil.wait_procs([compiling], timeout=30)[0]


def test_what_goes_by_data_has_no_compiled_time() -> None:
    with pytest.raises(NotCompiled):
        compiled_baseline(reference("return x * 2 if x.sum() > 0 else x"), SPEC, conv_tf32=False)


def test_a_verdict_is_against_the_compiled_reference(gym) -> None:
    task = task_named("tall_norm")
    candidate = entry_named("sizes_whole_row").source
    terms = {"device": "sim:h100", "checked_bytes": 2 << 20, "checks": 1}
    compiled, eager = (gym.grade(task, candidate, baseline=name, **terms) for name in ("compile", "eager"))
    assert compiled.status == eager.status == "correct", compiled.error
    assert compiled.timing == eager.timing
    assert 0 < compiled.speedup.value < eager.speedup.value
    assert "compile" in compiled.phases


def test_a_reference_that_does_not_compile_gives_a_verdict_without_a_speedup(gym) -> None:
    task = task_named("tall_norm")
    source = task.reference.replace("return ", "torch._dynamo.graph_break()\n        return ", 1)
    broken = task.model_copy(update={"reference": source})
    terms = {"device": "sim:h100", "checked_bytes": 2 << 20, "checks": 1}
    verdict = gym.grade(broken, entry_named("sizes_whole_row").source, baseline="compile", **terms)
    assert verdict.status == "correct" and verdict.speedup is None and verdict.timing is not None
    assert [one.kind for one in verdict.findings] == ["baseline_not_compiled"]
    assert "graph_break" in verdict.findings[0].message
