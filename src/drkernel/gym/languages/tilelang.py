"""TileLang: real GPUs only, where a profiler's trace shows what was launched."""

from drkernel.gym.languages.base import Language

LANGUAGE = Language(
    name="tilelang",
    title="TileLang",
    roots=("tilelang",),
    rule="The computation runs in TileLang kernels of your own (`@tilelang.jit`).",
    simulated=False,
    told_by="trace",
    modules=("tilelang",),
    compile_s=60.0,
)
