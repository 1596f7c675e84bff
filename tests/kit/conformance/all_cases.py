"""Every conformance case: importing the kernels registers them."""

import kernels_attention
import kernels_blocks
import kernels_casts
import kernels_control
import kernels_elementwise
import kernels_functions
import kernels_matmul
import kernels_nn
import kernels_scalars
from conformance_cases import CASES, REACHABLE

MODULES = (
    kernels_attention, kernels_blocks, kernels_casts, kernels_control, kernels_elementwise, kernels_functions,
    kernels_matmul, kernels_nn, kernels_scalars,
)  # fmt: skip

__all__ = ["CASES", "MODULES", "REACHABLE"]
