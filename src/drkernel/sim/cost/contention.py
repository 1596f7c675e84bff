"""Atomic updates of library kernels: their L2 traffic, and how long the busiest address takes."""

from __future__ import annotations

from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.cost.roofline import Access
from drkernel.sim.spec import GPUSpec

UPDATE_BYTES = 2 * 64.0
"""L2 bandwidth that one scattered update takes, as ``launch_time.py`` has it: what an atomic unit reads and
writes. PyTorch's kernels issue their updates one element at a time."""


def scattered_updates(target: TensorMeta, updates: float, spec: GPUSpec) -> tuple[Access, float]:
    """Return the access of ``updates`` atomic additions spread over ``target``, and the seconds that the atomic units
    take.

    Which addresses are hit depends on values, which a price must not know, so they are assumed to be evenly spread.
    """
    touched = min(float(target.nbytes), updates * target.itemsize)
    access = Access(target.storage, touched, write=True, requested=updates * target.itemsize)
    busiest = updates / max(1.0, float(target.elements)) * spec.atomic_same_address
    return access, max(busiest, updates * UPDATE_BYTES / spec.l2_bandwidth)
