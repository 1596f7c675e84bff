"""What candidates are checked on beyond their task's own draws, and what they may do to memory that is not theirs."""

import pytest

from corpus_grading import entry_named, task_named
from drkernel.gym.judge import other_calls
from drkernel.task import Task

REFERENCE = """
import torch
{top}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {args}):
        {body}
def get_inputs():
    return [{inputs}]
"""
CANDIDATE = """
import torch, triton, triton.language as tl
@triton.jit
def copy_kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < size), at < size)
@triton.jit
def axpy_kernel(x_ptr, y_ptr, out_ptr, scale, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    tl.store(out_ptr + at, tl.load(x_ptr + at, keep) * scale + tl.load(y_ptr + at, keep), keep)
def axpy(x, y, out, scale):
    axpy_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, scale, x.numel(), BLOCK=256)
    return out
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {args}):
        {body}
"""


def graded(gym, reference, candidate, *, args="x", inputs="torch.randn(8, 64)", init="pass", top="", **terms):
    text = REFERENCE.format(body=reference, args=args, inputs=inputs, init=init, top=top)
    source = CANDIDATE.format(body=candidate, args=args, init=init)
    return gym.grade(Task(id="t", reference=text, **terms), source)


def kinds(verdict):
    return {finding.kind: finding.severity for finding in verdict.findings}


# ---- arguments and memory


UPDATE = {"args": "x, state, other", "inputs": "torch.randn(8, 64), torch.randn(8, 64), torch.randn(8, 64)"}


@pytest.mark.parametrize(
    ("candidate", "wrong"),
    [
        ("axpy(state, x, state, 0.5); return axpy(x, other, torch.empty_like(x), 1.0)", None),
        ("axpy(state, x, state, 0.25); return axpy(x, other, torch.empty_like(x), 1.0)", "state"),
        ("return axpy(x, other, torch.empty_like(x), 1.0)", "state"),
        ("axpy(state, x, state, 0.5); out = axpy(x, other, torch.empty_like(x), 1.0); x.zero_(); return out", "x"),
        ("axpy(state, x, state, 0.5); return axpy(x, other, other, 1.0)", "other"),
    ],
)
def test_each_argument_must_be_left_as_the_reference_leaves_it(gym, candidate, wrong):
    verdict = graded(gym, "state.mul_(0.5).add_(x); return x + other", candidate, **UPDATE)
    assert verdict.status == ("correct" if wrong is None else "incorrect"), verdict
    if wrong is not None:
        assert kinds(verdict)["mutated_input"] == "bug" and repr(wrong) in verdict.correctness.message


def test_a_kernel_that_writes_an_argument_makes_the_answer(gym):
    """The rest of it may be PyTorch's, or nothing at all; a copy of PyTorch's into it is a copy."""
    for back in ("x * 2.0", "None"):
        verdict = graded(
            gym, f"state.mul_(0.5).add_(x); return {back}", f"axpy(state, x, state, 0.5); return {back}", **UPDATE
        )
        assert verdict.is_correct and verdict.coverage > 0 and verdict.speedup is not None, verdict
    copied = "new = state * 0.5 + x; axpy(new, new, state, 0.0); return None"
    assert "copy_kernel" in kinds(graded(gym, "state.mul_(0.5).add_(x); return None", copied, **UPDATE))


def test_the_noise_of_an_output_does_not_excuse_an_argument(gym):
    large = {**UPDATE, "inputs": ", ".join(["torch.randn(512, 1024)"] * 3)}
    candidate = "axpy(state, x, state, 0.5){}; return axpy(x, other, torch.empty_like(x), 1.0) * 1e5"
    for error, status in (("", "correct"), ("[0, 0].add_(6e-4)", "incorrect")):
        verdict = graded(gym, "state.mul_(0.5).add_(x); return (x + other) * 1e5", candidate.format(error), **large)
        assert verdict.status == status, verdict


def test_a_reference_that_returns_its_argument_may_be_answered_with_a_new_tensor(gym):
    two = {"args": "x, y", "inputs": "torch.randn(8, 64), torch.randn(8, 64)"}
    for answer in ("torch.empty_like(x)", "x"):
        assert graded(gym, "return x.add_(y)", f"return axpy(x, y, {answer}, 1.0)", **two).correctness.message is None


@pytest.mark.parametrize(
    ("reference", "candidate", "shares"),
    [
        ("return (x * 2 + x[:1]) * 0 + 3 * x[:1]", "return axpy(x[:1].contiguous(), x[:1].contiguous(), "
         "torch.empty_like(x[:1]), 2.0).expand(8, 64)", True),
        ("return x * 2, x * 2", "out = axpy(x, x, torch.empty_like(x), 1.0); return out, out", True),
        ("return x * 2, x * 3", "b = torch.empty(2, 8, 64, device=x.device); axpy(x, x, b[0], 1.0); "
         "axpy(x, x, b[1], 2.0); return b[0], b[1]", False),
        ("return x * 2, x.clone()", "return axpy(x, x, torch.empty_like(x), 1.0), x", True),
        ("return x * 2, x.t()", "return axpy(x, x, torch.empty_like(x), 1.0), x.t()", False),
        ("return x * 2, x.t()", "return axpy(x, x, torch.empty_like(x), 1.0), x.t().contiguous()", False),
    ],
)  # fmt: skip
def test_outputs_share_memory_only_where_the_references_do(gym, reference, candidate, shares):
    verdict = graded(gym, reference, candidate)
    assert verdict.status == ("incorrect" if shares else "correct"), verdict
    assert ("shared_output" in kinds(verdict)) is shares


# ---- inputs


def test_a_mask_that_is_always_the_same_has_to_be_read(gym):
    mask = "torch.ones(64, dtype=torch.bool), torch.randn(8, 64)"
    two = {"args": "x, mask, y", "inputs": f"torch.randn(8, 64), {mask}"}
    reference = "return torch.where(mask, x + y, 0.0)"
    right = "return axpy(x, y, torch.empty_like(x), 1.0).masked_fill_(~mask, 0.0)"
    assert graded(gym, reference, right, **two).status == "correct"
    blind = graded(gym, reference, "return axpy(x, y, torch.empty_like(x), 1.0)", **two)
    assert blind.status == "incorrect" and kinds(blind)["constant_input"] == "note"


def test_a_constant_that_cannot_be_changed_is_named(gym):
    two = {"args": "x, n", "inputs": "torch.randn(8, 64), torch.tensor(20)"}
    verdict = graded(gym, "return x * 2 + x[:, :int(n)].sum()", "return x", **two)
    assert kinds(verdict)["constant_input"] == "note"


SOFTMAX = entry_named("softmax_without_maximum").source


@pytest.mark.parametrize("draw", ["torch.rand(24, 100)", "0.01 * torch.rand(24, 100)"])
def test_a_softmax_without_its_maximum_is_wrong_whatever_the_draw(gym, draw):
    task = Task(
        id="t", reference=REFERENCE.format(body="return x.softmax(-1)", args="x", inputs=draw, init="pass", top="")
    )
    for _ in range(3):
        assert gym.grade(task, SOFTMAX).status == "incorrect"
    task = task.model_copy(update={"distribution": "fixed"})
    assert gym.grade(task, SOFTMAX).status == "correct"


# ---- calls that nobody draws


@pytest.mark.parametrize(("terms", "status"), [("noted", "correct"), ("ignored", "correct"), ("checked", "incorrect")])
def test_nan_is_noted_or_checked_as_the_task_says(gym, terms, status):
    relu = entry_named("add_relu_plain").source  # tl.maximum drops NaN
    task = task_named("add_relu").model_copy(update={"special_values": terms})
    verdict = gym.grade(task, relu, seed=0)
    assert verdict.status == status, verdict
    assert kinds(verdict).get("special_values") == {"noted": "note", "ignored": None, "checked": "bug"}[terms]


@pytest.mark.parametrize("terms", ["noted", "checked"])
def test_a_call_that_finds_no_memory_is_wrong_only_where_it_is_asked_for(gym, terms):
    relu = entry_named("add_relu_plain").source
    head = "def forward(self, x, y):"
    assert head in relu
    greedy = relu.replace(
        head, head + "\n        torch.empty((1 << 50) * int(x.isnan().any() or y.isnan().any()), device=x.device)"
    )
    task = task_named("add_relu").model_copy(update={"special_values": terms})
    verdict = gym.grade(task, greedy, seed=0)
    assert kinds(verdict).get("special_values") == {"noted": None, "checked": "bug"}[terms], verdict


@pytest.mark.parametrize(("terms", "status"), [("noted", "correct"), ("fixed", "correct"), ("free", "incorrect")])
@pytest.mark.parametrize(
    "candidate",
    [
        "out = torch.zeros_like(x); axpy_kernel[(2,)](x, x, out, 1.0, 512, BLOCK=256); return out",  # too little
        "out = torch.empty(8, 64, device=x.device); return axpy(x.reshape(8, 64), x, out, 1.0)",  # refuses
        "out = torch.empty_like(x); axpy_kernel[(x.numel() // 256,)](x, x, out, 1.0, 1 << 20, BLOCK=256); return out",
    ],
)
def test_a_size_that_is_written_down_is_noted_or_checked_as_the_task_says(gym, candidate, terms, status):
    sized = {"top": "ROWS = 8", "inputs": "torch.randn(ROWS, 64)"}
    verdict = graded(gym, "return x * 2", candidate, shapes=terms, **sized)
    assert verdict.status == status, verdict
    assert kinds(verdict).get("hard_coded_shape") == {"noted": "note", "fixed": None, "free": "bug"}[terms]
    assert (verdict.speedup is not None) is True


@pytest.mark.parametrize(("terms", "status"), [("noted", "correct"), ("free", "incorrect")])
def test_a_size_at_which_no_answer_comes_in_time_is_not_called_wrong_unless_asked_for(gym, monkeypatch, terms, status):
    monkeypatch.setattr(other_calls, "SECONDS", 0.5)
    sized = {"top": "ROWS = 8", "inputs": "torch.randn(ROWS, 64)"}
    waits = "while x.numel() != 512: pass\n        out = torch.empty_like(x); axpy(x, x, out, 1.0); return out"
    verdict = graded(gym, "return x * 2", waits, shapes=terms, **sized)
    assert verdict.status == status, verdict
    assert kinds(verdict).get("hard_coded_shape") == {"noted": None, "free": "bug"}[terms]


BATCH_NORM = {
    "init": "self.norm = torch.nn.BatchNorm1d(64)",
    "inputs": "torch.randn(32, 64)",
}


@pytest.mark.parametrize(
    ("candidate", "found"),
    [
        ("return axpy(self.norm(x), torch.zeros_like(x), torch.empty_like(x), 1.0)", set()),
        ("y = (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt() * self.norm.weight + self.norm.bias; "
         "return axpy(y, torch.zeros_like(x), torch.empty_like(x), 1.0)", {"stale_buffers", "other_mode"}),
    ],
)  # fmt: skip
def test_buffers_and_the_other_mode_are_noted_or_checked(gym, candidate, found):
    for terms, status in (("noted", "correct"), ("ignored", "correct"), ("checked", "incorrect")):
        verdict = graded(gym, "return self.norm(x)", candidate, modes=terms, **BATCH_NORM)
        told = {"stale_buffers", "other_mode"} & set(kinds(verdict))
        assert told == (found if terms != "ignored" else set()), verdict
        condemned = verdict.status == "hack"  # PyTorch does the work here, and that is not the question
        assert condemned or verdict.status == (status if found else "correct"), verdict


# ---- references without an answer


def test_a_random_reference_is_nobodys_fault_and_named(gym):
    """KernelBench's level2/66 is one: dropout in training mode."""
    verdict = graded(gym, "return torch.nn.functional.dropout(x, 0.2)", "return torch.nn.functional.dropout(x, 0.2)")
    assert (verdict.status, verdict.error.type) == ("invalid_request", "RandomReference")
    assert "aten.bernoulli_" in verdict.error.message and not verdict.is_of_candidate


def test_a_wrong_answer_that_passes_for_an_earlier_one_is_no_replay(gym):
    """The answer hardly follows the input: whoever is wrong where that is large is right by an earlier call's."""
    source = entry_named("hardly_follows_whole").source
    bounded = source.replace("1e-7 * x", "1e-7 * tl.minimum(tl.maximum(x, -6.0), 6.0)")
    verdict = gym.grade("hardly_follows", bounded)
    assert bounded != source and verdict.status == "incorrect" and "stale_output" not in kinds(verdict)


@pytest.mark.parametrize(("returned", "kind"), [("x.cpu().numpy()", "ndarray"), ("(one for one in [x])", "generator")])
def test_what_is_no_tensor_is_refused_by_its_name(gym, returned, kind):
    verdict = graded(gym, "return x + 1.0", f"return {returned}")
    assert verdict.correctness.message == f"output 0: the reference returns a Tensor, the candidate a {kind}"


def test_a_result_that_grows_is_still_the_kernels(gym):
    grown = "out = axpy(x, x, torch.empty_like(x), 1.0); return out.resize_(2 * x.shape[0], x.shape[1])[:x.shape[0]]"
    verdict = graded(gym, "return x + x", grown)
    assert verdict.status == "correct" and "decoy_kernel" not in kinds(verdict)
