"""Guard pages around every storage of a process: what an operator reads or writes outside kills it on the spot.

PyTorch's CPU allocator is replaced by one that gives each storage pages of its own between two inaccessible ones. The
storage ends where its pages end (up to :data:`ALIGNMENT`), so that one element too far is a segmentation fault; the
bytes that are left over before and behind it hold a pattern that is checked when the storage is freed.

This is for looking for holes (``benchmarks/fuzz_device.py``), not for grading: it replaces a table of virtual
functions of ``c10::Allocator`` and calls back into Python for each storage. :func:`guard_storages` refuses where what
it relies on is not there. It stays until the process ends.
"""

import ctypes
import mmap
import os
import platform
from pathlib import Path
from typing import Any

import torch

ALIGNMENT = 64
"""bytes to which a storage's address is aligned, as PyTorch's kernels may assume"""
PAGE = mmap.PAGESIZE
PATTERN = bytes([0xA5, 0x5A, 0xC3]) * (PAGE // 3 + 1)
NO_MEMORY = 97
"""exit code of the process when there is no memory for a storage"""
_SLOTS = 6
"""virtual functions of c10::Allocator: two destructors, allocate, is_simple_data_ptr, raw_deleter, copy_data"""
_ALLOCATE, _RAW_DELETER = 2, 4
_PROT_NONE, _PROT_RW = 0, mmap.PROT_READ | mmap.PROT_WRITE
_FAILED = ctypes.c_void_p(-1).value


class GuardsUnavailable(RuntimeError):
    """This build of PyTorch, or this machine, does not let the allocator be replaced."""


class _DataPtr(ctypes.Structure):
    """``c10::DataPtr`` as libstdc++ lays it out: address, deleter, context, device."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("device", ctypes.c_uint16),
    )


_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_RawDeleter = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class GuardedAllocator:
    """Storages between guard pages. ``damaged`` lists what was written into the slack around them."""

    def __init__(self) -> None:
        self.count = 0
        self.damaged: list[str] = []
        self._live: dict[int, tuple[int, int, int]] = {}  # address -> (first page, bytes mapped, bytes asked)
        libc = ctypes.CDLL(None, use_errno=True)
        self._map, self._unmap, self._protect = libc.mmap, libc.munmap, libc.mprotect
        self._map.restype = ctypes.c_void_p
        self._map.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
        self._unmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        self._protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self.free = _Free(self._free)

    def allocate(self, nbytes: int) -> int:
        """Address of a new storage; 0 when there is no memory for it."""
        room = -(-nbytes // ALIGNMENT) * ALIGNMENT
        inner = -(-max(room, 1) // PAGE) * PAGE
        first = self._map(None, inner + 2 * PAGE, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if first == _FAILED:
            return 0
        if self._protect(first + PAGE, inner, _PROT_RW):
            self._unmap(first, inner + 2 * PAGE)
            return 0
        address = first + PAGE + inner - room
        ctypes.memmove(first + PAGE, PATTERN, inner - room)
        ctypes.memmove(address + nbytes, PATTERN, room - nbytes)
        self._live[address] = (first, inner + 2 * PAGE, nbytes)
        self.count += 1
        return address

    def _free(self, address: int | None) -> None:
        if address is None:
            return
        first, mapped, nbytes = self._live.pop(address)
        self._look(address, first, mapped, nbytes)
        self._unmap(first, mapped)

    def _look(self, address: int, first: int, mapped: int, nbytes: int) -> None:
        """Whether the slack around a storage still holds the pattern."""
        before = address - first - PAGE
        behind = first + mapped - PAGE - address - nbytes
        for where, start, count in (("before", first + PAGE, before), ("behind", address + nbytes, behind)):
            if ctypes.string_at(start, count) != PATTERN[:count]:
                self.damaged.append(f"wrote {where} a storage of {nbytes} bytes")

    def check(self) -> list[str]:
        """Writes outside of all storages, live or freed, since the last look."""
        for address, (first, mapped, nbytes) in list(self._live.items()):
            self._look(address, first, mapped, nbytes)
        found, self.damaged = self.damaged, []
        return found


_installed: list[Any] = []
"""the allocator and what C++ points to of it, kept for ever"""


def guard_storages() -> GuardedAllocator:
    """Put guard pages around every storage that this process makes on the CPU from now on.

    Raises :class:`GuardsUnavailable` where that cannot be done or does not work.
    """
    if _installed:
        return _installed[0]
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):  # elsewhere ctypes cannot reach the result
        raise GuardsUnavailable("guard pages are for Linux on x86-64")
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        current, replace = library._ZN3c1015GetCPUAllocatorEv, library._ZN3c1015SetCPUAllocatorEPNS_9AllocatorEh
    except (OSError, AttributeError) as error:
        raise GuardsUnavailable(f"PyTorch's library does not let its CPU allocator be replaced: {error}") from error
    current.restype = ctypes.c_void_p
    replace.argtypes = (ctypes.c_void_p, ctypes.c_uint8)
    allocator = GuardedAllocator()

    def allocate(result: int, this: int, nbytes: int) -> int:
        address = allocator.allocate(nbytes) if nbytes else 0
        if nbytes and not address:  # C++ would throw here, which Python cannot
            os._exit(NO_MEMORY)
        pointer = _DataPtr.from_address(result)
        pointer.data = pointer.context = address or None
        pointer.deleter = ctypes.cast(allocator.free, ctypes.c_void_p).value
        pointer.device = 0xFF00  # CPU, no index
        return result

    functions = _Allocate(allocate), _RawDeleter(lambda this: ctypes.cast(allocator.free, ctypes.c_void_p).value)
    table = ctypes.cast(ctypes.c_void_p.from_address(current()), ctypes.POINTER(ctypes.c_void_p))
    virtual = (ctypes.c_void_p * _SLOTS)(*(table[slot] for slot in range(_SLOTS)))
    virtual[_ALLOCATE] = ctypes.cast(functions[0], ctypes.c_void_p).value
    virtual[_RAW_DELETER] = ctypes.cast(functions[1], ctypes.c_void_p).value
    this = ctypes.c_void_p(ctypes.addressof(virtual))
    replace(ctypes.addressof(this), 255)
    _installed.extend([allocator, functions, virtual, this])
    probe = torch.ones(3)
    if allocator.count != 1 or probe.data_ptr() not in allocator._live or float(probe.sum()) != 3.0:
        raise GuardsUnavailable("the replaced allocator is not used")
    return allocator
