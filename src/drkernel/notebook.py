"""Grading and simulation from Python: ``drkernel.evaluate(reference, candidate)``, ``drkernel.simulate(function)``.

Verdicts, profiles and reports show themselves in Jupyter once this module is loaded. ``import drkernel`` loads it, and
torch, only when one of the two is used.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from drkernel.config import VIEWS
from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import OWN_SECONDS, EvalRequest, EvalSettings
from drkernel.report.sim import terminal as render_run
from drkernel.report.sim import trace_of_run, write_trace
from drkernel.report.verdict import profile_table
from drkernel.report.verdict import terminal as render_verdict
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.script import ScriptReport, run_function
from drkernel.task import Precision, Provenance, Task
from drkernel.tasks.loaders import load_task
from drkernel.verdict import Profile, Verdict
from drkernel.view import DeviceTime

WIDTH = 110
"""columns of what a notebook shows"""


def evaluate(
    reference: str | Path,
    candidate: str | Path,
    *,
    device: str = "sim:h200",
    precision: Precision | None = None,
    **settings: Any,
) -> Verdict:
    """Grade ``candidate`` against ``reference``, each a source text or a file; the reference may also be a task's spec,
    such as ``builtin/level1/softmax``.

    ``settings`` are those of :class:`drkernel.gym.request.EvalSettings`, such as ``checks`` or ``seed``. The
    sandbox and its warm processes are kept for the next call, and end with the program. A candidate's failure is a
    verdict.

    Raises:
        TaskError: the reference is neither a module nor a task.
        OSError: a file cannot be read.
        ValidationError: unknown settings.
    """
    text = str(reference)
    if "\n" in text:
        task = Task(id="notebook", reference=text, precision=precision or "fp32", provenance=Provenance(source="file"))
    else:
        task = load_task(text, precision)
    source = str(candidate)
    if "\n" not in source:
        source = Path(source).read_text(encoding="utf-8")
    terms = EvalSettings(device=device, **{"own_seconds": OWN_SECONDS, **settings})
    return _pool().submit(EvalRequest(task=task, candidate=source, settings=terms)).result()


@lru_cache(maxsize=1)
def _pool() -> LocalPool:
    return LocalPool(slots=1)


@dataclass(frozen=True)
class Simulated:
    """The record of a function run on a simulated GPU, and its return value."""

    value: Any
    """what the function returned, on the host; None where it raised"""
    report: ScriptReport
    """launches, findings, modelled profile, the exception if there was one"""

    def trace(self, path: str | Path) -> None:
        """Write the modelled timeline for Perfetto or Chrome's tracing page."""
        write_trace(Path(path), trace_of_run(self.report))

    def _repr_html_(self) -> str:
        return _html(render_run(self.report))


def simulate(
    function: Callable[..., Any],
    *args: Any,
    gpu: str = "h200",
    checks: str = "auto",
    data: bool = True,
    **keywords: Any,
) -> Simulated:
    """Call ``function(*args, **keywords)``, written for CUDA, on a simulated GPU.

    ``data=False`` counts and models without contents, for sizes too large to execute. Tensors that the function returns
    come back to the host. Raises ``ValueError`` for an unknown GPU.
    """

    def call() -> Any:
        return _on_host(function(*args, **keywords)) if data else function(*args, **keywords)

    code = getattr(inspect.unwrap(function), "__code__", None)
    home = Path(code.co_filename if code is not None else repr(function))
    report, value = run_function(call, home, gpu=gpu, checks=checks, data_free=None if data else DataFree.of_script())
    return Simulated(value if data else None, report)


def _on_host(value: Any) -> Any:
    """Return the value with its tensors, in tuples, lists and dicts too, on the host."""
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, torch.Tensor.cpu, value)


# ---- what Jupyter shows


def _html(what: RenderableType) -> str:
    """Return a rendered report as HTML of its own, without scripts or links."""
    console = Console(record=True, file=StringIO(), width=WIDTH, highlight=False, force_terminal=True)
    console.print(what)
    style = (
        "font-family: ui-monospace, Menlo, Consolas, monospace; line-height: 1.25; white-space: pre; overflow-x: auto"
    )
    return console.export_html(inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>')


VIEWS |= {
    Verdict: lambda verdict: _html(render_verdict(verdict)),
    Profile: lambda profile: _html(profile_table(DeviceTime.of(profile))),
    ScriptReport: lambda report: _html(render_run(report)),
}
