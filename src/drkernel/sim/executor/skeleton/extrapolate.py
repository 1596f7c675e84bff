"""Extrapolates from what groups of programs touched to what the whole grid touches.

The more programs have run, the fewer of the sectors that the next one touches are new. The growth of that count from
group to group determines the total number of sectors, as in estimating the number of species from samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_RATES = 48
"""how many degrees of sharing are tried"""
_BETTER = 0.5
"""sectors of two kinds are believed in where they leave less than this share of what one kind leaves unexplained"""
_SURELY = 0.02
"""the same, where one kind is not even believed possible"""


@dataclass(frozen=True)
class Estimate:
    """A number that was not counted, and the range that it is in."""

    value: float
    low: float
    high: float

    @staticmethod
    def exact(value: float) -> Estimate:
        """A number that was counted."""
        return Estimate(value, value, value)

    def at_least(self, low: float) -> Estimate:
        """The same, where it is known to be no less than ``low``."""
        return Estimate(max(self.value, low), max(self.low, low), max(self.high, low))


def total_of(groups: Sequence[float], sizes: Sequence[int], left: int) -> Estimate:
    """Estimate the sum over ``left`` programs from the sums over groups of ``sizes`` of them; two standard errors
    wide."""
    count = sum(sizes)
    if count == 0 or left <= 0:
        return Estimate.exact(0.0)
    mean = sum(groups) / count
    means = [amount / size for amount, size in zip(groups, sizes, strict=True) if size]
    spread = 0.0
    if len(means) > 1:
        variance = sum(size * (m - mean) ** 2 for m, size in zip(means, sizes, strict=True)) / count
        spread = 2.0 * math.sqrt(variance / (len(means) - 1) * max(0.0, 1.0 - count / left))
    return Estimate(mean * left, max(0.0, mean - spread) * left, (mean + spread) * left)


def distinct_of(last: Sequence[int], sizes: Sequence[int], programs: int, most: float) -> Estimate:
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
        return Estimate.exact(touched)
    most = max(most, touched)
    shares = [count / programs for count in programs_seen[1:]]
    mixed, error = _fit(shares, seen[1:], programs, shared=True)
    alike, error_alike = _fit(shares, seen[1:], programs, shared=False)
    if error > _BETTER * error_alike:
        mixed = alike
    elif error < _SURELY * error_alike:
        alike = mixed
    half = len(seen) // 2
    rate = (seen[-1] - seen[half]) / (programs_seen[-1] - programs_seen[half])
    value = min(max(mixed, touched), most)
    high = min(most, max(value, touched + rate * (programs - ran)))
    return Estimate(value, max(touched, min(alike, value)), high)


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


def _fit(shares: Sequence[float], seen: Sequence[float], programs: int, *, shared: bool) -> tuple[float, float]:
    """The number of sectors for the degree of sharing under which the counts are best explained, and what is not."""
    best, answer = math.inf, seen[-1]
    for step in range(_RATES + 1):
        sharing = float(programs) ** (step / _RATES)
        curve = [-math.expm1(sharing * math.log1p(-min(share, 1.0 - 1e-12))) for share in shares]
        everywhere, elsewhere = _solve(curve, seen, shared)
        error = sum((everywhere + elsewhere * c - u) ** 2 / u for c, u in zip(curve, seen, strict=True))
        if error < best * (1.0 - 1e-9):
            best, answer = error, everywhere + elsewhere
    return answer, best


def _solve(curve: Sequence[float], seen: Sequence[float], shared: bool) -> tuple[float, float]:
    """Least squares of ``seen = a + b · curve`` with a, b >= 0, each count with the variance of its size."""
    weights = [1.0 / u for u in seen]
    cc = sum(w * c * c for w, c in zip(weights, curve, strict=True))
    cu = sum(c for c in curve)
    alone = cu / cc if cc else 0.0
    if not shared or len(curve) < 3:
        return 0.0, alone
    ww, cw, uw = sum(weights), sum(w * c for w, c in zip(weights, curve, strict=True)), float(len(seen))
    determinant = ww * cc - cw * cw
    if determinant <= 1e-12 * ww * cc:
        return 0.0, alone
    a, b = (cc * uw - cw * cu) / determinant, (ww * cu - cw * uw) / determinant
    if a < 0.0:
        return 0.0, alone
    return (a, b) if b >= 0.0 else (uw / ww, 0.0)
