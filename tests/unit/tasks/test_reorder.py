"""The positive control: another order of operations, the same precision. It must be honest, different, and accepted."""

from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F

from drkernel.gym.judge.memory import bounded
from drkernel.tasks import reorder
from drkernel.tasks.correctness import compare, precision_class
from drkernel.tasks.inputs import VARIANTS
from drkernel.tasks.loaders import builtin_tasks
from drkernel.tasks.oracle import MANTISSA_BITS, flatten_outputs, tolerance_for, unit_roundoff
from drkernel.tasks.problem import load_problem
from drkernel.tasks.promote import promoted_copy, promoted_inputs, run_double, run_rounded
from drkernel.tasks.reorder import Reordered
from sweeps import sweep

NEXT_LOWER = {"fp64": "fp32", "fp32": "tf32", "tf32": "bf16", "fp16": "bf16", "bf16": "fp8"}
"""the first format that counts as a downgrade of each declared precision"""
IDS = [task.id.removeprefix("builtin/") for task in builtin_tasks()]


@contextmanager
def one_pass():
    """Variances as ``E[x^2] - E[x]^2`` beside all else in another order, as many kernels compute them."""

    def moments(x, dims):
        both = x, reorder._wide(x).square()
        mean, of_squares = (reorder._summed(value, dims, True) / reorder._count(x, dims) for value in both)
        return mean, (of_squares - mean.square()).clamp_min(0)

    with pytest.MonkeyPatch.context() as patch, Reordered():
        patch.setattr(reorder, "_moments", moments)
        yield


@pytest.mark.parametrize("task", sweep(builtin_tasks(), "reorder"), ids=IDS)
def test_every_task_accepts_honest_arithmetic_and_refuses_rounded_operands(task):
    instance = load_problem(task, "tiny").instance(41)
    lower = MANTISSA_BITS[NEXT_LOWER[task.precision]]
    refused = 0
    for seed, variant in enumerate(VARIANTS):
        call = instance.draw_call(1000 + seed, variant)
        with one_pass():
            reordered = instance.run(call.inputs)
        result = compare(reordered, call.oracle, instance.rule)
        assert result.passed_calls == 1, (variant, result.message)
        assert not precision_class(reordered, call.oracle, instance.rule).downgraded
        exact = [
            want.value.to(want.declared.dtype) if want.python_type == "Tensor" else want.value.item()
            for want in call.oracle.outputs
        ]
        assert compare(exact, call.oracle, instance.rule).passed_calls == 1
        rounded = flatten_outputs(run_rounded(instance.model, call.inputs, lower))
        rounded = [value.to(want.declared.dtype) for value, want in zip(rounded, call.oracle.outputs, strict=True)]
        refused += compare(rounded, call.oracle, instance.rule).passed_calls == 0
    if any(want.floating for want in call.oracle.outputs) and task.id not in AVERAGED:
        assert refused, "operands rounded to the next lower precision passed every call"


AVERAGED = {
    "builtin/level1/mse_loss",
    "builtin/level1/cross_entropy",
    "builtin/level2/dice_loss_sigmoid",
}
"""Each output averages over hundreds of elements: errors of rounded operands cancel below any honest tolerance there.
The admission gate's control, which also computes in the lower precision, fails on them."""


OPERATORS = {
    "mm": lambda x: x @ x.T,
    "bmm": lambda x: x.reshape(2, 15, 37) @ x.reshape(2, 37, 15),
    "addmm": lambda x: F.linear(x, x[:7], x[0, :7]),
    "mv": lambda x: x @ x[0],
    "sum": lambda x: x.sum(),
    "sum_dims": lambda x: x.reshape(5, 6, 37).sum((0, 2), keepdim=True),
    "mean": lambda x: x.mean(0),
    "layer_norm": lambda x: F.layer_norm(x, (37,), x[0], x[1]),
    "group_norm": lambda x: F.group_norm(x.reshape(5, 6, 37), 3, x[0, :6], x[1, :6]),
    "exp": lambda x: x.exp(),
    "softmax": lambda x: F.softmax(x, -1),
    "masked_softmax": lambda x: F.softmax(x.masked_fill(x > 1, -torch.inf), 0),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "silu": F.silu,
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: (1 + 0.1 * x).cumprod(0),
    "var": lambda x: x.var(-1),
    "var_mean": lambda x: torch.stack(torch.var_mean(x, 0, correction=0)),
    "conv1d": lambda x: F.conv1d(x.reshape(2, 15, 37), x[:14, :30].reshape(14, 15, 2), x[0, :14], stride=2),
    "conv_transpose": lambda x: F.conv_transpose1d(x.reshape(2, 15, 37), x[:15, :4].reshape(15, 2, 2), x[0, :2]),
}


@pytest.mark.parametrize("name", list(OPERATORS))
@pytest.mark.parametrize("order", [Reordered, one_pass])
def test_each_operator_is_as_accurate_as_torch(name, order):
    class Model(torch.nn.Module):
        def forward(self, x):
            return OPERATORS[name](x)

    x = torch.randn(30, 37, generator=torch.Generator().manual_seed(0))
    exact = run_double(promoted_copy(Model()), promoted_inputs([x]))
    with order():
        reordered = Model()(x)
    scale = exact.abs().amax() + exact.std() if exact.numel() > 1 else exact.abs()
    assert reordered.dtype == torch.float32 and reordered.shape == exact.shape
    assert float((reordered - exact).abs().max() / scale) < 2e-5
    assert not torch.equal(reordered, Model()(x)) or name == "sum", "the order did not change"


def test_only_one_pass_variance_suffers_from_a_large_mean():
    x = torch.randn(8, 64) + 3000
    exact = F.layer_norm(x.double(), (64,))
    with Reordered():
        assert float((F.layer_norm(x, (64,)) - exact).abs().max()) < 0.01
    with one_pass():
        assert float((F.layer_norm(x, (64,)) - exact).abs().max()) > 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_accumulates_in_single(dtype):
    x = torch.full((1, 4096), 1.0, dtype=dtype)
    with Reordered():
        assert float(x.sum()) == 4096 and float((x @ x.T)[0, 0]) == 4096


def test_limits_lie_between_honest_and_downgraded():
    for precision, lower in NEXT_LOWER.items():
        rule = tolerance_for(precision)
        unit = unit_roundoff(precision)
        assert 2 * unit <= rule.accuracy_limit(unit / 2, unit / 2) <= unit_roundoff(lower) / 2


def test_a_long_product_in_order_holds_one_term_at_a_time():
    """All of them took gigabytes where a product is long; without room, no limit was taken from this order."""
    left, right = torch.randn(256, 1 << 14), torch.randn(1 << 14, 256)
    with bounded(1 << 30), Reordered(in_order=0.0):
        result = left @ right
    assert torch.allclose(result, (left.double() @ right.double()).float(), atol=0.05)
