"""verl's trainers with our methods: the subclasses that registration does not replace.

verl hands a registered estimator rewards, mask and prompt ids of whole trajectories, and applies rejection to the mask
before it computes baselines. Turns, Σπ², and rejection that leaves the baselines alone need the methods overridden
here; the rest of the step is verl's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.checkpoint_engine import CheckpointEngineManager
from verl.trainer.ppo.core_algos import agg_loss
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer
from verl.trainer.ppo.v1.trainer_separate_async import HybridEngineMode, PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.debug import marked_timer
from verl.utils.metric import AggregationType, Metric
from verl.workers.rollout.llm_server import LLMServerManager
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding, response_from_nested, response_to_nested

from drkernel.engines.verl.turns import teach, unpack
from drkernel.rl.maths.losses import KL, kl_penalty
from drkernel.rl.run.learner import LearnerConfig, TurnFacts, TurnRows, uninformative

FIELDS = ("response_mask", "rollout_log_probs", "old_log_probs", "sum_pi_squared", "drkernel_turns")


class TurnTrainer(PPOTrainer):
    """What is ours in any of verl's trainers."""

    mode: ClassVar[str]
    """verl's name of the trainer that is subclassed"""

    def __init__(self, config: Any):
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.mode
        super().__init__(config)
        terms = OmegaConf.to_container(config.drkernel, resolve=True)
        self.learner = LearnerConfig.model_validate(terms["learner"])
        self.seed, self.planned = int(terms["seed"]), int(terms["planned"])

    def on_init_end(self) -> None:
        """Hand the loss with our KL penalty to the workers, where the recipe has one."""
        super().on_init_end()
        if self.learner.kl_coefficient:
            self.actor_rollout_wg.set_loss_fn(penalised_loss(self.config, self.learner))

    def _compute_old_log_prob(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Also ask for Σπ² of every token, which OTB weighs with."""
        batch.extra_info["calculate_sum_pi_squared"] = True
        batch = PPOTrainer._compute_old_log_prob(self, batch, metrics)  # the asynchronous one saves the weights first
        batch.extra_info["calculate_sum_pi_squared"] = False
        return batch

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Write advantages, the mask of what trains and the tokens' weights, computed by our functions."""
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(FIELDS))
        nested = data["response_mask"]
        # rows that only fill the batch up are copies of another row's facts: they have no turns
        turns: list[list[TurnFacts]] = [
            [] if tag.get("is_padding", False) else unpack(column)
            for tag, column in zip(batch.tags, data["drkernel_turns"].unbind(), strict=True)
        ]
        rows = TurnRows(turns, _groups(batch.keys), int(nested.offsets().diff().max()))
        actor = self.config.actor_rollout_ref.actor
        lesson = teach(
            rows,
            _padded(data["old_log_probs"]),
            _padded(data["rollout_log_probs"]),
            _padded(response_from_nested(data["sum_pi_squared"], nested)),
            self.learner,
            seed=self.seed * 1_000_003 + self.global_steps - 1,
            sequences=float(len(batch) * actor.loss_scale_factor),
            planned=self.planned,
        )
        metrics.update({f"drkernel/{name}": value for name, value in lesson.metrics.items()})
        metrics |= _rewards(rows)
        versions = [tag["min_global_steps"] for tag in batch.tags if tag.get("min_global_steps") is not None]
        metrics["drkernel/lag"] = float(max((self.global_steps - 1 - version for version in versions), default=0))
        columns = {
            "advantages": lesson.advantages_BT,
            "returns": lesson.advantages_BT,
            "response_mask": lesson.mask_BT.to(torch.int64),
            "loss_mask": lesson.mask_BT.to(torch.int64),
            "rollout_is_weights": lesson.weights_BT,
            "drkernel_shares": lesson.shares_BT,
        }
        fields = {name: response_to_nested(values, nested) for name, values in columns.items()}
        return tq.kv_batch_put(
            keys=batch.keys, partition_id=batch.partition_id, fields=TensorDict(fields, batch_size=len(batch))
        )


@register_trainer("drkernel")
class KernelTrainer(TurnTrainer, PPOTrainerSync):
    """``trainer.v1.trainer_mode: drkernel``: sampling and training take turns."""

    mode = "sync"


@register_trainer("drkernel_ahead")
class AheadTrainer(TurnTrainer, PPOTrainerSeparateAsync):
    """One step off policy: while a step trains, the batch of the next one is sampled, by a sampler apart.

    verl's own asynchronous trainers take the prompts that end first and give answers under way new weights. Here the
    sampler gets new weights when the whole of a batch is graded: which weights sample one is a function of its step,
    those after ``step - 2`` updates, steps counted from 1.
    """

    mode = "separate_async"

    def _setup(self) -> None:
        """Start trainer and sampler; verl's own method fails where it says that no GPU does both."""
        PPOTrainer._setup(self)
        self.standalone_server_manager = LLMServerManager.create(config=self.config)
        self.standalone_checkpoint_manager = CheckpointEngineManager(
            config=omega_conf_to_dataclass(self.config.actor_rollout_ref.rollout.checkpoint_engine),
            actor_wg=self.actor_rollout_wg,
            replicas=self.standalone_server_manager.get_replicas(),
        )
        self.current_mode = HybridEngineMode.TRAINER

    def get_llm_client(self) -> Any:
        """Return a client without a remedy for weights that change within an answer."""
        return self.standalone_server_manager.get_client()

    def on_train_begin(self) -> None:
        """The first step draws its own batch."""

    def prepare_step(self) -> dict[str, Any]:
        """Ask for the step's batch, unless it was drawn beside the step before."""
        if self.replay_buffer.ahead is None:
            self._add_batch_to_generate()
        return {}

    def on_sample_end(self) -> None:
        """Ask for the next step's batch, with the weights that the sampler has."""
        super().on_sample_end()
        if self.global_steps < self.total_training_steps:
            self._add_batch_to_generate()

    def on_step_end(self) -> None:
        """Give the sampler the new weights, once it has nothing more to do with those that it has."""
        self._end_batch()
        super().on_step_end()

    def _end_batch(self) -> None:
        if self.replay_buffer.ahead is None and self.global_steps < self.total_training_steps:
            with marked_timer("ahead", self.timing_raw):
                self.replay_buffer.draw_ahead(self.global_steps, self.config.data.train_batch_size)

    def _save_checkpoint(self) -> None:
        """Save the next step's batch too: its weights are in no checkpoint. verl saves the queue."""
        self._end_batch()
        if (ahead := self.replay_buffer.ahead) is not None:
            text = json.dumps([ahead[0].keys, ahead[0].tags, ahead[1]], default=float)
            self._ahead_file().parent.mkdir(parents=True, exist_ok=True)
            self._ahead_file().write_text(text, encoding="utf-8")
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        keys: list[str] = []
        if self._ahead_file().exists():
            keys, tags, metrics = json.loads(self._ahead_file().read_text(encoding="utf-8"))
            self.replay_buffer.ahead = KVBatchMeta(partition_id="train", keys=keys, tags=tags), metrics
        if trained := {*(tq.kv_list("train") or {}).get("train", {})} - {*keys}:
            tq.kv_clear(partition_id="train", keys=sorted(trained))

    def _ahead_file(self) -> Path:
        return Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}" / "ahead.json"


def penalised_loss(config: Any, learner: LearnerConfig) -> Any:
    """Return verl's loss with our KL penalty in the place of its own, which knows no turns and cuts k3 off at 10."""
    plain = OmegaConf.merge(config.actor_rollout_ref.actor, {"use_kl_loss": False})
    actor = omega_conf_to_dataclass(plain)
    return partial(_penalised_loss, config=actor, kl=learner.kl, coefficient=learner.kl_coefficient)


def _penalised_loss(
    model_output: Any, data: TensorDict, dp_group: Any = None, *, config: Any, kl: KL, coefficient: float
) -> tuple[torch.Tensor, dict[str, Any]]:
    loss, metrics = ppo_loss(config, model_output, data, dp_group)
    now_BT = no_padding_2_padding(model_output["log_probs"], data)
    columns = data.select("response_mask", "ref_log_prob", "drkernel_shares").to_padded_tensor()
    mask_BT = columns["response_mask"].bool()
    gap_BT = torch.where(mask_BT, now_BT - columns["ref_log_prob"], 0.0)
    penalty_BT = kl_penalty(gap_BT, torch.zeros_like(gap_BT), kl) * columns["drkernel_shares"]
    penalty = agg_loss(penalty_BT, mask_BT, config.loss_agg_mode, **config.global_batch_info)
    metrics["kl_loss"] = Metric(value=penalty, aggregation=AggregationType.SUM)
    return loss + coefficient * penalty, metrics


class KernelBuffer(ReplayBuffer):
    """verl's buffer of finished trajectories (``trainer.v1.sampler.custom_sampler``), which asks for further prompts in
    place of those that teach nothing, for ``rollout.refill`` rounds at most, and draws a batch ahead.

    What still teaches nothing after them stays, so that verl's batch is whole: the rejection ``uninformative`` masks it
    by the same facts. What trains is therefore what our own trainer would keep.
    """

    def __init__(self, **terms: Any):
        super().__init__(**terms)
        own = OmegaConf.to_container(self.sampler_kwargs, resolve=True)
        self.rounds, self.learner = int(own["refill"]), LearnerConfig.model_validate(own["learner"])
        self.ahead: tuple[Any, dict[str, Any]] | None = None
        """the batch of the next step, where it was drawn before"""

    def draw_ahead(self, global_steps: int, batch_size: int) -> None:
        """Draw the batch that the next call of :meth:`sample` returns."""
        self.ahead = self.sample(global_steps, "train", batch_size)

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Sample a batch, then others in place of the prompts of it that teach nothing."""
        if partition_id != "val" and self.ahead is not None:
            drawn, self.ahead = self.ahead, None
            return drawn
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == "val":
            return batch, metrics
        dropped, rewards = self._without_lesson(batch)
        counts, gone = Counter(dropped.values()), rewards
        prompts, refills = batch_size, 0
        while dropped and refills < self.rounds:
            kept = [(key, tag) for key, tag in zip(batch.keys, batch.tags, strict=True) if _prompt(key) not in dropped]
            tq.kv_clear(partition_id=partition_id, keys=[key for key in batch.keys if _prompt(key) in dropped])
            self.refill_fn(len(dropped))
            more, found = super().sample(global_steps, partition_id, len(dropped))
            metrics, prompts, refills = {**metrics, **found}, prompts + len(dropped), refills + 1
            pairs = [*kept, *zip(more.keys, more.tags, strict=True)]
            batch = KVBatchMeta(partition_id=partition_id, keys=[k for k, _ in pairs], tags=[tag for _, tag in pairs])
            dropped, rewards = self._without_lesson(more)
            counts, gone = counts + Counter(dropped.values()), gone + rewards
        metrics |= {f"drkernel/dropped/{reason}": float(count) for reason, count in counts.items()}
        if gone:
            metrics["drkernel/dropped/reward"] = sum(gone) / len(gone)
        sizes = {"prompts": prompts, "prompts_kept": prompts - counts.total(), "refills": refills}
        return batch, metrics | {f"drkernel/{name}": float(size) for name, size in sizes.items()}

    def _without_lesson(self, batch: Any) -> tuple[dict[str, str], list[float]]:
        """Return the prompts of a batch that teach nothing, and why; and the rewards of their turns."""
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["drkernel_turns"])
        groups = _groups(batch.keys)
        rows = TurnRows([unpack(column) for column in data["drkernel_turns"].unbind()], groups, 1)
        found = uninformative(rows.batch(), self.learner)
        number = dict(zip(groups, map(_prompt, batch.keys), strict=True))
        owners = zip(rows.facts, rows.owner_R.tolist(), strict=True)
        rewards = [fact.reward for fact, b in owners if fact.graded and groups[b] in found]
        return {number[group]: reason for group, reason in found.items()}, rewards


def _prompt(key: str) -> str:
    """Return the prompt's id of a row: its key is that, the number of the sample, and the number of the row."""
    return key.rsplit("_", 2)[0]


def _groups(keys: Sequence[str]) -> list[int]:
    """Return the number of each row's prompt."""
    number: dict[str, int] = {}
    return [number.setdefault(_prompt(key), len(number)) for key in keys]


def _rewards(rows: TurnRows) -> dict[str, float]:
    """Return the mean reward, and the share of right answers, of all graded turns and of each turn by number."""
    found = {}
    turns = [fact.turn for fact in rows.facts]
    for name, wanted in (("", None), *((f"/turn{k + 1}", k) for k in sorted(set(turns)))):
        graded = [fact for fact, k in zip(rows.facts, turns, strict=True) if fact.graded and wanted in (None, k)]
        if graded:
            found[f"drkernel/reward{name}"] = sum(fact.reward for fact in graded) / len(graded)
            found[f"drkernel/correct{name}"] = sum(fact.correct for fact in graded) / len(graded)
    failed = sum(not fact.graded for fact in rows.facts)
    return {**found, "drkernel/turns": float(len(turns)), "drkernel/grader_failed": float(failed)}


def _padded(nested: Any) -> torch.Tensor:
    """Return verl's nested column as float [B, T]."""
    padded: torch.Tensor = nested.to_padded_tensor(0.0).float()
    return padded
