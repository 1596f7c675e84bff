"""``drkernel sim`` as a person runs it: real processes, real scripts, exit codes and what is printed."""

import json
import os
import subprocess
import textwrap
from pathlib import Path

import pytest

from farm import PYTHON
from places import ROOT

EXAMPLES = ROOT / "examples" / "sim"


def drkernel_sim(*args: object) -> subprocess.CompletedProcess:
    command = [PYTHON, "-c", "from drkernel.cli import main; main()", "sim", *map(str, args)]
    env = {**os.environ, "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=ROOT)


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text(text)
    return path


def test_a_right_kernel_is_shown_with_its_launch_and_profile():
    done = drkernel_sim(EXAMPLES / "softmax.py", "--", "64", "100")
    assert done.returncode == 0, done.stderr
    assert "softmax of 64 x 100: right" in done.stdout
    assert "BLOCK=128, 8 warps, 3 stages" in done.stdout
    assert "aten._softmax" in done.stdout and "softmax_kernel" in done.stdout
    assert "Device time (modelled, sim:h200" in done.stdout


def test_json_is_alone_on_standard_output_and_complete(tmp_path):
    html = tmp_path / "page.html"
    done = drkernel_sim(EXAMPLES / "softmax.py", "--json", "--gpu", "a100", "--html", html, "--", "64", "100")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert "softmax of 64 x 100: right" in done.stderr
    assert ">load<" in html.read_text() and "x = tl.load(" in report["launches"][0]["detail"]["lines"][0]["text"]
    assert report["device"] == "sim:a100"
    (launch,) = report["launches"]
    assert launch["kernel"] == "softmax_kernel" and launch["grid"] == [64, 1, 1] and launch["num_warps"] == 8
    assert launch["constexprs"] == {"BLOCK": "128"} and launch["seconds"] > 0
    # every row is read and written once; a row of 400 bytes straddles at most one more 32-byte sector than it fills
    assert 2 * 64 * 400 <= launch["unique_bytes"] <= 2 * 64 * 400 * 1.01
    assert report["copies"] == {"device to host": 1} and report["error"] is None
    assert report["profile"]["kind"] == "modelled"


def test_a_finding_names_the_line_and_ends_with_3():
    done = drkernel_sim(EXAMPLES / "out_of_bounds.py")
    assert done.returncode == 3
    line = next(
        n for n, text in enumerate((EXAMPLES / "out_of_bounds.py").read_text().splitlines(), 1) if "tl.store" in text
    )
    assert f"out_of_bounds.py:{line}" in done.stdout and f"> {line:4d} |     tl.store" in done.stdout
    assert "argument 'out_ptr' (4000 bytes long)" in done.stdout
    assert "CUDA error: an illegal memory access" in done.stdout


def test_an_error_of_the_script_shows_its_own_frames_and_ends_with_1(tmp_path):
    path = script(tmp_path, "import torch\ndef f(x):\n    return x.numpy()\nf(torch.ones(3, device='cuda'))\n")
    done = drkernel_sim(path)
    assert done.returncode == 1
    assert "TypeError at script.py:3" in done.stdout and "can't convert cuda:0" in done.stdout
    assert "f(torch.ones(3, device='cuda'))" in done.stdout
    assert "sim/host/tensor.py" not in done.stdout


@pytest.mark.parametrize("faulty", [False, True])
def test_one_call_of_a_candidate_may_be_watched_by_a_sanitizer(tmp_path, faulty):
    """By NVIDIA's on a GPU (docs/gpu.md), by the simulated one here."""
    softmax = ROOT / "examples" / "softmax"
    source, mask = (softmax / "candidate.py").read_text(), ", at < cols)"
    assert source.count(mask) == 1
    candidate = script(tmp_path, source.replace(mask, ")") if faulty else source)
    done = drkernel_sim(EXAMPLES / "one_call.py", "--json", "--", softmax / "reference.py", candidate)
    report = json.loads(done.stdout)
    assert done.returncode == (3 if faulty else 0) and [one["kernel"] for one in report["launches"]] == [
        "softmax_kernel"
    ]
    assert {one["kind"] for one in report["findings"]} == ({"race"} if faulty else set())  # rows that reach the next


def test_a_compile_error_is_tritons_own(tmp_path):
    text = (
        "import torch, triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    tl.store(x, undefined_name)\n"
        "k[(1,)](torch.ones(3, device='cuda'))\n"
    )
    done = drkernel_sim(script(tmp_path, text))
    assert done.returncode == 1
    assert "CompilationError at script.py:6" in done.stdout and "undefined_name is not defined" in done.stdout


def test_exit_status_of_the_script_is_an_error_of_the_script(tmp_path):
    assert drkernel_sim(script(tmp_path, "import sys; sys.exit(5)")).returncode == 1
    assert drkernel_sim(script(tmp_path, "import sys; sys.exit(0)")).returncode == 0


@pytest.mark.parametrize(
    "args, message",
    [
        (("nowhere.py",), "no such script: nowhere.py"),
        ((EXAMPLES / "softmax.py", "--gpu", "gtx970"), "no GPU named 'gtx970'; there are:"),
        ((EXAMPLES / "softmax.py", "--checks", "sometimes"), "--checks"),
        ((EXAMPLES / "softmax.py", "--depth", "deep"), "--depth"),
    ],
)
def test_wrong_usage_ends_with_2(args, message):
    done = drkernel_sim(*args)
    assert done.returncode == 2 and message in done.stderr


def test_help_has_examples_and_exit_codes():
    done = drkernel_sim("--help")
    assert done.returncode == 0
    assert "Exit codes: 0 fine" in done.stdout and "examples/sim/softmax.py" in done.stdout


def test_device_prints_and_arguments_reach_the_report(tmp_path):
    text = (
        "import sys, torch, triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n"
        "    tl.device_print('value', tl.load(x))\n"
        "k[(1,)](torch.full((1,), float(sys.argv[1]), device='cuda'))\n"
    )
    done = drkernel_sim(script(tmp_path, text), "--", "2.5")
    assert done.returncode == 0, done.stdout
    assert "device_print" in done.stdout and "2.5" in done.stdout


def test_json_stays_alone_whoever_writes(tmp_path):
    text = "import os\nprint('printed')\nos.write(1, b'written\\n')\nos.system('echo by a child')\n1 / 0\n"
    done = drkernel_sim(script(tmp_path, text), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["type"] == "ZeroDivisionError"
    assert all(line in done.stderr for line in ("printed", "written", "by a child"))


def test_an_interrupted_script_shows_what_was_seen_and_ends_with_130(tmp_path):
    text = "import os, signal, torch\nx = torch.ones(3, device='cuda')\nos.kill(os.getpid(), signal.SIGINT)\n"
    done = drkernel_sim(script(tmp_path, text))
    assert done.returncode == 130, done.stderr
    assert "KeyboardInterrupt at script.py:3" in done.stdout and "1 PyTorch operator" in done.stdout


def test_gradients_of_strided_single_taps_leave_memory_alone(tmp_path):
    """oneDNN's ended the process with "double free or corruption"."""
    text = """
    import torch
    x, g = torch.randn(2, 3, 96, 96, device="cuda"), torch.randn(2, 48, 48, 48, device="cuda")
    x, g = (one.to(memory_format=torch.channels_last) for one in (x, g))
    w, rest = torch.randn(48, 3, 1, 1, device="cuda"), ([2, 2], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
    torch.backends.cudnn.allow_tf32 = False
    for _ in range(10):
        dx, dw, _ = torch.ops.aten.convolution_backward(g, x, w, [0], *rest)
    assert dx.stride() == x.stride()
    torch.testing.assert_close(dw[..., 0, 0], torch.einsum("bohw,bihw->oi", g, x[..., ::2, ::2]), rtol=1e-3, atol=1e-3)
    """
    done = drkernel_sim(script(tmp_path, textwrap.dedent(text)))
    assert done.returncode == 0, done.stderr
