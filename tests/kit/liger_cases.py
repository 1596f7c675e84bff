"""The kernels of ``liger-kernel`` beside plain PyTorch in float64: kernels that nobody here wrote.

``python tests/kit/liger_cases.py`` runs them all on a simulated GPU, forward and backward, and prints a table.
"""

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

Outputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """One function of the package.

    ``inputs`` makes host tensors; floating ones get gradients unless ``constant`` names their position. ``run`` calls
    the package on device tensors, ``reference`` computes the same in float64 on the host.
    """

    name: str
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    run: Callable[..., Any]
    reference: Callable[..., Any]
    constant: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    tolerance: float = 2e-5
    gpu: str = "h100"
    """from Hopper on the package takes other backends (CuTe DSL) for some functions"""


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``passed``, or why not."""

    name: str
    status: str
    """"pass", "UnsupportedOp", "wrong" or "error" """
    detail: str = ""
    launches: int = 0
    seconds: float = 0.0


def _named(path: str) -> Any:
    """What the package has under a path, imported where a device is active: it asks for the device when imported."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"liger_kernel.{module}"), name)


def _op(name: str, *more: Any, **options: Any) -> Callable[..., Any]:
    """One of the package's functions, with what it is given after the inputs."""
    return lambda *inputs: _named(f"transformers.functional.liger_{name}")(*inputs, *more, **options)


def _function(path: str, *more: Any) -> Callable[..., Any]:
    """One of its autograd functions, likewise."""
    return lambda *inputs: _named(path).apply(*inputs, *more)


def _rms(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def _angles(positions: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    angle = torch.arange(positions)[:, None] / 10000 ** (torch.arange(0, size, 2) / size)
    angle = torch.cat((angle, angle), -1)
    return angle.cos()[None], angle.sin()[None]


def _tokens(count: int, vocabulary: int, ignored: int = 2) -> torch.Tensor:
    target = torch.randint(0, vocabulary, (count,))
    target[:ignored] = -100
    return target


def _cross_entropy(logits: Any, target: Any, **options: Any) -> torch.Tensor:
    softcap, z = options.pop("softcap", None), options.pop("lse_square_scale", 0.0)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    loss = F.cross_entropy(logits, target, **options)
    valid = target != -100
    return loss + z * (logits.logsumexp(-1).square() * valid).sum() / valid.sum() if z else loss


def _jsd(student: Any, teacher: Any, beta: float, scale: float) -> torch.Tensor:
    """Generalised Jensen-Shannon divergence of log-probabilities, summed and scaled."""
    p, q = teacher.exp(), student.exp()
    mixture = (beta * p + (1 - beta) * q).log()
    return (beta * (p * (teacher - mixture)).sum() + (1 - beta) * (q * (student - mixture)).sum()) * scale


def _sparsemax(x: torch.Tensor) -> torch.Tensor:
    ordered = x.sort(-1, descending=True).values
    rank = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    cumulated = ordered.cumsum(-1)
    support = (1 + rank * ordered > cumulated).sum(-1, keepdim=True)
    threshold = (cumulated.gather(-1, support - 1) - 1) / support
    return (x - threshold).clamp_min(0)


def _attention_residual(v: torch.Tensor, query: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    scores = (_rms(v) * norm) @ query
    return (scores.softmax(0)[..., None] * v).sum(0)


def _multi_token(scores: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    length = scores.shape[-1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    probabilities = scores.masked_fill(~causal, -1e9).softmax(-1)
    return F.conv2d(probabilities, weight, bias, padding=1).masked_fill(~causal, 0.0)


def _neighborhood(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    position = torch.arange(q.shape[-2])
    near = (position[:, None] - position[None, :]).abs() <= 3
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~near, -torch.inf).softmax(-1) @ v


def _complex_rope(x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * frequencies.to(pairs.dtype)[None, :, None, :]).flatten(3)


def _mrope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Outputs:
    sections = [4, 6, 6, 4, 6, 6]
    picked = [torch.cat([m[i % 3] for i, m in enumerate(t.split(sections, -1))], -1)[:, None] for t in (cos, sin)]
    return _rotate(q, *picked), _rotate(k, *picked)


def _grpo(logits: Any, old: Any, ref: Any, ids: Any, advantages: Any, mask: Any) -> torch.Tensor:
    """GRPO's clipped objective with the k3 estimate of KL, averaged per sequence, then over sequences."""
    logp = logits[:, :-1].log_softmax(-1).gather(-1, ids[..., None])[..., 0]
    ratio = (logp - old).exp()
    clipped = ratio.clamp(0.8, 1.2)
    loss = -torch.minimum(ratio * advantages[:, None], clipped * advantages[:, None])
    loss = loss + 0.04 * ((ref - logp).exp() - (ref - logp) - 1)
    return ((loss * mask).sum(-1) / mask.sum(-1)).mean()


def _run_grpo(logits: Any, old: Any, ref: Any, ids: Any, advantages: Any, mask: Any) -> Any:
    return _named("ops.GrpoLossFunction").apply(logits, old, ref, ids, advantages, mask, 1.0, 0.04, 0.2, 0.2, False)[0]


def _mhc_coefficients(x: Any, phi: Any, b: Any, pre: Any, post: Any, res: Any) -> Outputs:
    """Manifold-constrained hyper-connections: gates by sigmoid, mixing made doubly stochastic by 20 Sinkhorn steps."""
    streams = x.shape[-2]
    flat = x.flatten(-2)
    mixed = (flat @ phi) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + 1e-6)
    a, c, d = mixed.split([streams, streams, streams * streams], -1)
    b_a, b_c, b_d = b.split([streams, streams, streams * streams])
    matrix = (d * res + b_d).unflatten(-1, (streams, streams)).softmax(-1) + 1e-6
    matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    for _ in range(19):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + 1e-6)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + 1e-6)
    return torch.sigmoid(a * pre + b_a), 2 * torch.sigmoid(c * post + b_c), matrix


def _mhc_post(x: Any, f: Any, post: Any, res: Any) -> torch.Tensor:
    return torch.einsum("...oi,...ic->...oc", res, x) + post[..., None] * f[..., None, :]


def _moe(x: Any, gate_up: Any, down: Any, index: Any, weights: Any) -> torch.Tensor:
    out = torch.zeros_like(x)
    for slot in range(index.shape[1]):
        gate, up = torch.einsum("th,tfh->tf", x, gate_up[index[:, slot].long()]).chunk(2, -1)
        expert = torch.einsum("tf,thf->th", F.silu(gate) * up, down[index[:, slot].long()])
        out = out + weights[:, slot, None] * expert
    return out


def _ce_tvd(student: Any, teacher: Any, target: Any) -> Outputs:
    valid = target != -100
    distance = 0.5 * (student.softmax(-1) - teacher.softmax(-1)).abs().sum(-1)
    return F.cross_entropy(student, target, reduction="none"), distance * valid


def _run_llama4_rope(q: Any, k: Any, frequencies: Any) -> Any:
    return _named("ops.LigerLlama4RopeFunction").apply(q.clone(), k.clone(), frequencies)


def _scaled_ce(x: Any, weight: Any, target: Any) -> Outputs:
    logp = (x @ weight.T / 0.7).log_softmax(-1)
    valid = target != -100
    nll = -logp.gather(-1, target.clamp_min(0)[:, None])[:, 0]
    return nll * valid, -(logp.exp() * logp).sum(-1) * valid


def _tiled_mlp() -> tuple[Any, Any]:
    """A module run in shards of the sequence; gradients of its weights are not compared, those of its input are."""

    def run(x: Any, gate: Any, down: Any) -> Any:
        module = torch.nn.Module()
        module.gate, module.down = torch.nn.Parameter(gate.detach()), torch.nn.Parameter(down.detach())
        forward = lambda mlp, value: F.silu(value @ mlp.gate) @ mlp.down  # noqa: E731
        return _named("ops.LigerTiledMLPFunction").apply(forward, module, x, 3, list(module.parameters()))

    return run, lambda x, gate, down: F.silu(x @ gate) @ down


def _chunked_dpo() -> tuple[Any, Any]:
    def run(x: Any, weight: Any, target: Any) -> Any:
        kind = _named("chunked_loss.LigerFusedLinearDPOLoss")
        return kind(compiled=False, use_ref_model=False, compute_nll_loss=False)(weight, x, target)[0]

    def reference(x: Any, weight: Any, target: Any) -> torch.Tensor:
        logp = (x @ weight.T).log_softmax(-1).gather(-1, target.clamp_min(0)[..., None])[..., 0]
        logp = (logp * (target != -100)).sum(-1)
        half = x.shape[0] // 2
        return -F.logsigmoid(0.1 * (logp[:half] - logp[half:])).mean()

    return run, reference


def _normal(*shapes: tuple[int, ...]) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: tuple(torch.randn(shape) for shape in shapes)


def _with(*shapes: Any) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Inputs of which some are made by a call."""
    return lambda: tuple(shape() if callable(shape) else torch.randn(shape) for shape in shapes)


def _loss_cases() -> list[Case]:
    logits = _with((17, 301), lambda: _tokens(17, 301))
    options: list[tuple[str, dict[str, Any]]] = [
        ("mean", {}),
        ("sum, label smoothing", {"reduction": "sum", "label_smoothing": 0.1}),
        ("z-loss", {"lse_square_scale": 1e-3}),
        ("softcap", {"softcap": 5.0}),
    ]
    cases = [
        Case(f"cross_entropy ({name})", logits, _op("cross_entropy", **o), lambda x, t, o=o: _cross_entropy(x, t, **o))
        for name, o in options
    ]  # fmt: skip
    weighted = _with((17, 301), lambda: _tokens(17, 301), lambda: torch.rand(301) + 0.5)
    linear = _with((19, 32), (101, 32), lambda: _tokens(19, 101), (101,))
    two = (19, 32), (101, 32), (19, 32), (101, 32)
    logps = _with(lambda: torch.randn(13, 97).log_softmax(-1), lambda: torch.randn(13, 97).log_softmax(-1))
    probs = _with(lambda: torch.randn(13, 97).softmax(-1), lambda: torch.randn(13, 97).softmax(-1))
    kl = _with(lambda: torch.randn(13, 97).log_softmax(-1), lambda: torch.randn(13, 97).softmax(-1))
    dpo_run, dpo_reference = _chunked_dpo()
    return [
        *cases,
        Case("cross_entropy (class weights)", weighted, _op("cross_entropy"), lambda x, t, w: F.cross_entropy(x, t, w),
             constant=(2,)),
        Case("cross_entropy (bf16)", logits, _op("cross_entropy"), _cross_entropy, dtype=torch.bfloat16,
             tolerance=2e-2),
        Case("fused_linear_cross_entropy", linear, _op("fused_linear_cross_entropy"),
             lambda x, w, t, b: F.cross_entropy(x @ w.T + b, t)),
        Case("fused_linear_cross_entropy (smoothing, softcap)", linear,
             _op("fused_linear_cross_entropy", label_smoothing=0.1, softcap=8.0),
             lambda x, w, t, b: _cross_entropy(x @ w.T + b, t, label_smoothing=0.1, softcap=8.0)),
        Case("kl_div", kl, _op("kl_div", reduction="batchmean"), lambda x, t: F.kl_div(x, t, reduction="batchmean"),
             constant=(1,)),
        Case("jsd (beta 0.5)", logps, _op("jsd", beta=0.5), lambda x, t: _jsd(x, t, 0.5, 1 / 13), constant=(1,)),
        Case("jsd (beta 0.1)", logps, _op("jsd", beta=0.1), lambda x, t: _jsd(x, t, 0.1, 1 / 13), constant=(1,)),
        Case("tvd", probs, _op("tvd", reduction="batchmean"), lambda x, t: 0.5 * (x - t).abs().sum() / 13,
             constant=(1,)),
        Case("fused_linear_jsd", _normal(*two), _op("fused_linear_jsd", temperature=2.0),
             lambda a, b, c, d: _jsd((a @ b.T / 2).log_softmax(-1), (c @ d.T / 2).log_softmax(-1), 0.5, 1 / 19),
             constant=(2, 3)),
        Case("fused_linear_kl_div", _with((19, 32), (101, 32), lambda: torch.randn(19, 101).softmax(-1)),
             _op("fused_linear_kl_div"), lambda a, b, t: F.kl_div((a @ b.T).log_softmax(-1), t, reduction="batchmean"),
             constant=(2,)),
        Case("fused_ce_tvd", _with((17, 301), (17, 301), lambda: _tokens(17, 301)),
             _function("ops.LigerFusedCETVDFunction"), _ce_tvd, constant=(1,)),
        Case("fused_linear_scaled_cross_entropy", _with((19, 32), (101, 32), lambda: _tokens(19, 101)),
             _function("ops.LigerFusedLinearScaledCrossEntropyFunction", 0.7, -100, 1, True), _scaled_ce, gpu="a100"),
        Case("vocab_parallel_cross_entropy", _with((5, 3, 301), lambda: torch.randint(0, 301, (5, 3))),
             _function("ops.vocab_parallel_cross_entropy.LigerVocabParallelCEFunction", None, -100, 0.0, "megatron",
                       "mean"),
             lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten(), reduction="none").view(5, 3)),
        Case("grpo_loss",
             _with((3, 8, 67), lambda: torch.randn(3, 7) - 4, lambda: torch.randn(3, 7) - 4,
                   lambda: torch.randint(0, 67, (3, 7)), (3,),
                   lambda: (torch.arange(7) < torch.tensor([[7], [4], [5]])).long()),
             _run_grpo, _grpo, constant=(1, 2, 4)),
        Case("chunked_loss DPO", _with((4, 6, 16), (53, 16), lambda: torch.randint(0, 53, (4, 6))), dpo_run,
             dpo_reference),
    ]  # fmt: skip


def _norm_cases() -> list[Case]:
    row = ((5, 7, 96), (96,))
    return [
        Case("rms_norm (llama)", _normal(*row), _op("rms_norm", 1e-6), lambda x, w: _rms(x) * w),
        Case("rms_norm (gemma)", _normal(*row), _op("rms_norm", 1e-6, 1.0, "gemma"), lambda x, w: _rms(x) * (1 + w)),
        Case("rms_norm (bf16)", _normal(*row), _op("rms_norm", 1e-6), lambda x, w: _rms(x) * w, dtype=torch.bfloat16,
             tolerance=3e-2),
        Case("fused_add_rms_norm", _normal((5, 7, 96), (5, 7, 96), (96,)), _op("fused_add_rms_norm", 1e-6),
             lambda x, r, w: (_rms(x + r) * w, x + r)),
        Case("modulated_rms_norm", _normal((3, 7, 96), (96,), (3, 96), (3, 96)), _op("modulated_rms_norm"),
             lambda x, w, s, t: (1 + s[:, None]) * (_rms(x) * w) + t[:, None]),
        Case("layer_norm", _normal((5, 7, 96), (96,), (96,)), _op("layer_norm", 1e-6),
             lambda x, w, b: F.layer_norm(x, (96,), w, b, 1e-6)),
        Case("group_norm", _normal((3, 8, 45), (8,), (8,)), _op("group_norm", 8, 4, 1e-6),
             lambda x, w, b: F.group_norm(x, 4, w, b, 1e-6)),
        Case("poly_norm", _normal((5, 7, 96), (3,), ()), _op("poly_norm"),
             lambda x, w, b: w[0] * _rms(x**3) + w[1] * _rms(x**2) + w[2] * _rms(x) + b),
        Case("dyt", _normal((5, 7, 96), (1,), (96,), (96,)), _op("dyt"), lambda x, a, g, b: g * torch.tanh(a * x) + b),
    ]  # fmt: skip


def _activation_cases() -> list[Case]:
    pair = _normal((5, 7, 200), (5, 7, 200))
    return [
        Case("swiglu", pair, _op("swiglu"), lambda a, b: F.silu(a) * b),
        Case("swiglu (bf16)", pair, _op("swiglu"), lambda a, b: F.silu(a) * b, dtype=torch.bfloat16, tolerance=3e-2),
        Case("geglu", pair, _op("geglu"), lambda a, b: F.gelu(a, approximate="tanh") * b),
        Case("relu_squared", _normal((5, 7, 200)), _op("relu_squared"), lambda x: x.relu().square()),
        Case("softmax", _normal((5, 7, 200)), _op("softmax"), lambda x: x.softmax(-1)),
        Case("softmax (rows of 20,000)", _normal((2, 20_000)), _op("softmax"), lambda x: x.softmax(-1)),
        Case("sparsemax", _normal((5, 7, 200)), _op("sparsemax"), _sparsemax),
        Case("embedding", _with((50, 36), lambda: torch.randint(0, 50, (4, 9))),
             _function("ops.LigerEmbeddingFunction"), lambda w, t: F.embedding(t, w)),
    ]  # fmt: skip


def _attention_cases() -> list[Case]:
    heads = (2, 4, 10, 32), (2, 2, 10, 32)
    scores = (2, 3, 12, 12), (3, 3, 3, 3), (3,)
    cos, sin = lambda: _angles(10, 32)[0], lambda: _angles(10, 32)[1]
    multi = lambda: torch.randn(3, 2, 10, 16).repeat(1, 1, 1, 2)  # noqa: E731
    turn = lambda: torch.polar(torch.ones(10, 16), torch.randn(10, 16))  # noqa: E731
    return [
        Case("rope", _with(*heads, cos, sin), _op("rope"), lambda q, k, c, s: (_rotate(q, c, s), _rotate(k, c, s)),
             constant=(2, 3)),
        Case("qwen2vl_mrope", _with((2, 4, 10, 32), (2, 2, 10, 32), multi, multi), _op("qwen2vl_mrope", [4, 6, 6]),
             _mrope, constant=(2, 3)),
        Case("llama4_rope", _with((2, 10, 4, 32), (2, 10, 2, 32), turn), _run_llama4_rope,
             lambda q, k, f: (_complex_rope(q, f), _complex_rope(k, f)), constant=(2,)),
        Case("attn_res", _normal((4, 2, 6, 64), (64,), (64,)), _op("attn_res"), _attention_residual),
        Case("multi_token_attention", _normal(*scores), _op("multi_token_attention", padding=1), _multi_token),
        Case("fused_neighborhood_attention", _normal((2, 2, 33, 32), (2, 2, 33, 32), (2, 2, 33, 32)),
             _op("fused_neighborhood_attention"), _neighborhood, tolerance=3e-3),
    ]  # fmt: skip


def _block_cases() -> list[Case]:
    streams, width = 4, 32
    tiled_run, tiled_reference = _tiled_mlp()
    expert = lambda: torch.stack([torch.randperm(4)[:2] for _ in range(24)]).int()  # noqa: E731
    share = lambda: torch.rand(24, 2).softmax(-1)  # noqa: E731
    scaled = lambda *shape: lambda: torch.randn(shape) / math.sqrt(shape[-1])  # noqa: E731
    return [
        Case("mhc_coeffs", _with((3, 5, streams, width), scaled(streams * width, 24), (24,), (), (), ()),
             _op("mhc_coeffs", allow_fp32=True), _mhc_coefficients, tolerance=5e-3),
        Case("mhc_pre", _normal((3, 5, streams, width), (3, 5, streams)), _op("mhc_pre"),
             lambda x, h: (x * h[..., None]).sum(-2)),
        Case("mhc_post_res", _normal((3, 5, streams, width), (3, 5, width), (3, 5, streams), (3, 5, streams, streams)),
             _op("mhc_post_res"), _mhc_post),
        Case("fused_moe", _with((24, 32), scaled(4, 64, 32), scaled(4, 32, 32), expert, share),
             _function("ops.LigerFusedMoEFunction"), _moe, tolerance=5e-3),
        Case("mlp (tensor descriptors)", _with((2, 40, 64), scaled(96, 64), scaled(96, 64), scaled(64, 96)),
             _function("ops.mlp.LigerMLPFunction"), lambda x, g, u, d: (F.silu(x @ g.T) * (x @ u.T)) @ d.T,
             dtype=torch.bfloat16, tolerance=4e-2),
        Case("tiled_mlp", _with((2, 12, 16), scaled(16, 24), scaled(24, 16)), tiled_run, tiled_reference,
             constant=(1, 2)),
    ]  # fmt: skip


def all_cases() -> list[Case]:
    """Every case, by group."""
    return [*_norm_cases(), *_activation_cases(), *_attention_cases(), *_loss_cases(), *_block_cases()]


def run_case(case: Case) -> Outcome:
    """Forward and backward on a simulated GPU against float64."""
    os.environ["LIGER_FUSED_MOE_AUTOTUNE"] = "0"  # the package's own switch: one configuration instead of sixty
    from drkernel import sim
    from drkernel.sim.wire.commands import UnsupportedOp

    torch.manual_seed(0)
    host = [_cast(value, case.dtype) for value in case.inputs()]
    started = time.perf_counter()
    with sim.device(case.gpu) as dev:
        try:
            ours = _differentiate(case, case.run, [value.cuda() for value in host])
        except UnsupportedOp as error:
            return Outcome(case.name, "UnsupportedOp", str(error).splitlines()[0])
        except Exception as error:
            return Outcome(case.name, "error", f"{type(error).__name__}: {error}")
        found = [finding for finding in dev.findings if finding.severity == "error"]
        launches = len(dev.launches)
    seconds = time.perf_counter() - started
    if found:
        return Outcome(case.name, "error", found[0].message, launches, seconds)
    wrong = _difference(ours, _differentiate(case, case.reference, [_widen(value) for value in host]), case.tolerance)
    return Outcome(case.name, "wrong" if wrong else "pass", wrong, launches, seconds)


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _widen(value: torch.Tensor) -> torch.Tensor:
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def _differentiate(case: Case, function: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs, then the gradients of a fixed weighting of them, on the host."""
    leaves = [
        value.clone().requires_grad_() if value.is_floating_point() and k not in case.constant else value
        for k, value in enumerate(inputs)
    ]
    result = function(*leaves)
    outputs = [value for value in (result if isinstance(result, (tuple, list)) else [result]) if value is not None]
    outputs = [value for value in outputs if value.is_floating_point()]
    kept = [value.detach().cpu() for value in outputs]
    weights = torch.Generator().manual_seed(1)
    total: Any = 0.0
    for value in outputs:
        drawn = torch.rand(value.shape, generator=weights, dtype=torch.float64).to(value.dtype)
        total = total + (value * drawn.to(value.device)).sum()
    total.backward()
    return kept + [leaf.grad.cpu() for leaf in leaves if leaf.requires_grad and leaf.grad is not None]


def _difference(ours: list[torch.Tensor], wanted: list[torch.Tensor], tolerance: float) -> str:
    """What is further from the reference than ``tolerance`` times its largest element; empty when nothing is."""
    if len(ours) != len(wanted):
        return f"{len(ours)} outputs and gradients, the reference has {len(wanted)}"
    for place, (got, expected) in enumerate(zip(ours, wanted, strict=True)):
        if got.shape != expected.shape:
            return f"value {place} has shape {tuple(got.shape)}, not {tuple(expected.shape)}"
        error = (got.double() - expected.double()).abs().max().item()
        scale = max(1.0, expected.double().abs().max().item())
        if not error <= tolerance * scale:
            return f"value {place} is off by {error:.3g} (largest element {scale:.3g})"
    return ""


def main() -> None:
    """Print a table of the cases."""
    from importlib.metadata import version

    outcomes = [run_case(case) for case in all_cases() if not sys.argv[1:] or sys.argv[1] in case.name]
    passed = sum(outcome.status == "pass" for outcome in outcomes)
    print(f"liger-kernel {version('liger-kernel')}, triton {version('triton')}: {passed} of {len(outcomes)} pass\n")
    print("| function | forward and backward | launches | seconds here |\n|---|---|---:|---:|")
    for outcome in outcomes:
        status = outcome.status if outcome.status == "pass" else f"{outcome.status}: {outcome.detail[:160]}"
        print(f"| {outcome.name} | {status} | {outcome.launches} | {outcome.seconds:.2f} |")


if __name__ == "__main__":
    main()
