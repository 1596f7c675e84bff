"""Settings of a device without data, and the places at which a run on it misses data.

Recurrent layers without data: the results of cuDNN's single call, which other devices would decompose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field

from drkernel.config import Config
from ttir_executor.skeleton.measure import TUNING, SampleSettings


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


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def recurrent_results(
    kind: str, x: torch.Tensor, hidden: Any, weights: Any, biases: bool, layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Empty results of a recurrent layer, whose own decomposition takes seconds even on meta tensors."""
    state = hidden[0] if isinstance(hidden, (tuple, list)) else hidden
    out = x.new_empty(*x.shape[:-1], (2 if bidirectional else 1) * state.shape[-1])
    return (out, *[x.new_empty(state.shape) for _ in range(2 if kind == "lstm" else 1)])
