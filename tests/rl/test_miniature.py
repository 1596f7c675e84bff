"""The environment of the ablations: plans become the modules that they name, and nothing else does."""

import asyncio
import random
import re
import sys
from pathlib import Path

import pytest

from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.rl.data.teacher.families import generate_problems
from drkernel.rl.data.teacher.problem import CORES, STEPS
from drkernel.rl.data.teacher.reference import make_task
from drkernel.rl.data.teacher.writer import Style, can_have, write_answer
from drkernel.verdict import CandidateError, Verdict

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from miniature import DEPTHS, MISFIT, PlanPool, in_kernel, operations, plan_of, written

PROBLEMS = list(generate_problems("train", 96, 0, checked=False))
CASES = [(p, d) for p in PROBLEMS for d in DEPTHS if d is None or can_have(p, d)]


@pytest.mark.parametrize("problem, depth", CASES, ids=lambda one: getattr(one, "signature", str(one)))
def test_a_plan_gives_the_answer_that_it_was_read_from(problem, depth):
    style = Style.draw(random.Random(problem.signature), names=False)
    answer = write_answer(problem, style, depth)
    plan = plan_of(problem, depth, answer)
    assert written(problem, plan) == answer
    named = in_kernel(problem, depth)
    outside = operations(problem)
    for name in named:
        outside.remove(name)
    host = re.findall(r"^        (?:v\d+|x|o) = (.*)$", answer[answer.index("def forward") :], re.M)
    assert len([line for line in host if "torch.empty" not in line]) == len(outside)
    body = answer[: answer.index("class ModelNew")]
    unary = [STEPS[name].triton.split("{")[0] for name in named if name in STEPS]
    assert all(start in body for start in unary) and (not set(named) & set(CORES) or depth != "lazy")


def test_what_is_no_plan_for_the_problem_gives_nothing():
    problem = next(p for p in PROBLEMS if p.kind == "pointwise" and len(p.steps) >= 3)
    good = plan_of(problem, None, write_answer(problem, Style()))
    assert written(problem, good)
    first = operations(problem)[0]
    for bad in (good.replace(f"{first}, ", "", 1), good.replace("256", "row"), good.replace("block", "tile"), "", "x"):
        assert written(problem, bad) is None


def test_the_pool_asks_about_the_module_and_tells_no_line_of_it():
    problem, asked = PROBLEMS[0], []

    class Pool:
        async def evaluate(self, request):
            asked.append(request.candidate)
            error = CandidateError(type="E", message="m", line=12)
            return Verdict(
                status="compile_error",
                task_id=request.task.id,
                candidate_sha256="0" * 64,
                device=request.settings.device,
                baseline="eager",
                error=error,
            )

    plan = plan_of(problem, None, write_answer(problem, Style()))
    task = make_task(problem)
    pool = PlanPool(Pool(), {task.id: problem})
    for text in (plan, "no plan"):
        request = EvalRequest(task=task, candidate=text, settings=EvalSettings())
        assert asyncio.run(pool.evaluate(request)).error.line is None
    assert asked == [write_answer(problem, Style()), MISFIT]
