"""The program teacher's behaviour over a trajectory: good answers, and the failures that models make.

A teacher that is always right would leave nothing for reinforcement learning to do, and would not show how feedback is
used. So the first turn fails in the ways that models fail, with known probabilities, and later turns usually, but not
always, fix what the feedback names.
"""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field, model_validator

from drkernel.config import Config
from drkernel.rl.data.teacher.problem import TeacherProblem
from drkernel.rl.data.teacher.writer import FLAWS, Flaw, Style, can_have, write_answer

Plan = Literal["fused", "partial", "lazy", "bad_mask", "compile_error", "forgotten_step", "stale"]

RIGHT: tuple[Plan, ...] = ("fused", "partial", "lazy")
"""plans that give right answers"""


class Mix(Config):
    """Weights of the plans; they need not sum to one."""

    fused: float = Field(0.35, ge=0, description="one kernel for everything, right")
    partial: float = Field(0.15, ge=0, description="PyTorch for the first operations, one kernel for the others")
    lazy: float = Field(0.25, ge=0, description="Triton for one operator, PyTorch for the rest: correct but no faster")
    bad_mask: float = Field(0.10, ge=0, description="a mask off by one, or padding that reaches a reduction")
    compile_error: float = Field(0.08, ge=0, description="a name that does not exist, a size that is no constexpr")
    forgotten_step: float = Field(0.07, ge=0, description="one operation left out")
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
        return plan, write_answer(self.problem, self.style, flaw, self.rng)

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
