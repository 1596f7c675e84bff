"""Reads a profiler's trace in the judge's process: which kernels ran, for how long, and what launched them.

The trace is written by Kineto (``export_chrome_trace``). It comes from the candidate's process, which could forge it;
that is why coverage on a real GPU is marked as reported by the runner. Only the trace itself is used, not what that
process says about it, and :func:`read_trace` refuses one that contradicts itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from drkernel.gym.languages.base import TracedKernel
from drkernel.verdict import Owner, Profile, ProfileRow

MAX_TRACE = 64 << 20
"""bytes of a trace"""
MAX_EVENTS = 1_000_000
MAX_ROWS = 200
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME = ("cuda_runtime", "cuda_driver")


@dataclass(frozen=True)
class TracedCopy:
    """A copy or a fill by the GPU's copy engine or runtime."""

    name: str
    seconds: float
    host_seconds: float | None = None


@dataclass(frozen=True)
class Trace:
    """The activity of a GPU between the start and the end of a profile."""

    kernels: tuple[TracedKernel, ...]
    """in order of their start"""
    copies: tuple[TracedCopy, ...]
    elapsed: float
    """seconds from the first start to the last end; 0 without device work"""


def read_trace(data: bytes | bytearray) -> Trace:
    """Parse a trace. Raises ``ValueError`` for data that is not a trace, or that is impossible."""
    document = json.loads(bytes(data))
    events = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(events, list) or len(events) > MAX_EVENTS:
        raise ValueError("a trace is an object with a list of traceEvents")
    operators, launching = _operators(events), _launching(events)
    kernels: list[tuple[float, TracedKernel]] = []
    copies: list[TracedCopy] = []
    starts: list[float] = []
    ends: list[float] = []
    for event in events:
        kind = event.get("cat") if isinstance(event, dict) else None
        if kind in _DEVICE and event.get("ph") == "X":
            start, seconds = float(event["ts"]), float(event["dur"]) * 1e-6
            if not (0 <= seconds < 1e6 and abs(start) < 1e18):
                raise ValueError("a kernel of the trace has no finite time")
            starts.append(start)
            ends.append(start + seconds * 1e6)
            name = str(event["name"])[:500]
            correlation = _id(event, "correlation")
            host = launching.get(correlation) if correlation is not None else None
            if kind == "kernel":
                kernels.append((start, TracedKernel(name, seconds, operators.get(_id(event)), host)))
            else:
                copies.append(TracedCopy(name, seconds, host))
    elapsed = (max(ends) - min(starts)) * 1e-6 if ends else 0.0
    ordered = tuple(kernel for _, kernel in sorted(kernels, key=lambda pair: pair[0]))
    return Trace(ordered, tuple(copies), elapsed)


def _operators(events: list[Any]) -> dict[Any, str]:
    """Map external ids to the operator that the host was in."""
    return {
        _id(event): str(event.get("name"))[:200]
        for event in events
        if isinstance(event, dict) and event.get("cat") == "cpu_op" and _id(event) is not None
    }


def _launching(events: list[Any]) -> dict[Any, float]:
    """Map correlation ids to the host seconds of the runtime's call."""
    calls = [event for event in events if isinstance(event, dict) and event.get("cat") in _RUNTIME]
    timed = [event for event in calls if isinstance(event.get("dur"), (int, float)) and 0 <= event["dur"] < 1e12]
    return {_id(event, "correlation"): event["dur"] * 1e-6 for event in timed}


def _id(event: dict[str, Any], key: str = "External id") -> Any:
    arguments = event.get("args")
    found = arguments.get(key) if isinstance(arguments, dict) else None
    return found if isinstance(found, int) and found > 0 else None


def profile_of(trace: Trace, own: Collection[str], device: str, calls: int) -> Profile:
    """Return the device seconds of one call by kernel or operator; ``own`` are the names of the candidate's kernels.

    Rows of the trace are averaged over ``calls``.
    """
    rows: dict[tuple[str, Owner], list[float]] = {}
    for kernel in trace.kernels:
        _add(rows, *_owned(kernel, own), kernel)
    for copy in trace.copies:
        _add(rows, copy.name, "copy", copy)
    total = sum(seconds for _, seconds, _ in rows.values())
    shown = sorted(rows.items(), key=lambda row: -row[1][1])[:MAX_ROWS]
    return Profile(
        kind="measured",
        device=device,
        rows=tuple(
            ProfileRow(
                name=name[:200],
                owner=owner,
                calls=max(1, round(count / calls)),
                seconds=seconds / calls,
                host_seconds=host / calls if host else None,
                share=seconds / total if total > 0 else 0.0,
            )
            for (name, owner), (count, seconds, host) in shown
        ),
        total_seconds=total / calls,
        elapsed_seconds=trace.elapsed / calls,
    )


def _owned(kernel: TracedKernel, own: Collection[str]) -> tuple[str, Owner]:
    if kernel.operator is not None and kernel.of_pytorch:
        return kernel.operator.replace("::", ".", 1), "library"
    return kernel.name, "custom" if kernel.name in own else "library"


def _add(rows: dict[tuple[str, Owner], list[float]], name: str, owner: Owner, work: TracedKernel | TracedCopy) -> None:
    row = rows.setdefault((name, owner), [0, 0.0, 0.0])
    row[0] += 1
    row[1] += work.seconds
    row[2] += work.host_seconds or 0.0
