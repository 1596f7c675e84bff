"""Gluon: real GPUs only, where a profiler's trace shows what was launched."""

from drkernel.gym.languages.base import Language

LANGUAGE = Language(
    name="gluon",
    title="Gluon",
    roots=("triton.experimental.gluon",),
    rule="The computation runs in Gluon kernels of your own (`@gluon.jit`).",
    simulated=False,
    told_by="trace",
    compile_s=60.0,
)
