"""The memory of a simulated device: tensors by handle, storages by address, budget, and what fresh memory holds.

A storage always has a form and an address. On a device with data it lies there; on one without, the address is a number
that is never given out again, its tensors are meta tensors, and few storages have contents, which are kept elsewhere.

The limit on this machine's memory for a simulated device, and estimates of what an operator will take.
"""

import itertools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.gpu.operator_rules import OperatorRule
from drkernel.sim.gpu.shapes import bare, mapped, prepare_shapes, tensors_in
from drkernel.sim.wire.commands import DTYPES, LaunchCommand, ProtocolError, Ref, TensorSpec, UnsupportedOp
from ttir_executor.allocations import MemoryMap

SHARE = 0.25
"""of the machine's memory that a device takes by default at most"""
SCRIPT_SHARE = 0.5
"""the same for a script that a person runs: nothing else runs beside it, as judges do"""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_LARGEST_ELEMENT = 16


class OverBudget(torch.OutOfMemoryError):
    """Simulating this exceeds the device's share of this machine's memory: our limit, not the GPU's."""


@cache
def machine_bytes() -> int:
    """Return the total memory, in bytes, of this machine or of the container that this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            text = Path(path).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if text.isdigit():
            total = min(total, int(text))
    return total


def default_budget(share: float = SHARE) -> int:
    """Return this share of the machine's memory, in bytes."""
    return int(machine_bytes() * share)


def over_budget(wanted: int, used: int, budget: int) -> OverBudget:
    """Return the error for ``wanted`` more bytes; it says what to do."""
    return OverBudget(
        f"CUDA out of memory. Simulating this takes {size_in_words(wanted)} more of this machine's memory, and "
        f"{size_in_words(used)} of the budget of {size_in_words(budget)} are in use. Run it without data "
        "(drkernel sim --no-data, sim.device(data_free=DataFree())), on smaller tensors, or raise the budget "
        "(--memory-budget, sim.device(budget_bytes=...))."
    )


def size_in_words(nbytes: int) -> str:
    """Bytes in a unit that people read."""
    return f"{nbytes / (1 << 30):.2f} GiB" if nbytes >= 1 << 30 else f"{nbytes / (1 << 20):.1f} MiB"


# ---- what is about to be taken


def foresee(rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], headroom: int) -> int:
    """Estimate the bytes of the storages that an operator would create, if they may exceed ``headroom``; else 0.

    Shapes are computed on meta tensors, and only when the sizes of operands and the numbers among the arguments do not
    rule an excess out. Temporary memory of the operator is not counted.
    """
    if _at_most(rule, [*args, *kwargs.values()]) * _LARGEST_ELEMENT <= headroom:
        return 0
    prepare_shapes()
    metas, named = mapped(args, bare), {key: mapped(value, bare) for key, value in kwargs.items()}
    forms = tensors_in([*metas, *named.values()])
    given = {form.untyped_storage()._cdata: form.untyped_storage().nbytes() for form in forms}
    try:
        result = rule.on_meta(metas, named)
    except (NotImplementedError, RuntimeError, TypeError, ValueError):
        return 0  # the operator itself will tell
    made = {out.untyped_storage()._cdata: out.untyped_storage().nbytes() for out in tensors_in(result)}
    return sum(nbytes - given.get(storage, 0) for storage, nbytes in made.items())


def _at_most(rule: OperatorRule, values: list[Any]) -> int:
    """Return an upper bound on the number of elements of any result, from the sizes of the operands."""
    tensors = tensors_in(values)
    shapes = {tensor.shape for tensor in tensors if tensor.dim()}
    # an operator that the device fuses itself is a plain function, which says nothing of its kind
    if torch.Tag.pointwise in getattr(rule.call, "tags", ()) and len(shapes) <= 1:
        return max((tensor.numel() for tensor in tensors), default=1)
    product = 1
    for tensor in tensors:
        product *= max(1, tensor.numel())
    for number in _numbers(values):
        product *= max(1, abs(number))
    return product


def _numbers(value: Any) -> list[int]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int):
        return [value]
    return [number for item in value for number in _numbers(item)] if isinstance(value, (list, tuple)) else []


POISONS = ("nan", "zero", "random")
"""contents of memory that nothing has written to"""

SECTOR_MAPS = 16
"""bytes of tensors for each byte of the two maps, one for each sector of 32 bytes, that a launch writes"""
SHADOW_BYTES = 8
"""bytes of the race shadows for each element that a launch accesses"""

KNOWN_DTYPES = frozenset(DTYPES.values())

FIRST_ADDRESS = 1 << 44
"""where memory without data begins; ordinary processes have nothing there"""
ALIGNMENT = 512
"""of a storage there, as CUDA's allocator has it"""


@dataclass(slots=True)
class Held:
    """A tensor on the device."""

    tensor: torch.Tensor
    spec: TensorSpec
    base: int
    """address of its storage"""
    nbytes: int
    """size of its storage"""

    def meta(self) -> TensorMeta:
        """Return the tensor's metadata for the cost model."""
        spec, base = self.spec, self.base
        return TensorMeta(spec.shape, spec.stride, str(spec.dtype)[6:], base, spec.offset * spec.dtype.itemsize)


class DeviceHeap:
    """Owns every tensor of the device and knows what has been written."""

    def __init__(self, capacity: int, budget: int | None = None, *, contents_bytes: int | None = None):
        """Create a heap. ``capacity`` is the GPU's memory, ``budget`` the limit on this machine's (default: a quarter).
        ``contents_bytes``: without data; the largest storage that keeps what is put into it."""
        self.capacity = capacity
        self.has_data = contents_bytes is None
        self._contents_bytes = contents_bytes or 0
        self._next_address = FIRST_ADDRESS
        self._placed: dict[int, tuple[int, int]] = {}  # identity of a meta storage -> its address and size
        self._contents: dict[int, torch.UntypedStorage] = {}  # of storages without data, by address
        self.budget = budget or default_budget()
        self.memory = MemoryMap()
        self.poison_policy = "nan"
        self.noise = torch.Generator().manual_seed(0)
        """source of random contents and disturbed results: not the candidate's generator"""
        self.used_bytes = 0
        self.peak_bytes = 0
        self.dropped_bytes = 0
        """bytes of storages that the host has dropped, and that are kept for work that is still to come"""
        self.make_room: Callable[[], None] = lambda: None
        """called when room on this machine is short while there are such storages: they may go after it"""
        self._dropped: set[int] = set()  # their handles
        self._held: dict[int, Held] = {}
        self._handles: dict[int, int] = {}  # id(tensor object) -> handle
        self._storages: dict[int, int] = {}  # address -> live handles
        self._numbers: dict[int, int] = {}  # address -> number of the storage that was put there last
        self._fresh: set[int] = set()  # storages that may hold bytes which nothing wrote
        self.handles = itertools.count(1)
        self.newest = 0  # number of the storage that was made last

    def held(self, handle: int) -> Held:
        """Return the tensor record of a handle. Raises :class:`ProtocolError` for a handle never given out, or
        freed."""
        try:
            return self._held[handle]
        except KeyError:
            raise ProtocolError(f"no tensor with handle {handle} on the device") from None

    def tensor(self, ref: Ref | int) -> torch.Tensor:
        """The tensor behind a handle."""
        return self.held(ref.handle if isinstance(ref, Ref) else ref).tensor

    @property
    def contents_bytes(self) -> int:
        """Bytes of the largest storage that keeps what is put into it."""
        return self.budget if self.has_data else self._contents_bytes

    def of(self, tensor: torch.Tensor) -> Held:
        """The record of a tensor that has a handle."""
        return self._held[self._handles[id(tensor)]]

    def put(self, tensor: torch.Tensor) -> Held:
        """Register what comes from outside, with its contents where those are kept, otherwise its form alone."""
        if self.has_data or tensor.is_meta:
            return self.register(tensor)
        held = self.register(bare(tensor))
        if held.nbytes <= self._contents_bytes:
            self.fill(held, tensor)
        return held

    def register(self, tensor: torch.Tensor, *, initialized: bool = True) -> Held:
        """Give a tensor a handle (its old one, if it has one) and put its storage on the memory map.

        ``initialized`` False states that a new storage holds nothing yet. Raises ``torch.OutOfMemoryError``.
        """
        handle = self._handles.get(id(tensor))
        if handle is not None:
            held = self._held[handle]
            self.refresh(held)
            return held
        if (
            tensor.device.type != ("cpu" if self.has_data else "meta")
            or tensor.layout != torch.strided
            or tensor.dtype not in KNOWN_DTYPES
        ):
            raise UnsupportedOp(
                f"a {tensor.layout} tensor of dtype {tensor.dtype} is not offered on the simulated device"
            )
        storage = tensor.untyped_storage()
        base = self._place(storage)
        handle = next(self.handles)
        held = Held(tensor, self._spec(tensor, handle, base), base, storage.nbytes())
        require_inside(held)
        self._retain(held, initialized or not self.has_data)
        self._held[handle] = held
        self._handles[id(tensor)] = handle
        return held

    def refresh(self, held: Held) -> None:
        """Update after an operator that changed a tensor's shape in place, or moved its storage (``out=`` that grew).

        Every other tensor over that storage moves along. Raises ``torch.OutOfMemoryError`` when it has outgrown the
        device.
        """
        storage = held.tensor.untyped_storage()
        base = self._place(storage) if storage.nbytes() or held.nbytes else held.base
        if base == held.base and storage.nbytes() == held.nbytes:
            spec = self._spec(held.tensor, held.spec.handle, base)
            if spec != held.spec:
                held.spec = spec
                require_inside(held)
            return
        old, size, number = held.base, held.nbytes, self.storage(held.base)
        moved = [held, *(one for one in self._held.values() if one is not held and one.base == old and size)]
        if size:
            self.memory.remove(old)
            del self._storages[old]
            self._fresh.discard(old)
            self.used_bytes -= size
        for one in moved:
            one.base, one.nbytes = base, storage.nbytes()
            one.spec = self._spec(one.tensor, one.spec.handle, base)
            self._retain(one, True)
            require_inside(one)
        if size and held.nbytes:  # it is the storage that was written before
            self._numbers[base] = number

    def _place(self, storage: torch.UntypedStorage) -> int:
        """The address of a storage; without data a new one where it is new, or has been resized (``out=``)."""
        if self.has_data:
            return storage.data_ptr()
        base, size = self._placed.get(storage._cdata, (0, -1))
        nbytes = storage.nbytes()
        if size == nbytes:
            return base
        self.forget(base)
        self._placed.pop(storage._cdata, None)
        self.require(nbytes)
        base = self._next_address
        self._next_address += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        if nbytes:
            self._placed[storage._cdata] = base, nbytes
        return base

    def _spec(self, tensor: torch.Tensor, handle: int, base: int) -> TensorSpec:
        """The form of a tensor over the storage at ``base``."""
        offset = int(tensor.storage_offset())
        address = tensor.data_ptr() if self.has_data else base + offset * tensor.dtype.itemsize
        place = offset, tensor.dtype, address, tensor.untyped_storage().nbytes()
        return TensorSpec(handle, tuple(tensor.shape), tensor.stride(), *place)

    def _retain(self, held: Held, initialized: bool) -> None:
        if held.nbytes == 0:
            return
        if held.base in self._storages:
            self._storages[held.base] += 1
            return
        self.require(held.nbytes)
        self.memory.add(held.base, held.nbytes, initialized=initialized, contents=held.base if self.has_data else 0)
        self._storages[held.base] = 1
        self.newest += 1
        self._numbers[held.base] = self.newest
        if not initialized:
            self._fresh.add(held.base)
        self.used_bytes += held.nbytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)

    def storage(self, base: int) -> int:
        """Return the number of the storage at an address, unique over the device's life; 0 if there was none."""
        return self._numbers.get(base, 0)

    def base_of(self, tensor: torch.Tensor) -> int:
        """Address of the storage that a tensor of the device lies over."""
        storage = tensor.untyped_storage()
        return storage.data_ptr() if self.has_data else self._placed.get(storage._cdata, (0, 0))[0]

    def free(self, handle: int) -> int | None:
        """Drop a handle; returns the address of the storage that went with it, if it was the last over it."""
        held = self._held.pop(handle, None)
        if held is None:
            return None
        self._handles.pop(id(held.tensor), None)
        count = self._storages.get(held.base, 0)
        if count > 1:
            self._storages[held.base] = count - 1
        if count != 1:
            return None
        del self._storages[held.base]
        self._fresh.discard(held.base)
        self.forget(held.base)
        if self.base_of(held.tensor) == held.base:
            self._placed.pop(held.tensor.untyped_storage()._cdata, None)
        if handle in self._dropped:
            self._dropped.remove(handle)
            self.dropped_bytes -= held.nbytes
        else:
            self.used_bytes -= held.nbytes
        self.memory.remove(held.base)
        return held.base

    def drop(self, handle: int) -> None:
        """Keep the storage of a handle that the host has dropped until :meth:`free`; it is no longer the GPU's."""
        self._dropped.add(handle)
        self.used_bytes -= self._held[handle].nbytes
        self.dropped_bytes += self._held[handle].nbytes

    def bases(self) -> frozenset[int]:
        """Addresses of all storages."""
        return frozenset(self._storages)

    def last_over(self, handle: int) -> int | None:
        """The address of the storage that freeing a handle would free, too."""
        held = self._held.get(handle)
        return held.base if held is not None and self._storages.get(held.base) == 1 else None

    @property
    def has_unwritten(self) -> bool:
        """Whether some storage may hold bytes that nothing wrote."""
        for base in list(self._fresh):
            allocation = self.memory.find(base)
            if allocation is None or allocation.initialized is None:
                self._fresh.discard(base)
        return bool(self._fresh)

    def mark_written(self, held: Held) -> None:
        """Record that the elements of a tensor have been written; not what lies between them."""
        address, nbytes = extent_of(held.spec)
        if nbytes <= math.prod(held.spec.shape) * held.spec.dtype.itemsize:
            self.memory.mark_initialized(address, nbytes)
            return
        allocation = self.memory.find(held.base)
        if allocation is not None and allocation.initialized is not None:
            _shadow(allocation.initialized, held).fill_(1)

    def unwritten(self, held: Held) -> tuple[int, int] | None:
        """Return (bytes, offset of the first) that a tensor spans and nothing wrote; None when all is written."""
        allocation = self.memory.find(held.base) if held.nbytes else None
        if allocation is None or allocation.initialized is None:
            return None
        begin = held.spec.offset * held.spec.dtype.itemsize
        item = held.spec.dtype.itemsize
        missing = (_shadow(allocation.initialized, held) == 0).any(-1)
        count = int(missing.sum())
        if count == 0:
            return None
        first = missing.nonzero()[0].tolist()
        return count * item, begin + item * sum(i * step for i, step in zip(first, held.spec.stride, strict=True))

    @property
    def host_bytes(self) -> int:
        """Memory of this machine in use, in bytes: the device's own, plus one shadow byte per byte that may be
        unwritten; without data that of contents."""
        contents = sum(storage.nbytes() for storage in self._contents.values())
        own = self.used_bytes + self.dropped_bytes if self.has_data else contents
        shadows = (self.memory.find(base) for base in self._fresh)
        return own + sum(a.nbytes for a in shadows if a is not None and a.initialized is not None)

    def require(self, nbytes: int) -> None:
        """Raise if ``nbytes`` more exceed the device's memory, or the budget on this machine.

        Raises:
            torch.OutOfMemoryError: as the GPU would; :class:`OverBudget` where only simulating it is too much.
        """
        if self.used_bytes + nbytes > self.capacity:
            raise self.out_of_memory(f"Tried to allocate {nbytes} bytes.")
        self.require_host(nbytes)

    def require_host(self, nbytes: int) -> None:
        """Raise :class:`OverBudget` when this much more of this machine's memory would exceed the budget. Addresses
        without data take none."""
        if not self.has_data:
            return
        if self.dropped_bytes and not self._has_room(nbytes):
            self.make_room()
        if not self._has_room(nbytes):
            raise over_budget(nbytes, self.host_bytes, self.budget)

    def tables_fit(self, held: Sequence[Held], *, must: bool) -> bool:
        """Return whether the race shadows of a launch fit the budget. Raises :class:`OverBudget` where they
        must, and where not even the maps of touched sectors fit."""
        nbytes = bytes_of(held)
        self.require_host(nbytes // SECTOR_MAPS)
        element = min((one.spec.dtype.itemsize for one in held), default=1)
        needed = SHADOW_BYTES * nbytes // element
        if must:
            self.require_host(needed)
        return self.host_bytes + needed <= self.budget

    def _has_room(self, nbytes: int) -> bool:
        twice = 2 * (self.used_bytes + self.dropped_bytes)
        return twice + nbytes <= self.budget or self.host_bytes + nbytes <= self.budget

    def require_factory(self, args: Any, kwargs: dict[str, Any]) -> None:
        """:meth:`require` for what ``zeros(size, dtype=...)`` and its like are about to make."""
        size = next((value for value in args if isinstance(value, (list, tuple))), args[:1])  # after randint's limits
        if all(isinstance(n, int) for n in size):
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            self.require(math.prod(size) * dtype.itemsize)

    # ---- contents, which a storage without data may lack

    def has_contents(self, held: Held) -> bool:
        """Whether the storage below a tensor has contents (an empty one lacks nothing)."""
        return self.has_data or held.nbytes == 0 or held.base in self._contents

    def contents(self, held: Held) -> torch.Tensor | None:
        """A tensor's contents, as a host tensor over the same memory; None if there are none."""
        if self.has_data:
            return held.tensor
        if not self.has_contents(held):
            return None
        spec = held.spec
        if held.nbytes == 0:
            return torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype)
        empty = torch.empty(0, dtype=spec.dtype)
        return empty.set_(self._contents[held.base], spec.offset, spec.shape, spec.stride)  # type: ignore[call-overload]

    def fill(self, held: Held, source: torch.Tensor) -> None:
        """Give a storage contents: those of ``source``, of the same form, over all of it."""
        if held.nbytes == 0:
            return
        if self.host_bytes + held.nbytes > self.budget:
            raise over_budget(held.nbytes, self.host_bytes, self.budget)
        storage = self._contents[held.base] = torch.UntypedStorage(held.nbytes)
        allocation, contents = self.memory.find(held.base), self.contents(held)
        assert allocation is not None and contents is not None
        allocation.contents = storage.data_ptr()
        contents.copy_(source)

    def restore(self, held: Held, before: torch.UntypedStorage) -> None:
        """Put back all bytes of a storage that had contents, and may have them no more."""
        if not self.has_contents(held):
            self.fill(held, torch.zeros((), dtype=held.spec.dtype))
        self.contents(held).untyped_storage().copy_(before)  # type: ignore[union-attr]

    def forget(self, base: int) -> None:
        """Drop a storage's contents: they are no longer known."""
        if self._contents.pop(base, None) is not None and (allocation := self.memory.find(base)) is not None:
            allocation.contents = 0

    def out_of_memory(self, why: str) -> torch.OutOfMemoryError:
        """The error that CUDA's allocator raises."""
        return torch.OutOfMemoryError(
            f"CUDA out of memory. {why} GPU 0 has a total capacity of {self.capacity} bytes of which "
            f"{self.capacity - self.used_bytes} bytes is free."
        )


def bytes_of(held: Sequence[Held]) -> int:
    """Bytes of the storages of these tensors."""
    return sum({one.base: one.nbytes for one in held}.values())


def require_inside(held: Held) -> None:
    """Require that a tensor does not reach beyond its storage. Raises :class:`ProtocolError`."""
    address, nbytes = extent_of(held.spec)
    if nbytes and not held.base <= address <= address + nbytes <= held.base + held.nbytes:
        raise ProtocolError("a tensor would reach beyond its storage")


def _shadow(initialized: np.ndarray, held: Held) -> torch.Tensor:
    """The part of a storage's shadow that belongs to a tensor's elements: [*shape, bytes of an element]."""
    spec, item = held.spec, held.spec.dtype.itemsize
    strides = (*(step * item for step in spec.stride), 1)
    return torch.from_numpy(initialized).as_strided((*spec.shape, item), strides, spec.offset * item)


def extent_of(spec: TensorSpec) -> tuple[int, int]:
    """Address and byte count of the region that a tensor spans."""
    if 0 in spec.shape:
        return spec.address, 0
    last = sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))
    return spec.address, (last + 1) * spec.dtype.itemsize


def plain_arguments(command: LaunchCommand, held: Sequence[Held]) -> list[Any]:
    """A launch's arguments with addresses for tensors."""
    addresses = {one.spec.handle: one.spec.address for one in held}
    return [addresses[arg.handle] if isinstance(arg, Ref) else arg for arg in command.args]


def poison(tensor: torch.Tensor, policy: str, noise: torch.Generator) -> None:
    """Fill fresh memory with values that a kernel must not rely on: NaN (a pattern for integers), zeros, or random
    values drawn from ``noise``."""
    if tensor.numel() == 0:
        return
    if not tensor.is_contiguous():  # what lies between the elements, too
        count = tensor.untyped_storage().nbytes() // tensor.element_size()
        tensor = tensor.new_empty(0).set_(tensor.untyped_storage(), 0, (count,), (1,))
    floating = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    if policy == "zero" or (policy == "random" and tensor.dtype == torch.bool):
        tensor.zero_()
    elif policy == "random":
        _fill_random(tensor, floating, noise)
    elif floating and tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(0x7F)
    elif floating:
        tensor.fill_(float("nan"))
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        tensor.view(torch.uint8).fill_(0x7D) if tensor.is_contiguous() and tensor.dim() else tensor.fill_(0x7D)


def _fill_random(tensor: torch.Tensor, floating: bool, noise: torch.Generator) -> None:
    """Fill with plausible values."""
    if floating:
        tensor.copy_(torch.randn(tensor.shape, generator=noise))
    else:
        tensor.copy_(torch.randint(0, 2, tensor.shape, generator=noise))  # an index that is mostly in range
