"""Between a run and its model: journal, cache of replies, concurrency, rate limits, retries, budget and accounting."""

from __future__ import annotations

import asyncio
import fcntl
import math
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from drkernel.config import Config, ConfigError
from drkernel.episode.records import (
    COMPLETE,
    Answerer,
    BudgetSpent,
    End,
    ModelCall,
    ModelError,
    Reply,
    SittingAnswerer,
    Turn,
    Usage,
    best_path,
    count_tokens,
)
from drkernel.view import counts

# ---- The files of a run on disk
#
# Both survive ``kill -9``. A reply is committed before it is graded, a turn is one appended line, and a line torn by
# the kill is cut off when the run is opened again. Bench, search and cold start resume from these files.


Row = TypeVar("Row")
Key = tuple[str, int]
"""(task id, sample)"""


class JournalEntry(Config):
    """One line of a journal: a graded turn of a trajectory, or the reason why the trajectory ended."""

    task_id: str
    sample: int = 0
    turn: Turn | None = None
    end: End | None = None
    detail: str = ""

    @model_validator(mode="after")
    def _says_one_thing(self) -> JournalEntry:
        if (self.turn is None) == (self.end is None):
            raise ValueError("a line of a journal holds either a turn or an end")
        return self


@dataclass
class Played:
    """The trajectories of a journal."""

    made: dict[Key, dict[str, Turn]] = field(default_factory=dict)
    """(task id, sample) -> turn's id -> turn"""
    ended: dict[Key, JournalEntry] = field(default_factory=dict)

    def add(self, entry: JournalEntry) -> None:
        """Add one line; it replaces an earlier line of the same turn."""
        key = (entry.task_id, entry.sample)
        if entry.turn is not None:
            self.made.setdefault(key, {})[entry.turn.id] = entry.turn
        else:
            self.ended[key] = entry

    def turns(self, key: Key) -> list[Turn]:
        """Return the graded turns of one trajectory in order, including branches."""
        made = self.made.get(key, {}).values()
        return sorted((turn for turn in made if turn.valid), key=lambda turn: turn.position)

    def path(self, key: Key) -> list[Turn]:
        """Return the graded turns on the path: those that the conversation continued from."""
        return [turn for turn in best_path(self.made.get(key, {}).values()) if turn.valid]

    def complete(self, key: Key) -> bool:
        """Return whether the trajectory is finished."""
        ended = self.ended.get(key)
        return ended is not None and ended.end in COMPLETE

    def why_missing(self, keys: Sequence[Key]) -> dict[str, int]:
        """Count the incomplete trajectories by reason, in words, with the first detail of each reason as an example."""
        details: dict[str, list[str]] = {}
        for key in keys:
            ended = self.ended.get(key)
            reason = "not played yet" if ended is None else str(ended.end)
            details.setdefault(reason, []).append(ended.detail if ended else "")
        reasons = {}
        for end, said in details.items():
            joint = ": " if len(set(said)) == 1 else ", e.g. "
            reasons[f"{end}{joint}{said[0][:300]}" if said[0] else end] = len(said)
        return reasons


class ReplyCache:
    """Replies by content hash in one SQLite file; several processes may share it."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL)")
        except sqlite3.Error as error:
            raise ConfigError(f"cannot use the reply cache {path}: {error}") from error

    def get(self, key: str) -> Reply | None:
        """Return the reply stored under ``key``; None if there is none."""
        with self._lock:
            row = self._db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else Reply.model_validate_json(row[0])

    def put(self, key: str, reply: Reply) -> None:
        """Store a reply. Once this returns, the reply survives the death of this process."""
        with self._lock:
            self._db.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, reply.model_dump_json()))

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT COUNT(*) FROM replies").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


class Journal:
    """An append-only JSONL file with one writer at a time.

    Raises :class:`ConfigError` when another process writes it.
    """

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 (kept open; closed in close())
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ConfigError(f"{path} is being written by another process; wait for it or end it") from None
        cut_torn_line(path)

    def append(self, entry: JournalEntry) -> None:
        """Append one line. Once this returns, the line survives the death of this process."""
        self._file.write(entry.model_dump_json() + "\n")
        self._file.flush()

    def close(self) -> None:
        """Flush the file to disk and close it."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def read_journal(path: Path) -> Played:
    """Read the trajectories of a journal, even while it is written. Raises :class:`ConfigError` naming a bad line."""
    played = Played()
    for entry in read_jsonl(path, JournalEntry):
        played.add(entry)
    return played


def cut_torn_line(path: Path) -> None:
    """Truncate a last line without a line break: the process died while writing it."""
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)


def read_jsonl(path: Path, kind: type[Row], torn: bool = True) -> Iterator[Row]:
    """Yield the rows of a JSONL file, each as ``kind``; ``torn``: except a last line without a line break.

    Raises:
        ConfigError: the file cannot be read, or a line is damaged.
    """
    rows = TypeAdapter(kind)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
    for number, line in enumerate(lines[:-1] if torn else lines, 1):
        try:
            if line.strip():
                yield rows.validate_json(line)
        except ValidationError as error:
            raise ConfigError(f"{path}, line {number}: {error.errors()[0]['msg']}") from None


# ---- The layer between a run and its model


class Prices(Config):
    """Token prices in dollars per million."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
    cached: float | None = Field(None, ge=0, description="prompt tokens read from the endpoint's cache; None: `prompt`")

    def cost(self, usage: Usage) -> float:
        """Return the cost of ``usage`` in dollars."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = usage.prompt - usage.cached
        return (fresh * self.prompt + usage.cached * cached + usage.completion * self.completion) / 1e6


class CallLimits(Config):
    """Request limits of an endpoint."""

    concurrency: int = Field(8, ge=1, description="requests at once")
    requests_per_minute: float | None = Field(None, gt=0)
    tokens_per_minute: float | None = Field(None, gt=0, description="prompt and granted completion together")
    tries: int = Field(6, ge=1, description="requests for one answer, the first included")
    backoff_s: float = Field(
        1.0, gt=0, description="longest wait before the second try; doubles with every further one"
    )
    backoff_max_s: float = Field(60.0, gt=0)


class Budget(Config):
    """Spending limits of a run; None means no limit."""

    tokens: int | None = Field(None, ge=1)
    dollars: float | None = Field(None, gt=0, description="needs prices")
    minutes: float | None = Field(None, gt=0, description="wall minutes; what is under way then is not waited for")


def money(dollars: float) -> str:
    """Format dollars with two decimals; below ten cents with as many decimals as two significant digits need."""
    digits = 2 if dollars >= 0.1 or dollars == 0 else 1 - math.floor(math.log10(dollars))
    return f"${dollars:.{digits}f}"


@dataclass
class Spending:
    """The tokens a run used, and its failed requests."""

    usage: Usage = field(default_factory=Usage)
    """Tokens of every answer, including answers from the cache and from earlier processes: the cost of the results,
    however often the run was resumed. Budgets apply to this count."""
    paid: Usage = field(default_factory=Usage)
    """The part of ``usage`` that this process requested from its model."""
    retries: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Number of requests that failed and were retried, by reason."""

    def troubles(self) -> str:
        """Describe the failed requests, the most frequent reason first; empty when there were none."""
        return counts(self.failures)


class RateLimiter:
    """A bucket that refills continuously at ``per_minute`` and holds ``burst`` at most (default: a second's worth)."""

    def __init__(self, per_minute: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic):
        self._rate = per_minute / 60
        self._burst = max(1.0, per_minute / 60) if burst is None else burst
        self._clock = clock
        self._level = self._burst
        self._then = clock()

    def wait_for(self, amount: float) -> float:
        """Take ``amount`` and return the seconds to wait until the bucket covers it; the bucket may go into debt."""
        now = self._clock()
        self._level = min(self._burst, self._level + (now - self._then) * self._rate)
        self._then = now
        self._level -= amount
        return max(0.0, -self._level / self._rate)


class Meter:
    """An answerer wrapped in cache, limits, retries and accounting. With ``cache`` None no reply is stored."""

    def __init__(
        self,
        model: Answerer,
        *,
        cache: ReplyCache | None = None,
        limits: CallLimits = CallLimits(),
        prices: Prices | None = None,
        budget: Budget = Budget(),
    ):
        if budget.dollars is not None and prices is None:
            raise ValueError("a budget in dollars needs the model's prices")
        self.model, self.cache, self.limits, self.prices, self.budget = model, cache, limits, prices, budget
        self.name = model.name
        self.spending = Spending()
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._requests = RateLimiter(limits.requests_per_minute) if limits.requests_per_minute else None
        self._tokens = RateLimiter(limits.tokens_per_minute) if limits.tokens_per_minute else None
        self._jitter = random.Random(0)
        self._given_up: ModelError | None = None
        self._unanswered = 0
        self._started = time.monotonic()

    @property
    def dollars(self) -> float | None:
        """The cost of the answers in dollars; None without prices."""
        return None if self.prices is None else self.prices.cost(self.spending.usage)

    async def complete(self, call: ModelCall) -> Reply:
        """Return the cached reply, or request one and cache it before returning.

        After an error that every further request would meet too (a wrong key, an endpoint that has never answered), no
        more requests are sent.

        Raises:
            ModelError: no answer after all tries, or an error that is final.
            BudgetSpent: a limit was reached.
        """
        key = call.key(self.model.name)
        if self.cache is not None and (kept := self.cache.get(key)) is not None:
            self.spending.usage += kept.usage
            return kept
        async with self._slots:
            if self._given_up is not None:
                raise ModelError(str(self._given_up))
            try:
                reply = await self._within_budget(call)
            except ModelError as error:
                self._unanswered += 1
                never = self.spending.paid.total == 0 and self._unanswered >= self.limits.concurrency
                if error.final or (error.retry and never):
                    self._given_up = error
                raise
        if self.cache is not None:
            self.cache.put(key, reply)
        self.spending.paid += reply.usage
        self.spending.usage += reply.usage
        return reply

    def take_over(self, replies: Iterable[Reply]) -> None:
        """Count the replies that an earlier process of the same run received."""
        self.spending.usage = sum((reply.usage for reply in replies), self.spending.usage)

    def check_budget(self) -> None:
        """Raise :class:`BudgetSpent` when a limit is reached."""
        spent, budget = self.spending, self.budget
        if budget.tokens is not None and spent.usage.total >= budget.tokens:
            raise BudgetSpent(f"the budget of {budget.tokens:,} tokens is spent")
        if budget.dollars is not None and (self.dollars or 0.0) >= budget.dollars:
            raise BudgetSpent(f"the budget of ${budget.dollars:g} is spent")
        if budget.minutes is not None and self.minutes >= budget.minutes:
            raise BudgetSpent(f"the budget of {budget.minutes:g} minutes is spent")

    @property
    def minutes(self) -> float:
        """Wall-clock minutes since the meter was created."""
        return (time.monotonic() - self._started) / 60

    async def _within_budget(self, call: ModelCall) -> Reply:
        self.check_budget()
        if self.budget.minutes is None:
            return await self._with_tries(call)
        left = 60 * (self.budget.minutes - self.minutes)
        try:
            async with asyncio.timeout(left) as deadline:
                return await self._with_tries(call)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise BudgetSpent(f"the budget of {self.budget.minutes:g} minutes is spent") from None

    async def _with_tries(self, call: ModelCall) -> Reply:
        """Retry until there is an answer. Waits grow exponentially with random jitter, so that callers spread out."""
        for attempt in range(1, self.limits.tries + 1):
            await self._wait_turn(call)
            try:
                reply = await self.model.complete(call)
                return reply.model_copy(update={"tries": attempt})
            except ModelError as error:
                if not error.retry:
                    raise
                reason = str(error).partition(":")[0]
                self.spending.failures[reason] = self.spending.failures.get(reason, 0) + 1
                if attempt == self.limits.tries:
                    message = f"no answer after {attempt} tries; the last failure: {error}"
                    raise ModelError(message, retry=True) from error
                self.spending.retries += 1
                longest = min(self.limits.backoff_max_s, self.limits.backoff_s * 2 ** (attempt - 1))
                await asyncio.sleep(max(error.wait or 0.0, self._jitter.uniform(0, longest)))
                self.check_budget()
        raise AssertionError("unreachable: the last try returns or raises")

    async def _wait_turn(self, call: ModelCall) -> None:
        waits = [0.0]
        if self._requests is not None:
            waits.append(self._requests.wait_for(1))
        if self._tokens is not None:
            prompt = count_tokens(call.messages)
            waits.append(self._tokens.wait_for(prompt + call.sampling.max_tokens))
        if (wait := max(waits)) > 0:
            await asyncio.sleep(wait)

    async def leave(self, task_id: str, sample: int) -> None:
        """Tell the model that a trajectory is over."""
        if isinstance(self.model, SittingAnswerer):
            await self.model.leave(task_id, sample)

    async def close(self) -> None:
        """Close the model and the cache."""
        await self.model.close()
        if self.cache is not None:
            self.cache.close()
