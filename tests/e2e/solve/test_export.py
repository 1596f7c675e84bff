"""Conversations as data: what passes, what never does, and that rows say what the model saw."""

import json

import pytest

from drkernel.config import ConfigError
from drkernel.episode.records import Message
from drkernel.rl.run.sft import load_conversations
from drkernel.solve.export import ExportFilter, ExportRow, export, normal_form
from solve_fakes import answer, bench


def rows_of(directory, path, **terms):
    summary = export([directory], path, ExportFilter(**terms))
    return [ExportRow.model_validate_json(line) for line in path.read_text().splitlines()], summary


def test_a_row_is_the_conversation_as_the_model_saw_it_and_its_best_answer(tmp_path):
    speeds = (1.1, "WRONG", 1.9, 1.4)
    _, model = bench(tmp_path / "r", lambda call: answer(speeds[call.turn - 1]), turns=4)
    rows, summary = rows_of(tmp_path / "r", tmp_path / "d.jsonl")
    (row,) = rows
    assert row.messages[:-1] == model.calls[2].messages and "SPEED = 1.9" in row.messages[-1].content
    assert [turn.status for turn in row.turns] == ["correct", "incorrect", "correct"]
    assert row.turns[-1].speedup == 1.9 and row.device == "sim:h200" and row.tokens_estimated
    assert summary.rows == 1 and summary.left_out == {}
    assert [m["role"] for m in load_conversations(tmp_path / "d.jsonl")[0]] == ["user", "assistant"] * 3


def test_with_context_management_the_conversation_is_cut_as_it_was(tmp_path):
    speeds = (1.5, 1.2, "WRONG", 1.8)
    context = {"name": "best", "keep": 1, "every": 3}
    _, model = bench(tmp_path / "r", lambda call: answer(speeds[call.turn - 1]), turns=4, context=context)
    (row,), _ = rows_of(tmp_path / "r", tmp_path / "d.jsonl")
    assert row.messages[:-1] == model.calls[3].messages and [turn.turn for turn in row.turns] == [1, 4]


@pytest.mark.parametrize("speeds", [("HACK", 1.5), (1.5, "HACK")])
def test_a_trajectory_with_a_hack_never_passes_unless_asked(tmp_path, speeds):
    bench(tmp_path / "r", lambda call: answer(speeds[call.turn - 1]), turns=2)
    rows, summary = rows_of(tmp_path / "r", tmp_path / "d.jsonl")
    assert rows == [] and summary.left_out == {"trajectory with a hack": 1}
    assert rows_of(tmp_path / "r", tmp_path / "d.jsonl", end="every", status=())[0] == []
    rows, _ = rows_of(tmp_path / "r", tmp_path / "d.jsonl", allow_hacks=True)
    assert len(rows) == 1 and rows[0].turns[-1].speedup == 1.5
    without = {"allow_hacks": True, "without": ("no_custom_kernel",)}
    left = rows_of(tmp_path / "r", tmp_path / "d.jsonl", **without)[0]
    assert len(left) == (0 if speeds[0] == "HACK" else 1)  # findings are those of the row's own answers


def test_a_hack_among_the_answers_that_did_not_go_on_is_no_part_of_the_trajectory(tmp_path):
    speeds = {(1, 0): "HACK", (1, 1): 1.2, (2, 0): 1.5, (2, 1): "HACK"}
    bench(tmp_path / "r", lambda call: answer(speeds[call.turn, call.sample]), turns=2, breadth=2)
    (row,), _ = rows_of(tmp_path / "r", tmp_path / "d.jsonl")
    assert [turn.status for turn in row.turns] == ["correct", "correct"]


@pytest.mark.parametrize(("terms", "tasks", "reason"), [
    ({}, {"t/0", "t/1"}, "ends incorrect"),
    ({"min_speedup": 1.3}, {"t/1"}, "too slow"),
    ({"status": ()}, {"t/0", "t/1", "t/2"}, None),
    ({"status": ("incorrect",)}, {"t/2"}, "ends correct"),
    ({"max_tokens": 5}, set(), "too long"),
    ({"min_coverage": 1.0}, {"t/0", "t/1"}, "ends incorrect"),
])  # fmt: skip
def test_filters(tmp_path, terms, tasks, reason):
    speeds = {"t/0": 1.2, "t/1": 1.7, "t/2": "WRONG"}
    bench(tmp_path / "r", lambda call: answer(speeds[call.task_id]), tasks=3, turns=1)
    rows, summary = rows_of(tmp_path / "r", tmp_path / "d.jsonl", **terms)
    assert {row.task_id for row in rows} == tasks
    assert reason in summary.left_out if reason else summary.left_out == {}


def test_the_same_solution_is_kept_once_whatever_its_comments(tmp_path):
    def function(call):
        return f"```python\n# take {call.sample}\nclass ModelNew: SPEED = 1.5 \n```"

    bench(tmp_path / "r", function, samples=3, tasks=2, turns=1)
    rows, summary = rows_of(tmp_path / "r", tmp_path / "d.jsonl")
    assert len(rows) == 2 and summary.left_out == {"duplicate": 4}
    assert normal_form("x = 1  # a\n\n") == normal_form("x=1") != normal_form("x=2") and normal_form("x = = 1")


def test_every_answer_and_the_last(tmp_path):
    speeds = (1.1, 1.9, 1.4)
    bench(tmp_path / "r", lambda call: answer(speeds[call.turn - 1]), turns=3)
    rows, _ = rows_of(tmp_path / "r", tmp_path / "d.jsonl", end="every")
    assert [row.turns[-1].speedup for row in rows] == [1.1, 1.9, 1.4]
    assert rows_of(tmp_path / "r", tmp_path / "d.jsonl", end="last")[0][0].turns[-1].speedup == 1.4


def test_reasoning_of_the_last_answer_is_kept_or_taken_off(tmp_path):
    bench(tmp_path / "r", lambda call: f"<think>why {call.turn}</think>\n" + answer(call.turn), turns=2)
    (row,), _ = rows_of(tmp_path / "r", tmp_path / "d.jsonl")
    assert "why 2" in row.messages[-1].content and "why 1" not in row.messages[1].content
    (row,), _ = rows_of(tmp_path / "r", tmp_path / "d.jsonl", keep_reasoning=False)
    assert "why" not in row.messages[-1].content


def test_parquet_holds_the_same_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    bench(tmp_path / "r", lambda call: answer(1.5), tasks=2, turns=2)
    rows, _ = rows_of(tmp_path / "r", tmp_path / "d.jsonl")
    export([tmp_path / "r"], tmp_path / "d.parquet")
    table = parquet.read_table(tmp_path / "d.parquet").to_pylist()
    assert table == [json.loads(row.model_dump_json()) for row in rows]


def test_tokens_are_counted_by_what_is_given(tmp_path):
    bench(tmp_path / "r", lambda call: answer(1.5), turns=1)

    def count(messages: list[Message]) -> int:
        return 7 * len(messages)

    summary = export([tmp_path / "r"], tmp_path / "d.jsonl", count=count)
    assert summary.tokens == 14 and not json.loads((tmp_path / "d.jsonl").read_text())["tokens_estimated"]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"\.jsonl or \.parquet"):
        export([tmp_path], tmp_path / "d.csv")
    with pytest.raises(ConfigError, match="is not a bench run"):
        export([tmp_path], tmp_path / "d.jsonl")
