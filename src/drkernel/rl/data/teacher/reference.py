"""The PyTorch side of a generated problem: a task in KernelBench's format, short enough for a small context."""

from __future__ import annotations

import hashlib
import re

from drkernel.rl.data.teacher.problem import CORES, TeacherProblem
from drkernel.task import Provenance, Task

TEMPLATE = """import torch

ROWS = {rows}
COLS = {columns}
{depth}
class Model(torch.nn.Module):
    def forward(self, {arguments}):
{body}

def get_inputs():
{inputs}

def get_init_inputs():
    return []
"""


def arguments(problem: TeacherProblem) -> list[str]:
    """Return the names of ``forward``'s arguments, in order."""
    names = ["x"] + (["w"] if problem.kind == "matmul" else [])
    return names + [name for name, _ in problem.operands]


def statements(problem: TeacherProblem) -> list[str]:
    """Return the reference's statements, ``v1 = ...``, ``v2 = ...``, one per step, each a function of the previous
    value."""
    lines: list[str] = []

    def value() -> str:
        return f"v{len(lines)}" if lines else "x"

    for step in problem.before:
        lines.append(f"v{len(lines) + 1} = {step.text('torch', value())}")
    if problem.core:
        (rule,) = CORES[problem.core].torch
        right = re.sub(r"\bx\b", value(), rule.split(" = ", 1)[1])
        lines.append(f"v{len(lines) + 1} = {right}")
    for step in problem.after:
        lines.append(f"v{len(lines) + 1} = {step.text('torch', value())}")
    return lines


def reference_source(problem: TeacherProblem) -> str:
    """Return the source of the task's module."""
    matmul = problem.kind == "matmul"
    shapes = ["ROWS, DEPTH", "DEPTH, COLS"] if matmul else ["ROWS, COLS"]
    # a bias has one value a column, also where the core has reduced the columns away (never drawn there)
    shapes += ["COLS" if role == "bias" else "ROWS, COLS" for _, role in problem.operands]
    lines = statements(problem)
    inputs = [f"{name} = torch.randn({shape})" for name, shape in zip(arguments(problem), shapes, strict=True)]
    return TEMPLATE.format(
        rows=problem.own.rows,
        columns=problem.own.columns,
        depth=f"DEPTH = {problem.own.depth}\n" if matmul else "",
        arguments=", ".join(arguments(problem)),
        body="\n".join(f"        {line}" for line in [*lines, f"return v{len(lines)}"]),
        inputs="\n".join(f"    {line}" for line in [*inputs, f"return [{', '.join(arguments(problem))}]"]),
    )


def _constants(problem: TeacherProblem) -> dict[str, int]:
    """Return the module's constants at the problem's tiny sizes."""
    sizes = {"ROWS": problem.tiny.rows, "COLS": problem.tiny.columns}
    return sizes | ({"DEPTH": problem.tiny.depth} if problem.kind == "matmul" else {})


def make_task(problem: TeacherProblem) -> Task:
    """Return the problem as a :class:`Task`, with its own sizes in the source and a profile ``tiny``; equal problems
    give equal ids."""
    source = reference_source(problem)
    digest = hashlib.sha256(f"{source}{_constants(problem)}".encode()).hexdigest()[:12]
    return Task(
        id=f"gen/{problem.family}/{digest}",
        level=2,
        reference=source,
        precision="fp32",
        profiles={"tiny": _constants(problem)},
        family=problem.family,
        tags=("generated", problem.kind),
        provenance=Provenance(source="generated", path=problem.signature, license="Apache-2.0"),
    )
