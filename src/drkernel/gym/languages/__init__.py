"""The languages that candidates may be written in. A new language is an entry in :data:`FOREIGN`."""

from drkernel.gym.languages import cuda
from drkernel.gym.languages.base import Language, references

TRITON = Language(
    name="triton",
    title="Triton",
    roots=("triton.jit",),
    rule="The computation runs in Triton kernels of your own (`@triton.jit`).",
    precision_rule='For fp32, `tl.dot` needs `input_precision="ieee"`.',
    simulated=True,
    told_by="hook",
)
FOREIGN: tuple[Language, ...] = (
    cuda.LANGUAGE,
    Language(
        name="cute",
        title="CuTe DSL",
        roots=("cutlass",),
        rule="The computation runs in CuTe DSL kernels of your own (`@cute.kernel`).",
        simulated=False,
        told_by="trace",
        modules=("cutlass",),
        compile_s=60.0,
    ),
    Language(
        name="tilelang",
        title="TileLang",
        roots=("tilelang",),
        rule="The computation runs in TileLang kernels of your own (`@tilelang.jit`).",
        simulated=False,
        told_by="trace",
        modules=("tilelang",),
        compile_s=60.0,
    ),
    Language(
        name="helion",
        title="Helion",
        roots=("helion",),
        rule="The computation runs in Helion kernels of your own (`@helion.kernel`).",
        simulated=False,
        told_by="trace",
        modules=("helion",),
        compile_s=60.0,
    ),
    Language(
        name="gluon",
        title="Gluon",
        roots=("triton.experimental.gluon",),
        rule="The computation runs in Gluon kernels of your own (`@gluon.jit`).",
        simulated=False,
        told_by="trace",
        compile_s=60.0,
    ),
)
"""those of real GPUs only; but for CUDA a profiler's trace shows what was launched"""
LANGUAGES: dict[str, Language] = {language.name: language for language in (TRITON, *FOREIGN)}


def recognise(source: str) -> Language:
    """Recognise a candidate's language by the names that its live code refers to; Triton if none indicates another.

    A source with Triton kernels is Triton, unless it always builds kernels of another language while it is imported.
    Code behind a condition or in a ``try`` may never run, and is judged by whether it does.
    """
    foreign = [language for language in FOREIGN if _may_name(source, language)]
    if not foreign:  # reading the syntax tree takes milliseconds
        return TRITON
    found = references(source)
    mixed = bool(TRITON.used_in(found))
    for language in foreign:
        used = language.used_in(found)
        if used and (not mixed or any(found[name] for name in used)):
            return language
    return TRITON


def _may_name(source: str, language: Language) -> bool:
    """Whether every word of one of the language's names is somewhere in the text; identifiers that are not ASCII may
    be spelled in several ways."""
    return not source.isascii() or any(all(word in source for word in root.split(".")) for root in language.roots)
