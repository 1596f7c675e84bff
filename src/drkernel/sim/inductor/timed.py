"""The modelled time of a module under ``torch.compile``: PyTorch's compiler writes the kernels, the device prices them.

Nothing is executed: weights and inputs are addresses on a device without data, as for a reference at its own sizes.
Call this in a process of its own (it changes what ``torch.cuda`` says, and a module may bring anything).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from drkernel.sim.gpu.datafree.engine import DataFreeEngine
from drkernel.sim.gpu.datafree.records import DataFree
from drkernel.sim.host.attach import BelowModes, operators_on
from drkernel.sim.host.cuda_api import replaced_attributes, used_by_generated_code
from drkernel.sim.host.tensor import DeviceLink
from drkernel.sim.host.triton_driver import SimDriver
from drkernel.sim.host.triton_kernel import triton_on
from drkernel.sim.inductor.believe import believing
from drkernel.sim.inductor.graphs import Compiled, Twins, twinned
from drkernel.sim.spec import GPUSpec
from drkernel.verdict import Profile

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
    engine = DataFreeEngine(launching, DataFree(on_read="refuse"))
    engine.conv_tf32 = conv_tf32
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
