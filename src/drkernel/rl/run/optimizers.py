"""How gradients are applied: learning-rate schedules (constant and cosine, with a linear warm-up), and optimisers
(AdamW, and Muon for models trained from scratch).

A schedule is a frozen record; ``factor(step)`` multiplies the base learning rate, for steps counted from 0.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from drkernel.config import ConfigError
from drkernel.rl.model.distributed import whole
from drkernel.rl.model.policy import Policy, causal_lm

OptimizerName = Literal["adamw", "muon"]
ADAM_BETAS = (0.9, 0.95)
MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Coefficients of the quintic iteration, chosen by Muon's author for speed: singular values end between 0.7 and 1.2."""
ITERATIONS = 5
RMS = 0.2
"""Root mean square of an AdamW update, to which Muon's are scaled, so that both take the same rate and decay."""


@dataclass(frozen=True)
class Constant:
    """The base rate after a linear warm-up."""

    warmup: int = 0
    """Steps over which the factor rises from 1/(warmup + 1) to 1; 0 for none."""

    def factor(self, step: int) -> float:
        """Factor at ``step`` >= 0."""
        return warmup_factor(step, self.warmup)


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from 1 at the end of warm-up to ``floor`` at ``total``, and ``floor`` after that."""

    total: int
    """Step at which the floor is reached."""
    warmup: int = 0
    """Steps of linear warm-up, part of ``total``."""
    floor: float = 0.0
    """Smallest factor."""

    def __post_init__(self) -> None:
        if not 0 <= self.floor <= 1:
            raise ValueError(f"floor must be in [0, 1], got {self.floor}")
        if not 0 <= self.warmup < self.total:
            raise ValueError(f"need 0 <= warmup < total, got warmup {self.warmup} and total {self.total}")

    def factor(self, step: int) -> float:
        """Factor at ``step`` >= 0."""
        if step < self.warmup:
            return warmup_factor(step, self.warmup)
        progress = min(1.0, (step - self.warmup) / (self.total - self.warmup))
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * progress))


def warmup_factor(step: int, warmup: int) -> float:
    """Return (step + 1)/(warmup + 1), at most 1: the first step already learns, and the first step after warm-up runs
    at the full rate."""
    if step < 0:
        raise ValueError(f"steps count from 0, got {step}")
    return min(1.0, (step + 1) / (warmup + 1))


def make_optimizer(
    policy: Policy, lr: float, weight_decay: float, name: OptimizerName = "adamw"
) -> torch.optim.Optimizer:
    """Return an optimiser over the trainable parameters; vectors (norms, biases) do not decay.

    Raises :class:`ConfigError` for Muon over several processes, which hold no whole matrix.
    """
    parameters = policy.trainable()
    vectors = {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}
    if name == "adamw":
        matrices = {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay}
        groups = [group for group in (matrices, vectors) if group["params"]]
        return torch.optim.AdamW(groups, lr=lr, betas=ADAM_BETAS)
    if policy.world.size > 1:
        raise ConfigError("optimizer muon needs whole matrices; train on one process, or with adamw")
    tables = {id(table) for table in _tables(policy)}
    embedding = {"params": [p for p in parameters if id(p) in tables], "weight_decay": weight_decay}
    between = [p for p in parameters if p.dim() == 2 and id(p) not in tables]
    others = [group for group in (embedding, vectors) if group["params"]]
    return Muon(between, others, lr=lr, weight_decay=weight_decay)


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal, for matrices between layers; AdamW for everything else.

    K. Jordan et al., *Muon*, 2024; scaled as in *Muon is Scalable for LLM Training* (arXiv 2502.16982). Unlike
    ``torch.optim.Muon`` it computes in the parameters' own precision: CPUs without bf16 units are many times slower in
    bf16. Matrices of one shape are made orthogonal together.
    """

    def __init__(self, matrices: Iterable[Tensor], others: Sequence[dict[str, Any]], lr: float, weight_decay: float):
        groups = [{"params": list(matrices), "rule": "muon"}, *({**group, "rule": "adamw"} for group in others)]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step on the gradients; parameters without one stay."""
        assert closure is None
        for group in self.param_groups:
            held = [p for p in group["params"] if p.grad is not None]
            if group["rule"] == "muon":
                self._orthogonal(held, group["lr"], group["weight_decay"])
            elif held:
                self._adamw(held, group["lr"], group["weight_decay"])

    def _orthogonal(self, parameters: Sequence[Tensor], lr: float, weight_decay: float) -> None:
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for parameter in parameters:
            by_shape.setdefault(parameter.shape, []).append(parameter)
        for shape, same in by_shape.items():
            updates = torch.stack([self._with_momentum(parameter) for parameter in same])
            scale = RMS * max(shape) ** 0.5
            for parameter, update in zip(same, orthogonalised(updates), strict=True):
                parameter.mul_(1 - lr * weight_decay).add_(update, alpha=-lr * scale)

    def _with_momentum(self, parameter: Tensor) -> Tensor:
        """The gradient, a step ahead in its running mean (Nesterov)."""
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        mean: Tensor = state["momentum"].lerp_(parameter.grad, 1 - MOMENTUM)
        return parameter.grad.lerp(mean, MOMENTUM)

    def _adamw(self, parameters: Sequence[Tensor], lr: float, weight_decay: float) -> None:
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        adamw(
            list(parameters),
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=ADAM_BETAS[0],
            beta2=ADAM_BETAS[1],
            lr=lr,
            weight_decay=weight_decay,
            eps=1e-8,
            maximize=False,
        )


def apply_gradient(policy: Policy, optimizer: torch.optim.Optimizer, lr: float, clip: float) -> tuple[float, bool]:
    """Clip the gradient and step; return the norm before clipping, and whether the step was skipped (norm not
    finite)."""
    norm = float(whole(torch.nn.utils.clip_grad_norm_(policy.trainable(), clip)))
    finite = math.isfinite(norm)
    if finite:
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, not finite


def orthogonalised(matrices_BMN: Tensor) -> Tensor:
    """Return matrices with the same singular vectors and singular values near one, by Newton and Schulz's iteration."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices_BMN.shape[1] > matrices_BMN.shape[2]
    x: Tensor = matrices_BMN.transpose(1, 2) if tall else matrices_BMN
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.transpose(1, 2) if tall else x


def _tables(policy: Policy) -> list[nn.Parameter]:
    """The embedding and the output matrix: one row a token, most of them without a gradient in a step."""
    model = causal_lm(policy.model)
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    return [end.weight for end in ends if end is not None]
