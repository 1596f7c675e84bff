"""Kernels on which times by a sample of programs are held against times by all of them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One kernel at one size."""

    name: str
    kind: str
    """what is hard about it for a sample"""
    run: Callable[..., None]
    """allocates on ``cuda`` and launches once"""
    size: tuple[int, ...]
    """arguments of ``run``: a size that can still be executed"""
    warm: tuple[int, ...]
    """a small one, at which the kernel is compiled before anything is timed"""


def cases() -> tuple[Case, ...]:
    """All of them."""
    from extrapolation_kernels import attention, irregular, products, rows

    return (*rows.CASES, *products.CASES, *attention.CASES, *irregular.CASES)
