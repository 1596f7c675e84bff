"""drkernel teaches language models to write fast GPU kernels.

``drkernel.evaluate(reference, candidate)`` grades, ``drkernel.simulate(function)`` runs on a simulated GPU; both load
what they need when they are first used.

Its packages import downward only:
``cli -> report, solve, serve, adapters -> rl -> episode -> gym -> sim, tasks -> task, verdict, config, registry``.
Importing ``drkernel`` itself loads none of them, and no torch, so the import is instant.
"""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in ("evaluate", "simulate"):
        import importlib

        return getattr(importlib.import_module("drkernel.notebook"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
