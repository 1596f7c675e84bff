"""Log-probabilities, Σπ² and entropy of the chosen tokens, with working memory independent of the number of tokens.

This file needs torch and nothing else. With a vocabulary of 151,936 the logits are the largest tensor of a training
step (2.5 GB for 4,096 tokens in float32), so :func:`linear_token_statistics` starts from hidden states and the output
matrix, computes the logits of a few rows at a time, reduces them in place, and recomputes them in the backward pass.

Shape legend: R rows (tokens, any leading shape flattened), V vocabulary, D hidden size.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class TokenStatistics(NamedTuple):
    """Statistics of the distribution at each position that losses and baselines need; leading shape as the tokens'."""

    logprobs: Tensor
    """log π(y) in float32, differentiable."""
    sum_pi_squared: Tensor
    """Σ_v π(v)², in (0, 1]; never differentiable."""
    entropy: Tensor
    """−Σ_v π(v) log π(v) in nats; never differentiable."""


def linear_token_statistics(
    hidden: Tensor,
    weight_VD: Tensor,
    tokens: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
    rows: int = 512,
) -> TokenStatistics:
    """Compute statistics of ``tokens`` [...] under softmax((hidden @ weight.T + bias) / temperature), for ``rows`` of
    them at a time in both passes.

    Peak memory beyond inputs and gradients is one chunk of logits (``rows`` x V float32) and a temporary of V/16
    columns. ``hidden`` is [..., D].
    """
    _check(hidden.shape[:-1], tokens, temperature)
    shape = tokens.shape
    outputs = _LinearStatistics.apply(  # type: ignore[no-untyped-call]
        hidden.reshape(-1, hidden.shape[-1]),
        weight_VD,
        bias_V,
        tokens.reshape(-1),
        temperature,
        max(1, rows),
    )
    return TokenStatistics(*(part.reshape(shape) for part in outputs))


def _check(shape: torch.Size, tokens: Tensor, temperature: float) -> None:
    """Raise ValueError for shapes and settings that would silently give wrong results."""
    if shape != tokens.shape:
        raise ValueError(f"tokens {tuple(tokens.shape)} do not match the leading shape {tuple(shape)}")
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature}; score greedy samples at the temperature trained")


class _LinearStatistics(torch.autograd.Function):
    """Computes logits for a few rows and reduces them in place; the backward pass recomputes them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_RD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        tokens_R: Tensor,
        temperature: float,
        rows: int,
    ) -> Any:
        parts, lse = [], []
        for hidden_CD, tokens_C in zip(hidden_RD.split(rows), tokens_R.split(rows), strict=True):
            logits_CV = _logits(hidden_CD, weight_VD, bias_V, temperature)
            top_C = logits_CV.amax(dim=-1)
            logits_CV.sub_(top_C[:, None])
            chosen_C = logits_CV.gather(-1, tokens_C[:, None])[:, 0]
            sums = [torch.zeros_like(top_C) for _ in range(3)]
            # Sixteen pieces keep the temporaries of exp and of the products at a sixteenth of the chunk each.
            for piece_CV in logits_CV.split(max(1, -(-logits_CV.shape[-1] // 16)), dim=-1):
                _accumulate(piece_CV, sums)
            parts.append(_outputs(chosen_C, sums))
            lse.append(top_C + sums[0].log())
            del logits_CV, piece_CV
        outputs = tuple(torch.cat(column) for column in zip(*parts, strict=True)) if parts else _empty(hidden_RD)
        empty = hidden_RD.new_zeros(0, dtype=torch.float32)
        ctx.save_for_backward(hidden_RD, weight_VD, bias_V, tokens_R, torch.cat(lse) if lse else empty)
        ctx.settings = (temperature, rows)
        ctx.mark_non_differentiable(*outputs[1:])
        return outputs

    @staticmethod
    def backward(ctx: Any, grad_R: Tensor, *_: Any) -> Any:
        hidden_RD, weight_VD, bias_V, tokens_R, lse_R = ctx.saved_tensors
        temperature, rows = ctx.settings
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden_RD) if need_hidden else None
        # Accumulated in float32: many small chunks of bf16 would lose the last bits of the sum.
        grad_weight = torch.zeros_like(weight_VD, dtype=torch.float32) if need_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=torch.float32) if need_bias and bias_V is not None else None
        scale_R = grad_R.float()
        for start in range(0, hidden_RD.shape[0], rows):
            span = slice(start, start + rows)
            delta_CV = _logits(hidden_RD[span], weight_VD, bias_V, temperature)
            for piece_CV in delta_CV.split(max(1, -(-delta_CV.shape[-1] // 16)), dim=-1):
                piece_CV.sub_(lse_R[span][:, None]).exp_().mul_(-scale_R[span][:, None])
            delta_CV.scatter_add_(-1, tokens_R[span][:, None], scale_R[span][:, None])
            delta_CV.div_(temperature)
            typed_CV = delta_CV.to(weight_VD.dtype)
            if grad_hidden is not None:
                grad_hidden[span] = (typed_CV @ weight_VD).to(hidden_RD.dtype)
            if grad_weight is not None:
                _add_product(grad_weight, typed_CV, hidden_RD[span])
            if grad_bias is not None:
                grad_bias += delta_CV.sum(dim=0)
            del delta_CV, typed_CV, piece_CV
        return (
            grad_hidden,
            grad_weight.to(weight_VD.dtype) if grad_weight is not None else None,
            grad_bias.to(bias_V.dtype) if grad_bias is not None else None,
            None,
            None,
            None,
        )


def _add_product(total_VD: Tensor, delta_CV: Tensor, hidden_CD: Tensor) -> None:
    """total += delta.T @ hidden, without a temporary of the weight's size where the dtypes allow."""
    if delta_CV.dtype == total_VD.dtype:
        total_VD.addmm_(delta_CV.T, hidden_CD.to(delta_CV.dtype))
    else:
        total_VD += (delta_CV.T @ hidden_CD.to(delta_CV.dtype)).float()


def _logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    """Float32 logits of a chunk of rows, divided by the temperature."""
    logits_CV = torch.nn.functional.linear(hidden_CD.to(weight_VD.dtype), weight_VD, bias_V).float()
    return logits_CV.div_(temperature) if temperature != 1.0 else logits_CV


def _accumulate(gap_RC: Tensor, sums: list[Tensor]) -> None:
    """Add a piece of z − max z to Σe^x, Σe^2x and Σ x e^x."""
    mass_RC = gap_RC.exp()
    sums[0] += mass_RC.sum(dim=-1)
    sums[1] += torch.linalg.vecdot(mass_RC, mass_RC)
    # x e^x is 0 in the limit x -> −inf; −inf * 0 would be NaN.
    sums[2] += torch.linalg.vecdot(mass_RC, gap_RC.clamp_min(-1e30))


def _outputs(chosen_R: Tensor, sums: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """The three statistics from the chosen gap and the three sums."""
    log_total_R = sums[0].log()
    return (
        chosen_R - log_total_R,
        sums[1] / sums[0].square(),
        (log_total_R - sums[2] / sums[0]).clamp_min(0.0),
    )


def _empty(like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the statistics of zero tokens."""
    zero = like.new_zeros(0, dtype=torch.float32)
    return zero, zero.clone(), zero.clone()
