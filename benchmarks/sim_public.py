"""Code that other people wrote, on the simulated GPU: how much of each public suite runs, and what stops the rest.

    git clone https://github.com/triton-lang/triton                       # the tutorials
    git clone https://github.com/thunlp/TritonBench                       # 184 files, each with its own test
    git clone https://github.com/fla-org/flash-linear-attention           # tests of operators and modules
    git clone https://github.com/linkedin/Liger-Kernel                    # tests of its functions
    git clone https://github.com/FlagOpen/FlagGems                        # tests of its operators
    git clone https://github.com/vllm-project/vllm                        # tests of its kernels
    python benchmarks/sim_public.py triton TritonBench ... --sample 40 --rows rows.jsonl [--write]

Each script or test runs unchanged in a process of its own (forked from one that has imported what the suite imports,
where the simulated GPU is there already), with a limit of processor time, as ``drkernel sim`` runs scripts: launches
with all checks, but for long ones whose results a script does not read, which are counted. Of tests, ``--sample``
takes as many of every function as it can. ``--rows`` keeps results while the survey runs, and takes them up again.
The packages that a suite imports (einops, transformers, ...) must be installed, or be on ``PYTHONPATH``; what lacks
is told. vLLM's compiled CUDA extension is an empty module here. Nothing of theirs is kept here. Needs no GPU.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from surveys import keep_row, kept_rows, parser_of, write_table

if TYPE_CHECKING:
    from drkernel.sim.script import ScriptReport

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "sim_public.md"
GPU = "h100"
OURS = ("UnsupportedOp", "UnsupportedTTIR", "TTIRError")
PATIENCE = 20.0
"""wall seconds for a second of the limit, on a machine that does other work, too"""
WARM = ("einops", "numpy", "pandas", "transformers", "pytest")
"""what suites import that does not look for a GPU; imported once, where it is there"""
IMPORTS_TRITON = re.compile(r"^\s*(?:from|import) .*triton", re.MULTILINE)
Row = dict[str, Any]
OUTCOMES = {
    "pass": "runs to its end, and its own checks hold",
    "memory": "reads or writes out of bounds",
    "race": "programs of one launch race",
    "uninitialized": "a kernel reads memory that nothing wrote, and it matters",
    "unsupported": "the simulator refuses it by name",
    "assert": "a check of its own fails",
    "memory size": "needs more of this machine's memory than the device may take",
    "error": "fails otherwise",
    "timeout": "not done within the limit",
    "theirs": "a finding or an error that was read by hand and is a mistake of the suite's own (below)",
    "no test": "skipped by the suite itself, or needs a package, a version of it or CUDA operators that are not there",
}

THEIRS = yaml.safe_load(Path(__file__).with_name("sim_public_theirs.yaml").read_text(encoding="utf-8"))
"""findings and errors that somebody read, by script or test"""


@dataclass(frozen=True)
class Suite:
    """One public repository."""

    name: str
    marker: str
    """a path that tells the repository"""
    places: tuple[str, ...]
    """scripts as patterns, or directories and files of tests"""
    source: str | None = None
    """what goes onto the path of modules; None: scripts, which need none"""
    options: tuple[str, ...] = ()
    """further arguments of pytest"""
    triton: bool = False
    """only test files that import something which is named so"""
    extensions: tuple[str, ...] = ()
    """compiled modules that it imports to register CUDA C++ operators; empty here"""
    settings: tuple[tuple[str, str], ...] = ()
    """environment variables that the suite itself offers; FlagGems would ask ``nvidia-smi`` whose GPU there is"""


PLAIN = ("-o", "addopts=", "-o", "python_files=*_test.py")
SUITES = (
    Suite("Triton's tutorials", "python/tutorials", ("python/tutorials/[01][0-9]-*.py",)),
    Suite("TritonBench-G", "data/TritonBench_G_v1", ("data/TritonBench_G_v1/*.py",)),
    Suite("flash-linear-attention", "fla/ops", ("tests/ops", "tests/modules"), "."),
    Suite("Liger-Kernel", "src/liger_kernel", ("test/transformers",), "src"),
    Suite("FlagGems", "src/flag_gems", ("tests",), "src", ("--mode", "quick"), settings=(("GEMS_VENDOR", "nvidia"),)),
    Suite("vLLM", "vllm/v1", ("tests/kernels",), ".", triton=True, extensions=("vllm._C_stable_libtorch",)),
    Suite("attorch", "attorch", ("tests",), "."),
    Suite("gemlite", "gemlite", ("tests",), "."),
    Suite("mamba", "mamba_ssm", ("tests/ops/triton", "tests/modules"), ".", extensions=("selective_scan_cuda",)),
    Suite("FlashAttention", "flash_attn", ("tests/ops/triton", "tests/layers"), ".", extensions=("flash_attn_2_cuda",)),
    Suite("lmdeploy", "lmdeploy", ("tests/pytorch/kernel",), "."),
    Suite("lightllm", "lightllm", ("unit_tests/common", "unit_tests/models", "unit_tests/utils"), "."),
    Suite("torchao", "torchao", ("test/prototype", "test/hqq"), ".", triton=True),
    Suite("scattermoe", "scattermoe/kernels", ("tests",), "."),
    Suite("megablocks", "megablocks/backend", ("tests/ops",), ".", PLAIN),
    Suite("attention-gym", "attn_gym", ("test",), "."),
    Suite("xformers", "xformers/ops", ("tests",), "."),
    Suite("cut cross-entropy", "cut_cross_entropy", ("tests",), "."),
    Suite("HSTU", "generative_recommenders", ("generative_recommenders/ops/tests",), ".", PLAIN),
    Suite("native-sparse-attention", "native_sparse_attention", ("tests",), "."),
    Suite("Helion", "helion/_compiler", ("test",), "."),
    Suite("kernl", "src/kernl", ("test",), "src"),
)


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        return serve(json.loads(sys.argv[2]), json.loads(sys.stdin.readline()))
    parser = parser_of(__doc__)
    parser.add_argument("directories", type=Path, nargs="+", metavar="DIR", help="checkouts of the suites")
    parser.add_argument("--sample", type=int, help="scripts or tests of each suite (default: all)")
    parser.add_argument("--match", default="", help="only what has this in its name")
    parser.add_argument("--rows", type=Path, help="JSONL of results; taken up again when it is there")
    parser.add_argument("--limit", type=float, default=300.0, help="processor seconds for one script or test")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    items = []
    for directory in arguments.directories:
        suite = next((suite for suite in SUITES if (directory / suite.marker).exists()), None)
        if suite is None:
            parser.error(f"{directory} is none of {', '.join(suite.name for suite in SUITES)}")
        items += chosen(suite, directory.resolve(), arguments.sample, arguments.match, arguments.rows)
    rows = survey(items, arguments.rows, arguments.limit, arguments.jobs)
    text = page(rows, arguments.sample, write=arguments.write)
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE}")
    return 0


def chosen(suite: Suite, directory: Path, sample: int | None, match: str, kept: Path | None) -> list[Row]:
    """The scripts or tests to run: ``{"suite", "directory", "name"}`` each."""
    if suite.source is None:
        names = sorted(str(file.relative_to(directory)) for place in suite.places for file in directory.glob(place))
        if suite.marker == "python/tutorials":
            names = [name for name in names if not name.endswith("-cpu.py")]
    else:
        names = collected(suite, directory, kept)
    names = spread([name for name in names if match in name], sample)
    return [{"suite": suite.name, "directory": str(directory), "name": name} for name in names]


def spread(names: list[str], sample: int | None) -> list[str]:
    """At most ``sample`` names, first one of every function (in a fixed random order), then a second, and so on."""
    if sample is None or sample >= len(names):
        return names
    functions: dict[str, list[str]] = defaultdict(list)
    for name in names:
        functions[name.partition("[")[0]].append(name)
    dice = random.Random(18)
    groups = [dice.sample(group, len(group)) for _, group in sorted(functions.items())]
    dice.shuffle(groups)
    rounds = max(map(len, groups))
    return sorted([group[k] for k in range(rounds) for group in groups if k < len(group)][:sample])


def collected(suite: Suite, directory: Path, kept: Path | None) -> list[str]:
    """The tests of a suite, collected as on a GPU."""
    before = known_rows(kept).get((suite.name, ""))
    if before is not None:
        return list(before["tests"])
    warm = Warm({"suite": suite.name, "directory": str(directory)}, [])
    warm.close()
    if not warm.tests:
        raise SystemExit(f"{suite.name}: no tests were collected")
    keep_row(kept, {"suite": suite.name, "name": "", "tests": warm.tests})
    return warm.tests


def known_rows(kept: Path | None) -> dict[tuple[str, str], Row]:
    """Rows of an earlier survey by suite and name; the collected tests of a suite are the one without a name."""
    return {(row["suite"], row["name"]): row for row in kept_rows(kept)}


def survey(items: Sequence[Row], kept: Path | None, limit: float, jobs: int) -> list[Row]:
    """One row an item, in order."""
    known = known_rows(kept)
    idle: list[Warm] = []

    def left(item: Row, other: Row) -> bool:
        return bool(other["suite"] == item["suite"] and (other["suite"], other["name"]) not in known)

    def one(item: Row) -> Row:
        row = known.get((item["suite"], item["name"]))
        if row is None:
            fitting = [warm for warm in list(idle) if warm.suite.name == item["suite"]]
            warm = fitting[0] if fitting else Warm(item, [other["name"] for other in items if left(item, other)])
            if fitting:
                idle.remove(warm)
            row = {"suite": item["suite"], "name": item["name"], **warm.run(item, limit)}
            idle.append(warm)
            keep_row(kept, row)
            print(f"{row['seconds']:6.1f} s  {row['outcome']:13s} {row['name']}  {row['why'][:120]}", file=sys.stderr)
        return row

    with ThreadPoolExecutor(jobs) as pool:
        rows_now = list(pool.map(one, items))
    for warm in idle:
        warm.close()
    return rows_now


class Warm:
    """A process of one suite that has imported what these scripts or tests import, and forks one for each item."""

    def __init__(self, item: Row, names: Sequence[str]):
        """``names``: tests that it may be asked to run; all if none are named."""
        self.suite = next(suite for suite in SUITES if suite.name == item["suite"])
        directory = Path(item["directory"])
        self._folder = tempfile.TemporaryDirectory()
        paths = [str(directory / self.suite.source)] if self.suite.source else []
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        settings = {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--serve", json.dumps(item)],
            cwd=directory if self.suite.source else self._folder.name,
            env={**os.environ, **settings, **dict(self.suite.settings)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(names)) + "\n")
        self._process.stdin.flush()
        told = self._process.stdout.readline()
        if not told and names:
            raise SystemExit(f"{self.suite.name}: its tests cannot be collected: see the errors above")
        self.tests: list[str] = json.loads(told or "[]")
        """what it can run; empty for scripts"""

    def run(self, item: Row, limit: float) -> Row:
        """The answer of the process forked for ``item``."""
        assert self._process.stdin is not None and self._process.stdout is not None
        answer, errors = Path(self._folder.name) / "answer.json", Path(self._folder.name) / "errors.txt"
        answer.unlink(missing_ok=True)
        self._process.stdin.write(json.dumps([item["name"], str(answer), str(errors), limit]) + "\n")
        self._process.stdin.flush()
        ended, seconds = json.loads(self._process.stdout.readline())
        if ended == "timeout":
            why = f"not done after {seconds:.0f} s of processor time"
            return {"outcome": "timeout", "why": why, "launches": 0, "seconds": seconds}
        if not answer.is_file():
            said = errors.read_text(encoding="utf-8", errors="replace")[-300:] if errors.is_file() else ""
            why = f"the process ended ({ended}): {said}"
            return {"outcome": "error", "why": why, "launches": 0, "seconds": seconds}
        return {**json.loads(answer.read_text(encoding="utf-8")), "seconds": seconds}

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def serve(item: Row, names: list[str]) -> int:
    """Fork a process for each item that standard input names, and say how each ended."""
    import triton.language  # noqa: F401

    from drkernel.sim.host.attach import register_kernels
    from drkernel.sim.script import run_function, run_script

    register_kernels()
    for name in WARM:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    suite, directory = next(suite for suite in SUITES if suite.name == item["suite"]), Path(item["directory"])
    sys.modules.update((name, types.ModuleType(name)) for name in suite.extensions)
    asked, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    seen = Seen(asked, answers)
    if suite.source is not None:
        report, _ = run_function(lambda: tested(suite, names, seen), directory / "conftest.py", gpu=GPU)
        if seen.answer is not None:
            seen.answer.write_text(json.dumps(found_by(report, seen)), encoding="utf-8")
            os._exit(0)
        return 0
    answers.write("[]\n")
    answers.flush()
    while (task := forked(asked, answers)) is not None:
        task[1].write_text(json.dumps(found_by(run_script(directory / task[0], gpu=GPU), None)), encoding="utf-8")
        os._exit(0)
    return 0


def forked(asked: TextIO, answers: TextIO) -> tuple[str, Path] | None:
    """Fork for each item that is asked for: an item and the place of its answer in the process that has to run it, None
    in this one when there are no more."""
    for line in asked:
        name, answer, errors, limit = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
            threading.Thread(target=ends_with, args=(os.getppid(),), daemon=True).start()
            return name, Path(answer)
        answers.write(json.dumps(outcome_of(child, limit)) + "\n")
        answers.flush()
    return None


def outcome_of(child: int, limit: float) -> tuple[str, float]:
    """Wait for a process: how it ended, or "timeout", and its processor time."""
    until = time.monotonic() + PATIENCE * limit
    ended, status, usage = os.wait4(child, os.WNOHANG)
    while not ended and time.monotonic() < until:
        time.sleep(0.2)
        ended, status, usage = os.wait4(child, os.WNOHANG)
    if not ended:
        os.killpg(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    late = not ended or code == -signal.SIGXCPU
    return "timeout" if late else f"code {code}", usage.ru_utime + usage.ru_stime


def found_by(report: ScriptReport, seen: Seen | None) -> Row:
    """Outcome, its reason and the launches of one script or test."""
    error = None if report.error is None else f"{report.error.type}: {report.error.message}"
    errors = [(finding.kind, finding.message) for finding in report.findings if finding.severity == "error"]
    outcome, why = judged(error if seen is None else error or seen.error, errors)
    if outcome == "pass" and seen is not None and not seen.passed:
        outcome, why = "no test", seen.why
    launches = sum(launch.calls for launch in report.launches)
    unexecuted = sum(launch.unexecuted for launch in report.launches)
    return {"outcome": outcome, "why": why, "launches": launches, "unexecuted": unexecuted}


def ends_with(parent: int) -> None:
    """End this process when the survey that started it is gone."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


class Seen:
    """A plugin of pytest that forks for each test, and keeps what the test of this process said."""

    def __init__(self, asked: TextIO, answers: TextIO) -> None:
        self._asked, self._answers = asked, answers
        self.answer: Path | None = None
        """in the process of one test: where its answer goes"""
        self.passed = False
        self.error: str | None = None
        self.why = ""

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            print(f"not collected: {report.nodeid}: {str(report.longrepr).strip().splitlines()[-1]}", file=sys.stderr)

    def pytest_runtestloop(self, session: Any) -> bool:
        tests = {item.nodeid: item for item in session.items}
        self._answers.write(json.dumps(list(tests)) + "\n")
        self._answers.flush()
        task = forked(self._asked, self._answers)
        if task is not None:
            name, self.answer = task
            if name in tests:
                session.config.hook.pytest_runtest_protocol(item=tests[name], nextitem=None)
            else:
                self.why = "was not collected a second time"
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.error = self.error or (crash.message if crash is not None else str(report.longrepr)[-600:])
        elif report.skipped:
            self.why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        elif report.when == "call":
            self.passed = True


def tested(suite: Suite, names: Sequence[str], seen: Seen) -> None:
    """Collect these tests, or all, and run those that are asked for."""
    import pytest

    # by file: some name tests by parameters that they draw by the clock, and an unknown name would end the collection
    places = sorted({name.partition("::")[0] for name in names}) or list(suite.places)
    if not names and suite.triton:
        files = [file for place in suite.places for file in Path(place).rglob("test_*.py")]
        places = sorted(str(file) for file in files if IMPORTS_TRITON.search(file.read_text(encoding="utf-8")))
    ways = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--continue-on-collection-errors")
    pytest.main([*ways, *suite.options, *places], plugins=[seen])


def judged(error: str | None, findings: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Outcome and its reason; the first finding explains more than the exception that it caused."""
    for kind, message in findings:
        kind = "memory" if kind in ("out_of_bounds", "misaligned") else kind
        return kind if kind in OUTCOMES else "assert", message
    if error is None:
        return "pass", ""
    message = error.replace("\n", " ")[:600]
    if any(name in message for name in OURS):
        return "unsupported", message
    if "OverBudget" in message:
        return "memory size", message
    another = "cannot import name" in message and not any(f"from '{name}" in message for name in ("torch", "triton"))
    lacks = ("ModuleNotFoundError", "No module named", "'_OpNamespace'", "requires the CUDA", "Could not find `lib")
    unimported = re.search(r"module '(?!torch|triton|drkernel)[\w.]+' has no attribute", message)
    if another or unimported or any(name in message for name in lacks):
        return "no test", message
    return ("assert" if "AssertionError" in message or message.startswith("assert ") else "error"), message


def page(rows: list[Row], sample: int | None, *, write: bool) -> str:
    """The page of results; with ``write``, the table of what did not pass is written, too."""
    rows = [{**row, **theirs(row)} for row in rows]
    suites = [suite.name for suite in SUITES if any(row["suite"] == suite.name for row in rows)]
    counts = {name: Counter(row["outcome"] for row in rows if row["suite"] == name) for name in suites}
    shown = [outcome for outcome in OUTCOMES if any(counts[name][outcome] for name in suites)]
    chosen = "all of them" if sample is None else f"a sample of up to {sample} of each suite"
    lines = [
        "# Public suites on the simulated GPU",
        "",
        "Does code that others wrote run, and are its answers right? **The last column says: of the tests that are "
        "right themselves and could run, the share that passes.** Nothing was measured on a GPU.",
        "",
        f"`python benchmarks/sim_public.py DIR...{'' if sample is None else f' --sample {sample}'} --write`, "
        f"{date.today()}, Triton {version('triton')}, torch {version('torch').partition('+')[0]}, `sim:{GPU}`, all "
        f"checks on: {chosen}, unchanged, {sum(row['launches'] for row in rows)} launches recorded, "
        f"{sum(row.get('unexecuted', 0) for row in rows)} of them long ones that nothing read, which were counted and "
        "not executed.",
        "",
        "| suite | tried | launched kernels | " + " | ".join(shown) + " | passed of right tests |",
        "|---|---:|---:|" + "---:|" * (len(shown) + 1),
    ]
    for name in suites:
        count, total = counts[name], sum(counts[name].values())
        shares = [str(count[outcome] or "") for outcome in shown]
        share = count["pass"] / max(1, total - count["no test"] - count["theirs"])
        launched = sum(row["suite"] == name and row["launches"] > 0 for row in rows)
        lines.append(f"| {name} | {total} | {launched} | {' | '.join(shares)} | {share:.0%} |")
    lines += ["", *[f"- *{outcome}*: {OUTCOMES[outcome]}" for outcome in shown], ""]
    failed = [row for row in rows if row["outcome"] not in ("pass", "no test")]
    cells = [[row[key][:260] for key in ("name", "outcome", "why")] for row in failed]
    table = [["what", "outcome", "why"], *cells]
    link = write_table(PAGE.with_suffix(".csv"), table) if write else "\n".join(map(" | ".join, table))
    return "\n".join([*lines, "What did not pass, and why:", "", link, ""])


def theirs(row: Row) -> Row:
    """What replaces the outcome of a row that is a mistake of the suite's own."""
    name = row["name"].partition("[")[0].rpartition("/")[2]
    if row["outcome"] == "pass" or name not in THEIRS:
        return {}
    return {"outcome": "theirs", "why": f"{THEIRS[name]} ({row['outcome']}: {row['why'][:100]})"}


if __name__ == "__main__":
    sys.exit(main())
