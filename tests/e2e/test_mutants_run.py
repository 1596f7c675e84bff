"""benchmarks/mutants.py on a package of a few lines: which tests reach a place, from a child, too, and what kills."""

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import pytest

import mutants

MODULE = """
def counted(x):
    return x + 1


def capped(x):
    return min(x, 9)


def unused(x):
    return not x


def ending(x):
    return x + 2
"""
TESTS = """
import os
from drkernel.a import capped, counted, ending


def test_in_a_child():
    if not (pid := os.fork()):
        os._exit(counted(3))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4


def test_hardly():
    assert capped(9)


def test_that_ends_the_process():
    assert ending(1) == 3 or os._exit(0)
"""
ENDS = {
    "counted": ("killed", "tests/test_a.py::test_in_a_child"),
    "capped": ("survived", None),
    "unused": ("not reached", None),
    "ending": ("killed", "tests/test_a.py::test_that_ends_the_process"),
}


@pytest.fixture
def tmp_path():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # a run has a /tmp of its own
        yield Path(folder)


@pytest.mark.slow
def test_who_reaches_and_who_kills(tmp_path):
    checkout, work = tmp_path / "checkout", tmp_path / "work"
    (checkout / "src/drkernel").mkdir(parents=True)
    (checkout / "tests").mkdir()
    (checkout / "src/drkernel/__init__.py").touch()
    (checkout / "src/drkernel/a.py").write_text(MODULE)
    (checkout / "tests/test_a.py").write_text(TESTS)
    (checkout / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    drawn = {place.function: place for place in mutants.draw([checkout], 4, seed=0)}
    (tmp_path / "places.json").write_text(json.dumps([asdict(drawn[name]) for name in ENDS]))
    words = ["run", checkout, "--places", tmp_path / "places.json", "--work", work]
    for _ in range(2):  # nothing is measured twice
        subprocess.run([sys.executable, mutants.__file__, *words], check=True, stdin=subprocess.DEVNULL)
    lines = mutants.lines_of(work / "results.jsonl")
    assert {name: (line["result"], line["by"]) for name, line in zip(ENDS, lines, strict=True)} == ENDS
    assert (checkout / "src/drkernel/a.py").read_text() == MODULE
