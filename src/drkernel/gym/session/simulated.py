"""A session on a simulated GPU: the judge's own device, to which the candidate only sends commands.

Every method blocks at most until the session's deadline. Everything the runner answers is checked here; what it cannot
be trusted with (values, shapes, counters, time) comes from the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, Unpack

import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from drkernel.gym.device import parse_device
from drkernel.gym.request import EvalSettings
from drkernel.gym.runner.launcher import JobHandle, Launcher
from drkernel.gym.runner.values import Granted, pack
from drkernel.gym.session.base import JobSession, claims_of, plain_of, sizes_of
from drkernel.gym.session.protocol import CallResult, CallTerms, Observed, Output, Plain, SessionError
from drkernel.sim.gpu.interfere import Interference
from drkernel.sim.process.control_socket import CallRecord, DeviceControl, Form, NotHeld
from drkernel.sim.wire.commands import DTYPES, TensorSpec
from drkernel.sim.wire.frames import Tape
from drkernel.tasks.sharing import TensorMemory
from drkernel.verdict import CandidateError

T = TypeVar("T")
NO_TENSOR: Form = ((-1,), torch.bool)


class SimulatedSession(JobSession):
    """One candidate on a simulated GPU."""

    def __init__(self, launcher: Launcher, settings: EvalSettings, job: JobHandle):
        assert job.control is not None, "a simulated device has a socket to the judge"
        spec = parse_device(job.terms.device).spec
        assert spec is not None, "a simulated device has a specification"
        self._control = DeviceControl(job.control, spec)
        self._specs: dict[int, TensorSpec] = {}
        """what was put, of released tensors too: records of their calls name their places"""
        super().__init__(launcher, settings, job)

    @contextmanager
    def _serving(self, seed: int | None = None, conv_tf32: bool | None = None) -> Iterator[None]:
        self._on_device(lambda: self._control.set_frozen(False, seed=seed, conv_tf32=conv_tf32))
        try:
            yield
        finally:
            if self._over is None:
                self._on_device(lambda: self._control.set_frozen(True))

    def call(self, arguments: Sequence[Any], **terms: Unpack[CallTerms]) -> CallResult:
        """Call the module; the device accepts the candidate's commands only during the call."""
        self._begin_again()
        fresh = [leaf for leaf in tree_leaves(list(arguments)) if isinstance(leaf, torch.Tensor)]
        given: dict[str, Any] = {**terms}
        forms = given.pop("forms", None)
        specs = iter(self._on_device(lambda: self._control.begin_call(fresh, **given)))
        named = tree_map_only(torch.Tensor, lambda _: self._grant(next(specs)), list(arguments))
        data, payload = pack(tree_map(self._argument, named))
        start = time.monotonic()
        after: Interference | None = None if terms.get("interference") is None else "none"
        try:
            answer = self._ask({"do": "call", "inputs": data}, payload)
        except SessionError as error:
            if self._over is None:
                error.record = self._on_device(lambda: self._control.end_call(freeze=True, interference=after))
            raise
        seconds = time.monotonic() - start
        claimed = self._checked(lambda: claims_of(answer))
        outputs, record = self._collect(claimed, forms, self.most_output_bytes, after)
        observed = Observed(record.recorded, record.operators, record.mutated, record)
        return CallResult(outputs, self._checked(lambda: str(answer.get("type"))[:100]), observed, seconds, named)

    def _collect(
        self,
        claimed: list[dict[str, Any]],
        forms: Sequence[Form | None] | None,
        most_bytes: int,
        after: Interference | None = None,
    ) -> tuple[list[Output], CallRecord]:
        """End the call on the device; return the actual tensors behind the claimed ones, and the record."""
        handles = [claim["handle"] for claim in claimed if claim.get("handle") is not None]
        record = self._on_device(
            lambda: self._control.end_call(
                freeze=True,
                outputs=handles,
                forms=_asked(claimed, forms),
                most_bytes=most_bytes,
                interference=after,
            )
        )
        known = dict(zip(handles, record.outputs, strict=True))
        return [self._output(claim, known) for claim in claimed], record

    def state(self, forms: Mapping[str, Form]) -> dict[str, Output]:
        with self._serving():
            answer = self._ask({"do": "state", "names": list(forms)})
        claimed = self._checked(lambda: claims_of(answer, len(forms)))
        outputs, _ = self._collect(claimed, list(forms.values()), self._settings.memory_bytes)
        return dict(zip(forms, outputs, strict=False))

    @contextmanager
    def without_data(self) -> Iterator[None]:
        kept = self._left, self._specs, self.starts_from
        self._left, self._specs, self.starts_from = self._settings.deadline_s, {}, {}
        try:
            self._stand_by(self._settings.memory_bytes)
            yield
        finally:
            if not self.over:
                with suppress(SessionError):  # the session has ended then
                    self._stand_by(None)
            self._left, self._specs, self.starts_from = kept

    def _stand_by(self, budget_bytes: int | None) -> None:
        self._on_device(lambda: self._control.without_data(budget_bytes))
        self._ask({"do": "stand_by", "on": budget_bytes is not None})

    def _grant(self, spec: TensorSpec) -> int:
        self._specs[spec.handle] = spec
        return spec.handle

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Plain):
            return value.value
        if isinstance(value, int) and not isinstance(value, bool) and value in self._specs:
            return Granted(self._specs[value])
        return value

    def _output(self, claim: dict[str, Any], known: dict[int, Any]) -> Output:
        python_type = self._checked(lambda: str(claim.get("type"))[:100])
        handle = claim.get("handle")
        if handle is not None:
            found = known.get(handle)
            if found is None:
                raise self._end(
                    "tampering", "ForgedHandle", f"the answer names a tensor {handle} that is not the candidate's"
                )
            spec = found.spec
            place = ("cuda:0", python_type, found.storage, spec.address)
            return Output(found.value, handle, spec.shape, spec.stride, spec.dtype, *place)
        if "device" in claim:  # a tensor that is not on the device: described, never read
            return self._checked(lambda: _elsewhere(claim, python_type))
        plain = self._checked(lambda: plain_of(claim["value"])) if "value" in claim else None
        return Output(plain, None, (), (), None, "host", python_type, None, None)

    # ---- the device

    def put(self, tensor: torch.Tensor) -> int:
        return self._grant(self._on_device(lambda: self._control.put_tensor(tensor)))

    def write(self, handle: int, tensor: torch.Tensor) -> None:
        self._on_device(lambda: self._control.overwrite(handle, tensor))

    def read(self, handle: int) -> torch.Tensor:
        return self._on_device(lambda: self._control.get_tensor(handle, most_bytes=self._settings.memory_bytes))

    def region(self, handle: int) -> TensorMemory | None:
        spec = self._specs.get(handle)
        if spec is None:
            return None
        storage = spec.address - spec.offset * spec.dtype.itemsize
        return TensorMemory(storage, spec.address, spec.shape, spec.stride, spec.dtype.itemsize)

    def changed(self) -> list[int]:
        return self._on_device(self._control.changed)

    def release(self, handles: Iterable[int]) -> None:
        released = list(handles)
        self._on_device(lambda: self._control.free(*released))
        self._ask({"do": "release", "handles": released})

    def record(self, *, inputs: bool = True) -> None:
        """Record the candidate's commands from here on; with ``inputs`` the contents of arguments too (1 ms a MB)."""
        self._on_device(lambda: self._control.record(inputs=inputs))

    def tape(self) -> Tape:
        """What was recorded."""
        return self._on_device(self._control.tape)

    def _on_device(self, request: Callable[[], T]) -> T:
        """Make one exchange with the device."""

        def bounded() -> T:
            self._control.set_timeout(max(self._left, 0.001))
            return request()

        try:
            return self._timed(bounded)
        except torch.OutOfMemoryError as error:
            raise SessionError("out_of_memory", CandidateError(type="OutOfMemoryError", message=str(error))) from None
        except NotHeld:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            # what the candidate has done to the device's tensors (resized an input, say) stands in the judge's way:
            # not infra_error, which would be retried and masked
            name, text = type(error).__name__, f"the device refused the judge's request: {error}"
            raise self._end("runtime_error", name, text[:20_000]) from None


def _asked(claimed: list[dict[str, Any]], forms: Sequence[Form | None] | None) -> list[Form] | None:
    """Return the form to request for each tensor that the runner claims; an impossible form requests no elements."""
    if forms is None:
        return None
    expected = list(forms) if len(forms) == len(claimed) else [None] * len(claimed)
    places = [place for place, claim in enumerate(claimed) if claim.get("handle") is not None]
    return [expected[place] or NO_TENSOR for place in places]


def _elsewhere(claim: dict[str, Any], python_type: str) -> Output:
    """A returned tensor that is not on the device."""
    dtype, device = DTYPES.get(str(claim.get("dtype"))[:50]), str(claim["device"])[:50]
    return Output(
        None, None, sizes_of(claim["shape"]), sizes_of(claim["stride"]), dtype, device, python_type, None, None
    )
