"""Loads a reference: from KernelBench-format source to a module with seeded weights and seeded inputs.

A reference is trusted text and is executed in this process. Candidates never are.

Everything a reference draws (``get_inputs``, ``get_init_inputs``, the constructor's weights) comes from torch's global
generator, which exists once per process, not per thread. :func:`seeded` therefore takes a lock, so that threads that
grade different tasks do not disturb each other's draws.
"""

import hashlib
import inspect
import linecache
import random
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, get_type_hints

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.overrides import TorchFunctionMode

from drkernel.base.files import kept_or_made
from drkernel.digest import source_digest
from drkernel.task import TaskError

Asked = TypeVar("Asked", "Reference", str)
Terms = ParamSpec("Terms")
Fact = TypeVar("Fact")

_RNG_LOCK = threading.RLock()
REQUIRED = ("Model", "get_inputs")
KEPT = 256
"""References kept loaded; a long-lived judge of generated tasks would otherwise keep every one it ever saw."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch, numpy and random for the block, under a lock, and restore their state afterwards."""
    with _RNG_LOCK, torch.random.fork_rng(devices=[]):
        python_state, numpy_state = random.getstate(), np.random.get_state()
        torch.default_generator.manual_seed(seed)  # torch.manual_seed formats a traceback for every absent accelerator
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


class OnHost(TorchFunctionMode):
    """Keep on the host whatever the block would put on a GPU; ``.cuda()`` and ``device="cuda"`` change nothing.

    KernelBench's own examples draw their inputs on the GPU. The judge draws on the host and moves the values itself to
    wherever reference and candidate run.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        on_gpu = _is_gpu(kwargs.get("device"))
        if on_gpu:
            del kwargs["device"]
        if func is torch.Tensor.to and (on_gpu or (len(args) > 1 and _is_gpu(args[1]))):
            # to(device, dtype, ...): what is left is a change of dtype, or nothing
            dtype = kwargs.get("dtype") or next((value for value in args[1:] if isinstance(value, torch.dtype)), None)
            return args[0] if dtype is None else args[0].to(dtype)
        return func(*args, **kwargs)


def _is_gpu(device: Any) -> bool:
    """Whether a value names a CUDA device: ``"cuda"``, ``"cuda:0"``, ``torch.device("cuda")``."""
    return isinstance(device, (str, torch.device)) and torch.device(device).type == "cuda"


@dataclass(frozen=True, eq=False)
class Reference:
    """A loaded reference module."""

    source: str
    namespace: types.ModuleType

    def draw_init(self, seed: int) -> tuple[list[Any], dict[str, Any]]:
        """Draw the constructor arguments: ``get_init_inputs()`` as a list, or KernelBook's ``[[args], {kwargs}]``."""
        function = getattr(self.namespace, "get_init_inputs", None)
        if function is None:
            return [], {}
        with seeded(seed):
            drawn = _called(function, "get_init_inputs()")
        if not isinstance(drawn, (list, tuple)):
            raise TaskError(f"get_init_inputs() must return a list, found {type(drawn).__name__}")
        if len(drawn) == 2 and isinstance(drawn[0], (list, tuple)) and isinstance(drawn[1], dict):
            return list(drawn[0]), dict(drawn[1])
        return list(drawn), {}

    def draw_inputs(self, seed: int) -> list[Any]:
        """Draw the arguments of ``forward`` as the task itself does. See ``inputs.draw_inputs`` for variants."""
        with seeded(seed):
            drawn = _called(self.namespace.get_inputs, "get_inputs()")
        if not isinstance(drawn, (list, tuple)):
            raise TaskError(f"get_inputs() must return a list, found {type(drawn).__name__}")
        return list(drawn)

    def build(self, seed: int) -> nn.Module:
        """Build ``Model(*get_init_inputs())`` with weights drawn from ``seed``, as the constructor makes them."""
        args, kwargs = self.draw_init(seed)
        with seeded(seed):
            model = _called(lambda: self.namespace.Model(*args, **kwargs), "Model(*get_init_inputs())")
        if not isinstance(model, nn.Module):
            raise TaskError(f"Model must be a torch.nn.Module, found {type(model).__name__}")
        return model

    def argument_names(self) -> list[str]:
        """Names of ``forward``'s positional arguments, without self."""
        return list(self._arguments)

    @cached_property
    def _arguments(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.namespace.Model.forward).parameters)[1:]

    @property
    def fixed_inputs(self) -> frozenset[str]:
        """Arguments that input variants must not change: the source's optional ``FIXED_INPUTS`` tuple."""
        return frozenset(getattr(self.namespace, "FIXED_INPUTS", ()))


_LOADED: dict[str, Reference] = {}


def load_reference(source: str) -> Reference:
    """Execute a reference's source, or return the module loaded earlier (the last ``KEPT`` are cached).

    Raises :class:`TaskError` when the source does not load or lacks a required name.
    """
    with _RNG_LOCK:  # executing draws numbers: one lock for both, so that no order of two can be wrong
        reference = _LOADED.pop(source, None) or Reference(source, _execute(source))
        _LOADED[source] = reference  # most recent last
        while len(_LOADED) > KEPT:
            _forget(_LOADED.pop(next(iter(_LOADED))).namespace.__name__)
    return reference


def _execute(source: str) -> types.ModuleType:
    """Execute the source as a module that tracebacks, dataclasses and torch.compile can find by name."""
    name = f"drkernel_reference_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    filename = f"<{name}>"
    module = types.ModuleType(name)
    module.__file__ = filename
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    sys.modules[name] = module
    try:
        with seeded(0), OnHost():
            exec(compile(source, filename, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        _forget(name)
        raise TaskError(f"the reference does not load: {type(error).__name__}: {error}") from error
    missing = [required for required in REQUIRED if not hasattr(module, required)]
    if missing:
        _forget(name)
        raise TaskError(f"the reference defines no {' and no '.join(missing)}; KernelBench's format needs both")
    return module


def _forget(name: str) -> None:
    sys.modules.pop(name, None)
    linecache.cache.pop(f"<{name}>", None)


def randomize_parameters(model: nn.Module, seed: int) -> list[str]:
    """Replace constant parameters and running statistics in place, so that omitting any of them changes the answer.

    A parameter that its constructor made constant (layer-norm weights of 1, biases of 0) has no visible effect when it
    is left out. Ones become ``exp(0.3 z)``, zeros ``0.3 z``, other constants ``c * exp(0.3 z)`` with z standard normal;
    ``running_mean`` and ``running_var`` likewise. Other buffers (masks, tables) stay. Returns the names changed.
    """
    generator = torch.Generator().manual_seed(seed)
    changed = []
    buffers = {name for name, _ in model.named_buffers()}
    for name, tensor in model.state_dict(keep_vars=True).items():
        statistic = name.rpartition(".")[2] in ("running_mean", "running_var")
        if not tensor.is_floating_point() or tensor.numel() == 0 or (name in buffers and not statistic):
            continue
        first = tensor.detach().flatten()[0]
        if not bool((tensor.detach() == first).all()):
            continue
        scattered(tensor, generator)
        changed.append(name)
    return changed


def vary_parameters(model: nn.Module, names: Iterable[str], seed: int) -> None:
    """Scale these parameters' elements in place, as :func:`randomize_parameters` does; zeros get small values."""
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    for name in names:
        if parameters[name].is_floating_point():
            scattered(parameters[name], generator)


def scattered(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply each element by a log-normal factor near one; zeros become normal. In place; returns the tensor."""
    noise = 0.3 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return tensor.copy_(torch.where(tensor == 0, noise, tensor.double() * noise.exp()).to(tensor.dtype))


def remembered(
    function: Callable[Concatenate[Asked, Terms], Fact],
) -> Callable[Concatenate[Asked, Terms], Fact]:
    """Keep what a function says of a reference, or of its source, for more terms whose ``repr`` says all of them: the
    last answers in memory, all on disk. A pool's processes ask the same, which takes up to 30 ms and sometimes seconds.

    An exception is not kept.
    """

    @cache
    def kind() -> TypeAdapter[Any]:  # asked for when all names of its module are known
        returned: Any = get_type_hints(function)["return"]
        return TypeAdapter(returned)

    @wraps(function)
    def answer(asked: Asked, *args: Terms.args, **named: Terms.kwargs) -> Fact:
        source = asked if isinstance(asked, str) else asked.source
        key = (function.__name__, source, repr((args, named)), torch.__version__, source_digest("tasks", "sim"))
        kept = kept_or_made("tasks", lambda: kind().dump_json(function(asked, *args, **named)), *key)
        return cast("Fact", kind().validate_json(kept))

    return cast(Callable[Concatenate[Asked, Terms], Fact], lru_cache(maxsize=512)(answer))


def _called(function: Any, what: str) -> Any:
    """Return the function's result, or raise a :class:`TaskError` that says which part of the reference failed and
    why."""
    try:
        with torch.no_grad(), OnHost():
            return function()
    except (Exception, SystemExit) as error:
        raise TaskError(f"{what} of the reference raised {type(error).__name__}: {error}") from error
