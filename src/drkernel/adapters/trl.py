"""TRL: multi-turn episodes as the ``rollout_func`` of ``GRPOTrainer``. Extra: ``drkernel[trl]``.

The sampled ids are kept from sampling to loss: a turn continues from the ids that were drawn, the grader's text is
appended as new ids, and ``env_mask`` distinguishes the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from drkernel.adapters.common import opening, run_sync, shared_pool, tasks_of
from drkernel.episode.episode import Episode, EpisodeConfig, StepResult
from drkernel.gym.request import Pool
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.task import Task

Generate = Callable[[Any, list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]
"""(trainer, token ids of each conversation) -> sampled ids of each, and their log-probabilities where known."""
FIELD = "kernel_reward"


@dataclass
class _Play:
    """The state of one trajectory while it is played."""

    episode: Episode
    prompt_ids: list[int]
    completion: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    done: bool = False


def dataset_rows(tasks: str | list[Task], config: EpisodeConfig = EpisodeConfig()) -> list[dict[str, Any]]:
    """Return rows for ``datasets.Dataset.from_list``, each with a conversational prompt."""
    return [{"prompt": [{"role": "user", "content": opening(task, config)}]} for task in tasks_of(tasks)]


def kernel_reward(completions: Sequence[Any], **fields: Any) -> list[float]:
    """The reward function to pass to the trainer: returns what the rollout earned."""
    return [float(value) for value in fields[FIELD]]


def make_rollout_func(
    tasks: str | list[Task],
    config: EpisodeConfig = EpisodeConfig(),
    *,
    score: Literal["last", "best", "sum"] = "sum",
    pool: Pool | None = None,
    generate: Generate | None = None,
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """Return a ``rollout_func`` over the tasks whose prompts :func:`dataset_rows` made.

    ``score`` reduces a trajectory's turns to one number. A trajectory that the grader failed trains nothing: its mask
    is 0 throughout and its reward is the mean of its group. ``generate`` samples one turn for many conversations; by
    default the trainer's own generation (vLLM or transformers).
    """
    by_prompt = {opening(task, config): task for task in tasks_of(tasks)}
    sample = generate or _trainer_generate

    def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        tokenizer = ChatTokenizer(trainer.processing_class)
        chosen = [by_prompt[_text(prompt)] for prompt in prompts]
        plays = run_sync(_open(chosen, config, pool or shared_pool(), tokenizer))
        limit = trainer.args.max_completion_length
        while live := [play for play in plays if not play.done]:
            ids, logprobs = sample(trainer, [play.prompt_ids + play.completion for play in live])
            answers = [_take(play, drawn, None if logprobs is None else logprobs[k], limit) for k, (play, drawn) in
                       enumerate(zip(live, ids, strict=True))]  # fmt: skip
            texts = [tokenizer.decode(drawn) for drawn in answers]
            results = run_sync(_step(live, texts))
            for play, drawn, result in zip(live, answers, results, strict=True):
                _tell(play, drawn, result, tokenizer, limit)
        rewards = _scores([_text(prompt) for prompt in prompts], plays, score)
        known = all(len(play.logprobs) == len(play.completion) for play in plays)
        return {
            "prompt_ids": [play.prompt_ids for play in plays],
            "completion_ids": [play.completion for play in plays],
            "logprobs": [play.logprobs for play in plays] if known else None,
            "env_mask": [play.mask for play in plays],
            FIELD: rewards,
        }

    return rollout_func


async def _open(tasks: Sequence[Task], config: EpisodeConfig, pool: Pool, tokenizer: ChatTokenizer) -> list[_Play]:
    plays = []
    for task in tasks:
        episode = Episode(pool, config)
        observation = await episode.reset(task)
        plays.append(_Play(episode, tokenizer.prompt_ids(observation.text)))
    return plays


async def _step(plays: Sequence[_Play], texts: Sequence[str]) -> list[StepResult]:
    """Grade all answers of a turn concurrently."""
    return list(await asyncio.gather(*(play.episode.step(text) for play, text in zip(plays, texts, strict=True))))


def _take(play: _Play, drawn: list[int], logprobs: list[float] | None, limit: int) -> list[int]:
    """Append as many of a turn's sampled ids as fit."""
    kept = list(drawn[: limit - len(play.completion)])
    play.completion += kept
    play.mask += [1] * len(kept)
    if logprobs is not None:
        play.logprobs += [float(value) for value in logprobs[: len(kept)]]
    return kept


def _tell(play: _Play, drawn: list[int], result: StepResult, tokenizer: ChatTokenizer, limit: int) -> None:
    """Record a grade and append the grader's text; end the trajectory when there is no room for another turn."""
    play.rewards.append(result.reward)
    if result.observation is None:
        play.done = True
        return
    ended = bool(drawn) and drawn[-1] == tokenizer.end_id
    told = tokenizer.feedback_ids(result.observation.text, ended=ended)
    if len(play.completion) + len(told) >= limit:
        play.done = True
        return
    known = len(play.logprobs) == len(play.completion)
    play.completion += told
    play.mask += [0] * len(told)
    if known:
        play.logprobs += [0.0] * len(told)


def _scores(prompts: Sequence[str], plays: Sequence[_Play], score: str) -> list[float]:
    """Return one score per trajectory; those without a grade get their group's mean and leave the loss."""
    combine: dict[str, Callable[[list[float]], float]] = {"last": lambda r: r[-1], "best": max, "sum": sum}
    values: list[float | None] = []
    for play in plays:
        graded = [value for value in play.rewards if value is not None]
        failed = len(graded) < len(play.rewards) or not graded
        values.append(None if failed else combine[score](graded))
        if failed:
            play.mask = [0] * len(play.mask)
    scores = []
    for prompt, value in zip(prompts, values, strict=True):
        peers = [other for p, other in zip(prompts, values, strict=True) if p == prompt and other is not None]
        scores.append(value if value is not None else (sum(peers) / len(peers) if peers else 0.0))
    return scores


def _trainer_generate(trainer: Any, ids: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
    """Generate one answer for each conversation with the trainer's own generation."""
    completion_ids, logprobs = trainer._generate_single_turn(ids, None, {}, 1)
    return [list(drawn) for drawn in completion_ids], logprobs


def _text(prompt: Any) -> str:
    """Return the user message of a conversational prompt, or the prompt itself."""
    if isinstance(prompt, str):
        return prompt
    content = prompt[-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
