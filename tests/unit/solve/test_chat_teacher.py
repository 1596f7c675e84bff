"""A chat model as the teacher of cold-start data."""

import asyncio
import json

from drkernel.episode.episode import EpisodeConfig
from drkernel.rl.data.coldstart import ColdstartConfig, load_rows, write_coldstart
from solve_fakes import FunctionModel, TextPool, answer


def write(path, says, tasks=4, turns=3, source="openai:m"):
    """Cold-start data of a model that says ``says(index, turn)``."""
    model = FunctionModel(lambda call: "<think>hm</think>\n" + answer(says(call.sample, call.turn)))
    config = ColdstartConfig(tasks=tasks, seed=3, source=source, episode=EpisodeConfig(turns=turns, prompts="full"))
    return asyncio.run(write_coldstart(config, TextPool(), path, None, model)), model


def test_conversations_end_with_the_best_correct_turn(tmp_path):
    speeds = [[1.1, 2.0, 1.5], ["WRONG", "WRONG", 1.2], ["WRONG"] * 3, ["HACK", 1.5, 1.5]]
    path = tmp_path / "cold.jsonl"
    summary, model = write(path, lambda index, turn: speeds[index][turn - 1])
    rows = load_rows(path)
    assert [row.provenance["index"] for row in rows] == [0, 1] and len(model.calls) == 12
    assert summary.dropped == {"no_correct_turn": 1, "hack": 1}
    assert [len(row.messages) for row in rows] == [4, 6]
    assert [turn.status for turn in rows[1].turns] == ["incorrect", "incorrect", "correct"]
    assert rows[0].turns[-1].speedup == 2.0 and rows[0].turns[-1].plan == "model"
    assert rows[0].provenance["teacher"] == "openai:m" and rows[0].id == "openai:m-3-0"
    assert "think" not in json.dumps([row.model_dump() for row in rows])
    second = model.calls[1] if model.calls[1].turn == 2 else next(c for c in model.calls if c.turn == 2)
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]


def test_what_is_kept_is_not_asked_for_again(tmp_path):
    path = tmp_path / "cold.jsonl"
    write(path, lambda index, turn: 1.5, tasks=2, turns=1)
    summary, model = write(path, lambda index, turn: 1.5, tasks=4, turns=1)
    assert sorted(call.sample for call in model.calls) == [2, 3] and summary.trajectories == 4
