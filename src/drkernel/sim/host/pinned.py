"""Pinned host memory, which kernels of a GPU can address, too."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from drkernel.sim.host.tensor import DeviceLink, DeviceTensor

_pinned: dict[int, StorageWeakRef] = {}
"""by address: views of pinned memory are pinned, too"""


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Note that a host tensor's memory is pinned; copies from there cost the same here."""
    for address in [address for address, storage in _pinned.items() if storage.expired()]:
        del _pinned[address]
    storage = tensor.untyped_storage()
    _pinned[storage.data_ptr()] = StorageWeakRef(storage)
    return tensor


def is_pinned(tensor: Any) -> bool:
    """Whether a tensor lies in pinned host memory."""
    if not _pinned or type(tensor) is not torch.Tensor:
        return False
    storage = _pinned.get(tensor.untyped_storage().data_ptr())
    return storage is not None and not storage.expired()


class MappedHost:
    """The pinned host memory of one launch: it goes to the device before, and comes back after."""

    def __init__(self, link: DeviceLink):
        self._link = link
        self._sent: dict[int, tuple[torch.Tensor, DeviceTensor]] = {}
        self._arguments: list[torch.Tensor] = []  # a launch names them by handles alone

    def on_device(self, value: Any) -> Any:
        """The argument itself, or for a pinned tensor one of the same form on the device."""
        if not is_pinned(value):
            return value
        address = value.untyped_storage().data_ptr()
        with torch.no_grad():
            if address not in self._sent:
                whole = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
                self._sent[address] = whole, self._link.upload(whole)
            elements = self._sent[address][1].view(value.dtype)
            self._arguments.append(elements.as_strided(value.shape, value.stride(), value.storage_offset()))
        return self._arguments[-1]

    def write_back(self) -> None:
        """Copy what the launch may have written to the host."""
        for host, device in self._sent.values():
            host.copy_(device)
