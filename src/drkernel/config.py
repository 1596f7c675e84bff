"""Typed configuration: one base class, one loader, one way to override.

Every config of drkernel is a pydantic model derived from :class:`Config`: unknown keys are errors that name what is
similar, values are frozen, and :func:`load_config` reads YAML plus ``key.sub=value`` overrides. A recipe, a command
line and a test therefore build the same object.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

VIEWS: dict[type, Callable[[Any], str]] = {}
"""HTML of records in notebooks; ``drkernel.notebook`` registers what it shows, which lies above the records."""


class Config(BaseModel):
    """Base of every config and record: frozen, and an unknown key is an error."""

    open_keys: ClassVar[bool] = False
    """Whether the section accepts keys of any name, such as the options of a method."""

    def _repr_html_(self) -> str | None:
        """Return how a notebook shows this record; None, so that it shows the text, where no view is registered."""
        view = VIEWS.get(type(self))
        return None if view is None else view(self)

    # NaN and infinity are written as strings: JSON has no numbers for them, and null would not round-trip
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class ConfigError(ValueError):
    """A config that cannot be used; the message names the key, the cause and the file."""


C = TypeVar("C", bound=BaseModel)


def load_config(
    cls: type[C],
    path: str | Path | None = None,
    overrides: Iterable[str] = (),
    *,
    base: Mapping[str, Any] | None = None,
    short: bool = False,
) -> C:
    """Read ``path`` (YAML) into ``cls`` over the values of ``base`` and apply ``a.b=value`` overrides (YAML values).

    A file whose ``extends`` names another, by its place beside it, says only what is different from that one.
    ``short`` lets an override name a key by its end, see :func:`complete_key`.
    Raises :class:`ConfigError` when the file is missing or malformed, a key is unknown or a value is of the wrong type.
    """
    data = merged(base or {}, _layers(Path(path)) if path is not None else {})
    for override in overrides:
        key, separator, raw = override.partition("=")
        if not separator or not key:
            raise ConfigError(f"override {override!r} is not of the form key=value (or section.key=value)")
        _set(data, complete_key(cls, key) if short else key, raw, override)
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_explain(error, path, cls)) from error


def _layers(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a file over those that it extends. Raises :class:`ConfigError` for files that extend each other."""
    if path.resolve() in above:
        raise ConfigError(f"{path} extends itself")
    data = read_yaml(path)
    parent = data.pop("extends", None)
    return data if parent is None else merged(_layers(path.parent / str(parent), (*above, path.resolve())), data)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping. Raises :class:`ConfigError` when it cannot be read or is no mapping."""
    try:
        loaded = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file: {error.reason} at byte {error.start}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if loaded is not None and not isinstance(loaded, Mapping):
        raise ConfigError(f"{path} must hold a mapping of keys, found {type(loaded).__name__}")
    return dict(loaded or {})


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge ``over`` into ``base``, section by section. A section that names a method replaces the old one entirely."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        sections = isinstance(old, Mapping) and isinstance(value, Mapping) and "name" not in value
        result[key] = merged(old, value) if sections else value  # type: ignore[arg-type]
    return result


def dump_config(config: BaseModel, changed: bool = False) -> str:
    """Return the config as YAML, with every default or only the ``changed`` keys; :func:`load_config` reads either."""
    values = config.model_dump(mode="json", exclude_defaults=changed)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def field_keys(cls: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key of a config in dotted form, with its field."""
    for name, field in cls.model_fields.items():
        yield prefix + name, field
        inner = _section(field.annotation)
        if inner is not None and not getattr(inner, "open_keys", False):
            yield from field_keys(inner, f"{prefix}{name}.")


def complete_key(cls: type[BaseModel], short: str) -> str:
    """Expand a key given by its unique ending to the full key: ``turns`` becomes ``episode.turns``.

    Dashes and underscores may replace dots (``--budget-dollars``). Under a key that accepts options of any name, the
    rest is kept as given. Raises :class:`ConfigError` when no key, or more than one, has this ending.
    """
    keys = dict(field_keys(cls))
    plain = short.replace("-", "_")
    head, rest = plain, ""
    while head:
        found = [head] if head in keys else [key for key in keys if _ends_with(key, head)]
        found = [key for key in found if not rest or _open(keys[key].annotation)]
        if len(found) == 1:
            return found[0] + rest
        if found:
            raise ConfigError(f"{short!r} could be {' or '.join(found)}; say which")
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    near = did_you_mean(plain, [end for key in keys for end in _ends(key)])
    raise ConfigError(f"unknown key {short!r}{near or '; --help lists them all'}")


def _ends(key: str) -> list[str]:
    """Yield every ending of a dotted key: 'a.b.c' gives 'a.b.c', 'b.c' and 'c'."""
    parts = key.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]


def _ends_with(key: str, end: str) -> bool:
    return any(each.replace(".", "_") == end.replace(".", "_") for each in _ends(key))


def _open(annotation: Any) -> bool:
    """Return whether a field of this type accepts keys of any name."""
    inner = _section(annotation)
    return getattr(inner, "open_keys", False) or "dict" in str(annotation)


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the model class of a field, whether or not the field may be None; None for a plain value."""
    for each in (annotation, *get_args(annotation)):
        if inspect.isclass(each) and issubclass(each, BaseModel):
            return each
    return None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return '; did you mean ...?' with the closest known names, or an empty string where none is close."""
    close = difflib.get_close_matches(word, list(dict.fromkeys(known)), n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def differences(old: BaseModel, new: BaseModel) -> list[tuple[str, Any, Any]]:
    """Return (dotted key, old value, new value) for every difference between two configs."""
    before, after = _flat(old.model_dump(mode="json")), _flat(new.model_dump(mode="json"))
    return [
        (key, before.get(key), after.get(key))
        for key in dict.fromkeys([*before, *after])
        if before.get(key) != after.get(key)
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return flat


def _set(data: dict[str, Any], key: str, raw: str, override: str) -> None:
    """Set one dotted key of ``data`` in place."""
    try:
        value = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error
    *sections, leaf = key.split(".")
    node = data
    for section in sections:
        child = node.get(section)
        if child is None:
            child = {}
        elif not isinstance(child, dict):
            raise ConfigError(f"override {override!r}: {section!r} is a value, not a section")
        node[section] = child = dict(child)
        node = child
    node[leaf] = value


def _explain(error: ValidationError, path: str | Path | None, cls: type[BaseModel]) -> str:
    """Turn a validation error into a message with one line per wrong key."""
    where = f" in {path}" if path is not None else ""
    lines = [f"invalid config{where}:"]
    for item in error.errors(include_url=False):
        key = ".".join(str(part) for part in item["loc"]) or "(root)"
        reason = item["msg"]
        if item["type"] == "extra_forbidden":
            reason = "unknown key" + _similar(key, [name for name, _ in field_keys(cls)])
        lines.append(f"  {key}: {reason}")
    return "\n".join(lines)


def _similar(key: str, known: list[str]) -> str:
    """Return '; did you mean ...?' for an unknown key: keys of its own section first, then of any other."""
    section, _, leaf = key.rpartition(".")
    for names in ([name for name in known if name.rpartition(".")[0] == section], known):
        last = {name: name.rpartition(".")[2] for name in names}
        close = difflib.get_close_matches(leaf, list(dict.fromkeys(last.values())), n=2, cutoff=0.7)
        if close:
            return f"; did you mean {' or '.join([name for name in names if last[name] in close][:3])}?"
    return ""
