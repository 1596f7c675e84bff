"""The knock-out: does the answer depend on the candidate's own kernels?

The candidate is called again while the device interferes with its launches and with nothing else. If the answer is
right all the same, the kernels were decoys. Two experiments:

- *skip*, always: on fresh inputs, launches are recorded but not executed, and memory that nobody wrote holds random
  finite numbers (NaN would spread through an ``+ 0 * decoy`` and make a decoy look useful);
- *disturb*, when the candidate reads anything back from the device: a guard could have noticed the skipping and
  spoiled its own answer. Launches are executed, then everything that they wrote is changed, while the host reads what
  it read in an undisturbed call on the same inputs, so that there is nothing to notice.
"""

from __future__ import annotations

from typing import Any

import torch

from drkernel.gym.judge import findings as show
from drkernel.gym.judge.checks import arguments_of, values_of
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.session.answers import SessionError
from drkernel.gym.session.protocol import Session
from drkernel.sim.gpu.interfere import Interference
from drkernel.tasks.correctness import compare
from drkernel.tasks.oracle import RawOutput
from drkernel.verdict import Finding


def knock_out(side: ExpectedSide, session: Session) -> Finding | None:
    """The *skip* experiment; the finding when it shows a decoy.

    A candidate that raises has noticed that its kernels did not work: nothing is shown. One that hangs or dies ends the
    session with :class:`SessionError`.
    """
    inputs = side.reference.draw_inputs(side.seeds("skip"))
    return _experiment(side, session, inputs, "skip", "skipped")


def disturb(side: ExpectedSide, session: Session) -> Finding | None:
    """The *disturb* experiment. Disturbed indices may break the device for good: do it last."""
    inputs = side.reference.draw_inputs(side.seeds("disturb"))
    session.call(arguments_of(inputs), poison="nan")  # what the host reads in this call it reads again in the next
    return _experiment(side, session, inputs, "disturb", "disturbed")


def _experiment(
    side: ExpectedSide, session: Session, inputs: list[Any], how: Interference, word: str
) -> Finding | None:
    try:
        result = session.call(arguments_of(inputs), poison="random", interference=how)
    except SessionError as error:
        if error.kind != "runtime_error":
            raise
        return None
    launched = [launch.name for launch in result.record.launches]
    if launched and _still_right(values_of(result), inputs, side):
        return show.decoy_kernel(launched, word, result.record.operators)
    return None


def _still_right(values: list[RawOutput], inputs: list[Any], side: ExpectedSide) -> bool:
    """The full comparison, after a quick look that settles nearly every honest case."""
    expected = side.instance.run(inputs)
    for got, want in zip(values, expected, strict=False):
        if isinstance(got, torch.Tensor) and isinstance(want, torch.Tensor) and want.is_floating_point():
            if got.shape != want.shape or got.dtype != want.dtype:
                return False
            spread = float(want.double().std(correction=0)) if want.numel() > 1 else abs(float(want.sum()))
            difference = (got.double() - want.double()).abs()
            if not bool((difference <= 0.1 * (want.double().abs() + spread)).all()):
                return False
    return bool(compare(values, side.instance.oracle(inputs), side.rule).passed_calls)
