"""The output of ``drkernel train`` while it runs: a live panel on a terminal, quiet lines in a pipe."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from drkernel.episode.sizes import size_lines
from drkernel.rl.run.recipe import Recipe


def make_view(recipe: Recipe, first: bool = True) -> View:
    """Return a live view on a terminal, otherwise one that prints occasional lines; only the first rank has a live
    one."""
    return LiveView(recipe) if first and sys.stdout.isatty() else View(recipe)


def _number(value: Any, pattern: str = "{:.3f}") -> str:
    return "-" if value is None else pattern.format(value)


class View:
    """Prints a line for every stage and evaluation, and every tenth SFT step."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.started = time.perf_counter()

    def __enter__(self) -> View:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        pass

    def note(self, text: str) -> None:
        """Print one line immediately."""
        print(f"[{time.perf_counter() - self.started:7.1f} s] {text}", flush=True)

    def update(self, kind: str, row: dict[str, Any]) -> None:
        """Handle an event of the run; see :data:`drkernel.rl.run.sitting.Progress`."""
        line = self.line(kind, row)
        if line is not None:
            self.note(line)

    def line(self, kind: str, row: dict[str, Any]) -> str | None:
        """Return the line for an event, or None for the many that do not deserve one."""
        if kind == "stage":
            return "stage " + " ".join(f"{key}={value}" for key, value in row.items())
        if kind == "coldstart" and (row["done"] % max(1, row["total"] // 10) == 0 or row["done"] == row["total"]):
            return f"cold start {row['done']}/{row['total']} kept {row.get('kept', 0)} dropped {row.get('dropped', 0)}"
        if kind in ("copying", "sft") and ("val_loss" in row or row["step"] == 1):
            return f"{kind} {row['step']}/{row['steps']} loss {row['loss']:.3f} val {_number(row.get('val_loss'))}"
        if kind == "rl":
            rate = row["tokens"] / max(1e-9, row["sample_seconds"])
            graded = row["evaluations"] / max(1e-9, row["sample_seconds"])
            left = (self.recipe.rl.steps - row["step"]) * row["seconds"] if self.recipe.rl is not None else 0.0
            return (
                f"rl {row['step']} reward {_number(row['reward'])} correct {_number(row['fast_0'], '{:.0%}')} "
                f"fast_1.2 {_number(row['fast_1.2'], '{:.0%}')} {rate:.0f} tokens/s {graded:.1f} evaluations/s "
                f"{row['seconds']:.1f} s/step, about {left / 60:.1f} min left"
            )
        if kind == "eval":
            return (
                f"held-out ({row['label']}): correct {_number(row['fast_0'], '{:.1%}')} "
                f"fast_1.2 {_number(row['fast_1.2'], '{:.1%}')} coverage {_number(row['coverage'], '{:.2f}')} "
                f"hacks {_number(row['hack_rate'], '{:.1%}')}"
                + "".join(f"\n            {line}" for line in size_lines(row["sizes"]))
            )
        return None


class LiveView(View):
    """One panel that is redrawn, with the lines of a quiet view above it."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe)
        from rich.console import Console
        from rich.live import Live

        self.console = Console()
        self.live = Live(console=self.console, refresh_per_second=4, transient=True)
        self.now: dict[str, str] = {}

    def __enter__(self) -> LiveView:
        self.live.__enter__()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.live.__exit__(kind, error, traceback)

    def note(self, text: str) -> None:
        """Print one line above the panel."""
        self.console.print(f"[dim]{time.perf_counter() - self.started:7.1f} s[/dim] {text}", highlight=False)

    def update(self, kind: str, row: dict[str, Any]) -> None:
        """Redraw the panel; keep the lines worth keeping."""
        if kind in ("stage", "eval"):
            super().update(kind, row)
        if kind == "stage":
            self.now = {name: str(value) for name, value in row.items()}
        elif kind == "coldstart":
            self.now["cold start"] = ", ".join(f"{name} {value}" for name, value in row.items())
        elif kind == "turn":
            self.now |= {"step": str(row["step"]), "graded": f"{row['graded']} of at most {row['of']}"}
        elif (line := self.line(kind, row)) is not None and kind in ("copying", "sft", "rl"):
            self.now["last"] = line
        elif kind in ("copying", "sft"):
            self.now["last"] = f"{kind} {row['step']}/{row['steps']} loss {row['loss']:.3f}"
        self.live.update(self._panel())

    def _panel(self) -> Any:
        from rich.panel import Panel
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for name, value in self.now.items():
            table.add_row(f"[bold]{name}[/bold]", value)
        elapsed = time.perf_counter() - self.started
        return Panel(table, title=f"{self.recipe.name}: {elapsed / 60:.1f} min", border_style="blue")
