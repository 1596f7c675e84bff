"""LLVM IR to native code in this process, by llvmlite's MCJIT."""

from __future__ import annotations

import ctypes
import ctypes.util
import threading
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm

from drkernel.sim.lower.helpers import SYMBOLS, helpers

_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_lock = threading.Lock()
_helpers: Any = None


@dataclass(frozen=True)
class Native:
    """A compiled kernel; the code lives as long as this does."""

    engine: Any
    call: Any
    """``call(context, first, last)``; releases the interpreter lock"""


def build(text: str, symbol: str) -> Native:
    """Compile a module and return its function ``symbol``."""
    with _lock:
        _install_helpers()
    machine = _machine()  # an engine owns its machine and deletes it: never share one
    module = llvm.parse_assembly(text)
    module.verify()  # also refuses values used where their definition does not reach
    tuning = llvm.create_pipeline_tuning_options(speed_level=1)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, tuning))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return Native(engine, _PROTOTYPE(engine.get_function_address(symbol)))


def _machine() -> Any:
    """This CPU with all its vector instructions."""
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
    )


def _install_helpers() -> None:
    """Compile what every kernel calls, once in a process."""
    global _helpers
    if _helpers is not None:
        return
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    libm = ctypes.util.find_library("m")
    if libm is not None:
        llvm.load_library_permanently(libm)
    machine = _machine()
    module = llvm.parse_assembly(helpers())
    module.verify()
    _helpers = llvm.create_mcjit_compiler(module, machine)
    _helpers.finalize_object()
    for name in SYMBOLS:
        llvm.add_symbol(name, _helpers.get_function_address(name))
