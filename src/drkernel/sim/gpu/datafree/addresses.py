"""The memory of a device without data: addresses, and the contents of small storages.

Tensors are meta tensors. A storage gets a range of addresses without memory behind it: nothing is ever mapped there,
and a range is never reused. The contents of a storage, if it has any, are kept elsewhere.
"""

from __future__ import annotations

import torch

from drkernel.sim.gpu.budget import over_budget
from drkernel.sim.gpu.heap import KNOWN_DTYPES, DeviceHeap, Held, require_inside
from drkernel.sim.wire.commands import TensorSpec, UnsupportedOp

FIRST_ADDRESS = 1 << 44
"""where the device's memory begins; ordinary processes have nothing there"""
ALIGNMENT = 512
"""of a storage, as CUDA's allocator has it"""


class AddressHeap(DeviceHeap):
    """Owns every tensor of a data-free device."""

    def __init__(self, capacity: int, budget: int | None = None):
        super().__init__(capacity, budget)
        self._next_address = FIRST_ADDRESS
        self._bases: dict[int, int] = {}  # identity of a meta storage -> its address
        self._identities: dict[int, int] = {}  # and back
        self._contents: dict[int, torch.UntypedStorage] = {}  # by address

    # ---- tensors

    def register(self, tensor: torch.Tensor, *, initialized: bool = True) -> Held:
        """Give a meta tensor a handle (its old one, when it has one), and its storage an address."""
        handle = self._handles.get(id(tensor))
        if handle is not None:
            self.refresh(self._held[handle])
            return self._held[handle]
        if tensor.device.type != "meta" or tensor.layout != torch.strided or tensor.dtype not in KNOWN_DTYPES:
            raise UnsupportedOp(
                f"a {tensor.layout} tensor of dtype {tensor.dtype} is not offered on the simulated device"
            )
        storage = tensor.untyped_storage()
        base, nbytes = self._bases.get(storage._cdata), storage.nbytes()
        if base is None:
            self.require(nbytes)
            base = self._place(nbytes)
        handle = next(self._next)
        held = Held(tensor, self._spec(tensor, handle, base), base, nbytes)
        require_inside(held)
        if nbytes and storage._cdata not in self._bases:
            self._bases[storage._cdata], self._identities[base] = base, storage._cdata
        self._retain(held, initialized=True)
        self._held[handle] = held
        self._handles[id(tensor)] = handle
        return held

    def refresh(self, held: Held) -> None:
        """Update after an operator that changed a tensor's shape in place, or its storage's size (``out=`` that
        grew)."""
        nbytes = held.tensor.untyped_storage().nbytes()
        if nbytes != held.nbytes:
            self._grow(held, nbytes)
        held.spec = self._spec(held.tensor, held.spec.handle, held.base)
        require_inside(held)

    def _grow(self, held: Held, nbytes: int) -> None:
        """Move a storage that changed size to another address, with all tensors over it."""
        old, identity = held.base, held.tensor.untyped_storage()._cdata
        moved = [held, *(one for one in self._held.values() if one is not held and one.base == old and held.nbytes)]
        if held.nbytes:
            self.memory.remove(old)
            del self._storages[old]
            self.used_bytes -= held.nbytes
            self._identities.pop(old, None)
            self._contents.pop(old, None)
        self.require(nbytes)
        base = self._place(nbytes)
        self._bases[identity], self._identities[base] = base, identity
        for one in moved:
            one.base, one.nbytes = base, nbytes
            one.spec = self._spec(one.tensor, one.spec.handle, base)
            self._retain(one, initialized=True)

    def _place(self, nbytes: int) -> int:
        base = self._next_address
        self._next_address += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        return base

    @staticmethod
    def _spec(tensor: torch.Tensor, handle: int, base: int) -> TensorSpec:
        offset = int(tensor.storage_offset())
        address = base + offset * tensor.element_size()
        return TensorSpec(handle, tuple(tensor.shape), tensor.stride(), offset, tensor.dtype, address)

    def base_of(self, tensor: torch.Tensor) -> int:
        """Address of the storage that a tensor of the device lies over."""
        return self._bases.get(tensor.untyped_storage()._cdata, 0)

    def free(self, handle: int) -> int | None:
        """Drop a handle; returns the address of the storage that went with it, if it was the last over it."""
        base = super().free(handle)
        if base is not None:
            self._bases.pop(self._identities.pop(base, 0), None)
            self._contents.pop(base, None)
        return base

    @property
    def host_bytes(self) -> int:
        """Memory of this machine in use, in bytes: that of the contents."""
        return sum(storage.nbytes() for storage in self._contents.values())

    def require_host(self, nbytes: int) -> None:
        """Do nothing: addresses take no memory, and :meth:`fill` checks the budget for contents."""

    def is_new(self, tensor: torch.Tensor) -> bool:
        """Whether a meta tensor lies over no storage that the device has."""
        return tensor.untyped_storage()._cdata not in self._bases

    # ---- contents

    def has_contents(self, held: Held) -> bool:
        """Whether the storage below a tensor has contents (an empty one lacks nothing)."""
        return held.nbytes == 0 or held.base in self._contents

    def fill(self, held: Held, source: torch.Tensor) -> None:
        """Give a storage contents: those of ``source``, of the same form, over all of it."""
        if held.nbytes == 0:
            return
        if self.host_bytes + held.nbytes > self.budget:
            raise over_budget(held.nbytes, self.host_bytes, self.budget)
        storage = torch.UntypedStorage(held.nbytes)
        self._contents[held.base] = storage
        allocation = self.memory.find(held.base)
        assert allocation is not None
        allocation.contents = storage.data_ptr()
        self.view(held).copy_(source)

    def view(self, held: Held) -> torch.Tensor:
        """A tensor's contents, as a host tensor over the same memory."""
        spec = held.spec
        if held.nbytes == 0:
            return torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype)
        empty = torch.empty(0, dtype=spec.dtype)
        return empty.set_(self._contents[held.base], spec.offset, spec.shape, spec.stride)  # type: ignore[call-overload]

    def forget(self, base: int) -> None:
        """Drop a storage's contents: they are no longer known."""
        if self._contents.pop(base, None) is not None:
            allocation = self.memory.find(base)
            if allocation is not None:
                allocation.contents = 0
