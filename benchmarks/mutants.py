"""Break the code in places drawn by a seed, and say which of the breaks the fast tests notice.

    python benchmarks/mutants.py draw CHECKOUT --seed 29 --count 60 --to places.json
    python benchmarks/mutants.py run CHECKOUT --places places.json --work WORK
    python benchmarks/mutants.py table WORK [WORK OF ANOTHER CHECKOUT]

``draw CHECKOUT OTHER`` takes places alone whose line the same function of both has, wherever it moved. ``run`` works
on a copy that has all breaks at once, each behind a switch in memory that all processes share from when they import the
package, so that it also works in those that are forked and confined later. One pytest collects everything and forks:

1. Folder by folder, the cheap first, one child runs every test. That tells which tests reach which place.
2. For every place that nothing has killed yet, a child with its switch on runs the tests that reach it, those that name
   its module before others, the quick before the slow, ``--seconds`` of them at most, until one fails. It has killed
   the mutant unless it fails with the switch off as well. A child that hangs or crashes counts as a failure.

What runs at import alone is not broken. Results are appended to WORK, which must not lie in /tmp; a run that was ended
goes on where it was. It has a namespace for its processes, and the copy is at the checkout's path (``--at``: at that of
another one, whose environment is used): a broken guard of a signal or of a removal may do anything. Linux.
"""

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
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

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
PROBE = '''"""Written by benchmarks/mutants.py."""
import ctypes, os
_bytes = None
try:
    _file = os.open({path!r}, os.O_RDWR)
    _map = ctypes.CDLL(None).mmap
    _map.restype = ctypes.c_void_p
    _at = _map(None, ctypes.c_size_t(256), 3, 1, _file, ctypes.c_long(0))  # read and write, shared; holds no file
    _bytes = (ctypes.c_ubyte * 256).from_address(_at)
    os.close(_file)
except OSError:
    pass
def broken(number):
    if _bytes is None:
        return False
    _bytes[number] = 1
    return _bytes[0] == number
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


def modules(checkout: Path) -> dict[str, str]:
    """The texts of the packages' modules, by file."""
    paths = [path for source in SOURCES for path in sorted((checkout / source).rglob("*.py"))]
    files = {str(path.relative_to(checkout)): path for path in paths}
    return {file: path.read_text() for file, path in files.items() if not SKIPPED_FOLDERS & {*Path(file).parts}}


def places(file: str, text: str) -> dict[Place, tuple[int, int]]:
    """Every place of a module, in the order of its text, and its span of bytes."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    found, count = dict[Place, tuple[int, int]](), Counter[object]()
    for function, node in _in_functions(ast.parse(text), "", False):
        for kind, old, after in _changes(node):
            shown = (function, lines[old.lineno - 1].decode().strip(), kind, after)
            found[Place(file, *shown, count[shown])] = span(old)
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


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """(kind, the expression that is replaced, by what) of one node."""

    def new(**fields: object) -> str:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return ast.unparse(other)

    match node:
        case ast.Compare(ops=[op]):
            if type(op) in FLIPPED:
                yield "flipped comparison", node, new(ops=[FLIPPED[type(op)]()])
            if type(op) in SHIFTED:
                yield "off by one", node, new(ops=[SHIFTED[type(op)]()])
        case ast.BoolOp(op=op):
            yield "and, or", node, new(op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "dropped not", node, ast.unparse(operand)
        case ast.If(test=test, orelse=[], body=[*_, ast.Raise() | ast.Return() | ast.Continue() | ast.Break() as last]):
            yield "dropped check" if isinstance(last, ast.Raise) else "dropped guard", test, "False"
        case ast.Call(func=ast.Name(id=word) | ast.Attribute(attr=word) as func):
            if word in EXTREMES:
                other = copy.copy(func)
                setattr(other, "id" if isinstance(func, ast.Name) else "attr", EXTREMES[word])
                yield "min, max", node, new(func=other)
            for keyword in node.keywords:
                if keyword.arg and "mask" in keyword.arg and not isinstance(keyword.value, ast.Constant):
                    yield "skipped mask", keyword.value, "None"
            if word == "range" and node.args:
                yield from _one_more(node.args[-1])
        case ast.BinOp(op=ast.BitAnd(), left=left):
            yield "skipped mask", node, ast.unparse(left)
        case ast.BinOp(op=op, left=left, right=right) if type(op) in SWAPPED:
            if not any(isinstance(one, (ast.JoinedStr, ast.List, ast.Tuple)) or _is(str, one) for one in (left, right)):
                yield "arithmetic", node, new(op=SWAPPED[type(op)]())
                yield from _one_more(right)
        case ast.AugAssign(op=ast.Add() | ast.Sub(), value=value) if not _is(str, value):
            yield "arithmetic", value, f"-({ast.unparse(value)})"
        case ast.Slice(lower=lower, upper=upper):
            for bound in (lower, upper):
                yield from _one_more(bound)
        case ast.Return(value=ast.Constant(value=bool() as told) as value):
            yield "other answer", value, str(not told)
        case ast.Expr(value=ast.Call(func=func) as call) if not SPOKEN.search(ast.unparse(func).rpartition(".")[2]):
            yield "dropped call", call, "None"


def _is(kind: type, node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is kind


def _one_more(node: ast.expr | None) -> Iterator[tuple[str, ast.expr, str]]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off by one", node, str(node.value + 1)


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


# ---- a run


def run(checkout: Path, at: Path, python: Path, work: Path, chosen: list[Place], seconds: float) -> None:
    """Copy the checkout, put all breaks into it, and have its pytest find out."""
    root, count = work / "checkout", len(chosen)
    assert count < 256
    if not root.exists():
        ignored = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "build", "dist")
        shutil.rmtree(work / "copying", ignore_errors=True)
        shutil.copytree(checkout, work / "copying", symlinks=True, ignore=ignored)
        (work / "tmp").mkdir(exist_ok=True)
        (work / "tmp").chmod(0o1777)
        (work / "switch").write_bytes(bytes(256))
        (work / "switch").chmod(0o666)
        texts, edits = modules(checkout), defaultdict[str, list[tuple[int, int, str]]](list)
        found = {place.name: (file, span) for file, text in texts.items() for place, span in places(file, text).items()}
        present = {}
        for number, place in enumerate(chosen, start=1):
            if place.name in found:
                present[number], (begin, end) = found[place.name]
                plain = texts[present[number]].encode()[begin:end].decode()
                switched = f"(({place.after}) if _broken({number}) else ({plain}))"
                edits[present[number]].append((begin, end, switched))
        for file, spans in edits.items():
            (work / "copying" / file).write_text(_importing(edited(texts[file], spans)))
        (work / "copying/benchmarks").mkdir(exist_ok=True)
        shutil.copy(__file__, work / "copying/benchmarks/mutants.py")  # this one, whatever the checkout has
        (work / "copying/src/drkernel/_reach.py").write_text(PROBE.format(path=str(work / "switch")))
        (work / "plan.json").write_text(json.dumps({"files": present, "work": str(work), "seconds": seconds}))
        (work / "copying").rename(root)
    for left in (work / "tmp").iterdir():
        shutil.rmtree(left, ignore_errors=True)
    command = [str(python), "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider", "--tb=no", "-n", "0"]
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *user, "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    env |= {"PYTHONPATH": str(Path(__file__).parent), "MUTANTS_PLAN": str(work / "plan.json")}
    words = [*unshare, "sh", "-c", CONFINED, "sh", str(at), str(work), *command, "--continue-on-collection-errors"]
    os.execvpe(words[0], words, env)


def _importing(text: str) -> str:
    """The module with an import of the switch, after what has to stand before it."""
    first = next(node for node in ast.parse(text).body if not _is_preamble(node))
    at = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))]) - 1
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:at], "from drkernel._reach import broken as _broken\n", *lines[at:]])


def _is_preamble(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def lines_of(path: Path) -> list[dict]:
    """The lines of a file of JSON; one that was cut off is left out."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("}\n")]


def pytest_configure(config: pytest.Config) -> None:
    if "MUTANTS_PLAN" in os.environ:
        plan = json.loads(Path(os.environ["MUTANTS_PLAN"]).read_text())
        config.pluginmanager.register(Measurement(plan), "mutants-measurement")


class Measurement:
    """In pytest: in place of running the tests, run them in children."""

    def __init__(self, plan: dict):
        self.work, self.seconds = Path(plan["work"]), float(plan["seconds"])
        self.files: dict[int, str] = {int(number): file for number, file in plan["files"].items()}
        self.outcome = ""
        with (self.work / "switch").open("r+b") as file:
            self.switch = mmap.mmap(file.fileno(), 0)

    def pytest_sessionstart(self) -> None:
        if find_spec("drkernel._reach") is None:  # of another checkout, which nothing is broken in
            raise pytest.UsageError(f"{sys.executable} has another drkernel than the copy's: see --python")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.outcome = "skipped"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        by_folder: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            by_folder["/".join(Path(item.nodeid.split("::")[0]).parent.parts[:2])].append(item)
        for folder in sorted(by_folder, key=lambda name: (name.endswith(("e2e", "gym")), name.endswith("box"), name)):
            self._look(folder, by_folder[folder])
        return True

    def _look(self, folder: str, items: list[pytest.Item]) -> None:
        """Measure every mutant that is alive by a folder's tests."""
        results, reached = self.work / "results.jsonl", self.work / f"{folder.replace('/', '-')}.jsonl"
        known = {one["place"] for one in lines_of(results) if one["result"] == "killed" or one["folder"] == folder}
        alive = [number for number in self.files if number not in known]
        for _ in range(5 if alive else 0):
            left = {one["id"] for one in lines_of(reached)}
            if not (rest := [item for item in items if item.nodeid not in left]):
                break
            self._in_child(rest, 0, reached, seconds=36_000, until_failure=False)
        passed = {one["id"]: one for one in lines_of(reached) if one["outcome"] == "passed"}
        for number in alive:
            tests = [item for item in items if number in passed.get(item.nodeid, {}).get("reached", ())]
            names = {item.path: _names(item.path, self.files[number]) for item in tests}
            tests.sort(key=lambda item: (not names[item.path], passed[item.nodeid]["seconds"]))
            spent, meets = 0.0, list[pytest.Item]()
            for item in tests:
                if spent + passed[item.nodeid]["seconds"] <= self.seconds:
                    meets.append(item)
                    spent += passed[item.nodeid]["seconds"]
            killer = self._killer(number, meets, spent)
            result = "killed" if killer else "survived" if tests else "not reached"
            line = {"place": number, "result": result, "by": killer, "folder": folder, "tests": len(meets)}
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(time.strftime("%H:%M"), line, file=sys.__stderr__, flush=True)

    def _killer(self, number: int, tests: list[pytest.Item], seconds: float) -> str | None:
        out = self.work / "out.jsonl"
        while tests:
            last = self._last(tests, number, out, seconds)
            if last is None:
                return None
            failed = next((item for item in tests if item.nodeid == last), tests[0])
            if self._last([failed], 0, out, seconds) is None:
                return failed.nodeid
            tests = [item for item in tests if item is not failed]
        return None

    def _last(self, tests: list[pytest.Item], number: int, out: Path, seconds: float) -> str | None:
        """The test that failed, or in which the child ended."""
        out.unlink(missing_ok=True)
        whole = self._in_child(tests, number, out, seconds=120 + 10 * seconds, until_failure=True)
        lines = lines_of(out)
        if whole and not any(one["outcome"] == "failed" for one in lines):
            return None
        return lines[-1]["id"] if lines else tests[0].nodeid

    def _in_child(
        self, items: list[pytest.Item], number: int, out: Path, *, seconds: float, until_failure: bool
    ) -> bool:
        """Run tests with a switch on; whether that came to its end."""
        for cache in Path.cwd().glob(".test_cache/*"):
            shutil.rmtree(cache, ignore_errors=True)
        self.switch[:] = bytes([number, *bytes(255)])
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            self._run(items, out, until_failure)
        deadline = time.monotonic() + seconds
        while os.waitpid(pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                break
            time.sleep(0.05)
        else:
            return lines_of(out)[-1]["outcome"] != "started"
        return False

    def _run(self, items: list[pytest.Item], out: Path, until_failure: bool) -> NoReturn:
        try:
            for item, following in pairwise([*items, None]):
                assert item is not None

                def note(**line: object) -> None:
                    with out.open("a") as file:  # closed each time: a test may count descriptors, or end the process
                        file.write(json.dumps(line) + "\n")

                note(id=item.nodeid, outcome="started")
                self.switch[1:] = bytes(255)
                self.outcome, begin = "passed", time.monotonic()
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                reached = [at for at, byte in enumerate(self.switch[:]) if at and byte]
                note(id=item.nodeid, outcome=self.outcome, seconds=time.monotonic() - begin, reached=reached)
                if until_failure and self.outcome == "failed":
                    break
            items[0].session._setupstate.teardown_exact(None)
        finally:
            os._exit(0)


def _names(test: Path, file: str) -> bool:
    module = file.split("src/")[1].removesuffix(".py").replace("/", ".")
    package, _, name = module.rpartition(".")
    text = test.read_text(errors="replace")
    return module in text or any(name in line for line in text.splitlines() if f"from {package} import" in line)


# ---- the table


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
    both = [at for at in range(1, len(chosen) + 1) if all(at in one for one in cells)]
    for at in both:
        place = chosen[at - 1]
        row = [f"`{place.file}` {place.function}", f"`{place.line}`", f"{place.kind}: `{place.after}`"]
        text += "|\n| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in row)
        text += " | " + " | ".join(one[at] for one in cells) + " "
    killed = ", ".join(
        f"{work.name} {sum('killed' in one[at] for at in both)}" for work, one in zip(works, cells, strict=True)
    )
    return f"{text}|\n\nOf {len(both)} mutants killed: {killed}.\n"


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
    running.add_argument("--python", type=Path, help="by default the environment's that is there, else this one")
    running.add_argument("--places", type=Path, required=True)
    running.add_argument("--work", type=Path, required=True)
    running.add_argument("--seconds", type=float, default=60.0, help="of tests that one mutant meets in one folder")
    commands.add_parser("table").add_argument("works", type=Path, nargs="+")
    said = parser.parse_args()
    if said.command == "draw":
        drawn = draw(said.checkouts, said.count, said.seed)
        said.to.write_text(json.dumps([asdict(place) for place in drawn], indent=1))
        print("\n".join(f"{place.file} {place.function}: {place.kind}: {place.line}" for place in drawn))
    elif said.command == "run":
        said.work.mkdir(parents=True, exist_ok=True)
        shutil.copy(said.places, said.work / "places.json")
        chosen = [Place(**one) for one in json.loads(said.places.read_text())]
        checkout, work = said.checkout.absolute(), said.work.absolute()
        at = (said.at or checkout).absolute()
        own = at / ".venv" / "bin" / "python"
        python = said.python or (own if own.exists() else Path(sys.executable))
        run(checkout, at, python.absolute(), work, chosen, said.seconds)
    else:
        print(table(said.works))


if __name__ == "__main__":
    main()
