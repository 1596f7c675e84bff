"""The control desk in the process of a data-free device: forms instead of elements."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from drkernel.sim.gpu.datafree.engine import DataFreeEngine
from drkernel.sim.process.control_socket import ControlDesk
from drkernel.sim.wire.commands import DTYPES, ProtocolError, TensorSpec, encode
from drkernel.sim.wire.frames import bytes_of, describe, tensor_of


class DataFreeDesk(ControlDesk):
    """Accepts tensors with or without elements, returns elements where they exist, and reports what was written."""

    engine: DataFreeEngine

    def _put(self, header: dict, payload: bytearray | memoryview) -> tuple[Any, Any]:
        if header.get("contents", True):
            spec = self.engine.register(tensor_of(header, payload))
        else:
            spec = reserve(self.engine, header)
        self.pinned.add(spec.handle)
        if header.get("grant", True):
            self.visible.add(spec.handle)
            self._granted.add(spec.handle)
        return encode(spec), b""

    def _get(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        value = self.engine.contents(self._held_handle(header["handle"]))
        if value is None:
            raise ValueError("the tensor has no contents: the device is without data")
        return describe(value), bytes_of(value)

    def _overwrite(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        handle = self._held_handle(header["handle"])
        self.engine.overwrite(handle, tensor_of(header, payload) if header.get("contents", True) else None)
        return None, b""

    def _held_handle(self, handle: int) -> int:
        self._held(handle)  # says so when it is not the judge's
        return handle

    def _outputs(self, header: dict) -> tuple[list[Any], bytearray]:
        outputs: list[Any] = []
        for handle in header.get("outputs", ()):
            if handle not in self.visible:
                outputs.append(None)
                continue
            self.pinned.add(handle)
            held = self.engine.heap.held(handle)
            covered = self.engine.covered(held)
            outputs.append({"spec": encode(held.spec), "storage": held.base, "bytes": None, "covered": covered})
        return outputs, bytearray()

    def _mutated(self) -> list[int]:
        """Return the granted inputs into whose storage something was written since the call began."""
        return [h for h in sorted(self._granted) if self.engine.was_written(self.engine.heap.held(h))]

    def _changed(self, header: dict, payload: bytearray) -> tuple[Any, Any]:
        return [], b""

    def _more(self) -> dict[str, Any]:
        return {"data_free": asdict(self.engine.record)}


def reserve(engine: DataFreeEngine, header: dict) -> TensorSpec:
    """Create a tensor of the form that a header describes, without contents.

    Raises:
        ProtocolError: the description is invalid.
    """
    try:
        shape, stride = [int(n) for n in header["shape"]], [int(n) for n in header["stride"]]
        dtype = DTYPES[header["dtype"]]
        if min((*shape, *stride), default=0) < 0 or len(shape) != len(stride):
            raise ValueError("sizes and strides are not negative, and one for each dimension")
        return engine.reserve(shape, stride, dtype)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise ProtocolError(f"malformed tensor in message: {error}") from error
