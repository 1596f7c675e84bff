"""The times at the task's own sizes, and whether the verdict may report them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checked, Checker
from drkernel.gym.judge.contribution import timed_calls
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.held_against import AGREEING, Exercise, OwnCall, differences, unexercised
from drkernel.gym.judge.live_share import HALF, live_share
from drkernel.gym.judge.own_sizes import (
    UNKNOWN_FORM,
    FailedThere,
    OwnRun,
    places_of,
    run_at_own_sizes,
    weight_places,
)
from drkernel.gym.judge.reference_at_size import ReferenceWork, reference_work
from drkernel.gym.judge.seen import Place, Seen, Signature, seen
from drkernel.gym.judge.sizes import Chosen, sizings_to_exercise
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.protocol import Choice, LoadResult, OpensSessions, Session, SessionError
from drkernel.tasks.errors import TaskError
from drkernel.tasks.reference import load_reference
from drkernel.verdict import Finding


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
    stdout: str = ""

    def run(self) -> OwnRun | None:
        """The timed calls, with mismatches in :attr:`findings`; None when the candidate does not run there.

        Raises :class:`Untimed` when the task cannot be timed without data, :class:`DataDependent` when only the
        candidate cannot.
        """
        checker = self.checker
        timed = timed_calls([call for call in checker.calls[checker.began :] if call.passed])
        exercises = _exercises(timed, checker.session, self.weights, self.checked)
        reads = max(call.result.record.device.host_reads for call in self.checker.calls if call.result.record.device)
        try:
            run = run_at_own_sizes(self.request, self.own, self.side, self.factory, reads)
        except FailedThere as error:
            self.findings.append(show.size_dependent([f"it does not run there: {error}"], [], []))
            return None
        self.stdout = run.stdout
        calls = _different(run.calls)
        exercises += self._further(calls, exercises)
        said = [run.forms_differ] if run.forms_differ is not None else []
        for record in run.records:
            if not any(launch.reaches for launch in record.launches):
                said.append("no kernel of the candidate's own contributes to its outputs")
        for call in calls:
            said += differences(call, exercises, self._views())
        if said:
            nearest = exercises[-1].seen.words if exercises else []
            self.findings.append(show.size_dependent(list(dict.fromkeys(said)), calls[0].seen.words, nearest))
        return run

    def _views(self) -> frozenset[int]:
        """Outputs that the reference returns as views of its arguments."""
        return frozenset(place for place, kind, _ in self.checker.calls[0].case.oracle.shared if kind == "input")

    # ---- calls that were right

    def _further(self, calls: Sequence[OwnCall], known: list[Exercise]) -> list[Exercise]:
        """Calls at other sizes, until everything that the timed calls did has been right in one of them."""
        found: list[Exercise] = []
        sizings = self._sizings(calls, known)
        # sizings are worth working out only where something has not been right yet
        while any(differences(call, known + found, self._views(), left=AGREEING) for call in calls):
            if (chosen := next(sizings, None)) is None:
                break
            wanted = [one.choice for call in calls for one in call.seen.launched.values()]
            found += self._exercise(chosen, list({repr(choice): choice for choice in wanted}.values()))
        return found

    def _sizings(self, calls: Sequence[OwnCall], known: list[Exercise]) -> Iterator[Chosen]:
        """The checked sizes, if a tuner chose otherwise there; then sizes that keep one axis or another."""
        tried = self._tried()
        if any(signature in tried for call in calls for signature in unexercised(call.seen, known)):
            yield self.checked
        yield from sizings_to_exercise(self.request, self.checked.source)

    def _tried(self) -> frozenset[Signature]:
        """Signatures of all checked calls, those of a tuner among them."""
        calls = self.checker.calls[self.checker.began :]
        return frozenset[Signature]().union(
            *(one.signatures for one in facts_of(calls, self.checker.session, self.weights))
        )

    def _exercise(self, chosen: Chosen, preferred: list[Choice]) -> list[Exercise]:
        """Two calls in a fresh session, the second with nothing to compile or tune; none when one is wrong."""
        try:
            side = ExpectedSide(self.request, chosen.source)
        except TaskError:
            return []
        with self.factory.open(self.request.settings) as session:
            try:
                loaded = session.load(
                    self.request.candidate, side.instance.init_args, side.instance.init_kwargs,
                    seed=side.build_seed, conv_tf32=side.conv_tf32, preferred=preferred,
                )  # fmt: skip
                if side.bind(loaded.parameters) is not None:
                    return []
                if side.pairs:
                    session.load_state(side.state())
                weights = places_of_weights(session, loaded)
                checker = Checker(side, session)
                right = checker.run("fresh") and checker.run("repeated")
                self.findings += [one for one in checker.findings if one.severity == "hack"]
                return _exercises(checker.calls[-1:], session, weights, chosen) if right else []
            except SessionError as error:
                if error.kind == "infra_error":
                    raise
                return []


def places_of_weights(session: Session, loaded: LoadResult) -> dict[str, Place]:
    """Addresses of a loaded candidate's weights on the device."""
    if not loaded.parameters:
        return {}
    return weight_places(session.state({name: UNKNOWN_FORM for name in loaded.parameters}))


def _exercises(calls: Sequence[Checked], session: Session, weights: dict[str, Place], at: Chosen) -> list[Exercise]:
    work = work_at(at.source)
    live = live_share(at.source) if work is not None and work.discards else HALF
    return [Exercise(one, work, at.kept_rows, live) for one in facts_of(calls, session, weights)]


def facts_of(calls: Sequence[Checked], session: Session, weights: dict[str, Place]) -> list[Seen]:
    """The work of each call; calls that did the same appear once."""
    found: dict[str, Seen] = {}
    for call in calls:
        record = call.result.record.device
        if record is None or record.journal in found:
            continue
        facts = seen(record, {**places_of(session, call.result.arguments), **weights})
        if facts is not None:
            found[record.journal] = facts
    return list(found.values())


def _different(calls: Sequence[OwnCall]) -> list[OwnCall]:
    """The calls without repetitions."""
    found: list[OwnCall] = []
    for call in calls:
        if call not in found:
            found.append(call)
    return found


def work_at(source: str) -> ReferenceWork | None:
    """The work of a reference's call at the sizes of ``source``; None where it does not run without data."""
    try:
        return reference_work(load_reference(source))
    except TaskError:
        return None
