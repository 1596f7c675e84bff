"""What commands share: output, and terms read from a YAML file, ``key=value`` and ``--key value``."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drkernel.config import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from drkernel.episode.meter import Meter
    from drkernel.episode.records import Answerer
    from drkernel.solve.config import BenchConfig
    from drkernel.task import Task


HOST_HELP = (
    "a simulated GPU's host: cloud, modal, ..., or seconds of one small operator there (12.5us; doctor --host), "
    "as in sim:h200@12.5us"
)

# ---- Reads a command's terms from its command line


SECRET = re.compile(r"api_?key|authorization|secret|password|(^|[._-])(access|auth|bearer)?_?token$", re.IGNORECASE)
"""Names of request fields that would hold a key."""
FREE_FORM = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Of a typer command whose keys are those of a config."""


@dataclass(frozen=True)
class Given:
    """The arguments of a command line besides the command's own options."""

    config: Path | None
    """A YAML file."""
    overrides: list[str]
    """key=value"""
    others: list[str]
    """Arguments that are neither."""


def parse(arguments: Sequence[str]) -> Given:
    """Sort arguments into files, keys and others. ``--key value``, ``--key=value`` and ``key=value`` are the same; a
    ``--key`` without a value is true. Raises :class:`ConfigError` for a second file."""
    config: Path | None = None
    overrides: list[str] = []
    others: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word.startswith("--"):
            if "=" not in word:
                follows = waiting and not waiting[0].startswith("--")
                word = f"{word}={waiting.pop(0) if follows else 'true'}"
            overrides.append(word[2:])
        elif re.match(r"[A-Za-z_][\w.-]*=", word):
            overrides.append(word)
        elif word.endswith((".yaml", ".yml")):
            if config is not None:
                raise ConfigError(f"two files of terms: {config} and {word}")
            config = Path(word)
        else:
            others.append(word)
    return Given(config, overrides, others)


def load(kind: str, given: Given, **keys: str) -> BenchConfig:
    """Load the config of ``bench`` or ``solve``; ``keys`` are further values. Raises :class:`ConfigError`."""
    from drkernel.solve.config import load_terms

    config = load_terms(kind, given.config, [*given.overrides, *(f"{key}={value}" for key, value in keys.items())])
    for name in config.sampling.extra:
        if SECRET.search(name):
            raise ConfigError(
                f"sampling.extra.{name}: terms are written to the run's directory; keys come from the environment "
                "(endpoint.key_env)"
            )
    if config.budget.dollars is not None and config.prices is None:
        raise ConfigError("budget.dollars needs prices: give prices.prompt and prices.completion")
    return config


def open_answerer(config: BenchConfig) -> Answerer:
    """Open the model that the config names. Raises :class:`ConfigError`."""
    from drkernel.solve.config import open_model

    terms = config.endpoint
    client = open_model(
        config.model, base_url=terms.base_url, key_env=terms.key_env, sampling=config.sampling, timeout=terms.timeout,
        agent=config.agent,
    )  # fmt: skip
    client.name = config.model_name or client.name
    return client


def open_meter(config: BenchConfig, client: Answerer, directory: Path) -> Meter:
    """Wrap the model in cache, limits and budget."""
    from drkernel.episode.meter import Meter, ReplyCache

    cache = ReplyCache(Path(config.cache) if config.cache else directory / "replies.sqlite")
    return Meter(client, cache=cache, limits=config.limits, prices=config.prices, budget=config.budget)


def announce(config: BenchConfig, quiet: bool) -> None:
    """Print the keys that differ from the defaults."""
    from drkernel.config import dump_config

    if not quiet:
        print(dump_config(config, changed=True), file=sys.stderr)


def keys_help(kind: str) -> str:
    """Return a line for every key of the config: name, default, meaning."""
    from drkernel.config import field_keys, merged
    from drkernel.solve.config import DEFAULTS, BenchConfig

    plain: dict[str, Any] = BenchConfig(model="").model_dump(mode="json")
    defaults = merged(plain, DEFAULTS[kind])
    lines = []
    for key, field in field_keys(BenchConfig):
        value: Any = defaults
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if field.description and key not in ("kind", "schema_version"):
            default = "" if value in (None, "", {}) else f" [{value}]"
            lines.append(f"  {key}{default}: {field.description}")
    return "\b\n" + "\n".join(lines)


def output() -> Console:
    """Standard output, as wide as its terminal (or COLUMNS); in a pipe wide enough that no source line is broken."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=PIPED if piped else None)


PIPED = 200
"""columns of output that no terminal shows"""


def write_page(directory: Path, live: bool = False) -> Path:
    """Write the page of a run; its path."""
    from drkernel.report.bench import write_report  # loads torch

    return write_report(directory, live)


class LivePage:
    """Rewrites a run's page while the run goes on: at most every ten seconds, for a fiftieth of the time."""

    def __init__(self, directory: Path):
        self.directory, self.next = directory, 0.0

    def __call__(self) -> None:
        start = time.monotonic()
        if start >= self.next:
            write_page(self.directory, live=True)
            self.next = time.monotonic() + max(10.0, 50 * (time.monotonic() - start))


def tracked(tasks: list[Task], what: str, quiet: bool) -> Iterable[Task]:
    """The tasks, with a bar of how far they are on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import track

    hidden = quiet or not sys.stderr.isatty()
    return track(tasks, what, console=Console(stderr=True), disable=hidden, transient=True)


def no_profile(task: Task, profile: str) -> str:
    """Say which size profiles a task has."""
    return f"task {task.id} has no size profile {profile!r}; it has: {', '.join(task.profiles) or 'none'}"


def one_thread() -> None:
    """Use one thread: judges compare small tensors, and threads cost more than they gain."""
    import torch

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
