"""The supervised stages of a run: copying practice, and fine-tuning on cold-start data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drkernel.rl.data.coldstart import ColdstartConfig
from drkernel.rl.data.teacher.plans import TeacherConfig
from drkernel.rl.data.teacher.problem_families import generate_problems, generate_tasks
from drkernel.rl.model.policy import Example
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.checkpoint import Checkpoints
from drkernel.rl.run.copy_practice import CopyingConfig, copied_modules, repeated_kernels
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.sft import SftConfig, encode_rows, load_conversations, run_sft
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
            examples = practice(sitting.tokenizer, config, sitting.recipe.coldstart, sitting.recipe.rollout.context)
            supervise(sitting, "copying", config, examples, resume)
        sitting.state.begin("sft")
        sitting.checkpoint(None)


def practice(
    tokenizer: ChatTokenizer, config: CopyingConfig, coldstart: ColdstartConfig | None, context: int
) -> list[Example]:
    """Return the conversations of copying practice; repeated kernels are those of the teacher in ``coldstart``."""
    tasks = generate_tasks("train", config.tasks, config.task_seed, checked=False)
    problems = generate_problems("train", config.kernels, config.task_seed + 1, checked=False)
    teacher = coldstart.teacher if coldstart is not None else TeacherConfig()
    return [
        *copied_modules(tokenizer, tasks, context),
        *repeated_kernels(tokenizer, problems, teacher, config.task_seed, context, config.write),
    ]


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
    optimizer = make_optimizer(sitting.policy, config.lr, config.weight_decay, config.optimizer)
    if resume is not None:
        Checkpoints.load(resume, sitting.policy, optimizer)

    def on_step(done: int, steps: int, metrics: dict[str, Any]) -> None:
        sitting.state.advance(done)
        sitting.log(stage, {"stage": stage, "step": done, "steps": steps, **metrics})
        sitting.checkpoint_if_due(optimizer)

    start, seed = sitting.state.step, sitting.recipe.seed
    run_sft(sitting.policy, optimizer, examples, config, seed=seed, start=start, on_step=on_step)
