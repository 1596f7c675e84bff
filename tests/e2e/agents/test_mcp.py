"""``drkernel mcp``, spoken to by the protocol's own client over both transports."""

import json
import multiprocessing
import os
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from drkernel.agents import Toolbox, ToolError, ToolLimits, describe, describe_run
from drkernel.gym.explain import EXPLANATIONS
from drkernel.gym.runner.confined_script import ConfinedRun, run_confined
from drkernel.gym.runner.processes import tree_of
from drkernel.sim.script import ScriptReport
from drkernel.verdict import CONTROLS, Verdict
from farm import PYTHON
from places import EXECUTOR, ROOT
from verdicts import verdict_of

SOFTMAX = ROOT / "examples" / "softmax"
DRKERNEL = [PYTHON, "-m", "drkernel"]
TOKEN = "a-token-that-is-long-enough"


def text(result):
    return "".join(item.text for item in result.content)


def stdio(*options, cwd=ROOT):
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    command, *arguments = [*DRKERNEL, "mcp", *options]
    return Client(StdioServerParameters(command=command, args=arguments, cwd=str(cwd), env=environment))


async def test_an_agent_grades_simulates_and_looks_up():
    async with stdio("--evaluations", "3") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"evaluate", "simulate", "tasks", "gpus", "explain"}

        graded = await client.call_tool(
            "evaluate", {"reference": "builtin/level1/softmax", "candidate": (SOFTMAX / "candidate.py").read_text()}
        )
        answer = text(graded)
        assert not graded.is_error and answer.startswith("CORRECT  builtin/level1/softmax on sim:h200"), answer
        assert "(modelled)" in answer and "1 of 3 evaluations used" in answer and len(answer) < 4200

        uri = answer.rpartition("whole record: ")[2].partition(";")[0]
        record = await client.read_resource(uri)
        verdict = Verdict.model_validate_json(record.contents[0].text)
        assert verdict.is_correct and verdict.profile.rows

        cheat = await client.call_tool(
            "evaluate", {"reference": "examples/softmax/reference.py", "candidate": "examples/softmax/cheat.py"}
        )
        assert text(cheat).startswith("HACK") and "To mend " in text(cheat)  # files under the working folder

        script = (ROOT / "examples" / "sim" / "out_of_bounds.py").read_text()
        simulated = text(await client.call_tool("simulate", {"script": script, "checks": "full"}))
        assert "out_of_bounds" in simulated and "the mask is missing here" in simulated  # the source line
        assert "Device time (modelled, sim:h200" in simulated and "To mend out_of_bounds" in simulated

        spent = await client.call_tool("simulate", {"script": script})
        assert spent.is_error and "budget is spent: 3" in text(spent)

        assert "sim:h100" in text(await client.call_tool("gpus", {}))
        assert "builtin/level1/softmax" in text(await client.call_tool("tasks", {"match": "softmax"}))
        assert "class Model" in text(await client.call_tool("tasks", {"match": "level1/softmax"}))
        assert "fallback" in text(await client.call_tool("explain", {"finding": "no_custom_kernel"}))
        unknown = await client.call_tool("explain", {"finding": "decoy_kernal"})
        assert unknown.is_error and "did you mean decoy_kernel" in text(unknown)
        outside = await client.call_tool("evaluate", {"reference": "../../etc/passwd", "candidate": "x\ny"})
        assert outside.is_error and "is not under" in text(outside)


async def test_a_script_of_an_agent_is_confined_and_stopped(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("do not tell")
    tmp_path.chmod(0o755)
    script = f"""
import socket
for what in (lambda: open({str(secret)!r}).read(), lambda: open("/root/x", "w"), lambda: socket.socket()):
    try:
        print("GOT", what())
    except OSError as error:
        print("refused", type(error).__name__, flush=True)
while True:
    pass
"""
    async with stdio("--deadline", "2", cwd=tmp_path) as client:
        said = text(await client.call_tool("simulate", {"script": script}))
        assert said.count("refused") == 3 and "GOT" not in said and "do not tell" not in said, said
        assert "stopped after 2 s" in said


def test_no_script_outlives_a_server_that_is_killed():
    server = multiprocessing.get_context("fork").Process(target=run_confined, args=("while True: pass\n",))
    server.start()
    started, end = [], time.monotonic() + 60
    while len(started) < 3 and time.monotonic() < end:  # the process that confines scripts, and the script
        time.sleep(0.2)
        started = tree_of(server.pid)
    server.kill()
    server.join()
    while (left := [pid for pid in started if Path(f"/proc/{pid}").exists()]) and time.monotonic() < end:
        time.sleep(0.1)
    assert len(started) >= 3 and not left


@pytest.fixture
def server(monkeypatch):
    """The address of a server over HTTP that wants a token."""
    environment = os.environ | {"DRKERNEL_TOKEN": TOKEN}
    command = [*DRKERNEL, "mcp", "--http", "--port", "0", "--builtin-only"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd="/")
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        assert process.wait(60) == 0


async def test_http_wants_the_token_and_grades(server):
    refused = httpx.post(server, json={}, headers={"accept": "application/json, text/event-stream"})
    assert refused.status_code == 401
    async with (
        httpx.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}, timeout=120) as http,
        Client(streamable_http_client(server, http_client=http)) as client,
    ):
        candidate = (SOFTMAX / "candidate.py").read_text()
        graded = await client.call_tool("evaluate", {"reference": "builtin/level1/softmax", "candidate": candidate})
        assert text(graded).startswith("CORRECT")
        own = await client.call_tool(
            "evaluate", {"reference": (SOFTMAX / "reference.py").read_text(), "candidate": candidate}
        )
        assert own.is_error and "built-in tasks only" in text(own)
        file = await client.call_tool("evaluate", {"reference": "builtin/level1/softmax", "candidate": "candidate.py"})
        assert file.is_error and "reads no files" in text(file)


def test_no_other_address_without_a_token():
    environment = {name: value for name, value in os.environ.items() if name != "DRKERNEL_TOKEN"}
    command = [*DRKERNEL, "mcp", "--http", "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 2 and "without a token" in done.stderr


class CountingPool:
    """Answers every request with one verdict."""

    def __init__(self, verdict):
        self.verdict, self.requests = verdict, []

    async def evaluate(self, request):
        self.requests.append(request)
        return self.verdict


async def test_what_cannot_be_graded_costs_nothing():
    pool = CountingPool(verdict_of())
    box = Toolbox(pool, ToolLimits(evaluations=1))
    for reference, device in (("builtin/level1/softmx", "sim:h200"), ("builtin/level1/softmax", "sim:h20")):
        with pytest.raises(ToolError):
            await box.evaluate(reference, "class ModelNew:\n    pass\n", device)
    assert box.used == 0 and not pool.requests
    await box.evaluate("builtin/level1/softmax", "class ModelNew:\n    pass\n")
    assert box.used == 1 and pool.requests[0].settings.deadline_s == box.limits.deadline_s


async def test_source_of_one_line_is_source():
    pool = CountingPool(verdict_of())
    box = Toolbox(pool, ToolLimits())
    for candidate in ("class ModelNew: pass", "from mine import ModelNew; x = 1", "ModelNew = type('M', (), {})"):
        await box.evaluate("class Model: pass", candidate)
        assert (pool.requests[-1].candidate, pool.requests[-1].task.reference) == (candidate, "class Model: pass")
    for name in ("mine.py", "kernels/mine.py", "kernelbench:DIR/level1/1"):
        with pytest.raises(ToolError, match="reads no files"):
            await box.evaluate("class Model: pass", name)


def test_an_answer_is_never_longer_than_its_budget():
    error = {"type": "CompilationError", "message": "x" * 20_000}
    verdict = Verdict(status="compile_error", task_id="t", candidate_sha256="0", device="sim:h200", error=error)
    assert len(describe(verdict, "y", 1000)) <= 1000


@pytest.mark.timeout(30)
async def test_only_files_of_a_sources_size_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer, and the server with it
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "binary").write_bytes(b"\xff\x00")
    box = Toolbox(None, ToolLimits(folder=tmp_path))
    for name in ("pipe", "huge", "binary", "none", "with\0nul", "x" * 5000, "."):
        with pytest.raises(ToolError, match="neither source text nor a file"):
            await box.evaluate("builtin/level1/softmax", name)


def test_a_report_quotes_the_script_and_no_other_file(tmp_path):
    """It comes out of the process in which the script has run, so it may name any file and hold any number of rows."""
    secret = tmp_path / "secret.txt"
    secret.write_text("do not tell\n" * 3)
    profile = {"kind": "modelled", "device": "sim:h200", "rows": [], "total_seconds": 0.0, "elapsed_seconds": 0.0}
    about = {"script": "/scratch/s.py", "device": "sim:h200", "gpu": "H200", "peak_bytes": 0, "wall_seconds": 0.0}
    none = {"program": None, "arg": None, "offset_bytes": None, "count": 1}
    found = {"kind": "race", "severity": "error", "message": "m\x1b[1A", "kernel": "k\x9b", "line": 2, **none}
    findings = [found | {"file": str(secret)}, *[found | {"file": "/scratch/s.py"}] * 5000]
    empty = {"launches": [], "operators": {}, "copies": {}, "prints": []}
    report = ScriptReport.model_validate(about | empty | {"findings": findings, "profile": profile})
    told = describe_run(ConfinedRun(report=report, output="\x1b[2J\u202e"), "first = 1\nsecond = 2\n", 100_000)
    assert not CONTROLS.search(told) and "\\x1b[2J\\u202e" in told
    assert "do not tell" not in told and "secret.txt:2" in told
    assert "second = 2" in told and "... 4745 more" in told


def test_every_kind_of_finding_is_explained():
    """The kinds that the judge and the sanitizer can give, as their sources name them."""
    import re

    named = set()
    for path in (ROOT / "src" / "drkernel" / "gym" / "judge").glob("*.py"):
        named |= set(re.findall(r'(?:kind=|_(?:hack|bug|note)\(\s*)"([a-z_]+)"', path.read_text()))
    recorded = (EXECUTOR / "launch.py").read_text()
    named |= set(re.findall(r'Kind\.\w+: \("([a-z_]+)",', recorded))
    assert {"decoy_kernel", "out_of_bounds"} <= named
    assert named - {"measured", "modelled"} <= set(EXPLANATIONS), named - set(EXPLANATIONS)
    assert json.dumps({kind: text.text for kind, text in EXPLANATIONS.items()})
