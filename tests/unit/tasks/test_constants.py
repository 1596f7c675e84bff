"""Inputs that never change between draws: found, changed within their kind, or named."""

import pytest
import torch

from drkernel.task import Task
from drkernel.tasks.gate import admit
from drkernel.tasks.problem import load_problem, perturbed

SOURCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x, c):
        return {body}
def get_inputs():
    return [torch.randn(16, 32), {constant}]
"""


def problem(body, constant):
    return load_problem(Task(id="t", reference=SOURCE.format(body=body, constant=constant)), None)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


CHANGED = {
    "a mask": ("x.masked_fill(~c, -1e9).softmax(-1)", "torch.ones(16, 32, dtype=torch.bool).tril()"),
    "all true": ("torch.where(c, x, 0.5)", "torch.ones(16, 32, dtype=torch.bool)"),
    "a float mask": ("(x + c).softmax(-1)", "torch.zeros(16, 32).masked_fill(torch.ones(16, 32).triu(16) > 0, -1e9)"),
    "positions": ("x[:, c]", "torch.arange(32)"),
    "ones": ("x * c", "torch.ones(32)"),
    "a table": ("x * c", "torch.linspace(-1, 1, 32).cos()"),
    "a number": ("x * c", "torch.tensor(0.125)"),
}
KEPT = {
    "a length": ("x[:, :int(c)].sum(1)", "torch.tensor(20)"),
    "offsets": (
        "torch.nn.functional.embedding_bag(torch.arange(16), x, c, mode='sum')", "torch.tensor([0, 16])[:1]"
    ),
    "one valid order": ("x[:, c] * (1 if bool((c[1:] > c[:-1]).all()) else float('nan'))", "torch.arange(32)"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CHANGED))
def test_what_the_reference_accepts_is_changed_in_every_variant_but_the_declared(case):
    instance = problem(*CHANGED[case]).instance(0)
    assert instance.problem.constants.changed == {1: "c"} and not instance.problem.constants.kept
    before = instance.draw_call(3).inputs[1]
    assert torch.equal(before, instance.draw_call(4).inputs[1])
    for variant in ("affine", "heavy", "large", "mixed"):
        call = instance.draw_call(3, variant)
        assert call.changed == ("c",) and not torch.equal(call.inputs[1], before)
        assert call.inputs[1].dtype == before.dtype and call.inputs[1].shape == before.shape


@pytest.mark.parametrize("case", list(KEPT))
def test_what_it_does_not_accept_stays_and_is_named(case):
    made = problem(*KEPT[case])
    assert made.constants.kept == {1: "c"} and not made.constants.changed
    assert made.instance(0).draw_call(3, "large").changed == ()


def test_an_input_that_is_drawn_is_no_constant():
    made = problem("x + c", "torch.rand(32)")
    assert not made.constants.changed and not made.constants.kept


def test_what_the_source_declares_fixed_is_let_be():
    source = SOURCE.format(body="x * c", constant="torch.ones(32)") + "FIXED_INPUTS = ('c',)"
    made = load_problem(Task(id="t", reference=source), None)
    assert not made.constants.changed and not made.constants.kept


def test_kinds_are_kept():
    offsets = torch.tensor([0, 3, 3, 9, 20, 64])
    for seed in range(20):
        other = perturbed(offsets, generator(seed))
        assert other is None or (other[0] == 0 and other[-1] == 64 and bool((other[1:] >= other[:-1]).all()))
        order = perturbed(torch.arange(5, 40), generator(seed))
        assert order.sort().values.tolist() == list(range(5, 40))
        mask = perturbed(torch.ones(8, 8, dtype=torch.bool).tril(), generator(seed))
        assert mask.any(1).all()
    assert perturbed(torch.full((4,), 7), generator()) is None


def test_the_gate_says_it():
    text = SOURCE.format(body="torch.where(c, x, 0.5)", constant="torch.ones(16, 32, dtype=torch.bool)")
    notes = admit(Task(id="t", reference=text), None).notes
    assert any(note.startswith("constant_input: c") for note in notes)
