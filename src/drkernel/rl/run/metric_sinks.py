"""Run files: append-only JSONL that can be truncated to a checkpoint, and optional metric sinks."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Literal, TextIO

from drkernel.config import ConfigError

Extra = Literal["tensorboard", "trackio", "wandb"]
FILES = ("metrics.jsonl", "eval.jsonl", "samples.jsonl")


class RunFiles:
    """The append-only files of a run directory.

    ``sizes`` goes into every checkpoint; opening with those sizes cuts off what a killed run wrote after it.
    """

    def __init__(self, directory: Path, sizes: dict[str, int] | None = None):
        self.directory = directory
        self._files: dict[str, TextIO] = {}
        for name in FILES:
            path = directory / name
            path.touch()
            wanted = (sizes or {}).get(name, 0)
            if path.stat().st_size < wanted:
                raise ConfigError(f"{path} is shorter than its checkpoint says: it was changed by something else")
            os.truncate(path, wanted)
            self._files[name] = open(path, "a", encoding="utf-8")  # noqa: SIM115 (kept open; closed in close())

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Append one JSON row; numbers that JSON cannot represent become null."""
        file = self._files[name]
        file.write(json.dumps(finite(row), ensure_ascii=False) + "\n")
        file.flush()

    def sizes(self) -> dict[str, int]:
        """Flush every file to disk and return their sizes in bytes."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: (self.directory / name).stat().st_size for name in FILES}

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class NoFiles:
    """The run files of a rank that writes none; every method does nothing."""

    def append(self, name: str, row: dict[str, Any]) -> None:
        """Do nothing."""

    def sizes(self) -> dict[str, int]:
        """Do nothing."""
        return {}

    def close(self) -> None:
        """Do nothing."""


def finite(value: Any) -> Any:
    """Return ``value`` with NaN and infinities replaced by None, recursively through dicts and lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


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
