"""An environment in miniature, in which lazy and whole answers both exist and pay differently, and 40 steps are cheap.

    drkernel train recipes/quickstart.yaml                  for its cold start: answers of the program teacher, graded
    python contrib/trees/miniature.py --coldstart runs/quickstart/coldstart.jsonl      one supervised policy a seed
    python benchmarks/estimator_table.py                    its tasks and plans, with a table for a policy

Tasks and judge are the quickstart's: several operators, timed at their own sizes. The policy answers with a *plan*
instead of a kernel: the operations that go into its one kernel (PyTorch does those before or after them), its block
size and its warps. The program teacher's writer turns a plan into the module that the judge grades. Naming one
operation is easy to get right, and gains nothing; naming all of them pays several times as much, and every further name
is another chance to be wrong. A plan that does not fit the module becomes one that raises an error.

So an answer has a dozen tokens, and there are a few hundred answers to a task, which the judge grades once and for all
(``pool.cache_file``).

The supervised policies learn what a lazy teacher would write: of the cold start's right trajectories all that stay
lazy or partial and a third of those that end in a whole kernel, and for every other task one first answer, two thirds
of them lazy. First answers to 3,000 further tasks come with them (right, as all that the writer makes of a plan; they
are not graded): on 720 tasks alone a model of this size does not learn which operation a line of the module is, and
one answer in seven is right. Everything lies under ``--out``; what is done is not done again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from drkernel.config import load_config
from drkernel.episode.renderer import task_prompt
from drkernel.gym.request import EvalRequest, EvalSettings, Pool
from drkernel.rl.data.coldstart import ColdstartRow, load_rows
from drkernel.rl.data.teacher.problem import TeacherProblem, generate_problems, make_task
from drkernel.rl.data.teacher.writer import RIGHT, Flaw, Mix, Style, can_have, write_answer
from drkernel.rl.maths.rejection import keep_probability
from drkernel.rl.run.recipe import Recipe, TaskSource, make_pool
from drkernel.rl.run.trainer import Run
from drkernel.verdict import Verdict

PLAN = "kernel = {operations}\nblock = {block}\nwarps = {warps}\n"
_PLAN = re.compile(r"\s*kernel = ([a-z0-9_, ]+)\nblock = (\d{1,6}|row)\nwarps = (\d{1,3})\s*\Z")
_LAUNCH = re.compile(r"\bB=(\d+|triton\.next_power_of_2\(n\)), num_warps=(\d+)\)")
MISFIT = 'raise ValueError("the plan does not fit the module")\n'
"""the module of a plan that the writer cannot follow"""
DEPTHS: tuple[Flaw | None, ...] = (None, "partial", "lazy")
"""how much of a problem the writer can put into a kernel, in the order of the teacher's plans that are right"""
FURTHER = 3000
"""tasks beyond those of the cold start that have a first answer taught"""
FIRST = Mix(fused=0.15, partial=0.2, lazy=0.65, bad_mask=0, compile_error=0, wrong_step=0)
"""first answers that are taught alone"""
WHOLE = 1 / 3
"""share of the trajectories ending in a whole kernel that is taught"""


def operations(problem: TeacherProblem) -> list[str]:
    """Return the names of a problem's operations, in the order of its reference."""
    core = [problem.core] if problem.core else []
    return [step.op for step in problem.before] + core + [step.op for step in problem.after]


def in_kernel(problem: TeacherProblem, depth: Flaw | None) -> list[str] | None:
    """Return the operations that an answer of this depth computes itself; None where there is none of it."""
    names = operations(problem)
    if depth is None:
        return names
    if not can_have(problem, depth):
        return None
    if depth == "lazy":
        return names[-1:] if problem.after or problem.core is None else names[:1]
    host = write_answer(problem, Style(), depth).split("def forward", 1)[1]
    kept = len(re.findall(r"^        (?:v\d+|x) = ", host, re.MULTILINE))
    return names[kept:]


def in_block(problem: TeacherProblem, depth: Flaw | None) -> str:
    """Return what decides the block size of such an answer: a ``tile``, a ``row``, or a ``block`` of elements."""
    source = write_answer(problem, Style(block=7, tile=5), depth)
    launch = _LAUNCH.search(source)
    assert launch is not None, "every answer has a launch"
    return {"7": "block", "5": "tile"}.get(launch[1], "row")


def written(problem: TeacherProblem, plan: str) -> str | None:
    """Return the source of the module that a plan asks for; None for a plan that does not fit the problem."""
    match = _PLAN.match(plan)
    if match is None:
        return None
    for depth in DEPTHS:
        if match[1].split(", ") != in_kernel(problem, depth):
            continue
        place = in_block(problem, depth)
        if (match[2] == "row") != (place == "row"):
            return None
        style = Style(warps=int(match[3]))
        if place != "row":
            size: dict[str, Any] = {place: int(match[2])}
            style = replace(style, **size)
        return write_answer(problem, style, depth)
    return None


def plan_of(problem: TeacherProblem, depth: Flaw | None, source: str) -> str:
    """Return the plan that :func:`written` turns into this answer of the teacher."""
    launch = _LAUNCH.search(source)
    named = in_kernel(problem, depth)
    assert launch is not None and named is not None
    block = launch[1] if launch[1].isdigit() else "row"
    return PLAN.format(operations=", ".join(named), block=block, warps=launch[2])


class PlanPool:
    """Grades plans: writes each as a module, and asks ``pool`` about that."""

    def __init__(self, pool: Pool, problems: Mapping[str, TeacherProblem]):
        self._pool, self._problems = pool, problems

    async def evaluate(self, request: EvalRequest) -> Verdict:
        """Grade the module that the plan asks for."""
        problem = self._problems[request.task.id]
        source = written(problem, request.candidate) or MISFIT
        verdict = await self._pool.evaluate(request.model_copy(update={"candidate": source}))
        if verdict.error is None:
            return verdict
        return verdict.model_copy(update={"error": verdict.error.model_copy(update={"line": None})})

    def health(self) -> dict[str, Any]:
        """Return the pool's."""
        return self._pool.health()

    async def close(self) -> None:
        """Close the pool."""
        await self._pool.close()


def plan_pool(recipe: Recipe) -> PlanPool:
    """Open a pool for the recipe's training and held-out tasks; the caller closes it."""
    sources: list[tuple[TaskSource, Any]] = [(recipe.train_tasks, "train"), (recipe.heldout_tasks, "heldout")]
    problems = [
        p for source, split in sources for p in generate_problems(source.generated or split, source.count, source.seed)
    ]
    return PlanPool(make_pool(recipe), {make_task(problem).id: problem for problem in problems})


def first_answer(problem: TeacherProblem, prompt: str, rng: random.Random) -> list[dict[str, str]]:
    """Return a conversation of one answer, as lazy as :data:`FIRST` has it."""
    depth = DEPTHS[RIGHT.index(FIRST.draw(rng))]
    if depth is not None and not can_have(problem, depth):
        depth = None
    plan = plan_of(problem, depth, write_answer(problem, Style.draw(rng, names=False), depth))
    return [{"role": "user", "content": prompt}, {"role": "assistant", "content": f"```python\n{plan}```"}]


def taught(row: ColdstartRow, problem: TeacherProblem) -> dict[str, Any]:
    """Return what the supervised policies learn on a task: the trajectory with plans for answers, or a first answer."""
    rng = random.Random(f"taught-{row.id}")
    right = all(turn.plan in RIGHT for turn in row.turns)
    if right and (row.turns[-1].plan != "fused" or rng.random() < WHOLE):
        messages = [dict(message) for message in row.messages]
        depths = [DEPTHS[RIGHT.index(turn.plan)] for turn in row.turns]
        answers = [message["content"] for message in messages[1::2]]
    else:
        return {"id": row.id, "messages": first_answer(problem, row.messages[0]["content"], rng)}
    for message, depth, answer in zip(messages[1::2], depths, answers, strict=True):
        message["content"] = f"```python\n{plan_of(problem, depth, answer)}```"
    return {"id": row.id, "messages": messages}


def what_pays(rows: Sequence[ColdstartRow]) -> str:
    """Return a Markdown table: what the graded right answers of a cold start gain, by how much is in the kernel."""
    lines = [
        "| in the kernel | right answers | speedup | 1.2x or more | coverage | kept by PRS |",
        "|---|---|---|---|---|---|",
    ]
    for plan in RIGHT:
        found = [turn for row in rows for turn in row.turns if turn.plan == plan and turn.status == "correct"]
        speedups = [turn.speedup or 0.0 for turn in found]
        coverage = [turn.coverage or 0.0 for turn in found]
        fast = statistics.mean(value >= 1.2 for value in speedups)
        kept = float(keep_probability(torch.tensor(coverage)).mean())
        lines.append(
            f"| {plan} | {len(found)} | {statistics.mean(speedups):.2f} | {fast:.0%} | {statistics.mean(coverage):.2f} "
            f"| {kept:.0%} |"
        )
    return "\n".join(lines)


def write_plans(rows: Sequence[ColdstartRow], settings: EvalSettings, out: Path) -> int:
    """Write what is taught, on the tasks of a cold start and further ones; return how many conversations."""
    (seed,) = {row.provenance["seed"] for row in rows}
    problems = list(generate_problems("train", 1 + max(row.provenance["index"] for row in rows), seed))
    assert all(make_task(problems[row.provenance["index"]]).id == row.task.id for row in rows), "tasks of other code"
    kept = [taught(row, problems[row.provenance["index"]]) for row in rows]
    rng = random.Random("further")
    for number, problem in enumerate(generate_problems("train", FURTHER, 1000, checked=False)):
        prompt = task_prompt(make_task(problem), settings, "compact")
        kept.append({"id": f"further-{number}", "messages": first_answer(problem, prompt, rng)})
    assert task_prompt(rows[0].task, settings, "compact") == rows[0].messages[0]["content"], "prompts of other code"
    out.write_text("".join(json.dumps(row) + "\n" for row in kept))
    return len(kept)


async def make_bases(recipe: Recipe, coldstart: Path, out: Path, seeds: int) -> None:
    """Make a supervised policy for each seed."""
    plans, rows = out / "plans.jsonl", load_rows(coldstart)
    print(what_pays(rows))
    print(f"{write_plans(rows, recipe.episode.settings, plans)} conversations", flush=True)
    data = recipe.model_dump(mode="json") | {"runs": str(out), "coldstart_file": str(plans)}
    data["rl"]["steps"] = 0
    plan = plan_pool(recipe)
    try:
        for seed in range(seeds):
            one = Recipe.model_validate(data | {"name": f"seed{seed}", "seed": seed})
            if not (out / one.name / "summary.json").exists():
                print(one.name, (await Run(one, plan).run())["before"], flush=True)
    finally:
        await plan.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coldstart", type=Path, required=True, help="coldstart.jsonl of a run of the quickstart")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/miniature"))
    args = parser.parse_args()
    recipe = load_config(Recipe, Path(__file__).with_suffix(".yaml"))
    pool = recipe.pool.model_copy(update={"cache_file": str(args.out / "verdicts.sqlite")})
    args.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(make_bases(recipe.model_copy(update={"pool": pool}), args.coldstart, args.out, args.seeds))


if __name__ == "__main__":
    main()
