"""Reads what native code has recorded in its tables during a launch: findings of the sanitizers, and printed lines."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ttir_executor.allocations import Allocation, MemoryMap
from ttir_executor.lower.function import Site
from ttir_executor.lower.runtime import Ctx, Kind
from ttir_executor.order import Ordered
from ttir_executor.results import SimFinding

MAX_PRINTS = 4096
"""most printed values of one thread that are kept"""


@dataclass
class RecordingThread:
    """The context of one thread and the tables it points to."""

    ctx: np.ndarray
    blocks: np.ndarray
    findings: np.ndarray
    prints: np.ndarray
    arena: np.ndarray
    zero: np.ndarray
    sectors: np.ndarray
    syncs: np.ndarray
    conflicts: np.ndarray
    recent: np.ndarray
    sites: np.ndarray
    weights: np.ndarray
    sorted: np.ndarray
    classes: np.ndarray
    """``[CLASSES, 1 + counters]``"""


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch, as far as reading its tables needs it."""

    name: str
    grid: tuple[int, int, int]
    sites: tuple[Site, ...]
    memory: MemoryMap
    most_findings: int

    def _program(self, linear: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return linear % x, linear // x % y, linear // (x * y)

    def _rows(self, worker: RecordingThread) -> tuple[int, list[list[int]]]:
        """How many findings a worker had, and those that were kept: its own and the conflicts that nothing orders."""
        total, most = int(worker.ctx[Ctx.N_FINDINGS]), self.most_findings
        rows: list[list[int]] = worker.findings[: min(total, most)].tolist()
        noted = worker.conflicts[: min(int(worker.ctx[Ctx.N_CONFLICTS]), len(worker.conflicts))].tolist()
        if noted:
            ordered = Ordered(worker.syncs[: int(worker.ctx[Ctx.N_SYNCS])])
            for *row, earlier, segment, first in noted:
                if len(rows) >= most:
                    break
                if not ordered.before(earlier, segment, first):
                    rows.append(row)
                    total += 1
        return total, rows

    def findings(self, workers: Sequence[RecordingThread]) -> tuple[SimFinding, ...]:
        """The findings of all workers, one for each kind and place."""
        found = [self._rows(worker) for worker in workers]
        total = sum(count for count, _ in found)
        rows = [row for _, some in found for row in some]
        if len(found) > 1:
            rows.sort(key=lambda row: row[2])  # by program, as one thread would have met them
        groups: OrderedDict[tuple[int, int], list[list[int]]] = OrderedDict()
        for row in rows:
            groups.setdefault((row[0], row[1]), []).append(row)
        findings = []
        for (kind, site), members in groups.items():
            # beyond the kept ones nobody knows where they fell: the total goes to a single group
            count = total if len(groups) == 1 else len(members)
            findings.append(self._finding(Kind(kind), site, members[0], count))
        return tuple(findings)

    def _finding(self, kind: Kind, site: int, row: list[int], count: int) -> SimFinding:
        place = self.sites[site]
        file, _, line = place.loc.rpartition(":")
        _, _, program, address, base, size = row
        coordinates = self._program(program)
        allocation: Allocation | None = self.memory.find(base)
        offset = address - base if allocation is not None else None
        name, severity, text = _WORDS[kind]
        if kind is Kind.OUT_OF_BOUNDS and self.memory.was_freed(address) and (allocation is None or not place.argument):
            name, text, allocation, offset = "use_after_free", "use after free", None, None
        if kind is Kind.ASSERT:
            detail = f"{text}: {place.message}"
        elif kind in (Kind.DIVISION, Kind.HINT):
            detail = text
        else:
            what = f"{size}-byte {'store' if place.op == 'tt.store' else 'access' if 'atomic' in place.op else 'load'}"
            target = f" of argument {place.argument!r}" if place.argument else ""
            if offset is not None and allocation is not None:
                where = f" at byte {offset}{target} ({allocation.nbytes} bytes long)"
            else:
                where = f" at address {address:#x}{target}"
            detail = f"{text}: {what}{where}"
        source = f", {file.rpartition('/')[2]}:{line}" if line else ""
        message = f"{detail}; kernel {self.name}{source}, program {coordinates}, {count} time{'s' * (count != 1)}"
        return SimFinding(
            name, message, self.name, file or None, int(line) if line.isdigit() else None, coordinates,
            place.argument, offset, count, severity,
        )  # fmt: skip

    def prints(self, worker: RecordingThread) -> tuple[str, ...]:
        """Lines as Triton prints them on a GPU."""
        lines = []
        total = int(worker.ctx[Ctx.N_PRINTS])
        for site, program, flat, bits in worker.prints[: min(total, MAX_PRINTS)].tolist():
            place = self.sites[site]
            pid = ", ".join(map(str, self._program(program)))
            lines.append(f"pid ({pid}){_index(flat, place.shape)}{place.message}{_number(place, bits)}")
        if total > MAX_PRINTS:
            lines.append(f"... {total - MAX_PRINTS} more values printed")
        return tuple(lines)


def _index(flat: int, shape: tuple[int, ...] | None) -> str:
    """The index of a printed element, each number as wide as its axis's last; nothing for a text alone."""
    if shape is None:
        return ""
    index = np.unravel_index(flat, shape) if shape else ()
    return f" idx ({', '.join(f'{int(k):{len(str(size - 1))}}' for k, size in zip(index, shape, strict=True))})"


def _number(place: Site, bits: int) -> str:
    """A printed number as C's printf gives it on a card, from the 64 bits that a kernel has recorded."""
    if place.shape is None:
        return ""
    unsigned = bits % (1 << 64)
    match place.printed:
        case "float":
            return f"{struct.unpack('<d', struct.pack('<q', bits))[0]:f}"
        case "hex":
            return f"0x{unsigned:0{max(1, place.bits // 4)}x}"
        case "pointer":
            return f"{unsigned:#x}"
        case "unsigned":
            return str(unsigned)
        case "signed":
            return str(bits)


_WORDS: dict[Kind, tuple[str, Literal["error", "warning"], str]] = {
    Kind.OUT_OF_BOUNDS: ("out_of_bounds", "error", "out of bounds"),
    Kind.MISALIGNED: ("misaligned", "error", "misaligned address"),
    Kind.UNINITIALIZED: ("uninitialized", "error", "read of memory that nothing wrote"),
    Kind.RACE_WRITE: ("race", "error", "two programs write the same bytes with different values"),
    Kind.RACE_READ: ("race", "error", "one program reads what another writes in the same launch"),
    Kind.RACE_SAME_VALUE: ("race", "warning", "two programs write the same bytes with the same value"),
    Kind.RACE_ATOMIC: ("race", "error", "one program updates atomically what another accesses without atomics"),
    Kind.READ_ONLY: ("read_only", "error", "store to read-only memory"),
    Kind.ASSERT: ("assert", "error", "device assertion failed"),
    Kind.RACE_LANES: ("race", "error", "two elements of one store go to the same bytes with different values"),
    Kind.DIVISION: ("division_by_zero", "warning", "integer division by zero"),
    Kind.HINT: ("false_hint", "warning", "tl.multiple_of and tl.max_contiguous do not hold for an access"),
}
