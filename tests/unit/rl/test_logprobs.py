"""Chunked log-probabilities, Σπ² and entropy against the plain formulas, forwards and backwards."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.rl.maths.logprobs import linear_token_statistics

torch.set_num_threads(1)


def plain(logits, tokens, temperature=1.0):
    """Everything through a float64 log-softmax."""
    logp = (logits.double() / temperature).log_softmax(-1)
    p = logp.exp()
    entropy = -(p * logp.masked_fill(p == 0, 0.0)).sum(-1)
    chosen = logp.gather(-1, tokens[..., None])[..., 0]
    return chosen, p.square().sum(-1), entropy


def example(seed, shape=(3, 5), vocabulary=37, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(*shape, vocabulary, generator=generator)
    return logits, torch.randint(vocabulary, shape, generator=generator)


def agree(got, expected):
    for name, mine, theirs in zip(got._fields, got, expected, strict=True):
        assert torch.allclose(mine.double(), theirs, atol=2e-6, rtol=2e-5), name


@given(st.integers(0, 2**16), st.integers(1, 20), st.sampled_from([0.5, 1.0, 1.7]))
@settings(max_examples=40, deadline=None)
def test_statistics_do_not_depend_on_the_chunk(seed, rows, temperature):
    logits, tokens = example(seed)
    got = linear_token_statistics(logits, torch.eye(37), tokens, temperature=temperature, rows=rows)
    agree(got, plain(logits, tokens, temperature))
    assert torch.isfinite(got.logprobs).all()


@pytest.mark.parametrize("rows", [1, 4, 100])
@pytest.mark.parametrize("bias", [True, False])
def test_from_hidden_states_it_is_the_same_function(rows, bias):
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(37, (3, 5), generator=generator)
    upstream = torch.randn(3, 5, generator=generator)
    leaves = [torch.randn(*shape, generator=generator) for shape in ((3, 5, 8), (37, 8), (37,))]

    def run(chunked, dtype):
        hidden, weight, offset = (leaf.to(dtype).clone().requires_grad_() for leaf in leaves)
        if chunked:
            out = linear_token_statistics(
                hidden, weight, tokens, bias_V=offset if bias else None, temperature=1.3, rows=rows
            )
        else:
            logits = torch.nn.functional.linear(hidden, weight, offset if bias else None)
            out = plain(logits, tokens, 1.3)
        loss = (upstream.to(dtype) * out[0]).sum()
        return out, torch.autograd.grad(loss, [hidden, weight, offset][: 3 if bias else 2])

    got, mine = run(True, torch.float32)
    expected, theirs = run(False, torch.float64)
    agree(got, expected)
    for a, b in zip(mine, theirs, strict=True):
        assert torch.allclose(a.double(), b, atol=1e-5)


def test_huge_logits_stay_finite():
    logits = torch.tensor([[1e4, 0.0, -1e4], [-1e4, -1e4, -1e4]])
    got = linear_token_statistics(logits, torch.eye(3), torch.tensor([0, 1]))
    assert got.logprobs.tolist() == pytest.approx([0.0, -math.log(3)], abs=1e-5)
    assert got.entropy[0] == 0 and got.entropy[1] == pytest.approx(math.log(3), abs=1e-4)


def test_bf16_logits_are_summed_in_float32():
    logits, tokens = example(5, vocabulary=4096)
    low = logits.bfloat16()
    agree(linear_token_statistics(low, torch.eye(4096, dtype=torch.bfloat16), tokens), plain(low, tokens))


def test_empty_and_wrong_shapes():
    none = linear_token_statistics(torch.zeros(0, 4), torch.zeros(7, 4), torch.zeros(0, dtype=torch.int64))
    assert none.logprobs.shape == none.entropy.shape == (0,)
    with pytest.raises(ValueError, match="do not match"):
        linear_token_statistics(torch.zeros(2, 4), torch.zeros(7, 4), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="temperature"):
        linear_token_statistics(
            torch.zeros(2, 4), torch.zeros(7, 4), torch.zeros(2, dtype=torch.int64), temperature=0.0
        )


def test_only_log_probabilities_carry_a_gradient():
    logits, tokens = example(2)
    out = linear_token_statistics(logits.requires_grad_(), torch.eye(37), tokens)
    assert out.logprobs.requires_grad
    assert not out.sum_pi_squared.requires_grad and not out.entropy.requires_grad
