"""The stage of reinforcement learning: sample and grade, learn, log, with evaluations of held-out tasks before and
after.

With ``rollout.staleness`` 1 the batch of the next step is sampled and graded beside the learner, which works in a
thread. Which weights sample a batch is a function of its step: those after ``step - 1`` updates, whatever takes longer.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from drkernel.config import ConfigError
from drkernel.episode.episode import Episode
from drkernel.episode.metrics import (
    TurnOutcome,
    best_turn,
    fast_name,
    figures,
    is_fast,
    last_turn,
    mean,
    over_tasks,
    per_task,
    sizes_of,
    turn_figures,
)
from drkernel.episode.records import Trajectory, Turn
from drkernel.rl.maths.rejection import Reason
from drkernel.rl.model.answerer import PolicyServer, ServedSampler
from drkernel.rl.model.policy import Policy
from drkernel.rl.model.sampler import Decoder, Sampler, SamplerAnswerer, SamplingConfig
from drkernel.rl.run.learner import Learner, LearnerConfig, Rows, uninformative
from drkernel.rl.run.optimizers import make_optimizer
from drkernel.rl.run.rollout import Rollout, RolloutJob, RolloutStats, plan_jobs
from drkernel.rl.run.sitting import BestStep, Checkpoints, Sitting, trainable_part
from drkernel.task import Task

T = TypeVar("T")


class RlStage:
    """Reinforcement learning, between two evaluations of the same tasks with the same seeds."""

    def __init__(self, sitting: Sitting):
        self.sitting = sitting
        self.heldout, self.prompts = sitting.recipe.heldout(), sitting.recipe.episode.texts()
        self.decoder: Decoder | None = None
        self.server: PolicyServer | None = None
        self.version = -1
        """Updates that the weights of the training sampler have seen; -1: it has none yet."""
        self.ahead: asyncio.Task[Drawn] | None = None
        """The batch of the next step, where it is sampled beside the learner."""

    async def run(self, resume: Path | None) -> None:
        """Run the remaining steps, continuing from the checkpoint ``resume`` if given."""
        if self.sitting.recipe.rollout.staleness and self.sitting.world.size > 1:
            raise ConfigError("rollout.staleness 1: sampling beside the learner is for one process, not for torchrun")
        try:
            await self._run(resume)
        finally:
            await self._drop_ahead()
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
        await self._drop_ahead()
        state.after = state.before
        if state.step and terms.final_tasks:
            state.after = await self.evaluate("after", terms.final_tasks, terms.final_samples)
        sitting.checkpoints.export("final", sitting.policy)

    async def step(self, learner: Learner, tasks: Sequence[Task]) -> None:
        """Run the next step of RL: sample and grade, learn, log."""
        sitting, recipe, state = self.sitting, self.sitting.recipe, self.sitting.state
        assert recipe.rl is not None
        started, number = time.perf_counter(), state.step
        drawn = await (self.ahead or self._draw(tasks, number, state.prompts, self._training_sampler(number)))
        sampled = time.perf_counter()
        state.prompts += drawn.prompts
        state.tokens += drawn.stats.tokens
        state.evaluations += drawn.stats.graded
        state.learn_speeds(turn for trajectory in drawn.played for turn in trajectory.turns)
        if recipe.rollout.staleness and number + 1 < recipe.rl.steps:
            sampler = self._training_sampler(number + 1)
            weights = trainable_part(sitting.policy, sitting.policy.model.state_dict())
            sitting.sampler = {name: value.to("cpu", copy=True) for name, value in weights.items()}
            self.ahead = asyncio.create_task(self._draw(tasks, number + 1, state.prompts, sampler))
            learned = await asyncio.to_thread(learner.learn, drawn.kept, number, recipe.seed * 1_000_003 + number)
        else:
            self.ahead = sitting.sampler = None
            learned = learner.learn(drawn.kept, number, recipe.seed * 1_000_003 + number)
        row = {"stage": "rl", "step": number + 1, **rl_metrics(drawn.played, recipe.episode.turns), **learned}
        row |= {
            **drawn.metrics(),
            "lag": number - min((trajectory.version for trajectory in drawn.played), default=number),
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
        state.advance(number + 1)

    async def _drop_ahead(self) -> None:
        """End the batch under way, if there is one: no step will learn from it."""
        if self.ahead is not None:
            self.ahead.cancel()
            await asyncio.wait([self.ahead])
            self.ahead = None

    async def _draw(self, tasks: Sequence[Task], number: int, start: int, sampler: Sampler | ServedSampler) -> Drawn:
        """Play the prompts of step ``number``, those after the first ``start``, then others in place of those that
        teach nothing, for ``refill`` rounds at most."""
        sitting, recipe = self.sitting, self.sitting.recipe
        assert recipe.rl is not None
        terms, turns = recipe.rollout, recipe.episode.turns
        rollout = self._rollout(sampler, self.version)
        drawn = Drawn(terms.samples)
        graded = planned = 0

        def on_graded(turn: Turn) -> None:
            nonlocal graded
            graded += 1
            sitting.progress("turn", {"step": number + 1, "graded": graded, "of": planned})

        while (missing := terms.tasks - drawn.prompts + len(drawn.dropped)) and drawn.rounds <= terms.refill:
            chosen = step_tasks(tasks, start + drawn.prompts, missing, recipe.seed)
            seed, known = recipe.seed * 100_003 + number, sitting.state.fastest
            jobs = plan_jobs(chosen, terms.samples, seed, drawn.prompts, known)
            planned += missing * terms.samples * turns
            played = await self._play(rollout, jobs, on_graded)
            dropped = uninformative(Rows.of(played).batch(), recipe.rl.learner) if terms.refill else {}
            drawn.add(played, missing, dropped, rollout.stats)
        return drawn

    async def evaluate(self, label: str, tasks: int, samples: int) -> dict[str, Any]:
        """Play held-out tasks with the current weights; log the metrics and return the logged row."""
        if self.ahead is not None:
            await asyncio.wait([self.ahead])  # one sampler at a time
        started = time.perf_counter()
        sitting, recipe, terms = self.sitting, self.sitting.recipe, self.sitting.recipe.evaluation
        step = sitting.state.step
        stage = "rl" if step else "sft" if recipe.sft is not None else "base"
        sitting.progress("stage", {"stage": "evaluation", "label": label})
        changes = {"temperature": terms.temperature, "top_p": terms.top_p or recipe.rollout.sampling.top_p}
        sampling = recipe.rollout.sampling.model_copy(update=changes)
        rollout = self._rollout(self._evaluation_sampler(sampling), step)
        trajectories = await self._play(rollout, plan_jobs(self.heldout[:tasks], samples, terms.seed))
        sitting.state.tokens += rollout.stats.tokens
        sitting.state.evaluations += rollout.stats.graded
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
            sitting.sampler = Checkpoints.load_sampler(resume, sitting.policy)
            if sitting.sampler is not None:  # the next batch was begun before the last update
                self._training_sampler(sitting.state.step)
            Checkpoints.load(resume, sitting.policy, optimizer)
        reference = self._load_reference() if config.kl_coefficient else None
        temperature = recipe.rollout.sampling.temperature or 1.0
        terms: dict[str, Any] = {"reference": reference, "planned": recipe.planned_turns}
        return Learner(sitting.policy, optimizer, config, temperature=temperature, **terms)

    def _load_reference(self) -> Policy:
        """Load the policy that RL started from, frozen."""
        recipe = self.sitting.recipe
        start = self.sitting.directory / "checkpoints" / "sft" if recipe.sft is not None else None
        reference = Policy.load(recipe.policy, start, self.sitting.world)
        reference.model.requires_grad_(False)
        reference.shard(self.sitting.world)
        return reference

    async def _play(
        self, rollout: Rollout, jobs: Sequence[RolloutJob], on_graded: Callable[[Turn], None] | None = None
    ) -> list[Trajectory]:
        """Play this rank's share of the jobs (whole groups); return the trajectories of all ranks."""
        world, terms = self.sitting.world, self.sitting.recipe.rollout
        mine = [job for job in jobs if job.group % world.size == world.rank]
        threads = torch.get_num_threads()
        torch.set_num_threads(terms.threads or threads)
        try:
            played = world.gather(await rollout.play(mine, on_graded))
        finally:
            if not terms.staleness:  # a learner beside it works with as many
                torch.set_num_threads(threads)
        stats = rollout.stats
        stats.tokens, stats.graded = int(world.sum(stats.tokens)), int(world.sum(stats.graded))
        return sorted(played, key=lambda trajectory: (trajectory.group, trajectory.sample))

    def _keep_best(self, row: dict[str, Any]) -> None:
        """Export the weights when their held-out reward is the best yet."""
        state = self.sitting.state
        if row["reward"] is not None and (state.best is None or row["reward"] > state.best.reward):
            state.best = BestStep(step=row["step"], reward=row["reward"], fast_12=row["fast_1.2"])
            self.sitting.checkpoints.export("best", self.sitting.policy)

    def _training_sampler(self, number: int) -> Sampler | ServedSampler:
        """Return the sampler of a step's batch. It gets the policy's present weights where its own are older than
        ``staleness`` says."""
        sitting, terms = self.sitting, self.sitting.recipe.rollout
        wanted = max(0, number - terms.staleness)
        renew = self.version < wanted
        self.version = max(self.version, wanted)
        if terms.backend != "local":
            return ServedSampler(self._server(renew), sitting.tokenizer, terms.sampling, terms.context)
        if self.decoder is None:
            self.decoder = sitting.policy.make_decoder(terms.sampling.rows, terms.context, terms.dtype)
        elif renew:
            self.decoder.refresh(sitting.policy.model)
        return Sampler(self.decoder, sitting.tokenizer, terms.sampling)

    def _evaluation_sampler(self, sampling: SamplingConfig) -> Sampler | ServedSampler:
        """Return a sampler with the present weights."""
        sitting, terms = self.sitting, self.sitting.recipe.rollout
        if terms.backend == "vllm":
            server = self._server(renew=self.version != sitting.state.step)
            self.version = sitting.state.step
            return ServedSampler(server, sitting.tokenizer, sampling, terms.context)
        decoder = sitting.policy.make_decoder(sampling.rows, terms.context)
        return Sampler(decoder, sitting.tokenizer, sampling)

    def _server(self, renew: bool) -> PolicyServer:
        """Return the server; new weights were checked after it got them. ``renew``: it is to get the present ones."""
        sitting, terms = self.sitting, self.sitting.recipe.rollout
        if self.server is None:
            place = sitting.directory / "served"
            self.server = PolicyServer.start(terms.server, sitting.policy, place, terms.context)
        elif renew:
            self.server.load(sitting.policy)
        else:
            return self.server
        self.server.check(sitting.policy, terms.sampling)
        return self.server

    def _rollout(self, sampler: Sampler | ServedSampler, version: int) -> Rollout:
        sitting = self.sitting
        return Rollout(
            SamplerAnswerer(sampler, sitting.tokenizer),
            lambda: Episode(sitting.pool, sitting.recipe.episode, self.prompts),
            waves=sitting.recipe.rollout.waves,
            judge_seed=sitting.recipe.judge_seed,
            version=version,
        )

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


# ---- Figures of evaluations and of steps, and trajectories for people to read


def evaluation_metrics(trajectories: Sequence[Trajectory], turns: int) -> dict[str, Any]:
    """Compute metrics of evaluated trajectories with :mod:`drkernel.episode.metrics`.

    The row's own figures are those of the *last* graded turn of each trajectory. ``per_turn[k]`` holds those after turn
    k + 1 (a trajectory that ended keeps its last turn), ``best`` those of the best turn so far (best-of-history), and
    ``answers[k]`` those of the answers given at turn k + 1 alone, where earlier ones had not reached the target. Turns
    that failed for infrastructure reasons are left out and counted. Intervals are 95% bootstrap intervals over tasks.
    """
    samples: dict[str, list[list[TurnOutcome]]] = {}
    by_family: dict[str, dict[str, list[list[TurnOutcome]]]] = {}
    for trajectory in trajectories:
        play = [turn.outcome for turn in trajectory.graded]
        if play:
            samples.setdefault(trajectory.task_id, []).append(play)
            if trajectory.family:
                by_family.setdefault(trajectory.family, {}).setdefault(trajectory.task_id, []).append(play)
    plays = [play for found in samples.values() for play in found]
    result: dict[str, Any] = figures(samples, last_turn)
    result["reward"] = mean(per_task(samples, lambda play: last_turn(play).reward).values())
    for p in (0.0, 1.0, 1.2):
        result[f"{fast_name(p)}_interval"] = _interval(samples, p)
    result["per_turn"] = [figures(samples, last_turn, k + 1) for k in range(turns)]
    result["best"] = [figures(samples, best_turn, k + 1) for k in range(turns)]
    given = [[play[k] for play in plays if len(play) > k] for k in range(turns)]
    result["answers"] = [{"answers": len(rows), **turn_figures(rows)} for rows in given]
    result["families"] = {name: figures(by_family[name], last_turn) for name in sorted(by_family)}
    result["status"] = dict(Counter(last_turn(play).status for play in plays))
    sizes = sizes_of(turn.verdict for trajectory in trajectories for turn in trajectory.graded)
    result["sizes"] = {name: value for name, value in sizes.items() if name != "by_task"}
    infra = sum(not turn.valid for t in trajectories for turn in t.turns)
    return result | {"trajectories": len(plays), "tasks": len(samples), "infra_errors": infra}


def _interval(samples: Mapping[str, Sequence[Sequence[TurnOutcome]]], threshold: float) -> list[float]:
    """Return the ends of the interval of fast_p at the last turn; empty when there is no trajectory."""
    if not samples:
        return []
    found = over_tasks(samples, lambda play: float(is_fast(last_turn(play), threshold)))
    return [found.low, found.high]


def rl_metrics(trajectories: Sequence[Trajectory], turns: int) -> dict[str, Any]:
    """Compute metrics of a step's sampled trajectories: rewards and fast_p of training tasks, statuses, lengths."""
    every = [turn for trajectory in trajectories for turn in trajectory.turns]
    graded = [turn for turn in every if turn.valid]
    finals = [t.graded[-1] for t in trajectories if t.graded]
    by_turn = [[turn for turn in graded if turn.number == k + 1] for k in range(turns)]
    return {
        "reward": mean([turn.reward or 0.0 for turn in graded]),
        "reward_turns": [mean([turn.reward or 0.0 for turn in rows]) for rows in by_turn],
        **turn_figures(turn.outcome for turn in finals),
        "per_turn": [turn_figures(turn.outcome for turn in rows) for rows in by_turn],
        "status": dict(Counter(turn.status for turn in every)),
        "stop": dict(Counter(turn.sampled.stop for turn in every if turn.sampled is not None)),
        "infra_errors": len(every) - len(graded),
        "response_tokens": mean([float(turn.tokens) for turn in every]),
        "trajectories": len(trajectories),
    }


def sample_row(stage: str, step: int, split: str, trajectory: Trajectory) -> dict[str, Any]:
    """Return a trajectory for people to read: texts and grades, no ids."""
    turns = [
        {
            "id": turn.id,
            "parent": turn.parent,
            "shown": list(turn.shown),
            "prompt": trajectory.context(turn)[-1].content,
            "text": turn.reply.text,
            "status": turn.status,
            "reward": turn.reward,
            "parts": turn.parts,
            "speedup": turn.speedup,
            "coverage": turn.coverage,
            "checked_at": turn.checked_at,
            "timed_at": turn.timed_at,
            "untimed": turn.verdict.untimed,
            "findings": list(turn.findings),
            "error": turn.error,
            "tokens": turn.tokens,
            "stop": None if turn.sampled is None else turn.sampled.stop,
        }
        for turn in trajectory.turns
    ]
    return {
        "stage": stage,
        "step": step,
        "split": split,
        "task_id": trajectory.task_id,
        "family": trajectory.family,
        "group": trajectory.group,
        "sample": trajectory.sample,
        "turns": turns,
    }


def spread_out(items: Sequence[T], count: int) -> list[T]:
    """Return at most ``count`` items at equal distances."""
    if count >= len(items):
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]
