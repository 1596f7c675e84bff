"""A generated problem as data: a core operation with steps before and after it.

A problem is rendered twice: as a PyTorch reference (here) and as a Triton answer (``writer.py``). Both read
the same steps, so the answer is right by construction; the judge verifies it all the same.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, Literal

from drkernel.task import Provenance, Task

Kind = Literal["pointwise", "row", "matmul"]
KINDS: tuple[Kind, ...] = ("pointwise", "row", "matmul")
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

    torch: str
    """of the running value ``{v}``"""
    triton: tuple[str, ...]
    """the running value's next values; ``{n}`` is the row length"""
    padding: str | None = None
    """value that lanes outside the row must hold before the operation; None: any"""
    reduces: bool = False
    """the result has one element a row"""
    shift_invariant: bool = False
    """adding a constant beforehand changes nothing, so such a step would have no effect"""


CORES: dict[str, CoreRule] = {
    "sum": CoreRule("{v}.sum(-1)", ("tl.sum({v}, 0)",), "0.0", reduces=True),
    "mean": CoreRule("{v}.mean(-1)", ("tl.sum({v}, 0) / {n}",), "0.0", reduces=True),
    "max": CoreRule("{v}.amax(-1)", ("tl.max({v}, 0)",), "-float('inf')", reduces=True),
    "softmax": CoreRule(
        "torch.softmax({v}, -1)",
        ("tl.exp({v} - tl.max({v}, 0))", "{v} / tl.sum({v}, 0)"),
        "-float('inf')",
        shift_invariant=True,
    ),
    "log_softmax": CoreRule(
        "torch.log_softmax({v}, -1)",
        ("{v} - tl.max({v}, 0)", "{v} - tl.log(tl.sum(tl.exp({v}), 0))"),
        "-float('inf')",
        shift_invariant=True,
    ),
    "rms": CoreRule(
        "{v} * torch.rsqrt(({v} * {v}).mean(-1, keepdim=True) + 1e-6)",
        ("{v} * tl.rsqrt(tl.sum({v} * {v}, 0) / {n} + 1e-6)",),
        "0.0",
    ),
    "l2": CoreRule(
        "{v} / torch.sqrt(({v} * {v}).sum(-1, keepdim=True) + 1e-6)",
        ("{v} / tl.sqrt(tl.sum({v} * {v}, 0) + 1e-6)",),
        "0.0",
    ),
    "center": CoreRule(
        "{v} - {v}.mean(-1, keepdim=True)", ("{v} - tl.sum({v}, 0) / {n}",), "0.0", shift_invariant=True
    ),
    "matmul": CoreRule("{v} @ w", ()),
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

    def part(self, at: int) -> tuple[str, int]:
        """Return which part holds the step at a place, and where: ``("after", 0)``."""
        early = at < len(self.before)
        return ("before", at) if early else ("after", at - len(self.before))

    def without(self, at: int) -> TeacherProblem:
        """Return the problem less the step at a place."""
        name, place = self.part(at)
        steps = getattr(self, name)
        return self.with_part(name, steps[:place] + steps[place + 1 :])

    def with_part(self, name: str, steps: tuple[Step, ...]) -> TeacherProblem:
        """Return the problem with other steps ``before`` or ``after``."""
        return replace(self, before=steps) if name == "before" else replace(self, after=steps)


# ---- The PyTorch side of a generated problem


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
    core = [CORES[problem.core]] if problem.core else []
    parts: list[Step | CoreRule] = [*problem.before, *core, *problem.after]
    lines, value = list[str](), "x"
    for number, part in enumerate(parts, 1):
        right = part.torch.format(v=value) if isinstance(part, CoreRule) else part.text("torch", value)
        lines.append(f"v{number} = {right}")
        value = f"v{number}"
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


# ---- Families of generated problems: how each is drawn, and which are held out
#
# A family is a *structure* (what kind of core, which operands, where). Held-out families use only parts that occur in
# training families, but combine them as no training family does, so solving them needs recombination. Practice has
# structures drawn at random, none of them held out.
#
# Drawing avoids what would make a task ill-posed (steps without effect, saturated results) as far as the operations
# alone show it; the admission gate, which runs every generated task, decides.


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


def _drawn_family(rng: random.Random) -> Family:
    """A structure of parts at random, at most two of them second operands; none that is held out."""
    kind = rng.choices(KINDS, (3, 5, 2))[0]
    parts = rng.randint(2 if kind == "pointwise" else 1, 4)
    slots = ["unary" if rng.random() < 0.5 else rng.choice(("same", "same", "bias", "gain")) for _ in range(parts)]
    first = {"pointwise": parts, "row": rng.randint(0, min(parts, 2)), "matmul": 0}[kind]
    cores = {"pointwise": (), "row": rng.choice((NORMS, NORMS, SOFTMAX, REDUCTIONS)), "matmul": ("matmul",)}[kind]
    if cores == REDUCTIONS:  # the result has one element a row: nothing joins it
        slots[first:] = ["unary"] * min(1, parts - first)
    family = Family("drawn", "train", kind, cores, tuple(slots[:first]), tuple(slots[first:]))
    joined = sum(slot != "unary" for slot in slots)
    return _drawn_family(rng) if joined > 2 or _structures(family) & HELD_OUT else family


def _structures(family: Family) -> frozenset[tuple[Any, ...]]:
    """A family's structures: core and parts, each of those left to chance with and without."""

    def ways(slots: tuple[str, ...]) -> list[tuple[str, ...]]:
        kinds = [((), ("unary",)) if slot == "unary*" else (("unary" if slot == "mulc" else slot,),) for slot in slots]
        return [tuple(chain.from_iterable(way)) for way in product(*kinds)]

    return frozenset((family.cores, *pair) for pair in product(ways(family.before), ways(family.after)))


HELD_OUT = frozenset().union(*(_structures(family) for family in FAMILIES.values() if family.split == "heldout"))


def family_names(split: Split) -> list[str]:
    """Return the names of the families of one split."""
    return [name for name, family in FAMILIES.items() if family.split == split]


def draw_problem(family: Family, rng: random.Random, checked: bool = True) -> TeacherProblem:
    """Draw one problem of the family; it is well-posed unless ``checked`` is off."""
    while True:
        problem = _draw(family, rng)
        if not checked or _well_posed(problem):
            return problem


def generate_problems(
    split: Split, count: int, seed: int, checked: bool = True, drawn: bool = False
) -> Iterator[TeacherProblem]:
    """Generate ``count`` distinct problems, cycling through the families; the same seed gives the same problems.

    ``checked`` runs every candidate problem to verify that each of its steps matters (a few milliseconds). Turn it off
    for texts that are never graded. ``drawn``: of structures drawn anew, none of them held out, instead of families.

    Raises ``ValueError`` when a family cannot give that many distinct problems.
    """
    rng = random.Random(f"drkernel-{split}-{seed}")
    names = family_names(split)
    seen: set[str] = set()
    for index in range(count):
        family = _drawn_family(rng) if drawn else FAMILIES[names[index % len(names)]]
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
    whole = _run(problem, inputs)
    if not bool(torch.isfinite(whole).all()):
        return False
    spread = float(whole.std())
    if spread < 1e-6 or spread < 1e-4 * float(whole.abs().mean()):
        return False
    for at in range(len(problem.steps)):
        without = _run(problem.without(at), inputs)
        changed = (without - whole).abs() > MIN_CHANGE * spread
        if without.shape == whole.shape and float(changed.double().mean()) < MIN_SHARE:
            return False
    return True


def _operand(problem: TeacherProblem, name: str, generator: Any) -> Any:
    import torch

    roles, size = dict(problem.operands), problem.tiny
    shape: tuple[int, ...]
    if problem.kind == "matmul" and name in ("x", "w"):
        shape = (size.rows, size.depth) if name == "x" else (size.depth, size.columns)
    else:
        shape = (size.columns,) if roles.get(name) == "bias" else (size.rows, size.columns)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _run(problem: TeacherProblem, inputs: dict[str, Any]) -> Any:
    import torch

    names, lines = {"torch": torch, **inputs}, statements(problem)
    exec("\n".join(lines), names)  # our own generated statements, nobody else's text
    return names[f"v{len(lines)}" if lines else "x"]
