"""The fp64 oracle of a reference: what an output should be, and how precisely that is known.

For one set of inputs the reference is run three times: at its declared precision, in double (the oracle), and in double
with every operand jittered by about a unit roundoff. The first and the last show, element by element, how far an honest
implementation may be from the second; ``compare`` (correctness.py) judges against that.

Two tests must both hold, with numbers for each declared precision (docs/correctness.md has the derivation):

1. every element: ``|a - o| <= rtol |o| + atol_scale * spread(o) + noise_factor * noise``;
2. the whole output: the root mean square of ``(a - o) / (|o| + spread(o))`` stays under the *accuracy limit*
   ``max(operand_factor * z_operand, reference_factor * z_reference, floor_units * u)``, on ``mixed`` inputs
   ``mixed_factor`` times that.

``u`` is the declared unit roundoff, ``z_operand`` the same statistic for the reference in double with operands jittered
by ``u`` (the conditioning of the task), ``z_reference`` for the reference run at the declared precision. The second
test is what separates precisions. Where its limit is exceeded, the reference is run once more with sums taken term
after term, as a kernel may take them: three times that error passes. The noise of one jittered run is near zero by
chance at some elements: few that fail the first test by little are held against further runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from drkernel.task import Precision, TaskError, Tolerance
from drkernel.tasks.promote import (
    JitterWhereUsed,
    Picked,
    PromoteToDouble,
    cloned,
    copied,
    is_large,
    jittered_copy,
    jittered_inputs,
    promoted_copy,
    promoted_inputs,
    run_double,
)
from drkernel.tasks.reorder import Reordered
from drkernel.tasks.sharing import Share, shared_by

MANTISSA_BITS: dict[str, int] = {"fp64": 52, "fp32": 23, "tf32": 10, "fp16": 10, "bf16": 7, "fp8": 3}
"""Stored mantissa bits. fp8 is the e4m3 format."""


def unit_roundoff(precision: str) -> float:
    """Return the largest relative error of rounding to nearest in a format: ``2 ** -(stored mantissa bits + 1)``."""
    return 2.0 ** -(MANTISSA_BITS[precision] + 1)


@dataclass(frozen=True)
class ToleranceRule:
    """The numbers of the two tests for one task."""

    precision: Precision
    rtol: float
    """Relative part of the element test."""
    atol_scale: float
    """Absolute part of the element test, in units of the reference output's spread."""
    noise_factor: float
    """Multiple of the measured noise at an element that is added to its tolerance."""
    operand_factor: float
    reference_factor: float
    floor_units: float
    """Factors of the accuracy limit's three terms; see the module's docstring."""
    order_factor: float = 3
    """Multiple of the error of the reference's sums taken term after term that passes the second test, too."""
    mixed_factor: float = 1
    """Factor of the accuracy limit on ``mixed`` inputs."""
    explicit: bool = False
    """True if the task gives its own tolerance: then only the element test is applied, with the task's numbers."""

    def accuracy_limit(self, z_operand: float, z_reference: float, mixed: bool = False) -> float:
        """Return the largest root-mean-square scaled error that passes the second test."""
        limit = max(
            self.operand_factor * z_operand,
            self.reference_factor * z_reference,
            self.floor_units * unit_roundoff(self.precision),
        )
        return limit * (self.mixed_factor if mixed else 1)


_RULES: dict[str, ToleranceRule] = {
    "fp64": ToleranceRule("fp64", 1e-9, 1e-9, 16, 4096, 64, 4096),
    "fp32": ToleranceRule("fp32", 1e-4, 1e-4, 16, 16, 8, 16, mixed_factor=16),
    "tf32": ToleranceRule("tf32", 4e-3, 4e-3, 4, 3, 5, 2),
    "fp16": ToleranceRule("fp16", 4e-3, 4e-3, 4, 3, 5, 1),
    "bf16": ToleranceRule("bf16", 3e-2, 3e-2, 4, 4, 8, 2),
}


def tolerance_for(precision: Precision, tolerance: Tolerance | None = None) -> ToleranceRule:
    """Return the rule of a declared precision, with the task's own ``rtol`` and ``atol_scale`` where given."""
    given = {} if tolerance is None else tolerance.model_dump(exclude_none=True)
    return replace(_RULES[precision], **given, noise_factor=0.0, explicit=True) if given else _RULES[precision]


@dataclass(frozen=True)
class Described:
    """A returned value of which only the form is known: a tensor whose elements were not worth transferring, or what
    is neither tensor nor number."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None
    kind: str = "Tensor"


RawOutput = torch.Tensor | int | float | bool | Described | None
"""One leaf of what ``forward`` returned: a CPU tensor, a number or None."""

JITTER_UNITS: dict[str, float] = {"fp64": 4.0, "fp32": 4.0, "tf32": 1.0, "fp16": 1.0, "bf16": 1.0}
"""Unit roundoffs by which operands are jittered; more than one where that is still small, to find near ties."""

FEW = 16
"""elements whose errors have a root mean square that hardly depends on chance"""
BLOCK = 1 << 15
"""elements that a chain of element-wise steps takes at a time, so that they stay in the processor's cache"""
_SAMPLE = 1 << 16
_HUGE = 1e300
"""products with a tolerance's factors stay finite below this magnitude"""


@dataclass(frozen=True)
class ExpectedOutput:
    """One output of the reference, with an estimate of its accuracy."""

    value: torch.Tensor
    """The oracle: double for floating outputs, else the reference's own dtype. Numbers are 0-dimensional."""
    declared: torch.Tensor
    """The reference's output at the declared precision, in the dtype that a candidate must return."""
    python_type: str
    """'Tensor', 'float', 'int', 'bool' or 'NoneType'."""
    stride: tuple[int, ...]
    noise: torch.Tensor | None
    """Largest of the two honest differences at each element (double); None for outputs that are not floating."""
    jittered: torch.Tensor
    """The jittered run: other values that an honest run may return. The oracle itself where the output is regular."""
    spread: float
    """:func:`spread_of` the oracle, or the minimum it is set to."""
    z_operand: float
    """Root mean square of the scaled differences of the jittered run, per unit roundoff of jitter."""
    z_reference: float
    """Root mean square of the scaled differences of the declared run."""

    stable: torch.Tensor | None
    """Elements that enter the accuracy statistic; None for outputs that are not floating."""
    regular: bool = False
    """Oracle and noise are finite at every element (and not near the end of double's range), every element is stable,
    and ``scale`` is nowhere 0."""
    picked: Picked | None = None
    """What the output is the places of, if it is that."""
    further: tuple[torch.Tensor, ...] = ()
    """Further jittered runs of an output that is not floating."""

    def differs(self, places: torch.Tensor) -> torch.Tensor:
        """Where whole numbers are not the oracle's, nor places of equal elements if any of these will do."""
        if self.picked is None or not self.picked.any_of_equals:
            return places != self.value
        return (places != self.value) & ~self.picked.equals(places)

    @property
    def floating(self) -> bool:
        """Whether the output is compared by tolerance (True) or exactly (False)."""
        return self.noise is not None

    @property
    def scale(self) -> torch.Tensor:
        """``|o| + spread``: the divisor of scaled differences."""
        return self.value.abs() + self.spread

    def scaled_rms(self, difference: torch.Tensor) -> float:
        """Root mean square of ``difference / (|o| + spread)`` over stable elements; 0 when there are none.

        ``difference`` may be overwritten.
        """
        assert self.stable is not None
        if self.regular and difference.dtype == self.value.dtype:
            for part, value in blocks(difference, self.value):
                part.div_(value.abs().add_(self.spread))
            return _root_mean_square(difference)
        scale = self.scale
        return _rms(difference, scale, None if self.regular else _kept(scale, self.stable))


@dataclass(frozen=True)
class Oracle:
    """Everything that :func:`compare` needs to know about one call of the reference."""

    outputs: tuple[ExpectedOutput, ...]
    precision: Precision
    kind: Literal["fp64", "declared"] = "fp64"
    """'declared' when the reference does not run in double; ``fallback`` gives the reason."""
    fallback: str | None = None
    mutated: Mapping[int, Oracle] = field(default_factory=dict)
    """The argument tensors that the reference changes, by place: each its one output."""
    shared: frozenset[Share] = frozenset()
    """Memory that the reference's outputs share."""
    mixed: bool = False
    """Whether the inputs are of the variant that has slices far from zero."""
    in_order: Callable[[float], list[RawOutput]] | None = field(default=None, compare=False, repr=False)
    """The outputs of the reference at the declared precision, sums taken term after term from a share of them on."""
    wider: Callable[[Oracle, int], Oracle] | None = field(default=None, compare=False, repr=False)
    """The oracle with the noise of one more jittered run, of a number."""
    again: Callable[[], Oracle] | None = field(default=None, compare=False, repr=False)
    """Works it out once more."""

    def whole(self) -> Oracle:
        """Return it with its outputs, worked out once more where they were dropped for their memory."""
        return self if self.outputs or self.again is None else replace(self, outputs=self.again().outputs)

    @property
    def finite(self) -> bool:
        """Whether no output of the declared run holds NaN or infinity."""
        return all(is_finite(out.declared) for out in self.outputs if out.python_type != "NoneType")

    @property
    def unstable_fraction(self) -> float:
        """Largest share of unstable elements in any output: elements that rounding alone can flip."""
        shares = [0.0]
        for out in self.outputs:
            if not out.value.numel() or out.regular:
                continue
            jumps = ~out.stable if out.stable is not None else out.differs(out.jittered) | out.differs(out.declared)
            shares.append(float(jumps.double().mean()))
        return max(shares)


def unstable_beyond(precision: str) -> float:
    """Return the scaled noise above which an element counts as a discontinuity (a flipped choice) rather than rounding:
    64 unit roundoffs, at least 0.02. Such elements are left out of the accuracy statistic."""
    return max(0.02, 64 * unit_roundoff(precision))


def flatten_outputs(value: Any) -> list[RawOutput]:
    """Return the leaves of nested tuples, lists and dicts, a dict's by the order of its keys as text. Raises
    ``TypeError`` for a leaf that is not a RawOutput."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in flatten_outputs(item)]
    if isinstance(value, torch.Tensor):
        return [value.resolve_conj().resolve_neg()]
    if value is not None and not isinstance(value, (bool, int, float)):
        raise TypeError(f"an output of type {type(value).__name__} cannot be compared; return tensors or numbers")
    return [value]


class OracleMaker:
    """Makes oracles for one module with fixed weights; double copies of the module are reused between calls."""

    def __init__(self, model: nn.Module, precision: Precision, seed: int = 0, stretch: float = 1) -> None:
        """``stretch``: how often the usual amount operands are jittered by."""
        self.precision, self._model = precision, model
        self._amount = stretch * JITTER_UNITS[precision] * unit_roundoff(precision)
        self._seed = seed
        double = promoted_copy(model)
        shaken = jittered_copy(double, self._amount, torch.Generator().manual_seed(seed))
        large = is_large(model)
        self._jitter_mode = JitterWhereUsed(model, self._amount, seed) if large else PromoteToDouble()
        own = copied(model, same_parameters=large) if any(True for _ in model.buffers()) else model
        self._declared, self._double, self._jittered = _Stateless(own), _Stateless(double), _Stateless(shaken)

    def run(self, inputs: Sequence[Any]) -> list[RawOutput]:
        """Return the reference's outputs at the declared precision. ``inputs`` are not modified, and no state is
        kept."""
        return self._run(inputs)[0]

    def _run(self, inputs: Sequence[Any]) -> tuple[list[RawOutput], list[Any]]:
        """The outputs, and the arguments after the call."""
        given = cloned(list(inputs))
        with torch.no_grad():
            return flatten_outputs(self._declared.fresh()(*given)), given

    def __call__(self, inputs: Sequence[Any], least_spreads: Sequence[float] = ()) -> Oracle:
        """Return the oracle of one call. ``least_spreads`` holds the minimum spread of each output."""
        declared, given = self._run(inputs)
        shares = shared_by(declared, given)
        places = [n for n, value in enumerate(given) if isinstance(value, torch.Tensor) and value._version > 0]
        declared += [given[place] for place in places]  # arguments that are changed are outputs too
        why = None
        smallest = torch.finfo(torch.float16 if self.precision == "fp16" else torch.float32).smallest_normal
        mode = PromoteToDouble((self._amount, smallest))  # kernels may flush less
        try:
            exact = _outputs_and(self._double.fresh(), promoted_inputs(list(inputs)), places, mode)
            shaken = self._shaken(inputs, places)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            exact = shaken = declared
            why = f"the reference does not run in double: {type(error).__name__}: {error}".splitlines()[0]
        if not len(declared) == len(exact) == len(shaken):
            raise ValueError(f"the reference returned {len(declared)} outputs, then {len(exact)} on the same inputs")
        least = [*least_spreads, *[0.0] * len(declared)][: len(declared)]
        runs = zip(declared, exact, shaken, least, strict=True)
        outputs = tuple(expected_output(a, b, c, self.precision, spread, mode.picked) for a, b, c, spread in runs)
        count = len(outputs) - len(places)

        def part(of: slice) -> Oracle:
            oracle = Oracle(outputs[of], self.precision, "declared" if why else "fp64", why)
            if why is not None:
                return oracle
            further = lambda narrow, draw: self._wider(narrow, inputs, places, of, draw)  # noqa: E731
            return replace(oracle, wider=further, in_order=lambda first: self._in_order(inputs, places, first)[of])

        mutated = {place: part(slice(count + n, count + n + 1)) for n, place in enumerate(places)}
        again = None if why else lambda: self(inputs, least_spreads)
        return replace(part(slice(count)), mutated=mutated, shared=shares, again=again)

    def _shaken(self, inputs: Sequence[Any], places: list[int]) -> list[RawOutput]:
        moved = jittered_inputs(list(inputs), self._amount, torch.Generator().manual_seed(self._seed + 1))
        return _outputs_and(self._jittered.fresh(), moved, places, self._jitter_mode)

    def _wider(self, oracle: Oracle, inputs: Sequence[Any], places: list[int], of: slice, draw: int) -> Oracle:
        # jittered by as much as noise counts: just beyond the edge of a clamp the usual amount seldom shows any
        outputs, stretch = list(oracle.outputs), _RULES[self.precision].noise_factor
        shaken = OracleMaker(self._model, self.precision, self._seed + draw, stretch)._shaken(inputs, places)[of]
        few = any(one.floating and one.value.numel() < FEW for one in outputs)
        ordered = self._in_order(inputs, places, draw % FEW / FEW)[of] if few else shaken
        for place, (one, leaf, summed) in enumerate(zip(oracle.outputs, shaken, ordered, strict=True)):
            if not one.floating:
                outputs[place] = replace(one, further=(*one.further, as_tensor(leaf)))
            elif one.noise is not None and one.stable is not None:
                off = distance(as_tensor(leaf), one.value).nan_to_num_(0.0, 0.0, 0.0).div_(stretch)
                if one.value.numel() < FEW:  # what is lost by another order does not show in the others, then
                    off = off.maximum(distance(as_tensor(summed), one.value).nan_to_num_(0.0, 0.0, 0.0))
                stable = one.stable & (off <= unstable_beyond(self.precision) * one.scale)
                regular = one.regular and bool(stable.all())
                outputs[place] = replace(one, noise=one.noise.maximum(off), stable=stable, regular=regular)
        return replace(oracle, outputs=tuple(outputs))

    def _in_order(self, inputs: Sequence[Any], places: list[int], first: float) -> list[RawOutput]:
        try:
            with Reordered(in_order=first):
                outputs, given = self._run(inputs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, LookupError):
            outputs, given = self._run(inputs)  # an operator called in a way that has no other order here
        return outputs + [given[place] for place in places]


def _outputs_and(model: nn.Module, doubled: list[Any], places: list[int], mode: PromoteToDouble) -> list[RawOutput]:
    """Return the outputs of a run in double, followed by the contents of the arguments at ``places`` after it."""
    outputs = flatten_outputs(run_double(model, doubled, mode))
    return outputs + [doubled[place] for place in places]


class _Stateless:
    """A module that is as it was before each call, although a forward changes its buffers (running statistics, caches).

    The module is this object's own. Contents of buffers are written back; a module that changes anything else beside
    them is copied anew, which takes longer than a call of many a network.
    """

    def __init__(self, model: nn.Module) -> None:
        self._large = is_large(model)
        self._pristine = self._copy(model) if any(True for _ in model.buffers()) else None
        self._model = model
        self._remember()

    def fresh(self) -> nn.Module:
        """Return the module in its original state."""
        if self._pristine is None or self._versions() == self._versions_before:
            return self._model
        if self._attributes() == self._attributes_before:
            for buffer, kept in zip(self._model.buffers(), self._pristine.buffers(), strict=True):
                buffer.data = kept.detach().clone()  # in new memory: a result may be a view of the old
        else:
            self._model = self._copy(self._pristine)
        self._remember()
        return self._model

    def _copy(self, model: nn.Module) -> nn.Module:
        return copied(model, same_parameters=self._large)

    def _remember(self) -> None:
        self._versions_before, self._attributes_before = self._versions(), self._attributes()

    def _versions(self) -> list[tuple[int, int]]:
        return [(id(buffer), buffer._version) for buffer in self._model.buffers()]

    def _attributes(self) -> list[tuple[str, int]]:
        """The objects that the modules hold, including buffers."""
        if self._pristine is None:
            return []
        held = [vars(module) | module._buffers for module in self._model.modules()]
        return [(name, id(value)) for names in held for name, value in names.items()]


def is_finite(values: torch.Tensor) -> bool:
    """Whether no element is NaN or infinite."""
    if values.is_complex():
        return is_finite(torch.view_as_real(values.resolve_conj()))
    if not values.is_floating_point() or not values.numel():
        return True
    return all(math.isfinite(end) for end in map(float, with_arithmetic(values).aminmax()))  # NaN is handed on


def spread_of(values: torch.Tensor) -> float:
    """Return the typical distance of an output's elements from their middle: robust, 0 for a constant or a single
    element.

    This is the smaller of the standard deviation and the width of the central 90% over 3.29 (equal for a normal
    distribution), so that a few huge elements do not excuse the rest. Where more than 90% of the elements are equal
    (masks, triangles) only the standard deviation is used. Infinities and NaN are ignored.
    """
    flat = values.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.numel() > _SAMPLE:
        flat = flat[:: -(-flat.numel() // _SAMPLE) | 1]
    flat = flat.to(torch.float64)
    finite = torch.isfinite(flat)
    if not bool(finite.all()):
        flat = flat[finite]
    if flat.numel() < 2:
        return 0.0
    deviation = float(flat.std(correction=0))
    last = flat.numel() - 1
    low, high = round(0.05 * last), round(0.95 * last)
    ordered = np.partition(flat.numpy(), (low, high))
    central = float(ordered[high] - ordered[low]) / 3.29
    return min(deviation, central) if central > 0 else deviation


def _kept(scale: torch.Tensor, stable: torch.Tensor) -> torch.Tensor | None:
    """Elements that count for :func:`_rms`; None for all."""
    kept = stable & (scale > 0)
    return None if bool(kept.all()) else kept


def _rms(difference: torch.Tensor, scale: torch.Tensor, kept: torch.Tensor | None) -> float:
    """Root mean square of ``difference / scale`` over the elements ``kept`` (None: all); 0 when there are none."""
    scaled = difference.abs().double() / scale.double()
    if kept is None:
        return _root_mean_square(scaled)
    count = int(kept.sum())  # to gather those would take ten times as long
    return _root_mean_square(scaled.where(kept, 0.0)) * (scaled.numel() / count) ** 0.5 if count else 0.0


def _root_mean_square(values: torch.Tensor) -> float:
    """Root mean square of real values, in double; 0 when there are none."""
    count = values.numel()
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) / count**0.5 if count else 0.0


def expected_output(
    declared: RawOutput, exact: RawOutput, shaken: RawOutput, precision: Precision, least_spread: float = 0.0,
    picked: Sequence[Picked] = (),
) -> ExpectedOutput:  # fmt: skip
    """Combine the three runs of one output. ``picked``: what the second picked, whose places the output may be."""
    kind = "Tensor" if isinstance(declared, torch.Tensor) else type(declared).__name__
    given = as_tensor(declared)
    first, second, third = (with_arithmetic(as_tensor(leaf)) for leaf in (declared, exact, shaken))
    stride = tuple(given.stride()) if kind == "Tensor" else ()
    if first.shape != second.shape or first.shape != third.shape:
        raise TaskError(f"the reference's output shape depends on rounding: {tuple(first.shape)}, then others")
    if not (first.is_floating_point() or first.is_complex()):
        second, third = second.to(first.dtype), third.to(first.dtype)
        places = next((one for one in picked if torch.equal(one.places.flatten(), second.long().flatten())), None)
        if places is not None:  # jitter tells equal elements apart, which rounding does not
            third = second.where(places.equals(third), third)
        return ExpectedOutput(second, first, kind, stride, None, third, 0.0, 0.0, 0.0, None, picked=places)
    spread = max(spread_of(second), least_spread, torch.finfo(first.dtype).smallest_normal)  # kernels may flush less
    own, moved = distance(first, second), distance(third, second)
    noise = torch.maximum(own, moved)
    regular, z_reference, z_operand = _regular_rms(own, moved, second, spread, unstable_beyond(precision))
    stable = torch.ones((), dtype=torch.bool).expand(second.shape)
    if not regular:
        own, moved, scale = distance(first, second), distance(third, second), second.abs().add_(spread)
        noise.masked_fill_((first == second) & (third == second), 0.0)  # equal infinities differ by NaN
        stable = noise <= unstable_beyond(precision) * scale  # NaN is not
        stable &= noise < torch.inf
        stable &= torch.isfinite(second) if second.is_complex() else second.abs() < torch.inf
        kept = _kept(scale, stable)
        z_reference, z_operand = _rms(own, scale, kept), _rms(moved, scale, kept)
    z_operand /= JITTER_UNITS[precision]
    third = second if regular else third  # a tensor of its size less for as long as the call is remembered
    return ExpectedOutput(second, given, kind, stride, noise, third, spread, z_operand, z_reference, stable, regular)


def blocks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The tensors, of one shape, in corresponding parts of :data:`BLOCK` elements; whole, unless all are contiguous."""
    if tensors[0].numel() <= BLOCK or not all(one.is_contiguous() for one in tensors):
        return iter([tensors])
    return zip(*(one.view(-1).split(BLOCK) for one in tensors), strict=True)


def with_arithmetic(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, in double where its format has no arithmetic (fp8)."""
    return tensor.double() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


ALIKE = 1e-3
"""difference of two runs, relative to an element and to the mean of all, that is rounding"""


def alike(first: RawOutput, second: RawOutput) -> bool:
    """Whether two runs agree, up to rounding."""
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return repr(first) == repr(second)  # NaN equals NaN
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    first, second = with_arithmetic(first), with_arithmetic(second)
    same = torch.equal(first, second)  # mostly, and NaN is left to the full look
    if same or not (first.is_floating_point() or first.is_complex()):
        return same
    wide = first.to(torch.complex128 if first.is_complex() else torch.float64)
    finite = wide.abs()[wide.isfinite()]
    least = ALIKE * float(finite.mean()) if finite.numel() else 0.0
    return torch.allclose(wide, second.to(wide.dtype), rtol=ALIKE, atol=least, equal_nan=True)


def distance(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return ``|left - right|`` in the wider of the two dtypes; a new tensor."""
    left, right = with_arithmetic(left), with_arithmetic(right)
    if left.is_complex() or right.is_complex() or not (left.is_contiguous() and right.is_contiguous()):
        difference = left - right
        return difference.abs() if difference.is_complex() else difference.abs_()
    found = torch.empty(left.shape, dtype=torch.promote_types(left.dtype, right.dtype))
    for part, one, other in blocks(found, left, right):
        part.copy_(one).sub_(other).abs_()
    return found


def _regular_rms(
    own: torch.Tensor, moved: torch.Tensor, exact: torch.Tensor, spread: float, most: float
) -> tuple[bool, float, float]:
    """Whether every difference, scaled by ``|exact| + spread``, is finite and at most ``most``, and both root mean
    squares where that is so.

    ``own`` and ``moved`` are overwritten: a new tensor for each step would take several times as long.
    """
    if not exact.numel():
        return True, 0.0, 0.0
    for value, *differences in blocks(exact, own, moved):
        scale = value.abs().add_(spread)
        low, high = map(float, scale.aminmax())
        if not (low > 0 and high < _HUGE):  # NaN is neither
            return False, 0.0, 0.0
        if not all(float(difference.div_(scale).max()) <= most for difference in differences):
            return False, 0.0, 0.0
    return True, _root_mean_square(own), _root_mean_square(moved)


def as_tensor(leaf: RawOutput) -> torch.Tensor:
    """An output as a tensor without a gradient: a number of 0 dimensions, None as false."""
    if isinstance(leaf, torch.Tensor):
        return leaf.detach()
    if leaf is None:
        return torch.zeros((), dtype=torch.bool)
    return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else None)
