"""No name at the top of a module is reached by tests alone.

``make lint`` runs vulture, which goes by names and so keeps any function whose name is used anywhere. Here imports are
resolved: a function, class or constant must be used in its own module, imported by another one, or be named in
``__all__``, in the documentation, in a benchmark, in ``vulture_whitelist.py``, or in a string that is a
program or an import path.
"""

import ast
import re
from importlib.util import find_spec
from pathlib import Path

from places import ROOT
from source_trees import module_of, source_files, tree

PLAIN = {"dataclass", "cache", "lru_cache", "contextmanager", "asynccontextmanager", "runtime_checkable", "no_grad"}
"""decorators that leave a definition to be called by name; any other hands it to somebody (a route, a registry)"""


def modules() -> dict[str, tuple[Path, ast.Module]]:
    found = {}
    for path in source_files():
        if "suite" not in path.parts:
            found[module_of(path).removesuffix(".__init__")] = path, tree(path)
    return found


def decorator(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def definitions(tree: ast.Module) -> dict[str, int]:
    """Names that a module defines at its top, with their lines."""
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not node.name.startswith("__") and all(decorator(one) in PLAIN for one in node.decorator_list):
                found[node.name] = node.lineno
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
            found |= {one.id: node.lineno for one in names if not one.id.startswith("__")}
    return found


def dotted(node: ast.expr) -> str:
    """The text of a dotted name, '' of any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{owner}.{node.attr}" if isinstance(node, ast.Attribute) and (owner := dotted(node.value)) else ""


def told(node: ast.Constant) -> bool:
    """Whether a constant is a program, or an import path."""
    return isinstance(node.value, str) and any(word in node.value for word in ("import", "drkernel.", "ttir_executor."))


Parts = list[tuple[ast.stmt, list[ast.AST]]]
"""a module's statements, each with everything in it"""


def uses(module: str, path: Path, parts: Parts, known: set[str]) -> set[tuple[str, str]]:
    """(module, name) of what a module uses, its own names outside of their own definitions included."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found, modules_by_name = set(), {}
    nodes = [node for _, inside in parts for node in inside]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for one in node.names:
                if f"{base}.{one.name}" in known:
                    modules_by_name[one.asname or one.name] = f"{base}.{one.name}"
                else:
                    found.add((base, one.name))
        elif isinstance(node, ast.Import):
            modules_by_name |= {one.asname or one.name: one.name for one in node.names}
    for node in nodes:
        if isinstance(node, ast.Attribute) and (owner := dotted(node.value)) in modules_by_name:
            found.add((modules_by_name[owner], node.attr))
    for top, inside in parts:
        own = getattr(top, "name", None)
        if isinstance(top, ast.Assign) and ast.unparse(top.targets[0]) == "__all__":
            found |= {(module, name) for name in ast.literal_eval(top.value)}
        loads = (one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))
        found |= {(module, name) for name in loads if name != own}
    return found


def unreached(found: dict[str, tuple[Path, ast.Module]], elsewhere: str) -> list[str]:
    known = set(found)
    used, strings = set(), []
    for module, (path, parsed) in found.items():
        parts = [(top, list(ast.walk(top))) for top in parsed.body]
        used |= uses(module, path, parts, known)
        strings += [
            node.value for _, inside in parts for node in inside if isinstance(node, ast.Constant) and told(node)
        ]
    words = set(re.findall(r"\w+", " ".join(strings) + elsewhere))
    return [
        f"{module}:{line} {name}"
        for module, (_, tree) in sorted(found.items())
        for name, line in definitions(tree).items()
        if (module, name) not in used and name not in words
    ]


def test_no_name_is_reached_by_tests_alone() -> None:
    others = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("benchmarks/*.py"),
        ROOT / "README.md",
        ROOT / "executor" / "README.md",
        ROOT / "vulture_whitelist.py",
        ROOT / "examples" / "README.md",
    ]
    assert unreached(modules(), " ".join(path.read_text() for path in others)) == []


def test_what_benchmarks_and_scripts_import_exists() -> None:
    scripts = [
        path for folder in ("benchmarks", "scripts", "tests/kit", "tests/e2e") for path in ROOT.glob(f"{folder}/*.py")
    ]
    own = {name: path for name, (path, _) in modules().items()} | {path.stem: path for path in scripts}
    words = {name: set(re.findall(r"\w+", path.read_text())) for name, path in own.items()}
    missing = []
    for path in scripts:
        for node in tree(path).body:
            if isinstance(node, ast.ImportFrom) and node.module in own:
                absent = {alias.name for alias in node.names} - words[node.module]
                missing += [f"{path.name}: {name}" for name in absent if f"{node.module}.{name}" not in own]
            elif isinstance(node, ast.ImportFrom) and node.module and not find_spec(node.module.partition(".")[0]):
                missing.append(f"{path.name}: {node.module}")
    assert missing == []


def test_it_sees_what_only_its_own_recursion_or_a_namesake_uses() -> None:
    code = {
        "drkernel.a": "def walk(n):\n    return walk(n - 1)\ndef fresh(): ...\ndef kept(): ...\n",
        "drkernel.b": "from drkernel.a import kept\nfrom drkernel import c\nfresh = c.made\nprint(fresh, kept)\n",
        "drkernel.c": "made = 1\nlost = 2\n",
    }
    found = {name: (Path(f"{name}.py"), ast.parse(text)) for name, text in code.items()}
    assert unreached(found, "") == ["drkernel.a:1 walk", "drkernel.a:3 fresh", "drkernel.c:2 lost"]
