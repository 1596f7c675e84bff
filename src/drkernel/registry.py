"""Registries: functions by name, so that a recipe can say ``advantage: trloo``, and plug-ins, which add more names.

A registry holds the functions of one kind. Users can extend these; each module documents the signature it expects:

- ``drkernel.rl.run.rollout``: ``shapes``
- ``drkernel.rl.run.registry``: ``advantage``, ``loss``, ``schedule``, ``mismatch``, ``rejection``
- ``drkernel.rl.data.coldstart``: ``filters``
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

from pydantic import Field, ValidationError, model_validator

from drkernel.config import Config, ConfigError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


class Registry(Generic[F]):
    """Functions of one kind by name."""

    def __init__(self, kind: str, *, makers: bool = False) -> None:
        """``kind`` names the functions in error messages. With ``makers``, every parameter of a function counts as an
        option."""
        self.kind, self.makers = kind, makers
        self._entries: dict[str, F] = {}

    def register(self, name: str) -> Callable[[F], F]:
        """Return a decorator that registers a function as ``name``. Raises ValueError when the name is taken."""

        def file(function: F) -> F:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} exists already; choose another name")
            self._entries[name] = function
            return function

        return file

    def get(self, name: str) -> F:
        """Return the function called ``name``. Raises ValueError, listing the known names, when there is none."""
        if name not in self._entries:
            known = self.names()
            raise ValueError(f"unknown {self.kind} {name!r}; known: {', '.join(known)}{did_you_mean(name, known)}")
        return self._entries[name]

    def names(self) -> list[str]:
        """Return the known names, sorted."""
        return sorted(self._entries)

    def check(self, key: str, name: str, options: Mapping[str, Any], *, given: Collection[str] = ()) -> None:
        """Raise :class:`ConfigError` when ``name`` is unknown or does not take one of ``options``.

        ``key`` is the config key that the message names. The options are the function's parameters that have a default
        or are keyword-only, except those in ``given``, which the caller supplies itself.
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
                near = did_you_mean(option, known)
                raise ConfigError(f"{key}: {name} has no option {option!r}; it has: {has}{near}")

    def make(self, key: str, method: Method) -> Any:
        """Return what the maker that ``method`` names gives.

        Raises :class:`ConfigError`, naming the config's ``key``, for an unknown name or option, or an invalid value."""
        self.check(key, method.name, method.options)
        try:
            return self.get(method.name)(**method.options)
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            raise ConfigError(f"{key}: {method.name}: {'; '.join(wrong)}") from None


class Method(Config):
    """A registered function, by name, with its options.

    Accepted forms: ``best`` (the function's defaults), ``{name: best, keep: 2}`` and
    ``{name: best, options: {keep: 2}}``.
    """

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
    """Import ``modules``, also from the current directory, so that the functions they register are known.

    Importing a module twice has no further effect. Raises :class:`ConfigError` naming the module and the cause.
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
