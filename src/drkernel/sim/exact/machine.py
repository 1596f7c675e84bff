"""Evaluates PyTorch's operators and Triton's launches on exact memory, from the forms of tensors alone.

:class:`ExactMachine` is given what ran: operators with the forms (address, shape, stride, type) of the tensors that
they read and made, and launches. It needs no values but those of the inputs, and computes its own. The reference is
watched while it runs (:class:`Watched`); a candidate's commands come from a tape (:func:`replay`).
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map, tree_map_only

from drkernel.base.modes import DispatchMode
from drkernel.sim.exact.operators import MOVES, OPERATORS
from drkernel.sim.gpu.operator_rules import ALLOCATORS, METADATA_OPERATORS, UNSAID_WRITES
from drkernel.sim.wire.commands import Ref, TensorSpec, decode
from drkernel.sim.wire.frames import Tape, digest_of
from ttir_executor.exact.field import Field
from ttir_executor.exact.interpreter import run_exact
from ttir_executor.exact.memory import ExactMemory, Undecided
from ttir_executor.exact.values import Exact, where
from ttir_executor.ttir.ir import FLOAT_BITS
from ttir_executor.ttir.parser import parse_ttir

ELEMENTS = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2", torch.int64: "i64", torch.int32: "i32",
    torch.int16: "i16", torch.int8: "i8", torch.uint8: "i8", torch.bool: "i1",
}  # fmt: skip
MADE = frozenset((
    "fill", "zero", "full", "zeros", "ones", "new_zeros", "new_ones", "new_full", "zeros_like", "ones_like",
    "full_like", "scalar_tensor", "arange", "linspace", "eye",
))  # fmt: skip
"""operators that make a tensor from numbers"""
MOST_CONSTANTS = 16
"""different numbers of a tensor that are explained one by one"""
COINCIDENCE = 0.1
"""share of a tensor's elements that two draws may have in common by chance"""
CLOCK = 16
"""operators between two looks at the clock"""
MOST_ELEMENTS = 1 << 22
"""of one operator's arguments and results"""


@dataclass(frozen=True)
class TensorForm:
    """A tensor without its contents."""

    address: int
    """of its first element"""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    base: int
    """where its storage begins"""

    @property
    def elem(self) -> str:
        """The type of an element."""
        if self.dtype not in ELEMENTS:
            raise Undecided(f"tensors of {str(self.dtype)[6:]}")
        return ELEMENTS[self.dtype]

    @property
    def end(self) -> int:
        """The first byte after its last element."""
        last = sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True)) if 0 not in self.shape else -1
        return self.address + (last + 1) * self.dtype.itemsize

    def addresses(self) -> np.ndarray:
        """Of every element."""
        found = np.zeros(self.shape, np.int64) + self.address
        for axis, (count, step) in enumerate(zip(self.shape, self.stride, strict=True)):
            line = np.arange(count, dtype=np.int64) * (step * self.dtype.itemsize)
            found += line.reshape([-1 if one == axis else 1 for one in range(len(self.shape))])
        return found


def form_of(tensor: torch.Tensor) -> TensorForm:
    """The form of a tensor in this process."""
    base = tensor.untyped_storage().data_ptr()
    address = base + int(tensor.storage_offset()) * tensor.element_size()
    return TensorForm(address, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, base)


class Sources:
    """Residues of the values that both programs are given: by what they are, so that equal tensors have equal ones."""

    def __init__(self, field: Field, changed: Collection[str] = ()):
        """``changed``: digests of tensors that get residues of their own here."""
        self.field = field
        self._changed = changed
        self._known: dict[str, tuple[torch.Tensor, np.ndarray | None, np.ndarray | None]] = {}

    def give(self, tensor: torch.Tensor, other: torch.Tensor | None = None) -> None:
        """Make a tensor's elements variables, but for those that are the same in ``other``, another draw of it: they
        are constants. Elements that are equal in both draws are one variable. What was given before stays as it is."""
        if (digest := digest_of(tensor)) in self._known:
            return
        same = one = None
        if other is not None and other.shape == tensor.shape:
            same = (tensor == other).detach().numpy()
            same = same if same.size and same.mean() > COINCIDENCE else None
            one = _equal_in_both(tensor, other)
        self._known[digest] = (tensor.detach(), same, one)

    def of(self, digest: str) -> Exact | np.ndarray | None:
        """The values of a tensor that was given, in its shape."""
        if digest not in self._known:
            return None
        tensor, same, one = self._known[digest]
        if not tensor.is_floating_point():
            return None if tensor.is_complex() else whole_numbers(tensor)
        name = f"{digest} changed" if digest in self._changed else digest
        found = Exact.drawn(self.field, name, tensor.double().numpy())
        if one is not None:
            found = found.map(lambda part: part.reshape(-1)[one].reshape(part.shape))
        if same is None or not same.any():
            return found
        fixed = constants_of(self.field, tensor)
        return Exact(
            self.field, *(np.where(same, left, right) for left, right in zip(fixed.parts, found.parts, strict=True))
        )


def _equal_in_both(tensor: torch.Tensor, other: torch.Tensor) -> np.ndarray | None:
    """For each element the place of the first one that is equal to it in both draws; None where there are none, or
    few values, which are equal by chance."""
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return None
    pairs = _words(tensor) << np.uint64(32) | _words(other)
    ordered = np.sort(pairs)  # a tenth of what sorting places takes, and draws seldom repeat
    different, alone = (1 + np.count_nonzero(np.diff(one)) for one in (ordered, ordered >> np.uint64(32)))
    if different == pairs.size or alone < (1 - COINCIDENCE) * different:
        return None
    _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
    found: np.ndarray = first[place]
    return found


def _words(tensor: torch.Tensor) -> np.ndarray:
    """For each element a whole number below 2^32, equal where elements are."""
    flat = tensor.detach().reshape(-1)
    if flat.dtype == torch.float64:
        return np.unique(flat.numpy(), return_inverse=True)[1].astype(np.uint64)
    return (flat.float() + 0.0).numpy().view(np.uint32).astype(np.uint64)  # -0.0 is 0.0


def whole_numbers(tensor: torch.Tensor) -> np.ndarray:
    """A tensor of whole numbers or booleans as the machine has them."""
    return tensor.detach().numpy() if tensor.dtype == torch.bool else tensor.detach().to(torch.int64).numpy()


def constants_of(field: Field, tensor: torch.Tensor) -> Exact:
    """A tensor's floats as constants: few different ones as a program's, many by their value alone."""
    f = tensor.detach().double().numpy()
    if np.array_equal(f, np.rint(f)):
        return Exact.whole(field, f)
    bits = Exact.whole(field, np.ascontiguousarray(f, np.float32).view(np.int32).astype(np.int64))
    found = bits.opaque("constants of a tensor", f)
    different, place = np.unique(f, return_inverse=True)
    if different.size > MOST_CONSTANTS:
        return found
    each = [field.explained(float(one), tensor.element_size() * 8) for one in different]
    known = np.array([one is not None for one in each])[place].reshape(f.shape)
    a, b, lost = (
        np.array([getattr(one, part, 0) for one in each])[place].reshape(f.shape) for part in ("a", "b", "lost")
    )
    return where(known, Exact(field, f, a, b, lost.astype(np.uint8)), found)


class ExactMachine:
    """Memory, and what runs on it."""

    def __init__(self, field: Field, sources: Sources, deadline: float):
        """``deadline``: by :func:`time.thread_time`."""
        self.field = field
        self.sources = sources
        self.memory = ExactMemory(field)
        self.deadline = deadline
        self.guesses = False
        """whether a result is unknown, so that whatever a comparison with it decides is a guess"""
        self._operators = 0
        self._storages: dict[int, int] = {}
        self._given: set[int] = set()

    # ---- memory

    def allocate(self, form: TensorForm) -> None:
        """Fresh memory for a tensor, in place of whatever was there."""
        end = max(form.end, form.base + 1)
        for base in [one for one, until in self._storages.items() if one < end and form.base < until]:
            self.memory.remove(base)
            del self._storages[base]
            self._given.discard(base)
        self.memory.add(form.base, end - form.base)
        self._storages[form.base] = end

    def forget(self, form: TensorForm) -> None:
        """Make the contents of a tensor's whole storage unknown, unless they came from outside."""
        if form.base in self._storages and form.base not in self._given:
            self.memory.remove(form.base)
            self.memory.add(form.base, self._storages[form.base] - form.base)

    def knows(self, form: TensorForm) -> bool:
        """Whether a tensor's storage is known here."""
        return form.base in self._storages and self._storages[form.base] >= form.end

    def read(self, form: TensorForm) -> Exact | np.ndarray:
        """The values of a tensor."""
        if not self.knows(form):
            raise Undecided("memory from before the call")
        found = self.memory.read(form.addresses(), form.elem)
        return found if isinstance(found, Exact) or form.elem != "i1" else found.astype(bool)

    def write(self, form: TensorForm, value: Any) -> None:
        """Replace the values of a tensor."""
        if form.elem in FLOAT_BITS:
            if not isinstance(value, Exact):
                value = Exact.whole(self.field, np.asarray(value))
        elif isinstance(value, Exact):
            value = np.nan_to_num(np.trunc(value.full().f)).astype(np.int64)
            if form.elem == "i1":
                value = value != 0
        if 0 not in form.shape:
            self.memory.write(form.addresses(), form.elem, value)

    def give(self, form: TensorForm, digest: str, contents: torch.Tensor | None = None) -> None:
        """A tensor that came from outside: one of the sources, or else constants, or unknown without contents."""
        self.allocate(form)
        self._given.add(form.base)
        value: Any = self.sources.of(digest)
        if value is None and contents is not None and not contents.is_complex():
            value = constants_of(self.field, contents) if contents.is_floating_point() else whole_numbers(contents)
        if value is not None:
            shape = form.shape
            self.write(
                form, value.map(lambda part: part.reshape(shape)) if isinstance(value, Exact) else value.reshape(shape)
            )

    # ---- running

    def launch(self, ttir: str, grid: tuple[int, int, int], args: Sequence[TensorForm | int | float]) -> None:
        """Run a kernel."""
        numbers = [leaf.address if isinstance(leaf, TensorForm) else leaf for leaf in args]
        run_exact(_parsed(ttir), grid, numbers, self.memory, deadline=self.deadline)

    def operator(
        self, name: str, args: Any, kwargs: Mapping[str, Any], results: Sequence[TensorForm], evaluate: bool = True
    ) -> Sequence[TensorForm]:
        """Run an operator whose tensors, also in lists, are given as forms; return those that it made from others. One
        that cannot be evaluated leaves its results unknown.

        Raises:
            Undecided: all of it takes too long, or an unknown result is of whole numbers.
        """
        self._operators += 1
        if self._operators % CLOCK == 0 and time.thread_time() > self.deadline:
            raise Undecided("too much to evaluate")
        base = name.partition(".")[0]
        if base in METADATA_OPERATORS:
            return ()
        plain_name, outs, places = _written_by(name)
        given = _forms((args, dict(kwargs)))
        bases = {one.base for one in given}
        out, written = _forms([kwargs.get(one) for one in outs]), _forms([args[n] for n in places if n < len(args)])
        inplace = base.endswith("_") and not base.startswith("__") and base not in OPERATORS
        fresh = [one for one in results if one.base not in bases]
        if results and not fresh and not written and not out:
            return ()  # views
        for one in fresh:
            self.allocate(one)
        if not evaluate:
            for one in (*out, *written):
                self.forget(one)
        if base in ALLOCATORS or not evaluate:
            return ()
        plain, name = base, plain_name
        if base == "_index_put_impl_":
            plain, name, args = "index_put", "index_put", args[:4]
        elif inplace:
            plain = base.removesuffix("_")
            name = plain + name[len(base) :]
        targets = out or (_forms(args[0]) if inplace else [*results, *written])
        if sum(_count(one) for one in [*given, *targets]) > MOST_ELEMENTS:
            raise Undecided("too much to evaluate")
        options = {key: value for key, value in kwargs.items() if key not in outs}
        values: Any = []
        try:
            values = self._evaluated(plain, name, args, options, targets)
        except Undecided as why:
            self.field.reasons[str(why)] += 1
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, RuntimeError) as error:
            self.field.reasons[f"aten.{plain} ({type(error).__name__})"] += 1
        flat = [*values] if isinstance(values, (tuple, list)) else [values]
        for form, value in zip_longest(targets, flat[: len(targets)]):
            if value is None:
                self._forget(form)
            else:
                self.write(form, _fitted(value, form))
        for form in written:
            if form not in targets:
                self._forget(form)
        return () if plain in MADE else targets

    def _forget(self, form: TensorForm) -> None:
        self.guesses = True
        if form.elem in FLOAT_BITS:
            self.write(form, Exact.unknown(self.field, np.full(form.shape, np.nan)))
        else:
            self.allocate(form)

    def _evaluated(
        self, base: str, name: str, args: Any, kwargs: Mapping[str, Any], targets: Sequence[TensorForm]
    ) -> Any:
        """Values of an operator's results; None for one that is not known."""
        if base in MADE:
            return self._made(base, args, kwargs, targets[0])
        if base in ("copy", "_to_copy", "to", "lift_fresh_copy", "contiguous", "clone"):
            return self.read(args[1] if base == "copy" else args[0])
        if base in ("_local_scalar_dense", "equal", "is_same_size"):
            return []
        if not any(form.elem in FLOAT_BITS for form in _forms((args, dict(kwargs)))):
            return self._of_whole_numbers(name, args, kwargs)
        real = tree_map(self._value, list(args)), tree_map(self._value, dict(kwargs))
        function = OPERATORS.get(base)
        if function is not None:
            return function(*real[0], **{key: value for key, value in real[1].items() if key not in _OF_FORM})
        if base in MOVES:
            return _moved(self.field, base, name, *real)
        return self._decomposed(name, args, kwargs)

    def _value(self, leaf: Any) -> Any:
        return self.read(leaf) if isinstance(leaf, TensorForm) else leaf

    def _made(self, base: str, args: Any, kwargs: Mapping[str, Any], form: TensorForm) -> Any:
        """The values of what makes a tensor from numbers."""
        if base in ("arange", "linspace", "eye"):
            places = torch.ops.aten.__getattr__(base)(*args, dtype=torch.float64)
            return _of_numbers(self.field, places.numpy())
        value = {"zero": 0, "zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1}.get(
            base
        )
        if value is None:
            value = args[0] if base == "scalar_tensor" else args[2] if base == "new_full" else args[1]
        value = self._value(value)
        if isinstance(value, (int, float)):
            if form.elem not in FLOAT_BITS:
                return np.full(form.shape, int(value))
            return Exact.constant(self.field, float(value), max(32, form.dtype.itemsize * 8))
        return value

    def _of_whole_numbers(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Run an operator that has no floats for arguments, as PyTorch does."""

        def real(leaf: Any) -> Any:
            return (
                torch.from_numpy(np.ascontiguousarray(self.read(leaf))).to(leaf.dtype)
                if isinstance(leaf, TensorForm)
                else leaf
            )

        try:
            found = _overload(name)(
                *tree_map(real, list(args)), **{k: real(v) for k, v in kwargs.items() if k != "device"}
            )
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise Undecided(f"aten.{name}: {error}") from None
        every = found if isinstance(found, (tuple, list)) else (found,)
        return [
            whole_numbers(one) if not one.is_floating_point() else _of_numbers(self.field, one.double().numpy())
            for one in every
            if isinstance(one, torch.Tensor)
        ]

    def _decomposed(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Take an operator apart as PyTorch does, on tensors that stand for its arguments. They have a machine of their
        own: their addresses are of this process, those here may be of a device's."""
        base, rule = name.partition(".")[0], _decompositions().get(_overload(name))
        if rule is None:
            self.field.reasons[f"aten.{base}"] += 1
            return [None] * 8
        inner = ExactMachine(self.field, self.sources, self.deadline)
        standing: dict[TensorForm, torch.Tensor] = {}

        def stand_in(leaf: Any) -> Any:
            if not isinstance(leaf, TensorForm):
                return leaf
            if leaf not in standing:
                value = self.read(leaf)
                f = torch.from_numpy(np.array(value.full().f if isinstance(value, Exact) else value)).to(leaf.dtype)
                standing[leaf] = f
                inner.allocate(form_of(f))
                inner.write(form_of(f), value)
            return standing[leaf]

        real = tree_map(stand_in, list(args)), tree_map(stand_in, dict(kwargs))
        with Watched(inner):
            found = rule(*real[0], **{key: value for key, value in real[1].items() if key != "device"})
            every = found if isinstance(found, (tuple, list)) else (found,)
            return [inner.read(form_of(one)) if isinstance(one, torch.Tensor) else None for one in every]


_OF_FORM = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"))


class Watched(DispatchMode):
    """Shows a machine what PyTorch runs in this process, while it runs."""

    def __init__(self, machine: ExactMachine):
        super().__init__()
        self.machine = machine
        self.alive: list[torch.Tensor] = []
        """every tensor that was made, so that no address comes twice"""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        forms = tree_map_only(torch.Tensor, form_of, (list(args), dict(kwargs)))
        result = func(*args, **kwargs)
        made = [one for one in torch.utils._pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        self.alive += made
        name = func.name().partition("::")[2]
        self.machine.operator(name, forms[0], forms[1], [form_of(one) for one in made])
        return result


def earlier_calls(tape: Tape) -> frozenset[int]:
    """The calls, by number, that wrote what the last one may read, what these themselves read, and the last one."""
    forms: dict[int, TensorForm] = {}
    writer: dict[int, int] = {}
    """of each storage"""
    needs: dict[int, set[int]] = {0: set()}
    number = last = 0
    for kind, *entry in tape.entries:
        if kind == "call":
            last += entry[0]
            number = last if entry[0] else 0
            needs.setdefault(number, set())
            continue
        if kind == "given":
            made, given, written = [_noted(forms, decode(entry[0]))], [], []
        elif kind == "op":
            args, kwargs, result = (decode(part) for part in entry[1:])
            given = [forms[leaf.handle] for leaf in _leaves((args, kwargs)) if isinstance(leaf, Ref)]
            made = [_noted(forms, leaf) for leaf in _leaves(result) if isinstance(leaf, TensorSpec)]
            _, outs, places = _written_by(entry[0])
            changed = _leaves(([args[n] for n in places if n < len(args)], [kwargs.get(one) for one in outs]))
            written = [forms[leaf.handle] for leaf in changed if isinstance(leaf, Ref)]
        elif kind == "launch":
            given = [forms[leaf.handle] for leaf in decode(entry[2]) if isinstance(leaf, Ref)]
            made, written = [], [one for one in given if one.base in entry[3]]
        else:
            break
        bases = {one.base for one in given}
        needs[number] |= {writer[base] for base in bases if base in writer}
        fresh = {one.base for one in made} - bases
        writer.update(dict.fromkeys(fresh | {one.base for one in written}, number))
    found, left = set[int](), {last}
    while left:
        found |= left
        left = {one for number in left for one in needs[number]} - found
    return frozenset(found)


def replay(machine: ExactMachine, tape: Tape, calls: Collection[int]) -> None:
    """Run what a device recorded: these ``calls``, by number, and what ran outside of calls.

    Raises:
        Undecided: a launch could not be evaluated, or all of it takes too long. An operator that cannot be leaves its
            results unknown.
    """
    forms: dict[int, TensorForm] = {}

    def known(leaf: Any) -> Any:
        return forms[leaf.handle] if isinstance(leaf, Ref) else leaf

    evaluate, number = True, 0
    for kind, *entry in tape.entries:
        if kind == "call":
            number += entry[0]
            evaluate = not entry[0] or number in calls
        elif kind == "given":
            spec, digest, part = entry
            machine.give(_noted(forms, decode(spec)), digest, None if part is None else tape.contents[part])
        elif kind == "op":
            args, kwargs, result = (decode(part) for part in entry[1:])
            made = [_noted(forms, leaf) for leaf in _leaves(result) if isinstance(leaf, TensorSpec)]
            machine.operator(entry[0], tree_map(known, args), tree_map(known, kwargs), made, evaluate)
        elif kind == "launch":
            args = [known(leaf) for leaf in decode(entry[2])]
            if evaluate:
                machine.launch(tape.kernels[entry[0]], tuple(entry[1]), args)
            for leaf in args if not evaluate else ():
                if isinstance(leaf, TensorForm) and leaf.base in entry[3]:
                    machine.forget(leaf)
        else:
            raise Undecided("too many commands")


def _noted(forms: dict[int, TensorForm], spec: TensorSpec) -> TensorForm:
    """The form of a tensor of a device, noted by its handle."""
    base = spec.address - spec.offset * spec.dtype.itemsize
    forms[spec.handle] = TensorForm(spec.address, spec.shape, spec.stride, spec.dtype, base)
    return forms[spec.handle]


_leaves = torch.utils._pytree.tree_leaves


@contextmanager
def without_onednn() -> Iterator[None]:
    """Run PyTorch's own operators in the block, which its decompositions know."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _forms(tree: Any) -> list[TensorForm]:
    found: list[TensorForm] = []
    tree_map(lambda leaf: found.append(leaf) if isinstance(leaf, TensorForm) else None, tree)
    return found


def _count(form: TensorForm) -> int:
    return int(np.prod(form.shape, dtype=np.int64))


def _fitted(value: Any, form: TensorForm) -> Any:
    """A result in the shape that PyTorch gave it."""
    if isinstance(value, Exact):
        if value.shape == form.shape:
            return value
        if int(np.prod(value.shape)) == _count(form):
            return value.map(lambda part: part.reshape(form.shape))
        return value
    value = np.asarray(value)
    return value.reshape(form.shape) if value.size == _count(form) else value


def _of_numbers(field: Field, values: np.ndarray) -> Exact:
    """Whole numbers, or constants."""
    if np.array_equal(values, np.rint(values)):
        return Exact.whole(field, values)
    return constants_of(field, torch.from_numpy(np.array(values)))


def _moved(field: Field, base: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator on the numbers of its elements, and put the elements where these went; 0 is a zero."""
    given: list[Exact] = []
    first = 1

    if base in ("constant_pad_nd", "scatter") and isinstance(args[-1], int | float):
        args = [*args[:-1], Exact.constant(field, float(args[-1]))]

    def numbered(leaf: Any) -> Any:
        nonlocal first
        if isinstance(leaf, Exact):
            full = leaf.full()
            count = full.f.size
            numbers = np.arange(first, first + count, dtype=np.float64).reshape(full.f.shape)
            given.append(full)
            first += count
            return torch.from_numpy(numbers)
        return torch.from_numpy(np.ascontiguousarray(leaf)) if isinstance(leaf, np.ndarray) else leaf

    numbers = (
        tree_map(numbered, args),
        {key: value for key, value in tree_map(numbered, kwargs).items() if key not in _OF_FORM},
    )
    if base == "index_put" and len(args) > 3 and args[3]:
        raise Undecided("aten.index_put that accumulates")
    try:
        found = _overload(name)(*numbers[0], **numbers[1])
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise Undecided(f"aten.{base}: {error}") from None
    zero = np.zeros(1)
    pools = [np.concatenate([zero, *(one.parts[n].reshape(-1) for one in given)]) for n in range(4)]
    every = found if isinstance(found, (tuple, list)) else (found,)
    moved = []
    for one in every:
        place = one.numpy().astype(np.int64)
        moved.append(Exact(field, pools[0][place], pools[1][place], pools[2][place], pools[3][place].astype(np.uint8)))
    return moved


@lru_cache(maxsize=64)  # the judge lives on, and every candidate brings texts of its own
def _parsed(ttir: str) -> Any:
    return parse_ttir(ttir)


@cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()}


@cache
def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


@cache
def _written_by(name: str) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
    """The overload that returns what one of this name writes to arguments given for that, their names, and the places
    of other arguments that it writes to."""
    base = name.partition(".")[0]
    packet, given = getattr(torch.ops.aten, base), _overload(name)._schema.arguments
    others = {other: getattr(packet, other)._schema.arguments for other in packet.overloads()}
    outs = tuple(one.name for one in given if one.is_out)
    rest = [(one.name, str(one.type)) for one in given if not one.is_out]
    plain = [other for other, theirs in others.items() if outs and [(o.name, str(o.type)) for o in theirs] == rest]
    said = (n for n, one in enumerate(given) if one.alias_info and one.alias_info.is_write and not one.is_out)
    return f"{base}.{plain[0]}" if plain else name, outs, (*said, *UNSAID_WRITES.get(base, ()))
