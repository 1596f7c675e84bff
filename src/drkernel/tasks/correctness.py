"""Compares a candidate's outputs with the oracle. Runs in the judge; the admission gate uses the same function."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from drkernel.tasks.oracle import (
    FEW,
    MANTISSA_BITS,
    Described,
    ExpectedOutput,
    Oracle,
    RawOutput,
    ToleranceRule,
    as_tensor,
    blocks,
    distance,
    unit_roundoff,
    with_arithmetic,
)
from drkernel.verdict import Correctness, Mismatch

NEAR, NEAR_SHARE, RARE_SHARE, LONE_SHARE = 16, 0.25, 1e-3, 1e-5
"""largest error over tolerance, and largest share of wrong elements, that more noise may explain; share of elements so
rare that their errors may be as large as an edge hides, and are held against :data:`NEAR` runs; share that is held
against half as many again: of hundreds of ties that a cast to eight bits breaks, one may not break in sixteen"""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one floating-point output as a whole."""

    output: int
    error: float
    """Root mean square of ``(a - o) / (|o| + spread)``."""
    honest: float
    """The same statistic for the reference itself: the larger of its declared and its jittered run."""
    limit: float
    """Largest ``error`` that passes."""
    looks_like: str | None
    """The coarsest format whose rounding of operands or output would explain the error: 'fp32', 'tf32', ...; None where
    errors do not behave as those of rounding do."""

    @property
    def passed(self) -> bool:
        """Whether the error is within the limit."""
        return self.error <= self.limit


@dataclass(frozen=True)
class PrecisionReport:
    """Whether outputs have the accuracy of the declared precision."""

    declared: str
    accuracies: tuple[Accuracy, ...]

    @property
    def downgraded(self) -> bool:
        """Whether some output is less accurate than the declared precision allows."""
        return any(not accuracy.passed for accuracy in self.accuracies)

    @property
    def worst(self) -> Accuracy | None:
        """The output furthest over (or nearest to) its limit; None without floating outputs."""
        return max(self.accuracies, key=lambda a: a.error / a.limit if a.limit else a.error, default=None)


def compare(actual: Sequence[RawOutput], oracle: Oracle, rule: ToleranceRule) -> Correctness:
    """Compare the outputs of one call; ``checked_calls`` is 1, and ``passed_calls`` is 1 when every check holds.

    Checked in order: number of outputs; type, shape and dtype of each; NaN and infinity only where the oracle has them
    (infinities with the same sign); every element within tolerance, with no allowance for a share of wrong elements;
    the accuracy of each output as a whole. Few elements that fail by little are held against the noise of further
    jittered runs. The message names the first disagreement, ``max_error`` the worst element of all.
    """
    result, draws = _compared(actual, oracle, rule), 1
    while oracle.wider is not None and not rule.explicit and _is_near(result, oracle, draws):
        oracle = oracle.wider(oracle, draws)
        result, draws = _compared(actual, oracle, rule), draws + 1
    return result


def _is_near(result: Correctness, oracle: Oracle, draws: int) -> bool:
    """Whether more noise may explain what failed: few elements, by little."""
    found, error = result.mismatch, result.max_error or 0
    if found is None or error <= 1:
        return False
    if found.wrong_fraction > NEAR_SHARE and oracle.outputs[found.output].value.numel() >= FEW:
        return False
    near = error <= NEAR**2 or not oracle.outputs[found.output].floating  # which rounding may flip by any amount
    most = NEAR if found.wrong_fraction > LONE_SHARE else NEAR * 3 // 2
    return error <= NEAR / draws or (found.wrong_fraction <= RARE_SHARE and near and draws <= most)


def _compared(actual: Sequence[RawOutput], oracle: Oracle, rule: ToleranceRule) -> Correctness:
    if len(actual) != len(oracle.outputs):
        return _failed(f"the reference returns {len(oracle.outputs)} outputs, the candidate {len(actual)}")
    for index, (got, want) in enumerate(zip(actual, oracle.outputs, strict=True)):
        disagreement = _form(got, want)
        if disagreement:
            return _failed(f"output {index}: {disagreement}")
    worst, mismatch, message = 0.0, None, None
    pairs = [(as_tensor(got), want) for got, want in zip(actual, oracle.outputs, strict=True)]
    distances = [distance(got, want.value) if want.floating else None for got, want in pairs]
    for index, ((value, want), off) in enumerate(zip(pairs, distances, strict=True)):
        error, found = _elements(index, value, want, rule, off)
        worst = max(worst, error)
        if found is not None and (mismatch is None or found.wrong_fraction > mismatch.wrong_fraction):
            mismatch, message = found, _explain(found)
    if mismatch is None and not rule.explicit:
        report = precision_class(actual, oracle, rule, distances)
        if report.downgraded and report.worst is not None:
            low = report.worst
            worst = max(worst, low.error / low.limit)
            message = (
                f"output {low.output}: every element is within tolerance, but the output as a whole is not as "
                f"accurate as {oracle.precision}: rms error {low.error:.2e}, allowed {low.limit:.2e} "
                f"(the reference itself: {low.honest:.2e}); "
                + (f"it looks like {low.looks_like}" if low.looks_like else _furthest(actual, oracle, low.output))
            )
    passed = mismatch is None and message is None
    return Correctness(checked_calls=1, passed_calls=int(passed), max_error=worst, mismatch=mismatch, message=message)


def declared_values(oracle: Oracle) -> list[RawOutput]:
    """The reference's own outputs as a candidate would return them."""
    return [
        None if out.python_type == "NoneType" else out.declared if out.python_type == "Tensor" else out.declared.item()
        for out in oracle.outputs
    ]


def same_answer(oracles: Sequence[Oracle], rule: ToleranceRule) -> bool:
    """Whether the answers to several draws of everything are one within tolerance: a constant, for these draws."""
    first, *others = oracles
    values = declared_values(first)
    if not others or not all(compare(values, other.whole(), rule).passed_calls for other in others):
        return False
    changed = [[oracle.mutated[place] for oracle in oracles] for place in first.mutated]
    return all(same_answer(one, rule) for one in changed)


def precision_class(
    actual: Sequence[RawOutput],
    oracle: Oracle,
    rule: ToleranceRule,
    distances: Sequence[torch.Tensor | None] | None = None,
) -> PrecisionReport:
    """Return the accuracy of each floating output against the limit of the declared precision.

    The outputs must agree with the oracle in number, shape and dtype (see :func:`compare`). An output that is simply
    wrong is also reported as downgraded, so call this only for outputs whose elements are within tolerance.
    ``distances`` of the floating outputs, where they are known, are overwritten.
    """
    accuracies = []
    for index, (got, want) in enumerate(zip(actual, oracle.outputs, strict=True)):
        if not want.floating:
            continue
        value = as_tensor(got)
        known = distances[index] if distances is not None else None
        off = distance(value, want.value) if known is None else known
        error = want.scaled_rms(off.nan_to_num_(nan=0.0))
        honest = max(want.z_operand, want.z_reference)
        limit = rule.accuracy_limit(want.z_operand, want.z_reference, oracle.mixed)
        looks_like = _looks_like(value, error, want, rule, error > limit)
        accuracies.append(Accuracy(index, error, honest, limit, looks_like))
    if oracle.in_order is not None and not all(one.passed for one in accuracies):
        accuracies = _as_summed_in_order(accuracies, oracle, rule)
    return PrecisionReport(rule.precision, tuple(accuracies))


def _as_summed_in_order(accuracies: Sequence[Accuracy], oracle: Oracle, rule: ToleranceRule) -> list[Accuracy]:
    """The accuracies against what the reference's sums lose that are taken term after term: from so many beginnings
    that this is known of :data:`FEW` elements."""
    assert oracle.in_order is not None
    few = min(oracle.outputs[one.output].value.numel() for one in accuracies if not one.passed)
    orders = math.ceil(FEW / max(1, few))
    squares = [0.0] * len(accuracies)
    for number in range(orders):
        run = oracle.in_order(number / orders)
        for place, want in enumerate(oracle.outputs[one.output] for one in accuracies):
            off = distance(as_tensor(run[accuracies[place].output]), want.value)
            squares[place] += want.scaled_rms(off.nan_to_num_(nan=0.0)) ** 2 / orders
    found = []
    for one, square in zip(accuracies, squares, strict=True):
        limit = max(one.limit, rule.order_factor * math.sqrt(square))
        found.append(replace(one, limit=limit, looks_like=one.looks_like if one.error > limit else None))
    return found


def merge(results: Sequence[Correctness]) -> Correctness:
    """Merge the results of several calls: counts added, the worst error, the first failure's message."""
    failed = [result for result in results if result.passed_calls < result.checked_calls]
    errors = [result.max_error for result in results if result.max_error is not None]
    first = failed[0] if failed else None
    return Correctness(
        checked_calls=sum(result.checked_calls for result in results),
        passed_calls=sum(result.passed_calls for result in results),
        max_error=max(errors) if errors else None,
        mismatch=first.mismatch if first else None,
        message=first.message if first else None,
    )


def _failed(message: str) -> Correctness:
    return Correctness(checked_calls=1, passed_calls=0, message=message)


def _form(got: RawOutput, want: ExpectedOutput) -> str | None:
    """Describe a disagreement in type, shape or dtype; None if there is none."""
    kind = "Tensor" if isinstance(got, torch.Tensor) else getattr(got, "kind", type(got).__name__)
    if kind != want.python_type:
        return f"the reference returns a {want.python_type}, the candidate a {kind}"
    if not isinstance(got, (torch.Tensor, Described)):
        return _out_of_range(got, want)
    if got.shape != want.value.shape:
        return f"shape should be {tuple(want.value.shape)}, is {tuple(got.shape)}"
    if got.dtype != want.declared.dtype:
        return f"dtype should be {want.declared.dtype}, is {got.dtype}"
    return "its elements are not on the device" if isinstance(got, Described) else None


def _out_of_range(number: RawOutput, want: ExpectedOutput) -> str | None:
    """Describe an integer, which is unbounded in Python, outside the range of the expected dtype."""
    if isinstance(number, bool) or not isinstance(number, int) or want.declared.dtype.is_floating_point:
        return None
    bounds = torch.iinfo(want.declared.dtype)
    return None if bounds.min <= number <= bounds.max else "a number beyond 64 bits"


def _elements(
    index: int, got: torch.Tensor, want: ExpectedOutput, rule: ToleranceRule, off: torch.Tensor | None
) -> tuple[float, Mismatch | None]:
    """Return the worst difference over tolerance, and the mismatch if any element fails. ``off``: the distances of a
    floating output."""
    if got.numel() == 0:
        return 0.0, None
    if off is None:
        wrong = want.differs(got)
        for other in (want.declared, want.jittered, *want.further):
            wrong &= got != other
        ratio = torch.where(wrong, torch.inf, 0.0).double()
        allowed = torch.zeros_like(ratio)
    else:
        assert want.noise is not None
        worst = 0.0
        for part, exact, noise in blocks(off, want.value, want.noise):
            room = _allowed(exact, noise, want, rule)
            worst = max(float(part.div(room.clamp_min_(torch.finfo(room.dtype).tiny)).max()), worst)
            if not worst <= 1:
                break
        else:
            return worst, None  # then there is nothing special on either side
        allowed = _allowed(want.value, want.noise, want, rule)
        room = allowed.clamp_min(torch.finfo(allowed.dtype).tiny)
        ratio = off / room
        worst = float(ratio.max())
        if not math.isfinite(worst):
            odd = ~ratio.isfinite()
            value, exact = got[odd].to(want.value.dtype), want.value[odd]
            difference = torch.nan_to_num(distance(value, exact), nan=torch.inf, posinf=torch.inf)
            same = _same_special(value, exact, want.declared[odd])
            ratio[odd] = (difference / room[odd]).masked_fill_(same, 0.0)
        wrong = ratio > 1
    worst = float(ratio.max())
    if not bool(wrong.any()):
        return worst, None
    place = tuple(int(i) for i in torch.unravel_index(ratio.argmax(), ratio.shape))
    return worst, Mismatch(
        output=index,
        index=place,
        expected=_number(want.value[place]),
        actual=_number(got[place]),
        tolerance=float(allowed[place]),
        wrong_fraction=float(wrong.double().mean()),
    )


def _allowed(exact: torch.Tensor, noise: torch.Tensor, want: ExpectedOutput, rule: ToleranceRule) -> torch.Tensor:
    """Return the largest passing difference per element (double), of ``want`` or corresponding parts of it."""
    relative, absolute, factor = rule.rtol, rule.atol_scale * want.spread, 0.0
    if not rule.explicit:
        honest = max(want.z_operand, want.z_reference, unit_roundoff(rule.precision))
        factor = rule.noise_factor
        relative, absolute = relative + factor * honest, absolute + factor * honest * want.spread
    allowed = exact.abs().mul_(relative).add_(absolute)
    if factor:
        allowed.add_(noise if want.regular else torch.nan_to_num(noise, 0.0, 0.0, 0.0), alpha=factor)
    return allowed if want.regular else torch.nan_to_num(allowed, 0.0, 0.0, 0.0)


def _same_special(value: torch.Tensor, exact: torch.Tensor, declared: torch.Tensor) -> torch.Tensor:
    """Return where NaN or infinity is right: where the oracle has it, or where it or the declared run left the dtype's
    range."""
    same = (torch.isnan(value) & torch.isnan(exact)) | (torch.isinf(value) & (value == exact))
    if value.is_complex():
        return same
    beyond = exact.abs() > torch.finfo(declared.dtype).max
    overflow = beyond & (value == exact.sign() * torch.inf)
    # the reference itself is not finite here although the exact answer is, so nothing can be required of a candidate
    undefined = ~beyond & ~torch.isfinite(with_arithmetic(declared)) & torch.isfinite(exact) & ~torch.isfinite(value)
    return same | overflow | undefined


def _looks_like(value: torch.Tensor, error: float, want: ExpectedOutput, rule: ToleranceRule, over: bool) -> str | None:
    """Name the format that would explain the error: by the bits of the output, else by the size of the errors, if they
    behave as those of rounding do."""
    if not over:
        return rule.precision
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        if value.dtype != dtype and value.numel() > 16 and torch.equal(value, value.to(dtype).to(value.dtype)):
            return name
    if not _is_rounding(value, want):
        return None
    per_unit = max(want.z_operand, 0.25 * unit_roundoff(rule.precision)) / unit_roundoff(rule.precision)
    candidates = [name for name in ("tf32", "bf16", "fp8") if MANTISSA_BITS[name] <= MANTISSA_BITS[rule.precision]]
    named = min(candidates, key=lambda name: abs(torch.tensor(error / (per_unit * unit_roundoff(name))).log().item()))
    return "tf32 or fp16" if named == "tf32" else named


DRAWN = 4096
COMPARED = 256
"""elements whose errors are compared: few, so that neighbours lie further apart than the steps of coarse formats"""
FOLLOWS = 0.3
"""of the mean square of errors: the mean square of the difference between neighbours' errors. It is 2 for independent
errors, 0.5 for those of a format that truncates, 0 for a function of the value"""


def _is_rounding(value: torch.Tensor, want: ExpectedOutput) -> bool:
    """Whether most elements have an error, and one that has nothing to do with those of elements of nearly equal value.

    Errors of another formula or constant follow the values; errors of a part that was left out are those of that part.
    """
    expected, error, scale = want.value.flatten(), (value - want.value).flatten(), want.scale.flatten()
    if expected.is_complex():
        expected, error = expected.real, error.real
    kept = ((expected != 0) & torch.isfinite(error) & (scale > 0)).nonzero().flatten()
    if kept.numel() < 32:
        return False
    drawn = kept[torch.randint(kept.numel(), (DRAWN,), generator=torch.Generator().manual_seed(0))].unique()
    ordered = drawn[expected[drawn].argsort()]
    picked = ordered[torch.linspace(0, ordered.numel() - 1, min(COMPARED, ordered.numel())).long()]
    errors = (error[picked] / scale[picked]).double()
    square = float(errors.square().mean())
    many = float((errors.abs() > 0.05 * math.sqrt(square)).double().mean()) > 0.5
    return many and float(errors.diff().square().mean()) > FOLLOWS * square


def _furthest(actual: Sequence[RawOutput], oracle: Oracle, index: int) -> str:
    """Where an output is furthest off, for its size, and by how much."""
    want = oracle.outputs[index]
    value = as_tensor(actual[index])
    off = torch.nan_to_num(distance(value, want.value) / want.scale, 0.0, 0.0, 0.0)
    place = tuple(int(i) for i in torch.unravel_index(off.argmax(), off.shape))
    where = ", ".join(map(str, place))
    return f"output {index}[{where}] should be {_number(want.value[place]):.6g}, is {_number(value[place]):.6g}"


def _explain(found: Mismatch) -> str:
    place = ", ".join(map(str, found.index))
    return (
        f"output {found.output}[{place}] should be {found.expected:.6g} (within {found.tolerance:.2g}), "
        f"is {found.actual:.6g}; {found.wrong_fraction:.1%} of the elements are wrong"
    )


def _number(value: torch.Tensor) -> float:
    return float(value.real) if value.is_complex() else float(value)
