"""Cold-start data: multi-turn trajectories of a teacher, every turn graded by the real judge.

One JSON line per trajectory. The user's messages are exactly the episode's observations, so that the policy is later
trained on the very text that it will meet. A turn that was meant to be right and is not is dropped with its
trajectory and counted; nothing unverified is ever written as correct. An interrupted run goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError
from drkernel.episode.episode import Episode, EpisodeConfig, StepResult
from drkernel.gym.request import Pool
from drkernel.rl.data.teacher.families import generate_problems
from drkernel.rl.data.teacher.plans import ProgramTeacher, TeacherConfig
from drkernel.rl.data.teacher.problem import Problem
from drkernel.rl.data.teacher.reference import make_task
from drkernel.task import Task

Progress = Callable[[int, int, dict[str, int]], None]
"""Told (trajectories settled, trajectories in all, counts by outcome) after each one."""


class ColdstartConfig(Config):
    """How much data, from which teacher, under which terms."""

    tasks: int = Field(400, ge=1, description="generated training tasks, one trajectory each")
    seed: int = Field(0, ge=0, description="decides the tasks and every draw of the teacher")
    teacher: TeacherConfig = TeacherConfig()
    episode: EpisodeConfig = EpisodeConfig(turns=3, prompts="compact")
    concurrency: int = Field(4, ge=1, description="trajectories in flight at once")
    source: str = Field("program", description="who answers: the program teacher, or the name of a chat model")


class Answerer(Protocol):
    """A teacher of one trajectory: gives (its intention, its whole answer) for the conversation so far."""

    async def answer(self, messages: Sequence[dict[str, str]]) -> tuple[str, str]: ...


MakeAnswerer = Callable[[Task, int], Answerer]
"""(task, index) -> the teacher of that trajectory."""


class ColdstartTurn(Config):
    """What one answer was meant to be, and what the judge found it to be."""

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
    """What a file of trajectories holds."""

    trajectories: int
    turns: int
    by_plan: dict[str, int] = Field(description="turns by the teacher's plan")
    by_status: dict[str, int] = Field(description="turns by the judge's status")
    dropped: dict[str, int] = Field(description="trajectories left out, by reason")


class Dropped(Exception):
    """A trajectory that cannot be written; the reason is a short name."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


class Interrupted(Exception):
    """The data is not complete: its maker was asked to stop. What is written stays, and is gone on with."""


async def write_coldstart(
    config: ColdstartConfig,
    pool: Pool,
    out: Path,
    progress: Progress | None = None,
    make_answerer: MakeAnswerer | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> ColdstartSummary:
    """Write ``out``: a JSON line per trajectory, ordered by index; goes on with what is there already.

    ``make_answerer`` takes the program teacher's place (``config.source`` names it). Of another's trajectories the part
    up to the best correct turn is kept; one without a correct turn, or with a hack before it, is dropped. Once
    ``stopping`` says so, trajectories under way are finished and no more are begun.

    Raises:
        Interrupted: ``stopping`` said so before every trajectory was settled.
        ConfigError: ``out`` holds rows of another seed or teacher, or cannot be written.
    """
    journal = _Journal(config, out)
    problems = list(generate_problems("train", config.tasks, config.seed))
    waiting = [index for index in range(config.tasks) if index not in journal.settled]
    gate = asyncio.Semaphore(config.concurrency)

    async def one(index: int) -> None:
        async with gate:
            if stopping():
                return
            try:
                journal.write(index, await trajectory(config, pool, index, problems[index], make_answerer))
            except Dropped as error:
                journal.drop(index, error)
        if progress is not None:
            progress(len(journal.settled), config.tasks, dict(journal.outcomes))

    try:
        async with asyncio.TaskGroup() as group:
            for index in waiting:
                group.create_task(one(index))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        journal.close()
    if len(journal.settled) < config.tasks:
        raise Interrupted(f"{len(journal.settled)} of {config.tasks} trajectories are in {journal.working}")
    return journal.finish()


async def trajectory(
    config: ColdstartConfig, pool: Pool, index: int, problem: Problem, make_answerer: MakeAnswerer | None = None
) -> ColdstartRow:
    """Play one episode with the teacher.

    Raises:
        Dropped: the judge disagrees with the teacher about a right answer, could not grade, or nothing is fit to keep.
    """
    task = make_task(problem)
    teacher: Answerer
    if make_answerer is None:
        teacher = _Program(ProgramTeacher(problem, config.teacher, random.Random(f"coldstart-{config.seed}-{index}")))
    else:
        teacher = make_answerer(task, index)
    episode = Episode(pool, config.episode)
    observation = await episode.reset(task, None)
    messages = [{"role": "user", "content": observation.text}]
    turns: list[ColdstartTurn] = []
    while True:
        plan, answer = await teacher.answer(messages)
        result = await episode.step(answer)
        _check(plan, result)
        messages.append({"role": "assistant", "content": answer})
        turns.append(_turn(plan, result))
        if result.done or result.observation is None:
            break
        messages.append({"role": "user", "content": result.observation.text})
    if make_answerer is not None:
        messages, turns = _up_to_best(messages, turns)
    return ColdstartRow(
        id=f"{config.source}-{config.seed}-{index}",
        task=task,
        messages=tuple(messages),
        turns=tuple(turns),
        provenance={
            "teacher": config.source,
            "seed": config.seed,
            "index": index,
            "family": problem.family,
            "device": config.episode.settings.device,
        },
    )


class _Program:
    """The program teacher, which reads nothing: its plans are drawn ahead."""

    def __init__(self, teacher: ProgramTeacher):
        self._teacher = teacher

    async def answer(self, messages: Sequence[dict[str, str]]) -> tuple[str, str]:
        plan, source = self._teacher.next_answer()
        return plan, f"```python\n{source.strip()}\n```"


def _up_to_best(
    messages: list[dict[str, str]], turns: list[ColdstartTurn]
) -> tuple[list[dict[str, str]], list[ColdstartTurn]]:
    """The conversation up to its fastest correct turn. Raises :class:`Dropped` when none is fit to learn from."""
    correct = [k for k, turn in enumerate(turns) if turn.status == "correct"]
    if not correct:
        raise Dropped("no_correct_turn", turns[-1].status)
    best = max(correct, key=lambda k: (turns[k].speedup or 0.0, -k))
    if any(turn.status == "hack" for turn in turns[:best]):
        raise Dropped("hack", "a turn before the best one was condemned")
    return messages[: 2 * best + 2], turns[: best + 1]


def _check(plan: str, result: StepResult) -> None:
    verdict = result.verdict
    detail = verdict.error.message if verdict.error is not None else ", ".join(f.kind for f in verdict.findings)
    if not verdict.is_of_candidate:
        raise Dropped(verdict.status, detail)
    if plan == "fused" and verdict.status != "correct":
        raise Dropped(f"fused_{verdict.status}", detail)


def _turn(plan: str, result: StepResult) -> ColdstartTurn:
    verdict = result.verdict
    return ColdstartTurn(
        plan=plan,
        status=verdict.status,
        reward=result.reward,
        speedup=verdict.speedup.value if verdict.speedup is not None else None,
        coverage=verdict.coverage,
        findings=tuple(finding.kind for finding in verdict.findings),
    )


class _Journal:
    """The file while it is written: rows as they come (any order), sorted at the end."""

    def __init__(self, config: ColdstartConfig, out: Path):
        self.config = config
        self.out = out
        self.working = out.with_name(out.name + ".partial")
        self.settled: set[int] = set()
        self.outcomes: Counter[str] = Counter()
        self.rows: dict[int, ColdstartRow] = {}
        self.dropped: Counter[str] = Counter()
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            for path in (out, self.working):
                if path.exists():
                    self._take_up(path)
            self._file = self.working.open("w", encoding="utf-8")
            for index in sorted(self.rows):
                self._append(self.rows[index])
        except OSError as error:
            raise ConfigError(f"cannot write cold-start data to {out}: {error.strerror}") from error

    def _take_up(self, path: Path) -> None:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                row = ColdstartRow.model_validate_json(line)
            except ValidationError:
                if path == self.working:  # the line that was being written when the program was killed
                    continue
                raise ConfigError(f"{path}, line {number}: not a cold-start row; move the file away") from None
            if row.provenance.get("seed") != self.config.seed or row.provenance.get("teacher") != self.config.source:
                raise ConfigError(f"{path} holds trajectories of another seed or teacher; give another file")
            index = int(row.provenance["index"])
            if index < self.config.tasks and index not in self.rows:
                self.rows[index] = row
                self.settled.add(index)
                self.outcomes["kept"] += 1

    def _append(self, row: ColdstartRow) -> None:
        self._file.write(row.model_dump_json() + "\n")
        self._file.flush()

    def write(self, index: int, row: ColdstartRow) -> None:
        """Keep a trajectory."""
        self.rows[index] = row
        self.settled.add(index)
        self.outcomes["kept"] += 1
        self._append(row)

    def drop(self, index: int, error: Dropped) -> None:
        """Leave a trajectory out, and remember why."""
        self.settled.add(index)
        self.outcomes["dropped"] += 1
        self.dropped[error.reason] += 1

    def close(self) -> None:
        """Flush what is there to the disk."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def finish(self) -> ColdstartSummary:
        """Put the ordered file in place, atomically, with a summary beside it."""
        ordered = [self.rows[index] for index in sorted(self.rows)]
        temporary = self.out.with_name(self.out.name + ".tmp")
        with temporary.open("w", encoding="utf-8") as file:
            file.writelines(row.model_dump_json() + "\n" for row in ordered)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.out)
        self.working.unlink(missing_ok=True)
        summary = summarise(ordered, dict(self.dropped))
        self.out.with_name(self.out.stem + ".summary.json").write_text(
            json.dumps(summary.model_dump(), indent=1) + "\n", encoding="utf-8"
        )
        return summary


def summarise(rows: list[ColdstartRow], dropped: dict[str, int] | None = None) -> ColdstartSummary:
    """Counts over trajectories."""
    turns = [turn for row in rows for turn in row.turns]
    return ColdstartSummary(
        trajectories=len(rows),
        turns=len(turns),
        by_plan=dict(Counter(turn.plan for turn in turns)),
        by_status=dict(Counter(turn.status for turn in turns)),
        dropped=dropped or {},
    )


def load_rows(path: Path) -> list[ColdstartRow]:
    """All trajectories of a file.

    Raises:
        ConfigError: the file cannot be read, or a line is malformed; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read cold-start data {path}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(ColdstartRow.model_validate_json(line))
        except ValidationError as error:
            raise ConfigError(f"{path}, line {number}: {error.errors()[0]['msg']}") from None
    return rows
