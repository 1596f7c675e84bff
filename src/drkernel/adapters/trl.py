"""TRL: multi-turn episodes for ``GRPOTrainer``, through the arguments that it documents. Extra: ``drkernel[trl]``.

``rollout_func`` (:func:`make_rollout_func`) plays conversations as drkernel's own trainer does: an answer holds a code
block, the judge's text follows. The sampled ids are kept from sampling to loss: a turn continues from the ids that were
drawn, the grader's text is appended as new ids, and ``env_mask`` distinguishes the two.

``environment_factory`` (:func:`make_environment`) is for models that call tools: the kernel is the argument of a call,
the judge's text its result. :mod:`drkernel.adapters.trl_turns` has one advantage a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from drkernel.adapters import episode_config, extra, run_sync, shared_pool, tasks_of
from drkernel.episode.episode import Episode, EpisodeConfig, StepResult
from drkernel.gym.request import Pool
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.learner import TurnFacts
from drkernel.task import Task

Generate = Callable[[Any, list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]
"""(trainer, token ids of each conversation) -> sampled ids of each, and their log-probabilities where known."""
Score = Literal["last", "best", "sum"]
FIELD = "kernel_reward"
CALL = "Do not write the module into your answer: call `submit` with it. It answers with the grade."


@dataclass
class Play:
    """The state of one trajectory while it is played."""

    episode: Episode
    prompt_ids: list[int]
    completion: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[TurnFacts] = field(default_factory=list)
    done: bool = False


Played = Callable[[Any, list[str], list[Play]], None]
"""(trainer, user message of each trajectory, trajectories): told of every batch that was played."""


def dataset_rows(
    tasks: str | list[Task], config: EpisodeConfig = EpisodeConfig(), *, tool: bool = False
) -> list[dict[str, Any]]:
    """Return rows for ``datasets.Dataset.from_list``, each with a conversational prompt and its task.

    ``tool`` asks for calls of :meth:`KernelEnvironment.submit` instead of code blocks.
    """
    prompts, rows = config.texts(), []
    for task in tasks_of(tasks):
        messages = [message.model_dump() for message in prompts.opening(task, config.settings)]
        if tool:
            messages[-1]["content"] += f"\n\n{CALL}"
        rows.append({"prompt": messages, "task": task.model_dump_json()})
    return rows


def kernel_reward(completions: Sequence[Any], **fields: Any) -> list[float | None]:
    """The reward function to pass to the trainer: returns what the rollout earned, None where the grader failed."""
    return list(fields[FIELD])


def make_rollout_func(
    tasks: str | list[Task],
    config: EpisodeConfig = EpisodeConfig(),
    *,
    score: Score = "sum",
    pool: Pool | None = None,
    generate: Generate | None = None,
    played: Played | None = None,
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """Return a ``rollout_func`` over the tasks whose prompts :func:`dataset_rows` made.

    ``score`` reduces a trajectory's turns to one number. A trajectory that the grader failed has no reward and trains
    nothing: TRL leaves it out of its group's baseline. With ``played``, which may know better, only its failed turns
    leave the loss. ``generate`` samples one turn for many conversations; by default vLLM or transformers as the trainer
    was told.
    """
    config = episode_config(config)
    by_prompt = {_text(row["prompt"]): Task.model_validate_json(row["task"]) for row in dataset_rows(tasks, config)}
    sample = generate or trainer_generate

    def rollout_func(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        tokenizer = ChatTokenizer(trainer.processing_class)
        texts = [_text(prompt) for prompt in prompts]
        plays = run_sync(_open([by_prompt[text] for text in texts], config, pool or shared_pool(), tokenizer))
        limit = trainer.args.max_completion_length
        while live := [play for play in plays if not play.done]:
            ids, logprobs = sample(trainer, [play.prompt_ids + play.completion for play in live])
            answers = [_take(play, drawn, None if logprobs is None else logprobs[k], limit) for k, (play, drawn) in
                       enumerate(zip(live, ids, strict=True))]  # fmt: skip
            results = run_sync(_step(live, [tokenizer.decode(drawn) for drawn in answers]))
            for play, drawn, result in zip(live, answers, results, strict=True):
                _tell(play, drawn, result, tokenizer, limit)
        rewards = [_score(play.turns, score) for play in plays]
        for play, reward in zip(plays, rewards, strict=True):
            if reward is None:
                _leave_out(play, whole=played is None)
        if played is not None:
            played(trainer, texts, plays)
        known = all(len(play.logprobs) == len(play.completion) for play in plays)
        return {
            "prompt_ids": [play.prompt_ids for play in plays],
            "completion_ids": [play.completion for play in plays],
            "logprobs": [play.logprobs for play in plays] if known else None,
            "env_mask": [play.mask for play in plays],
            FIELD: rewards,
        }

    return rollout_func


class KernelToolEnvironment:
    """One trajectory of a model that calls tools; TRL offers it :meth:`submit`, and asks for the reward at its end."""

    def __init__(self, config: EpisodeConfig, score: Score, pool: Pool | None):
        self._config, self._score, self._pool = config, score, pool
        self._episode: Episode | None = None
        self._rewards: list[float | None] = []

    def reset(self, task: str, **row: Any) -> None:
        """Start over with the task of a row of :func:`dataset_rows`."""
        self._episode = Episode(self._pool or shared_pool(), self._config)
        self._rewards = []
        run_sync(self._episode.reset(Task.model_validate_json(task)))

    def submit(self, module: str) -> str:
        """
        Grade a module: is it right, and how fast is it.

        Args:
            module: The whole source text of the module that defines ModelNew, imports included.

        Returns:
            The grade, and what to mend.
        """
        assert self._episode is not None
        if self._episode.end is not None:
            return "The task is over: no further module is graded."
        fenced = module if "```" in module else f"```python\n{module}\n```"
        result = run_sync(self._episode.step(fenced))
        self._rewards.append(result.reward)
        return result.turn.feedback

    def get_reward(self) -> float | None:
        """Return what the trajectory earned; None, which TRL leaves out of the group, where the grader failed. A
        trajectory without a call is an answer without code."""
        assert self._episode is not None
        if not self._rewards:
            self._rewards.append(run_sync(self._episode.step("")).reward)
        return _reduced(self._rewards, self._score)


def make_environment(
    config: EpisodeConfig = EpisodeConfig(), *, score: Score = "sum", pool: Pool | None = None
) -> Callable[[], KernelToolEnvironment]:
    """Return an ``environment_factory`` for rows of ``dataset_rows(..., tool=True)``."""
    terms = episode_config(config)
    return lambda: KernelToolEnvironment(terms, score, pool)


async def _open(tasks: Sequence[Task], config: EpisodeConfig, pool: Pool, tokenizer: ChatTokenizer) -> list[Play]:
    plays = []
    for task in tasks:
        episode = Episode(pool, config)
        observation = await episode.reset(task)
        prompt = tokenizer.opening_ids([message.model_dump() for message in observation.messages])
        plays.append(Play(episode, prompt))
    return plays


async def _step(plays: Sequence[Play], texts: Sequence[str]) -> list[StepResult]:
    """Grade all answers of a turn concurrently."""
    return list(await asyncio.gather(*(play.episode.step(text) for play, text in zip(plays, texts, strict=True))))


def _take(play: Play, drawn: list[int], logprobs: list[float] | None, limit: int) -> list[int]:
    """Append as many of a turn's sampled ids as fit."""
    kept = list(drawn[: limit - len(play.completion)])
    play.completion += kept
    play.mask += [1] * len(kept)
    if logprobs is not None:
        play.logprobs += [float(value) for value in logprobs[: len(kept)]]
    return kept


def _tell(play: Play, drawn: list[int], result: StepResult, tokenizer: ChatTokenizer, limit: int) -> None:
    """Record a grade and append the grader's text; end the trajectory when there is no room for another turn."""
    play.turns.append(TurnFacts.of(result.turn, len(play.completion) - len(drawn), len(play.completion)))
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


def _leave_out(play: Play, whole: bool) -> None:
    """Take the turns without a grade, or the whole trajectory, out of the loss."""
    for turn in play.turns:
        if whole or not turn.graded:
            play.mask[turn.start : turn.end] = [0] * (turn.end - turn.start)


def _score(turns: Sequence[TurnFacts], score: Score) -> float | None:
    return _reduced([turn.reward if turn.graded else None for turn in turns], score)


def _reduced(rewards: Sequence[float | None], score: Score) -> float | None:
    """Return one number of a trajectory's turns, None if the grader failed one of them."""
    graded = [value for value in rewards if value is not None]
    if len(graded) < len(rewards) or not graded:
        return None
    combine: dict[Score, Callable[[list[float]], float]] = {"last": lambda r: r[-1], "best": max, "sum": sum}
    return combine[score](graded)


def trainer_generate(trainer: Any, ids: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
    """Sample one answer for each conversation with what the trainer samples with.

    Raises ``ValueError`` where that cannot be asked for through what TRL documents: sharded weights, or continuous
    batching, without vLLM.
    """
    if trainer.use_vllm:  # the trainer has brought the weights up to date
        _, drawn, logprobs, _ = trainer.vllm_generation.generate(prompts=ids, images=None, num_generations=1)
        return [list(row) for row in drawn], [[token[0] for token in row] for row in logprobs]
    if trainer.is_fsdp_enabled or trainer.args.use_transformers_continuous_batching:
        raise ValueError("FSDP and continuous batching need use_vllm=True, or a generate= of your own")
    return _generate_here(trainer, ids), None


def _generate_here(trainer: Any, ids: list[list[int]]) -> list[list[int]]:
    import torch

    with extra("trl"):
        from trl.models import unwrap_model_for_generation

    width = max(map(len, ids))
    pad = trainer.processing_class.pad_token_id
    at = {"dtype": torch.int64, "device": trainer.accelerator.device}
    asked = torch.tensor([[pad] * (width - len(row)) + row for row in ids], **at)
    attended = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids], **at)
    gather = trainer.args.ds3_gather_for_generation
    with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator, gather) as model, torch.no_grad():
        made = model.generate(input_ids=asked, attention_mask=attended, generation_config=trainer.generation_config)
    ends = set(trainer.eos_token_ids)
    rows = (row[width:] for row in made.tolist())
    return [row[: next((k + 1 for k, id in enumerate(row) if id in ends), len(row))] for row in rows]


def _text(prompt: Any) -> str:
    """Return the user message of a conversational prompt, or the prompt itself."""
    if isinstance(prompt, str):
        return prompt
    content = prompt[-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
