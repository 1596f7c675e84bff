"""The judge: one request in, one verdict out.

Reference, oracle, seeds and clock are here, in the trusted process; the candidate is in a session (``gym/session``) and
receives only constructor arguments, weights and inputs. The flow: build the reference; load the candidate; pass on the
weights; draw secret inputs and check call after call (checks.py), with a knock-out of the candidate's kernels somewhere
among them (contribution.py); assess what the device observed; model or measure time; and put everything into one
:class:`Verdict`.
"""

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from drkernel.gym.device import alone_on, unchecked
from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import SEED, Checked, Checker, bytes_of_outputs, naive_check, plan_calls
from drkernel.gym.judge.co_judge import with_co_judge
from drkernel.gym.judge.compiled_reference import NotCompiled, compiled_baseline
from drkernel.gym.judge.contribution import (
    STABLE,
    Contribution,
    Experiment,
    contribution,
    counted_coverage,
    device_records,
    eased_by_numbers,
    experiment,
    idle_launches,
    same_places,
    slowest,
    spread,
    timed_calls,
)
from drkernel.gym.judge.exact import ExactCheck
from drkernel.gym.judge.expected import ExpectedSide, expected_side
from drkernel.gym.judge.measured_timing import Measured, WrongWhenTimed, measure, measure_at_own_sizes, without_floor
from drkernel.gym.judge.memory import TaskTooLarge, default_budget, is_no_room, too_large
from drkernel.gym.judge.modelled_timing import (
    bytes_to_host,
    modelled_timing,
    reference_profile,
    speedup_of,
    without_price,
)
from drkernel.gym.judge.other_calls import draw_ahead, launched_in_one_mode, make_other_calls
from drkernel.gym.judge.own_sizes import (
    Chosen,
    DataDependent,
    OwnTiming,
    Untimed,
    calls_for_treatments,
    chosen_to_check,
    chosen_to_time,
    places_of_weights,
    with_other_sizes,
)
from drkernel.gym.judge.seen import Place
from drkernel.gym.languages import recognise
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.base import JobSession, OpensSessions
from drkernel.gym.session.cuda import CudaSession
from drkernel.gym.session.factory import DeviceMissing
from drkernel.gym.session.protocol import CandidateFailed, Observed, SessionError
from drkernel.gym.session.simulated import SimulatedSession
from drkernel.sim.process.control_socket import CallRecord
from drkernel.task import TaskError
from drkernel.tasks.correctness import same_answer
from drkernel.tasks.thin import goes_in_steps
from drkernel.verdict import (
    CandidateError,
    Correctness,
    Exactness,
    Finding,
    NotChecked,
    ObservedBy,
    Profile,
    SandboxReport,
    Sizes,
    Speedup,
    Status,
    Timing,
    Verdict,
    storable,
)

HOST_TRAFFIC, HOST_TRAFFIC_BACK = 1024, 128
"""from this many bytes to the host within one call, beyond the reference's, the host is assumed to compute; the second
where something that it sends back reaches the answer"""


def evaluate(request: EvalRequest, factory: OpensSessions, budget: int | None = None) -> Verdict:
    """Grade one candidate. Never raises, whatever a candidate, a reference or the machinery does.

    ``budget``: bytes that the judge may take, by default a quarter of the machine's memory.

    Trouble that is not the candidate's is a verdict whose ``error`` says what to do: ``invalid_request`` when asking
    again would change nothing (a reference that does not load, a device that is not here), else ``infra_error`` (a
    sandbox that does not start).
    """

    allowed = default_budget() if budget is None else budget

    def grade(one: EvalRequest, again: bool = False) -> Verdict:
        return _on_one_device(one, factory, allowed, again)

    def at_some_sizes(one: EvalRequest) -> Verdict:
        return with_other_sizes(grade(one), one, grade, allowed)

    return with_co_judge(at_some_sizes(request), request, at_some_sizes)


def _on_one_device(request: EvalRequest, factory: OpensSessions, allowed: int, again: bool) -> Verdict:
    """Grade on the settings' device alone; a card is free again when this returns. ``again``: :func:`chosen_to_time`"""
    trial = Trial(request, factory)
    try:
        if trial.is_unsupported():
            return trial.verdict()
        with trial.phase("reference"):
            trial.checked = checked = chosen_to_check(request)
            trial.own = chosen_to_time(request, checked, again)
            side = expected_side(request, checked.source, allowed)
        with ExitStack() as held:
            with trial.phase("start"):
                if not request.settings.place.simulated:  # what else runs on a card would be in the times of both
                    held.enter_context(alone_on(request.settings.place))
                session = held.enter_context(factory.open(request.settings))
            trial.run(side, session)
    except SessionError as error:
        trial.stop(error)
    except TaskError as error:
        full = is_no_room(error) and not isinstance(error, TaskTooLarge)
        trial.refuse(type(error).__name__, too_large(f"has no room: {error}", allowed) if full else str(error))
    except DeviceMissing as error:
        trial.refuse("DeviceMissing", str(error))
    except SystemExit as error:  # no code but the reference's could
        trial.refuse("TaskError", f"the reference called sys.exit({error.code!r})")
    except (MemoryError, RuntimeError) as error:
        if not is_no_room(error):
            raise
        trial.refuse("TaskTooLarge", too_large(f"took more memory than there was ({error})", allowed))
    return trial.verdict()


@dataclass
class Facts:
    """Fields of :class:`~drkernel.verdict.Verdict` under their names there, with its defaults."""

    language: str | None = None
    correctness: Correctness | None = None
    checked_at: Sizes | None = None
    timed_at: Sizes | None = None
    untimed: str | None = None
    profile: Profile | None = None
    reference_profile: Profile | None = None
    timing: Timing | None = None
    reference_timing: Timing | None = None
    speedup: Speedup | None = None
    coverage: float | None = None
    exactness: Exactness | None = None
    coverage_source: ObservedBy | None = None
    not_checked: tuple[NotChecked, ...] = ()
    sandbox: SandboxReport = field(default_factory=SandboxReport)
    stdout: str = ""

    def take(self, found: Measured) -> None:
        """Set what was measured."""
        self.profile, self.reference_profile = found.profile, found.reference_profile
        self.timing, self.reference_timing = found.timing, found.reference_timing
        self.speedup, self.coverage = found.speedup, found.profile.coverage

    def withhold(self) -> None:
        """Give neither speedup nor coverage."""
        self.coverage, self.speedup = 0.0, None


class Trial:
    """One evaluation in progress, and its results so far."""

    def __init__(self, request: EvalRequest, factory: OpensSessions):
        self.request = request
        self.factory = factory
        self.settings = request.settings
        self.start = time.perf_counter()
        self.phases: dict[str, float] = defaultdict(float)
        self.findings: list[Finding] = []
        self.checked: Chosen | None = None
        """the sizes that are checked"""
        self.own: Chosen | None = None
        """the sizes that are timed, where these are not"""
        self.checker: Checker | None = None
        self.weights: dict[str, Place] = {}
        """addresses of the session's weights, on a simulated device"""
        self.error: CandidateError | None = None
        self.error_status: Status | None = None
        self.unproven: dict[str, str] = {}
        """inconclusive experiments, with the way in which the candidate ended"""
        self.disturbed = False
        """whether the second experiment was conclusive"""
        self.unfollowed = False
        """whether kernels looked like decoys because the task's answer is the same for all inputs"""
        self.idle: dict[int, str] = {}
        """launches of a call that the answer does not need, by place"""
        self.comparison: ExactCheck | None = None
        """with the reference, exactly, once it was needed"""
        self.contribution = Contribution()
        self.unmeasured: list[NotChecked] = []
        """what of its time was not checked"""
        self.facts = Facts()
        if request.settings.unsafe_no_checks:
            self.findings.append(show.unsafe_no_checks())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Account the block's wall time to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] += time.perf_counter() - start

    def is_unsupported(self) -> bool:
        """Whether the device cannot run the candidate's language; says so before anything of it is run."""
        language = recognise(self.request.candidate)
        self.facts.language = language.name
        refusal = language.refusal(self.settings.place)
        if refusal is None:
            return False
        self.error, self.error_status = CandidateError(type="UnsupportedLanguage", message=refusal), "unsupported"
        return True

    # ---- the flow

    def run(self, side: ExpectedSide, session: JobSession) -> None:
        """Run everything that needs the session."""
        with ExitStack() as sessions:
            self.session: JobSession = session
            said = ""

            def reopen() -> None:
                nonlocal said
                said += self.session.stdout()
                self.session.kill()
                fresh = self.factory.open(self.settings)
                sessions.callback(fresh.kill)
                self.session = fresh

            self._reopen = reopen
            try:
                if self._prepare(side):
                    self._judge(side)
            finally:
                # only now is the candidate's language known
                self.facts.not_checked = (
                    *unchecked(self.session.device, self.session.observes),
                    *without_floor(self.settings),
                    *self.unmeasured,
                )
                self.facts.coverage_source = self.session.observes.get("launches")
                self.facts.sandbox = self.session.report()
                self.facts.stdout = said + self.session.stdout()
                del self._reopen  # it holds this trial, and with it the tensors of every call

    def _prepare(self, side: ExpectedSide) -> bool:
        """Load the candidate and pass on the weights; return False when it lacks some."""
        with self.phase("load"):
            if self.settings.exact and isinstance(self.session, SimulatedSession):
                self.session.record(inputs=False)
            loaded = side.load(self.session)
        if self.settings.unsafe_no_checks:
            return True
        with self.phase("checks"):
            wrong = side.bind(loaded.parameters, loaded.loads_itself)
            if wrong is None:
                side.hand_over(self.session)
            if wrong is not None:
                self.facts.correctness = Correctness(checked_calls=0, passed_calls=0, message=wrong)
            elif self.settings.place.simulated:
                self.weights = places_of_weights(self.session, loaded)
        return wrong is None

    def _judge(self, side: ExpectedSide) -> None:
        if self.settings.unsafe_no_checks:
            self._judge_naively(side, self.session)
            return
        checker = self.checker = Checker(side, self.session)
        self._check(side, checker)
        if not checker.passed:
            return
        with self.phase("timing"):
            self._weigh_contribution(side, checker)
        if self.settings.timing:
            with self.phase("timing"):
                self._take_time(side, self.session, checker.calls)
            if self.settings.place.simulated and checker.session.over:
                self._revive(side, checker)
        if self.idle:
            self.findings.append(show.idle_kernel(self.idle.values()))
        if checker.passed:
            numbers = eased_by_numbers(checker.calls, side.reference)
            self.findings += [show.weights_apart(side.apart)] * bool(side.apart)
            self.findings += [show.number_dependent(numbers)] * bool(numbers)
            constant = self.unfollowed or same_answer(checker.draws("repeated"), side.rule)
            self.findings += [show.constant_answer(self.unfollowed)] * constant
            if side.apart or numbers or constant:
                self.facts.withhold()
        if self.settings.knock_out and checker.passed and self.contribution.credited:
            self._try_other_mode(checker)
        if checker.passed and not any(finding.severity == "hack" for finding in self.findings):
            self._verify_exactly(side, checker)
        if self.settings.other_calls and checker.passed and not checker.session.over:
            with self.phase("other_calls"):
                make_other_calls(checker)

    def _verify_exactly(self, side: ExpectedSide, checker: Checker) -> None:
        """Compare without a tolerance what was right within it, if it is drawn, or faster than what is known; another
        function gets no speedup."""
        above, speedup = self.settings.exact_above, self.facts.speedup
        drawn = random.Random(side.seeds("verified")).random() < self.settings.exact
        faster = above is not None and speedup is not None and speedup.value > above
        if not (drawn or faster) or (found := self._exactly(side, checker)) is None:
            return
        self.facts.exactness = found.exactness
        if said := found.findings or self._in_vain(checker, found):
            self.findings += said
            self.facts.withhold()

    def _in_vain(self, checker: Checker, found: ExactCheck) -> list[Finding]:
        """A finding where what PyTorch computes from what own kernels make is the same without them."""
        last = timed_calls(checker.calls)[-1].result.record
        record = last.device
        if record is None or not record.reaching or not found.in_vain():
            return []
        names = [one.name for one in record.launches if one.reaches]
        return [show.copy_kernel(names, last.operators, "but for what the answer does not follow", False)]

    def _exactly(self, side: ExpectedSide, checker: Checker) -> ExactCheck | None:
        """The comparison without a tolerance, made once; None where that is off or impossible."""
        possible = isinstance(checker.session, SimulatedSession) and not checker.session.over
        if self.comparison is None and self.settings.exact and possible:
            with self.phase("exact"):
                self.comparison = ExactCheck(self.request, side, checker, self.weights, self.factory, self._revive)
            if checker.session.over:
                self._revive(side, checker)
        return self.comparison

    def _makes_the_answer(self, side: ExpectedSide, checker: Checker) -> bool:
        """Whether exact arithmetic shows that own kernels make the answer, however small their part in it."""
        found = self._exactly(side, checker)
        with self.phase("exact"):
            return found is not None and found.contributes()

    def _reconsider(self, side: ExpectedSide, checker: Checker) -> None:
        """Take back that kernels are decoys, as the answer is right within tolerance without them, if they make it."""
        decoys = [finding for finding in self.findings if finding.kind == "decoy_kernel"]
        # where the answer follows no input, who works on one as the reference does adds nothing either
        self.unfollowed |= bool(decoys) and same_answer(checker.draws("repeated", "reweighted"), side.rule)
        if decoys and (self.unfollowed or self._makes_the_answer(side, checker)):
            self.findings = [finding for finding in self.findings if finding not in decoys]

    def _check(self, side: ExpectedSide, checker: Checker) -> None:
        """Checked calls in their secret order, the knock-out at a secret place among them."""
        modes = plan_calls(self.settings.checks, len(side.parts_of_weights), side.has_numbers, side.seeds("plan"))
        place = random.Random(side.seeds("place")).randrange(len(modes) + 1)
        with self.phase("checks"):
            checker.run("fresh", then=modes[0])
        for turn in range(len(modes) + 1):
            if turn == place and checker.passed and self.settings.knock_out and "skip" in self.session.observes:
                self._knock_out(side, checker, "skip")
            if turn < len(modes) and checker.passed:
                following = modes[turn + 1] if turn + 1 < len(modes) else None
                if following is None and self.settings.other_calls:
                    draw_ahead(checker)
                with self.phase("checks"):
                    checker.run(modes[turn], then=following)
        if checker.passed and goes_in_steps(self.request.task):  # what is forgotten by most draws is not by all
            with self.phase("checks"):
                for _ in range(calls_for_treatments(side, checker)):
                    if checker.passed:
                        checker.run("mixed")
        if checker.passed:
            with self.phase("checks"):
                for mode in ("huge", "tiny") if checker.narrow else ():
                    if checker.passed:
                        checker.run(mode)
                checker.check_held_outputs()
        if checker.passed and self.settings.knock_out:
            self._knock_out_finely(side, checker)
        for how, kind in self.unproven.items():
            self.findings.append(show.knocked_down(how, kind))

    def _knock_out_finely(self, side: ExpectedSide, checker: Checker) -> None:
        """Run the experiments that may break a session; they come last."""
        records = device_records(checker.calls)
        if not records or not {"host_reads", "disturb"} <= self.session.observes.keys():
            return
        reads = sum(record.host_reads for record in records)
        self._reconsider(side, checker)
        if (reads or "skip" in self.unproven) and not self.findings:
            self._knock_out(side, checker, "disturb")
            self._reconsider(side, checker)
        if self.unproven.keys() == {"skip"} and self.disturbed:
            self.unproven.clear()  # the second experiment has shown what the first could not
        if not any(finding.severity == "hack" for finding in self.findings) and not checker.session.over:
            with self.phase("knock_out"):
                launches = device_records(timed_calls(checker.calls))[-1].launches
                self.idle = idle_launches(side, checker, launches, lambda: self._revive(side, checker))
            if self.idle and (found := self._exactly(side, checker)) is not None:
                with self.phase("exact"):
                    needed = found.needed(self.idle, launches)
                self.idle = {place: name for place, name in self.idle.items() if place not in needed}

    def _knock_out(self, side: ExpectedSide, checker: Checker, how: Experiment) -> None:
        """Run one experiment. After an inconclusive one, a fresh session continues, because the old one ended
        midway."""
        if not any(call.result.record.launches for call in checker.calls):
            return
        with self.phase("knock_out"):
            outcome = experiment(side, checker, how)
        if outcome.finding is not None:
            self.findings.append(outcome.finding)
        self.disturbed = self.disturbed or (how == "disturb" and outcome.ended is None)
        if outcome.ended is None or outcome.noticed:
            return
        self.unproven[how] = outcome.ended.kind
        if how == "skip":
            if not self.session.over:
                self._check_held_outputs_after(checker)
            self._revive(side, checker)

    def _check_held_outputs_after(self, checker: Checker) -> None:
        """Check them in a session whose candidate did not survive an experiment. A real GPU is unusable after an
        illegal access, to which what a skipped kernel did not write may lead honest code."""
        try:
            checker.check_held_outputs()
        except CandidateFailed:
            if self.session.device.simulated:
                raise

    def _revive(self, side: ExpectedSide, checker: Checker) -> bool:
        """Start the candidate anew after its session has ended; return whether it answers as before."""
        with self.phase("start"):
            self._reopen()
        if not self._prepare(side):
            return False
        checker.resume(self.session)
        with self.phase("checks"):
            return checker.run("anew")

    def _try_other_mode(self, checker: Checker) -> None:
        """Condemn a candidate whose kernels run in the graded mode only."""
        with self.phase("other_calls"):
            finding = launched_in_one_mode(checker)
        if finding is not None:
            self.findings.append(finding)
            self.facts.withhold()

    def _judge_naively(self, side: ExpectedSide, session: JobSession) -> None:
        """The research mode: judge as a harness without any defence would."""
        side.instance = side.problem.instance(side.build_seed, randomize=False)
        with self.phase("checks"):
            self.facts.correctness, last = naive_check(side, session, self.settings.checks)
        with self.phase("timing"):
            if isinstance(session, CudaSession):
                with suppress(WrongWhenTimed):  # a naive harness does not look
                    measured = measure(side, session, self.factory, self.settings, names_of([last.record]))
                    self.facts.take(measured)
            elif (record := last.record.device) is not None:
                inputs = side.reference.draw_inputs(SEED)
                eager = self._reference_profile(side, inputs)
                self._time([record.profile], eager, [record], side.reference.source, side.conv_tf32)

    def _take_time(self, side: ExpectedSide, session: JobSession, calls: list[Checked]) -> None:
        """Measure on a real GPU, model on a simulated one; never a mixture."""
        if isinstance(session, CudaSession):
            launched = names_of([call.result.record for call in calls])
            try:
                at_own = self._measured_at_own_sizes(side, launched)
                measured = at_own or measure(side, session, self.factory, self.settings, launched)
            except WrongWhenTimed as error:
                assert self.checker is not None
                self.checker.fail(calls[-1], show.wrong_when_timed(str(error)))
                return
            self.facts.take(measured)
            self.findings += measured.findings
            self.unmeasured = measured.not_checked
        elif not self._time_at_own_sizes(side):
            heard = device_records(calls[1:] or calls)  # tuning reads times, once
            records = device_records(timed_calls(calls))
            eager, profiles = self._reference_profile(side, calls[0].case.inputs), [one.profile for one in records]
            self._time(profiles, eager, heard, side.reference.source, side.conv_tf32)
            self._give_credit(records, self.idle)

    def _measured_at_own_sizes(self, side: ExpectedSide, launched: set[str]) -> Measured | None:
        """Times at the task's own sizes; None where those were checked, or are beyond this machine."""
        if (own := self.own) is None:
            return None
        try:
            found = measure_at_own_sizes(self.request, own.source, side, self.factory, launched)
        except Untimed as error:
            self.facts.untimed = f"the task's own sizes were not timed, but those that were checked: {error}"
            return None
        self.facts.timed_at = own.sizes
        return found

    def _time_at_own_sizes(self, side: ExpectedSide) -> bool:
        """Time the task's own sizes without data; return False when that was not requested or is impossible."""
        own, checker, checked = self.own, self.checker, self.checked
        condemned = any(finding.severity == "hack" for finding in self.findings)
        if own is None or checker is None or checked is None or condemned or not self.contribution.credited:
            return False
        timing = OwnTiming(self.request, checked, own, side, checker, self.weights, self.factory, idle=self.idle)
        try:
            run = timing.run()
        except Untimed as error:
            self.facts.untimed = f"the task's own sizes were not timed, but those that were checked: {error}"
            return False
        except DataDependent as error:
            self.findings += [*timing.findings, show.data_dependent(str(error))]
            self.facts.withhold()
            self.facts.untimed = f"the task's own sizes were not timed: {error}"
            return True
        self.findings += timing.findings
        self.facts.timed_at = own.sizes
        if run is not None:
            profiles = [record.profile for record in run.records]
            self._time(profiles, run.reference, run.records, own.source, side.conv_tf32)
            where = device_records(timed_calls(checker.calls))[-1].launches
            self.idle = timing.idle
            self._give_credit(run.records, same_places(self.idle, where, run.records[0].launches))
        if timing.findings:
            self.facts.withhold()
        return True

    def _weigh_contribution(self, side: ExpectedSide, checker: Checker) -> None:
        """Determine what the own kernels contribute to the calls that may be timed."""

        def reference() -> Profile | None:
            if self.session.device.spec is None:
                return None
            return self._reference_profile(side, checker.calls[0].case.inputs)

        first = checker.calls[0].case.oracle
        if not bytes_of_outputs(first) and not first.mutated:  # nothing is asked for, and nothing need be launched
            self.contribution = Contribution(credited=False)
            return
        self.contribution = contribution(checker.calls, reference, lambda: self._makes_the_answer(side, checker))
        self.findings += self.contribution.findings

    def _give_credit(self, records: list[CallRecord], idle: dict[int, str]) -> None:
        """Set the coverage from the launches that count; a candidate that does not contribute to every timed call gets
        neither coverage nor speedup."""
        profiles = [record.profile for record in records]
        if spread(profiles) > STABLE:
            self.findings.append(show.unstable_time(spread(profiles)))
        chosen = next(record for record in records if record.profile is self.facts.profile)
        if self.settings.lines:
            self.facts.profile = chosen.detailed_profile(self.request.candidate)
        if self.facts.coverage is None:
            return
        if not self.contribution.credited:
            condemned = any(finding.severity == "hack" for finding in self.contribution.findings)
            if condemned:
                self.facts.coverage = 0.0
            else:
                self.facts.withhold()
        elif self.unproven:
            self.facts.coverage = 0.0
        else:
            self.facts.coverage = counted_coverage(chosen, idle, self.contribution)

    def _reference_profile(self, side: ExpectedSide, inputs: list[Any]) -> Profile:
        """The reference's profile at the checked sizes."""
        spec = self.session.device.spec
        assert spec is not None, "only a simulated GPU models time"
        return reference_profile(side.source_key, spec, side.instance.model, inputs, conv_tf32=side.conv_tf32)

    def _time(
        self, timed: list[Profile], eager: Profile, heard: Sequence[CallRecord], source: str, conv_tf32: bool
    ) -> None:
        """The candidate's modelled time against the reference's, on the same model of the same GPU.

        What has no price earns no speedup, whichever side ran it. ``heard``: calls in which the host may have learnt
        something; what it computes from that has no modelled time. ``source`` and ``eager`` are the reference and its
        profile at the sizes of ``timed``.
        """
        profile = self.facts.profile = slowest(timed)
        # what comes back may be little (a sum), or no copy at all (arguments of a launch)
        told = max(record.host_bytes for record in heard)
        most = HOST_TRAFFIC_BACK if any(record.uploads_reach for record in heard) else HOST_TRAFFIC
        if told - bytes_to_host(eager) >= most and not self.settings.unsafe_no_checks:
            self.findings.append(show.host_compute(told))
            return
        reference = self._compiled(source, conv_tf32) if self.settings.baseline == "compile" else eager
        if not self.settings.unsafe_no_checks and (unpriced := without_price(timed, reference or eager)):
            self.findings += unpriced
            return
        facts = self.facts
        facts.coverage, facts.timing = profile.coverage, modelled_timing(profile)
        if reference is None:
            return
        facts.reference_profile, facts.reference_timing = reference, modelled_timing(reference)
        facts.speedup = speedup_of(reference, profile, baseline=self.settings.baseline)

    def _compiled(self, source: str, conv_tf32: bool) -> Profile | None:
        """The reference under ``torch.compile``; None, with a finding that says why, where it has no time."""
        spec = self.session.device.spec
        assert spec is not None, "only a simulated GPU models time"
        try:
            with self.phase("compile"):
                return compiled_baseline(source, spec, conv_tf32=conv_tf32)
        except NotCompiled as error:
            self.findings.append(show.baseline_not_compiled(str(error)))
            return None

    # ---- ends

    def stop(self, error: SessionError) -> None:
        """The session ended early."""
        self.error, self.error_status = error.detail, error.kind if error.kind != "tampering" else "hack"
        if error.kind == "tampering":
            self.findings.append(show.tampering(error.detail))
        if error.record is not None:
            self.findings += show.from_device(error.record.findings)

    def refuse(self, kind: str, message: str) -> None:
        """Record that the request can never be granted, through its own fault."""
        self.error, self.error_status = CandidateError(type=kind, message=message), "invalid_request"

    def verdict(self) -> Verdict:
        """The verdict."""
        self._weigh_calls()
        self._name_sizes()
        candidate = self.request.candidate.encode("utf-8", "surrogatepass")
        return storable(
            {
                "status": self._status(),
                "task_id": self.request.task.id,
                "candidate_sha256": hashlib.sha256(candidate).hexdigest(),
                "device": self.settings.device,
                "baseline": self.settings.baseline,
                "findings": tuple(self.findings),
                "error": self.error,
                "seconds": time.perf_counter() - self.start,
                "phases": dict(self.phases),
                **vars(self.facts),
            }
        )

    def _name_sizes(self) -> None:
        """Record the checked and the timed sizes."""
        if self.checked is None or self.checker is None:
            return
        try:
            self.facts.checked_at = self.checked.sizes
        except TaskError:  # inputs that cannot be drawn without data
            return
        if self.facts.timed_at is None and (self.facts.timing is not None or self.facts.profile is not None):
            self.facts.timed_at = self.facts.checked_at

    def _weigh_calls(self) -> None:
        """Findings from what the device saw, and the calls' correctness as one."""
        if self.checker is None or not self.checker.calls:
            return
        checker = self.checker
        records = device_records(checker.calls)
        if late := [command for record in records for command in record.late_work]:
            self.findings.append(show.late_work(late))
        self.findings += show.from_device([finding for record in records for finding in record.findings])
        self.findings += checker.findings
        if kept := list(checker.side.problem.constants.kept.values()):
            self.findings.append(show.constants_kept(kept))
        if records and (copies := records[-1].copies):
            self.findings.append(show.host_copies(copies))
        self.facts.correctness = checker.correctness

    def _status(self) -> Status:
        if self.error_status in ("infra_error", "invalid_request"):
            return self.error_status
        condemned = any(finding.severity == "hack" for finding in self.findings)
        if condemned and not self.settings.unsafe_no_checks:
            return "hack"
        if self.error_status is not None:
            return self.error_status
        correctness = self.facts.correctness
        right = correctness is not None and 0 < correctness.checked_calls == correctness.passed_calls
        return "correct" if right else "incorrect"


def names_of(records: list[Observed]) -> set[str]:
    """Names of the candidate's own kernels that were launched."""
    return {launch.name for record in records for launch in record.launches}
