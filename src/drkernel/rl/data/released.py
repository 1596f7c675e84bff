"""Chat data in the columns that published sets have, as rows with ``messages``.

``hkust-nlp/drkernel-coldstart-8k`` and other sets for fine-tuning come as parquet. Three layouts are read:
``messages`` (a list of role and content), ``conversations`` (a list of from and value), and ``prompt`` with
``response``, where a prompt is a text or a list of messages, and a response a text or, for several turns, such a list.

The sets for reinforcement learning and evaluation come in verl's columns, with a whole opening message in every row;
:func:`opening_of` finds the template that it was made with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from drkernel.config import ConfigError
from drkernel.tasks.errors import TaskError
from drkernel.tasks.loaders import load_tasks
from drkernel.tasks.parquet import read_rows

ROLES = {"human": "user", "gpt": "assistant"}
"""Names of roles in ``conversations``, and ours."""


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a parquet file with ``messages`` in each; other columns are kept.

    Raises :class:`ConfigError` naming the file, and the row where one cannot be read.
    """
    columns, table = read_rows(path, ConfigError)
    if not columns & {"messages", "conversations"} and not {"prompt", "response"} <= columns:
        there = ", ".join(sorted(columns))
        raise ConfigError(f"{path}: columns {there} hold no chat: messages, conversations, or prompt and response")
    rows = []
    for number, row in enumerate(table):
        try:
            rows.append({**row, "messages": _messages(row)})
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path} row {number}: not a conversation ({error!r})") from error
    return rows


def opening_of(path: Path) -> tuple[dict[str, str], int, int]:
    """Return the templates ``system`` and ``task`` that the prompts of verl's rows were made with, the number of rows
    that were made with them, and of all rows.

    A row's template is its prompt with ``$reference`` where the row's reference stands; the most frequent one is
    returned. Raises :class:`ConfigError` when no prompt holds its reference.
    """
    try:
        tasks = load_tasks(f"parquet:{path}")
    except TaskError as error:
        raise ConfigError(str(error)) from error
    _, rows = read_rows(path, ConfigError)
    found: Counter[tuple[str, str]] = Counter()
    for number, (row, task) in enumerate(zip(rows, tasks, strict=True)):
        try:
            messages = _listed(row.get("prompt"), "user")
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{path} row {number}: prompt is no list of messages ({error!r})") from error
        text = {message["role"]: message["content"] for message in messages}
        before, reference, after = text.get("user", "").partition(task.reference.strip())
        if reference:
            template = f"{before.replace('$', '$$')}$reference{after.replace('$', '$$')}"
            found[text.get("system", "").replace("$", "$$"), template] += 1
    if not found:
        raise ConfigError(f"{path}: no prompt holds the reference of its row, so the prompts' template cannot be told")
    ((system, template), count) = found.most_common(1)[0]
    return {"system": system, "task": template}, count, len(rows)


def _messages(row: Mapping[str, Any]) -> list[dict[str, str]]:
    if row.get("messages") is not None:
        found = _listed(row["messages"], "user")
    elif row.get("conversations") is not None:
        found = [
            {"role": ROLES.get(item["from"], str(item["from"])), "content": str(item["value"])}
            for item in row["conversations"]
        ]
    else:
        found = [*_listed(row["prompt"], "user"), *_listed(row["response"], "assistant")]
    if not any(message["role"] == "assistant" for message in found):
        raise ValueError("no message of the assistant")
    return found


def _listed(value: Any, role: str) -> list[dict[str, str]]:
    """Return a text as one message of ``role``, and a list of messages as it is."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, Sequence):
        raise TypeError(f"{type(value).__name__} is neither a text nor a list of messages")
    return [{"role": str(item["role"]), "content": str(item["content"])} for item in value]
