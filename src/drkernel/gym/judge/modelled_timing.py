"""Modelled time of a reference, and the speedup of a candidate over it.

The reference runs on a simulated device of the judge's own, in this process: trusted code, the same engine, the same
cost model and the same accounting as the candidate's device. Nothing of it is patched into the process: the two modes
that carry operators to the device are per thread, so that many judges may work side by side.

Only times at the checked sizes come from here; those at a task's own sizes come from ``reference_at_size.py``. The
interval of a modelled speedup is the model's own error (``sim/cost/confidence.py``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from drkernel.gym.judge import findings as show
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.host.attach import BelowModes, operators_on
from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.spec import GPUSpec
from drkernel.tasks.module_copy import copied
from drkernel.tasks.reference import TaskError
from drkernel.verdict import Finding, Profile, Timing

_CACHE_SIZE = 512
_cache: OrderedDict[tuple[str, str, bool], Profile] = OrderedDict()
_cache_lock = threading.Lock()


def reference_profile(
    key: str, spec: GPUSpec, model: nn.Module, inputs: list[Any], *, conv_tf32: bool = False
) -> Profile:
    """The modelled profile of one eager call of ``model(*inputs)`` on a GPU, cached under all but model and inputs.

    ``key`` names task and sizes; the modelled time depends on shapes and dtypes alone. Raises :class:`TaskError` when
    the reference does not run on the device, with its own message.
    """
    cached = (key, spec.name, conv_tf32)
    with _cache_lock:
        if cached in _cache:
            _cache.move_to_end(cached)
            return _cache[cached]
    profile = model_profile(spec, model, inputs, conv_tf32=conv_tf32)
    with _cache_lock:
        _cache[cached] = profile
        while len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return profile


def model_profile(spec: GPUSpec, model: nn.Module, inputs: list[Any], *, conv_tf32: bool = False) -> Profile:
    """Run ``model(*inputs)`` (host tensors) on a fresh simulated device of this process and return its profile."""
    engine = DeviceEngine(spec, checks="off")
    engine.conv_tf32 = conv_tf32
    with host_modes(engine) as link:
        try:
            # moved as a user's .cuda() would; a second call is timed, as the candidate's calls come after a first one
            resident = _to_device(copied(model), link, engine)
            moved = tree_map(lambda leaf: _upload(leaf, link, engine), inputs)
            with torch.no_grad():
                resident(*moved)
                engine.reset_counters()
                resident(*moved)
        except Exception as error:
            raise TaskError(
                f"the reference does not run on {spec.full_name}: {type(error).__name__}: {error}"
            ) from error
        return engine.profile()


@contextmanager
def host_modes(engine: DeviceEngine) -> Iterator[DeviceLink]:
    """Make host tensors of ``engine`` work in this thread; other threads are unaffected."""
    link = DeviceLink(BelowModes(engine))
    try:
        with operators_on(link):
            yield link
    finally:
        link.close()


def _upload(leaf: Any, link: DeviceLink, engine: DeviceEngine) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    with torch._C.DisableTorchFunction():
        return link.wrap(engine.register(leaf.detach().clone(memory_format=torch.preserve_format)))


def _to_device(model: nn.Module, link: DeviceLink, engine: DeviceEngine) -> nn.Module:
    """``model`` with parameters and buffers on the device, in place; shared ones stay shared."""
    moved: dict[int, Any] = {}

    def move(tensor: torch.Tensor) -> Any:
        if id(tensor) not in moved:
            on_device = _upload(tensor, link, engine)
            if isinstance(tensor, nn.Parameter):
                on_device = nn.Parameter(on_device, requires_grad=tensor.requires_grad)  # torch.matmul looks at it
            moved[id(tensor)] = on_device
        return moved[id(tensor)]

    for module in model.modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = move(tensor)
        for name, value in vars(module).items():  # plain tensor attributes, which .cuda() would leave on the host
            if type(value) is torch.Tensor:
                setattr(module, name, move(value))
    return model


def modelled_timing(profile: Profile) -> Timing:
    """The time of one call: from its first command to its last completion, the gaps between launches included."""
    return Timing(kind=profile.kind, device=profile.device, seconds=profile.elapsed_seconds)


def bytes_to_host(profile: Profile) -> float:
    """Bytes that a call copied from the device to the host."""
    return sum(row.bytes or 0.0 for row in profile.rows if row.owner == "copy" and row.name.endswith("device to host"))


def without_price(timed: Sequence[Profile], reference: Profile) -> list[Finding]:
    """The findings on work that has no price, the task's before the candidate's own; none when all has one."""
    mine = {row.name: row.unpriced for profile in timed for row in profile.rows if row.unpriced}
    theirs = {row.name: row.unpriced for row in reference.rows if row.unpriced}
    own = {name: why for name, why in mine.items() if name not in theirs}
    found = [(theirs, True)] if theirs else []
    found += [(own, False)] if own else []
    return [show.unpriced_operator(rows, of_the_task=of_the_task) for rows, of_the_task in found]
