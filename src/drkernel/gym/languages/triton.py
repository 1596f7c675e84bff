"""Triton: executed on simulated GPUs, compiled by Triton itself on real ones."""

from drkernel.gym.languages.base import Language

LANGUAGE = Language(
    name="triton",
    title="Triton",
    roots=("triton.jit",),
    rule="The computation runs in Triton kernels of your own (`@triton.jit`).",
    precision_rule='For fp32, `tl.dot` needs `input_precision="ieee"`.',
    simulated=True,
    told_by="hook",
)
