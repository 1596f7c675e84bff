"""Evidence of a lower precision: found where operands were rounded, never in a wrong formula."""

import pytest
import torch
import torch.nn.functional as F

from drkernel.tasks.builtin import builtin_task, builtin_tasks
from drkernel.tasks.correctness import compare
from drkernel.tasks.downgrade import downgrade_evidence
from drkernel.tasks.gate import reference_in_lower_precision
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.problem import load_problem
from drkernel.tasks.promote import round_mantissa, run_rounded
from drkernel.tasks.tolerance import MANTISSA_BITS, NEXT_LOWER

SAMPLE = [
    task for task in builtin_tasks() if task.id.endswith(("matmul", "softmax", "conv2d", "_fp16", "_bf16", "_tf32"))
]
SAMPLE += [
    builtin_task("level3/transformer_block"),
    builtin_task("level2/adamw_step"),
    builtin_task("level1/logsumexp"),
]


def call_of(task, seed=3):
    instance = load_problem(task, "tiny").instance(seed)
    return instance, instance.draw_call(seed + 1, "affine")


def in_form(outputs, call):
    return [
        torch.as_tensor(out).to(want.declared.dtype) for out, want in zip(outputs, call.oracle.outputs, strict=True)
    ]


@pytest.mark.parametrize("task", SAMPLE, ids=lambda task: task.id)
def test_lower_precision_leaves_marks_and_other_errors_do_not(task):
    instance, call = call_of(task)
    lower = MANTISSA_BITS[NEXT_LOWER[task.precision]]
    rounded = in_form(flatten_outputs(run_rounded(instance.model, call.inputs, lower)), call)
    evidence = downgrade_evidence(instance, call, rounded)
    assert evidence is not None and MANTISSA_BITS[evidence.format] == lower
    computed = in_form(reference_in_lower_precision(instance, call), call)
    assert downgrade_evidence(instance, call, computed) is not None
    generator = torch.Generator().manual_seed(0)
    for wrong in (
        [want.value * 1.002 for want in call.oracle.outputs],
        [want.value + 0.002 * want.spread for want in call.oracle.outputs],
        [
            want.value + 1e-3 * want.scale * torch.randn(want.value.shape, generator=generator, dtype=torch.float64)
            for want in call.oracle.outputs
        ],
        instance.run(call.inputs),
    ):
        assert downgrade_evidence(instance, call, in_form(wrong, call)) is None


def test_a_wrong_formula_of_the_size_of_rounding_is_no_downgrade():
    instance, call = call_of(builtin_task("level1/gelu"))
    answer = [F.gelu(call.inputs[0], approximate="tanh")]
    result = compare(answer, call.oracle, instance.rule)
    assert result.passed_calls == 0 and downgrade_evidence(instance, call, answer) is None


def test_one_rounded_operand_is_enough():
    instance, call = call_of(builtin_task("level1/matmul"))
    a, b = call.inputs
    evidence = downgrade_evidence(instance, call, [a @ round_mantissa(b, 7).float()])
    assert evidence.format == "bf16" and evidence.how == "rounded operands" and 0.5 < evidence.strength < 0.9


def test_output_bits_tell_the_format():
    instance, call = call_of(builtin_task("level1/matmul"))
    a, b = call.inputs
    for dtype, name in ((torch.float16, "fp16"), (torch.bfloat16, "bf16")):
        evidence = downgrade_evidence(instance, call, [(a @ b).to(dtype).float()])
        assert (evidence.format, evidence.how) == (name, "output bits")


def test_right_answers_that_fit_a_narrow_format_are_no_evidence():
    task = builtin_task("level1/relu")
    whole = task.model_copy(update={"reference": task.reference.replace("torch.relu(x)", "torch.floor(torch.relu(x))")})
    instance, call = call_of(whole)
    assert downgrade_evidence(instance, call, instance.run(call.inputs)) is None
