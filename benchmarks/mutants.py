"""Break the code in places drawn by a seed, and say which of the breaks the fast tests notice.

    python benchmarks/mutants.py draw CHECKOUT --seed 29 --count 60 --to places.json
    python benchmarks/mutants.py run CHECKOUT --places places.json --work WORK
    python benchmarks/mutants.py table WORK [WORK OF ANOTHER CHECKOUT]

``draw CHECKOUT OTHER`` takes places alone whose line the same function of both has, wherever it moved. ``run`` goes
through the folders of tests, the cheap first. Of each it runs everything once with a probe at every place that nothing
has killed yet: that tells which tests reach it, also in processes that are forked and confined later (a probe writes to
memory that the process holds since it imported the package). Then each of these places is broken and meets the tests
that reach it, those that name its module before others, the quick before the slow, ``--seconds`` of them at most. A
test that fails has killed it, unless it fails without the break as well.

Results are appended to WORK, which must not lie in /tmp; a run that was ended goes on where it was. Each run has a
namespace for its processes, and a copy of the checkout at the checkout's path (``--at``: at the path of another one,
whose environment is used): a broken guard of a signal or of a removal may do anything. Linux.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import mmap
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

SOURCES = ("src", "executor/src")
SKIPPED_FOLDERS = {"suite", "templates", "static"}
SKIPPED_FUNCTIONS = re.compile(r"__(repr|str|rich|rich_console)__|_repr_html_")
SKIPPED_DECORATORS = re.compile(r"jit|script|overload|abstractmethod|compile")
"""functions that are not run as they are written, or not at all"""
SPOKEN = re.compile(r"print|echo|log|warn|write|rule|append|update$|close$|info$|debug$")
"""calls whose loss is seldom a fault: what is said to a person, or only tidies up"""
FLIPPED: dict[type, type] = {
    ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn,
}  # fmt: skip
FLIPPED |= {new: old for old, new in FLIPPED.items()}
SHIFTED: dict[type, type] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SWAPPED: dict[type, type] = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult}
EXTREMES = {"min": "max", "minimum": "maximum", "any": "all", "max": "min", "maximum": "minimum", "all": "any"}
NEAR = 4
"""files of tests that a mutant meets before the others are even collected"""
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
CONFINED = """
at=$1 work=$2; shift 2
mkdir -p "$work/checkout/.venv" && if [ -d "$at/.venv" ]; then mount --bind "$at/.venv" "$work/checkout/.venv"; fi &&
mount --rbind "$work/checkout" "$at" && mount --bind "$work/tmp" /tmp && cd "$at" && exec "$@"
exit 99
"""


# ---- places


@dataclass(frozen=True)
class Place:
    """One place and its change, without numbers of lines."""

    file: str
    """in the checkout that it was drawn in"""
    function: str
    line: str
    """text of the line in which it begins"""
    kind: str
    after: str
    nth: int
    """among places of the function that are otherwise the same"""

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """What is the same wherever the function has moved."""
        return self.function, self.line, self.kind, self.after, self.nth


@dataclass(frozen=True)
class Span:
    """Where a place is in its module's text, in bytes."""

    begin: int
    end: int
    probe: tuple[int, int]
    """an expression that is evaluated whenever the place is reached"""


def modules(checkout: Path) -> dict[str, str]:
    """The texts of the packages' modules, by file."""
    paths = [path for source in SOURCES for path in sorted((checkout / source).rglob("*.py"))]
    files = {str(path.relative_to(checkout)): path for path in paths}
    return {file: path.read_text() for file, path in files.items() if not SKIPPED_FOLDERS & {*Path(file).parts}}


def places(file: str, text: str) -> dict[Place, Span]:
    """Every place of a module, in the order of its text."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    found, count = dict[Place, Span](), Counter[object]()
    for function, node in _in_functions(ast.parse(text), "", False):
        for kind, old, after, probe in _changes(node):
            shown = (function, lines[old.lineno - 1].decode().strip(), kind, after)
            found[Place(file, *shown, count[shown])] = Span(*span(old), span(probe))
            count[shown] += 1
    return found


def edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    """``text`` with spans of its bytes replaced."""
    data = text.encode()
    for begin, end, new in sorted(edits, reverse=True):
        data = data[:begin] + new.encode() + data[end:]
    return data.decode()


def _in_functions(node: ast.AST, name: str, inside: bool) -> Iterator[tuple[str, ast.AST]]:
    """(qualified name of the function, node) of what functions run; no messages, annotations, decorators."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = " ".join(ast.unparse(one) for one in child.decorator_list)
            if not SKIPPED_FUNCTIONS.match(child.name) and not SKIPPED_DECORATORS.search(decorators):
                yield from _in_functions(ast.Module(child.body, []), f"{name}.{child.name}".lstrip("."), True)
        elif isinstance(child, ast.ClassDef):
            yield from _in_functions(child, f"{name}.{child.name}".lstrip("."), False)
        elif isinstance(node, ast.AnnAssign) and child is node.annotation:
            continue
        elif not isinstance(child, (ast.Raise, ast.JoinedStr, ast.Assert)):
            if inside:
                yield name, child
            yield from _in_functions(child, name, inside)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr | ast.stmt, str, ast.expr]]:
    """(kind, what is replaced, by what, an expression that shows that the place is reached) of one node."""

    def new(**fields: object) -> str:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return ast.unparse(other) if isinstance(node, ast.stmt) else f"({ast.unparse(other)})"

    match node:
        case ast.Compare(ops=[op]):
            if type(op) in FLIPPED:
                yield "flipped comparison", node, new(ops=[FLIPPED[type(op)]()]), node
            if type(op) in SHIFTED:
                yield "off by one", node, new(ops=[SHIFTED[type(op)]()]), node
        case ast.BoolOp(op=op):
            yield "and, or", node, new(op=ast.Or() if isinstance(op, ast.And) else ast.And()), node
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "dropped not", node, f"({ast.unparse(operand)})", node
        case ast.If(test=test, orelse=[], body=[*_, ast.Raise() | ast.Return() | ast.Continue() | ast.Break() as last]):
            yield "dropped check" if isinstance(last, ast.Raise) else "dropped guard", test, "False", test
        case ast.Call(func=ast.Name(id=word) | ast.Attribute(attr=word) as func):
            if word in EXTREMES:
                other = copy.copy(func)
                setattr(other, "id" if isinstance(func, ast.Name) else "attr", EXTREMES[word])
                yield "min, max", node, new(func=other), node
            for keyword in node.keywords:
                if keyword.arg and "mask" in keyword.arg and not isinstance(keyword.value, ast.Constant):
                    yield "skipped mask", keyword.value, "None", keyword.value
            if word == "range" and node.args:
                yield from _one_more(node.args[-1])
        case ast.BinOp(op=ast.BitAnd(), left=left):
            yield "skipped mask", node, f"({ast.unparse(left)})", node
        case ast.BinOp(op=op, left=left, right=right) if type(op) in SWAPPED:
            if not any(isinstance(one, (ast.JoinedStr, ast.List, ast.Tuple)) or _is(str, one) for one in (left, right)):
                yield "arithmetic", node, new(op=SWAPPED[type(op)]()), node
                yield from _one_more(right)
        case ast.AugAssign(op=op, value=value) if type(op) in SWAPPED and not _is(str, value):
            yield "arithmetic", node, new(op=SWAPPED[type(op)]()), value
        case ast.Slice(lower=lower, upper=upper):
            for bound in (lower, upper):
                yield from _one_more(bound)
        case ast.Return(value=ast.Constant(value=bool() as told) as value):
            yield "other answer", value, str(not told), value
        case ast.Expr(value=ast.Call(func=func) as call) if not SPOKEN.search(ast.unparse(func).rpartition(".")[2]):
            yield "dropped call", call, "None", call


def _is(kind: type, node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is kind


def _one_more(node: ast.expr | None) -> Iterator[tuple[str, ast.expr, str, ast.expr]]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one", node, str(node.value + 1), node


def room_of(file: str) -> str:
    """The package, and in ``drkernel`` its folder."""
    within = Path(file).parts[file.split("/").index("src") + 1 :]
    return "/".join(within[: 2 if len(within) > 2 and within[0] == "drkernel" else 1])


def draw(checkouts: list[Path], count: int, seed: int) -> list[Place]:
    """``count`` places that all checkouts have, spread over the rooms by their lines, at most one of a function. The
    kinds of change come in turn, so that the frequent ones do not displace the rare."""
    texts, *others = map(modules, checkouts)
    known = [{place.name for file, text in other.items() for place in places(file, text)} for other in others]
    by_room: dict[str, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
    weight = Counter[str]()
    for file, text in texts.items():
        weight[room_of(file)] += text.count("\n")
        for place in places(file, text):
            if all(place.name in names for names in known):
                by_room[room_of(file)][place.kind].append(place)
    drawn, taken, random_ = list[Place](), Counter[str](), random.Random(seed)
    kinds = {room: random_.sample(sorted(by_kind), len(by_kind)) for room, by_kind in sorted(by_room.items())}
    functions = set[str]()
    while len(drawn) < count and kinds:
        room = max(kinds, key=lambda room: weight[room] / (taken[room] + 0.5))
        kind = kinds[room].pop(0)
        left = [place for place in by_room[room][kind] if place.function not in functions]
        if left:
            drawn.append(random_.choice(left))
            functions.add(drawn[-1].function)
            taken[room] += 1
            kinds[room].append(kind)
        elif not kinds[room]:
            del kinds[room]
    return drawn


# ---- runs


class Copy:
    """A copy of a checkout whose modules can be changed, and what runs its tests."""

    def __init__(self, checkout: Path, at: Path, python: Path, work: Path):
        self.root, self.at, self.python, self.work = work / "checkout", at, python, work
        if not (work / "copied").exists():
            shutil.rmtree(self.root, ignore_errors=True)
            ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "build", "dist")
            shutil.copytree(checkout, self.root, symlinks=True, ignore=ignored)
            (work / "tmp").mkdir(exist_ok=True)
            (work / "tmp").chmod(0o1777)
            (work / "copied").touch()
        self.originals = modules(checkout)
        self.found = {
            place.name: (file, span)
            for file, text in self.originals.items()
            for place, span in places(file, text).items()
        }
        self._written = {*self.originals}
        self.write({})

    def write(self, texts: dict[str, str]) -> None:
        """Have these modules changed, and no other."""
        for file in {*self._written, *texts}:
            path, text = self.root / file, texts.get(file, self.originals.get(file))
            if text is None:
                path.unlink(missing_ok=True)
            elif not path.exists() or path.read_text() != text:
                path.write_text(text)
                shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
        self._written = {*texts}

    def broken(self, place: Place) -> dict[str, str]:
        """The module with this place's change."""
        file, span = self.found[place.name]
        return {file: edited(self.originals[file], [(span.begin, span.end, place.after)])}

    def probed(self, chosen: dict[int, Place]) -> dict[str, str]:
        """The modules with a probe at each of these places."""
        edits: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        for number, place in chosen.items():
            file, span = self.found[place.name]
            begin, end = span.probe
            text = self.originals[file].encode()[begin:end].decode()
            edits[file].append((begin, end, f"(_reach({number}) or ({text}))"))
        texts = {"src/drkernel/_reach.py": PROBE.format(path=str(self.work / "reach.bin"), size=max(chosen) + 1)}
        (self.work / "reach.bin").write_bytes(bytes(max(chosen) + 1))
        (self.work / "reach.bin").chmod(0o666)
        for file, spans in edits.items():
            text = edited(self.originals[file], spans)
            first = next(node for node in ast.parse(text).body if not _is_preamble(node))
            line = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))]) - 1
            lines = text.splitlines(keepends=True)
            texts[file] = "".join([*lines[:line], "from drkernel._reach import reach as _reach\n", *lines[line:]])
        return texts

    def run(self, files: list[str], out: Path, *, tests: dict[str, float] | None, reach: bool = False) -> None:
        """Run pytest on files, on ``tests`` of them (with their usual seconds) until one fails, or on all."""
        known = [line["id"] for line in lines_of(out)]
        plan = {"out": str(out), "tests": tests, "without": known, "reach": str(self.work / "reach.bin") * reach}
        (self.work / "plan.json").write_text(json.dumps(plan))
        for left in (self.work / "tmp").iterdir():
            shutil.rmtree(left, ignore_errors=True)
        command = [str(self.python), "-m", "pytest", *files, "-p", "mutants", "-p", "no:cacheprovider", "--tb=no"]
        command += ["-n", "0", "--continue-on-collection-errors", *(["-x"] if tests else [])]
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        unshare = ["unshare", *user, "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        env |= {"PYTHONPATH": str(Path(__file__).parent), "MUTANTS_PLAN": str(self.work / "plan.json")}
        limit = 36_000.0 if tests is None else 300 + 10 * sum(tests.values())
        with (self.work / "log.txt").open("wb") as log:
            words = [*unshare, "sh", "-c", CONFINED, "sh", str(self.at), str(self.work), *command]
            process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            except BaseException:
                process.kill()
                raise
        if process.returncode == 99:
            raise RuntimeError((self.work / "log.txt").read_text(errors="replace"))


def _is_preamble(node: ast.stmt) -> bool:
    """Whether nothing but ``from __future__`` and a docstring may stand before this statement."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def lines_of(path: Path) -> list[dict]:
    """The lines of a file of JSON; one that was cut off is left out."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("}\n")]


def measure(code: Copy, chosen: list[Place], folders: list[str], seconds: float) -> None:
    """Take every place through the folders of tests; what is known goes to ``results.jsonl``."""
    results = code.work / "results.jsonl"

    def note(**line: object) -> None:
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(time.strftime("%H:%M"), line, flush=True)

    for folder in folders:
        known = {line["place"] for line in lines_of(results) if line["result"] == "killed" or line["folder"] == folder}
        alive = {at: place for at, place in enumerate(chosen) if place.name in code.found and at not in known}
        out, done = (code.work / f"reach-{folder.replace('/', '-')}.{end}" for end in ("jsonl", "done"))
        tries = 0
        while alive and not done.exists():
            code.write(code.probed(alive))
            code.run([folder], out, tests=None, reach=True)
            tries += 1
            if lines_of(out)[-1:] and lines_of(out)[-1]["id"] == "":
                done.touch()
            elif tries == 3:
                raise RuntimeError(f"no end: {code.work}/log.txt")
        passing = {line["id"]: line for line in lines_of(out) if line["outcome"] == "passed"}
        collected = {line["id"]: line["reached"] for line in lines_of(out) if line["outcome"] == "collected"}
        for at, place in alive.items():
            file = code.found[place.name][0]
            reaching = {test: line["seconds"] for test, line in passing.items() if at in line["reached"]}
            files = {test.split("::")[0] for test in passing}
            reaching |= {t: passing[t]["seconds"] for t in passing if at in collected.get(t.split("::")[0], ())}
            if 0 < len(reaching) < 10:  # what a process does once, one test alone reaches
                near = {test.split("::")[0] for test in reaching}
                reaching |= {test: line["seconds"] for test, line in passing.items() if test.split("::")[0] in near}
            module = file.split("src/")[1].removesuffix(".py").replace("/", ".")
            own = {test for test in files if _names(code.root / test, module)}
            left, meets = seconds, dict[str, float]()
            for test in sorted(reaching, key=lambda test: (test.split("::")[0] not in own, reaching[test])):
                if reaching[test] <= left:
                    meets[test], left = reaching[test], left - reaching[test]
            near = [*dict.fromkeys(test.split("::")[0] for test in meets)][:NEAR]
            first = {test: meets[test] for test in meets if test.split("::")[0] in near}
            rest = {test: meets[test] for test in meets if test not in first}
            killer = _killer(code, place, first) or _killer(code, place, rest)
            how = "killed" if killer else "survived" if reaching else "not reached"
            note(place=at, result=how, by=killer, folder=folder, tests=len(meets), reaching=len(reaching))
        code.write({})


def _names(test: Path, module: str) -> bool:
    package, _, name = module.rpartition(".")
    text = test.read_text(errors="replace")
    return module in text or any(name in line for line in text.splitlines() if f"from {package} import" in line)


def _killer(code: Copy, place: Place, tests: dict[str, float]) -> str | None:
    """The test that fails on this mutant, and not without it; a file's that cannot be imported stands for all."""
    out = code.work / "out.jsonl"

    def first_failure(texts: dict[str, str], tests: dict[str, float]) -> str | None:
        out.unlink(missing_ok=True)
        code.write(texts)
        code.run([*dict.fromkeys(test.split("::")[0] for test in tests)], out, tests=tests)
        lines = lines_of(out)
        failed = [line["id"] for line in lines if line["outcome"] == "failed"]
        cut_off = not lines or lines[-1]["outcome"] != "finished"
        return failed[0] if failed else (lines[-1]["id"] if lines else min(tests)) if cut_off else None

    while tests:
        failed = first_failure(code.broken(place), tests)
        if failed is None:
            return None
        again = {test: s for test, s in tests.items() if test == failed or test.startswith(f"{failed}::")} or tests
        if first_failure({}, again) is None:
            return failed
        tests = {test: s for test, s in tests.items() if test not in again}
    return None


def table(works: list[Path]) -> str:
    """What the tests of each checkout say of each place, as Markdown."""
    chosen = [Place(**one) for one in json.loads((works[0] / "places.json").read_text())]
    cells: list[dict[int, str]] = []
    for work in works:
        ends = dict[int, dict]()
        for line in lines_of(work / "results.jsonl"):
            if line["place"] not in ends or line["result"] != "not reached":
                ends[line["place"]] = line
        cells.append({at: f"killed: `{line['by']}`" if line["by"] else line["result"] for at, line in ends.items()})
    text = "| place | line | change | " + " | ".join(work.name for work in works) + " |\n" + "|---" * (3 + len(works))
    both = [at for at in range(len(chosen)) if all(at in one for one in cells)]
    for at in both:
        place = chosen[at]
        row = [f"`{place.file}` {place.function}", f"`{place.line}`", f"{place.kind}: `{place.after}`"]
        text += "|\n| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row)
        text += " | " + " | ".join(one[at] for one in cells) + " "
    killed = ", ".join(
        f"{work.name} {sum('killed' in one[at] for at in both)}" for work, one in zip(works, cells, strict=True)
    )
    return f"{text}|\n\nOf {len(both)} mutants killed: {killed}.\n"


# ---- in pytest


def pytest_configure(config: pytest.Config) -> None:
    if "MUTANTS_PLAN" in os.environ:
        plan = json.loads(Path(os.environ["MUTANTS_PLAN"]).read_text())
        config.pluginmanager.register(Watch(plan, config.pluginmanager.hasplugin("timeout")), "mutants-watch")


class Watch:
    """Which tests run, what each reaches, how each ends."""

    def __init__(self, plan: dict, has_limits: bool):
        self.plan, self.has_limits, self.outcome = plan, has_limits, ""
        self.reach: mmap.mmap | None = None
        if plan["reach"]:
            with open(plan["reach"], "r+b") as file:
                self.reach = mmap.mmap(file.fileno(), 0)

    def write(self, **line: object) -> None:
        with open(self.plan["out"], "a") as file:  # closed each time: a test may count descriptors, or end the process
            file.write(json.dumps(line) + "\n")

    def take(self) -> list[int]:
        """The places reached since the last call."""
        found = [] if self.reach is None else [at for at, byte in enumerate(self.reach[:]) if byte]
        for at in found:
            self.reach[at] = 0  # type: ignore[index]
        return found

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self, collector):
        report = yield
        reached = self.take()
        if report.failed or reached:
            self.write(id=collector.nodeid, outcome="failed" if report.failed else "collected", reached=reached)
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        tests, without = self.plan["tests"], set(self.plan["without"])
        items[:] = [item for item in items if (item.nodeid in tests if tests else item.nodeid not in without)]
        if tests and self.has_limits:
            for item in items:
                item.add_marker(pytest.mark.timeout(max(120.0, 10 * tests[item.nodeid])), append=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.take()
        self.write(id=item.nodeid, outcome="started")
        self.outcome, begin = "passed", time.monotonic()
        result = yield
        seconds = round(time.monotonic() - begin, 4)
        self.write(id=item.nodeid, outcome=self.outcome, seconds=seconds, reached=self.take())
        return result

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"

    def pytest_sessionfinish(self):
        self.write(id="", outcome="finished")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("checkouts", type=Path, nargs="+")
    drawing.add_argument("--seed", type=int, default=29)
    drawing.add_argument("--count", type=int, default=60)
    drawing.add_argument("--to", type=Path, required=True)
    running = commands.add_parser("run")
    running.add_argument("checkout", type=Path)
    running.add_argument(
        "--at", type=Path, help="where the environment has the packages; the checkout's path if left out"
    )
    running.add_argument("--python", type=Path, default=Path(sys.executable))
    running.add_argument("--places", type=Path, required=True)
    running.add_argument("--work", type=Path, required=True)
    running.add_argument("--seconds", type=float, default=60.0, help="of tests that one mutant meets in one folder")
    folders = ["tests/unit", "contrib", "executor/tests", "tests/sim", "tests/e2e", "tests/box"]
    running.add_argument("--folders", nargs="+", default=folders)
    commands.add_parser("table").add_argument("works", type=Path, nargs="+")
    said = parser.parse_args()
    if said.command == "draw":
        drawn = draw(said.checkouts, said.count, said.seed)
        said.to.write_text(json.dumps([asdict(place) for place in drawn], indent=1))
        print("\n".join(f"{place.file} {place.function}: {place.kind}: {place.line}" for place in drawn))
    elif said.command == "run":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the run under way ends with this one
        said.work.mkdir(parents=True, exist_ok=True)
        shutil.copy(said.places, said.work / "places.json")
        chosen = [Place(**one) for one in json.loads(said.places.read_text())]
        checkout = said.checkout.absolute()
        code = Copy(checkout, (said.at or checkout).absolute(), said.python.absolute(), said.work.absolute())
        measure(code, chosen, said.folders, said.seconds)
    else:
        print(table(said.works))


if __name__ == "__main__":
    main()
