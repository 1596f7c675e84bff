"""A generated problem as data: a core operation with steps before and after it.

A problem is rendered twice: as a PyTorch reference (``reference.py``) and as a Triton answer (``writer.py``). Both read
the same steps, so the answer is right by construction; the judge verifies it all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["pointwise", "row", "matmul"]
Role = Literal["same", "bias"]


@dataclass(frozen=True)
class StepRule:
    """One point-wise operation on the running value, in both languages.

    ``{v}`` is the running value, ``{c}`` a constant, ``{y}`` a second operand.
    """

    torch: str
    triton: str
    sign: Literal["any", "nonneg", "keep", "flip"] = "any"
    """sign of the result: unknown, never negative, unchanged, or flipped"""
    bounded: bool = False
    """the result lies in a fixed range, so that later steps cannot overflow"""
    zero_at_zero: bool = True
    """f(0) = 0: padding lanes that hold 0 still hold 0 afterwards"""
    constants: tuple[str, ...] = ()
    operand: Role | None = None


STEPS: dict[str, StepRule] = {
    "relu": StepRule("torch.relu({v})", "tl.maximum({v}, 0.0)", sign="nonneg"),
    "sigmoid": StepRule("torch.sigmoid({v})", "tl.sigmoid({v})", sign="nonneg", bounded=True, zero_at_zero=False),
    "silu": StepRule("{v} * torch.sigmoid({v})", "{v} * tl.sigmoid({v})"),
    "tanh": StepRule("torch.tanh({v})", "2.0 * tl.sigmoid(2.0 * {v}) - 1.0", sign="keep", bounded=True),
    "abs": StepRule("torch.abs({v})", "tl.abs({v})", sign="nonneg"),
    "square": StepRule("{v} * {v}", "{v} * {v}", sign="nonneg"),
    "neg": StepRule("-{v}", "-{v}", sign="flip"),
    "gauss": StepRule("torch.exp(-{v} * {v})", "tl.exp(-{v} * {v})", sign="nonneg", bounded=True, zero_at_zero=False),
    "clamp": StepRule(
        "torch.clamp({v}, -{c}, {c})",
        "tl.minimum(tl.maximum({v}, -{c}), {c})",
        sign="keep",
        bounded=True,
        constants=("1.0", "1.5", "2.0"),
    ),
    "leaky": StepRule(
        "torch.where({v} > 0, {v}, {v} * {c})",
        "tl.where({v} > 0, {v}, {v} * {c})",
        sign="keep",
        constants=("0.1", "0.2"),
    ),
    "addc": StepRule("{v} + {c}", "{v} + {c}", zero_at_zero=False, constants=("0.5", "1.0", "2.0")),
    "subc": StepRule("{v} - {c}", "{v} - {c}", zero_at_zero=False, constants=("0.5", "1.0")),
    "mulc": StepRule("{v} * {c}", "{v} * {c}", sign="keep", constants=("0.5", "0.7", "1.5", "3.0")),
    "add": StepRule("{v} + {y}", "{v} + {y}", zero_at_zero=False, operand="same"),
    "sub": StepRule("{v} - {y}", "{v} - {y}", zero_at_zero=False, operand="same"),
    "mul": StepRule("{v} * {y}", "{v} * {y}", operand="same"),
    "bias": StepRule("{v} + {y}", "{v} + {y}", zero_at_zero=False, operand="bias"),
    "gain": StepRule("{v} * {y}", "{v} * {y}", operand="bias"),
}

UNARY = tuple(name for name, rule in STEPS.items() if rule.operand is None)


@dataclass(frozen=True)
class Step:
    """One applied :class:`StepRule`."""

    op: str
    constant: str | None = None
    operand: str | None = None
    """name of the second operand, an argument of ``forward``"""

    @property
    def rule(self) -> StepRule:
        return STEPS[self.op]

    def text(self, language: Literal["torch", "triton"], value: str, operand: str | None = None) -> str:
        """Return the expression with ``value`` and ``operand`` filled in."""
        template = self.rule.torch if language == "torch" else self.rule.triton
        return template.format(v=value, c=self.constant, y=operand if operand is not None else self.operand)


@dataclass(frozen=True)
class CoreRule:
    """A row operation over the last dimension (or the matrix product)."""

    torch: tuple[str, ...]
    """statements on ``x``"""
    triton: tuple[str, ...]
    """statements on the running value ``{v}``; ``{m}`` the mask, ``{n}`` the row length"""
    padding: str | None = None
    """value that lanes outside the row must hold before the operation; None: any"""
    reduces: bool = False
    """the result has one element a row"""
    shift_invariant: bool = False
    """adding a constant beforehand changes nothing, so such a step would have no effect"""


CORES: dict[str, CoreRule] = {
    "sum": CoreRule(("x = x.sum(-1)",), ("{v} = tl.sum({v}, 0)",), "0.0", reduces=True),
    "mean": CoreRule(("x = x.mean(-1)",), ("{v} = tl.sum({v}, 0) / {n}",), "0.0", reduces=True),
    "max": CoreRule(("x = x.amax(-1)",), ("{v} = tl.max({v}, 0)",), "-float('inf')", reduces=True),
    "softmax": CoreRule(
        ("x = torch.softmax(x, -1)",),
        ("{v} = tl.exp({v} - tl.max({v}, 0))", "{v} = {v} / tl.sum({v}, 0)"),
        "-float('inf')",
        shift_invariant=True,
    ),
    "log_softmax": CoreRule(
        ("x = torch.log_softmax(x, -1)",),
        ("{v} = {v} - tl.max({v}, 0)", "{v} = {v} - tl.log(tl.sum(tl.exp({v}), 0))"),
        "-float('inf')",
        shift_invariant=True,
    ),
    "rms": CoreRule(
        ("x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)",),
        ("{v} = {v} * tl.rsqrt(tl.sum({v} * {v}, 0) / {n} + 1e-6)",),
        "0.0",
    ),
    "l2": CoreRule(
        ("x = x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-6)",),
        ("{v} = {v} / tl.sqrt(tl.sum({v} * {v}, 0) + 1e-6)",),
        "0.0",
    ),
    "center": CoreRule(
        ("x = x - x.mean(-1, keepdim=True)",),
        ("{v} = {v} - tl.sum({v}, 0) / {n}",),
        "0.0",
        shift_invariant=True,
    ),
    "matmul": CoreRule(("x = x @ w",), ()),
}


@dataclass(frozen=True)
class ProblemShape:
    """Rows and columns of the matrix that steps work on and, for a product, its depth (else 0)."""

    rows: int
    columns: int
    depth: int = 0


@dataclass(frozen=True)
class TeacherProblem:
    """One generated problem."""

    family: str
    kind: Kind
    before: tuple[Step, ...]
    core: str | None
    after: tuple[Step, ...]
    own: ProblemShape
    """the sizes that the task is about, and is timed at"""
    tiny: ProblemShape
    """the sizes that answers are compared at"""

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.before + self.after

    @property
    def operands(self) -> tuple[tuple[str, Role], ...]:
        """Second operands in the order in which ``forward`` takes them."""
        return tuple((step.operand, step.rule.operand) for step in self.steps if step.operand and step.rule.operand)

    @property
    def reduces(self) -> bool:
        """Whether the output has one element a row."""
        return self.core is not None and CORES[self.core].reduces

    @property
    def signature(self) -> str:
        """The operations in order, without constants and sizes; equal for problems of the same form."""
        names = [s.op for s in self.before] + ([self.core] if self.core else []) + [s.op for s in self.after]
        return "-".join(names)

    def with_steps(
        self, before: tuple[Step, ...] | None = None, after: tuple[Step, ...] | None = None
    ) -> TeacherProblem:
        """Return the same problem with other steps."""
        return replace(
            self, before=self.before if before is None else before, after=self.after if after is None else after
        )
