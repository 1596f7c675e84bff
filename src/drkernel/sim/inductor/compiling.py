"""``torch.compile`` in scripts on a simulated GPU: through TorchInductor onto it, else eagerly with a warning.

The modelled time of a module under ``torch.compile``: PyTorch's compiler writes the kernels, the device prices them.

Nothing is executed: weights and inputs are addresses on a device without data, as for a reference at its own sizes.
Call this in a process of its own (it changes what ``torch.cuda`` says, and a module may bring anything).
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.host.attach import BelowModes, operators_on
from drkernel.sim.host.cuda_api import replaced_attributes, used_by_generated_code
from drkernel.sim.host.tensor import DeviceLink, DeviceTensor
from drkernel.sim.host.triton_kernel import SimDriver, triton_on
from drkernel.sim.inductor.graphs import Compiled, Twins, believing, twinned
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Profile


class Compiling:
    """``torch.compile`` for one device."""

    def __init__(self, spec: GPUSpec):
        self.spec = spec
        self.link: DeviceLink | None = None
        self.warned = False

    def on(self, link: DeviceLink) -> Callable[..., Any]:
        """Return what takes the place of ``torch.compile``."""
        self.link = link
        return self.compile

    def compile(self, model: Any = None, **options: Any) -> Any:
        """Compile a function or a module when it is first called; a class is handed back as it is."""
        if model is None:
            return functools.partial(self.compile, **options)
        if inspect.isclass(model):
            return model
        if options.get("backend", "inductor") != "inductor":
            return model
        assert self.link is not None
        call = _OneFunction(self, self.link, model)
        if isinstance(model, nn.Module):
            return _CompiledModule(model, call)
        return functools.wraps(model)(lambda *args, **kwargs: call(*args, **kwargs))

    def warn(self, name: str, why: str) -> None:
        """Say once for each device that something runs eagerly."""
        if not self.warned:
            self.warned = True
            text = f"{name} runs eagerly on the simulated device, as may others after it: {why}"
            warnings.warn(text, stacklevel=4)


class _CompiledModule(nn.Module):
    """A compiled module; attributes are those of the original."""

    def __init__(self, original: nn.Module, call: _OneFunction):
        super().__init__()
        self._orig_mod = original
        self._call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)


class _OneFunction:
    """One function or module, compiled at its first call; from its first failure on it runs as it is."""

    def __init__(self, compiling: Compiling, link: DeviceLink, original: Callable[..., Any]):
        self._compiling, self._link, self._original = compiling, link, original
        self._compiled: Any = None
        self._eager = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._eager:
            return self._original(*args, **kwargs)
        why = self._obstacle(args, kwargs)
        if why is None:
            try:
                return self._run(args, kwargs)
            except Exception as error:  # compilers raise anything; the function itself raises again below
                why = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
                self._eager = True
        self._compiling.warn(getattr(self._original, "__name__", type(self._original).__name__), why)
        return self._original(*args, **kwargs)

    def _obstacle(self, args: Any, kwargs: Any) -> str | None:
        """Why this call cannot be compiled."""
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        owner = getattr(self._original, "__self__", self._original)
        if isinstance(owner, nn.Module):
            leaves += [*owner.parameters(), *owner.buffers()]
        if any(not isinstance(leaf, DeviceTensor) for leaf in leaves):
            return "it has tensors on the host"
        if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves):
            return "gradients are recorded"
        return None

    def _run(self, args: Any, kwargs: Any) -> Any:
        with _without_device(self._link):
            from drkernel.sim.inductor.graphs import Compiled, Twins, believing, twinned

            driver = SimDriver(self._compiling.spec, self._link)
            with believing(driver.spec, driver.get_benchmarker()), replaced_attributes(used_by_generated_code()):
                if self._compiled is None:
                    self._compiled = Compiled(self._original, Twins(), self._link)
                owner = getattr(self._original, "__self__", self._original)
                with twinned(owner, self._compiled.twins):
                    return self._compiled(*args, **kwargs)


@contextmanager
def _without_device(link: DeviceLink) -> Iterator[None]:
    """Let compilers find torch as it is: without the modes and replacements of the device."""
    from torch.overrides import _pop_mode, _push_mode
    from torch.utils._python_dispatch import _disable_current_modes

    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())]
    try:
        with ExitStack() as stack:
            stack.enter_context(_disable_current_modes())
            stack.enter_context(replaced_attributes(link.originals))
            yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)


ENTRY_SECONDS = 3.0e-5
"""host time of entering a compiled module: guards and argument checks"""
LAUNCH_SECONDS = 1.2e-5
"""host time of a launch by generated code, whose launcher knows its arguments' types and skips Triton's"""

Build = Callable[[], tuple[nn.Module, list[Any]]]
"""makes a module and the arguments of one call, on the default device"""


def compiled_profile(build: Build, spec: GPUSpec, *, conv_tf32: bool = False) -> Profile:
    """Return the profile of one call of a module after TorchInductor's default mode.

    A first call compiles and tunes, a second one is timed, after a flush of L2. Raises whatever the module, the
    compilers or the device raise; a module that Dynamo cannot put into one graph is refused.
    """
    launching = spec.model_copy(update={"kernel_launch_overhead": LAUNCH_SECONDS})
    engine = DeviceEngine(launching, data_free=DataFree(on_read="refuse"))
    engine.accounts.conv_tf32 = conv_tf32
    link = DeviceLink(BelowModes(engine))
    driver = SimDriver(spec, link)
    with operators_on(link), torch.device("cuda"), torch.no_grad():
        model, inputs = build()
    with (
        believing(spec, driver.get_benchmarker()),
        replaced_attributes(used_by_generated_code()),
        triton_on(driver),
    ):
        twins = Twins()
        compiled = Compiled(model, twins, link)
        with twinned(model, twins):
            compiled(*inputs)
        engine.reset_counters()
        engine.accounts.timeline.add_host(ENTRY_SECONDS)
        with twinned(model, twins):
            compiled(*inputs)
    profile = engine.profile()
    rows = tuple(
        row.model_copy(update={"owner": "library" if row.owner == "custom" else row.owner}) for row in profile.rows
    )
    return profile.model_copy(update={"rows": rows})
