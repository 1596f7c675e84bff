"""The facts of one call, as the judge's own device counted them: what was launched, read, written and worked.

Everything here comes from the device's journal (kernels' texts, counts, operators by metadata). Names of kernels and of
constants are the runner's words and serve messages alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from drkernel.gym.session.answers import Choice
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.journal import TOO_LONG, Launch, Operator, entries_of
from drkernel.sim.process.control_socket import CallRecord

SECTOR = 32
_NAME = re.compile(r"%[\w$.#:-]+")
_OPERATOR = re.compile(r"^(?:%[\w$.#:, -]+ = )?\"?([a-z_]+\.[a-z_.]+)\"?")
_LOCATION = re.compile(r" ?loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_WIDTH = re.compile(r"\bi64\b")
_ARITHMETIC = """
    constant addi subi muli divsi divui remsi remui ceildivsi floordivsi extsi extui trunci cmpi index_cast minsi maxsi
    minui maxui andi ori xori shli shrsi shrui select
"""
_WHOLE = frozenset(f"arith.{name}" for name in _ARITHMETIC.split()) | {
    "tt.addptr", "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.make_range", "tt.get_program_id",
    "tt.get_num_programs", "tt.return", "tt.func", "ub.poison",
}  # fmt: skip
"""operators that only find out where to work: they come and go as Triton specialises on a size"""


@lru_cache(maxsize=1024)
def essence(ttir: str) -> str:
    """A kernel's text without what Triton makes of whole numbers: constants, addresses, hints of divisibility.

    What is left is what it does: loads, stores, products, reductions, functions, loops and branches, each with the
    shapes and dtypes of its tiles. Two specialisations of one kernel for different sizes have one essence, unless
    a size decides about more than numbers.
    """
    kept = []
    for line in ttir.splitlines():
        line = line.strip()
        match = _OPERATOR.match(line)
        if line.startswith("#") or (match is not None and match[1] in _WHOLE):
            continue
        kept.append(_WIDTH.sub("i32", _NAME.sub("%", _LOCATION.sub("", line))))
    return "\n".join(kept)


@dataclass(frozen=True)
class Signature:
    """What two launches have in common that run the same code the same way."""

    essence: str
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Launched:
    """All launches of one signature in a call."""

    name: str
    count: int
    programs: int
    work: dict[str, float]
    """bytes loaded and stored, and operations by unit"""
    choice: Choice
    """of the first of them, in the runner's words"""
    grid: tuple[int, int, int]

    def per_program(self, unit: str) -> float:
        """Mean over programs."""
        return self.work.get(unit, 0.0) / max(1, self.programs)

    @property
    def words(self) -> str:
        """For people."""
        constants = ", ".join(f"{name}={value}" for name, value in self.choice.constexprs.items())
        how = f"{self.choice.num_warps} warps, {self.choice.num_stages} stages"
        times = f"{self.count} x " if self.count > 1 else ""
        return f"{times}{self.name}[{constants}] on {' x '.join(map(str, self.grid))} ({how})"


@dataclass(frozen=True)
class Seen:
    """One call."""

    launched: dict[Signature, Launched]
    operators: tuple[str, ...]
    """PyTorch's with device work, with dtypes, in order; runs of equal ones once"""
    elements: float
    """that those operators read and wrote"""
    read: dict[str, float]
    """argument or weight -> bytes of it that were read, each counted once by a launch or operator; at most all"""
    sizes: dict[str, int]
    """and how many bytes it has"""
    written: frozenset[str]
    """arguments that something was written into"""

    @property
    def signatures(self) -> frozenset[Signature]:
        """Of all launches."""
        return frozenset(self.launched)

    @property
    def words(self) -> list[str]:
        """What was launched and run, for people."""
        return [launched.words for launched in self.launched.values()] + list(self.operators)

    def share(self, name: str) -> float:
        """Part of an argument or weight that was read."""
        return self.read.get(name, 0.0) / max(1, self.sizes.get(name, 1))

    def total(self, unit: str) -> float:
        """Work of all own launches."""
        return sum(launched.work.get(unit, 0.0) for launched in self.launched.values())


@dataclass(frozen=True)
class Place:
    """A tensor that the judge handed over."""

    storage: int
    """its address on the device"""
    nbytes: int


def seen(record: CallRecord, places: Mapping[str, Place]) -> Seen | None:
    """The facts of a call; None where there was too much to be told. ``places`` are arguments and weights by name."""
    if record.journal == TOO_LONG:
        return None
    entries = entries_of(record.journal)
    launches = [entry for entry in entries if isinstance(entry, Launch)]
    operators = [entry for entry in entries if isinstance(entry, Operator)]
    known = [launch for launch in record.launches if not launch.suppressed]
    names = {place.storage: record.storages.get(place.storage) for place in places.values()}
    read, written = _traffic(launches, operators)
    counts = {}
    for label, place in places.items():
        name = names[place.storage]
        counts[label] = min(float(place.nbytes), read[name] if name is not None else 0.0)
    return Seen(
        _grouped(launches, known),
        tuple(label for label, _ in groupby(map(_label, operators))),
        float(sum(meta.elements for entry in operators for meta in (*entry.inputs, *entry.outputs))),
        counts,
        {label: place.nbytes for label, place in places.items()},
        frozenset(label for label, place in places.items() if names[place.storage] in written),
    )


def _traffic(launches: Sequence[Launch], operators: Sequence[Operator]) -> tuple[Counter[int], set[int]]:
    """Bytes read of each storage, by its name in the journal, and the storages that were written."""
    read: Counter[int] = Counter()
    written: set[int] = set()
    for launch in launches:
        for storage, bytes_read, bytes_written in launch.stats.footprint:
            read[storage] += bytes_read  # type: ignore[assignment]
            if bytes_written:
                written.add(storage)
    for operator in operators:
        for meta in operator.inputs:
            read[meta.storage] += meta.nbytes
        written |= {meta.storage for meta in operator.outputs}
    return read, written


def _grouped(launches: Sequence[Launch], known: Sequence[LaunchRecord]) -> dict[Signature, Launched]:
    groups: dict[Signature, list[tuple[Launch, LaunchRecord]]] = {}
    for launch, record in zip(launches, known, strict=False):
        key = Signature(essence(launch.ttir), launch.num_warps, launch.num_stages)
        groups.setdefault(key, []).append((launch, record))
    return {key: _together(group) for key, group in groups.items()}


def _together(group: list[tuple[Launch, LaunchRecord]]) -> Launched:
    work: Counter[str] = Counter()
    for launch, _ in group:
        work.update(work_of(launch))
    first = group[0][1]
    return Launched(
        first.name,
        len(group),
        sum(launch.stats.programs for launch, _ in group),
        dict(work),
        Choice(first.constexprs, first.num_warps, first.num_stages),
        first.grid,
    )


def work_of(launch: Launch) -> dict[str, float]:
    """Bytes and operations of one launch; whole-number work (addresses, mostly) is left out."""
    stats = launch.stats
    counted = {unit: float(count) for unit, count in stats.flops.items() if unit != "int" and count}
    return {"bytes loaded": SECTOR * stats.load_sectors, "bytes stored": SECTOR * stats.store_sectors, **counted}


def _label(operator: Operator) -> str:
    inputs, outputs = (",".join(meta.dtype for meta in metas) for metas in (operator.inputs, operator.outputs))
    return f"{operator.label}({inputs}) -> {outputs}"
