"""Runs Triton kernels on the CPU: TTIR to native code, checked and counted.

``run`` executes a kernel's text on numpy arrays; ``ttir_executor.compiled`` is below it, for callers that have memory
of their own. Importing this loads neither numpy nor LLVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ttir_executor.arrays import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from ttir_executor.arrays import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
