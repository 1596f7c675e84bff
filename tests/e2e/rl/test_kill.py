"""A run that is killed outright, at moments nobody chose, ends as one that was left alone."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from drkernel.config import dump_config
from fakes import FakePool, tiny_recipe
from places import KIT
from tiny_runs import assert_same_run, train

SCRIPT = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from fakes import FakePool
from drkernel.config import load_config
from drkernel.rl.run.recipe import Recipe
from drkernel.rl.run.trainer import Run
asyncio.run(Run(load_config(Recipe, {recipe!r}), FakePool(delay=0.001)).run())
"""


def start(recipe, path):
    path.write_text(dump_config(recipe))
    code = SCRIPT.format(tests=str(KIT), recipe=str(path))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def wait_for_rows(path, count, process, timeout=120):
    """Until the file has that many lines, or the process has ended."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.002)


@pytest.mark.slow
@pytest.mark.parametrize("staleness", [0, 1])
def test_kill_minus_nine_and_resume_gives_the_uninterrupted_result(tmp_path, staleness):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    rollout = {"staleness": staleness}
    whole = tiny_recipe(tmp_path / "whole", rollout=rollout)
    train(whole, FakePool())
    killed = tiny_recipe(tmp_path / "killed", rollout=rollout, checkpoint={"seconds": 0})
    directory = Path(killed.runs) / killed.name
    total = (Path(whole.runs) / whole.name / "metrics.jsonl").read_bytes().count(b"\n")
    for rows, pause in ((1, 0.0), (total // 3, 0.003), (total - 3, 0.01), (total - 1, 0.0), (total, 0.02)):
        process = start(killed, tmp_path / "recipe.yaml")
        wait_for_rows(directory / "metrics.jsonl", rows, process)
        time.sleep(pause)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(killed, tmp_path / "recipe.yaml")
    error = process.communicate(timeout=200)[1]
    assert process.returncode == 0, error.decode()
    assert json.loads((directory / "summary.json").read_text())["status"] == "done"
    assert_same_run(whole, killed)
    assert not list((directory / "checkpoints").glob(".*"))
