"""Statistics of measured times: medians, the interval of a speedup, and two limits that a clock must respect.

Samples come in *blocks*: reference and candidate alternate on one GPU, so that drift of clocks and temperature affects
both. The interval of the speedup is a bootstrap over blocks and, within them, over samples (a two-stage bootstrap,
because samples of one block share its conditions and are not independent).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drkernel.verdict import Speedup

RESAMPLES = 1000
CLOCK_SLACK = 1.5
"""Device time may be this many times shorter than host time before the two are said to disagree..."""
HOST_OVERHEAD_S = 20e-6
"""...beyond what a host needs per call for what no event sees. What an empty block costs is subtracted already."""


@dataclass(frozen=True)
class Block:
    """Calls of one module, timed back to back."""

    device_seconds: tuple[float, ...]
    """one per call, by events on the device"""
    wall_seconds: float
    """host time around all calls of the block, on the judge's clock, minus that of a block without calls"""
    repeated: frozenset[int] = frozenset()
    """places of the calls whose inputs an earlier call of the block had: a result might be remembered"""

    @property
    def samples(self) -> tuple[float, ...]:
        """Device seconds of the calls with inputs of their own."""
        return tuple(seconds for call, seconds in enumerate(self.device_seconds) if call not in self.repeated)

    @property
    def share(self) -> float:
        """One call's share of the judge's time."""
        return self.wall_seconds / len(self.device_seconds)


def median_seconds(blocks: Sequence[Block]) -> float:
    """Return the median over all samples, or over the blocks' shares of the judge's time, whichever is more: events may
    be forged for any calls of any blocks.

    Raises ``ValueError`` without samples: a missing time must never count as a fast one.
    """
    samples = [seconds for block in blocks for seconds in block.samples]
    if not samples:
        raise ValueError("no timed calls")
    if not all(np.isfinite(samples)) or min(samples) <= 0:
        raise ValueError("a timed call has no positive, finite duration")
    return max(float(np.median(samples)), float(np.median([block.share for block in blocks])))


def speedup_interval(
    reference: Sequence[Block], candidate: Sequence[Block], *, confidence: float = 0.95, seed: int = 0
) -> Speedup:
    """Return the ratio of medians, reference over candidate, with its bootstrap interval.

    Blocks are paired in time: block k of one side ran next to block k of the other, and pairs are resampled together.
    Raises ``ValueError`` when the two sides do not have equally many blocks of equally many calls, or no calls.
    """
    value = median_seconds(reference) / median_seconds(candidate)
    count, size = len(reference), len(reference[0].samples)
    if [len(block.samples) for block in candidate] != [size] * count:
        raise ValueError("reference and candidate need equally many blocks of equally many calls, to be paired")
    rng = np.random.default_rng(seed)
    chosen = rng.integers(count, size=(RESAMPLES, count, 1))  # the same pairs for both sides
    ratios = _resampled_medians(reference, chosen, rng) / _resampled_medians(candidate, chosen, rng)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return Speedup(
        value=value,
        low=float(min(low, value)),
        high=float(max(high, value)),
        confidence=confidence,
        kind="measured",
    )


def _resampled_medians(blocks: Sequence[Block], chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """:func:`median_seconds` of resamples: the chosen blocks, and within each as many of its samples, drawn with
    replacement."""
    samples, shares = np.asarray([block.samples for block in blocks]), np.asarray([block.share for block in blocks])
    within = rng.integers(samples.shape[1], size=(*chosen.shape[:2], samples.shape[1]))
    medians = np.median(samples[chosen, within].reshape(len(chosen), -1), axis=1)
    whole: np.ndarray = np.maximum(medians, np.median(shares[chosen[:, :, 0]], axis=1))
    return whole


def clocks_disagree(blocks: Sequence[Block]) -> float | None:
    """Return how many times longer the host's clock says than the device's, when launching does not explain the
    difference.

    A candidate whose work escapes the events (another stream, a patched event) still takes host time until the device
    is idle. A busy host makes some blocks long, an escape makes all of them long, so only what three quarters of the
    blocks show counts. None when the clocks agree.
    """
    ratios = []
    for block in blocks:
        device = sum(block.device_seconds)
        wall = block.wall_seconds - len(block.device_seconds) * HOST_OVERHEAD_S
        ratios.append(0.0 if wall <= 0 else wall / device if device > 0 else float("inf"))
    if not ratios:
        return None
    shown = sorted(ratios)[len(ratios) // 4]
    return shown if shown > CLOCK_SLACK else None


def roofline_floor(unique_bytes: float, bandwidth: float) -> float:
    """Return the minimum seconds of a call, by memory traffic alone.

    ``unique_bytes``: inputs read and outputs written, each once, with L2 empty at the start; ``bandwidth``: bytes per
    second of device memory. Arithmetic is not considered, because a clever kernel may need less of it than the
    reference.
    """
    return unique_bytes / bandwidth
