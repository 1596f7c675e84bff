"""The output of ``drkernel solve``: the attempts as they arrive, then the kernel that was found."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from drkernel.cli.terms import printable
from drkernel.episode.meter import money
from drkernel.gym.feedback import times
from drkernel.report.solve import in_short

if TYPE_CHECKING:
    from drkernel.episode.journal import JournalEntry
    from drkernel.episode.meter import Meter
    from drkernel.episode.records import Turn
    from drkernel.solve.bench import BenchRun
    from drkernel.solve.verify import Verified

COLOURS = {
    "correct": "green",
    "hack": "magenta",
    "unsupported": "blue",
    "infra_error": "yellow",
    "invalid_request": "yellow",
}


class LiveSolve:
    """A growing table of attempts on a terminal; otherwise one line each."""

    def __init__(self, run: BenchRun, meter: Meter, quiet: bool):
        self.run, self.meter, self.quiet = run, meter, quiet
        self.terminal = sys.stderr.isatty()
        self.console = Console(stderr=True, highlight=False)
        self.turns: list[Turn] = run.bench.played.turns(run.bench.keys[0])
        self.end: JournalEntry | None = None
        self.live: Live | None = None
        self.since = time.monotonic()
        """When the last answer came."""
        if self.turns and not quiet:
            count = len(self.turns)
            self.console.print(f"{count} attempt{'s are' if count > 1 else ' is'} there already")

    def __call__(self, row: JournalEntry) -> None:
        """One line of the journal."""
        if row.turn is not None:
            self.turns.append(row.turn)
        else:
            self.end = row
        self.since = time.monotonic()
        if self.live is None and not self.quiet:
            if row.turn is not None:
                self.console.print(*(cell for cell in self._cells(row.turn) if cell), sep="  ", soft_wrap=True)
            else:
                detail = f": {printable(row.detail)}" if row.detail else ""
                self.console.print(f"ended by {row.end}{detail}", markup=False, soft_wrap=True)

    def __enter__(self) -> LiveSolve:
        if self.terminal and not self.quiet:
            self.live = Live(get_renderable=self.table, console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            live, self.live = self.live, None
            live.transient = True  # what fitted the screen gives way to the whole
            live.stop()
            self.console.print(self.table())

    def table(self) -> Table:
        """Return the table of attempts (while live, the last that fit the screen), with the best so far marked and the
        spending."""
        usage = self.meter.spending.usage
        cost = "" if self.meter.dollars is None else ", " + money(self.meter.dollars)
        if self.end is not None:
            state = f"; ended by {self.end.end} {printable(self.end.detail)}".rstrip()
        else:
            state = f"; turn {self._turn()} under way for {time.monotonic() - self.since:.0f} s" if self.live else ""
        caption = f"{usage.total:,} tokens{cost}, {self.meter.minutes:.1f} minutes{state}"
        table = Table(box=None, header_style="bold", pad_edge=False, caption=caption, caption_justify="left")
        for name in ("turn", "verdict", "speedup", "coverage", "tokens", "what happened"):
            table.add_column(name, no_wrap=self.live is not None or name != "what happened")
        room = max(1, self.console.size.height - 5) if self.live is not None else len(self.turns)
        for turn in self.turns[-room:]:
            table.add_row(*self._cells(turn))
        return table

    def _turn(self) -> int:
        """Return the number of the turn being played."""
        last = max((turn.number for turn in self.turns), default=0)
        made = sum(turn.number == last for turn in self.turns)
        return last if 0 < made < self.run.bench.config.breadth else last + 1

    def _cells(self, turn: Turn) -> list[str]:
        best = max((each.speedup or 0.0 for each in self.turns), default=0.0)
        star = " [bold yellow]*[/]" if turn.speedup is not None and turn.speedup >= best else ""
        status = turn.status
        return [
            turn.label(self.run.bench.config.breadth > 1),
            f"[{COLOURS.get(status, 'red')}]{status.replace('_', ' ')}[/]{star}",
            "" if turn.speedup is None else f"{times(turn.speedup)}x",
            "" if turn.coverage is None else f"{100 * turn.coverage:.0f}% own",
            f"{turn.reply.usage.total:,} tokens",
            what_happened(turn),
        ]


def what_happened(turn: Turn) -> str:
    """Return the decisive fact in a few words, safe for the terminal; empty for a correct answer, whose row says it
    all."""
    from rich.markup import escape

    return "" if turn.correct else escape(printable(in_short(turn.verdict))[:90])


def show(result: dict[str, Any], tried: Sequence[Verified]) -> None:
    """Print the result in a few lines."""
    console = Console(highlight=False)
    for one in tried:
        if not one.verdict.is_correct:
            console.print(f"turn {one.turn.number} did not hold up: [red]{one.verdict.status}[/] on fresh inputs")
    if result["verified"]:
        kind = f"{result['timing_kind']} on {result['device']}"
        console.print(
            f"[bold green]{times(result['speedup'])}x[/] ({kind}), verified from scratch, found at turn "
            f"{result['found_at_turn']} of {result['attempts']} attempts: [bold]{result['file']}[/]",
            soft_wrap=True,
        )
    else:
        console.print(f"[bold red]no verified kernel[/] in {result['attempts']} attempts")
    if result.get("unverified"):
        console.print(f"the fastest of the search, not verified: {result['unverified']}", soft_wrap=True)
    console.print(f"[dim]how: {result['report']}[/]", soft_wrap=True)
