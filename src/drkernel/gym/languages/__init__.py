"""The languages that candidates may be written in, one file each. A new language is a file and an entry in
:data:`FOREIGN`."""

from __future__ import annotations

from drkernel.gym.languages import cuda, cute, gluon, helion, tilelang, triton
from drkernel.gym.languages.base import Language
from drkernel.gym.languages.reading import references

TRITON = triton.LANGUAGE
FOREIGN: tuple[Language, ...] = (cuda.LANGUAGE, cute.LANGUAGE, tilelang.LANGUAGE, helion.LANGUAGE, gluon.LANGUAGE)
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
