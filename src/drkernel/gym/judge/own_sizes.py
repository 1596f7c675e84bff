"""The timed run: a checked candidate once more, at the task's own sizes, on a device without data.

A fresh runner builds the module at those sizes and calls it several times: nothing of their size is allocated, neither
here nor there. Its device counts what the calls do, and this process prices it, as it does for checked calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from drkernel.gym.judge.checks import arguments_of
from drkernel.gym.judge.expected import ExpectedSide
from drkernel.gym.judge.held_against import OwnCall
from drkernel.gym.judge.reference_at_size import Forms, forms_of, reference_profile_at, reference_work
from drkernel.gym.judge.seen import Place, Seen, seen
from drkernel.gym.judge.sizes import Chosen
from drkernel.gym.request import EvalRequest
from drkernel.gym.session.answers import CallResult, Output, SessionError
from drkernel.gym.session.protocol import OpensSessions, Session
from drkernel.sim.process.call_record import CallRecord, Form
from drkernel.tasks.errors import TaskError
from drkernel.tasks.reference import load_reference
from drkernel.verdict import Profile

TIMED_CALLS = 3
"""timed calls, after a first one that compiles and tunes"""
AGAIN = 2
"""the call that reuses the tensors of the previous one, whose contents count as new"""
BUILT_HERE = 4 << 20
"""up to this many bytes of weights, the candidate's constructor builds them on the host, as when it was checked"""
NOT_ITS_FAULT = ("DependsOnData", "UnsupportedOp", "OverBudget")
"""errors that are limits of a device without data itself"""
UNKNOWN_FORM: Form = ((-1,), torch.bool)


class Untimed(Exception):
    """The task's own sizes cannot be timed, whatever the candidate does; ``str`` says why, as part of a sentence."""


class DataDependent(Exception):
    """The task can be timed at its own sizes, but the candidate's work there depends on data; ``str`` says how.

    The time at the checked sizes must not stand in for it: a launch is all there is to save at those small sizes, and a
    candidate that prefers them would only have to look at an element of an input.
    """


class FailedThere(Exception):
    """The candidate does not run at the task's own sizes; ``str`` says how."""


@dataclass(frozen=True)
class OwnRun:
    """The results of the calls at the task's own sizes."""

    records: list[CallRecord]
    """records of the timed calls"""
    calls: list[OwnCall]
    """the same calls, to be compared with the checked ones"""
    reference: Profile
    forms_differ: str | None
    """how outputs or weights differ in form from the reference's; None where they do not"""
    stdout: str


def run_at_own_sizes(
    request: EvalRequest, own: Chosen, side: ExpectedSide, factory: OpensSessions, host_reads: int
) -> OwnRun:
    """Build and call the candidate at its task's own sizes. ``host_reads``: of a call where it was checked.

    Raises :class:`Untimed`, :class:`DataDependent`, :class:`FailedThere`, and :class:`SessionError` when the machinery
    fails.
    """
    reference = load_reference(own.source)
    spec = request.settings.place.spec
    assert spec is not None, "only a simulated GPU models time"
    try:
        forms, work = forms_of(own.source), reference_work(reference)
        profile = reference_profile_at(spec, reference, conv_tf32=side.conv_tf32)
        init_args, init_kwargs = reference.draw_init(side.build_seed)
    except TaskError as error:
        raise Untimed(str(error)) from error
    given = sum(leaf.numel() * leaf.element_size() for leaf in _tensors([init_args, init_kwargs]))
    if given > request.settings.checked_bytes:
        raise Untimed(f"arguments of the constructor take {given} bytes, which would have to be handed over")
    session = factory.open(request.settings, data_free=True)
    with session:
        with _explained():
            loaded = session.load(
                request.candidate, init_args, init_kwargs, seed=side.build_seed, conv_tf32=side.conv_tf32,
                built_there=work.weight_bytes > BUILT_HERE,
            )  # fmt: skip
            state = session.state({name: UNKNOWN_FORM for name in loaded.parameters})
            run = _Calls(session, forms, state, host_reads)
            calls = run.timed()
        stdout = session.stdout()
    differ = _forms_differ(forms, side.pairs, state, run.outputs)
    held = [OwnCall(facts.seen, work, facts.covered, facts.borrowed) for _, facts in calls]
    return OwnRun([record for record, _ in calls], held, profile, differ, stdout)


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an error of the session that is the candidate's into :class:`DataDependent` or :class:`FailedThere`."""
    try:
        yield
    except SessionError as error:
        if error.kind == "infra_error":
            raise
        detail = error.detail
        free = error.record.data_free if error.record is not None else None
        if detail.type in NOT_ITS_FAULT or (free is not None and free.dependences):
            missed = [dependence.message for dependence in free.dependences] if free is not None else []
            raise DataDependent("; ".join(missed[:3]) or detail.message.splitlines()[0]) from error
        raise FailedThere(f"{detail.type}: {(detail.message.splitlines() or [''])[0][:300]}") from error


class _Calls:
    """Calls of one session."""

    def __init__(self, session: Session, forms: Forms, state: Mapping[str, Output], host_reads: int):
        self.session = session
        self.inputs = list(forms.inputs)
        self.host_reads = host_reads
        self.weights = weight_places(state)
        self.outputs: list[Output] = []
        """result of the last call"""

    def timed(self) -> list[tuple[CallRecord, _SizeFacts]]:
        """Every call but the first, which compiles and tunes."""
        arguments: list[Any] = []
        found = []
        for number in range(TIMED_CALLS + 1):
            result = self.session.call(arguments if number == AGAIN else arguments_of(self.inputs))
            record = result.record.device
            assert record is not None, "a simulated device is the judge's own"
            self._require_no_dependence(record, result.arguments)
            if number:
                found.append((record, self._facts(result, record)))
            arguments, self.outputs = result.arguments, result.outputs
            mine = {leaf for leaf in tree_leaves(arguments) if isinstance(leaf, int)}
            done = {out.handle for out in result.outputs if out.handle is not None} | mine
            self.session.release(sorted(done - mine if number + 1 == AGAIN else done))
        return found

    def _require_no_dependence(self, record: CallRecord, arguments: Sequence[Any]) -> None:
        free = record.data_free
        if free is None or not free.dependences:
            return
        if {one.storage for one in free.dependences} <= self._numbers_missing(arguments):
            raise Untimed("; ".join(one.message for one in free.dependences[:3]))
        asked = [one for one in free.dependences if one.kind != "steering"]
        if asked and not self.host_reads:
            raise FailedThere(f"{asked[0].message}; where it was checked it asked for nothing")
        raise DataDependent("; ".join(one.message for one in free.dependences[:3]))

    def _numbers_missing(self, arguments: Sequence[Any]) -> set[int]:
        """Where integer inputs (indices, lengths) are that are too large to be handed over with their elements."""
        pairs = zip(tree_leaves(list(arguments)), tree_leaves(self.inputs), strict=True)
        regions = [
            self.session.region(handle)
            for handle, leaf in pairs
            if isinstance(leaf, torch.Tensor) and leaf.is_meta and not (leaf.is_floating_point() or leaf.is_complex())
        ]
        return {region.storage for region in regions if region is not None}

    def _facts(self, result: CallResult, record: CallRecord) -> _SizeFacts:
        places = {**places_of(self.session, result.arguments), **self.weights}
        found = seen(record, places)
        if found is None:
            raise DataDependent("it gives the device more commands in a call than are looked at")
        by_storage = {place.storage: name for name, place in places.items()}
        borrowed = tuple(by_storage.get(out.storage) if out.storage is not None else None for out in result.outputs)
        specs = iter(record.outputs)
        described = [next(specs) if out.handle is not None else None for out in result.outputs]
        covered = tuple(None if spec is None else spec.covered for spec in described)
        return _SizeFacts(found, covered, borrowed)


@dataclass(frozen=True)
class _SizeFacts:
    seen: Seen
    covered: tuple[float | None, ...]
    borrowed: tuple[str | None, ...]


def places_of(session: Session, arguments: Sequence[Any]) -> dict[str, Place]:
    """Addresses of a call's arguments, by their place in words."""
    found = {}
    for number, leaf in enumerate(tree_leaves(list(arguments))):
        region = session.region(leaf) if isinstance(leaf, int) and not isinstance(leaf, bool) else None
        if region is not None:
            found[f"input {number}"] = Place(region.storage, torch.Size(region.shape).numel() * region.itemsize)
    return found


def weight_places(state: Mapping[str, Output]) -> dict[str, Place]:
    """Addresses of parameters and buffers."""
    return {
        f"weight {name}": Place(output.storage, _bytes(output.shape, output.dtype))
        for name, output in state.items()
        if output.storage is not None and output.dtype is not None
    }


def _forms_differ(
    forms: Forms, pairs: Mapping[str, str], state: Mapping[str, Output], outputs: Sequence[Output]
) -> str | None:
    """How outputs or weights differ from the reference's in number, shape or dtype."""
    for theirs, mine in pairs.items():
        shape = state[theirs].shape if theirs in state else None
        if mine in forms.state and shape != forms.state[mine][0]:
            return f"{theirs} has shape {list(shape or ())}, the reference's {list(forms.state[mine][0])}"
    if forms.outputs is None:
        return None
    found = [(out.shape, out.dtype) if out.dtype is not None else None for out in outputs]
    if len(found) != len(forms.outputs):
        return f"{len(found)} outputs, the reference gives {len(forms.outputs)}"
    for place, (form, wanted) in enumerate(zip(found, forms.outputs, strict=True)):
        if form != wanted:
            return f"output {place} is {_words(form)}, the reference's {_words(wanted)}"
        if outputs[place].handle is None and wanted is not None:
            return f"output {place} is not on the device"
    return None


def _words(form: Form | None) -> str:
    return "no tensor" if form is None else f"{str(form[1]).removeprefix('torch.')}{list(form[0])}"


def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return torch.Size(shape).numel() * dtype.itemsize


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
