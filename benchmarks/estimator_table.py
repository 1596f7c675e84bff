"""The papers' questions about estimators, on a table: every answer graded once, then a hundred paired seeds and more.

    python benchmarks/estimator_table.py --list              the questions, what was expected, the arms
    python benchmarks/estimator_table.py ragged8 gamma       answer these: run what is missing, print a table each
    python benchmarks/estimator_table.py --write docs/results          all of them, with page and pictures

A *plan* names what goes into an answer's one kernel (all operations, a part, one: PyTorch does the others), its block
size and its warps; the program teacher writes the module. The 860 plans of 16 of its tasks, one answer for each way
to be wrong and a cheat are graded by the real judge, and again by one without checks; verdicts stay in ``--out``
(some 20 minutes, once). The question about exact verification has the same tasks with a faint term (``FAINT``), and
answers that drop it, graded by the real judge and by one that goes by tolerance alone. The policy is a table of
logits. A first answer is a plan or a mistake; a later one is an *edit* of the answer that the conversation shows
(``EDITS``), and its row of the table is what the verdict said of that answer (``SHOWN``): a fast whole kernel is a few
good edits away, and mistakes can be mended. Without ``builds`` every turn is a first answer. A conversation ends after
a turn with chance ``ends``. Credit is ``drkernel.rl.run.learner.give_credit``, the loss ``policy_loss``, on the rows of
all seeds at once; groups never mix seeds, AdamW works on single logits, and gradients are clipped by seed, so that
seeds are as independent as separate runs.

A *seed* is a start (``FIRST`` and ``LATER`` plus noise), the tasks of every step and all random numbers; the arms of
a question share them. Evaluation draws nothing: it is the exact distribution over conversations. Intervals are
bootstrapped over seeds. *Visible* is the smallest true effect that would have been seen with 80% power, 2.8 standard
errors of the paired difference. Every question has two placebo arms, 0.75 × TRLOO with the same random numbers and
with others.
"""

import asyncio
import hashlib
import random
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from drkernel.base.files import DiskCache, replacing
from drkernel.digest import module_digest, source_digest
from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import EvalRequest, EvalSettings, Pool
from drkernel.gym.reward import RewardConfig, reward
from drkernel.rl.data.problem import STEPS, Step, StepRule, TeacherProblem, generate_problems, make_task
from drkernel.rl.data.writer import BLOCKS, TILES, WARPS, Flaw, Style, can_have, write_answer
from drkernel.rl.maths.losses import clipped, policy_loss
from drkernel.rl.maths.rejection import void_turns
from drkernel.rl.run import registry
from drkernel.rl.run.learner import LearnerConfig, give_credit
from drkernel.rl.run.registry import TurnBatch
from drkernel.verdict import Verdict
from surveys import asks, markdown, parser_of, write_table

ROOT = Path(__file__).parents[1]

# ---------------------------------------------------------------------------------------------------- what is asked

FIRST = {"lazy": 0.52, "partial": 0.10, None: 0.03, "dropped": 0.03,
         "bad_mask": 0.12, "compile_error": 0.12, "wrong_step": 0.11}  # fmt: skip
"""what a first answer is before RL; launches are drawn evenly, and the cheat has the chance ``Setting.cheat``"""
FAINT = 1e-6
"""of a second input, added: far below every tolerance, and certainly not nothing"""
LATER = {"repeat": 0.36, "deeper": 0.07, "shallower": 0.05, "wider": 0.07, "narrower": 0.07, "more warps": 0.07,
         "fewer warps": 0.07, "bad_mask": 0.08, "compile_error": 0.08, "wrong_step": 0.08}  # fmt: skip
"""what a later answer does with the one that is shown"""
NOISE = 0.25
"""deviation of the logits of starts"""
FLAWS: tuple[Flaw, ...] = ("bad_mask", "compile_error", "wrong_step", "stale")
EDITS = ("repeat", "deeper", "shallower", "wider", "narrower", "more warps", "fewer warps", *FLAWS)
SHOWN = ("wrong", "cheat", "lazy", "partial", "partial, 1.2x", "whole", "whole, 1.2x")
Depth = Flaw | Literal["dropped"] | None
DEPTHS: tuple[Depth, ...] = ("dropped", None, "partial", "lazy")
"""how much of a problem an answer puts into its kernel; ``dropped``: all but the faint term, where there is one"""
TASKS = 16
SETTINGS = EvalSettings(
    device="sim:h200", profile=None, checked_bytes=1 << 20, checked_flops=1e7, checks=2, deadline_s=60, seed=0,
    other_calls=False,
)  # fmt: skip
WEIGHTED = {"correct_weight": 1.0, "speedup_weight": 1.0, "coverage_weight": 1.0}
"""the paper's reward (Eq. 8)"""


# fmt: off
@dataclass(frozen=True)
class Setting:
    """One arm, as data; the defaults are what the arms of a question have in common if they say nothing else."""

    learner: dict[str, Any] = field(default_factory=dict)  # keys of LearnerConfig
    reward: dict[str, Any] = field(default_factory=lambda: WEIGHTED)
    turns: int = 3
    tasks: int = 8
    samples: int = 8
    ends: float = 0.1
    builds: bool = True
    context: str = "last"  # what the conversation shows: the last answer, or the "best" so far
    lazy: tuple[float, float] = (0.0, 99.0)  # lazy plans of other speedups do not exist, nor do tasks without one
    naive: bool = False  # the judge that trains has no checks; with a faint term: knows no exact verification
    faint: bool = False  # the tasks end in a faint term, which answers may drop
    cheat: float = 0.0
    behind: int = 0  # steps that the sampler's table is old
    refill: int = 0  # rounds in which dropped prompts are replaced; needs the rejection "uninformative"
    steps: int = 60
    every: int = 10
    lr: float = 0.1
    other: int = 0  # which random numbers
    looks: int = 3  # turns of the evaluation


def advantage(name: str, **options: Any) -> dict[str, Any]:
    return {"advantage": {"name": name, "options": options}}


def family(**changes: Any) -> dict[str, dict[str, Any]]:
    """TRLOO, the paper's GRPO, and GRPO with a deviation."""
    names = {"TRLOO": "trloo", "GRPO (paper)": "grpo", "GRPO with std": "grpo_std"}
    return {text: {**changes, **advantage(name)} for text, name in names.items()}


@dataclass(frozen=True)
class Question:
    """A question with its hypothesis, written down before it was run."""

    title: str
    claim: str
    arms: dict[str, dict[str, Any]]
    """keys of :class:`Setting` and of :class:`LearnerConfig`; the others are compared with the first"""
    common: dict[str, Any] = field(default_factory=dict)
    shown: tuple[str, ...] = ("fast_1.2@3", "right@3")
    """metric@turn"""
    drawn: tuple[str, ...] = ("fast_1.2@3",)
    laziness: bool = False
    """whether it asks about lazy answers; refused where these pay less than nothing"""

    def settings(self) -> dict[str, Setting]:
        """Every arm, placebos included."""
        null = {**next(iter(self.arms.values())), "advantage": {"name": "placebo"}}
        arms = {**self.arms, "placebo": null, "placebo, other draws": {**null, "other": 1}}
        return {name: self.setting(changes) for name, changes in arms.items()}

    def setting(self, changes: dict[str, Any]) -> Setting:
        both = {**self.common, **changes}
        own = {key: both.pop(key) for key in list(both) if key in Setting.__dataclass_fields__}
        return Setting(learner=both, **own)


TURNS = ("fast_1.2@1", "fast_1.2@2", "fast_1.2@3")
VOID, FILTER, TEMPTING = {"mask_void_turns": True}, {"rejection": ["uninformative"]}, (0.99, 1.1)
LONG = {"steps": 400, "every": 40}
SOFT, HARD = {"rejection": [{"name": "prs"}]}, {"rejection": [{"name": "prs", "options": {"width": 0.0}}]}
NO_PR = {"reward": {**WEIGHTED, "coverage_weight": 0.0}}
GAMMA: dict[str, dict[str, Any]] = {"γ = 1": {}, "γ = 0": advantage("trloo", gamma=0.0)}
LENGTHS = {f", MRS, {n} tokens": [{"name": "mrs", "options": {"bounds": [0.999**n, 1.001**n]}}] for n in (1, 512)}
"""MRS of an answer of so many tokens of which one decides and the others have a ratio of 1"""
OLD = {f"{k} behind{text}": {"behind": k, "mismatch": rule} for k in (1, 2)
       for text, rule in {"": [], ", token weights": ["tis_token"], **LENGTHS}.items()}

QUESTIONS: dict[str, Question] = {
    "equal": Question(
        "TRLOO against the paper's GRPO, equal groups",
        "the two differ by one constant, which AdamW cancels: no difference at all; RLOO is the control that differs",
        family(ends=0.0) | {"RLOO": {"ends": 0.0, **advantage("rloo")}}, shown=(*TURNS, "right@3")),
    **{f"ragged{n}": Question(
        f"TRLOO against the paper's GRPO, groups made ragged by void turns and early ends, N = {n}",
        "the paper: GRPO damps turns with few valid members, TRLOO wins (Fig. 4)",
        family(**VOID), {"samples": n, "tasks": 64 // n}, (*TURNS, "right@3"), TURNS) for n in (4, 8, 16)},
    "filter": Question(
        "Dropping prompts that teach nothing, and refilling the batch",
        "the released recipe drops prompts whose last rewards are equal and refills from further ones",
        {"all prompts": {}, "dropped": FILTER, "dropped and refilled": {"refill": 3, **FILTER}}, {"tasks": 4, **VOID}),
    "filter_coarse": Question(
        "The same where rewards are coarse (milestones) and groups small", "more groups are equal, and dropped",
        {"all prompts": {}, "dropped": FILTER, "dropped and refilled": {"refill": 2, **FILTER}},
        {"tasks": 4, "samples": 4, "reward": {"name": "milestones"}, **VOID}),
    "alone": Question(
        "A row alone in its group: its return, or 0",
        "its return (the code) is unbiased; 0 has less variance",
        {"return": advantage("trloo"), "zero": advantage("trloo", alone="zero")},
        {"samples": 4, "tasks": 16, "ends": 0.3, **VOID}),
    "void": Question(
        "The void rule at equal steps",
        "a biased rule that spares later turns the failures of exploring",
        {"counted": {}, "void": VOID, "GRPO (paper), void": {**VOID, **advantage("grpo")}},
        shown=("fast_1.2@3", "right@3", "best_1.2@3")),
    "void_long": Question(
        "The void rule to convergence", "what the rule gains is speed: in the end both are level",
        {"counted": {}, "void": VOID}, LONG, ("fast_1.2@3", "right@3", "best_1.2@3")),
    **{key: Question(
        f"γ = 1, γ = 0 and single turns at equal graded turns, where later turns {text}",
        "the paper (Fig. 4): γ = 0 loses at turn 1, single-turn training at every later turn",
        {**GAMMA, "single turn": {"turns": 1, "samples": 24}}, {"builds": builds}, (*TURNS, "best_1.2@3"), TURNS)
        for key, builds, text in (("gamma", True, "build on earlier ones"), ("gamma_fresh", False, "do not"))},
    "gamma_long": Question(
        "γ = 1 and γ = 0 to convergence",
        "whatever γ = 0 gains by its smaller variance, its objective forgets what a first answer is good for",
        GAMMA, LONG, (*TURNS, "best_1.2@3"), TURNS),
    "lazy": Question(
        "PR and PRS, where laziness pays",
        "the paper (Fig. 5): PR and PRS lift fast_1.2 out of lazy kernels",
        {"PR": {}, "no PR": NO_PR, "PR, PRS soft": SOFT, "no PR, PRS soft": {**NO_PR, **SOFT}},
        {"lazy": TEMPTING, **VOID}, ("fast_1.2@3", "coverage@3", "lazy@3", "right@3"), ("fast_1.2@3", "coverage@3"),
        laziness=True),
    "hard": Question(
        "PRS with a hard threshold", "the paper (App. D): worse than the soft one, better than none",
        {"PRS soft": SOFT, "PRS hard": HARD, "no PRS": {}}, {"lazy": TEMPTING, **VOID},
        ("fast_1.2@3", "coverage@3", "lazy@3", "right@3"), laziness=True),
    "best": Question(
        "Returns by the best of the history against sums", "sums pay for a lazy answer in every turn that repeats it",
        {"sums": {}, "best": advantage("trloo_best")}, {"lazy": TEMPTING}, ("fast_1.2@3", "best_1.2@3", "right@3"),
        ("fast_1.2@3", "best_1.2@3"), laziness=True),
    "rewards": Question(
        "Rewards: the paper's, log-speedup, milestones, clipped from below", "none of the papers compares them",
        {"weighted": {}, "log-speedup": {"reward": {**WEIGHTED, "name": "log_speedup"}},
         "milestones": {"reward": {"name": "milestones"}}, "ladder": {"reward": {"name": "ladder"}},
         "nothing below 1x": {"reward": {**WEIGHTED, "speedup_min": 1.0}}},
        shown=("fast_1.2@3", "fast_2@3", "right@3")),
    "hacking": Question(
        "Cheats: condemned share with and without the check, from a start of 20%",
        "the paper: App. C, 20% to 3% in training; Fig. 2, without the check it saturates",
        {"check": {}, "no check": {"naive": True}}, {"cheat": 0.2, **VOID}, ("condemned@3", "fast_1.2@3", "right@3"),
        ("condemned@3", "fast_1.2@3")),
    "exact": Question(
        f"Exact verification against a tolerance, where answers may drop a term of {FAINT:g}",
        "paid by a tolerance a policy learns to drop what it cannot see; exact verification pays no speed for that",
        {"exact": {}, "tolerance": {"naive": True}}, {"faint": True, **VOID}, ("dropped@3", "fast_1.2@3", "right@3"),
        ("dropped@3", "fast_1.2@3")),
    "stts": Question(
        "Test-time scaling: 14 turns of a policy trained on four",
        "the paper: the last of 14 turns with the best four shown beats the third by 6 points, the best of 14 by 22",
        {"shown the last": {"context": "last"}, "shown the best": {"context": "best"}, "afresh": {"builds": False}},
        {"turns": 4, "looks": 14, "every": 60, **VOID}, ("fast_1.2@3", "fast_1.2@14", "best_1.2@14", "right@14"),
        ("fast_1.2 by turn", "best_1.2 by turn")),
    "otb": Question(
        "The optimal token baseline with N = 4 against a mean over N = 32, at equal graded turns",
        "its paper: OTB with N = 4 trains like a group mean with N = 32",
        {"TRLOO, N = 4": advantage("trloo"), "mean, N = 4": advantage("grpo"),
         "mean, N = 32": {"samples": 32, "tasks": 2, **advantage("grpo")}, "OTB as published": advantage("otb"),
         "OTB, leave-one-out": advantage("otb_loo"), "OTB, uniform weights": advantage("otb", energy="uniform")},
        {"samples": 4, "tasks": 16}),
    "behind": Question(
        "A sampler one and two steps behind", "the paper samples one step behind, guarded by MRS",
        {"on policy": {}, **OLD}, VOID),
}
# fmt: on

# ---------------------------------------------------------------------------------------------------- the table


@registry.advantage.register("placebo")
def placebo(batch: TurnBatch, **options: Any) -> Tensor:
    """0.75 × TRLOO: a constant, which an optimiser that knows no scale does not notice."""
    return 0.75 * registry.advantage.get("trloo")(batch, **options)


_ADDED = f"{{v}} + {FAINT} * {{y}}"
FAINT_STEPS = {
    "faint": StepRule(_ADDED, _ADDED, zero_at_zero=False, operand="same"),
    "dropped": StepRule("{v}", "{v}", zero_at_zero=False, operand="same"),
}
"""not among the library's steps, each of which matters"""


def with_faint(problem: TeacherProblem) -> TeacherProblem:
    """The problem with the faint term of one more input: the last step before a core that reduces, else of all."""
    name = "before" if problem.reduces or problem.kind == "pointwise" else "after"
    return problem.with_part(name, (*getattr(problem, name), Step("faint", operand="t")))


class Plan(NamedTuple):
    """An answer: how much is in the kernel, or its flaw, and its launch (size None: a row)."""

    depth: Depth
    size: int | None
    warps: int


def written(problem: TeacherProblem, style: Style, depth: Depth) -> str:
    """An answer of that depth, or with that flaw."""
    if depth != "dropped":
        return write_answer(problem, style, depth, random.Random(0))
    for name in ("before", "after"):
        steps = (replace(s, op=s.op.replace("faint", "dropped")) for s in getattr(problem, name))
        problem = problem.with_part(name, tuple(steps))
    return write_answer(problem, style, None)


def in_block(problem: TeacherProblem, depth: Depth) -> str:
    """What decides the block size of such an answer: a ``tile``, a ``row``, or a ``block`` of elements."""
    source = written(problem, Style(block=7, tile=5), depth)
    launch = re.search(r"\bB=(\d+|triton\.next_power_of_2\(n\)), num_warps=", source)
    assert launch is not None, "every answer has a launch"
    return {"7": "block", "5": "tile"}.get(launch[1], "row")


def plans_of(problem: TeacherProblem) -> list[Plan]:
    """All plans of a task."""
    faint = any(step.op == "faint" for step in problem.steps)
    depths: list[Depth] = ["dropped", None] if faint else [None]
    depths += [flaw for flaw in ("partial", "lazy") if can_have(problem, flaw) and not (faint and flaw == "partial")]
    sizes: dict[str, Sequence[int | None]] = {"row": (None,), "block": BLOCKS, "tile": TILES}
    return [Plan(d, size, warps) for d in depths for size in sizes[in_block(problem, d)] for warps in WARPS]


def source_of(problem: TeacherProblem, plan: Plan) -> str:
    """The module of a plan, or of a flaw where that is the depth."""
    style = Style(warps=plan.warps)
    if plan.size is not None:
        style = replace(style, **{in_block(problem, plan.depth): plan.size})  # type: ignore[arg-type]
    return written(problem, style, plan.depth)


Verdicts = list[dict[tuple[Plan, bool], Verdict]]
"""of every answer of every task, by both judges (True: the one without checks, or without exact verification)"""


class KeptPool:
    """A pool that grades an answer once, whoever asks; verdicts stay in a folder, by what the judge is made of."""

    def __init__(self, pool: Pool, store: Path):
        store.mkdir(parents=True, exist_ok=True)
        self.pool, self.kept, self.code = pool, DiskCache(store), source_digest("gym", "sim", "tasks")
        self.health, self.close = pool.health, pool.close

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """The kept verdict, or a new one; that of a grader's failure is not kept."""
        if (text := self.kept.get(self.code, request.key)) is not None:
            return Verdict.model_validate_json(text)
        verdict = await self.pool.evaluate(request)
        if verdict.status != "infra_error":
            self.kept.put(verdict.model_dump_json().encode(), self.code, request.key)
        return verdict


@cache
def graded(store: Path, faint: bool = False) -> Verdicts:
    """Grade all answers, or read their verdicts."""
    judges = {
        False: SETTINGS,
        True: SETTINGS.model_copy(update={"exact": 0.0} if faint else {"unsafe_no_checks": True}),
    }

    async def everything() -> Verdicts:
        found: Verdicts = []
        pool = KeptPool(LocalPool(), store)
        for drawn in generate_problems("train", TASKS, 0):
            problem = with_faint(drawn) if faint else drawn
            # a step done wrong may be the faint one, which is no mistake that a tolerance sees
            flaws = [flaw for flaw in FLAWS if can_have(problem, flaw) and not (faint and flaw == "wrong_step")]
            task = make_task(problem)
            keys = [(p, naive) for p in plans_of(problem) + [Plan(flaw, None, 4) for flaw in flaws] for naive in judges]
            asked = [EvalRequest(task=task, candidate=source_of(problem, p), settings=judges[n]) for p, n in keys]
            found.append(dict(zip(keys, await asyncio.gather(*map(pool.evaluate, asked)), strict=True)))
        await pool.close()
        return found

    with patch.dict(STEPS, FAINT_STEPS if faint else {}):
        return asyncio.run(everything())


def edited(plans: list[Plan], plan: Plan, edit: str) -> Plan:
    """The plan that an edit makes of another; the same where there is nothing further that way."""
    depths = [depth for depth in reversed(DEPTHS) if any(p.depth == depth for p in plans)]
    place = depths.index(plan.depth) + {"deeper": 1, "shallower": -1}.get(edit, 0)
    depth = depths[min(max(place, 0), len(depths) - 1)]
    sizes = sorted({p.size for p in plans if p.depth == depth}, key=lambda size: size or 0)
    size = plan.size if plan.size in sizes else 256 if 256 in sizes else sizes[0]
    step = {"wider": 1, "narrower": -1}.get(edit, 0)
    size = sizes[min(max(sizes.index(size) + step, 0), len(sizes) - 1)]
    warps = WARPS.index(plan.warps) + {"more warps": 1, "fewer warps": -1}.get(edit, 0)
    found = Plan(depth, size, WARPS[min(max(warps, 0), len(WARPS) - 1)])
    near = [p for p in plans if p.depth == depth]
    return found if found in near else min(near, key=lambda p: p.warps != found.warps)


class World:
    """The environment as tensors: K tasks, Z answers, A first answers, C kinds of shown answers, E edits."""

    def __init__(self, verdicts: Verdicts, setting: Setting):
        lists = [self._plans(found, setting.lazy) for found in verdicts]
        if setting.lazy != Setting.lazy:
            tempting = [k for k, plans in enumerate(lists) if any(plan.depth == "lazy" for plan in plans)]
            if len(tempting) < (drawn := setting.tasks * (1 + setting.refill)):
                raise ValueError(f"{len(tempting)} tasks have lazy plans of {setting.lazy} times, a step draws {drawn}")
            verdicts, lists = [verdicts[k] for k in tempting], [lists[k] for k in tempting]
        most, width = max(map(len, lists)), 1 + len(FLAWS)
        shape = len(lists), width * most
        self.rewards, self.speed, self.cover, self.right = (torch.zeros(shape) for _ in range(4))
        """of the judge that trains: reward, its part for speed, speedup, counted coverage, correct"""
        self.facts = torch.zeros(len(FACTS), *shape)
        """of the judge with checks"""
        self.kind = torch.zeros(2, *shape, dtype=torch.int64)
        """the row of ``SHOWN``, for the judge with checks and for the one that trains"""
        self.next = torch.zeros(*shape, len(EDITS), dtype=torch.int64)
        self.first = torch.zeros(len(lists), most + len(FLAWS), dtype=torch.int64)
        self.start_first = torch.full(self.first.shape, -torch.inf)
        self.start_later = torch.full((len(lists), len(SHOWN), len(EDITS)), -torch.inf)
        for k, (found, plans) in enumerate(zip(verdicts, lists, strict=True)):
            depths = [plan.depth for plan in plans]
            for number, plan in enumerate(plans):
                spare = FIRST["partial"] if plan.depth == "lazy" and "partial" not in depths else 0
                self.first[k, number] = number * width
                self.start_first[k, number] = np.log((FIRST[plan.depth] + spare) / depths.count(plan.depth))
                made = [plans.index(edited(plans, plan, edit)) * width for edit in EDITS]
                for f, flaw in enumerate((None, *FLAWS)):
                    answer, z = plan if flaw is None else Plan(flaw, None, 4), number * width + f
                    if (answer, False) in found:
                        self._fill(k, z, [found[answer, False], found[answer, setting.naive]], answer, setting.reward)
                    flaws = [FLAWS.index(edit) + 1 if edit in FLAWS else f if edit == "repeat" else 0 for edit in EDITS]
                    self.next[k, z] = torch.tensor(made) + torch.tensor(flaws)
            for e, edit in enumerate(EDITS):
                chance = setting.cheat if edit == "stale" else LATER[edit]
                if edit not in FLAWS or ((Plan(edit, None, 4), False) in found and chance > 0):
                    self.start_later[k, :, e] = np.log(chance)
                    if edit in FLAWS:
                        f = FLAWS.index(edit)
                        self.first[k, len(plans) + f] = f + 1
                        self.start_first[k, len(plans) + f] = np.log(FIRST.get(edit, chance))

    @staticmethod
    def _plans(found: dict[tuple[Plan, bool], Verdict], bounds: tuple[float, float]) -> list[Plan]:
        plans = [plan for plan, naive in found if not naive and plan.depth not in FLAWS]
        lazy = {p: speedup.value for p in plans if p.depth == "lazy" and (speedup := found[p, False].speedup)}
        return [p for p in plans if p.depth != "lazy" or (p in lazy and bounds[0] <= lazy[p] <= bounds[1])]

    def _fill(self, k: int, z: int, verdicts: list[Verdict], answer: Plan, terms: dict[str, Any]) -> None:
        for judge, verdict in enumerate(verdicts):
            right, speed = verdict.status == "correct", verdict.speedup.value if verdict.speedup else 0.0
            depth = answer.depth if answer.depth in ("partial", "lazy") else "whole"
            kind = depth + ", 1.2x" * (speed >= 1.2 and depth != "lazy") if right else "wrong"
            self.kind[judge, k, z] = SHOWN.index("cheat" if verdict.status == "hack" else kind)
            given = reward(verdict, RewardConfig.model_validate(terms))
            assert given.total is not None, "the judge failed on an answer of the table"
            cover = given.counted_coverage or 0.0
            if judge == 0:
                facts = [right, *(right and speed >= p for p in (1.0, 1.2, 2.0)), verdict.status == "hack"]
                kinds = [right and depth == "lazy", answer.depth == "dropped", right * cover]
                self.facts[:, k, z] = torch.tensor([*facts, *kinds])
            else:
                parts = (self.rewards, self.speed, self.cover, self.right)
                for part, number in zip(parts, (given.total, speed, cover, right), strict=True):
                    part[k, z] = number


FACTS = ("right", "fast_1", "fast_1.2", "fast_2", "condemned", "lazy", "dropped", "coverage")


def what_pays(verdicts: Verdicts, bounds: tuple[float, float] = (0.0, 99.0), judge: bool = False) -> tuple[str, float]:
    """A Markdown table of what answers gain by how much is in the kernel, and the mean speedup of lazy ones."""
    lines = ["| in the kernel | answers | right | speedup, mean | 1.2x or more | coverage |", "|---" * 6 + "|"]
    lazy = 0.0
    for depth in (None, "dropped", "partial", "lazy", *FLAWS):
        every = [v for one in verdicts for (p, naive), v in one.items() if p.depth == depth and naive == judge]
        if not every:
            continue
        right = [(v.speedup.value, v.coverage or 0.0) for v in every if v.status == "correct" and v.speedup]
        if depth == "lazy":
            right = [pair for pair in right if bounds[0] <= pair[0] <= bounds[1]]
            lazy = float(np.mean([speed for speed, _ in right]))
        line = [depth or "whole", str(len(every)), str(len(right)), "", "", ""]
        if right:
            speed, cover = np.array(right).T
            line[3:] = [f"{speed.mean():.2f}", f"{(speed >= 1.2).mean():.0%}", f"{cover.mean():.2f}"]
        lines.append("| " + " | ".join(line) + " |")
    return "\n".join(lines), lazy


def pays(store: Path) -> str:
    """What pays: without the faint term, with it, and with it where a tolerance decides."""
    faint = graded(store, faint=True)
    heads = "With a last term `+ 1e-6 * t`, which `dropped` answers leave out:", "The same, by tolerance alone:"
    tables = what_pays(faint)[0], what_pays(faint, judge=True)[0]
    return "\n\n".join([what_pays(graded(store))[0], heads[0], tables[0], heads[1], tables[1]])


# ---------------------------------------------------------------------------------------------------- training


class Policy:
    """The tables of S seeds."""

    def __init__(self, world: World, seeds: int, block: int):
        g = torch.Generator().manual_seed(block)
        starts = (world.start_first, world.start_later)
        self.tables = [(s + NOISE * torch.randn(seeds, *s.shape, generator=g)).requires_grad_() for s in starts]
        self.world, self.seeds = world, seeds

    def logprobs(self) -> Tensor:
        """Log-probabilities of all logits in one row, those of first answers before those of edits."""
        return torch.cat([table.log_softmax(-1).reshape(-1) for table in self.tables])

    def squares(self) -> Tensor:
        """Σπ² of the row of every logit, as :meth:`logprobs`."""
        parts = [table.softmax(-1).square().sum(-1, keepdim=True).expand_as(table) for table in self.tables]
        return torch.cat([part.reshape(-1) for part in parts])

    @torch.no_grad()
    def play(self, logprobs: Tensor, tasks_SP: Tensor, draws_SPNT: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
        """Sample conversations by given uniform numbers: answers, and the place of each one's logit, [S, P, N, T]."""
        world, (s, p, n, turns) = self.world, draws_SPNT.shape
        first, later = self.tables
        cut, shape = first.numel(), (s, p, n)
        cdfs = [logprobs[:cut].exp().reshape(first.shape), logprobs[cut:].exp().reshape(later.shape)]
        cdfs = [cdf.cumsum(-1).flatten(0, -2) for cdf in cdfs]
        task = tasks_SP[..., None].expand(shape)
        row = torch.arange(s)[:, None, None] * len(world.rewards) + task
        cells, answers, shown = [], [], None
        for turn in range(turns):
            afresh = shown is None or not setting.builds
            place = row if afresh else row * len(SHOWN) + world.kind[1][task, shown]
            cdf = cdfs[0 if afresh else 1][place]
            draw = draws_SPNT[..., turn, None] * cdf[..., -1:]
            action = torch.searchsorted(cdf, draw, right=True)[..., 0].clamp_max(cdf.shape[-1] - 1)
            cells.append((0 if afresh else cut) + place * cdf.shape[-1] + action)
            answer = world.first[task, action] if afresh else world.next[task, shown, action]
            answers.append(answer)
            if shown is not None and setting.context == "best":
                answer = torch.where(world.rewards[task, answer] >= world.rewards[task, shown], answer, shown)
            shown = answer
        return torch.stack(answers, -1), torch.stack(cells, -1)

    @torch.no_grad()
    def look(self, setting: Setting) -> dict[str, Tensor]:
        """Exact figures of conversations of ``setting.looks`` turns with the judge that checks, each [turns, seeds]."""
        world, tasks = self.world, len(self.world.rewards)
        first, later = (table.softmax(-1) for table in self.tables)
        slow_KZ = 1.0 - world.facts[FACTS.index("fast_1.2")]
        zeros = torch.zeros(self.seeds, *world.rewards.shape)
        start = zeros.scatter_add(2, world.first.expand(self.seeds, -1, -1), first)
        following = world.next.flatten(1)
        gains = world.rewards.gather(1, following) >= world.rewards.repeat_interleave(len(EDITS), 1)
        here = torch.arange(world.rewards.shape[1]).repeat_interleave(len(EDITS))
        shown = torch.where(gains, following, here) if setting.context == "best" else following
        shown, answered = (part.expand(self.seeds, -1, -1) for part in (shown, following))
        chosen = later.gather(2, world.kind[0][None, :, :, None].expand(self.seeds, -1, -1, len(EDITS)))
        state, slow, rows, never = start, start * slow_KZ, [], []
        for turn in range(setting.looks):
            answers = start
            if turn and setting.builds:
                moves, slow_moves = ((part[..., None] * chosen).flatten(2) for part in (state, slow))
                answers, state = zeros.scatter_add(2, answered, moves), zeros.scatter_add(2, shown, moves)
                slow = zeros.scatter_add(2, shown, slow_moves * slow_KZ.gather(1, following))
            elif turn:
                slow = start * slow_KZ * slow.sum(2, keepdim=True)
            rows.append(torch.einsum("skz,mkz->ms", answers, world.facts) / tasks)
            never.append(slow.sum((1, 2)) / tasks)
        found = dict(zip(FACTS, torch.stack(rows, 1), strict=True))
        found["coverage"] = found["coverage"] / found["right"].clamp_min(1e-9)
        return {**found, "best_1.2": 1 - torch.stack(never)}


def rows_of(world: World, tasks_SP: Tensor, answers_SPNT: Tensor, use_SPNT: Tensor) -> TurnBatch:
    """The turns in use as a batch, still without log-probabilities."""
    s, p, n, t = use_SPNT.nonzero(as_tuple=True)
    task, answer = tasks_SP[s, p], answers_SPNT[use_SPNT]
    prompt = s * use_SPNT.shape[1] + p
    reward_B, cover_B, speed_B = (part[task, answer] for part in (world.rewards, world.cover, world.speed))
    yes_B = torch.ones(len(s), dtype=torch.bool)
    rows = (reward_B, prompt, prompt * use_SPNT.shape[2] + n, t, yes_B, None, world.right[task, answer].bool(), cover_B)
    return TurnBatch(*rows, speedup_B=speed_B, overlong_B=~yes_B)


def refilled(batch: TurnBatch, seeds: int, setting: Setting) -> tuple[Tensor, Tensor]:
    """Of the prompts drawn, [seeds, prompts]: those that were sampled, round by round, and those that train."""
    drawn = setting.tasks * (1 + setting.refill)
    void = void_turns(batch.rewards_B, batch.trajectory_B, batch.turn_B, batch.valid_B)
    counted = ~void if setting.learner.get("mask_void_turns") else batch.valid_B
    dropped = registry.uninformative_prompts(replace(batch, valid_B=counted))
    good = torch.ones(seeds * drawn, dtype=torch.bool)
    good[torch.tensor(sorted(dropped), dtype=torch.int64)] = False
    have = good.reshape(seeds, drawn).int().cumsum(1)
    before = torch.cat([torch.zeros(seeds, 1), have[:, setting.tasks - 1 : -1 : setting.tasks]], 1)
    kept = good.reshape(seeds, drawn) & (have <= setting.tasks)
    return (before < setting.tasks).repeat_interleave(setting.tasks, 1), kept


def train(world: World, setting: Setting, seeds: int, block: int) -> dict[str, np.ndarray[Any, Any]]:
    """Train the seeds of a block; figures over steps and turns, [looks, turns, seeds], and totals, [seeds]."""
    policy = Policy(world, seeds, block)
    learner = LearnerConfig.model_validate({"mismatch": [], **setting.learner})
    optimizer = torch.optim.AdamW(policy.tables, lr=setting.lr, weight_decay=0.0)
    drawn = setting.tasks * (1 + setting.refill)
    old: deque[Tensor] = deque(maxlen=setting.behind + 1)
    looks = [policy.look(setting)]
    graded_turns = turns = trained = 0.0
    for step in range(setting.steps):
        g = torch.Generator().manual_seed(1_000_003 * (1 + block + 10_000 * setting.other) + step)
        tasks = torch.rand(seeds, len(world.rewards), generator=g).argsort(1)[:, :drawn]
        shape = (seeds, drawn, setting.samples, setting.turns)
        draws, stays = torch.rand(shape, generator=g), torch.rand(shape, generator=g) >= setting.ends
        logprobs = policy.logprobs()
        old.append(logprobs.detach())
        answers, cells = policy.play(old[0], tasks, draws, setting)
        use = torch.cat([torch.ones_like(stays[..., :1]), stays[..., :-1]], -1).int().cumprod(-1).bool()
        if setting.refill:
            sampled, kept = refilled(rows_of(world, tasks, answers, use), seeds, setting)
            graded_turns += float((use & sampled[..., None, None]).sum())
            use = use & kept[..., None, None]
        else:
            graded_turns += float(use.sum())
        cell_B1 = cells[use][:, None]
        new_B1 = logprobs[cell_B1]
        now_B1, square_B1 = new_B1.detach(), policy.squares().detach()[cell_B1]
        batch = rows_of(world, tasks, answers, use)
        batch = replace(batch, logprobs_BT=now_B1, sum_pi_squared_BT=square_B1, mask_BT=torch.ones_like(now_B1).bool())
        credit = give_credit(batch, old[0][cell_B1], learner, step)
        scale = float(setting.tasks * setting.samples * setting.turns)
        given = (credit.advantages_BT.float(), credit.mask_BT)
        loss = policy_loss(
            new_B1, now_B1, *given, kind=clipped, total=scale, weights_BT=credit.mismatch.weights_BT
        ).loss
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        grads = [table.grad for table in policy.tables if table.grad is not None]
        norm = torch.stack([grad.flatten(1).square().sum(1) for grad in grads]).sum(0).sqrt()
        for grad in grads:
            grad *= (learner.clip / norm.clamp_min(learner.clip)).reshape(-1, *[1] * (grad.dim() - 1))
        optimizer.step()
        turns, trained = turns + len(cell_B1), trained + float(credit.mask_BT.sum())
        if (step + 1) % setting.every == 0:
            looks.append(policy.look(setting))
    found = {name: torch.stack([look[name] for look in looks]).numpy() for name in looks[0]}
    totals = {"graded turns": graded_turns / seeds, "out of the loss": 1 - trained / max(1.0, turns)}
    return found | {name: np.full(seeds, number) for name, number in totals.items()}


# ---------------------------------------------------------------------------------------------------- parts and pages

SEEDS = 128
"""of an arm"""
Figures = dict[str, np.ndarray[Any, Any]]


def rules_digest() -> str:
    """Of the mathematics that training goes by."""
    rules = ("advantages", "otb", "rejection", "mismatch", "losses")
    return repr([module_digest(f"drkernel.rl.maths.{name}") for name in rules])


def part_file(out: Path, setting: Setting) -> Path:
    """Where a part lies: named by all that decides it."""
    judge = source_digest("gym", "sim", "tasks")
    key = repr((setting, FIRST, LATER, NOISE, FAINT, rules_digest(), judge)).encode()
    return out / "parts" / f"{hashlib.sha256(key).hexdigest()[:20]}.npz"


def run_parts(out: Path, keys: Sequence[str]) -> None:
    """Run what is missing of the questions."""
    settings = [setting for key in keys for setting in QUESTIONS[key].settings().values()]
    todo = {part_file(out, setting): setting for setting in settings}
    for number, (path, setting) in enumerate(todo.items(), 1):
        if path.exists():
            continue
        found = train(World(graded(out / "verdicts", setting.faint), setting), setting, SEEDS, 0)
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **found)  # type: ignore[arg-type]
        print(f"{number}/{len(todo)} {path.name} fast_1.2 {100 * found['fast_1.2'][-1, -1].mean():.1f}", flush=True)


def collect(out: Path, key: str) -> dict[str, Figures]:
    """The figures of every arm of a question."""
    return {name: dict(np.load(part_file(out, setting))) for name, setting in QUESTIONS[key].settings().items()}


def interval(values: np.ndarray[Any, Any]) -> tuple[float, float, float, float]:
    """Mean, 95% bootstrap interval over seeds, and the smallest mean that would be seen to differ from 0."""
    means = values[np.random.default_rng(0).integers(len(values), size=(2000, len(values)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(values.mean()), float(low), float(high), float(2.8 * values.std(ddof=1) / len(values) ** 0.5)


HEAD = ["question", "arm", "figure", "value", "difference from the first arm", "low", "high", "visible", "graded turns",
        "out of the loss"]  # fmt: skip


def table(key: str, found: dict[str, Figures]) -> list[list[str]]:
    """A question's arms against its first, a row a figure, below those before RL."""
    first = next(iter(found))

    def value(figures: Figures, metric: str, look: int = -1) -> np.ndarray[Any, Any]:
        name, _, turn = metric.partition("@")
        return 100 * figures[name][look, int(turn) - 1]

    shown = QUESTIONS[key].shown
    rows = [[key, "before RL", m, f"{value(found[first], m, 0).mean():.1f}", *[""] * 6] for m in shown]
    for name, figures in found.items():
        turns, lost = f"{figures['graded turns'].mean():.0f}", f"{figures['out of the loss'].mean():.0%}"
        for metric in shown:
            one = value(figures, metric)
            mean, low, high, least = interval(one - value(found[first], metric))
            against = [f"{mean:+.1f}", f"{low:+.1f}", f"{high:+.1f}", f"{least:.1f}"] if name != first else [""] * 4
            rows.append([key, name, metric, f"{one.mean():.1f}", *against, turns, lost])
    return rows


def curve(axes: Any, steps: Sequence[int], rows: np.ndarray[Any, Any], label: str) -> None:
    """Mean and 95% interval over seeds, of [steps, seeds]."""
    mean, half = rows.mean(1), 1.96 * rows.std(1) / rows.shape[1] ** 0.5
    (line,) = axes.plot(steps, mean, label=label, ls=":" if "placebo" in label else "-")
    axes.fill_between(steps, mean - half, mean + half, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.grid(alpha=0.3)


def plot(path: Path, key: str, found: dict[str, Figures]) -> None:
    """The arms over steps (or turns)."""
    drawn, settings = QUESTIONS[key].drawn, QUESTIONS[key].settings()
    figure, panels = plt.subplots(1, len(drawn), figsize=(4.6 * len(drawn), 3.4), squeeze=False)
    for axes, metric in zip(panels[0], drawn, strict=True):
        label, by, _ = metric.partition(" by turn")
        label, _, turn = label.partition("@")
        for name, figures in found.items():
            if name != "placebo":
                rows = 100 * (figures[label][-1] if by else figures[label][:, int(turn or 1) - 1])
                every = settings[name].every
                curve(axes, range(1, len(rows) + 1) if by else range(0, every * len(rows), every), rows, name)
        axes.set(xlabel="turn" if by else "RL step", ylabel=f"{label}{f' at turn {turn}' if turn else ''} (%)")
    panels[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=70)
    plt.close(figure)


def refused(key: str, out: Path) -> str:
    """Why a question about laziness cannot be asked; nothing where it can."""
    lazy = what_pays(graded(out / "verdicts"), QUESTIONS[key].setting({}).lazy)[1]
    return f"{key}: refused, lazy answers pay {lazy:.2f} times PyTorch: nothing tempts to them\n" * (lazy < 1.0)


def write(results: Path, out: Path, keys: Sequence[str]) -> None:
    """``decisions.md`` and ``decisions.csv``: the hand-written lines between the marks and below each heading stay."""
    path = results / "decisions.md"
    old = path.read_text() if path.exists() else f"# Decisions\n\n{MARKS[0]}\n{MARKS[1]}\n"
    head, _, rest = old.partition(MARKS[0])
    middle, _, tail = rest.partition(MARKS[1])
    parts = (part.partition("\n") for part in middle.split("\n## ")[1:])
    kept = {title: text.partition("\n`")[0].strip() for title, _, text in parts}
    blocks = {"What pays": f"`python benchmarks/estimator_table.py --pays`\n\n{pays(out / 'verdicts')}"}
    rows = [HEAD]
    for key in keys:
        question, found = QUESTIONS[key], collect(out, key)
        plot(results / f"decisions_{key}.png", key, found)
        rows += table(key, found)
        seeds, steps = next(iter(found.values()))["graded turns"].size, question.setting({}).steps
        usual = (seeds, steps) == (SEEDS, Setting.steps)
        asked = f"`{key}`" if usual else f"`{key}`: {seeds} seeds, {steps} steps."
        blocks[question.title] = f"{asked}\n\n![{key}](decisions_{key}.png)"
    text = "".join(f"\n## {title}\n\n{kept.get(title, '')}\n\n{block}\n" for title, block in blocks.items())
    sheet = write_table(results / "decisions.csv", rows)
    path.write_text(f"{head}{MARKS[0]}\n{text}\n{sheet}\n\n{MARKS[1]}{tail}")


MARKS = ("<!-- benchmarks/estimator_table.py writes from here on -->", "<!-- to here -->")


def main() -> None:
    parser = parser_of(__doc__)
    asks(parser, QUESTIONS)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--pays", action="store_true", help="print what lazy, partial and whole answers gain")
    parser.add_argument("--out", type=Path, default=Path("runs/estimator_table"))
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="of decisions.md; with all questions")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.list or args.pays:
        asked = (f"{key}: {q.title}\n    {q.claim}\n    {', '.join(q.settings())}" for key, q in QUESTIONS.items())
        print("\n".join(asked) if args.list else pays(args.out / "verdicts"))
        return
    asked_for = args.questions or list(QUESTIONS)
    reasons = {key: refused(key, args.out) for key in asked_for if QUESTIONS[key].laziness}
    print("".join(reasons.values()), end="")
    keys = [key for key in asked_for if not reasons.get(key)]
    run_parts(args.out, keys)
    if args.write:
        write(args.write, args.out, keys)
    else:
        for key in keys:
            print(
                f"\n{key}: {QUESTIONS[key].title}\n", *markdown([HEAD, *table(key, collect(args.out, key))]), sep="\n"
            )


if __name__ == "__main__":
    main()
