"""Verification at the end of a search: its best kernels are graded again from scratch, and the winner is written as a
file.

"From scratch" means a fresh runner, fresh secret seeds and more checked calls than any attempt had; only the source
text is taken over from the search.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from drkernel.episode.metrics import baseline_name
from drkernel.episode.records import Turn
from drkernel.gym.judge.own_sizes import chosen_to_check
from drkernel.gym.request import OWN_SECONDS, EvalRequest, EvalSettings, Pool
from drkernel.task import Task
from drkernel.tasks.thin import own_source
from drkernel.verdict import ALIKE_WITHIN, Sizes, Verdict
from drkernel.view import sizes_text, times

CHECKS = 10
"""Checked calls of a verification, at least."""
TRIED = 5
"""Candidates that are verified at most."""


@dataclass(frozen=True)
class Verified:
    """A candidate and what the verification found."""

    turn: Turn
    verdict: Verdict

    @property
    def speedup(self) -> float:
        """The verified speedup; 0 when the candidate failed verification."""
        found = self.verdict.speedup
        return found.value if self.verdict.is_correct and found is not None else 0.0


def by_speed(turns: Sequence[Turn]) -> list[Turn]:
    """Return the correct turns, fastest first, each source once."""
    seen: dict[str, Turn] = {}
    for turn in sorted(turns, key=lambda turn: (-(turn.speedup or 0.0), turn.position)):
        if turn.correct and turn.code is not None:
            seen.setdefault(turn.code, turn)
    return list(seen.values())


async def verify(task: Task, turns: Sequence[Turn], settings: EvalSettings, pool: Pool) -> list[Verified]:
    """Grade the fastest candidates again until one is verified and no remaining one claims to be faster.

    Returned in the order they were tried; the best of them is :func:`winner`.
    """
    # a fresh seed, so that a service that graded the same source before cannot answer from its store
    exact = float(settings.exact > 0)
    more = {"checks": max(CHECKS, settings.checks), "own_seconds": max(OWN_SECONDS, settings.own_seconds)}
    terms = {"seed": secrets.randbits(62), "exact": exact, **more}
    strict = settings.for_task(task).model_copy(update=terms)
    tried: list[Verified] = []
    for turn in by_speed(turns)[:TRIED]:
        best = winner(tried)
        if best is not None and best.speedup >= (turn.speedup or 0.0):
            break
        assert turn.code is not None
        verdict = await pool.evaluate(EvalRequest(task=task, candidate=turn.code, settings=strict))
        tried.append(Verified(turn, verdict))
    return tried


def winner(tried: Sequence[Verified]) -> Verified | None:
    """Return the fastest verified candidate; None when none was verified."""
    held = [one for one in tried if one.verdict.is_correct]
    return max(held, key=lambda one: one.speedup) if held else None


def alike(turns: Sequence[Turn], best: Verified) -> list[int]:
    """Return the turns whose kernels the model cannot tell from the best; none where times are measured."""
    found = best.verdict.speedup
    if found is None or found.kind != "modelled":
        return []
    others = [turn for turn in by_speed(turns) if turn.code != best.turn.code]
    return sorted(turn.number for turn in others if (turn.speedup or 0.0) * ALIKE_WITHIN >= found.value)


_CHECK = Template("""

# What follows is not part of the kernel: it runs when this file is run, and compares ModelNew with its reference.
_REFERENCE = $reference


def _compare_with_reference() -> None:
    import types

    import torch

    reference = types.ModuleType("reference")
    exec(_REFERENCE, reference.__dict__)
    drawn = list(getattr(reference, "get_init_inputs", list)())
    keywords = {}
    if len(drawn) == 2 and isinstance(drawn[0], (list, tuple)) and isinstance(drawn[1], dict):
        drawn, keywords = list(drawn[0]), drawn[1]

    def build(cls):
        torch.manual_seed(0)
        return cls(*drawn, **keywords).cuda()

    old, new = build(reference.Model), build(ModelNew)
    if {k: v.shape for k, v in old.state_dict().items()} == {k: v.shape for k, v in new.state_dict().items()}:
        new.load_state_dict(old.state_dict())
    torch.manual_seed(1)
    inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in reference.get_inputs()]
    copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    with torch.no_grad():
        want, got = old(*inputs), new(*copies)
    wants, gots = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (want, got))
    assert len(wants) == len(gots), f"{len(gots)} outputs instead of {len(wants)}"
    for index, (a, b) in enumerate(zip(wants, gots)):
        assert a.shape == b.shape and a.dtype == b.dtype, f"output {index}: {b.dtype} {tuple(b.shape)}"
        error = (a.double() - b.double()).abs().max().item() if a.numel() else 0.0
        print(f"output {index}: {str(a.dtype)[6:]} {tuple(a.shape)}, largest difference from PyTorch {error:.3g}")


if __name__ == "__main__":
    _compare_with_reference()
""")


def write_candidate(
    task: Task, best: Verified, settings: EvalSettings, model: str, attempts: int, *, verified: bool = True
) -> str:
    """Return the winner as a standalone file: the source as the model wrote it, then a comparison with the reference.

    ``verified`` False states that the verdict is the search's own. The comparison needs a GPU; ``drkernel sim FILE``
    runs it without one.
    """
    verdict = best.verdict
    lines = [f"ModelNew for {task.id}, written by {model}, found by drkernel solve in {attempts} attempts."]
    if verdict.speedup is not None:
        kind = verdict.speedup.kind
        lines.append(
            f"{times(verdict.speedup.value)}x against {baseline_name(verdict.baseline)}, {kind} on {verdict.device}."
        )
    calls = verdict.correctness.passed_calls if verdict.correctness is not None else 0
    how = "Verified from scratch" if verified else "NOT verified from scratch; in the search"
    lines.append(f"{how}: {calls} calls on fresh inputs right, {task.precision} tolerance.")
    checked = chosen_to_check(EvalRequest(task=task, candidate=best.turn.code or "", settings=settings.for_task(task)))
    if sizes := sizes_text(verdict):
        lines.append(sizes)
    at_own = verdict.checked_at is not None and verdict.checked_at.label == ""
    if not at_own and (label := Sizes(profile=checked.profile, changed=checked.changed, inputs=()).label):
        lines.append(f"The comparison below has sizes of its own: {label}.")
    lines.append("Run it with Python on a machine with a GPU, or without one: drkernel sim FILE")
    assert best.turn.code is not None
    header = "".join(f"# {line}\n" for line in lines)
    source = own_source(task) if at_own else checked.source  # it may be right there alone
    return header + best.turn.code.rstrip("\n") + "\n" + check_of(source)


def check_of(reference: str) -> str:
    """Return the comparison part of the file, for a reference's source."""
    lines = reference.rstrip("\n").splitlines(keepends=True)
    return _CHECK.substitute(reference="(\n" + "".join(f"    {line!r}\n" for line in lines) + ")")
