"""The Triton side of a generated problem: answers that are real, varied in style, and short.

One function per kind of kernel writes the fused answer. A :class:`Flaw` changes it in a way that models get it wrong:
the kernel covers one operator only, the mask is off by one, a name does not exist, a step is not the module's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field, model_validator

from drkernel.config import Config
from drkernel.rl.data.problem import CORES, STEPS, Step, TeacherProblem, arguments, statements

Flaw = Literal["partial", "lazy", "bad_mask", "compile_error", "wrong_step", "stale"]
FLAWS: tuple[Flaw, ...] = ("partial", "lazy", "bad_mask", "compile_error", "wrong_step", "stale")
BLOCKS = (64, 128, 256, 512, 1024)
"""elements of a program of point-wise kernels: at real sizes the smallest lose to PyTorch"""
TILES = (16, 32, 64)
"""edge of a product's tile"""
WARPS = (1, 2, 4, 8, 16)
"""few spill the registers of a long row, many idle in a short block"""
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
    """The writer's habits: names, and how kernels are launched."""

    kernel: str = "kernel"
    value: str = "v"
    index: str = "i"
    mask: str = "m"
    out: str = "o"
    block: int = 256
    tile: int = 16
    warps: int = 4

    @staticmethod
    def draw(rng: random.Random, names: bool = True) -> Style:
        """Draw a random style; with ``names`` False only the launch is drawn."""
        launched = Style().launched_anew(rng)
        if not names:
            return launched
        return replace(
            launched,
            kernel=rng.choice(("kernel", "fused", "fused_kernel", "k")),
            value=rng.choice(("v", "t", "a")),
            index=rng.choice(("i", "offs", "idx")),
            mask=rng.choice(("m", "mask")),
            out=rng.choice(("o", "out")),
        )

    def launched_anew(self, rng: random.Random) -> Style:
        """Return this style with a newly drawn block size, tile and number of warps."""
        return replace(self, block=rng.choice(BLOCKS), tile=rng.choice(TILES), warps=rng.choice(WARPS))


def write_answer(
    problem: TeacherProblem,
    style: Style,
    flaw: Flaw | None = None,
    rng: random.Random | None = None,
    careless: float = 0.0,
) -> str:
    """Write the source of a ``ModelNew`` for the problem, changed by ``flaw`` if given (``rng`` picks among
    variants). ``careless`` is the chance that a wrong step comes with another."""
    rng = rng or random.Random(0)
    if flaw == "lazy":
        return _write_lazy(problem, style, rng)
    if flaw == "partial":
        return _write_partial(problem, style)
    if flaw == "stale":
        return _write_stale(problem, style)
    around = Around(arguments(problem), ())
    if flaw == "wrong_step":
        problem = _mistaken(problem, rng)
        while careless > 0 and problem.steps and rng.random() < careless:
            problem = _mistaken(problem, rng)
    source = WRITERS[problem.kind](problem, style, bad_mask=flaw == "bad_mask", around=around)
    return _break_compile(source, style, rng) if flaw == "compile_error" else source


def can_have(problem: TeacherProblem, flaw: Flaw) -> bool:
    """Return whether the flaw makes a difference to this problem."""
    if flaw == "lazy":
        return len(problem.steps) >= 1 and (problem.core is not None or len(problem.steps) >= 2)
    if flaw == "partial":
        return _cut(problem) is not None
    if flaw == "bad_mask" and problem.kind == "row":
        return problem.core is not None and CORES[problem.core].padding is not None
    return True


@dataclass(frozen=True)
class Around:
    """The module around a kernel that does only the last part of a problem."""

    arguments: Sequence[str]
    """of ``forward``"""
    statements: Sequence[str]
    """PyTorch that makes ``x``, the kernel's input"""


def _flat_body(steps: tuple[Step, ...], style: Style, number: int = 0, bad_mask: bool = False) -> list[str]:
    """Return a kernel over all elements that does these steps, the first of which makes the value ``number + 1``."""
    i, m = style.index, style.mask
    values, last = _step_lines(steps, style, "x0", number)
    return [
        f"{i} = tl.program_id(0) * B + tl.arange(0, B)",
        f"{m} = {i} < n - 1" if bad_mask else f"{m} = {i} < n",
        f"x0 = tl.load(x + {i}, mask={m})",
        *_operand_loads(steps, {"same": i, "bias": f"{i} % c"}, m),
        *values,
        f"tl.store({style.out} + {i}, {last}, mask={m})",
    ]


def _write_pointwise(
    problem: TeacherProblem, style: Style, bad_mask: bool = False, around: Around | None = None
) -> str:
    body = _flat_body(problem.before, style, bad_mask=bad_mask)
    has_bias = any(role == "bias" for _, role in problem.operands)
    pointers = ["x"] + [name for name, _ in problem.operands]
    host = [
        f"{style.out} = torch.empty_like(x)",
        "n = x.numel()",
        _flat_launch(style, pointers, style.out, "x", has_bias),
        f"return {style.out}",
    ]
    parameters = [*pointers, style.out, "n", *(["c"] if has_bias else []), "B: tl.constexpr"]
    return _module(style, parameters, body, problem, host, around)


def _write_row(problem: TeacherProblem, style: Style, bad_mask: bool = False, around: Around | None = None) -> str:
    i, m = style.index, style.mask
    assert problem.core is not None
    core = CORES[problem.core]
    mask = f"{m} = {i} < n"
    before, value = _step_lines(problem.before, style, "x0", 0)
    lanes_are_zero = core.padding == "0.0" and all(step.rule.zero_at_zero for step in problem.before)
    if core.padding and not lanes_are_zero and not bad_mask:
        before.append(f"{value} = tl.where({m}, {value}, {core.padding})")
    if bad_mask and lanes_are_zero:
        mask = f"{m} = {i} < n - 1"
    number = len(problem.before) + 1
    middle = []
    for line in core.triton:
        right = line.format(v=value, n="n")
        value = f"{style.value}{number}"
        middle.append(f"{value} = {right}")
    after, value = _step_lines(problem.after, style, value, number)
    body = [
        "r = tl.program_id(0)",
        f"{i} = tl.arange(0, B)",
        mask,
        f"x0 = tl.load(x + r * n + {i}, mask={m}, other=0.0)",
        *_operand_loads(problem.steps, {"same": f"r * n + {i}", "bias": i}, m),
        *before,
        *middle,
        *after,
    ]
    if core.reduces:
        body.append(f"tl.store({style.out} + r, {value})")
        out = "torch.empty(x.shape[0], device=x.device)"
    else:
        body.append(f"tl.store({style.out} + r * n + {i}, {value}, mask={m})")
        out = "torch.empty_like(x)"
    pointers = ["x"] + [name for name, _ in problem.operands]
    host = [
        f"{style.out} = {out}",
        "n = x.shape[1]",
        f"{style.kernel}[(x.shape[0],)]({', '.join(pointers)}, {style.out}, n, "
        f"B=triton.next_power_of_2(n), num_warps={style.warps})",
        f"return {style.out}",
    ]
    return _module(style, [*pointers, style.out, "n", "B: tl.constexpr"], body, problem, host, around)


def _write_matmul(problem: TeacherProblem, style: Style, bad_mask: bool = False, around: Around | None = None) -> str:
    m = style.mask
    depth_mask = "" if bad_mask else " & (q[None, :] < K)"
    depth_mask_w = "" if bad_mask else "(q[:, None] < K) & "
    first = f"{style.value}1"
    values, last = _step_lines(problem.after, style, first, 1)
    body = [
        "i = tl.program_id(0) * B + tl.arange(0, B)[:, None]",
        "j = tl.program_id(1) * B + tl.arange(0, B)[None, :]",
        f"{m} = (i < M) & (j < N)",
        *_operand_loads(problem.after, {"same": "i * N + j", "bias": "j"}, m, bias_mask="j < N"),
        f"{first} = tl.zeros((B, B), tl.float32)",
        "for s in range(0, K, B):",
        "    q = s + tl.arange(0, B)",
        f"    x0 = tl.load(x + i * K + q[None, :], mask=(i < M){depth_mask}, other=0.0)",
        f"    w0 = tl.load(w + q[:, None] * N + j, mask={depth_mask_w}(j < N), other=0.0)",
        f'    {first} += tl.dot(x0, w0, input_precision="ieee")',
        *values,
        f"tl.store({style.out} + i * N + j, {last}, mask={m})",
    ]
    pointers = ["x", "w"] + [name for name, _ in problem.operands]
    host = [
        "M, K = x.shape",
        "N = w.shape[1]",
        f"{style.out} = torch.empty(M, N, device=x.device)",
        f"grid = (triton.cdiv(M, {style.tile}), triton.cdiv(N, {style.tile}))",
        f"{style.kernel}[grid]({', '.join(pointers)}, {style.out}, M, N, K, B={style.tile}, num_warps={style.warps})",
        f"return {style.out}",
    ]
    parameters = [*pointers, style.out, "M", "N", "K", "B: tl.constexpr"]
    return _module(style, parameters, body, problem, host, around)


WRITERS = {"pointwise": _write_pointwise, "row": _write_row, "matmul": _write_matmul}


def _cut(problem: TeacherProblem) -> tuple[int, TeacherProblem] | None:
    """Return how many statements PyTorch keeps when one kernel does the several operations after them, and those as a
    problem of their own; None where there is no such place."""
    if problem.kind == "pointwise" and len(problem.before) >= 3:
        kept = len(problem.before) // 2
        return kept, replace(problem, before=problem.before[kept:])
    if problem.kind == "row" and problem.before:
        return len(problem.before), replace(problem, before=())
    if problem.kind != "pointwise" and not problem.reduces and len(problem.after) >= 2:
        rest = replace(problem, kind="pointwise", core=None, before=problem.after, after=())
        return len(problem.before) + 1, rest
    return None


def _write_partial(problem: TeacherProblem, style: Style) -> str:
    """Write PyTorch for the first operations and one kernel for the others: correct, and faster by a part."""
    cut = _cut(problem)
    assert cut is not None, "can_have() says where this is possible"
    kept, rest = cut
    lines = statements(problem)[:kept]
    lines[-1] = f"x = {lines[-1].split(' = ', 1)[1]}"
    return WRITERS[rest.kind](rest, style, around=Around(arguments(problem), lines))


def _write_lazy(problem: TeacherProblem, style: Style, rng: random.Random) -> str:
    """Write Triton for one point-wise step and PyTorch for the rest: correct, and no faster."""
    at_end = bool(problem.after) or problem.core is None
    steps = problem.after if problem.after else problem.before
    step = steps[-1] if at_end else steps[0]
    torch_lines = statements(problem)
    total = len(torch_lines)
    source = f"v{total - 1}" if at_end and total > 1 else "x"
    body = _flat_body((step,), style, total - 1 if at_end else 0)
    operands = [step.operand] if step.operand else []
    has_bias = step.rule.operand == "bias"
    out = style.out if at_end else "v1"
    call = [
        f"{out} = torch.empty_like({source})",
        f"n = {source}.numel()",
        _flat_launch(style, [source, *operands], out, source, has_bias),
    ]
    host = [*torch_lines[:-1], *call, f"return {out}"] if at_end else [*call, *torch_lines[1:], f"return v{total}"]
    parameters = ["x", *operands, style.out, "n", *(["c"] if has_bias else []), "B: tl.constexpr"]
    return _module(style, parameters, body, problem, host)


def _write_stale(problem: TeacherProblem, style: Style) -> str:
    """The hack that naive timing rewards: compute once in PyTorch, then copy the stored result with a kernel."""
    lines = statements(problem)
    host = [
        "if self.kept is None:",
        *(f"    {line}" for line in lines),
        f"    self.kept = v{len(lines)}",
        f"{style.out} = torch.empty_like(self.kept)",
        f"n = {style.out}.numel()",
        _flat_launch(style, ["self.kept"], style.out, style.out, False),
        f"return {style.out}",
    ]
    source = _module(style, ["x", style.out, "n", "B: tl.constexpr"], _flat_body((), style), problem, host)
    return source.replace("    def forward(", "    kept = None\n    def forward(")


def _flat_launch(style: Style, pointers: list[str], out: str, like: str, has_bias: bool) -> str:
    columns = f"{like}.shape[-1], " if has_bias else ""
    grid = f"{style.kernel}[(triton.cdiv(n, {style.block}),)]"
    return f"{grid}({', '.join(pointers)}, {out}, n, {columns}B={style.block}, num_warps={style.warps})"


def _operand_loads(
    steps: tuple[Step, ...], indices: dict[str, str], mask: str, bias_mask: str | None = None
) -> list[str]:
    """Return one line for every second operand: ``y0 = tl.load(y + ...)``."""
    lines = []
    for step in steps:
        if step.operand and step.rule.operand:
            where = bias_mask if bias_mask and step.rule.operand == "bias" else mask
            lines.append(f"{step.operand}0 = tl.load({step.operand} + {indices[step.rule.operand]}, mask={where})")
    return lines


def _step_lines(steps: tuple[Step, ...], style: Style, value: str, number: int) -> tuple[list[str], str]:
    """Return one line per step, starting with ``v<number + 1> = ...``, and the name of the last value."""
    lines = []
    for step in steps:
        number += 1
        operand = f"{step.operand}0" if step.operand else None
        lines.append(f"{style.value}{number} = {step.text('triton', value, operand)}")
        value = f"{style.value}{number}"
    return lines, value


def _mistaken(problem: TeacherProblem, rng: random.Random) -> TeacherProblem:
    """Return the problem as a careless reader has it: one operation left out, misread, or exchanged with the next."""
    at = rng.randrange(len(problem.steps) + (problem.kind == "row"))
    if at == len(problem.steps):
        assert problem.core is not None
        others = [name for name, rule in CORES.items() if rule.triton and name != problem.core]
        return replace(problem, core=rng.choice([name for name in others if CORES[name].reduces == problem.reduces]))
    name, at = problem.part(at)
    steps = list(getattr(problem, name))
    way = rng.choice(("left out", "misread", "exchanged"))
    if way == "exchanged" and at + 1 < len(steps):
        steps[at : at + 2] = steps[at + 1], steps[at]
    elif way == "misread":
        old = steps[at]
        op = rng.choice([name for name, rule in STEPS.items() if rule.operand == old.rule.operand and name != old.op])
        steps[at] = Step(op, rng.choice(STEPS[op].constants or (None,)), old.operand)
    else:
        del steps[at]
    return problem.with_part(name, tuple(steps))


def _break_compile(source: str, style: Style, rng: random.Random) -> str:
    """Introduce one of the compile errors that models make: a name that does not exist, or a size that is no
    constexpr."""
    variants = []
    if "tl.maximum(" in source:
        variants.append(source.replace("tl.maximum(", "tl.max_(", 1))
    if "tl.sigmoid(" in source:
        variants.append(source.replace("tl.sigmoid(", "tl.sigm(", 1))
    if "tl.arange(0, B)" in source:
        variants.append(source.replace("tl.arange(0, B)", "tl.arange(0, n)" if ", n," in source else "tl.arange(B)", 1))
    variants.append(source.replace("x0 = tl.load(", "x0 = tl.read(", 1))
    changed = [variant for variant in variants if variant != source]
    return rng.choice(changed) if changed else source.replace("B: tl.constexpr", "B", 1)


def _module(
    style: Style,
    parameters: list[str],
    body: list[str],
    problem: TeacherProblem,
    host: list[str],
    around: Around | None = None,
) -> str:
    around = around or Around(arguments(problem), ())
    return MODULE.format(
        kernel=style.kernel,
        parameters=", ".join(parameters),
        body="\n".join(f"    {line}" for line in body),
        arguments=", ".join(around.arguments),
        host="\n".join(f"        {line}" for line in [*around.statements, *host]),
    )


# ---- The program teacher's behaviour over a trajectory: good answers, and the failures that models make
#
# A teacher that is always right would leave nothing for reinforcement learning to do, and would not show how feedback
# is used. So the first turn fails in the ways that models fail, with known probabilities, and later turns usually, but
# not always, fix what the feedback names.


Plan = Literal["fused", "partial", "lazy", "bad_mask", "compile_error", "wrong_step", "stale"]

RIGHT: tuple[Plan, ...] = ("fused", "partial", "lazy")
"""plans that give right answers"""


class Mix(Config):
    """Weights of the plans; they need not sum to one."""

    fused: float = Field(0.35, ge=0, description="one kernel for everything, right")
    partial: float = Field(0.15, ge=0, description="PyTorch for the first operations, one kernel for the others")
    lazy: float = Field(0.25, ge=0, description="Triton for one operator, PyTorch for the rest: correct but no faster")
    bad_mask: float = Field(0.10, ge=0, description="a mask off by one, or padding that reaches a reduction")
    compile_error: float = Field(0.08, ge=0, description="a name that does not exist, a size that is no constexpr")
    wrong_step: float = Field(0.07, ge=0, description="one operation left out, misread or exchanged with the next")
    stale: float = Field(
        0.0,
        ge=0,
        description="a hack, for studies: every later call copies out the first call's result",
    )

    @model_validator(mode="after")
    def _some_weight(self) -> Mix:
        if self.total <= 0:
            raise ValueError("at least one plan needs a weight above 0")
        return self

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return self.fused + sum(float(getattr(self, flaw)) for flaw in FLAWS)

    def draw(self, rng: random.Random) -> Plan:
        """Draw a plan with probability proportional to its weight."""
        plans: list[Plan] = ["fused", *FLAWS]
        return rng.choices(plans, [getattr(self, plan) for plan in plans])[0]


class TeacherConfig(Config):
    """How the program teacher behaves."""

    variety: Literal["full", "blocks"] = Field(
        "full",
        description="'full' varies names and launches, 'blocks' only launches (block sizes, warps): easier for a very "
        "small model",
    )
    first: Mix = Field(Mix(), description="plans of the first turn")
    mend: float = Field(0.6, ge=0, le=1, description="chance that a turn after a failure is the right fused answer")
    improve: float = Field(0.5, ge=0, le=1, description="chance that a turn after a lazy or partial answer is fused")
    retune: float = Field(0.5, ge=0, le=1, description="chance that a later turn draws block size and warps anew")
    careless: float = Field(0.0, ge=0, lt=1, description="chance that a wrong step comes with another, and so on")


class ProgramTeacher:
    """Writes the answers of one trajectory. All draws come from ``rng``, so a seed repeats the trajectory."""

    def __init__(self, problem: TeacherProblem, config: TeacherConfig, rng: random.Random):
        self.problem = problem
        self.config = config
        self.rng = rng
        self.style = Style.draw(rng, names=config.variety == "full")
        self.plan: Plan | None = None

    def next_answer(self) -> tuple[Plan, str]:
        """Return the plan and the source of the next turn."""
        if self.plan is not None and self.rng.random() < self.config.retune:
            self.style = self.style.launched_anew(self.rng)
        plan = self._next_plan()
        flaw: Flaw | None = None if plan == "fused" else plan
        if flaw is not None and not can_have(self.problem, flaw):
            plan, flaw = "fused", None
        self.plan = plan
        return plan, write_answer(self.problem, self.style, flaw, self.rng, self.config.careless)

    def _next_plan(self) -> Plan:
        if self.plan is None:
            return self.config.first.draw(self.rng)
        if self.plan == "fused":
            return "fused"
        if self.plan in ("lazy", "partial"):
            return "fused" if self.rng.random() < self.config.improve else self.plan
        if self.rng.random() < self.config.mend:
            return "fused"
        return self.rng.choice(("lazy", "partial")) if self.rng.random() < 0.5 else self.plan
