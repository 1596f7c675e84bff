"""Families of generated problems: how each is drawn, and which are held out.

A family is a *structure* (what kind of core, which operands, where). Held-out families use only parts that occur in
training families, but combine them as no training family does, so solving them needs recombination.

Drawing avoids what would make a task ill-posed (steps without effect, saturated results) as far as the operations alone
show it; the admission gate, which runs every generated task, decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from drkernel.rl.data.teacher.problem import CORES, STEPS, UNARY, Kind, ProblemShape, Step, TeacherProblem
from drkernel.rl.data.teacher.reference import arguments, make_task
from drkernel.task import Task

Split = Literal["train", "heldout"]

ROWS = (4096, 6000, 8192, 16384)
COLUMNS = (2048, 3000, 4096, 6000, 8192)
"""own sizes of matrices: far more time in memory than in launches, rows of which some do not fit few warps"""
PRODUCT = (2000, 2048, 3000, 4096)
DEPTHS = (32, 48, 64, 96)
"""own sizes of products: so shallow that what comes after them is a large part of the time"""
TINY_ROWS = (8, 12, 16, 24, 32)
TINY_COLUMNS = (33, 40, 50, 64, 70, 96, 100, 128, 200)
TINY_PRODUCT = (20, 24, 32, 40, 48)
"""sizes that answers are compared at: most are no multiple of a block, so that masks matter"""
FEW_ROWS = (2, 3, 4)
"""where rows are as long as at own sizes"""
NORMS = ("rms", "l2", "center")
SOFTMAX = ("softmax", "log_softmax")
REDUCTIONS = ("sum", "mean", "max")
MIN_CHANGE = 1e-2
"""least change that a step must make, as a share of the result's spread"""
MIN_SHARE = 0.05
"""least share of the elements that must change by so much"""


@dataclass(frozen=True)
class Family:
    """The recipe for drawing problems of one structure.

    ``before`` and ``after`` are lists of slots: a slot is ``"unary"`` or the name of a step; ``"unary*"`` is zero or
    one unary step.
    """

    name: str
    split: Split
    kind: Kind
    cores: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("chain", "train", "pointwise", before=("unary", "unary", "unary*", "unary*")),
        Family("binary_chain", "train", "pointwise", before=("unary*", "same", "unary", "unary*")),
        Family("bias_chain", "train", "pointwise", before=("bias", "unary", "unary*")),
        Family("gain_chain", "train", "pointwise", before=("gain", "unary", "unary*")),
        Family("late_gain", "train", "pointwise", before=("unary", "gain", "unary*")),
        Family("two_binaries", "train", "pointwise", before=("same", "unary*", "same")),
        Family("gain_bias", "train", "pointwise", before=("gain", "bias", "unary*")),
        Family("gain_binary", "train", "pointwise", before=("gain", "unary*", "same", "unary*")),
        Family("binary_bias", "train", "pointwise", before=("same", "unary*", "bias")),
        Family("bias_binary", "train", "pointwise", before=("bias", "same", "unary*")),
        Family("bias_gain", "train", "pointwise", before=("bias", "unary*", "gain")),
        Family("three_operands", "train", "pointwise", before=("same", "gain", "same", "unary*")),
        Family("reduce", "train", "row", REDUCTIONS, before=("unary", "unary*"), after=("unary*",)),
        Family("binary_reduce", "train", "row", REDUCTIONS, before=("same", "unary*"), after=("unary*",)),
        Family("bias_reduce", "train", "row", REDUCTIONS, before=("bias", "unary*")),
        Family("norm", "train", "row", NORMS, before=("unary*",), after=("unary", "unary*")),
        Family("norm_gain", "train", "row", NORMS, before=("unary*",), after=("gain", "unary*")),
        Family("norm_gain_bias", "train", "row", NORMS, after=("gain", "bias", "unary*")),
        Family("binary_norm", "train", "row", NORMS, before=("same", "unary*"), after=("unary*",)),
        Family("gain_norm", "train", "row", NORMS, before=("gain", "unary*"), after=("unary*",)),
        Family("binary_norm_bias", "train", "row", NORMS, before=("same",), after=("bias", "unary*")),
        Family("softmax", "train", "row", SOFTMAX, before=("mulc", "unary*"), after=("unary*",)),
        Family("softmax_bias", "train", "row", SOFTMAX, before=("bias",), after=("unary",)),
        Family("binary_softmax", "train", "row", SOFTMAX, before=("same",), after=("unary*",)),
        Family("softmax_gain", "train", "row", SOFTMAX, before=("unary*",), after=("gain",)),
        Family("norm_act_residual", "train", "row", NORMS, before=("unary*",), after=("unary", "same", "unary*")),
        Family("gain_norm_residual", "train", "row", NORMS, before=("gain",), after=("unary*", "same")),
        Family("softmax_act_gate", "train", "row", SOFTMAX, before=("unary*",), after=("unary", "same")),
        Family("matmul_act", "train", "matmul", ("matmul",), after=("unary", "unary")),
        Family("matmul_bias", "train", "matmul", ("matmul",), after=("bias", "unary", "unary*")),
        Family("matmul_act_bias", "train", "matmul", ("matmul",), after=("unary", "bias")),
        Family("matmul_residual", "train", "matmul", ("matmul",), after=("same", "unary")),
        Family("matmul_act_residual", "train", "matmul", ("matmul",), after=("unary", "same", "unary*")),
        Family("matmul_gain", "train", "matmul", ("matmul",), after=("gain", "unary*")),
        Family("matmul_bias_gain", "train", "matmul", ("matmul",), after=("bias", "unary*", "gain")),
        Family("bias_binary_chain", "heldout", "pointwise", before=("bias", "unary", "same")),
        Family("gain_reduce", "heldout", "row", REDUCTIONS, before=("gain", "unary")),
        Family("norm_residual", "heldout", "row", NORMS, after=("same", "unary")),
        Family("softmax_gate", "heldout", "row", SOFTMAX, before=("mulc",), after=("same",)),
        Family("matmul_gain_act", "heldout", "matmul", ("matmul",), after=("unary", "gain", "unary*")),
    )
}


def family_names(split: Split) -> list[str]:
    """Return the names of the families of one split."""
    return [name for name, family in FAMILIES.items() if family.split == split]


def draw_problem(family: Family, rng: random.Random, checked: bool = True) -> TeacherProblem:
    """Draw one problem of the family; it is well-posed unless ``checked`` is off."""
    while True:
        problem = _draw(family, rng)
        if not checked or _well_posed(problem):
            return problem


def generate_problems(split: Split, count: int, seed: int, checked: bool = True) -> Iterator[TeacherProblem]:
    """Generate ``count`` distinct problems, cycling through the families; the same seed gives the same problems.

    ``checked`` runs every candidate problem to verify that each of its steps matters (a few milliseconds). Turn it off
    for texts that are never graded.

    Raises ``ValueError`` when a family cannot give that many distinct problems.
    """
    rng = random.Random(f"drkernel-{split}-{seed}")
    names = family_names(split)
    seen: set[str] = set()
    for index in range(count):
        family = FAMILIES[names[index % len(names)]]
        for _ in range(1000):
            problem = draw_problem(family, rng, checked)
            key = repr(problem)
            if key not in seen:
                break
        else:
            raise ValueError(
                f"family {family.name} has fewer than {count // len(names)} distinct problems; ask for less"
            )
        seen.add(key)
        yield problem


def generate_tasks(split: Split, count: int, seed: int, checked: bool = True) -> list[Task]:
    """Return :func:`generate_problems` as tasks."""
    return [make_task(problem) for problem in generate_problems(split, count, seed, checked)]


def _draw(family: Family, rng: random.Random) -> TeacherProblem:
    names = iter("yzuv")
    before = _draw_steps(family.before, rng, names)
    after = _draw_steps(family.after, rng, names)
    own, tiny = _draw_sizes(family.kind, rng)
    return TeacherProblem(
        family=family.name,
        kind=family.kind,
        before=before,
        core=rng.choice(family.cores) if family.cores else None,
        after=after,
        own=own,
        tiny=tiny,
    )


def _draw_sizes(kind: Kind, rng: random.Random) -> tuple[ProblemShape, ProblemShape]:
    """Return own and tiny sizes.

    Kernels for rows hold a whole row in one block, the next power of two. Their tiny rows need the same block: what is
    timed is then what was compared, and the judge need not compare it again. Being no power of two, they need masks.
    """
    if kind == "matmul":
        return _draw_shape(rng, PRODUCT, PRODUCT, DEPTHS), _draw_shape(rng, *[TINY_PRODUCT] * 3)
    own = _draw_shape(rng, ROWS, COLUMNS)
    if kind == "pointwise":
        return own, _draw_shape(rng, TINY_ROWS, TINY_COLUMNS)
    block = 1 << (own.columns - 1).bit_length()
    return own, ProblemShape(rng.choice(FEW_ROWS), block * rng.randint(9, 15) // 16 + 1)


def _draw_shape(
    rng: random.Random, rows: tuple[int, ...], columns: tuple[int, ...], depths: tuple[int, ...] = (0,)
) -> ProblemShape:
    return ProblemShape(rng.choice(rows), rng.choice(columns), rng.choice(depths))


def _draw_steps(slots: tuple[str, ...], rng: random.Random, names: Iterator[str]) -> tuple[Step, ...]:
    steps = []
    for slot in slots:
        if slot.endswith("*") and rng.random() < 0.5:
            continue
        op = slot.rstrip("*")
        if op == "unary":
            op = rng.choice(UNARY)
        elif op == "same":
            op = rng.choice(("add", "sub", "mul"))
        rule = STEPS[op]
        constant = rng.choice(rule.constants) if rule.constants else None
        steps.append(Step(op, constant, next(names) if rule.operand else None))
    return tuple(steps)


def _well_posed(problem: TeacherProblem) -> bool:
    """Return whether every step has an effect and no constant would match the output: by rule, then by running the
    problem."""
    by_rule = _steps_have_effect(problem.before, problem.core) and _steps_have_effect(problem.after, None, problem.core)
    return by_rule and every_step_matters(problem)


def _steps_have_effect(steps: tuple[Step, ...], then: str | None, core: str | None = None) -> bool:
    sign = {"softmax": 1, "log_softmax": -1}.get(core or "", 0)
    bounded = core in ("softmax", "l2")
    if core in (*REDUCTIONS, "log_softmax") and any(step.rule.bounded for step in steps):
        return False  # these results are far from zero: a bounded step would saturate to a constant
    squares = 0
    previous = ""
    for step in steps:
        rule = step.rule
        if step.op == previous or {step.op, previous} in ({"addc", "subc"}, {"mulc", "neg"}):
            return False  # twice the same, or steps that a person would merge
        if sign > 0 and step.op in ("relu", "abs", "leaky"):
            return False  # the identity
        if sign < 0 and step.op in ("relu", "leaky"):
            return False  # zero, or a plain product
        if bounded and step.op in ("clamp", "sigmoid", "gauss"):
            return False  # nearly constant
        squares += step.op == "square"
        if squares > 1:
            return False  # fourth powers: tails that swamp the tolerance
        sign = {"nonneg": 1, "any": 0, "keep": sign, "flip": -sign}[rule.sign]
        bounded = rule.bounded or (bounded and step.op in ("neg", "mulc"))
        previous = step.op
    if then is None:
        return True
    if CORES[then].shift_invariant and previous in ("addc", "subc"):
        return False
    if bounded and then == "max":
        return False  # the maximum of a row would sit at the bound
    return not (bounded and then in ("softmax", "log_softmax", "center") and previous in ("sigmoid", "gauss"))


def every_step_matters(problem: TeacherProblem) -> bool:
    """Return True when omitting any one elementwise step changes the result, and the result is not nearly constant.

    If a step has no effect on the task's inputs, the task cannot tell a kernel that omits it from one that performs it.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    inputs = {name: _operand(problem, name, generator) for name in arguments(problem)}
    lines = _lines(problem)
    whole = _run(lines, inputs)
    if not bool(torch.isfinite(whole).all()):
        return False
    spread = float(whole.std())
    if spread < 1e-6 or spread < 1e-4 * float(whole.abs().mean()):
        return False
    for index, (_, removable) in enumerate(lines):
        if not removable:
            continue
        without = _run([*lines[:index], *lines[index + 1 :]], inputs)
        changed = (without - whole).abs() > MIN_CHANGE * spread
        if without.shape == whole.shape and float(changed.double().mean()) < MIN_SHARE:
            return False
    return True


def _lines(problem: TeacherProblem) -> list[tuple[str, bool]]:
    """Return the statements in order, and whether each is a step that could be omitted."""
    lines = [(f"x = {step.text('torch', 'x')}", True) for step in problem.before]
    if problem.core:
        lines += [(line, False) for line in CORES[problem.core].torch]
    return lines + [(f"x = {step.text('torch', 'x')}", True) for step in problem.after]


def _operand(problem: TeacherProblem, name: str, generator: Any) -> Any:
    import torch

    roles, size = dict(problem.operands), problem.tiny
    shape: tuple[int, ...]
    if problem.kind == "matmul" and name in ("x", "w"):
        shape = (size.rows, size.depth) if name == "x" else (size.depth, size.columns)
    else:
        shape = (size.columns,) if roles.get(name) == "bias" else (size.rows, size.columns)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _run(lines: list[tuple[str, bool]], inputs: dict[str, Any]) -> Any:
    import torch

    names = {"torch": torch, **inputs}
    exec("\n".join(line for line, _ in lines), names)  # our own generated statements, nobody else's text
    return names["x"]
