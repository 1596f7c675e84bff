"""How much of a reference's work its masks leave."""

import pytest

from drkernel.gym.judge.modelled_timing import forms_of, reference_work
from drkernel.task import TaskError
from drkernel.tasks.reference import load_reference

SOURCE = """
import torch, torch.nn.functional as F
class Model(torch.nn.Module):
    def forward(self, x):
        {body}
def get_inputs():
    return [torch.randn(2, 4, 16, 8)]
"""
SCORES = "s = x @ x.transpose(-1, -2); "


@pytest.mark.parametrize(
    ("body", "share"),
    [
        ("return torch.relu(x)", 1.0),
        ("return F.scaled_dot_product_attention(x, x, x)", 1.0),
        ("return F.scaled_dot_product_attention(x, x, x, is_causal=True)", 0.5),
        ("m = torch.arange(16) < 12; return F.scaled_dot_product_attention(x, x, x, m.expand(16, 16))", 0.75),
        ("m = torch.arange(16) < 12; return F.scaled_dot_product_attention(x, x, x, m.float().expand(16, 16))", 1.0),
        (SCORES + "return s.masked_fill(torch.eye(16, dtype=torch.bool), -1e9).softmax(-1) @ x", 15 / 16),
        (SCORES + "return torch.where(torch.eye(16) > 0, float('-inf'), s).softmax(-1) @ x", 15 / 16),
        (SCORES + "return torch.where(torch.eye(16) == 0, s, float('-inf')).softmax(-1) @ x", 15 / 16),
        (SCORES + "return s.masked_fill(torch.ones(16, 16).triu(1) > 0, -1e9).softmax(-1) @ x", 0.5),
        (SCORES + "return s.masked_fill(torch.eye(16) == 0, -1e9).softmax(-1) @ x", 0.5),
        ("return x[:, [1, 2]]", 0.5),
    ],
)
def test_the_least_that_any_mask_keeps_counts(body, share):
    reference = load_reference(SOURCE.format(body=body))
    assert reference_work(reference, reference.draw_inputs(0)).live == pytest.approx(share, abs=0.01)
    assert reference_work(reference).live == pytest.approx(share, abs=0.01)


WINDOW = "i = torch.arange(16); d = i[:, None] - i[None, :]; m = (d >= 0) & (d < 4); "


@pytest.mark.parametrize(
    ("body", "share"),
    [
        ("return F.scaled_dot_product_attention(x, x, x, m)", 58 / 256),
        (SCORES + "return s.masked_fill(~m, -1e9).softmax(-1) @ x", 58 / 256),
        ("return F.scaled_dot_product_attention(x, x, x, m) @ torch.ones(8, 8)", 1.0),  # a product besides
        (SCORES + "return s.masked_fill(~m, -1e9).softmax(-1) @ x @ torch.ones(8, 8)", 1.0),
        ("return F.scaled_dot_product_attention(x @ torch.ones(8, 8), x, x, m)", 1.0),
        ("return F.scaled_dot_product_attention(F.scaled_dot_product_attention(x, x, x, m), x, x)", 1.0),
        ("return F.scaled_dot_product_attention(F.scaled_dot_product_attention(x, x, x, m), x, x, d < 4)", 1.0),
    ],
)
def test_a_window_asks_for_what_it_keeps_where_it_masks_all_products(body, share):
    reference = load_reference(SOURCE.format(body=WINDOW + body))
    assert reference_work(reference).scores == pytest.approx(share, abs=0.01)


LENGTHS = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, lengths):
        inside = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
        {body}
def get_inputs():
    return [torch.randn({rows}, 64, 8), torch.randint(1, 65, ({rows},))]
"""


@pytest.mark.parametrize(
    "body",
    [
        "return (x * inside[:, :, None]).sum(1)",
        "return x.masked_fill(~inside[:, :, None], 0.0).sum(1)",
        "return torch.where(inside[:, :, None], x, 0.0).sum(1)",
        "return torch.softmax(x.sum(-1) + torch.where(inside, 0.0, float('-inf')), -1)",
    ],
)
def test_lengths_ask_for_the_share_that_they_keep_in_that_very_call(body: str) -> None:
    for rows in (4, 4096):  # at the second nothing has data but the lengths
        reference = load_reference(LENGTHS.format(body=body, rows=rows))
        drawn = forms_of(reference.source).inputs[1]
        assert reference_work(reference).asked == pytest.approx(float(drawn.double().mean()) / 64)
        given = reference.draw_inputs(5)
        assert reference_work(reference, given).asked == pytest.approx(float(given[1].double().mean()) / 64)


@pytest.mark.parametrize(
    "body",
    [
        "return torch.stack([row[:n].sum(0) for row, n in zip(x, lengths.tolist())])",
        "return torch.stack([row[:n].mean(0) * row[:n].amax(0) for row, n in zip(x, lengths.tolist())])",
        "out = torch.zeros_like(x)\n        for n, row in zip(lengths, range(len(x))):\n"
        "            out[row, : int(n)] = torch.softmax(x[row, : int(n)], 0)\n        return out",
    ],
)
def test_slices_up_to_lengths_that_the_host_reads_ask_for_what_they_keep(body: str) -> None:
    source = LENGTHS.replace(
        "        inside = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]\n", ""
    )
    reference = load_reference(source.format(body=body, rows=4))
    given = reference.draw_inputs(5)
    assert reference_work(reference, given).asked == pytest.approx(float(given[1].double().mean()) / 64)


def test_slices_of_one_size_and_picked_rows_ask_for_nothing() -> None:
    for body in ("return x[:, :7].sum(1)", "n = int(lengths[0]); return x[lengths % 4].sum(1) * n"):
        assert reference_work(load_reference(LENGTHS.format(body=body, rows=4))).asked is None


@pytest.mark.parametrize(
    "body",
    [
        "return x[lengths % 9].sum(1) * int(lengths[0])",
        "return x.index_select(0, lengths % 9)",
        "return torch.nn.functional.embedding(lengths % 9, x[:, 0])",
    ],
)
def test_rows_that_indices_name_count_once(body: str) -> None:
    reference = load_reference(LENGTHS.format(body=body, rows=9))
    given = reference.draw_inputs(5)
    assert reference_work(reference, given).named == pytest.approx(len((given[1] % 9).unique()) / 9)


def test_what_no_whole_numbers_decide_asks_for_nothing() -> None:
    causal = SOURCE.format(body=SCORES + "return s.masked_fill(torch.ones(16, 16).triu(1) > 0, -1e9).softmax(-1) @ x")
    by_data = LENGTHS.format(body="return torch.where(x > 0, x, 0.0) * inside[:, :, None]", rows=4096)
    for source in (causal, by_data):
        assert reference_work(load_reference(source)).asked is None


def test_a_reference_that_does_not_run_has_no_work() -> None:
    with pytest.raises(TaskError, match="ValueError"):
        reference_work(load_reference(SOURCE.format(body="raise ValueError")))
