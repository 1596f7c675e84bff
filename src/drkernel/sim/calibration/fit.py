"""Fits a card's figures so that the model reproduces the measured times of the probes.

Each probe tests one figure. The model runs the same programs on a simulated card, and a figure is scaled by the ratio
of the two times until they agree. No figure may exceed the data sheet's peak, and one that does not affect its probe is
left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from drkernel.sim.calibration.probes import PROBES, Probe, seconds_of
from drkernel.sim.context import device_of
from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.spec import GPUSpec

ROUNDS = 6
CLOSE = 0.01
"""a probe agrees when modelled and measured times differ by at most this, relatively"""
FARTHEST = 4.0
"""a figure changes at most by this factor"""


@dataclass(frozen=True)
class Fitted:
    """One figure after the fit."""

    probe: str
    field: str
    before: float
    """the built-in card's value"""
    after: float
    measured_seconds: float
    modelled_before: float
    modelled_after: float
    note: str = ""
    """the reason when it does not agree"""


def modelled(spec: GPUSpec, probes: Sequence[Probe] = PROBES) -> dict[str, float]:
    """Seconds of every probe on a simulated card."""
    with device_of(spec, data_free=DataFree()):
        return {probe.name: seconds_of(probe, spec.l2_bytes, repeats=1) for probe in probes}


def fit(base: GPUSpec, measured: Mapping[str, float]) -> tuple[GPUSpec, list[Fitted]]:
    """Return the card whose modelled times match the measured ones, and the result for each figure.

    ``measured``: seconds by name of the probe; figures of probes that were not measured stay as they are.

    Raises:
        ValueError: an unknown probe, or a time that is not positive.
    """
    known = {probe.name for probe in PROBES}
    for name, seconds in measured.items():
        if name not in known:
            raise ValueError(f"no probe named {name!r}; there are: {', '.join(sorted(known))}")
        if not seconds > 0:
            raise ValueError(f"the time of {name!r} is {seconds}: it must be positive")
    probes = [probe for probe in PROBES if probe.name in measured]
    first = times = modelled(base, probes)
    spec = base
    for _ in range(ROUNDS):
        if all(abs(times[probe.name] / measured[probe.name] - 1) < CLOSE for probe in probes):
            break
        spec = _moved(spec, base, probes, measured, times)
        times = modelled(spec, probes)
    for probe in probes:
        spec = _unless_needless(spec, base, probe, measured[probe.name])
    times = modelled(spec, probes)
    return spec, [
        Fitted(
            probe.name, probe.field, value_of(base, probe.field), value_of(spec, probe.field), measured[probe.name],
            first[probe.name], times[probe.name], _note(probe, base, spec, measured[probe.name], times[probe.name]),
        )
        for probe in probes
    ]  # fmt: skip


def value_of(spec: GPUSpec, field: str) -> float:
    """A figure of a card by its name."""
    part, _, unit = field.partition(".")
    return spec.peak[unit] if part == "peak" else float(getattr(spec, field))


def _moved(
    spec: GPUSpec, base: GPUSpec, probes: list[Probe], measured: Mapping[str, float], times: Mapping[str, float]
) -> GPUSpec:
    """Scale every figure once by the ratio of measured and modelled time."""
    for probe in probes:
        ratio = measured[probe.name] / times[probe.name]
        value = value_of(spec, probe.field) * (1 / ratio if probe.inverse else ratio)
        low, high = _limits(base, probe.field)
        value = min(max(value, low), high)
        spec = _with(spec, probe.field, value)
    return spec


def _with(spec: GPUSpec, field: str, value: float) -> GPUSpec:
    part, _, unit = field.partition(".")
    return spec.model_copy(update={"peak": {**spec.peak, unit: value}} if part == "peak" else {field: value})


def _unless_needless(spec: GPUSpec, base: GPUSpec, probe: Probe, measured: float) -> GPUSpec:
    """The card with the built-in figure where its probe agrees with that too: other figures decided its time."""
    trial = _with(spec, probe.field, value_of(base, probe.field))
    return trial if abs(modelled(trial, [probe])[probe.name] / measured - 1) < CLOSE else spec


def _limits(base: GPUSpec, field: str) -> tuple[float, float]:
    value = value_of(base, field)
    if field == "hbm_efficiency":
        return value / FARTHEST, 1.0
    if field == "l2_bandwidth":
        return base.hbm_bandwidth, value * FARTHEST
    return value / FARTHEST, value * (1.0 if field.startswith("peak.") else FARTHEST)


def _note(probe: Probe, base: GPUSpec, spec: GPUSpec, measured: float, modelled: float) -> str:
    if abs(modelled / measured - 1) < 2 * CLOSE:
        return ""
    value, (low, high) = value_of(spec, probe.field), _limits(base, probe.field)
    if value >= high:
        return "at the upper limit: the data sheet's peak, or four times the built-in figure"
    if value <= low:
        return "at the lower limit"
    return "this figure does not decide the time alone"


def card_text(base: GPUSpec, spec: GPUSpec, rows: list[Fitted], where: str) -> str:
    """The YAML of the fitted card, for ``--device sim:FILE.yaml``. ``where``: GPU, host and date of the timings."""
    card: dict[str, dict[str, object]] = {"citations": {"measured": f"drkernel doctor --calibrate, {where}"}}
    if spec.full_name != base.full_name:
        card["fields"] = {"full_name": {"value": spec.full_name, "source": "measured"}}
    for row in rows:
        part, _, unit = row.field.partition(".")
        entry = {"value": float(f"{row.after:.4g}"), "source": "measured"}
        card.setdefault("peak" if part == "peak" else "fields", {})[unit or row.field] = entry
    lines = [f"# {spec.full_name}, calibrated on {where}. Everything else is the built-in card's."]
    for row in rows:
        lines.append(
            f"# {row.field}: {row.before:.4g} built in, {row.after:.4g} fitted; {row.probe}: "
            f"{row.measured_seconds * 1e6:.2f} us measured, {row.modelled_before * 1e6:.2f} modelled before, "
            f"{row.modelled_after * 1e6:.2f} after" + (f" ({row.note})" if row.note else "")
        )
    return "\n".join(lines) + "\n" + yaml.safe_dump({"base": base.name, **card}, sort_keys=False)
