"""The memory of a device without data: addresses, and the contents of small storages.

Tensors are meta tensors. A storage gets a range of addresses without memory behind it: nothing is ever mapped there,
and a range is never reused. The contents of a storage, if it has any, are kept elsewhere.
"""

from dataclasses import replace

import torch

from drkernel.sim.gpu.heap import DeviceHeap, Held, over_budget
from drkernel.sim.wire.commands import TensorSpec

FIRST_ADDRESS = 1 << 44
"""where the device's memory begins; ordinary processes have nothing there"""
ALIGNMENT = 512
"""of a storage, as CUDA's allocator has it"""


class AddressHeap(DeviceHeap):
    """Owns every tensor of a data-free device."""

    kind = "meta"

    def __init__(self, capacity: int, budget: int | None = None):
        super().__init__(capacity, budget)
        self._next_address = FIRST_ADDRESS
        self._bases: dict[int, tuple[int, int]] = {}  # identity of a meta storage -> its address and size
        self._identities: dict[int, int] = {}  # address -> identity
        self._contents: dict[int, torch.UntypedStorage] = {}  # by address

    # ---- tensors

    def register(self, tensor: torch.Tensor, *, initialized: bool = True) -> Held:
        """Give a meta tensor a handle (its old one, when it has one), and its storage an address; none is unwritten."""
        return super().register(tensor, initialized=True)

    def _place(self, storage: torch.UntypedStorage) -> int:
        """The address of a storage: a new one for one that is new, or that an operator has resized (``out=``)."""
        base, size = self._bases.get(storage._cdata, (0, -1))
        nbytes = storage.nbytes()
        if size == nbytes:
            return base
        self._contents.pop(base, None)
        self._identities.pop(base, None)
        self._bases.pop(storage._cdata, None)
        self.require(nbytes)
        base = self._next_address
        self._next_address += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        if nbytes:
            self._bases[storage._cdata], self._identities[base] = (base, nbytes), storage._cdata
        return base

    def _spec(self, tensor: torch.Tensor, handle: int, base: int) -> TensorSpec:
        spec = super()._spec(tensor, handle, base)
        return replace(spec, address=base + spec.offset * spec.dtype.itemsize)

    def base_of(self, tensor: torch.Tensor) -> int:
        """Address of the storage that a tensor of the device lies over."""
        return self._bases.get(tensor.untyped_storage()._cdata, (0, 0))[0]

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
