"""The warm-up of the processes that fork others: imports, first uses, and memory laid out to be shared."""

import gc
import io
import os
import traceback

import torch
import triton
import triton.language as tl
from torch import nn

from drkernel.sim.host.triton_frontend import prepare_context
from drkernel.sim.script import device


def warm_up(*, devices: bool) -> None:
    """Import and use once everything that runners need, or, with ``devices``, the trusted side, in the only thread."""
    torch.set_num_threads(1)
    import drkernel.gym.runner.cuda
    import drkernel.gym.runner.runner
    import drkernel.sim.process.device_server  # noqa: F401

    if devices:
        from drkernel.sim.gpu.shapes import prepare_shapes

        prepare_shapes()
    rehearse()
    gc.freeze()


# ---- rehearsal


@triton.jit  # type: ignore[untyped-decorator]
def _add_one(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    total = tl.sum(tl.exp(x - tl.max(x, axis=0)), axis=0)
    tl.store(out_ptr + offsets, tl.where(x > 0, x + 1.0, total), mask=mask)


class _Small(nn.Module):
    """Layers that candidates' modules commonly contain."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map x [B, 8] to [B, 8]."""
        y = self.norm(self.linear(x)) * self.scale
        out = torch.empty_like(y)
        _add_one[(1,)](y, out, y.numel(), BLOCK=64)
        return out


def rehearse(gpu: str = "h200") -> None:
    """Run a small module with a kernel of its own on a simulated GPU in this process."""
    with device(gpu), torch.no_grad():
        module = _Small().cuda()
        state = {name: value.cpu() for name, value in module.state_dict().items()}
        module.load_state_dict(state)
        torch.save(state, io.BytesIO())
        module(torch.randn(4, 8, device="cuda")).cpu()
        prepare_context(triton.runtime.driver.active.get_current_target())
    _add_one.device_caches.clear()


def build_driver_helper(folder: str) -> None:
    """Build the extension with which Triton reaches NVIDIA's driver, once for all runners, as a cache of Triton's.

    In a child: loading it loads the driver's library, which is for runners alone. Without a compiler or a driver there
    is no file, and a candidate that needs it is told the reason by Triton.
    """
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.environ["TRITON_CACHE_DIR"] = folder
        from triton.backends.nvidia.driver import CudaUtils

        CudaUtils()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)
