"""Finds changes that would make a script's kernels faster: every piece of advice was run on the model.

Warps, stages and block sizes are halved and doubled in the text, one at a time; each change is run, and counts when the
kernels' results are unchanged. For a line whose accesses waste sectors, the model gives the time without the waste.
Only gains above the model's own error become advice; the other trials are reported too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from drkernel.sim.context import SimDevice
from drkernel.sim.cost.confidence import kernel_error
from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.rewrite import TRITON_DEFAULTS, Knob, knobs, with_settings
from drkernel.sim.script import ScriptReport
from drkernel.sim.sweep import failure, less_work, own_time, quietly
from drkernel.sim.wire.commands import Ref
from drkernel.verdict import Advice, Advised, Tried

SMALLEST_BLOCK = 16
"""constexprs of at least this that are powers of two are assumed to be block sizes"""
MAX_WARPS, MAX_STAGES = 32, 8
MAX_KEPT = 64 << 20
"""bytes of a kernel's results that are compared"""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 2e-2}
"""tolerance relative to the largest magnitude; other block sizes add in another order"""

Results = dict[str, list[torch.Tensor]]
"""outputs of the last launch of each kernel"""


def advise(
    path: Path,
    args: Sequence[str] = (),
    *,
    gpu: str = "h200",
    data_free: DataFree | None = None,
    budget_bytes: int | None = None,
) -> Advised:
    """Try other launch settings of the script, and model its accesses without waste.

    With ``data_free`` results cannot be compared; a change then counts if its kernels touch as much memory.

    Raises:
        ValueError: an unknown GPU, or the script fails as it is.
    """
    source = path.read_text(encoding="utf-8")

    def run(text: str, results: Results) -> ScriptReport:
        watch = None if data_free is not None else _watch(results)
        options: dict[str, Any] = {"gpu": gpu, "data_free": data_free, "budget_bytes": budget_bytes, "watch": watch}
        return quietly(path, text, args, **options)

    wanted: Results = {}
    own = run(source, wanted)
    if (why := failure(own)) is not None:
        raise ValueError(f"{path} fails as it is: {why}")
    seconds, error = own_time(own), kernel_error((row.seconds, row.bound) for row in own.kernels)
    advice, tried = [], []
    for change, settings, line in changes_of(source):
        results = Results()
        report = run(with_settings(source, settings), results)
        why = failure(report) or less_work(own, report) or unlike(wanted, results)
        after = None if why else own_time(report)
        if after and worth(seconds, after, error):
            compared = data_free is None and all(map(results.get, wanted))
            advice.append(Advice(change=change, line=line, before=seconds, after=after, compared=compared))
        else:
            tried.append(Tried(change=change, after=after, failed=why))
    advice += list(_wasted(own))
    advice.sort(key=lambda each: each.after / each.before if each.before else 1.0)
    return Advised(seconds=seconds, error=error, advice=tuple(advice), tried=tuple(tried))


def worth(before: float, after: float, error: float) -> bool:
    """Whether a gain is above the error of modelled times."""
    return after > 0 and math.log(before / after) > error


def changes_of(source: str) -> list[tuple[str, dict[str, int], int]]:
    """Changes that are worth trying: in words, as settings, the line. Raises ``ValueError`` for text that is not
    Python."""
    return [(f"{knob.name} {knob.value} -> {value}", {knob.name: value}, knob.line) for knob, value in _changes(source)]


def _changes(source: str) -> Iterator[tuple[Knob, int]]:
    for knob in knobs(source):
        half, double = knob.value // 2, 2 * knob.value
        if knob.name == "num_stages":
            half, double = knob.value - 1, knob.value + 1
        elif knob.value & (knob.value - 1) or (knob.name not in TRITON_DEFAULTS and knob.value < SMALLEST_BLOCK):
            continue
        most = {"num_warps": MAX_WARPS, "num_stages": MAX_STAGES}.get(knob.name, 1 << 20)
        yield from ((knob, value) for value in (half, double) if 1 <= value <= most)


def _wasted(report: ScriptReport) -> Iterator[Advice]:
    """Lines whose accesses request sectors that they do not use."""
    for row in report.kernels:
        for line in row.detail.lines if row.detail is not None else ():
            after, needed = line.coalesced_seconds, line.sectors_needed
            if after is None or needed is None or row.detail is None:
                continue
            if worth(row.detail.seconds, after, kernel_error([(row.seconds, row.bound)])):
                change = (
                    f"{row.kernel}, {line.text}: {line.sectors_per_request:.3g} sectors a request where {needed:.2g} "
                    "would hold its elements side by side"
                )
                yield Advice(change=change, line=line.line, before=row.detail.seconds, after=after, compared=False)


# ---- results


def _watch(results: Results) -> Callable[[SimDevice], None]:
    """Keep the outputs of the last launch of each kernel."""

    def watch(dev: SimDevice) -> None:
        engine, launch = dev.engine, dev.engine.launch

        def keeping(command: Any) -> None:
            launch(command)
            written = engine.counters.launches[-1].written if engine.counters.launches else ()
            held = [engine.heap.held(value.handle) for value in command.args if isinstance(value, Ref)]
            mine = [one for one in held if one.base in written]
            if sum(one.nbytes for one in mine) <= MAX_KEPT:
                results[command.name] = [one.tensor.clone() for one in mine]

        setattr(engine, "launch", keeping)  # noqa: B010

    return watch


def unlike(wanted: Results, found: Results) -> str | None:
    """A sentence if a kernel's output differs from the same kernel's before the change."""
    for kernel, tensors in wanted.items():
        others = found.get(kernel)
        if others is None or [t.shape for t in tensors] != [t.shape for t in others]:
            return f"{kernel} writes other tensors"
        if not all(map(_close, tensors, others)):
            return f"the results of {kernel} change"
    return None


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    largest = a.nan_to_num(0.0, 0.0, 0.0).abs().max().item() if a.numel() else 0.0
    within = TOLERANCE.get(a.dtype, 2e-2) * max(largest, 1e-30)
    return torch.allclose(a.double(), b.double(), rtol=0.0, atol=within, equal_nan=True)
