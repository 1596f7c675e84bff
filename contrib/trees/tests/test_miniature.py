"""The environment of plans: plans become the modules that they name, and nothing else does."""

import asyncio
import random
import re

import pytest

from contrib.trees.miniature import DEPTHS, MISFIT, PlanPool, in_kernel, operations, plan_of, taught, written
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.rl.data.coldstart import ColdstartRow, ColdstartTurn
from drkernel.rl.data.teacher.problem import CORES, STEPS, generate_problems, make_task
from drkernel.rl.data.teacher.writer import Style, can_have, write_answer
from drkernel.verdict import CandidateError, Verdict

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


def graded_row(problem, number, plans):
    """A trajectory of the program teacher, as the cold start writes it."""
    depths = [None if plan == "fused" else plan for plan in plans]
    messages = []
    for depth in depths:
        answer = f"```python\n{write_answer(problem, Style(), depth, random.Random(0))}```"
        messages += [{"role": "user", "content": "asked"}, {"role": "assistant", "content": answer}]
    return ColdstartRow(
        id=f"row-{number}",
        task=make_task(problem),
        messages=tuple(messages),
        turns=tuple(ColdstartTurn(plan=plan, status="correct", reward=1.0) for plan in plans),
        provenance={"index": number, "seed": 0},
    )


def test_all_that_is_taught_is_right_and_two_thirds_of_what_is_whole_is_left_out():
    able = [p for p in PROBLEMS if can_have(p, "lazy") and can_have(p, "bad_mask")]
    whole = 0
    for number, problem in enumerate(able):
        lengths = {}
        for plans in (("lazy", "lazy"), ("fused", "fused"), ("bad_mask", "fused")):
            messages = taught(graded_row(problem, number, plans), problem)["messages"]
            lengths[plans] = len(messages)
            for message in messages[1::2]:
                plan = message["content"].removeprefix("```python\n").removesuffix("```")
                assert written(problem, plan), plan
            assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        assert lengths["lazy", "lazy"] == 4 and lengths["bad_mask", "fused"] == 2
        whole += lengths["fused", "fused"] == 4
    assert 0.1 < whole / len(able) < 0.6
