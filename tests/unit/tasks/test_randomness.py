"""A task whose answer depends on random numbers is told from one that only draws them."""

import pytest

from drkernel.task import Task
from drkernel.tasks.problem import RandomReference, load_problem, require_determined

SOURCE = """
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {body}
def get_inputs():
    return [torch.randn(16, 24)]
"""


def instance(body, init="pass"):
    return load_problem(Task(id="t", reference=SOURCE.format(body=body, init=init)), None).instance(5)


@pytest.mark.parametrize(
    ("body", "init", "cause"),
    [
        ("return self.drop(x)", "self.drop = nn.Dropout(0.1)", "aten.bernoulli_ draws (in training mode: Dropout"),
        ("return x + torch.rand(24)", "pass", "aten.rand draws"),
        ("torch.manual_seed(3); return x + torch.rand_like(x)", "pass", "aten.rand_like draws"),
        (
            "return x * torch.rand(24, generator=self.own)",
            "self.own = torch.Generator().manual_seed(1)",
            "aten.rand draws",
        ),
        ("return F.rrelu(x, training=True)", "pass", "aten.rrelu_with_noise draws"),
        ("return torch.multinomial(x.softmax(-1), 1)", "pass", "aten.multinomial draws"),
        ("return x * float(np.random.rand())", "pass", "numbers of Python or NumPy"),
        ("self.n += 1; return x * self.n", "self.n = 0", "state that it keeps"),
    ],
)  # fmt: skip
def test_what_is_random_is_refused_with_its_cause(body, init, cause):
    with pytest.raises(RandomReference) as error:
        require_determined(instance(body, init))
    assert cause in str(error.value)


@pytest.mark.parametrize(
    ("body", "init"),
    [
        ("return self.drop(x)", "self.drop = nn.Dropout(0.0)"),
        ("return self.drop(x)", "self.drop = nn.Dropout(0.5).eval()"),
        ("return F.dropout(x, 0.5, training=False)", "pass"),
        ("return F.dropout(x.clamp(2, 1) - 1, 0.5)", "pass"),
        ("unused = torch.rand(3); return x * 2", "pass"),
        ("return x * self.w", "self.w = nn.Parameter(torch.rand(24))"),
        ("return self.norm(x)", "self.norm = nn.BatchNorm1d(24)"),
    ],
)
def test_what_draws_without_effect_is_allowed(body, init):
    ready = instance(body, init)
    require_determined(ready)
    ready.draw_call(1)


def test_what_a_reference_raises_is_left_to_its_calls():
    require_determined(instance("return x @ torch.ones(3)"))
