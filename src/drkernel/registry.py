"""Names for functions, so that a recipe can say ``advantage: trloo``; and plug-ins, which add names of their own.

A registry holds the functions of one kind. Those that users can extend, with the signatures they expect:

- ``drkernel.rl.run.registry``: ``advantage``, ``loss``, ``schedule``, ``mismatch``, ``rejection``
- ``drkernel.episode.context``: ``policies``
- ``drkernel.gym.reward``: ``rewards``

A recipe with ``plugins: [my_package.module]`` imports that module before anything is looked up by name; see
docs/plugins.md.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from pydantic import Field, model_validator

from drkernel.config import Config, ConfigError

F = TypeVar("F", bound=Callable[..., Any])


class Registry(Generic[F]):
    """Functions of one kind by name."""

    def __init__(self, kind: str, *, makers: bool = False) -> None:
        """``makers``: the functions make something from options alone, so that all their parameters are options."""
        self.kind, self.makers = kind, makers
        self._entries: dict[str, F] = {}

    def register(self, name: str) -> Callable[[F], F]:
        """Decorator that files a function under ``name``. Raises ValueError when the name is taken."""

        def file(function: F) -> F:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} exists already; choose another name")
            self._entries[name] = function
            return function

        return file

    def get(self, name: str) -> F:
        """The function called ``name``. Raises ValueError with the known names."""
        if name not in self._entries:
            raise ValueError(f"unknown {self.kind} {name!r}; known: {', '.join(self.names())}")
        return self._entries[name]

    def names(self) -> list[str]:
        """Known names, sorted."""
        return sorted(self._entries)

    def check(self, key: str, name: str, options: Mapping[str, Any], *, given: Collection[str] = ()) -> None:
        """Raise :class:`ConfigError` when ``name`` is unknown or does not take one of ``options``.

        ``key`` is the config key to name in the message. Options are the function's parameters that have a default or
        are keyword-only, without those in ``given``, which the caller fills in itself.
        """
        try:
            function = self.get(name)
        except ValueError as error:
            raise ConfigError(f"{key}: {error}") from None
        known = {
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if self.makers or parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty
        } - set(given)
        for option in options:
            if option not in known:
                has = ", ".join(sorted(known)) or "none"
                raise ConfigError(f"{key}: {name} has no option {option!r}; it has: {has}")


class Method(Config):
    """A function of a registry by name, with its options. ``best``, ``{name: best, keep: 2}`` and
    ``{name: best, options: {keep: 2}}`` are accepted; the first takes the function's own defaults."""

    open_keys = True

    name: str
    options: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the function")

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, dict):
            return value
        beside = {key: item for key, item in value.items() if key not in ("name", "options")}
        rest = {key: item for key, item in value.items() if key in ("name", "options")}
        return {**rest, "options": {**(value.get("options") or {}), **beside}} if beside else rest


def load_plugins(modules: Iterable[str]) -> None:
    """Import the modules called ``modules``, from the current directory too, so that what they register is known.

    Importing twice does nothing. Raises :class:`ConfigError` that names the module and the cause.
    """
    here = os.getcwd()
    for name in modules:
        added = here not in sys.path
        if added:
            sys.path.insert(0, here)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise ConfigError(
                f"plugins: cannot import {name!r}: {type(error).__name__}: {error} (modules are looked for where the "
                "command is run and among installed packages)"
            ) from error
        finally:
            if added:
                sys.path.remove(here)
