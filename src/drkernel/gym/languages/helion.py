"""Helion: real GPUs only, where a profiler's trace shows what was launched."""

from drkernel.gym.languages.base import Language

LANGUAGE = Language(
    name="helion",
    title="Helion",
    roots=("helion",),
    rule="The computation runs in Helion kernels of your own (`@helion.kernel`).",
    simulated=False,
    told_by="trace",
    modules=("helion",),
    compile_s=60.0,
)
