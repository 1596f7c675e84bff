"""``torch.compile`` on a simulated GPU: TorchInductor itself writes the kernels, and the device runs or prices them.

Dynamo and Inductor of a CPU build of PyTorch ask ``torch.cuda`` what the GPU can do and then generate text; no driver
is needed for that. Answers come from the card's data sheet, tensors are fake ones on ``cuda:0``, and whatever would be
measured on the GPU is modelled instead. The text allocates, calls library operators and launches Triton kernels: host
code like any other, every operator and launch of which is a command to the device.

Scripts get what is compiled, or their own function with a warning (:class:`Compiling`). The judge gets a module's
modelled time (:func:`compiled_profile`): nothing is executed, weights and inputs are addresses on a device without
data. Call that in a process of its own (it changes what ``torch.cuda`` says, and a module may bring anything).
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from drkernel.base.modes import DispatchMode
from drkernel.sim.gpu.datafree import DataFree
from drkernel.sim.gpu.emulated import layout_of_cudnn
from drkernel.sim.gpu.engine import DeviceEngine
from drkernel.sim.host.attach import BelowModes, operators_on
from drkernel.sim.host.cuda_api import compiler_interface, device_facts, replaced_attributes, used_by_generated_code
from drkernel.sim.host.library_calls import FUSED_ATTENTION, fits_fused_attention
from drkernel.sim.host.tensor import CUDA, DeviceLink, DeviceTensor, guard_nothing
from drkernel.sim.host.triton_frontend import warm
from drkernel.sim.host.triton_kernel import SimDriver, triton_on
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Profile

ANSWERED = (
    "is_available", "_initialized", "device_count", "current_device", "get_device_name", "get_device_capability",
    "get_device_properties", "get_arch_list", "is_bf16_supported", "_lazy_init", "_exchange_device",
    "_maybe_exchange_device",
)  # fmt: skip
"""what the compilers ask of ``torch.cuda``"""


@contextmanager
def believing(spec: GPUSpec, benchmark: Callable[..., float]) -> Iterator[None]:
    """Dynamo and Inductor compile for ``spec`` within the block, in this thread, without child processes.

    ``benchmark(call)`` gives the milliseconds of a call, for what Inductor decides by measuring.
    """
    import torch._inductor.config as config

    warm()
    guard_nothing()
    with (
        replaced_attributes([*_cuda(spec), *_compilers(spec, benchmark)]),
        config.patch(
            compile_threads=1, fx_graph_cache=False, fx_graph_remote_cache=False, force_disable_caches=True,
            use_static_triton_launcher=False, shape_padding=False,
        ),
    ):  # fmt: skip
        yield


def _cuda(spec: GPUSpec) -> list[tuple[Any, str, Any]]:
    facts = device_facts(spec)
    state = torch.zeros(16, dtype=torch.uint8)
    return [
        *((torch.cuda, name, facts[name]) for name in ANSWERED),
        (torch.cuda, "synchronize", lambda device=None: None),
        (torch.accelerator, "current_accelerator", lambda check_available=False: None),  # whose streams a graph notes
        (torch.cuda, "get_rng_state", lambda device=None: state),
        (torch.cuda, "set_rng_state", lambda state, device=None: None),
        (torch._C, "_conv_determine_backend_memory_format", layout_of_cudnn),
        (torch._C, "_cuda_getDevice", lambda: 0),
        (torch._C, "_cuda_setDevice", lambda device: None),
        (torch._C, "_cuda_getCurrentRawStream", lambda device: 0),
        (torch.version, "cuda", "12.8" if spec.vendor == "nvidia" else None),
        (torch.version, "hip", None if spec.vendor == "nvidia" else "6.4"),
    ]


class _ConstantsOnHost(DispatchMode):
    """Make on the host what a compiler makes on the GPU to learn its value: constants that it folds."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.get("device")
        if device is not None and torch.device(device).type == "cuda":
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


def _compilers(spec: GPUSpec, benchmark: Callable[..., float]) -> list[tuple[Any, str, Any]]:
    """Replace what the compilers bound when they were imported, and what they would do on the GPU."""
    from torch._dynamo import device_interface
    from torch._inductor import constant_folding
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.runtime import benchmarking, triton_helpers

    lazy_init = joint_graph.lazy_init

    def patterns_on_host(device: Any = None) -> Any:
        """Trace the patterns that Inductor looks for on host tensors: they are about operators, not about devices."""
        return lazy_init(torch.device("cpu"))

    fold = constant_folding.ConstantFolder.run

    def folded_on_host(self: Any) -> Any:
        with _ConstantsOnHost():
            return fold(self)

    def timed(self: Any, fn: Callable[[], Any], *args: Any, **kwargs: Any) -> float:
        return benchmark(fn)

    return [
        *compiler_interface(spec, device_interface),
        (joint_graph, "lazy_init", patterns_on_host),
        (constant_folding.ConstantFolder, "run", folded_on_host),
        (triton_helpers, "set_driver_to_gpu", lambda: None),
        (benchmarking.Benchmarker, "benchmark", timed),
        (benchmarking.InductorBenchmarker, "benchmark_gpu", timed),
    ]


class Twins:
    """Fake tensors on ``cuda:0`` for tensors of a simulated device, and the way back.

    A twin stands for its original while a compiler looks at it. Views of a twin are found by their storage.
    """

    def __init__(self) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._twins: dict[int, Any] = {}  # by the original's handle
        self._originals: dict[int, tuple[Any, DeviceTensor]] = {}  # by the twin's storage; the twin keeps it alive

    def of(self, tensor: Any) -> Any:
        """Return the twin of a device tensor, always the same; a parameter's is a parameter. Others come back."""
        from torch._subclasses.fake_tensor import FakeTensor

        if not isinstance(tensor, DeviceTensor):
            return tensor
        known = self._twins.get(tensor._handle)
        if known is None:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                form = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
                known = FakeTensor(self.mode, form, CUDA)
            if isinstance(tensor, nn.Parameter):
                known = nn.Parameter(known, requires_grad=False)
            self._twins[tensor._handle] = known
            self._originals[known.untyped_storage()._cdata] = (known, tensor)
        return known

    def forget(self) -> None:
        """Let go of all tensors."""
        self._twins.clear()
        self._originals.clear()

    def original(self, twin: Any) -> Any:
        """Return the device tensor that a fake one stands for; what is none, as a tensor made on the host, comes back.
        Raises :class:`KeyError` for a fake one that host code made on the device."""
        if not isinstance(twin, torch.Tensor) or twin.device != CUDA:
            return twin
        first, tensor = self._originals[twin.untyped_storage()._cdata]
        forms = [(one.shape, one.stride(), one.storage_offset(), one.dtype) for one in (twin, first)]
        if forms[0] == forms[1]:
            return tensor
        if twin.dtype != tensor.dtype:  # the same bytes, read otherwise
            count = twin.untyped_storage().nbytes() // tensor.itemsize
            tensor = tensor.as_strided((count,), (1,)).view(twin.dtype)  # type: ignore[assignment]
        offset = int(tensor.storage_offset() + twin.storage_offset())
        return tensor.as_strided(twin.shape, twin.stride(), offset)


def modules_of(call: Any, seen: set[Any] | None = None) -> Iterator[nn.Module]:
    """The modules that a call reaches: itself, a method's, and what a function and those of its file that it uses
    close over or name as globals."""
    owner, seen = getattr(call, "__self__", call), set() if seen is None else seen
    if isinstance(owner, nn.Module):
        yield from owner.modules()
    elif inspect.isfunction(call) and call not in seen:
        seen.add(call)
        reached = inspect.getclosurevars(call)
        for value in map(inspect.unwrap, (*reached.nonlocals.values(), *reached.globals.values())):
            if getattr(value, "__globals__", call.__globals__) is call.__globals__:
                yield from modules_of(value, seen)


@contextmanager
def twinned(call: Any, twins: Twins) -> Iterator[None]:
    """Within the block a call's modules hold the twins of their device tensors: parameters, buffers, attributes."""
    tables: Any = [table for one in modules_of(call) for table in (one._parameters, one._buffers, vars(one))]
    saved = [
        (table, name, value) for table in tables for name, value in table.items() if isinstance(value, DeviceTensor)
    ]
    for table, name, value in saved:
        table[name] = twins.of(value)
    try:
        yield
    finally:
        for table, name, value in saved:
            table[name] = value


class Compiled:
    """A function of device tensors after TorchInductor. Use it while Dynamo and Inductor believe in the device.

    What is compiled is called with device tensors, and holds twins. What Dynamo cannot put into one graph is refused,
    because code between graphs would not reach the device.
    """

    def __init__(self, call: Callable[..., Any], link: DeviceLink):
        import torch._dynamo as dynamo

        self.twins, self._original, self._link = Twins(), call, link
        self._call = dynamo.optimize(self._backend, nopython=True, dynamic=False)(call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it; results are device tensors."""
        try:
            with torch.no_grad(), twinned(self._original, self.twins):
                result = self._call(*tree_map(self.twins.of, args), **tree_map(self.twins.of, kwargs))
            with operators_on(self._link):
                return tree_map(self.twins.original, result)
        finally:
            self.twins.forget()

    def _backend(self, module: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        keep_attention(module)
        return compile_fx(module, inputs, inner_compile=self._inner)  # type: ignore[arg-type]

    def _inner(self, module: Any, inputs: Any, **options: Any) -> Callable[[list[Any]], Any]:
        from torch._functorch.aot_autograd import make_boxed_func
        from torch._inductor.compile_fx import compile_fx_inner

        call = getattr(compile_fx_inner(module, inputs, **options), "current_callable", None)
        if call is None:
            return module.forward  # nothing to compute: arguments and constants come back

        def run(*args: Any) -> list[Any]:
            with operators_on(self._link):
                return [self.twins.of(leaf) for leaf in call([self.twins.original(leaf) for leaf in args])]

        return make_boxed_func(run)


# ---- attention


_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_CALLS = (torch.nn.functional.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)


def keep_attention(module: GraphModule) -> None:
    """Replace attention in a traced graph by the fused operator, where it fits that operator."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in _CALLS:
            given = {**dict(zip(_NAMES, node.args, strict=False)), **node.kwargs}
            if _fits(given):
                _replace(module, node, given)
    module.recompile()


def _fits(given: dict[str, Any]) -> bool:
    query, key, value = (_tensor(given[name]) for name in _NAMES[:3])
    mask = _tensor(given.get("attn_mask"))
    if query is None or key is None or value is None or (mask is not None and mask.dtype == torch.bool):
        return False
    return not given.get("dropout_p") and fits_fused_attention(query, key, value, mask, bool(given.get("enable_gqa")))


def _tensor(value: Any) -> Any:
    return value.meta.get("example_value") if isinstance(value, Node) else None


def _replace(module: GraphModule, node: Node, given: dict[str, Any]) -> None:
    options = {"attn_mask": given.get("attn_mask"), "scale": given.get("scale")}
    arguments = (*(given[name] for name in _NAMES[:3]), 0.0, given.get("is_causal", False))
    with module.graph.inserting_before(node):
        both = module.graph.call_function(FUSED_ATTENTION, arguments, options)
        first = module.graph.call_function(operator.getitem, (both, 0))
    node.replace_all_uses_with(first)
    module.graph.erase_node(node)


# ---- in scripts


class Compiling:
    """``torch.compile`` for one device."""

    def __init__(self, spec: GPUSpec, link: DeviceLink):
        self.spec, self.link = spec, link
        self.warned = False

    def __call__(self, model: Any = None, **options: Any) -> Any:
        """Compile a function or a module when it is first called; a class is handed back as it is."""
        if model is None:
            return functools.partial(self, **options)
        if inspect.isclass(model):
            return model
        if (backend := options.get("backend", "inductor")) != "inductor":
            if callable(backend):
                self.warn(model, "a backend of one's own is not called")
            return model
        call = _OneFunction(self, model)
        if isinstance(model, nn.Module):
            return _CompiledModule(model, call)
        made: Any = functools.wraps(model)(lambda *args, **kwargs: call(*args, **kwargs))
        made._torchdynamo_inline = model  # what Dynamo traces where another compiled function calls this one
        return made

    def warn(self, model: Any, why: str) -> None:
        """Say once for each device that something runs eagerly."""
        if not self.warned:
            self.warned = True
            name = getattr(model, "__name__", type(model).__name__)
            warnings.warn(f"{name} runs eagerly on the simulated device, as may others after it: {why}", stacklevel=4)


class _CompiledModule(nn.Module):
    """A compiled module; attributes are those of the original."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for those who ask whether a module is compiled
        return getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", _CompiledModule)

    def __init__(self, original: nn.Module, call: _OneFunction):
        super().__init__()
        self._orig_mod = original
        self._call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __reduce__(self) -> Any:  # a copy is compiled anew
        return _compiled, (self._orig_mod,)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return super().__getattr__(name)
        return getattr(self._orig_mod, name)


def _compiled(module: nn.Module) -> Any:
    return torch.compile(module)


class _OneFunction:
    """One function or module, compiled at its first call; from its first failure on it runs as it is."""

    def __init__(self, compiling: Compiling, original: Callable[..., Any]):
        self._compiling, self._link, self._original = compiling, compiling.link, original
        self._compiled: Any = None
        self._eager = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._eager:
            return self._original(*args, **kwargs)
        try:
            if (why := self._obstacle(args, kwargs)) is None:
                return self._run(args, kwargs)
        except Exception as error:  # compilers raise anything; the function itself raises again below
            why = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
            self._eager = True
        self._compiling.warn(self._original, why)
        return self._original(*args, **kwargs)

    def _obstacle(self, args: Any, kwargs: Any) -> str | None:
        """Why this call cannot be compiled."""
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        for one in modules_of(self._original):
            leaves += [*one.parameters(recurse=False), *one.buffers(recurse=False)]
        if any(not isinstance(leaf, DeviceTensor) for leaf in leaves):
            return "it has tensors on the host"
        if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves):
            return "gradients are recorded"
        return None

    def _run(self, args: Any, kwargs: Any) -> Any:
        with _without_device(self._link):
            driver = SimDriver(self._compiling.spec, self._link)
            with believing(driver.spec, driver.get_benchmarker()), replaced_attributes(used_by_generated_code()):
                if self._compiled is None:
                    self._compiled = Compiled(self._original, self._link)
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


Build = Callable[[], tuple[nn.Module, list[Any]]]
"""makes a module and the arguments of one call, on the default device"""


def compiled_profile(build: Build, spec: GPUSpec, *, conv_tf32: bool = False) -> Profile:
    """Return the profile of one call of a module after TorchInductor's default mode.

    A first call compiles and tunes, a second one is timed, after a flush of L2. Raises whatever the module, the
    compilers or the device raise; a module that Dynamo cannot put into one graph is refused.
    """
    launching = spec.model_copy(update={"kernel_launch_overhead": spec.compiled_launch_overhead})
    engine = DeviceEngine(launching, data_free=DataFree(on_read="refuse"))
    engine.accounts.conv_tf32 = conv_tf32
    link = DeviceLink(BelowModes(engine))
    driver = SimDriver(spec, link)
    with operators_on(link), torch.device("cuda"), torch.no_grad():
        model, inputs = build()
    with believing(spec, driver.get_benchmarker()), replaced_attributes(used_by_generated_code()), triton_on(driver):
        compiled = Compiled(model, link)
        compiled(*inputs)
        engine.reset_counters()
        engine.accounts.timeline.add_host(spec.compiled_call_overhead)
        compiled(*inputs)
    profile = engine.profile()
    rows = tuple(
        row.model_copy(update={"owner": "library" if row.owner == "custom" else row.owner}) for row in profile.rows
    )
    return profile.model_copy(update={"rows": rows})
