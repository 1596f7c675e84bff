"""The register of conformance cases.

A case is a function that launches one or more kernels on ``device`` and yields :class:`Check` rows: what the kernel
wrote, what is right, and how far the two may differ. The same functions run under the simulator (``device`` is
``"cuda"``), under Triton's interpreter (``"cpu"``, ``TRITON_INTERPRET=1``) and on a real GPU.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Check:
    """One comparison."""

    name: str
    got: torch.Tensor
    """on the host"""
    want: torch.Tensor
    """float64 for tolerances; the exact dtype for bit-exact checks"""
    rtol: float = 0.0
    atol: float = 0.0

    def error(self) -> str | None:
        """None when right, otherwise where it is wrong."""
        got, want = self.got.cpu(), self.want.cpu()
        if got.shape != want.shape:
            return f"{self.name}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
        wide_got, wide = got.to(torch.float64), want.to(torch.float64)
        both_nan = wide_got.isnan() & wide.isnan()
        same = (wide_got == wide) | both_nan
        near = (wide_got - wide).abs() <= self.atol + self.rtol * wide.abs()
        bad = ~(same | near)
        if not bad.any():
            return None
        first = tuple(int(i) for i in bad.nonzero()[0])
        return (
            f"{self.name}: {int(bad.sum())} of {bad.numel()} differ, first at {first}: "
            f"{wide_got[first].item()!r} instead of {wide[first].item()!r}"
        )


CaseFunction = Callable[[str], Iterator[Check]]


@dataclass(frozen=True)
class Case:
    """A registered case."""

    name: str
    run: CaseFunction
    interpreter: bool
    """whether Triton's interpreter gives the right answer too"""


CASES: dict[str, Case] = {}
REACHABLE: list[torch.Tensor] = []
"""tensors that the running case's kernels reach by addresses in memory, not by arguments"""


def case(*, interpreter: bool = True) -> Callable[[CaseFunction], CaseFunction]:
    """Register a case under its function's name."""

    def register(function: CaseFunction) -> CaseFunction:
        name = function.__name__
        if name in CASES:
            raise ValueError(f"two conformance cases are named {name}")
        CASES[name] = Case(name, function, interpreter)
        return function

    return register


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal values that depend on the seed alone."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def randint(
    low: int, high: int, shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.int32
) -> torch.Tensor:
    """Uniform integers in [low, high)."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
