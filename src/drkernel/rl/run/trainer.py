"""A run from cold start to the last evaluation, stage by stage, in a directory that can be resumed at any moment.

::

    runs/NAME/
      config.yaml  coldstart.jsonl  tokenizer/          what the run is made of
      metrics.jsonl  eval.jsonl  samples.jsonl          one JSON row a step, an evaluation, a trajectory
      checkpoints/                                      see drkernel.rl.run.checkpoint
      summary.json  report.html                         at the end

Everything drawn is a function of (seed, stage, step), so no generator's state has to survive: a run killed at any
moment and resumed repeats what it did after its last checkpoint, and ends as it would have.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from drkernel.config import ConfigError, dump_config, load_config
from drkernel.episode.episode import Episode
from drkernel.gym.request import Pool
from drkernel.rl.data.coldstart import Interrupted, write_coldstart
from drkernel.rl.data.teacher.families import generate_tasks
from drkernel.rl.model.distributed import World
from drkernel.rl.model.policy import Example, Policy
from drkernel.rl.model.sampler import Sampler
from drkernel.rl.model.tokenizer import ChatTokenizer, train_tokenizer
from drkernel.rl.run.checkpoint import Checkpoints, publish_directory, write_atomic
from drkernel.rl.run.copy_practice import copying_examples
from drkernel.rl.run.evaluate import evaluation_metrics
from drkernel.rl.run.learner import Learner
from drkernel.rl.run.metric_sinks import NoFiles, RunFiles, Sinks
from drkernel.rl.run.recipe import Recipe, check_recipe
from drkernel.rl.run.records import Trajectory, Turn
from drkernel.rl.run.rollout import Job, Rollout, plan_jobs
from drkernel.rl.run.sft import SftConfig, encode_rows, load_conversations, make_optimizer, run_sft
from drkernel.rl.run.summary import headline, rl_metrics, sample_row, spread_out
from drkernel.task import Task

Progress = Callable[[str, dict[str, Any]], None]
"""Told what happens: ("stage" | "coldstart" | "sft" | "turn" | "rl" | "eval" | "done", facts)"""

FREE = {"runs", "name", "sinks", "report", "threads", "checkpoint", "budget_minutes"}
"""Keys of a recipe that may differ when a run is taken up again: they do not change its result."""


class Stopped(Exception):
    """The run was asked to stop; its checkpoint is written."""


class Run:
    """One run directory and what happens in it."""

    def __init__(
        self,
        recipe: Recipe,
        pool: Pool,
        progress: Progress = lambda kind, row: None,
        write_report: Callable[[Path], Path] | None = None,
        world: World | None = None,
    ):
        """``write_report`` makes the page of a finished run; it lies above this package, so it is handed in."""
        check_recipe(recipe)
        self.recipe, self.pool, self.write_report = recipe, pool, write_report
        self.world = world or World()
        self.progress = progress if self.world.first else lambda kind, row: None
        self.directory = Path(recipe.runs) / recipe.name
        self.stop_requested = False
        """Set it (from a signal handler) to end after the present step, with a checkpoint."""
        self.state: dict[str, Any] = {
            "stage": "copying",
            "step": 0,
            "seconds": 0.0,
            "tokens": 0,
            "evaluations": 0,
            "steps": {"copying": 0, "sft": 0, "rl": 0},
            "before": None,
            "best": None,
            "schedule": None,
            "sizes": {},
        }

    async def run(self) -> dict[str, Any]:
        """Do what is left to do; the summary. Raises :class:`Stopped` when :attr:`stop_requested` was set."""
        self._started = time.perf_counter()
        if self.recipe.threads:
            torch.set_num_threads(self.recipe.threads)
        self.world.first_does(self._open_directory)
        complete = await self._make_data() if self.world.first else True
        if not self.world.agree(complete):
            raise Stopped(str(self.directory))
        self.world.first_does(self._make_tokenizer)
        self.policy = self._make_policy()
        self.policy.shard(self.world)
        self.tokenizer = self.policy.tokenizer
        self.checkpoints = Checkpoints(self.directory / "checkpoints", self.recipe.checkpoint.keep)
        self.world.first_does(self.checkpoints.sweep)
        found = self.checkpoints.latest()
        if found is not None:
            self.state = found[1]
        resume = found[0] if found is not None else None
        self._seconds_before = float(self.state["seconds"])
        self.files = RunFiles(self.directory, self.state["sizes"]) if self.world.first else NoFiles()
        sinks = self.recipe.sinks if self.world.first else ()
        self.sinks = Sinks(sinks, self.directory, json.loads(self.recipe.model_dump_json()))
        self._saved_at = time.perf_counter()
        try:
            if self.state["stage"] == "copying":
                self._run_copying(resume)
                resume = None
            if self.state["stage"] == "sft":
                self._run_sft(resume)
                resume = None
            await self._run_rl(resume)
            return self._finish()
        finally:
            self.files.close()
            self.sinks.close()

    def _open_directory(self) -> None:
        """Make the directory, or check that what is there is this run."""
        path = self.directory / "config.yaml"
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomic(path, dump_config(self.recipe))
            return
        if load_config(Recipe, path).model_dump(exclude=FREE) != self.recipe.model_dump(exclude=FREE):
            raise ConfigError(
                f"{self.directory} holds a run of another recipe; choose another name (name=...), remove the "
                f"directory, or go on with it as it is: drkernel train --resume {self.directory}"
            )

    async def _make_data(self) -> bool:
        """Stage 1: the cold-start trajectories, as far as they are missing. Whether all are there now."""
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

    def _conversations(self) -> list[list[dict[str, str]]]:
        """The messages of the cold-start data."""
        given = self.recipe.coldstart_file
        return load_conversations(Path(given) if given is not None else self.directory / "coldstart.jsonl")

    def _make_tokenizer(self) -> None:
        """Train the tokenizer of a from-scratch model, unless it is there."""
        directory, terms = self.directory / "tokenizer", self.recipe.policy.tokenizer
        if directory.exists() or not self.recipe.policy.from_scratch:
            return
        texts = [message["content"] for messages in self._conversations() for message in messages]
        temporary = self.directory / ".tokenizer.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        train_tokenizer(texts, terms.vocab_size, terms.split).save(temporary)
        publish_directory(temporary, directory)

    def _make_policy(self) -> Policy:
        """The model before any training, with its tokenizer."""
        terms = self.recipe.policy
        if not terms.from_scratch:
            return Policy.load(terms)
        return Policy.from_scratch(terms, ChatTokenizer.load(self.directory / "tokenizer"), self.recipe.seed)

    def _run_copying(self, resume: Path | None) -> None:
        """Before stage 2: practice in copying, for a model made from scratch."""
        config = self.recipe.copying
        if config is not None:
            tasks = generate_tasks("train", config.tasks, config.task_seed, checked=False)
            examples = copying_examples(self.tokenizer, tasks, self.recipe.rollout.context, config.turns)
            self._supervise("copying", config, examples, resume)
        self.state |= {"stage": "sft", "step": 0}
        self._checkpoint(None)

    def _run_sft(self, resume: Path | None) -> None:
        """Stage 2: supervised fine-tuning on the cold-start data."""
        if self.recipe.sft is not None:
            examples = encode_rows(self.tokenizer, self._conversations(), self.recipe.rollout.context)
            self._supervise("sft", self.recipe.sft, examples, resume)
            self.checkpoints.export("sft", self.policy)
        elif resume is not None:
            Checkpoints.load(resume, self.policy, None)
        self.state |= {"stage": "rl", "step": 0}
        self._checkpoint(None)

    def _supervise(self, stage: str, config: SftConfig, examples: Sequence[Example], resume: Path | None) -> None:
        """A supervised stage, going on after the checkpoint ``resume``."""
        self.progress("stage", {"stage": stage, "parameters": self.policy.size})
        optimizer = make_optimizer(self.policy, config.lr, config.weight_decay)
        if resume is not None:
            Checkpoints.load(resume, self.policy, optimizer)

        def on_step(done: int, steps: int, metrics: dict[str, Any]) -> None:
            self.state["step"] = self.state["steps"][stage] = done
            self._log(stage, {"stage": stage, "step": done, "steps": steps, **metrics})
            self._checkpoint_if_due(optimizer)

        start = self.state["step"]
        run_sft(self.policy, optimizer, examples, config, seed=self.recipe.seed, start=start, on_step=on_step)

    async def _run_rl(self, resume: Path | None) -> None:
        """Stage 3: reinforcement learning, between two evaluations of the same tasks with the same seeds."""
        recipe, terms = self.recipe, self.recipe.evaluation
        self.heldout = recipe.heldout_tasks.tasks("heldout")
        random.Random(f"heldout-{terms.seed}").shuffle(self.heldout)  # any first n of them are a fair sample
        steps = recipe.rl.steps if recipe.rl is not None else 0
        learner = self._make_learner(resume)
        if self.state["before"] is None:
            self.state["before"] = await self._evaluate("before", terms.final_tasks, terms.final_samples)
            self._checkpoint(learner.optimizer)
        self.progress("stage", {"stage": "rl", "steps": steps})
        tasks = recipe.train_tasks.tasks("train") if steps else []
        while self.state["step"] < steps and not self._out_of_time():
            await self._rl_step(learner, self.state["step"], tasks)
            self.state["step"] += 1
            self.state["steps"]["rl"] = self.state["step"]
            if self.state["step"] % terms.every == 0 and self.state["step"] < steps:
                await self._evaluate("during", terms.tasks, terms.samples)
            self._checkpoint_if_due(learner.optimizer)
        self.state["after"] = self.state["before"]
        if self.state["step"]:
            self.state["after"] = await self._evaluate("after", terms.final_tasks, terms.final_samples)
        self.checkpoints.export("final", self.policy)

    def _make_learner(self, resume: Path | None) -> Learner:
        """The learner with weights and optimiser of the checkpoint."""
        from drkernel.rl.run.learner import LearnerConfig

        config = self.recipe.rl.learner if self.recipe.rl is not None else LearnerConfig()
        optimizer = make_optimizer(self.policy, config.lr, config.weight_decay)
        if resume is not None:
            Checkpoints.load(resume, self.policy, optimizer)
        reference = self._load_reference() if config.kl_coefficient else None
        temperature = self.recipe.rollout.sampling.temperature or 1.0
        learner = Learner(self.policy, optimizer, config, temperature=temperature, reference=reference)
        learner.restore(self.state["schedule"])
        return learner

    def _load_reference(self) -> Policy:
        """The policy that RL started from, frozen."""
        start = self.directory / "checkpoints" / "sft" if self.recipe.sft is not None else None
        reference = Policy.load(self.recipe.policy, start)
        reference.model.requires_grad_(False)
        reference.shard(self.world)
        return reference

    async def _rl_step(self, learner: Learner, step: int, tasks: Sequence[Task]) -> None:
        """Sample and grade, learn, log."""
        recipe = self.recipe
        assert recipe.rl is not None
        started = time.perf_counter()
        chosen = step_tasks(tasks, step, recipe.rollout.tasks, recipe.seed)
        jobs = plan_jobs(chosen, recipe.rollout.samples, recipe.seed * 100_003 + step)
        rollout = self._rollout(self._training_sampler(step))
        graded = 0

        def on_graded(turn: Any) -> None:
            nonlocal graded
            graded += 1
            self.progress("turn", {"step": step + 1, "graded": graded, "of": len(jobs) * recipe.episode.turns})

        trajectories = await self._play(rollout, jobs, on_graded)
        sampled = time.perf_counter()
        learned = learner.learn(trajectories, step, recipe.seed * 1_000_003 + step)
        self.state["schedule"] = learner.schedule_state()
        stats = rollout.stats
        self._count(stats.tokens, stats.graded)
        row = {"stage": "rl", "step": step + 1, **rl_metrics(trajectories, recipe.episode.turns), **learned}
        row |= {
            "left_out": len(jobs) - len(trajectories),
            "tokens": stats.tokens,
            "evaluations": stats.graded,
            "pruned_mass": stats.pruned_mass,
            "sample_seconds": sampled - started,
            "wait_seconds": stats.waiting,
            "grade_seconds": stats.grading,
            "learn_seconds": time.perf_counter() - sampled,
            "seconds": time.perf_counter() - started,
        }
        self._log("rl", row)
        for trajectory in spread_out(trajectories, recipe.rl.log_samples):
            self.files.append("samples.jsonl", sample_row("rl", step + 1, "train", trajectory))

    async def _evaluate(self, label: str, tasks: int, samples: int) -> dict[str, Any]:
        """Play held-out tasks with the present weights and log what comes out."""
        started = time.perf_counter()
        recipe, terms = self.recipe, self.recipe.evaluation
        stage = "rl" if self.state["step"] else "sft" if recipe.sft is not None else "base"
        self.progress("stage", {"stage": "evaluation", "label": label})
        sampling = recipe.rollout.sampling.model_copy(update={"temperature": terms.temperature})
        decoder = self.policy.make_decoder(sampling.rows, recipe.rollout.context)
        rollout = self._rollout(Sampler(decoder, self.tokenizer, sampling, self._keep_ratio()))
        jobs = plan_jobs(self.heldout[:tasks], samples, terms.seed)
        trajectories = await self._play(rollout, jobs)
        self._count(rollout.stats.tokens, rollout.stats.graded)
        row = {"stage": stage, "step": self.state["step"], "label": label}
        row |= evaluation_metrics(trajectories, recipe.episode.turns)
        row["seconds"] = time.perf_counter() - started
        self.files.append("eval.jsonl", row)
        self.sinks.log("eval", self.state["step"], row)
        self.progress("eval", row)
        if label != "during":
            for trajectory in trajectories:
                self.files.append("samples.jsonl", sample_row(stage, self.state["step"], "heldout", trajectory))
        self._keep_best(row)
        return row

    async def _play(
        self, rollout: Rollout, jobs: Sequence[Job], on_graded: Callable[[Turn], None] | None = None
    ) -> list[Trajectory]:
        """Play this rank's share of the jobs (whole groups); the trajectories of all ranks, and the sums of counts."""
        mine = [job for job in jobs if job.group % self.world.size == self.world.rank]
        threads = torch.get_num_threads()
        torch.set_num_threads(self.recipe.rollout.threads or threads)
        try:
            played = self.world.gather(await rollout.play(mine, on_graded))
        finally:
            torch.set_num_threads(threads)
        stats = rollout.stats
        stats.tokens, stats.graded = int(self.world.sum(stats.tokens)), int(self.world.sum(stats.graded))
        return sorted(played, key=lambda trajectory: (trajectory.group, trajectory.sample))

    def _keep_best(self, row: dict[str, Any]) -> None:
        """Export the weights when their held-out reward is the best yet."""
        best = self.state["best"]
        if row["reward"] is not None and (best is None or row["reward"] > best["reward"]):
            self.state["best"] = {"step": row["step"], "reward": row["reward"], "fast_1.2": row["fast_1.2"]}
            self.checkpoints.export("best", self.policy)

    def _training_sampler(self, step: int) -> Sampler:
        """The sampler of an RL step; its weights are renewed every ``refresh_every`` steps."""
        terms = self.recipe.rollout
        if not hasattr(self, "_decoder"):
            self._decoder = self.policy.make_decoder(terms.sampling.rows, terms.context, terms.dtype)
        elif step % terms.refresh_every == 0:
            self._decoder.refresh(self.policy.model)
        return Sampler(self._decoder, self.tokenizer, terms.sampling, self._keep_ratio())

    def _rollout(self, sampler: Sampler) -> Rollout:
        return Rollout(
            sampler,
            self.tokenizer,
            lambda: Episode(self.pool, self.recipe.episode),
            waves=self.recipe.rollout.waves,
            judge_seed=self.recipe.judge_seed,
            version=self.state["step"],
        )

    def _keep_ratio(self) -> float:
        return self.recipe.rl.learner.keep_ratio if self.recipe.rl is not None else 0.0

    def _count(self, tokens: int, evaluations: int) -> None:
        self.state["tokens"] += tokens
        self.state["evaluations"] += evaluations

    def _log(self, stage: str, row: dict[str, Any]) -> None:
        self.files.append("metrics.jsonl", row)
        self.sinks.log(stage, row["step"], row)
        self.progress(stage, {**row, "elapsed": self._seconds()})

    def _seconds(self) -> float:
        """Wall seconds of the whole run so far, earlier sittings counted in."""
        return self._seconds_before + time.perf_counter() - self._started

    def _out_of_time(self) -> bool:
        """Whether the time budget is spent but for the final evaluation."""
        budget = self.recipe.budget_minutes
        if budget is None:
            return False
        reserve = 1.2 * self.state["before"]["seconds"] + 10
        if self.world.agree(self._seconds() + reserve < 60 * budget):
            return False
        self.state["stopped_because"] = f"the time budget of {budget:g} minutes was spent at step {self.state['step']}"
        return True

    def _checkpoint_if_due(self, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint when it is time, or when the run is to stop (then raise :class:`Stopped`)."""
        # between refreshes the sampler holds older weights, which a checkpoint does not keep
        settled = self.state["stage"] != "rl" or self.state["step"] % self.recipe.rollout.refresh_every == 0
        late = time.perf_counter() - self._saved_at >= self.recipe.checkpoint.seconds
        late, stop = self.world.agree((late, self.stop_requested))
        if settled and (late or stop):
            self._checkpoint(optimizer)
        if settled and stop:
            raise Stopped(str(self.directory))

    def _checkpoint(self, optimizer: torch.optim.Optimizer | None) -> None:
        self.state["seconds"] = self._seconds()
        self.state["sizes"] = self.files.sizes()
        self.checkpoints.save(f"{self.state['stage']}-{self.state['step']}", self.policy, optimizer, self.state)
        self._saved_at = time.perf_counter()

    def _finish(self) -> dict[str, Any]:
        """Write the summary and the report; the summary."""
        recipe, settings = self.recipe, self.recipe.episode.settings
        summary: dict[str, Any] = {
            "schema_version": 1,
            "name": recipe.name,
            "status": "done",
            "before": headline(self.state["before"]),
            "after": headline(self.state["after"]),
            "best": self.state["best"],
            "timing_kind": settings.place.timing,
            "device": settings.device,
            "seconds": self._seconds(),
            "evaluations": self.state["evaluations"],
            "tokens": self.state["tokens"],
            "steps": self.state["steps"],
            "parameters": self.policy.size,
            "stopped_because": self.state.get("stopped_because"),
            "unsafe_no_checks": settings.unsafe_no_checks,
            "report": None,
        }
        if not self.world.first:
            return summary
        write_atomic(self.directory / "summary.json", json.dumps(summary, indent=1))
        if recipe.report and self.write_report is not None:
            summary["report"] = str(self.write_report(self.directory))
            summary["seconds"] = self._seconds()
            write_atomic(self.directory / "summary.json", json.dumps(summary, indent=1))
        self.progress("done", summary)
        return summary


def step_tasks(tasks: Sequence[Task], step: int, count: int, seed: int) -> list[Task]:
    """The tasks of an RL step: every task once a pass, in an order shuffled anew each pass."""
    chosen = []
    for position in range(step * count, (step + 1) * count):
        epoch, index = divmod(position, len(tasks))
        order = list(range(len(tasks)))
        random.Random(f"rl-tasks-{seed}-{epoch}").shuffle(order)
        chosen.append(tasks[order[index]])
    return chosen
