"""Imports go downward only: cli -> report, engines, solve, serve -> rl -> episode -> gym -> sim, tasks -> records, and
the executor, a package of its own, below all."""

import ast
import sys
from pathlib import Path

from places import EXECUTOR, SOURCES, TESTS
from source_trees import imports, module_of, source_files, tree

PACKAGE = SOURCES
RECORDS = {"base", "task", "verdict", "view", "config", "registry", "digest"}
# room -> rooms it may import from (itself and the records always)
MAY_IMPORT = {
    "sim": set(),
    "tasks": {"sim"},
    "gym": {"sim", "tasks"},
    "episode": {"gym", "sim", "tasks"},
    "rl": {"episode", "gym", "sim", "tasks"},
    "serve": {"episode", "gym", "sim", "tasks", "rl"},
    "adapters": {"episode", "gym", "sim", "tasks", "rl", "serve"},
    "engines": {"episode", "gym", "sim", "tasks", "rl", "serve", "adapters"},
    "solve": {"episode", "gym", "sim", "tasks", "rl", "serve"},
    "report": {"episode", "gym", "sim", "tasks", "rl", "serve", "solve"},
    "agents": {"episode", "gym", "sim", "tasks", "serve", "report"},
    "notebook": {"gym", "sim", "tasks", "report"},
    "__main__": {"cli"},
    "cli": {"agents", "episode", "gym", "sim", "tasks", "rl", "serve", "engines", "solve", "report"},
}
# rooms inside a room, from the bottom floor up: each may import from those before it
FLOORS = {
    "sim": (
        "spec",
        "wire",
        "cost",
        "compile_worker",
        "target",
        "gpu",
        "exact",
        "host",
        "inductor",
        "process",
        "script",
        "child",
        "sweep",
    ),
    "gym": (
        "device",
        "languages",
        "request",
        "reward",
        "sandbox",
        "runner",
        "session",
        "judge",
        "pools",
        "explain",
        "kernelgym",
        "feedback",
        "doctor",
    ),
    "episode": (
        "metrics",
        "records",
        "endpoint",
        "meter",
        "program",
        "context",
        "renderer",
        "episode",
    ),
    "rl": ("maths", "model", "data", "run"),
}
RL_MATHS = (
    "advantages",
    "otb",
    "mismatch",
    "rejection",
    "losses",
    "logprobs",
)
MOST_LINES, LEAST_LINES = 700, 80
"""of a module; of one that a single other module imports"""
BUDGET = {
    "adapters": 844, "agents": 301, "base": 312, "cli": 3022, "engines": 1460, "episode": 2877, "executor": 14019,
    "gym": 13896, "report": 2259, "rl": 8140, "serve": 3349, "sim": 19478, "solve": 1116, "tasks": 4733,
}  # fmt: skip
"""lines of a room, without tasks' own files, and of the executor's package: what needs more names what it retires"""
OF_ONE_USER = {
    "ttir_executor.arrays": "the door for users of numpy, loaded when they come",
}
"""the short modules that have a reason to be apart"""
FILES = source_files()
OURS = tuple(path for path in FILES if PACKAGE in path.parents)
"""drkernel's"""


def imports_of(path: Path) -> set[str]:
    """Absolute names of every drkernel module that a file imports, inside functions too."""
    names = set()
    package = ("drkernel", *path.relative_to(PACKAGE).parent.parts)
    for node in imports(path):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                names.add(".".join((*base, *filter(None, [node.module]))))
            elif node.module == "drkernel":
                names |= {f"drkernel.{alias.name}" for alias in node.names}
            elif node.module:
                names.add(node.module)
    return {name for name in names if name == "drkernel" or name.startswith("drkernel.")}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def outside(path: Path, name: str) -> bool:
    """Whether an import leaves the file's room for one that it may not import from."""
    room, target = room_of(path), [*name.split("."), "__init__"][1]
    if target in RECORDS | {"__init__", "__version__"} or target == room:
        return False
    return room in RECORDS | {"__init__"} or target not in MAY_IMPORT[room]


def upstairs(path: Path, name: str) -> bool:
    """Whether an import goes to a higher floor of the file's own room."""
    house, parts = room_of(path), name.split(".")
    if house not in FLOORS or (path.parent == PACKAGE / house and path.name == "__init__.py"):
        return False
    if parts[1:2] != [house] or len(parts) < 3:
        return False
    floor = path.relative_to(PACKAGE / house).parts[0].removesuffix(".py")
    return FLOORS[house].index(parts[2]) > FLOORS[house].index(floor)


def test_imports_go_downward():
    wrong = [
        f"{path.relative_to(PACKAGE)} may not import {name}"
        for path in OURS
        for name in sorted(imports_of(path))
        if outside(path, name) or upstairs(path, name)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_executor_stands_alone():
    """It can be used and published without drkernel, torch and pydantic."""
    for path in EXECUTOR.rglob("*.py"):
        for node in imports(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            roots = {name.split(".")[0] for name in names}
            assert roots <= {*sys.stdlib_module_names, "numpy", "llvmlite", EXECUTOR.name}, f"{path}: {roots}"


def imported_when_run(path: Path) -> set[str]:
    """What may be modules and is imported when a file runs, inside functions too: all but what is for types alone."""
    found = set()
    waiting: list[ast.AST] = [tree(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module or ""}
        waiting += ast.iter_child_nodes(node)
    return found


def test_no_modules_import_each_other_in_a_circle():
    names = {module_of(path): path for path in FILES}
    graph = {name: imported_when_run(path) & names.keys() - {name} for name, path in names.items()}
    while leaves := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in leaves}
    assert not graph, f"a circle among {sorted(graph)}"


def test_rl_maths_import_nothing_of_drkernel():
    allowed = {f"drkernel.rl.maths.{name}" for name in RL_MATHS}
    for name in RL_MATHS:
        path = PACKAGE / "rl" / "maths" / f"{name}.py"
        assert imports_of(path) <= allowed, f"{path.name} must be usable by any engine on its own"


def test_files_stay_readable_in_one_sitting():
    long = [module_of(path) for path in FILES if len(path.read_text().splitlines()) > MOST_LINES]
    assert not long, f"split these, or say less: {MOST_LINES} lines is the limit: {long}"


def test_rooms_keep_to_their_budgets():
    lines: dict[str, int] = dict.fromkeys(BUDGET, 0)
    for path in FILES:
        parts = path.relative_to(PACKAGE).parts if PACKAGE in path.parents else ("executor",)
        if (room := parts[0].removesuffix(".py")) in BUDGET and "suite" not in parts:
            lines[room] += len(path.read_text().splitlines())
    assert all(lines.values()) and {room: n for room, n in lines.items() if n > BUDGET[room]} == {}


def test_no_module_is_a_satellite_of_another():
    """What one module alone uses, and is short, lives in it."""
    names = {module_of(path): path for path in FILES}
    users: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for used in imported_when_run(path) & names.keys() - {name}:
            users[used].add(name)
    short = {name for name, path in names.items() if len(path.read_text().splitlines()) < LEAST_LINES}
    alone = {name for name in short if len(users[name]) == 1}
    assert alone == {*OF_ONE_USER}, f"merge these into the module that imports them: {sorted(alone ^ {*OF_ONE_USER})}"


def test_test_modules_have_names_of_their_own() -> None:
    """pytest imports them by bare name: two of one name cannot be collected together."""
    files = [path for path in TESTS.rglob("*.py") if "corpus" not in path.parts]
    files += TESTS.parent.glob("executor/tests/*.py")
    names = [path.name for path in files if path.name not in ("conftest.py", "__init__.py")]
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_dispatch_modes_keep_the_compiler_out():
    """A mode of PyTorch's own base imports all of its compiler at the first operator."""
    wrong = [
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in set(OURS) - {PACKAGE / "base" / "modes.py"}
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef) and "TorchDispatchMode" in map(ast.unparse, node.bases)
    ]
    assert not wrong, "derive from drkernel.base.modes.DispatchMode: " + ", ".join(wrong)


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(tree(path)) if "suite" not in path.parts else ():  # every task has its Model
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{module_of(path)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
