"""The built-in suite loads, runs at its size profiles and is what the documentation says it is."""

from collections import Counter

import pytest
import torch

from drkernel.task import Task, TaskError, sized_reference
from drkernel.tasks.loaders import builtin_task, builtin_tasks
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.problem import load_problem

NAMES = [task.id.removeprefix("builtin/") for task in builtin_tasks()]


def test_the_suite_has_the_promised_size_and_mix():
    levels = Counter(task.level for task in builtin_tasks())
    assert levels[1] >= 36 and levels[2] >= 24 and levels[3] >= 12
    assert sum(task.precision in ("fp16", "bf16") for task in builtin_tasks()) >= 10
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_profiles_name_constants_that_exist(name):
    task = builtin_task(name)
    assert set(task.profiles) == {"tiny", "small", "full"}
    assert sized_reference(task, "full") == task.reference
    small = sized_reference(task, "small")
    assert len(small.splitlines()) == len(task.reference.splitlines())
    assert Task.model_validate_json(task.model_dump_json()) == task


@pytest.mark.parametrize("name", NAMES)
def test_declared_precision_is_the_dtype_of_the_outputs(name):
    task = builtin_task(name)
    instance = load_problem(task, "tiny").instance(0)
    outputs = instance.run(instance.problem.reference.draw_inputs(1))
    expected = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    dtypes = {out.dtype for out in outputs if out.is_floating_point()}
    assert dtypes <= {expected[task.precision]}
    assert sum(out.numel() for out in outputs) <= 8192, "tiny outputs keep a launch to a few programs"


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_is_double_and_inputs_stay_untouched(name):
    instance = load_problem(builtin_task(name), "tiny").instance(0)
    inputs = instance.problem.reference.draw_inputs(1)
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    oracle = instance.oracle(inputs)
    assert oracle.kind == "fp64" and oracle.finite and oracle.unstable_fraction == 0
    assert all(torch.equal(a, b) for a, b in zip(flatten_outputs(before), flatten_outputs(inputs), strict=True))


def test_unknown_names_are_refused_with_a_hint():
    with pytest.raises(TaskError, match="drkernel tasks list"):
        builtin_task("level1/no_such_task")
    assert builtin_task("builtin/level1/softmax") is builtin_task("level1/softmax")
