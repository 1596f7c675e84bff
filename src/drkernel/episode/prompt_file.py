"""Reads prompts from a file of KernelGYM's, the form in which the released models were trained and asked.

Such a file is YAML: ``prompt`` and ``method`` (where that text stands beside the task), and ``per_turn_prompts``, a
list of entries of which two matter here. The one whose condition is ``current_turn == 0`` adds a paragraph to the task.
The one named ``tool_response`` is the message after an answer, with ``{feedback}`` where the judge's report goes. What
such a file can say and an episode cannot do is an error that names the key.
"""

from __future__ import annotations

from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from drkernel.config import Config, ConfigError, load_config

SHAPE = "KernelGYM's prompts have per_turn_prompts with an entry named tool_response whose template holds {feedback}"
FIRST = "current_turn == 0"
REPORT = "tool_response"


def _conditions(text: Any) -> Any:
    return " ".join(text.split()) if isinstance(text, str) else text


class TurnPrompt(Config):
    """One entry of ``per_turn_prompts``."""

    name: str
    condition: Annotated[str, BeforeValidator(_conditions)]
    template: str | None = None
    history_mode: str = Field("all", description="which messages stay; the episode's context policy says it here")
    skip_env: float = Field(0.0, description="share of turns that are not graded; every turn is graded here")
    update_memory: bool = False
    response_truncation: str | None = Field(None, description="no effect: the source is found in the whole answer")


class PromptFile(Config):
    """The file."""

    method: Literal["system", "pre_input", "post_input"] = "system"
    prompt: str | None = None
    per_turn_prompts: tuple[TurnPrompt, ...]


def read_prompt_file(path: Path, task: str) -> dict[str, str]:
    """Return our templates ``system``, ``task`` and ``feedback`` for a file; ``task`` is the one that opens a
    conversation where the file only adds to it.

    Raises :class:`ConfigError` naming the file and the key that has no counterpart.
    """
    try:
        found = load_config(PromptFile, path)
    except ConfigError as error:
        raise ConfigError(f"{error} ({SHAPE})") from error
    texts = {"system": "", "task": task}
    own = _literal((found.prompt or "").rstrip("\n"))
    if found.method == "system":
        texts["system"] = own
    elif own:
        texts["task"] = own + task if found.method == "pre_input" else task + own
    for entry in found.per_turn_prompts:
        where = f"{path}: per_turn_prompts {entry.name!r}"
        _check(where, entry)
        if entry.name == REPORT:
            texts["feedback"] = _report(where, entry.template)
        elif entry.template is not None:
            if entry.condition != FIRST:
                raise ConfigError(f"{where}: condition {entry.condition!r}: {FIRST!r} can be had, and {REPORT}")
            texts["task"] += "\n\n" + _literal(entry.template.rstrip("\n"))
    if "feedback" not in texts:
        raise ConfigError(f"{path}: no entry is named {REPORT} ({SHAPE})")
    return texts


def _check(where: str, entry: TurnPrompt) -> None:
    """Raise :class:`ConfigError` for what an episode is not told by its prompts."""
    if entry.history_mode != "all":
        raise ConfigError(
            f"{where}: history_mode {entry.history_mode}: set it to all; episode.context says what stays in sight"
        )
    if entry.skip_env or entry.update_memory:
        raise ConfigError(f"{where}: skip_env and update_memory: every answer is graded, and there is no memory")


def _report(where: str, template: str | None) -> str:
    """Return a template for ``str.format`` as one of ours. Raises :class:`ConfigError` for other names in braces."""
    try:
        parts = list(Formatter().parse((template or "").rstrip("\n")))
    except ValueError as error:
        raise ConfigError(f"{where}: template: {error}; write {{{{ for a brace") from error
    names = [name for _, name, _, _ in parts if name is not None]
    if strange := [name for name in names if name != "feedback"]:
        raise ConfigError(f"{where}: template: {{{strange[0]}}} is unknown there; write {{{{ for a brace ({SHAPE})")
    if not names:
        raise ConfigError(f"{where}: template: {{feedback}} is missing ({SHAPE})")
    return "".join(_literal(text) + ("$feedback" if name is not None else "") for text, name, _, _ in parts)


def _literal(text: str) -> str:
    """Return a text that our templates reproduce as it is."""
    return text.replace("$", "$$")
