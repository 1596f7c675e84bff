"""Finds the integers of a reference's source that are sizes, and replaces them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SizeLiteral:
    """An integer in the text: a literal, or arithmetic on literals."""

    label: str
    """The assigned name, with ``[i]`` where the value holds several integers."""
    value: int
    line: int
    start: int
    end: int
    """Line (from 0) and byte columns in the source."""


def size_literals(source: str) -> list[SizeLiteral]:
    """Return integer literals above 1 in module-level assignments and in the two functions that draw inputs."""
    found: list[SizeLiteral] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            found += _integers(node.name, node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found += _integers(node.targets[0].id, node.value)
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            for target, value in zip(node.targets[0].elts, node.value.elts, strict=False):
                if isinstance(target, ast.Name):
                    found += _integers(target.id, value)
    return found


def _integers(name: str, holder: ast.AST) -> list[SizeLiteral]:
    """Return the integers above 1 below a node, in source order."""
    leaves = [(leaf, value) for leaf, value in _numbers(holder) if value > 1]
    found = []
    for index, (leaf, value) in enumerate(sorted(leaves, key=lambda pair: (pair[0].lineno, pair[0].col_offset))):
        assert leaf.end_col_offset is not None
        label = name if len(leaves) == 1 else f"{name}[{index}]"
        found.append(SizeLiteral(label, value, leaf.lineno - 1, leaf.col_offset, leaf.end_col_offset))
    return found


def _numbers(node: ast.AST) -> Iterator[tuple[ast.expr, int]]:
    """Expressions of integers alone below a node, as large as they are, with their values."""
    value = _value(node)
    if value is not None and isinstance(node, ast.expr) and node.end_lineno == node.lineno:
        yield node, value
        return
    for child in ast.iter_child_nodes(node):
        yield from _numbers(child)


def _value(node: ast.AST) -> int | None:
    """The value of an expression of integers alone; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC:
        return None
    left, right = _value(node.left), _value(node.right)
    if left is None or right is None or (isinstance(node.op, ast.FloorDiv) and right == 0):
        return None
    return _ARITHMETIC[type(node.op)](left, right)


_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def names_in(source: str, function: str) -> list[SizeLiteral]:
    """Every place in a function at which a name that it does not assign is read, labelled by the name; values are 0.

    A place may be overwritten by a number without that name's other places changing.
    """
    found: list[SizeLiteral] = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef) or node.name != function:
            continue
        names = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Name)]
        assigned = {leaf.id for leaf in names if not isinstance(leaf.ctx, ast.Load)}
        for leaf in sorted(names, key=lambda leaf: (leaf.lineno, leaf.col_offset)):
            if leaf.id not in assigned and leaf.end_col_offset is not None:
                found.append(SizeLiteral(leaf.id, 0, leaf.lineno - 1, leaf.col_offset, leaf.end_col_offset))
    return found


def names_of_module_code(source: str, but: Iterable[str]) -> set[str]:
    """Names that classes and functions at module level read, but for the functions ``but``."""
    skipped = set(but)
    bodies = [
        node
        for node in ast.parse(source).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name not in skipped
    ]
    return {leaf.id for body in bodies for leaf in ast.walk(body) if isinstance(leaf, ast.Name)}


def rewrite(source: str, literals: Iterable[SizeLiteral], values: Mapping[str, int]) -> str:
    """Return ``source`` with the literals' values replaced; line numbers do not change."""
    lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
    for literal in sorted(literals, key=lambda literal: (literal.line, literal.start), reverse=True):
        line = lines[literal.line]
        lines[literal.line] = line[: literal.start] + str(values[literal.label]).encode() + line[literal.end :]
    return b"".join(lines).decode()
