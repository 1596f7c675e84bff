"""Input drawing: seeded, different each time, and within what the reference can take."""

import math
import sys

import numpy as np
import pytest
import torch

from corpus_sources import module
from drkernel.task import Task, TaskError
from drkernel.tasks import inputs
from drkernel.tasks.correctness import compare
from drkernel.tasks.inputs import VARIANTS, draw_inputs, pick_variant, role_of, vary
from drkernel.tasks.loaders import builtin_task, builtin_tasks
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.problem import load_problem
from drkernel.tasks.reference import KEPT, load_reference, randomize_parameters, seeded

LAYER_NORM = builtin_task("level1/layer_norm")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("task", builtin_tasks()[::7], ids=lambda task: task.id)
def test_draws_repeat_by_seed_and_differ_between_seeds(task, variant):
    reference = load_problem(task, "tiny").reference
    first, again, other = (draw_inputs(reference, seed, variant) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(flatten_outputs(first), flatten_outputs(again), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(flatten_outputs(first), flatten_outputs(other), strict=True))


def test_variants_leave_form_alone():
    reference = load_problem(builtin_task("level2/masked_softmax"), "tiny").reference
    declared = draw_inputs(reference, 1)
    for variant in VARIANTS[1:]:
        varied = draw_inputs(reference, 1, variant)
        assert [(v.shape, v.dtype, v.stride()) for v in varied] == [(v.shape, v.dtype, v.stride()) for v in declared]
        assert torch.equal(varied[1], declared[1]), "the boolean mask is not a distribution"
        assert not torch.equal(varied[0], declared[0])


ROLES = {
    "free": torch.randn(8, 33),
    "unit": torch.rand(8, 33),
    "positive": torch.rand(8, 33) * 5 + 0.5,
    "factor_only": torch.tril(torch.randn(9, 9)),
    "scale_only": torch.randn(9, 9) @ torch.eye(9),
    "simplex": torch.randn(8, 33).softmax(-1),
}
ROLES["scale_only"] = ROLES["scale_only"] + ROLES["scale_only"].T
FIXED = [
    torch.randint(0, 9, (8,)),
    torch.rand(8, 33) < 0.5,
    (torch.rand(8, 33) < 0.5).float(),
    torch.randn(8, 33).log_softmax(-1),
    torch.tensor(3.0),
    torch.full((8,), float("inf")),
]


@pytest.mark.parametrize("role", list(ROLES))
def test_roles_are_inferred(role):
    assert role_of(ROLES[role]) == role


@pytest.mark.parametrize("index", range(len(FIXED)))
@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_what_is_not_free_stays(index, variant):
    assert role_of(FIXED[index]) == "fixed"
    assert vary(FIXED[index], variant, 1.0, generator(), widen=True) is FIXED[index]


@pytest.mark.parametrize("variant", VARIANTS[1:])
@pytest.mark.parametrize("seed", range(5))
def test_variants_stay_in_the_domain(variant, seed):
    varied = {role: vary(tensor, variant, 1.0, generator(seed)) for role, tensor in ROLES.items()}
    assert torch.allclose(varied["simplex"].sum(-1), torch.ones(8), atol=1e-5) and varied["simplex"].min() >= 0
    assert varied["unit"].min() >= 0 and varied["unit"].max() <= 1
    assert varied["positive"].min() > 0
    assert torch.equal(varied["factor_only"] == 0, ROLES["factor_only"] == 0)
    assert torch.equal(varied["scale_only"], varied["scale_only"].T)
    assert all(torch.isfinite(tensor).all() for tensor in varied.values())


@pytest.mark.parametrize("variant", VARIANTS[1:])
@pytest.mark.parametrize("seed", range(5))
def test_widened_inputs_take_both_signs(variant, seed):
    for role in ("unit", "positive"):
        varied = vary(ROLES[role], variant, 1.0, generator(seed), widen=True)
        assert varied.min() < 0 < varied.max()


SOURCE = module("{body}", {"x": "torch.rand(16, 32)"}, init={})


def problem_of(body, x="torch.rand(16, 32)", **others):
    """That of a reference which computes ``body`` of inputs that are drawn so."""
    return load_problem(Task(id="t", reference=module(body, {"x": x, **others})), None)


@pytest.mark.parametrize(
    ("body", "widens"),
    [
        ("torch.relu(x)", True),
        ("torch.log(x + 0.01)", False),
        ("torch.sqrt(x)", False),
        ("torch.bernoulli(x) * x", False),
        ("x / x.abs().sum(1, keepdim=True)", True),  # although it is not finite on rows of zeros
    ],
)
def test_inputs_widen_only_where_the_reference_stays_finite(body, widens):
    assert bool(problem_of(body).widens) is widens


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_negative_throughout_stays_so_and_comes_near_zero(variant):
    decays = torch.nn.functional.logsigmoid(torch.randn(64, 256, generator=generator()))
    varied = [vary(decays, variant, 1.0, generator(seed)) for seed in range(8)]
    assert all(bool((one <= 0).all()) for one in varied)
    assert variant != "mixed" or any(bool((one[row] == 0).all()) for one in varied for row in range(64))


def test_inputs_widen_one_by_one():
    problem = problem_of("torch.log(x) + torch.relu(y)", "torch.rand(16, 32) + 0.01", y="torch.rand(16, 32)")
    assert problem.widens == {1}


def softmax_by_blocks(x, block, rescales):
    peak, total = torch.full_like(x[:, :1], -torch.inf), torch.zeros_like(x[:, :1])
    weighted = []
    for part in x.split(block, 1):
        first = part.amax(1, keepdim=True)
        new = torch.maximum(peak, first) if rescales or not weighted else peak
        weighted = [old * torch.exp(peak - new) for old in weighted] + [torch.exp(part - new)]
        total = total * torch.exp(peak - new).nan_to_num(0.0) + weighted[-1].sum(1, keepdim=True)
        peak = new
    return torch.cat(weighted, 1) / total


@pytest.mark.parametrize("draw", ["torch.rand(64, 512)", "torch.randn(64, 512)", "0.02 * torch.randn(64, 512)"])
@pytest.mark.parametrize("seed", range(8))
def test_a_softmax_must_know_the_maximum_of_the_whole_row(draw, seed):
    instance = problem_of("torch.softmax(x, -1)", draw).instance(0)
    call = instance.draw_call(seed, "large")
    (x,) = call.inputs
    right = [softmax_by_blocks(x, 128, True), torch.exp(x - x.amax(1, keepdim=True))]
    right[1] = right[1] / right[1].sum(1, keepdim=True)
    assert all(compare([answer], call.oracle, instance.rule).passed_calls for answer in right)
    wrong = [x.exp() / x.exp().sum(1, keepdim=True), softmax_by_blocks(x, 128, False)]
    assert not any(compare([answer], call.oracle, instance.rule).passed_calls for answer in wrong)


@pytest.mark.parametrize("shape", [(1, 4096), (2, 4096), (4, 4096), (3, 4096, 4)])
def test_the_first_block_and_the_last_are_each_too_low_in_some_row_however_few_there_are(shape):
    """Four rows that all fell let a softmax through that knew the maximum of the first block alone, once in 16."""
    for seed in range(40):
        drawn = torch.randn(shape, generator=generator(seed))
        large = vary(drawn, "large", 1.0, generator(1000 + seed))
        highest = large.amax(1)
        for block in (large[:, :128], large[:, -128:]):
            assert (highest - block.amax(1)).max() > 88, f"seed {seed}: exp would overflow in no row"


def added_up_by_programs(x: torch.Tensor) -> torch.Tensor:
    """The mean of one row, from parts of 64 that are added up one after another."""
    parts = x.reshape(-1, 64).sum(1) / x.numel()
    return torch.from_numpy(np.add.accumulate(parts.numpy(), dtype=np.float32)[-1:].copy())


LONG_MEAN = "x.mean(dim=1)", "torch.randn(1, 1 << 18)"


def test_one_sum_of_many_terms_may_be_taken_in_any_order():
    """By chance the reference's own error, and that of one other order, is next to nothing where there is one element;
    and all of a single row may be denormal numbers."""
    instance = problem_of(*LONG_MEAN).instance(0)
    for variant, seeds in {"declared": (33, 75), "large": (79, 136), "mixed": (177, 382)}.items():
        for seed in seeds:  # of a few hundred, those on which chance was worst
            call = instance.draw_call(seed, variant)
            result = compare([added_up_by_programs(*call.inputs)], call.oracle, instance.rule)
            assert result.passed_calls, (seed, variant, result.message)


def test_one_sum_of_coarser_terms_or_of_fewer_is_wrong():
    instance = problem_of(*LONG_MEAN).instance(0)
    calls = [instance.draw_call(seed) for seed in range(12)]
    for coarser in (torch.Tensor.bfloat16, torch.Tensor.half, lambda x: x[:, 64:]):
        answers = [added_up_by_programs(coarser(*call.inputs).float()) for call in calls]
        results = [compare([one], call.oracle, instance.rule) for one, call in zip(answers, calls, strict=True)]
        assert sum(result.passed_calls for result in results) <= 3, "one element may be right by chance"


@pytest.mark.parametrize("step", [2, 8, 31])
def test_a_maximum_of_every_second_block_or_of_the_ends_is_too_low_in_some_row(step):
    """Rows that only rise or fall let a softmax through that knew the maximum of both ends, or of some blocks."""
    missed = 0
    for seed in range(40):
        drawn = torch.randn((8, 4096), generator=generator(seed))
        large = vary(drawn, "large", 1.0, generator(1000 + seed))
        blocks = large.reshape(8, 32, 128)
        missed += not (large.amax(1) - blocks[:, ::step].amax((1, 2)) > 88).any()
        assert (large.amin(1) < large.median(1).values - 300).all()
    assert missed <= 2, f"exp would overflow in no row in {missed} of 40 draws"


def test_a_triangle_stays_one_even_where_any_value_is_taken():
    generator = torch.Generator().manual_seed(0)
    for share in (64, 8):
        triangle = torch.rand(64, 64, generator=generator).triu()[:share]
        for variant in VARIANTS[1:]:
            varied = vary(triangle, variant, 1.0, torch.Generator().manual_seed(1), widen=True)
            assert torch.equal(varied.triu(), varied) and not torch.equal(varied, triangle)


def test_a_mixed_input_of_a_million_slices_is_drawn_as_one_of_few():
    generator = torch.Generator().manual_seed(0)
    many = vary(torch.randn(1_000_000, 1, generator=generator), "mixed", 1.0, generator)
    few = vary(torch.randn(1_000, 1, generator=generator), "mixed", 1.0, generator)
    for values in (many, few):
        assert 0.06 < float((values == 0).double().mean()) < 0.25  # a sixth of the treated seven tenths


LAYERS = "torch.nn.functional.layer_norm(x, (96,))"
CHANNELS = "torch.nn.functional.batch_norm(x, None, None, training=True)"


@pytest.mark.parametrize(
    ("body", "draw", "axes"),
    [
        (LAYERS, "torch.randn(64, 96)", 1),
        (LAYERS, "torch.rand(64, 96)", 1),
        (LAYERS, "50 * torch.randn(64, 96)", 1),
        (CHANNELS, "torch.randn(8, 12, 16, 16)", (0, 2, 3)),
    ],
)
@pytest.mark.parametrize("seed", range(6))
def test_it_shows_where_a_normalisation_adds_its_eps(body, draw, axes, seed):
    instance = problem_of(body, draw).instance(0)
    call = instance.draw_call(seed, "mixed")
    (x,) = call.inputs
    centred = x - x.mean(axes, keepdim=True)
    variance = centred.square().mean(axes, keepdim=True)
    inside, outside = centred / (variance + 1e-5).sqrt(), centred / (variance.sqrt() + 1e-5)
    assert compare([inside], call.oracle, instance.rule).passed_calls
    assert not compare([outside], call.oracle, instance.rule).passed_calls


def test_a_mixed_input_holds_zeros_ties_denormals_and_outliers():
    x = torch.randn(200, 64, generator=generator())
    mixed = vary(x, "mixed", 1.0, generator(1))
    assert (mixed == 0).all(1).any() and (mixed == x).all(1).sum() > 20
    assert any(0 < row.abs().max() < torch.finfo(torch.float32).smallest_normal for row in mixed)
    assert any(len(row.unique()) < 20 for row in mixed[mixed.abs().amax(1) > 0.1])
    assert mixed.abs().max() > 8 and torch.isfinite(mixed).all()
    assert torch.equal(vary(x, "mixed", 0.0, generator(1)), x)


def test_a_task_with_a_fixed_distribution_is_drawn_as_it_draws_itself():
    task = Task(id="t", reference=SOURCE.format(body="torch.relu(x)"), distribution="fixed")
    instance = load_problem(task, None).instance(0)
    for variant in VARIANTS:
        call = instance.draw_call(7, variant)
        assert call.variant == "declared" and torch.equal(call.inputs[0], instance.problem.reference.draw_inputs(7)[0])


def test_a_variant_weakens_where_the_reference_overflows():
    call = problem_of("torch.exp(x * 8)", "torch.randn(16, 32)").instance(0).draw_call(1, "large")
    assert call.strength < 1 and call.oracle.finite


def test_an_output_that_vanishes_on_large_inputs_is_not_measured_in_units_of_what_is_left():
    instance = problem_of("torch.tanh(-torch.exp(-x * x))", "torch.randn(16, 32)").instance(0)

    def passes(function, variant, seed):
        call = instance.draw_call(seed, variant)
        return bool(compare([function(*call.inputs)], call.oracle, instance.rule).passed_calls)

    def honest(x):
        return 2.0 * torch.sigmoid(-2.0 * torch.exp(-x * x)) - 1.0  # right to 1e-7, which is more than some outputs

    wrong = {
        "half": lambda x: honest(x.half()).float(),
        "no tanh": lambda x: -torch.exp(-x * x),
        "zero": torch.zeros_like,
    }
    assert instance.draw_call(5, "large").oracle.outputs[0].value.median().abs() < 1e-6
    for seed in range(20):
        assert all(passes(honest, variant, seed) for variant in VARIANTS)
        for name, function in wrong.items():
            assert not passes(function, "declared", seed), name
            assert not passes(function, "affine", seed), name


def test_pick_variant_starts_declared_then_follows_the_seed():
    assert all(pick_variant(seed, 0) == "declared" for seed in range(5))
    rows = {tuple(pick_variant(seed, call) for call in range(1, 5)) for seed in range(30)}
    assert len(rows) == 4 and all(set(row) == set(VARIANTS[1:]) for row in rows)


def test_seeded_restores_the_global_generators():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    with seeded(1):
        torch.rand(100)
    assert torch.equal(torch.rand(1), expected)


def test_weights_repeat_by_seed_and_match_a_plain_build():
    problem = load_problem(LAYER_NORM, "tiny")
    one, two, other = problem.instance(1), problem.instance(1), problem.instance(2)
    assert all(torch.equal(a, two.state_dict()[n]) for n, a in one.state_dict().items())
    assert any(not torch.equal(a, other.state_dict()[n]) for n, a in one.state_dict().items())
    plain = problem.instance(1, randomize=False).state_dict()
    assert torch.equal(plain["norm.weight"], torch.ones(96)) and plain["norm.bias"].abs().max() == 0


def test_constant_parameters_and_statistics_are_drawn_anew_others_are_not():
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6))
    model.register_buffer("table", torch.ones(3))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    changed = randomize_parameters(model, 0)
    assert sorted(changed) == ["1.bias", "1.running_mean", "1.running_var", "1.weight"]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == (name not in changed)
    assert model[1].running_var.min() > 0


def test_training_state_does_not_leak_between_calls():
    source = module("self.norm(x)", {"x": "torch.randn(16, 8)"}, layers={"norm": "torch.nn.BatchNorm1d(8)"})
    instance = load_problem(Task(id="t", reference=source), None).instance(0)
    state = {name: tensor.clone() for name, tensor in instance.state_dict().items()}
    instance.draw_call(1)
    instance.draw_call(2)
    assert all(torch.equal(tensor, state[name]) for name, tensor in instance.state_dict().items())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ValueError('no')", "does not load: ValueError: no"),
        ("x = 1", "defines no Model and no get_inputs"),
        ("class Model: pass\ndef get_inputs(): return []", "Model must be a torch.nn.Module"),
        (
            SOURCE.format(body="x").replace("return [torch.rand", "return 3 and [torch.nope"),
            "get_inputs() of the reference raised",
        ),
        (SOURCE.format(body="x").replace("return [torch.rand(16, 32)]", "return 3"), "get_inputs() must return a list"),
        (SOURCE.format(body="x").replace("return []", "return 5"), "get_init_inputs() must return a list"),
    ],
)
def test_faults_of_a_reference_are_named(source, words):
    with pytest.raises(TaskError) as caught:
        reference = load_reference(source)
        reference.build(0)
        reference.draw_inputs(0)
    assert words in str(caught.value)


def test_kernelbook_init_inputs_are_understood():
    source = (
        SOURCE.format(body="x * self.k")
        .replace(
            "    def forward",
            "    def __init__(self, k=1):\n        super().__init__()\n        self.k = k\n    def forward",
        )
        .replace("return []", "return [[], {'k': 3}]")
    )
    instance = load_problem(Task(id="t", reference=source), None).instance(0)
    assert instance.init_kwargs == {"k": 3} and instance.model.k == 3


def test_references_are_kept_loaded_up_to_a_number():
    def loaded():
        return {name for name in sys.modules if name.startswith("drkernel_reference_")}

    first = load_reference(SOURCE.format(body="x"))
    assert load_reference(SOURCE.format(body="x")) is first
    for number in range(KEPT + 10):
        load_reference(SOURCE.format(body=f"x + {number}"))
    assert len(loaded()) <= KEPT and first.namespace.__name__ not in loaded()
    assert load_reference(SOURCE.format(body="x")) is not first
    before = loaded()
    with pytest.raises(TaskError):
        load_reference("x = 1")
    assert loaded() == before


def test_a_reference_that_draws_on_the_gpu_is_drawn_on_the_host():
    """KernelBench's own example calls ``.cuda()`` in ``get_inputs``; the judge moves values to the device itself."""
    source = """
import torch
TABLE = torch.arange(4, device="cuda:0")
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4, device=torch.device("cuda"))
        self.scale = torch.nn.Parameter(torch.ones(4).to("cuda", torch.float16))
        self.cuda().to("cuda")
    def forward(self, x, y, z):
        return self.linear(x) * y + z
def get_inputs():
    x = torch.randn(2, 4).cuda()
    return [x, torch.rand(2, 4, device="cuda"), TABLE.to(device="cuda", dtype=torch.float32)]
"""
    reference = load_reference(source)
    inputs = reference.draw_inputs(1)
    assert [value.device.type for value in inputs] == ["cpu"] * 3 and inputs[2].dtype == torch.float32
    model = reference.build(1)
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"cpu"}
    assert model.scale.dtype == torch.float16
    with torch.device("meta"):
        assert [value.device.type for value in reference.draw_inputs(0)][:2] == ["meta", "meta"]


@pytest.mark.parametrize(("shape", "axes"), [((10, 64), (0,)), ((3, 4, 8), (0, 1)), ((6, 12), (1,)), ((14,), (0,))])
@pytest.mark.parametrize("seed", range(5))
def test_every_treatment_is_dealt_where_there_are_ten_slices(shape, axes, seed, monkeypatch):
    seen = []
    monkeypatch.setattr(inputs, "_treated", lambda part, treatment, *_: seen.append((treatment, len(part))) or part)
    x = torch.randn(shape, generator=generator())
    assert torch.equal(vary(x, "mixed", 1.0, generator(seed), axes=axes), x)
    slices = math.prod(shape[axis] for axis in axes) if len(shape) > 1 else inputs.SLICES
    assert {treatment for treatment, _ in seen} == set(inputs.TREATMENTS)
    counts = [count for _, count in seen]
    if len(shape) > 1:
        assert max(counts) - min(counts) <= 1 and abs(sum(counts) - inputs.TREATED * slices) < 1


def test_treatments_lie_along_the_axes_asked_for():
    x = torch.randn(6, 40, 5, generator=generator())
    by_column = vary(x, "mixed", 1.0, generator(1), axes=(1,))
    zero = (by_column == 0).all(2)
    assert zero.any() and torch.equal(zero, zero[:1].expand_as(zero)), "a column is zero in every row or in none"
    lacking = vary(x, "mixed", 1.0, generator(1), axes=(1,), without=("zeros",))
    assert not (lacking == 0).all(2).any()


@pytest.mark.parametrize(
    ("body", "draw", "axes"),
    [
        ("torch.nn.functional.layer_norm(x, (32,))", "torch.randn(16, 32)", {}),
        ("torch.nn.functional.batch_norm(x, None, None, training=True)", "torch.randn(8, 12, 3, 3)", {0: (1,)}),
        ("torch.nn.functional.instance_norm(x)", "torch.randn(2, 12, 3, 3)", {0: (0, 1)}),
        ("torch.softmax(x, 1)", "torch.randn(4, 12, 5)", {0: (0, 2)}),
        ("x.sum(0)", "torch.randn(16, 32)", {0: (1,)}),
        ("x.cumsum(0)", "torch.randn(16, 32)", {0: (1,)}),
        ("torch.relu(x)", "torch.randn(3, 4, 5)", {0: (0, 1)}),
        ("x / x.norm()", "torch.randn(16, 32)", {}),
        ("x.reshape(4, 4, 16).sum() + x", "torch.randn(16, 16)", {}),
        ("torch.randint(0, 1 << 20, (1,)) * x", "torch.randn(16, 16)", {}),
    ],
)
def test_slices_lie_along_axes_on_which_the_reference_works_independently(body, draw, axes):
    assert problem_of(body, draw).slices == axes


def test_slices_of_a_product_are_rows_of_one_and_columns_of_the_other():
    assert problem_of("x @ y", "torch.randn(16, 24)", y="torch.randn(24, 32)").slices == {1: (1,)}


@pytest.mark.parametrize("seed", range(6))
def test_what_a_reference_divides_by_is_left_out_before_the_variant_is_weakened(seed):
    problem = problem_of("x / x.norm(dim=1, keepdim=True)", "torch.randn(16, 32)")
    call = problem.instance(0).draw_call(seed, "mixed")
    assert call.strength == 1.0 and call.without == ("zeros", "tiny")


def test_huge_and_tiny_inputs_lie_beyond_half_precision_and_keep_their_digits():
    values = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    for seed in range(5):
        huge, tiny = (vary(values, one, 1.0, torch.Generator().manual_seed(seed)) for one in ("huge", "tiny"))
        assert huge.half().isinf().any() and float(tiny.abs().max()) < torch.finfo(torch.float16).smallest_normal
        for one in (huge, tiny):
            factor = one / values
            assert float(factor.min()) == float(factor.max()) == 2.0 ** round(float(factor.log2().mean()))
    shares = torch.softmax(values, -1)
    assert torch.equal(vary(shares, "huge", 1.0, torch.Generator().manual_seed(0)), shares)
