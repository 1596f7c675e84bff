"""The tape of a device: which commands ran, on which tensors, without values; for an exact evaluation by the judge.

A tape has an entry a command, as JSON: ``["given", spec, digest, part]`` for a tensor that came from outside (``part``:
the place of its contents beside the tape, None where they are too large), ``["op", name, args, kwargs, result]`` and
``["launch", kernel, grid, args, written]``, with the storages that were written; the texts of its kernels are beside
it. ``["call", True]`` and ``["call", False]`` stand where a call begins and ends.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from drkernel.sim.wire.frames import bytes_of, describe

MOST_ENTRIES = 20_000
MOST_CONTENTS = 64 << 10
"""bytes of one tensor whose contents are recorded; of others the digest tells whether the judge knows them"""
MOST_DIGESTED = 64 << 20


def digest_of(tensor: torch.Tensor) -> str:
    """Names a tensor's contents and type, whatever its shape and strides."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(flat.numpy().data, digest_size=16, person=str(tensor.dtype)[6:].encode()[:16]).hexdigest()


@dataclass(frozen=True)
class Tape:
    """What was recorded, as the judge reads it."""

    entries: list[list[Any]]
    kernels: dict[str, str]
    contents: list[torch.Tensor]


class TapeRecorder:
    """Records the commands of a device process."""

    def __init__(self) -> None:
        self.on = False
        """whether anything is recorded"""
        self._entries: list[list[Any]] = []
        self._contents: list[torch.Tensor] = []
        self._kernels: dict[str, str] = {}

    def add(self, *entry: Any) -> None:
        """Record a command; beyond :data:`MOST_ENTRIES` the tape ends, and says so."""
        if not self.on:
            return
        if len(self._entries) < MOST_ENTRIES:
            self._entries.append([*entry])
        elif len(self._entries) == MOST_ENTRIES:
            self._entries.append(["cut"])

    def launch(self, kernel: str, ttir: str, grid: Any, args: Any, written: Iterable[int]) -> None:
        """Record a launch; ``written``: where the storages begin into which it wrote."""
        if self.on:
            self._kernels[kernel] = ttir
            self.add("launch", kernel, list(grid), args, sorted(written))

    def given(self, spec: Any, tensor: torch.Tensor) -> None:
        """Record a tensor that comes from outside; ``spec`` is encoded."""
        if not self.on:
            return
        nbytes = tensor.numel() * tensor.element_size()
        part = len(self._contents) if nbytes <= MOST_CONTENTS else None
        if part is not None:
            self._contents.append(tensor.detach().clone(memory_format=torch.contiguous_format))
        self.add("given", spec, digest_of(tensor) if nbytes <= MOST_DIGESTED else "", part)

    def take(self) -> tuple[dict[str, Any], bytes]:
        """Everything recorded so far, as a message; the tape goes on."""
        headers, data = [], bytearray()
        for tensor in self._contents:
            elements = bytes_of(tensor)
            headers.append({**describe(tensor), "bytes": len(elements)})
            data += elements
        return {"entries": self._entries, "contents": headers, "kernels": self._kernels}, bytes(data)
