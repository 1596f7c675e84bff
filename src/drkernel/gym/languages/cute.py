"""CuTe DSL: real GPUs only, where a profiler's trace shows what was launched."""

from drkernel.gym.languages.base import Language

LANGUAGE = Language(
    name="cute",
    title="CuTe DSL",
    roots=("cutlass",),
    rule="The computation runs in CuTe DSL kernels of your own (`@cute.kernel`).",
    simulated=False,
    told_by="trace",
    modules=("cutlass",),
    compile_s=60.0,
)
