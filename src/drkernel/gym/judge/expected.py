"""The trusted side of an evaluation: the reference, its weights, the inputs of each call and the expected outputs.

Nothing in this module reaches a runner except what is passed deliberately: constructor arguments, weights and input
tensors. Seeds are secret: drawn from the system (or, for repeatable verdicts, hashed with a number that the candidate
does not have), one per purpose, so that knowing one reveals nothing about another.
"""

from __future__ import annotations

import hashlib
import math
import random
import secrets
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.gym.judge.memory import require_memory
from drkernel.gym.request import EvalRequest
from drkernel.sim.wire.frames import same_bytes
from drkernel.task import TaskError
from drkernel.tasks.correctness import compare, declared_values
from drkernel.tasks.inputs import Variant, role_of
from drkernel.tasks.other_calls import changed_by_a_call
from drkernel.tasks.problem import Instance, Problem, ReferenceCall, load_problem, require_determined
from drkernel.tasks.reference import load_reference

if TYPE_CHECKING:
    from drkernel.gym.session.base import JobSession
    from drkernel.gym.session.protocol import LoadResult, ParameterSpec


class Seeds:
    """Secret seeds, one per (purpose, index)."""

    def __init__(self, request: EvalRequest):
        fixed = request.settings.seed
        self._key = secrets.token_bytes(32) if fixed is None else f"{fixed}:{request.key}".encode()

    def __call__(self, purpose: str, index: int = 0) -> int:
        """Return the 63-bit seed for a purpose and index."""
        digest = hashlib.sha256(self._key + f"|{purpose}|{index}".encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1


PATCHES = (0.0, 1 / 256, 1 / 32, 1 / 3)
"""Shares of an input that a patched call replaces, tried in turn until the answer changes (two elements at least)."""
STRETCH = 0.7
"""the share of a weight's elements that a reweighted call replaces"""


class ExpectedSide:
    """The reference of one request, with the weights that the candidate receives."""

    def __init__(self, request: EvalRequest, source: str | None = None):
        """``source`` is the reference with other sizes than those of the request's profile."""
        self.task, self.candidate = request.task, request.candidate
        self.has_dot = "dot(" in request.candidate
        """whether its text multiplies matrices by ``tl.dot``; used for advice only"""
        self.seeds = Seeds(request)
        profile = request.settings.profile
        problem = load_problem(request.task, profile) if source is None else None
        self.problem = problem or Problem(request.task, profile, load_reference(source or ""))
        self.reference = self.problem.reference
        self.source_key = hashlib.sha256(self.reference.source.encode()).hexdigest()
        self.build_seed = self.seeds("build")
        self.instance: Instance = self.problem.instance(self.build_seed)
        self.rule = self.instance.rule
        self.pairs: dict[str, str] = {}
        """candidate's name -> reference's name of every weight that is handed over"""
        self.loads_itself = False
        """whether the candidate loads weights in a way of its own: by name and size, all of them at once"""
        self.apart: list[str] = []
        """the reference's weights that the candidate builds for itself, so that none of them is ever drawn anew"""
        self.skipped = 0
        """draws of inputs that are left out"""

    @property
    def conv_tf32(self) -> bool:
        """Whether library convolutions may multiply in TF32, on both sides: if the task declares TF32.

        PyTorch's default on a GPU always allows it. But then the reference of a task declared fp32 would be less
        accurate than what is required of a candidate, and faster for it.
        """
        return self.task.precision == "tf32"

    def load(self, session: JobSession) -> LoadResult:
        """Have a session load the candidate, built as the reference is."""
        given = self.candidate, self.instance.init_args, self.instance.init_kwargs
        return session.load(*given, seed=self.build_seed, conv_tf32=self.conv_tf32)

    # ---- weights

    def bind(self, parameters: Mapping[str, ParameterSpec], loads_itself: bool = False) -> str | None:
        """Decide which weights are passed on. Return what is wrong with the candidate's state, in words, or None.

        Weights are matched by name and shape first, by name and size where the candidate ``loads_itself``; the rest is
        paired in order when all shapes agree. A weight without a partner stays as the seed built it, on both sides. One
        that the constructor made constant could be omitted unnoticed, so it must be present. One that is random to
        begin with shows in the answer, but whatever is computed from it may be kept from the constructor on: such
        weights are :attr:`apart`, and earn no speedup.
        """
        mine = {name: tuple(tensor.shape) for name, tensor in self.instance.model.state_dict().items()}
        self.loads_itself, of = loads_itself, math.prod if loads_itself else tuple
        self.pairs = {
            name: name for name, spec in parameters.items() if name in mine and of(mine[name]) == of(spec.shape)
        }
        left = [name for name in mine if name not in self.pairs]
        theirs = [name for name in parameters if name not in self.pairs]
        if left and [mine[name] for name in left] == [tuple(parameters[name].shape) for name in theirs]:
            self.pairs |= dict(zip(theirs, left, strict=True))
        handed = set(self.pairs.values())
        absent = sorted(set(self.instance.randomized) - handed)
        if not absent:
            self.apart = self._drawn_apart(handed)
            return None
        shown = ", ".join(f"{name} {list(mine[name])}" for name in absent[:4])
        return (
            f"ModelNew lacks state that Model has: {shown}. The weights are set through the state dict before the "
            "first call, so parameters and buffers must have the names and shapes of the reference's"
        )

    def _drawn_apart(self, handed: set[str]) -> list[str]:
        """Names of parameters that are not handed over, and of other tensors that differ from one seed to another."""
        parameters = dict(self.instance.model.named_parameters(remove_duplicate=False))
        alone = {name for name, value in parameters.items() if value.is_floating_point() and name not in handed}
        tensors = {name: value for name, value in tensors_of(self.instance.model) if name not in handed | alone}
        if tensors:
            other = dict(tensors_of(self._drawn_anew.model))
            alone |= {name for name, value in tensors.items() if not same_value(value, other.get(name))}
        return sorted(alone)

    @cached_property
    def _drawn_anew(self) -> Instance:
        """The reference with other weights."""
        return self.problem.instance(self.seeds("reweight"))

    def hand_over(self, session: JobSession, instance: Instance | None = None, only: Collection[str] = ()) -> None:
        """Pass the weights on, or those of another ``instance``, or ``only`` some; what a call changes is put back
        before every call."""
        state = (instance or self.instance).state_dict()
        given = {theirs: state[mine] for theirs, mine in self.pairs.items()}
        again = self.pairs.values() if self.changing and self.loads_itself else self.changing
        session.starts_from = {name: value for name, value in given.items() if self.pairs[name] in again}
        if given:
            session.load_state({name: value for name, value in given.items() if not only or name in only})

    @cached_property
    def changing(self) -> dict[str, torch.Tensor]:
        """The reference's buffers that a call changes; it starts from the same ones each time."""
        return changed_by_a_call(self.instance, self.reference.draw_inputs(self.seeds("changing")))

    @cached_property
    def parts_of_weights(self) -> list[list[str]]:
        """Two secret halves of the candidate's weights that the reference gets others of in turn: what is made of
        several and kept by some of them shows. Fewer where there are none, or one, or all are loaded at once."""
        names = sorted(self.pairs) if self.has_weights else []
        random.Random(self.seeds("halves")).shuffle(names)
        return [half for half in ((names,) if self.loads_itself else (names[::2], names[1::2])) if half]

    def reweight(self, names: Collection[str]) -> None:
        """Give the reference other weights where the candidate has these names, in a secret stretch of each: a sample
        does not show it."""
        drawn, state = self._drawn_anew, self.instance.state_dict()
        mine, parameters = [self.pairs[name] for name in names], dict(drawn.model.named_parameters())
        drawn.vary(name for name in mine if name in parameters and same_value(parameters[name], state[name]))
        new, generator = drawn.state_dict(), torch.Generator().manual_seed(self.seeds("reweighted stretch"))
        for name in mine:
            changed = _patched(state[name], new[name], STRETCH, generator)
            state[name] = new[name] if changed is state[name] else changed
        self.instance = self.problem.instance(self.build_seed)
        self.instance.model.load_state_dict(state)

    @property
    def has_weights(self) -> bool:
        """Whether some floating-point parameter, or a buffer that is drawn, is passed on."""
        handed = set(self.pairs.values())
        parameters = dict(self.instance.model.named_parameters(remove_duplicate=False))
        if any(name in parameters and parameters[name].is_floating_point() for name in handed):
            return True
        mine = self.instance.state_dict()
        return bool(handed) and any(
            name in handed and not same_value(value, mine[name])
            for name, value in self._drawn_anew.state_dict().items()
        )

    @property
    def has_numbers(self) -> bool:
        """Whether a call's arguments have plain numbers that may be others."""
        return bool(self.problem.constants.numbers)

    # ---- calls

    def call(self, index: int, variant: Variant) -> ReferenceCall:
        """Draw fresh inputs and their oracle for call ``index``."""
        return self.instance.draw_call(self.seeds("inputs", index + self.skipped), variant)

    def patched(self, index: int, base: ReferenceCall) -> ReferenceCall:
        """Return ``base`` (a declared call) with a secret stretch of each free input replaced by freshly drawn values.

        The stretch is as short as changes the answer, and away from both ends, so a fingerprint of some places, or of a
        rounded sum, cannot tell the two calls apart. If no stretch changes the answer, the freshly drawn call is
        returned.
        """
        fresh = self.reference.draw_inputs(self.seeds("inputs", index))
        generator = torch.Generator().manual_seed(self.seeds("patch", index))
        for share in PATCHES:
            pairs = zip(base.inputs, fresh, strict=True)
            inputs = [tree_map(partial(_patched, share=share, generator=generator), *pair) for pair in pairs]
            if all(value is old for value, old in zip(tree_leaves(inputs), tree_leaves(base.inputs), strict=True)):
                break
            oracle = self.instance.oracle(inputs)
            if oracle.finite and not compare(declared_values(base.oracle), oracle, self.rule).passed_calls:
                return ReferenceCall(inputs, oracle, "declared", 1.0)
        return self.call(index, "declared")

    def renumbered(self, index: int, base: ReferenceCall) -> ReferenceCall:
        """Return ``base`` with other plain numbers."""
        return self.instance.renumbered(base, self.seeds("numbers", index))

    def name_of(self, place: int) -> str:
        """An argument of ``forward`` in words."""
        names = self.reference.argument_names()
        return names[place] if place < len(names) else str(place)


def expected_side(request: EvalRequest, source: str, budget: int) -> ExpectedSide:
    """Load the reference at the sizes of ``source``; any problem with it is a :class:`TaskError`."""
    try:
        require_memory(source, budget)
        side = ExpectedSide(request, source)
    except TaskError:
        raise
    except (KeyError, ValueError, SyntaxError) as error:
        raise TaskError(str(error.args[0] if error.args else error)) from error
    require_determined(side.instance)
    return side


def _patched(value: Any, donor: Any, share: float, generator: torch.Generator) -> Any:
    """``value`` with a ``share`` of its elements (two at least), in one run away from both ends, from ``donor``."""
    if not isinstance(value, torch.Tensor) or value.numel() < 8 or role_of(value) not in ("free", "positive", "unit"):
        return value
    flat, other = value.contiguous().reshape(-1).clone(), donor.contiguous().reshape(-1)
    length = max(2, int(flat.numel() * share))
    start = int(torch.randint(1, flat.numel() - length, (1,), generator=generator))
    flat[start : start + length] = other[start : start + length]
    return torch.empty_like(value).copy_(flat.reshape(value.shape))


def tensors_of(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of a module, by name: parameters, buffers, and attributes that no state dict has."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)
    for path, module in model.named_modules():
        for attribute, value in vars(module).items():
            for number, leaf in enumerate(tree_leaves(value) if attribute[:1] != "_" else ()):
                if isinstance(leaf, torch.Tensor):
                    yield f"{path}.{attribute}[{number}]".lstrip("."), leaf


def same_value(left: Any, right: Any) -> bool:
    """Whether two values are the same, tensors bit by bit (NaN equals NaN)."""
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return left is right or left == right
    return same_bytes(left, right)
