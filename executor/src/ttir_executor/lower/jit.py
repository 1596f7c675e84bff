"""Compiles LLVM IR to native code in this process, by llvmlite's MCJIT, in two tiers.

Code starts in the quick tier, which is built four times faster and runs two to four times slower. It is rebuilt with
full optimisation once it has run, or is about to run, long enough to repay that. Optimisation passes over the IR do not
pay (``docs/executor.md``): the text is written the way it should run.
"""

import contextlib
import ctypes
import ctypes.util
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from ttir_executor.kernel_cache import active
from ttir_executor.lower.helpers import SYMBOLS, helpers

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
    engine = _engine(text, 2 if optimise else 0)
    return Native(engine, _PROTOTYPE(engine.get_function_address(symbol)))


def _engine(text: str, level: int) -> Any:
    """Code of a module, linked to what it calls; from disk, where kernels are kept there.

    An object is the work of the text, the machine and the compiler alone: what a kernel calls, it calls by name.
    """
    # an engine owns its machine and deletes it: never share one
    machine = llvm.Target.from_default_triple().create_target_machine(**_processor(), opt=level, jit=True)
    kept = active()
    key = ("object", text, str(level), llvm.get_process_triple(), _compiler(), repr(_processor()))
    found = None if kept is None else kept.get(*key)
    if found is not None:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        engine.add_object_file(llvm.ObjectFileRef.from_data(found))
    else:
        module = llvm.parse_assembly(text)
        module.verify()  # also refuses values used where their definition does not reach
        engine = llvm.create_mcjit_compiler(module, machine)
        if kept is not None:
            engine.set_object_cache(notify_func=lambda module, content: kept.put(content, *key))
    engine.finalize_object()
    return engine


@cache
def _processor() -> dict[str, str]:
    """This CPU with all its vector instructions."""
    return {"cpu": llvm.get_host_cpu_name(), "features": llvm.get_host_cpu_features().flatten()}


@cache
def _compiler() -> str:
    return f"{llvmlite.__version__} {'.'.join(map(str, llvm.llvm_version_info))}"


def helper_address(name: str) -> int:
    """Return the address of a native helper, to call it from here."""
    prepare()
    assert _helpers is not None
    return int(_helpers.get_function_address(name))


def prepare() -> None:
    """Compile what every kernel calls, once per process (25 ms, 3 from disk); otherwise the first launch does it."""
    global _helpers
    with _lock:
        if _helpers is not None:
            return
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # by its name where that is known: find_library starts a process
        libm = "libm.so.6" if sys.platform == "linux" else ctypes.util.find_library("m")
        if libm is not None:
            with contextlib.suppress(RuntimeError):  # another C library has it in itself
                llvm.load_library_permanently(libm)
        engine = _engine(helpers(), 2)
        for name in SYMBOLS:
            llvm.add_symbol(name, engine.get_function_address(name))
        _helpers = engine
