"""``drkernel train``: run a recipe, or resume an interrupted run.

The recipes and examples that come with drkernel: in the installed package, or at the root of a checkout.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drkernel.cli.options import Fields, Graders, command_line, spread
from drkernel.cli.terms import LivePage, write_page
from drkernel.config import ConfigError, did_you_mean
from drkernel.episode.metrics import size_lines

if TYPE_CHECKING:
    from drkernel.rl.run.recipe import Recipe

_PACKAGE = Path(__file__).parents[1]


def folder(name: str) -> Path:
    """Return the folder ``recipes`` or ``examples``. Raises :class:`ConfigError` when this copy has neither."""
    for place in (_PACKAGE / "shipped" / name, _PACKAGE.parents[1] / name):
        if place.is_dir():
            return place
    raise ConfigError(f"this installation of drkernel carries no {name}")


def recipes() -> dict[str, Path]:
    """Return the recipes by name, such as quickstart."""
    return {path.stem: path for path in sorted(folder("recipes").glob("*.yaml"))}


def find_recipe(given: Path) -> Path:
    """Return the file of a recipe given by path, or by the name of one that comes with drkernel.

    A path that does not exist here but names such a recipe, as recipes/quickstart.yaml does outside of a checkout,
    is that recipe. Raises :class:`ConfigError` naming what is similar.
    """
    if given.is_file():
        return given
    known = recipes()
    bare = given.parent in (Path("."), Path("recipes"))
    if bare and given.stem in known and given.suffix in ("", ".yaml"):
        return known[given.stem]
    raise ConfigError(
        f"no such recipe: {given}; 'drkernel recipes' lists those that come with drkernel"
        f"{did_you_mean(given.stem, known)}"
    )


def purpose(recipe: Path) -> str:
    """Return the first line of a recipe's opening comment: what it is for."""
    return recipe.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


# ---- ``drkernel recipes``: list the recipes that come with drkernel, or print one


recipes_app = command_line()

RECIPES_HELP = """List the recipes that come with drkernel, or print one.

A name can be given to 'drkernel train' in place of a path. To change more than a few keys, print a recipe to a file
and edit it.

Exit codes: 0 done, 2 there is no such recipe.

Examples:

  drkernel recipes

  drkernel recipes quickstart > mine.yaml
"""


@recipes_app.command(help=RECIPES_HELP)
def show_recipes(name: Annotated[str | None, typer.Argument(help="a recipe to print")] = None) -> None:
    """List, or print one."""
    if name is not None:
        path = find_recipe(Path(name))
        text = path.read_text(encoding="utf-8")  # a copy elsewhere has to find what it extends
        print(text.replace("\nextends: ", f"\nextends: {path.parent.resolve()}/"), end="")
        return
    found = recipes()
    width = max(map(len, found))
    for each, path in found.items():
        print(f"{each:<{width}}  {purpose(path)}")


# ---- ``drkernel examples DIR``: copy the examples and recipes that come with drkernel


examples_app = command_line()

EXAMPLES_HELP = """Copy the examples and recipes that come with drkernel into a folder.

The documentation's commands name files under examples/ and recipes/; they work as they stand in the folder that this
command fills. Files that are there already are left as they are.

Exit codes: 0 done, 2 wrong usage.

Example:

  drkernel examples . && drkernel eval examples/softmax/reference.py examples/softmax/candidate.py
"""


@examples_app.command(help=EXAMPLES_HELP)
def examples(into: Annotated[Path, typer.Argument(metavar="DIR", help="the folder; it is made if need be")]) -> None:
    """Copy what is not there yet."""
    written = sum(_copy(folder(name), into / name) for name in ("examples", "recipes"))
    print(f"{written} files written to {into / 'examples'} and {into / 'recipes'}")


def _copy(source: Path, target: Path) -> int:
    """Copy the files under ``source`` that ``target`` lacks; return their number."""
    written = 0
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_file() and "__pycache__" not in path.parts and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            written += 1
    return written


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


# ---- ``drkernel train``: run a recipe, or resume an interrupted run


app = command_line()


LOCAL = "local"
"""the engine that is our own trainer"""


@app.command()
@spread
def train(
    recipe: Annotated[Path | None, typer.Argument(help="recipe (YAML), or the name of one: quickstart")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, e.g. rl.steps=50 seed=1")] = None,
    resume: Annotated[Path | None, typer.Option(help="run directory to resume; its own recipe is used")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="estimate memory and time, change nothing")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="refuse to resume an existing run")] = False,
    graders: Annotated[Graders, Fields("pool")] = Graders(),
    engine: Annotated[
        str, typer.Option(help="who runs the stage of RL: local (our own trainer), verl, or an engine of a plug-in")
    ] = LOCAL,
) -> None:
    """Train a policy: cold start, supervised fine-tuning, reinforcement learning, evaluation, report.

    Running the same command again resumes the run, or reports that it is finished; with keys that would change its
    result it is refused. 'drkernel recipes' lists the recipes that come with drkernel.

    Examples:

      drkernel train recipes/quickstart.yaml

      drkernel train recipes/quickstart.yaml name=longer rl.steps=200 seed=1

      drkernel train --resume runs/longer

      drkernel train recipes/qwen3-8b.yaml --dry-run

      drkernel train recipes/quickstart.yaml --pool http://127.0.0.1:8765

      drkernel train recipes/qwen3-14b.yaml --engine verl --dry-run
    """
    from drkernel.config import dump_config, load_config
    from drkernel.rl.run.estimate import lacking
    from drkernel.rl.run.recipe import Recipe, check_recipe, check_same_run

    path, changes = _recipe_path(recipe, overrides or [], resume)
    loaded = load_config(Recipe, path, changes)
    if resume is not None:
        loaded = loaded.model_copy(update={"runs": str(resume.parent), "name": resume.name})
    check_recipe(loaded)
    if engine != LOCAL:
        from drkernel.engines import engines

        engines.check("--engine", engine, {})
        raise SystemExit(engines.get(engine)(loaded, graders.pool, dry_run))
    if dry_run:
        from drkernel.rl.run.estimate import dry_run as estimate

        print(estimate(loaded))
        return
    directory = Path(loaded.runs) / loaded.name
    if fresh and directory.exists():
        raise ConfigError(f"{directory} exists; choose another name (name=...) or leave out --fresh")
    if (done := _summary(directory)) is not None:
        check_same_run(directory, loaded)
        print(f"{directory} is done; a new run needs another name (name=...). Its results:\n")
        _print_summary(done, directory)
        return
    if absent := lacking(loaded, judged_here=graders.pool is None):
        raise ConfigError("this machine lacks " + "; ".join(absent))
    graders.check()
    print(dump_config(loaded, changed=True), file=sys.stderr if not sys.stdout.isatty() else sys.stdout)
    raise SystemExit(asyncio.run(_train(loaded, directory, graders)))


def _recipe_path(recipe: Path | None, overrides: list[str], resume: Path | None) -> tuple[Path, list[str]]:
    """Return the YAML to read and the overrides; with --resume the first argument is an override too."""
    if resume is None:
        if recipe is None:
            raise ConfigError("give a recipe, e.g. recipes/quickstart.yaml, or --resume RUN")
        return find_recipe(recipe), overrides
    if not (resume / "config.yaml").exists():
        raise ConfigError(f"{resume} is not a run directory: it holds no config.yaml")
    return resume / "config.yaml", [*([str(recipe)] if recipe is not None else []), *overrides]


async def _train(recipe: Any, directory: Path, graders: Graders) -> int:
    """Run the recipe; return the exit code."""
    from drkernel.rl.model import distributed
    from drkernel.rl.run.estimate import shared_card
    from drkernel.rl.run.recipe import make_pool, of_rank
    from drkernel.rl.run.sitting import Stopped
    from drkernel.rl.run.trainer import Run

    world = distributed.start()
    local = graders.pool is None
    shared = shared_card(recipe) if local else None
    if local:
        recipe = of_rank(recipe, distributed.local_rank())
    pool = make_pool(recipe) if local else graders.open()
    page = LivePage(directory) if world.first and recipe.report else None
    with make_view(recipe, world.first) as view:
        if shared is not None:
            view.note(f"judge and policy share a card: {shared}")

        def update(kind: str, row: dict[str, Any]) -> None:
            view.update(kind, row)
            if page is not None and kind in ("copying", "sft", "rl", "eval"):
                page()

        run = Run(recipe, pool, update, write_page, world)

        def stop(*_: Any) -> None:
            if run.stop_requested:
                raise KeyboardInterrupt
            run.stop_requested = True
            view.note("stopping after this step, with a checkpoint (press again to stop at once)")

        before = signal.signal(signal.SIGINT, stop)
        try:
            summary = await run.run()
        except Stopped:
            if page is not None:
                write_page(directory)
            view.note(f"stopped; resume with: drkernel train --resume {directory}")
            return 130
        finally:
            signal.signal(signal.SIGINT, before)
            await pool.close()
            distributed.stop(world)
    if world.first:
        _print_summary(summary, directory)
    return 0


def _summary(directory: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run, or None."""
    path = directory / "summary.json"
    if not path.exists():
        return None
    summary = json.loads(path.read_text(encoding="utf-8"))
    return summary if summary.get("status") == "done" else None


def _print_summary(summary: dict[str, Any], directory: Path) -> None:
    """Print the final table, and what to try next."""
    from drkernel.report.run import before_after

    print(f"{'held-out tasks':<16}{'before RL':>12}{'after RL':>12}{'change':>12}")
    for row in before_after(summary["before"] or {}, summary["after"] or {}):
        print(f"{row.name:<16}{row.before:>12}{row.after:>12}{row.change:>12}")
    print(
        f"\ntimes {summary['timing_kind']} on {summary['device']}; {summary['seconds'] / 60:.1f} minutes, "
        f"{summary['evaluations']} evaluations, {summary['tokens']} tokens, {summary['parameters']:,} parameters"
    )
    if summary["unsafe_no_checks"]:
        print("WARNING: the judge's checks were switched off (unsafe_no_checks): these figures are not to be trusted.")
    if summary.get("stopped_because"):
        print(f"stopped early: {summary['stopped_because']}")
    print("\nnext:")
    if summary.get("report"):
        print(f"  open {summary['report']}")
    print(f"  drkernel report {directory}")
    again = f"  drkernel train {directory}/config.yaml"
    print(f"{again} name=longer rl.steps=200 budget_minutes=null    # longer")
    print(f"{again} name=seed1 seed=1    # another seed")
