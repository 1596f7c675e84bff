"""Filters of data keep what they say, and refuse what they cannot judge."""

import json

import pytest

from drkernel.config import ConfigError
from drkernel.registry import Method
from drkernel.rl.data.coldstart import filters, select
from drkernel.rl.run.recipe import check_recipe
from drkernel.rl.run.sft import load_conversations
from fakes import FakePool, tiny_recipe, write_rows
from tiny_runs import train


def row(name, status, speedup=2.0):
    return {"id": name, "turns": [{"status": "incorrect", "speedup": None}, {"status": status, "speedup": speedup}]}


ROWS = [row("a", "correct"), row("b", "hack", None), row("c", "correct", 0.8), row("d", "incorrect", None)]


@pytest.fixture
def fast(monkeypatch):
    """A filter of a plug-in's."""
    monkeypatch.setattr(filters, "_entries", dict(filters._entries))

    @filters.register("fast")
    def fast(rows, *, speedup=1.0):
        return [k for k, each in enumerate(rows) if (each["turns"][-1]["speedup"] or 0) >= speedup]


def names(*methods):
    return [each["id"] for each in select(ROWS, [Method.model_validate(method) for method in methods])]


def test_filters_follow_one_another(fast):
    assert names("successful") == ["a", "c"]
    assert names("successful", "fast") == names({"name": "fast", "speedup": 0.9}) == ["a"]


def test_what_cannot_be_selected_is_an_error(tmp_path, fast):
    with pytest.raises(ConfigError, match="keeps none of 4"):
        names({"name": "fast", "speedup": 100.0})
    with pytest.raises(ConfigError, match="no option 'slow'"):
        names({"name": "fast", "slow": 1})
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
