"""The supervised stages of a run: copying practice, and fine-tuning on cold-start data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drkernel.rl.data.teacher.problem_families import generate_tasks
from drkernel.rl.model.policy import Example
from drkernel.rl.run.checkpoint import Checkpoints
from drkernel.rl.run.copy_practice import copying_examples
from drkernel.rl.run.sft import SftConfig, encode_rows, load_conversations, make_optimizer, run_sft
from drkernel.rl.run.sitting import Sitting
from drkernel.rl.run.state import Stage


class CopyingStage:
    """The stage before fine-tuning: copying practice, for a model trained from scratch."""

    def __init__(self, sitting: Sitting):
        self.sitting = sitting

    def run(self, resume: Path | None) -> None:
        """Train, continuing from the checkpoint ``resume`` if given, then start the fine-tuning stage."""
        sitting, config = self.sitting, self.sitting.recipe.copying
        if config is not None:
            tasks = generate_tasks("train", config.tasks, config.task_seed, checked=False)
            context = sitting.recipe.rollout.context
            examples = copying_examples(sitting.tokenizer, tasks, context, config.turns)
            supervise(sitting, "copying", config, examples, resume)
        sitting.state.begin("sft")
        sitting.checkpoint(None)


class SftStage:
    """Supervised fine-tuning on the cold-start data in ``conversations``."""

    def __init__(self, sitting: Sitting, conversations: Path):
        self.sitting, self.conversations = sitting, conversations

    def run(self, resume: Path | None) -> None:
        """Train, continuing from the checkpoint ``resume`` if given, then start the reinforcement-learning stage."""
        sitting = self.sitting
        if sitting.recipe.sft is not None:
            rows = load_conversations(self.conversations, sitting.recipe.select)
            examples = encode_rows(sitting.tokenizer, rows, sitting.recipe.rollout.context)
            supervise(sitting, "sft", sitting.recipe.sft, examples, resume)
            sitting.checkpoints.export("sft", sitting.policy)
        elif resume is not None:
            Checkpoints.load(resume, sitting.policy, None)
        sitting.state.begin("rl")
        sitting.checkpoint(None)


def supervise(
    sitting: Sitting, stage: Stage, config: SftConfig, examples: Sequence[Example], resume: Path | None
) -> None:
    """Run one supervised stage, continuing from the checkpoint ``resume`` if given."""
    sitting.progress("stage", {"stage": stage, "parameters": sitting.policy.size})
    optimizer = make_optimizer(sitting.policy, config.lr, config.weight_decay)
    if resume is not None:
        Checkpoints.load(resume, sitting.policy, optimizer)

    def on_step(done: int, steps: int, metrics: dict[str, Any]) -> None:
        sitting.state.advance(done)
        sitting.log(stage, {"stage": stage, "step": done, "steps": steps, **metrics})
        sitting.checkpoint_if_due(optimizer)

    start, seed = sitting.state.step, sitting.recipe.seed
    run_sft(sitting.policy, optimizer, examples, config, seed=seed, start=start, on_step=on_step)
