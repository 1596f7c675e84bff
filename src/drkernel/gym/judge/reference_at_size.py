"""A reference at sizes that this machine cannot execute: forms of inputs and outputs, time, amount of work.

The module is built and called on a device without data, in this process (see ``modelled_timing.py``): weights, inputs
and results are shapes, so that a product of 8192³ or a batch of 6 GB takes milliseconds and no memory. What a mask
keeps of its results depends on data, and is looked at where these can be executed.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.judge.modelled_timing import host_modes
from drkernel.sim.cost.operators import by_name
from drkernel.sim.cost.records import ITEM_BYTES
from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.gpu.device_journal import Operator
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.host.tensor import DeviceTensor
from drkernel.sim.process.call_record import Form
from drkernel.sim.spec import GPUSpec, get_spec
from drkernel.tasks.cost import tensor_form
from drkernel.tasks.errors import TaskError
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.promote import cloned
from drkernel.tasks.reference import Reference, load_reference
from drkernel.verdict import Profile

_KEPT = 512
_COUNTED_ON = "h200"
"""the GPU for drawing inputs and counting work: operators and shapes are the same on all"""
_MASKS = ("tril", "triu", "masked_fill", "diag")
_TAKEN = ("index", "gather", "take")
"""operators that keep those elements of their argument that indices name"""
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

    @property
    def operations(self) -> float:
        """Floating-point operations; elements read where there are none."""
        return self.flops or float(self.read)

    @property
    def operations_per_byte(self) -> float:
        """The same for each byte of inputs, weights and outputs."""
        return self.operations / max(1, self.input_bytes + self.weight_bytes + self.output_bytes)


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


def reference_work(reference: Reference) -> ReferenceWork:
    """Return the amount of work in one call of ``reference``. Raises :class:`TaskError` as :func:`reference_profile_at`
    does."""
    return _timed(reference, get_spec(_COUNTED_ON), False).work


def _timed(reference: Reference, spec: GPUSpec, conv_tf32: bool) -> _Timed:
    timed = _run(reference.source, spec, conv_tf32).timed
    if isinstance(timed, str):
        raise TaskError(f"the reference does not run without data on {spec.full_name}: {timed}")
    return timed


@lru_cache(maxsize=_KEPT)
def _run(source: str, spec: GPUSpec, conv_tf32: bool) -> _Run:
    """Draw inputs on a fresh device without data, build the module there and call it twice."""
    reference = load_reference(source)
    engine = DeviceEngine(spec, data_free=DataFree())
    engine.accounts.conv_tf32 = conv_tf32
    state: dict[str, Form] = {}
    outputs: tuple[Form | None, ...] | None = None
    with host_modes(engine), torch.device("cuda"), torch.no_grad():
        drawn = reference.draw_inputs(0)
        missed = [dependence.message for dependence in engine.counters.dependences]
        engine.data_free = DataFree(on_read="refuse")
        timed: _Timed | str = ""
        try:
            model = reference.build(0)
            state = {name: (tuple(value.shape), value.dtype) for name, value in model.state_dict().items()}
            outputs = tuple(map(_form, flatten_outputs(model(*drawn))))
            engine.reset_counters()
            engine.accounts.keep_journal = True
            results = model(*drawn)
            timed = _second_call(engine, drawn, dict([*model.named_parameters(), *model.named_buffers()]), results)
        except Exception as error:  # a reference may raise anything
            missed += [dependence.message for dependence in engine.counters.dependences]
            timed = f"{type(error).__name__}: {error}"
    inputs = tuple(tree_map(lambda leaf: _off_device(leaf, engine), value) for value in drawn)
    names = reference.argument_names()
    forms = (tensor_form(one) if isinstance(one, torch.Tensor) else repr(one)[:100] for one in inputs)
    words = tuple(f"{names[n] if n < len(names) else n} {form}" for n, form in enumerate(forms))
    return _Run(Forms(inputs, words, state, outputs), "; ".join(missed) or timed)


def _second_call(engine: DeviceEngine, inputs: Any, weights: Mapping[str, Any], results: Any) -> _Timed:
    profile, entries = engine.profile(), engine.accounts.entries or ()
    operators = [entry for entry in entries if isinstance(entry, Operator)]
    named = {f"input {n}": leaf for n, leaf in enumerate(tree_leaves(inputs)) if isinstance(leaf, DeviceTensor)}
    named |= {f"weight {name}": value for name, value in weights.items()}
    at = {engine.heap.held(value._handle).base: name for name, value in named.items()}
    elements: Counter[str] = Counter()
    for operator in operators:
        picked = sum(meta.elements for meta in operator.outputs) if _plain(operator).startswith(_PICKS) else math.inf
        for meta in operator.inputs:
            for name in (operator.label, at.get(meta.storage)):
                elements[name or ""] += min(meta.elements, picked)  # type: ignore[assignment]
    work = ReferenceWork(
        flops=sum(row.flops or 0.0 for row in profile.rows),
        read=sum(meta.elements for operator in operators for meta in operator.inputs),
        input_bytes=bytes_among(inputs),
        weight_bytes=bytes_among(weights),
        output_bytes=bytes_among(results),
        products=sum(row.flops or 0.0 for row in profile.rows if row.name.removeprefix("aten.").startswith(_PRODUCTS)),
        discards=_discards(operators),
        elements=elements,
    )
    return _Timed(profile, work)


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


HALF = 0.5
"""about the share that a causal mask keeps; the lower bound, and the value when discarded elements cannot be
determined"""
NEVER = -1e4
"""a score with this added gets weight 0, or less"""
_PARTS = ("tril", "triu", "diag", "masked_s")
"""operators whose result may be the mask or the remaining values: their shares say nothing"""


@lru_cache(maxsize=256)
def live_share(source: str) -> float:
    """Return the least share of elements that a masking operator of a reference keeps, on inputs as it draws them.

    Run on data, so for sizes that can be executed; at larger ones a mask of the same kind keeps about as much.
    """
    reference = load_reference(source)
    masks = _Masks()
    try:
        model, inputs = reference.build(0), reference.draw_inputs(0)
        with torch.no_grad(), masks:
            model(*cloned(inputs))
    except Exception:  # a reference may raise anything
        return HALF
    return max(HALF, masks.least)


class _Masks(TorchDispatchMode):
    """Records the share of elements that masking operators keep."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.least = 1.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports all of dynamo at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.least = min(self.least, _kept(func, args, kwargs))
        return func(*args, **kwargs)


def _kept(func: Any, args: Any, kwargs: dict[str, Any]) -> float:
    """Share of computed elements that an operator keeps; 1 for one that masks nothing."""
    name = func._schema.name.removeprefix("aten::")
    if name.startswith("masked_fill"):
        return 1.0 - _share(args[1])
    if name.startswith("where"):
        kept, share = [isinstance(one, torch.Tensor) and one.numel() > 1 for one in args[1:]], _share(args[0])
        if not any(kept):  # two numbers make a mask that is added to scores
            kept = [float(one) > NEVER for one in args[1:]]
        return share if kept == [True, False] else 1.0 - share if kept == [False, True] else HALF
    if name.startswith("_scaled_dot_product"):
        mask = kwargs.get("attn_mask")
        causal = HALF if any(value is True for value in (*args, *kwargs.values())) else 1.0
        return causal if mask is None else min(causal, _share(mask if mask.dtype == torch.bool else mask > NEVER))
    if name.startswith(_TAKEN):
        return _selected(func, args, kwargs)
    return HALF if name.startswith(_PARTS) else 1.0


def _selected(func: Any, args: Any, kwargs: dict[str, Any]) -> float:
    """Share of its first argument's elements that an operator takes."""
    numbers = torch.arange(args[0].numel()).reshape(args[0].shape)
    return len(torch.unique(func(numbers, *args[1:], **kwargs))) / max(1, numbers.numel())


def _share(mask: torch.Tensor) -> float:
    return float(mask.to(torch.float64).mean()) if mask.numel() else 1.0
