"""The runner for a real GPU: tensors, clock and profiler are inside the untrusted process.

A candidate that tampers with this process can forge what it reports about time, launches and operators. The judge
therefore checks outputs against its own oracle and times against its own clock (``session/cuda.py``). Every function of
torch used after the candidate is loaded is looked up before it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.base.modes import DispatchMode
from drkernel.gym.runner.runner import Runner, type_name
from drkernel.gym.runner.values import Granted, unpack
from drkernel.sim.gpu.operator_rules import ALLOCATORS, FREE_OPERATORS
from drkernel.sim.wire.frames import bytes_of, describe, tensor_of

POISONED_BYTES = 64 << 20
BAND_BYTES, BAND = 4096, 0xFF
"""behind what a checked call may touch, and each byte of it: NaN to whoever reads floats there, -1 to others"""
BANDED = {*ALLOCATORS, "zeros", "zeros_like", "new_zeros"}
MOST_CHARACTERS = 400_000
"""of the names of a call's kernels: thousands of them, and as JSON less than an answer may be long"""
PLAIN = (torch.Tensor, torch.nn.Parameter)
_wait_for_card = getattr(torch._C, "_cuda_synchronize", torch.cuda.synchronize)  # before a candidate replaces it


class CudaRunner(Runner):
    """Runs one candidate on one GPU. ``device`` is a torch device; "cpu" allows testing everything but the GPU."""

    def __init__(self, channel: socket.socket, scratch: str, device: str):
        super().__init__(channel, None, scratch)
        self._scratch = scratch
        self._device = torch.device(device)
        self._next = itertools.count(1)
        self._copies: dict[int, torch.Tensor] = {}
        self._bands: dict[int, list[torch.Tensor]] = {}  # behind the inputs
        self._most_bytes = 0
        self._returned: list[tuple[int, torch.Tensor, torch.Tensor]] = []
        self._kept: Any = None
        self._sample: int | None = None
        """seed of the places whose elements are sent, where not all are"""
        self._launches = LaunchLog()
        self._launches.install()
        self._reset_l2: Any = None
        if self._device.type == "cuda":
            with suppress(OSError, AttributeError):  # a driver without it has no persisting lines
                self._reset_l2 = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
            torch.cuda.init()
            torch.cuda.set_device(self._device)
            self._synchronize()  # a card that is full, or that another process owns, fails here rather than later

    def commands(self) -> dict[str, Any]:
        """The commands that the judge may send."""
        return {
            **super().commands(), "put": self._put, "reserve": self._reserve, "fill": self._fill, "write": self._write,
            "read": self._read, "changed": self._changed, "time": self._time, "kept": self._kept_outputs,
            "profile": self._profile,
        }  # fmt: skip

    def _place(self, model: torch.nn.Module) -> torch.nn.Module:
        return model.to(self._device)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            _wait_for_card()

    # ---- tensors

    def _keep(self, tensor: torch.Tensor) -> int:
        """A fresh allocation with the contents of a host tensor, and its handle."""
        handle = next(self._next)
        self._tensors[handle] = tensor.to(self._device, copy=True, memory_format=torch.preserve_format)
        self._bands[handle] = banded(self._tensors[handle], self._device)
        self._copies[handle] = self._tensors[handle].clone()
        return handle

    def _put(self, header: dict[str, Any], payload: bytearray) -> Any:
        return self._keep(tensor_of(header["tensor"], payload))

    def _reserve(self, header: dict[str, Any], payload: bytearray) -> Any:
        """An allocation whose contents come by :meth:`_fill`: it may be larger than the host's memory. Nobody asks
        whether a call changes it."""
        handle, form = next(self._next), header["tensor"]
        dtype = getattr(torch, form["dtype"])
        self._tensors[handle] = torch.empty_strided(form["shape"], form["stride"], dtype=dtype, device=self._device)
        return handle

    def _fill(self, header: dict[str, Any], payload: bytearray) -> Any:
        part = tensor_of(header["tensor"], payload)
        self._tensors[header["handle"]].narrow(0, header["row"], len(part)).copy_(part)

    def _write(self, header: dict[str, Any], payload: bytearray) -> Any:
        handle = header["handle"]
        self._tensors[handle].copy_(tensor_of(header["tensor"], payload))
        self._copies[handle] = self._tensors[handle].clone()

    def _read(self, header: dict[str, Any], payload: bytearray) -> Any:
        self._most_bytes = header["most_bytes"]
        return self._send_along(self._tensors[header["handle"]])

    def _send_along(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Add a tensor's elements to the answer's bytes, where there is room; returns its description."""
        if len(self.data) + tensor.numel() * tensor.element_size() > self._most_bytes:
            return {**describe(tensor), "bytes": None}
        host = tensor.detach().cpu()
        elements = bytes_of(host)
        self.data += elements
        return {**describe(host), "stride": list(tensor.stride()), "bytes": len(elements)}

    def _changed(self, header: dict[str, Any], payload: bytearray) -> Any:
        changed = [handle for handle, tensor, copy in self._returned if not _same_bytes(tensor, copy)]
        return list(dict.fromkeys(changed))

    def _release(self, header: dict[str, Any], payload: bytearray) -> Any:
        for handle in header["handles"]:
            self._tensors.pop(handle, None)
            self._copies.pop(handle, None)
            self._bands.pop(handle, None)
        self._returned = [entry for entry in self._returned if entry[0] not in header["handles"]]

    def _argument(self, value: Any) -> Any:
        return self._tensors[value.spec.handle] if isinstance(value, Granted) else value

    # ---- calls

    def _call(self, header: dict[str, Any], payload: bytearray) -> Any:
        granted: list[int] = []

        def argument(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                granted.append(self._keep(leaf))
                return self._tensors[granted[-1]]
            return self._argument(leaf)

        arguments = tree_map(argument, unpack(header["inputs"], payload))
        self._poison(header.get("poison"))
        self._most_bytes = header["most_bytes"]
        census = _Census(self._device)
        skip, traced = header.get("interference") == "skip", bool(header.get("trace"))
        with self._launches.recording(skip=skip) as launches, census, torch.no_grad(), self._tracing(traced) as trace:
            result = self._module(*arguments)
            self._synchronize()
        outputs: list[Any] = []
        self._describe(result, outputs, 0)
        bands = itertools.chain(*self._bands.values(), census.bands)
        mutated = [h for h, copy in self._copies.items() if not _same_bytes(self._tensors[h], copy)]
        return {
            "outputs": outputs,
            "type": type_name(result),
            "granted": granted,
            "mutated": mutated,
            "broken": sum(not bool((band == BAND).all()) for band in bands),
            "launches": launches.told(),
            "operators": dict(census.counts),
            "trace": self._send_trace(trace),
        }

    def _describe_tensor(self, value: torch.Tensor) -> dict[str, Any]:
        known = next((handle for handle, tensor in self._tensors.items() if tensor is value), None)
        handle = next(self._next) if known is None else known
        self._tensors[handle] = value
        described = {
            "handle": handle,
            "type": type_name(value),
            "device": str(value.device),
            "storage": value.untyped_storage().data_ptr(),
            "address": value.data_ptr(),
        }
        if self._sample is not None:
            part = sampled(value, self._sample)
            return {**described, **describe(value), "sampled": part.numel(), "bytes": self._send_along(part)["bytes"]}
        self._returned.append((handle, value, value.detach().clone()))
        return {**described, **self._send_along(value)}

    def _tensors_of_state(self, header: dict[str, Any], payload: bytearray) -> Any:
        self._most_bytes = header["most_bytes"]
        return super()._tensors_of_state(header, payload)

    def _poison(self, policy: str | None) -> None:
        """Fill memory that the allocator will hand out next, so that nothing can rely on its contents.

        The CPU's gives large blocks back to the system, and has them afresh.
        """
        if policy is None:
            return
        value = {"nan": float("nan"), "zero": 0.0, "random": 1.0}[policy]
        sizes = [1 << power for power in range(9, 21)]
        if self._device.type == "cuda":
            sizes.append(POISONED_BYTES)
        blocks = [torch.full((size // 4,), value, device=self._device) for size in sizes for _ in range(4)]
        if policy == "random":
            for block in blocks:
                block.normal_()

    # ---- time

    def _time(self, header: dict[str, Any], payload: bytearray) -> Any:
        """Seconds of each call in ``order``, which names sets of arguments, by events.

        In the tensors at the places ``moved`` of a call's arguments the elements are moved on by its share in
        ``moves``. Each call finds the state named in ``starts_from`` as the block does.

        Nothing waits for the flush, so that the host launches while it runs: what launching takes beyond that lead
        counts, and no jitter of the host. Inputs arrive behind the lead, so that nothing can be computed during it;
        behind them the rest of the flush drives them out of the caches. The outputs of the call ``keep`` stay for
        :meth:`_kept_outputs`, so that sending them is not in anyone's time.
        """
        sets = tree_map(self._argument, unpack(header["sets"], payload))
        flush = torch.empty(max(1, header["flush_bytes"]), dtype=torch.uint8, device=self._device)
        lead, rest = flush.split([len(flush) - len(flush) // 4, len(flush) // 4])
        module = self._module if not header["dry"] else lambda *arguments: None
        events, places, moves = [], _Places(header["moved"]), header["moves"]
        state = self._state() if header["starts_from"] else {}
        starts = [(state[name], state[name].clone()) for name in header["starts_from"]]
        start, end = self._mark(), self._mark()
        for mark in (start, end):
            mark.record()  # the driver makes an event when it is first recorded
        self._kept = None
        with torch.no_grad():
            for index, chosen in enumerate(header["order"]):
                if self._reset_l2 is not None:
                    self._reset_l2()  # lines that an earlier call marked as persisting, which no flush reaches
                lead.zero_()
                arguments = places.filled(sets[chosen], moves[index] if moves else 0.0)
                for value, first in starts:
                    value.copy_(first)
                rest.zero_()
                start.record()
                result = module(*arguments)
                end.record()
                self._synchronize()
                events.append(start.elapsed_time(end) * 1e-3)
                if index == header["keep"]:
                    self._kept = result
                    if places.holds(result):  # an argument, or a view of one
                        places = _Places(header["moved"])
        return {"events": events}

    def _kept_outputs(self, header: dict[str, Any], payload: bytearray) -> Any:
        """The outputs of the timed call that was to be kept."""
        result, self._kept = self._kept, None
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and type(leaf) not in PLAIN:
                raise TypeError(f"a {type_name(leaf)} is no plain tensor: it may be computed when it is read")
        self._most_bytes, self._sample = header["most_bytes"], header["sample"]
        outputs: list[Any] = []
        self._describe(result, outputs, 0)
        self._sample = None
        return {"outputs": outputs}

    def _mark(self) -> Any:
        return torch.cuda.Event(enable_timing=True) if self._device.type == "cuda" else _HostMark()

    def _profile(self, header: dict[str, Any], payload: bytearray) -> Any:
        """The profiler's trace of ``calls`` calls, for the judge to read."""

        def argument(leaf: Any) -> Any:
            return leaf.to(self._device) if isinstance(leaf, torch.Tensor) else self._argument(leaf)

        arguments = tree_map(argument, unpack(header["inputs"], payload))
        with torch.no_grad(), self._tracing(True) as trace:
            for _ in range(header["calls"]):
                self._module(*arguments)
            self._synchronize()
        return {"trace": self._send_trace(trace)}

    @contextmanager
    def _tracing(self, wanted: bool) -> Iterator[list[Any]]:
        """The profiler of the block in a list, when one is wanted."""
        if not wanted:
            yield []
            return
        gpu = "cuda" if self._device.type == "cuda" else None
        # what torch.profiler.profile wraps; the wrapper imports all of TorchInductor, a second in every runner
        with torch.autograd.profiler.profile(use_kineto=True, use_device=gpu) as profiler:
            held = [profiler]
            yield held

    def _send_trace(self, trace: list[Any]) -> dict[str, int] | None:
        """Add the trace's text to the answer's bytes; returns how many there are."""
        if not trace:
            return None
        path = os.path.join(self._scratch, "trace.json")
        trace[0].export_chrome_trace(path)
        with open(path, "rb") as file:
            text = file.read()
        os.remove(path)
        self.data += text
        return {"bytes": len(text)}


def banded(tensor: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
    """Extend the allocation of a plain tensor on ``device`` by a band, and return that: a write past the end shows."""
    if type(tensor) is not torch.Tensor or tensor.device != device or tensor.layout != torch.strided:
        return []
    end = (storage := tensor.untyped_storage()).nbytes()
    storage.resize_(end + BAND_BYTES)
    return [torch.empty(0, dtype=torch.uint8, device=device).set_(storage, end, (BAND_BYTES,), (1,)).fill_(BAND)]


SAMPLED, LAST = 1 << 16, 256
"""elements of a large output that are compared: some anywhere, and the last, where a kernel may forget its tail"""


def sampled(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Elements of ``tensor`` at places that follow from ``seed``, in one dimension; all of one with few."""
    count = tensor.numel()
    if count <= SAMPLED:
        return tensor.detach().reshape(-1)
    anywhere = torch.randint(count, (SAMPLED,), generator=torch.Generator().manual_seed(seed))
    places = torch.cat([anywhere, torch.arange(count - LAST, count)])
    return tensor.detach().reshape(-1)[places.to(tensor.device)]


class _Places:
    """Inputs of all calls of a block at the same addresses: their contents are copied there before each call.

    ``moved``: places of tensors among the arguments whose elements may be moved on.
    """

    def __init__(self, moved: list[int]) -> None:
        self._at: dict[tuple[Any, ...], torch.Tensor] = {}
        self._moved = moved

    def filled(self, arguments: Any, share: float = 0.0) -> Any:
        """The arguments with every tensor replaced by one of the same contents at its place.

        With ``share`` its elements are that part of its length further on, and the last ones in front.
        """
        numbers = itertools.count()

        def place(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            form = (next(numbers), leaf.shape, leaf.stride(), leaf.dtype)
            if form not in self._at:
                self._at[form] = torch.empty_like(leaf)
            to, by = self._at[form], int(share * leaf.numel())
            if not by or form[0] not in self._moved or not leaf.is_contiguous():
                return to.copy_(leaf)
            to.view(-1)[by:].copy_(leaf.view(-1)[:-by])
            to.view(-1)[:by].copy_(leaf.view(-1)[-by:])
            return to

        return tree_map(place, arguments)

    def holds(self, result: Any) -> bool:
        """Whether a part of the result is in one of the inputs' places."""
        held = {tensor.untyped_storage().data_ptr() for tensor in self._at.values()}
        tensors = [leaf for leaf in tree_leaves(result) if type(leaf) in PLAIN]
        return any(leaf.untyped_storage().data_ptr() in held for leaf in tensors)


def _left_by_dynamo(*functions: Any) -> None:
    """Let Dynamo run these functions as they are: to trace them, it would read this file, which Landlock hides."""
    frames = torch._C._dynamo.eval_frame  # Dynamo's own functions for this would import all of it
    skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
    for function in functions:
        frames.set_code_exec_strategy(function.__code__, skip)


class _HostMark:
    """A stand-in for an event on a device without events."""

    def record(self) -> None:
        self.seconds = perf_counter()

    def elapsed_time(self, end: _HostMark) -> float:
        return (end.seconds - self.seconds) * 1e3


class _Census(DispatchMode):
    """Counts ATen operators with device work, and puts bands behind what is allocated."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # else what is compiled when it is timed is not compiled when it is checked

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()
        self.bands: list[torch.Tensor] = []
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in FREE_OPERATORS:
            self.counts[f"aten.{name}"] += 1
        result = func(*args, **(kwargs or {}))
        if name in BANDED:
            self.bands += banded(result, self._device)
        return result


_left_by_dynamo(_Census.__torch_dispatch__)


class Launches:
    """The launches of a call, counted by kernel: tuning makes tens of thousands of them, of a few kernels."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._room = MOST_CHARACTERS

    def add(self, name: str, identity: str) -> None:
        """Count a launch; that of one more kernel than an answer holds is left out."""
        kernel = name[:200], identity[:500]
        if kernel not in self._counts:
            self._room -= len(kernel[0]) + len(kernel[1])
            if self._room < 0:
                return
        self._counts[kernel] = self._counts.get(kernel, 0) + 1

    def told(self) -> list[dict[str, Any]]:
        """The kernels in the order of their first launch, as the judge is told them."""
        return [{"name": name, "identity": of, "times": times} for (name, of), times in self._counts.items()]


class LaunchLog:
    """Counts every launch of a Triton kernel, and can prevent its execution."""

    def __init__(self) -> None:
        self._skip = False
        self._seen: Launches | None = None

    def install(self) -> None:
        """Wrap Triton's launches for good: of functions, told by kernels' names, and of what is compiled ahead."""
        from triton.compiler import CompiledKernel
        from triton.runtime.jit import JITFunction

        self.watch_compiled(CompiledKernel)

        original, log = JITFunction.run, self

        def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup or (seen := log._seen) is None:
                return original(self, *args, grid=grid, warmup=warmup, **kwargs)
            kernel = original(self, *args, grid=grid, warmup=log._skip, **kwargs)  # a warm-up compiles and does not run
            seen.add(getattr(kernel, "name", self.fn.__name__), f"{self.fn.__module__}.{self.fn.__qualname__}")
            return kernel

        _left_by_dynamo(run, Launches.add)
        JITFunction.run = run

    def watch_compiled(self, kind: Any) -> None:
        """Count launches of the kernels of a class, which are made by ``kernel[grid](...)``."""
        original, log = kind.__getitem__, self

        def launcher(kernel: Any, grid: Any) -> Any:
            launch = original(kernel, grid)

            def counted(*args: Any, **kwargs: Any) -> Any:
                if log._seen is not None:
                    log._seen.add(kernel.name, f"{kernel.name}@{kernel.hash}")
                return None if log._seen is not None and log._skip else launch(*args, **kwargs)

            return counted

        kind.__getitem__ = launcher

    @contextmanager
    def recording(self, *, skip: bool) -> Iterator[Launches]:
        """Launches of the block; not executed when ``skip``."""
        self._seen, self._skip = Launches(), skip
        try:
            yield self._seen
        finally:
            self._seen, self._skip = None, False


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(*(one.detach().contiguous().reshape(-1).view(torch.uint8) for one in (left, right)))
