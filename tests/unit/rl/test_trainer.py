import asyncio
import hashlib
import json
import math
import statistics
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from drkernel.config import ConfigError
from drkernel.rl.data.coldstart import ColdstartConfig
from drkernel.rl.run.recipe import check_recipe
from drkernel.rl.run.reinforce import step_tasks
from drkernel.rl.run.sitting import Stopped
from drkernel.rl.run.trainer import Run
from fakes import FakePool, make_verdict, tiny_recipe
from tiny import POCKET
from tiny_runs import assert_same_run, fine_tuned, rows, train, weights


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short run that nothing interrupted."""
    recipe = tiny_recipe(tmp_path_factory.mktemp("whole"))
    return recipe, train(recipe)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Where runs begin that are about RL alone."""
    return fine_tuned(tmp_path_factory.mktemp("start"))


def test_reinforcement_learning_finds_what_pays(tmp_path):
    sft, rl = {"epochs": 15}, {"steps": 10, "learner": {"lr": 0.004}}
    recipe = tiny_recipe(tmp_path, sft=sft, rl=rl, rollout={"tasks": 4, "samples": 8})
    summary = train(recipe, FakePool(delay=0.001))
    assert summary["before"]["fast_1.2"] < 0.6
    assert summary["after"]["fast_1.2"] >= summary["before"]["fast_1.2"] + 0.3


def test_the_run_directory_holds_what_it_should(finished):
    recipe, summary = finished
    metrics, evaluations = rows(recipe, "metrics.jsonl"), rows(recipe, "eval.jsonl")
    rl = [row for row in metrics if row["stage"] == "rl"]
    assert [row["step"] for row in rl] == [1, 2, 3]
    assert [row["label"] for row in evaluations] == ["before", "during", "after"]
    assert rl[0]["evaluations"] == 32 and rl[0]["trajectories"] == 16 and len(rl[0]["reward_turns"]) == 2
    assert sum(rl[0]["status"].values()) == 32
    assert rl[0]["mismatch/max_abs_log_ratio"] < 1e-4 and rl[0]["mismatch/rejected_token_fraction"] == 0
    samples = rows(recipe, "samples.jsonl")
    before = [(r["task_id"], r["sample"]) for r in samples if r["split"] == "heldout" and r["step"] == 0]
    after = [(r["task_id"], r["sample"]) for r in samples if r["split"] == "heldout" and r["step"] == 3]
    assert before == after and len(before) == 20
    stored = json.loads((Path(recipe.runs) / recipe.name / "summary.json").read_text())
    assert stored == summary
    assert summary["timing_kind"] == "modelled" and summary["steps"]["rl"] == 3
    assert summary["evaluations"] >= 3 * 32 + 2 * 20 and summary["tokens"] > 500
    assert {"fast_0", "fast_1", "fast_1.2", "coverage", "hack_rate"} <= summary["before"].keys()


def test_a_run_that_is_stopped_in_every_stage_goes_on_to_the_same_result(finished, tmp_path):
    recipe = tiny_recipe(tmp_path)
    pool = FakePool(delay=0.002)  # grades come back in another order than in the uninterrupted run
    for stop_at in [("copying", 1), ("sft", 2), ("rl", 1), ("rl", 2)]:
        run = Run(recipe, pool)

        def progress(kind, row, run=run, stop_at=stop_at):
            if (kind, row.get("step")) == stop_at:
                run.stop_requested = True

        run.progress = progress
        with pytest.raises(Stopped):
            asyncio.run(run.run())
        assert not (Path(recipe.runs) / recipe.name / "summary.json").exists()
    train(recipe, pool)
    assert_same_run(finished[0], recipe)


def test_a_run_asked_to_stop_in_its_cold_start_stops_there_and_goes_on(tmp_path):
    data = {"tasks": 20, "concurrency": 2, "episode": {"turns": 2, "prompts": "compact"}}
    recipe = tiny_recipe(tmp_path, coldstart_file=None).model_copy(update={"coldstart": ColdstartConfig(**data)})
    pool = FakePool(verdict=lambda request: make_verdict(request, "correct", 2.0, 1.0))

    def stop_at(wanted):
        run = Run(recipe, pool)

        def progress(kind, row):
            run.stop_requested = run.stop_requested or (kind, row.get("done", row.get("step"))) == wanted

        run.progress = progress
        with pytest.raises(Stopped):
            asyncio.run(run.run())
        return pool.calls

    assert stop_at(("coldstart", 3)) == 2 * 4  # the one beside it is finished, no more are begun
    assert not (tmp_path / "runs" / "tiny" / "tokenizer").exists()
    assert stop_at(("copying", 1)) == 2 * 20  # none is graded twice


def test_a_crash_between_checkpoints_repeats_what_was_lost(finished, tmp_path):
    """The files are longer than the checkpoint says; the lost steps come out the same."""
    recipe = tiny_recipe(tmp_path)
    recipe = recipe.model_copy(update={"checkpoint": recipe.checkpoint.model_copy(update={"seconds": 1e9})})

    def crash(kind, row):
        if (kind, row.get("step")) == ("rl", 3):
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(recipe, progress=crash)
    assert len(rows(recipe, "eval.jsonl")) == 2
    train(recipe)
    assert_same_run(finished[0], recipe)


def test_another_recipe_may_not_take_over_a_run(finished, tmp_path):
    recipe, _ = finished
    changed = recipe.model_copy(update={"seed": 5})
    with pytest.raises(ConfigError, match="another recipe"):
        train(changed)


def test_infrastructure_failures_are_masked_and_counted(tmp_path, start):
    recipe = tiny_recipe(tmp_path, **start)
    train(recipe, FakePool(broken_every=5))
    rl = [row for row in rows(recipe, "metrics.jsonl") if row["stage"] == "rl"]
    assert all(row["infra_errors"] > 0 and row["status"]["infra_error"] == row["infra_errors"] for row in rl)
    assert all(row["skipped"] == 0 for row in rl)


def test_a_batch_without_any_grade_is_skipped_and_said(tmp_path):
    rl = {"steps": 1, "learner": {"lr": 0.003}}
    every_answer_is_code = {"policy": {"pocket": POCKET.model_dump()}, "sft": {"epochs": 8}}
    recipe = tiny_recipe(tmp_path, rl=rl, checkpoint={"seconds": 0}, **every_answer_is_code)
    train(recipe, FakePool(broken_every=1))
    row = rows(recipe, "metrics.jsonl")[-1]
    assert row["skipped"] == 1 and row["reward"] is None and row["infra_errors"] == 16
    sft = load_file(Path(recipe.runs) / "tiny" / "checkpoints" / "sft" / "model.safetensors")
    assert all(torch.equal(sft[key], value) for key, value in weights(recipe).items())


REFILLING = {
    "rollout": {"refill": 3},
    "rl": {"steps": 2, "log_samples": 1000, "learner": {"lr": 0.003, "rejection": ["prs", "uninformative"]}},
    "evaluation": {"final_tasks": 2, "final_samples": 1},
    "checkpoint": {"seconds": 0},
    "copying": None,
}


class PickyPool(FakePool):
    """Grades two of three tasks alike for all their answers, so that they teach nothing."""

    async def evaluate(self, request):
        digest = hashlib.sha256(request.task.id.encode()).digest()
        if digest[0] % 3:
            return make_verdict(request, "correct", 1.5, 0.5)
        length = len(request.candidate)
        return make_verdict(request, "correct", 1.0 + length % 7 / 4, 0.9)


@pytest.fixture(scope="module")
def refilled(tmp_path_factory):
    """A run with refilling that nothing interrupted."""
    recipe = tiny_recipe(tmp_path_factory.mktemp("refilled"), **REFILLING)
    train(recipe, PickyPool())
    return recipe


def test_prompts_that_teach_nothing_are_replaced_in_a_bounded_number_of_rounds(refilled):
    recipe = refilled
    for row in (row for row in rows(recipe, "metrics.jsonl") if row["stage"] == "rl"):
        played = [r for r in rows(recipe, "samples.jsonl") if (r["split"], r["step"]) == ("train", row["step"])]
        groups = {g: [r["turns"] for r in played if r["group"] == g] for g in {r["group"] for r in played}}
        gone = {g for g, part in groups.items() if statistics.stdev(turns[-1]["reward"] for turns in part) < 1e-3}
        assert (
            len(groups) == row["prompts"]
            and row["dropped"] == {"equal": len(gone)}
            and row["trajectories"] == len(played)
        )
        assert row["prompts"] > 4 and row["prompts_kept"] == row["prompts"] - len(gone) and 0 < row["refills"] <= 3
        assert row["prompts_kept"] == 4 or row["refills"] == 3, "a step is full unless its rounds are spent"
        kept, lost = (
            [turn["reward"] for g in part for turns in groups[g] for turn in turns]
            for part in (groups.keys() - gone, gone)
        )
        assert row["rejected/uninformative/reward_kept"] == pytest.approx(statistics.mean(kept))
        assert row["rejected/uninformative/reward_rejected"] == pytest.approx(statistics.mean(lost))
        assert row["rejected/uninformative/fraction"] == pytest.approx(len(lost) / len(kept + lost))
        assert row["skipped"] == 0 and row["rejected/prs/fraction"] == 0


def test_nothing_but_prompts_without_a_lesson_ends_after_its_rounds_and_trains_nothing(tmp_path):
    recipe = tiny_recipe(tmp_path, **{**REFILLING, "rl": {**REFILLING["rl"], "steps": 1}})
    train(recipe, FakePool(verdict=lambda request: make_verdict(request, "incorrect")))
    row = rows(recipe, "metrics.jsonl")[-1]
    assert (row["refills"], row["prompts"], row["prompts_kept"], row["skipped"]) == (3, 16, 0, 1)
    assert row["dropped"] == {"equal": 16} and row["reward"] == 0


def test_a_refilled_run_that_stops_goes_on_with_the_prompts_that_come_next(refilled, tmp_path):
    cut = tiny_recipe(tmp_path, **REFILLING)

    def crash(kind, row):
        if kind == "turn" and row["step"] == 2 and row["graded"] > 32:  # in a round of the second step's refilling
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(cut, PickyPool(), progress=crash)
    train(cut, PickyPool(delay=0.001))
    assert_same_run(refilled, cut)


def test_refilling_needs_to_be_told_what_teaches_nothing(tmp_path):
    with pytest.raises(ConfigError, match="uninformative"):
        check_recipe(tiny_recipe(tmp_path, rollout={"refill": 1}))


def test_equal_rewards_give_no_gradient_and_no_nan(tmp_path, start):
    recipe = tiny_recipe(tmp_path, **start, rl={"steps": 1, "learner": {"lr": 0.003}})
    train(recipe, FakePool(verdict=lambda request: make_verdict(request, "incorrect")))
    row = rows(recipe, "metrics.jsonl")[-1]
    assert row["reward"] == 0 and row["advantage_abs"] == 0
    assert all(v is None or not isinstance(v, float) or math.isfinite(v) for v in row.values())


@pytest.mark.parametrize(
    "learner",
    [
        {"advantage": {"name": "otb"}},
        {"advantage": {"name": "trloo_best"}},
        {"advantage": {"name": "grpo_std"}, "aggregation": "token_mean"},
        {"advantage": {"name": "rloo"}, "loss": {"name": "reinforce"}, "aggregation": "seq_mean_token_sum"},
        {"advantage": {"name": "kevin"}, "updates": 2},
        {"rejection": [{"name": "prs"}, {"name": "uninformative", "least": 2}]},
        {"kl_coefficient": 0.1, "schedule": {"name": "cosine", "options": {"total": 10}}},
    ],
    ids=lambda value: "-".join(value),
)
def test_every_method_runs_by_name(tmp_path, start, learner):
    recipe = tiny_recipe(
        tmp_path,
        **start,
        rl={"steps": 2, "learner": {"lr": 0.003, **learner}},
        evaluation={"final_tasks": 2, "final_samples": 1},
    )
    train(recipe)
    row = rows(recipe, "metrics.jsonl")[-1]
    assert row["stage"] == "rl" and row["skipped"] == 0 and math.isfinite(row["loss"])


def test_a_sampler_of_other_precision_is_a_mismatch_that_mrs_acts_on(tmp_path, start):
    close = {"name": "mrs", "bounds": (1 - 1e-5, 1 + 1e-5)}  # 30 times what a sampler of the same precision differs by
    learner = {"lr": 0.003, "mismatch": close}
    rejected = {}
    for dtype in ("same", "bf16"):
        (tmp_path / dtype).mkdir()
        rl, few = {"steps": 1, "learner": learner}, {"final_tasks": 2, "final_samples": 1}
        recipe = tiny_recipe(tmp_path / dtype, rollout={"dtype": dtype}, rl=rl, evaluation=few, **start)
        train(recipe)
        rejected[dtype] = rows(recipe, "metrics.jsonl")[-1]["mismatch/rejected_token_fraction"]
    assert rejected["same"] == 0 and rejected["bf16"] > 0.5


def test_recipes_that_cannot_work_say_why(tmp_path):
    recipe = tiny_recipe(tmp_path)
    with pytest.raises(ConfigError, match="cold-start"):
        check_recipe(recipe.model_copy(update={"coldstart_file": None, "sft": None}))
    with pytest.raises(ConfigError, match=r"rollout\.context 999"):
        check_recipe(recipe.model_copy(update={"rollout": recipe.rollout.model_copy(update={"context": 999})}))
    with pytest.raises(ConfigError, match="not both"):
        check_recipe(recipe.model_copy(update={"coldstart": ColdstartConfig()}))
    model = {"coldstart": ColdstartConfig(source="openai:NAME"), "coldstart_file": None}
    with pytest.raises(ConfigError, match="--source"):
        check_recipe(recipe.model_copy(update=model))


def test_a_target_that_it_does_not_pay_to_reach_is_refused(tmp_path):
    def made(advantage, **episode):
        rl = {"steps": 1, "learner": {"advantage": advantage}}
        return tiny_recipe(tmp_path, rl=rl, episode={"target": 1.2, **episode})

    for refused in ("trloo", {"name": "otb", "gamma": 1.0}, "rloo_total"):
        with pytest.raises(ConfigError, match=r"episode\.target .* pays for every answer"):
            check_recipe(made(refused))
    for accepted in ("trloo_best", "kevin", {"name": "trloo", "gamma": 0.5}):
        check_recipe(made(accepted))
    check_recipe(made("trloo", turns=1))
    check_recipe(made("trloo", target=None))


def test_every_task_comes_once_a_pass():
    tasks = list(range(10))
    drawn = [task for step in range(5) for task in step_tasks(tasks, 4 * step, 4, seed=1)]
    assert sorted(drawn[:10]) == sorted(drawn[10:]) == tasks
    assert drawn[:10] != drawn[10:]
