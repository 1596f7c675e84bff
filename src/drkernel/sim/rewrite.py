"""Rewrites the launch settings in a source text: block sizes and other constexprs, warps, stages.

A setting is changed wherever the text gives it a value: an assignment to its name, a keyword or a place of a launch
``kernel[grid](...)``, a default of a parameter, a ``triton.Config``. Line numbers stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

OF_LAUNCHES = ("num_warps", "num_stages")
"""settings that every launch has"""


@dataclass(frozen=True)
class _Edit:
    start: tuple[int, int]
    """line (from 1) and byte column"""
    end: tuple[int, int]
    text: str


def with_settings(source: str, settings: Mapping[str, int]) -> str:
    """Return the text with other settings.

    Raises:
        ValueError: nothing in the text gives one of them a value, or it is no Python.
    """
    module = _parsed(source)
    edits: dict[tuple[int, int], _Edit] = {}
    for name, value in settings.items():
        places = list(module.places(name))
        found = [_Edit(*_span(place), str(value)) for place in places]
        if name in OF_LAUNCHES:
            found += [_added(source, call, f"{name}={value}") for call in module.launches_without(name)]
        if not found:
            raise ValueError(f"nothing in it gives {name} a value")
        for edit in found:
            before = edits.get(edit.start)
            if before is not None and edit.start == edit.end:  # two settings are added to one launch
                edit = replace(edit, text=f"{before.text}, {edit.text.removeprefix(', ')}")
            edits[edit.start] = edit
    return _applied(source, list(edits.values()))


class _Module:
    """A text's kernels, and where they are launched."""

    def __init__(self, tree: ast.Module):
        self.kernels: dict[str, ast.FunctionDef] = {}
        self.tuned: set[str] = set()
        self.host: list[ast.AST] = []
        """every node outside the kernels' bodies"""
        self._visit(tree)

    def _visit(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef) and any(_is_jit(each) for each in child.decorator_list):
                self.kernels[child.name] = child
                if any("autotune" in ast.dump(each) for each in child.decorator_list):
                    self.tuned.add(child.name)
                outside = [*child.decorator_list, *child.args.defaults, *filter(None, child.args.kw_defaults)]
                for part in outside:
                    self.host.append(part)
                    self._visit(part)
            else:
                self.host.append(child)
                self._visit(child)

    def launches(self) -> Iterator[tuple[str, ast.Call]]:
        """``kernel[grid](...)`` of the text's own kernels."""
        for node in self.host:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                name = node.func.value
                if isinstance(name, ast.Name) and name.id in self.kernels:
                    yield name.id, node

    def launches_without(self, keyword: str) -> Iterator[ast.Call]:
        """Launches, and configurations of an autotuner, that leave a setting to Triton."""
        for name, call in self.launches():
            if name not in self.tuned and keyword not in [each.arg for each in call.keywords]:
                yield call
        for call in self._configurations():
            if keyword not in [each.arg for each in call.keywords]:
                yield call

    def _configurations(self) -> Iterator[ast.Call]:
        for node in self.host:
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Config":
                yield node

    def places(self, name: str) -> Iterator[ast.expr]:
        """The expressions that give a name its value."""
        for node in self.host:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from _assigned(target, node.value, name)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from _assigned(node.target, node.value, name)
            elif isinstance(node, ast.FunctionDef):
                yield from _defaults(node, name)
        for kernel in self.kernels.values():
            yield from _defaults(kernel, name)
        for launched, call in self.launches():
            yield from _given(call, name)
            names = [each.arg for each in self.kernels[launched].args.args]
            if name in names and names.index(name) < len(call.args):
                yield call.args[names.index(name)]
        for call in self._configurations():
            yield from _given(call, name)
            for table in [*call.args, *(each.value for each in call.keywords)]:
                if isinstance(table, ast.Dict):
                    for key, value in zip(table.keys, table.values, strict=True):
                        if isinstance(key, ast.Constant) and key.value == name:
                            yield value


def _parsed(source: str) -> _Module:
    try:
        return _Module(ast.parse(source))
    except SyntaxError as error:
        raise ValueError(f"not Python: {error}") from error


def _is_jit(decorator: ast.expr) -> bool:
    name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.rpartition(".")[2] == "jit"


def _assigned(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    if isinstance(target, ast.Name) and target.id == name:
        inner = isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "constexpr"
        yield value.args[0] if inner and isinstance(value, ast.Call) and value.args else value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, part in zip(target.elts, value.elts, strict=False):
            yield from _assigned(each, part, name)


def _defaults(function: ast.FunctionDef, name: str) -> Iterator[ast.expr]:
    given = function.args.args[len(function.args.args) - len(function.args.defaults) :]
    pairs = [*zip(given, function.args.defaults, strict=True)]
    pairs += [(a, d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d is not None]
    yield from (default for argument, default in pairs if argument.arg == name)


def _given(call: ast.Call, name: str) -> Iterator[ast.expr]:
    """The keyword of a launch; one that passes on a variable of the same name is left to the variable's value."""
    for keyword in call.keywords:
        if keyword.arg == name and not (isinstance(keyword.value, ast.Name) and keyword.value.id == name):
            yield keyword.value


def _span(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)


def _added(source: str, call: ast.Call, text: str) -> _Edit:
    """Add a keyword before the closing bracket of a call."""
    line, column = call.end_lineno or call.lineno, (call.end_col_offset or 1) - 1
    before = source.encode().split(b"\n")
    inside = b"\n".join([*before[: line - 1], before[line - 1][:column]]).rstrip()
    comma = "" if inside.endswith((b",", b"(")) else ", "
    return _Edit((line, column), (line, column), f"{comma}{text}")


def _applied(source: str, edits: list[_Edit]) -> str:
    """Replace from the end, so that places before stay where they are; what a replaced value spans stays that long."""
    lines = source.encode().split(b"\n")
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        (first, start), (last, end) = edit.start, edit.end
        joined = lines[first - 1][:start] + edit.text.encode() + lines[last - 1][end:]
        lines[first - 1 : last] = [joined, *[b""] * (last - first)]
    return b"\n".join(lines).decode()
