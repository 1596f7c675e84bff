"""How a launch's work is spread over its programs: what the longest of them take, and what one SM has of all work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Programs in classes of like length, the longest first.

    Everything here is the largest over the programs that are at least as long as those of one class, so that a launch
    is never made faster by programs that are added, or by a program that does more.
    """

    classes: tuple[tuple[float, float], ...]
    """(how many programs, seconds that one of them takes alone on its SM)"""

    @classmethod
    def of(cls, classes: Iterable[tuple[float, float]]) -> Spread:
        """Sort classes of (programs, seconds)."""
        return cls(tuple(sorted(classes, key=lambda each: -each[1])))

    @property
    def programs(self) -> float:
        """All programs."""
        return sum(count for count, _ in self.classes)

    @property
    def seconds(self) -> float:
        """Of all programs, one after the other."""
        return sum(count * seconds for count, seconds in self.classes)

    def share(self, programs: Callable[[float], float]) -> float:
        """Share of all work that is done by so many of the longest ``programs`` as a function of their number says."""
        whole = self.seconds
        if not whole:
            return min(1.0, programs(self.programs) / self.programs)
        return min(1.0, self.longest(programs) / whole)

    def longest(self, programs: Callable[[float], float]) -> float:
        """Seconds of so many of the longest ``programs`` as a function of their number says, one after the other."""
        longer, most = 0.0, 0.0
        for count, seconds in self.classes:
            longer += count
            most = max(most, programs(longer) * seconds)
        return most

    def elapsed(self, sms: int, resident: int, start: float) -> float:
        """Seconds on ``sms`` that hold ``resident`` programs each, where each takes ``start`` more to begin and end.

        Programs run in rounds; one that is longer than the rest takes its time, and all of them the sum over all slots.
        """
        longer, most = 0.0, (self.seconds + self.programs * start) / (sms * resident)
        for count, seconds in self.classes:
            longer += count
            rounds = math.ceil(math.ceil(longer / sms - 1e-9) / resident)
            most = max(most, rounds * (seconds + start))
        return most
