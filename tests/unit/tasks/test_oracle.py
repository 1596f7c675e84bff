"""Oracles: their statistics against a plain computation, large modules, modules with state."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import drkernel.tasks.promote as promote
from drkernel.tasks.correctness import compare
from drkernel.tasks.oracle import OracleMaker, expected_output, tolerance_for


@pytest.mark.parametrize("shape", [(50, 70), (300, 401), (2, 301, 401)])
def test_statistics_are_those_of_the_definition(shape):
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(shape, generator=generator, dtype=torch.float64)
    shaken = exact + 1e-6 * torch.randn(shape, generator=generator, dtype=torch.float64)
    declared = exact.float()
    out = expected_output(declared, exact, shaken, "fp32")
    own, moved = (declared.double() - exact).abs(), (shaken - exact).abs()
    scale = exact.abs() + out.spread
    assert out.regular and torch.equal(out.noise, torch.maximum(own, moved))
    assert out.z_reference == pytest.approx(float((own / scale).square().mean().sqrt()), rel=1e-9)
    assert out.z_operand == pytest.approx(float((moved / scale).square().mean().sqrt()) / 4, rel=1e-9)
    assert out.scaled_rms(moved.clone()) == pytest.approx(4 * out.z_operand, rel=1e-9)


@pytest.mark.parametrize("elements", [64, 100_000])
def test_a_flipped_element_and_nan_are_not_regular(elements):
    exact = torch.linspace(-1, 1, elements, dtype=torch.float64)
    shaken = exact.clone()
    shaken[3] = 5.0
    flipped = expected_output(exact.float(), exact, shaken, "fp32")
    assert not flipped.regular and int((~flipped.stable).sum()) == 1 and flipped.z_operand == 0
    shaken[3] = float("nan")
    assert not expected_output(exact.float(), exact, shaken, "fp32").regular


def test_changes_of_a_long_input_add_up_as_independent_ones():
    long = torch.ones(4, 1_000_000)
    sums = [
        (moved.sum(1) - 1_000_000) / (1e-3 * (1_000_000 / 3) ** 0.5)
        for seed in range(8)
        for moved in promote.jittered_inputs([long], 1e-3, torch.Generator().manual_seed(seed))
    ]
    moved = promote.jittered_inputs([long], 1e-3, torch.Generator().manual_seed(0))[0]
    assert 0.9e-3 < float((moved - 1).abs().max()) <= 1e-3 + 1e-12
    assert 0.6 < float(torch.stack(sums).square().mean().sqrt()) < 1.6  # 3.2 with the same direction in each block


class Network(nn.Module):
    """Every way in which a forward takes hold of a parameter."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 16)
        self.lstm = nn.LSTM(16, 16, batch_first=True)
        self.square = nn.Parameter(torch.randn(16, 16))

    def forward(self, x):
        pooled = self.linear(self.norm(self.conv(x)).mean((2, 3)))
        return self.lstm(pooled[:, None])[0][:, 0] @ self.square.T + self.square.shape[0]


def test_a_large_module_has_the_same_oracle_without_copies_of_its_parameters(monkeypatch):
    torch.manual_seed(0)
    model, x = Network(), torch.randn(4, 3, 16, 16)
    small = OracleMaker(model, "fp32", 3)([x]).outputs[0]
    monkeypatch.setattr(promote, "LARGE", 10)
    maker = OracleMaker(model, "fp32", 3)
    large = maker([x]).outputs[0]
    assert torch.equal(large.value, small.value) and torch.equal(large.declared, small.declared)
    assert 0.3 < large.z_operand / small.z_operand < 3  # other draws of the same size
    assert torch.equal(large.noise, maker([x]).outputs[0].noise)  # a parameter's jitter is always the same
    kept = {id(one) for one in maker._jittered.fresh().parameters()}
    assert kept == {id(one) for one in model.parameters()}
    assert model.norm.running_mean.abs().max() == 0


class Counting(nn.Module):
    """Returns a buffer that it changes, with a number that only Python sees."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.calls = 0

    def forward(self, x):
        self.total += x
        self.calls += 1
        return self.total, x * self.calls


def test_each_call_starts_from_the_original_state_and_leaves_earlier_answers_alone():
    maker = OracleMaker(Counting(), "fp32")
    one, two = maker([torch.ones(3)]), maker([torch.full((3,), 2.0)])
    assert one.outputs[0].declared.tolist() == [1, 1, 1] and two.outputs[0].declared.tolist() == [2, 2, 2]
    assert two.outputs[1].declared.tolist() == [2, 2, 2]
    assert one.outputs[0].value.tolist() == [1, 1, 1]


def test_statistics_are_written_back_without_a_copy_of_the_module():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    maker = OracleMaker(model, "fp32")
    before = maker._declared.fresh()
    first = maker([torch.randn(8, 4)])
    assert maker._declared.fresh() is before and before[1].num_batches_tracked == 0
    assert first.outputs[0].declared.shape == (8, 6)


def test_an_oracle_without_outputs_is_worked_out_once_more():
    maker = OracleMaker(nn.Linear(8, 8), "fp32")
    oracle = maker([torch.randn(4, 8)])
    left = replace(oracle, outputs=())
    assert oracle.whole() is oracle
    [again], [once] = left.whole().outputs, oracle.outputs
    assert torch.equal(again.value, once.value) and torch.equal(again.jittered, once.jittered)


class Quantiser(nn.Module):
    """Rows in fp8, which PyTorch stores and does not compute with."""

    def forward(self, x):
        return (x * (448 / x.abs().amax(-1, keepdim=True))).to(torch.float8_e4m3fn)


@pytest.mark.parametrize(("factor", "passed"), [(1.0, True), (1.0 + 2**-22, True), (1.07, False)])
def test_outputs_in_fp8_are_compared_by_value(factor, passed):
    """A last bit of fp32 moves few elements to the next of fp8's numbers, which are 7% apart."""
    torch.manual_seed(0)
    model, x = Quantiser(), torch.randn(64, 512)
    oracle = OracleMaker(model, "fp32")([x])
    assert oracle.finite and oracle.outputs[0].declared.dtype == torch.float8_e4m3fn
    answer = (x * (448 / x.abs().amax(-1, keepdim=True)) * factor).to(torch.float8_e4m3fn)
    assert compare([answer], oracle, tolerance_for("fp32")).passed_calls == passed
