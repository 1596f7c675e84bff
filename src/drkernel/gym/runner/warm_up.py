"""The warm-up of the processes that fork others: imports, first uses, and memory laid out to be shared."""

from __future__ import annotations

import gc
import os
import traceback

from drkernel.gym.sandbox import linux


def warm_up() -> None:
    """Import and use once everything that jobs need, in the only thread."""
    import torch

    torch.set_num_threads(1)
    import drkernel.gym.runner.cuda
    import drkernel.gym.runner.runner
    import drkernel.sim.process.device_server  # noqa: F401
    from drkernel.gym.runner.rehearsal import rehearse
    from drkernel.sim.gpu.shapes import prepare_shapes

    prepare_shapes()
    rehearse()
    gc.collect()
    gc.freeze()
    linux.collapse_to_huge_pages()  # last: what is allocated afterwards is not gathered


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
