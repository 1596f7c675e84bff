"""Places where the code can be broken: found in the syntax tree, chosen by a seed, and found again in another checkout.

A place is told by its file, function and line of text, not by its number of line, so that one choice serves two
checkouts whose sources differ a little. The text of a module is edited at the place alone: nothing else of it changes.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path, PurePath

FOLDERS = {"drkernel": PurePath("src"), "ttir_executor": PurePath("executor", "src")}
"""where in a checkout the packages lie that are broken"""
SMALL = 800
"""lines below which a folder counts to the room above it"""
SKIPPED_FOLDERS = {"suite", "templates", "static"}
SKIPPED_FUNCTIONS = {"__repr__", "__str__", "__rich__", "_repr_html_", "__rich_console__"}
SKIPPED_DECORATORS = re.compile(r"jit|script|overload|abstractmethod|compile")
"""functions that are not run as they are written, or not at all"""
SPOKEN = re.compile(r"print|echo|log|warn|write|rule|append|update$|close$|info$|debug$")
"""calls whose loss is seldom a fault: what is said to a person, or only tidies up"""

Span = tuple[int, int]
FLIPPED = {
    "<": ">=", ">": "<=", "<=": ">", ">=": "<", "==": "!=", "!=": "==", "is": "is not", "is not": "is",
    "in": "not in", "not in": "in",
}  # fmt: skip
SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
SWAPPED = {"+": "-", "-": "+", "*": "//", "//": "*", "+=": "-=", "-=": "+="}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "any": "all", "all": "any"}
COMPARISON = re.compile(r"<=|>=|==|!=|<|>|is\s+not\b|is\b|not\s+in\b|in\b")


@dataclass(frozen=True)
class Place:
    """One place and its change, without numbers of lines."""

    file: str
    """as it is imported: ``drkernel/sim/spec.py``"""
    function: str
    line: str
    """text of the line in which the place begins, without indentation"""
    change: str
    """the kind of change"""
    before: str
    after: str
    nth: int = 0
    """among places of the function that are otherwise the same"""


@dataclass(frozen=True)
class Found:
    """Where a place is in one text of its module, in bytes."""

    edit: Span
    probe: Span
    """an expression that is evaluated whenever the place is reached"""


class _Text:
    """The text of a module and its bytes by line and column."""

    def __init__(self, text: str):
        self.data = text.encode()
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def span(self, node: ast.expr | ast.stmt) -> Span:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def cut(self, span: Span) -> str:
        return self.data[slice(*span)].decode()

    def line(self, offset: int) -> str:
        begin = self.data.rfind(b"\n", 0, offset) + 1
        end = self.data.find(b"\n", offset)
        return self.data[begin : end if end >= 0 else None].decode().strip()


def rooms(texts: dict[str, str]) -> dict[str, str]:
    """The room of each module: its folder, two deep at most, or the one above where a folder's modules are small."""
    room = {file: PurePath(*PurePath(file).parent.parts[:3]) for file in texts}
    for depth in (3, 2):
        lines = Counter[PurePath]()
        for file, text in texts.items():
            lines[room[file]] += text.count("\n")
        for file, folder in room.items():
            if len(folder.parts) == depth and lines[folder] < SMALL:
                room[file] = folder.parent
    return {file: str(folder) for file, folder in room.items()}


def modules(checkout: Path) -> dict[str, str]:
    """The texts of the packages' modules, by file."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((checkout / folder / package).rglob("*.py")):
            file = path.relative_to(checkout / folder)
            if not SKIPPED_FOLDERS & set(file.parts):
                found[str(file)] = path.read_text(encoding="utf-8")
    return found


def located(file: str) -> PurePath:
    """A module's path in a checkout."""
    return FOLDERS[PurePath(file).parts[0]] / file


def places(file: str, text: str) -> dict[Place, Found]:
    """Every place of a module, in the order of its text."""
    source, found, count = _Text(text), {}, Counter[Place]()
    for function, node in _in_functions(ast.parse(text), "", False):
        for change, edit, after, probe in _changes(node, source):
            plain = Place(file, function, source.line(edit[0]), change, source.cut(edit), after)
            found[replace(plain, nth=count[plain])] = Found(edit, source.span(probe))
            count[plain] += 1
    return found


def edited(text: str, edits: list[tuple[Span, str]]) -> str:
    """``text`` with spans of its bytes replaced."""
    data = text.encode()
    for (begin, end), new in sorted(edits, reverse=True):
        data = data[:begin] + new.encode() + data[end:]
    return data.decode()


def mutated(text: str, place: Place) -> str:
    """The module, broken at a place that it has."""
    return edited(text, [(places(place.file, text)[place].edit, place.after)])


def probed(text: str, probes: dict[int, Found], module: str) -> str:
    """The module with a call of ``module``'s ``reach(number)`` at each place; lines keep their numbers."""
    source, edits = _Text(text), []
    for number, found in probes.items():
        edits.append((found.probe, f"(_reach({number}) or ({source.cut(found.probe)}))"))
    first = next(node for node in ast.parse(text).body if not _is_preamble(node))
    compound = isinstance(first, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.If, ast.Try, ast.With))
    line = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
    begin = source.at(line, 0)
    edits.append(((begin, begin), f"from {module} import reach as _reach" + ("\n" if compound else "; ")))
    return edited(text, edits)


def choose(old: Path, new: Path, count: int, seed: int) -> list[Place]:
    """``count`` places that both checkouts have, spread over the rooms by their lines, at least two of each.

    At most one of a function. The kinds of change come in turn, so that the frequent ones do not displace the rare.
    """
    texts, others = modules(old), modules(new)
    by_room: dict[str, list[Place]] = defaultdict(list)
    weight: Counter[str] = Counter()
    for file, room in rooms(texts).items():
        weight[room] += texts[file].count("\n")
        known = places(file, others[file]) if file in others else {}
        by_room[room] += [place for place in places(file, texts[file]) if place in known]
    chosen: list[Place] = []
    for room, share in _shares(weight, count).items():
        chosen += _draw(by_room[room], texts, share, f"{seed} {room}")
    return chosen


def _shares(weight: Counter[str], count: int) -> dict[str, int]:
    """Places for each room: two, and the rest where a place stands for the most lines."""
    shares = dict.fromkeys(sorted(weight), 2)
    while sum(shares.values()) < count:
        shares[max(shares, key=lambda room: weight[room] / shares[room])] += 1
    return shares


def _draw(found: list[Place], texts: dict[str, str], count: int, seed: str) -> list[Place]:
    """Places in an order of the seed's own: one that is gone changes nothing for the others."""

    def rank(of: object) -> str:
        return sha256(f"{seed} {of}".encode()).hexdigest()

    by_change: dict[str, list[Place]] = defaultdict(list)
    for place in sorted(found, key=rank, reverse=True):
        by_change[place.change].append(place)
    changes, drawn, taken = sorted(by_change, key=rank), list[Place](), set[tuple[str, str]]()
    while len(drawn) < count and any(by_change.values()):
        for change in changes:
            place = by_change[change].pop() if by_change[change] else None
            fits = place and len(drawn) < count and (place.file, place.function) not in taken
            if place and fits and is_other_program(texts[place.file], place):
                drawn.append(place)
                taken.add((place.file, place.function))
    return drawn


def _in_functions(node: ast.AST, name: str, inside: bool) -> Iterator[tuple[str, ast.AST]]:
    """(qualified name of the function, node) of the code that functions run; no messages, annotations, decorators."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = " ".join(ast.unparse(one) for one in child.decorator_list)
            if child.name not in SKIPPED_FUNCTIONS and not SKIPPED_DECORATORS.search(decorators):
                body = ast.Module(list(child.body), [])
                yield from _in_functions(body, f"{name}.{child.name}".lstrip("."), True)
        elif isinstance(child, ast.ClassDef):
            yield from _in_functions(child, f"{name}.{child.name}".lstrip("."), False)
        elif isinstance(node, ast.AnnAssign) and child is node.annotation:
            continue
        elif not isinstance(child, (ast.Raise, ast.JoinedStr, ast.Assert)):
            if inside:
                yield name, child
            yield from _in_functions(child, name, inside)


def _changes(node: ast.AST, source: _Text) -> Iterator[tuple[str, Span, str, ast.expr]]:
    """(kind, what is replaced, by what, an expression that shows that the place is reached) of one node."""
    match node:
        case ast.Compare(ops=[_], left=left, comparators=[right]):
            gap = (source.span(left)[1], source.span(right)[0])
            if sign := COMPARISON.search(source.cut(gap)):
                at, word = (gap[0] + sign.start(), gap[0] + sign.end()), " ".join(sign[0].split())
                yield "flipped comparison", at, FLIPPED[word], node
                if word in SHIFTED:
                    yield "off by one", at, SHIFTED[word], node
        case ast.BoolOp():
            word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            values = [source.span(value) for value in node.values]
            gaps = [(before[1], after[0]) for before, after in pairwise(values)]
            text = "".join(
                source.cut(value) + re.sub(rf"\b{word}\b", other, source.cut(gap))
                for value, gap in zip(values, [*gaps, (0, 0)], strict=True)
            )
            lead, tail = (source.span(node)[0], values[0][0]), (values[-1][1], source.span(node)[1])
            yield "and, or", source.span(node), f"({source.cut(lead)}{text}{source.cut(tail)})", node
        case ast.UnaryOp(op=ast.Not()):
            begin, end = source.span(node)
            yield "dropped not", (begin, end), f"({source.cut((begin + 3, end)).strip()})", node
        case ast.If(test=test, orelse=[], body=[*_, ast.Raise() | ast.Return() | ast.Continue() | ast.Break() as last]):
            kind = "dropped check" if isinstance(last, ast.Raise) else "dropped guard"
            yield kind, source.span(test), f"(False and ({source.cut(source.span(test))}))", test
        case ast.Call(func=ast.Name() | ast.Attribute() as func):
            word, end = func.id if isinstance(func, ast.Name) else func.attr, source.span(func)[1]
            if word in EXTREMES:
                yield "min, max", (end - len(word), end), EXTREMES[word], node
            for keyword in node.keywords:
                if keyword.arg and "mask" in keyword.arg and not isinstance(keyword.value, ast.Constant):
                    yield "skipped mask", source.span(keyword.value), "None", keyword.value
            if word == "range" and node.args and _is_count(node.args[-1]):
                yield _one_more(node.args[-1], source)
        case ast.BinOp(op=ast.BitAnd()):
            yield "skipped mask", source.span(node), f"({source.cut(source.span(node.left))})", node
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), left=left, right=right):
            if not any(isinstance(one, (ast.JoinedStr, ast.List, ast.Tuple)) or _is_text(one) for one in (left, right)):
                gap = (source.span(left)[1], source.span(right)[0])
                if sign := re.search(r"//|[-+*]", source.cut(gap)):
                    yield "arithmetic", (gap[0] + sign.start(), gap[0] + sign.end()), SWAPPED[sign[0]], node
                if _is_count(right):
                    yield _one_more(right, source)
        case ast.AugAssign(op=ast.Add() | ast.Sub(), target=target, value=value) if not _is_text(value):
            gap = (source.span(target)[1], source.span(value)[0])
            if sign := re.search(r"[-+]=", source.cut(gap)):
                yield "arithmetic", (gap[0] + sign.start(), gap[0] + sign.end()), SWAPPED[sign[0]], value
        case ast.Slice(lower=lower, upper=upper):
            for bound in (lower, upper):
                if bound is not None and _is_count(bound):
                    yield _one_more(bound, source)
        case ast.Return(value=ast.Constant(value=bool() as told) as value):
            yield "other answer", source.span(value), str(not told), value
        case ast.Expr(value=ast.Call(func=func) as call) if not SPOKEN.search(ast.unparse(func).rpartition(".")[2]):
            yield "dropped call", source.span(call), "None", call


def _is_count(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _one_more(node: ast.expr, source: _Text) -> tuple[str, Span, str, ast.expr]:
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    return "off by one", source.span(node), str(node.value + 1), node


def _is_preamble(node: ast.stmt) -> bool:
    """Whether nothing but ``from __future__`` and a docstring may stand before this statement."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_other_program(text: str, place: Place) -> bool:
    """Whether the broken module compiles, to something else."""
    try:
        broken = mutated(text, place)
        compile(broken, place.file, "exec")
        return ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False
