"""Traces in the JSON format that Chrome's tracing page and Perfetto open: device work as bars on a time axis.

A script's trace is the modelled clock. A verdict keeps no order, only the time of each kernel in one call, so that its
bars are laid end to end, the costliest first, and the track says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drkernel.sim.script import ScriptReport
from drkernel.verdict import Profile, Verdict

TRACKS = {"custom": "own kernels", "library": "PyTorch", "copy": "copies"}


def trace_of_run(report: ScriptReport) -> dict[str, Any]:
    """Return the trace of a script that was run with ``trace=True``: a track for own kernels, PyTorch and copies."""
    owners = list(TRACKS)
    events = [_name("process_name", 1, 0, f"{report.gpu}, {report.device} (modelled)")]
    events += [_name("thread_name", 1, index, TRACKS[owner]) for index, owner in enumerate(owners, 1)]
    events += [
        _bar(span.name, span.start, span.seconds, 1, owners.index(span.owner) + 1, {"bound": span.bound})
        for span in report.spans
    ]
    return _trace(events, "modelled", report.device)


def trace_of_verdict(verdict: Verdict) -> dict[str, Any]:
    """Return the trace of one call of candidate and reference: a process each, with one track."""
    events: list[dict[str, Any]] = []
    kind = "modelled"
    for number, (who, profile) in enumerate(
        (("candidate", verdict.profile), ("reference", verdict.reference_profile)), 1
    ):
        if profile is None:
            continue
        kind = profile.kind
        events.append(_name("process_name", number, 0, f"{who}, {profile.device} ({profile.kind})"))
        events.append(_name("thread_name", number, 1, "one call, by cost (the order of launches is not kept)"))
        events += _laid_out(profile, number)
    return _trace(events, kind, verdict.device)


def _laid_out(profile: Profile, process: int) -> Iterable[dict[str, Any]]:
    start = 0.0
    for row in profile.rows:
        facts = {
            "calls": row.calls,
            "owner": row.owner,
            "share": row.share,
            "bound": row.bound,
            "roofline": row.roofline,
        }
        yield _bar(row.name, start, row.seconds, process, 1, facts)
        start += row.seconds


def write_trace(path: Path, trace: dict[str, Any]) -> None:
    """Write a trace as JSON. Raises ``OSError``."""
    path.write_text(json.dumps(trace), encoding="utf-8")


def _trace(events: list[dict[str, Any]], kind: str, device: str) -> dict[str, Any]:
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"times": kind, "device": device}}


def _name(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _bar(name: str, start: float, seconds: float, process: int, thread: int, facts: dict[str, Any]) -> dict[str, Any]:
    """Return a bar; the format counts in microseconds."""
    place = {"ts": 1e6 * start, "dur": 1e6 * seconds, "pid": process, "tid": thread}
    return {"ph": "X", "name": name, "cat": "device", **place, "args": facts}
