"""Gives a Python process that a script under ``drkernel sim`` starts a simulated GPU of its own, when it imports torch.

Python imports this module at its start, as its folder stands first in ``PYTHONPATH``. The module of that name that it
hides is run, too.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType


class _AfterTorch:
    """A finder that lets ``torch`` be imported as always, and attaches the device afterwards."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return torch's own spec, with a loader that attaches."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_attach(module: ModuleType) -> None:
            run(module)
            try:
                from drkernel.sim.script import join_script
            except ImportError as error:
                print(f"drkernel sim: {sys.executable} has no simulated GPU: {error}", file=sys.stderr)
            else:
                join_script(os.environ["DRKERNEL_SIM_CHILD"])

        spec.loader.exec_module = run_and_attach  # type: ignore[method-assign]
        return spec


def _run_hidden() -> None:
    """Run the next ``sitecustomize`` on the path."""
    here = Path(__file__).parent
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "DRKERNEL_SIM_CHILD" in os.environ:
    sys.meta_path.insert(0, _AfterTorch())  # type: ignore[arg-type]
_run_hidden()
