"""The definition of a language: how a source is recognised, prompted and compiled, and how its launches are
observed.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from drkernel.gym.device import Device, Observable
from drkernel.verdict import ObservedBy


@dataclass(frozen=True)
class TracedKernel:
    """A kernel in a profiler's trace of one or more calls."""

    name: str
    seconds: float
    operator: str | None
    """the operator under which it was launched, e.g. 'aten::relu'; None when there was none"""
    host_seconds: float | None = None
    """host seconds of the runtime's call that launched it, where the trace has that call"""

    @property
    def of_pytorch(self) -> bool:
        """Whether one of PyTorch's own operators launched it."""
        return self.operator is not None and self.operator.startswith(("aten::", "prims::"))


LIBRARIES = ("cublas", "cudnn", "cutlass_80_", "cutlass_90_", "ampere_", "sm80_xmma", "sm90_xmma", "at::native", "nccl")
"""How names of kernels begin, or what they hold, that libraries ship; lower case."""


def not_of_a_library(source: str, kernels: Sequence[TracedKernel]) -> list[TracedKernel]:
    """The kernels that neither an operator of PyTorch nor a library, by its name, launched."""
    return [
        kernel
        for kernel in kernels
        if not kernel.of_pytorch and not any(mark in kernel.name.lower() for mark in LIBRARIES)
    ]


@dataclass(frozen=True)
class Language:
    """One language that candidates may be written in."""

    name: str
    """as verdicts name it: 'triton'"""
    title: str
    """as shown to people and models: 'Triton'"""
    roots: tuple[str, ...]
    """dotted names; a reference to one of them, or to anything below it, indicates the language"""
    rule: str
    """the rule of the prompt that says what the computation must be written in"""
    simulated: bool
    """whether a simulated GPU executes it"""
    told_by: Literal["hook", "trace"]
    """how launches are observed on a real GPU: Triton's launch function is hooked, or a profiler's trace is read"""
    precision_rule: str = ""
    """what the prompt adds about keeping the declared precision"""
    modules: tuple[str, ...] = ()
    """Python packages that a real GPU's runner needs"""
    programs: tuple[str, ...] = ()
    """executables that it needs"""
    compile_s: float = 0.0
    """seconds added to a candidate's deadline for a slow compiler"""
    own: Callable[[str, Sequence[TracedKernel]], list[TracedKernel]] = not_of_a_library
    """(source, kernels of a trace) -> those that the source defines"""

    def refusal(self, device: Device) -> str | None:
        """Return why ``device`` cannot run candidates in this language; None when it can."""
        if device.simulated:
            if self.simulated:
                return None
            return (
                f"{device.name} is a simulated GPU, which executes Triton kernels alone; this candidate is "
                f"{self.title}. Grade it on a real GPU (cuda:N), or write the kernels in Triton"
            )
        missing = [f"the Python package {name}" for name in self.modules if importlib.util.find_spec(name) is None]
        missing += [f"the program {name}" for name in self.programs if shutil.which(name) is None]
        if missing:
            return f"{self.title} needs {' and '.join(missing)}, which this machine does not have"
        return None

    def observes(self, device: Device) -> Mapping[Observable, ObservedBy]:
        """Return what can be observed there of a candidate in this language."""
        if device.simulated or self.told_by == "hook":
            return device.observes
        # what a trace tells of is over: nothing can be kept from being executed
        return {name: who for name, who in device.observes.items() if name != "skip"}

    def used_in(self, references: Iterable[str]) -> set[str]:
        """Return the references that indicate this language."""
        return {name for name in references if any(name == root or name.startswith(f"{root}.") for root in self.roots)}
