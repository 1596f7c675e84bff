"""Settings of a data-free device, and the records of a run on it.

Recurrent layers without data: the results of cuDNN's single call, which other devices would decompose.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from pydantic import Field

from drkernel.config import Config
from ttir_executor.skeleton.measure import TUNING, SampleSettings

MAX_CALLS = 20_000
"""operators of one run that are remembered with their shapes"""
MAX_DEPENDENCES = 256
"""places of one run at which data is missed that are remembered"""


class DataFree(Config):
    """Settings of a device without data."""

    contents_bytes: int = Field(16 << 20, ge=0, description="largest storage that keeps what the host puts into it")
    operator_bytes: int = Field(
        1 << 20,
        ge=0,
        description="operators on contents of up to so many bytes are computed, so that results have them",
    )
    on_read: Literal["note", "refuse"] = Field(
        "note", description="the host reads what is not there: note it and give zeros, or raise DependsOnData"
    )
    sample: SampleSettings = Field(default_factory=SampleSettings, description="how much of a launch runs")
    tuning: SampleSettings | None = Field(None, description="and of a tuner's trial; None: as much as of any launch")

    @classmethod
    def of_script(cls) -> DataFree:
        """The settings of a script that a person runs: what a tuner only tries is counted roughly."""
        return cls(tuning=TUNING)


class DependsOnData(RuntimeError):
    """The host needs data that this device does not have. The message says what and where."""


DependenceKind = Literal["host_read", "shape", "steering"]


@dataclass(frozen=True)
class DataDependence:
    """A place at which a run depends on missing data. Its times may be those of a different run."""

    kind: DependenceKind
    """``host_read``: the host reads or copies a value; ``shape``: of an operator's result; ``steering``: where a kernel
    goes"""
    where: str
    """the operator, or the kernel with the source line of its load"""
    message: str
    """a sentence"""
    storage: int = 0
    """address of what was missing, where known"""


@dataclass(frozen=True)
class OperatorCall:
    """An ATen operator with device work, as it was called."""

    name: str
    """``"add.Tensor"``"""
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    """(dtype, shape) of its tensors"""
    outputs: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class SampledUse:
    """A launch's use of one storage, in bytes (whole sectors of 32, no more than the storage has)."""

    storage: int
    """its address"""
    nbytes: int
    """its size"""
    read: float
    """distinct bytes"""
    written: float
    written_low: float

    @property
    def covered(self) -> float:
        """Share of the storage that is certainly written (for an estimate, by its lower end)."""
        return min(1.0, self.written_low / self.nbytes) if self.nbytes else 1.0


@dataclass(frozen=True)
class LaunchSample:
    """The record of one data-free launch besides its modelled time. Totals are for the whole grid."""

    programs: int
    """of the grid"""
    looked_at: int
    """programs whose reads were examined"""
    error: float
    """estimated relative error of the modelled time by sampling; 0 where all was counted"""
    load_bytes: float
    """asked of memory, in whole sectors"""
    store_bytes: float
    operations: dict[str, float]
    """by unit"""
    atomics: int
    uses: tuple[SampledUse, ...]
    """storages that the launch touches"""
    rough: bool = False
    """a tuner's trial that was counted only as well as its choice needs"""


@dataclass
class DataFreeRecord:
    """The record of the commands since the last reset, besides counters and times."""

    calls: list[OperatorCall] = field(default_factory=list)
    """operators with device work, in order; the first :data:`MAX_CALLS`"""
    samples: list[LaunchSample] = field(default_factory=list)
    """one for each launch, in order"""
    dependences: list[DataDependence] = field(default_factory=list)
    """without repeats; the first :data:`MAX_DEPENDENCES`"""
    error: float = 0.0
    """estimated relative error of all modelled device time by sampling"""

    def missed(self, dependence: DataDependence) -> None:
        """Note a dependence on data."""
        if dependence not in self.dependences and len(self.dependences) < MAX_DEPENDENCES:
            self.dependences.append(dependence)


def record_from(data: dict[str, Any] | None) -> DataFreeRecord | None:
    """A record as it crossed, as objects."""
    if data is None:
        return None

    def forms(items: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple((dtype, tuple(shape)) for dtype, shape in items)

    return DataFreeRecord(
        calls=[OperatorCall(c["name"], forms(c["inputs"]), forms(c["outputs"])) for c in data["calls"]],
        samples=[LaunchSample(**{**s, "uses": tuple(SampledUse(**use) for use in s["uses"])}) for s in data["samples"]],
        dependences=[DataDependence(**d) for d in data["dependences"]],
        error=data["error"],
    )


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def recurrent_results(
    kind: str, x: torch.Tensor, hidden: Any, weights: Any, biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Empty results of a recurrent layer, whose own decomposition takes seconds even on meta tensors."""
    state = hidden[0] if isinstance(hidden, (tuple, list)) else hidden
    out = x.new_empty(*x.shape[:-1], (2 if bidirectional else 1) * state.shape[-1])
    return (out, *[x.new_empty(state.shape) for _ in range(2 if kind == "lstm" else 1)])
