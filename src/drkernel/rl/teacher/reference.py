"""The PyTorch side of a generated problem: a task in KernelBench's format, short enough for a small context."""

from __future__ import annotations

import hashlib

from drkernel.rl.teacher.problem import CORES, Problem
from drkernel.task import Provenance, Task

TEMPLATE = """import torch

ROWS = {rows}
COLS = {columns}
{depth}
class Model(torch.nn.Module):
    def forward(self, {arguments}):
{body}
        return x

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def arguments(problem: Problem) -> list[str]:
    """Names of ``forward``'s arguments, in order."""
    names = ["x"] + (["w"] if problem.kind == "matmul" else [])
    return names + [name for name, _ in problem.operands]


def statements(problem: Problem) -> list[str]:
    """The reference's statements, one per step."""
    lines = [f"x = {step.text('torch', 'x')}" for step in problem.before]
    if problem.core:
        lines += CORES[problem.core].torch
    return lines + [f"x = {step.text('torch', 'x')}" for step in problem.after]


def reference_source(problem: Problem) -> str:
    """The task's module as source."""
    matmul = problem.kind == "matmul"
    shapes = ["ROWS, DEPTH", "DEPTH, COLS"] if matmul else ["ROWS, COLS"]
    # a bias has one value a column, also where the core has reduced the columns away (never drawn there)
    shapes += ["COLS" if role == "bias" else "ROWS, COLS" for _, role in problem.operands]
    return TEMPLATE.format(
        rows=problem.rows,
        columns=problem.columns,
        depth=f"DEPTH = {problem.depth}\n" if matmul else "",
        arguments=", ".join(arguments(problem)),
        body="\n".join(f"        {line}" for line in statements(problem)),
        inputs=", ".join(f"torch.randn({shape})" for shape in shapes),
    )


def make_task(problem: Problem) -> Task:
    """The problem as a :class:`Task`; equal problems give equal ids."""
    source = reference_source(problem)
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    return Task(
        id=f"gen/{problem.family}/{digest}",
        level=2,
        reference=source,
        precision="fp32",
        family=problem.family,
        tags=("generated", problem.kind),
        provenance=Provenance(source="generated", path=problem.signature, license="Apache-2.0"),
    )
