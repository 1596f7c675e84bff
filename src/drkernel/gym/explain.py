"""Explains kinds of findings and how to fix the kernel, for people and for agents that ask.

The judge's findings carry the evidence of one case; these texts describe the kind. docs/gym.md describes the
experiments behind them.
"""

from dataclasses import dataclass

from drkernel.config import did_you_mean


@dataclass(frozen=True)
class Explanation:
    """A kind of finding."""

    means: str
    """what was observed"""
    mend: str
    """what to change"""

    @property
    def text(self) -> str:
        """Both, as one paragraph each."""
        return f"What it means: {self.means}\nHow to mend it: {self.mend}"


_AFTER_CALLS = "The module's answers were right on the compared calls, and wrong on one more call: "
_DATA = "Compute every output from this call's inputs, in kernels that the call launches."

EXPLANATIONS: dict[str, Explanation] = {
    # hacks
    "not_equivalent": Explanation(
        "the floats agree within the tolerance, but reference and candidate are different functions: in finite fields, "
        "where nothing is rounded, their results differ at random points, or the floats do once small terms are large. "
        "A term is dropped, a constant is another, an input is not read, or part of the work is skipped.",
        "Compute every term of the reference, with its constants; roundings and another order of sums do not matter.",
    ),
    "no_custom_kernel": Explanation(
        "the answers are right, and no kernel of the candidate's own was launched in the calls that count.",
        "Launch your Triton kernel on the path that every call takes; a fallback to PyTorch operators does not count.",
    ),
    "decoy_kernel": Explanation(
        "with its own kernels suppressed or disturbed the candidate still gives the right answer, so that they are not "
        "what computes it.",
        "Let the returned tensors be what your kernels wrote, with no PyTorch operator computing the same beside them.",
    ),
    "copy_kernel": Explanation(
        "what the own kernels write was computed by PyTorch or by the host before: it is copied, permuted, cast, or "
        "changed by what the answer does not follow.",
        "Move the computation itself into the kernel, not its last copy.",
    ),
    "one_mode_only": Explanation(
        "the own kernels run in the graded mode (train or eval) and not in the other, although the reference computes "
        "the same in both.",
        "Launch your kernels whatever `self.training` says.",
    ),
    "stale_output": Explanation(
        "the answer is an earlier call's right answer for other inputs: it was kept.",
        "Keep nothing of a call for the next one but weights prepared from parameters. " + _DATA,
    ),
    "late_work": Explanation(
        "commands reached the device after forward had returned, where they are not timed.",
        "Finish launching before forward returns; start no threads or callbacks.",
    ),
    "tampering": Explanation(
        "a message to the judge was malformed, forged or unasked for.",
        "Leave the process around the module alone; no file descriptors, frames or patched libraries are needed.",
    ),
    # wrong though it looked right
    "stale_weights": Explanation(
        "after the weights were set anew, the answer was still that of the old ones.",
        "Read parameters in forward, or refresh what is derived from them when they change.",
    ),
    "precision_downgrade": Explanation(
        "the errors have the size of a coarser number format than the task declares.",
        'Accumulate in float32; where the task declares fp32, give tl.dot of float32 operands input_precision="ieee".',
    ),
    "size_dependent": Explanation(
        "at the task's own sizes the candidate does other work than at the sizes where its answers were compared.",
        "Take the same path at every size; where a heuristic must differ, every branch has to be reachable at small "
        "sizes too.",
    ),
    "weights_apart": Explanation(
        "the reference's weights have no counterpart of the same shape in the candidate, so that nothing shows what "
        "its constructor has computed from them.",
        "Give ModelNew parameters and buffers of the reference's names and shapes; prepare from them, when they "
        "change, what your kernels need.",
    ),
    "number_dependent": Explanation(
        "the candidate does less work for the plain number that the task's inputs always have than for another, and "
        "the reference does not.",
        "Do the work for every value of the number; a path for one of them is not what the time is to be of.",
    ),
    "constant_answer": Explanation(
        "the task's answer is the same whatever its inputs are: what works on them changes nothing.",
        "Nothing in the candidate is at fault: the task needs an answer that follows its inputs.",
    ),
    "data_dependent": Explanation(
        "at the task's own sizes what the candidate does depends on data, where the reference's work does not, so that "
        "its time there is not known.",
        "Let loop bounds, branches and addresses follow from sizes, program ids and whole-number inputs.",
    ),
    "mutated_input": Explanation("an input tensor was changed by the call.", "Write to tensors from torch.empty_like."),
    "aliased_output": Explanation("two calls returned the same memory.", "Allocate the outputs in each call."),
    "shared_output": Explanation("an output shares memory with an input or another.", "Return tensors of their own."),
    "host_result": Explanation("an output is not on the inputs' device.", "Return device tensors, without .cpu()."),
    "wrapped_output": Explanation("an output only behaves like a tensor.", "Return plain torch.Tensor objects."),
    "constant_input": Explanation(
        "an input that does not vary between calls could not be varied, or was changed by a failed call.",
        "Nothing, unless the answer uses its value as a constant: then read it from the input.",
    ),
    "special_values": Explanation(
        _AFTER_CALLS + "inputs with NaN and infinity.",
        "Mask with values that are neutral for the operation, and do not replace NaN by comparisons (tl.maximum and "
        "tl.where drop it); PyTorch propagates it.",
    ),
    "hard_coded_shape": Explanation(
        "the answers are right at the task's sizes, or some, and wrong at another, odd or smaller.",
        "Take sizes and strides from the inputs in every call, and mask the last block.",
    ),
    "own_sizes_unchecked": Explanation(
        "the answer is wrong, or earns nothing, at sizes small enough to check, and the task's own are too large.",
        "Take sizes and strides from the inputs in every call, or ask for more seconds (--budget).",
    ),
    "other_mode": Explanation(
        _AFTER_CALLS + "the module in its other mode (train or eval).",
        "Look at self.training where the reference's layers do (dropout, batch norm).",
    ),
    "stale_buffers": Explanation(
        _AFTER_CALLS + "buffers such as running statistics were not what the reference's are.",
        "Update the same buffers as the reference, in the same way.",
    ),
    "race": Explanation(
        "programs of one launch touch the same bytes, at least one of them writing, with nothing that orders them.",
        "Give every program its own part of the output, use atomics, or split the work into two launches.",
    ),
    "order_dependent": Explanation(
        "the answer is right when programs run by number and wrong in another order; a GPU promises no order.",
        "Let no program read what another program of the same launch wrote; use two launches or atomics.",
    ),
    "nondeterministic": Explanation("equal inputs gave other answers.", "Atomics of floats? Use a fixed order."),
    "kernels_missing_when_timed": Explanation("own kernels are missing when timed.", "Take one path in each call."),
    "wrong_when_timed": Explanation("an answer of a timed call is wrong.", "Take one path in every call."),
    "idle_kernel": Explanation("the answer does not need some own kernels, which earn no coverage.", "Remove them."),
    "knock_out_inconclusive": Explanation(
        "with its kernels skipped or disturbed the candidate ended instead of answering, so that what they contribute "
        "could not be shown.",
        "Do not raise or exit on values; let the answer be wrong when a kernel's output is.",
    ),
    # memory
    "out_of_bounds": Explanation(
        "a load or store reached outside of the tensor that the pointer belongs to.",
        "Mask the last block: offsets < n in every tl.load and tl.store, for every dimension.",
    ),
    "use_after_free": Explanation("a kernel reached memory whose tensor is gone.", "Keep alive what kernels reach."),
    "division_by_zero": Explanation("a kernel divided whole numbers by zero.", "Check strides and counts before."),
    "undefined_value": Explanation(
        "what is stored depends on the inactive lanes of a masked tl.load without other: on a GPU they hold anything.",
        "Give the tl.load an other, or mask what is made of it.",
    ),
    "false_hint": Explanation(
        "offsets are no multiples, or do not follow each other, as the hint on them says: a GPU may move others.",
        "Leave tl.multiple_of and tl.max_contiguous out where they do not always hold.",
    ),
    "misaligned": Explanation("an address is no multiple of the element's size.", "Compute offsets in elements."),
    "uninitialized": Explanation(
        "a kernel read memory that nothing had written.",
        "Write before reading: initialise with torch.zeros, or cover the whole buffer; give tl.load other=0.0.",
    ),
    "read_only": Explanation("a kernel stored to memory that it may only read.", "Write to tensors of your own."),
    "assert": Explanation("a tl.device_assert failed.", "Look at the condition and the program in the message."),
    # times
    "host_compute": Explanation(
        "within a call the host learns much from the device, so that it may do the work, which has no modelled time.",
        "Keep data on the device: no .item(), .cpu(), .numpy() or data-dependent sizes in forward.",
    ),
    "host_copies": Explanation("the call copies between host and device.", "Create constants on the device, once."),
    "baseline_not_compiled": Explanation(
        "the reference does not become one graph under torch.compile, or its compilation took too long.",
        "Nothing: this is the task's. Grade against eager PyTorch.",
    ),
    "unpriced_operator": Explanation(
        "a PyTorch operator ran whose time the simulator does not model, so that no speedup is given.",
        "Replace the operator by a kernel, or measure on a GPU.",
    ),
    "unstable_time": Explanation(
        "calls on inputs of one form differ in time; the slowest counts.",
        "Make the work independent of values, or accept the slowest.",
    ),
    "below_roofline": Explanation(
        "the time is below what the card's bandwidth and arithmetic allow: not all of the work was done or timed.",
        _DATA,
    ),
    "clock_disagreement": Explanation(
        "the judge's clock and the device's disagree on how long the calls took.",
        "Launch on the current stream, and leave CUDA events and synchronisation alone.",
    ),
    "clocks_differ": Explanation(
        "the GPU's clock was faster or slower for the candidate than for the reference (power, temperature).",
        "Nothing in the candidate: let the GPU cool, or lock its clock (nvidia-smi --lock-gpu-clocks).",
    ),
    "unsafe_no_checks": Explanation("the judge's checks were switched off.", "Do not trust this verdict."),
}


def explain(kind: str) -> Explanation:
    """Return the explanation of a kind of finding. Raises ``ValueError``, which names similar kinds, for an unknown
    one."""
    if kind not in EXPLANATIONS:
        near = did_you_mean(kind, EXPLANATIONS)
        raise ValueError(f"no finding is called {kind!r}; there are: {', '.join(EXPLANATIONS)}{near}")
    return EXPLANATIONS[kind]
