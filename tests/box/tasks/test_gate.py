"""The admission gate: names what a degenerate task accepts, and admits the built-in suite."""

import pytest

from drkernel.task import Task, Tolerance
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.gate import GATED, GateReport, admit, admit_thin
from drkernel.tasks.loaders import builtin_task, builtin_tasks
from sweeps import sweep

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def task(forward, inputs="[torch.randn(16, 24)]", init="", arguments="x", **fields):
    """A task from the body of ``forward`` and the list of inputs."""
    constructor = f"    def __init__(self):\n        super().__init__()\n        {init}\n" if init else ""
    source = (
        f"{HEADER}class Model(nn.Module):\n{constructor}    def forward(self, {arguments}):\n        {forward}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return []\n"
    )
    return Task(id="test/task", reference=source, **fields)


@pytest.mark.parametrize("name", sweep([item.id.removeprefix("builtin/") for item in builtin_tasks()], "admitted"))
def test_the_built_in_suite_is_admitted(name):
    report = admit(builtin_task(name), "tiny")
    assert report.admitted, report
    assert {"zeros", "stale"} <= {result.control for result in report.controls}
    assert GateReport.model_validate_json(report.model_dump_json()) == report


@pytest.mark.slow
@pytest.mark.parametrize("name", [item.id.removeprefix("builtin/") for item in builtin_tasks()])
def test_the_built_in_suite_is_admitted_at_small_sizes(name):
    report = admit(builtin_task(name), "small")
    assert report.admitted, report


@pytest.mark.parametrize("seed", [11, 222])
@pytest.mark.parametrize(
    "name", ["level1/gelu_tanh_fp16", "level1/silu_bf16", "level1/mse_loss", "level1/cross_entropy"]
)
def test_narrow_margins_hold_on_other_seeds(name, seed):
    assert admit(builtin_task(name), "tiny", seed).admitted


DEGENERATE = {
    "zeros": task("return torch.relu(x - x.max(dim=1, keepdim=True).values)"),
    "constant": task("return torch.softmax(x, -1).sum(-1)"),
    "stale": task("return torch.ones_like(x) * 3 + 0 * x"),
    "first_row": task("return x.mean(0, keepdim=True).expand(16, 24) * 1.0"),
    "pass_through": task("return x + 0.0"),
    "default_parameters": task(
        "return F.softmax(x, -1) + 1e-9 * self.scale",
        "[torch.randn(2, 3, 40)]",
        "self.scale = nn.Parameter(torch.ones(1))",
    ),
    "zero_parameters": task(
        "return torch.softmax(x + self.shift, -1)", init="self.shift = nn.Parameter(torch.randn(1))"
    ),
    "lower_precision": task("return (x > 0).float() + 1.0"),
}


@pytest.mark.parametrize("control", list(DEGENERATE))
def test_each_control_marks_the_task_that_it_fits(control):
    report = admit(DEGENERATE[control], None)
    assert not report.admitted and control in report.ill_conditioned_by, report
    accepted = [result for result in report.controls if result.control == control]
    assert any(result.passed and result.error <= 1 for result in accepted)


def test_layer_norm_does_not_pass_as_a_copy():
    """With only randn inputs and unit weights the output is nearly the input (HACKS 22, 25); variants show it."""
    layer_norm = task(
        "return F.layer_norm(x, (256,))", "[torch.randn(16, 256)]", tolerance=Tolerance(rtol=0.3, atol_scale=0.5)
    )
    report = admit(layer_norm, None)
    through = next(result for result in report.controls if result.control == "pass_through")
    assert not through.passed and through.error > 2


def test_one_weak_output_of_several_is_found():
    report = admit(task("return x.exp(), torch.softmax(x, -1).sum(-1)"), None)
    assert {(result.control, result.output) for result in report.controls if result.passed} >= {("constant", 1)}
    assert not any(result.passed for result in report.controls if result.output == 0)


def test_a_loose_explicit_tolerance_is_caught():
    report = admit(task("return x * 1e-3", tolerance=Tolerance(rtol=0.0, atol_scale=50.0)), None)
    assert "zeros" in report.ill_conditioned_by


def test_inert_parameters_and_inputs_are_noted_not_condemned():
    source = task(
        "return F.batch_norm(self.linear(x), None, None, training=True) + 0 * y",
        "[torch.randn(16, 24), torch.randn(16, 8)]",
        "self.linear = nn.Linear(24, 8)",
        "x, y",
    )
    report = admit(source, None)
    assert report.admitted
    draws = "exactly, for the 3 draws that were taken"
    assert f"the answer does not depend on parameter linear.bias, {draws}" in report.notes
    assert f"the answer does not depend on input y, {draws}" in report.notes


def test_what_a_tolerance_hides_is_no_independence():
    """The answer moves by less than the tolerance with r, and depends on it; with y it does not."""
    report = admit(
        task("return x + 1e-12 * r + (y - y)", "[torch.randn(16, 24) for _ in range(3)]", "", "x, r, y"), None
    )
    assert "input r moves the answer by less than the tolerance, for the 3 draws that were taken" in report.notes
    assert "the answer does not depend on input y, exactly, for the 3 draws that were taken" in report.notes


@pytest.mark.parametrize(("forward", "constant"), [
    ("return torch.clamp(x * self.w, 1e6, 2e6)", True),
    ("return torch.softmax(x * self.w, -1).sum(-1)", True),
    ("return torch.relu(self.w - self.w.abs()) + x.mean()", False),
])  # fmt: skip
def test_a_constant_answer_is_named(forward, constant):
    report = admit(task(forward, init="self.w = nn.Parameter(torch.randn(24))"), None)
    assert any(reason.startswith("the answer is a constant") for reason in report.ill_conditioned_by) == constant
    assert not (constant and report.admitted)


def test_many_parameters_are_not_tried_one_by_one():
    deep = task("return self.layers(x)", init="self.layers = nn.Sequential(*[nn.Linear(24, 24) for _ in range(33)])")
    report = admit(deep, None)
    assert "its 66 parameters were not tried one by one" in report.notes


def test_a_random_reference_is_refused():
    report = admit(task("return F.dropout(x, 0.5, training=True)"), None)
    assert not report.admitted
    assert (
        "the reference is random" in report.ill_conditioned_by[0] and "aten.bernoulli_" in report.ill_conditioned_by[0]
    )


@pytest.mark.parametrize(
    "inputs",
    [
        "[torch.randn(16, 24) * __import__('time').time()]",
        "[torch.randn(16, 24 + __import__('time').time_ns() // 10**9 % 7)]",
        "[torch.randn(16, 24), {'scale': int.from_bytes(__import__('os').urandom(4), 'big')}]",
    ],
)
def test_inputs_that_the_seed_does_not_decide_are_refused(inputs):
    arguments = "x, options" if "scale" in inputs else "x"
    report = admit(task("return x.exp()", inputs=inputs, arguments=arguments), None)
    assert not report.admitted and "not the seed's" in report.ill_conditioned_by[0], report


def test_a_reference_that_leaves_does_not_take_the_gate_along():
    report = admit(task("raise SystemExit(0)"), None)
    assert not report.admitted and "SystemExit" in str(report), report


def test_a_reference_that_is_not_finite_is_refused():
    report = admit(task("return (x * 100).exp()"), None)
    assert not report.admitted and any("not finite" in reason for reason in report.ill_conditioned_by)


def test_a_reference_dominated_by_rounding_is_refused():
    report = admit(task("return (torch.sin(x * 1e8))"), None)
    assert not report.admitted and any("rounding flips" in reason for reason in report.ill_conditioned_by)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return x @ x", "raised RuntimeError"),
        ("return 'text'", "str cannot be compared"),
        ("return undefined_name", "NameError"),
    ],
)
def test_a_reference_that_does_not_run_is_an_error_not_an_exception(body, words):
    report = admit(task(body), None)
    assert not report.admitted and words in report.error


def test_a_source_that_does_not_load_is_an_error():
    report = admit(Task(id="x", reference="class Model: pass"), None)
    assert "defines no get_inputs" in report.error


LINEAR = """import torch
import torch.nn as nn
batch_size = 4096
in_features = 1024 * 8
out_features = 1024 * 8

class Model(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)
    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(batch_size, in_features)]
def get_init_inputs():
    return [in_features, out_features]
"""


def test_a_large_task_is_gated_at_thin_sizes_which_the_report_names():
    report = admit_thin(Task(id="foreign", reference=LINEAR))
    assert report.admitted, report
    assert report.changed["batch_size"][0] == 4096 and report.changed["batch_size"][1] < 4096
    assert GateReport.model_validate_json(report.model_dump_json()) == report
    roomy = admit_thin(
        Task(id="foreign", reference=LINEAR.replace("1024 * 8", "64")), ScaleLimits(bytes=1 << 20, flops=1e9)
    )
    assert list(roomy.changed) == ["batch_size"], "no more than the limits ask for"


def test_a_task_that_fits_is_gated_at_its_own_sizes():
    report = admit_thin(Task(id="small", reference=LINEAR.replace("4096", "8").replace("1024 * 8", "32")))
    assert report.admitted and report.changed == {}


def test_thin_sizes_do_not_hide_that_a_task_cannot_fail():
    source = LINEAR.replace("torch.relu(self.linear(x))", "torch.softmax(self.linear(x), -1).sum(-1)")
    report = admit_thin(Task(id="degenerate", reference=source.replace("1024 * 8", "1024")))
    assert report.changed and not report.admitted and "constant" in report.ill_conditioned_by


def test_what_cannot_be_made_small_is_refused_by_what_it_would_take():
    source = LINEAR.replace("4096", "int('4096')").replace("1024 * 8", "int('8192')")
    report = admit_thin(Task(id="opaque", reference=source), GATED, budget=64 << 20)
    assert not report.admitted and report.error is not None and "the budget is 64" in report.error


def test_a_reference_that_does_not_run_is_said_so():
    report = admit_thin(Task(id="broken", reference=LINEAR.replace("batch_size, in_features)", "batch_size, 77)")))
    assert not report.admitted and report.error is not None and "does not run" in report.error
