"""``hf:PATH``: a local causal language model, sampled by the trainer's own sampler.

Answers of one model are drawn together, as many rows at a time as ``rows``. A conversation that goes on is continued
with the very token ids that were sampled, never re-tokenised, as in training.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError
from drkernel.episode.chat import Call, ContextFull, Message, ModelError, Reply, Sampling, Usage
from drkernel.rl.model.policy import Policy, PolicyConfig, causal_lm
from drkernel.rl.model.sampler import Conversation, SampledTurn, Sampler, SamplingConfig

REMEMBERED = 4096
"""Conversations whose sampled ids are kept; older ones are tokenised again when they go on."""
GATHER_S = 0.02
"""How long the first call of a batch waits for others."""


class LocalTerms(Config):
    """What ``extra`` may say of a local model."""

    rows: int = Field(16, ge=1, description="conversations decoded together")
    context: int | None = Field(None, ge=64, description="longest conversation; None takes the model's, 8192 at most")
    stop_at_fence: bool = Field(False, description="end an answer where its code block is closed")
    min_p: float = Field(0.0, ge=0, lt=1)
    device: str = Field("auto", description="'auto', 'cpu' or 'cuda'")


@dataclass
class _Known:
    """The ids of a conversation that ended with an answer."""

    ids: list[int]
    ended: bool
    """Whether the end token was sampled."""


@dataclass
class _Waiting:
    call: Call
    conversation: Conversation
    append: list[int]
    future: asyncio.Future[Reply]


class LocalModel:
    """A model in this process.

    Raises :class:`ConfigError` when it cannot be loaded or ``sampling.extra`` holds what a local model does not know.
    """

    def __init__(self, path: str, sampling: Sampling = Sampling(), *, policy: Policy | None = None):
        self.name = f"hf:{path}"
        try:
            terms = LocalTerms.model_validate(sampling.extra)
        except ValidationError as error:
            item = error.errors()[0]
            known = ", ".join(LocalTerms.model_fields)
            raise ConfigError(
                f"hf: models take {known} as extra; {'.'.join(map(str, item['loc']))}: {item['msg']}"
            ) from None
        self._sampling = sampling
        self._policy = policy or Policy.load(PolicyConfig(model=path, device=terms.device))
        limit = getattr(causal_lm(self._policy.model).config, "max_position_embeddings", None) or 8192
        self.context = terms.context or min(limit, 8192)
        config = SamplingConfig(
            temperature=1.0 if sampling.temperature is None else sampling.temperature,
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
            min_p=terms.min_p,
            max_tokens=min(sampling.max_tokens, self.context),
            stop_at_fence=terms.stop_at_fence,
            rows=terms.rows,
        )
        decoder = self._policy.make_decoder(terms.rows, self.context)
        self._sampler = Sampler(decoder, self._policy.tokenizer, config)
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self._known: OrderedDict[tuple[Message, ...], _Known] = OrderedDict()

    async def complete(self, call: Call) -> Reply:
        """One answer, drawn together with those that are asked for at the same time."""
        if call.sampling != self._sampling:
            raise ModelError(f"{self.name} was opened for other sampling terms than the call's")
        before, append = self._ids(call.messages)
        if len(before) + len(append) >= self.context:
            raise ContextFull(f"{len(before) + len(append)} tokens do not fit the context of {self.context}")
        seed = int.from_bytes(os.urandom(6), "little") if call.seed is None else call.seed
        conversation = Conversation(seed=seed, ids=before)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(call, conversation, append, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    def _ids(self, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """Ids that were sampled before, and those to append for the turn that is asked for."""
        tokenizer = self._policy.tokenizer
        head = 0
        ids: list[int] = []
        ended = True
        for end in range(len(messages) - 1, 0, -1):
            known = self._known.get(tuple(messages[:end]))
            if known is not None:
                ids, ended, head = list(known.ids), known.ended, end
                break
        append: list[int] = []
        if head == 0:
            opening = 2 if messages[0].role == "system" else 1
            append = self._opening(messages[:opening])
            head = opening
        for message in messages[head:]:
            if message.role == "user":
                append += tokenizer.feedback_ids(message.content, ended=ended)
            else:
                append += [*tokenizer.encode(message.content), tokenizer.end_id]
                ended = True
        return ids, append

    def _opening(self, messages: Sequence[Message]) -> list[int]:
        tokenizer = self._policy.tokenizer
        if len(messages) == 1:
            return tokenizer.prompt_ids(messages[0].content)
        chat = [message.model_dump() for message in messages]
        text = str(tokenizer.hf.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        return tokenizer.encode(text)

    async def _work(self) -> None:
        """Sample batches until nobody waits; an exception goes to everyone who does."""
        await asyncio.sleep(GATHER_S)
        while self._waiting:
            batch, self._waiting = self._waiting, []
            batch = [waiting for waiting in batch if not waiting.future.done()]
            loop = asyncio.get_running_loop()
            started = loop.time()
            stream = self._sampler.stream(
                [waiting.conversation for waiting in batch], [waiting.append for waiting in batch], keep_cache=False
            )
            try:
                async for index, turn in stream:
                    waiting = batch[index]
                    if not waiting.future.done():
                        waiting.future.set_result(self._reply(waiting, turn, loop.time() - started))
            except Exception as error:
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(ModelError(f"sampling failed: {type(error).__name__}: {error}"))

    def _reply(self, waiting: _Waiting, turn: SampledTurn, seconds: float) -> Reply:
        text = self._policy.tokenizer.decode(turn.token_ids)
        answer = Message(role="assistant", content=text)
        self._known[(*waiting.call.messages, answer)] = _Known(waiting.conversation.ids, turn.stop == "end")
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        sampled = len(turn.token_ids)
        usage = Usage(prompt=len(waiting.conversation.ids) - sampled, completion=sampled)
        finish = "stop" if turn.stop in ("end", "fence") else "length"
        return Reply(text=text, finish=finish, usage=usage, model=self.name, seconds=seconds)  # type: ignore[arg-type]

    async def close(self) -> None:
        """Stop sampling."""
        if self._worker is not None:
            self._worker.cancel()
