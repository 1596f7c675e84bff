"""The code of docs/adapters.md runs as it stands, with the real judge; an engine that is not installed is skipped."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from farm import PYTHON
from places import ROOT
from waiting import until

PAGE = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


def block(name):
    """The Python block that names ``name`` after its language; ``""`` for the one without a name."""
    found = re.findall(rf"^```python ?{re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, name
    return found[0]


def run(code, cwd=ROOT, **environment):
    """Run a page's code after the line that makes ``answer``; what it printed."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(
        [PYTHON, "-c", block("") + "\n" + code], cwd=cwd, env=env, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_examples_are_ten_lines_or_so():
    assert all(len(block(name).splitlines()) <= 14 for name in ("skyrl", "openenv", "drkernel_env.py", "trl"))


def test_skyrl():
    pytest.importorskip("skyrl_gym")
    out = run(block("skyrl"))
    assert out.startswith("file/reference 1.") and "correct" in out and "Your module was graded" in out


def test_openenv():
    pytest.importorskip("openenv.core")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = [
        PYTHON,
        *re.search(r"^\$ python (-m drkernel.adapters.openenv .*)$", PAGE, re.MULTILINE)[1].split(),
    ]
    serve[serve.index("8000")] = str(port)
    server = subprocess.Popen(serve, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        until(lambda: not socket.socket().connect_ex(("127.0.0.1", port)))
        out = run(block("openenv").replace("8000", str(port)))
    finally:
        server.terminate()
        server.wait(30)
    assert re.match(r"1 \d\.\d+ correct \d\.\d+", out)


def test_verifiers(tmp_path):
    pytest.importorskip("verifiers.v1")
    from solve_endpoint import Endpoint

    tools = Path(sys.executable).parent
    if not (shutil.which("uv") or (tools / "uv").exists()):
        pytest.skip("verifiers' plain chat needs uv")
    (tmp_path / "drkernel_env.py").write_text(block("drkernel_env.py"))
    code = (ROOT / "examples" / "softmax" / "candidate.py").read_text()
    words = re.search(r"^\$ (vf-eval .*?--no-push)$", PAGE, re.MULTILINE | re.DOTALL)[1].replace("\\\n", "")
    with Endpoint(lambda messages, seed: f"```python\n{code}```") as endpoint:
        command = words.replace("MODEL", "m").replace("builtin/level1", "builtin/level1/softmax")
        command = command.replace("http://localhost:8000/v1", endpoint.url)
        env = {
            **os.environ,
            "OPENAI_API_KEY": "none",
            "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}:{ROOT / 'executor' / 'src'}",
            "OMP_NUM_THREADS": "1",
        }
        env["PATH"] = f"{tools}:{env['PATH']}"
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=240)
        assert len(endpoint.bodies) == 3, done.stdout + done.stderr
    (traces,) = tmp_path.rglob("traces.jsonl")
    text = traces.read_text()
    assert '"reward_turn_3"' in text and '"user_closed"' in text and '"errors":[]' in text.replace(" ", "")


def test_trl(tmp_path):
    pytest.importorskip("trl")
    pytest.importorskip("datasets")
    from tiny import tiny_policy

    policy = tiny_policy()
    policy.model.save_pretrained(tmp_path / "model")
    policy.tokenizer.hf.save_pretrained(tmp_path / "model")
    changes = {
        "Qwen/Qwen3-0.6B": str(tmp_path / "model"),
        "runs/trl": str(tmp_path / "run"),
        "num_generations=8, max_completion_length=4096": "num_generations=2, max_completion_length=24, max_steps=1, "
        "per_device_train_batch_size=2, use_cpu=True, bf16=False, report_to=[]",
        "turns=3": "turns=2, prompts='compact'",
        '"builtin/level1"': '"builtin/level1/softmax"',
    }
    code = block("trl")
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    run(code + "\nassert trainer.state.global_step == 1\n", TRL_EXPERIMENTAL_SILENCE="1")
