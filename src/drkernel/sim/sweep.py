"""Runs a script with other launch settings and compares the modelled times.

A configuration fails when the script does, when the sanitizer finds an error, or when its kernels touch less memory
than under the script's own settings: a grid that does not follow its block size leaves work undone.
"""

from __future__ import annotations

import contextlib
import io
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from drkernel.config import Config
from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.rewrite import with_settings
from drkernel.sim.script import LaunchRow, ScriptReport, run_script
from drkernel.verdict import ALIKE_WITHIN

TOUCHED = 0.95
"""a configuration that touches less than this share of the script's own distinct bytes did less work"""


class Configuration(Config):
    """One configuration of a sweep."""

    settings: dict[str, int]
    seconds: float | None = Field(None, description="modelled device time of all own kernels; None where it failed")
    failed: str | None = Field(None, description="why there is no time")


class Sweep(Config):
    """The configurations of a script's launches."""

    script: str
    device: str
    data: bool = Field(description="whether kernels ran on data; else they were counted alone")
    own_seconds: float = Field(ge=0, description="modelled device time of own kernels as the script is")
    axes: dict[str, tuple[int, ...]]
    configurations: tuple[Configuration, ...] = Field(description="all, the last axis running fastest")

    @property
    def best(self) -> Configuration | None:
        """The fastest; None where all failed."""
        timed = [each for each in self.configurations if each.seconds is not None]
        return min(timed, key=lambda each: each.seconds or 0.0, default=None)

    @property
    def alike(self) -> tuple[Configuration, ...]:
        """Those that the model cannot tell from the best, the fastest first."""
        most = (self.best.seconds or 0.0) * ALIKE_WITHIN if self.best is not None else 0.0
        near = [each for each in self.configurations if each is not self.best and (each.seconds or math.inf) <= most]
        return tuple(sorted(near, key=lambda each: each.seconds or 0.0))


class Pair(Config):
    """Launches of two runs side by side; one of them may be missing."""

    a: LaunchRow | None
    b: LaunchRow | None


class Comparison(Config):
    """Two scripts, launch by launch."""

    a: ScriptReport
    b: ScriptReport
    pairs: tuple[Pair, ...]


def sweep(
    path: Path,
    axes: Mapping[str, Sequence[int]],
    args: Sequence[str] = (),
    *,
    gpu: str = "h200",
    data: bool = False,
    budget_bytes: int | None = None,
) -> Sweep:
    """Run ``path`` as it is, then once with each combination of settings. What the script prints is dropped.

    Raises:
        ValueError: an unknown GPU, nothing in the script gives a setting a value, or the script fails as it is.
    """
    source = path.read_text(encoding="utf-8")
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    texts = [with_settings(source, settings) for settings in combinations]

    def run(text: str) -> ScriptReport:
        return quietly(
            path, text, args, gpu=gpu, data_free=None if data else DataFree.of_script(), budget_bytes=budget_bytes
        )

    own = run(source)
    if (why := failure(own)) is not None:
        raise ValueError(f"{path} fails as it is: {why}")
    found = []
    for settings, text in zip(combinations, texts, strict=True):
        report = run(text)
        why = failure(report) or less_work(own, report)
        found.append(Configuration(settings=settings, seconds=None if why else own_time(report), failed=why))
    return Sweep(
        script=str(path), device=own.device, data=data, own_seconds=own_time(own),
        axes={name: tuple(values) for name, values in axes.items()}, configurations=tuple(found),
    )  # fmt: skip


def quietly(path: Path, text: str, args: Sequence[str], **options: Any) -> ScriptReport:
    """Run ``text`` as the script ``path``, dropping what it prints; ``options`` are those of :func:`run_script`.

    Random numbers that the script does not seed are the same in every such run. Raises ``KeyboardInterrupt`` where the
    user stopped it.
    """
    random.seed(0)
    torch.manual_seed(0)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        report = run_script(path, args, source=text, **options)
    if report.exit_code in (130, 143):
        raise KeyboardInterrupt
    return report


def failure(report: ScriptReport) -> str | None:
    """The reason why a run does not count, in one line; None when it counts."""
    if report.error is not None:
        lines = report.error.message.strip().splitlines() or [""]
        return f"{report.error.type}: {lines[-1 if report.error.type == 'CompilationError' else 0]}"[:300]
    errors = [finding for finding in report.findings if finding.severity == "error"]
    if errors:
        return errors[0].message[:300]
    return None if report.launches else "it launches no kernel"


def own_time(report: ScriptReport) -> float:
    """Modelled device seconds of own kernels, without what was only tried in tuning."""
    return sum(report.used_seconds)


def less_work(own: ScriptReport, other: ScriptReport) -> str | None:
    """A sentence if a kernel touches less memory than under the script's own settings."""
    before, after = _touched(own), _touched(other)
    for kernel, nbytes in before.items():
        share = after.get(kernel, 0.0) / nbytes if nbytes else 1.0
        if share < TOUCHED:
            return f"{kernel} touches {share:.0%} of the memory that it should: does its grid follow its blocks?"
    return None


def _touched(report: ScriptReport) -> Mapping[str, float]:
    """Distinct bytes that the launches of each kernel touch, each launch by itself, without those for tuning."""
    touched: Counter[str] = Counter()
    for row, seconds in zip(report.launches, report.used_seconds, strict=True):
        touched[row.kernel] += row.unique_bytes * (seconds / row.seconds if row.seconds else 1.0)  # type: ignore[assignment]
    return touched


def compare(a: ScriptReport, b: ScriptReport) -> Comparison:
    """Set the launches of two runs side by side: each with the next one of the same kernel, else by itself.

    Launches that only tried a configuration are left out.
    """
    return Comparison(a=a, b=b, pairs=tuple(_pairs(_kept(a), _kept(b))))


def _kept(report: ScriptReport) -> list[LaunchRow]:
    """The launches of a run without those for tuning."""
    return [
        row.model_copy(update={"seconds": seconds, "calls": row.calls - row.tuning or row.calls, "tuning": 0})
        for row, seconds in zip(report.launches, report.used_seconds, strict=True)
        if seconds or not row.seconds
    ]


def device_time(report: ScriptReport) -> float:
    """Modelled device seconds of everything but what was only tried in tuning."""
    return report.profile.total_seconds - sum(row.seconds for row in report.launches) + own_time(report)


def _pairs(left: list[LaunchRow], right: list[LaunchRow]) -> Iterator[Pair]:
    """In order; kernels without a namesake are paired only if both sides have nothing else left."""
    names = {row.kernel for row in left} & {row.kernel for row in right}
    for row in left:
        same = [other for other in right if other.kernel == row.kernel]
        if not same and row.kernel not in names:
            same = [other for other in right if other.kernel not in names][:1]
        if same:
            right.remove(same[0])
        yield Pair(a=row, b=same[0] if same else None)
    yield from (Pair(a=None, b=row) for row in right)
