"""benchmarks/mutants.py on a package of a few lines: which tests reach a place, from a child, too, and what kills."""

import sys

import pytest

import mutants
from mutants_places import choose, located

MODULE = """
def counted(x):
    return x + 1


def capped(x):
    return min(x, 9)


def unused(x):
    return not x
"""
TESTS = """
import os
import pytest
from drkernel.a import capped, counted


def test_in_a_child():
    if not (pid := os.fork()):
        os._exit(counted(3))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4


def test_own_number():
    assert capped(os.getpid())


@pytest.mark.parametrize("pid", [os.getpid()])
def test_named_by_a_number(pid):
    assert capped(pid)
"""
LIMIT = """
import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and report.passed:
        report.outcome, report.longrepr = "failed", f"{item.nodeid} takes too long"
    return report
"""
PLAIN = "-p no:xdist -p no:asyncio -p no:schemathesis -p no:hypothesispytest -p no:anyio"


@pytest.mark.slow  # its /tmp hides an environment that lies there
def test_who_reaches_and_who_kills(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mutants, "STAGES", ((0.0, 0),))  # all mutants meet their tests together
    checkout, work = tmp_path / "checkout", tmp_path / "work"
    package = checkout / located("drkernel/a.py").parent
    package.mkdir(parents=True)
    (checkout / "tests").mkdir()
    (package / "__init__.py").touch()
    (package / "a.py").write_text(MODULE)
    (checkout / "tests" / "test_a.py").write_text(TESTS)
    (checkout / "tests" / "conftest.py").write_text(LIMIT)
    chosen = sorted(choose(checkout, checkout, 3, seed=0), key=lambda place: place.function)
    assert [place.function for place in chosen] == ["capped", "counted", "unused"]
    work.mkdir()

    def measure():
        found = mutants.Measurement(checkout, mutants.Path(sys.executable), chosen, work, PLAIN, jobs=1)
        found.reach()
        found.kills()
        return found

    found = measure()
    reached = {test.partition("::")[2].partition("[")[0]: set(one.reached) for test, one in found.tests.items()}
    assert reached == {"test_in_a_child": {1}, "test_own_number": {0}, "test_named_by_a_number": {0}}
    results = {at: (line["result"], line.get("by", "").partition("::")[2]) for at, line in found.results.items()}
    assert results == {0: ("survived", ""), 1: ("killed", "test_in_a_child"), 2: ("not reached", "")}
    assert (package / "a.py").read_text() == MODULE and not (package / "_reach.py").exists()
    capsys.readouterr()
    assert measure().results == found.results and not capsys.readouterr().out  # nothing is measured twice
