"""Answerers backed by a causal language model in this process: ids in, ids out, never re-tokenised.

:class:`SamplerAnswerer` answers many conversations at once with the trainer's own sampler; training rollouts pass it
whole batches. :class:`LocalModel` (``hf:PATH``) batches calls that arrive at about the same time, for bench, search and
cold start; an architecture that the sampler does not know answers through transformers' ``generate``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import torch
from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError
from drkernel.episode.answerer import ContextFull, ModelCall, ModelError
from drkernel.episode.chat import Message, Reply, Sampled, Sampling, Usage, without_reasoning
from drkernel.episode.records import Turn
from drkernel.rl.model.lean import is_supported
from drkernel.rl.model.policy import Policy, PolicyConfig, causal_lm
from drkernel.rl.model.sampler import Conversation, SampledTurn, Sampler, SamplingConfig
from drkernel.rl.model.served import RequestSampler
from drkernel.rl.model.tokenizer import ChatTokenizer

GATHER_S = 0.02
"""How long the first call of a batch waits for others."""


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


class GenerateSampler(RequestSampler):
    """Samples with transformers' ``generate``, one answer at a time: slow, and right for any causal language model."""

    def __init__(self, policy: Policy, config: SamplingConfig, capacity: int):
        super().__init__(policy.tokenizer, config, capacity)
        self.model = causal_lm(policy.model)
        if config.stop_at_fence:
            raise ConfigError(f"stop_at_fence: not for the architecture {self.model.config.model_type!r}")

    async def ask(self, ids: list[int], room: int, seed: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Return what ``generate`` draws with this seed."""
        from transformers import GenerationConfig

        config, device = self.config, self.model.get_input_embeddings().weight.device
        cuts = {"temperature": config.temperature, "top_p": config.top_p, "min_p": config.min_p or None, "top_k": 0}
        terms = GenerationConfig(
            max_new_tokens=room,
            do_sample=config.temperature > 0,
            eos_token_id=self.tokenizer.end_id,
            pad_token_id=self.tokenizer.pad_id,
            output_scores=True,
            return_dict_in_generate=True,
            **(cuts if config.temperature > 0 else {}),
        )
        read = torch.tensor([ids], device=device)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(seed)
            out = self.model.generate(read, attention_mask=torch.ones_like(read), generation_config=terms)
        drawn = out.sequences[0, len(ids) :]
        logprobs = torch.log_softmax(torch.cat(out.scores).float(), dim=-1).gather(1, drawn[:, None])[:, 0]
        await asyncio.sleep(0)
        return tuple(drawn.tolist()), tuple(logprobs.tolist())


class LocalTerms(Config):
    """Settings that ``extra`` accepts for a local model."""

    rows: int = Field(16, ge=1, description="conversations decoded together")
    context: int | None = Field(None, ge=64, description="longest conversation; None takes the model's, 8192 at most")
    stop_at_fence: bool = Field(False, description="end an answer where its code block is closed")
    min_p: float = Field(0.0, ge=0, lt=1)
    device: str = Field("auto", description="'auto', 'cpu' or 'cuda'")


@dataclass
class _Waiting:
    call: ModelCall
    conversation: Conversation
    future: asyncio.Future[Reply]


class LocalModel:
    """``hf:PATH``: draws up to ``rows`` answers together.

    Raises :class:`ConfigError` when the model cannot be loaded or ``sampling.extra`` holds an unknown setting.
    """

    def __init__(self, path: str, sampling: Sampling = Sampling(), *, policy: Policy | None = None):
        try:
            terms = LocalTerms.model_validate(sampling.extra)
        except ValidationError as error:
            item = error.errors()[0]
            known = ", ".join(LocalTerms.model_fields)
            raise ConfigError(
                f"hf: models take {known} as extra; {'.'.join(map(str, item['loc']))}: {item['msg']}"
            ) from None
        self.name = f"hf:{path}"
        self._sampling = sampling
        loaded = policy or Policy.load(PolicyConfig(model=path, device=terms.device))
        limit = getattr(causal_lm(loaded.model).config, "max_position_embeddings", None) or 8192
        self.context = terms.context or min(limit, 8192)
        config = SamplingConfig(
            temperature=1.0 if sampling.temperature is None else sampling.temperature,
            top_p=1.0 if sampling.top_p is None else sampling.top_p,
            min_p=terms.min_p,
            max_tokens=min(sampling.max_tokens, self.context),
            stop_at_fence=terms.stop_at_fence,
            rows=terms.rows,
        )
        sampler: Sampler | RequestSampler
        if is_supported(causal_lm(loaded.model).config):
            sampler = Sampler(loaded.make_decoder(terms.rows, self.context), loaded.tokenizer, config)
        else:
            sampler = GenerateSampler(loaded, config, self.context)
        self._answerer = SamplerAnswerer(sampler, loaded.tokenizer, name=self.name, keep_reasoning=False)
        self._waiting: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    async def complete(self, call: ModelCall) -> Reply:
        """Answer one call, batched with the calls that are waiting at the same time."""
        if call.sampling != self._sampling:
            raise ModelError(f"{self.name} was opened for other sampling terms than the call's")
        length = len(self._answerer.context_ids(call))
        if length >= self.context:
            raise ContextFull(f"{length} tokens do not fit the context of {self.context}")
        seed = int.from_bytes(os.urandom(6), "little") if call.seed is None else call.seed
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(call, Conversation(seed=seed), future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        """Sample batches until no call is waiting; an exception goes to every waiting call."""
        await asyncio.sleep(GATHER_S)
        while self._waiting:
            batch, self._waiting = self._waiting, []
            batch = [waiting for waiting in batch if not waiting.future.done()]
            loop = asyncio.get_running_loop()
            started = loop.time()
            calls, conversations = [waiting.call for waiting in batch], [waiting.conversation for waiting in batch]
            try:
                async for index, reply in self._answerer.stream(calls, conversations, keep_cache=False):
                    if not batch[index].future.done():
                        seconds = loop.time() - started
                        batch[index].future.set_result(reply.model_copy(update={"seconds": seconds}))
            except Exception as error:
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(ModelError(f"sampling failed: {type(error).__name__}: {error}"))

    async def close(self) -> None:
        """Stop sampling."""
        if self._worker is not None:
            self._worker.cancel()
