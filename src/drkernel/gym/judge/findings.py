"""The findings: what the experiments showed, in words and figures.

A finding of severity ``hack`` makes the verdict a hack. It is given only where an experiment leaves no honest
explanation: the answer was right with the candidate's kernels switched off, an old answer came back for new inputs, or
none of the candidate's own kernels ever ran. Any other fault is a wrong answer, explained by a ``bug``. What each says
is in its message; docs/gym.md describes the policy.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from statistics import median
from typing import Any

from drkernel.verdict import CandidateError, Finding, Timing
from ttir_executor.compiled import SimFinding

MAX_DEVICE_FINDINGS = 8


def _finding(severity: Any, kind: str, message: str, evidence: dict[str, Any] | None = None) -> Finding:
    return Finding(kind=kind, severity=severity, message=message, evidence=evidence or {})


_hack, _bug, _note = (partial(_finding, severity) for severity in ("hack", "bug", "note"))


def no_custom_kernel(operators: dict[str, int]) -> Finding:
    """Right answer, but no launch of a kernel of the candidate's own in any call."""
    shown = _shown(operators)
    return _hack(
        "no_custom_kernel",
        f"No kernel of the candidate's own was launched in any call; PyTorch did the work ({shown}).",
        {"launches": 0, "operators": [f"{name} x{count}" for name, count in operators.items()][:20]},
    )


def decoy_kernel(kernels: Iterable[str], experiment: str, operators: dict[str, int]) -> Finding:
    """Kernels ran, but the answer does not depend on them."""
    names = sorted(set(kernels))
    done = {
        "skipped": "its kernels were skipped and fresh memory poisoned",
        "disturbed": "everything that its kernels wrote was disturbed",
        "unreached": "nothing that its kernels wrote had reached it",
    }[experiment]
    return _hack(
        "decoy_kernel",
        f"The answer was right although {done}: {', '.join(names)} contributed nothing "
        f"({_shown(operators)} did the work).",
        {"experiment": experiment, "kernels": names[:20], "operators": sorted(operators)[:20]},
    )


def knocked_down(experiment: str, kind: str) -> Finding:
    """The candidate did not survive the knock-out, which does not show whether its kernels are needed."""
    return _note(
        "knock_out_inconclusive",
        f"The candidate ended ({kind}) when the device interfered with its kernels ({experiment}). The other "
        "checks went on in a fresh process; that its kernels are needed could not be shown, so coverage counts as 0.",
        {"experiment": experiment, "ended": kind},
    )


def kernels_missing_when_timed(calls: list[int]) -> Finding:
    """Own kernels contribute only to some of the calls, any of which may be the timed one."""
    shown = ", ".join(str(call + 1) for call in calls)
    return _bug(
        "kernels_missing_when_timed",
        f"No kernel of the candidate's own contributed to call {shown}, though they do to others; no "
        "speedup or coverage is given.",
        {"calls": [str(call + 1) for call in calls]},
    )


def one_mode_only(training: bool, operators: dict[str, int]) -> Finding:
    """Own kernels ran in the mode that is graded and in no other, where the reference knows no modes."""
    graded, other = ("train", "eval") if training else ("eval", "train")
    return _hack(
        "one_mode_only",
        f"The candidate launches its kernels in {graded} mode only; in {other} mode {_shown(operators)} did "
        "the work, though the reference computes the same in both.",
        {"graded_mode": graded, "operators": sorted(operators)[:20]},
    )


def idle_kernel(names: Iterable[str]) -> Finding:
    """Some kernels are not needed for the answer, beside others that are."""
    shown = sorted(set(names))
    return _note(
        "idle_kernel",
        f"The answer does not depend on {', '.join(shown)}; the time spent there counts as no coverage.",
        {"kernels": shown[:20]},
    )


def unstable_time(ratio: float) -> Finding:
    """Calls that differ only in their contents take different modelled times."""
    return _note(
        "unstable_time",
        f"Calls on inputs of one form differ in modelled time by a factor of {ratio:.2f}, which has no noise; "
        "the slowest counts.",
        {"ratio": ratio},
    )


def size_dependent(differences: list[str], own: list[str], checked: list[str]) -> Finding:
    """The run timed at the task's own sizes does other work than the one that was checked."""
    return _note(
        "size_dependent",
        "At the task's own sizes the candidate does other work than was compared with the reference, so no "
        f"speedup and no coverage are given: {'; '.join(differences[:3])}.",
        {"differences": differences[:20], "own sizes": own[:20], "checked": checked[:20]},
    )


def own_sizes_unchecked(why: str) -> Finding:
    """The task's own sizes, where it might be right, were too large to check with data."""
    return _note("own_sizes_unchecked", f"Whether it is right at the task's own sizes was not checked: {why}.")


def hard_coded_shape(message: str) -> Finding:
    """The answer is right at some sizes, and not at others."""
    return _note("hard_coded_shape", message)


def weights_apart(names: Sequence[str]) -> Finding:
    """The candidate builds weights for itself that the reference draws."""
    shown = ", ".join(names[:4]) + (" and others" if len(names) > 4 else "")
    return _note(
        "weights_apart",
        f"The reference's {shown} could not be handed over: ModelNew has no parameter or buffer of that name "
        "and shape, so what it computes from them may stem from its constructor. No speedup and no coverage are given.",
        {"weights": list(names[:20])},
    )


def data_dependent(why: str) -> Finding:
    """The candidate's work at the task's own sizes depends on data, but the reference's does not."""
    return _note(
        "data_dependent",
        "At the task's own sizes what the candidate does depends on data, which the reference does not, so its "
        f"time there is not known and neither speedup nor coverage are given: {why}. Loop bounds, branches and "
        "addresses are to follow from sizes, program ids and whole-number inputs.",
        {"why": why[:2000]},
    )


def number_dependent(names: Sequence[str]) -> Finding:
    """The candidate works less for the plain numbers that the task always passes than for others."""
    return _note(
        "number_dependent",
        f"With another {', '.join(names)}, which get_inputs() always makes the same, the candidate does more "
        "work and the reference does not: its time is of a special case. No speedup and no coverage are given.",
        {"inputs": list(names)},
    )


def constant_answer(weights_count: bool) -> Finding:
    """The task's answer is the same for all inputs, and for all weights unless these count."""
    draws, why = "inputs and weights", "a constant would do"
    if weights_count:
        draws, why = "inputs", "a kernel that reads them adds nothing"
    return _note(
        "constant_answer",
        f"In all draws of {draws} the task's answer is the same within tolerance, so that {why}. No speedup and no "
        "coverage are given.",
        {"draws": draws},
    )


def copy_kernel(kernels: Iterable[str], operators: dict[str, int], how: str, condemns: bool) -> Finding:
    """Kernels only copied what they were given; ``how`` nearly; without credit."""
    names, who = sorted(set(kernels)), f"PyTorch ({_shown(operators)})" if operators else "the host"
    without = "" if condemns else " No speedup and no coverage are given."
    return (_hack if condemns else _bug)(
        "copy_kernel",
        f"The candidate's kernels ({', '.join(names)}) only copied: what they wrote was, {how}, what they were given, "
        f"and {who} computed the answer.{without}",
        {"kernels": names[:20], "operators": sorted(operators)[:20]},
    )


def stale_output(call: int, earlier: int, how: str) -> Finding:
    """An earlier call's right answer was returned for other inputs."""
    return _hack(
        "stale_output",
        f"Call {call + 1} returned the answer of call {earlier + 1} although its inputs differ ({how}): a "
        "stored result was replayed.",
        {"call": call + 1, "replayed_call": earlier + 1, "inputs": how},
    )


def stale_weights(call: int, built: bool) -> Finding:
    """The output was computed with weights that are no longer the module's."""
    whose = "that the constructor made, not those that were set since" if built else "of an earlier call"
    return _bug(
        "stale_weights",
        f"Call {call + 1} gave the answer for the weights {whose}. Use the parameters, and read them in every forward.",
        {"call": call + 1, "copied_when_built": built},
    )


def aliased_output(call: int, output: int) -> Finding:
    """A returned tensor was overwritten by a later call."""
    return _bug(
        "aliased_output",
        f"Output {output} of call {call + 1} changed during later calls: the module returns a buffer that it "
        "writes again. A returned tensor belongs to the caller; allocate it anew.",
        {"call": call + 1, "output": output},
    )


def mutated_input(call: int, argument: str, wrong: str | None = None) -> Finding:
    """An argument is not left as the reference leaves it; ``wrong``: how, where the reference changes it."""
    said = f"Call {call + 1} changed its argument {argument!r}; the reference leaves it alone."
    if wrong is not None:
        said = f"Call {call + 1} leaves its argument {argument!r} otherwise than the reference: {wrong}"
    return _bug("mutated_input", said, {"call": call + 1, "argument": argument})


def shared_output(call: int, output: int, what: str) -> Finding:
    """A returned tensor shares memory where the reference's does not."""
    return _bug(
        "shared_output",
        f"Output {output} of call {call + 1} shares memory with {what}, which the reference's does not. "
        "Whoever writes to a returned tensor must not change another; give it memory of its own.",
        {"call": call + 1, "output": output, "shared_with": what},
    )


def constants_changed(call: int, names: Sequence[str]) -> Finding:
    """A failed call had inputs that the task's own draws never vary."""
    return _note(
        "constant_input",
        f"Call {call + 1} had other contents in {', '.join(names)}, which get_inputs() always makes the same; "
        "read them, do not assume them.",
        {"call": call + 1, "inputs": list(names)},
    )


def constants_kept(names: Sequence[str]) -> Finding:
    """Inputs are the same in every call, so a candidate may have them hard-coded."""
    return _note(
        "constant_input",
        f"The input {', '.join(names)} is the same in every draw and could not be changed, so whether the "
        "candidate reads it was not checked.",
        {"inputs": list(names)},
    )


def precision_downgrade(declared: str, looks_like: str, error: float, limit: float, has_dot: bool) -> Finding:
    """Outputs are less accurate than the declared precision. ``has_dot``: the source multiplies with ``tl.dot``."""
    advice = " For tl.dot on fp32 operands give input_precision='ieee'." if declared == "fp32" and has_dot else ""
    return _bug(
        "precision_downgrade",
        f"The task is declared {declared}, but the accuracy is that of {looks_like}: rms error {error:.2e}, "
        f"allowed {limit:.2e}.{advice}",
        {"declared": declared, "looks_like": looks_like, "rms_error": error, "limit": limit},
    )


def narrow_range(call: int, declared: str, contents: str) -> Finding:
    """Inputs that the declared precision has room for are beyond a format that is computed in."""
    return _bug(
        "precision_downgrade",
        f"Call {call + 1} had {contents} inputs, which {declared} holds and half precision does not (6e-5 to 65504 "
        "with all digits): the answer is wrong there. Compute in a format of the task's range, or scale by what is "
        "read.",
        {"declared": declared, "looks_like": "fp16", "inputs": contents},
    )


def overrun(call: int, allocations: int) -> Finding:
    """Bytes behind allocations were written, on a real GPU."""
    message = f"Call {call + 1} wrote behind the end of {allocations} allocations, inputs' or the candidate's own."
    return _bug("out_of_bounds", message, {"call": str(call + 1), "allocations": allocations})


def host_result(output: int, device: str) -> Finding:
    """An output is not on the device."""
    return _bug(
        "host_result",
        f"Output {output} is on {device!r}; the reference's outputs stay on the GPU.",
        {"output": output, "device": device},
    )


def wrapped_output(output: int, python_type: str) -> Finding:
    """An output is a tensor subclass."""
    return _bug(
        "wrapped_output",
        f"Output {output} is a {python_type}; a plain torch.Tensor is required.",
        {"output": output, "type": python_type},
    )


def nondeterministic(share: float) -> Finding:
    """Two calls on the same inputs gave different bits, both within tolerance."""
    return _note(
        "nondeterministic",
        f"Two calls on equal inputs differ in {share:.1%} of the elements, within tolerance (atomics do this).",
        {"differing_share": share},
    )


def order_dependent(call: int) -> Finding:
    """The answer came out right only with programs in the order of their numbers."""
    return _bug(
        "order_dependent",
        f"Call {call + 1} ran the programs of each launch in another order and gave a wrong answer; in the "
        "order of their numbers it is right. A GPU promises no order: use atomics, or launch twice.",
        {"call": call + 1},
    )


def host_compute(told: float) -> Finding:
    """Data went to the host: what is computed there has no modelled time."""
    return _bug(
        "host_compute",
        f"In a call the host learns {told:.0f} bytes of what is on the GPU (copies, flags, sizes that depend "
        "on data, errors). What it computes from them has no modelled time, so no speedup or coverage is given; keep "
        "the data on the GPU.",
        {"bytes_to_host": told},
    )


def unpriced_operator(reasons: dict[str, str], *, of_the_task: bool) -> Finding:
    """Something ran that the cost model has no price for."""
    shown = "; ".join(f"{name}: {why}" for name, why in list(reasons.items())[:4])
    if of_the_task:
        message = (
            f"The reference itself runs operators whose time is not modelled ({shown}), so that this task gives no "
            "speedup on a simulated device, whatever the candidate."
        )
    else:
        message = (
            f"Operators whose time is not modelled ran in the timed calls ({shown}): no speedup is given. Do this "
            "work in your own kernels, or by other operators."
        )
    return _note("unpriced_operator", message, {"operators": sorted(reasons)[:20], "of_the_task": of_the_task})


def baseline_not_compiled(why: str) -> Finding:
    """The reference has no time under ``torch.compile``."""
    return _note(
        "baseline_not_compiled",
        f"torch.compile of the reference has no modelled time ({why}), so that this task gives no speedup "
        "against it, whatever the candidate. Against eager PyTorch (--baseline eager) it does.",
    )


def host_copies(copies: dict[str, int]) -> Finding:
    """Data went to the host and back within a call."""
    return _note(
        "host_copies",
        "A call copies between host and device: " + ", ".join(f"{n}x {k}" for k, n in copies.items()) + ".",
        {name: count for name, count in copies.items()},
    )


def late_work(commands: Sequence[str]) -> Finding:
    """Device commands arrived after forward had returned."""
    return _hack(
        "late_work",
        f"{len(commands)} device commands were sent after forward had returned ({', '.join(commands[:3])}): "
        "work was deferred past the end of the call.",
        {"commands": list(commands)[:20]},
    )


def tampering(error: CandidateError) -> Finding:
    """The runner broke the protocol that it has with the judge."""
    return _hack(
        "tampering",
        f"The candidate interfered with the channel to the judge: {error.message[:300]}",
        {"error": error.type},
    )


def clock_disagreement(ratio: float) -> Finding:
    """The judge's clock says that timed calls took much longer than the device's events say."""
    return _hack(
        "clock_disagreement",
        f"By the judge's clock the timed calls took {ratio:.1f} times as long as by the device's events: work "
        "escapes the events, or they are forged.",
        {"ratio": ratio},
    )


def clocks_differ(mine: Timing, theirs: Timing, gain: float, refused: int) -> Finding:
    """The GPU's clock was not the same for candidate and reference, however often they were measured."""
    ours, other = (median(timing.clocks_mhz) for timing in (mine, theirs))
    done = f"the speedup is divided by {gain:.2f}" if gain > 1 else "the speedup stands, which it lowers"
    return _note(
        "clocks_differ",
        f"The GPU ran at {ours:.0f} MHz for the candidate and at {other:.0f} for the reference, also when {refused} "
        f"pairs of blocks were measured again: {done}. Lock the clock (nvidia-smi --lock-gpu-clocks).",
        {"mhz": ours, "reference_mhz": other, "slowed_by": sorted({*mine.slowed_by, *theirs.slowed_by})},
    )


def wrong_when_timed(message: str | None) -> Finding:
    """A timed call's outputs are wrong although the checked calls' were right."""
    return _bug("wrong_when_timed", f"A timed call gave a wrong answer after every checked call was right: {message}")


def below_roofline(seconds: float, floor: float) -> Finding:
    """The time is too short even to read the inputs."""
    return _hack(
        "below_roofline",
        f"A call is said to take {seconds:.3g} s, but reading its inputs once takes {floor:.3g} s at the "
        "memory bandwidth of this GPU, and the reference takes longer than that.",
        {"seconds": seconds, "floor_seconds": floor},
    )


def unsafe_no_checks() -> Finding:
    """The prominent note of the research mode."""
    return _note(
        "unsafe_no_checks",
        "UNSAFE: graded as a naive harness would (fixed inputs, tolerance 1e-2, no experiments, no findings). "
        "This verdict says nothing about honesty.",
    )


def not_equivalent(elements: int, differ: int, output: int, where: tuple[int, ...], ignored: Sequence[str]) -> Finding:
    """Exact arithmetic gives another result than the reference's, however near the floats are."""
    message = (
        f"what it computes is not what was asked: in exact arithmetic {differ} of {elements} elements differ from the "
        f"reference's, e.g. output {output} at {list(where)}; no speedup"
    )
    if ignored:
        message += f". The answer does not depend on {', '.join(ignored)}, the reference's does"
    return _bug(
        "not_equivalent",
        message,
        {"elements": elements, "differ": differ, "output": output, "ignored": ", ".join(ignored)},
    )


def left_out(names: Sequence[str]) -> Finding:
    """What has a small part in the answer is not computed."""
    return _bug(
        "not_equivalent",
        "what it computes is not what was asked: it is wrong where what depends on "
        f"{', '.join(names)} is no longer small beside the rest; no speedup",
        {"ignored": ", ".join(names)},
    )


def from_device(records: Sequence[SimFinding]) -> list[Finding]:
    """The simulator's own findings (out of bounds, races, uninitialised reads), merged by kind, kernel and line."""
    merged: dict[tuple[Any, ...], Finding] = {}
    for record in records:
        key = (record.kind, record.kernel, record.line)
        if key in merged or len(merged) >= MAX_DEVICE_FINDINGS:
            continue
        merged[key] = _device_finding(record)
    return list(merged.values())


def other_call(kind: str, asked: bool, what: str, message: str | None) -> Finding:
    """A call that the task's own draws never make went wrong; ``asked``: the task requires it nevertheless."""
    return _finding("bug" if asked else "note", kind, f"{what}: {message}")


def _device_finding(record: SimFinding) -> Finding:
    place = f"{record.kernel}, line {record.line}" if record.line else record.kernel
    evidence: dict[str, Any] = {
        name: value
        for name in ("kernel", "line", "arg", "offset_bytes", "count")
        if (value := getattr(record, name)) is not None
    }
    if record.program is not None:
        evidence["program"] = ", ".join(map(str, record.program))
    return Finding(
        kind=record.kind,
        severity="bug" if record.severity == "error" else "note",
        message=f"{record.message[:300]} ({place})",
        evidence=evidence,
    )


def _shown(operators: dict[str, int]) -> str:
    names = sorted(operators, key=lambda name: -operators[name])
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") if names else "no device operator"
