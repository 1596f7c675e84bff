"""The knock-out: does the answer depend on the candidate's own kernels?

The candidate is called again, on inputs it has not seen, while the device interferes with its launches and with
nothing else. If the answer is right all the same, the kernels were decoys. Two ways to interfere:

- *skipped*: launches are recorded but not executed, and memory that nobody wrote holds random finite numbers (NaN
  would spread through an ``+ 0 * decoy`` and make a decoy look useful);
- *disturbed*: launches are executed, then every floating value that they wrote is changed by a random factor. This
  one cannot be told from a real run by looking for a flag that a kernel sets.
"""

from __future__ import annotations

import torch

from drkernel.gym import findings as show
from drkernel.gym.checks import put_all, values_of
from drkernel.gym.expected import ExpectedSide
from drkernel.gym.session import Session, SessionError
from drkernel.sim.engine import Interference
from drkernel.tasks.compare import compare
from drkernel.verdict import Finding

WORDS: dict[Interference, str] = {"skip": "skipped", "disturb": "disturbed"}


def knock_out(side: ExpectedSide, session: Session, how: Interference) -> Finding | None:
    """One experiment, on secret inputs of its own; the finding when it shows a decoy.

    A candidate that raises has noticed that its kernels did not work: no decoy is shown. One that hangs or dies ends
    the session with :class:`SessionError`. Disturbed indices may send a kernel out of bounds, after which the device is
    of no more use: disturb last.
    """
    inputs = side.reference.draw_inputs(side.seeds(f"knock-out {how}"))
    session.interfere(how)
    session.set_poison("random")
    try:
        result = session.call(put_all(session, inputs))
    except SessionError as error:
        if error.kind != "runtime_error":
            raise
        return None
    finally:
        session.interfere("none")
    launched = [launch.name for launch in result.record.launches]
    if launched and _still_right(values_of(result), inputs, side):
        return show.decoy_kernel(launched, WORDS[how], result.record.operators)
    return None


def _still_right(values: list, inputs: list, side: ExpectedSide) -> bool:
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
