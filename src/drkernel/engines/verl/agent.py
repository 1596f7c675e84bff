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
from drkernel.episode.records import Trajectory
from drkernel.rl.model.sampler import SamplerAnswerer, SamplingConfig
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.learner import TurnFacts, facts_of, gradable, sampled_of
from drkernel.rl.run.rollout import Rollout, RolloutJob
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
    """Plays the episodes of a row with verl's sampler. Its terms are in verl's configuration under ``drkernel``."""

    def __init__(self, *args: Any, **kwargs: Any):
        # verl's own builder of token sequences is not used, and has demands on the tokenizer by model type
        super().__init__(*args, **{**kwargs, "hf_model_type": None})
        terms = self.config.drkernel
        self.terms = episode_config(_plain(terms.episode))
        self.max_tokens, self.context = int(terms.max_tokens), int(terms.context)
        self.judge_seed = terms.judge_seed
        self.pool = shared_pool(terms.pool)
        self.chat = ChatTokenizer(self.tokenizer)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> KernelOutput:
        """Play the row's task to its end. Raises ``ValueError`` when the prompt leaves no room for an answer."""
        row = kwargs["extra_info"]
        timing: dict[str, float] = {}
        versions: list[Any] = []
        request = uuid4().hex  # verl sends what bears the same id to the same server, which has read the beginning

        async def ask(ids: list[int], room: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
            with simple_timer("generate_sequences", timing):
                drawn = await self.server_manager.generate(
                    request_id=request, prompt_ids=ids, sampling_params={**sampling_params, "max_tokens": room}
                )
            versions.append(drawn.extra_fields.get("global_steps"))
            return tuple(drawn.token_ids), _logprobs(drawn)

        terms = SamplingConfig(max_tokens=self.max_tokens, stop_at_fence=False)
        answerer = SamplerAnswerer(VerlSampler(ask, self.chat, terms, self.context), self.chat)
        rollout = Rollout(answerer, lambda: Episode(self.pool, self.terms), waves=1, judge_seed=self.judge_seed)
        task = Task.model_validate_json(row["task"])
        played = await rollout.play([RolloutJob(task, 0, 0, int.from_bytes(uuid4().bytes[:6], "little"))])
        if not played:
            raise ValueError(f"the prompt of {task.id} leaves no room in a context of {self.context}")
        timing["tool_calls"] = rollout.stats.grading
        return row_output(played[0], versions, timing)


def _logprobs(drawn: Any) -> tuple[float, ...]:
    found = tuple(drawn.log_probs or ())
    if len(found) != len(drawn.token_ids):
        raise ValueError("the sampler returned no log-probabilities: set rollout.calculate_log_probs")
    return found


def row_output(played: Trajectory, versions: Sequence[Any], timing: dict[str, float]) -> KernelOutput:
    """Return a trajectory as a row of verl's; a failed grader says nothing about an answer, which does not train."""
    facts = facts_of(played)
    drawn = [sampled_of(turn) for turn in played.turns]
    whole = [*drawn[-1].context_ids, *drawn[-1].token_ids]
    prompt = len(drawn[0].context_ids)
    logprobs = [0.0] * (len(whole) - prompt)
    mask = [0] * len(logprobs)
    for part in drawn:
        start = len(part.context_ids) - prompt
        logprobs[start : start + len(part.token_ids)] = part.logprobs
    for fact in facts:
        mask[fact.start : fact.end] = [int(fact.graded)] * (fact.end - fact.start)
    failed = sum(not gradable(turn) for turn in played.turns)
    info = {**figures_of(played.turns[-1]), "turns": len(played.turns), "grader_failed": float(failed)}
    return KernelOutput(
        prompt_ids=whole[:prompt],
        response_ids=whole[prompt:],
        response_mask=mask,
        response_logprobs=logprobs,
        reward_score=sum(fact.reward for fact in facts),
        num_turns=2 * len(played.turns),
        metrics=AgentLoopMetrics(**timing),
        turns=tuple(facts),
        extra_fields={
            "reward_extra_info": info,
            # the weights that sampled it, by the steps that they had seen
            "min_global_steps": versions[0],
            "max_global_steps": versions[-1],
        },
    )


def _plain(section: Any) -> dict[str, Any]:
    """Return a section of verl's configuration as a plain dictionary."""
    from omegaconf import OmegaConf

    found = OmegaConf.to_container(section, resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}
