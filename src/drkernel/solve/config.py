"""The terms of a benchmark or a search: one typed file whose keys can all be overridden on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from drkernel.config import Config, ConfigError, load_config
from drkernel.episode.answerers.agent import AgentTerms
from drkernel.episode.chat import Sampling
from drkernel.episode.episode import EpisodeConfig
from drkernel.episode.meter import Budget, CallLimits, Prices
from drkernel.gym.device import parse_device
from drkernel.registry import Method, load_plugins
from drkernel.task import Precision


class Endpoint(Config):
    """Address, key and timeout of a hosted model."""

    base_url: str | None = Field(None, description="an OpenAI-compatible endpoint, e.g. http://localhost:8000/v1")
    key_env: str | None = Field(None, description="environment variable with the key; None: OPENAI_API_KEY")
    timeout: float = Field(120.0, gt=0, description="seconds without a byte (or of a program) until a request failed")


class TaskChoice(Config):
    """Selection of tasks from the spec."""

    level: int | None = Field(None, description="only tasks of this level")
    tag: str | None = Field(None, description="only tasks with this tag")
    match: str | None = Field(None, description="only tasks whose id contains this text")
    limit: int | None = Field(None, ge=1, description="number of tasks, taken evenly from the list")
    precision: Precision | None = Field(None, description="declared precision of foreign tasks; None: fp32")
    ill_conditioned: bool = Field(False, description="keep tasks that the gate finds ill-conditioned")


class BenchConfig(Config):
    """Everything that determines a run's results and limits its cost."""

    schema_version: Literal[3] = 3
    kind: Literal["bench", "solve"] = Field("bench", description="a benchmark, or the search for one task's kernel")
    model: str = Field(description="openai:NAME, hf:PATH, command:PROGRAM, agent:COMMAND or script:PATH")
    model_name: str | None = Field(
        None, description="what run and cache call the model; None: as given, with its address"
    )
    endpoint: Endpoint = Endpoint()
    agent: AgentTerms = AgentTerms()
    tasks: str = Field(
        "builtin",
        description="builtin[/levelN], kernelbench:DIR, flashinfer:DIR, robust-kbench:DIR, parquet:FILE, "
        "jsonl:FILE, file:PATH, a path or generated:heldout[:COUNT] (the families that the quickstart holds out)",
    )
    choose: TaskChoice = TaskChoice()
    samples: int = Field(1, ge=1, description="trajectories per task")
    episode: EpisodeConfig = EpisodeConfig()
    breadth: int = Field(1, ge=1, description="answers per turn; the conversation continues from the best by reward")
    context_tokens: int | None = Field(
        None,
        ge=1,
        description="conversation and answer may not exceed this: the context policy shows less, or the trajectory "
        "ends; None asks until the model refuses",
    )
    sampling: Sampling = Sampling()
    judge_seed: int | None = Field(None, description="makes verdicts repeatable; None: secret seeds")
    limits: CallLimits = CallLimits()
    prices: Prices | None = Field(None, description="dollars for a million tokens; with them costs are shown")
    budget: Budget = Budget()
    plugins: tuple[str, ...] = Field((), description="modules of your own to import first, see docs/plugins.md")
    cache: str | None = Field(None, description="SQLite file of replies that runs share; None: in the run")


DEFAULTS: dict[str, dict[str, Any]] = {
    "bench": {"kind": "bench"},
    "solve": {
        "kind": "solve",
        # sequential test-time scaling as in the paper: 14 turns, at every one the best four so far
        "episode": {"turns": 14, "infra": "skip", "context": {"name": "best", "keep": 4}},
    },
}
"""Defaults of a command that differ from the class's own."""


def load_terms(kind: str, path: Path | None = None, overrides: Iterable[str] = ()) -> BenchConfig:
    """Load a command's config: its defaults, then a YAML file, then ``key=value`` overrides with full or shortened
    keys.

    Unless given, the size profile of built-in tasks is ``tiny`` on a simulated GPU and ``full`` on a real one. Raises
    :class:`ConfigError` for an unknown key, naming similar ones, and for another command's file.
    """
    config = load_config(BenchConfig, path, overrides, base=DEFAULTS[kind], short=True)
    if config.kind != kind:
        raise ConfigError(f"{path} holds the terms of drkernel {config.kind}, not of {kind}")
    load_plugins(config.plugins)
    config = _of_agent(config)
    config.episode.check()
    settings = config.episode.settings
    if "profile" in settings.model_fields_set:
        return config
    sized = settings.model_copy(update={"profile": default_profile(settings.device)})
    return config.model_copy(update={"episode": config.episode.model_copy(update={"settings": sized})})


def _of_agent(config: BenchConfig) -> BenchConfig:
    """Return the terms under which an agent is asked: it has a memory of its own, so that nothing is cut."""
    if not config.model.startswith("agent:"):
        return config
    if config.breadth > 1:
        raise ConfigError("breadth: an agent leads its own conversation; take samples, which are several agents")
    whole = config.episode.model_copy(update={"context": Method(name="full")})
    return config.model_copy(update={"episode": whole})


def default_profile(device: str) -> str:
    """Return 'tiny' for a simulated GPU, 'full' for a real one."""
    return "tiny" if parse_device(device).simulated else "full"
