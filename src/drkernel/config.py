"""Typed configuration: one base class, one loader, one way to override.

Every config of drkernel is a pydantic model derived from :class:`Config`: unknown keys are errors, values are frozen
once made, and :func:`load_config` reads YAML plus ``key.sub=value`` overrides, so that a recipe, a command line and a
test all make the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError


class Config(BaseModel):
    """Base of every config and record: frozen, and an unknown key is an error."""

    # NaN and infinity are written as strings: JSON has no numbers for them, and null would not read back
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class ConfigError(ValueError):
    """A config that cannot be used; the message names the key, the cause and the file."""


C = TypeVar("C", bound=BaseModel)


def load_config(cls: type[C], path: str | Path | None = None, overrides: Iterable[str] = ()) -> C:
    """Read ``path`` (YAML) into ``cls`` and apply ``a.b=value`` overrides (values parsed as YAML).

    Raises :class:`ConfigError` when the file is missing or malformed, a key is unknown or a value is of the wrong type.
    """
    data: dict[str, Any] = {}
    if path is not None:
        try:
            loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read config {path}: {error.strerror}") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is not valid YAML: {error}") from error
        if loaded is not None and not isinstance(loaded, Mapping):
            raise ConfigError(f"{path} must hold a mapping of keys, found {type(loaded).__name__}")
        data = dict(loaded or {})
    for override in overrides:
        _apply_override(data, override)
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_explain(error, path)) from error


def dump_config(config: BaseModel) -> str:
    """The config as YAML, every default written out; :func:`load_config` reads it back to an equal object."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _apply_override(data: dict[str, Any], override: str) -> None:
    """Set one dotted key of ``data`` in place."""
    key, separator, raw = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"override {override!r} is not of the form key=value (or section.key=value)")
    try:
        value = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error
    *sections, leaf = key.split(".")
    node = data
    for section in sections:
        child = node.setdefault(section, {})
        if not isinstance(child, dict):
            raise ConfigError(f"override {override!r}: {section!r} is a value, not a section")
        node = child
    node[leaf] = value


def _explain(error: ValidationError, path: str | Path | None) -> str:
    """A message a person can act on: one line per wrong key."""
    where = f" in {path}" if path is not None else ""
    lines = [f"invalid config{where}:"]
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(root)"
        reason = "unknown key" if item["type"] == "extra_forbidden" else item["msg"]
        lines.append(f"  {key}: {reason}")
    return "\n".join(lines)
