"""Faults injected into honest kernels: which are noticed by KernelBench's rule, by our numeric checks, by exact ones.

    python benchmarks/checker_mutations.py --rows rows.csv [--kernels 60]    # resumable: rows that exist are skipped
    python benchmarks/checker_mutations.py --rows rows.csv --page docs/results/checker_mutations.md

Each kind of fault is a change of the syntax tree of Triton functions, made at one of the places that it fits, chosen by
a hash. KernelBench's rule: five draws of the inputs, ``allclose`` at 1e-2. A mutant that does not compile is left out.
"""

import ast
import copy
import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from hashlib import sha256
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "kit"))

from corpus_grading import Entry, entries, sample, task_named
from drkernel.gym.judge.checks import arguments_of, naive_match, values_of
from drkernel.gym.judge.expected import ExpectedSide, same_value
from drkernel.gym.judge.judge import evaluate
from drkernel.gym.judge.own_sizes import chosen_to_check
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.gym.session.factory import SessionFactory
from drkernel.gym.session.protocol import SessionError
from surveys import parser_of, write_table

DRAWS = 5
SETTINGS = {
    "profile": None, "deadline_s": 20.0, "memory_bytes": 1 << 30, "checked_bytes": 2 << 20, "seed": 0,
    "timing": False, "knock_out": False, "other_calls": False,
}  # fmt: skip
PRECISION = ("lowered precision", "dropped cast")
"""kinds that leave the algebra as it is: the numeric checks alone can notice them"""
Rule = Callable[[ast.AST], ast.AST | None]

# ---- kinds of faults


class Names(ast.NodeVisitor):
    """What a kernel computes with: names of loaded and computed values, of maxima, and those that loops carry."""

    def __init__(self, kernel: ast.FunctionDef):
        self.values: set[str] = set()
        self.maxima: set[str] = set()
        self.loads = [node for node in ast.walk(kernel) if called(node, "load")]
        for _ in range(3):  # through loops
            for node in ast.walk(kernel):
                if isinstance(node, ast.Assign | ast.AugAssign):
                    self._assigned(node)
        loops = [node for node in ast.walk(kernel) if isinstance(node, ast.For)]
        within = {id(one) for loop in loops for one in ast.walk(loop)}
        before = {
            name.id for node in ast.walk(kernel) if isinstance(node, ast.Assign) and id(node) not in within
            for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)
        }  # fmt: skip
        self.carried = [
            node for loop in loops for node in ast.walk(loop)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in before
        ]  # fmt: skip

    def _assigned(self, node: ast.Assign | ast.AugAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        if self.value(node.value):
            self.values |= names
        if any(called(one, "max", "maximum") for one in ast.walk(node.value)):
            self.maxima |= names

    def value(self, node: ast.AST) -> bool:
        """Whether an expression is of data, not of indices."""
        if called(node, "load", "dot", "zeros", "exp", "full"):
            return True
        if isinstance(node, ast.Name):
            return node.id in self.values
        return not isinstance(node, ast.Compare) and any(map(self.value, ast.iter_child_nodes(node)))


def called(node: ast.AST, *names: str) -> bool:
    """Whether a node calls one of these functions of ``tl``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {f"tl.{name}" for name in names}


def binary(node: ast.AST, names: Names, *operators: type[ast.operator]) -> ast.BinOp | None:
    """The node, if it is such an operation on data."""
    fits = isinstance(node, ast.BinOp) and isinstance(node.op, operators) and names.value(node)
    return node if fits else None  # type: ignore[return-value]


def changed(node: ast.AST, **parts: object) -> ast.AST:
    """A copy with other parts."""
    other = copy.deepcopy(node)
    for name, part in parts.items():
        setattr(other, name, part)
    return other


def text(source: str) -> ast.expr:
    """An expression."""
    return ast.parse(source, mode="eval").body


def one_side(node: ast.BinOp, names: Names) -> ast.expr:
    return node.left if names.value(node.left) else node.right


def looped(node: ast.AST, change: Callable[[str, str, str], str]) -> ast.AST | None:
    """A loop over ``range`` with another range."""
    if not isinstance(node, ast.For) or ast.unparse(getattr(node.iter, "func", node.iter)) not in RANGES:
        return None
    given = [ast.unparse(one) for one in node.iter.args]  # type: ignore[attr-defined]
    start, end, step = ["0", *given, "1"] if len(given) == 1 else [*given, "1"][:3]
    return changed(node, iter=text(change(start, end, step)))


RANGES = ("range", "tl.range", "tl.static_range")


def _constant(node: ast.AST, low: float, high: float, factor: float) -> ast.AST | None:
    fits = isinstance(node, ast.Constant) and isinstance(node.value, float) and low < abs(node.value) < high
    return ast.Constant(node.value * factor) if fits else None  # type: ignore[attr-defined]


def _swapped(node: ast.AST, names: Names) -> ast.AST | None:
    """``base + a * stride + b`` with the stride at the other axis."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add) or names.value(node):
        return None
    parts = [*summands(node)]
    axes = [part for part in parts if any(isinstance(one, ast.Subscript) for one in ast.walk(part))]
    if len(axes) != 2:
        return None
    (a, s), (b, t) = map(_axis, axes)
    if s == t:
        return None
    rest = [ast.unparse(part) for part in parts if part not in axes]
    return text(" + ".join([*rest, f"{a} * {t}", f"{b} * {s}"]))


def summands(node: ast.AST) -> Iterator[ast.AST]:
    """The terms of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from summands(node.left)
        yield from summands(node.right)
    else:
        yield node


def _axis(part: ast.AST) -> tuple[str, str]:
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
        left, right = ast.unparse(part.left), ast.unparse(part.right)
        return (left, right) if "[" in left else (right, left)
    return ast.unparse(part), "1"


def _axis_of_reduction(node: ast.AST) -> ast.AST | None:
    if not called(node, "sum", "max", "min"):
        return None
    given = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "axis")]  # type: ignore[attr-defined]
    if not given or not isinstance(given[0], ast.Constant) or given[0].value not in (0, 1):
        return None
    return changed(node, args=[node.args[0], ast.Constant(1 - given[0].value)], keywords=[])  # type: ignore[attr-defined]


def _initial(node: ast.AST) -> ast.AST | None:
    if called(node, "zeros"):
        return text(f"({ast.unparse(node)} + 1)")
    infinite = isinstance(node, ast.UnaryOp) and ast.unparse(node).replace('"', "'") == "-float('inf')"
    return ast.Constant(0.0) if infinite else None


def _broadcast(node: ast.AST, names: Names) -> ast.AST | None:
    if not isinstance(node, ast.Subscript) or not names.value(node.value):
        return None
    shown = ast.unparse(node.slice)
    other = {":, None": "None, :", "None, :": ":, None"}.get(shown.strip("()"))
    return None if other is None else text(f"{ast.unparse(node.value)}[{other}]")


def _twice(node: ast.AST, names: Names) -> ast.AST | None:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and names.value(node.value):
        return changed(node, value=text(f"2 * ({ast.unparse(node.value)})"))
    if node in names.carried and (sum_ := binary(node.value, names, ast.Add)) is not None:  # type: ignore[attr-defined]
        return changed(node, value=text(f"{ast.unparse(sum_.left)} + 2 * ({ast.unparse(sum_.right)})"))
    return None


def rules(names: Names) -> dict[str, Rule]:
    """Every kind of fault, as what becomes of a node of the tree that it fits."""

    def of(*operators: type[ast.operator]) -> Callable[[ast.AST], ast.BinOp | None]:
        return lambda node: binary(node, names, *operators)

    add, either, scaled, minus = of(ast.Add), of(ast.Add, ast.Sub), of(ast.Mult, ast.Div), of(ast.Sub)
    flip = {ast.Add: ast.Sub, ast.Sub: ast.Add}
    first = names.loads[:1]

    def less(node: ast.AST) -> bool:
        return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt)

    return {
        "dropped term": lambda n: one_side(b, names) if (b := add(n)) else None,
        "+ for -": lambda n: changed(n, op=flip[type(b.op)]()) if (b := either(n)) else None,
        "missing scale": lambda n: one_side(b, names) if (b := scaled(n)) else None,
        "wrong constant": lambda n: _constant(n, 1e-3, 1e4, 1.01),
        "wrong eps": lambda n: (
            text("(eps * 10)") if isinstance(n, ast.Name) and n.id == "eps" else _constant(n, 0.0, 1.1e-3, 10.0)
        ),
        "off by one in a bound": lambda n: (
            changed(n, comparators=[text(f"{ast.unparse(n.comparators[0])} - 1")]) if less(n) else None  # type: ignore[attr-defined]
        ),
        "<= for <": lambda n: changed(n, ops=[ast.LtE()]) if less(n) else None,
        "missing mask": lambda n: (
            changed(n, args=n.args[:1], keywords=[])  # type: ignore[attr-defined]
            if called(n, "load") and len(n.args) + len(n.keywords) > 1  # type: ignore[attr-defined]
            else None
        ),
        "swapped strides": lambda n: _swapped(n, names),
        "wrong axis": _axis_of_reduction,
        "skipped block": lambda n: looped(n, lambda a, b, s: f"range({a} + {s}, {b}, {s})"),
        "last block missed": lambda n: looped(n, lambda a, b, s: f"range({a}, {b} - {s}, {s})"),
        "lowered precision": lambda n: (
            text(f"{ast.unparse(n)}.to(tl.bfloat16).to(tl.float32)") if called(n, "load") else None
        ),
        "stale value": lambda n: ast.Pass() if n in names.carried else None,
        "wrong initial value": _initial,
        "wrong broadcast": lambda n: _broadcast(n, names),
        "dropped cast": lambda n: (
            n.func.value if isinstance(n, ast.Call) and getattr(n.func, "attr", "") == "to" else None  # type: ignore[attr-defined]
        ),
        "double count": lambda n: _twice(n, names),
        "first load for the second": lambda n: (
            changed(n, args=[first[0].args[0], *n.args[1:]])  # type: ignore[attr-defined]
            if called(n, "load") and n not in first
            else None
        ),
        "neighbour's element": lambda n: (
            changed(n, args=[text(f"{ast.unparse(n.args[0])} + 1"), *n.args[1:]]) if called(n, "load") else None  # type: ignore[attr-defined]
        ),
        "maximum not subtracted": lambda n: (
            b.left
            if (b := minus(n)) and any(getattr(one, "id", "") in names.maxima for one in ast.walk(b.right))
            else None
        ),
        "max for sum": lambda n: changed(n, func=text("tl.max")) if called(n, "sum") else None,
    }  # fmt: skip


class Change(ast.NodeTransformer):
    """Makes the change at one of the nodes that it fits, and counts these."""

    def __init__(self, rule: Rule, which: int = -1):
        self.rule, self.which, self.count, self.line = rule, which, 0, 0

    def visit(self, node: ast.AST) -> ast.AST:
        """Change a node, or those within."""
        other = self.rule(node)
        if other is not None:
            self.count += 1
            if self.count - 1 == self.which:
                self.line = getattr(node, "lineno", 0)
                return other
        return self.generic_visit(node)


def mutants(name: str, source: str) -> Iterator[tuple[str, int, str]]:
    """A mutant of each kind that fits: its kind, line and source."""
    for kind in KINDS:
        tree = ast.parse(source)
        places: list[tuple[ast.FunctionDef, Rule, int]] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list):
                counter = Change(rules(Names(node))[kind])
                for one in node.body:
                    counter.visit(one)
                places += [(node, counter.rule, number) for number in range(counter.count)]
        if places:
            drawn = int(sha256(f"{name} {kind}".encode()).hexdigest(), 16) % len(places)
            kernel, rule, number = places[drawn]
            change = Change(rule, number)
            kernel.body = [change.visit(one) for one in kernel.body]  # type: ignore[misc]
            yield kind, change.line, ast.unparse(ast.fix_missing_locations(tree))


KINDS = tuple(rules(Names(ast.parse("def f(): pass").body[0])))  # type: ignore[arg-type]

# ---- grading


@dataclass
class Row:
    """A mutant's outcome."""

    kernel: str
    fault: str
    line: int
    kernelbench: str
    """missed or noticed by its rule"""
    numeric: str
    """the status without exact verification"""
    exact: str
    """proved, differs, open; empty where the numeric checks noticed it"""
    same: str
    """'same' where the answers are the honest kernel's bit by bit"""
    why: str


def drawn(entry: Entry, source: str, factory: SessionFactory) -> tuple[bool, list[object]]:
    """Whether KernelBench's rule passes a candidate, and its answers."""
    request = EvalRequest(task=task_named(entry.header["task"]), candidate=source, settings=EvalSettings(**SETTINGS))
    side = ExpectedSide(request, chosen_to_check(request).source)
    instance = side.problem.instance(side.build_seed, randomize=False)
    answers: list[object] = []
    passed = True
    try:
        with factory.open(request.settings) as session:
            loaded = session.load(
                source, instance.init_args, instance.init_kwargs, seed=side.build_seed, conv_tf32=False
            )
            if side.bind(loaded.parameters) is None and side.pairs:
                state = instance.model.state_dict()
                session.load_state({theirs: state[mine] for theirs, mine in side.pairs.items()})
            for seed in range(DRAWS):
                inputs = side.reference.draw_inputs(seed)
                values = values_of(session.call(arguments_of(inputs), poison="random"))
                answers += values
                passed = passed and naive_match(values, instance.run(inputs))
    except SessionError:
        return False, []
    return passed, answers


def graded(entry: Entry, kind: str, line: int, source: str, honest: list[object], factory: SessionFactory) -> Row:
    """One mutant by all three."""
    passed, answers = drawn(entry, source, factory)
    task = task_named(entry.header["task"])
    verdict = evaluate(EvalRequest(task=task, candidate=source, settings=EvalSettings(**SETTINGS)), factory)
    exact = verdict.exactness
    same = len(answers) == len(honest) > 0 and all(map(same_value, answers, honest))
    why = (exact.why if exact else verdict.correctness and verdict.correctness.message) or ""
    return Row(
        entry.path.stem, kind, line, "missed" if passed else "noticed", verdict.status,
        exact.outcome if exact else "", "same" if same else "", why[:120],
    )  # fmt: skip


# ---- the tables


def kind_of(row: Row) -> str:
    """'stillborn', 'equivalent', 'precision' or 'fault'."""
    if row.numeric == "compile_error":
        return "stillborn"
    if row.numeric != "correct" or row.exact == "differs":
        return "fault"
    if row.same or (row.exact == "proved" and row.fault not in PRECISION):
        return "equivalent"
    return "precision" if row.fault in PRECISION else "fault"


def write(rows: list[Row], path: Path) -> None:
    """The tables beside the page; its figures are printed."""
    lines, totals = [["fault", "faults", "KernelBench", "numeric", "exact"]], Counter[str]()
    for fault in (*KINDS, "all"):
        some = [row for row in rows if fault in (row.fault, "all") and kind_of(row) != "stillborn"]
        kinds = Counter(map(kind_of, some))
        faults = [row for row in some if kind_of(row) == "fault"]
        totals = Counter(
            mutants=len(some), equivalent=kinds["equivalent"], precision=kinds["precision"], faults=len(faults),
            kernelbench=sum(row.kernelbench == "missed" for row in faults),
            numeric=sum(row.numeric == "correct" for row in faults),
            exact=sum(row.numeric == "correct" and row.exact != "differs" for row in faults),
        )  # fmt: skip
        shown = [totals[name] for name in ("faults", "kernelbench", "numeric", "exact")]
        lines.append([fault, *map(str, shown)])
    open_ = [row for row in rows if kind_of(row) == "fault" and row.numeric == "correct" and row.exact != "differs"]
    said = [f"- {row.kernel}, line {row.line}, {row.fault}: {row.exact or 'not compared'}, {row.why}" for row in open_]
    usual = [row for row in rows if kind_of(row) == "fault" and not row.kernel.startswith("exact_")]
    others = f"{sum(row.kernelbench == 'missed' for row in usual)} of {len(usual)} outside of exact_*"
    print(dict(totals), others, *said, sep="\n")
    table = [[field.name for field in fields(Row)], *([str(one) for one in astuple(row)] for row in rows)]
    write_table(path.with_suffix(".csv"), table)
    write_table(path.with_name(f"{path.stem}_kinds.csv"), lines)


def main() -> None:
    """Grade what is not in the rows yet; write the tables."""
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="CSV file of the rows, continued")
    parser.add_argument("--kernels", type=int, default=60)
    parser.add_argument("--page", type=Path, help="write the tables of the rows beside this page, instead of grading")
    given = parser.parse_args()
    rows = []
    if given.rows.exists():
        with given.rows.open(newline="") as file:
            rows = [Row(**{**row, "line": int(row["line"])}) for row in csv.DictReader(file)]  # type: ignore[arg-type]
    if given.page:
        write(rows, given.page)
        return
    torch.set_num_threads(1)
    known = {(row.kernel, row.fault) for row in rows}
    with SessionFactory(spares=1) as factory, given.rows.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not rows:
            writer.writerow([field.name for field in fields(Row)])
        for entry in sample([one for one in entries("honest") if "triton.jit" in one.source], given.kernels):
            left = [one for one in mutants(entry.path.stem, entry.source) if (entry.path.stem, one[0]) not in known]
            honest = drawn(entry, entry.source, factory)[1] if left else []
            for kind, line, source in left:
                row = graded(entry, kind, line, source, honest, factory)
                writer.writerow(astuple(row))
                file.flush()
                print(*astuple(row), sep="\t", flush=True)


if __name__ == "__main__":
    main()
