"""What a run keeps: checkpoints, append-only files, its state, and the sitting in which all stages share them.

A checkpoint is a directory ``checkpoints/NAME`` with ``training.pt`` (weights, optimiser, generators) and
``state.json`` (everything else, with the sizes of the run's append-only files): written to a temporary place, flushed
to disk, then renamed. ``checkpoints/latest`` names the one to resume from. Everything that a run wrote after its last
checkpoint is cut off when it resumes, and is then repeated.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from drkernel.base.files import publish_directory, write_atomic
from drkernel.config import ConfigError
from drkernel.episode.records import Turn
from drkernel.gym.request import Pool
from drkernel.rl.model.distributed import World, full_state, load_full_state
from drkernel.rl.model.policy import Policy
from drkernel.rl.model.tokenizer import ChatTokenizer
from drkernel.rl.run.recipe import Extra, Recipe


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, directory: Path, keep: int = 2):
        self.directory, self.keep = directory, keep
        directory.mkdir(parents=True, exist_ok=True)

    def sweep(self) -> None:
        """Remove the half-written files of a killed run."""
        for leftover in self.directory.glob(".*.tmp"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()

    def save(
        self,
        name: str,
        policy: Policy,
        optimizer: torch.optim.Optimizer | None,
        state: dict[str, Any],
        sampler: dict[str, torch.Tensor] | None = None,
    ) -> Path:
        """Write checkpoint ``name``, make it the latest, and remove older ones beyond ``keep``. ``sampler`` are the
        weights of the batch that is being sampled, where they are older than the policy's.

        Every rank must call this; the first one writes. Raises ``OSError`` (a full disk, for example) and leaves the
        previous checkpoint untouched.
        """
        final = self.directory / name
        weights, moments = full_state(policy.model, optimizer, policy.world)
        if not policy.world.first:
            return final
        temporary = self.directory / f".{name}.tmp"
        if temporary.exists():
            shutil.rmtree(temporary)
        temporary.mkdir()
        try:
            training = {
                "model": trainable_part(policy, weights),
                "optimizer": moments,
                "sampler": sampler,
                "rng": torch.get_rng_state(),
            }
            torch.save(training, temporary / "training.pt")
            (temporary / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")
            if final.exists():  # from before a resume: the same step, to be repeated
                shutil.rmtree(final)
            publish_directory(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        write_atomic(self.directory / "latest", name)
        self._prune(name)
        return final

    def latest(self) -> tuple[Path, dict[str, Any]] | None:
        """Return directory and state of the checkpoint to resume from; None when there is none.

        Raises :class:`ConfigError` when it is named but cannot be read.
        """
        pointer = self.directory / "latest"
        if not pointer.exists():
            return None
        path = self.directory / pointer.read_text(encoding="utf-8").strip()
        try:
            return path, json.loads((path / "state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"checkpoint {path} cannot be read ({error}); write the name of an older one into {pointer}"
            ) from error

    @staticmethod
    def load_sampler(path: Path, policy: Policy) -> dict[str, torch.Tensor] | None:
        """Put the sampler's weights of a checkpoint into the policy, if it has any, and return them."""
        weights: dict[str, torch.Tensor] | None = torch.load(path / "training.pt", weights_only=True)["sampler"]
        if weights is not None:
            load_trainable(policy, weights)
        return weights

    @staticmethod
    def load(path: Path, policy: Policy, optimizer: torch.optim.Optimizer | None) -> None:
        """Restore weights, optimiser and random generators."""
        training = torch.load(path / "training.pt", map_location=policy.device, weights_only=True)
        if policy.world.size > 1:
            load_full_state(policy.model, optimizer, training["model"], training["optimizer"])
        else:
            load_trainable(policy, training["model"])
            if optimizer is not None and training["optimizer"] is not None:
                optimizer.load_state_dict(training["optimizer"])
        torch.set_rng_state(training["rng"].cpu())

    def export(self, name: str, policy: Policy) -> Path:
        """Write model and tokenizer in Hugging Face's layout as ``checkpoints/NAME``, replacing an older one."""
        temporary, final = self.directory / f".{name}.tmp", self.directory / name
        old = self.directory / f".{name}.old.tmp"
        if policy.world.first:
            for leftover in (temporary, old):
                shutil.rmtree(leftover, ignore_errors=True)
            temporary.mkdir()
        policy.save(temporary)
        if not policy.world.first:
            return final
        if final.exists():
            os.rename(final, old)
        publish_directory(temporary, final)
        shutil.rmtree(old, ignore_errors=True)
        return final

    def _prune(self, newest: str) -> None:
        """Remove the oldest resumable checkpoints beyond ``keep``; exports stay."""
        resumable = [path for path in self.directory.iterdir() if (path / "state.json").is_file()]
        resumable.sort(key=lambda path: (path.name == newest, path.stat().st_mtime_ns))
        for path in resumable[: -self.keep]:
            shutil.rmtree(path)


def trainable_part(policy: Policy, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights to save: all of them, or only the adapters when only they train."""
    if policy.config.lora is None:
        return dict(state)
    names = {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}
    return {name: tensor for name, tensor in state.items() if name in names}


def load_trainable(policy: Policy, state: dict[str, torch.Tensor]) -> None:
    """Load the result of :func:`trainable_part`. Raises ``RuntimeError`` when names or shapes differ."""
    missing, unexpected = policy.model.load_state_dict(state, strict=policy.config.lora is None)
    if unexpected:
        raise RuntimeError(f"the checkpoint holds weights that this model has not: {unexpected[:3]}")
    del missing


# ---- Run files: append-only JSONL that can be truncated to a checkpoint, and optional metric sinks


FILES = ("metrics.jsonl", "eval.jsonl", "samples.jsonl")


class RunFiles:
    """The append-only files of a run directory.

    ``sizes`` goes into every checkpoint; opening with those sizes cuts off what a killed run wrote after it.
    A rank that does not ``write`` has no files, and what it appends is left out.
    """

    def __init__(self, directory: Path, sizes: dict[str, int] | None = None, write: bool = True):
        self.directory = directory
        self._files: dict[str, TextIO] = {}
        for name in FILES if write else ():
            path = directory / name
            path.touch()
            wanted = (sizes or {}).get(name, 0)
            if path.stat().st_size < wanted:
                raise ConfigError(f"{path} is shorter than its checkpoint says: it was changed by something else")
            os.truncate(path, wanted)
            self._files[name] = open(path, "a", encoding="utf-8")  # noqa: SIM115 (kept open; closed in close())

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Append one JSON row; numbers that JSON cannot represent become null."""
        if file := self._files.get(name):
            file.write(to_json(row, inf_nan_mode="null").decode() + "\n")
            file.flush()

    def sizes(self) -> dict[str, int]:
        """Flush every file to disk and return their sizes in bytes."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: (self.directory / name).stat().st_size for name in self._files}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class Sinks:
    """Optional copies of the scalar metrics to TensorBoard, trackio or wandb."""

    def __init__(self, names: tuple[Extra, ...], directory: Path, config: dict[str, Any]):
        self._tensorboard: Any = None
        self._runs: list[Any] = []
        for name in names:
            try:
                self._open(name, directory, config)
            except ImportError as error:
                raise ConfigError(f"metrics sink {name!r} is not installed: pip install 'drkernel[{name}]'") from error

    def _open(self, name: Extra, directory: Path, config: dict[str, Any]) -> None:
        if name == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(directory / "tensorboard"))
            return
        import importlib

        module = importlib.import_module(name)
        self._runs.append(module.init(project="drkernel", name=directory.name, config=config))

    def log(self, prefix: str, step: int, row: dict[str, Any]) -> None:
        """Write the numbers of ``row`` under ``prefix``."""
        numbers = {f"{prefix}/{k}": float(v) for k, v in row.items() if isinstance(v, int | float)}
        for name, value in numbers.items() if self._tensorboard is not None else ():
            self._tensorboard.add_scalar(name, value, step)
        for run in self._runs:
            run.log({**numbers, f"{prefix}/step": step})

    def close(self) -> None:
        """Flush and close."""
        if self._tensorboard is not None:
            self._tensorboard.close()
        for run in self._runs:
            run.finish()


# ---- The state that a run keeps between two sittings: the record that every checkpoint holds


Stage = Literal["copying", "sft", "rl"]
"""Stages that train, in order; making data comes before them and has files of its own."""


class BestStep(BaseModel):
    """The evaluation with the greatest held-out reward so far."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    step: int
    """RL step after which the evaluation was made."""
    reward: float
    """Mean reward of the held-out tasks."""
    fast_12: float | None = Field(alias="fast_1.2")
    """Share of held-out tasks solved 1.2 times faster than the reference."""


def _no_steps() -> dict[Stage, int]:
    return {"copying": 0, "sft": 0, "rl": 0}


class RunState(BaseModel):
    """Everything about a run except its weights. Assigning a value of another type is an error."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    stage: Stage = "copying"
    """The current stage."""
    step: int = Field(0, ge=0)
    """Finished steps of that stage."""
    seconds: float = Field(0.0, ge=0)
    """Wall seconds of all sittings up to the checkpoint."""
    tokens: int = Field(0, ge=0)
    """Tokens sampled."""
    evaluations: int = Field(0, ge=0)
    """Answers graded."""
    prompts: int = Field(0, ge=0)
    """Prompts of RL drawn so far, those that were replaced included."""
    steps: dict[Stage, int] = Field(default_factory=_no_steps)
    """Finished steps of each stage."""
    before: dict[str, Any] | None = None
    """The held-out evaluation before RL, as logged."""
    after: dict[str, Any] | None = None
    """The held-out evaluation after RL, as logged."""
    best: BestStep | None = None
    """The best evaluation, whose weights are exported as ``best``."""
    fastest: dict[str, float] = Field(default_factory=dict)
    """The best speedup of RL so far, by task."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """Bytes of the run's append-only files at the checkpoint."""
    stopped_because: str | None = None
    """Why RL ended before its last step."""

    def begin(self, stage: Stage) -> None:
        """Start ``stage`` at its first step."""
        self.stage, self.step = stage, 0

    def advance(self, done: int) -> None:
        """Record that ``done`` steps of the current stage are finished."""
        self.step = done
        self.steps[self.stage] = done

    def learn_speeds(self, turns: Iterable[Turn]) -> None:
        """Keep the best speedup of each task."""
        for turn in turns:
            if turn.speedup is not None:
                task = turn.verdict.task_id
                self.fastest[task] = max(turn.speedup, self.fastest.get(task, 0.0))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able dict that :meth:`read` accepts."""
        return self.model_dump(by_alias=True)

    @staticmethod
    def read(data: dict[str, Any], where: object) -> RunState:
        """Read the record of a checkpoint. Raises :class:`ConfigError` naming ``where`` for another version."""
        try:
            return RunState.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            raise ConfigError(
                f"checkpoint {where} is not of this version of drkernel ({key}: {first['msg']}); start the run anew "
                "under another name (name=...)"
            ) from None


# ---- One sitting of a run, from start or resume to its end: the state that all stages share


Progress = Callable[[str, dict[str, Any]], None]
"""Told what happens: ("stage" | "coldstart" | "sft" | "turn" | "rl" | "eval" | "done", facts)"""


def untold(kind: str, row: dict[str, Any]) -> None:
    """The :data:`Progress` of nobody."""


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
    files: RunFiles
    sinks: Sinks
    clock: RunClock
    progress: Progress
    stop_requested: Callable[[], bool]
    """Called after every step: whether to end with a checkpoint."""
    saved_at: float = field(default_factory=time.perf_counter)
    """When the last checkpoint was written."""
    sampler: dict[str, torch.Tensor] | None = None
    """The weights of the batch under way, where they are older than the policy's."""

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
        self.checkpoints.save(name, self.policy, optimizer, self.state.to_json(), self.sampler)
        self.saved_at = time.perf_counter()

    def checkpoint_if_due(self, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint when it is due, or when the run is to stop (then raise :class:`Stopped`)."""
        late = time.perf_counter() - self.saved_at >= self.recipe.checkpoint.seconds
        late, stop = self.world.agree((late, self.stop_requested()))
        if late or stop:
            self.checkpoint(optimizer)
        if stop:
            raise Stopped(str(self.directory))
