"""How much of a reference's work its masks leave."""

import pytest

from drkernel.gym.judge.modelled_timing import live_share

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
        ("raise ValueError", 0.5),
    ],
)
def test_the_least_that_any_mask_keeps_counts(body, share):
    assert live_share(SOURCE.format(body=body)) == pytest.approx(share, abs=0.01)
