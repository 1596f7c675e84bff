"""Published data by its columns: files of that shape, written here, become conversations and tasks."""

import json

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from drkernel.config import ConfigError
from drkernel.registry import Method
from drkernel.rl.run.sft import load_conversations
from drkernel.tasks.loaders import load_tasks

ASK = {"role": "user", "content": "Write ModelNew."}
SAID = {"role": "assistant", "content": "```python\nclass ModelNew: ...\n```"}
TOLD = {"role": "user", "content": "Server feedback: wrong."}
REFERENCE = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\ndef get_inputs():\n    return [torch.rand(4)]\n\n\ndef get_init_inputs():\n    return []\n"  # noqa: E501


def written(path, rows):
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [ASK, SAID, TOLD, SAID]},
        {"conversations": [{"from": role, "value": m["content"]} for role, m in
                           zip(("human", "gpt", "human", "gpt"), (ASK, SAID, TOLD, SAID), strict=True)]},
        {"prompt": ASK["content"], "response": [SAID, TOLD, SAID]},
        {"prompt": [ASK, SAID, TOLD], "response": SAID["content"]},
    ],
)  # fmt: skip
def test_every_published_layout_is_the_same_conversation(tmp_path, row):
    path = written(tmp_path / "coldstart.parquet", [row, row])
    assert load_conversations(path) == [[ASK, SAID, TOLD, SAID]] * 2
    lines = tmp_path / "coldstart.jsonl"
    lines.write_text(f"{json.dumps(row)}\n\n{json.dumps(row)}")
    assert load_conversations(lines) == load_conversations(path)


def test_what_is_no_conversation_is_named(tmp_path):
    with pytest.raises(ConfigError, match="columns a, b hold no chat"):
        load_conversations(written(tmp_path / "a.parquet", [{"a": 1, "b": 2}]))
    rows = [{"messages": [ASK, SAID]}, {"messages": [ASK]}]
    with pytest.raises(ConfigError, match="row 1: not a conversation"):
        load_conversations(written(tmp_path / "b.parquet", rows))
    with pytest.raises(ConfigError, match=r"cannot read .*missing\.parquet"):
        load_conversations(tmp_path / "missing.parquet")
    empty = pa.table({"messages": pa.array([], type=pa.list_(pa.struct([("role", pa.string())])))})
    parquet.write_table(empty, tmp_path / "empty.parquet")
    with pytest.raises(ConfigError, match="holds no trajectory"):
        load_conversations(tmp_path / "empty.parquet")


def test_filters_read_the_other_columns(tmp_path):
    good, bad = (
        {"task_id": f"t{k}", "turns": [{"status": status}]} for k, status in enumerate(("correct", "incorrect"))
    )
    rows = [{**good, "messages": [ASK, SAID]}, {**bad, "messages": [ASK, SAID, TOLD, SAID]}]
    path = written(tmp_path / "graded.parquet", rows)
    assert load_conversations(path, (Method(name="successful"),)) == [[ASK, SAID]]


def test_the_released_rl_data_are_tasks(tmp_path):
    row = {
        "data_source": "cuda_llm",
        "prompt": [ASK],
        "ability": "kernel",
        "reward_model": {"style": "rule", "ground_truth": REFERENCE},
        "extra_info": {"entry_point": "Model", "uuid": "abc", "split": "train"},
    }
    (task,) = load_tasks(f"parquet:{written(tmp_path / 'rl.parquet', [row])}")
    assert task.id == "cuda_llm/abc" and task.reference.strip() == REFERENCE.strip()
