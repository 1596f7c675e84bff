"""Dynamic vocabulary pruning: restrict the policy, in sampling and training alike, to tokens near the most likely one.

This file needs torch and nothing else; any training engine can take it as it is.

*Dynamic Vocabulary Pruning* (arXiv 2512.23087): the difference between two engines' log-probabilities is bounded by a
term that grows with 1 − p, so unlikely tokens cause most of the mismatch. Keep the tokens with π(v) >= ρ·max π,
renormalise, and give the others neither probability nor gradient. The set depends on the position's own distribution,
hence "dynamic"; it is the min-p rule of samplers. The price is a bias bounded by the pruned mass, which
:func:`pruned_mass` reports. In logits the rule is z(v) >= max z + log ρ, which needs no softmax.

The paper's threshold could not be read in its text; ``DEFAULT_RATIO`` = exp(−13) ≈ 2.3e-6 is our default, recalled from
it.

Sampler and trainer must prune the *same* set, or a sampled token may lie outside the trainer's. Near the edge two
engines disagree; :func:`pruned_logprobs` marks such tokens with ``kept`` False, and they must be masked out of the
loss.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DEFAULT_RATIO = math.exp(-13)
"""Our default of ρ; see the head of the file."""


def keep_mask(logits: Tensor, ratio: float = DEFAULT_RATIO) -> Tensor:
    """Return bool [..., V]: tokens with π(v) >= ``ratio`` times the top probability. The top token is always included.

    ``logits`` [..., V] must already be divided by the temperature: the rule applies to the distribution that is
    sampled.
    """
    if not 0 <= ratio < 1:
        raise ValueError(f"ratio must be in [0, 1), got {ratio}")
    if ratio == 0:
        return torch.ones_like(logits, dtype=torch.bool)
    top = logits.detach().amax(dim=-1, keepdim=True)
    return logits.detach() >= top + math.log(ratio)


def prune_logits(logits: Tensor, ratio: float = DEFAULT_RATIO) -> Tensor:
    """Return a copy of ``logits`` [..., V] with everything outside the kept set at −inf, for the sampler's softmax.

    Differentiable: kept logits keep their gradient, the others get 0. For training with a large vocabulary use
    ``keep_ratio`` of :mod:`drkernel.rl.maths.logprobs`, which allocates no tensor of the logits' size.
    """
    return logits.masked_fill(~keep_mask(logits, ratio), -math.inf)
