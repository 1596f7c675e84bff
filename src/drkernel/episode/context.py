"""Context policies: which of the earlier turns the conversation still holds when the next answer is asked for.

``full`` keeps every turn. ``best`` is the paper's context management (arXiv 2602.05885, section 6.3): at every turn the
conversation holds the task and the best four turns so far. ``best_window`` is what the released code does instead: the
best four *consecutive* turns, by the sum of their rewards. ``last`` keeps the latest turns, ``afresh`` none. Cuts lie
``every`` turns apart; between two of them the conversation grows.

A policy is a pure function of the turns that were made: a conversation that is forked, or taken up again from a
journal, is shown the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pydantic import Field, ValidationError

from drkernel.config import Config, ConfigError
from drkernel.episode.records import Turn
from drkernel.registry import Method, Registry


@dataclass(frozen=True)
class Past:
    """What a policy may choose from."""

    path: tuple[Turn, ...]
    """The turns of the conversation, in order."""
    aside: tuple[Turn, ...] = ()
    """Answers of the same turns that did not go on."""

    @property
    def graded(self) -> list[Turn]:
        """Every turn with a grade, in the order they were made."""
        return sorted((turn for turn in (*self.path, *self.aside) if turn.valid), key=lambda turn: turn.position)

    @property
    def since_cut(self) -> int:
        """Turns of the present iteration."""
        return sum(turn.iteration == self.path[-1].iteration for turn in self.path) if self.path else 0

    def grown(self) -> list[Turn]:
        """What the last turn was shown, and that turn itself where it has a grade."""
        if not self.path:
            return []
        known = {turn.id: turn for turn in (*self.path, *self.aside)}
        last = self.path[-1]
        return [known[name] for name in last.shown if name in known] + ([last] if last.valid else [])


class ContextPolicy(Protocol):
    """Says what the conversation holds."""

    @property
    def words(self) -> str:
        """Which of the earlier turns it holds, for people: 'the best 4, cut every 5 turns'."""
        ...

    def cut(self, past: Past) -> Sequence[Turn] | None:
        """The earlier turns to keep before the next one, in order; None lets the conversation grow."""
        ...

    def less(self, past: Past, shown: Sequence[Turn]) -> Sequence[Turn] | None:
        """What to show instead of ``shown``, which does not fit the model's context; None ends the trajectory."""
        ...


policies: Registry[Callable[..., ContextPolicy]] = Registry("context policy", makers=True)
"""By name, as classes or functions that give one."""


@policies.register("full")
class Full(Config):
    """Every turn stays; the trajectory ends when the context is full."""

    @property
    def words(self) -> str:
        """All."""
        return "all"

    def cut(self, past: Past) -> Sequence[Turn] | None:
        """Never."""
        return None

    def less(self, past: Past, shown: Sequence[Turn]) -> Sequence[Turn] | None:
        """Nothing may be left out."""
        return None


class _Keeping(Config):
    """Cuts after ``every`` turns to ``keep`` of them, which :meth:`kept` chooses."""

    keep: int = Field(4, ge=0)
    every: int = Field(1, ge=1)

    which: ClassVar[str]
    """What is kept, in words with a place for how many."""

    @property
    def words(self) -> str:
        """What is kept, and how often that is decided."""
        kept = self.which.format(self.keep) if self.keep else "none"
        return kept if self.every == 1 else f"{kept}, cut every {self.every} turns"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """At most ``count`` earlier turns, in order."""
        raise NotImplementedError

    def cut(self, past: Past) -> Sequence[Turn] | None:
        """After ``every`` turns."""
        return self.kept(past, self.keep) if past.since_cut >= self.every else None

    def less(self, past: Past, shown: Sequence[Turn]) -> Sequence[Turn] | None:
        """A cut before its time, or to one turn less."""
        return self.kept(past, min(self.keep, len(shown) - 1)) if shown else None


@policies.register("best")
class Best(_Keeping):
    """The best turns by reward (of equals the later), in the order they were made."""

    which = "the best {}"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """The best ``count``."""
        best = sorted(past.graded, key=lambda turn: (turn.rank, turn.position), reverse=True)[:count]
        return sorted(best, key=lambda turn: turn.position)


@policies.register("best_window")
class BestWindow(_Keeping):
    """The consecutive turns whose rewards add up to most (of equals the earliest)."""

    which = "the best {} consecutive ones"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """The best run of ``count``."""
        graded = [turn for turn in past.path if turn.valid]
        runs = [graded[start : start + count] for start in range(max(1, len(graded) - count + 1))]
        return max(runs, key=lambda run: sum(turn.reward or 0.0 for turn in run))


@policies.register("last")
class Last(_Keeping):
    """The latest turns."""

    which = "the last {}"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """The last ``count``."""
        return [turn for turn in past.path if turn.valid][-count:] if count else []


@policies.register("afresh")
def afresh() -> ContextPolicy:
    """Nothing stays: every turn answers the task alone."""
    return Last(keep=0)


def make_policy(method: Method) -> ContextPolicy:
    """The policy of a config. Raises :class:`ConfigError` for a name, an option or a value that cannot be."""
    policies.check("episode.context", method.name, method.options)
    try:
        return policies.get(method.name)(**method.options)
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
        raise ConfigError(f"episode.context: {method.name}: {'; '.join(wrong)}") from None
