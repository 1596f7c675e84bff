"""Cold-start data: multi-turn trajectories of a teacher, every turn graded by the real judge.

The output has one JSON line per trajectory. The user's messages are exactly the episode's observations, so the policy
is later trained on the same text that it will meet. When a turn was meant to be right and is not, its trajectory is
dropped and counted; nothing unverified is ever written as correct. Every graded turn goes into a journal beside the
file, so an interrupted run resumes at the turn where it stopped.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from drkernel.base.files import write_atomic
from drkernel.config import Config, ConfigError
from drkernel.episode.episode import Episode, EpisodeConfig, play
from drkernel.episode.meter import Journal, JournalEntry, read_journal, read_jsonl
from drkernel.episode.records import (
    COMPLETE,
    Answerer,
    Message,
    ModelCall,
    ModelError,
    Reply,
    Sampling,
    Trajectory,
    Turn,
    conversation,
    without_reasoning,
)
from drkernel.gym.request import Pool
from drkernel.registry import Method, Registry
from drkernel.rl.data.problem import TeacherProblem, generate_problems, make_task
from drkernel.rl.data.writer import RIGHT, ProgramTeacher, TeacherConfig
from drkernel.task import Task, TaskError
from drkernel.tasks.loaders import load_tasks, read_rows

Progress = Callable[[int, int, dict[str, int]], None]
"""Told (trajectories settled, trajectories in all, counts by outcome) after each one."""


class ColdstartConfig(Config):
    """How much data to make, from which teacher, and under which terms."""

    tasks: int = Field(400, ge=1, description="generated training tasks, one trajectory each")
    seed: int = Field(0, ge=0, description="decides the tasks and every draw of the teacher")
    teacher: TeacherConfig = TeacherConfig()
    episode: EpisodeConfig = EpisodeConfig(turns=3, prompts="compact")
    time_last: bool = Field(
        True, description="time a trajectory's last answer as well; no message shows that time, and it is half a grade"
    )
    concurrency: int = Field(4, ge=1, description="trajectories in flight at once")
    source: str = Field("program", description="who answers: the program teacher, or the name of a chat model")
    sampling: Sampling = Field(Sampling(), description="how a chat model's answers are drawn")

    @model_validator(mode="after")
    def _needs_times(self) -> Self:
        if not self.time_last and self.source != "program":
            raise ValueError("time_last: a chat model's trajectories end at their fastest answer; time the last too")
        return self


class ColdstartTurn(Config):
    """The intent of one answer, and the judge's verdict on it."""

    plan: str = Field(description="the teacher's intention: fused, lazy, bad_mask, ...")
    status: str
    reward: float | None
    speedup: float | None = None
    coverage: float | None = None
    findings: tuple[str, ...] = ()


class ColdstartRow(Config):
    """One trajectory."""

    schema_version: Literal[1] = 1
    id: str
    task: Task
    split: Literal["train"] = "train"
    messages: tuple[dict[str, str], ...] = Field(description="chat messages, user and assistant in turn")
    turns: tuple[ColdstartTurn, ...]
    provenance: dict[str, Any] = Field(description="teacher, seed, index, and the device that graded")


class ColdstartSummary(Config):
    """Summary of a file of trajectories."""

    trajectories: int
    turns: int
    by_plan: dict[str, int] = Field(description="turns by the teacher's plan")
    by_status: dict[str, int] = Field(description="turns by the judge's status")
    dropped: dict[str, int] = Field(description="trajectories left out, by reason")


class Dropped(Exception):
    """The trajectory cannot be written; the reason is a short name."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


class Interrupted(Exception):
    """The data is incomplete because a stop was requested. Rows already written stay, and a later run continues from
    them."""


async def write_coldstart(
    config: ColdstartConfig,
    pool: Pool,
    out: Path,
    progress: Progress | None = None,
    answerer: Answerer | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> ColdstartSummary:
    """Write ``out``, one JSON line per trajectory, ordered by index; continue from rows that exist already.

    ``answerer`` replaces the program teacher (``config.source`` names it). Its trajectories are kept up to the best
    correct turn; one without a correct turn, or with a hack before it, is dropped. Once ``stopping`` returns True,
    running trajectories are finished and no more are started.

    Raises:
        Interrupted: ``stopping`` returned True before every trajectory was settled.
        ConfigError: ``out`` holds rows of another seed or teacher, or cannot be written.
        ModelError: the model gave no answer.
    """
    file = _File(config, out)
    problems = list(generate_problems("train", config.tasks, config.seed))
    waiting = [index for index in range(config.tasks) if index not in file.rows]
    gate = asyncio.Semaphore(config.concurrency)

    async def one(index: int) -> None:
        async with gate:
            if stopping():
                return
            try:
                file.rows[index] = await _trajectory(config, pool, index, problems[index], answerer, file)
            except Dropped as error:
                file.dropped[error.reason] += 1
        if progress is not None:
            progress(file.settled, config.tasks, {"kept": len(file.rows), "dropped": file.dropped.total()})

    try:
        async with asyncio.TaskGroup() as group:
            for index in waiting:
                group.create_task(one(index))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        file.journal.close()
    if file.settled < config.tasks:
        raise Interrupted(f"{file.settled} of {config.tasks} trajectories are in {file.journal.path}")
    return file.finish()


async def _trajectory(
    config: ColdstartConfig, pool: Pool, index: int, problem: TeacherProblem, answerer: Answerer | None, file: _File
) -> ColdstartRow:
    """Play one episode with the teacher, resuming from the journal.

    Raises:
        Dropped: the judge rejects or could not grade an answer meant to be right, or no turn is worth keeping.
        ModelError: the model gave no answer.
    """
    task = make_task(problem)
    done = file.made(index)
    for turn in done:
        _check(turn)

    episode = Episode(pool, config.episode)
    await episode.reset(task, None)
    timed = episode.settings

    def prepare(made: int) -> None:
        last = made == config.episode.turns - 1
        episode.settings = timed.model_copy(update={"timing": False}) if last and not config.time_last else timed

    def record(turn: Turn) -> None:
        file.record(index, turn)
        _check(turn)
        prepare(turn.number)

    prepare(len(done))
    teacher = answerer or ProgramAnswerer(problem, config.teacher, f"coldstart-{config.seed}-{index}")
    played = await play(episode, teacher, sampling=config.sampling, sample=index, done=done, on_turn=record)
    if played.end not in COMPLETE:
        raise ModelError(played.detail)
    kept = list(played.turns) if answerer is None else _up_to_best(played)
    return ColdstartRow(
        id=file.name(index),
        task=task,
        messages=tuple({"role": m.role, "content": m.content} for m in _messages(played, kept)),
        turns=tuple(_turn(turn) for turn in kept),
        provenance={
            "teacher": config.source,
            "seed": config.seed,
            "index": index,
            "family": problem.family,
            "device": config.episode.settings.device,
        },
    )


class ProgramAnswerer:
    """The program teacher as an answerer. It ignores the conversation: its plans are drawn ahead, turn by turn."""

    name = "program"

    def __init__(self, problem: TeacherProblem, config: TeacherConfig, seed: str):
        self._teacher = ProgramTeacher(problem, config, random.Random(seed))
        self._made = 0

    async def complete(self, call: ModelCall) -> Reply:
        """Return the answer for the call's turn, skipping the turns that an earlier process made."""
        while True:
            plan, source = self._teacher.next_answer()
            self._made += 1
            if self._made == call.turn:
                return Reply(text=f"```python\n{source.strip()}\n```", plan=plan, model=self.name)

    async def close(self) -> None:
        """Do nothing: no resource is held."""


def _up_to_best(played: Trajectory) -> list[Turn]:
    """Return the turns up to the fastest correct one. Raises :class:`Dropped` when no turn is worth learning from."""
    turns = played.turns
    correct = [k for k, turn in enumerate(turns) if turn.correct]
    if not correct:
        raise Dropped("no_correct_turn", turns[-1].status if turns else "no answer")
    best = max(correct, key=lambda k: (turns[k].speedup or 0.0, -k))
    if any(turn.verdict.is_hack for turn in turns[:best]):
        raise Dropped("hack", "a turn before the best one was condemned")
    return list(turns[: best + 1])


def _messages(played: Trajectory, kept: list[Turn]) -> list[Message]:
    """Return the conversation up to the last kept turn, without system message and reasoning."""
    answer = Message(role="assistant", content=without_reasoning(kept[-1].reply.text))
    opening = [message for message in played.opening if message.role != "system"]
    shown = [turn for turn in kept[:-1] if turn.id in kept[-1].shown]
    return [*conversation(opening, shown), answer]


def _check(turn: Turn) -> None:
    """Raise :class:`Dropped` for a turn that the judge could not grade, or that was meant to be right and is not."""
    verdict = turn.verdict
    detail = verdict.error.message if verdict.error is not None else ", ".join(turn.findings)
    if not turn.valid:
        raise Dropped(turn.status, detail)
    if turn.reply.plan in RIGHT and not turn.correct:
        raise Dropped(f"{turn.reply.plan}_{turn.status}", detail)


def _turn(turn: Turn) -> ColdstartTurn:
    return ColdstartTurn(
        plan=turn.reply.plan or "model",
        status=turn.status,
        reward=turn.reward,
        speedup=turn.speedup,
        coverage=turn.coverage,
        findings=turn.findings,
    )


class _File:
    """The output file while it is written: rows of earlier runs, and the journal of turns being made."""

    def __init__(self, config: ColdstartConfig, out: Path):
        self.config, self.out = config, out
        self.rows: dict[int, ColdstartRow] = {}
        self.dropped: Counter[str] = Counter()
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            for row in load_rows(out) if out.exists() else []:
                self._take_up(row)
            self.journal = Journal(out.with_name(out.name + ".partial"))
        except OSError as error:
            raise ConfigError(f"cannot write cold-start data to {out}: {error.strerror}") from error
        self._played = read_journal(self.journal.path)
        ours = f"{config.source}-{config.seed}-"
        if any(not name.startswith(ours) for name, _ in self._played.made):
            self.journal.close()
            raise ConfigError(f"{self.journal.path} holds trajectories of another seed or teacher; remove it")

    def _take_up(self, row: ColdstartRow) -> None:
        if (row.provenance.get("seed"), row.provenance.get("teacher")) != (self.config.seed, self.config.source):
            raise ConfigError(f"{self.out} holds trajectories of another seed or teacher; give another file")
        index = int(row.provenance["index"])
        if index < self.config.tasks:
            self.rows[index] = row

    @property
    def settled(self) -> int:
        """Number of trajectories kept or dropped so far."""
        return len(self.rows) + self.dropped.total()

    def name(self, index: int) -> str:
        """Return the id of a trajectory."""
        return f"{self.config.source}-{self.config.seed}-{index}"

    def made(self, index: int) -> list[Turn]:
        """Return the graded turns of a trajectory so far."""
        return self._played.turns((self.name(index), 0))

    def record(self, index: int, turn: Turn) -> None:
        """Append a graded turn to the journal."""
        self.journal.append(JournalEntry(task_id=self.name(index), turn=turn))

    def finish(self) -> ColdstartSummary:
        """Replace the output atomically by the ordered file, with a summary beside it."""
        ordered = [self.rows[index] for index in sorted(self.rows)]
        write_atomic(self.out, "".join(row.model_dump_json() + "\n" for row in ordered))
        self.journal.path.unlink(missing_ok=True)
        summary = summarise(ordered, dict(self.dropped))
        self.out.with_name(self.out.stem + ".summary.json").write_text(
            json.dumps(summary.model_dump(), indent=1) + "\n", encoding="utf-8"
        )
        return summary


def summarise(rows: list[ColdstartRow], dropped: dict[str, int] | None = None) -> ColdstartSummary:
    """Count trajectories, turns and outcomes."""
    turns = [turn for row in rows for turn in row.turns]
    return ColdstartSummary(
        trajectories=len(rows),
        turns=len(turns),
        by_plan=dict(Counter(turn.plan for turn in turns)),
        by_status=dict(Counter(turn.status for turn in turns)),
        dropped=dropped or {},
    )


def load_rows(path: Path) -> list[ColdstartRow]:
    """Read all trajectories of a file. Raises :class:`ConfigError` when it cannot be read, or for a malformed line."""
    return list(read_jsonl(path, ColdstartRow, torn=False))


# ---- Chat data in the columns that published sets have, as rows with ``messages``
#
# Our own are JSONL; ``hkust-nlp/drkernel-coldstart-8k`` and other sets come as parquet. Three layouts are read:
# ``messages`` (a list of role and content), ``conversations`` (a list of from and value), and ``prompt`` with
# ``response``, where a prompt is a text or a list of messages, and a response a text or, for several turns, such a
# list.
#
# The sets for reinforcement learning and evaluation come in verl's columns, with a whole opening message in every row;
# :func:`opening_of` finds the template that it was made with.


ROLES = {"human": "user", "gpt": "assistant"}
"""Names of roles in ``conversations``, and ours."""


def read_chats(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSONL or parquet file with ``messages`` in each; other columns are kept.

    Raises :class:`ConfigError` naming the file, and the row where one cannot be read; or when there is none.
    """
    if path.suffix == ".parquet":
        columns, table = read_rows(path, ConfigError)
        if not columns & {"messages", "conversations"} and not {"prompt", "response"} <= columns:
            there = ", ".join(sorted(columns))
            raise ConfigError(f"{path}: columns {there} hold no chat: messages, conversations, or prompt and response")
    else:
        table = list(read_jsonl(path, dict[str, Any], torn=False))
    if not table:
        raise ConfigError(f"{path} holds no trajectory")
    rows = []
    for number, row in enumerate(table):
        try:
            rows.append({**row, "messages": _row_messages(row)})
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


def _row_messages(row: Mapping[str, Any]) -> list[dict[str, str]]:
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


# ---- Selection of data: the trajectories of a file that supervised training sees


Row = dict[str, Any]
Filter = Callable[..., list[int]]

filters: Registry[Filter] = Registry("filter of data")
"""``f(rows, **options) -> list[int]``: the indices of the rows to keep."""


def select(rows: Sequence[Row], methods: Sequence[Method]) -> list[Row]:
    """Return the rows that all filters keep, in order.

    Raises :class:`ConfigError` for an unknown filter or option, for rows without graded turns, and when nothing is
    left.
    """
    kept = list(rows)
    for method in methods:
        filters.check("select", method.name, method.options, given=("rows",))
        before = len(kept)
        kept = [kept[index] for index in sorted(filters.get(method.name)(kept, **method.options))]
        if before and not kept:
            raise ConfigError(f"select: {method.name} keeps none of {before} trajectories")
    return kept


@filters.register("successful")
def successful(rows: Sequence[Row]) -> list[int]:
    """Return the rows whose last turn is correct."""
    return [index for index, row in enumerate(rows) if _last(row).get("status") == "correct"]


def _last(row: Row) -> dict[str, Any]:
    """The record of the last graded turn. Raises :class:`ConfigError`."""
    turns = row.get("turns")
    if not isinstance(turns, list) or not turns or not isinstance(turns[-1], dict):
        raise ConfigError(f"select needs rows with graded 'turns'; row {row.get('id', '?')!r} has none")
    return turns[-1]
