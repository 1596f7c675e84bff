"""Pieces of TTIR's text: lists, attributes, strings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ttir_executor.ttir.ir import TTIRError

_DOT_SCALED = re.compile(r"^ *%\S+( scale %\S+)?, %\S+( scale %\S+)?, %\S+ lhs = (\w+) rhs = (\w+)")


def places_outside(text: str, separator: str) -> Iterator[int]:
    """Yield the places of ``separator`` outside brackets and quotes."""
    depth, quoted = 0, False
    for k, ch in enumerate(text):
        if ch == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif ch in "(<[{":
            depth += 1
        elif ch in ")]}" or (ch == ">" and text[k - 1] != "-"):
            depth -= 1
        elif ch == separator and depth == 0:
            yield k


def split_top(text: str, separator: str = ",") -> list[str]:
    """Split at ``separator`` outside brackets and quotes; empty text gives no parts."""
    parts, start = [], 0
    for k in places_outside(text, separator):
        parts.append(text[start:k].strip())
        start = k + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail or parts else []


def scaled(head: str) -> dict[str, str]:
    """Of ``%a scale %s, %b scale %t, %c lhs = e4m3 rhs = e2m1 {fastMath = false, rhs_k_pack = false}``."""
    match = _DOT_SCALED.match(head)
    if match is None:
        raise TTIRError(f"malformed tt.dot_scaled {head[:160]!r}")
    first, second, lhs, rhs = match.groups()
    packed = {f"{side}_k_pack": str(f"{side}_k_pack = false" not in head).lower() for side in ("lhs", "rhs")}
    scaled = {"lhs_scaled": str(first is not None).lower(), "rhs_scaled": str(second is not None).lower()}
    return {"lhs": lhs, "rhs": rhs, **packed, **scaled}


def unescape(text: str) -> str:
    """MLIR's string escapes: two hexadecimal digits, or the character itself."""
    return re.sub(
        r"\\([0-9A-Fa-f]{2}|.)", lambda m: chr(int(m.group(1), 16)) if len(m.group(1)) == 2 else m.group(1), text
    )


def unparen(text: str) -> str:
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def attributes(head: str) -> dict[str, str]:
    """``{key = value : type, ...}`` and bare ``key = value`` as strings, plus leading keywords under their position."""
    attrs: dict[str, str] = {}
    words = []
    for part in _attribute_parts(head):
        key, eq, value = part.partition(" = ")
        if eq and re.fullmatch(r"[A-Za-z_.]+", key.strip()):
            attrs[key.strip()] = re.sub(r" : [\w<>]+$", "", value.strip())
        elif re.fullmatch(r"[a-z_0-9]+", part.strip()):
            words.append(part.strip())
    for k, word in enumerate(words):
        attrs[f"word{k}"] = word
    return attrs


def _attribute_parts(head: str) -> Iterator[str]:
    text = re.sub(r"<\{", "{", head).replace("}>", "}")
    for chunk in re.findall(r"\{([^{}]*)\}", text):
        yield from split_top(chunk)
    bare = re.sub(r"\{[^{}]*\}", "", text)
    yield from split_top(bare)
