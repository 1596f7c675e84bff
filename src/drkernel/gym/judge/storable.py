"""Makes verdicts whose text any store can write."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticSerializationError

from drkernel.verdict import Verdict


def storable(fields: dict[str, Any]) -> Verdict:
    """Build the verdict with text that UTF-8 can encode: a candidate's messages may hold lone surrogates."""
    verdict = Verdict(**fields)
    try:
        verdict.model_dump_json()
    except PydanticSerializationError:
        return Verdict.model_validate(_encodable(verdict.model_dump()))
    return verdict


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_encodable(item) for item in value)
    return value
