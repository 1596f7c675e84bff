"""Gluon: on real GPUs alone, where a profiler's trace tells what was launched."""

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
