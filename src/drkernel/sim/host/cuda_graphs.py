"""CUDA graphs on the in-process device: a capture is a list of commands, and a replay executes them again.

On a GPU a capture runs nothing. Here commands are carried out while they are captured, because what follows may depend
on them (sizes, checks of indices); then memory, random numbers, counts and the clock are put back. A replay writes
where the capture did. Its host time is that of one launch: the work on the device follows without gaps.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from drkernel.sim.gpu.accounts import Accounts
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.gpu.heap import Held
from drkernel.sim.gpu.operator_rules import rule_of
from drkernel.sim.host.attach import BelowModes
from drkernel.sim.host.cuda_api import replaced_attributes
from drkernel.sim.host.loading import Partial
from drkernel.sim.wire.commands import LaunchCommand, Ref, TensorSpec

EMPTY = (
    "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device or stream."
)
FORBIDDEN = "CUDA error: operation not permitted when stream is capturing ({what})"


@dataclass(frozen=True)
class _Reshaped:
    """A tensor's form before and after an operator that changed it in place, as ``t_`` does."""

    before: TensorSpec
    after: TensorSpec


class _Recorded:
    """The contents of one graph."""

    def __init__(self) -> None:
        self.commands: list[LaunchCommand | _Reshaped | tuple[str, Any, dict[str, Any], Any]] = []
        """launches, operators with their arguments and results, and new forms"""
        self.handles: set[int] = set()
        """tensors that the commands read and write"""
        self.saved: dict[int, tuple[Held, torch.UntypedStorage]] = {}
        """during a capture: base of a storage with contents -> a tensor over it, and its earlier bytes"""


class _CaptureLayer:
    """Stands between the host and an engine: records while a graph is captured, and keeps what graphs need."""

    def __init__(self, engine: DeviceEngine):
        self.engine = engine
        self.recording: _Recorded | None = None
        self._held: dict[int, int] = {}
        """handle -> graphs that need it"""
        self._dropped: set[int] = set()
        """handles among them that the host has dropped"""

    # ---- commands, of which some are not allowed in a capture

    def free(self, handle: int) -> None:
        if handle in self._held or (self.recording is not None and handle in self.recording.handles):
            self._dropped.add(handle)
        else:
            self.engine.free(handle)

    def query(self, what: str) -> Any:
        if self.recording is not None and what == "synchronize":
            raise RuntimeError(FORBIDDEN.format(what="waiting for the device"))
        return self.engine.query(what)

    def resources(self, ttir: str, num_warps: int, num_stages: int) -> tuple[int, int, int]:
        return self.engine.resources(ttir, num_warps, num_stages)

    def generator(self, number: int, *, seed: int | None = None, state: str | None = None) -> dict[str, Any]:
        return self.engine.generator(number, seed=seed, state=state)

    def download(self, ref: Ref) -> torch.Tensor:
        if self.recording is not None:
            raise RuntimeError(FORBIDDEN.format(what="a copy to the host"))
        return self.engine.download(ref)

    def upload(self, tensor: torch.Tensor) -> TensorSpec:
        if self.recording is not None and tensor.dim() > 0:  # a scalar operand goes along with a kernel
            raise RuntimeError(FORBIDDEN.format(what="a copy from host memory"))
        spec = self.engine.upload(tensor)
        if self.recording is not None:
            self.recording.handles.add(spec.handle)
        return spec

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        if self.recording is None:
            return self.engine.op(name, args, kwargs)
        rule = rule_of(name)
        inputs = _handles((args, kwargs))
        if rule.base == "_local_scalar_dense" or (rule.sized_by_data and not self._by_places(rule.base, inputs)):
            raise RuntimeError(FORBIDDEN.format(what=f"{rule.label} tells the host a value"))
        forms: list[TensorSpec] = []
        for key in rule.written:
            normal_args, normal_kwargs = rule.normal(args, kwargs)
            written = normal_args[key] if isinstance(key, int) else normal_kwargs.get(key)
            self._save(_handles(written))
            forms += [self.engine.heap.held(handle).spec for handle in _handles(written)]
        result = self.engine.op(name, args, kwargs)
        outputs = _handles(result)
        self.recording.handles.update(inputs, outputs)
        bases = {self.engine.heap.held(handle).base for handle in inputs}
        view = not rule.written and all(self.engine.heap.held(handle).base in bases for handle in outputs)
        if not (rule.allocates or rule.only_metadata or (outputs and view)):
            self.recording.commands.append((name, args, kwargs, result))
        for before in forms if rule.only_metadata else ():
            self.recording.commands.append(_Reshaped(before, self.engine.heap.held(before.handle).spec))
        return result

    def _by_places(self, base: str, inputs: list[int]) -> bool:
        """Whether an operator indexes by numbers, not by truth values: then its size is known."""
        held = [self.engine.heap.held(handle) for handle in inputs[1:]]
        return "index" in base and all(one.spec.dtype not in (torch.bool, torch.uint8) for one in held)

    def launch(self, command: LaunchCommand) -> None:
        if self.recording is not None:
            handles = _handles(command.args)
            self._save(handles)
            self.recording.handles.update(handles)
            self.recording.commands.append(command)
        self.engine.launch(command)

    # ---- graphs

    @contextmanager
    def capture(self) -> Iterator[_Recorded]:
        """Record the commands of a block, and undo their effects."""
        if self.recording is not None:
            raise RuntimeError("CUDA error: a graph is being captured already")
        engine, recorded = self.engine, _Recorded()
        state = engine.random.command(0, None, None)["state"]
        accounts, engine.accounts = engine.accounts, Accounts(engine.spec)
        engine.accounts.conv_tf32 = accounts.conv_tf32
        self.recording = recorded
        try:
            yield recorded
        finally:
            self.recording, engine.accounts = None, accounts
            engine.random.command(0, None, state)
            for held, before in recorded.saved.values():
                engine.heap.restore(held, before)
            recorded.saved.clear()
            for handle in recorded.handles:
                self._held[handle] = self._held.get(handle, 0) + 1

    def replay(self, recorded: _Recorded) -> None:
        """Execute the commands again, into the tensors of the capture."""
        engine = self.engine
        timeline = engine.accounts.timeline
        launched = timeline.host + engine.spec.launch_overhead
        timeline.device_free = max(timeline.device_free, launched)
        timeline.host = float("-inf")
        for command in reversed(recorded.commands):
            if isinstance(command, _Reshaped):
                self._reshape(command.before)
        try:
            for command in recorded.commands:
                if isinstance(command, LaunchCommand):
                    engine.launch(command)
                elif isinstance(command, _Reshaped):
                    self._reshape(command.after)
                else:
                    name, args, kwargs, result = command
                    self._into(_handles(result), _handles(engine.op(name, args, kwargs)))
        finally:
            engine.accounts.timeline.host = launched

    def _reshape(self, spec: TensorSpec) -> None:
        """Give a tensor the form that it had at this place of the capture."""
        held = self.engine.heap.held(spec.handle)
        held.tensor.as_strided_(spec.shape, spec.stride, spec.offset)
        self.engine.heap.refresh(held)

    def _into(self, captured: list[int], again: list[int]) -> None:
        """Move results to where those of the capture lie."""
        heap = self.engine.heap
        for old, new in zip(captured, again, strict=True):
            if old != new:
                held = heap.held(old)
                made, known = heap.contents(heap.held(new)), heap.contents(held)
                if made is not None and known is not None:
                    known.copy_(made)
                else:
                    heap.forget(held.base)
                heap.mark_written(held)
                self.engine.free(new)

    def release(self, recorded: _Recorded) -> None:
        """Free what only this graph needed."""
        for handle in recorded.handles:
            self._held[handle] -= 1
            if not self._held[handle]:
                del self._held[handle]
                if handle in self._dropped:
                    self._dropped.discard(handle)
                    self.engine.free(handle)
        recorded.handles.clear()
        recorded.commands.clear()

    def _save(self, handles: list[int]) -> None:
        """Keep the bytes of storages that are about to be written for the first time."""
        assert self.recording is not None
        for handle in handles:
            held = self.engine.heap.held(handle)
            contents = self.engine.heap.contents(held) if held.nbytes else None
            if held.base not in self.recording.saved and contents is not None:
                self.recording.saved[held.base] = (held, contents.untyped_storage().clone())


def _handles(value: Any) -> list[int]:
    """The tensors among arguments or results."""
    if isinstance(value, (Ref, TensorSpec)):
        return [value.handle]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [handle for item in value for handle in _handles(item)]


@contextmanager
def graphs_on(channel: BelowModes) -> Iterator[None]:
    """Offer CUDA graphs in ``torch.cuda``, on a device in this process."""
    layer = _CaptureLayer(channel.inner)

    class CUDAGraph(Partial):
        """Commands of the device that can be executed again."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._recorded: _Recorded | None = None
            self._capture: Any = None

        def capture_begin(self, *_: Any, **__: Any) -> None:
            channel.inner = layer  # from the first capture on
            self._capture = layer.capture()
            self._recorded = self._capture.__enter__()

        def capture_end(self) -> None:
            with channel.alone():
                self._capture.__exit__(None, None, None)
            if self._recorded is not None and not self._recorded.commands:
                warnings.warn(EMPTY, stacklevel=3)

        def replay(self) -> None:
            if self._recorded is None or layer.recording is not None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            with channel.alone():
                layer.replay(self._recorded)

        def reset(self) -> None:
            recorded, self._recorded = self._recorded, None
            if recorded is not None:
                layer.release(recorded)

        __del__ = reset

        def pool(self) -> tuple[int, int]:
            return (0, id(self))

    class graph:
        """``with torch.cuda.graph(g):`` captures what is inside."""

        def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, *_: Any, **__: Any) -> None:
            self._graph = cuda_graph

        def __enter__(self) -> None:
            self._graph.capture_begin()

        def __exit__(self, kind: Any, *_: Any) -> None:
            self._graph.capture_end()
            if kind is not None:
                self._graph.reset()

    offered = {
        "CUDAGraph": CUDAGraph,
        "graph": graph,
        "make_graphed_callables": torch.cuda.graphs.make_graphed_callables,
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: layer.recording is not None,
    }
    replaced = [(torch.cuda, name, value) for name, value in offered.items()]
    replaced += [(torch.cuda.graphs, name, offered[name]) for name in ("CUDAGraph", "graph_pool_handle")]
    with replaced_attributes(replaced):
        yield
