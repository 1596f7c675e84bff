"""The co-judge of a real GPU: the card gives time, the simulator gives trust.

A real GPU is controlled by the candidate's process, which can tell the judge little and could lie. So a candidate that
came out right there is also graded on the simulated card, by the whole evaluation as it is for ``sim:GPU``, and what is
found there counts: what condemns, what is wrong for a reason that the simulated device saw (a race, an access out of
bounds), and what earns no credit. Its times do not count, nor what concerns them alone. A candidate that the simulator
cannot run keeps the card's verdict, which then says so among what was not checked.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from drkernel.gym.device import Device, gpu_name, parse_device
from drkernel.gym.judge.measured_timing import CLOCKS, FLOOR
from drkernel.gym.languages import LANGUAGES, TRITON
from drkernel.gym.request import EvalRequest
from drkernel.sim.spec import get_spec, known_gpus, spec_called
from drkernel.verdict import NotChecked, Verdict

OF_MODELLED_TIME = ("unpriced_operator", "data_dependent", "unstable_time", "baseline_not_compiled")
"""findings about what the simulator can say of a time, which the card has measured"""
NO_CREDIT = (
    "host_compute", "size_dependent", "kernels_missing_when_timed", "weights_apart", "number_dependent",
    "not_equivalent", "constant_answer", "copy_kernel",
)  # fmt: skip
"""findings that take speedup and coverage from a candidate that is right, whatever else is found of its time"""


def with_co_judge(verdict: Verdict, request: EvalRequest, evaluate: Callable[[EvalRequest], Verdict]) -> Verdict:
    """The verdict of a real GPU with the co-judge's findings; a verdict that gives no credit comes back as it is.

    ``evaluate`` grades a request.
    """
    settings = request.settings
    if settings.place.simulated or settings.co_judge == "off" or settings.unsafe_no_checks or not verdict.is_correct:
        return verdict
    language, auto = LANGUAGES.get(verdict.language or "", TRITON), settings.co_judge == "auto"
    if auto and language is not TRITON:
        return verdict
    if (card := nearest_card(settings.place) if auto else settings.co_judge) is None:
        return _not_replayed(verdict, f"torch does not say what card {settings.device} is; set co_judge: sim:GPU")
    if (refusal := language.refusal(parse_device(card))) is not None:
        return _not_replayed(verdict, refusal)
    start = time.perf_counter()
    changed = {"device": card, "co_judge": "off", "baseline": "eager", "lines": False}
    second = evaluate(request.model_copy(update={"settings": settings.model_copy(update=changed)}))
    seconds = time.perf_counter() - start
    phases = {**verdict.phases, "co_judge": seconds}
    return _together(verdict, second).model_copy(update={"phases": phases, "seconds": verdict.seconds + seconds})


def nearest_card(place: Device) -> str | None:
    """The simulated GPU that stands for a real one: its own card, else the one of its architecture (or the nearest)
    whose number of multiprocessors is nearest; None when torch does not know the GPU."""
    named = spec_called(gpu_name(place))
    if named is not None:
        return f"sim:{named.name}"
    number = int(place.name.partition(":")[2])
    if not torch.cuda.is_available() or number >= torch.cuda.device_count():
        return None
    real = torch.cuda.get_device_properties(number)

    def distance(name: str) -> tuple[float, float]:
        spec = get_spec(name)
        arch = spec.arch if isinstance(spec.arch, int) else math.inf  # an AMD card runs other kernels
        return abs(arch - (10 * real.major + real.minor)), abs(math.log(spec.sm_count / real.multi_processor_count))

    return f"sim:{min(known_gpus(), key=distance)}"


def _together(verdict: Verdict, second: Verdict) -> Verdict:
    """The card's verdict with what the simulator's adds to it."""
    shown = any(finding.severity in ("hack", "bug") for finding in second.findings)
    if not second.is_correct and not (second.is_hack or (shown and second.status in ("incorrect", "runtime_error"))):
        said = second.error.message if second.error else (second.correctness and second.correctness.message) or ""
        return _not_replayed(verdict, f"on {second.device} it is {second.status}, for no fault found: {said[:300]}")
    known = {finding.kind for finding in verdict.findings}
    added = [
        finding.model_copy(update={"seen_on": second.device})
        for finding in second.findings
        if finding.kind not in known and finding.kind not in OF_MODELLED_TIME
    ]
    fields: dict[str, Any] = {
        "co_judge": second.device,
        "findings": (*verdict.findings, *added),
        "not_checked": (*second.not_checked, *(one for one in verdict.not_checked if one.check in (CLOCKS, FLOOR))),
    }
    if not second.is_correct:
        fields |= {"status": second.status, "error": second.error}
        fields["correctness"] = verdict.correctness if second.is_hack else second.correctness
    timed = any(finding.kind in OF_MODELLED_TIME for finding in second.findings)
    withheld = second.speedup is None and second.coverage == 0 and not timed  # for what is no matter of its times
    if not second.is_correct or withheld or any(finding.kind in NO_CREDIT for finding in added):
        fields |= {"speedup": None, "coverage": 0.0}
    elif verdict.coverage is not None and second.coverage is not None and second.profile is not None:
        whole = second.profile.coverage  # with launches that the answer does not need, and copies of others' work
        fields["coverage"] = verdict.coverage * min(1.0, second.coverage / whole) if whole > 0 else 0.0
    return verdict.model_copy(update=fields)


def _not_replayed(verdict: Verdict, why: str) -> Verdict:
    return verdict.model_copy(
        update={"not_checked": (*verdict.not_checked, NotChecked(check="the co-judge's findings", why=why))}
    )
