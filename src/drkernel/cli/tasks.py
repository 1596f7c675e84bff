"""``drkernel tasks``, ``prompts`` and ``coldstart``: what models are asked, whether it can fail a wrong answer, and
what a teacher answers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drkernel.cli import terms
from drkernel.cli.options import Fields, Graders, command_line, spread
from drkernel.config import ConfigError
from drkernel.episode.meter import CallLimits, Meter
from drkernel.episode.records import Sampling
from drkernel.rl.data.coldstart import ColdstartConfig
from drkernel.solve.config import Endpoint, TaskChoice, choose, default_profile, open_model
from drkernel.view import counts

if TYPE_CHECKING:
    from drkernel.episode.renderer import Prompts
    from drkernel.rl.data.coldstart import ColdstartSummary
    from drkernel.task import Task
    from drkernel.tasks.cost import ScaleLimits
    from drkernel.tasks.gate import GateReport

tasks_app = command_line(no_args_is_help=True, help="List, show and check tasks.")

SPEC_HELP = "builtin, builtin/levelN, kernelbench:DIR, kernelbench:DIR/levelN, parquet:FILE, jsonl:FILE or file:PATH"
OK, NOT_ADMITTED = 0, 1


Spec = Annotated[str, typer.Argument(metavar="[SPEC]", help=SPEC_HELP)]
Choice = Annotated[TaskChoice, Fields("level", "tag", "match", "precision")]
Json = Annotated[bool, typer.Option("--json", help="print JSON and nothing else")]


@tasks_app.command(
    name="list", help=f"List the tasks that SPEC names: {SPEC_HELP}.\n\nExit codes: 0 fine, 2 wrong usage."
)
@spread
def list_tasks(spec: Spec = "builtin", choice: Choice = TaskChoice(), as_json: Json = False) -> None:
    """Load, filter, print."""
    tasks = choose(spec, choice)
    if as_json:
        keep = {"id", "level", "precision", "tags", "profiles", "family", "provenance"}
        print(json.dumps([task.model_dump(mode="json", include=keep) for task in tasks], indent=2))
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("task", no_wrap=True, min_width=max(len(task.id) for task in tasks))
    table.add_column("precision", no_wrap=True, min_width=9)
    table.add_column("tags", no_wrap=True, overflow="ellipsis")
    for task in tasks:
        table.add_row(task.id, task.precision, ", ".join(task.tags))
    terms.output().print(table)
    print(f"{len(tasks)} tasks", file=sys.stderr)


@tasks_app.command(
    help="Show one task: its source, sizes, inputs, outputs and cost.\n\nExit codes: 0 fine, 2 wrong usage."
)
@spread
def show(
    name: Annotated[str, typer.Argument(metavar="TASK", help="a built-in task (level1/softmax) or a SPEC")],
    profile: Annotated[str | None, typer.Option(help="size profile; without it the source as it is")] = None,
    choice: Annotated[TaskChoice, Fields("match", "precision")] = TaskChoice(),
    source: Annotated[bool, typer.Option("--source", help="print the sized source and nothing else")] = False,
    as_json: Json = False,
) -> None:
    """Load one task, describe it on meta tensors, print."""
    from drkernel.task import sized_reference

    tasks = choose(name, choice)
    if len(tasks) > 1:
        raise ConfigError(f"{name} names {len(tasks)} tasks; add --match TEXT to choose one: {_some(tasks)}")
    try:
        text = sized_reference(tasks[0], profile)
    except (KeyError, ValueError) as error:
        raise ConfigError(str(error.args[0])) from None
    if source:
        print(text, end="" if text.endswith("\n") else "\n")
        return
    with _bounded(Graders()):
        facts = _describe(tasks[0], text)
    if as_json:
        print(json.dumps({"task": tasks[0].model_dump(mode="json"), "profile": profile, **facts}, indent=2))
        return
    from rich.syntax import Syntax

    console = terms.output()
    console.print(
        f"[bold]{tasks[0].id}[/]  level {tasks[0].level}, {tasks[0].precision}, profile {profile or 'as written'}"
    )
    console.print(Syntax(text.rstrip(), "python", theme="ansi_dark", background_color="default"))
    for key, value in facts.items():
        console.print(f"[bold]{key}[/]: {', '.join(map(str, value)) if isinstance(value, list) else value}")


@tasks_app.command(
    help="Run the admission gate: wrong answers must fail, the reference itself must pass.\n\n"
    "Zeros, a constant, another seed's output, inputs passed through, the first row repeated, the next lower precision "
    "and the reference without its parameters are judged as candidates are; a task that accepts one is ill-conditioned "
    "and should not be trained on. Tasks without the profile 'tiny' are gated at thin sizes: axes of independent work "
    "are shortened until a call fits --checked-bytes and --checked-flops.\n\n"
    "--save writes the admitted tasks as JSONL.\n\n"
    "Exit codes: 0 all admitted, 1 some not, 2 wrong usage.\n\n"
    "Examples:\n\n  drkernel tasks check\n\n"
    "  drkernel tasks check kernelbench:KernelBench/level2 --save level2.jsonl"
)
@spread
def check(
    spec: Spec = "builtin",
    profile: Annotated[str | None, typer.Option(help="size profile [default: tiny where a task has it]")] = None,
    checked_bytes: Annotated[int | None, typer.Option(min=1, help="what a call may hold [default: 2 MiB]")] = None,
    checked_flops: Annotated[
        float | None, typer.Option(min=1, help="and how many operations its products may take [default: 4e7]")
    ] = None,
    choice: Choice = TaskChoice(),
    seed: Annotated[int, typer.Option(help="seed of weights and inputs")] = 0,
    graders: Annotated[Graders, Fields("memory_gib")] = Graders(),
    save: Annotated[Path | None, typer.Option(help="write admitted tasks to this JSONL")] = None,
    as_json: Json = False,
) -> None:
    """Load, gate with progress, print, save."""
    import torch

    from drkernel.tasks.cost import ScaleLimits
    from drkernel.tasks.gate import GATED
    from drkernel.tasks.loaders import save_tasks

    limits = ScaleLimits(bytes=checked_bytes or GATED.bytes, flops=checked_flops or GATED.flops)
    tasks = choose(spec, choice)
    warnings.filterwarnings("ignore", module="torch")  # the references', not the gate's
    torch.set_num_threads(1)  # tasks are small: threads cost more than they give, ruinously so on a busy machine
    with _bounded(graders) as budget:
        reports = [_gate(task, profile, limits, seed, budget) for task in terms.tracked(tasks, "checking", as_json)]
    if as_json:
        print(json.dumps([report.model_dump(mode="json") for report in reports], indent=2))
    else:
        _print_reports(reports)
    if save is not None:
        save_tasks([task for task, report in zip(tasks, reports, strict=True) if report.admitted], save)
    raise SystemExit(OK if all(report.admitted for report in reports) else NOT_ADMITTED)


def _gate(task: Task, profile: str | None, limits: ScaleLimits, seed: int, budget: int) -> GateReport:
    from drkernel.tasks.gate import admit, admit_thin

    if profile is not None and profile not in task.profiles:
        raise ConfigError(terms.no_profile(task, profile))
    profile = "tiny" if profile is None and "tiny" in task.profiles else profile
    return admit_thin(task, limits, seed, budget) if profile is None else admit(task, profile, seed, budget)


@contextmanager
def _bounded(graders: Graders) -> Iterator[int]:
    """Let the block take so much memory, a quarter of the machine's by default; yields the bytes."""
    import torch

    from drkernel.gym.judge.memory import bounded, default_budget

    torch.empty(1, device="meta")  # imports what else would count against the budget
    budget = graders.memory["memory_bytes"] or default_budget()
    with bounded(budget):
        yield budget


def _print_reports(reports: list[GateReport]) -> None:
    """Two lines for each task that is not plainly admitted, and a summary."""
    from rich.padding import Padding
    from rich.text import Text

    console = terms.output()
    for report in reports:
        word, colour, why = _outcome(report)
        if why:
            console.print(Text.assemble((word, f"bold {colour}"), " ", report.task_id))
            console.print(Padding(Text(why), (0, 0, 0, 4)))
    admitted = sum(report.admitted for report in reports)
    seconds = sum(report.seconds for report in reports)
    thin = sum(bool(report.changed) for report in reports)
    note = f", {thin} of them gated at thin sizes" if thin else ""
    console.print(f"{admitted} of {len(reports)} tasks admitted{note}, {seconds:.1f} s in the gate")


def _outcome(report: GateReport) -> tuple[str, str, str]:
    """Return word, colour and reasons; the reasons are empty for a task that is plainly admitted."""
    if report.error:
        return "error", "red", report.error
    if not report.admitted:
        return "ill-conditioned", "red", _why(report)
    return "admitted", "green", "; ".join(report.notes)


def _why(report: GateReport) -> str:
    """Return faults of the reference, then for each output the wrong answers that it accepts, with the numbers."""
    accepted: dict[int, list[str]] = {}
    for result in report.controls:
        if result.passed:
            detail = f"{result.detail}, " if result.detail else ""
            accepted.setdefault(result.output, []).append(f"{result.control} ({detail}error {result.error:.2g})")
    controls = {result.control for result in report.controls}
    reasons = [reason for reason in report.ill_conditioned_by if reason not in controls]
    reasons += [f"output {index} accepts {', '.join(names)}; 1 is the tolerance" for index, names in accepted.items()]
    return "; ".join(reasons)


def _describe(task: Task, text: str) -> dict[str, Any]:
    """Describe inputs and cost of one forward, on meta tensors: nothing is allocated."""
    from drkernel.task import TaskError
    from drkernel.tasks.cost import describe

    try:
        return describe(text)
    except TaskError as error:
        return {"error": str(error)}


def _some(tasks: list[Task]) -> str:
    return ", ".join(task.id for task in tasks[:5]) + (", ..." if len(tasks) > 5 else "")


# ---- ``drkernel prompts``: show the prompts that models receive, or write them out for editing


prompts_app = command_line()

PROMPTS_HELP = """Show the prompts of bench and solve, or write them as files to edit.

NAME is 'full', 'compact', 'kernelgym', a directory, or a .yaml file of KernelGYM's. With --out, the three texts and
prompts.yaml are written to DIR; edit them and use them with --prompts DIR. With --opening, system message and task are
those of a parquet file of verl's whose prompts hold the references. With --task, shows the first message as a model
reads it.

Exit codes: 0 shown or written, 2 wrong usage.

Examples:

  drkernel prompts --out my-prompts && drkernel bench --model openai:NAME --prompts my-prompts

  drkernel prompts compact --task builtin/level1/softmax

  drkernel prompts multi_turn_kernel.yaml --opening validation.parquet --out released
"""


@prompts_app.command(help=PROMPTS_HELP)
def prompts(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="full, compact, kernelgym, a directory or a file")
    ] = "full",
    opening: Annotated[
        Path | None, typer.Option(metavar="PARQUET", help="rows in verl's columns whose prompts' form is taken over")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="write the files there")] = None,
    task: Annotated[str | None, typer.Option(help="show the first message for this task")] = None,
    device: Annotated[str, typer.Option(help="the device that the message names")] = "sim:h200",
    profile: Annotated[str | None, typer.Option(help="size profile of a built-in task (sim: tiny, cuda: full)")] = None,
) -> None:
    """Parse, load, print."""
    from drkernel.episode.renderer import FIELDS, Prompts

    texts = Prompts.load(name, opening=_opening(opening))
    if task is not None:
        return _show_opening(texts, task, device, profile or default_profile(device))
    if out is not None and any((out / f"{part}.txt").exists() for part in FIELDS):
        raise ConfigError(f"{out} holds prompts already; give another directory or remove them first")
    if out is not None:
        texts.save(out)
        print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}; version {texts.version}")
        return None
    for part in FIELDS:
        print(f"=== {part}.txt\n{getattr(texts, part) or '(empty: no system message is sent)'}\n")
    print(f"=== version {texts.version}, style {texts.style}, feedback of at most {texts.feedback_chars} characters")
    return None


def _opening(path: Path | None) -> dict[str, str] | None:
    """Return the templates of a file's prompts, and say how many of its rows have them."""
    from drkernel.rl.data.coldstart import opening_of

    if path is None:
        return None
    found, count, rows = opening_of(path)
    print(f"{path}: the form of {count} of {rows} prompts", file=sys.stderr)
    return found


def _show_opening(texts: Prompts, spec: str, device: str, profile: str | None) -> None:
    from drkernel.gym.request import EvalSettings

    chosen = choose(spec if spec.startswith("builtin") or ":" in spec else f"file:{spec}")[0]
    for message in texts.opening(chosen, EvalSettings(device=device, profile=profile)):
        print(f"=== {message.role}\n{message.content}\n")


# ---- ``drkernel coldstart --out FILE``: verified trajectories for supervised fine-tuning


coldstart_app = command_line()

COLDSTART_HELP = """Write multi-turn trajectories of a teacher, every turn graded by the real judge, as JSON lines.

The teacher is a program that can write kernels for the generated tasks, or (--source) any chat model, whose
trajectories are kept up to the best correct turn. Running the same command again resumes an interrupted run.

Exit codes: 0 written, 1 nothing could be kept or the model failed, 2 wrong usage, 130 interrupted.

Examples:

  drkernel coldstart --out data/cold.jsonl --tasks 480

  drkernel coldstart --out data/cold.jsonl --tasks 8000 --turns 3 --seed 1 --json

  drkernel coldstart --out data/teacher.jsonl --source openai:NAME --base-url http://localhost:8000/v1 --turns 3
"""


@coldstart_app.command(help=COLDSTART_HELP)
@spread
def coldstart(
    out: Annotated[Path, typer.Option(help="the file to write; resumed if it exists")],
    plan: Annotated[
        ColdstartConfig,
        Fields("seed", tasks=("tasks", 480), turns=("episode.turns", 2), device="episode.settings.device"),
    ] = ColdstartConfig(),
    source: Annotated[str, typer.Option(help="program, or a model: openai:NAME, command:PROGRAM, ...")] = "program",
    prompts: Annotated[str, typer.Option(help="compact or full (default: compact, full for a model)")] = "",
    endpoint: Annotated[Endpoint, Fields("base_url", "key_env")] = Endpoint(),
    sampling: Annotated[Sampling, Fields("temperature", "max_tokens")] = Sampling(),
    limits: Annotated[CallLimits, Fields("concurrency")] = CallLimits(),
    graders: Annotated[Graders, Fields("slots")] = Graders(),
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as JSON and nothing else")] = False,
) -> None:
    """Parse, write, print."""
    chosen = prompts or ("compact" if source == "program" else "full")
    at_once = 2 * (graders.slots or 2) + (limits.concurrency if source != "program" else 0)
    episode = plan.episode.model_copy(update={"prompts": chosen})
    config = plan.model_copy(update={"episode": episode, "concurrency": at_once})
    try:
        meter = None
        if source != "program":
            sampling = sampling.model_copy(update={"seed": plan.seed})
            meter = _open(source, endpoint, sampling, limits, out)
            config = config.model_copy(update={"source": meter.name, "sampling": sampling})
        summary = asyncio.run(_write(config, out, graders, meter, quiet=as_json))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(130) from None
    except RuntimeError as error:  # the model gave no answer: what is written stays, and the same command goes on
        print(f"drkernel coldstart: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    if as_json:
        print(json.dumps(summary.model_dump()))
    else:
        print(f"{out}: {summary.trajectories} trajectories, {summary.turns} turns")
        print("  by plan:   " + counts(summary.by_plan))
        print("  by status: " + counts(summary.by_status))
        if summary.dropped:
            print("  left out:  " + counts(summary.dropped))
    raise SystemExit(0 if summary.trajectories else 1)


def _open(source: str, endpoint: Endpoint, sampling: Sampling, limits: CallLimits, out: Path) -> Meter:
    """Open the model, caching its replies beside the data so that none is paid for twice."""
    from drkernel.episode.meter import ReplyCache

    client = open_model(source, base_url=endpoint.base_url, key_env=endpoint.key_env, sampling=sampling)
    cache = ReplyCache(out.with_name(out.name + ".replies.sqlite"))
    return Meter(client, cache=cache, limits=limits)


async def _write(
    config: ColdstartConfig, out: Path, graders: Graders, meter: Meter | None, quiet: bool
) -> ColdstartSummary:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from drkernel.rl.data.coldstart import write_coldstart

    columns = (TextColumn("trajectories"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, disable=quiet or not sys.stderr.isatty()) as bar:
            line = bar.add_task("", total=config.tasks)
            async with graders.grading() as pool:
                return await write_coldstart(
                    config, pool, out, lambda done, total, counts: bar.update(line, completed=done, total=total), meter
                )
    finally:
        if meter is not None:
            await meter.close()
