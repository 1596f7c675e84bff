"""Atomic updates of library kernels: what they ask of L2, and how long the busiest address waits."""

from __future__ import annotations

from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access
from drkernel.sim.spec import GPUSpec

ATOMIC_L2_PASSES = 2.0
"""An atomic update reads and writes its sector in L2, where the units sit that do it."""
NARROW_ATOMIC_PASSES = 8.0
"""The same for types that L2 cannot add (16 bits and less): a loop of reading, comparing and swapping from the SM."""


def scattered_updates(target: TensorMeta, updates: float, spec: GPUSpec) -> tuple[Access, float]:
    """The access of ``updates`` atomic additions spread over ``target``, and seconds that its busiest address takes.

    Which addresses are hit depends on values, which a price must not know: they are taken as evenly spread.
    """
    passes = NARROW_ATOMIC_PASSES if target.itemsize < 4 else ATOMIC_L2_PASSES
    touched = min(float(target.nbytes), updates * target.itemsize)
    access = Access(target.storage, touched, write=True, requested=updates * target.itemsize * passes)
    busiest = updates / max(1.0, float(target.elements))
    return access, busiest * spec.atomic_same_address
