"""Options that every command which asks a model has, and what is made of them."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from drkernel.episode.chat import Sampling
    from drkernel.episode.meter import Budget, Limits, Meter, Prices

USAGE = 2
SECRET = re.compile(r"api_?key|authorization|secret|password|(^|[._-])(access|auth|bearer)?_?token$", re.IGNORECASE)
"""Names of request fields that would hold a key."""

Model = Annotated[str, typer.Option(help="openai:NAME, hf:PATH, command:PROGRAM or script:PATH")]
BaseUrl = Annotated[
    str | None, typer.Option(help="address of an OpenAI-compatible endpoint, e.g. http://localhost:8000/v1")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        help="what the run and the cache call the model (default: --model with its address, which binds both)"
    ),
]
KeyEnv = Annotated[str | None, typer.Option(help="environment variable with the key (default: OPENAI_API_KEY)")]
Temperature = Annotated[float | None, typer.Option(min=0, help="of the answers; a negative number is refused")]
TopP = Annotated[float | None, typer.Option(help="nucleus of the answers")]
MaxTokens = Annotated[int, typer.Option(min=1, help="token budget of one answer")]
Seed = Annotated[int | None, typer.Option(help="seed of the answers, where the model takes one")]
Extra = Annotated[
    list[str] | None, typer.Option("--extra", help="KEY=VALUE (YAML) for the request, as it is; repeatable")
]
Concurrency = Annotated[int, typer.Option(min=1, help="requests at once")]
Rpm = Annotated[float | None, typer.Option(help="requests a minute at most")]
Tpm = Annotated[float | None, typer.Option(help="tokens a minute at most, prompts and granted answers together")]
Tries = Annotated[int, typer.Option(min=1, help="requests for one answer before it counts as failed")]
Timeout = Annotated[float, typer.Option(help="seconds without a byte (or of a command) until a request has failed")]
PriceIn = Annotated[float | None, typer.Option(help="dollars for a million prompt tokens")]
PriceOut = Annotated[float | None, typer.Option(help="dollars for a million completion tokens")]
PriceCached = Annotated[float | None, typer.Option(help="dollars for a million cached prompt tokens")]
BudgetTokens = Annotated[int | None, typer.Option(help="stop when the answers took so many tokens")]
BudgetDollars = Annotated[float | None, typer.Option(help="stop when the answers cost so much")]
BudgetMinutes = Annotated[float | None, typer.Option(help="stop after so many minutes")]
Cache = Annotated[Path | None, typer.Option(help="SQLite file of replies shared by runs (default: in the run)")]
PromptSet = Annotated[str, typer.Option(help="full, compact, or a directory that 'drkernel prompts --out DIR' wrote")]


def fail(command: str, message: str) -> NoReturn:
    """Say what is wrong and end with the code of wrong usage."""
    print(f"drkernel {command}: {message}", file=sys.stderr)
    raise SystemExit(USAGE)


def printable(text: str) -> str:
    """Text of a model, an endpoint or a candidate without what would steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def plain(error: Exception) -> str:
    """A validation error as one line an option; others as they are."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())


def make_sampling(
    temperature: float | None, top_p: float | None, max_tokens: int, seed: int | None, extra: list[str] | None
) -> Sampling:
    """Raises :class:`ConfigError` for an ``extra`` that is no KEY=VALUE, or looks like a key."""
    from drkernel.config import ConfigError, load_config
    from drkernel.episode.chat import Sampling

    for name in (item.partition("=")[0] for item in extra or []):
        if SECRET.search(name):
            raise ConfigError(
                f"--extra {name}: terms are written to the run's directory; keys come from the environment (--key-env)"
            )
    values: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed}
    return load_config(Sampling, None, [f"extra.{item}" for item in extra or []]).model_copy(update=values)


def make_prices(prompt: float | None, completion: float | None, cached: float | None) -> Prices | None:
    """Raises :class:`ConfigError` for half of a price list."""
    from drkernel.config import ConfigError
    from drkernel.episode.meter import Prices

    if prompt is None and completion is None and cached is None:
        return None
    if prompt is None or completion is None:
        raise ConfigError("prices need both --price-in and --price-out")
    return Prices(prompt=prompt, completion=completion, cached=cached)


def make_meter(client: Any, cache: Path, limits: Limits, prices: Prices | None, budget: Budget) -> Meter:
    """A model with cache, limits and budget around it."""
    from drkernel.config import ConfigError
    from drkernel.episode.journal import ReplyCache
    from drkernel.episode.meter import Meter

    try:
        return Meter(client, cache=ReplyCache(cache), limits=limits, prices=prices, budget=budget)
    except ValueError as error:
        raise ConfigError(f"{error}: give --price-in and --price-out") from error


def default_profile(device: str, profile: str | None) -> str | None:
    """'tiny' on a simulated GPU, 'full' on a real one, unless asked otherwise."""
    if profile is not None:
        return None if profile == "none" else profile
    from drkernel.gym.device import parse_device

    return "tiny" if parse_device(device).simulated else "full"


def one_thread() -> None:
    """Judges compare small tensors; threads cost more than they give."""
    import torch

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
