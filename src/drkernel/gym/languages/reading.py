"""Finds the library functions that a source refers to in code that can run, from its syntax tree; nothing is executed.

A name in a comment, in a string or in a function that nothing refers to is not a reference. Names are resolved through
imports, so ``from torch.utils.cpp_extension import load_inline as build`` and ``ext.load_inline`` are the same
function. This is not a defence: hiding a name from it only earns the verdict of a candidate that fails.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = _Function | ast.ClassDef


def references(source: str) -> dict[str, bool]:
    """Dotted names that live code refers to -> whether the module always does so while it is imported.

    Code lives at the top level, in ``ModelNew``, and in whatever live code names. Empty for a source that does not
    parse.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    reader = _SourceReader()
    try:
        reader.read(tree)
    except RecursionError:
        return {}
    return reader.found


@dataclass
class _SourceReader:
    found: dict[str, bool] = field(default_factory=dict)
    _imports: dict[str, str] = field(default_factory=dict)
    """name in the source -> dotted name of what it stands for"""
    _definitions: dict[str, list[_Definition]] = field(default_factory=dict)
    _seen: set[tuple[int, bool]] = field(default_factory=set)

    def read(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            elif isinstance(node, _Definition):
                self._definitions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Assign) and (module := _imported_by_name(node.value)):
                self._imports.update({target.id: module for target in node.targets if isinstance(target, ast.Name)})
        self._block(tree.body, always=True)
        self._name("ModelNew", called=True, always=False)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                if node.module and not node.level:
                    self._imports[alias.asname or alias.name] = f"{node.module}.{alias.name}"
            elif alias.asname:
                self._imports[alias.asname] = alias.name
            else:
                root = alias.name.partition(".")[0]
                self._imports[root] = root

    # ---- what runs

    def _block(self, body: list[ast.stmt], always: bool) -> None:
        for statement in body:
            self._statement(statement, always)

    def _statement(self, node: ast.stmt, always: bool) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return
        if isinstance(node, _Function):
            self._expressions([*node.decorator_list, node.args], always)
        elif isinstance(node, ast.ClassDef):
            self._expressions([*node.decorator_list, *node.bases], always)
            self._block(node.body, always)
        elif isinstance(node, ast.If):
            self._if(node, always)
        elif isinstance(node, (ast.Try, ast.TryStar)):
            for part in (node.body, node.orelse, *(handler.body for handler in node.handlers)):
                self._block(part, False)
            self._block(node.finalbody, always)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            self._expressions(list(node.items), always)
            self._block(node.body, always)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            if isinstance(node, ast.While) and _is_never(node.test):
                return
            self._expressions([node.test if isinstance(node, ast.While) else node.iter], always)
            self._block([*node.body, *node.orelse], False)
        else:
            self._expressions([node], always)

    def _if(self, node: ast.If, always: bool) -> None:
        self._expressions([node.test], always)
        if not _is_never(node.test):
            self._block(node.body, False)
        self._block(node.orelse, always and _is_never(node.test))

    # ---- what it names

    def _expressions(self, nodes: list[ast.AST], always: bool) -> None:
        for root in nodes:
            for node in _outside_of_definitions(root):
                called = isinstance(node, ast.Call)
                self._reference(node.func if isinstance(node, ast.Call) else node, called, always)
                if isinstance(node, ast.Call) and (name := self._by_getattr(node)):
                    self._note(name, always)

    def _reference(self, node: ast.AST, called: bool, always: bool) -> None:
        if isinstance(node, ast.Name):
            self._name(node.id, called, always)
        dotted = self._dotted(node)
        if dotted is not None:
            self._note(dotted, always)

    def _note(self, dotted: str, always: bool) -> None:
        self.found[dotted] = self.found.get(dotted, False) or always

    def _name(self, name: str, called: bool, always: bool) -> None:
        """Follow a name that the source defines: what it stands for is live too."""
        for node in self._definitions.get(name, ()):
            at_once = always and called and not isinstance(node, ast.ClassDef)
            if (id(node), at_once) in self._seen:
                continue
            self._seen.add((id(node), at_once))
            if isinstance(node, ast.ClassDef):
                for method in (entry for entry in node.body if isinstance(entry, _Function)):
                    self._block(method.body, False)
            else:
                self._block(node.body, at_once)

    def _dotted(self, node: ast.AST) -> str | None:
        """The resolved name of ``a.b.c`` whose ``a`` is imported."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._imports:
            return None
        return ".".join([self._imports[node.id], *reversed(parts)])

    def _by_getattr(self, node: ast.Call) -> str | None:
        """``getattr(module, "name")``."""
        if not (isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) >= 2):
            return None
        module, name = self._dotted(node.args[0]), node.args[1]
        if module is None or not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            return None
        return f"{module}.{name.value}"


def _outside_of_definitions(root: ast.AST) -> Iterator[ast.AST]:
    """``root`` and the nodes below it, without the bodies of functions that are only defined there."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, _Definition):
            stack.extend(ast.iter_child_nodes(node))


def _is_never(test: ast.expr) -> bool:
    """Whether a condition is plainly false when a candidate is imported or called."""
    if isinstance(test, ast.Constant):
        return not test.value
    if isinstance(test, ast.Name):
        return test.id == "TYPE_CHECKING"
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__":
        return isinstance(test.ops[0], ast.Eq)
    return False


def _imported_by_name(value: ast.expr) -> str | None:
    """``importlib.import_module("x.y")`` or ``__import__("x")``."""
    if not (isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Constant)):
        return None
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    module = value.args[0].value
    return module if name in ("import_module", "__import__") and isinstance(module, str) else None
