"""``drkernel solve REFERENCE``: spend more turns to find a better kernel."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from drkernel.cli import terms
from drkernel.cli.options import Fields, Graders, command_line, spread
from drkernel.cli.terms import LivePage
from drkernel.episode.meter import money
from drkernel.verdict import printable
from drkernel.view import percent, times

if TYPE_CHECKING:
    from drkernel.episode.meter import JournalEntry, Meter
    from drkernel.episode.records import Turn
    from drkernel.gym.request import Pool
    from drkernel.solve.bench import BenchRun
    from drkernel.solve.config import BenchConfig
    from drkernel.solve.verify import Verified
    from drkernel.task import Task

    Connect = Callable[[], AbstractAsyncContextManager[Pool]]


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
        self.page = LivePage(run.directory)
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
        self.page()
        if self.live is None and not self.quiet:
            if row.turn is not None:
                self.console.print(*(cell for cell in self._cells(row.turn) if cell), sep="  ", soft_wrap=True)
            else:
                detail = f": {printable(row.detail, lines=False)}" if row.detail else ""
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
            state = f"; ended by {self.end.end} {printable(self.end.detail, lines=False)}".rstrip()
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
        from drkernel.report.render import STATUSES

        best = max((each.speedup or 0.0 for each in self.turns), default=0.0)
        star = " [bold yellow]*[/]" if turn.speedup is not None and turn.speedup >= best else ""
        status = turn.status
        return [
            turn.label(self.run.bench.config.breadth > 1),
            f"[{STATUSES[status].colour}]{status.replace('_', ' ')}[/]{star}",
            "" if turn.speedup is None else f"{times(turn.speedup)}x",
            "" if turn.coverage is None else f"{percent(turn.coverage)} own",
            f"{turn.reply.usage.total:,} tokens",
            what_happened(turn),
        ]


def what_happened(turn: Turn) -> str:
    """Return the decisive fact in a few words, safe for the terminal; empty for a correct answer, whose row says it
    all."""
    from rich.markup import escape

    from drkernel.report.solve import in_short  # loads torch

    return "" if turn.correct else escape(printable(in_short(turn.verdict), lines=False)[:90])


def show(result: dict[str, Any], tried: Sequence[Verified]) -> None:
    """Print the result in a few lines."""
    console = terms.output()
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
        if result["not_told_apart"]:
            others = ", ".join(map(str, result["not_told_apart"]))
            console.print(f"the model does not tell it from the kernels of turns {others}: measure them")
    else:
        console.print(f"[bold red]no verified kernel[/] in {result['attempts']} attempts")
    if result.get("unverified"):
        console.print(f"the fastest of the search, not verified: {result['unverified']}", soft_wrap=True)
    console.print(f"[dim]how: {result['report']}[/]", soft_wrap=True)


# ---- ``drkernel solve REFERENCE``: spend more turns to find a better kernel


app = command_line()

HELP = f"""Find a fast kernel for a reference module: ask a model, grade the answer, give it feedback, repeat.

REFERENCE is a file in KernelBench's format (Model, get_inputs, get_init_inputs), a built-in task such as
builtin/level1/softmax, or a spec of one task such as kernelbench:DIR/level1/23. At each of 14 turns the conversation
holds the task and the best four turns so far by reward; turns, context.keep and context.every change this, and
context=full never cuts. At the end, or on Ctrl-C, the best kernel is graded again from scratch and written to a
standalone file, next to a page that shows how it was found. Running the same command again resumes an interrupted
search.

The terms are the keys of one config: drkernel solve REFERENCE [CONFIG.yaml] [KEY=VALUE ...]. '--KEY VALUE' is
equivalent, and a key may be shortened to a unique ending (--turns 14 is episode.turns=14).

Exit codes: 0 a verified kernel was written, 1 none was found, 2 wrong usage.

Examples:

  drkernel solve reference.py --model openai:NAME --turns 20 --target 2

  drkernel solve builtin/level2/linear_bias_gelu --model command:./my_model --breadth 4 --context full

Keys [default]:

{terms.keys_help("solve")}
"""


@app.command(help=HELP, context_settings=terms.FREE_FORM)
@spread
def solve(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(help="run directory (default: runs/solve-NAME)")] = None,
    save: Annotated[Path | None, typer.Option(help="where the kernel goes (default: best.py in the run)")] = None,
    graders: Annotated[Graders, Fields("pool", "total_memory_gib")] = Graders(),
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON and nothing else")] = False,
) -> None:
    """Parse, search, verify, print."""
    from drkernel.config import ConfigError
    from drkernel.solve.bench import BenchRun, Resolved
    from drkernel.solve.config import tasks_hash

    terms.one_thread()
    given = terms.parse(context.args)
    if len(given.others) != 1:
        raise ConfigError(f"give one REFERENCE; got {' '.join(given.others) or 'none'}")
    config = terms.load("solve", given, tasks=given.others[0])
    graders.check()
    client = terms.open_answerer(config)
    task = _task(config)
    prompts = config.episode.texts()
    directory = out or Path("runs") / ("solve-" + task.id.rpartition("/")[2])
    terms.announce(config, quiet=as_json)
    resolved = Resolved(model=client.name, tasks_hash=tasks_hash([task]), prompts_version=prompts.version)
    with BenchRun(directory, config, resolved, [task], prompts) as run:
        meter = terms.open_meter(config, client, directory)
        with ExitStack() as stack:
            local = stack.enter_context(graders.here()) if graders.pool is None else None

            def connect() -> AbstractAsyncContextManager[Pool]:  # connections live as long as an event loop
                return graders.grading() if local is None else nullcontext(local)

            result = _search_and_settle(run, task, meter, save, connect, quiet=as_json)
    if as_json:
        print(json.dumps(result))
    raise SystemExit(0 if result["verified"] else 1)


def _task(config: BenchConfig) -> Task:
    """Return the task. What the gate objects to is printed; only a task that does not run is an error."""
    from drkernel.config import ConfigError
    from drkernel.solve.config import choose, prepare

    tasks = choose(config.tasks, config.choose)
    if len(tasks) > 1:
        raise ConfigError(f"{config.tasks} names {len(tasks)} tasks; solve takes one")
    prepared = prepare(tasks, profile=config.episode.settings.profile, keep_ill_conditioned=True)
    if not prepared.tasks:
        raise ConfigError(f"{config.tasks} cannot be graded: {next(iter(prepared.left_out.values()))}")
    for reason in prepared.objections.values():
        print(f"a wrong answer may pass here: {reason}", file=sys.stderr)
    return prepared.tasks[0]


def _search_and_settle(
    run: BenchRun, task: Task, meter: Meter, save: Path | None, connect: Connect, quiet: bool
) -> dict[str, Any]:
    """Search until the end or Ctrl-C, then verify and write; a second Ctrl-C leaves the best unverified."""

    view = LiveSolve(run, meter, quiet=quiet)
    try:
        asyncio.run(_search(run, meter, connect(), view))
    except KeyboardInterrupt:
        print("stopped; verifying the best so far (Ctrl-C again to leave it unverified)", file=sys.stderr)
    run.finish()
    try:
        tried, left = asyncio.run(_verify(run, task, connect())), False
    except KeyboardInterrupt:
        tried, left = [], True
    result = _write(run, task, tried, save)
    if left:
        result["unverified"] = _write_unverified(run, task)
    if not quiet:
        show(result, tried)
    return result


async def _search(run: BenchRun, meter: Meter, graders: AbstractAsyncContextManager[Pool], view: Any) -> None:
    try:
        async with graders as pool:
            with view:
                await run.run(meter, pool, progress=view)
    finally:
        await meter.close()


async def _verify(run: BenchRun, task: Task, graders: AbstractAsyncContextManager[Pool]) -> list[Verified]:
    from drkernel.solve.verify import verify

    async with graders as pool:
        return await verify(task, run.bench.played.turns((task.id, 0)), run.bench.config.episode.settings, pool)


def _write_unverified(run: BenchRun, task: Task) -> str | None:
    """Write the fastest correct attempt as ``unverified.py``, when verification was interrupted."""
    from drkernel.solve.verify import Verified, by_speed, write_candidate

    bench = run.bench
    turns = bench.played.turns((task.id, 0))
    fastest = by_speed(turns)[:1]
    if not fastest:
        return None
    path = run.directory / "unverified.py"
    found = Verified(fastest[0], fastest[0].verdict)
    text = write_candidate(task, found, bench.config.episode.settings, bench.model, len(turns), verified=False)
    path.write_text(text, encoding="utf-8")
    return str(path)


def _write(run: BenchRun, task: Task, tried: list[Verified], save: Path | None) -> dict[str, Any]:
    """Write ``best.py``, ``result.json`` and the page."""
    from drkernel.episode.records import Usage
    from drkernel.report.solve import keep_verified
    from drkernel.solve.verify import alike, winner, write_candidate

    bench = run.bench
    turns = bench.played.turns((task.id, 0))
    ended = bench.played.ended.get((task.id, 0))
    usage = sum((turn.reply.usage for turn in turns), Usage())
    prices, settings = bench.config.prices, bench.config.episode.settings
    best = winner(tried)
    path = save or run.directory / "best.py"
    result: dict[str, Any] = {
        "task": task.id,
        "model": bench.model,
        "attempts": len(turns),
        "ended_by": "interrupted" if ended is None else ended.end,
        "tokens": usage.total,
        "dollars": None if prices is None else prices.cost(usage),
        "verified": best is not None,
        "speedup": None if best is None else best.speedup,
        "timing_kind": settings.place.timing,
        "device": settings.device,
        "file": None if best is None else str(path),
        "found_at_turn": None if best is None else best.turn.number,
        "not_told_apart": [] if best is None else alike(turns, best),
        "did_not_hold_up": [one.turn.id for one in tried if not one.verdict.is_correct],
    }
    if best is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = write_candidate(task, best, settings, bench.model, len(turns))
        path.write_text(text, encoding="utf-8")
    (run.directory / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    keep_verified(run.directory, tried)
    result["report"] = str(terms.write_page(run.directory))
    return result
