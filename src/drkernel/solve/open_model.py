"""Opens the client of a model spec: ``openai:NAME``, ``hf:PATH``, ``command:PROGRAM ARGS``, ``agent:COMMAND`` or
``script:PATH``."""

from __future__ import annotations

from pathlib import Path

from drkernel.config import ConfigError
from drkernel.episode.answerer import Answerer
from drkernel.episode.answerers.agent import AgentModel, AgentTerms
from drkernel.episode.chat import Sampling

SPECS = "openai:NAME, hf:PATH, command:PROGRAM, agent:COMMAND or script:PATH"


def open_model(
    spec: str,
    *,
    base_url: str | None = None,
    key_env: str | None = None,
    sampling: Sampling = Sampling(),
    timeout: float = 600.0,
    agent: AgentTerms = AgentTerms(),
) -> Answerer:
    """Open the client of a spec.

    ``base_url`` and ``key_env`` (the environment variable that holds the key) apply to ``openai:`` only. Raises
    :class:`ConfigError` naming the problem.
    """
    kind, separator, rest = spec.partition(":")
    if not separator or not rest:
        raise ConfigError(f"cannot read the model {spec!r}; it should be one of: {SPECS}")
    if kind != "openai" and (base_url or key_env):
        raise ConfigError(f"an address and a key are for openai: models; {kind}: takes none")
    if kind == "openai":
        from drkernel.episode.answerers.endpoint import OpenAIModel

        return OpenAIModel(rest, base_url=base_url, key_env=key_env, timeout=timeout)
    if kind == "hf":
        from drkernel.rl.model.answerer import LocalModel

        return LocalModel(rest, sampling)
    if kind == "command":
        from drkernel.episode.answerers.program import CommandModel

        return CommandModel(rest, timeout=timeout)
    if kind == "agent":
        return AgentModel(rest, agent)
    if kind == "script":
        from drkernel.episode.answerers.script import ScriptModel

        return ScriptModel(Path(rest))
    raise ConfigError(f"unknown kind of model {kind!r}; it should be one of: {SPECS}")
