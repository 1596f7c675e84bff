"""Finds the numbers in a reference's text that are sizes of axes, and the axes that hold independent work.

An axis is *parallel* when the reference treats its positions independently: omitting positions of the inputs omits the
same positions of the outputs and changes nothing else. Where the module is small enough to be built, this is tested on
small inputs with data; otherwise it is judged by shapes and by the axis's name (a batch, the first axis of inputs and
outputs alike, without statistics over it).
"""

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from drkernel.sim.gpu.shapes import prepare_shapes
from drkernel.task import TaskError
from drkernel.tasks.cost import BATCH, Cost, cost_of, on_meta
from drkernel.tasks.inputs import has_zeros, role_of
from drkernel.tasks.oracle import alike
from drkernel.tasks.reference import Reference, load_reference


@dataclass(frozen=True)
class SizeLiteral:
    """An integer in the text: a literal, or arithmetic on literals."""

    label: str
    """The assigned name, with ``[i]`` where the value holds several integers."""
    value: int
    line: int
    start: int
    end: int
    """Line (from 0) and byte columns in the source."""


def size_literals(source: str) -> list[SizeLiteral]:
    """Return integer literals above 1 in module-level assignments and in the two functions that draw inputs."""
    found: list[SizeLiteral] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            found += _integers(node.name, node)
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = [*zip(target.elts, value.elts, strict=False)]
            for name, held in pairs:
                if isinstance(name, ast.Name):
                    found += _integers(name.id, held)
    return found


def _integers(name: str, holder: ast.AST) -> list[SizeLiteral]:
    """Return the integers above 1 below a node, in source order."""
    leaves = [(leaf, value) for leaf, value in _numbers(holder) if value > 1]
    found = []
    for index, (leaf, value) in enumerate(sorted(leaves, key=lambda pair: (pair[0].lineno, pair[0].col_offset))):
        assert leaf.end_col_offset is not None
        label = name if len(leaves) == 1 else f"{name}[{index}]"
        found.append(SizeLiteral(label, value, leaf.lineno - 1, leaf.col_offset, leaf.end_col_offset))
    return found


def _numbers(node: ast.AST) -> Iterator[tuple[ast.expr, int]]:
    """Expressions of integers alone below a node, as large as they are, with their values."""
    value = _value(node)
    if value is not None and isinstance(node, ast.expr) and node.end_lineno == node.lineno:
        yield node, value
        return
    for child in ast.iter_child_nodes(node):
        yield from _numbers(child)


def _value(node: ast.AST) -> int | None:
    """The value of an expression of integers alone; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if not isinstance(node, ast.BinOp) or type(node.op) not in _ARITHMETIC:
        return None
    left, right = _value(node.left), _value(node.right)
    if left is None or right is None or (isinstance(node.op, ast.FloorDiv) and right == 0):
        return None
    if isinstance(node.op, ast.LShift | ast.Pow) and not 0 <= right < WORD:
        return None
    return _ARITHMETIC[type(node.op)](left, right)


_ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}
WORD = 64
"""bits of the largest shift or power that can be a size"""


def names_in(source: str, function: str) -> list[SizeLiteral]:
    """Every place in a function at which a name that it does not assign is read, labelled by the name; values are 0.

    A place may be overwritten by a number without that name's other places changing.
    """
    found: list[SizeLiteral] = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef) or node.name != function:
            continue
        names = [leaf for leaf in ast.walk(node) if isinstance(leaf, ast.Name)]
        assigned = {leaf.id for leaf in names if not isinstance(leaf.ctx, ast.Load)}
        for leaf in sorted(names, key=lambda leaf: (leaf.lineno, leaf.col_offset)):
            if leaf.id not in assigned and leaf.end_col_offset is not None:
                found.append(SizeLiteral(leaf.id, 0, leaf.lineno - 1, leaf.col_offset, leaf.end_col_offset))
    return found


def names_of_module_code(source: str, but: Iterable[str]) -> set[str]:
    """Names that classes and functions at module level read, but for the functions ``but``."""
    skipped = set(but)
    bodies = [
        node
        for node in ast.parse(source).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name not in skipped
    ]
    return {leaf.id for body in bodies for leaf in ast.walk(body) if isinstance(leaf, ast.Name)}


def rewrite(source: str, literals: Iterable[SizeLiteral], values: Mapping[str, int]) -> str:
    """Return ``source`` with the literals' values replaced; line numbers do not change."""
    lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
    for literal in sorted(literals, key=lambda literal: (literal.line, literal.start), reverse=True):
        line = lines[literal.line]
        lines[literal.line] = line[: literal.start] + str(values[literal.label]).encode() + line[literal.end :]
    return b"".join(lines).decode()


DRAWS = ("get_inputs", "get_init_inputs")
SMALL = 4
"""sizes of axes in a trial with data"""
POSITIONS = 6
"""positions of the axis under trial; every other one is omitted"""
STRUCTURED = 32
"""sizes of both axes of a matrix whose kind is examined"""
TRIED_BYTES = 64 << 20
"""most bytes of a module and its call for a trial"""
TRIED_FLOPS = 2e8
MOST_TRIED = 128
"""most operators of a module that is built for a trial"""

Axis = tuple[int, int]
"""(which tensor, which dimension)"""
TOGETHER = "# equal sizes stay equal"
"""ends a reference in which one size of several axes is shortened along all of them"""
DIVIDED, BLOCK = "# shortened sizes are of whole blocks", 128
"""ends one in which they are parts of the task's own of a block or more: blocks that fill them fill the task's own"""
GROUPED, GROUP = "# and those of first axes of eight", 8
"""ends one in which first axes besides are of so many blocks or more, which a grouped order may take for granted"""
WHOLE = "# stays whole: "
"""begins the last line of one in which the size named after it is not shortened"""


@dataclass(frozen=True)
class Knob:
    """A size in the text that can be changed."""

    label: str
    literals: tuple[SizeLiteral, ...]
    """places in the text that are overwritten together"""
    value: int
    inputs_only: bool
    """whether weights, constructor arguments and the module's code are independent of it"""
    axes: tuple[Axis, ...] = ()
    """axes of the inputs that scale with it"""
    outputs: tuple[Axis, ...] = ()
    """axes of the outputs that scale with it, if ``inputs_only``"""
    parallel: bool = False
    """whether their positions are independent"""
    told: bool = True
    """whether inputs or constructor arguments follow it; if nothing does, a candidate has it as a number of its own"""


def smaller(value: int, block: int = 0) -> int:
    """The next smaller size to try, about half: a multiple of 16 remains one as long as possible; 2 is the least.

    ``block``: a part of it of at least so much, first without an odd factor, so that powers of two remain; the value
    itself where there is none.
    """
    if block:
        odd = value // (value & -value)
        least = next((factor for factor in range(3, math.isqrt(odd) + 1, 2) if odd % factor == 0), odd)
        parts = (value // factor for factor in (least, 2) if factor > 1 and value % factor == 0)
        return next((part for part in parts if part >= block), value)
    if value % 16 == 0:
        half = value // 32 * 16
        return half if half >= 16 else 4
    half = value // 2
    return max(2, half + 1 if half % 16 == 0 else half)


class SizedSource:
    """A reference's text at sizes that can be changed, run on meta tensors."""

    def __init__(self, source: str) -> None:
        prepare_shapes()
        self.source = source
        mark = source.rstrip().rpartition("\n")[2]
        self.grouped, self.together = mark == GROUPED, mark == TOGETHER
        self.block = BLOCK * (mark in (GROUPED, DIVIDED))
        self.reference = load_reference(source)
        self.model, self.inputs = on_meta(self.reference)
        self.cost, results = cost_of(self.model, self.inputs)
        self._init = _form(self.reference.draw_init(0))
        self._outputs = None if results is None else _shapes(results)
        self.operators = self.cost.operators
        self.weight_bytes = sum(one.nbytes for one in [*self.model.parameters(), *self.model.buffers()])
        self._costs: dict[tuple[tuple[str, int], ...], Cost | str] = {}
        self._grown: dict[tuple[SizeLiteral, ...], tuple[Axis, ...] | None] = {}
        """places of a knob -> axes of the outputs that scale with it"""
        self.knobs: dict[str, Knob] = {knob.label: knob for knob in self._find() if mark != WHOLE + knob.label}

    # ---- at other sizes

    def text(self, values: Mapping[str, int]) -> str:
        """The source with these sizes (by knob's label) written in."""
        return self._text_with([(self.knobs[label], value) for label, value in values.items()])

    def _text_with(self, sizes: list[tuple[Knob, int]]) -> str:
        places: list[SizeLiteral] = []
        numbers: dict[str, int] = {}
        for knob, value in sizes:
            for literal in knob.literals:
                label = str(len(places))
                places.append(replace(literal, label=label))
                # one more or less than the size, perhaps; a name holds the size itself
                numbers[label] = value + (literal.value - knob.value if literal.value else 0)
        return rewrite(self.source, places, numbers)

    def cost_at(self, values: Mapping[str, int]) -> Cost:
        """The cost of one call at these sizes. Raises TaskError where the reference does not run."""
        changed = {label: value for label, value in values.items() if value != self.knobs[label].value}
        key = tuple(sorted(changed.items()))
        if key not in self._costs:
            try:
                self._costs[key] = self._cost_of(changed)
            except TaskError as error:
                self._costs[key] = str(error)
        known = self._costs[key]
        if isinstance(known, str):
            raise TaskError(known)
        return known

    def _cost_of(self, changed: dict[str, int]) -> Cost:
        reference = load_reference(self.text(changed))
        if all(self.knobs[label].inputs_only for label in changed):
            return cost_of(self.model, _meta_inputs(reference))[0]  # building a large module takes longer than a call
        return cost_of(*on_meta(reference))[0]

    # ---- what the numbers are

    def _find(self) -> list[Knob]:
        found: list[Knob] = []
        seen = names_of_module_code(self.source, DRAWS)
        for literals in self._together([literal for literal in size_literals(self.source) if literal.value > 2]):
            knob = self._knob(literals[0].label, literals, literals[0].value, seen)
            found += self._split(knob) or ([knob] if knob.told else [])
        self.knobs = {knob.label: knob for knob in found}
        return [self._tried(knob) for knob in found]

    def _together(self, literals: list[SizeLiteral]) -> list[tuple[SizeLiteral, ...]]:
        """Numbers that are one size: of those written into ``get_inputs`` equal ones, as if they had a name; and with
        them such as are no size themselves but a bound (``randint(1, n + 1)``), next to it or of the constructor's."""
        drawn = [literal for literal in literals if literal.label.partition("[")[0] == "get_inputs"]
        sizes = [one for one in drawn if self._knob("", (one,), one.value, set()).axes]
        groups: dict[int, list[SizeLiteral]] = {}
        for one in sizes:
            groups.setdefault(one.value, []).append(one)
        rest: list[SizeLiteral] = []
        for one in (literal for literal in drawn if literal not in sizes):
            near = [value for value in (one.value, one.value - 1, one.value + 1) if value in groups]
            (groups[near[0]] if near else rest).append(one)
        others: list[tuple[SizeLiteral, ...]] = []
        for literal in (one for one in literals if one not in drawn):
            built = literal.label.partition("[")[0] == "get_init_inputs"
            same = [one for one in rest if built and one.value == literal.value]
            rest = [one for one in rest if one not in same]
            others.append((literal, *same))
        return [*others, *map(tuple, groups.values()), *((one,) for one in rest)]

    def _knob(self, label: str, literals: tuple[SizeLiteral, ...], value: int, seen: set[str]) -> Knob:
        """The effect on inputs and outputs of another number at these places."""
        try:
            reference = self._reference_with(Knob(label, literals, value, False), smaller(value))
            axes = _changed_axes(_shapes(self.inputs), _shapes(_meta_inputs(reference)))
            same_init = _form(reference.draw_init(0)) == self._init
            same_module = same_init and not (seen & _changed_names(self.reference, reference))
        except TaskError:
            return Knob(label, literals, value, False)  # a constructor's argument that has to fit another, say
        return Knob(label, literals, value, same_module, axes, told=same_module or not same_init or bool(axes))

    def _split(self, knob: Knob) -> list[Knob]:
        """One size that is several axes' (``N`` of ``N × N`` matrices) as knobs of its own for each; [] if it is one.

        Places that no place can do without are one knob together. What reads numbers on the host runs on no shapes
        alone, and shows nothing.
        """
        if self.together or self._outputs is None or not knob.inputs_only or len(knob.axes) < 2:
            return []
        if self._scales_as_one(knob) or self._is_structured(knob):
            return []
        name = knob.label
        places = [place for place in names_in(self.source, "get_inputs") if place.label == name] or [*knob.literals]
        alone = {place: self._knob(name, (place,), knob.value, set()) for place in places}
        parts = [part for part in alone.values() if part.axes and self._runs(part)]
        tied = tuple(place for place, part in alone.items() if part not in parts)
        together = self._knob(name, tied, knob.value, set())
        if tied and together.axes and self._runs(together):
            parts.append(together)
        elif not parts and all(part.axes for part in alone.values()):
            parts = self._by_dimension(knob, alone)  # as many rows as the module has columns
        if len(parts) < 2:
            return []
        names = self.reference.argument_names()
        named = [[f"{names[n] if n < len(names) else n}.shape[{at}]" for n, at in part.axes] for part in parts]
        pairs = zip(parts, map(", ".join, named), strict=True)
        return [Knob(name, part.literals, part.value, True, part.axes) for part, name in pairs]

    def _by_dimension(self, knob: Knob, places: Mapping[SizeLiteral, Knob]) -> list[Knob]:
        """A size's places by the dimension of the axes that they are, as knobs; [] where none can be another alone."""
        groups: dict[int, list[SizeLiteral]] = {}
        for place, part in places.items():
            groups.setdefault(part.axes[0][1], []).append(place)
        parts = [self._knob(knob.label, tuple(group), knob.value, set()) for group in groups.values()]
        return parts if any(map(self._runs, parts)) else []

    def _is_structured(self, knob: Knob) -> bool:
        """Whether an input with two axes of this size is, say, triangular or symmetric: it would not be with one
        shortened."""
        twice = {n for n, _ in knob.axes if sum(other == n for other, _ in knob.axes) > 1}
        value = min(knob.value, STRUCTURED)
        if not twice or sum(one.nbytes for one in _tensors(self._inputs_with(knob, value))) > TRIED_BYTES:
            return False
        inputs = self._reference_with(knob, value).draw_inputs(0)
        return any(has_zeros(inputs[n]) or role_of(inputs[n]) == "scale_only" for n in twice)

    def _scales_as_one(self, knob: Knob) -> bool:
        """Whether at most one axis of each input and of each output scales with it."""
        outputs = self._changed_outputs(knob)
        return outputs is not None and all(
            len({axis for axis, _ in axes}) == len(axes) for axes in (knob.axes, outputs)
        )

    def _changed_outputs(self, knob: Knob) -> tuple[Axis, ...] | None:
        """Axes of the outputs that grow with a knob; None where the reference does not run with another value."""
        if (key := knob.literals) not in self._grown:
            self._grown[key] = None
            with suppress(TaskError):
                _, results = cost_of(self.model, self._inputs_with(knob, smaller(knob.value)))
                if results is not None and self._outputs is not None:
                    self._grown[key] = _changed_axes(self._outputs, _shapes(results))
        return self._grown[key]

    def _runs(self, knob: Knob) -> bool:
        try:
            cost_of(self.model, self._inputs_with(knob, smaller(knob.value)))
        except TaskError:
            return False
        return True

    def _inputs_with(self, knob: Knob, value: int) -> list[Any]:
        return _meta_inputs(self._reference_with(knob, value))

    def _reference_with(self, knob: Knob, value: int) -> Reference:
        return load_reference(self._text_with([(knob, value)]))

    # ---- whether positions are independent

    def _tried(self, knob: Knob) -> Knob:
        outputs = self._changed_outputs(knob) if knob.inputs_only and knob.axes else None
        if not outputs:
            return knob
        parallel = self._follows(knob, outputs) and self._is_parallel(knob, outputs)
        return replace(knob, outputs=outputs, parallel=parallel)

    def _follows(self, knob: Knob, outputs: tuple[Axis, ...]) -> bool:
        """Whether every output has one axis that scales with the knob, and each input at most one."""
        assert self._outputs is not None
        each = [which for which, _ in outputs]
        return sorted(each) == list(range(len(self._outputs))) and self._scales_as_one(knob)

    def _is_parallel(self, knob: Knob, outputs: tuple[Axis, ...]) -> bool:
        small = self._small(knob)
        if small is None:
            first = all(dimension == 0 for _, dimension in (*knob.axes, *outputs))
            named = BATCH.search(knob.label.partition("[")[0].lower()) is not None
            mixing = (one for one in self.model.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm))
            return first and named and not any(one.training for one in mixing)
        reference = load_reference(self.text(small))
        try:
            model, inputs = reference.build(0), reference.draw_inputs(0)
            for module in model.modules():
                if "Dropout" in type(module).__name__:
                    module.eval()
            count = small[knob.label]
            halves = [_half(value, dict(knob.axes).get(n), count) for n, value in enumerate(inputs)]
            with torch.no_grad():
                whole, half = (_tensors(model(*given)) for given in (inputs, halves))
        except Exception:  # a reference may refuse some sizes with any exception
            return False
        along = dict(outputs)
        kept = [_half(big, along[n], count) for n, big in enumerate(whole)]
        return all(alike(big, part) for big, part in zip(kept, half, strict=True))

    def _small(self, knob: Knob) -> dict[str, int] | None:
        """Small sizes that the module as it is takes, with some positions for ``knob``; None if it is too large."""
        if self.operators > MOST_TRIED or self.weight_bytes > TRIED_BYTES:
            return None
        values = {**self._smallest, knob.label: min(knob.value, POSITIONS)}
        try:
            cost = self.cost_at(values)
        except TaskError:
            return None
        return values if cost.exact and cost.bytes <= TRIED_BYTES and cost.flops <= TRIED_FLOPS else None

    @cached_property
    def _smallest(self) -> dict[str, int]:
        """Make every size that only inputs depend on small, where the module accepts it."""
        values: dict[str, int] = {}
        for knob in self.knobs.values():
            if knob.inputs_only and knob.value > SMALL:
                with suppress(TaskError):
                    self.cost_at({**values, knob.label: SMALL})
                    values[knob.label] = SMALL
        return values


def _half(value: Any, axis: int | None, count: int) -> Any:
    """Every second of ``count`` positions along an axis; of one that is some times as long the latter half."""
    if axis is None or not isinstance(value, torch.Tensor):
        return value
    size = value.shape[axis]
    kept = range(1, size, 2) if size == count else range(size - size // count * (count // 2), size)
    return value.index_select(axis, torch.tensor(list(kept), dtype=torch.long))


def _meta_inputs(reference: Reference) -> list[Any]:
    with torch.device("meta"):
        return reference.draw_inputs(0)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _shapes(values: Any) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else () for leaf in tree_leaves(values)]


def _changed_axes(before: list[tuple[int, ...]], after: list[tuple[int, ...]]) -> tuple[Axis, ...]:
    """Axes in which the shapes differ; () when they are not of one kind."""
    if [len(shape) for shape in before] != [len(shape) for shape in after]:
        return ()
    return tuple(
        (n, dimension)
        for n, (old, new) in enumerate(zip(before, after, strict=True))
        for dimension, (a, b) in enumerate(zip(old, new, strict=True))
        if a != b
    )


def _form(value: Any) -> str:
    """Constructor arguments in a form that can be compared."""
    leaves = tree_leaves(value)
    return repr([(leaf.dtype, tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])


def _changed_names(before: Reference, after: Reference) -> set[str]:
    """Module-level names of numbers that have changed."""
    old, new = vars(before.namespace), vars(after.namespace)
    return {
        name
        for name, value in old.items()
        if isinstance(value, (int, float, tuple, list)) and repr(value) != repr(new.get(name))
    }
