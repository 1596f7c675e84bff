"""Compiles LLVM IR to native code in this process, by llvmlite's MCJIT, in two tiers.

Code starts in the quick tier, which is built four times faster and runs two to four times slower. It is rebuilt with
full optimisation once it has run, or is about to run, long enough to repay that. Optimisation passes over the IR do not
pay (``docs/executor.md``): the text is written the way it should run.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from drkernel.sim.executor.kernel_cache import KernelCache, active
from drkernel.sim.executor.lower.helpers import SYMBOLS, helpers

PROMOTE_AFTER = 7.0
"""running time of quick code, as a multiple of what building it took, after which it is built optimised"""

_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_lock = threading.Lock()
_helpers: Any = None


@dataclass(frozen=True)
class Native:
    """Compiled code; it lives as long as this does."""

    engine: Any
    call: Any
    """``call(context, first, last)``; releases the interpreter lock"""


@dataclass
class Code:
    """One kernel's code in whichever tier it is. Safe to use from several threads."""

    text: str
    symbol: str
    optimised: bool = False
    _native: Native | None = None
    _build_seconds: float = 0.0
    _spent: float = 0.0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> Native:
        """Return the code in its current tier, building it if necessary.

        Raises:
            RuntimeError: LLVM refuses the text.
        """
        with self._guard:
            if self._native is None:
                started = time.perf_counter()
                self.optimised = PROMOTE_AFTER <= 0
                self._native = build(self.text, self.symbol, optimise=self.optimised)
                self._build_seconds = time.perf_counter() - started
            return self._native

    def for_work(self, seconds: float) -> Native:
        """Return the code to use when ``seconds`` of work (at the current speed) lie ahead."""
        native = self.now()
        with self._guard:
            if not self.optimised and self._spent + seconds > PROMOTE_AFTER * self._build_seconds:
                self.optimised = True
                native = self._native = build(self.text, self.symbol, optimise=True)
            return native

    def spend(self, seconds: float) -> None:
        """Record that the code ran for ``seconds``."""
        self._spent += seconds


def build(text: str, symbol: str, *, optimise: bool) -> Native:
    """Compile a module and return its function ``symbol``.

    Raises:
        RuntimeError: the text is not valid LLVM IR.
    """
    prepare()
    machine = _machine(2 if optimise else 0)  # an engine owns its machine and deletes it: never share one
    module = llvm.parse_assembly(text)
    module.verify()  # also refuses values used where their definition does not reach
    engine = llvm.create_mcjit_compiler(module, machine)
    kept = active()
    if kept is not None:
        _keep_object(engine, kept, (text, str(optimise), _machine_name()))
    engine.finalize_object()
    return Native(engine, _PROTOTYPE(engine.get_function_address(symbol)))


def _keep_object(engine: Any, kept: KernelCache, key: tuple[str, ...]) -> None:
    """Let an engine take native code from disk, or leave it there."""
    engine.set_object_cache(
        notify_func=lambda module, content: kept.put(content, *key), getbuffer_func=lambda module: kept.get(*key)
    )


@cache
def _machine_name() -> str:
    """The CPU and the compiler that native code is for, and by."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"{version} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


def _machine(level: int) -> Any:
    """This CPU with all its vector instructions."""
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=level, jit=True
    )


def helper_address(name: str) -> int:
    """Return the address of a native helper, to call it from here."""
    prepare()
    assert _helpers is not None
    return int(_helpers.get_function_address(name))


def prepare() -> None:
    """Compile what every kernel calls, once per process (some 25 ms); otherwise the first launch does it."""
    global _helpers
    with _lock:
        if _helpers is not None:
            return
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        libm = ctypes.util.find_library("m")
        if libm is not None:
            llvm.load_library_permanently(libm)
        module = llvm.parse_assembly(helpers())
        module.verify()
        engine = llvm.create_mcjit_compiler(module, _machine(2))
        engine.finalize_object()
        for name in SYMBOLS:
            llvm.add_symbol(name, engine.get_function_address(name))
        _helpers = engine
