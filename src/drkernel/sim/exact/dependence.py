"""What an answer depends on, without a tolerance: on which inputs and weights, and on what which launches wrote.

Residues are drawn anew for one tensor, or for everything that a launch writes; floats, which decide comparisons, stay
as they are. An answer whose residues are the same does not depend on it, for the branches that these floats took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map

from drkernel.sim.exact.machine import MADE, ExactMachine, Sources, TensorForm, Watched, form_of, without_onednn
from drkernel.sim.wire.frames import digest_of
from ttir_executor.exact.field import UNDEFINED, Field
from ttir_executor.exact.values import Exact, compare
from ttir_executor.ttir.ir import FLOAT_BITS

Evaluate = Callable[[ExactMachine], list[Any]]
"""Runs a program on a machine; returns its outputs, floats as :class:`Exact`."""
MOST_ARGUMENTS = 16
"""inputs and weights that are tried one by one"""
MOST_HANDED_ON = 4
"""arguments of a launch that are tried in place of what it writes"""


@dataclass(frozen=True)
class BoundCall:
    """A function on its arguments, with another draw of them: what both have in common is constant."""

    run: Callable[[list[Any]], list[Any]]
    """from inputs to outputs"""
    inputs: list[Any]
    others: list[Any]
    state: Mapping[str, torch.Tensor]
    """weights, by name"""
    other_state: Mapping[str, torch.Tensor]
    names: Sequence[str] = ()
    """of the inputs"""

    @cached_property
    def tensors(self) -> dict[str, tuple[torch.Tensor, Any]]:
        """Inputs and weights by name, with the other draw of each."""
        others = dict(_named(self.others, self.names))
        found = {name: (value, others.get(name)) for name, value in _named(self.inputs, self.names)}
        return found | {name: (value, self.other_state.get(name)) for name, value in self.state.items()}

    def sources(self, field: Field, changed: Iterable[str] = ()) -> Sources:
        """Residues of the tensors; those named in ``changed`` get others than at this field's ordinary point."""
        sources = Sources(field, {digest_of(self.tensors[name][0]) for name in changed})
        for value, other in self.tensors.values():
            sources.give(value, other)
        return sources

    def values(self, machine: ExactMachine) -> list[Any]:
        """What the function computes."""
        given = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, self.inputs)
        for value in (*tree_leaves(given), *self.state.values()):
            if isinstance(value, torch.Tensor):
                machine.give(form_of(value), digest_of(value), value)
        with torch.no_grad():
            before = [(value, value.clone()) for value in self.state.values()]
            with without_onednn(), Watched(machine):
                outputs = self.run(given)
            for value, old in before:  # it may be changed by every call, and the next one is of this state, too
                value.copy_(old)
        return [machine.read(form_of(out)) if isinstance(out, torch.Tensor) else out for out in outputs]

    def ignored_by(
        self, programs: Sequence[Evaluate], seed: int, deadline: float, names: Collection[str] | None = None
    ) -> list[set[str]]:
        """For each program, the floating inputs and weights, of those with these names, on which none of its float
        outputs depends."""

        def answers(changed: Sequence[str]) -> list[list[Any]]:
            field = Field(seed)
            sources = self.sources(field, changed)
            return [program(ExactMachine(field, sources, deadline)) for program in programs]

        found = [set[str]() for _ in programs]
        named = self.tensors if names is None else [name for name in self.tensors if name in names]
        floating = [name for name in named if self.tensors[name][0].is_floating_point()]
        if not floating:
            return found
        base = answers([])
        for name in floating[:MOST_ARGUMENTS]:
            for ignored, before, after in zip(found, base, answers([name]), strict=True):
                if all(bool(np.all(compare(x, y).equal)) for x, y in _floats(before, after)):
                    ignored.add(name)
        return found

    # ---- own kernels

    def contributes(self, candidate: Evaluate, seed: int, deadline: float, least: float = 0.0) -> bool:
        """Whether what a candidate's own kernels wrote makes its answer, which is this function's, at the latest
        without the candidate's own constants below ``least``.

        The answer depends on what launches wrote that do not only move numbers, and fewer of PyTorch's operators had
        made it without them than make it in the function itself: one that computes, and those that then do nothing to
        it, a ReLU of what is positive or a copy. Where all launches only move numbers, they have taken over one of
        these; PyTorch has made the answer once at least.
        """
        field = Field(seed)
        asked, expected = self._traced(self.values, field, deadline)
        field.least = least
        base, answer = self._traced(candidate, field, deadline)
        own = {number for number, moves in enumerate(base.moves) if not moves}
        changed, other = self._traced(candidate, field, deadline, own) if own else (base, answer)
        apart = [mark for mark, now in zip(base.made, changed.made, strict=True) if mark == now]
        for want, got, now in zip(expected, answer, other, strict=True):
            if not all(isinstance(one, Exact) for one in (want, got, now)):
                continue
            theirs, left = _echoes(asked.made, want), _echoes(apart, got)
            if (bool(compare(got, now).unequal.any()) if own else bool(left := max(1, left))) and left < theirs:
                return True
        return False

    def in_vain(self, candidate: Evaluate, seed: int, deadline: float, least: float = 0.0) -> bool:
        """Whether a candidate's answer is the same if its own launches hand on one of their arguments in place of what
        they compute, or they only lay out anew what they are given, and as many of PyTorch's operators have then made
        it as in the function itself. What the function computes, too, is disturbed instead: the answer must not depend
        on it."""
        field = Field(seed)
        asked, expected = self._traced(self.values, field, deadline)
        field.least = least
        base, answer = self._traced(candidate, field, deadline)
        asked_for = {mark for mark in asked.made if None not in mark}
        pairs = _floats(expected, answer)

        def made(by: _Traced) -> bool:
            return bool(pairs) and all(max(1, _echoes(asked.made, x)) <= _echoes(by.made, y) for x, y in pairs)

        if base.lays_out and base.laid_out.isdisjoint(asked.made) and made(base):
            return True
        for choice in range(MOST_HANDED_ON):
            tried, other = self._traced(candidate, field, deadline, idle=_Idle(choice, asked_for))
            if made(tried) and all(bool(np.all(compare(x, y).equal)) for x, y in _floats(answer, other)):
                return True
            if choice + 1 >= tried.choices:
                break
        return False

    def needed(
        self, candidate: Evaluate, places: Collection[int], count: int, seed: int, deadline: float, least: float = 0.0
    ) -> set[int]:
        """Those of the last ``count`` launches, by place, that do more than move numbers and on which the answer
        depends, without the candidate's own constants below ``least``."""
        field = Field(seed)
        if least:  # the function's own constants stay
            self._traced(self.values, field, deadline)
            field.least = least
        base, answer = self._traced(candidate, field, deadline)
        found, first = set(), len(base.moves) - count
        for place in places:
            if not base.moves[first + place]:
                _, other = self._traced(candidate, field, deadline, {first + place})
                if any(compare(x, y).unequal.any() for x, y in _floats(answer, other)):
                    found.add(place)
        return found

    def _traced(
        self,
        program: Evaluate,
        field: Field,
        deadline: float,
        disturbed: Collection[int] = (),
        idle: _Idle | None = None,
    ) -> tuple[_Traced, list[Any]]:
        machine = _Traced(field, self.sources(field), deadline, disturbed, idle)
        return machine, program(machine)


_Mark = tuple[int, int | None, int | None]
"""of a tensor: elements, and their fingerprints in the two fields"""


@dataclass(frozen=True)
class _Idle:
    """How launches hand on arguments in place of what they compute."""

    choice: int
    """which of those that fit, or the last"""
    asked_for: set[_Mark]
    """what is disturbed instead, unless an argument held it"""


class _Traced(ExactMachine):
    """A machine that notes what operators made and which launches only move numbers, and disturbs what some write, or
    hands on arguments in its place."""

    def __init__(self, field: Field, sources: Sources, deadline: float, disturbed: Collection[int], idle: _Idle | None):
        super().__init__(field, sources, deadline)
        self._idle = idle
        self.choices = 0
        """most arguments that fit in a place"""
        self.made: list[_Mark] = []
        self.moves: list[bool] = []
        self.lays_out = True
        """whether every launch hands on all numbers of a tensor, and no others"""
        self.laid_out: set[_Mark] = set()
        """what they wrote"""
        self._disturbed = disturbed
        self._filled: set[int] = set()
        """storages of which every element is a number of the program's"""

    def operator(
        self, name: str, args: Any, kwargs: Mapping[str, Any], results: Sequence[TensorForm], evaluate: bool = True
    ) -> Sequence[TensorForm]:
        self.memory.written.clear()
        targets = super().operator(name, args, kwargs, results, evaluate)
        self.made += [_mark(self.read(form)) for form in targets if form.elem in FLOAT_BITS]
        self._filled -= self.memory.written
        if name.partition(".")[0].removesuffix("_") in MADE:
            self._filled |= self.memory.written
        return targets

    def launch(self, ttir: str, grid: tuple[int, int, int], args: Sequence[TensorForm | int | float]) -> None:
        forms = [leaf for leaf in args if isinstance(leaf, TensorForm) and leaf.elem in FLOAT_BITS and self.knows(leaf)]
        given = [self.read(form) for form in forms]
        before, number = [_keys(value) for value in given], len(self.moves)
        self.memory.written.clear()
        self.memory.noise = f"launch {number}" if number in self._disturbed else None
        try:
            super().launch(ttir, grid, args)
        finally:
            self.memory.noise = None
        written = self.memory.written
        for form, keys in zip(forms, before, strict=True):
            if form.base in written & self._filled:  # what stood there says nothing
                keys[:] = _NONE
        self._filled -= written
        after = [_keys(self.read(form)) for form in forms]
        self.moves.append(_only_moves(before, after))
        read = [was for form, was in zip(forms, before, strict=True) if form.base not in written]
        wrote = [now for form, now in zip(forms, after, strict=True) if form.base in written]
        self.laid_out |= {_mark(self.read(form)) for form in forms if form.base in written}
        self.lays_out &= self.moves[-1] and any(bool(np.isin(was, now).all()) for was in read for now in wrote)
        if self._idle is not None:
            self._hand_on(forms, given, self._idle)

    def _hand_on(self, forms: Sequence[TensorForm], given: Sequence[Any], idle: _Idle) -> None:
        written, asked_for = {*self.memory.written}, idle.asked_for - {*map(_mark, given)}
        for to in (form for form in forms if form.base in written):
            now = self.read(to)
            fitting = [
                value for form, value in zip(forms, given, strict=True)
                if (form == to or form.base not in written)
                and (form.elem, np.prod(form.shape)) == (to.elem, np.prod(to.shape))
            ]  # fmt: skip
            self.choices = max(self.choices, len(fitting))
            if _mark(now) in asked_for:
                self.memory.noise = "asked for"
                self.write(to, now)
                self.memory.noise = None
            elif fitting:
                value = fitting[min(idle.choice, len(fitting) - 1)]
                self.write(to, value.map(lambda part, shape=to.shape: part.reshape(shape)))


def _mark(value: Any) -> _Mark:
    assert isinstance(value, Exact)
    return (int(np.prod(value.shape)), *value.fingerprints())


def _echoes(made: Iterable[_Mark], value: Exact) -> int:
    """How many of the tensors hold the elements of a value, in whatever order."""
    size, *mine = _mark(value)
    return sum(
        size == count and any(x is not None and x == y for x, y in zip(mine, theirs, strict=True))
        for count, *theirs in made
    )


_NONE = -1
"""the key of an element without residues"""


def _only_moves(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> bool:
    """Whether every element that changed, by its key, is one that was there before, in one of the tensors."""
    pool = np.concatenate([np.zeros(0, np.int64), *before])
    changed = [now[now != was] for was, now in zip(before, after, strict=True)]
    return all(bool(np.isin(one, pool).all() and np.all(one != _NONE)) for one in changed)


def _keys(value: Any) -> np.ndarray:
    """A number for each element."""
    assert isinstance(value, Exact)
    x = value.full()
    lost = (x.lost & UNDEFINED).astype(np.int64)
    keys = (np.where(lost & 1, 0, x.a).astype(np.int64) << 22) + np.where(lost & 2, 0, x.b).astype(np.int64) * 4 + lost
    found: np.ndarray = np.where(lost == UNDEFINED, _NONE, keys).reshape(-1)
    return found


def _floats(left: Sequence[Any], right: Sequence[Any]) -> list[tuple[Exact, Exact]]:
    return [(x, y) for x, y in zip(left, right, strict=True) if isinstance(x, Exact) and isinstance(y, Exact)]


def _named(inputs: Sequence[Any], names: Sequence[str]) -> Iterable[tuple[str, torch.Tensor]]:
    """Tensors among the inputs, also in lists and dicts, by the name of their argument."""
    for place, value in enumerate(inputs):
        for path, leaf in tree_flatten_with_path(value)[0]:
            if isinstance(leaf, torch.Tensor):
                yield (names[place] if place < len(names) else str(place)) + "".join(map(str, path)), leaf
