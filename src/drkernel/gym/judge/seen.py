"""The facts of one call, as the judge's own device counted them: launches, reads, writes and work.

Everything here comes from the device's journal (kernels' texts, counts, operators by metadata). Names of kernels and of
constants come from the runner and are used in messages only.

Two launches of one kernel may do the same amount of work per program and still different work: a program may visit more
rows and run fewer rounds for each. Two counts tell them apart: how often a basic block runs for each run of its
enclosing block, and how many lanes of its loads and stores are masked off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from torch.utils._pytree import tree_leaves

from drkernel.gym.session.protocol import Choice
from drkernel.sim.cost.operators import by_name, depends_on_axes
from drkernel.sim.gpu.accounts import LaunchRecord
from drkernel.sim.gpu.device_journal import TOO_LONG, Entry, LaunchEntry, Operator, entries_of
from drkernel.sim.gpu.pricing import LOADED, PRODUCTS, STORED, WRITTEN, BlockWork, blocks_in, essence
from drkernel.sim.process.control_socket import CallRecord

SECTOR = 32
SIZES_FROM = 16
"""smaller whole numbers among an operator's arguments say which axis, or how; larger ones may be sizes"""
IDLE = 0.02
"""a program that loads at most this share of what the busiest one does, and writes nothing, has nothing to do"""
UPDATES = "atomic updates"
WHOLE = "int"
"""the unit of integer work: mostly addresses, and the only unit where data are integers"""
BETWEEN = "what the call itself has made"


@dataclass(frozen=True)
class Signature:
    """The identity of a launch: equal for two that run the same code the same way."""

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
    """the configuration of the first of them, as the runner names it"""
    grid: tuple[int, int, int]
    shares: dict[str, float]
    """how often it read each argument, weight or intermediate result, each byte counted once per launch: 1 is once over
    """
    written: dict[str, float]
    """the same of what it wrote"""
    read: dict[str, float]
    """bytes of each that it read, each counted once per launch"""
    wrote: dict[str, float]
    """the same of what it wrote"""
    between: float
    """bytes that it read and wrote of what the call itself has made, other than by products"""
    sheets: bool
    """whether it read products' results alone"""
    blocks: tuple[BlockWork, ...]
    """the basic blocks of the kernel's text"""
    entered: dict[int, float]
    """executions of each block, over all programs"""
    alike: tuple[tuple[float, tuple[tuple[int, float], ...]], ...]
    """programs of like work, as in ``LaunchStats.classes``, of all launches"""

    @cached_property
    def busy(self) -> tuple[float, Counter[int]]:
        """Programs that write, or load more than a trifle of what a program loads, and their executions of each block:
        the pieces of other ones lie beyond the end of what a length asks for."""
        every = [(count, dict(entered)) for count, entered in self.alike]
        most = max((self.asked(LOADED, entered) / count for count, entered in every), default=0.0)
        programs, runs = 0.0, Counter[int]()
        for count, entered in every:
            if self.asked(WRITTEN, entered) or self.asked(LOADED, entered) > IDLE * most * count:
                programs += count
                runs.update(entered)
        return programs, runs

    @property
    def filled(self) -> float:
        """Bytes touched by stores and atomics, each once, as a share of those of stores' lanes, beside which all
        programs may update one counter; for atomics alone, which may meet, the lanes that write."""
        if stored := self.asked(STORED):
            return sum(self.wrote.values()) / stored
        return self.work.get(UPDATES, 0.0) / (self.asked(WRITTEN) or 1.0)

    @property
    def meeting(self) -> float:
        """Atomic updates for each byte touched by stores and atomics."""
        return self.work.get(UPDATES, 0.0) / (sum(self.wrote.values()) or 1.0)

    @property
    def inner(self) -> dict[str, float]:
        """Operations within loops and branches, for each byte of lanes written: what a program prepares is left out."""
        done: Counter[str] = Counter()
        for number, block in enumerate(self.blocks):
            for unit, count in block.work.items() if block.parent is not None else ():
                done[unit] += count * self.entered.get(number, 0.0)  # type: ignore[assignment]
        written = self.asked(WRITTEN)
        return {
            unit: n / written for unit, n in done.items() if written and unit not in (LOADED, STORED, WRITTEN, WHOLE)
        }

    def written_with(self, block: int) -> float:
        """The share of lanes written by programs that run a block."""
        every = [dict(entered) for _, entered in self.alike]
        parts = [(self.asked(WRITTEN, entered), entered.get(block)) for entered in every]
        return sum(part for part, ran in parts if ran) / (sum(part for part, _ in parts) or 1.0)

    def asked(self, unit: str, entered: Mapping[int, float] | None = None) -> float:
        """Bytes of all lanes of loads or stores, or operations, over all executions, or those of ``entered``."""
        times = self.entered if entered is None else entered
        return sum(block.work.get(unit, 0.0) * times.get(number, 0.0) for number, block in enumerate(self.blocks))

    def runs_of(self, block: int, parent: int | None) -> float:
        """Executions of a block for each of its enclosing one, or for each program."""
        programs, runs = self.busy
        around = programs if parent is None else runs.get(parent, 0.0)
        return runs.get(block, 0.0) / around if around else 0.0

    def kept(self, of: Launched, unit: str) -> float:
        """The share of another's work that remains when each block runs as often as here for each run of its enclosing
        block. A block that runs more often counts as once, so nothing makes up for a loop that runs less often."""
        left: list[float] = []
        total = remaining = 0.0
        for number, block in enumerate(of.blocks):
            now, before = (one.runs_of(number, block.parent) for one in (self, of))
            share = min(1.0, now / before) if before else 1.0
            left.append(share if block.parent is None else share * left[block.parent])
            amount = block.work.get(unit, 0.0) * of.entered.get(number, 0.0)
            total += amount
            remaining += amount * left[number]
        return remaining / total if total else 1.0

    def most(self, unit: str) -> float:
        """The work of a program that does most, as a mean over those of its class: others may work in vain."""
        whole = self.asked(unit)
        parts = [self.asked(unit, dict(entered)) / count for count, entered in self.alike]
        return self.work.get(unit, 0.0) * max(parts, default=0.0) / whole if whole else self.per_program(unit)

    def per_program(self, unit: str) -> float:
        """The mean work of a program that is busy."""
        return self.work.get(unit, 0.0) / max(1.0, self.busy[0])

    def unmasked(self, unit: str) -> float:
        """Bytes loaded or stored, as a share of those of all lanes: 1 when masks keep nothing away."""
        return self.work.get(unit, 0.0) / (self.asked(unit) or 1.0)

    @property
    def products(self) -> dict[str, float]:
        """Operations for ``tl.dot``, by unit."""
        units = {unit for block in self.blocks for unit in block.work if unit.startswith(PRODUCTS)}
        return {unit: self.asked(unit) for unit in units}

    @property
    def words(self) -> str:
        """A description for people."""
        constants = ", ".join(f"{name}={value}" for name, value in self.choice.constexprs.items())
        how = f"{self.choice.num_warps} warps, {self.choice.num_stages} stages"
        times = f"{self.count} x " if self.count > 1 else ""
        return f"{times}{self.name}[{constants}] on {' x '.join(map(str, self.grid))} ({how})"


@dataclass(frozen=True)
class Seen:
    """The facts of one call."""

    launched: dict[Signature, Launched]
    operators: tuple[str, ...]
    """PyTorch operators with device work, with dtypes, in order; a run of equal ones appears once"""
    calls: tuple[frozenset[Called], ...]
    """how each run of them was called"""
    worked_on: tuple[tuple[str, float, frozenset[str]], ...]
    """of each tensor that they read and wrote: by which, its elements, and the arguments and weights it derives from"""
    parts: dict[str, float]
    """the share that each of PyTorch's operators reads of what the call itself has made"""
    library_flops: float
    """floating-point operations of those operators, as the cost model counts them"""
    exact: bool
    """whether all programs were counted; otherwise shares and sums are estimates"""
    read: dict[str, float]
    """argument or weight -> bytes of it that were read, each counted once per launch or operator"""
    sizes: dict[str, int]
    """argument or weight -> its size in bytes"""
    written: frozenset[str]
    """arguments that were written to"""

    @property
    def signatures(self) -> frozenset[Signature]:
        """The signatures of all launches."""
        return frozenset(self.launched)

    @property
    def words(self) -> list[str]:
        """The launches and operators, in words."""
        return [launched.words for launched in self.launched.values()] + list(self.operators)

    def share(self, name: str) -> float:
        """How often an argument or weight was read."""
        return self.read.get(name, 0.0) / max(1, self.sizes.get(name, 1))

    def elements(self, of: frozenset[str], *, alone: bool = False) -> Counter[str]:
        """Elements that each of PyTorch's operators read and wrote for values that derive from these arguments and
        weights, or, if not from these ``alone``, from none."""
        found: Counter[str] = Counter()
        for label, elements, sources in self.worked_on:
            found[label] += elements if sources & of or not (sources or alone) else 0.0  # type: ignore[assignment]
        return found

    @property
    def traffic(self) -> float:
        """Bytes that own launches read of anything, each counted once per launch."""
        return sum(sum(launched.read.values()) for launched in self.launched.values())

    def total(self, unit: str) -> float:
        """The work of all own launches."""
        return sum(launched.work.get(unit, 0.0) for launched in self.launched.values())


@dataclass(frozen=True)
class Called:
    """What decides an operator's price beside the number of its elements."""

    by_axes: bool
    """whether the work for an element depends on the length of an axis"""
    axes: tuple[tuple[tuple[int, int], ...], ...]
    """of each tensor, (length, stride) of each axis"""
    numbers: tuple[tuple[str, int], ...]
    """its whole-number arguments by name, flags and elements of lists among them"""

    def as_much_as(self, other: Called) -> bool:
        """Whether it goes through memory in the same order, and, if this matters, along the same axes, none of which
        is shorter."""
        if list(map(len, self.axes)) != list(map(len, other.axes)):
            return not self.by_axes
        pairs = list(zip(self.axes, other.axes, strict=True))
        if any(_order(here, there) != _order(there, here) for here, there in pairs):
            return False
        if not self.by_axes:
            return True
        (names, mine), (others, theirs) = (zip(*one.numbers, ("", 0), strict=True) for one in (self, other))
        shorter = any(x[0] < y[0] for here, there in pairs for x, y in zip(here, there, strict=True))
        given = zip(mine, theirs, strict=False)
        return not shorter and names == others and all(x == y or x > y >= SIZES_FROM for x, y in given)


def _order(axes: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, bool]]:
    """The axes from the one whose elements lie furthest apart, and whether they are one element; less those that are of
    one element here or there."""
    places = [n for n, (one, other) in enumerate(zip(axes, others, strict=True)) if min(one[0], other[0]) > 1]
    return [(n, not axes[n][1]) for n in sorted(places, key=lambda n: -axes[n][1])]


@dataclass(frozen=True)
class Place:
    """A tensor that the judge passed to the candidate."""

    storage: int
    """its address on the device"""
    nbytes: int


def seen(record: CallRecord, places: Mapping[str, Place]) -> Seen | None:
    """The facts of a call; None when there were too many to record. ``places`` are arguments and weights by name."""
    if record.journal == TOO_LONG:
        return None
    entries = entries_of(record.journal)
    launches = [entry for entry in entries if isinstance(entry, LaunchEntry)]
    operators = [entry for entry in entries if isinstance(entry, Operator)]
    known = [launch for launch in record.launches if not launch.suppressed]
    names = {label: record.storages.get(place.storage) for label, place in places.items()}
    read, written = _traffic(launches, operators)
    labels = {name: label for label, name in names.items() if name is not None}
    sizes = written | {name: float(places[label].nbytes) for name, label in labels.items()}
    counts = {}
    for label, name in names.items():
        counts[label] = float(read[name]) if name is not None else 0.0
    return Seen(
        _grouped(launches, known, labels, sizes),
        tuple(label for label, _ in groupby(map(_label, operators))),
        tuple(frozenset(map(_called, run)) for _, run in groupby(operators, _label)),
        tuple(_worked_on(entries, labels)),
        _parts(operators, {storage: size for storage, size in written.items() if storage not in labels}),
        sum(row.flops or 0.0 for row in record.profile.rows if row.owner == "library"),
        all(launch.looked_at is None or launch.looked_at >= launch.programs for launch in record.launches),
        counts,
        {label: place.nbytes for label, place in places.items()},
        frozenset(label for label, name in names.items() if name in written),
    )


def _traffic(launches: Sequence[LaunchEntry], operators: Sequence[Operator]) -> tuple[Counter[int], dict[int, float]]:
    """Bytes read of each storage, by its name in the journal, and the most that one command wrote into each."""
    read: Counter[int] = Counter()
    written: dict[int, float] = {}
    for launch in launches:
        for storage, bytes_read, bytes_written in launch.stats.footprint:
            read[storage] += bytes_read  # type: ignore[assignment]
            if bytes_written:
                written[storage] = max(bytes_written, written.get(storage, 0.0))
    for operator in operators:
        for meta in operator.inputs:
            read[meta.storage] += meta.nbytes
        for meta in operator.outputs:
            written[meta.storage] = max(float(meta.nbytes), written.get(meta.storage, 0.0))
    return read, written


def _parts(operators: Sequence[Operator], made: Mapping[int, float]) -> dict[str, float]:
    """By operator, the bytes that it reads of what was ``made``, over the bytes of these."""
    read: Counter[str] = Counter()
    whole: dict[str, dict[int, float]] = {}
    for operator in operators:
        for meta in operator.inputs:
            if made.get(meta.storage):
                read[operator.label] += meta.nbytes
                whole.setdefault(operator.label, {})[meta.storage] = made[meta.storage]
    return {label: nbytes / sum(whole[label].values()) for label, nbytes in read.items()}


def _worked_on(entries: Sequence[Entry], labels: Mapping[int, str]) -> Iterator[tuple[str, float, frozenset[str]]]:
    """Elements and sources of each operator's tensors, through the kernels in between."""
    sources = {storage: frozenset([label]) for storage, label in labels.items()}
    for entry in entries:
        if isinstance(entry, Operator):
            read, written = ({meta.storage for meta in metas} for metas in (entry.inputs, entry.outputs))
        elif isinstance(entry, LaunchEntry):
            read = {storage for storage, nbytes, _ in entry.stats.footprint if nbytes}
            written = {storage for storage, _, nbytes in entry.stats.footprint if nbytes}
        else:
            continue
        if isinstance(entry, Operator):
            inputs = [(float(meta.elements), sources.get(meta.storage, frozenset())) for meta in entry.inputs]
            yield from ((entry.label, *one) for one in inputs)
        found = frozenset[str]().union(*(sources.get(storage, frozenset()) for storage in read))
        for storage in written:
            sources[storage] = sources.get(storage, frozenset()) | found
        if isinstance(entry, Operator):
            yield from ((entry.label, float(meta.elements), found) for meta in entry.outputs)


def _grouped(
    launches: Sequence[LaunchEntry],
    known: Sequence[LaunchRecord],
    labels: Mapping[int, str],
    sizes: Mapping[int, float],
) -> dict[Signature, Launched]:
    groups: dict[Signature, list[tuple[LaunchEntry, LaunchRecord]]] = {}
    for launch, record in zip(launches, known, strict=False):
        key = Signature(essence(launch.ttir), launch.num_warps, launch.num_stages)
        groups.setdefault(key, []).append((launch, record))
    products = {
        storage
        for launch in launches
        if "tt.dot" in launch.ttir
        for storage, _, nbytes in launch.stats.footprint
        if nbytes
    }
    return {key: _together(group, labels, sizes, products) for key, group in groups.items()}


def _together(
    group: list[tuple[LaunchEntry, LaunchRecord]],
    labels: Mapping[int, str],
    sizes: Mapping[int, float],
    products: set[int],
) -> Launched:
    work: Counter[str] = Counter()
    read: Counter[str] = Counter()
    wrote: Counter[str] = Counter()
    of: dict[str, dict[int, float]] = {}
    into: dict[str, dict[int, float]] = {}
    entered: Counter[int] = Counter()
    alike: list[tuple[float, tuple[tuple[int, float], ...]]] = []
    between, sheets = 0.0, True
    for launch, _ in group:
        alike += launch.stats.classes or [(launch.stats.programs, launch.stats.executed)]
        work.update(work_of(launch))
        entered.update(dict(launch.stats.executed))
        for storage, bytes_read, bytes_written in launch.stats.footprint:
            if sizes.get(storage):
                label = labels.get(storage, BETWEEN)
                for count, whole, nbytes in ((read, of, bytes_read), (wrote, into, bytes_written)):
                    if nbytes:
                        count[label] += nbytes  # type: ignore[assignment]
                        whole.setdefault(label, {})[storage] = sizes[storage]
                between += bytes_read + bytes_written if label == BETWEEN and storage not in products else 0.0
                sheets = sheets and (not bytes_read or storage in products)
    first = group[0][1]
    return Launched(
        first.name,
        len(group),
        sum(launch.stats.programs for launch, _ in group),
        dict(work),
        Choice(first.name, first.constexprs, first.num_warps, first.num_stages),
        first.grid,
        {label: nbytes / sum(of[label].values()) for label, nbytes in read.items()},
        {label: nbytes / sum(into[label].values()) for label, nbytes in wrote.items()},
        dict(read),
        dict(wrote),
        between,
        sheets,
        blocks_in(group[0][0].ttir),
        dict(entered),
        tuple(alike),
    )


def work_of(launch: LaunchEntry) -> dict[str, float]:
    """Bytes, operations and atomic updates of one launch, whole-number operations under :data:`WHOLE`."""
    stats = launch.stats
    counted = {unit: float(count) for unit, count in stats.flops.items() if count}
    counted |= {UPDATES: float(stats.atomics)} if stats.atomics else {}
    return {LOADED: SECTOR * stats.load_sectors, STORED: SECTOR * stats.store_sectors, **counted}


def _called(operator: Operator) -> Called:
    given = by_name(operator.name, operator.args if isinstance(operator.args, (list, tuple)) else ())
    numbers = [(name, leaf) for name, value in given.items() for leaf in tree_leaves(value) if isinstance(leaf, int)]
    metas = (*operator.inputs, *operator.outputs)
    axes = tuple(tuple(zip(meta.shape, meta.stride, strict=True)) for meta in metas)
    return Called(depends_on_axes(operator.name, operator.inputs), axes, tuple(numbers))


def _label(operator: Operator) -> str:
    inputs, outputs = (",".join(meta.dtype for meta in metas) for metas in (operator.inputs, operator.outputs))
    return f"{operator.label}({inputs}) -> {outputs}"
