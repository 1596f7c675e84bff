"""The record of one traced operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drkernel.sim.cost.records import TensorMeta


@dataclass(frozen=True)
class TracedCall:
    """One operator call. ``args`` are in the order of its schema; ``free`` operators move no data."""

    name: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    args: Sequence[Any]
    free: bool
