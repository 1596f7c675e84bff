"""A device without data: its settings, the places at which a run misses data, and its operators, which have forms
always and values when everything they depend on is known and small.

Recurrent layers have the results of cuDNN's single call, which other devices would decompose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field

from drkernel.config import Config
from drkernel.sim.gpu.heap import Held
from drkernel.sim.gpu.operator_rules import OperatorRule
from drkernel.sim.gpu.shapes import bare, is_missing, mapped, prepare_shapes, tensors_in
from drkernel.sim.wire.commands import UnsupportedOp
from ttir_executor.skeleton.measure import TUNING, SampleSettings

if TYPE_CHECKING:
    from drkernel.sim.gpu.engine import DeviceEngine


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


class FormOperators:
    """Runs operators on the meta tensors of a device without data, and on contents where that is possible."""

    def __init__(self, engine: DeviceEngine):
        prepare_shapes()
        self._engine, self.heap = engine, engine.heap

    @property
    def _settings(self) -> DataFree:
        assert self._engine.data_free is not None
        return self._engine.data_free

    def run(
        self,
        rule: OperatorRule,
        args: list[Any],
        kwargs: dict[str, Any],
        inputs: Sequence[Held],
        written: Sequence[Held],
    ) -> Any:
        """Run the operator on meta tensors, and update the heap's contents. ``inputs`` are all tensors among the
        arguments, ``written`` those that it writes to.

        Raises:
            DependsOnData: the shape of the result depends on values that are missing, or the host reads them.
            UnsupportedOp: the shape of its result cannot be determined.
        """
        known = all(self.heap.has_contents(held) for held in inputs)
        if rule.base in ("_local_scalar_dense", "equal") and not known:
            self.host_reads(f"the value of {rule.label} on a {_form(inputs[0])}")
            return False if rule.base == "equal" else torch.zeros((), dtype=inputs[0].spec.dtype).item()
        small = known and sum(held.nbytes for held in inputs) <= self._limit(inputs)
        try:
            result = self._shapes(rule, args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if not is_missing(error):
                raise
            if not known:
                raise self._refusal(rule, error) from None
            return self._from_values(rule, args, kwargs)
        outputs = tensors_in(result)
        if (
            small
            and not rule.allocates
            and sum(out.untyped_storage().nbytes() for out in outputs) <= self._limit(outputs)
        ):
            self._follow(rule, args, kwargs, outputs)
        else:
            for held in written:
                self.heap.forget(held.base)
        return result

    def _limit(self, tensors: Sequence[Any]) -> int:
        """Return the size, in bytes, up to which values are computed: integers often steer a program, floats hardly
        ever."""
        whole = all(not (t.spec.dtype if isinstance(t, Held) else t.dtype).is_floating_point for t in tensors)
        return self._settings.contents_bytes if whole and tensors else self._settings.operator_bytes

    # ---- shapes

    def _shapes(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if rule.base in RECURRENT and rule.call._overloadname == "input":
            return recurrent_results(rule.base, *args)
        return rule.on_meta(args, kwargs)

    def _refusal(self, rule: OperatorRule, error: Exception) -> Exception:
        if rule.sized_by_data or torch.Tag.data_dependent_output in rule.call.tags or "data-independent" in str(error):
            message = f"the result of {rule.label} depends on data in its shape or value, and this device has no data"
            self._engine.counters.missed(DataDependence("shape", rule.label, message))
            return DependsOnData(message)
        return UnsupportedOp(f"{rule.label} without data: the shape of its result is unknown")

    def download(self, held: Held) -> torch.Tensor:
        """What the host gets of a tensor without contents: zeros, and a dependence is noted."""
        self.host_reads(f"a copy of a {_form(held)} to the host")
        return torch.zeros((), dtype=held.spec.dtype).expand(held.spec.shape)

    def host_reads(self, what: str) -> None:
        """Note, or refuse by raising :class:`DependsOnData`, that the host reads what is not there."""
        message = f"the host reads {what}, which has no contents in a data-free run"
        self._engine.counters.missed(DataDependence("host_read", what, message))
        if self._settings.on_read == "refuse":
            raise DependsOnData(message)

    # ---- values

    def _from_values(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An operator whose shapes depend on values that are there: its results become meta tensors with contents."""

        def without_data(value: torch.Tensor) -> torch.Tensor:
            form = bare(value)
            self.heap.fill(self.heap.register(form), value)
            return form

        return mapped(self._values(rule, args, kwargs), without_data)

    def _follow(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        """Also compute the values, of new storages and of those that the operator writes."""
        fresh = [not self.heap.base_of(out) for out in outputs]
        if not any(fresh) and not rule.written:
            return  # views
        values = tensors_in(self._values(rule, args, kwargs))
        for out, new, value in zip(outputs, fresh, values, strict=True):
            if new and out.numel():
                self.heap.fill(self.heap.register(out), value)

    def _values(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        views, named = mapped(args, self._view), {key: mapped(value, self._view) for key, value in kwargs.items()}
        return self._engine.computed(rule, views, named)

    def _view(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self.heap.contents(self.heap.of(tensor))
        assert found is not None
        return found


def _form(held: Held) -> str:
    return f"{str(held.spec.dtype).removeprefix('torch.')} tensor of shape {list(held.spec.shape)}"
