"""What a candidate returns is looked at before it is taken over: the judge's memory does not grow with it."""

import resource

import pytest

from drkernel.task import Task

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {reference}
def get_inputs():
    return [torch.randn(64, 8)]
"""
CANDIDATE = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""


def graded(gym, body, reference="x.sum(1)"):
    task = Task(id="t", reference=REFERENCE.format(reference=reference))
    return gym.grade(task, CANDIDATE.format(body=body), memory_bytes=2 << 30)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return torch.zeros(1, device='cuda').expand(1 << 40)", "shape should be (64,), is (1099511627776,)"),
        ("return torch.zeros(100 << 20, device='cuda')", "shape should be (64,), is (104857600,)"),
        ("return [torch.zeros(40 << 20, device='cuda')] * 100", "1 outputs, the candidate 100"),
        ("return torch.zeros(64, dtype=torch.complex128, device='cuda')", "dtype should be torch.float32"),
        ("return 10 ** 400", "returns a Tensor, the candidate a int"),
    ],
)
def test_outputs_of_another_form_are_described_and_not_taken_over(gym, body, words):
    graded(gym, "return x.sum(1)")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    verdict = graded(gym, body)
    assert verdict.status == "incorrect" and words in verdict.correctness.message, verdict
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.parametrize("number", ["10 ** 30", "10 ** 5000", "-(1 << 63) - 1", "float('inf')", "float('nan')", "True"])
def test_numbers_beyond_a_tensors_are_wrong_answers(gym, number):
    verdict = graded(gym, f"return {number}", reference="int(x.shape[0])")
    assert verdict.status == "incorrect" and verdict.correctness.message


@pytest.mark.parametrize(
    "body",
    [
        "x.resize_(0); return x.new_zeros(64)",
        "x.resize_(4096, 8); return x[:64].sum(1)",
        "x.set_(); return torch.zeros(64, device='cuda')",
        "x.t_(); return x.sum(0)",
        "x.squeeze_(0); x.unsqueeze_(0); return x.sum((0, 2))",
        "x.data = torch.zeros(3, device='cuda'); return x.new_zeros(64)",
    ],
)
def test_what_is_done_to_an_argument_is_never_the_judges_trouble(gym, body):
    verdict = graded(gym, body)
    assert verdict.status in ("incorrect", "runtime_error", "hack"), verdict
