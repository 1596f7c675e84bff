"""Extrapolates from what groups of programs touched to what the whole grid touches.

The more programs have run, the fewer of the sectors that the next one touches are new. The growth of that count from
group to group determines the total number of sectors, as in estimating the number of species from samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

_RATES = 48
"""how many degrees of sharing are tried"""
_BETTER = 0.5
"""sectors of two kinds are believed in where they leave less than this share of what one kind leaves unexplained"""
_SURELY = 0.02
"""the same, where one kind is not even believed possible"""


@dataclass(frozen=True)
class Extrapolated:
    """A number that was not counted, and the range that it is in."""

    value: float
    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Extrapolated:
        """A number that was counted."""
        return Extrapolated(value, value, value)

    def at_least(self, low: float) -> Extrapolated:
        """The same, where it is known to be no less than ``low``."""
        return Extrapolated(max(self.value, low), max(self.low, low), max(self.high, low))


def total_of(groups: Sequence[float], sizes: Sequence[int], left: int) -> Extrapolated:
    """Estimate the sum over ``left`` programs from the sums over groups of ``sizes`` of them; two standard errors
    wide."""
    count = sum(sizes)
    if count == 0 or left <= 0:
        return Extrapolated.exact(0.0)
    mean = sum(groups) / count
    means = [amount / size for amount, size in zip(groups, sizes, strict=True) if size]
    spread = 0.0
    if len(means) > 1:
        variance = sum(size * (m - mean) ** 2 for m, size in zip(means, sizes, strict=True)) / count
        spread = 2.0 * math.sqrt(variance / (len(means) - 1) * max(0.0, 1.0 - count / left))
    return Extrapolated(mean * left, max(0.0, mean - spread) * left, (mean + spread) * left)


def distinct_of(last: Sequence[int], sizes: Sequence[int], programs: int, most: float) -> Extrapolated:
    """Distinct sectors that ``programs`` touch, from those that groups of ``sizes`` programs touched.

    ``last[g]`` sectors were touched by group ``g`` and by no later one, so that the sums from the end say how many any
    number of groups touches together. ``most`` bounds the answer.

    The model: some sectors are touched by every group, the others by ``k`` of all programs each. The range: below, all
    sectors are alike (unless that is out of the question); above, as many of them go on being new as were in the later
    half of the groups.
    """
    seen, programs_seen = [0.0], [0.0]
    for count, size in zip(reversed(last), reversed(sizes), strict=True):
        if size:
            seen.append(seen[-1] + count)
            programs_seen.append(programs_seen[-1] + size)
    touched, ran = seen[-1], programs_seen[-1]
    if touched == 0 or ran >= programs:
        return Extrapolated.exact(touched)
    most = max(most, touched)
    curves, counts = _curves(tuple(programs_seen[1:]), programs), np.array(seen[1:])
    mixed, error = _fit(curves, counts, shared=True)
    alike, error_alike = _fit(curves, counts, shared=False)
    if error > _BETTER * error_alike:
        mixed = alike
    elif error < _SURELY * error_alike:
        alike = mixed
    half = len(seen) // 2
    rate = (seen[-1] - seen[half]) / (programs_seen[-1] - programs_seen[half])
    value = min(max(mixed, touched), most)
    high = min(most, max(value, touched + rate * (programs - ran)))
    return Extrapolated(value, max(touched, min(alike, value)), high)


def least_apart(asked: float, touched: float, ran: int, programs: int, total: float) -> float:
    """Least number of distinct sectors among ``total`` that ``programs`` ask for, from ``ran`` of them.

    Those asked for ``asked`` sectors, ``touched`` of them distinct. A pair of programs that asks for the same sector is
    in the sample with a chance of (ran / programs)², so what the sample has twice says how much all programs can have
    twice: exactly where each sector is asked for once or twice, and more than there is where it is asked for more
    often. Three programs' worth, and two standard errors, are added: none in common in the sample may be luck.
    """
    if ran == 0 or asked == 0.0:
        return 0.0
    each, twice = asked / ran, max(0.0, asked - touched)
    at_most = twice + 2.0 * math.sqrt(twice * each) + 3.0 * each
    return max(0.0, total - at_most * (programs / ran) ** 2)


@lru_cache(maxsize=256)
def _curves(ran: tuple[float, ...], programs: int) -> np.ndarray:
    """Share of its sectors that ``ran`` programs have touched, by degree of sharing: (_RATES + 1) × len(ran)."""
    sharing = float(programs) ** (np.arange(_RATES + 1) / _RATES)
    shares = np.minimum(np.array(ran) / programs, 1.0 - 1e-12)
    return -np.expm1(sharing[:, None] * np.log1p(-shares))


def _fit(curves: np.ndarray, seen: np.ndarray, *, shared: bool) -> tuple[float, float]:
    """The number of sectors for the degree of sharing under which the counts are best explained, and what is not."""
    everywhere, elsewhere = _solve(curves, seen, shared=shared)
    errors = (((everywhere[:, None] + elsewhere[:, None] * curves - seen) ** 2) / _variances(seen)).sum(axis=1)
    best, answer = math.inf, float(seen[-1])
    for error, found in zip(errors.tolist(), (everywhere + elsewhere).tolist(), strict=True):
        if error < best * (1.0 - 1e-9):
            best, answer = error, found
    return answer, best


def _solve(curves: np.ndarray, seen: np.ndarray, *, shared: bool) -> tuple[np.ndarray, np.ndarray]:
    """Least squares of ``seen = a + b · curve`` with a, b >= 0 for each curve, each count with the variance of its
    size."""
    weights = 1.0 / _variances(seen)
    cc, cu = (weights * curves**2).sum(axis=1), (weights * seen * curves).sum(axis=1)
    alone = np.divide(cu, cc, out=np.zeros_like(cu), where=cc > 0.0)
    if not shared or len(seen) < 3:
        return np.zeros_like(alone), alone
    ww, cw, uw = float(weights.sum()), (weights * curves).sum(axis=1), float((weights * seen).sum())
    determinant = ww * cc - cw * cw
    solvable = determinant > 1e-12 * ww * cc
    divisor = np.where(solvable, determinant, 1.0)
    a, b = (cc * uw - cw * cu) / divisor, (ww * cu - cw * uw) / divisor
    mixed = solvable & (a >= 0.0)
    flat = mixed & (b < 0.0)
    return np.where(flat, uw / ww, np.where(mixed, a, 0.0)), np.where(flat, 0.0, np.where(mixed, b, alone))


def _variances(seen: np.ndarray) -> np.ndarray:
    """Of counts: their sizes, and of none as of one."""
    return np.maximum(seen, 1.0)
