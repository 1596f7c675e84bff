"""Loaded by pytest in a run of benchmarks/mutants.py: which tests run, what each reaches, how each ends.

The plan is a file of JSON, named by ``MUTANTS_PLAN``: ``out`` (where lines are appended), ``tests`` (identifier ->
limit in seconds, in the order wanted; null for all), ``without`` (identifiers), ``reach`` (a file with a byte for each
place).
"""

import json
import mmap
import os
import time
from pathlib import Path

import pytest


def pytest_configure(config):
    if "MUTANTS_PLAN" in os.environ:
        plan = json.loads(Path(os.environ["MUTANTS_PLAN"]).read_text())
        config.pluginmanager.register(Watch(config, plan), "mutants-watch")


class Watch:
    def __init__(self, config, plan):
        self.tests, self.without, self.outcome = plan["tests"], set(plan["without"]), ""
        self.has_limits = config.pluginmanager.hasplugin("timeout")
        self.out = Path(plan["out"])
        self.reach = None
        if plan["reach"]:
            with open(plan["reach"], "r+b") as file:
                self.reach = mmap.mmap(file.fileno(), 0)

    def write(self, **line):
        with self.out.open("a") as file:  # closed each time: a test may count descriptors, or end the process
            file.write(json.dumps(line) + "\n")

    def take(self):
        """The places reached since the last call."""
        found = [] if self.reach is None else [at for at, byte in enumerate(self.reach[:]) if byte]
        for at in found:
            self.reach[at] = 0
        return found

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector):
        report = yield
        reached = self.take()
        if report.failed or reached:
            self.write(id=collector.nodeid, outcome="failed" if report.failed else "collected", reached=reached)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        kept = [item for item in items if item.nodeid not in self.without]
        if self.tests is not None:
            kept = [item for item in kept if item.nodeid in self.tests]
            at = {}
            for test in self.tests:
                at.setdefault(test.split("::")[0], len(at))
            kept.sort(key=lambda item: at[item.nodeid.split("::")[0]])  # a file's tests share what it sets up
            for item in kept if self.has_limits else []:
                item.add_marker(pytest.mark.timeout(self.tests[item.nodeid]), append=False)
        items[:] = kept

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.write(id=item.nodeid, outcome="started")
        self.take()
        self.outcome, begin = "passed", time.monotonic()
        result = yield
        seconds = round(time.monotonic() - begin, 4)
        self.write(id=item.nodeid, outcome=self.outcome, seconds=seconds, reached=self.take())
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call):
        report = yield
        if report.failed and call.excinfo is None and "XPASS" not in str(report.longrepr):
            report.outcome, report.longrepr = (
                "passed",
                None,
            )  # a limit of the suite's own on time: the machine is shared
        return report

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"

    def pytest_sessionfinish(self):
        self.write(id="", outcome="finished")
