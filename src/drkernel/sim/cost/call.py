"""One operator call as the families of the model see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access
from drkernel.sim.spec import GPUSpec


@dataclass(frozen=True)
class Call:
    """An ATen operator on tensors of which only the metadata is known.

    ``base`` is its name without overload and without a trailing underscore; ``inputs`` are its tensors in the order of
    its arguments, ``outputs`` its results; ``args`` the positional arguments as given (only numbers, booleans and
    lists of them are read from it).
    """

    base: str
    overload: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    args: Sequence[Any]
    spec: GPUSpec

    @property
    def first(self) -> TensorMeta:
        """The first tensor there is."""
        return (self.inputs or self.outputs)[0]

    @property
    def out(self) -> TensorMeta:
        """The first result (the first input when there is none)."""
        return (self.outputs or self.inputs)[0]

    def number(self, index: int, default: float) -> float:
        """A numeric positional argument."""
        value = self.args[index] if index < len(self.args) else None
        return default if not isinstance(value, (int, float)) else value

    def numbers(self, index: int) -> list[int] | None:
        """A list-of-integers argument (a lone integer becomes a list of one); None when absent."""
        value = self.args[index] if index < len(self.args) else None
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, int):
            return [value]
        if isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value):
            return list(value)
        return None


def read(meta: TensorMeta, passes: float = 1.0, waste: float = 1.0) -> Access:
    """A kernel reads a tensor ``passes`` times; ``waste`` > 1 asks L2 for more than it uses (uncoalesced)."""
    return Access(meta.storage, meta.nbytes, passes=passes, requested=meta.nbytes * passes * waste)


def write(meta: TensorMeta) -> Access:
    """A kernel writes a tensor once."""
    return Access(meta.storage, meta.nbytes, write=True)


def scratch(nbytes: float, write: bool = False) -> Access:
    """Working memory of the library's own."""
    return Access(-2, nbytes, write=write)
