"""TRL with one advantage a turn. Extra: ``drkernel[trl]``.

TRL computes one advantage a trajectory, and takes one a token from a subclass. :class:`TurnGRPOTrainer` overrides
``compute_loss``, the public method that every trainer of transformers has, and puts the advantages of
:func:`drkernel.rl.run.learner.give_credit` there; nothing else of the step changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from drkernel.adapters import extra
from drkernel.adapters.trl import Generate, Play, kernel_reward, make_rollout_func
from drkernel.config import ConfigError
from drkernel.episode.episode import EpisodeConfig
from drkernel.gym.request import Pool
from drkernel.rl.run.learner import LearnerConfig, TurnRows, check_methods, give_credit
from drkernel.task import Task

with extra("trl"):
    from trl import GRPOTrainer

Key = tuple[tuple[int, ...], ...]
"""A trajectory: ids of its prompt, ids after it, and which of these train. TRL shuffles its rows and carries nothing of
ours to the loss."""


class TurnGRPOTrainer(GRPOTrainer):
    """``GRPOTrainer`` whose rollout and rewards are drkernel's.

    ``methods`` holds the learner's keys that TRL has no counterpart of (``advantage``, ``rejection``,
    ``mask_void_turns``), as in a recipe; everything else is TRL's. Methods that need Σπ² or log-probabilities (OTB) are
    refused. The rows of a group must be played by one process: ``per_device_train_batch_size`` times
    ``steps_per_generation`` a multiple of ``num_generations``.
    """

    def __init__(
        self,
        *args: Any,
        tasks: str | list[Task],
        terms: EpisodeConfig = EpisodeConfig(),
        methods: dict[str, Any] | None = None,
        pool: Pool | None = None,
        generate: Generate | None = None,
        **options: Any,
    ):
        chosen = dict(methods or {})
        if strange := set(chosen) - {"advantage", "rejection", "mask_void_turns"}:
            raise ConfigError(f"methods: {', '.join(sorted(strange))}: TRL has its own, or none")
        self.learner = LearnerConfig.model_validate({"mismatch": [], **chosen})
        check_methods(self.learner)
        self._advantages: dict[bool, dict[Key, Tensor]] = {}
        rollout = make_rollout_func(tasks, terms, pool=pool, generate=generate, played=self._played)
        super().__init__(*args, rollout_func=rollout, reward_funcs=kernel_reward, **options)
        if self.args.mask_truncated_completions:
            raise ConfigError("mask_truncated_completions: the trajectories could not be told apart")

    def _played(self, trainer: Any, prompts: list[str], plays: list[Play]) -> None:
        """Compute the advantages of a batch of trajectories."""
        training = bool(self.model.training)
        samples = self.num_generations if training else self.num_generations_eval
        if odd := [prompt for prompt in set(prompts) if prompts.count(prompt) % samples]:
            raise ValueError(f"{len(odd)} groups are split over processes: see TurnGRPOTrainer")
        numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
        length = max(len(play.completion) for play in plays)
        rows = TurnRows([play.turns for play in plays], [numbers[prompt] for prompt in prompts], length)
        nothing_BT = torch.zeros(len(plays), length)
        seed = self.args.seed * 1_000_003 + self.state.global_step
        credit = give_credit(rows.batch(nothing_BT), rows.take(nothing_BT), self.learner, seed)
        advantages_BT = rows.put_back((credit.advantages_BT * credit.mask_BT).float())
        found: dict[Key, list[Tensor]] = {}
        for play, row in zip(plays, advantages_BT, strict=True):
            key = (tuple(play.prompt_ids), tuple(play.completion), tuple(play.mask))
            found.setdefault(key, []).append(row[: len(play.completion)])
        # trajectories of equal ids have equal gradients, so that each may have the mean of their advantages
        self._advantages[training] = {key: torch.stack(same).mean(dim=0) for key, same in found.items()}

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """TRL's loss, at one advantage a token."""
        taught = {**inputs, "advantages": self._per_token(inputs)}
        return super().compute_loss(model, taught, return_outputs, num_items_in_batch)

    def _per_token(self, inputs: dict[str, Any]) -> Tensor:
        """Return the advantages of TRL's rows, [B, T] like ``completion_ids``."""
        known = self._advantages[bool(self.model.training)]
        made_BT = torch.zeros(inputs["completion_ids"].shape, device=inputs["completion_ids"].device)
        here = inputs["completion_mask"]
        parts = (("prompt_ids", inputs["prompt_mask"]), ("completion_ids", here), ("tool_mask", here))
        for b, key in enumerate(zip(*(_rows(inputs[name], mask) for name, mask in parts), strict=True)):
            made_BT[b, : len(key[1])] = known[key].to(made_BT.device)
        return made_BT


def _rows(ids_BT: Tensor, mask_BT: Tensor) -> list[tuple[int, ...]]:
    return [tuple(row[keep].tolist()) for row, keep in zip(ids_BT, mask_BT.bool(), strict=True)]
