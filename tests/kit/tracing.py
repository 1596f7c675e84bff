"""The operators that a call runs on meta tensors, as the cost model sees them.

Operations that CUDA builds of PyTorch run as one library call, but meta tensors would decompose (recurrent networks by
cuDNN, fused attention), are intercepted before they are decomposed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch._VF
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from drkernel.base.modes import DispatchMode
from drkernel.sim.cost.operators import in_order, read_only
from drkernel.sim.cost.records import TensorMeta
from drkernel.sim.gpu.datafree import RECURRENT, recurrent_results
from drkernel.sim.gpu.operator_rules import ALLOCATORS, METADATA_OPERATORS
from drkernel.sim.host.library_calls import LibraryCalls


@dataclass(frozen=True)
class TracedCall:
    """One operator call. ``args`` are in the order of its schema; ``free`` operators move no data."""

    name: str
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    args: Sequence[Any]
    free: bool


class PatchedCalls(LibraryCalls):
    """A context in which torch's own functions pass library calls on, as meta tensors have no key to do it by."""

    def __enter__(self) -> None:
        owners = {"dropout": torch._VF, "scaled_dot_product_attention": torch.nn.functional}
        named = {
            name.partition(".")[0]: (owners.get(name, torch._VF), stand_in)
            for name, stand_in in self.stand_ins().items()
            if name in owners or name.partition(".")[0] in RECURRENT
        }
        named["rms_norm"] = (torch.nn.functional, partial(self._if_ours, False, self._rms_norm))
        self._patches = ExitStack()
        for name, (owner, stand_in) in named.items():
            call = partial(self._call, getattr(owner, name), stand_in)
            self._patches.enter_context(patch.object(owner, name, call))

    def __exit__(self, *error: Any) -> None:
        self._patches.close()

    @staticmethod
    def _call(original: Callable[..., Any], stand_in: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = stand_in(*args, **kwargs)
        return original(*args, **kwargs) if result is NotImplemented else result


class OperatorTracer(DispatchMode):
    """A context manager that passes every ATen operator under it to ``sink``; for meta and CPU tensors."""

    def __init__(self, sink: Callable[[TracedCall], None]) -> None:
        super().__init__()
        self.sink = sink
        self._refs: dict[int, StorageWeakRef] = {}  # holding them keeps a storage's identity from being reused
        self._library = PatchedCalls(lambda tensor: tensor.device.type == "meta", self._library_call)
        self._suspended = False

    def __enter__(self) -> OperatorTracer:
        self._library.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._library.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._suspended and func.namespace == "aten":
            self.emit(f"{func._schema.name.removeprefix('aten::')}.{func._overloadname}", args, kwargs or {}, result)
        return result

    def emit(self, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        """Report one operator."""
        given = in_order(name, args, kwargs)
        inputs = [leaf for leaf in tree_leaves(read_only(name, given)) if isinstance(leaf, torch.Tensor)]
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        metas_in, metas_out = tuple(map(self.meta, inputs)), tuple(map(self.meta, outputs))
        storages = {meta.storage for meta in metas_in}
        is_view = bool(outputs) and all(
            meta.storage in storages and not any(out is item for item in inputs)
            for meta, out in zip(metas_out, outputs, strict=True)
        )
        base = name.partition(".")[0]
        free = is_view or base in ALLOCATORS or base in METADATA_OPERATORS
        self.sink(TracedCall(name, metas_in, metas_out, given, free))

    def _library_call(self, overload: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run one library call on meta tensors: return its results' shapes and report it once."""
        self._suspended = True
        try:
            kind = overload._schema.name.removeprefix("aten::")
            result = recurrent_results(kind, *args) if kind in RECURRENT else overload(*args, **kwargs)
        finally:
            self._suspended = False
        self.emit(f"{kind}.{overload._overloadname}", args, kwargs, result)
        return result

    def meta(self, tensor: torch.Tensor) -> TensorMeta:
        """Return the metadata of a tensor that the cost model uses."""
        storage = StorageWeakRef(tensor.untyped_storage())
        self._refs.setdefault(storage.cdata, storage)
        dtype, offset = str(tensor.dtype).removeprefix("torch."), int(tensor.storage_offset()) * tensor.itemsize
        return TensorMeta(tuple(tensor.shape), tuple(tensor.stride()), dtype, storage.cdata, offset)


def trace(call: Callable[[], Any]) -> list[TracedCall]:
    """Every operator that ``call`` runs, in order."""
    calls: list[TracedCall] = []
    with torch.no_grad(), OperatorTracer(calls.append):
        call()
    return calls
