"""The table's questions, asked of a language model: what arms change, what is graded anew, what a row says."""

import asyncio
from pathlib import Path

import pytest

from confirmation import CHEAT, JUDGE, QUESTIONS, RUN, TRAIN, parts_of, table
from drkernel.config import load_config
from drkernel.gym.request import EvalRequest
from drkernel.rl.run.recipe import Recipe, check_recipe
from drkernel.task import Task
from estimator_table import KeptPool
from verdicts import Judge, verdict_of

QUICKSTART = Path(__file__).parents[3] / "recipes" / "quickstart.yaml"
BASES = [Path("seed0"), Path("seed1")]


@pytest.mark.parametrize(
    "changes", [JUDGE, CHEAT, *((*TRAIN, *c) for q in QUESTIONS.values() for c in q.arms.values())]
)
def test_every_run_is_a_recipe_that_trains(changes):
    check_recipe(load_config(Recipe, QUICKSTART, [*RUN, *changes, "policy.model=start"]))


def test_arms_of_a_seed_share_its_start_and_equal_arms_are_run_once():
    parts = {key: parts_of(key, BASES, 3) for key in QUESTIONS}
    assert {part.base for found in parts.values() for part in found.values()} == {BASES[1]}
    assert parts["estimator"]["TRLOO"].name == parts["rejection"]["TRLOO"].name != parts["hacking"]["checks"].name
    names = {part.name for found in parts.values() for part in found.values()}
    assert len(names) == sum(map(len, parts.values())) - 2  # TRLOO and what is before RL, in two questions
    assert names.isdisjoint(part.name for part in parts_of("estimator", BASES, 5).values())


def test_a_row_is_the_mean_of_an_arm_and_its_paired_difference():
    def row(fast):
        return {"per_turn": [{"fast_1.2": fast, "fast_0": None, "coverage": 1.0}] * 2}

    arms = {"before RL": [0.1, 0.1], "TRLOO": [0.2, 0.6], "GRPO (paper)": [0.1, 0.5]}
    lines = table("estimator", {arm: [row(fast) for fast in values] for arm, values in arms.items()})
    assert ["estimator", "TRLOO", "fast_1.2@2", "40.0", "", "", "", ""] in lines
    assert ["estimator", "GRPO (paper)", "fast_1.2@2", "30.0", "-10.0", "-10.0", "-10.0", "0.0"] in lines
    assert next(line for line in lines if line[1:3] == ["before RL", "fast_1.2@1"])[4] == "-30.0"


def test_an_answer_is_graded_once_and_a_failure_of_the_grader_again(tmp_path):
    class Grader(Judge):
        asked = 0

        async def evaluate(self, request):
            self.asked += 1
            return verdict_of("infra_error" if self.asked == 1 else "incorrect")

    task, grader = Task(id="t", reference="class Model: ..."), Grader()
    statuses = []
    for source in ("a", "a", "a", "b"):
        pool = KeptPool(grader, tmp_path)  # as another process would open it
        statuses.append(asyncio.run(pool.evaluate(EvalRequest(task=task, candidate=source))).status)
    assert statuses == ["infra_error", "incorrect", "incorrect", "incorrect"] and grader.asked == 3
