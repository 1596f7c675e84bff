"""Triton without a GPU: launch capture, an executor of Triton's IR, a sanitizer and a cost model.

Start with ``with sim.device("h200") as dev:``; see ``script.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drkernel.sim.script import SimDevice, device

__all__ = ["SimDevice", "device"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        import importlib

        return getattr(importlib.import_module("drkernel.sim.script"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
