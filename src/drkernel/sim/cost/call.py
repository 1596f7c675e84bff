"""One operator call, in the form that the families of the model read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access
from drkernel.sim.spec import GPUSpec


@dataclass(frozen=True)
class MetaCall:
    """An ATen operator on tensors of which only the metadata is known.

    ``base`` is its name without overload and trailing underscore; ``inputs`` are the tensors that it reads, in the
    order of its schema, ``outputs`` its results; ``given`` its arguments by name (only numbers, booleans and lists of
    them are used). ``conv_tf32`` says that fp32 convolutions round their operands to TF32.
    """

    base: str
    overload: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    spec: GPUSpec
    given: Mapping[str, Any] = field(default_factory=dict)
    conv_tf32: bool = True

    @property
    def first(self) -> TensorMeta:
        """The first tensor of the call."""
        return (self.inputs or self.outputs)[0]

    @property
    def out(self) -> TensorMeta:
        """The first result (the first input when there is none)."""
        return (self.outputs or self.inputs)[0]

    def number(self, name: str, default: float) -> float:
        """A numeric argument."""
        value = self.given.get(name)
        return default if not isinstance(value, (int, float)) else value

    def numbers(self, name: str) -> list[int] | None:
        """A list-of-integers argument (a lone integer becomes a list of one); None when absent."""
        value = self.given.get(name)
        if isinstance(value, bool) or value is None:
            return None
        if isinstance(value, int):
            return [value]
        if isinstance(value, (list, tuple)) and all(isinstance(item, int) for item in value):
            return list(value)
        return None

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean argument."""
        value = self.given.get(name)
        return bool(value) if isinstance(value, (bool, int)) else default

    def axis(self, meta: TensorMeta, name: str = "dim", default: int = -1) -> int:
        """The dimension of ``meta`` that an argument names, counted from the front."""
        rank = max(1, len(meta.shape))
        return int(self.number(name, default)) % rank


class Unpriced(Exception):
    """There is no model of this operator's kernels; the message says what is missing."""


def read(meta: TensorMeta, passes: float = 1.0, waste: float = 1.0) -> Access:
    """Return the access of a kernel that reads a tensor ``passes`` times; ``waste`` > 1 requests more from L2 than it
    uses (uncoalesced)."""
    return Access(meta.storage, meta.nbytes, passes=passes, requested=meta.nbytes * passes * waste)


def write(meta: TensorMeta) -> Access:
    """Return the access of a kernel that writes a tensor once."""
    return Access(meta.storage, meta.nbytes, write=True)


def scratch(nbytes: float, write: bool = False) -> Access:
    """Return the access to working memory of the library itself."""
    return Access(-2, nbytes, write=write)
