"""The stages of a run, each alone: what they need is handed to them."""

import asyncio
import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from drkernel.config import ConfigError
from drkernel.report.bench import write_report
from drkernel.rl.run.reinforce import RlStage
from drkernel.rl.run.sitting import RunClock, RunState, Stopped
from drkernel.rl.run.trainer import CopyingStage, Run, SftStage
from fakes import FakePool, tiny_recipe


def sit_down(recipe, state=None, stop=lambda: False):
    """What stages share, as a run makes it."""
    run = Run(recipe, FakePool())
    run._open_directory()
    run._make_tokenizer()
    sitting, resume = run._sit_down(RunClock())
    assert resume is None
    return dataclasses.replace(sitting, state=state or RunState(), stop_requested=stop)


def logged(sitting, name="metrics.jsonl"):
    return [json.loads(line) for line in (sitting.directory / name).read_text().splitlines()]


def test_a_stage_that_the_recipe_leaves_out_hands_over_unchanged(tmp_path):
    recipe = tiny_recipe(tmp_path, copying=None)
    sitting = sit_down(recipe)
    before = {name: value.clone() for name, value in sitting.policy.model.state_dict().items()}
    CopyingStage(sitting).run(None)
    assert (sitting.state.stage, sitting.state.step) == ("sft", 0) and logged(sitting) == []
    assert all(torch.equal(before[name], value) for name, value in sitting.policy.model.state_dict().items())
    assert sitting.checkpoints.latest()[1]["stage"] == "sft"


def test_fine_tuning_lowers_the_loss_counts_its_steps_and_exports(tmp_path):
    recipe = tiny_recipe(tmp_path)
    sitting = sit_down(recipe, RunState(stage="sft"))
    SftStage(sitting, Path(recipe.coldstart_file)).run(None)
    rows = logged(sitting)
    assert rows[-1]["loss"] < rows[0]["loss"] and sitting.state.steps["sft"] == len(rows) > 1
    assert (sitting.state.stage, sitting.state.step) == ("rl", 0)
    assert (sitting.directory / "checkpoints" / "sft" / "model.safetensors").is_file()


def test_a_run_for_fine_tuning_alone_grades_nothing(tmp_path):
    short = {"sft": {"epochs": 1}, "evaluation": {"final_tasks": 0}, "report": True}
    recipe, pool = tiny_recipe(tmp_path, copying=None, rl=None, **short), FakePool()
    summary = asyncio.run(Run(recipe, pool, write_report=write_report).run())
    assert pool.calls == 0 and summary["before"] is None and summary["after"] is None
    weights = Path(recipe.runs) / recipe.name / "checkpoints" / "sft" / "model.safetensors"
    assert weights.is_file() and Path(summary["report"]).is_file()


def test_one_step_of_rl_counts_what_it_used(tmp_path):
    recipe = tiny_recipe(tmp_path, rl={"steps": 5, "learner": {"lr": 0.003}})
    sitting = sit_down(recipe, RunState(stage="rl"))
    stage = RlStage(sitting)
    learner = stage._make_learner(None)
    asyncio.run(stage.step(learner, recipe.train_tasks.tasks("train")))
    (row,) = logged(sitting)
    assert row["step"] == sitting.state.step == sitting.state.steps["rl"] == 1
    assert sitting.state.evaluations == row["evaluations"] > 0 and sitting.state.tokens == row["tokens"] > 0


def test_a_request_to_stop_leaves_a_checkpoint_to_go_on_from(tmp_path):
    recipe = tiny_recipe(tmp_path)
    sitting = sit_down(recipe, RunState(stage="sft"), stop=lambda: True)
    with pytest.raises(Stopped):
        SftStage(sitting, Path(recipe.coldstart_file)).run(None)
    path, data = sitting.checkpoints.latest()
    state = RunState.read(data, path)
    assert (state.stage, state.step) == ("sft", 1) and state.sizes["metrics.jsonl"] > 0 and state.seconds > 0


def test_rl_ends_when_the_budget_is_spent_but_for_the_last_evaluation(tmp_path):
    recipe = tiny_recipe(tmp_path, budget_minutes=1.0)
    sitting = sit_down(recipe, RunState(stage="rl", before={"seconds": 10.0}))
    stage = RlStage(sitting)
    sitting.clock.before = 30.0
    assert not stage._out_of_time() and sitting.state.stopped_because is None
    sitting.clock.before = 40.0
    assert stage._out_of_time() and "time budget of 1 minutes" in sitting.state.stopped_because


def test_the_state_refuses_what_it_does_not_know_and_comes_back_equal():
    state = RunState(stage="rl", step=3, before={"reward": 0.5, "fast_1.2": math.inf}, best=None, sizes={"a": 1})
    assert RunState.read(json.loads(json.dumps(state.to_json())), "here") == state
    with pytest.raises(ValidationError):
        state.step = "three"  # type: ignore[assignment]
    with pytest.raises(ValidationError):
        state.stage = "dreaming"  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"checkpoint rl-3 is not of this version .*colour.*name="):
        RunState.read({**state.to_json(), "colour": "red"}, "rl-3")
