"""The Triton side of a generated problem: answers that are real, varied in style, and short.

One function per kind of kernel writes the fused answer. A :class:`Flaw` bends it the way models do: the kernel covers
one operator only, the mask is off by one, a name does not exist, a step is forgotten.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from drkernel.rl.teacher.problem import CORES, Problem, Step
from drkernel.rl.teacher.reference import arguments, statements

Flaw = Literal["lazy", "bad_mask", "compile_error", "forgotten_step"]
FLAWS: tuple[Flaw, ...] = ("lazy", "bad_mask", "compile_error", "forgotten_step")

MODULE = """import torch
import triton
import triton.language as tl

@triton.jit
def {kernel}({parameters}):
{body}

class ModelNew(torch.nn.Module):
    def forward(self, {arguments}):
{host}
"""


@dataclass(frozen=True)
class Style:
    """The writer's habits: names and block sizes."""

    kernel: str = "kernel"
    value: str = "a"
    index: str = "i"
    mask: str = "m"
    out: str = "o"
    block: int = 256
    tile: int = 16

    @staticmethod
    def draw(rng: random.Random) -> Style:
        """A style of one's own, from the generator."""
        return Style(
            kernel=rng.choice(("kernel", "fused", "fused_kernel", "k")),
            value=rng.choice(("a", "v", "t")),
            index=rng.choice(("i", "offs", "idx")),
            mask=rng.choice(("m", "mask")),
            out=rng.choice(("o", "out")),
            block=rng.choice((128, 256, 512, 1024)),
            tile=rng.choice((16, 32)),
        )


def write_answer(problem: Problem, style: Style, flaw: Flaw | None = None, rng: random.Random | None = None) -> str:
    """Source of a ``ModelNew`` for the problem, bent by ``flaw`` where given (``rng`` picks among variants)."""
    rng = rng or random.Random(0)
    if flaw == "lazy":
        return _write_lazy(problem, style, rng)
    if flaw == "forgotten_step":
        problem = _forget_step(problem, rng)
    write = {"pointwise": _write_pointwise, "row": _write_row, "matmul": _write_matmul}[problem.kind]
    source = write(problem, style, bad_mask=flaw == "bad_mask")
    return _break_compile(source, style, rng) if flaw == "compile_error" else source


def can_have(problem: Problem, flaw: Flaw) -> bool:
    """Whether the flaw makes a difference to this problem."""
    if flaw == "forgotten_step":
        return any(not step.operand for step in problem.steps)
    if flaw == "lazy":
        return len(problem.steps) >= 1 and (problem.core is not None or len(problem.steps) >= 2)
    if flaw == "bad_mask" and problem.kind == "row":
        return problem.core is not None and CORES[problem.core].padding is not None
    return True


def _write_pointwise(problem: Problem, style: Style, bad_mask: bool) -> str:
    v, i, m = style.value, style.index, style.mask
    body = [
        f"{i} = tl.program_id(0) * B + tl.arange(0, B)",
        f"{m} = {i} < n - 1" if bad_mask else f"{m} = {i} < n",
        f"{v} = tl.load(x + {i}, mask={m})",
        *_step_lines(problem.before, v, {"same": i, "bias": f"{i} % c"}, m),
        f"tl.store({style.out} + {i}, {v}, mask={m})",
    ]
    has_bias = any(role == "bias" for _, role in problem.operands)
    pointers = ["x"] + [name for name, _ in problem.operands]
    host = [
        f"{style.out} = torch.empty_like(x)",
        "n = x.numel()",
        f"{style.kernel}[(triton.cdiv(n, {style.block}),)]({', '.join(pointers)}, {style.out}, n, "
        + ("x.shape[-1], " if has_bias else "")
        + f"B={style.block})",
        f"return {style.out}",
    ]
    parameters = [*pointers, style.out, "n", *(["c"] if has_bias else []), "B: tl.constexpr"]
    return _module(style, parameters, body, arguments(problem), host)


def _write_row(problem: Problem, style: Style, bad_mask: bool) -> str:
    v, i, m = style.value, style.index, style.mask
    assert problem.core is not None
    core = CORES[problem.core]
    operand_index = {"same": f"r * n + {i}", "bias": i}
    body = [
        "r = tl.program_id(0)",
        f"{i} = tl.arange(0, B)",
        f"{m} = {i} < n",
        f"{v} = tl.load(x + r * n + {i}, mask={m}, other=0.0)",
        *_step_lines(problem.before, v, operand_index, m),
    ]
    lanes_are_zero = core.padding == "0.0" and all(step.rule.zero_at_zero for step in problem.before)
    if core.padding and not lanes_are_zero and not bad_mask:
        body.append(f"{v} = tl.where({m}, {v}, {core.padding})")
    if bad_mask and lanes_are_zero:
        body[2] = f"{m} = {i} < n - 1"
    body += [line.format(v=v, m=m, n="n") for line in core.triton]
    if core.reduces:
        body += [*_step_lines(problem.after, v, {}, m), f"tl.store({style.out} + r, {v})"]
        out = "torch.empty(x.shape[0], device=x.device)"
    else:
        body += [
            *_step_lines(problem.after, v, operand_index, m),
            f"tl.store({style.out} + r * n + {i}, {v}, mask={m})",
        ]
        out = "torch.empty_like(x)"
    pointers = ["x"] + [name for name, _ in problem.operands]
    host = [
        f"{style.out} = {out}",
        "n = x.shape[1]",
        f"{style.kernel}[(x.shape[0],)]({', '.join(pointers)}, {style.out}, n, B=triton.next_power_of_2(n))",
        f"return {style.out}",
    ]
    return _module(style, [*pointers, style.out, "n", "B: tl.constexpr"], body, arguments(problem), host)


def _write_matmul(problem: Problem, style: Style, bad_mask: bool) -> str:
    v, m = style.value, style.mask
    depth_mask = "" if bad_mask else " & (q[None, :] < K)"
    depth_mask_w = "" if bad_mask else "(q[:, None] < K) & "
    body = [
        "i = tl.program_id(0) * B + tl.arange(0, B)[:, None]",
        "j = tl.program_id(1) * B + tl.arange(0, B)[None, :]",
        f"{v} = tl.zeros((B, B), tl.float32)",
        "for s in range(0, K, B):",
        "    q = s + tl.arange(0, B)",
        f"    p = tl.load(x + i * K + q[None, :], mask=(i < M){depth_mask}, other=0.0)",
        f"    b = tl.load(w + q[:, None] * N + j, mask={depth_mask_w}(j < N), other=0.0)",
        f'    {v} += tl.dot(p, b, input_precision="ieee")',
        f"{m} = (i < M) & (j < N)",
        *_step_lines(problem.after, v, {"same": "i * N + j", "bias": "j"}, m, bias_mask="j < N"),
        f"tl.store({style.out} + i * N + j, {v}, mask={m})",
    ]
    pointers = ["x", "w"] + [name for name, _ in problem.operands]
    host = [
        "M, K = x.shape",
        "N = w.shape[1]",
        f"{style.out} = torch.empty(M, N, device=x.device)",
        f"grid = (triton.cdiv(M, {style.tile}), triton.cdiv(N, {style.tile}))",
        f"{style.kernel}[grid]({', '.join(pointers)}, {style.out}, M, N, K, B={style.tile})",
        f"return {style.out}",
    ]
    parameters = [*pointers, style.out, "M", "N", "K", "B: tl.constexpr"]
    return _module(style, parameters, body, arguments(problem), host)


def _write_lazy(problem: Problem, style: Style, rng: random.Random) -> str:
    """Triton for one point-wise step, PyTorch for all the rest: correct, and no faster."""
    at_end = bool(problem.after) or problem.core is None
    steps = problem.after if problem.after else problem.before
    step = steps[-1] if at_end else steps[0]
    rest = statements(problem)
    rest = rest[:-1] if at_end else rest[1:]
    v, i, m = style.value, style.index, style.mask
    indices = {"same": i, "bias": f"{i} % c"}
    body = [
        f"{i} = tl.program_id(0) * B + tl.arange(0, B)",
        f"{m} = {i} < n",
        f"{v} = tl.load(x + {i}, mask={m})",
        *_step_lines((step,), v, indices, m),
        f"tl.store({style.out} + {i}, {v}, mask={m})",
    ]
    pointers = ["x"] + ([step.operand] if step.operand else [])
    has_bias = step.rule.operand == "bias"
    launch = (
        f"{style.kernel}[(triton.cdiv(n, {style.block}),)]({', '.join(pointers)}, {style.out}, n, "
        + ("x.shape[-1], " if has_bias else "")
        + f"B={style.block})"
    )
    call = [f"{style.out} = torch.empty_like(x)", "n = x.numel()", launch]
    host = [*rest, *call, f"return {style.out}"] if at_end else [*call, f"x = {style.out}", *rest, "return x"]
    parameters = [*pointers, style.out, "n", *(["c"] if has_bias else []), "B: tl.constexpr"]
    return _module(style, parameters, body, arguments(problem), host)


def _step_lines(
    steps: tuple[Step, ...], value: str, indices: dict[str, str], mask: str, bias_mask: str | None = None
) -> list[str]:
    """One line a step; a second operand is loaded on the line before."""
    lines = []
    for step in steps:
        operand = None
        if step.operand and step.rule.operand:
            operand = "b"
            where = bias_mask if bias_mask and step.rule.operand == "bias" else mask
            lines.append(f"b = tl.load({step.operand} + {indices[step.rule.operand]}, mask={where})")
        lines.append(f"{value} = {step.text('triton', value, operand)}")
    return lines


def _forget_step(problem: Problem, rng: random.Random) -> Problem:
    """The problem without one of its unary steps (second operands stay, so that ``forward`` keeps its arguments)."""
    forgotten = rng.choice([step for step in problem.steps if not step.operand])
    if forgotten in problem.after:
        return problem.with_steps(after=tuple(step for step in problem.after if step is not forgotten))
    return problem.with_steps(before=tuple(step for step in problem.before if step is not forgotten))


def _break_compile(source: str, style: Style, rng: random.Random) -> str:
    """One of the compile errors that models make: a name that does not exist, a size that is no constexpr."""
    variants = []
    if "tl.maximum(" in source:
        variants.append(source.replace("tl.maximum(", "tl.max_(", 1))
    if "tl.sigmoid(" in source:
        variants.append(source.replace("tl.sigmoid(", "tl.sigm(", 1))
    if "tl.arange(0, B)" in source:
        variants.append(source.replace("tl.arange(0, B)", "tl.arange(0, n)" if ", n," in source else "tl.arange(B)", 1))
    variants.append(source.replace(f"{style.value} = tl.load(", f"{style.value} = tl.read(", 1))
    changed = [variant for variant in variants if variant != source]
    return rng.choice(changed) if changed else source.replace("B: tl.constexpr", "B", 1)


def _module(style: Style, parameters: list[str], body: list[str], args: list[str], host: list[str]) -> str:
    return MODULE.format(
        kernel=style.kernel,
        parameters=", ".join(parameters),
        body="\n".join(f"    {line}" for line in body),
        arguments=", ".join(args),
        host="\n".join(f"        {line}" for line in host),
    )
