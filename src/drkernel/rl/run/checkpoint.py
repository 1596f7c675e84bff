"""Checkpoints that survive a kill: written to a temporary place, flushed to disk, then renamed.

A checkpoint is a directory ``checkpoints/NAME`` with ``training.pt`` (weights, optimiser, generators) and
``state.json`` (everything else, with the sizes of the run's append-only files). ``checkpoints/latest`` names the one to
resume from. Everything that a run wrote after its last checkpoint is cut off when it resumes, and is then repeated.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from drkernel.base.files import publish_directory, write_atomic
from drkernel.config import ConfigError
from drkernel.rl.model.distributed import full_state, load_full_state
from drkernel.rl.model.policy import Policy


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, directory: Path, keep: int = 2):
        self.directory, self.keep = directory, keep
        directory.mkdir(parents=True, exist_ok=True)

    def sweep(self) -> None:
        """Remove the half-written files of a killed run."""
        for leftover in self.directory.glob(".*.tmp"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()

    def save(self, name: str, policy: Policy, optimizer: torch.optim.Optimizer | None, state: dict[str, Any]) -> Path:
        """Write checkpoint ``name``, make it the latest, and remove older ones beyond ``keep``.

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
