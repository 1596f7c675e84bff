"""Every conformance case: importing the kernels registers them."""

import importlib

from conformance_cases import CASES, REACHABLE

for kind in ("attention", "blocks", "casts", "control", "elementwise", "functions", "matmul", "nn", "scalars"):
    importlib.import_module(f"kernels_{kind}")

__all__ = ["CASES", "REACHABLE"]
