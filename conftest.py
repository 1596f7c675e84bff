"""The whole run: one farm of warm processes, what a tier may do, and how long a fast test may take.

Tiers by folder: ``unit`` starts no process, ``sim`` has a simulated GPU in the process, ``box`` the
judge's processes, ``e2e`` whole commands, services and pages.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

import farm
from slow_tests import EXCEPTIONS

# what is imported from here on, assertions rewritten, is kept for the next run, whatever this shell says
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# tests run side by side: a second thread of torch would only spin on tensors as small as theirs
os.environ["OMP_NUM_THREADS"] = "1"
# compiled kernels are kept, too, by `drkernel sim` and by the tests' own devices
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent / ".test_cache")

UNIT, BOX, E2E = (Path(__file__).parent / "tests" / tier for tier in ("unit", "box", "e2e"))
FAST_S = 2.0
"""processor seconds that a fast test may take, on a machine as fast as the one that :data:`_LOOP_S` was taken on"""
_LOOP_S = 0.045
_PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
_SECONDS = "processor_s"
_BEFORE = pytest.StashKey[float]()
_FARM = pytest.StashKey[farm.Farm]()
_in_unit_test: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", choices=["fail", "tell"], help="what happens to a fast test that takes over FAST_S")
    parser.addoption("--slowest", metavar="FILE", help="write the 50 slowest tests to this file")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in the background; commands would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.stash[_FARM] = farm.Farm()


def pytest_unconfigure(config: pytest.Config) -> None:
    if _FARM in config.stash:
        config.stash[_FARM].close()


def _slow_are_wanted(config: pytest.Config) -> bool:
    return "not slow" not in config.option.markexpr


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> list[pytest.Item] | None:
    """Build no slow test that nobody has asked for: there are thousands."""
    slow = any(mark.name == "slow" for mark in getattr(obj, "pytestmark", ()) if isinstance(mark, pytest.Mark))
    return [] if slow and not _slow_are_wanted(collector.config) else None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The same for slow parameters, but for one where all are: no parameters at all would be a test that is skipped."""
    if _slow_are_wanted(metafunc.config):
        return
    for mark in metafunc.definition.iter_markers("parametrize"):
        values, ids = mark.args[1] if len(mark.args) > 1 else None, mark.kwargs.get("ids")
        if isinstance(values, list) and not isinstance(ids, (list, tuple)):
            values[:] = [value for value in values if not _is_slow(value)] or values[:1]


def _is_slow(value: object) -> bool:
    return any(mark.name == "slow" for mark in getattr(value, "marks", ()))


def pytest_collection_finish() -> None:
    """Look at what was collected for garbage never again."""
    gc.collect()
    gc.freeze()


# ---- tiers


@sys.addaudithook
def _refuse_processes(event: str, args: tuple[object, ...]) -> None:
    if _in_unit_test and event in _PROCESSES:
        raise RuntimeError(f"{_in_unit_test[0]} starts a process ({event}): it belongs to tests/box or tests/e2e")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    if UNIT in item.path.parents:
        _in_unit_test.append(item.nodeid)
    item.stash[_BEFORE] = _processor_seconds()
    try:
        return (yield)
    finally:
        _in_unit_test.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Pools use the farm; a test about zygotes has its own."""
    if {BOX, E2E} & {*item.path.parents}:
        farm.use_in_pools(own_zygote=item.get_closest_marker("own_zygote") is not None)
        farm.use_in_factories()


# ---- fast tests are fast


def _processor_seconds() -> float:
    """Of this process, of the children that it has waited for, and of the test's commands."""
    subprocess._cleanup()  # bury what an earlier test has left: its seconds are not this test's
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + farm.spent()


def _slowness() -> float:
    """How much slower this machine is now than the one that the limit was set on, at least 1."""
    start = time.process_time()
    sum(k * k % 7 for k in range(1_000_000))
    return max(1.0, (time.process_time() - start) / _LOOP_S)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a fast test that took too long once more: a first run also fills caches."""
    slow = any(item.get_closest_marker(name) for name in ("slow", "gpu", "verl"))
    if _excepted(item.nodeid) or slow or item.config.getoption("--fast") != "fail":
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if _too_slow(reports) and _too_slow(reports, _slowness()):
        again = runtestprotocol(item, nextitem=nextitem, log=False)
        slower = _slowness()
        for report in _too_slow(again, slower):  # what only a second run gets wrong is no matter
            reports = again
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} takes {_seconds(report):.1f} s of processor time, twice (on a machine {slower:.1f} "
                f"times slower than usual), and a fast test takes at most {FAST_S:g}: make it cheaper, mark it slow, "
                "or give a reason in tests/kit/slow_tests.py"
            )
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _excepted(nodeid: str) -> bool:
    return nodeid.split("[")[0] in EXCEPTIONS


def _too_slow(reports: list[pytest.TestReport], slower: float = 1.0) -> list[pytest.TestReport]:
    calls = [report for report in reports if report.when == "call" and report.passed]
    return [report for report in calls if _seconds(report) > FAST_S * slower]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if call.when == "call":
        item.user_properties.append((_SECONDS, _processor_seconds() - item.stash[_BEFORE]))
        report.user_properties = list(item.user_properties)
    return report


def _seconds(report: pytest.TestReport) -> float:
    return float(str(dict(report.user_properties)[_SECONDS]))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind if _is_call(report)]
    reports.sort(key=lambda report: -_seconds(report))
    lines = [f"{_seconds(report):8.2f} {report.duration:8.2f}  {report.nodeid}" for report in reports]
    file = config.getoption("--slowest")
    if file:
        Path(file).write_text("\n".join(["processor     wall  the 50 slowest tests, in seconds", *lines[:50], ""]))
    if config.getoption("--fast") == "tell":
        too_slow = len([report for report in _too_slow(reports) if not _excepted(report.nodeid)])
        terminalreporter.write_line(f"fast tests over {FAST_S:g} s of processor time: {too_slow}")


def _is_call(report) -> bool:
    return getattr(report, "when", None) == "call" and _SECONDS in dict(report.user_properties)
