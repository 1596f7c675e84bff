"""The command line: thin, and quick to start.

Each command is a module in this package (parse, call, print) that is imported only when it is used, so ``drkernel
--help`` does not load torch. A command module defines ``app``, a typer application: one with a single command is
mounted as that command, one with several as a group.
"""

from __future__ import annotations

import importlib
import re
import sys

# command -> (module in this package, one-line help); the order is the order of --help
COMMANDS: dict[str, tuple[str, str]] = {
    "eval": ("eval", "grade one candidate kernel against a reference module"),
    "solve": ("solve", "search a fast kernel for a reference over many turns, and verify the best"),
    "bench": ("bench", "benchmark a model: fast_p with intervals, resumable"),
    "compare": ("compare", "compare two benchmark runs, paired task by task"),
    "export": ("export", "turn a run's trajectories into data for fine-tuning"),
    "prompts": ("prompts", "show the prompts that models receive, or write them as files to edit"),
    "tasks": ("tasks", "list, show and check tasks"),
    "sim": ("sim", "run a script that launches Triton kernels on a simulated GPU"),
    "coldstart": ("coldstart", "write verified multi-turn trajectories for supervised fine-tuning"),
    "train": ("train", "train a policy from a recipe, or resume a run"),
    "report": ("report", "make a self-contained HTML page of a run"),
    "serve": ("serve", "serve grading over HTTP: durable, idempotent, with a live page"),
    "worker": ("worker", "run evaluations for a service on this machine"),
    "store": ("store", "show, export or prune what a service has stored"),
    "mcp": ("mcp", "offer the tools to coding agents over the Model Context Protocol"),
    "recipes": ("recipes", "list the recipes that come with drkernel, or print one"),
    "examples": ("examples", "copy the examples and recipes that come with drkernel into a folder"),
    "doctor": ("doctor", "report what this machine can do, and what is missing"),
}


_OWN_CARD = re.compile(r"([\w.-]+=)?sim:(.+\.ya?ml)")
"""``sim:FILE.yaml``, alone or behind ``key=``"""


def _help() -> str:
    from drkernel import __version__

    width = max(map(len, COMMANDS))
    lines = [
        f"drkernel {__version__}: teach language models to write fast GPU kernels",
        "",
        "usage: drkernel COMMAND ...",
    ]
    lines += ["", "commands:"] + [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    lines += ["", "'drkernel COMMAND --help' explains a command, with examples."]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``drkernel``: exits with 0 on success, 2 on wrong usage, otherwise as the command documents."""
    args = list(sys.argv[1:] if argv is None else argv)
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help())
        raise SystemExit(0)
    if args[0] == "--version":
        from drkernel import __version__

        print(__version__)
        raise SystemExit(0)
    if args[0] not in COMMANDS:
        from drkernel.config import did_you_mean

        hint = did_you_mean(args[0], COMMANDS)
        print(f"drkernel: no command {args[0]!r}; there are: {', '.join(COMMANDS)}{hint}", file=sys.stderr)
        raise SystemExit(2)
    try:
        module = importlib.import_module(f"drkernel.cli.{COMMANDS[args[0]][0]}")
        module.app(args=_with_own_cards(args), prog_name=f"drkernel {args[0]}")
    except ModuleNotFoundError as error:
        from drkernel.cli.extras import how_to_get

        advice = how_to_get(error.name, args[0])
        if advice is None:
            raise
        print(f"drkernel {args[0]}: {advice}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:  # a file or the disk, wherever it was met: the system says what, a traceback would not
        where = f"{str(error.filename)[:200]}: " if error.filename is not None else ""
        print(f"drkernel {args[0]}: {where}{error.strerror or error}", file=sys.stderr)
        raise SystemExit(2) from None


def _with_own_cards(args: list[str]) -> list[str]:
    """The arguments behind the command, ``sim:FILE.yaml`` replaced by the card that the file describes.

    Only here: a device that comes in a request, a recipe or a stored job is a name, never a file.
    """
    end = args.index("--") if "--" in args else len(args)
    found = [_OWN_CARD.fullmatch(word) for word in args[1:end]]
    if not any(found):
        return args[1:]
    from pathlib import Path

    from drkernel.sim.spec import own_card

    try:
        words = [
            word if match is None else f"{match[1] or ''}sim:{own_card(Path(match[2]))}"
            for word, match in zip(args[1:end], found, strict=True)
        ]
    except ValueError as error:
        print(f"drkernel {args[0]}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    return [*words, *args[end:]]
