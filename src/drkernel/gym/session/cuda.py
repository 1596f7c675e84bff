"""A session on a real GPU, which the runner holds.

The same methods as on a simulated one, and two more: :meth:`CudaSession.time` and :meth:`CudaSession.profile`. Here the
runner is asked for values, times and launches, so less is certain: outputs are compared by the judge with its own
oracle, and the device's times must agree with ``wall_seconds``, the judge's clock around the whole block.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from drkernel.gym.request import EvalSettings
from drkernel.gym.runner.launcher import JobHandle, Launcher
from drkernel.gym.runner.values import Granted, pack, replace_leaves
from drkernel.gym.session.answers import CallResult, Output, Plain
from drkernel.gym.session.base import JobSession, claims_of, plain_of, sizes_of
from drkernel.sim.gpu.engine import LaunchRecord
from drkernel.sim.gpu.interfere import Interference
from drkernel.sim.process.control_socket import CallRecord, Form
from drkernel.sim.wire.commands import DTYPES, TensorSpec
from drkernel.sim.wire.frames import bytes_of, describe, tensor_of
from drkernel.verdict import Profile, ProfileRow


@dataclass(frozen=True)
class TimedCalls:
    """Calls timed one after another, the caches of the GPU flushed before each."""

    device_seconds: tuple[float, ...]
    """one a call, between two events on the device"""
    call_seconds: tuple[float, ...]
    """one a call, by the runner's clock, from before the first event to the device's being idle"""
    wall_seconds: float
    """the whole block by the judge's clock, flushes and messages included"""
    kept: list[Output]
    """outputs of the call that was asked for"""


class CudaSession(JobSession):
    """One candidate on one GPU."""

    def __init__(self, launcher: Launcher, settings: EvalSettings, job: JobHandle):
        self._handles: set[int] = set()
        super().__init__(launcher, settings, job)

    def __enter__(self) -> CudaSession:
        return self

    # ---- calls

    def call(
        self,
        arguments: Sequence[Any],
        *,
        poison: Literal["nan", "zero", "random"] | None = None,
        interference: Interference | None = None,
        forms: Sequence[Form | None] | None = None,
    ) -> CallResult:
        """As on a simulated GPU; the runner sends outputs up to ``most_output_bytes``, of whatever form.

        ``interference="disturb"`` is not offered: it needs a device of the judge's own. Raises ``ValueError`` for it.
        """
        if interference == "disturb":
            raise ValueError("a real GPU cannot disturb what kernels write; use 'skip'")
        data, payload = pack(replace_leaves(list(arguments), self._argument))
        start = time.monotonic()
        most = self.most_output_bytes
        header = {"do": "call", "inputs": data, "poison": poison, "interference": interference, "most_bytes": most}
        answer, elements = self._ask_for_data(header, payload, most_bytes=most)
        seconds = time.monotonic() - start
        return self._checked(lambda: self._result(answer, elements, list(arguments), seconds))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Plain):
            return value.value
        if isinstance(value, int) and not isinstance(value, bool) and value in self._handles:
            return Granted(TensorSpec(value, (), (), 0, torch.float32, 0))
        return value

    def _result(self, answer: Any, elements: bytearray, arguments: list[Any], seconds: float) -> CallResult:
        granted = [int(handle) for handle in answer["granted"]]
        self._handles.update(granted)
        handles = iter(granted)
        named = replace_leaves(arguments, lambda leaf: next(handles) if isinstance(leaf, torch.Tensor) else leaf)
        record = CallRecord(
            launches=[_launch(launch) for launch in answer["launches"]],
            operators={str(name): int(count) for name, count in answer["operators"].items()},
            copies={},
            findings=[],
            prints=[],
            profile=Profile(kind="measured", device=self.device_name, total_seconds=0, elapsed_seconds=0),
            mutated=[int(handle) for handle in answer["mutated"]],
        )
        return CallResult(_outputs(answer, elements), str(answer["type"])[:100], record, seconds, named)

    # ---- tensors

    def put(self, tensor: torch.Tensor) -> int:
        """Copy a host tensor into a new allocation on the GPU; returns its handle."""
        handle = self._ask({"do": "put", "tensor": describe(tensor)}, bytes(bytes_of(tensor)))
        number = self._checked(lambda: int(handle))
        self._handles.add(number)
        return number

    def write(self, handle: int, tensor: torch.Tensor) -> None:
        """Replace the contents of an input in place: same address, same object in the runner."""
        self._ask({"do": "write", "handle": handle, "tensor": describe(tensor)}, bytes(bytes_of(tensor)))

    def read(self, handle: int) -> torch.Tensor:
        """What a tensor holds now: an input, or an output that is not released yet."""
        most = self._settings.memory_bytes
        described, elements = self._ask_for_data({"do": "read", "handle": handle, "most_bytes": most}, most_bytes=most)
        return self._checked(lambda: tensor_of(described, elements))

    def changed(self) -> list[int]:
        """Handles of outputs whose bytes are no longer what the call that returned them ended with."""
        answer = self._ask({"do": "changed"})
        return self._checked(lambda: [int(handle) for handle in answer])

    def release(self, handles: Iterable[int]) -> None:
        """Let inputs and outputs go."""
        released = list(handles)
        self._ask({"do": "release", "handles": released})
        self._handles -= set(released)

    # ---- time

    def time(
        self, sets: Sequence[Sequence[Any]], *, flush_bytes: int, keep: int | None = None, dry: bool = False
    ) -> TimedCalls:
        """Call once for each set of arguments (handles and plain values), timed.

        ``flush_bytes`` are written before each call, more than the GPU's caches hold. ``keep`` is the call whose
        outputs come back. ``dry`` does everything but call the module: what a block costs by itself.
        """
        data, payload = pack([replace_leaves(list(arguments), self._argument) for arguments in sets])
        most = self.most_output_bytes
        header = {
            "do": "time", "sets": data, "flush_bytes": flush_bytes, "keep": keep, "dry": dry, "most_bytes": most
        }  # fmt: skip
        start = time.perf_counter()
        answer, elements = self._ask_for_data(header, payload, most_bytes=most)
        wall = time.perf_counter() - start

        def read() -> TimedCalls:
            events, walls = (tuple(float(seconds) for seconds in answer[name]) for name in ("events", "walls"))
            if len(events) != len(sets) or len(walls) != len(sets) or not all(0 <= s < 1e6 for s in (*events, *walls)):
                raise ValueError("a time for each call is expected")
            return TimedCalls(events, walls, wall, _outputs(answer, elements))

        return self._checked(read)

    def profile(self, arguments: Sequence[Any], *, calls: int = 1) -> Profile:
        """Where the device time of one call goes, by the runner's profiler, averaged over ``calls``."""
        data, payload = pack(replace_leaves(list(arguments), self._argument))
        answer = self._ask({"do": "profile", "inputs": data, "calls": calls}, payload)
        return self._checked(lambda: _profile(answer, self.device_name, calls))


def _outputs(answer: Any, elements: bytearray) -> list[Output]:
    view, start, outputs = memoryview(elements), 0, []
    for claim in claims_of(answer):
        kind = str(claim.get("type"))[:100]
        if claim.get("handle") is None:
            value = plain_of(claim["value"]) if "value" in claim else None
            outputs.append(Output(value, None, (), (), None, "host", kind, None, None))
            continue
        shape, stride, dtype = sizes_of(claim["shape"]), sizes_of(claim["stride"]), DTYPES[claim["dtype"]]
        tensor = None
        if claim["bytes"] is not None:
            end = start + int(claim["bytes"])
            tensor = tensor_of(claim, view[start:end])
            start = end
        place = (str(claim["device"])[:50], kind, int(claim["storage"]), int(claim["address"]))
        outputs.append(Output(tensor, claim["handle"], shape, stride, dtype, *place))
    return outputs


def _launch(launch: Any) -> LaunchRecord:
    name, identity = str(launch["name"])[:200], str(launch["identity"])[:500]
    return LaunchRecord(name, identity, (0, 0, 0), 0, 0, {}, 0.0, False)


def _profile(answer: Any, device: str, calls: int) -> Profile:
    owners: dict[str, Any] = {name: name for name in ("custom", "library", "copy")}
    total = sum(float(row["seconds"]) for row in answer["rows"]) / calls
    rows = tuple(
        ProfileRow(
            name=str(row["name"])[:200],
            owner=owners[row["owner"]],
            calls=max(1, round(int(row["calls"]) / calls)),
            seconds=float(row["seconds"]) / calls,
            share=float(row["seconds"]) / calls / total if total > 0 else 0.0,
        )
        for row in sorted(answer["rows"], key=lambda row: -float(row["seconds"]))[:200]
    )
    elapsed = float(answer["elapsed"]) / calls
    return Profile(kind="measured", device=device, rows=rows, total_seconds=total, elapsed_seconds=elapsed)
