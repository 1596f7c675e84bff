"""The roofline plot: each kernel's arithmetic rate by its operations a byte, under the roofs of the card."""

from __future__ import annotations

import math

from markupsafe import Markup, escape

from drkernel.gym.device import card_of
from drkernel.gym.feedback import duration
from drkernel.report.svg import Axes, dot, frame, legend, svg
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Profile

OWNERS = {"custom": ("own kernels", "var(--custom)"), "library": ("PyTorch", "var(--library)")}
MIN_BYTES = 1024.0
"""Traffic, in bytes, below which the ratio says nothing."""


def roofline_plot(profile: Profile) -> Markup:
    """A point for each row that computes and moves something; empty where the card is unknown or there are none."""
    try:
        spec = card_of(profile.device)
    except ValueError:
        return Markup()
    points = [
        (row.flops / row.bytes, row.flops / row.seconds, row)
        for row in profile.rows
        if row.owner in OWNERS and row.flops and row.seconds and row.bytes and row.bytes >= MIN_BYTES
    ]
    if not points:
        return Markup()
    roofs = _roofs(spec, {row.detail.unit for *_, row in points if row.detail is not None})
    top = max([*roofs.values(), *(rate for _, rate, _ in points)])
    across = [0.1, 1.5 * top / spec.hbm_bandwidth, *(intensity for intensity, *_ in points)]
    x = _decades(min(across), max(across))
    low = min([x[0] * spec.hbm_bandwidth, *(rate for _, rate, _ in points)])
    axes = Axes(
        x, _decades(low / 1e12, top / 1e12), "operations a byte of device memory", "TFLOP/s", log_y=True, log_x=True
    )
    parts = [frame(axes)]
    for name, peak in roofs.items():
        parts.append(_roof(axes, spec, name, peak))
    for intensity, rate, row in points:
        text = f"{row.name}: {rate / 1e12:.3g} TFLOP/s at {intensity:.3g} operations a byte, {duration(row.seconds)}"
        radius = 3.5 + 6.0 * math.sqrt(min(1.0, row.share))
        parts.append(dot(axes, intensity, rate / 1e12, OWNERS[row.owner][1], radius, text))
    owners = [OWNERS[owner] for owner in OWNERS if any(row.owner == owner for *_, row in points)]
    return svg(parts, "roofline") + legend([name for name, _ in owners], [colour for _, colour in owners])


def _decades(low: float, high: float) -> tuple[float, float]:
    """Powers of ten around a range."""
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))


def _roofs(spec: GPUSpec, units: set[str]) -> dict[str, float]:
    """Peaks of fp32, of 16-bit products and of the units that own kernels use; equal ones under one name."""
    names: dict[float, list[str]] = {}
    for unit in sorted({"fp32", "tensor_fp16", "tensor_bf16", *units}):
        peak = spec.peak.get("fp32" if unit == "fp32_dot" else unit)
        words = unit.removeprefix("tensor_").removesuffix("_dot") + " tensor" * unit.startswith("tensor_")
        if peak is not None and words not in names.get(peak, []):
            names.setdefault(peak, []).append(words)
    return {", ".join(words): peak for peak, words in names.items()}


def _roof(axes: Axes, spec: GPUSpec, name: str, peak: float) -> str:
    ridge = peak / spec.hbm_bandwidth
    start = max(axes.x[0], axes.y[0] * 1e12 / spec.hbm_bandwidth)
    left = (axes.px(start), axes.py(start * spec.hbm_bandwidth / 1e12))
    knee = (axes.px(ridge), axes.py(peak / 1e12))
    right = (axes.px(axes.x[1]), knee[1])
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in (left, knee, right))
    return (
        f'<polyline points="{line}" fill="none" class="roof"/>'
        f'<text x="{right[0] - 4:.1f}" y="{right[1] - 5:.1f}" text-anchor="end" class="tick">'
        f"{escape(name)} {peak / 1e12:.3g} TFLOP/s</text>"
    )
