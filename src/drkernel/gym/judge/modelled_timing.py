"""Modelled time of a reference, and the speedup of a candidate over it.

The reference runs on a simulated device of the judge's own, in this process: trusted code, the same engine, the same
cost model and the same accounting as the candidate's device. Nothing of it is patched into the process: the two modes
that carry operators to the device are per thread, so that many judges may work side by side.

At sizes that this machine cannot execute the module is built and called on a device without data: weights, inputs and
results are shapes, so that a product of 8192³ or a batch of 6 GB takes milliseconds and no memory. What a mask keeps of
its results depends on data, and is looked at where these can be executed.
"""

import math
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.base.files import Recent
from drkernel.gym.judge import findings as show
from drkernel.sim.cost.operators import by_name
from drkernel.sim.cost.records import ITEM_BYTES, TensorMeta
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.gpu.device_journal import Operator
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.host.attach import BelowModes, modules_on, operators_on
from drkernel.sim.host.tensor import DeviceLink, DeviceTensor
from drkernel.sim.process.control_socket import Form
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.sim.wire.commands import Ref, TensorSpec
from drkernel.task import TaskError
from drkernel.tasks.cost import tensor_form
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.promote import copied
from drkernel.tasks.reference import Reference, load_reference
from drkernel.verdict import Bound, Finding, Profile, ProfileRow, Speedup, Timing

_known: Recent[tuple[str, str, bool], Profile] = Recent(512)


def reference_profile(
    key: str, spec: GPUSpec, model: nn.Module, inputs: list[Any], *, conv_tf32: bool = False
) -> Profile:
    """The modelled profile of one eager call of ``model(*inputs)`` (host tensors) on a fresh simulated GPU of this
    process, cached under all but model and inputs.

    ``key`` names task and sizes; the modelled time depends on shapes and dtypes alone. Raises :class:`TaskError` when
    the reference does not run on the device, with its own message.
    """
    if (known := _known.get((key, spec.name, conv_tf32))) is not None:
        return known
    engine = DeviceEngine(spec, checks="off")
    engine.accounts.conv_tf32 = conv_tf32
    with host_modes(engine) as link:
        try:
            # moved as a user's .cuda() would; a second call is timed, as the candidate's calls come after a first one
            resident = _to_device(copied(model), link, engine)
            moved = tree_map(lambda leaf: _upload(leaf, link, engine), inputs)
            with torch.no_grad():
                resident(*moved)
                engine.reset_counters()
                resident(*moved)
        except Exception as error:
            raise TaskError(
                f"the reference does not run on {spec.full_name}: {type(error).__name__}: {error}"
            ) from error
    profile = _known[key, spec.name, conv_tf32] = engine.profile()
    return profile


@contextmanager
def host_modes(engine: DeviceEngine) -> Iterator[DeviceLink]:
    """Make host tensors of ``engine`` work in this thread; other threads are unaffected."""
    link = DeviceLink(BelowModes(engine))
    try:
        with operators_on(link), modules_on(link):
            yield link
    finally:
        link.close()


def _upload(leaf: Any, link: DeviceLink, engine: DeviceEngine) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with torch._C.DisableTorchFunction():
        return link.wrap(engine.register(leaf.detach().clone(memory_format=torch.preserve_format)))


def _to_device(model: nn.Module, link: DeviceLink, engine: DeviceEngine) -> nn.Module:
    """``model`` with parameters and buffers on the device, in place; shared ones stay shared."""
    moved: dict[int, Any] = {}

    def move(tensor: torch.Tensor) -> Any:
        if id(tensor) not in moved:
            on_device = _upload(tensor, link, engine)
            if isinstance(tensor, nn.Parameter):
                on_device = nn.Parameter(on_device, requires_grad=tensor.requires_grad)  # torch.matmul looks at it
            moved[id(tensor)] = on_device
        return moved[id(tensor)]

    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = move(tensor)
        for name, value in vars(module).items():  # plain tensor attributes, which .cuda() would leave on the host
            if type(value) is torch.Tensor:
                setattr(module, name, move(value))
    return model


def modelled_timing(profile: Profile) -> Timing:
    """The time of one call: from its first command to its last completion, the gaps between launches included."""
    return Timing(kind=profile.kind, device=profile.device, seconds=profile.elapsed_seconds)


def bytes_to_host(profile: Profile) -> float:
    """Bytes that a call copied from the device to the host."""
    return sum(row.bytes or 0.0 for row in profile.rows if row.owner == "copy" and row.name.endswith("device to host"))


def without_price(timed: Sequence[Profile], reference: Profile) -> list[Finding]:
    """The findings on work that has no price, the task's before the candidate's own; none when all has one."""
    mine = {row.name: row.unpriced for profile in timed for row in profile.rows if row.unpriced}
    theirs = {row.name: row.unpriced for row in reference.rows if row.unpriced}
    own = {name: why for name, why in mine.items() if name not in theirs}
    found = [(theirs, True)] if theirs else []
    found += [(own, False)] if own else []
    return [show.unpriced_operator(rows, of_the_task=of_the_task) for rows, of_the_task in found]


# ---- the error of modelled times

Baseline = Literal["eager", "compile"]
"""how the reference ran: operator by operator, or through TorchInductor's code"""
CONFIDENCE = 0.9
"""coverage of the intervals: the residuals are 90th percentiles"""
SIZES = 1e-5, 5e-5
"""seconds of one call at which widths change: small, middle, large"""
CUSTOM = {"memory": (0.20, 0.35, 0.35), "latency": (0.20, 0.50, 0.50), "compute": (0.45, 0.45, 0.50)}
"""Triton kernels by what bounds them and by size: about the 90th percentiles over the half of TritonBench's files on
A100 that constants were chosen on and a half of an H200's rows, each file weighed by the root of its rows (memory 0.14,
0.30, 0.44, latency 0.16, 0.50, 0.45, compute 0.31 and 0.27 from 10 us on); Liger's products on H100 have 0.55"""
LIBRARY = {"memory": (0.25, 0.27, 0.27), "latency": (0.44, 0.79, 0.79), "compute": (0.38, 0.42, 0.38)}
"""PyTorch's operators: the same half of TritonBench's, but for the longest waits, where a few files are off by more"""
DIRECT = 0.97
"""Factorisations and solves, whose constants are orders of magnitude: 80 rows of the same half"""
CONVOLUTION = 1.0
"""Convolutions and windows under a compiler, where they are other kernels, in another layout: KernelBench's published
compiled times on H100, 100 of 111 problems within"""
COMPILED = 0.30
"""Everything else that a compiler generates or calls: those without convolutions and windows"""
COPY = 0.30
HOST = 0.40
"""time in which the device waits for the host: level 3 of KernelBench, between clouds"""
TOGETHER: dict[Bound, float] = {"memory": 0.34, "latency": 0.11, "compute": 0.27}
"""Correlation of the errors of a Triton kernel and of an operator that are bounded alike, on one card: the product of
their mean errors over that of their root mean squares, in that half of TritonBench's rows"""
SAME_HOST = 0.5
"""Correlation of the errors of host time: both sides share the host, not what a launch takes against an operator"""


def _row_error(row: ProfileRow, baseline: Baseline) -> float:
    if row.owner != "copy" and baseline == "compile":
        return CONVOLUTION if any(word in row.name for word in ("convolution", "pool")) else COMPILED
    if row.owner == "copy":
        return COPY
    if row.owner == "library" and any(word in row.name for word in ("linalg", "cholesky", "solve", "geqrf")):
        return DIRECT
    return (CUSTOM if row.owner == "custom" else LIBRARY)[row.bound or "latency"][
        bisect(SIZES, row.seconds / row.calls)
    ]


def _in_common(reference: Profile, candidate: Profile) -> dict[str, float]:
    """Seconds, by name, of what both sides run alike: the same operators of PyTorch, or copies, at the same price."""
    theirs, ours = (
        {(row.name, f"{row.seconds / row.calls:.9g}"): row.seconds for row in side.rows if row.owner != "custom"}
        for side in (reference, candidate)
    )
    return {key[0]: min(seconds, theirs[key]) for key, seconds in ours.items() if key in theirs}


def _errors(profile: Profile, baseline: Baseline, common: Mapping[str, float]) -> tuple[float, float, Bound]:
    """(Error of a call's device time beyond what is ``common``, of its idle time, by share; what bounds the former)."""
    busy = sum(row.seconds for row in profile.rows)
    idle = max(0.0, profile.elapsed_seconds - busy)
    whole = max(busy + idle, 1e-30)
    bounds: Counter[Bound] = Counter()
    device = 0.0
    for row in profile.rows:
        seconds = row.seconds - common.get(row.name, 0.0)
        bounds[row.bound or "latency"] += seconds  # type: ignore[assignment]
        device += seconds * _row_error(row, baseline)
    return device / whole, idle * HOST / whole, max(bounds, key=lambda one: bounds[one], default="latency")


def log_error(profile: Profile, baseline: Baseline = "eager") -> float:
    """Return the error of a call's modelled time: that of its rows and of the idle time, all in one direction."""
    return sum(_errors(profile, baseline, {})[:2])


def ratio_error(reference: Profile, candidate: Profile, baseline: Baseline = "eager") -> float:
    """Return the error of one call's time over another's: of both sides, less what they have in common.

    Work that both run alike is off alike: it counts by the difference of its shares alone.
    """
    common = _in_common(reference, candidate)
    ours, our_host, bound = _errors(candidate, "eager", common)
    theirs, their_host, their_bound = _errors(reference, baseline, common)
    alike = sum(common[row.name] * _row_error(row, "eager") for row in candidate.rows if row.name in common)
    alike *= abs(1.0 / reference.elapsed_seconds - 1.0 / candidate.elapsed_seconds) if common else 0.0
    shared = TOGETHER[bound] if bound == their_bound and baseline == "eager" else 0.0
    device = ours**2 + theirs**2 - 2.0 * shared * ours * theirs
    host = our_host**2 + their_host**2 - 2.0 * SAME_HOST * our_host * their_host
    return math.sqrt(device + host + alike**2)


def speedup_of(reference: Profile, candidate: Profile, *, baseline: Baseline = "eager") -> Speedup | None:
    """Return reference over candidate with the interval implied by the model's error; None when nothing was timed.

    ``baseline`` says how the reference was run.
    """
    if reference.elapsed_seconds <= 0 or candidate.elapsed_seconds <= 0:
        return None
    ratio = reference.elapsed_seconds / candidate.elapsed_seconds
    off = ratio_error(reference, candidate, baseline)
    low, high = ratio * math.exp(-off), ratio * math.exp(off)
    device = reference.total_seconds / candidate.total_seconds if candidate.total_seconds > 0 else None
    return Speedup(value=ratio, low=low, high=high, confidence=CONFIDENCE, kind="modelled", device_value=device)


# ---- at sizes that cannot be executed: forms of inputs and outputs, time, amount of work


_KEPT = 512
_COUNTED_ON = "h200"
"""the GPU for drawing inputs and counting work: operators and shapes are the same on all"""
_MASKS = ("tril", "triu", "masked_fill", "diag")
_TAKEN = ("index", "gather", "take")
"""operators that keep those elements of their argument that indices name"""
_TABLES = ("embedding", "index.", "index_select")  # whole rows
_PICKS = (*_TAKEN, "embedding")
_SELECTIONS = (*_TAKEN, "slice", "select")
"""operators that keep a part of their argument's elements"""
_PRODUCTS = (
    "mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "convolution", "_scaled_dot_product", "linalg_vecdot", "dot",
)  # fmt: skip


@dataclass(frozen=True)
class Forms:
    """The inputs and outputs of a call of a reference, without their elements."""

    inputs: tuple[Any, ...]
    """arguments: meta tensors, with their elements (as host tensors) where those are few and whole numbers"""
    words: tuple[str, ...]
    """the same in words"""
    state: dict[str, Form]
    """forms of parameters and buffers; empty when the module does not build without data"""
    outputs: tuple[Form | None, ...] | None
    """forms of the outputs (None for a value that is not a tensor); None when it does not run without data"""


@dataclass(frozen=True)
class ReferenceWork:
    """The amount of work in one call of a reference, from shapes alone."""

    flops: float
    """floating-point operations of all operators, as the cost model counts them"""
    read: int
    """elements that operators read"""
    input_bytes: int
    """bytes of the call's tensor arguments"""
    weight_bytes: int
    """bytes of parameters and buffers"""
    output_bytes: int
    """bytes of the call's outputs"""
    products: float = 0.0
    """floating-point operations of products and convolutions"""
    discards: bool = False
    """whether an operator discards results (a causal mask), so that a kernel need not compute them"""
    elements: Mapping[str, float] = field(default_factory=dict)
    """of each argument and weight, as in ``Seen.sizes``, that operators read, or pick by indices; of each operator, by
    its label, that it reads"""
    live: float = 1.0
    """the least share of elements that a masking operator keeps, where masks are known, else half"""
    scores: float = 1.0
    """the largest share that a mask keeps, where that is less than half of what all products are masked by"""
    asked: float | None = None
    """the least share that masks, and slices up to numbers that the host reads, keep of anything, where all of them
    follow from whole numbers among the inputs"""
    named: float = 1.0
    """the least share of a table's rows that indices name, each counted once, where they are known"""

    @property
    def operations(self) -> float:
        """Floating-point operations; elements read where there are none."""
        return self.flops or float(self.read)

    @property
    def operations_per_byte(self) -> float:
        """The same for each byte of inputs, weights and outputs."""
        return self.operations / max(1, self.input_bytes + self.weight_bytes + self.output_bytes)


HALF = 0.5
"""about the share that a causal mask keeps; the lower bound, and the value when discarded elements cannot be
determined"""
MASKS_BYTES = 1 << 27
"""masks are known that are made of no more: of distances between 4096 positions"""
NEVER = -1e4
"""a score with this added gets weight 0, or less"""
_PARTS = ("tril", "triu", "diag", "masked_s")
"""operators whose result may be the mask or the remaining values: their shares say nothing"""


class _WatchedEngine(DeviceEngine):
    """A device that looks at how much of the elements its masking operators keep."""

    live = taken = named = 1.0
    """the least share that a mask keeps, half where it is not known, that indices take, and of rows that they name"""
    scores = 0.0
    """the largest share that a mask keeps"""
    added: dict[int, float]
    """shares that known masks kept of numbers, which may be added to scores, by their storage"""
    known = True
    """whether all masks were known"""

    def op(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operator, as any device does."""
        given = {**by_name(name, args), **kwargs}
        kept = self._kept(name, given)
        if name.startswith("masked_fill_") and self.known:
            self.added[self.heap.held(given["self"].handle).base] = kept
        self.live = min(self.live, kept)
        self.scores = max(self.scores, kept if kept < 1.0 and not name.startswith(("tri", "diag")) else 0.0)
        self.named = min(self.named, self._named(given)) if name.startswith(_TABLES) else self.named
        result = super().op(name, args, kwargs)
        if name.startswith(_TAKEN) and isinstance(result, TensorSpec):
            of = self.heap.held(args[0].handle).tensor.numel()
            self.taken = min(self.taken, math.prod(result.shape) / max(1, of))
        return result

    def _named(self, given: Mapping[str, Any]) -> float:
        """Share of a table's rows that indices name, each counted once; 1 where they are not known."""
        index, table = tree_leaves(given.get("indices", given.get("index"))), given.get("weight", given.get("self"))
        known = self.contents(index[0].handle) if len(index) == 1 and isinstance(index[0], Ref) else None
        if known is None or known.dtype == torch.bool or not isinstance(table, Ref):
            return 1.0
        return float(known.unique().numel()) / max(1, self.heap.held(table.handle).tensor.shape[given.get("dim") or 0])

    def _kept(self, name: str, given: Mapping[str, Any]) -> float:
        """Share of computed elements that an operator keeps; 1 for one that masks nothing."""
        if name.startswith("masked_fill"):
            return 1.0 - self._share(given["mask"])
        if name.startswith("where"):
            sides = [given.get("self"), given.get("other")]
            kept = [isinstance(one, Ref) and self.heap.held(one.handle).tensor.numel() > 1 for one in sides]
            if not any(kept):  # two numbers make a mask that is added to scores
                kept = [self._share(one) > 0 for one in sides]
            share = self._share(given["condition"])
            return share if kept == [True, False] else 1.0 - share if kept == [False, True] else HALF
        if name.startswith("_scaled_dot_product"):
            mask, causal = given.get("attn_mask"), HALF if given.get("is_causal") else 1.0
            return causal if mask is None else min(causal, self._share(mask))
        if name.startswith("mul"):
            factors = [one for one in given.values() if isinstance(one, Ref)]
            masks = [one for one in factors if self.heap.held(one.handle).tensor.dtype == torch.bool]
            return min([1.0, *map(self._share, masks)])
        return HALF if name.startswith(_PARTS) else 1.0

    def _share(self, mask: Any) -> float:
        """Share of a mask's elements that are true, or of scores that are not discarded."""
        elements = self.contents(mask.handle) if isinstance(mask, Ref) else torch.tensor(mask)
        if elements is None:
            added = self.added.get(self.heap.held(mask.handle).base)
            self.known &= added is not None
            return HALF if added is None else added
        kept = elements if elements.dtype == torch.bool else elements > NEVER
        return float(kept.to(torch.float64).mean()) if kept.numel() else 1.0


@dataclass(frozen=True)
class _Timed:
    """The second call of a reference, which compiles and tunes no more."""

    profile: Profile
    work: ReferenceWork


@dataclass(frozen=True)
class _Run:
    forms: Forms
    timed: _Timed | str
    """text: why it does not run without data"""


def forms_of(source: str) -> Forms:
    """The forms of a reference's source. Raises :class:`TaskError` when inputs cannot be drawn."""
    return _run(source, get_spec(_COUNTED_ON), False).forms


def reference_profile_at(spec: GPUSpec, reference: Reference, *, conv_tf32: bool) -> Profile:
    """The modelled profile of one eager call of ``reference`` at the sizes of its source, cached by that source.

    Nothing of the size of weights or inputs is allocated. A second call is timed, as the candidate's are.

    Raises:
        TaskError: the reference does not run on the device, or goes by data that is not there; the message names it.
    """
    return _timed(reference, spec, conv_tf32).profile


def reference_work(reference: Reference, inputs: Sequence[Any] = ()) -> ReferenceWork:
    """Return the amount of work in one call of ``reference``, of that on ``inputs`` if they are given. Raises
    :class:`TaskError` as :func:`reference_profile_at` does."""
    return _timed(reference, get_spec(_COUNTED_ON), False, inputs).work


def _timed(reference: Reference, spec: GPUSpec, conv_tf32: bool, inputs: Sequence[Any] = ()) -> _Timed:
    run = _run_on(reference, spec, conv_tf32, inputs) if inputs else _run(reference.source, spec, conv_tf32)
    if isinstance(timed := run.timed, str):
        raise TaskError(f"the reference does not run without data on {spec.full_name}: {timed}")
    return timed


@lru_cache(maxsize=_KEPT)
def _run(source: str, spec: GPUSpec, conv_tf32: bool) -> _Run:
    return _run_on(load_reference(source), spec, conv_tf32, ())


def _run_on(reference: Reference, spec: GPUSpec, conv_tf32: bool, given: Sequence[Any]) -> _Run:
    """Draw inputs on a fresh device without data, or take those given, build the module there and call it twice."""
    engine = _WatchedEngine(spec, data_free=DataFree())
    engine.added = {}
    put = tree_map(lambda leaf: engine.register(leaf) if isinstance(leaf, torch.Tensor) else leaf, list(given))
    engine.accounts.conv_tf32 = conv_tf32
    state: dict[str, Form] = {}
    outputs: tuple[Form | None, ...] | None = None
    with host_modes(engine) as link, torch.device("cuda"), torch.no_grad():
        drawn = tree_map(lambda leaf: link.wrap(leaf) if isinstance(leaf, TensorSpec) else leaf, put)
        drawn = drawn or reference.draw_inputs(0)
        missed = [dependence.message for dependence in engine.counters.dependences]
        engine.data_free = DataFree(on_read="refuse", contents_bytes=MASKS_BYTES)
        timed: _Timed | str = ""
        try:
            model = reference.build(0)
            state = {name: (tuple(value.shape), value.dtype) for name, value in model.state_dict().items()}
            outputs = tuple(map(_form, flatten_outputs(model(*drawn))))
            engine.reset_counters()
            engine.host_reads.begin(replay=False)
            engine.accounts.keep_journal = True
            results = flatten_outputs(model(*drawn))
            timed = _second_call(engine, drawn, dict([*model.named_parameters(), *model.named_buffers()]), results)
        except Exception as error:  # a reference may raise anything
            missed += [dependence.message for dependence in engine.counters.dependences]
            timed = f"{type(error).__name__}: {error}"
    inputs = tuple(tree_map(lambda leaf: _off_device(leaf, engine), value) for value in drawn)
    names = reference.argument_names()
    forms = (tensor_form(one) if isinstance(one, torch.Tensor) else repr(one)[:100] for one in inputs)
    words = tuple(f"{names[n] if n < len(names) else n} {form}" for n, form in enumerate(forms))
    return _Run(Forms(inputs, words, state, outputs), "; ".join(missed) or timed)


def _second_call(engine: _WatchedEngine, inputs: Any, weights: Mapping[str, Any], results: Any) -> _Timed:
    profile, entries = engine.profile(), engine.accounts.entries or ()
    operators = [entry for entry in entries if isinstance(entry, Operator)]
    named = {f"input {n}": leaf for n, leaf in enumerate(tree_leaves(inputs)) if isinstance(leaf, DeviceTensor)}
    sizes = {name: leaf.nbytes for name, leaf in named.items() if leaf.nbytes and leaf.is_floating_point()}
    named |= {f"weight {name}": value for name, value in weights.items()}
    at = {engine.heap.held(value._handle).base: name for name, value in named.items()}
    numbers = any(isinstance(one, torch.Tensor) and not one.dtype.is_floating_point for one in tree_leaves(inputs))
    elements: Counter[str] = Counter()
    for operator in operators:
        picked = sum(meta.elements for meta in operator.outputs) if _plain(operator).startswith(_PICKS) else math.inf
        for meta in operator.inputs:
            for name in (operator.label, at.get(meta.storage)):
                elements[name or ""] += min(meta.elements, picked)  # type: ignore[assignment]
    live = min(engine.live, _least_read(operators, at, sizes)) if engine.host_reads.count else engine.live
    work = ReferenceWork(
        flops=sum(row.flops or 0.0 for row in profile.rows),
        read=sum(meta.elements for operator in operators for meta in operator.inputs),
        input_bytes=bytes_among(inputs),
        weight_bytes=bytes_among(weights),
        output_bytes=bytes_among(results),
        products=sum(row.flops or 0.0 for row in profile.rows if row.name.removeprefix("aten.").startswith(_PRODUCTS)),
        discards=_discards(operators),
        elements=elements,
        live=max(HALF, min(engine.live, engine.taken)),
        scores=engine.scores if engine.known and 0 < engine.scores < HALF and _all_masked(operators) else 1.0,
        asked=live if numbers and engine.known and live < 1 else None,
        named=engine.named,
    )
    return _Timed(profile, work)


def _least_read(operators: Sequence[Operator], at: Mapping[int, str], sizes: Mapping[str, int]) -> float:
    """The least share of an input that operators read, by its views; ``at``: names of storages, ``sizes``: of inputs,
    in bytes."""
    views: dict[str, set[TensorMeta]] = {}
    for operator in operators:
        for meta in operator.inputs if "_like" not in operator.name else ():  # which takes a form, and reads nothing
            views.setdefault(at.get(meta.storage, ""), set()).add(meta)
    return min((sum(one.nbytes for one in views[name]) / sizes[name] for name in sizes if name in views), default=1.0)


def _plain(operator: Operator) -> str:
    return operator.name.removeprefix("aten::").removeprefix("aten.")


def _form(value: Any) -> Form | None:
    return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else None


def _off_device(leaf: Any, engine: DeviceEngine) -> Any:
    """A drawn value as the judge passes it on: integers with their values, everything else by its form."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    contents = engine.contents(leaf._handle) if isinstance(leaf, DeviceTensor) else leaf
    if contents is not None and not leaf.dtype.is_floating_point:
        return contents.clone(memory_format=torch.preserve_format)
    return torch.empty_strided(tuple(leaf.shape), leaf.stride(), dtype=leaf.dtype, device="meta")


def _discards(operators: Sequence[Operator]) -> bool:
    """Whether a mask discards part of a product, or of its argument, whatever the values."""
    products: set[int] = set()
    masked: set[int] = set()
    for operator in operators:
        ins, outs = ({meta.storage for meta in metas} for metas in (operator.inputs, operator.outputs))
        name = _plain(operator)
        mask, selection, product = _is_mask(operator, name), name.startswith(_SELECTIONS), name.startswith(_PRODUCTS)
        if (
            (ins & masked and (product or ins & products))
            or ((mask or selection) and ins & products)
            or (product and mask)
        ):
            return True
        if product or ins & products:
            products |= outs
        if mask or (ins & masked and not product):
            masked |= outs
    return False


def _all_masked(operators: Sequence[Operator]) -> bool:
    """Whether each product makes or takes scores, of which a mask discards a part."""
    named = [(operator, _plain(operator)) for operator in operators]
    attention = "_scaled_dot_product"
    masks = [one for one, name in named if _is_mask(one, name) and not name.startswith(attention)]
    scores = {meta.elements for one in masks for meta in one.outputs}
    products = [(one, name) for one, name in named if name.startswith(_PRODUCTS)]
    return all(
        _is_mask(one, name)
        if name.startswith(attention)
        else any(meta.elements in scores for meta in (*one.inputs, *one.outputs))
        for one, name in products
    )


def _is_mask(operator: Operator, name: str) -> bool:
    if name.startswith("_scaled_dot_product"):
        given = by_name(name, operator.args)
        return bool(given.get("is_causal")) or any(given.get(mask) is not None for mask in ("attn_mask", "attn_bias"))
    if name.startswith("where"):  # a mask for many rows, not one that the values themselves decide
        return any(meta.elements < operator.outputs[0].elements for meta in operator.inputs[:1])
    return name.startswith(_MASKS)


def bytes_among(values: Any) -> int:
    """Bytes of the tensors among ``values``, each once."""
    tensors = {id(leaf): leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)}
    return sum(leaf.numel() * ITEM_BYTES[str(leaf.dtype).removeprefix("torch.")] for leaf in tensors.values())
