"""Triton answers to problems of KernelBench, written from templates: one file a family.

Each template is a kernel with a place for what differs (an expression, a reduction, an epilogue); what comes out is a
complete source with a class ``ModelNew`` of the problem's constructor. None of KernelBench's text is in here.
"""

from __future__ import annotations

from functools import cache

HEADER = """import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice

"""


@cache
def answers() -> dict[str, str]:
    """Source by problem: ``level1/19`` and so on."""
    from kernelbench_answers import along, linear, losses, pointwise, pooling, products, rows

    families = (pointwise, rows, along, products, losses, pooling, linear)
    found: dict[str, str] = {}
    for family in families:
        found |= {problem: HEADER + source for problem, source in family.ANSWERS.items()}
    return found


def answer_to(task_id: str) -> str | None:
    """The answer to a task named ``kernelbench/level1/19_...``; None where there is none."""
    level, _, name = task_id.removeprefix("kernelbench/").partition("/")
    return answers().get(f"{level}/{name.partition('_')[0]}")
