"""Selects programs that represent a grid: the corners, and groups spread evenly over the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

Grid = tuple[int, int, int]

_GOLDEN = {1: 1.6180339887498949, 2: 1.3247179572447460, 3: 1.2207440846057596}
"""roots of x^(d+1) = x + 1: their inverse powers step through d dimensions more evenly than anything else"""


def corners(grid: Grid) -> list[int]:
    """Programs at the corners of the grid, and in the middle of its borders; by linear number, without repeats."""
    places = [sorted({0, size // 2, size - 1}) for size in grid]
    found = set()
    for place in product(*places):
        inside = sum(0 < at < size - 1 for at, size in zip(place, grid, strict=True))
        if inside <= 1:
            found.add(linear(grid, place))
    return sorted(found)


def linear(grid: Grid, place: tuple[int, ...]) -> int:
    """Number of a program: x runs fastest."""
    x, y, z = place
    return x + grid[0] * (y + grid[1] * z)


class EvenSample:
    """An endless supply of programs, each at most once, in groups that each cover the whole grid evenly.

    Programs step through the axes of the grid by irrational strides. Each group continues where the previous one ended.
    It is a fair sample by itself, all groups together are a better one, and the differences between groups bound the
    error.
    """

    def __init__(self, grid: Grid, taken: list[int], seed: int):
        self.grid = grid
        self.left = grid[0] * grid[1] * grid[2] - len(taken)
        self._taken = set(taken)
        self._random = random.Random(seed)
        self._axes = [axis for axis in range(3) if grid[axis] > 1]
        self._places = self._steps()

    def group(self, size: int) -> list[int]:
        """The next group: ``size`` programs, fewer where none are left."""
        chosen: list[int] = []
        size = min(size, self.left)
        while len(chosen) < size:
            program = next(self._places)
            if program not in self._taken:
                self._taken.add(program)
                chosen.append(program)
        self.left -= len(chosen)
        return sorted(chosen)

    def _steps(self) -> Iterator[int]:
        root = _GOLDEN[max(1, len(self._axes))]
        steps = [root ** -(k + 1) for k in range(len(self._axes))]
        at = [self._random.random() for _ in self._axes]
        tries = 0
        while True:
            at = [(position + step) % 1.0 for position, step in zip(at, steps, strict=True)]
            place = [0, 0, 0]
            for axis, position in zip(self._axes, at, strict=True):
                place[axis] = int(position * self.grid[axis])
            yield linear(self.grid, (place[0], place[1], place[2]))
            tries += 1
            if tries % 4096 == 0:  # small grids: the lattice may come back to itself
                at = [self._random.random() for _ in self._axes]
