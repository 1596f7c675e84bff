"""Checks, by running it, that every step of a generated problem changes its result.

If a step has no effect on the task's inputs, the task cannot distinguish a kernel that omits the step from one that
performs it.
"""

from __future__ import annotations

from typing import Any

from drkernel.rl.data.teacher.problem import CORES, Problem
from drkernel.rl.data.teacher.reference import arguments

MIN_CHANGE = 1e-2
"""least change that a step must make, as a share of the result's spread"""
MIN_SHARE = 0.05
"""least share of the elements that must change by so much"""


def every_step_matters(problem: Problem) -> bool:
    """Return True when omitting any one elementwise step changes the result, and the result is not nearly constant."""
    import torch

    generator = torch.Generator().manual_seed(0)
    inputs = {name: _draw(problem, name, generator) for name in arguments(problem)}
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


def _lines(problem: Problem) -> list[tuple[str, bool]]:
    """Return the statements in order, and whether each is a step that could be omitted."""
    lines = [(f"x = {step.text('torch', 'x')}", True) for step in problem.before]
    if problem.core:
        lines += [(line, False) for line in CORES[problem.core].torch]
    return lines + [(f"x = {step.text('torch', 'x')}", True) for step in problem.after]


def _draw(problem: Problem, name: str, generator: Any) -> Any:
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
