"""Break the code in places chosen by a seed, and say which of the breaks the fast tests of two checkouts notice.

    python benchmarks/mutants.py choose OLD NEW --seed 29 --count 60 --to places.json
    python benchmarks/mutants.py measure OLD --python OLD/.venv/bin/python --places places.json --work WORK_OLD
    python benchmarks/mutants.py measure NEW --python NEW/.venv/bin/python --places places.json --work WORK_NEW
    python benchmarks/mutants.py table WORK_OLD WORK_NEW --count 60

``choose`` takes places whose lines both checkouts have, and a tenth more: the table leaves out what a later state of a
checkout has lost, and goes on with those. ``measure`` works on copies in its folder, never in the checkout:

1. One run of the whole fast suite with a probe at every place tells which tests reach it, also from processes that are
   forked and confined later (a probe writes to memory that the process holds since it imported the package).
2. Each mutant meets the tests that reach it, until one fails: first those of files that name its module, then the
   quickest. Where few reach it, the other tests of their files, too: what a process does once, one test alone reaches.
3. What is left after a minute of tests runs together: one copy with all these mutants runs all the tests that they
   have not met, and each mutant alone those that fail.

A test counts when it fails again on the mutant and passes without it. A crash, an error at import and a hang (five
times the test's time, at least a minute) are failures. Results are appended to WORK/kills.jsonl; a run that was ended
goes on where it was. As root on Linux each run has a PID namespace and a read-only file system but for its own folder
and a /tmp: a broken guard of a signal or a removal may do anything. About two hours for a suite of 13 minutes.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from mutants_places import FOLDERS, Found, Place, choose, edited, located, modules, places, probed, rooms

PLUGIN = "mutants_plugin"
REACH = "drkernel/_reach.py"
STAGES = ((15.0, 8), (60.0, 25))
"""(seconds of tests, files) that a mutant meets alone, altogether"""
FEW = 10
"""reaching tests below which a place's tests are joined by others of their files"""
MANY_FAILURES = 25
"""failures after which a run of many mutants is looked at"""
LEAST_MEMORY = 1 << 30
"""memory left on the machine below which a run is ended"""
PROBE = '''"""Written by benchmarks/mutants.py."""
import ctypes, os
_bytes = None
try:
    _file = os.open({path!r}, os.O_RDWR)
    _map = ctypes.CDLL(None).mmap
    _map.restype = ctypes.c_void_p
    _at = _map(None, ctypes.c_size_t({size}), 3, 1, _file, ctypes.c_long(0))  # read and write, shared; holds no file
    _bytes = (ctypes.c_ubyte * {size}).from_address(_at)
    os.close(_file)
except OSError:
    pass
def reach(number):
    if _bytes is not None:
        _bytes[number] = 1
'''
UNSHARE = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
CONFINED = """
W="$1"; shift
case "$W" in
    /tmp/*) inside="$W/tmp/${W#/tmp/}"; mkdir -p "$inside"; mount --bind "$W" "$inside" ;;
    *) mount --bind "$W" "$W" ;;
esac || exit 99
mount --rbind "$W/tmp" /tmp && mount -o remount,bind,ro / && echo 19999 > /proc/sys/kernel/ns_last_pid || exit 99
"$@"
exit $?
"""
"""process ids begin at one number: some tests have their own process's in their names"""


@dataclass
class Run:
    """What one run of pytest gave."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """tests, files that could not be imported, and at last what ended the run: a test, or '' when no test had begun"""
    how: str = ""
    """'crashed' or 'hung' when the run did not come to its end"""


class Copy:
    """A copy of a checkout in a folder of its own, whose modules can be changed, and its environment."""

    def __init__(self, checkout: Path, python: Path, folder: Path, files: set[str], pytest: str):
        self.root, self.folder = folder / "checkout", folder
        self._pytest, self._edited, self._writes = shlex.split(pytest), set[str](), 0
        own = python.is_relative_to(checkout / ".venv")
        if not (folder / "copied").exists():
            shutil.rmtree(folder, ignore_errors=True)
            ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "build", "dist")
            shutil.copytree(checkout, self.root, symlinks=True, ignore=ignored)
            for within in (FOLDERS[name] / name for name in FOLDERS if (checkout / FOLDERS[name] / name).exists()):
                shutil.copytree(checkout / within, folder / "unchanged" / within, ignore=ignored)
            if own:
                _copy_environment(checkout, self.root)
            for name in ("tmp", "plugin", "copied"):
                (folder / name).mkdir()
            (folder / "tmp").chmod(0o1777)
        shutil.copy(Path(__file__).with_name(f"{PLUGIN}.py"), folder / "plugin")
        self._python = self.root / python.relative_to(checkout) if own else python
        self.originals = {file: text for file, text in modules(folder / "unchanged").items() if file in files}
        self.found = {file: places(file, text) for file, text in self.originals.items()}
        self._have(self.originals)  # a run that was ended may have left others
        self._probe.unlink(missing_ok=True)

    @property
    def _probe(self) -> Path:
        return self.root / located(REACH)

    def _write(self, file: str, text: str) -> None:
        """Write a module; its time is new, or Python would take the compiled one of before."""
        path = self.root / located(file)
        if path.read_text(encoding="utf-8") == text:
            return
        path.unlink()
        path.write_text(text, encoding="utf-8")
        self._writes += 1
        at = time.time() - 1e6 + self._writes
        os.utime(path, (at, at))
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def break_at(self, chosen: Iterable[Place]) -> None:
        """Have these mutants, and nothing else changed."""
        self._probe.unlink(missing_ok=True)
        edits: dict[str, list[tuple[tuple[int, int], str]]] = defaultdict(list)
        for place in chosen:
            edits[place.file].append((self.found[place.file][place].edit, place.after))
        self._have({file: edited(self.originals[file], spans) for file, spans in edits.items()})

    def probe_at(self, chosen: dict[int, Place]) -> None:
        """Have a probe at each of these places."""
        probes: dict[str, dict[int, Found]] = defaultdict(dict)
        for number, place in chosen.items():
            probes[place.file][number] = self.found[place.file][place]
        path, size = self.folder / "reach.bin", max(chosen) + 1
        path.write_bytes(bytes(size))
        path.chmod(0o666)
        self._probe.write_text(PROBE.format(path=str(path), size=size))
        self._have({file: probed(self.originals[file], at, "drkernel._reach") for file, at in probes.items()})

    def _have(self, texts: dict[str, str]) -> None:
        for file in self._edited - set(texts):
            self._write(file, self.originals[file])
        for file, text in texts.items():
            self._edited.add(file)
            self._write(file, text)
        self._edited = set(texts)

    def run(
        self, tests: dict[str, float] | None, *, most: int, out: Path | None = None, without: Iterable[str] = ()
    ) -> Run:
        """Run tests (identifier -> usual seconds; None: all) until ``most`` have failed (0: to the end)."""
        plan, kept, lines = self.folder / "plan.json", out is not None, out or self.folder / "out.jsonl"
        if not kept:
            lines.unlink(missing_ok=True)
        limits = None if tests is None else {test: max(60.0, 5 * seconds) for test, seconds in tests.items()}
        reach = str(self.folder / "reach.bin") if kept else None
        plan.write_text(json.dumps({"out": str(lines), "tests": limits, "without": list(without), "reach": reach}))
        for left in (self.folder / "tmp").iterdir():
            if not self.folder.is_relative_to(Path("/tmp", left.name)):
                shutil.rmtree(left, ignore_errors=True)
        shutil.rmtree(self.folder / "cache" / "drkernel", ignore_errors=True)
        files = [] if tests is None else list(dict.fromkeys(test.split("::")[0] for test in tests))
        command = [str(self._python), "-m", "pytest", *files, "-p", PLUGIN, "-p", "no:cacheprovider", "--tb=no"]
        command += [*self._pytest, *(["--maxfail", str(most)] if most else []), "--continue-on-collection-errors"]
        seconds = 36_000.0 if tests is None else 300 + 5 * sum(tests.values())
        how = self._execute(command, seconds)
        return _read(lines, how)

    def _execute(self, command: list[str], seconds: float) -> str:
        """Run it for that long at most; how it ended, if not as pytest says itself."""
        own = self._python.is_relative_to(self.root)
        paths = [
            str(self.folder / "plugin"),
            *([] if own else [str(self.root / source) for source in FOLDERS.values()]),
        ]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        kept |= {"MUTANTS_PLAN": str(self.folder / "plan.json"), "XDG_CACHE_HOME": str(self.folder / "cache")}
        with (self.folder / "log.txt").open("wb") as log:
            process = subprocess.Popen(
                [*_confinement(self.folder), *command], cwd=self.root, start_new_session=True,
                env=kept | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            deadline = time.monotonic() + seconds
            while process.poll() is None:
                try:
                    process.wait(2.0)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > deadline or psutil.virtual_memory().available < LEAST_MEMORY:
                        _end(process)
                        return "hung"
        if process.returncode == 99:
            raise RuntimeError((self.folder / "log.txt").read_text(errors="replace"))
        return "crashed"


def _confinement(folder: Path) -> list[str]:
    """A command to prefix to a run's own, where the machine permits it."""
    return [*UNSHARE, "sh", "-c", CONFINED, "sh", str(folder)] if _may_confine() else []


@functools.cache
def _may_confine() -> bool:
    if os.geteuid() == 0 and shutil.which("unshare") and not subprocess.run([*UNSHARE, "true"]).returncode:
        return True
    print("no namespaces here: mutants run unconfined", file=sys.stderr)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a run and all that it started; in a PID namespace the first one takes the others with it."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for one in family:
        if one.is_running():
            one.kill()
    process.wait()


def _read(lines: Path, how: str) -> Run:
    """The run that a file of lines tells of; ``how`` it ended, unless it says that it came to its end."""
    run, line = Run(), {"id": "", "outcome": ""}
    for line in _lines(lines):
        if line["outcome"] in ("passed", "skipped", "failed"):
            (run.failed if line["outcome"] == "failed" else run.passed).append(line["id"])
    if line["outcome"] != "finished":
        run.how = how
        run.failed.append(line["id"] if line["outcome"] == "started" else "")
    return run


def _copy_environment(checkout: Path, root: Path) -> None:
    """The checkout's environment by hard links, in a moment; what names the checkout names the copy."""
    shutil.copytree(checkout / ".venv", root / ".venv", symlinks=True, copy_function=os.link)
    for path in [*(root / ".venv" / "bin").iterdir(), *(root / ".venv").glob("lib/*/site-packages/*.pth")]:
        if path.is_file() and not path.is_symlink() and str(checkout).encode() in (data := path.read_bytes()):
            mode = path.stat().st_mode
            path.unlink()
            path.write_bytes(data.replace(str(checkout).encode(), str(root).encode()))
            path.chmod(mode)


@dataclass(frozen=True)
class Test:
    """A test that passes without mutants."""

    id: str
    seconds: float
    reached: frozenset[int]


class Measurement:
    """The mutants of one checkout."""

    def __init__(self, checkout: Path, python: Path, chosen: list[Place], work: Path, pytest: str, jobs: int):
        self.work, self.chosen = work, chosen
        self._copies: queue.Queue[Copy] = queue.Queue()
        for job in range(jobs):
            self._copies.put(Copy(checkout, python, work / f"job{job}", {place.file for place in chosen}, pytest))
        self.first = first = self._copies.queue[0]
        self.present = {at: one for at, one in enumerate(chosen) if one in first.found.get(one.file, {})}
        self.tests: dict[str, Test] = {}
        self.results: dict[int, dict] = {at: {"result": "gone"} for at in range(len(chosen)) if at not in self.present}
        self._met: dict[int, set[str]] = defaultdict(set)
        self._orders: dict[int, dict[str, float]] = {}
        self._lock = threading.Lock()
        self._log = work / "kills.jsonl"
        for line in _lines(self._log):
            self._note(line)

    # ---- which tests reach which place

    def reach(self) -> None:
        """Run everything once with probes; a test that fails then runs again without them."""
        out, done = self.first.folder / "reach.jsonl", self.work / "reached"
        while not done.exists():
            self.first.probe_at(self.present)
            known = [line["id"] for line in _lines(out) if line["outcome"] not in ("collected", "finished")]
            run = self.first.run(None, most=0, out=out, without=known)
            self.first.break_at([])
            if not run.passed:
                raise RuntimeError(f"no test passes: {self.first.folder}/log.txt")
            if not run.how:
                failed = {test: 60.0 for test in run.failed if "::" in test}
                passing = self.first.run(failed, most=0).passed if failed else []
                print(f"with probes {len(run.failed)} fail; without, {len(passing)} of these pass", flush=True)
                done.write_text(json.dumps(passing))
        passing = set(json.loads(done.read_text()))
        reached, seconds, ended = defaultdict[str, set[int]](set), {}, {}
        for line in _lines(out):
            reached[line["id"]] |= set(line.get("reached", ()))
            seconds[line["id"]], ended[line["id"]] = line.get("seconds", 0.0), line["outcome"]
        for test, outcome in ended.items():
            if outcome == "passed" or test in passing:
                at = reached[test] | reached[test.split("::")[0]]
                self.tests[test] = Test(test, seconds[test], frozenset(at))

    def order(self, at: int) -> dict[str, float]:
        """The tests that a mutant is to meet, the likeliest and quickest first, with their seconds."""
        if at not in self._orders:
            place, rank = self.chosen[at], dict[str, int]()
            module = ".".join(Path(place.file).with_suffix("").parts).removesuffix(".__init__")
            package, _, name = module.rpartition(".")
            for file in {test.split("::")[0] for test in self.tests}:
                text = (self.first.root / file).read_text(errors="replace")
                imported = [line for line in text.splitlines() if f"from {package} import" in line]
                own = module in text or any(name in line for line in imported)
                rank[file] = 0 if own else 1 if package in text else 2
            ordered = sorted(self.tests.values(), key=lambda test: (rank[test.id.split("::")[0]], test.seconds))
            reaching = [test for test in ordered if at in test.reached]
            if 0 < len(reaching) <= FEW:
                files, left = {test.id.split("::")[0] for test in reaching}, STAGES[-1][0]
                for test in ordered:
                    file = test.id.split("::")[0]
                    if at not in test.reached and (file in files or not rank[file]) and left >= test.seconds:
                        reaching.append(test)
                        left -= test.seconds
            self._orders[at] = {test.id: test.seconds for test in reaching}
        return self._orders[at]

    # ---- what the tests say of each mutant

    def kills(self) -> None:
        """Measure every mutant that has no result."""
        with ThreadPoolExecutor(self._copies.qsize()) as pool:
            list(pool.map(self._alone, self.present))
        while left := {at: tests for at in self.present if (tests := self._left(at))}:
            self._together(left)
        for at in self.present:
            if at not in self.results:
                self._tell(place=at, result="survived" if self.order(at) else "not reached", tests=len(self.order(at)))

    def _left(self, at: int) -> dict[str, float]:
        """The tests that a mutant has yet to meet."""
        if at in self.results:
            return {}
        return {test: seconds for test, seconds in self.order(at).items() if test not in self._met[at]}

    def _alone(self, at: int) -> None:
        copy = self._copies.get()
        try:
            for budget, most_files in STAGES:
                spent = sum(seconds for test, seconds in self.order(at).items() if test in self._met[at])
                batch, files = dict[str, float](), set[str]()
                for test, seconds in self._left(at).items():
                    file = test.split("::")[0]
                    if spent + seconds <= budget and (file in files or len(files) < most_files):
                        files.add(file)
                        batch[test], spent = seconds, spent + seconds
                self._meet(copy, at, batch)
        finally:
            self._copies.put(copy)

    def _meet(self, copy: Copy, at: int, tests: dict[str, float]) -> None:
        """Run tests on one mutant until one kills it; those that do not are noted."""
        while tests and at not in self.results:
            begin = time.monotonic()
            copy.break_at([self.chosen[at]])
            run = copy.run(tests, most=1)
            failed = run.failed[0] if run.failed else None
            if failed is not None and self._counts(copy, at, failed, tests):
                how = run.how or ("failed" if "::" in failed else "not imported")
                self._tell(place=at, result="killed", by=failed, how=how, seconds=round(time.monotonic() - begin))
                return
            met = set(run.passed) | (_of(failed, tests) if failed is not None else set(tests))
            self._tell(places=[at], survived=sorted(met))
            tests = {test: seconds for test, seconds in tests.items() if test not in met}

    def _counts(self, copy: Copy, at: int, failed: str, tests: dict[str, float]) -> bool:
        """Whether a test fails again on the mutant and passes without it: by itself, or else after the same others."""
        for again in ({test: tests[test] for test in _of(failed, tests)}, tests):
            copy.break_at([])
            without = copy.run(again, most=0)
            if without.how or failed in without.failed:
                return False
            copy.break_at([self.chosen[at]])
            if failed in copy.run(again, most=1).failed:
                return True
        return False

    def _together(self, left: dict[int, dict[str, float]]) -> None:
        """Run what is left of all mutants on one copy that has them all; each meets by itself what fails there."""
        copy = self.first
        tests = {test: seconds for each in left.values() for test, seconds in each.items()}
        print(f"{len(left)} mutants together, {len(tests)} tests, {sum(tests.values()):.0f} s", flush=True)
        copy.break_at(self.chosen[at] for at in left)
        run = copy.run(tests, most=MANY_FAILURES)
        failed = {test for one in run.failed for test in _of(one, tests)}
        passed = set(run.passed) - failed
        if not failed:
            passed = set(tests)  # what was not collected is not there
        for at, own in left.items():
            self._tell(places=[at], survived=sorted(passed & set(own)))
        for at, own in left.items():
            self._meet(copy, at, {test: seconds for test, seconds in own.items() if test in failed})

    # ---- what is known

    def _tell(self, **line: object) -> None:
        with self._lock:
            with self._log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            self._note(line)
        if "result" in line:
            place = self.chosen[line["place"]]
            told = f"{line['result']} {line.get('by', '')} {line.get('tests', '')}"
            done = f"{time.strftime('%H:%M')} {len(self.results)}/{len(self.chosen)}"
            print(f"{done} {_title(place)}: {told}", flush=True)

    def _note(self, line: dict) -> None:
        if "result" in line:
            self.results[line["place"]] = line
        for at in line.get("places", ()):
            self._met[at] |= set(line["survived"])


def _of(failed: str, tests: Iterable[str]) -> set[str]:
    """The tests that a failure stands for: a file's when it could not be imported, all when none had begun."""
    return {test for test in tests if test == failed or not failed or test.startswith(f"{failed}::")} or set(tests)


def _lines(path: Path) -> list[dict]:
    """The lines of a file of JSON; one that was cut off when a run was ended is left out."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("}\n")]


def _title(place: Place) -> str:
    return f"{place.file} {place.function}: {place.change}"


def table(old: Path, new: Path, count: int) -> str:
    """What both checkouts' tests say of the first ``count`` places that both have, as Markdown."""
    chosen = [Place(**one) for one in json.loads((old / "places.json").read_text())]
    assert (old / "places.json").read_text() == (new / "places.json").read_text(), "not the same places"
    told = []
    for work in (old, new):
        told.append({line["place"]: line for line in _lines(work / "kills.jsonl") if "result" in line})
    compared = [at for at in range(len(chosen)) if at in told[0] and at in told[1]]
    compared = [at for at in compared if "gone" not in (told[0][at]["result"], told[1][at]["result"])][:count]
    text = "| place | line | change | old tests | new tests |\n|---|---|---|---|---|\n"
    for at in sorted(compared, key=lambda at: (chosen[at].file, chosen[at].function, chosen[at].nth)):
        place = chosen[at]
        after = "…" if place.change.startswith("dropped") else place.after
        change = f"{place.change}: {_code(place.before, 40)} → {_code(after, 40)}"
        cells = [f"`{place.file}` {place.function}", _code(place.line, 90), change]
        text += "| " + " | ".join([*cells, *(_verdict(one[at]) for one in told)]) + " |\n"
    killed = [{at for at in compared if one[at]["result"] == "killed"} for one in told]
    text += f"\nOf {len(compared)} mutants the old tests kill {len(killed[0])}, the new ones {len(killed[1])}: "
    return text + f"{len(killed[0] - killed[1])} only the old ones, {len(killed[1] - killed[0])} only the new ones.\n"


def _verdict(line: dict) -> str:
    return f"killed: {_code(line['by'], 100)}" if line["result"] == "killed" else f"**{line['result']}**"


def _code(text: str, most: int) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return f"`{text if len(text) <= most else text[: most - 1] + '…'}`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    choosing = commands.add_parser("choose")
    choosing.add_argument("old", type=Path)
    choosing.add_argument("new", type=Path)
    choosing.add_argument("--seed", type=int, default=29)
    choosing.add_argument("--to", type=Path, required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("checkout", type=Path)
    measuring.add_argument("--python", type=Path, default=Path(sys.executable))
    measuring.add_argument("--places", type=Path, required=True)
    measuring.add_argument("--work", type=Path, required=True)
    measuring.add_argument("--jobs", type=int, default=1)
    measuring.add_argument("--pytest", default="-n 0", help="more arguments of pytest")
    measuring.add_argument("--reach-only", action="store_true", help="stop after the run with probes")
    showing = commands.add_parser("table")
    showing.add_argument("old", type=Path)
    showing.add_argument("new", type=Path)
    for command in (choosing, showing):
        command.add_argument("--count", type=int, default=60)
    said = parser.parse_args()
    if said.command == "choose":
        chosen = choose(said.old, said.new, said.count, said.seed)
        more = choose(said.old, said.new, said.count + said.count // 10, said.seed)
        chosen += [place for place in more if place not in chosen]
        said.to.write_text(json.dumps([asdict(place) for place in chosen], indent=1))
        room = rooms(modules(said.old))
        print("\n".join(f"{room[place.file]}: {_title(place)}" for place in chosen))
    elif said.command == "measure":
        said.work.mkdir(parents=True, exist_ok=True)
        shutil.copy(said.places, said.work / "places.json")
        chosen = [Place(**one) for one in json.loads(said.places.read_text())]
        checkout, python = said.checkout.absolute(), said.python.absolute()
        measurement = Measurement(checkout, python, chosen, said.work.absolute(), said.pytest, said.jobs)
        measurement.reach()
        if not said.reach_only:
            measurement.kills()
    else:
        print(table(said.old, said.new, said.count))


if __name__ == "__main__":
    main()
