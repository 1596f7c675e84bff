"""The languages that candidates may be written in, and the candidate's source in a model's answer.

A :class:`Language` says how a source is recognised, prompted and compiled, and how its launches are observed; a new
one is an entry in :data:`FOREIGN`. The library functions that a source refers to in code that can run are found from
its syntax tree; nothing is executed. A name in a comment, in a string or in a function that nothing refers to is not a
reference.
Names are resolved through imports, so ``from torch.utils.cpp_extension import load_inline as build`` and
``ext.load_inline`` are the same function. This is not a defence: hiding a name from it only earns the verdict of a
candidate that fails.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from drkernel.gym.device import Device, Observable
from drkernel.verdict import ObservedBy


@dataclass(frozen=True)
class TracedKernel:
    """A kernel in a profiler's trace of one or more calls."""

    name: str
    seconds: float
    operator: str | None
    """the operator under which it was launched, e.g. 'aten::relu'; None when there was none"""
    host_seconds: float | None = None
    """host seconds of the runtime's call that launched it, where the trace has that call"""

    @property
    def of_pytorch(self) -> bool:
        """Whether one of PyTorch's own operators launched it."""
        return self.operator is not None and self.operator.startswith(("aten::", "prims::"))


LIBRARIES = ("cublas", "cudnn", "cutlass_80_", "cutlass_90_", "ampere_", "sm80_xmma", "sm90_xmma", "at::native", "nccl")
"""How names of kernels begin, or what they hold, that libraries ship; lower case."""


def not_of_a_library(source: str, kernels: Sequence[TracedKernel]) -> list[TracedKernel]:
    """The kernels that neither an operator of PyTorch nor a library, by its name, launched."""
    named = [kernel for kernel in kernels if any(mark in kernel.name.lower() for mark in LIBRARIES)]
    return [kernel for kernel in kernels if not kernel.of_pytorch and kernel not in named]


@dataclass(frozen=True)
class Language:
    """One language that candidates may be written in."""

    name: str
    """as verdicts name it: 'triton'"""
    title: str
    """as shown to people and models: 'Triton'"""
    roots: tuple[str, ...]
    """dotted names; a reference to one of them, or to anything below it, indicates the language"""
    rule: str
    """the rule of the prompt that says what the computation must be written in"""
    simulated: bool = False
    """whether a simulated GPU executes it"""
    told_by: Literal["hook", "trace"] = "trace"
    """how launches are observed on a real GPU: Triton's launch function is hooked, or a profiler's trace is read"""
    precision_rule: str = ""
    """what the prompt adds about keeping the declared precision"""
    modules: tuple[str, ...] = ()
    """Python packages that a real GPU's runner needs"""
    programs: tuple[str, ...] = ()
    """executables that it needs"""
    compile_s: float = 60.0
    """seconds added to a candidate's deadline for a slow compiler"""
    own: Callable[[str, Sequence[TracedKernel]], list[TracedKernel]] = not_of_a_library
    """(source, kernels of a trace) -> those that the source defines"""

    def refusal(self, device: Device) -> str | None:
        """Return why ``device`` cannot run candidates in this language; None when it can."""
        if device.simulated:
            if self.simulated:
                return None
            return (
                f"{device.name} is a simulated GPU, which executes Triton kernels alone; this candidate is "
                f"{self.title}. Grade it on a real GPU (cuda:N), or write the kernels in Triton"
            )
        missing = [f"the Python package {name}" for name in self.modules if importlib.util.find_spec(name) is None]
        missing += [f"the program {name}" for name in self.programs if shutil.which(name) is None]
        if missing:
            return f"{self.title} needs {' and '.join(missing)}, which this machine does not have"
        return None

    def observes(self, device: Device) -> Mapping[Observable, ObservedBy]:
        """Return what can be observed there of a candidate in this language."""
        if device.simulated or self.told_by == "hook":
            return device.observes
        # what a trace tells of is over: nothing can be kept from being executed
        return {name: who for name, who in device.observes.items() if name != "skip"}

    def used_in(self, references: Iterable[str]) -> set[str]:
        """Return the references that indicate this language."""
        return {name for name in references if any(name == root or name.startswith(f"{root}.") for root in self.roots)}


# ---- CUDA C++ embedded in Python, ``load_inline`` and similar

# A kernel of the trace is the candidate's own when no operator of PyTorch launched it and its name is that of a
# ``__global__`` function in one of the source's strings. A call into cuBLAS matches neither and does not count.

_GLOBAL = re.compile(r"__global__\b(?P<between>[^;{]*?)\b(?P<name>[A-Za-z_]\w*)\s*\(")
_ATTRIBUTE = re.compile(r"__launch_bounds__\s*\([^)]*\)|__cluster_dims__\s*\([^)]*\)|/\*.*?\*/|//[^\n]*", re.DOTALL)


def global_functions(source: str) -> set[str]:
    """Names of the ``__global__`` functions in the string constants of a Python source."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return {found["name"] for text in texts for found in _GLOBAL.finditer(_ATTRIBUTE.sub(" ", text))}


def base_name(kernel: str) -> str:
    """'void ns::scale<float, 4>(float const*, int)' -> 'scale'."""
    text, depth, kept = kernel.replace("(anonymous namespace)", ""), 0, []
    for char in text:
        depth += char in "<("
        if depth == 0:
            kept.append(char)
        depth -= char in ">)"
    return re.split(r"[\s:*&]+", "".join(kept).strip())[-1]


def own_kernels(source: str, kernels: Sequence[TracedKernel]) -> list[TracedKernel]:
    """The kernels of a trace that ``source`` defines."""
    defined = global_functions(source)
    return [kernel for kernel in kernels if not kernel.of_pytorch and base_name(kernel.name) in defined]


CUDA = Language(
    name="cuda",
    title="CUDA C++",
    roots=(
        "torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load", "torch.cuda._compile_kernel",
        "cupy.RawKernel", "cupy.RawModule",
    ),
    rule="The computation runs in CUDA C++ kernels of your own (`__global__`), compiled by "
    "`torch.utils.cpp_extension.load_inline`.",
    programs=("nvcc", "ninja"),
    compile_s=120.0,
    own=own_kernels,
)  # fmt: skip


# ---- all of them

TRITON = Language(
    name="triton",
    title="Triton",
    roots=("triton.jit",),
    rule="The computation runs in Triton kernels of your own (`@triton.jit`).",
    precision_rule='For fp32, `tl.dot` needs `input_precision="ieee"`.',
    simulated=True,
    told_by="hook",
    compile_s=0.0,
)
FOREIGN: tuple[Language, ...] = (
    CUDA,
    Language(
        name="cute",
        title="CuTe DSL",
        roots=("cutlass",),
        rule="The computation runs in CuTe DSL kernels of your own (`@cute.kernel`).",
        modules=("cutlass",),
    ),
    Language(
        name="tilelang",
        title="TileLang",
        roots=("tilelang",),
        rule="The computation runs in TileLang kernels of your own (`@tilelang.jit`).",
        modules=("tilelang",),
    ),
    Language(
        name="helion",
        title="Helion",
        roots=("helion",),
        rule="The computation runs in Helion kernels of your own (`@helion.kernel`).",
        modules=("helion",),
    ),
    Language(
        name="gluon",
        title="Gluon",
        roots=("triton.experimental.gluon",),
        rule="The computation runs in Gluon kernels of your own (`@gluon.jit`).",
    ),
)
"""those of real GPUs only; but for CUDA a profiler's trace shows what was launched"""
LANGUAGES: dict[str, Language] = {language.name: language for language in (TRITON, *FOREIGN)}


def recognise(source: str) -> Language:
    """Recognise a candidate's language by the names that its live code refers to; Triton if none indicates another.

    A source with Triton kernels is Triton, unless it always builds kernels of another language while it is imported.
    Code behind a condition or in a ``try`` may never run, and is judged by whether it does.
    """
    foreign = list(FOREIGN)  # where identifiers may be spelled in several ways
    if source.isascii():
        foreign = [one for one in FOREIGN if any(all(s in source for s in root.split(".")) for root in one.roots)]
    if not foreign:  # reading the syntax tree takes milliseconds
        return TRITON
    found = references(source)
    mixed = bool(TRITON.used_in(found))
    for language in foreign:
        used = language.used_in(found)
        if used and (not mixed or any(found[name] for name in used)):
            return language
    return TRITON


# ---- names in a source

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


# ---- the source in an answer

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+.-]*)[^\n]*$", re.MULTILINE)
_DEFINES = re.compile(r"^(class[ \t]+ModelNew\b|ModelNew[ \t]*[:=])", re.MULTILINE)
_PYTHON = ("python", "py", "python3", "triton", "")
MAX_SOURCE_BYTES = 1 << 20


class ExtractError(ValueError):
    """There is no usable code in the text; the message says what was expected and can be shown to the model."""


def extract_code(text: str) -> str:
    """Return the last fenced Python block that defines ``ModelNew``, else the last that mentions it, else the last one.

    Only text after a closing ``</think>`` counts. A block without a language counts as Python; one that is indented
    with its fence (in a list) is dedented. A last block without a closing fence is accepted if it is a complete module,
    and so is a text that is nothing but a module. Raises :class:`ExtractError` for a text that was cut off within the
    code, or that has no block at all.
    """
    if "\0" in text:
        raise ExtractError("The answer contains NUL bytes.")
    text = text.rpartition("</think>")[2].replace("\ufeff", "")
    blocks, open_block = _blocks(text)
    if open_block is not None:
        open_block = re.sub(r"`{3,}\s*\Z", "\n", open_block)  # a closing fence behind the last line of code
        if not _parses(open_block):
            raise ExtractError("The answer was cut off inside its code block: the closing ``` is missing.")
        blocks.append(("python", open_block))
    elif not blocks and _parses(text):
        blocks.append(("python", text))
    python = [body for language, body in blocks if language.lower() in _PYTHON and body.strip()]
    if not python:
        if blocks:
            languages = ", ".join(sorted({language or "none" for language, _ in blocks}))
            raise ExtractError(f"There is no ```python block in the answer, only blocks of language: {languages}.")
        raise ExtractError("There is no ```python code block in the answer. Put the whole module in one such block.")
    defining = [body for body in python if _DEFINES.search(body)]
    naming = [body for body in python if "ModelNew" in body]
    source = (defining or naming or python)[-1]
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise ExtractError(f"The code block is larger than {MAX_SOURCE_BYTES} bytes.")
    return source


def _blocks(text: str) -> tuple[list[tuple[str, str]], str | None]:
    """Closed blocks as (language, body), and the body of a block that never closes."""
    blocks: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif fence[1][0] == opening[1][0] and len(fence[1]) >= len(opening[1]) and not fence[2]:
            blocks.append((opening[2], _body(opening, text[opening.end() + 1 : fence.start()])))
            opening = None
        elif fence[2]:
            opening = fence  # a new block opens though the last was not closed: the later one counts
    if opening is None or opening[2].lower() not in _PYTHON:
        return blocks, None
    return blocks, _body(opening, text[opening.end() + 1 :])


def _body(opening: re.Match[str], text: str) -> str:
    """Return the lines of a block without the indentation of its opening fence."""
    indent = opening[0][: len(opening[0]) - len(opening[0].lstrip(" \t"))]
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) if indent else text


def _parses(source: str) -> bool:
    """Return whether a block without a closing fence is nevertheless a complete module."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
