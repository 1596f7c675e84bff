"""Attaches host code to a simulated GPU: ``torch.cuda``, Triton's driver and operators reach it over any channel.

Handles operators on device tensors above autograd: autocast, and library calls that must stay whole.

PyTorch's own autocast kernels accept CUDA tensors only, and cuDNN's recurrent layers, fused attention and dropout would
arrive at the device in pieces. Device tensors carry the (otherwise unused) autocast key of a private backend, which is
switched on in the threads that use a device. Kernels registered for it cast operands by CUDA's rules where autocast is
on, pass library calls to ``library_calls.py``, and redispatch below. Nothing else in the process is affected.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_map

from drkernel.sim.gpu.operator_rules import names
from drkernel.sim.host.cuda_api import cuda_api_on
from drkernel.sim.host.library_calls import LibraryCalls
from drkernel.sim.host.loading import compile_eagerly
from drkernel.sim.host.modes import DeviceArgumentMode, OperatorMode
from drkernel.sim.host.tensor import AUTOCAST, DeviceLink, DeviceTensor, guard_nothing
from drkernel.sim.host.triton_kernel import SimDriver, triton_on
from drkernel.sim.spec import GPUSpec
from drkernel.sim.wire.commands import Channel

KEY = "AutocastPrivateUse1"
BACKEND = "privateuseone"

# The lists are those of PyTorch's documentation: "CUDA Ops that can autocast to float16 / to float32 / to the widest".
LOW = names(
    """
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution prelu addmm
    addmv addr matmul einsum mm mv linear addbmm baddbmm bmm chain_matmul linalg_multi_dot linalg_vecdot
    scaled_dot_product_attention lstm.input gru.input rnn_tanh.input rnn_relu.input lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell
    """
)
"""run in autocast's dtype"""
FLOAT32 = names(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm sum
    sum.dim_IntList norm.Scalar norm.ScalarOpt_dim
    """
)
"""run in float32"""
WIDEST = names(
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack
    """
)
"""run in the widest dtype among the operands"""

Choice = Callable[[list[torch.Tensor]], torch.dtype]


def _choices() -> dict[str, Choice]:
    """Map each operator to the way autocast chooses its dtype."""
    return {
        **dict.fromkeys(LOW, lambda tensors: torch.get_autocast_dtype("cuda")),
        **dict.fromkeys(FLOAT32, lambda tensors: torch.float32),
        **dict.fromkeys(WIDEST, lambda some: functools.reduce(torch.promote_types, (one.dtype for one in some))),
    }


def _eligible(value: Any) -> bool:
    return isinstance(value, DeviceTensor) and value.is_floating_point() and value.dtype != torch.float64


def _cast(choose: Choice, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Cast operands to the dtype that autocast chooses."""
    tensors: list[torch.Tensor] = []
    tree_map(lambda value: tensors.append(value) if _eligible(value) else None, (args, kwargs))
    if not tensors:
        return args, kwargs
    dtype = choose(tensors)
    return tree_map(lambda value: value.to(dtype) if _eligible(value) else value, (args, kwargs))


def _kernel(overload: Any, choose: Choice | None, whole: Callable[..., Any] | None) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            if choose is not None and torch.is_autocast_enabled("cuda"):
                args, kwargs = _cast(choose, args, kwargs)
            if whole is not None and (result := whole(*args, **kwargs)) is not NotImplemented:
                return result
            return overload(*args, **kwargs)

    return kernel


def _refuse(*args: Any, **kwargs: Any) -> Any:
    if torch.is_autocast_enabled("cuda"):
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
            "Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss."
        )
    return NotImplemented


_lock = threading.Lock()
_libraries: list[torch.library.Library] = []
"""what keeps the registered kernels; they stay for the life of the process"""


def register_kernels() -> None:
    """Register the kernels, once in a process.

    PyTorch writes to the tables of all its operators then, some 5,000 pages: a process that forks others does it
    before, so that none of them copies those pages. Without the key, which :func:`above_autograd` switches on in its
    own thread, the kernels are never met.
    """
    with _lock:
        if not _libraries:
            _libraries.extend(_registered())


def _registered() -> list[torch.library.Library]:
    library, others = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, KEY)
    key = getattr(torch._C.DispatchKey, KEY)
    torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)  # of those that are imported later
    for one in torch._ops._higher_order_ops.values():
        one.fallthrough(key)
    choices = _choices()
    calls = LibraryCalls(
        lambda t: isinstance(t, DeviceTensor), lambda op, args, kw: args[0]._link.dispatch(op, args, kw)
    )
    wholes: dict[str, Callable[..., Any]] = calls.stand_ins()
    wholes["binary_cross_entropy"] = _refuse
    for name in sorted({*choices, *wholes}):
        base, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, base), overload or "default")
        library.impl(name, _kernel(operator, choices.get(name), wholes.get(name)), KEY)
    return [library, others]


@contextmanager
def above_autograd() -> Iterator[None]:
    """Route this thread's operators on device tensors through these kernels."""
    register_kernels()
    before = torch.is_autocast_enabled(BACKEND)
    torch.set_autocast_enabled(BACKEND, True)
    try:
        yield
    finally:
        torch.set_autocast_enabled(BACKEND, before)


_active = threading.Lock()
_inside = threading.local()
"""``.depth`` > 0 while this thread is in a command of the device"""


def _passed_on(name: str, *, alone: bool = False) -> Callable[..., Any]:
    """A command that goes to the channel below; ``alone``: with the host's modes off, as it touches tensors."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.alone() if alone else self._lock:
            return getattr(self.inner, name)(*args, **kwargs)

    return call


class BelowModes:
    """Wraps a channel and switches the host's modes off for its calls, so that the modes do not intercept them.

    An in-process engine and a socket's end have the same methods, so both can be wrapped as they are.
    """

    def __init__(self, inner: Any):
        self.inner = inner
        self._lock = threading.RLock()  # of several threads, one command at a time; a free may come amid another

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._lock, torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            _inside.depth = getattr(_inside, "depth", 0) + 1
            try:
                yield
            finally:
                _inside.depth -= 1

    free, query, resources = (_passed_on(name) for name in ("free", "query", "resources"))
    op, launch, upload, download, generator = (
        _passed_on(name, alone=True) for name in ("op", "launch", "upload", "download", "generator")
    )


@contextmanager
def operators_on(link: DeviceLink) -> Iterator[None]:
    """Send operators on device tensors to the device, in this thread."""
    link.unseen = lambda link, *call: OperatorMode(link)._run(*call)
    with above_autograd(), OperatorMode(link), DeviceArgumentMode(link):
        yield


@contextmanager
def modules_on(link: DeviceLink) -> Iterator[None]:
    """Tell the device of every call of a module in this thread, which takes the host time. Whoever calls functions
    instead saves it, as on a real host."""
    here = threading.get_ident()

    def called(*_: Any) -> None:
        if not torch.compiler.is_compiling() and threading.get_ident() == here:
            link.channel.query("module")

    hook = torch.nn.modules.module.register_module_forward_pre_hook(called)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _in_new_threads(link: DeviceLink) -> Iterator[None]:
    """Give the threads that host code starts the device, too; not those that a device starts for its own work."""
    original = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if not getattr(_inside, "depth", 0):
            run = thread.run

            def on_device() -> None:
                with operators_on(link):
                    run()

            thread.run = on_device  # type: ignore[method-assign]
        original(thread)

    threading.Thread.start = start  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = original  # type: ignore[method-assign]


@contextmanager
def host_side(
    spec: GPUSpec,
    channel: Channel,
    compiles: Callable[[DeviceLink], Callable[..., Any]] | None = None,
    *,
    threads: bool = False,
) -> Iterator[DeviceLink]:
    """Set up everything that makes host code see a GPU, over any channel. One device at a time per process.

    ``compiles(link)`` gives what takes the place of ``torch.compile``; by default nothing is compiled. ``threads``:
    also in threads that host code starts from now on.
    """
    if not _active.acquire(blocking=False):
        raise RuntimeError("a simulated device is already active in this process; leave its 'with' block first")
    link = DeviceLink(channel)
    guard_nothing()  # host code may make tensors of its own on the device that it sees
    try:
        instead = compile_eagerly if compiles is None else compiles(link)
        for_threads = _in_new_threads(link) if threads else nullcontext()
        driver = triton_on(SimDriver(spec, link))
        with cuda_api_on(spec, link, instead), driver, operators_on(link), modules_on(link), for_threads:
            yield link
    finally:
        link.close()
        _active.release()
