"""Calls that the task's own draws never make, made after everything else was right; their failures are reported.

=================  ==========================================================  ==================
finding            call                                                        the task decides by
=================  ==========================================================  ==================
special_values     NaN and infinities in one input                             ``special_values``
stale_buffers      buffers (running statistics) after a call                   ``modes``
other_mode         eval mode, or train mode where the module is built in eval  ``modes``
hard_coded_shape   another, odd size of the inputs                             ``shapes``
=================  ==========================================================  ==================

Before them :func:`launched_in_one_mode` asks whether own kernels run in both modes, which is no note.

A failure is a *note*, unless the task requires the call: then it is a wrong answer. These calls come last, the one that
may break the device at the very end, and share a few seconds. Nothing that happens here changes earlier results.
"""

from collections.abc import Callable
from functools import partial

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import Checker, arguments_of, bytes_of_outputs, forms_of, raw_output, values_of
from drkernel.gym.session.protocol import BEFORE_AN_ANSWER, CandidateFailed, SessionError
from drkernel.tasks.correctness import compare
from drkernel.tasks.oracle import Oracle
from drkernel.tasks.other_calls import (
    OtherSize,
    buffers_after,
    call_at_other_size,
    call_in_other_mode,
    call_with_special_values,
    has_modes,
)
from drkernel.tasks.problem import ReferenceCall
from drkernel.verdict import Finding

SECONDS = 10.0
"""wall seconds that the candidate has for all of them"""


def make_other_calls(checker: Checker) -> None:
    """Make those calls that the task does not rule out; findings go to the checker."""
    task = checker.side.task
    experiments: list[tuple[str, bool, Callable[[Checker], tuple[str, str | None] | None]]] = []
    if _asks_special(checker):
        experiments.append(("special_values", task.special_values == "checked", _special_values))
    if task.modes != "ignored":
        experiments.append(("stale_buffers", task.modes == "checked", _buffers))
        experiments.append(("other_mode", task.modes == "checked", _other_mode))
    if task.shapes != "fixed":
        experiments.append(("hard_coded_shape", task.shapes == "free", _other_size))
    checker.session.limit(SECONDS)
    last = checker.calls[-1]
    for kind, asked, experiment in experiments:
        try:
            wrong = experiment(checker)
        except CandidateFailed as error:
            late = error.kind in BEFORE_AN_ANSWER and not asked  # not known to be wrong
            wrong = None if late else (HOW[kind], _in_words(error))
        if wrong is not None and asked:
            checker.fail(last, show.other_call(kind, asked, *wrong))
        elif wrong is not None:
            checker.findings.append(show.other_call(kind, asked, *wrong))


def launched_in_one_mode(checker: Checker) -> Finding | None:
    """Call in the other mode (train or eval): own kernels have to run there too, unless the reference computes
    something else there, or the candidate ends."""
    side, session = checker.side, checker.session
    training, has_two = side.instance.model.training, partial(has_modes, side.reference, side.task.precision)
    if side.task.modes == "ignored" or (not training and has_two()):  # train mode would change running statistics
        return None
    if not all(call.result.record.launches for call in checker.calls):  # not all are seen, or there are none
        return None
    session.limit(SECONDS)
    try:
        session.set_mode(not training)
        record = session.call(arguments_of(checker.calls[0].case.inputs)).record
        session.set_mode(training)
    except CandidateFailed:
        return None
    seen = record.device
    launched = bool(record.launches) if seen is None else any(one.reaches for one in seen.launches)
    return None if launched or (training and has_two()) else show.one_mode_only(training, record.operators)


def draw_ahead(checker: Checker) -> None:
    """Draw the first of them while the candidate answers the next request."""
    if _asks_special(checker):
        checker.session.meanwhile(lambda: checker.ahead.make("special", lambda: _draw_special(checker)))


def _asks_special(checker: Checker) -> bool:
    task = checker.side.task
    return task.special_values != "ignored" and task.distribution == "open"


HOW = {
    "special_values": "With NaN or infinity in an input the answer is wrong",
    "stale_buffers": "Buffers that the reference updates are otherwise after a call",
    "other_mode": "In the other mode (train or eval) the answer is wrong",
    "hard_coded_shape": "At another size of the inputs the answer is wrong",
}


def wrong_answer(checker: Checker, call: ReferenceCall) -> str | None:
    """Return what is wrong with the answer to a call, changed arguments among it; None when it is right."""
    checker.session.most_output_bytes = max(checker.session.most_output_bytes, 2 * bytes_of_outputs(call.oracle))
    result = checker.session.call(arguments_of(call.inputs), poison="nan", forms=forms_of(call.oracle))
    checker.hold(call.inputs, result)
    wrong = compare(values_of(result), call.oracle, checker.side.rule).message
    changed = (f"{checker.side.name_of(n)}: {why}" for n, why in checker.wrong_arguments(call.oracle, result) if why)
    return wrong or next(changed, None)


def _in_words(error: SessionError) -> str:
    return f"{error.detail.type}: {error.detail.message.partition(chr(10))[0][:300]}"


def _draw_special(checker: Checker) -> ReferenceCall | None:
    return call_with_special_values(checker.side.instance, checker.side.seeds("special"))


def _draw_size(checker: Checker) -> tuple[ReferenceCall, OtherSize] | None:
    return call_at_other_size(checker.side.instance, checker.side.seeds("size"))


def _special_values(checker: Checker) -> tuple[str, str | None] | None:
    call = checker.ahead.take("special", lambda: _draw_special(checker))
    if checker.side.task.shapes != "fixed":
        checker.session.meanwhile(lambda: checker.ahead.make("size", lambda: _draw_size(checker)))
    message = None if call is None else wrong_answer(checker, call)
    return None if message is None else (HOW["special_values"], message)


def _other_size(checker: Checker) -> tuple[str, str | None] | None:
    found = checker.ahead.take("size", lambda: _draw_size(checker))
    if found is None:
        return None
    call, size = found
    what = f"With {size.label} = {size.used} in place of {size.original} the answer is wrong"
    try:
        message = wrong_answer(checker, call)
    except CandidateFailed as error:
        if error.kind in BEFORE_AN_ANSWER:
            raise
        message = _in_words(error)
    return None if message is None else (what, message)


def _other_mode(checker: Checker) -> tuple[str, str | None] | None:
    side, inputs = checker.side, checker.calls[0].case.inputs
    call = call_in_other_mode(side.instance, inputs) if has_modes(side.reference, side.task.precision) else None
    if call is None:
        return None
    training = side.instance.model.training
    side.hand_over(checker.session)
    checker.session.set_mode(not training)
    try:
        message = wrong_answer(checker, call)
    finally:
        checker.session.set_mode(training)
    what = f"In {'eval' if training else 'train'} mode the answer is wrong"
    return None if message is None else (what, message)


def _buffers(checker: Checker) -> tuple[str, str | None] | None:
    side, inputs = checker.side, checker.calls[0].case.inputs
    theirs = {mine: name for name, mine in side.pairs.items()}
    expected = {theirs[name]: out for name, out in buffers_after(side.instance, inputs).items() if name in theirs}
    if not expected:
        return None
    side.hand_over(checker.session)
    checker.session.call(arguments_of(inputs))
    forms = {name: (tuple(out.declared.shape), out.declared.dtype) for name, out in expected.items()}
    state = checker.session.state(forms)
    for name, want in expected.items():
        oracle = Oracle((want,), side.task.precision)
        message = compare([raw_output(state[name])] if name in state else [], oracle, side.rule).message
        if message is not None:
            return HOW["stale_buffers"], f"{name}: {message}"
    return None
