"""Atomic updates of library kernels: what they ask of L2, and how long the busiest address waits."""

from __future__ import annotations

from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access
from drkernel.sim.spec import GPUSpec

UPDATE_BYTES = 2 * 64.0
"""L2 bandwidth that one scattered update takes, as ``launch.py`` has it: what an atomic unit reads and
writes. PyTorch's kernels issue their updates one element at a time."""


def scattered_updates(target: TensorMeta, updates: float, spec: GPUSpec) -> tuple[Access, float]:
    """The access of ``updates`` atomic additions spread over ``target``, and seconds that the atomic units take.

    Which addresses are hit depends on values, which a price must not know: they are taken as evenly spread.
    """
    touched = min(float(target.nbytes), updates * target.itemsize)
    access = Access(target.storage, touched, write=True, requested=updates * target.itemsize)
    busiest = updates / max(1.0, float(target.elements)) * spec.atomic_same_address
    return access, max(busiest, updates * UPDATE_BYTES / spec.l2_bandwidth)
