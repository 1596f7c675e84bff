"""Triton's own front end, up to TTIR, on a machine without a GPU."""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from pathlib import Path
from typing import Any


def ttir_text(src: Any, target: Any, options: Any) -> str:
    """Return the TTIR of a Triton ``ASTSource``, with source locations, and tensor descriptors rewritten to pointers.

    Args:
        src: ``triton.compiler.ASTSource``.
        target: ``GPUTarget`` the code is specialised for.
        options: the backend's parsed options.

    Raises:
        triton.CompilationError: what a GPU user would see for the same kernel.
    """
    from triton._C.libtriton import ir
    from triton.compiler import make_backend

    backend = make_backend(target)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = _make_ir(src, target, options, backend, context)
    _run_passes(module)
    text = str(module)
    return _inlined(text, context) if "tt.call @" in text else text


def warm() -> None:
    """Import now what Triton imports at a process's first launch (some 40 ms of Gluon's modules)."""
    with contextlib.suppress(ImportError):  # not in every version
        importlib.import_module("triton.experimental.gluon.nvidia.hopper")


def _inlined(text: str, context: Any) -> str:
    """Return the module with its ``noinline`` functions inlined, because no call stack is simulated."""
    from triton._C.libtriton import ir

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.ttir"
        path.write_text(text.replace("noinline = true", "noinline = false"))
        module = ir.parse_mlir_module(str(path), context)
        module.context = context
        _run_passes(module)
        return str(module)


def _make_ir(src: Any, target: Any, options: Any, backend: Any, context: Any) -> Any:
    functions = backend.get_codegen_implementation(options)
    modules = backend.get_module_map()
    try:
        return src.make_ir(target, options, functions, modules, context)
    except TypeError as error:
        if "positional argument" not in str(error):
            raise
        return src.make_ir(options, functions, modules, context)  # before Triton 3.6


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
    try:
        manager.run(module, "make_ttir")
    except TypeError:
        manager.run(module)  # before Triton 3.6
