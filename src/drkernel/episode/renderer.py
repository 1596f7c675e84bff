"""Renders the model's input from files: the system message, the task, and the feedback after an answer.

The named sets ``full``, ``compact`` and ``kernelgym`` (of the structure of *Dr. Kernel*, Fig. 14, in our words) come
with drkernel. A directory may replace ``system.txt``, ``task.txt`` and
``feedback.txt`` one by one; its ``prompts.yaml`` sets the form of ``$feedback``: ``style`` (full or compact) and
``feedback_chars``. A ``.yaml`` file in KernelGYM's form is read as well. With it,
as with ``kernelgym``, the feedback is the judge's whole result as JSON under KernelGYM's names.

Placeholders are ``$name`` (``$$`` is a dollar sign). task.txt knows ``$reference``, ``$precision``, ``$device``, and
for the requested language ``$language`` (its title), ``$rule`` and ``$precision_rule`` (preceded by a space if the
language has one). feedback.txt knows ``$feedback``, ``$reference``, ``$turn`` and ``$turns``. With an empty system.txt,
the default, no system message is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from string import Formatter, Template
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from drkernel.config import Config, ConfigError, dump_config, load_config
from drkernel.episode.records import Message
from drkernel.gym.device import gpu_name, parse_device
from drkernel.gym.feedback import Style, feedback
from drkernel.gym.languages import LANGUAGES
from drkernel.gym.request import EvalSettings
from drkernel.task import Task, sized_reference
from drkernel.verdict import Verdict

# ---- Reads prompts from a file of KernelGYM's, the form in which the released models were trained and asked
#
# Such a file is YAML: ``prompt`` and ``method`` (where that text stands beside the task), and ``per_turn_prompts``, a
# list of entries of which two matter here. The one whose condition is ``current_turn == 0`` adds a paragraph to the
# task. The one named ``tool_response`` is the message after an answer, with ``{feedback}`` where the judge's report
# goes. What such a file can say and an episode cannot do is an error that names the key.


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
        _check_entry(where, entry)
        if entry.name == REPORT:
            texts["feedback"] = _report(where, entry.template)
        elif entry.template is not None:
            if entry.condition != FIRST:
                raise ConfigError(f"{where}: condition {entry.condition!r}: {FIRST!r} can be had, and {REPORT}")
            texts["task"] += "\n\n" + _literal(entry.template.rstrip("\n"))
    if "feedback" not in texts:
        raise ConfigError(f"{path}: no entry is named {REPORT} ({SHAPE})")
    return texts


def _check_entry(where: str, entry: TurnPrompt) -> None:
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


# ---- Renders the model's input from files


FEEDBACK_CHARS: dict[Style, int] = {"full": 3000, "compact": 240, "kernelgym": 6000}
"""Budget of the feedback text in characters, by style: the sets that come with drkernel."""
KNOWN = (
    "'full', 'compact', 'kernelgym', a directory of system.txt, task.txt, feedback.txt, or a .yaml file of KernelGYM's"
)
FIELDS = {
    "system": {"device"},
    "task": {"reference", "precision", "device", "language", "rule", "precision_rule"},
    "feedback": {"feedback", "reference", "turn", "turns"},
}
TERMS = "prompts.yaml"
NEEDED = {"system": set[str](), "task": {"reference"}, "feedback": {"feedback"}}


class FeedbackTerms(Config):
    """``prompts.yaml``: the form of ``$feedback``, and the set that missing files are taken from."""

    style: Style = Field("full", description="paragraphs and a profile, one or two lines, or JSON (kernelgym)")
    feedback_chars: int | None = Field(None, ge=40, description="budget of the feedback text; None: the style's own")
    language: str | None = Field(None, description="what kernels are asked for in; None: what the episode says")


class Prompts(Config):
    """The three templates and where they came from."""

    name: str = Field(description="name of a set, or the directory or file they were read from")
    style: Style = Field("full", description="how much the feedback says")
    system: str
    task: str
    feedback: str
    feedback_chars: int = Field(3000, ge=40, description="budget of the feedback text")
    language: str = Field("triton", description="what kernels are asked for in, a name of drkernel.gym.languages")

    @property
    def version(self) -> str:
        """Short content hash; prompts of equal version send equal texts."""
        parts = (self.style, str(self.feedback_chars), self.language, self.system, self.task, self.feedback)
        text = "\0".join(parts)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @classmethod
    def load(
        cls,
        name: str = "full",
        feedback_chars: int | None = None,
        language: str | None = None,
        opening: Mapping[str, str] | None = None,
    ) -> Prompts:
        """Load a named set, a file of KernelGYM's, or a directory whose files replace those of the set that its
        ``prompts.yaml`` names.

        ``feedback_chars`` and ``language`` override the set's own values. ``opening`` holds the templates ``system``
        and ``task`` that stand in for the named set's.

        Raises:
            ConfigError: no such set or directory, an unknown ``$name`` in a file, or a required one is missing.
        """
        opening, own = opening or {}, dict[str, str]()
        if name in FEEDBACK_CHARS:
            terms = FeedbackTerms.model_validate({"style": name})
        elif Path(name).is_dir():
            terms, own = _directory(Path(name))
        elif Path(name).is_file():
            terms = FeedbackTerms(style="kernelgym")
            own = read_prompt_file(Path(name), opening.get("task") or _builtin("task", "kernelgym"))
            own["system"] = opening.get("system") or own["system"]
        else:
            raise ConfigError(f"no prompts {name!r}: give {KNOWN}")
        texts = {part: _builtin(part, terms.style) for part in FIELDS} | {**opening, **own}
        for part, text in texts.items():
            _check(f"{name}/{part}.txt", part, text)
        chars = feedback_chars or terms.feedback_chars or FEEDBACK_CHARS[terms.style]
        wanted = language or terms.language or "triton"
        if wanted not in LANGUAGES:
            raise ConfigError(f"no language {wanted!r}; there are: {', '.join(LANGUAGES)}")
        return cls(name=name, style=terms.style, feedback_chars=chars, language=wanted, **texts)

    def save(self, directory: Path) -> None:
        """Write the files; :meth:`load` reads back the same version."""
        directory.mkdir(parents=True, exist_ok=True)
        for part in FIELDS:
            text = getattr(self, part)
            (directory / f"{part}.txt").write_text(text + "\n" if text else "", encoding="utf-8")
        terms = FeedbackTerms(style=self.style, feedback_chars=self.feedback_chars, language=self.language)
        (directory / TERMS).write_text(dump_config(terms), encoding="utf-8")

    def opening(self, task: Task, settings: EvalSettings) -> list[Message]:
        """Return the system message, if there is one, and the task's message."""
        device = _shown_device(settings.device)
        reference = shown_reference(task, settings)
        language = LANGUAGES[self.language]
        text = Template(self.task).substitute(
            reference=reference,
            precision=task.precision,
            device=device,
            language=language.title,
            rule=language.rule,
            precision_rule=f" {language.precision_rule}" if language.precision_rule else "",
        )
        messages = [Message(role="user", content=text)]
        if self.system.strip():
            system = Template(self.system).substitute(device=device)
            messages.insert(0, Message(role="system", content=system))
        return messages

    def after(
        self, verdict: Verdict, source: str | None, reference: str, turn: int, turns: int, reward: float | None = None
    ) -> str:
        """Return the user message that follows an answer; ``reward`` is the turn's, for a style that names it."""
        body = feedback(verdict, self.feedback_chars, style=self.style, source=source, reward=reward)
        return Template(self.feedback).substitute(feedback=body, reference=reference, turn=turn, turns=turns)


def shown_reference(task: Task, settings: EvalSettings) -> str:
    """Return the reference with the constants of the settings' profile; a comment names what is timed instead of one.

    Answers are compared at those, or at fewer rows of them where they are large, and timed at the task's own.
    """
    text = sized_reference(task, settings.for_task(task).profile).strip()
    if not (settings.timing and settings.time_at == "own"):
        return text
    own = sized_reference(task, "full" if "full" in task.profiles else None).strip()
    pairs = zip(text.splitlines(keepends=True), own.splitlines(keepends=True), strict=True)
    return "".join(line if line == other else _with_timed(line, other) for line, other in pairs)


def _with_timed(line: str, own: str) -> str:
    """``ROWS = 16`` of a profile with the value that the task's own sizes have in its place."""
    code, value = line.partition("#")[0].rstrip(), own.partition("=")[2].partition("#")[0].strip()
    return line if code == own.partition("#")[0].rstrip() else f"{code}  # timed at {value}\n"


def _directory(path: Path) -> tuple[FeedbackTerms, dict[str, str]]:
    """Return what a directory of prompts says. Raises :class:`ConfigError` for one that holds none."""
    terms = load_config(FeedbackTerms, path / TERMS) if (path / TERMS).is_file() else FeedbackTerms()
    files = {part: file for part in FIELDS if (file := path / f"{part}.txt").is_file()}
    if not files:
        names = ", ".join(f"{part}.txt" for part in FIELDS)
        raise ConfigError(f"{path} holds none of {names}; 'drkernel prompts --out DIR' writes them")
    return terms, {part: file.read_text(encoding="utf-8").rstrip("\n") for part, file in files.items()}


@lru_cache
def _shown_device(name: str) -> str:
    """The GPU of a device string, looked up once: every trajectory of a run names the same one."""
    return gpu_name(parse_device(name))


@lru_cache
def _builtin(part: str, style: Style) -> str:
    path = (
        resources.files("drkernel.episode") / "prompts" / ("system.txt" if part == "system" else f"{style}_{part}.txt")
    )
    return path.read_text(encoding="utf-8").rstrip("\n")


def _check(where: str, part: str, text: str) -> None:
    template = Template(text)
    if not template.is_valid():
        raise ConfigError(f"{where}: a '$' that starts no name; write '$$' for a dollar sign")
    names = set(template.get_identifiers())
    if unknown := names - FIELDS[part]:
        places = ", ".join(f"${name}" for name in sorted(FIELDS[part]))
        raise ConfigError(f"{where}: ${sorted(unknown)[0]} is unknown here; there are: {places}")
    if missing := NEEDED[part] - names:
        raise ConfigError(f"{where}: ${sorted(missing)[0]} is missing")
