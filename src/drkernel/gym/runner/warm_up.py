"""The warm-up of the processes that fork others: imports, first uses, and memory laid out to be shared."""

from __future__ import annotations

import gc

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
