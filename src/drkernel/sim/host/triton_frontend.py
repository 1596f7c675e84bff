"""Triton's own front end, up to TTIR, on a machine without a GPU."""

from __future__ import annotations

import contextlib
import importlib
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from drkernel.base.files import cache_folder, open_cache
from drkernel.digest import module_digest
from drkernel.sim.wire.commands import UnsupportedOp
from ttir_executor.kernel_cache import active, keeping

_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FRONT_END = threading.RLock()
"""one thread at a time: Python 3.11's parser counts recursion once for all threads, and fails where they mix"""


@contextmanager
def kernels_on_disk(folder: Path | None = None) -> Iterator[None]:
    """Keep the front end's output and native code in ``folder`` while the block runs, if it exists or can be made, for
    this user alone.

    ``drkernel sim`` and the tests do, for kernels of the user's own; a judge never does (``docs/executor.md``).
    """
    cache = open_cache(folder or cache_folder("kernels"))
    with contextlib.nullcontext() if cache is None else keeping(cache):
        yield


def front_end(src: Any, target: Any, options: Any) -> tuple[str, bool]:
    """The TTIR of a kernel (:func:`ttir_text`), and whether its code makes tensor descriptors; from disk, where kernels
    are kept there. Safe to call from several threads."""
    if hasattr(src, "path"):
        return src.text, "tt.make_tensor_descriptor" in src.text
    with _FRONT_END:
        override = _override(src, target, options)
        if override is not None:
            return override, "tt.make_tensor_descriptor" in override
        return _front_end(src, target, options)


def _front_end(src: Any, target: Any, options: Any) -> tuple[str, bool]:
    kept = active()
    key = [] if kept is None else _key(src, target, options)
    found = None if kept is None else kept.get(*key)
    if found is not None:
        return found[1:].decode(), found[:1] == b"1"
    text, describes = ttir_text(src, target, options)
    if kept is not None:
        kept.put(str(int(describes)).encode() + text.encode(), *key)
    return text, describes


def ttir_text(src: Any, target: Any, options: Any) -> tuple[str, bool]:
    """Return the TTIR of a Triton ``ASTSource``, with source locations, and tensor descriptors rewritten to pointers;
    and whether the kernel makes such descriptors itself, which needs scratch memory from sm_90 on.

    Args:
        src: ``triton.compiler.ASTSource``.
        target: ``GPUTarget`` the code is specialised for.
        options: the backend's parsed options.

    Raises:
        triton.CompilationError: what a GPU user would see for the same kernel.
    """
    from triton.compiler import make_backend
    from triton.compiler.compiler import filter_traceback

    backend = make_backend(target)
    context = _ready.pop() if _ready else _context()
    backend.load_dialects(context)
    try:
        functions = backend.get_codegen_implementation(options)
        module = src.make_ir(target, options, functions, backend.get_module_map(), context)
    except Exception as error:
        filter_traceback(error)  # users see their own lines, as Triton shows them
        raise
    made = str(module)
    describes = "tt.make_tensor_descriptor" in made
    lowered = _HALF_EXTREMES.sub(lambda found: f"tt.descriptor_reduce {'and' if found[1] == 'min' else 'or'}", made)
    if lowered != made:
        return _with_hints(made, _inlined(lowered, context)), describes
    _run_passes(module)
    text = str(module)
    return _with_hints(made, _inlined(text, context) if "tt.call @" in text else text), describes


def _with_hints(made: str, text: str) -> str:
    """The lowered ``text`` with what holds of a host's descriptors: address, shape and strides are multiples of 16, as
    far as accesses of whole lines go, and the last stride, a multiple of 1, is 1."""
    before, after = ((found := _HEADER.search(each)) and found[0] for each in (made, text))
    if before is None or after is None or "!tt.tensordesc<" not in before:
        return text
    asked: list[int] = []
    for kind in re.findall(r"%[\w.]+: (\S+)", before):  # address, shape and strides, two flags
        rank = kind.count("x", 0, kind.rindex("x") + 1) if kind.startswith("!tt.tensordesc<") else 0
        asked += [16] * 2 * rank + [1, 0, 0] if rank else [0]
    each = iter(asked)

    def told(argument: re.Match[str]) -> str:
        number = next(each, 0)
        return f"{argument[0]} {{tt.divisibility = {number} : i32}}" if number else argument[0]

    return text.replace(after, re.sub(r"%[\w.]+: [^\s,)]+", told, after), 1)


_HEADER = re.compile(r"^ *tt\.func public .*$", re.MULTILINE)


_ready: list[Any] = []
"""contexts that :func:`prepare_context` made; each serves one kernel"""


def _context() -> Any:
    from triton._C.libtriton import ir

    context = ir.context()
    ir.load_dialects(context)
    return context


def prepare_context(target: Any) -> None:
    """Load the compiler's dialects for the next kernel: where a process forks others, each of them has that done."""
    from triton.compiler import make_backend

    _ready.append(_context())
    make_backend(target).load_dialects(_ready[-1])


_HALF_EXTREMES = re.compile(r"tt\.descriptor_reduce (min|max)\b(?=[^\n]*xb?f16>)")
"""what Triton's rewriting to pointers has no atomic operation for; "and" and "or" of floating numbers stand for it"""


class _TextSource:
    """A file of TTIR as ``triton.compile("kernel.ttir")`` takes it: Triton's own ``IRSource``, and its lowered text."""

    def __init__(self, source: Any, text: str):
        self.path, self.text, self.signature = str(source.path), text, source.signature
        self.name = source.name.removeprefix("@")
        self.parse_options = source.parse_options


def ir_source(path: str, backend: Any) -> _TextSource:
    """The kernel in a file of TTIR. Raises :class:`UnsupportedOp` for the target's own stages."""
    from triton._C.libtriton import ir
    from triton.compiler.compiler import IRSource

    if not path.endswith(".ttir"):
        raise UnsupportedOp(f"{Path(path).name}: the simulated device runs TTIR, not the stages after it")
    return _TextSource(IRSource(path, ir.context(), backend), _text_of(Path(path), backend))


def _text_of(path: Path, backend: Any) -> str:
    """A file of TTIR with descriptors rewritten and calls inlined."""
    from triton._C.libtriton import ir

    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    return _inlined(path.read_text(), context)


def _override(src: Any, target: Any, options: Any) -> str | None:
    """The TTIR that takes the place of a kernel's own: ``Config(ir_override=...)``, or a file of that kernel in
    Triton's folder of overrides where ``TRITON_KERNEL_OVERRIDE`` is set.

    Raises :class:`UnsupportedOp` for an override of a later stage, which would not run here.
    """
    from triton import knobs
    from triton.compiler import make_backend
    from triton.runtime.cache import get_override_manager

    given = getattr(options, "ir_override", None)
    if knobs.compilation.override:
        manager = get_override_manager(src.hash())
        stages = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "cubin", "hsaco")
        given = next((path for stage in stages if (path := manager.get_file(f"{src.name[:150]}.{stage}"))), None)
    if not given:
        return None
    if not str(given).endswith(".ttir"):
        raise UnsupportedOp(f"an override by {Path(given).name} is not offered: the simulated device runs TTIR")
    return _text_of(Path(given), make_backend(target))


def _key(src: Any, target: Any, options: Any) -> list[str]:
    """All that the TTIR of a kernel depends on: Triton, the kernel, what it is compiled for, and this module."""
    import triton
    from triton._C.libtriton import get_cache_invalidating_env_vars

    environment = repr(sorted(get_cache_invalidating_env_vars().items()))
    kernel = [src.hash(), *_referred_to(src.fn)]
    ours = module_digest(__name__)
    return ["ttir", triton.__version__, ours, repr(target), options.hash(), environment, *kernel]


def _referred_to(fn: Any) -> list[str]:
    """What the TTIR of a function shows and Triton's own hash of it leaves out: the files that it and its callees stand
    in, and what their global names mean (a module's attribute, another name of a function)."""
    found, waiting, seen = set[str](), [fn], set[int]()
    while waiting:
        fn = waiting.pop()
        if id(fn) in seen:
            continue
        seen.add(id(fn))
        found.add(fn.fn.__code__.co_filename)
        known = {**fn.fn.__globals__, **_captured(fn.fn)}
        for chain in set(_DOTTED.findall(fn.src)):
            name, value = _looked_up(chain, known)
            if hasattr(value, "src") and hasattr(value, "fn"):
                waiting += [] if _of_triton(value.fn.__module__) else [value]
            else:
                found |= {f"{name} = {meaning}" for meaning in _meaning(value)}
    return sorted(found)


def _captured(function: Any) -> dict[str, Any]:
    """Variables of enclosing functions."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            found[name] = cell.cell_contents
    return found


def _looked_up(chain: str, known: dict[str, Any]) -> tuple[str, Any]:
    """The value of a dotted name, or of the part of it that leads through modules and classes; and that part. What
    Triton's modules hold is known by its version."""
    name, *rest = chain.split(".")
    value = known.get(name)
    for attribute in rest:
        if not isinstance(value, ModuleType | type):
            break
        if _of_triton(value.__name__ if isinstance(value, ModuleType) else value.__module__):
            break
        name, value = f"{name}.{attribute}", getattr(value, attribute, None)
    return name, value


def _of_triton(module: str) -> bool:
    return module.partition(".")[0] == "triton"


def _meaning(value: Any) -> list[str]:
    """Text of a value that a kernel may refer to; nothing for others, above all tensors of the same name."""
    from triton.language import constexpr, dtype

    if isinstance(value, constexpr):
        return [f"constexpr {meaning}" for meaning in _meaning(value.value)]
    if isinstance(value, bool | int | float | str | dtype):
        return [repr(value)]
    if isinstance(value, tuple | list):
        return [repr([_meaning(one) for one in value])]
    if isinstance(value, ModuleType):
        return [value.__name__]
    if callable(value) and hasattr(value, "__qualname__"):
        return [f"{value.__module__}.{value.__qualname__}"]
    return []


def warm() -> None:
    """Import now what Triton imports at a process's first launch (some 40 ms of Gluon's modules)."""
    with contextlib.suppress(ImportError):  # not in every version
        importlib.import_module("triton.experimental.gluon.nvidia.hopper")


def _inlined(text: str, context: Any) -> str:
    """Return the module with the calls that are left inlined, because no call stack is simulated: of ``noinline``
    functions, and, inside branches and loops, of those that return early."""
    from triton._C.libtriton import ir

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.ttir"
        path.write_text(_CALLED.sub(_of_one_block, text.replace("noinline = true", "noinline = false")))
        module = ir.parse_mlir_module(str(path), context)
        module.context = context
        _run_passes(module)
        return str(module)


_CALLED = re.compile(r"^(  tt\.func private [^\n]*\n)(.*?)(?=^  \})", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^  (\^\w+)(?:\(([^\n]*)\))?:[^\n]*\n", re.MULTILINE)
_TARGET = re.compile(r"(\^\w+)(?:\(([^:]*) : [^)]*\))?")
_RETURNED = re.compile(r"^    tt\.return [^\n]* : (.*?)(?: loc\(.*)?$", re.MULTILINE)


def _of_one_block(function: re.Match[str]) -> str:
    """The device function with nested ``scf.if`` for its blocks, which early returns make and MLIR inlines into no
    region. What follows where branches meet again is written out in each."""
    parts = ["", "", *_BLOCK.split(function[2])]
    types = ", ".join(_RETURNED.findall(function[2])[:1])
    made: dict[str, tuple[list[str], str]] = {}
    left = {at: parts[at + 2].rstrip().rpartition("\n") for at in range(len(parts) - 3, -1, -3)}
    while left:  # one returned to from many places may be written before those
        at = next(at for at, (_, _, end) in left.items() if all(label in made for label, _ in _TARGET.findall(end)))
        (before, _, end), follow = left.pop(at), []
        for label, passed in _TARGET.findall(end):
            names, body = made[label]
            for name, value in zip(names, passed.split(", "), strict=False):
                body = re.sub(rf"{re.escape(name)}(?![\w$.-])", value, body)
            follow.append(body)
        condition, count = end.partition("cond_br ")[2].partition(",")[0], types.count(",") + 1
        branch = f"scf.if {condition} -> ({types}) {{\n" + "\n} else {\n".join(follow) + "\n}\nscf.yield"
        if types:
            values = ", ".join(f"%returned{at}#{k}" for k in range(count))
            branch = f"%returned{at}:{count} = {branch} {values} : {types}"
        end = branch if condition else "".join(follow) or end.replace("tt.return", "scf.yield")
        made[parts[at]] = re.findall(r"(%[\w$.-]+): ", parts[at + 1] or ""), f"{before}\n{end}"
    start, _, values = made[""][1].rpartition("scf.yield")
    return f"{function[1]}{start}tt.return{values}\n"


def _run_passes(module: Any) -> None:
    from triton._C.libtriton import ir, passes

    manager = ir.pass_manager(module.context)
    passes.common.add_inliner(manager)
    for name in ("add_rewrite_tensor_pointer", "add_rewrite_tensor_descriptor_to_pointer"):
        add = getattr(passes.ttir, name, None)
        if add is not None:
            add(manager)
    passes.common.add_canonicalizer(manager)
    passes.ttir.add_combine(manager)
    passes.ttir.add_reorder_broadcast(manager)
    passes.common.add_cse(manager)
    passes.common.add_symbol_dce(manager)
    passes.ttir.add_loop_unroll(manager)
    manager.run(module, "make_ttir")
