"""The comparison: honest arithmetic passes whatever its order, everything else fails."""

from dataclasses import replace

import pytest
import torch

from drkernel.task import Tolerance
from drkernel.tasks.correctness import compare, merge, precision_class
from drkernel.tasks.oracle import OracleMaker, flatten_outputs, spread_of, tolerance_for

FP32 = tolerance_for("fp32")


class Product(torch.nn.Module):
    def forward(self, x, w):
        return x @ w


class Choice(torch.nn.Module):
    def forward(self, x):
        return x.argmax(-1)


class Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def make_oracle(model, inputs, precision):
    return OracleMaker(model, precision)(inputs)


def product_oracle(depth=512, precision="fp32", dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    inputs = [torch.randn(24, depth).to(dtype), torch.randn(depth, 20).to(dtype)]
    return inputs, make_oracle(Product(), inputs, precision)


def blocked(x, w, block):
    """The product accumulated sequentially over blocks, in the operands' precision."""
    total = torch.zeros(x.shape[0], w.shape[1], dtype=x.dtype)
    for start in range(0, x.shape[1], block):
        total = total + x[:, start : start + block] @ w[start : start + block]
    return total


@pytest.mark.parametrize("depth", [8, 512, 8192])
@pytest.mark.parametrize("block", [1, 16, 128])
def test_another_order_of_summation_passes(depth, block):
    (x, w), oracle = product_oracle(depth)
    result = compare([blocked(x, w, block)], oracle, FP32)
    assert result.passed_calls == 1, result.message


def test_sequential_sum_of_a_million_passes():
    x = torch.randn(4, 1 << 18)
    oracle = make_oracle(Function(lambda x: x.sum(-1)), [x], "fp32")
    lanes = x.reshape(4, -1, 128)  # as a kernel: 128 lanes, each a running sum, then a tree
    total = torch.zeros(4, 128)
    for step in range(lanes.shape[1]):
        total += lanes[:, step]
    assert compare([total.sum(-1)], oracle, FP32).passed_calls == 1


@pytest.mark.parametrize("seed", range(20))
def test_one_running_sum_far_from_zero_passes_and_sixteen_bits_do_not(seed):
    """What a sum loses term after term depends on its inputs, and is found out from the reference; operands of sixteen
    bits lose more in a product, whatever the order."""
    torch.manual_seed(seed)
    x = torch.randn(20, 200) + 10 * torch.cat([torch.ones(100), -torch.ones(100)])
    oracle = make_oracle(Function(lambda x: x.mean(-1)), [x], "fp32")
    total = torch.zeros(20)
    for column in x.T:
        total = total + column
    result = compare([total / 200], oracle, FP32)
    assert result.passed_calls == 1, result.message
    (left, right), oracle = product_oracle(512, seed=seed)
    high = left.bfloat16().float()
    low = (left - high).bfloat16().float()
    assert compare([(high + low) @ right], oracle, FP32).passed_calls == 0


@pytest.mark.parametrize("depth", [8, 512, 8192])
@pytest.mark.parametrize("lower", [torch.float16, torch.bfloat16])
def test_half_precision_operands_fail_where_single_is_declared(depth, lower):
    (x, w), oracle = product_oracle(depth)
    downgraded = x.to(lower).float() @ w.to(lower).float()
    assert compare([downgraded], oracle, FP32).passed_calls == 0
    report = precision_class([downgraded], oracle, FP32)
    assert report.downgraded and report.worst.error > 3 * report.worst.limit


def test_tf32_operands_fail_only_where_single_is_declared():
    from drkernel.tasks.promote import round_mantissa

    (x, w), oracle = product_oracle()
    tf32 = round_mantissa(x, 10).float() @ round_mantissa(w, 10).float()
    result = compare([tf32], oracle, FP32)
    assert result.passed_calls == 0
    assert precision_class([tf32], oracle, FP32).worst.looks_like == "tf32 or fp16"
    assert compare([tf32], make_oracle(Product(), [x, w], "tf32"), tolerance_for("tf32")).passed_calls == 1


def cut_to_tf32(x):
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def test_positive_operands_may_be_cut_off_to_tf32_and_their_product_not_rounded_to_bf16():
    x, w = torch.rand(64, 2048), torch.rand(2048, 64)
    for a, b in ((x, w), (1 + x / 16, 1 + w / 16)):  # mantissas near one lose most
        oracle = make_oracle(Product(), [a, b], "tf32")
        assert compare([cut_to_tf32(a) @ cut_to_tf32(b)], oracle, tolerance_for("tf32")).passed_calls == 1
    oracle = make_oracle(Product(), [x, w], "tf32")
    assert compare([(x @ w).bfloat16().float()], oracle, tolerance_for("tf32")).passed_calls == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_few_large_elements_of_an_output_may_be_products_in_tf32_and_not_in_bf16(seed):
    torch.manual_seed(seed)
    model, x = torch.nn.ConvTranspose3d(16, 32, 3, stride=2, padding=1, dilation=2), torch.randn(2, 16, 8, 8, 8)
    oracle = make_oracle(model, [x], "tf32")

    def multiplied(rounded):
        weight = rounded(model.weight.detach())
        return [torch.nn.functional.conv_transpose3d(rounded(x), weight, model.bias, 2, 1, 0, 1, 2)]

    assert compare(multiplied(cut_to_tf32), oracle, tolerance_for("tf32")).passed_calls == 1
    assert compare(multiplied(lambda t: t.bfloat16().float()), oracle, tolerance_for("tf32")).passed_calls == 0


def test_a_product_in_tf32_may_cross_the_edge_of_a_clamp_where_no_single_run_shows_noise():
    def clamped(a, b):
        return (a @ b).clamp(-1, 1)

    for seed in range(3):
        chances = torch.Generator().manual_seed(seed)
        x, w = 100 * torch.randn(256, 64, generator=chances), torch.randn(64, 512, generator=chances)
        oracle = make_oracle(Function(clamped), [x, w], "tf32")
        answer = clamped(cut_to_tf32(x), cut_to_tf32(w))
        assert compare([answer], oracle, tolerance_for("tf32")).passed_calls == 1
        answer[3] = clamped(x[3, :-1], w[:-1])  # a term is left out of one row
        assert compare([answer], oracle, tolerance_for("tf32")).passed_calls == 0


def truncated(x):
    return (x.view(torch.int32) & ~0xFFFF).view(torch.float32)


def gelu(x):
    return torch.nn.functional.gelu(x)


def layer_norm(x, eps=1e-5):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=eps)


@pytest.mark.parametrize(
    ("right", "wrong", "looks_like"),
    [
        (gelu, lambda x: gelu(x.bfloat16().float()), "bf16"),
        (gelu, lambda x: gelu(truncated(x)), "bf16"),
        (gelu, lambda x: gelu(x.to(torch.float8_e4m3fn).float()), "fp8"),
        (lambda x: x.softmax(-1), lambda x: x.bfloat16().float().softmax(-1), "bf16"),
        (lambda x: x.relu() * 2 + 1, lambda x: x.relu() * 2.1 + 1, None),
        (lambda x: x.relu() * 2 + 1, lambda x: x.relu() * 2.001 + 1, None),
        (layer_norm, lambda x: layer_norm(x, 1e-3), None),
        (layer_norm, lambda x: layer_norm(x) * (512 / 511) ** 0.5, None),
        (lambda x: x.cumsum(-1), lambda x: x.cumsum(-1) + (torch.arange(512) > 500) * 0.5, None),
    ],
)
def test_only_errors_like_those_of_rounding_are_called_a_coarser_format(right, wrong, looks_like):
    x = torch.randn(256, 512, generator=torch.Generator().manual_seed(0))
    oracle = make_oracle(Function(right), [x], "fp32")
    report = precision_class([wrong(x)], oracle, FP32)
    assert report.downgraded and report.worst.looks_like == looks_like


def test_an_answer_that_is_off_as_a_whole_is_told_where_it_is_furthest_off():
    x = torch.rand(64, 512, generator=torch.Generator().manual_seed(0))
    oracle = make_oracle(Function(lambda x: x * 3), [x], "fp32")
    answer = x * 3 * (1 + 8e-5)
    answer[3, 4] *= 1 + 2e-5
    message = compare([answer], oracle, FP32).message
    assert "every element is within tolerance" in message and "looks like" not in message
    assert "output 0[3, 4] should be" in message


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_declared_half_precision_passes_in_wider_and_in_own_arithmetic(precision, dtype):
    (x, w), oracle = product_oracle(256, precision, dtype)
    rule = tolerance_for(precision)
    for answer in ((x.float() @ w.float()).to(dtype), blocked(x, w, 64)):
        result = compare([answer], oracle, rule)
        assert result.passed_calls == 1, result.message


def test_bf16_operands_fail_where_fp16_is_declared():
    (x, w), oracle = product_oracle(256, "fp16", torch.float16)
    downgraded = (x.bfloat16().float() @ w.bfloat16().float()).half()
    assert compare([downgraded], oracle, tolerance_for("fp16")).passed_calls == 0


def test_zeros_fail_on_a_softmax_over_many_classes():
    x = torch.randn(2, 393216)
    oracle = make_oracle(Function(lambda x: x.softmax(-1)), [x], "fp32")
    result = compare([torch.zeros_like(x)], oracle, FP32)
    assert result.passed_calls == 0 and result.mismatch.wrong_fraction > 0.99
    assert compare([x.softmax(-1)], oracle, FP32).passed_calls == 1


def test_a_single_wrong_element_fails_and_is_named():
    (x, w), oracle = product_oracle()
    answer = x @ w
    answer[3, 7] += 0.1
    result = compare([answer], oracle, FP32)
    assert result.mismatch.index == (3, 7)
    assert result.mismatch.wrong_fraction == pytest.approx(1 / 480)
    assert "[3, 7]" in result.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda y: [y, y], "returns 1 outputs, the candidate 2"),
        (lambda y: [], "returns 1 outputs, the candidate 0"),
        (lambda y: [y[:1]], "shape should be"),
        (lambda y: [y.double()], "dtype should be torch.float32"),
        (lambda y: [y.half()], "dtype should be torch.float32"),
        (lambda y: [1.0], "the reference returns a Tensor, the candidate a float"),
        (lambda y: [None], "the reference returns a Tensor, the candidate a NoneType"),
        (lambda y: [y.sum()], "shape should be"),
    ],
)
def test_form_must_agree(answer, words):
    (x, w), oracle = product_oracle()
    result = compare(answer(x @ w), oracle, FP32)
    assert result.passed_calls == 0 and words in result.message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_no_wildcards(value):
    (x, w), oracle = product_oracle()
    answer = x @ w
    answer[0, 0] = value
    assert compare([answer], oracle, FP32).passed_calls == 0
    assert compare([torch.full_like(answer, value)], oracle, FP32).passed_calls == 0


def test_nan_and_infinity_pass_only_where_the_oracle_has_them():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0])
    oracle = make_oracle(Function(lambda x: x + special.to(x.dtype)), [x], "fp32")
    right = x + special
    assert compare([right], oracle, FP32).passed_calls == 1
    for place, wrong in [
        (0, 0.0),
        (0, float("inf")),
        (1, -float("inf")),
        (1, 1e30),
        (2, float("nan")),
        (3, float("nan")),
    ]:
        answer = right.clone()
        answer[place] = wrong
        assert compare([answer], oracle, FP32).passed_calls == 0, (place, wrong)


def test_overflow_of_the_output_dtype_is_infinity_of_the_same_sign():
    x = torch.tensor([300.0, -300.0, 1.0], dtype=torch.float16)
    oracle = make_oracle(Function(lambda x: x * x.abs() * 2), [x], "fp16")
    rule = tolerance_for("fp16")
    assert compare([torch.tensor([float("inf"), -float("inf"), 2.0]).half()], oracle, rule).passed_calls == 1
    assert compare([torch.tensor([-float("inf"), -float("inf"), 2.0]).half()], oracle, rule).passed_calls == 0


def test_integers_are_exact_but_a_tie_may_break_either_way():
    x = torch.randn(32, 50)
    x[0, :2] = 9.0
    x[0, 1] = x[0, 0] * (1 + 2**-23)
    oracle = make_oracle(Choice(), [x], "fp32")
    answer = x.argmax(-1)
    assert compare([answer], oracle, FP32).passed_calls == 1
    answer[5] = (answer[5] + 1) % 50
    result = compare([answer], oracle, FP32)
    assert result.passed_calls == 0 and result.mismatch.index == (5,), "a wrong element is named, not a right one"


@pytest.mark.parametrize(("alone", "draws"), [(1, 24), (4, 16)])
def test_one_tie_of_very_many_is_held_against_more_draws(alone, draws):
    def wider(narrow, draw):
        drawn.append(draw)
        return narrow

    drawn: list[int] = []
    answer = torch.cat([torch.zeros(alone) + 1.0, torch.randn(200_000)])
    oracle = make_oracle(Function(lambda x: x.clone()), [answer], "fp32")
    answer = answer.clone()
    answer[:alone] += 2e-3
    assert not compare([answer], replace(oracle, wider=wider), FP32).passed_calls
    assert drawn == list(range(1, draws + 1))


def test_whole_numbers_near_a_half_may_be_rounded_either_way_and_others_not():
    """Codes of eight bits by a reciprocal in place of a division: no single jittered run shows every flip."""
    torch.manual_seed(1)
    x = torch.randn(512, 2048).to(torch.bfloat16)

    def codes(x, divided):
        scale = x.to(torch.float32).abs().amax(-1, keepdim=True) / 127
        return torch.round(divided(x.to(torch.float32), scale)).to(torch.int8)

    oracle = make_oracle(Function(lambda x: codes(x, torch.div)), [x], "fp32")
    got = codes(x, lambda x, scale: x * (1 / scale))
    want = oracle.outputs[0]
    assert bool(((got != want.value) & (got != want.declared) & (got != want.jittered)).any())
    assert compare([got], oracle, FP32).passed_calls == 1
    scaled = x.double() * 127 / x.double().abs().amax(-1, keepdim=True)
    place = int((scaled - scaled.round()).abs().argmin())
    got.view(-1)[place] += 1
    result = compare([got], oracle, FP32)
    assert result.passed_calls == 0 and result.mismatch.actual == got.view(-1)[place]


def last_first(x, descending):
    """Places in order, of equal elements the last first."""
    return x.shape[-1] - 1 - x.flip(-1).argsort(dim=-1, descending=descending, stable=True)


@pytest.mark.parametrize(
    ("pick", "places", "free"),
    [
        (lambda x: x.topk(5).indices, lambda x: last_first(x, True)[:, :5], True),
        (
            lambda x: torch.topk(x, k=5, dim=1, largest=False)[1].int(),
            lambda x: last_first(x, False)[:, :5].int(),
            True,
        ),
        (lambda x: x.argsort(), lambda x: last_first(x, False), True),
        (lambda x: x.kthvalue(30, keepdim=True).indices, lambda x: last_first(x, False)[:, 29:30], True),
        (lambda x: x.argsort(dim=-1, stable=True), lambda x: last_first(x, False), False),
        (lambda x: x.argmax(-1), lambda x: last_first(x, True)[:, 0], False),
        (lambda x: x.argmax(), lambda x: x.numel() - 1 - x.flatten().flip(0).argmax(), False),
        (lambda x: x.min(dim=1).indices, lambda x: last_first(x, False)[:, 0], False),
    ],
)
def test_of_equal_elements_any_will_do_where_pytorch_promises_none_and_only_the_first_where_it_does(pick, places, free):
    x = torch.randint(0, 7, (16, 32)).float()
    oracle = make_oracle(Function(pick), [x], "fp32")
    assert oracle.unstable_fraction == 0, "inputs with ties are no reason to leave them out"
    assert compare([pick(x)], oracle, FP32).passed_calls == 1
    assert compare([places(x)], oracle, FP32).passed_calls == free
    for wrong in (places(x) * 0 - 1, places(x) * 0 + 32 * 16, (places(x) + 1) % 32):
        assert compare([wrong], oracle, FP32).passed_calls == 0


def test_of_equal_elements_none_is_picked_twice():
    x = torch.zeros(3, 8)
    oracle = make_oracle(Function(lambda x: x.topk(2).indices), [x], "fp32")
    assert compare([torch.tensor([[7, 3]] * 3)], oracle, FP32).passed_calls == 1
    assert compare([torch.tensor([[7, 3], [7, 7], [7, 3]])], oracle, FP32).mismatch.index[0] == 1


def test_what_rounding_makes_equal_is_equal_and_what_is_changed_later_is_not_asked():
    """Weights of a softmax that are zero in single precision, not in double; places that are counted from one."""
    x = torch.full((4, 6), -200.0)
    x[:, 2], x[:, 5] = 0.0, -201.0
    oracle = make_oracle(Function(lambda x: torch.softmax(x, -1).topk(3).indices), [x], "fp32")
    assert compare([torch.tensor([[2, 5, 0]] * 4)], oracle, FP32).passed_calls == 1
    zeros = torch.zeros(2, 4)
    oracle = make_oracle(Function(lambda x: x.topk(2).indices.add_(1)), [zeros], "fp32")
    assert compare([zeros.topk(2).indices + 1], oracle, FP32).passed_calls == 1
    assert compare([5 - zeros.topk(2).indices - 1], oracle, FP32).passed_calls == 0


def test_a_constant_within_relative_tolerance_of_a_narrow_output_fails():
    x = 1000 + 0.5 * torch.randn(64, 64)
    oracle = make_oracle(Function(lambda x: x * 1.0), [x], "fp32")
    assert compare([torch.full_like(x, 1000.0)], oracle, FP32).passed_calls == 0


def test_numbers_are_compared_like_tensors():
    oracle = make_oracle(Function(lambda x: (float(x.sum()), int(x.numel()))), [torch.randn(9)], "fp32")
    good = [float(out.value) if out.floating else int(out.value) for out in oracle.outputs]
    assert compare(good, oracle, FP32).passed_calls == 1
    assert compare([good[0] * 1.01, good[1]], oracle, FP32).passed_calls == 0
    assert compare([good[0], good[1] + 1], oracle, FP32).passed_calls == 0
    assert compare([good[0], True], oracle, FP32).passed_calls == 0


def test_complex_outputs_are_compared():
    x = torch.randn(4, 16)
    oracle = make_oracle(Function(lambda x: torch.fft.fft(x)), [x], "fp32")
    answer = torch.fft.fft(x)
    assert compare([answer], oracle, FP32).passed_calls == 1
    assert compare([answer.conj().resolve_conj()], oracle, FP32).passed_calls == 0


def test_an_explicit_tolerance_replaces_both_tests():
    (x, w), oracle = product_oracle()
    rule = tolerance_for("fp32", Tolerance(rtol=1e-2, atol_scale=1e-2))
    assert compare([(x.half() @ w.half()).float()], oracle, rule).passed_calls == 1
    assert compare([x @ w + 0.5], oracle, rule).passed_calls == 0


def test_an_operator_without_double_falls_back_and_says_so():
    def only_single(x):
        if x.dtype == torch.float64:
            raise NotImplementedError("no kernel for Double")
        return x * 2

    oracle = make_oracle(Function(only_single), [torch.randn(8)], "fp32")
    assert oracle.kind == "declared" and "no kernel for Double" in oracle.fallback
    assert compare([oracle.outputs[0].declared], oracle, FP32).passed_calls == 1


def test_state_does_not_leak_from_one_oracle_into_the_next():
    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x + self.count

    maker = OracleMaker(Running(), "fp32")
    x = torch.zeros(3)
    assert [float(maker([x]).outputs[0].value[0]) for _ in range(3)] == [1.0, 1.0, 1.0]


def test_inputs_are_not_modified():
    x = torch.randn(5)
    before = x.clone()
    make_oracle(Function(lambda x: x.mul_(2)), [x], "fp32")
    assert torch.equal(x, before)


def test_spread_ignores_a_few_huge_elements_and_masks():
    x = torch.randn(10_000)
    assert spread_of(x) == pytest.approx(1.0, rel=0.1)
    x[:10] = 1e12
    assert spread_of(x) == pytest.approx(1.0, rel=0.1)
    mask = torch.zeros(1000)
    mask[::50] = 3.0
    assert spread_of(mask) == pytest.approx(float(mask.std(correction=0)))
    assert spread_of(torch.tensor([5.0])) == 0 and spread_of(torch.full((9,), 2.0)) == 0


def test_merge_adds_counts_and_keeps_the_first_failure():
    (x, w), oracle = product_oracle()
    good, bad = compare([x @ w], oracle, FP32), compare([x @ w + 1], oracle, FP32)
    merged = merge([good, bad, good])
    assert (merged.checked_calls, merged.passed_calls) == (3, 2)
    assert merged.message == bad.message and merged.max_error == bad.max_error


def test_strides_are_not_judged():
    (x, w), oracle = product_oracle()
    answer = (x @ w).t().contiguous().t()
    assert answer.stride() != oracle.outputs[0].stride and compare([answer], oracle, FP32).passed_calls == 1


def test_nested_outputs_are_flattened_and_foreign_types_refused():
    x = torch.ones(1)
    assert len(flatten_outputs((x, [x, {"a": x}], 3))) == 4
    with pytest.raises(TypeError, match="str cannot be compared"):
        flatten_outputs((x, "text"))
