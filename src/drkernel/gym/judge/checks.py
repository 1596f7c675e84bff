"""The checked calls of one candidate: their inputs, their order, and the conditions that each must satisfy.

Every call has its own oracle or deliberately shares one. The modes, and the shortcut that each one exposes:

===========  ==================================================  ===================================================
fresh        new tensors, new contents (of any variant)          answers that do not follow the inputs
anew         new tensors, contents drawn as the task draws them  what is done for tensors that come back alone
overwritten  an earlier call's tensors, new contents, in place   caches by pointer, version or object
patched      the first call's contents, a secret part replaced   caches by a fingerprint
stressed     large contents, in new or in earlier tensors        dropped stabilising terms
mixed        new tensors with zeros, ties, denormals, outliers   what is right for one distribution only
repeated     the first call again, memory poisoned another way,  luck with old memory, nondeterminism, luck with
             programs in a secret order                          the order of programs
reweighted   the first call again, a half of the weights others  results or weights kept from earlier, by others too
renumbered   the first call again, other plain numbers           numbers that are assumed, not read
huge, tiny   new tensors beyond the range of half precision      operands in it, where the task's format has more range
===========  ==================================================  ===================================================

The first call is ``fresh`` on the task's own distribution. The order and number of the others, and the place of the
knock-out among them, follow from secret seeds, so a candidate cannot tell by counting which call it is in.

At the end are the calls of a naive harness: the research mode ``unsafe_no_checks``, which exists to study reward
hacking. Every call gets the same inputs, outputs pass at a tolerance of 1e-2, and nothing interferes with the candidate
or condemns it. Sandbox, device and clock are the real ones, and each verdict says all this.
"""

import contextlib
import random
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.expected import ExpectedSide, same_value
from drkernel.gym.session.base import JobSession
from drkernel.gym.session.protocol import CallResult, CandidateFailed, Output, Plain, SessionError
from drkernel.sim.gpu.engine import Schedule
from drkernel.sim.process.control_socket import Form
from drkernel.tasks.correctness import compare, merge, precision_class
from drkernel.tasks.inputs import Variant, pick_variant
from drkernel.tasks.oracle import Described, Oracle, RawOutput, is_finite
from drkernel.tasks.problem import ReferenceCall
from drkernel.tasks.sharing import TensorMemory, shared
from drkernel.verdict import CandidateError, Correctness, Finding

T = TypeVar("T")
Mode = Literal[
    "fresh", "anew", "overwritten", "patched", "stressed", "mixed", "repeated", "reweighted", "renumbered",
    "huge", "tiny",
]  # fmt: skip
DRAWN_AHEAD: tuple[Mode, ...] = ("fresh", "anew", "overwritten", "patched", "stressed", "mixed", "renumbered")
"""calls whose inputs and oracle may be computed while the previous call is being answered"""
TIMED: tuple[Mode, ...] = ("anew", "overwritten", "patched")
"""calls with new contents drawn as the task draws them: any of them may be the timed one"""
DEVICES: tuple[str, ...] = ("cuda",)
"""device that outputs must be on"""
PLAIN_TYPES = ("Tensor", "DeviceTensor", "Parameter")
HOW: dict[str, str] = {
    "fresh": "new tensors",
    "anew": "new tensors",
    "overwritten": "the same tensors with new contents",
    "patched": "equal but for a stretch in the middle",
    "stressed": "new tensors with large contents",
    "mixed": "new tensors with zeros, ties, denormals and outliers",
    "repeated": "new tensors with equal contents",
    "reweighted": "equal inputs, other weights",
    "renumbered": "equal tensors, other numbers",
    "huge": "new tensors with huge contents",
    "tiny": "new tensors with tiny contents",
}
VARIANT_OF: dict[Mode, Variant] = {
    "anew": "declared", "overwritten": "declared",  # these are timed: as the task draws it, and new in every place
    "stressed": "large", "mixed": "mixed", "huge": "huge", "tiny": "tiny",
}  # fmt: skip
NARROW = re.compile(r"(?<!b)(f16|float16)\b|f8E\d|float8")
"""formats of less range than fp32 and bf16 have, in a journal"""


@dataclass
class Checked:
    """One call and its result."""

    index: int
    mode: Mode
    case: ReferenceCall
    result: CallResult
    correctness: Correctness

    @property
    def timed(self) -> bool:
        """Whether the call may be the one that is timed."""
        return self.mode in TIMED and self.case.variant == "declared"

    @property
    def passed(self) -> bool:
        """Whether the outputs were right."""
        return self.correctness.passed_calls == self.correctness.checked_calls


def values_of(result: CallResult) -> list[RawOutput]:
    """Return the outputs in the form that the comparison takes."""
    return [raw_output(output) for output in result.outputs]


def raw_output(output: Output) -> RawOutput:
    """Return one output in the form that the comparison takes; a tensor without elements becomes :class:`Described`,
    and what is neither tensor nor number."""
    if output.value is None and output.python_type != "NoneType":
        return Described(output.shape, output.dtype, "Tensor" if output.device != "host" else output.python_type)
    return output.value


def forms_of(oracle: Oracle) -> list[Form | None]:
    """Shape and dtype that a session requests for each output; None for one that is not a tensor."""
    return [
        (tuple(out.declared.shape), out.declared.dtype) if out.python_type == "Tensor" else None
        for out in oracle.outputs
    ]


def bytes_of_outputs(oracle: Oracle) -> int:
    """Return the bytes that the outputs of a call take."""
    return sum(out.declared.numel() * out.declared.element_size() for out in oracle.outputs)


def plan_calls(checks: int, parts_of_weights: int, has_numbers: bool, seed: int) -> list[Mode]:
    """Modes of the calls after the first, in a secret order."""
    rng = random.Random(seed)
    modes: list[Mode] = ["overwritten", "patched"][: max(0, checks - 1)]  # type: ignore[assignment]
    while len(modes) < checks - 1:
        modes.append(rng.choice(("fresh", "overwritten", "patched")))
    modes += ["anew", "stressed", "mixed", "repeated"]
    modes += ["renumbered"] * has_numbers
    modes += ["repeated"] * (rng.random() < 0.25)
    rng.shuffle(modes)
    # the weights of every earlier call must be known to be right before they change
    return modes + ["reweighted"] * parts_of_weights


class Ahead:
    """Results computed ahead of time, by key, while the judge would otherwise wait for the candidate.

    They depend on seeds and places alone, never on the candidate's answers. An error is not stored: the work is tried
    again when the result is requested.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def make(self, key: Hashable, work: Callable[[], Any]) -> None:
        """Do the work now, and replace any earlier result."""
        self._made.clear()
        with contextlib.suppress(Exception):
            self._made[key] = work()

    def take(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return the result, computing it now if it is missing."""
        return self._made.pop(key) if key in self._made else work()


@dataclass
class Checker:
    """Runs checked calls until one fails."""

    side: ExpectedSide
    session: JobSession
    calls: list[Checked] = field(default_factory=list)
    began: int = 0
    """index of the first call of this session"""
    held: list[tuple[list[Any], CallResult]] = field(default_factory=list)
    """calls of this session whose arguments are still on the device, with their inputs"""
    findings: list[Finding] = field(default_factory=list)
    ahead: Ahead = field(default_factory=Ahead)

    @property
    def passed(self) -> bool:
        """Whether every call so far was right."""
        return bool(self.calls) and all(call.passed for call in self.calls)

    @property
    def correctness(self) -> Correctness:
        """The correctness of all calls so far, merged."""
        return merge([call.correctness for call in self.calls])

    def resume(self, session: JobSession) -> None:
        """Continue in another session, which knows nothing of the calls so far."""
        self.session, self.began, self.held = session, len(self.calls), []

    @property
    def narrow(self) -> bool:
        """Whether some call so far used a format of less range than the task's has."""
        records = [call.result.record.device for call in self.calls]
        journals = {record.journal for record in records if record is not None}
        return self.side.task.precision != "fp16" and any(map(NARROW.search, journals))

    def draws(self, *without: Mode) -> list[Oracle]:
        """Return the oracles of the calls so far but those of some modes."""
        return [call.case.oracle for call in self.calls if call.mode not in without]

    def slowest(self) -> float:
        """Wall seconds of the longest call so far."""
        return max((call.result.seconds for call in self.calls), default=0.0)

    def run(self, mode: Mode, then: Mode | None = None) -> bool:
        """Make one checked call; return False when it was wrong. The next call, ``then``, is prepared meanwhile."""
        index = len(self.calls)
        if mode == "reweighted":
            part = self.side.parts_of_weights[sum(call.mode == mode for call in self.calls)]
            self.side.reweight(part)
            self.side.hand_over(self.session, only=part)
        case = self.ahead.take((index, mode), lambda: self._case(index, mode, self._first))
        self.session.meanwhile(partial(self._prepare, index, self._first or case, then))
        poison: Literal["nan", "random"] = "random" if mode == "repeated" else "nan"
        arguments = self._arguments(mode, case)
        # calls whose oracle is not known yet (the knock-out) are bounded by this; sizes may depend on data
        self.session.most_output_bytes = SLACK_BYTES + 2 * bytes_of_outputs(case.oracle)
        schedule = Schedule(self.side.seeds("schedule", index), permuted=mode == "repeated")
        result = self.session.call(arguments, poison=poison, forms=forms_of(case.oracle), schedule=schedule)
        self.hold(case.inputs, result)
        checked = Checked(index, mode, case, result, self._compared(mode, case, result))
        self.calls.append(checked)
        self._check_device(checked)
        self._check_form(checked)
        for place, why in self.wrong_arguments(checked.case.oracle, checked.result):
            self.fail(checked, show.mutated_input(checked.index, self.side.name_of(place), why))
        if checked.passed:
            self._check_sharing(checked)
        if not checked.passed:
            self._diagnose(checked)
            if case.changed:
                self.findings.append(show.constants_changed(checked.index, case.changed))
        elif mode == "repeated":
            self._check_determinism(checked)
        elif index and case.oracle.again and bytes_of_outputs(case.oracle) > KEPT_BYTES:
            checked.case = replace(case, oracle=replace(case.oracle, outputs=()))
        return checked.passed

    def _compared(self, mode: Mode, case: ReferenceCall, result: CallResult) -> Correctness:
        """Compare the outputs; those of a repeated call that are the first's bit by bit are as right as they were."""
        if mode == "repeated" and case is self.calls[0].case:
            before, now = values_of(self.calls[0].result), values_of(result)
            if list(map(type, before)) == list(map(type, now)) and all(map(same_value, before, now)):
                return self.calls[0].correctness
        return compare(values_of(result), case.oracle, self.side.rule)

    def _prepare(self, index: int, first: ReferenceCall, then: Mode | None) -> None:
        """While the candidate works on call ``index``: price the previous call and draw the next."""
        record = self.calls[-1].result.record.device if self.calls else None
        if record is not None and self.calls[-1].timed:
            with contextlib.suppress(Exception):  # who asks for them later is told
                _ = record.launches
        if then is not None and then in DRAWN_AHEAD:
            self.ahead.make((index + 1, then), lambda: self._case(index + 1, then, first))

    @property
    def _first(self) -> ReferenceCall | None:
        return self.calls[0].case if self.calls else None

    def _case(self, index: int, mode: Mode, first: ReferenceCall | None) -> ReferenceCall:
        """Return the inputs and oracle of call ``index``; ``first`` is the first call's, if there was one."""
        if mode in ("repeated", "reweighted"):
            assert first is not None, "the first call is a fresh one"
            return first if mode == "repeated" else replace(first, oracle=self.side.instance.oracle(first.inputs))
        if mode in ("patched", "renumbered"):
            assert first is not None, "the first call is a fresh one"
            return (self.side.patched if mode == "patched" else self.side.renumbered)(index, first)
        return self.side.call(index, VARIANT_OF.get(mode) or pick_variant(self.side.seeds("variant"), index))

    def _arguments(self, mode: Mode, case: ReferenceCall) -> list[Any]:
        """Return the call's arguments: new tensors, or an earlier call's own with new contents written into them."""
        rng = random.Random(self.side.seeds("arguments", len(self.calls)))
        if mode == "overwritten" or (mode == "stressed" and rng.random() < 0.5):
            return self.in_earlier_tensors(case.inputs, rng)
        return arguments_of(case.inputs)

    def in_earlier_tensors(self, inputs: list[Any], rng: random.Random) -> list[Any]:
        """``inputs`` written into the tensors of an earlier call of this session, by handle; new ones if none fits."""
        fitting = [result for theirs, result in self.held if _same_form(inputs, theirs)]
        if not fitting:
            return arguments_of(inputs)
        before = rng.choice(fitting).arguments
        for handle, value in zip(tree_leaves(before), tree_leaves(inputs), strict=True):
            if isinstance(handle, int):
                self.session.write(handle, value)
        return [
            tree_map(lambda handle, value: handle if isinstance(handle, int) else Plain(value), *pair)
            for pair in zip(before, inputs, strict=True)
        ]

    def hold(self, inputs: list[Any], result: CallResult) -> None:
        """Keep a call's arguments, and release those of another that is drawn where that is one too many. Outputs stay:
        they must never change."""
        self.held.append((inputs, result))
        if len(self.held) > HELD:
            _, gone = self.held.pop(random.Random(self.side.seeds("hold", len(self.calls))).randrange(HELD))
            results = [result, gone, *(call.result for call in self.calls[self.began :])]
            returned = {output.handle for one in results for output in one.outputs}
            kept = {leaf for _, one in self.held for leaf in tree_leaves(one.arguments)} | returned
            self.session.release(leaf for leaf in tree_leaves(gone.arguments) if type(leaf) is int and leaf not in kept)

    # ---- what else a call must satisfy

    def fail(self, checked: Checked, finding: Finding) -> None:
        """Fail a call whose values were right, for another reason."""
        self.findings.append(finding)
        checked.correctness = checked.correctness.model_copy(update={"passed_calls": 0, "message": finding.message})

    def _check_device(self, checked: Checked) -> None:
        """Require that there was no illegal access (a candidate may have swallowed the error), and no race: on a GPU
        the result would depend on luck."""
        record = checked.result.record.device
        if record is None:
            if overrun := checked.result.record.overrun:
                self.fail(checked, show.overrun(checked.index, overrun))
            return
        if record.fault is not None:
            detail = CandidateError(type="DeviceFault", message=f"a fault of the device was hidden: {record.fault}")
            raise SessionError("runtime_error", detail, record)
        races = [finding for finding in record.findings if finding.kind == "race" and finding.severity == "error"]
        if races:
            message = f"the result depends on which program comes first: {races[0].message}"
            checked.correctness = checked.correctness.model_copy(update={"passed_calls": 0, "message": message})

    def _check_form(self, checked: Checked) -> None:
        """Require that outputs are plain tensors on the device."""
        for place, output in enumerate(checked.result.outputs):
            if output.device == "host":  # a number
                continue
            if not output.device.startswith(DEVICES):
                self.fail(checked, show.host_result(place, output.device))
            elif output.python_type not in PLAIN_TYPES:
                self.fail(checked, show.wrapped_output(place, output.python_type))

    def wrong_arguments(self, oracle: Oracle, result: CallResult) -> Iterator[tuple[int, str | None]]:
        """Arguments that are neither unchanged nor changed as the reference changes them, and how those should be."""
        mutated = set(result.record.mutated)
        for place, argument in enumerate(result.arguments):
            expected = oracle.mutated.get(place)
            if expected is None:
                if mutated & {leaf for leaf in tree_leaves(argument) if isinstance(leaf, int)}:
                    yield place, None
                continue
            # a reference that works in place and returns its argument may be answered with a new tensor
            returned = any(share[1:] == ("input", place) for share in oracle.shared)
            if returned and argument not in mutated:
                continue
            after = compare([self.session.read(argument)], replace(expected, mixed=oracle.mixed), self.side.rule)
            if not after.passed_calls:
                yield place, after.message

    def _check_sharing(self, checked: Checked) -> None:
        """Require that outputs have memory of their own, unless the reference's do not."""
        inputs = {place: self.session.region(h) for place, h in enumerate(checked.result.arguments) if type(h) is int}
        known = {place: region for place, region in inputs.items() if region is not None}
        for output, kind, other in sorted(shared([_region(out) for out in checked.result.outputs], known)):
            if (output, kind, other) not in checked.case.oracle.shared:
                what = {"itself": "itself", "output": f"output {other}", "input": f"input {self.side.name_of(other)}"}
                self.fail(checked, show.shared_output(checked.index, output, what[kind]))
                return

    def check_held_outputs(self) -> None:
        """Require that outputs of earlier calls still hold what they held when they were returned."""
        changed = set(self.session.changed())
        for checked in self.calls[self.began :]:
            # where the reference returns a view of an argument, the judge's own overwriting shows in it
            views = {place for place, kind, _ in checked.case.oracle.shared if kind == "input"}
            for place, output in enumerate(checked.result.outputs):
                if output.handle in changed and place not in views:
                    self.fail(checked, show.aliased_output(checked.index, place))
                    return

    def _check_determinism(self, checked: Checked) -> None:
        pairs = list(zip(self.calls[0].result.outputs, checked.result.outputs, strict=True))
        shares = [share for a, b in pairs if (share := _differing_share(a, b)) > 0]
        if shares and not any(finding.kind == "nondeterministic" for finding in self.findings):
            self.findings.append(show.nondeterministic(max(shares)))

    # ---- why a call was wrong

    def _diagnose(self, checked: Checked) -> None:
        """Name the cause of a wrong answer if an experiment shows it."""
        if any(output.value is None for output in checked.result.outputs):
            return
        if checked.mode in ("huge", "tiny"):
            self.findings.append(show.narrow_range(checked.index, self.side.task.precision, checked.mode))
            return
        values = values_of(checked.result)
        by_number = Schedule(self.side.seeds("schedule by number", checked.index))
        if checked.mode == "repeated" and self._is_right(checked, schedule=by_number):
            self.findings.append(show.order_dependent(checked.index))
            return
        for earlier in self.calls[:-1]:
            if checked.mode == "renumbered" or earlier.case.inputs is checked.case.inputs or not earlier.passed:
                continue
            # where answers hardly depend on inputs, a wrong one may pass for an earlier call's without its numbers
            told = max(map(_differing_share, earlier.result.outputs, checked.result.outputs), default=0.0) < MOST_NEW
            if told and compare(values, earlier.case.oracle.whole(), self.side.rule).passed_calls:
                self.findings.append(show.stale_output(checked.index, earlier.index, HOW[checked.mode]))
                return
        if checked.mode == "reweighted":  # the same inputs gave the right answer before: only the weights are new
            self.findings.append(show.stale_weights(checked.index, built=False))
            return
        if self.side.has_weights and self._has_built_weights(checked):
            self.findings.append(show.stale_weights(checked.index, built=True))
            return
        self._diagnose_precision(checked)

    def _is_right(self, checked: Checked, **how: Any) -> bool:
        """Return whether the answer is right in another call on the same inputs, made in this way."""
        try:
            result = self.session.call(arguments_of(checked.case.inputs), poison="random", **how)
        except CandidateFailed:
            return False
        return bool(compare(values_of(result), checked.case.oracle, self.side.rule).passed_calls)

    def _has_built_weights(self, checked: Checked) -> bool:
        """Return whether the answer is right for the weights that the constructor made."""
        built = self.side.problem.instance(self.side.build_seed, randomize=False)
        oracle = built.oracle(checked.case.inputs)
        return bool(compare(values_of(checked.result), oracle, self.side.rule).passed_calls)

    def _diagnose_precision(self, checked: Checked) -> None:
        values, wrong = values_of(checked.result), checked.correctness
        if wrong.message is not None and wrong.mismatch is None and not wrong.only_inaccurate:
            return  # count, shape or dtype
        worst = precision_class(values, checked.case.oracle, self.side.rule).worst
        if worst is None or worst.passed or not all(is_finite(x) for x in values if isinstance(x, torch.Tensor)):
            return
        few = wrong.mismatch is not None and wrong.mismatch.wrong_fraction < MIN_ROUNDED_SHARE
        looks_like = worst.looks_like if worst.error <= MAX_ROUNDING_ERROR and not few else None
        declared, products = self.side.task.precision, self.side.has_dot
        if declared == "fp32" and products and "disturb" in self.session.observes:
            looks_like = "tf32" if self._is_right(checked, interference="full_products") else looks_like
        if looks_like is not None:
            found = show.precision_downgrade(declared, looks_like, worst.error, worst.limit, products)
            self.findings.append(found)


HELD = 2
"""calls whose arguments stay on the device, beside the one that is being made"""
SLACK_BYTES = 1 << 20
KEPT_BYTES = 4 << 20
"""answers beyond this are many times as large with their oracle, which is worked out once more for who asks"""
MIN_ROUNDED_SHARE = 0.02
"""Rounding affects many elements; a bug may affect one."""
MOST_NEW = 0.5
"""A replay has the bits of what was returned before; the same sums in another order have most of them."""
MAX_ROUNDING_ERROR = 0.03
"""A scaled error above this is a wrong answer rather than a coarse one (bf16 rounds to 2^-9)."""


def arguments_of(inputs: list[Any]) -> list[Any]:
    """``inputs`` as :meth:`JobSession.call` takes them: each tensor becomes a new one on the device."""
    return [tree_map(lambda leaf: leaf if isinstance(leaf, torch.Tensor) else Plain(leaf), item) for item in inputs]


def _region(output: Output) -> TensorMemory | None:
    if output.storage is None or output.address is None or output.dtype is None:
        return None
    return TensorMemory(output.storage, output.address, output.shape, output.stride, output.dtype.itemsize)


def _same_form(left: list[Any], right: list[Any]) -> bool:
    pairs = list(zip(tree_leaves(left), tree_leaves(right), strict=False))
    return len(tree_leaves(left)) == len(tree_leaves(right)) and all(
        isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor)
        and (not isinstance(a, torch.Tensor) or (a.shape == b.shape and a.dtype == b.dtype))
        for a, b in pairs
    )


def _differing_share(left: Output, right: Output) -> float:
    if not isinstance(left.value, torch.Tensor) or not isinstance(right.value, torch.Tensor):
        return float(left.value != right.value)
    if same_value(left.value, right.value) or left.value.shape != right.value.shape or not left.value.numel():
        return 0.0
    return float((left.value != right.value).double().mean())


SEED = 42
TOLERANCE = 1e-2


def naive_check(side: ExpectedSide, session: JobSession, calls: int) -> tuple[Correctness, CallResult]:
    """Compare ``calls`` calls on one fixed set of inputs; return the result and the last call's answer."""
    inputs = side.reference.draw_inputs(SEED)
    expected = side.instance.run(inputs)
    passed = 0
    for _ in range(calls):
        result = session.call(arguments_of(inputs))
        passed += naive_match(values_of(result), expected)
    return Correctness(checked_calls=calls, passed_calls=passed), result


def naive_match(actual: list[RawOutput], expected: list[RawOutput]) -> bool:
    """``torch.allclose`` at 1e-2 on the outputs that both sides have."""
    return bool(actual) and all(_close(got, want) for got, want in zip(actual, expected, strict=False))


def _close(got: RawOutput, want: RawOutput) -> bool:
    if got is None or want is None:
        return got is want
    if isinstance(got, Described) or isinstance(want, Described):
        return False
    try:
        left, right = torch.broadcast_tensors(torch.as_tensor(got).double(), torch.as_tensor(want).double())
    except RuntimeError:
        return False
    return torch.allclose(left, right, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
