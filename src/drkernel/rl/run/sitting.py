"""One sitting of a run, from start or resume to its end: the state that all stages share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from drkernel.gym.request import Pool
from drkernel.rl.model.distributed import World
from drkernel.rl.model.policy import Policy
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.checkpoint import Checkpoints
from drkernel.rl.run.metric_sinks import NoFiles, RunFiles, Sinks
from drkernel.rl.run.recipe import Recipe
from drkernel.rl.run.state import RunState

Progress = Callable[[str, dict[str, Any]], None]
"""Told what happens: ("stage" | "coldstart" | "sft" | "turn" | "rl" | "eval" | "done", facts)"""


class Stopped(Exception):
    """The run was asked to stop; its checkpoint has been written."""


@dataclass
class RunClock:
    """Wall time of a run over all its sittings."""

    before: float = 0.0
    """Seconds of earlier sittings."""
    started: float = field(default_factory=time.perf_counter)
    """When this sitting began."""

    def seconds(self) -> float:
        """Wall seconds of the whole run so far."""
        return self.before + time.perf_counter() - self.started


@dataclass
class Sitting:
    """The objects that stages work with: policy, judges, run files, and the stop request."""

    recipe: Recipe
    pool: Pool
    world: World
    directory: Path
    policy: Policy
    checkpoints: Checkpoints
    state: RunState
    files: RunFiles | NoFiles
    sinks: Sinks
    clock: RunClock
    progress: Progress
    stop_requested: Callable[[], bool]
    """Called after every step: whether to end with a checkpoint."""
    saved_at: float = field(default_factory=time.perf_counter)
    """When the last checkpoint was written."""

    @property
    def tokenizer(self) -> ChatTokenizer:
        """The policy's tokenizer."""
        return self.policy.tokenizer

    def log(self, stage: str, row: dict[str, Any]) -> None:
        """Write a row of metrics to the run's file and sinks, and report it."""
        self.files.append("metrics.jsonl", row)
        self.sinks.log(stage, row["step"], row)
        self.progress(stage, {**row, "elapsed": self.clock.seconds()})

    def checkpoint(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Write a checkpoint of the current state."""
        self.state.seconds = self.clock.seconds()
        self.state.sizes = self.files.sizes()
        name = f"{self.state.stage}-{self.state.step}"
        self.checkpoints.save(name, self.policy, optimizer, self.state.to_json())
        self.saved_at = time.perf_counter()

    def checkpoint_if_due(self, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint when it is due, or when the run is to stop (then raise :class:`Stopped`)."""
        # between refreshes the sampler holds older weights, which a checkpoint does not keep
        settled = self.state.stage != "rl" or self.state.step % self.recipe.rollout.refresh_every == 0
        late = time.perf_counter() - self.saved_at >= self.recipe.checkpoint.seconds
        late, stop = self.world.agree((late, self.stop_requested()))
        if settled and (late or stop):
            self.checkpoint(optimizer)
        if settled and stop:
            raise Stopped(str(self.directory))
