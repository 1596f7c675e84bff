"""Options of commands from the fields of config classes: name, type, default, bounds and help stand in the class alone.

A command takes a record of a config, and names the fields that are its options::

    @spread
    def grade(settings: Annotated[EvalSettings, Fields("device", deadline="deadline_s")] = EvalSettings()): ...
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import typer
from pydantic import BaseModel, Field, ValidationError, field_validator

from drkernel.config import Config, ConfigError, field_keys
from drkernel.gym.request import Pool

if TYPE_CHECKING:
    from drkernel.gym.pools.local import LocalPool


def command_line(**terms: Any) -> typer.Typer:
    """A command's application: help in plain text, which no narrow terminal cuts; errors pass to the entry point."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, **terms)


class Fields:
    """The fields of a parameter's config that are options of a command.

    ``names`` are options of a field's own name; ``renamed`` gives further ones a dotted key, or the key and a default
    that is the command's own.
    """

    def __init__(self, *names: str, **renamed: str | tuple[str, Any]):
        chosen = {name: name for name in names} | renamed
        self.keys = {option: key if isinstance(key, str) else key[0] for option, key in chosen.items()}
        self.defaults = {option: key[1] for option, key in chosen.items() if not isinstance(key, str)}

    def parameters(self, config: type[BaseModel]) -> Iterator[inspect.Parameter]:
        """The options as parameters of a command."""
        known = dict(field_keys(config))
        for option, key in self.keys.items():
            field = known[key]
            default = self.defaults.get(option, None if field.default == () else field.default)
            tail = (r"; None\b.*", "") if default is not None else (r"\bNone\b:?", "default:")
            told = typer.Option(help=re.sub(*tail, field.description or ""))
            hint = _shown(field.annotation, told, field.metadata)
            yield inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)

    def record(self, config: type[BaseModel], given: dict[str, Any]) -> BaseModel:
        """Take the options' values from ``given``. Raises :class:`ConfigError` that names a wrong one."""
        values: dict[str, Any] = {}
        for option, key in self.keys.items():
            *sections, last = key.split(".")
            section = functools.reduce(lambda found, name: found.setdefault(name, {}), sections, values)
            if (value := given.pop(option)) is not None:
                section[last] = value
        try:
            return config.model_validate(values)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            named = [f"--{option.replace('_', '-')}: " for option, known in self.keys.items() if known == key]
            raise ConfigError(f"{''.join(named)}{first['msg'].removeprefix('Value error, ')}") from None


SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _shown(annotation: Any, told: Any, bounds: Sequence[Any] = ()) -> Any:
    """What typer is told of a type: a list for a tuple. Choices and bounds are shown; the config checks them."""
    kind, *others = [kind for kind in get_args(annotation) if kind is not type(None)] or [annotation]
    if type(None) in get_args(annotation) and not others:
        return _shown(kind, told, bounds)
    signs = [f"x{sign}{getattr(one, name):g}" for one in bounds for name, sign in SIGNS.items() if hasattr(one, name)]
    if signs:
        vars(told).update(metavar=f"<{kind.__name__}> {', '.join(signs)}")
    if get_origin(annotation) is Literal:
        vars(told).update(metavar="|".join(get_args(annotation)))
        kind = str
    elif get_origin(annotation) is tuple:
        kind = list[kind]  # type: ignore[valid-type]
    return Annotated[kind if kind is bool else kind | None, told]


def spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with options for the parameters annotated with :class:`Fields`, and choices for literals."""
    groups: dict[str, tuple[Fields, Any]] = {}
    choices: dict[str, tuple[str, ...]] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(function, include_extras=True)
    for name, one in inspect.signature(function).parameters.items():
        kind, told = getattr(hints[name], "__origin__", hints[name]), getattr(hints[name], "__metadata__", [None])[0]
        if isinstance(told, Fields):
            groups[name] = told, kind
            parameters += told.parameters(kind)
            continue
        hint = hints[name]
        for literal in (each for each in (kind, *get_args(kind)) if get_origin(each) is Literal):
            choices[name], hint = get_args(literal), _shown(literal, told)
        parameters.append(one.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        for name, known in choices.items():
            if given[name] not in (*known, None):
                raise ConfigError(f"--{name} {given[name]}: it is one of {', '.join(known)}")
        records = {name: fields.record(config, given) for name, (fields, config) in groups.items()}
        return function(**given, **records)

    vars(command)["__signature__"] = inspect.Signature(parameters)
    return command


# ---- Who grades: options of several commands


class Graders(Config):
    """Who evaluates what a command has graded: a service, or this machine within its bounds."""

    pool: str | None = Field(
        None,
        description="grade by a service, e.g. http://127.0.0.1:8765 (its token in DRKERNEL_TOKEN); None: this machine",
    )
    slots: int | None = Field(None, ge=1, description="evaluations at once; None: one a core")
    memory_gib: float | None = Field(
        None,
        ge=0.1,
        description="GiB that the judge may take for one evaluation; None: a quarter of the machine's memory",
    )
    total_memory_gib: float | None = Field(
        None,
        ge=0.1,
        description="GiB that all evaluations at once may hold; None: three quarters of the machine's memory",
    )

    @field_validator("pool")
    @classmethod
    def _is_address(cls, url: str | None) -> str | None:
        check_address(url)
        return url

    @property
    def memory(self) -> dict[str, Any]:
        """The bounds of memory as :class:`~drkernel.gym.pools.local.LocalPool` takes them."""
        return {"memory_bytes": to_bytes(self.memory_gib), "total_bytes": to_bytes(self.total_memory_gib)}

    def here(self, slots: int | None = None, **terms: Any) -> LocalPool:
        """Return a pool of this machine, of so many slots; ``terms`` are further options of it."""
        from drkernel.gym.pools.local import LocalPool

        return LocalPool(slots=slots or self.slots, **self.memory, **terms)

    def check(self) -> None:
        """Ask the service something small: a run of hours must not find out answer by answer that it is not there, or
        that the token is wrong. Raises :class:`ConfigError`."""
        if self.pool is not None:
            from drkernel.serve.client import Client, ServiceError

            with Client(self.pool, retries=5) as client:
                try:
                    client.find(limit=1)
                except ServiceError as error:
                    raise ConfigError(f"--pool: {error}") from None

    def open(self) -> Pool:
        """Return the service's pool, or one of this machine."""
        if self.pool is None:
            return self.here()
        from drkernel.serve.client import HttpPool

        return HttpPool(self.pool)

    @asynccontextmanager
    async def grading(self) -> AsyncIterator[Pool]:
        """The pool of :meth:`open` while the block runs."""
        pool = self.open()
        try:
            yield pool
        finally:
            await pool.close()


MOST_GIB = 2.0**20


def to_bytes(gib: float | None) -> int | None:
    """Convert an option in GiB to bytes; more than any machine has is taken as that."""
    return None if gib is None else int(min(gib, MOST_GIB) * 2**30)


def check_address(url: str | None) -> None:
    """Raise :class:`ConfigError` for what is no address of a service, http://HOST[:PORT] or https://HOST[:PORT]."""
    try:
        parts = urlsplit(url or "http://here")
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        right = False
    if not right:
        raise ConfigError(f"{url!r} is not the address of a service, which looks like http://127.0.0.1:8765")
