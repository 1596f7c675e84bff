"""CuTe DSL: on real GPUs alone, where a profiler's trace tells what was launched."""

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
