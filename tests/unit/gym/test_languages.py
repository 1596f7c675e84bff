"""How a candidate's language is recognised and where it is refused: by what its live code refers to, before it runs."""

import json
import textwrap

import pytest

from drkernel.gym.device import parse_device
from drkernel.gym.judge.judge import evaluate
from drkernel.gym.languages import (
    LANGUAGES,
    TracedKernel,
    base_name,
    global_functions,
    own_kernels,
    recognise,
)
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.reward import RewardConfig, reward
from drkernel.gym.session.cuda import profile_of, read_trace
from drkernel.tasks.loaders import builtin_task

SIM = parse_device("sim:h200")
MODEL = """
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""
KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def relu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.maximum(tl.load(x + at, at < n), 0.0), at < n)
"""
CUDA = """
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r'''
template <typename T>
__global__ void __launch_bounds__(256) scale(const T* x, T* out, int n) { out[threadIdx.x] = x[threadIdx.x] * 2; }
'''
module = load_inline(name="m", cpp_sources="torch::Tensor run(torch::Tensor);", cuda_sources=SOURCE, functions=["run"])
"""

FOREIGN = {
    "cuda from import": ("cuda", CUDA + MODEL.format(body="return module.run(x)")),
    "cuda by alias": (
        "cuda",
        "import torch\nimport torch.utils.cpp_extension as ext\n"
        + MODEL.format(body="return ext.load_inline('m', 's').run(x)"),
    ),
    "cuda by attribute": (
        "cuda",
        "import torch\nimport torch.utils.cpp_extension\ndef build():\n    f = torch.utils.cpp_extension.load\n"
        "    return f('m', ['a.cu'])\n" + MODEL.format(body="return build().run(x)"),
    ),
    "cuda by getattr": (
        "cuda",
        "import torch\nfrom torch.utils import cpp_extension\nload = getattr(cpp_extension, 'load_inline')\n"
        + MODEL.format(body="return load('m', 's').run(x)"),
    ),
    "cuda by import_module": (
        "cuda",
        "import importlib, torch\next = importlib.import_module('torch.utils.cpp_extension')\n"
        + MODEL.format(body="return ext.load_inline('m', 's').run(x)"),
    ),
    "cuda beside triton, always built": ("cuda", KERNEL + CUDA + MODEL.format(body="return module.run(x)")),
    "cuda under a condition": (
        "cuda",
        "import torch\nfrom torch.utils.cpp_extension import load_inline\nif torch.version.cuda:\n"
        "    m = load_inline('m', 's')\n" + MODEL.format(body="return m.run(x)"),
    ),
    "cuda beside triton, built by a function called at once": (
        "cuda",
        KERNEL
        + "from torch.utils.cpp_extension import load_inline\ndef build():\n    return load_inline('m', 's')\n"
        + "module = build()\n"
        + MODEL.format(body="return module.run(x)"),
    ),
    "cute": (
        "cute",
        "import torch\nimport cutlass.cute as cute\n@cute.kernel\ndef k(x): pass\n" + MODEL.format(body="return k(x)"),
    ),
    "tilelang": (
        "tilelang",
        "import torch, tilelang\nimport tilelang.language as T\n@tilelang.jit\ndef k(n): pass\n"
        + MODEL.format(body="return k(1)(x)"),
    ),
    "helion": (
        "helion",
        "import torch, helion\nimport helion.language as hl\n@helion.kernel()\ndef k(x): pass\n"
        + MODEL.format(body="return k(x)"),
    ),
    "gluon": (
        "gluon",
        "import torch\nfrom triton.experimental import gluon\n@gluon.jit\ndef k(x): pass\n"
        + MODEL.format(body="return k(x)"),
    ),
}
TRITON = {
    "plain": KERNEL + MODEL.format(body="return x"),
    "a comment": KERNEL + "# load_inline(name='m')\n" + MODEL.format(body="return x"),
    "a docstring": '"""Not load_inline(...) and not tilelang."""\n' + KERNEL + MODEL.format(body="return x"),
    "a string": KERNEL + "S = 'from torch.utils.cpp_extension import load_inline'\n" + MODEL.format(body="return S"),
    "an import alone": KERNEL + "from torch.utils.cpp_extension import load_inline\n" + MODEL.format(body="return x"),
    "a function that nobody calls": KERNEL
    + "from torch.utils.cpp_extension import load_inline\ndef old():\n    return load_inline('m', 's')\n"
    + MODEL.format(body="return x"),
    "no kernel and a function that nobody calls": "import torch\n"
    "from torch.utils.cpp_extension import load_inline\ndef old():\n    return load_inline('m', 's')\n"
    + MODEL.format(body="return x"),
    "a dead branch": "import torch\nfrom torch.utils.cpp_extension import load_inline\nif False:\n"
    "    m = load_inline('m', 's')\nif __name__ == '__main__':\n    load_inline('m', 's')\n"
    + MODEL.format(body="return x"),
    "a try beside triton": KERNEL
    + "try:\n    from torch.utils.cpp_extension import load_inline\n    fast = load_inline('m', 's')\n"
    "except Exception:\n    fast = None\n" + MODEL.format(body="return x"),
    "a condition beside triton": KERNEL
    + "from torch.utils.cpp_extension import load_inline\nif torch.version.cuda:\n    fast = load_inline('m', 's')\n"
    + MODEL.format(body="return x"),
    "a name of its own": KERNEL + "def load_inline(*a): return None\nload_inline()\n" + MODEL.format(body="return x"),
    "not Python": "def f(:\n load_inline(",
    "empty": "",
    "PyTorch alone": "import torch\n" + MODEL.format(body="return torch.relu(x)"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_other_languages_are_recognised_and_refused_by_name_on_a_simulated_gpu(case):
    name, source = FOREIGN[case]
    compile(source, "candidate.py", "exec")
    language = recognise(source)
    assert language.name == name
    assert "sim:h200" in language.refusal(SIM) and language.title in language.refusal(SIM)


@pytest.mark.parametrize("case", TRITON)
def test_a_mere_mention_is_triton(case):
    assert recognise(TRITON[case]).name == "triton"
    assert LANGUAGES["triton"].refusal(SIM) is None


def test_deep_nesting_does_not_break_it():
    assert recognise("x = " + "(" * 5000 + ")" * 5000).name == "triton"
    assert recognise("x = " + "-" * 50_000 + "1").name == "triton"


class NothingOpens:
    """A factory whose runner must not be needed."""

    def open(self, settings):
        raise AssertionError("a runner was started")


@pytest.mark.parametrize("case", ["cuda from import", "tilelang", "helion", "cute"])
def test_nothing_is_run_for_an_unsupported_language(case):
    name, source = FOREIGN[case]
    request = EvalRequest(task=builtin_task("level1/relu"), candidate=source, settings=EvalSettings())
    verdict = evaluate(request, NothingOpens())
    assert verdict.status == "unsupported" and verdict.language == name and verdict.error.type == "UnsupportedLanguage"
    assert verdict.speedup is None and verdict.correctness is None and not verdict.findings
    assert reward(verdict, RewardConfig(penalty=-0.5)).total == -0.5  # a policy cannot hide behind it
    assert reward(verdict, RewardConfig(penalty=-0.5, unsupported_penalty=-1)).total == -1


def test_what_a_real_gpu_lacks_is_named(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "the program nvcc and the program ninja" in LANGUAGES["cuda"].refusal(parse_device("cuda:0"))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert LANGUAGES["cuda"].refusal(parse_device("cuda:0")) is None


def test_a_trace_cannot_skip_launches():
    observed = LANGUAGES["cuda"].observes(parse_device("cuda:0"))
    assert set(observed) == {"launches", "operators"} and set(observed.values()) == {"runner"}
    assert "skip" in LANGUAGES["triton"].observes(parse_device("cuda:0"))


# ---- traces


def test_global_functions_are_found_in_strings():
    source = textwrap.dedent('''
        A = r"""
        template <int N> __global__ void __launch_bounds__(256, 2) tiled(float* x) {}
        extern "C" __global__ void plain(const float* __restrict__ x, int n);
        __device__ float helper(float x) { return x; }
        // __global__ void commented(int n)
        """
        # __global__ void in_python(int n)
    ''')
    assert global_functions(source) == {"tiled", "plain"}


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("void scale<float, 4>(float const*, int)", "scale"),
        ("scale(float const*, float*, int)", "scale"),
        ("void (anonymous namespace)::deep::scale<Foo<int> >(Foo<int>)", "scale"),
        ("_Z5scalePf", "_Z5scalePf"),
        ("scale", "scale"),
    ],
)
def test_base_names(kernel, name):
    assert base_name(kernel) == name


def recorded(*extra: dict) -> bytes:
    """A trace in the form that Kineto writes: an operator, its kernel, two own kernels, a GEMM of cuBLAS, a copy."""
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "ts": 100.0, "dur": 9.0, "args": {"External id": 15}}
    launch = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": 104,
        "dur": 3,
        "args": {"correlation": 9},
    }

    def device(cat: str, name: str, ts: float, dur: float, **args: int) -> dict:
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": {"stream": 7, **args}}

    relu = "void at::native::vectorized_elementwise_kernel<4, relu>(int)"
    events = [
        {"ph": "M", "name": "process_name", "args": {"name": "python"}}, operator, launch,
        device("kernel", relu, 110.0, 2.0, **{"External id": 15, "correlation": 9}),
        device("kernel", "void scale<float>(float const*, float*, int)", 120.0, 6.0, correlation=10),
        device("kernel", "void scale<float>(float const*, float*, int)", 130.0, 2.0, correlation=11),
        device("kernel", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn", 140.0, 8.0, correlation=12),
        device("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 150.0, 2.0, correlation=13),
    ]  # fmt: skip
    return json.dumps({"schemaVersion": 1, "traceEvents": [*events, *extra]}).encode()


def test_a_trace_tells_own_kernels_from_pytorchs_and_libraries():
    trace = read_trace(recorded())
    own = {kernel.name for kernel in own_kernels(CUDA, trace.kernels)}
    assert own == {"void scale<float>(float const*, float*, int)"}
    profile = profile_of(trace, own, "cuda:0", calls=2)
    owners = {row.name: (row.owner, row.seconds) for row in profile.rows}
    assert owners["aten.relu"] == ("library", pytest.approx(1e-6))
    assert owners["void scale<float>(float const*, float*, int)"] == ("custom", pytest.approx(4e-6))
    assert owners["sm90_xmma_gemm_f32f32_tf32f32_f32_tn"][0] == "library"
    assert owners["Memcpy DtoH (Device -> Pageable)"][0] == "copy"
    host = {row.name: row.host_seconds for row in profile.rows}
    assert host.pop("aten.relu") == pytest.approx(1.5e-6), "of the call that launched it, in one of two calls"
    assert set(host.values()) == {None}, "the trace has no launches of the others"
    assert profile.coverage == pytest.approx(8 / 20) and profile.elapsed_seconds == pytest.approx(21e-6)


def test_a_kernel_under_an_operator_of_pytorch_is_not_the_candidates_even_by_its_name():
    assert own_kernels(CUDA, [TracedKernel("scale(float*)", 1e-6, "aten::add")]) == []
    assert len(own_kernels(CUDA, [TracedKernel("scale(float*)", 1e-6, "mine::scale")])) == 1


NO_TRACES = [b"", b"[]", b"{}", b'{"traceEvents": 3}', b"\xff\xfe"]
NO_TRACES += [recorded({"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": dur}) for dur in (-1, 1e300)]
NO_TRACES += [recorded({"ph": "X", "cat": "kernel", "name": "k", "ts": 1}), recorded({"ph": "X", "cat": "kernel"})]


@pytest.mark.parametrize("data", NO_TRACES)
def test_what_is_no_trace_is_refused(data):
    with pytest.raises((ValueError, KeyError)):
        read_trace(data)
