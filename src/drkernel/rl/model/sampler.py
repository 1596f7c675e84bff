"""Batched sampling of turns: ids and log-probabilities of exactly what was drawn, with rows refilled as they finish.

A :class:`Conversation` is one growing sequence of ids. :meth:`Sampler.stream` appends ids to many of them, decodes them
together and yields every turn the moment it ends, so that grading starts while others are sampled. Only live rows are
computed: a finished row's place goes to a waiting conversation, or to the last live row.

Tokens are drawn by inverse CDF from one uniform number each, and the numbers of a turn depend on (seed, turn) alone.
What a conversation draws therefore does not depend on which others share the batch, up to the rounding of a matrix
product of different height.

:class:`RequestSampler` samples by requests instead, for servers and for transformers' ``generate``.
:class:`SamplerAnswerer` answers an episode's calls with either: a conversation is never tokenised twice.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from drkernel.config import Config
from drkernel.episode.records import (
    Message,
    ModelCall,
    Reply,
    Sampled,
    Stop,
    Turn,
    Usage,
    without_reasoning,
)
from drkernel.rl.model.tokenizer import ChatTokenizer

_CLOSED = re.compile(r"^[ \t]*```[\w+.-]*[^\n`]*\n.*?^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)


class SamplingConfig(Config):
    """Sampling parameters: temperature and truncation."""

    temperature: float = Field(1.0, ge=0, description="0 takes the likeliest token (log-probs then at temperature 1)")
    top_p: float = Field(1.0, gt=0, le=1, description="smallest set of likeliest tokens with this mass; 1 keeps all")
    max_tokens: int = Field(256, ge=1, description="token budget of one turn")
    stop_at_fence: bool = Field(True, description="end the turn when a code block is closed, without an end token")
    rows: int = Field(64, ge=1, description="conversations decoded together")


class Decoder(Protocol):
    """The interface that the sampler needs of a model with a cache; see :class:`drkernel.rl.model.lean.LeanDecoder`."""

    rows: int
    capacity: int

    def refresh(self, model: Any) -> None: ...
    def step(self, tokens_B: Tensor) -> Tensor: ...
    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor: ...
    def clear(self, row: int) -> None: ...
    def move(self, source: int, target: int) -> None: ...
    def save(self, row: int) -> Any: ...
    def load(self, row: int, saved: Any) -> None: ...


@dataclass
class Conversation:
    """One sequence that grows by appended and by sampled ids."""

    seed: int
    """Decides every draw, together with the turn's index."""
    ids: list[int] = field(default_factory=list)
    """Everything appended and sampled so far."""
    turn: int = 0
    """Turns sampled so far."""
    saved: Any = None
    """The cache of ``ids`` but the last one, when kept; dropped by :meth:`forget`. Forks share it: it is never written
    to."""
    answer: tuple[int, ...] = ()
    """The tokens sampled so far of an unfinished answer: the end of ``ids``."""
    budget: int | None = None
    """Most tokens that the next piece of an answer may have; None takes the sampler's limit."""

    def forget(self) -> None:
        """Release the cache's memory."""
        self.saved = None

    def fork(self, seed: int) -> Conversation:
        """Another one with the same ids and the same cache, whose draws are its own."""
        return Conversation(seed, list(self.ids), self.turn, self.saved, self.answer, self.budget)


@dataclass(frozen=True)
class SampledTurn:
    """The tokens that one turn drew."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """log-probability (nats) of each id under the distribution it was drawn from, after temperature and truncation"""
    stop: Stop
    pruned_mass: float
    """mean probability mass (0..1) removed by truncation (top-p, min-p)"""


def draw(logits_BV: Tensor, uniform_B: Tensor, config: SamplingConfig) -> tuple[Tensor, ...]:
    """Draw one token per row; return ids, log-probabilities under the truncated, renormalised distribution, and the
    mass removed.

    ``uniform_B`` holds numbers in [0, 1).
    """
    greedy = config.temperature == 0
    scores_BV = logits_BV if greedy or config.temperature == 1 else logits_BV / config.temperature
    logprobs_BV = torch.log_softmax(scores_BV, dim=-1)
    probs_BV = logprobs_BV.exp()
    cut = config.top_p < 1
    if cut:
        ordered_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
        outside_BV = ordered_BV.cumsum(-1) - ordered_BV >= config.top_p * ordered_BV.sum(-1, keepdim=True)
        probs_BV = probs_BV.masked_fill(outside_BV.scatter(1, order_BV, outside_BV), 0.0)
    # float64: summing thousands of probabilities in float32 would round away the ends of the interval
    line_BV = probs_BV.double().cumsum(-1)
    mass_B = line_BV[:, -1]
    if greedy:
        ids_B = logits_BV.argmax(-1)
    else:
        # the first token whose cumulated mass exceeds u: never one of zero mass
        target_B1 = (uniform_B.double() * mass_B).clamp_max(torch.nextafter(mass_B, torch.zeros_like(mass_B)))[:, None]
        ids_B = torch.searchsorted(line_BV, target_B1, right=True)[:, 0].clamp_max(logits_BV.shape[-1] - 1)
    chosen_B = logprobs_BV.gather(1, ids_B[:, None])[:, 0]
    if cut:
        chosen_B = chosen_B - mass_B.log().float()
    return ids_B, chosen_B, (1 - mass_B.float() if cut else torch.zeros_like(chosen_B))


def turn_uniforms(seed: int, turn: int, count: int) -> np.ndarray:
    """Return ``count`` uniform numbers in [0, 1) that depend on (seed, turn) alone."""
    return np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, turn], dtype=np.uint64))).random(count)


class _Live:
    """A conversation while its turn is being sampled."""

    def __init__(self, index: int, conversation: Conversation, most: int, room: int):
        self.index, self.conversation = index, conversation
        self.whole = conversation.budget or most
        self.budget = budget = min(self.whole, room)
        self.uniforms = turn_uniforms(conversation.seed, conversation.turn, budget)
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.cut = 0.0


class Sampler:
    """Samples turns with one decoder."""

    def __init__(self, decoder: Decoder, tokenizer: ChatTokenizer, config: SamplingConfig):
        self.decoder, self.tokenizer, self.config = decoder, tokenizer, config
        self.tokens = 0
        """Tokens sampled since the sampler was made."""

    @property
    def capacity(self) -> int:
        """Longest conversation in tokens."""
        return self.decoder.capacity

    async def stream(
        self, conversations: Sequence[Conversation], appends: Sequence[Sequence[int]], *, keep_cache: bool = True
    ) -> AsyncIterator[tuple[int, SampledTurn]]:
        """Append ``appends[i]`` to each conversation, sample its turn, and yield (i, turn) as soon as it ends.

        Control returns to the event loop between steps. A conversation without room for one token ends at once with
        stop ``"context"`` and no tokens. ``keep_cache`` keeps each conversation's cache for its next turn.
        """
        waiting: list[tuple[int, Conversation, list[int]]] = []
        for index, (conversation, append) in enumerate(zip(conversations, appends, strict=True)):
            fresh = conversation.ids[_cached(conversation) :] + list(append)
            conversation.ids.extend(append)
            if not fresh or len(conversation.ids) >= self.decoder.capacity:
                conversation.turn += 1
                yield index, SampledTurn((), (), "context", 0.0)
            else:
                waiting.append((index, conversation, fresh))
        waiting.reverse()
        live: list[_Live] = []
        logits_BV: Tensor | None = None
        while waiting or live:
            logits_BV = self._refill(live, waiting, logits_BV)
            assert logits_BV is not None
            finished, tokens_B = self._draw(live, logits_BV)
            for row in reversed(finished):  # from the back: the last live row takes a finished one's place
                entry = live[row]
                turn = self._finish(entry, row, keep_cache)
                tokens_B = _close_gap(live, row, tokens_B, self.decoder)
                yield entry.index, turn
            await asyncio.sleep(0)
            logits_BV = self.decoder.step(tokens_B) if live else None

    def sample(
        self,
        conversations: Sequence[Conversation],
        appends: Sequence[Sequence[int]],
        *,
        keep_cache: bool = False,
    ) -> list[SampledTurn]:
        """Run :meth:`stream` without an event loop; return all turns in the order of ``conversations``."""

        async def collect() -> list[SampledTurn]:
            turns: dict[int, SampledTurn] = {}
            async for index, turn in self.stream(conversations, appends, keep_cache=keep_cache):
                turns[index] = turn
            return [turns[index] for index in range(len(conversations))]

        return asyncio.run(collect())

    def _refill(
        self, live: list[_Live], waiting: list[tuple[int, Conversation, list[int]]], logits_BV: Tensor | None
    ) -> Tensor | None:
        """Move waiting conversations into free rows and read their new ids; return the logits of all live rows."""
        free = min(self.decoder.rows - len(live), len(waiting))
        # each read of a few prompts costs a step of its own: wait until a quarter of the rows is free
        if free <= 0 or (live and len(waiting) > free and free < max(1, self.decoder.rows // 4)):
            return logits_BV
        incoming = [waiting.pop() for _ in range(free)]
        incoming.sort(key=lambda item: len(item[2]))  # alike lengths are read together: little padding
        pieces = [] if logits_BV is None else [logits_BV]
        for start in range(0, len(incoming), 32):
            pieces.append(self._read(live, incoming[start : start + 32]))
        return torch.cat(pieces)

    def _read(self, live: list[_Live], batch: list[tuple[int, Conversation, list[int]]]) -> Tensor:
        """Feed the new ids of a few conversations, computing shared prefixes once; return logits [len(batch), V]."""
        first: dict[tuple[int, tuple[int, ...]], int] = {}
        rows, ids, copies, caches = [], [], [], []
        for index, conversation, fresh in batch:
            row = len(live)
            room = self.decoder.capacity - len(conversation.ids)
            live.append(_Live(index, conversation, self.config.max_tokens, room))
            self.decoder.clear(row)
            cache = conversation.saved
            twin = first.setdefault((id(cache), tuple(fresh)), row)
            conversation.forget()
            if twin != row:  # the same ids after the same cache, or after none: forks, or samples of one prompt
                copies.append((twin, row))
                continue
            if cache is not None:
                caches.append(cache)  # held until all of them are known, so that ids of objects are not used again
                self.decoder.load(row, cache)
            rows.append(row)
            ids.append(fresh)
        logits = self.decoder.extend(rows, ids)
        where = {row: position for position, row in enumerate(rows)}
        for twin, row in copies:
            self.decoder.move(twin, row)
            where[row] = where[twin]
        begin = len(live) - len(batch)
        return logits[[where[row] for row in range(begin, len(live))]]

    def _draw(self, live: list[_Live], logits_BV: Tensor) -> tuple[list[int], Tensor]:
        """Draw one token for every live row; return the rows that end with it, and the tokens for the next step."""
        uniform = torch.tensor([entry.uniforms[len(entry.tokens)] for entry in live], dtype=torch.float64)
        ids_B, logprobs_B, cut_B = draw(logits_BV, uniform.to(logits_BV.device), self.config)
        self.tokens += len(live)
        finished = []
        for row, (entry, token, logprob, cut) in enumerate(
            zip(live, ids_B.tolist(), logprobs_B.tolist(), cut_B.tolist(), strict=True)
        ):
            entry.tokens.append(token)
            entry.logprobs.append(logprob)
            entry.cut += cut
            if token == self.tokenizer.end_id or len(entry.tokens) >= entry.budget or self._at_fence(entry, token):
                finished.append(row)
        return finished, ids_B

    def _at_fence(self, entry: _Live, token: int) -> bool:
        """Return whether this token closed a code block; only tokens that contain a backtick, or follow one, are
        examined."""
        if not self.config.stop_at_fence or token not in self.tokenizer.fence_ids:
            return False
        return _CLOSED.search(self.tokenizer.decode([*entry.conversation.answer, *entry.tokens])) is not None

    def _finish(self, entry: _Live, row: int, keep_cache: bool) -> SampledTurn:
        """Close a turn: append its ids to the conversation, keep the cache if wanted, and record why it ended."""
        conversation, last = entry.conversation, entry.tokens[-1]
        conversation.ids.extend(entry.tokens)
        conversation.turn += 1
        # the last token was never fed: the cache holds all but that one
        conversation.saved = self.decoder.save(row) if keep_cache else None
        stop: Stop
        if last == self.tokenizer.end_id:
            stop = "end"
        elif self._at_fence(entry, last):
            stop = "fence"
        else:
            stop = "length" if entry.budget == entry.whole else "context"
        return SampledTurn(tuple(entry.tokens), tuple(entry.logprobs), stop, entry.cut / len(entry.tokens))


def _cached(conversation: Conversation) -> int:
    """Return how many of the conversation's ids its cache holds."""
    return 0 if conversation.saved is None else int(conversation.saved.shape[-2])


def _close_gap(live: list[_Live], row: int, tokens_B: Tensor, decoder: Decoder) -> Tensor:
    """Remove ``row`` from the live rows: the last live row moves to its place, in the cache and in the tokens."""
    last = len(live) - 1
    if row != last:
        decoder.move(last, row)
        live[row] = live[last]
        tokens_B = tokens_B.clone()
        tokens_B[row] = tokens_B[last]
    live.pop()
    return tokens_B[:last]


class RequestSampler:
    """Samples turns by requests; what rollouts ask of :class:`Sampler`."""

    def __init__(self, tokenizer: ChatTokenizer, config: SamplingConfig, capacity: int):
        self.tokenizer, self.config, self.capacity = tokenizer, config, capacity
        self.tokens = 0

    async def ask(self, ids: list[int], room: int, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return the next at most ``room`` ids after ``ids``, and their log-probabilities."""
        raise NotImplementedError

    async def stream(
        self, conversations: Sequence[Conversation], appends: Sequence[Sequence[int]], *, keep_cache: bool = True
    ) -> AsyncIterator[tuple[int, SampledTurn]]:
        """Append ``appends[i]`` to each conversation, have its turn sampled, and yield (i, turn) as it comes.

        ``config.rows`` bounds the requests under way. The server's prefix cache stands for ``keep_cache``.
        """
        del keep_cache
        gate = asyncio.Semaphore(self.config.rows)
        running = [
            asyncio.create_task(self._turn(gate, index, conversation, list(append)))
            for index, (conversation, append) in enumerate(zip(conversations, appends, strict=True))
        ]
        try:
            for done in asyncio.as_completed(running):
                yield await done
        finally:
            for task in running:
                task.cancel()

    async def _turn(
        self, gate: asyncio.Semaphore, index: int, conversation: Conversation, append: list[int]
    ) -> tuple[int, SampledTurn]:
        conversation.ids.extend(append)
        whole = conversation.budget or self.config.max_tokens
        room = min(whole, self.capacity - len(conversation.ids))
        conversation.turn += 1
        if room < 1:
            return index, SampledTurn((), (), "context", 0.0)
        async with gate:
            seed = (conversation.seed * 1009 + conversation.turn) % 2**31
            ids, logprobs = await self.ask(conversation.ids, room, seed)
        conversation.ids.extend(ids)
        self.tokens += len(ids)
        cut: Stop = "length" if room == whole else "context"
        return index, SampledTurn(ids, logprobs, "end" if ids and ids[-1] == self.tokenizer.end_id else cut, 0.0)


# ---- Calls of an episode, answered by a sampler: ids in, ids out, never re-tokenised


class SamplerAnswerer:
    """Answers conversations as token ids.

    With ``keep_reasoning``, earlier answers are shown with everything that was sampled; without it, an answer that
    contains reasoning is tokenised again without it.
    """

    def __init__(
        self,
        sampler: Sampler | RequestSampler,
        tokenizer: ChatTokenizer,
        *,
        name: str = "policy",
        keep_reasoning: bool = True,
    ):
        self.sampler, self.tokenizer, self.name = sampler, tokenizer, name
        self.keep_reasoning = keep_reasoning
        self._openings: dict[tuple[Message, ...], list[int]] = {}

    @property
    def capacity(self) -> int:
        """Longest conversation in tokens."""
        return self.sampler.capacity

    def context_ids(self, call: ModelCall) -> list[int]:
        """Return the ids that precede the answer: the opening, then the turns shown, each as it was sampled."""
        return self._ids(call.opening, call.shown)

    async def stream(
        self, calls: Sequence[ModelCall], conversations: Sequence[Conversation], *, keep_cache: bool = True
    ) -> AsyncIterator[tuple[int, Reply]]:
        """Sample an answer to every call together and yield (i, reply) as soon as it ends.

        ``conversations[i]`` holds the seed and the cache of call i's trajectory; if the call continues what was read
        before, only the new part is read. A reply without room for one token has an empty text.
        """
        contexts = [self.context_ids(call) for call in calls]
        appends = [unread(*pair) for pair in zip(contexts, conversations, strict=True)]
        async for index, turn in self.sampler.stream(conversations, appends, keep_cache=keep_cache):
            yield index, self.reply(contexts[index], turn)

    def _ids(self, opening: tuple[Message, ...], shown: Sequence[Turn]) -> list[int]:
        if not shown:
            return list(self._opening(opening))
        *before, last = shown
        sampled = last.sampled if self.keep_reasoning or without_reasoning(last.reply.text) == last.reply.text else None
        if sampled is None:
            answer, ended = [*self.tokenizer.encode(without_reasoning(last.reply.text)), self.tokenizer.end_id], True
        else:
            answer, ended = list(sampled.token_ids), sampled.stop == "end"
        same = sampled is not None and last.shown == tuple(turn.id for turn in before)
        context = list(sampled.context_ids) if sampled is not None and same else self._ids(opening, before)
        return [*context, *answer, *self.tokenizer.feedback_ids(last.feedback, ended=ended)]

    def _opening(self, messages: tuple[Message, ...]) -> list[int]:
        if messages not in self._openings:
            if len(self._openings) >= 1024:
                self._openings.clear()
            self._openings[messages] = self.tokenizer.opening_ids([message.model_dump() for message in messages])
        return self._openings[messages]

    def reply(self, context: list[int], turn: SampledTurn) -> Reply:
        """The reply of what was drawn after ``context``."""
        return sampled_reply(self.tokenizer, self.name, context, turn)


def sampled_reply(tokenizer: ChatTokenizer, model: str, context: Sequence[int], turn: SampledTurn) -> Reply:
    """Return the reply of what ``model`` drew after ``context``, its ids and log-probabilities kept."""
    return Reply(
        text=tokenizer.decode(turn.token_ids),
        finish="stop" if turn.stop in ("end", "fence") else "length",
        usage=Usage(prompt=len(context), completion=len(turn.token_ids)),
        model=model,
        sampled=Sampled(tuple(context), turn.token_ids, turn.logprobs, turn.stop, turn.pruned_mass),
    )


def unread(context: list[int], conversation: Conversation) -> list[int]:
    """Return the ids that the conversation has not read yet; restart it if its beginning was cut differently."""
    read = conversation.ids
    if context[: len(read)] == read and len(context) > len(read):
        return context[len(read) :]
    conversation.ids = []
    conversation.forget()
    return context
