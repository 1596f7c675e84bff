"""Extracts the candidate's source from a model's answer: the last fenced Python block that defines the module."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+.-]*)[^\n]*$", re.MULTILINE)
_DEFINES = re.compile(r"^(class[ \t]+ModelNew\b|ModelNew[ \t]*[:=])", re.MULTILINE)
_PYTHON = ("python", "py", "python3", "triton", "")
MAX_SOURCE_BYTES = 1 << 20


class ExtractError(ValueError):
    """There is no usable code in the text; the message says what was expected and can be shown to the model."""


def extract_code(text: str) -> str:
    """Return the last fenced Python block that defines ``ModelNew``, else the last that mentions it, else the last one.

    Only text after a closing ``</think>`` counts. A block without a language counts as Python; one that is indented
    with its fence (in a list) is dedented. A last block without a closing fence is accepted if it is a complete module,
    and so is a text that is nothing but a module. Raises :class:`ExtractError` for a text that was cut off within the
    code, or that has no block at all.
    """
    if "\0" in text:
        raise ExtractError("The answer contains NUL bytes.")
    text = text.rpartition("</think>")[2].replace("\ufeff", "")
    blocks, open_block = _blocks(text)
    if open_block is not None:
        open_block = re.sub(r"`{3,}\s*\Z", "\n", open_block)  # a closing fence behind the last line of code
        if not _parses(open_block):
            raise ExtractError("The answer was cut off inside its code block: the closing ``` is missing.")
        blocks.append(("python", open_block))
    elif not blocks and _parses(text):
        blocks.append(("python", text))
    python = [body for language, body in blocks if language.lower() in _PYTHON and body.strip()]
    if not python:
        if blocks:
            languages = ", ".join(sorted({language or "none" for language, _ in blocks}))
            raise ExtractError(f"There is no ```python block in the answer, only blocks of language: {languages}.")
        raise ExtractError("There is no ```python code block in the answer. Put the whole module in one such block.")
    defining = [body for body in python if _DEFINES.search(body)]
    naming = [body for body in python if "ModelNew" in body]
    source = (defining or naming or python)[-1]
    if len(source.encode("utf-8", "surrogatepass")) > MAX_SOURCE_BYTES:
        raise ExtractError(f"The code block is larger than {MAX_SOURCE_BYTES} bytes.")
    return source


def _blocks(text: str) -> tuple[list[tuple[str, str]], str | None]:
    """Closed blocks as (language, body), and the body of a block that never closes."""
    blocks: list[tuple[str, str]] = []
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is None:
            opening = fence
        elif fence[1][0] == opening[1][0] and len(fence[1]) >= len(opening[1]) and not fence[2]:
            blocks.append((opening[2], _body(opening, text[opening.end() + 1 : fence.start()])))
            opening = None
        elif fence[2]:
            opening = fence  # a new block opens though the last was not closed: the later one counts
    if opening is None or opening[2].lower() not in _PYTHON:
        return blocks, None
    return blocks, _body(opening, text[opening.end() + 1 :])


def _body(opening: re.Match[str], text: str) -> str:
    """Return the lines of a block without the indentation of its opening fence."""
    indent = opening[0][: len(opening[0]) - len(opening[0].lstrip(" \t"))]
    return re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) if indent else text


def _parses(source: str) -> bool:
    """Return whether a block without a closing fence is nevertheless a complete module."""
    import ast

    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body)
