"""The layer between a run and its model: cache, concurrency, rate limits, retries, budget and accounting."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pydantic import Field

from drkernel.config import Config
from drkernel.episode.answerer import Answerer, BudgetSpent, ModelCall, ModelError, SittingAnswerer
from drkernel.episode.chat import Reply, Usage, count_tokens
from drkernel.episode.journal import ReplyCache


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
    replies: int = 0
    retries: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Number of requests that failed and were retried, by reason."""

    def troubles(self) -> str:
        """Describe the failed requests, the most frequent reason first; empty when there were none."""
        ordered = sorted(self.failures.items(), key=lambda item: -item[1])
        return ", ".join(f"{reason} {count}" for reason, count in ordered)


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
        seed: int = 0,
    ):
        if budget.dollars is not None and prices is None:
            raise ValueError("a budget in dollars needs the model's prices")
        self.model, self.cache, self.limits, self.prices, self.budget = model, cache, limits, prices, budget
        self.name = model.name
        self.spending = Spending()
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._requests = RateLimiter(limits.requests_per_minute) if limits.requests_per_minute else None
        self._tokens = RateLimiter(limits.tokens_per_minute) if limits.tokens_per_minute else None
        self._jitter = random.Random(seed)
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
            self._count(kept)
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
        self._count(reply)
        return reply

    def take_over(self, replies: Iterable[Reply]) -> None:
        """Count the replies that an earlier process of the same run received."""
        for reply in replies:
            self._count(reply)

    def _count(self, reply: Reply) -> None:
        self.spending.replies += 1
        self.spending.usage += reply.usage

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
