"""The sizes at which a candidate is checked and timed, and its run at the task's own, without data.

Correctness needs data and runs at sizes that can be executed; time needs none and is modelled at the task's own sizes.
The runner builds a second module at those sizes, which is called several times: nothing of their size is allocated,
neither here nor there. A device without data counts what the calls do, and this process prices it, as it does for
checked calls, if they did nothing that was not right in a call with data.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checked, Checker, Mode, arguments_of
from drkernel.gym.judge.contribution import device_records, idle_launches, timed_calls
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.held_against import AGREEING, Exercise, OwnCall, differences, goes_as_far, unclear, unexercised
from drkernel.gym.judge.memory import TaskTooLarge, needed_bytes, shown, too_large
from drkernel.gym.judge.modelled_timing import (
    Forms,
    ReferenceWork,
    bytes_among,
    forms_of,
    reference_profile_at,
    reference_work,
)
from drkernel.gym.judge.seen import Place, Seen, Signature, seen
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.base import JobSession, OpensSessions
from drkernel.gym.session.protocol import CallResult, Choice, LoadResult, Output, SessionError
from drkernel.sim.process.control_socket import CallRecord, Form
from drkernel.task import Task, TaskError, sized_reference
from drkernel.tasks.axes import BLOCK, DIVIDED, GROUPED, TOGETHER, WHOLE, size_literals
from drkernel.tasks.cost import ScaleLimits, estimate
from drkernel.tasks.reference import load_reference
from drkernel.tasks.thin import of_one_piece, own_source, thin_sizing, thin_sizings, with_all_steps
from drkernel.verdict import Finding, Profile, Sizes, Verdict

ORACLES = 10
"""about as many oracles are worked out in an evaluation, and their inputs and the answers kept"""
HELD_ORACLES = 3
"""the first, the present and the next, each eight times its answer"""
FLOPS_A_SECOND, BYTES_A_SECOND = 1.2e10, 1e8
"""of one oracle, by a processor: of KernelBench's first ten problems within a factor of two"""
LARGER, PIECES = 8, 2
"""how many times the limits whole blocks, or what smaller sizes leave open, may take; how many axes are tried whole"""
ELSEWHERE = {"no_custom_kernel", "copy_kernel", "decoy_kernel"}
"""findings on a candidate that may leave other sizes than its own to PyTorch"""
EXERCISED = ScaleLimits(bytes=2 << 20, flops=4e7)
"""limits of a call that only shows that a kernel is correct"""
AS_MUCH, DRAWS, DRAWN_BYTES = 0.9, 32, 256 << 20
"""the share of what the timed call's lengths ask for that is about as much; how many draws, and bytes, are looked at"""
DEALT = 10
"""slices of which each treatment of a mixed input is given to one"""
MOST_TIMES = 32
"""how far a module's own numbers may exceed the limit on operations; more would take minutes to check"""


@dataclass(frozen=True)
class Chosen:
    """A reference at the sizes chosen for a run."""

    source: str
    changed: dict[str, tuple[int, int]]
    """constant -> (the task's own, used here)"""
    profile: str | None
    kept_rows: bool
    """only axes of independent work are shorter than the task's own"""

    @property
    def sizes(self) -> Sizes:
        """The record for the verdict."""
        return Sizes(profile=self.profile, changed=self.changed, inputs=forms_of(self.source).words)


def chosen_to_check(request: EvalRequest) -> Chosen:
    """The sizes at which answers are compared. A problem with the requested profile is a :class:`TaskError`."""
    task, settings = request.task, request.settings
    if settings.profile is not None or not (settings.place.simulated or settings.time_at == "own"):
        try:
            source = sized_reference(task, settings.profile)
            return Chosen(source, changed_between(own_source(task), source), settings.profile, False)
        except (KeyError, ValueError, SyntaxError) as error:
            raise TaskError(str(error.args[0] if error.args else error)) from error
    limits = ScaleLimits(bytes=settings.checked_bytes, flops=settings.checked_flops)
    try:
        sizing = thin_sizing(task, limits)
    except TaskError:  # it does not run on shapes alone: what is wrong with it comes out when it is run for real
        return Chosen(own_source(task), {}, None, True)
    if sizing.cost.flops > MOST_TIMES * limits.flops:
        raise TaskTooLarge(
            f"one call takes {sizing.cost.flops / 1e9:.3g} GFLOP where nothing that matters can be shortened any more, "
            f"and a checked call may take {limits.flops / 1e9:.3g} or, in such a case, {MOST_TIMES} times that. "
            "Give the task a size profile, shrink the numbers in the reference's module, or raise 'checked_flops'"
        )
    return Chosen(sizing.source, sizing.changed, None, sizing.kept_rows)


def with_other_sizes(
    verdict: Verdict, request: EvalRequest, evaluate: Callable[[EvalRequest, bool], Verdict], budget: int
) -> Verdict:
    """The verdict; of an answer that fails where sizes were shortened, that at other sizes, if it is right there.

    They are those at which one size of several axes stays equal (``N x N`` matrices may be taken for square), those
    with one axis whole (its length may be written into a kernel), larger ones of whole blocks (masks may be left out),
    then the task's own, with data (any may be written into it), where the task declares no others and that is expected
    to take no more than the settings' seconds and ``budget`` bytes. There, too, time is modelled without data, but for
    work that depends on data, which is also tried for their sake. What is inaccurate stays so: means over more hide it.
    """
    if verdict.correctness is not None and verdict.correctness.only_inaccurate:
        return verdict
    task, settings, at = request.task, request.settings, verdict.checked_at
    changed = at.changed if at is not None and at.profile is None and task.shapes != "free" else {}
    pieces = of_one_piece(task, changed)[:PIECES] if changed and settings.own_seconds else ()
    whole = [(WHOLE + label, f"{label} is whole") for label in pieces]
    marks = ((TOGETHER, "equal sizes are equal"), *whole, (GROUPED, "sizes are whole blocks"))
    for mark, where in marks if verdict.status in ("incorrect", "runtime_error") else ():
        if (other := _at_other_sizes(request, mark, changed)) is not None:
            second = evaluate(other, False)
            if second.is_correct:
                return _instead(second, verdict, task, f"Right only where the task's {where}")
            verdict = verdict.model_copy(update={"seconds": verdict.seconds + second.seconds})
    fixed = not task.profiles and settings.profile is None and task.shapes != "free" and settings.place.simulated
    fixed &= verdict.status != "compile_error" or "checks" in verdict.phases  # who does not load here loads nowhere
    if not (fixed and settings.own_seconds and _lacks_credit(verdict, request.candidate)) or settings.unsafe_no_checks:
        return verdict
    own = own_source(task)
    if chosen_to_check(request).source == own:
        return verdict
    if (why := _beyond(request, own, budget)) is None:
        cost = estimate(load_reference(own))
        limits = {"checked_bytes": cost.bytes, "checked_flops": max(1.0, cost.flops), "own_seconds": 0.0}
        limits["deadline_s"] = settings.deadline_s + settings.own_seconds
        there = {"task": task.model_copy(update={"shapes": "fixed"}), "settings": settings.model_copy(update=limits)}
        second = evaluate(request.model_copy(update=there), not verdict.untimed)  # else the checked calls are timed
        if second.is_correct and (second.speedup is not None or not verdict.is_correct):
            return _instead(second, verdict, task, "Right at the task's own sizes, with data, and not at others")
        verdict = verdict.model_copy(update={"seconds": verdict.seconds + second.seconds})
        if second.status in ("correct", "incorrect", "runtime_error", "compile_error", "hack"):
            return verdict
        why = f"it ended with {second.status}: {second.error.message if second.error else ''}"
    return verdict.model_copy(update={"findings": (*verdict.findings, show.own_sizes_unchecked(why))})


def _at_other_sizes(request: EvalRequest, mark: str, changed: Mapping[str, tuple[int, int]]) -> EvalRequest | None:
    """The request at sizes with a mark of ``axes.py``; None where ``changed`` ones are no worse, or time is short.

    Of whole blocks none is shorter than it was: what was wrong with a longer axis stays wrong.
    """
    task = request.task.model_copy(update={"reference": f"{request.task.reference.rstrip()}\n{mark}\n"})
    if mark == TOGETHER:
        literals = [one for one in size_literals(own_source(request.task)) if one.value >= BLOCK]  # else seldom axes
        pairs = {changed.get(one.label, (one.value, one.value)) for one in literals}
        apart = any(".shape[" in label for label in changed) or len(pairs) > len({size for size, _ in pairs})
        return request.model_copy(update={"task": task}) if apart else None
    settings = request.settings
    if not changed or not settings.own_seconds:
        return None
    times, more = (1, 1) if mark.startswith(WHOLE) else (LARGER, 2 * LARGER)
    limits = ScaleLimits(bytes=times * settings.checked_bytes, flops=more * settings.checked_flops)
    sizing = thin_sizing(task, limits)
    shorter = times > 1 and any(used < changed.get(k, (own, own))[1] for k, (own, used) in sizing.changed.items())
    terms = {"checked_bytes": limits.bytes, "checked_flops": limits.flops}
    settings = settings.model_copy(update={**terms, "deadline_s": settings.deadline_s + settings.own_seconds})
    fits = sizing.changed and sizing.changed != changed and sizing.cost.over(limits) <= 1 and not shorter
    if mark == GROUPED and not fits:
        return _at_other_sizes(request, DIVIDED, changed)
    return request.model_copy(update={"task": task, "settings": settings}) if fits else None


def _instead(second: Verdict, first: Verdict, task: Task, right: str) -> Verdict:
    """The verdict at other sizes, with a note of what the answer was at the first ones."""
    at = first.checked_at.words if first.checked_at is not None else "smaller sizes"
    said = (first.correctness and first.correctness.message) or (first.error and first.error.message) or ""
    how = "without credit" if first.is_correct else f"{first.status}: {said.partition(chr(10))[0][:300]}"
    note = show.hard_coded_shape(f"{right}; at {at} {how}")
    found = second.findings if task.shapes == "fixed" or first.untimed else (*second.findings, note)
    return second.model_copy(update={"findings": found, "seconds": first.seconds + second.seconds})


def _lacks_credit(verdict: Verdict, candidate: str) -> bool:
    """Whether an answer failed, or got no credit, for what may be so at the checked sizes alone."""
    if verdict.is_hack:
        found = {finding.kind for finding in verdict.findings if finding.severity == "hack"}
        return found <= ELSEWHERE and "jit" in candidate  # a text without a kernel need not be tried
    if verdict.is_correct:
        return any(finding.kind in ("size_dependent", "data_dependent") for finding in verdict.findings)
    return verdict.status in ("incorrect", "runtime_error", "compile_error")


def _beyond(request: EvalRequest, own: str, budget: int) -> str | None:
    """Why checking the reference ``own`` with data is beyond the settings' seconds or ``budget`` bytes, if it is."""
    reference, most = load_reference(own), request.settings.own_seconds
    try:
        cost, work = estimate(reference), reference_work(reference)
    except TaskError as error:
        return str(error)
    seconds = ORACLES * (cost.flops / FLOPS_A_SECOND + cost.bytes / BYTES_A_SECOND)
    if seconds > most:
        return f"that would take about {seconds:.0f} seconds, and may take {most:g} (--budget, 'own_seconds')"
    held = ORACLES * (work.input_bytes + work.output_bytes) + HELD_ORACLES * 8 * work.output_bytes
    needed = needed_bytes(own) + held
    return too_large(f"needs about {shown(needed)} of memory to judge", budget) if needed > budget else None


def chosen_to_time(request: EvalRequest, checked: Chosen, again: bool) -> Chosen | None:
    """The sizes that are timed, without data on a simulated device; None when the checked sizes are, with their data:
    those that are the task's own, unless ``again``."""
    task, settings = request.task, request.settings
    if not settings.timing or settings.unsafe_no_checks or settings.time_at == "checked":
        return None
    own = own_source(task)
    if own == checked.source and not again:
        return None
    return Chosen(own, {}, "full" if "full" in task.profiles else None, True)


def sizings_to_exercise(
    request: EvalRequest, besides: str, larger: bool = False, all_steps: bool = False
) -> list[Chosen]:
    """Sizes at which kernels seen at another size may be launched and compared, the best first; ``larger``: beyond
    those that are checked, where memory is enough; ``all_steps``: one with as many as the reference's own."""
    settings, times, task = request.settings, LARGER if larger else 1, request.task
    usual = ScaleLimits(bytes=settings.checked_bytes, flops=settings.checked_flops)
    more = MOST_TIMES if larger and all_steps else times
    most = ScaleLimits(bytes=times * settings.checked_bytes, flops=more * settings.checked_flops)
    try:
        sizings = with_all_steps(task, usual, most) if all_steps else thin_sizings(task, most if larger else EXERCISED)
    except TaskError:
        return []
    fitting = [one for one in sizings if one.source != besides and one.cost.over(most) <= 1]
    fitting = [one for one in fitting if not larger or needed_bytes(one.source) <= settings.memory_bytes]
    return [Chosen(one.source, one.changed, None, one.kept_rows) for one in fitting]


def changed_between(own: str, used: str) -> dict[str, tuple[int, int]]:
    """Sizes that differ between two texts of one reference: label -> (own, used)."""
    if own == used:
        return {}
    there = {literal.label: literal.value for literal in size_literals(used)}
    pairs = {literal.label: (literal.value, there.get(literal.label, 1)) for literal in size_literals(own)}
    return {label: pair for label, pair in pairs.items() if pair[0] != pair[1]}


TIMED_CALLS = 3
"""timed calls, after a first one that compiles and tunes"""
AGAIN = 2
"""the call that reuses the tensors of the previous one, whose contents count as new"""
BUILT_HERE = 4 << 20
"""up to this many bytes of weights, the candidate's constructor builds them on the host, as when it was checked"""
NOT_ITS_FAULT = ("DependsOnData", "UnsupportedOp", "OverBudget")
"""errors that are limits of a device without data itself"""
UNKNOWN_FORM: Form = ((-1,), torch.bool)


class Untimed(Exception):
    """The task's own sizes cannot be timed, whatever the candidate does; ``str`` says why, as part of a sentence."""


class DataDependent(Exception):
    """The task can be timed at its own sizes, but the candidate's work there depends on data; ``str`` says how.

    The time at the checked sizes must not stand in for it: a launch is all there is to save at those small sizes, and a
    candidate that prefers them would only have to look at an element of an input.
    """


class FailedThere(Exception):
    """The candidate does not run at the task's own sizes; ``str`` says how."""


@dataclass(frozen=True)
class OwnRun:
    """The results of the calls at the task's own sizes."""

    records: list[CallRecord]
    """records of the timed calls"""
    calls: list[OwnCall]
    """the same calls, to be compared with the checked ones"""
    reference: Profile
    forms_differ: str | None
    """how outputs or weights differ in form from the reference's; None where they do not"""


def run_at_own_sizes(
    request: EvalRequest, own: Chosen, side: ExpectedSide, checker: Checker, factory: OpensSessions
) -> OwnRun:
    """Build and call the candidate at its task's own sizes: in the process in which it was checked, and where it fails
    there, as what it keeps may be in its way, in a fresh one.

    Raises :class:`Untimed`, :class:`DataDependent`, :class:`FailedThere`, and :class:`SessionError` when the machinery
    fails.
    """
    reference = load_reference(own.source)
    spec = request.settings.place.spec
    assert spec is not None, "only a simulated GPU models time"
    try:
        forms, work = forms_of(own.source), reference_work(reference)
        profile = reference_profile_at(spec, reference, conv_tf32=side.conv_tf32)
        init_args, init_kwargs = reference.draw_init(side.build_seed)
    except TaskError as error:
        raise Untimed(str(error)) from error
    given = bytes_among([init_args, init_kwargs])
    if given > request.settings.checked_bytes:
        raise Untimed(f"arguments of the constructor take {given} bytes, which would have to be handed over")
    reads = max(call.result.record.device.host_reads for call in checker.calls if call.result.record.device)

    def run_in(session: JobSession) -> OwnRun:
        loaded = session.load(
            request.candidate, init_args, init_kwargs, seed=side.build_seed, conv_tf32=side.conv_tf32,
            built_there=work.weight_bytes > BUILT_HERE,
        )  # fmt: skip
        state = session.state({name: UNKNOWN_FORM for name in loaded.parameters})
        run = _Calls(session, list(forms.inputs), work, weight_places(state), reads)
        calls = run.timed()
        differ = _forms_differ(forms, side.pairs, state, run.outputs)
        return OwnRun([record for record, _ in calls], [call for _, call in calls], profile, differ)

    if not checker.session.over:
        with suppress(FailedThere), _explained(), checker.session.without_data():
            return run_in(checker.session)
    with _explained(), factory.open(request.settings) as session, session.without_data():
        return run_in(session)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an error of the session that is the candidate's into :class:`DataDependent` or :class:`FailedThere`."""
    try:
        yield
    except SessionError as error:
        if error.kind == "infra_error":
            raise
        detail = error.detail
        missed = [dependence.message for dependence in error.record.dependences] if error.record is not None else []
        if detail.type in NOT_ITS_FAULT or missed:
            raise DataDependent("; ".join(missed[:3]) or detail.message.splitlines()[0]) from error
        raise FailedThere(f"{detail.type}: {(detail.message.splitlines() or [''])[0][:300]}") from error


@dataclass
class _Calls:
    """Calls of one session."""

    session: JobSession
    inputs: list[Any]
    work: ReferenceWork
    weights: dict[str, Place]
    host_reads: int
    outputs: list[Output] = field(default_factory=list)
    """result of the last call"""

    def timed(self) -> list[tuple[CallRecord, OwnCall]]:
        """Every call but the first, which compiles and tunes."""
        arguments: list[Any] = []
        found = []
        for number in range(TIMED_CALLS + 1):
            result = self.session.call(arguments if number == AGAIN else arguments_of(self.inputs))
            record = result.record.device
            assert record is not None, "a simulated device is the judge's own"
            self._require_no_dependence(record, result.arguments)
            if number:
                found.append((record, self._facts(result, record)))
            arguments, self.outputs = result.arguments, result.outputs
            mine = {leaf for leaf in tree_leaves(arguments) if isinstance(leaf, int)}
            done = {out.handle for out in result.outputs if out.handle is not None} | mine
            self.session.release(sorted(done - mine if number + 1 == AGAIN else done))
        return found

    def _require_no_dependence(self, record: CallRecord, arguments: Sequence[Any]) -> None:
        missed = record.dependences
        if not missed:
            return
        if {one.storage for one in missed} <= self._numbers_missing(arguments):
            raise Untimed("; ".join(one.message for one in missed[:3]))
        asked = [one for one in missed if one.kind != "steering"]
        if asked and not self.host_reads:
            raise FailedThere(f"{asked[0].message}; where it was checked it asked for nothing")
        raise DataDependent("; ".join(one.message for one in missed[:3]))

    def _numbers_missing(self, arguments: Sequence[Any]) -> set[int]:
        """Where integer inputs (indices, lengths) are that are too large to be handed over with their elements."""
        pairs = zip(tree_leaves(list(arguments)), tree_leaves(self.inputs), strict=True)
        meta = [(handle, leaf) for handle, leaf in pairs if isinstance(leaf, torch.Tensor) and leaf.is_meta]
        whole = [handle for handle, leaf in meta if not (leaf.is_floating_point() or leaf.is_complex())]
        return {region.storage for region in map(self.session.region, whole) if region is not None}

    def _facts(self, result: CallResult, record: CallRecord) -> OwnCall:
        places = {**places_of(self.session, result.arguments), **self.weights}
        found = seen(record, places)
        if found is None:
            raise DataDependent("it gives the device more commands in a call than are looked at")
        by_storage = {place.storage: name for name, place in places.items()}
        borrowed = tuple(by_storage.get(out.storage) if out.storage is not None else None for out in result.outputs)
        specs = iter(record.outputs)
        described = [next(specs) if out.handle is not None else None for out in result.outputs]
        covered = tuple(None if spec is None else spec.covered for spec in described)
        return OwnCall(found, self.work, covered, borrowed)


def places_of(session: JobSession, arguments: Sequence[Any]) -> dict[str, Place]:
    """Addresses of a call's arguments, by their place in words."""
    found = {}
    for number, leaf in enumerate(tree_leaves(list(arguments))):
        region = session.region(leaf) if isinstance(leaf, int) and not isinstance(leaf, bool) else None
        if region is not None:
            found[f"input {number}"] = Place(region.storage, torch.Size(region.shape).numel() * region.itemsize)
    return found


def weight_places(state: Mapping[str, Output]) -> dict[str, Place]:
    """Addresses of parameters and buffers."""
    return {
        f"weight {name}": Place(output.storage, torch.Size(output.shape).numel() * output.dtype.itemsize)
        for name, output in state.items()
        if output.storage is not None and output.dtype is not None
    }


def _forms_differ(
    forms: Forms, pairs: Mapping[str, str], state: Mapping[str, Output], outputs: Sequence[Output]
) -> str | None:
    """How outputs or weights differ from the reference's in number, shape or dtype."""
    for theirs, mine in pairs.items():
        shape = state[theirs].shape if theirs in state else None
        if mine in forms.state and (shape is None or math.prod(shape) != math.prod(forms.state[mine][0])):
            return f"{theirs} has shape {list(shape or ())}, the reference's {list(forms.state[mine][0])}"
    if forms.outputs is None:
        return None
    found = [(out.shape, out.dtype) if out.dtype is not None else None for out in outputs]
    if len(found) != len(forms.outputs):
        return f"{len(found)} outputs, the reference gives {len(forms.outputs)}"
    for place, (form, wanted) in enumerate(zip(found, forms.outputs, strict=True)):
        if form != wanted:
            return f"output {place} is {_words(form)}, the reference's {_words(wanted)}"
        if outputs[place].handle is None and wanted is not None:
            return f"output {place} is not on the device"
    return None


def _words(form: Form | None) -> str:
    return "no tensor" if form is None else f"{str(form[1]).removeprefix('torch.')}{list(form[0])}"


@dataclass
class OwnTiming:
    """A candidate that was correct when checked and is about to be timed at its task's own sizes."""

    request: EvalRequest
    checked: Chosen
    own: Chosen
    side: ExpectedSide
    checker: Checker
    weights: dict[str, Place]
    """addresses of the weights in the checker's latest session"""
    factory: OpensSessions
    findings: list[Finding] = field(default_factory=list)
    wrong: list[Chosen] = field(default_factory=list)
    """sizes at which it is wrong, though rows are whole or all steps are taken"""
    idle: dict[int, str] = field(default_factory=dict)
    """launches, by place where it was checked, that no answer has needed so far"""
    calls: list[OwnCall] = field(default_factory=list)
    """the timed calls, each once"""

    def run(self) -> OwnRun | None:
        """The timed calls, with mismatches in :attr:`findings`; None when the candidate does not run there.

        Raises :class:`Untimed` when the task cannot be timed without data, :class:`DataDependent` when only the
        candidate cannot.
        """
        checker = self.checker
        timed = timed_calls([call for call in checker.calls[checker.began :] if call.passed])
        exercises = self._right(timed, checker.session, self.weights, self.checked)
        try:
            run = run_at_own_sizes(self.request, self.own, self.side, checker, self.factory)
        except FailedThere as error:
            self.findings.append(show.size_dependent([f"it does not run there: {error}"], [], []))
            return None
        self.calls = calls = [call for n, call in enumerate(run.calls) if call not in run.calls[:n]]
        exercises += self._further(calls, exercises)
        said = [run.forms_differ] if run.forms_differ is not None else []
        for record in run.records:
            if not any(launch.reaches for launch in record.launches):
                said.append("no kernel of the candidate's own contributes to its outputs")
        for call in calls:
            said += differences(call, exercises, self._views())
        if self.wrong and not any(one.kept_rows for one in exercises):
            said = [f"wrong at {self.wrong[0].sizes.words}", *said]
        if said:
            nearest = exercises[-1].seen.words if exercises else []
            self.findings.append(show.size_dependent(list(dict.fromkeys(said)), calls[0].seen.words, nearest))
        return run

    def _views(self) -> frozenset[int]:
        """Outputs that the reference returns as views of its arguments."""
        return frozenset(place for place, kind, _ in self.checker.calls[0].case.oracle.shared if kind == "input")

    # ---- calls that were right

    def _further(self, calls: Sequence[OwnCall], known: list[Exercise]) -> list[Exercise]:
        """Calls at other sizes, until all that the timed calls did has been right in one whose loops ran as often; in
        one with whole rows, where another such was wrong. Before, calls of all the reference's steps."""
        wanted = [one.choice for call in calls for one in call.seen.launched.values()]
        preferred = list({repr(choice): choice for choice in wanted}.values())
        deep: list[Exercise] = []
        for larger in (False, True):
            known_there = deep and all(call.seen.signatures <= deep[-1].seen.signatures for call in calls)
            if larger and (self.wrong or known_there):
                break
            for steps in sizings_to_exercise(self.request, self.checked.source, larger, all_steps=True):
                deep += [replace(one, all_steps=True) for one in self._exercise(steps, preferred, ("mixed",))]
        known = [*known, *deep]
        found: list[Exercise] = []
        sizings = self._sizings(calls, known, found)
        while not self.findings:
            right = not any(differences(call, known + found, self._views(), left=AGREEING) for call in calls)
            far = all(any(goes_as_far(call.seen, one) for one in known + found) for call in calls)
            whole = not self.wrong or any(one.kept_rows for one in known + found)
            if (right and far and whole and not self.idle) or (chosen := next(sizings, None)) is None:
                break
            if right and not chosen.kept_rows:
                continue
            found += self._exercise(chosen, preferred)
        return deep + found

    def _sizings(self, calls: Sequence[OwnCall], known: list[Exercise], found: list[Exercise]) -> Iterator[Chosen]:
        """The checked sizes, if a tuner chose otherwise there; then sizes that keep one axis or another; larger ones
        where what is ``found`` by then leaves open what they may show."""
        facts = facts_of(self.checker.calls[self.checker.began :], self.checker.session, self.weights)
        tried = frozenset[Signature]().union(*(one.signatures for one in facts))
        if any(signature in tried for call in calls for signature in unexercised(call.seen, known)):
            yield self.checked
        yield from sizings_to_exercise(self.request, self.checked.source)
        if any(unclear(call, known + found, self._views()) for call in calls):
            for chosen in sizings_to_exercise(self.request, self.checked.source, larger=True):
                if any(differences(call, known + found, self._views()) for call in calls):
                    yield chosen

    def _exercise(
        self, chosen: Chosen, preferred: list[Choice], modes: Sequence[Mode] = ("fresh", "stressed", "repeated")
    ) -> list[Exercise]:
        """Calls in a fresh session, the last with nothing to compile or tune; none when one is wrong."""
        try:
            side = ExpectedSide(self.request, chosen.source)
            side.skipped = self._draw_that_asks_as_much(side)
        except TaskError:
            return []
        with self.factory.open(self.request.settings) as session:
            try:
                if (weights := placed_weights(session, side, preferred)) is None:
                    return []
                checker = Checker(side, session)
                usual = checker.run(modes[0])
                if modes == ("mixed",):
                    more = range(calls_for_treatments(side, checker))
                    usual = usual and all(checker.run("mixed") for _ in more)
                right = usual and all(map(checker.run, modes[1:]))
                self.findings += [one for one in checker.findings if one.severity == "hack"]
                if usual and not right:
                    self.findings.append(show.size_dependent([f"large inputs: wrong at {chosen.sizes.words}"], [], []))
            except (SessionError, TaskError) as error:  # lengths need not fit sizes that were shortened one by one
                if isinstance(error, SessionError) and error.kind == "infra_error":
                    raise
                usual, right = isinstance(error, TaskError) or error.kind != "runtime_error", False
            if not usual and (chosen.kept_rows or modes == ("mixed",)):
                self.wrong.append(chosen)
            found = self._right(checker.calls[-1:], session, weights or {}, chosen) if right else []
            if self.idle and any(one.seen.signatures == call.seen.signatures for one in found for call in self.calls):
                left = idle_launches(side, checker, device_records(checker.calls)[-1].launches, lambda: False)
                self.idle = {place: name for place, name in self.idle.items() if name in left.values()}
            return found

    def _draw_that_asks_as_much(self, side: ExpectedSide) -> int:
        """The number of a draw whose lengths ask for as much of what masks may discard as the timed calls' do, at best
        for no more: what is done less there than here is then done less than asked."""
        own, usual = self.calls[0].work, work_at(side.reference.source)
        if own.asked is None or usual is None or usual.asked is None:
            return 0
        nearest = math.inf, 0
        for number in range(min(DRAWS, DRAWN_BYTES // max(1, usual.input_bytes) + 1)):
            there = work_at(side.reference.source, side.reference.draw_inputs(side.seeds("inputs", number)))
            if there is None or there.asked is None or AS_MUCH * own.asked <= there.asked <= own.asked:
                return number
            nearest = min(nearest, (abs(there.asked - own.asked), number))
        return nearest[1]

    def _right(
        self, calls: Sequence[Checked], session: JobSession, weights: dict[str, Place], at: Chosen
    ) -> list[Exercise]:
        """What these calls, which were right, show; none of those whose lengths ask for less than the timed calls'."""
        own, work, found = work_at(self.own.source), work_at(at.source), list[Exercise]()
        if calls and work is not None and (work.discards or work.asked is not None):
            work = work_at(at.source, calls[0].case.inputs)
        if work is None or work.asked is None:  # masks that no lengths decide keep about as much in all of them
            return [Exercise(one, work, at.kept_rows) for one in facts_of(calls, session, weights)]
        for call in calls:
            work = work_at(at.source, call.case.inputs)
            if work is None or own is None or (work.asked or 1.0) >= AS_MUCH * (own.asked or 0.0):
                found += [Exercise(one, work, at.kept_rows) for one in facts_of([call], session, weights)]
        return [one for place, one in enumerate(found) if one not in found[:place]]


def calls_for_treatments(side: ExpectedSide, checker: Checker) -> int:
    """How many more mixed calls give an input with few slices about every treatment."""
    inputs = enumerate(checker.calls[-1].case.inputs)
    tensors = [(place, one) for place, one in inputs if isinstance(one, torch.Tensor) and one.dim() > 1]
    axes = side.problem.slices
    slices = [math.prod(one.shape[axis] for axis in axes.get(place, (0,))) for place, one in tensors]
    return math.ceil(DEALT / max(1, min(slices, default=DEALT))) - 1 if slices else 0


def placed_weights(session: JobSession, side: ExpectedSide, preferred: Sequence[Choice]) -> dict[str, Place] | None:
    """Load the candidate, with the ``preferred`` configurations of its kernels, and pass on the weights; return their
    addresses, None where they do not fit."""
    session.prefer(preferred)
    loaded = side.load(session)
    if side.bind(loaded.parameters, loaded.loads_itself) is not None:
        return None
    side.hand_over(session)
    return places_of_weights(session, loaded)


def places_of_weights(session: JobSession, loaded: LoadResult) -> dict[str, Place]:
    """Addresses of a loaded candidate's weights on the device."""
    if not loaded.parameters:
        return {}
    return weight_places(session.state({name: UNKNOWN_FORM for name in loaded.parameters}))


def facts_of(calls: Sequence[Checked], session: JobSession, weights: dict[str, Place]) -> list[Seen]:
    """The work of each call; calls that did the same appear once."""
    found: dict[str, Seen | None] = {}
    for call in calls:
        record = call.result.record.device
        if record is not None and record.journal not in found:
            found[record.journal] = seen(record, {**places_of(session, call.result.arguments), **weights})
    return [facts for facts in found.values() if facts is not None]


def work_at(source: str, inputs: Sequence[Any] = ()) -> ReferenceWork | None:
    """The work of a reference's call at the sizes of ``source``, on ``inputs`` if they are given; None where it does
    not run without data."""
    try:
        return reference_work(load_reference(source), inputs)
    except TaskError:
        return None
