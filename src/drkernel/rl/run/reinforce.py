"""The stage of reinforcement learning: sample and grade, learn, log, with evaluations of held-out tasks before and
after.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from drkernel.episode.episode import Episode
from drkernel.episode.metrics import mean
from drkernel.episode.records import Trajectory, Turn
from drkernel.rl.maths.rejection import Reason
from drkernel.rl.model.answerer import PolicyServer, SamplerAnswerer, ServedSampler
from drkernel.rl.model.policy import Policy
from drkernel.rl.model.sampler import Decoder, Sampler, SamplingConfig
from drkernel.rl.run.evaluate import evaluation_metrics, rl_metrics, sample_row, spread_out
from drkernel.rl.run.learner import Learner, LearnerConfig, uninformative
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.rollout import Rollout, RolloutJob, RolloutStats, Shape, make_shape, plan_jobs
from drkernel.rl.run.sitting import BestStep, Checkpoints, Sitting
from drkernel.task import Task


class RlStage:
    """Reinforcement learning, between two evaluations of the same tasks with the same seeds."""

    def __init__(self, sitting: Sitting):
        self.sitting = sitting
        self.heldout = sitting.recipe.heldout()
        self.shape = make_shape(sitting.recipe.rollout.shape)
        self.decoder: Decoder | None = None
        self.server: PolicyServer | None = None
        self.served = 0
        """The step whose weights the server has."""

    async def run(self, resume: Path | None) -> None:
        """Run the remaining steps, continuing from the checkpoint ``resume`` if given."""
        try:
            await self._run(resume)
        finally:
            if self.server is not None:
                self.server.close()

    async def _run(self, resume: Path | None) -> None:
        sitting, state, terms = self.sitting, self.sitting.state, self.sitting.recipe.evaluation
        steps = sitting.recipe.rl.steps if sitting.recipe.rl is not None else 0
        learner = self._make_learner(resume)
        if state.before is None and not state.step:
            if terms.final_tasks:
                state.before = await self.evaluate("before", terms.final_tasks, terms.final_samples)
            sitting.checkpoint(learner.optimizer)
        sitting.progress("stage", {"stage": "rl", "steps": steps})
        tasks = sitting.recipe.train_tasks.tasks("train") if steps else []
        while state.step < steps and not self._out_of_time():
            await self.step(learner, tasks)
            if state.step % terms.every == 0 and state.step < steps:
                await self.evaluate("during", terms.tasks, terms.samples)
            sitting.checkpoint_if_due(learner.optimizer)
        state.after = state.before
        if state.step and terms.final_tasks:
            state.after = await self.evaluate("after", terms.final_tasks, terms.final_samples)
        sitting.checkpoints.export("final", sitting.policy)

    async def step(self, learner: Learner, tasks: Sequence[Task]) -> None:
        """Run the next step of RL: sample and grade, learn, log."""
        sitting, recipe, number = self.sitting, self.sitting.recipe, self.sitting.state.step
        assert recipe.rl is not None
        started = time.perf_counter()
        drawn = await self._draw(tasks, recipe.rl.learner)
        sampled = time.perf_counter()
        learned = learner.learn(drawn.kept, number, recipe.seed * 1_000_003 + number)
        sitting.state.schedule = learner.schedule_state()
        row = {"stage": "rl", "step": number + 1, **rl_metrics(drawn.played, recipe.episode.turns), **learned}
        row |= {
            **drawn.metrics(),
            "tokens": drawn.stats.tokens,
            "evaluations": drawn.stats.graded,
            "pruned_mass": drawn.stats.pruned_mass,
            "sample_seconds": sampled - started,
            "wait_seconds": drawn.stats.waiting,
            "grade_seconds": drawn.stats.grading,
            "learn_seconds": time.perf_counter() - sampled,
            "seconds": time.perf_counter() - started,
        }
        sitting.log("rl", row)
        for trajectory in spread_out(drawn.played, recipe.rl.log_samples):
            sitting.files.append("samples.jsonl", sample_row("rl", number + 1, "train", trajectory))
        sitting.state.learn_speeds(turn for trajectory in drawn.played for turn in trajectory.turns)
        sitting.state.advance(number + 1)

    async def _draw(self, tasks: Sequence[Task], learner: LearnerConfig) -> Drawn:
        """Play the prompts of a step, then others in place of those that teach nothing, for ``refill`` rounds at
        most."""
        sitting, recipe, number = self.sitting, self.sitting.recipe, self.sitting.state.step
        terms, turns = recipe.rollout, recipe.episode.turns
        rollout = self._rollout(self._training_sampler(), self.shape)
        samples = self.shape.jobs(terms.samples)
        drawn = Drawn(samples)
        graded = planned = 0

        def on_graded(turn: Turn) -> None:
            nonlocal graded
            graded += 1
            sitting.progress("turn", {"step": number + 1, "graded": graded, "of": planned})

        while (missing := terms.tasks - drawn.prompts + len(drawn.dropped)) and drawn.rounds <= terms.refill:
            chosen = step_tasks(tasks, sitting.state.prompts, missing, recipe.seed)
            seed, known = recipe.seed * 100_003 + number, sitting.state.fastest
            jobs = plan_jobs(chosen, samples, seed, drawn.prompts, known)
            planned += missing * self.shape.answers(terms.samples, turns)
            played = await self._play(rollout, jobs, on_graded)
            sitting.state.prompts += missing
            dropped = uninformative(played, learner, self.shape) if terms.refill else {}
            drawn.add(played, missing, dropped, rollout.stats)
        return drawn

    async def evaluate(self, label: str, tasks: int, samples: int) -> dict[str, Any]:
        """Play held-out tasks with the current weights; log the metrics and return the logged row."""
        started = time.perf_counter()
        sitting, recipe, terms = self.sitting, self.sitting.recipe, self.sitting.recipe.evaluation
        step = sitting.state.step
        stage = "rl" if step else "sft" if recipe.sft is not None else "base"
        sitting.progress("stage", {"stage": "evaluation", "label": label})
        changes = {"temperature": terms.temperature, "top_p": terms.top_p or recipe.rollout.sampling.top_p}
        sampling = recipe.rollout.sampling.model_copy(update=changes)
        rollout = self._rollout(self._evaluation_sampler(sampling))
        trajectories = await self._play(rollout, plan_jobs(self.heldout[:tasks], samples, terms.seed))
        row = {"stage": stage, "step": step, "label": label}
        row |= evaluation_metrics(trajectories, recipe.episode.turns)
        row["seconds"] = time.perf_counter() - started
        sitting.files.append("eval.jsonl", row)
        sitting.sinks.log("eval", step, row)
        sitting.progress("eval", row)
        if label != "during":
            for trajectory in trajectories:
                sitting.files.append("samples.jsonl", sample_row(stage, step, "heldout", trajectory))
        self._keep_best(row)
        return row

    def _make_learner(self, resume: Path | None) -> Learner:
        """Create the learner, with weights and optimiser of the checkpoint if there is one."""
        sitting, recipe = self.sitting, self.sitting.recipe
        config = recipe.rl.learner if recipe.rl is not None else LearnerConfig()
        optimizer = make_optimizer(sitting.policy, config.lr, config.weight_decay)
        if resume is not None:
            Checkpoints.load(resume, sitting.policy, optimizer)
        reference = self._load_reference() if config.kl_coefficient else None
        temperature = recipe.rollout.sampling.temperature or 1.0
        terms: dict[str, Any] = {"reference": reference, "planned": recipe.planned_turns, "shape": self.shape}
        learner = Learner(sitting.policy, optimizer, config, temperature=temperature, **terms)
        learner.restore(sitting.state.schedule)
        return learner

    def _load_reference(self) -> Policy:
        """Load the policy that RL started from, frozen."""
        recipe = self.sitting.recipe
        start = self.sitting.directory / "checkpoints" / "sft" if recipe.sft is not None else None
        reference = Policy.load(recipe.policy, start)
        reference.model.requires_grad_(False)
        reference.shard(self.sitting.world)
        return reference

    async def _play(
        self, rollout: Rollout, jobs: Sequence[RolloutJob], on_graded: Callable[[Turn], None] | None = None
    ) -> list[Trajectory]:
        """Play this rank's share of the jobs (whole groups); return the trajectories of all ranks."""
        world, state = self.sitting.world, self.sitting.state
        mine = [job for job in jobs if job.group % world.size == world.rank]
        threads = torch.get_num_threads()
        torch.set_num_threads(self.sitting.recipe.rollout.threads or threads)
        try:
            played = world.gather(await rollout.play(mine, on_graded))
        finally:
            torch.set_num_threads(threads)
        stats = rollout.stats
        stats.tokens, stats.graded = int(world.sum(stats.tokens)), int(world.sum(stats.graded))
        state.tokens += stats.tokens
        state.evaluations += stats.graded
        return sorted(played, key=lambda trajectory: (trajectory.group, trajectory.sample))

    def _keep_best(self, row: dict[str, Any]) -> None:
        """Export the weights when their held-out reward is the best yet."""
        state = self.sitting.state
        if row["reward"] is not None and (state.best is None or row["reward"] > state.best.reward):
            state.best = BestStep(step=row["step"], reward=row["reward"], fast_12=row["fast_1.2"])
            self.sitting.checkpoints.export("best", self.sitting.policy)

    def _training_sampler(self) -> Sampler | ServedSampler:
        """Return the sampler of the next step; its weights are renewed every ``refresh_every`` steps."""
        sitting, terms = self.sitting, self.sitting.recipe.rollout
        if terms.backend != "local":
            server = self._server(renew=sitting.state.step % terms.refresh_every == 0)
            return ServedSampler(server, sitting.tokenizer, terms.sampling, terms.context)
        if self.decoder is None:
            self.decoder = sitting.policy.make_decoder(terms.sampling.rows, terms.context, terms.dtype)
        elif sitting.state.step % terms.refresh_every == 0:
            self.decoder.refresh(sitting.policy.model)
        return Sampler(self.decoder, sitting.tokenizer, terms.sampling)

    def _evaluation_sampler(self, sampling: SamplingConfig) -> Sampler | ServedSampler:
        """Return a sampler with the present weights; a server that keeps its own has none."""
        sitting, terms = self.sitting, self.sitting.recipe.rollout
        if terms.backend == "vllm":
            return ServedSampler(self._server(renew=True), sitting.tokenizer, sampling, terms.context)
        decoder = sitting.policy.make_decoder(sampling.rows, terms.context)
        return Sampler(decoder, sitting.tokenizer, sampling)

    def _server(self, renew: bool) -> PolicyServer:
        """Return the server; new weights were checked after it got them. ``renew``: it is to have the present ones."""
        sitting, terms = self.sitting, self.sitting.recipe.rollout
        if self.server is None:
            if terms.backend == "vllm":
                place = sitting.directory / "served"
                self.server = PolicyServer.start(terms.server, sitting.policy, place, terms.context)
            else:
                self.server = PolicyServer(terms.backend.removeprefix("openai:"))
                self.server.wait()
        elif renew and self.served != sitting.state.step:
            self.server.load(sitting.policy)
        else:
            return self.server
        self.server.check(sitting.policy, terms.sampling)
        self.served = sitting.state.step
        return self.server

    def _rollout(self, sampler: Sampler | ServedSampler, shape: Shape = Shape()) -> Rollout:
        sitting = self.sitting
        answerer = SamplerAnswerer(sampler, sitting.tokenizer)
        terms: dict[str, Any] = {
            "waves": sitting.recipe.rollout.waves,
            "judge_seed": sitting.recipe.judge_seed,
            "version": sitting.state.step,
        }

        def make_episode() -> Episode:
            return Episode(sitting.pool, sitting.recipe.episode)

        return shape.rollout(answerer, make_episode, **terms)

    def _out_of_time(self) -> bool:
        """Return whether the time budget is spent, apart from the final evaluation."""
        sitting, state, budget = self.sitting, self.sitting.state, self.sitting.recipe.budget_minutes
        if budget is None or state.before is None:
            return False
        reserve = 1.2 * state.before["seconds"] + 10
        if sitting.world.agree(sitting.clock.seconds() + reserve < 60 * budget):
            return False
        state.stopped_because = f"the time budget of {budget:g} minutes was spent at step {state.step}"
        return True


@dataclass
class Drawn:
    """The prompts of a step: those that are learnt from, and those that were replaced because they teach nothing."""

    samples: int
    """Jobs a prompt."""
    played: list[Trajectory] = field(default_factory=list)
    dropped: dict[int, Reason] = field(default_factory=dict)
    """Groups to be replaced, and why."""
    prompts: int = 0
    """Prompts drawn."""
    rounds: int = 0
    stats: RolloutStats = field(default_factory=RolloutStats)

    def add(self, played: Sequence[Trajectory], prompts: int, dropped: dict[int, Reason], stats: RolloutStats) -> None:
        """Add the trajectories of a round of ``prompts`` prompts; one without any (too long) is not replaced."""
        self.played += played
        self.dropped |= dropped
        self.prompts += prompts
        self.rounds += 1
        self.stats += stats

    @property
    def kept(self) -> list[Trajectory]:
        """What is learnt from."""
        return [trajectory for trajectory in self.played if trajectory.group not in self.dropped]

    def metrics(self) -> dict[str, Any]:
        """How many prompts and trajectories were drawn and left out, and the mean reward of each kind."""
        there = {(t.group, t.sample if self.samples > 1 else 0) for t in self.played}
        found = {
            "left_out": self.prompts * self.samples - len(there),
            "prompts": self.prompts,
            "prompts_kept": self.prompts - len(self.dropped),
            "refills": self.rounds - 1,
            "dropped": dict(Counter(self.dropped.values())),
        }
        if not self.dropped:
            return found
        gone = [trajectory for trajectory in self.played if trajectory.group in self.dropped]
        kept, lost = ([turn.reward or 0.0 for t in part for turn in t.graded] for part in (self.kept, gone))
        return found | {
            "rejected/uninformative/fraction": len(lost) / max(1, len(kept) + len(lost)),
            "rejected/uninformative/reward_kept": mean(kept),
            "rejected/uninformative/reward_rejected": mean(lost),
        }


def step_tasks(tasks: Sequence[Task], start: int, count: int, seed: int) -> list[Task]:
    """Return the next tasks after the ``start`` that were drawn before: every one once per pass, reshuffled for each
    pass."""
    chosen = []
    for position in range(start, start + count):
        epoch, index = divmod(position, len(tasks))
        order = list(range(len(tasks)))
        random.Random(f"rl-tasks-{seed}-{epoch}").shuffle(order)
        chosen.append(tasks[order[index]])
    return chosen
