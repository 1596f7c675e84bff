"""A run from cold start to the last evaluation, stage by stage, in a directory that can be resumed at any time.

::

    runs/NAME/
      config.yaml  coldstart.jsonl  tokenizer/          the run's inputs
      metrics.jsonl  eval.jsonl  samples.jsonl          one JSON row per step, evaluation, trajectory
      checkpoints/                                      see drkernel.rl.run.sitting
      summary.json  report.html                         at the end

The stages that train are objects of their own (here, and reinforce.py) over what they share (sitting.py); what has to
survive between two sittings is one typed record there.

Everything drawn is a function of (seed, stage, step), so no generator's state has to survive: a run killed at any
moment and resumed repeats what it did after its last checkpoint, and ends as it would have.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from drkernel.base.files import publish_directory, write_atomic
from drkernel.config import dump_config
from drkernel.gym.request import Pool
from drkernel.rl.data.coldstart import Interrupted, write_coldstart
from drkernel.rl.model.distributed import World
from drkernel.rl.model.policy import Example, Policy
from drkernel.rl.model.tokenizer import ChatTokenizer, train_tokenizer
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.recipe import Recipe, check_recipe, check_same_run
from drkernel.rl.run.reinforce import RlStage
from drkernel.rl.run.sft import SftConfig, encode_rows, load_conversations, practice, run_sft
from drkernel.rl.run.sitting import (
    Checkpoints,
    Progress,
    RunClock,
    RunFiles,
    RunState,
    Sinks,
    Sitting,
    Stage,
    Stopped,
    untold,
)

HEADLINE = ("fast_0", "fast_1", "fast_1.2", "fast_1.5", "fast_2", "coverage", "speedup", "hack_rate", "reward")


class CopyingStage:
    """The stage before fine-tuning: copying practice, for a model trained from scratch."""

    def __init__(self, sitting: Sitting):
        self.sitting = sitting

    def run(self, resume: Path | None) -> None:
        """Train, continuing from the checkpoint ``resume`` if given, then start the fine-tuning stage."""
        sitting, config = self.sitting, self.sitting.recipe.copying
        if config is not None:
            examples = practice(sitting.tokenizer, config, sitting.recipe.rollout.context)
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
            rows = load_conversations(self.conversations, sitting.recipe.select, sitting.recipe.sft.learn)
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


# ---- A run from cold start to the last evaluation, stage by stage, in a directory that can be resumed at any time


class Run:
    """One run, in its directory."""

    def __init__(
        self,
        recipe: Recipe,
        pool: Pool,
        progress: Progress = untold,
        write_report: Callable[[Path], Path] | None = None,
        world: World | None = None,
    ):
        """Prepare a run. ``write_report`` writes the page of a finished run; it is passed in because it lies above this
        package."""
        check_recipe(recipe)
        self.recipe, self.pool, self.write_report = recipe, pool, write_report
        self.world = world or World()
        self.progress = progress if self.world.first else untold
        self.directory = Path(recipe.runs) / recipe.name
        given = recipe.coldstart_file
        self.conversations = Path(given) if given is not None else self.directory / "coldstart.jsonl"
        self.stop_requested = False
        """Set it (from a signal handler) to end after the present step, with a checkpoint."""

    async def run(self) -> dict[str, Any]:
        """Run the remaining stages and return the summary. Raises :class:`Stopped` when :attr:`stop_requested` was
        set."""
        clock = RunClock()
        if self.recipe.threads:
            torch.set_num_threads(self.recipe.threads)
        self.world.first_does(self._open_directory)
        complete = await self._make_data() if self.world.first else True
        if not self.world.agree(complete):
            raise Stopped(str(self.directory))
        self.world.first_does(self._make_tokenizer)
        sitting, resume = self._sit_down(clock)
        try:
            if sitting.state.stage == "copying":
                CopyingStage(sitting).run(resume)
                resume = None
            if sitting.state.stage == "sft":
                SftStage(sitting, self.conversations).run(resume)
                resume = None
            await RlStage(sitting).run(resume)
            return self._finish(sitting)
        finally:
            sitting.files.close()
            sitting.sinks.close()

    def _sit_down(self, clock: RunClock) -> tuple[Sitting, Path | None]:
        """Load policy, files and state of the last checkpoint, and return its path; start anew without one."""
        policy = self._make_policy()
        policy.shard(self.world)
        checkpoints = Checkpoints(self.directory / "checkpoints", self.recipe.checkpoint.keep)
        self.world.first_does(checkpoints.sweep)
        found = checkpoints.latest()
        resume, state = (None, RunState()) if found is None else (found[0], RunState.read(found[1], found[0]))
        clock.before = state.seconds
        sinks = self.recipe.sinks if self.world.first else ()
        sitting = Sitting(
            recipe=self.recipe,
            pool=self.pool,
            world=self.world,
            directory=self.directory,
            policy=policy,
            checkpoints=checkpoints,
            state=state,
            files=RunFiles(self.directory, state.sizes, write=self.world.first),
            sinks=Sinks(sinks, self.directory, json.loads(self.recipe.model_dump_json())),
            clock=clock,
            progress=self.progress,
            stop_requested=lambda: self.stop_requested,
        )
        return sitting, resume

    def _open_directory(self) -> None:
        """Create the directory, or check that the existing one belongs to this run."""
        path = self.directory / "config.yaml"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomic(path, dump_config(self.recipe))
            return
        check_same_run(self.directory, self.recipe)

    async def _make_data(self) -> bool:
        """Stage 1: make the missing cold-start trajectories; return whether all of them exist now."""
        if self.recipe.coldstart is None or (self.directory / "tokenizer").exists():
            return True
        self.progress("stage", {"stage": "coldstart"})
        try:
            await write_coldstart(
                self.recipe.coldstart,
                self.pool,
                self.directory / "coldstart.jsonl",
                progress=lambda done, total, counts: self.progress(
                    "coldstart", {"done": done, "total": total, **counts}
                ),
                stopping=lambda: self.stop_requested,
            )
        except Interrupted:
            return False
        return True

    def _make_tokenizer(self) -> None:
        """Train the tokenizer of a from-scratch model, unless it exists."""
        directory, terms = self.directory / "tokenizer", self.recipe.policy.tokenizer
        if directory.exists() or not self.recipe.policy.from_scratch:
            return
        texts = [message["content"] for messages in load_conversations(self.conversations) for message in messages]
        temporary = self.directory / ".tokenizer.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        train_tokenizer(texts, terms.vocab_size, terms.split).save(temporary)
        publish_directory(temporary, directory)

    def _make_policy(self) -> Policy:
        """Load or create the untrained model with its tokenizer."""
        terms = self.recipe.policy
        if not terms.from_scratch:
            policy = Policy.load(terms, world=self.world)
            if self.recipe.rollout.backend != "vllm" and (self.recipe.rl or self.recipe.evaluation.final_tasks):
                policy.check_decoder()  # before stages that take hours
            return policy
        return Policy.from_scratch(terms, ChatTokenizer.load(self.directory / "tokenizer"), self.recipe.seed)

    def _finish(self, sitting: Sitting) -> dict[str, Any]:
        """Write the summary and the report; return the summary."""
        recipe, settings, state = self.recipe, self.recipe.episode.settings, sitting.state
        summary: dict[str, Any] = {
            "schema_version": 1,
            "name": recipe.name,
            "status": "done",
            "before": headline(state.before),
            "after": headline(state.after),
            "best": None if state.best is None else state.best.model_dump(by_alias=True),
            "timing_kind": settings.place.timing,
            "device": settings.device,
            "seconds": sitting.clock.seconds(),
            "evaluations": state.evaluations,
            "tokens": state.tokens,
            "steps": state.steps,
            "parameters": sitting.policy.size,
            "stopped_because": state.stopped_because,
            "unsafe_no_checks": settings.unsafe_no_checks,
            "report": None,
        }
        if not self.world.first:
            return summary
        write_atomic(self.directory / "summary.json", json.dumps(summary, indent=1))
        if recipe.report and self.write_report is not None:
            summary["report"] = str(self.write_report(self.directory))
            summary["seconds"] = sitting.clock.seconds()
            write_atomic(self.directory / "summary.json", json.dumps(summary, indent=1))
        self.progress("done", summary)
        return summary


def headline(evaluation: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the figures of an evaluation that a summary shows."""
    return None if evaluation is None else {name: evaluation.get(name) for name in HEADLINE}
