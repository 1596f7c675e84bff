"""ATen operators without data: shapes always, values when everything they depend on is known and small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from drkernel.sim.gpu.argument_checks import check_arguments
from drkernel.sim.gpu.datafree.addresses import AddressHeap
from drkernel.sim.gpu.datafree.records import DataFree, DependsOnData
from drkernel.sim.gpu.datafree.recurrent import RECURRENT, recurrent_results
from drkernel.sim.gpu.heap import Held
from drkernel.sim.gpu.index_checks import check_indices
from drkernel.sim.gpu.operator_rules import OperatorRule
from drkernel.sim.gpu.random_numbers import DeviceRandom
from drkernel.sim.gpu.shapes import on_meta
from drkernel.sim.wire.commands import UnsupportedOp


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of an operator's result."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [leaf for item in value for leaf in tensors_in(item)] if isinstance(value, (list, tuple)) else []


class ShapeOperators:
    """Runs operators on the meta tensors of a heap, and on contents where that is possible."""

    def __init__(self, heap: AddressHeap, random: DeviceRandom, settings: DataFree):
        self.heap, self.random, self.settings = heap, random, settings

    def run(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], inputs: Sequence[Held]) -> Any:
        """Run the operator on meta tensors, and update the heap's contents.

        ``args`` and ``kwargs`` hold :class:`Held` in place of tensors; ``inputs`` are all of those.

        Raises:
            DependsOnData: the shape of the result depends on values that are missing.
            UnsupportedOp: the shape of its result cannot be determined.
        """
        known = all(self.heap.has_contents(held) for held in inputs)
        small = known and sum(held.nbytes for held in inputs) <= self._limit(inputs)
        try:
            result = self._shapes(rule, args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            if not _is_missing(error):
                raise
            if not known:
                self._refuse(rule, error)
            return self._from_values(rule, args, kwargs)
        outputs = tensors_in(result)
        if (
            small
            and not rule.allocates
            and sum(out.untyped_storage().nbytes() for out in outputs) <= self._limit(outputs)
        ):
            self._follow(rule, args, kwargs, outputs)
        else:
            self._lose(rule, args, kwargs)
        return result

    def _limit(self, tensors: Sequence[Any]) -> int:
        """Return the size, in bytes, up to which values are computed: integers often steer a program, floats hardly
        ever."""
        whole = all(not (t.spec.dtype if isinstance(t, Held) else t.dtype).is_floating_point for t in tensors)
        return self.settings.contents_bytes if whole and tensors else self.settings.operator_bytes

    # ---- shapes

    def _shapes(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        metas, named = _mapped(args, _meta), {key: _mapped(value, _meta) for key, value in kwargs.items()}
        check_arguments(rule.base, rule.parameters, metas, named)
        named.pop("generator", None)
        if rule.base in RECURRENT and rule.call._overloadname == "input":
            return recurrent_results(rule.base, *metas)
        if rule.takes_device:
            named["device"] = torch.device("meta")
        return on_meta(rule.call, metas, named)

    def _refuse(self, rule: OperatorRule, error: Exception) -> None:
        if rule.sized_by_data or torch.Tag.data_dependent_output in rule.call.tags or "data-independent" in str(error):
            raise DependsOnData(
                f"the result of {rule.label} depends on data in its shape or value, and this device has no data"
            ) from None
        raise UnsupportedOp(f"{rule.label} without data: the shape of its result is unknown") from None

    # ---- values

    def _from_values(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An operator whose shapes depend on values that are there: its results become meta tensors with contents."""
        result = self._values(rule, args, kwargs)

        def meta(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                bare = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
                self.heap.fill(self.heap.register(bare), value)
                return bare
            return type(value)(meta(item) for item in value) if isinstance(value, (list, tuple)) else value

        return meta(result)

    def _follow(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any], outputs: list[torch.Tensor]) -> None:
        """Also compute the values, of new storages and of those that the operator writes."""
        fresh = [self.heap.is_new(out) for out in outputs]
        if not any(fresh) and not rule.written:
            return  # views
        values = tensors_in(self._values(rule, args, kwargs))
        for out, new, value in zip(outputs, fresh, values, strict=True):
            if new and out.numel():
                self.heap.fill(self.heap.register(out), value)

    def _values(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> Any:
        views = _mapped(args, self.heap.view)
        named = {key: _mapped(value, self.heap.view) for key, value in kwargs.items()}
        check_indices(rule.base, rule.label, views, named)
        return self.random.run(rule, views, named) if rule.draws else rule.call(*views, **named)

    def _lose(self, rule: OperatorRule, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Drop the contents of what the operator writes."""
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(kwargs)
        for key in rule.written:
            for held in _held_in(given.get(key)):
                self.heap.forget(held.base)


def _is_missing(error: Exception) -> bool:
    text = str(error)
    return isinstance(error, NotImplementedError) or "meta tensor" in text.lower() or "data-dependent" in text.lower()


def _meta(held: Held) -> torch.Tensor:
    return held.tensor


def _mapped(value: Any, of: Any) -> Any:
    if isinstance(value, Held):
        return of(value)
    return [_mapped(item, of) for item in value] if isinstance(value, (list, tuple)) else value


def _held_in(value: Any) -> list[Held]:
    if isinstance(value, Held):
        return [value]
    return [held for item in value for held in _held_in(item)] if isinstance(value, (list, tuple)) else []
