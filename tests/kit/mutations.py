"""Additions to the text of any Triton kernel, none of which can make it faster on a GPU."""

import ast
from pathlib import Path

ADDED = {
    "a dead load": "_j = tl.load({read} + tl.arange(0, 128), volatile=True)",
    "two dead passes": """
        for _i in range(2):
            for _k in range(0, 1024, 128):
                _j = tl.load({read} + _k + tl.arange(0, 128), volatile=True)
    """,
    "a scalar loop": """
        _t = 0.0
        for _i in range(500):
            _t = _t * 0.5 + _i
        tl.store({written}, _t, mask=_t < 0)
    """,
    "junk stores": """
        for _i in range(4):
            tl.store({written} + tl.arange(0, 128), tl.zeros([128], tl.float32))
    """,
    "a dead product": """
        _at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        _a = tl.zeros([16, 16], tl.float32)
        for _i in range(2):
            _w = tl.load({read} + _at, volatile=True).to(tl.float16)
            _a = tl.dot(_w, _w, _a)
        tl.store({written} + _at, _a, mask=_a < -1e30)
    """,
    "work of the first program alone": """
        if tl.program_id(0) == 0:
            for _i in range(64):
                _j = tl.load({read} + tl.arange(0, 128), volatile=True)
    """,
    "a reduction": """
        _r = tl.sum(tl.load({read} + tl.arange(0, 128), volatile=True).to(tl.float32), 0)
        tl.store({written}, _r, mask=_r < -1e30)
    """,
}
"""``read`` and ``written`` are a pointer argument that the kernel loads from, and one that it stores to"""


def mutated(source: str, added: str) -> str:
    """The module with ``added`` at the beginning of every kernel that launches can name."""
    tree = ast.parse(source)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and "jit" in " ".join(map(ast.unparse, function.decorator_list)):
            written = _pointer(function, "store", "atomic_add")
            if written:
                read = _pointer(function, "load") or function.args.args[0].arg  # a helper may be the one that loads
                text = _dedented(ADDED[added]).format(read=read, written=written)
                function.body = [*ast.parse(text).body, *function.body]
    return ast.unparse(ast.fix_missing_locations(tree))


def write_mutated(package: Path, target: Path, added: str) -> None:
    """Copy a package of kernels into the folder ``target``, each kernel with ``added``."""
    target.mkdir()
    for file in package.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        changed = text if file.name == "__init__.py" else mutated(text, added)
        (target / file.name).write_text(changed.replace(package.name, target.name), encoding="utf-8")


def _pointer(function: ast.FunctionDef, *calls: str) -> str | None:
    """The argument whose name is the leftmost in the address of a call of ``tl``."""
    names = {argument.arg for argument in function.args.args}
    begins = {
        target.id: _leftmost(node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in calls:
            name = _leftmost(node.args[0])
            while name not in names and begins.get(name or "", name) != name:
                name = begins[name or ""]
            if name in names:
                return name
    return None


def _leftmost(node: ast.expr) -> str | None:
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else None


def _dedented(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    depth = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[depth:] for line in lines)
