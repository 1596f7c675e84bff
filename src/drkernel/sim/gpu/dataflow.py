"""Traces what a call's outputs are made of: which launches and operators contributed to them, by storage.

Every command records which storages it read and wrote. When the call has ended, a backward walk from its outputs shows
which commands *reach* the outputs. A launch is a *copy* when everything that it wrote and that is used equals, element
for element, what it read: in order or with dimensions permuted, up to a cast. Other things it wrote do not matter.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from drkernel.sim.gpu.heap import DeviceHeap, Held
from drkernel.sim.gpu.operator_rules import OperatorRule, names
from ttir_executor.skeleton.measure import StorageUse

FILLS = names(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill_ zero_ arange eye scalar_tensor"
)
"""operators that compute nothing from existing values"""
MOVES = names("clone _to_copy copy_")
"""operators whose result has the same contents as their input"""
REPLACING = names("copy_ fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_")
"""operators that write into an argument without reading it"""
MAX_PERMUTED = 4
"""most dimensions of which all permutations are tried"""
MAX_KEPT = 64 << 20
"""most bytes of PyTorch's results that are kept to compare outputs with"""
NEAR = 1e-4
"""difference, relative to element and spread, below which an element counts as passed on"""
NEARLY_ALL = 0.999
"""share of elements that must be passed on"""
FIRST_SHARE = 64
"""one in so many elements is looked at first: nearly always enough of them differ to say that the rest need not be"""

Origin = Literal["given", "fill", "operator", "upload", "launch"]
Passed = Literal["exact", "near"]


@dataclass(slots=True)
class _Step:
    """One command; storages by number."""

    kind: Literal["launch", "operator", "upload", "read"]
    label: str
    """an operator's name"""
    reads: frozenset[int]
    writes: frozenset[int]
    replaces: frozenset[int] = frozenset()
    """written storages of which no earlier contents remain"""
    copies: dict[int, Origin] = field(default_factory=dict)
    """storages written with copies -> the origin of what they copy"""
    counts: bool = True
    """for an operator: whether it computes something"""
    of_given: bool = False
    """for an operator: whether it reads what was given, or what PyTorch made of it"""


@dataclass
class Slice:
    """The commands that reach the outputs of a call."""

    reaches: list[bool] = field(default_factory=list)
    """for each launch"""
    copied: list[bool] = field(default_factory=list)
    """for each launch: all that it wrote and that is used are copies"""
    copied_library: list[bool] = field(default_factory=list)
    """for each launch: it is such a copy, of something that PyTorch or the host made"""
    operators: dict[str, int] = field(default_factory=dict)
    """operators that compute something and reach the outputs"""
    of_given: bool = False
    """whether one of them reads what was given; else they go on with what own kernels or the host made"""
    uploads: bool = False
    """whether something that the host sent reaches the outputs"""
    passed_on: Passed | None = None
    """set when every output equals what an own kernel had read from PyTorch: bit for bit, or nearly"""


class DataFlow:
    """The commands of one call."""

    def __init__(self, heap: DeviceHeap, *, values: bool = True):
        """Create a trace. Without ``values`` nothing is compared, so copies are not detected."""
        self._heap, self._values = heap, values
        self._origin: dict[int, Origin] = {}
        self.reset()

    def reset(self) -> None:
        """Start a new call; the current contents of storages count as given."""
        self.written: list[int] = []
        """where the storages begin into which the last launch wrote"""
        self._steps: list[_Step] = []
        self._origin.clear()
        self._bytes: Counter[int] = Counter()  # certainly written, by storage; repeated writes count repeatedly
        self._before = self._heap.newest
        self._mixed: set[int] = set()
        """storages made since that hold something that was there before, or that PyTorch made of it"""
        self._kept: list[torch.Tensor] = []
        self._kept_bytes = 0

    def operator(self, rule: OperatorRule, inputs: list[Held], outputs: list[Held], written: list[Held]) -> None:
        """Record an operator; ``written`` are those of its inputs that it writes to."""
        into = {id(held) for held in written}
        plain = [held for held in inputs if id(held) not in into]
        only_written = rule.base in REPLACING or rule.out_variant
        reads = self._numbers(plain if only_written else inputs)
        writes = self._numbers([*outputs, *written])
        whole = [held for held in written if only_written and _covers(held)]
        origin: Origin = "fill" if rule.base in FILLS else "operator"
        if rule.base in MOVES:
            origin = self._worst(self._numbers(plain[:1]))
        of_given = any(number <= self._before or number in self._mixed for number in reads)
        self._mixed |= writes if of_given else frozenset()
        for number in writes:
            self._origin[number] = origin
        given = {held.base for held in inputs}
        for held in written:
            self._bytes[self._heap.storage(held.base)] += held.tensor.numel() * held.spec.dtype.itemsize
        for held in outputs:
            self._bytes[self._heap.storage(held.base)] += held.nbytes * (held.base not in given)
        counts = origin == "operator" and rule.base not in MOVES
        over = self._numbers(whole)
        self._steps.append(_Step("operator", rule.label, reads, writes, over, counts=counts, of_given=of_given))

    def upload(self, held: Held) -> None:
        """Record that the host sent a tensor."""
        numbers = self._numbers([held])
        self._origin.update(dict.fromkeys(numbers, "upload"))
        self._steps.append(_Step("upload", "", frozenset(), numbers))

    def read(self, held: Held) -> None:
        """Record that the host read a tensor: whatever it does next may depend on it."""
        self._steps.append(_Step("read", "", self._numbers([held]), frozenset()))

    def launch(
        self, held: Sequence[Held], footprint: Sequence[tuple[int, float, float]], counted: Sequence[StorageUse] = ()
    ) -> None:
        """Record a kernel. ``held`` are its tensors, ``footprint`` is (base, bytes read, bytes written) by storage;
        ``counted`` says the same of one that was not executed, as certainly as it is known."""
        self.written = [base for base, _, written in footprint if written]
        least = [(use.base, use.written.low) for use in counted] or [(base, written) for base, _, written in footprint]
        for base, nbytes in least:
            self._bytes[self._heap.storage(base)] += nbytes  # type: ignore[assignment]
        reads = frozenset(self._heap.storage(base) for base, read, _ in footprint if read)
        writes = frozenset(map(self._heap.storage, self.written))
        sources = [
            one for one in held if self._values and self._heap.storage(one.base) not in writes and not _expanded(one)
        ]
        for one in sources:
            self._keep(one)
        copies: dict[int, Origin] = {}
        for number in writes:
            targets = [one for one in held if self._heap.storage(one.base) == number]
            found = [
                None if _expanded(to) else next((one for one in sources if _same_elements(to.tensor, one.tensor)), None)
                for to in targets
            ]
            if targets and all(source is not None for source in found):
                copies[number] = self._worst(self._numbers([source for source in found if source is not None]))
        self._origin.update(dict.fromkeys(writes, "launch"))
        for number, origin in copies.items():
            self._origin[number] = origin
        self._steps.append(_Step("launch", "", reads, writes, copies=copies))

    def skipped(self) -> None:
        """Record a launch that was not executed."""
        self.written = []
        self._steps.append(_Step("launch", "", frozenset(), frozenset()))

    def was_written(self, held: Held) -> bool:
        """Whether anything was written to the storage of a tensor."""
        return self._bytes[self._heap.storage(held.base)] > 0

    def covered(self, held: Held) -> float:
        """Return the share of a tensor's storage that was certainly written; repeated writes count repeatedly."""
        return min(1.0, self._bytes[self._heap.storage(held.base)] / held.nbytes) if held.nbytes else 1.0

    def slice(self, outputs: Sequence[torch.Tensor], changed: Sequence[torch.Tensor] = ()) -> Slice:
        """Return what reaches ``outputs``, and those of the arguments ``changed`` that this call has changed."""
        outputs = [*outputs, *(one for one in changed if self.was_written(self._heap.of(one)))]
        live = {self._heap.storage(self._heap.base_of(output)) for output in outputs}
        copied_from_given = bool(live) and all(self._origin.get(number) == "given" for number in live)
        found, operators = Slice(), Counter[str]()
        for step in reversed(self._steps):
            used = step.writes & live
            if step.kind == "launch":
                copied = bool(used) and all(number in step.copies for number in used)
                of_library = copied and any(step.copies[number] in ("operator", "upload") for number in used)
                found.reaches.append(bool(used))
                found.copied.append(copied)
                found.copied_library.append(of_library)
            elif step.kind == "operator" and used and step.counts:
                operators[step.label] += 1
                found.of_given = found.of_given or step.of_given
            elif step.kind == "upload" and used:
                found.uploads = True
            if used or step.kind == "read":
                live -= step.replaces
                live |= step.reads
        for listed in (found.reaches, found.copied, found.copied_library):
            listed.reverse()
        found.operators, found.passed_on = dict(operators), self._passed_on(outputs)
        if copied_from_given:  # what the host sent is not in it, though the host may have read it back
            found.uploads = False
        return found

    # ---- help

    def _numbers(self, held: Sequence[Held]) -> frozenset[int]:
        return frozenset(self._heap.storage(one.base) for one in held if one.nbytes)

    def _worst(self, numbers: frozenset[int]) -> Origin:
        origins = {self._origin.get(number, "given") for number in numbers}
        order: tuple[Origin, ...] = ("operator", "upload", "launch", "given")
        return next((origin for origin in order if origin in origins), "fill")

    def _keep(self, source: Held) -> None:
        """Remember the library or host data that an own kernel read."""
        size = source.tensor.numel() * source.tensor.element_size()
        if self._worst(self._numbers([source])) not in ("operator", "upload") or self._kept_bytes + size > MAX_KEPT:
            return
        self._kept.append(source.tensor.detach().clone(memory_format=torch.contiguous_format))
        self._kept_bytes += size

    def _passed_on(self, outputs: Sequence[torch.Tensor]) -> Passed | None:
        if not outputs or not self._kept:
            return None
        exact = all(any(_same_elements(output, kept) for kept in self._kept) for output in outputs)
        if exact:
            return "exact"
        return "near" if all(any(_near(output, kept) for kept in self._kept) for output in outputs) else None


def _covers(held: Held) -> bool:
    return held.tensor.numel() * held.tensor.element_size() >= held.nbytes and held.tensor.is_contiguous()


def _expanded(held: Held) -> bool:
    """Return whether a tensor has more elements than its storage: comparing it might take unbounded memory."""
    return held.tensor.numel() * held.tensor.element_size() > held.nbytes


def _arrangements(source: torch.Tensor) -> Any:
    """``source`` and what permuting its dimensions makes of it."""
    yield source
    if 2 <= source.dim() <= MAX_PERMUTED:
        for order in list(itertools.permutations(range(source.dim())))[1:]:
            yield source.permute(order)


def _same_elements(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal element for element, whatever the shapes and up to a permutation of dimensions; a cast counts as equal."""
    if left.numel() != right.numel() or left.numel() == 0:
        return False
    if left[(0,) * left.dim()] != right[(0,) * right.dim()].to(left.dtype):  # almost always enough, and cheap
        return False
    flat = left.reshape(-1)
    return any(torch.equal(flat, source.reshape(-1).to(left.dtype)) for source in _arrangements(right))


def _near(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Nearly all elements nearly equal: a copy with a little noise on it."""
    if left.numel() != right.numel() or left.numel() < 2 or not left.is_floating_point():
        return False
    count, flat = left.numel(), left.reshape(-1)
    low, high = map(float, flat.aminmax())
    few = max(1, count // FIRST_SHARE)
    first = flat[:few].double()
    most = NEAR * (first.abs() + (high - low))  # no deviation is larger; NaN and infinity are left to the full look
    sources = []
    for source in _arrangements(right):
        other = source.reshape(-1)
        missed = few - int(((first - other[:few].double()).abs() <= most).sum())
        if missed <= (1 - NEARLY_ALL) * count * 1.01 + 1 or not math.isfinite(high - low):
            sources.append(other)
    if not sources:
        return False
    flat = flat.double()
    room = NEAR * (flat.abs() + flat.std(correction=0))
    return any(float(((flat - source.double()).abs() <= room).double().mean()) >= NEARLY_ALL for source in sources)
