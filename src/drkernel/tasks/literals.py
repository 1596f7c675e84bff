"""The integers of a reference's text that are sizes, and the text with others in their place."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SizeLiteral:
    """An integer literal in a module-level assignment."""

    label: str
    """The assigned name, with ``[i]`` where the value holds several integers."""
    value: int
    line: int
    start: int
    end: int
    """Line (from 0) and byte columns in the source."""


def size_literals(source: str) -> list[SizeLiteral]:
    """Integer literals above 1 in module-level assignments and in the two functions that draw inputs."""
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
    """The integers above 1 below a node, in the order of the text."""
    leaves = [leaf for leaf in ast.walk(holder) if isinstance(leaf, ast.Constant)]
    leaves = [leaf for leaf in leaves if type(leaf.value) is int and leaf.value > 1]
    found = []
    for index, leaf in enumerate(sorted(leaves, key=lambda leaf: (leaf.lineno, leaf.col_offset))):
        assert isinstance(leaf.value, int) and leaf.end_col_offset is not None
        label = name if len(leaves) == 1 else f"{name}[{index}]"
        found.append(SizeLiteral(label, leaf.value, leaf.lineno - 1, leaf.col_offset, leaf.end_col_offset))
    return found


def rewrite(source: str, literals: Iterable[SizeLiteral], values: Mapping[str, int]) -> str:
    """``source`` with the literals' values replaced, every line kept in its place."""
    lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
    for literal in sorted(literals, key=lambda literal: (literal.line, literal.start), reverse=True):
        line = lines[literal.line]
        lines[literal.line] = line[: literal.start] + str(values[literal.label]).encode() + line[literal.end :]
    return b"".join(lines).decode()
