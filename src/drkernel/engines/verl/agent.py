"""The multi-turn kernel episode as an agent loop of verl: one row a trajectory, one reward a turn.

The ids are kept as they were sampled: a turn is asked for after exactly the ids before it, and the judge's feedback is
appended as new ids that the loss leaves out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.utils.profiler import simple_timer

from drkernel.adapters import episode_config, figures_of, shared_pool
from drkernel.engines.verl.turns import VerlSampler, pack, token_rewards
from drkernel.episode.episode import Episode
from drkernel.episode.records import Reply, Stop, Trajectory, Turn
from drkernel.registry import Method
from drkernel.rl.model.answerer import SamplerAnswerer, sampled_reply
from drkernel.rl.model.sampler import SampledTurn, SamplingConfig
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.rollout import RolloutJob, make_shape
from drkernel.rl.run.rows import TurnFacts, gradable, sampled_of
from drkernel.task import Task


class KernelOutput(AgentLoopOutput):
    """A trajectory. verl writes :meth:`as_dict` into its queue; it puts one number at the end of all tokens, we put
    every turn's reward at the end of its own answer and send the turns' facts along."""

    turns: tuple[TurnFacts, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the columns of this trajectory."""
        columns = super().as_dict()
        columns.pop("turns", None)
        columns["rm_scores"] = token_rewards(self.turns, len(self.response_ids))
        columns["drkernel_turns"] = pack(self.turns)
        return columns


class KernelAgentLoop(AgentLoopBase):
    """Plays one episode with verl's sampler. Its terms are in verl's configuration under ``drkernel``."""

    def __init__(self, *args: Any, **kwargs: Any):
        # verl's own builder of token sequences is not used, and has demands on the tokenizer by model type
        super().__init__(*args, **{**kwargs, "hf_model_type": None})
        terms = self.config.drkernel
        self.terms = episode_config(_plain(terms.episode))
        self.max_tokens, self.context = int(terms.max_tokens), int(terms.context)
        self.judge_seed = terms.judge_seed
        self.shape = make_shape(Method.model_validate(_plain(terms.shape)))
        self.pool = shared_pool(terms.pool)
        self.chat = ChatTokenizer(self.tokenizer)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> KernelOutput | list[KernelOutput]:
        """Play the row's task to its end; where a shape plays the trajectories of a prompt together, the first
        session of a training row plays and returns them all, and the others return none.

        Raises ``ValueError`` when the prompt leaves no room for an answer.
        """
        row = kwargs["extra_info"]
        if self.shape.together and row["split"] == "train":
            return await self._play_together(row, sampling_params) if int(kwargs["session_id"]) == 0 else []
        return await self._play(row, sampling_params)

    async def _play_together(self, row: dict[str, Any], sampling_params: dict[str, Any]) -> list[KernelOutput]:
        timing: dict[str, float] = {}
        versions: list[Any] = []

        async def ask(ids: list[int], room: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
            drawn = await self._draw(ids, room, uuid4().hex, sampling_params, timing)
            versions.append(drawn.extra_fields.get("global_steps"))
            return tuple(drawn.token_ids), _logprobs(drawn)

        terms = SamplingConfig(max_tokens=self.max_tokens, stop_at_fence=False)
        answerer = SamplerAnswerer(VerlSampler(ask, self.chat, terms, self.context), self.chat)
        rollout = self.shape.rollout(
            answerer, lambda: Episode(self.pool, self.terms), waves=1, judge_seed=self.judge_seed
        )
        task = Task.model_validate_json(row["task"])
        paths = await rollout.play([RolloutJob(task, 0, 0, int.from_bytes(uuid4().bytes[:6], "little"))])
        if not paths:
            raise ValueError(f"the prompt of {task.id} leaves no room in a context of {self.context}")
        return [
            row_output(path, facts, versions, timing)
            for path, facts in zip(paths, self.shape.facts(paths), strict=True)
        ]

    async def _draw(
        self, ids: list[int], room: int, request: str, sampling_params: dict[str, Any], timing: dict[str, float]
    ) -> Any:
        with simple_timer("generate_sequences", timing):
            return await self.server_manager.generate(
                request_id=request, prompt_ids=ids, sampling_params={**sampling_params, "max_tokens": room}
            )

    async def _play(self, row: dict[str, Any], sampling_params: dict[str, Any]) -> KernelOutput:
        episode = Episode(self.pool, self.terms)
        observation = await episode.reset(Task.model_validate_json(row["task"]), self.judge_seed)
        prompt = self.chat.opening_ids([message.model_dump() for message in observation.messages])
        play = _Play(prompt)
        request = uuid4().hex
        while (room := min(self.max_tokens, self.context - len(play.ids))) > 0:
            drawn = await self._draw(play.ids, room, request, sampling_params, play.timing)
            if not drawn.token_ids:
                break
            reply = self._reply(play, drawn, room)
            play.answered(drawn)
            with simple_timer("tool_calls", play.timing):
                result = await episode.step(reply)
            play.graded(result.turn)
            if result.observation is None:
                break
            told = self.chat.feedback_ids(result.observation.text, ended=drawn.token_ids[-1] == self.chat.end_id)
            if len(play.ids) + len(told) >= self.context:
                break
            play.told(told)
        if not play.facts:
            raise ValueError(f"the prompt has {len(prompt)} tokens and leaves no room in a context of {self.context}")
        return play.output(episode)

    def _reply(self, play: _Play, drawn: Any, room: int) -> Reply:
        ids, logprobs = tuple(drawn.token_ids), _logprobs(drawn)
        cut: Stop = "length" if room == self.max_tokens else "context"
        stop = "end" if ids[-1] == self.chat.end_id else cut
        return sampled_reply(self.chat, "policy", play.ids, SampledTurn(ids, logprobs, stop, pruned_mass=0.0))


def _logprobs(drawn: Any) -> tuple[float, ...]:
    found = tuple(drawn.log_probs or ())
    if len(found) != len(drawn.token_ids):
        raise ValueError("the sampler returned no log-probabilities: set rollout.calculate_log_probs")
    return found


def row_output(
    path: Trajectory, facts: Sequence[TurnFacts], versions: Sequence[Any], timing: dict[str, float]
) -> KernelOutput:
    """Return a trajectory as a row of verl's. Which of the tokens that it shares train is decided later."""
    drawn = [sampled_of(turn) for turn in path.turns]
    whole = [*drawn[-1].context_ids, *drawn[-1].token_ids]
    prompt = len(drawn[0].context_ids)
    logprobs = [0.0] * (len(whole) - prompt)
    mask = [0] * len(logprobs)
    for part in drawn:
        start = len(part.context_ids) - prompt
        logprobs[start : start + len(part.token_ids)] = part.logprobs
    for fact in facts:
        mask[fact.start : fact.end] = [int(fact.graded)] * (fact.end - fact.start)
    return _output(whole[:prompt], whole[prompt:], mask, logprobs, tuple(facts), path.turns, versions, timing)


def _output(
    prompt: list[int],
    response: list[int],
    mask: list[int],
    logprobs: list[float],
    facts: tuple[TurnFacts, ...],
    turns: Sequence[Turn],
    versions: Sequence[Any],
    timing: dict[str, float],
) -> KernelOutput:
    failed = sum(not gradable(turn) for turn in turns)
    info = {**figures_of(turns[-1]), "turns": len(turns), "grader_failed": float(failed)}
    return KernelOutput(
        prompt_ids=prompt,
        response_ids=response,
        response_mask=mask,
        response_logprobs=logprobs,
        reward_score=sum(fact.reward for fact in facts),
        num_turns=2 * len(turns),
        metrics=AgentLoopMetrics(**timing),
        turns=facts,
        extra_fields={
            "reward_extra_info": info,
            "min_global_steps": versions[0],
            "max_global_steps": versions[-1],
        },
    )


class _Play:
    """The columns of one trajectory while it is played."""

    def __init__(self, prompt: list[int]):
        self.prompt = prompt
        self.response: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.facts: list[TurnFacts] = []
        self.versions: list[Any] = []
        self.timing: dict[str, float] = {}
        self.start = 0

    @property
    def ids(self) -> list[int]:
        """All ids so far."""
        return self.prompt + self.response

    def answered(self, drawn: Any) -> None:
        self.start = len(self.response)
        self.response += drawn.token_ids
        self.logprobs += drawn.log_probs
        self.mask += [1] * len(drawn.token_ids)
        self.versions.append(drawn.extra_fields.get("global_steps"))

    def graded(self, turn: Any) -> None:
        fact = TurnFacts.of(turn, self.start, len(self.response))
        self.facts.append(fact)
        if not fact.graded:  # a failed grader says nothing about the answer: it does not train
            self.mask[fact.start : fact.end] = [0] * (fact.end - fact.start)

    def told(self, ids: list[int]) -> None:
        self.response += ids
        self.logprobs += [0.0] * len(ids)
        self.mask += [0] * len(ids)

    def output(self, episode: Episode) -> KernelOutput:
        """Return the trajectory as verl takes it."""
        return _output(
            self.prompt,
            self.response,
            self.mask,
            self.logprobs,
            tuple(self.facts),
            episode.path,
            self.versions,
            self.timing,
        )


def _plain(section: Any) -> dict[str, Any]:
    """Return a section of verl's configuration as a plain dictionary."""
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(section, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}
