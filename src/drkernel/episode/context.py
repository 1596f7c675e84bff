"""Context policies: which earlier turns the conversation still contains when the next answer is requested.

``full`` keeps every turn. ``best`` is the paper's context management (arXiv 2602.05885, section 6.3): at every turn the
conversation holds the task and the best four turns so far. ``best_window`` is what the released code does instead: it
keeps the best four *consecutive* turns, by the sum of their rewards. ``last`` keeps the latest turns, ``afresh`` none.
The conversation is cut every ``every`` turns and grows in between.

A policy is a pure function of the turns made so far, so a conversation that is forked, or resumed from a journal, shows
the same turns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pydantic import Field

from drkernel.config import Config
from drkernel.episode.records import Turn
from drkernel.registry import Method, Registry


@dataclass(frozen=True)
class Past:
    """The turns that a policy may choose from."""

    path: tuple[Turn, ...]
    """The turns of the conversation, in order."""
    aside: tuple[Turn, ...] = ()
    """Other answers drawn at those turns, from which the conversation did not continue."""

    @property
    def graded(self) -> list[Turn]:
        """Every turn with a grade, in the order they were made."""
        return sorted((turn for turn in (*self.path, *self.aside) if turn.valid), key=lambda turn: turn.position)

    @property
    def since_cut(self) -> int:
        """How many turns the path has made since the last cut."""
        return sum(turn.iteration == self.path[-1].iteration for turn in self.path) if self.path else 0

    def grown(self) -> list[Turn]:
        """The turns that the last turn was shown, followed by that turn itself if it has a grade."""
        if not self.path:
            return []
        known = {turn.id: turn for turn in (*self.path, *self.aside)}
        last = self.path[-1]
        return [known[name] for name in last.shown if name in known] + ([last] if last.valid else [])


class ContextPolicy(Protocol):
    """Decides which earlier turns the conversation contains."""

    @property
    def words(self) -> str:
        """Describe the kept turns for people, for example 'the best 4, cut every 5 turns'."""
        ...

    def cut(self, past: Past) -> Sequence[Turn] | None:
        """Return the earlier turns to keep before the next one, in order; None lets the conversation grow."""
        ...

    def less(self, past: Past, shown: Sequence[Turn]) -> Sequence[Turn] | None:
        """Return fewer turns than ``shown``, which exceeds the model's context; None ends the trajectory."""
        ...


policies: Registry[Callable[..., ContextPolicy]] = Registry("context policy", makers=True)
"""By name, as classes or functions that give one."""


@policies.register("full")
class Full(Config):
    """Keeps every turn; the trajectory ends when the context is full."""

    @property
    def words(self) -> str:
        """Describe the policy: all turns."""
        return "all"

    def cut(self, past: Past) -> Sequence[Turn] | None:
        """Return None: the conversation is never cut."""
        return None

    def less(self, past: Past, shown: Sequence[Turn]) -> Sequence[Turn] | None:
        """Return None: no turn may be left out."""
        return None


class _Keeping(Config):
    """Cuts the conversation every ``every`` turns to the ``keep`` turns that :meth:`kept` chooses."""

    keep: int = Field(4, ge=0)
    every: int = Field(1, ge=1)

    which: ClassVar[str]
    """Description of the kept turns, with a placeholder for their number."""

    @property
    def words(self) -> str:
        """Describe which turns are kept, and how often the conversation is cut."""
        kept = self.which.format(self.keep) if self.keep else "none"
        return kept if self.every == 1 else f"{kept}, cut every {self.every} turns"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """Return at most ``count`` earlier turns, in order."""
        raise NotImplementedError

    def cut(self, past: Past) -> Sequence[Turn] | None:
        """Cut after ``every`` turns; None in between."""
        return self.kept(past, self.keep) if past.since_cut >= self.every else None

    def less(self, past: Past, shown: Sequence[Turn]) -> Sequence[Turn] | None:
        """Cut early, or keep one turn fewer."""
        return self.kept(past, min(self.keep, len(shown) - 1)) if shown else None


@policies.register("best")
class Best(_Keeping):
    """Keeps the best turns by reward, in the order they were made; the later turn wins a tie."""

    which = "the best {}"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """Return the best ``count`` turns."""
        best = sorted(past.graded, key=lambda turn: (turn.rank, turn.position), reverse=True)[:count]
        return sorted(best, key=lambda turn: turn.position)


@policies.register("best_window")
class BestWindow(_Keeping):
    """Keeps the consecutive turns with the largest sum of rewards; the earliest window wins a tie."""

    which = "the best {} consecutive ones"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """Return the best ``count`` consecutive turns."""
        graded = [turn for turn in past.path if turn.valid]
        runs = [graded[start : start + count] for start in range(max(1, len(graded) - count + 1))]
        return max(runs, key=lambda run: sum(turn.reward or 0.0 for turn in run))


@policies.register("last")
class Last(_Keeping):
    """Keeps the latest turns."""

    which = "the last {}"

    def kept(self, past: Past, count: int) -> Sequence[Turn]:
        """Return the last ``count`` turns."""
        return [turn for turn in past.path if turn.valid][-count:] if count else []


@policies.register("afresh")
def afresh() -> ContextPolicy:
    """Return the policy that keeps no earlier turn: every turn answers the task alone."""
    return Last(keep=0)


def make_policy(method: Method) -> ContextPolicy:
    """Build the policy of a config. Raises :class:`ConfigError` for an unknown name or option, or an invalid value."""
    policy: ContextPolicy = policies.make("episode.context", method)
    return policy
