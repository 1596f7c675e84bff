"""Filters of data keep what they say, and refuse what they cannot judge."""

import json

import pytest

from drkernel.config import ConfigError
from drkernel.registry import Method
from drkernel.rl.data.select import select
from drkernel.rl.run.recipe import check_recipe
from drkernel.rl.run.sft import load_conversations
from fakes import FakePool, tiny_recipe, write_rows
from tiny_runs import train


def row(name, task, family, status="correct", speedup=2.0, length=10):
    return {
        "id": name,
        "task": {"id": task, "family": family},
        "messages": [{"role": "user", "content": task}, {"role": "assistant", "content": "x" * length}],
        "turns": [{"status": "incorrect", "speedup": None}, {"status": status, "speedup": speedup}],
    }


ROWS = [
    row("a1", "a", "f", speedup=1.5, length=30),
    row("a2", "a", "f", speedup=3.0, length=50),
    row("a3", "a", "f", "incorrect", None, 5),
    row("b1", "b", "f", "hack", None),
    row("b2", "b", "f", speedup=0.8, length=1),
    row("b3", "b", "f", "incorrect", None),
    row("c1", "c", "g", speedup=2.0),
    row("d1", "d", "f", speedup=1.2, length=9),
]


def names(*methods):
    return [each["id"] for each in select(ROWS, [Method.model_validate(method) for method in methods])]


def test_successful_keeps_right_last_answers():
    assert names("successful") == ["a1", "a2", "b2", "c1", "d1"]


def test_rloop_keeps_what_succeeded_on_hard_tasks():
    assert names("rloop") == ["b2"], "1 of 3 on b; 2 of 3 on a; c and d always"
    assert names({"name": "rloop", "hard": 0.7}) == ["a1", "a2", "b2"]
    assert names({"name": "rloop", "hard": 1.0, "per_task": 1}) == ["a2", "b2", "c1", "d1"], "the fastest of a task"


def test_concur_keeps_the_shortest_fast_answers_and_balances_families():
    assert names({"name": "concur", "per_family": 9}) == ["a1", "c1", "d1"]
    assert names("concur") == ["a1", "c1"], "one of each family, as many as the rarest has; the faster"
    assert names({"name": "concur", "speedup": 1.6, "per_family": 9}) == ["a2", "c1"]


def test_filters_follow_one_another():
    assert names("successful", {"name": "concur", "speedup": 0.5, "per_family": 9}) == ["a1", "b2", "c1", "d1"]


def test_what_cannot_be_selected_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="keeps none of 8"):
        names({"name": "concur", "speedup": 100.0})
    with pytest.raises(ConfigError, match="no option 'fast'"):
        names({"name": "concur", "fast": 1})
    with pytest.raises(ConfigError, match="unknown filter"):
        check_recipe(tiny_recipe(tmp_path, select=["best"]))
    with pytest.raises(ConfigError, match="graded 'turns'"):
        load_conversations(write_rows(tmp_path / "ungraded.jsonl"), [Method(name="successful")])


def test_fine_tuning_sees_what_is_selected(tmp_path):
    path = write_rows(tmp_path / "graded.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for index, each in enumerate(rows):
        each |= {"id": str(index), "turns": [{"status": ("correct", "incorrect")[index % 2], "speedup": 2.0}]}
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    found = load_conversations(path, [Method(name="successful")])
    assert found == [each["messages"] for each in rows[::2]]
    steps = []
    for name, chosen in (("all", []), ("half", ["successful"])):
        recipe = tiny_recipe(
            tmp_path, name=name, coldstart_file=str(path), select=chosen, copying=None, rl=None,
            sft={"epochs": 1, "lr": 0.01, "batch_tokens": 300, "validation": 0.0},
            evaluation={"final_tasks": 1, "final_samples": 1},
        )  # fmt: skip
        train(recipe, FakePool())
        lines = (tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()
        steps.append(json.loads(lines[-1])["steps"])
    assert steps[1] <= 0.6 * steps[0], "half of the trajectories, half of the steps"
