"""The command line: thin, and quick to start.

Each command is a module in this package (parse, call, print) that is imported only when it is used, so ``drkernel
--help`` does not load torch. A module defines ``app``, a typer application, or ``COMMAND_app`` where it has several;
one with a single command is mounted as that command, one with several as a group.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import Any, NoReturn

# command -> (module in this package, one-line help); the order is the order of --help
COMMANDS: dict[str, tuple[str, str]] = {
    "eval": ("eval", "grade one candidate kernel against a reference module"),
    "solve": ("solve", "search a fast kernel for a reference over many turns, and verify the best"),
    "bench": ("bench", "benchmark a model: fast_p with intervals, resumable"),
    "compare": ("runs", "compare two benchmark runs, paired task by task"),
    "export": ("runs", "turn a run's trajectories into data for fine-tuning"),
    "prompts": ("tasks", "show the prompts that models receive, or write them as files to edit"),
    "tasks": ("tasks", "list, show and check tasks"),
    "sim": ("sim", "run a script that launches Triton kernels on a simulated GPU"),
    "coldstart": ("tasks", "write verified multi-turn trajectories for supervised fine-tuning"),
    "train": ("train", "train a policy from a recipe, or resume a run"),
    "report": ("runs", "make a self-contained HTML page of a run"),
    "serve": ("serve", "serve grading over HTTP: durable, idempotent, with a live page"),
    "worker": ("serve", "run evaluations for a service on this machine"),
    "store": ("serve", "show, export or prune what a service has stored"),
    "mcp": ("serve", "offer the tools to coding agents over the Model Context Protocol"),
    "recipes": ("train", "list the recipes that come with drkernel, or print one"),
    "examples": ("train", "copy the examples and recipes that come with drkernel into a folder"),
    "doctor": ("doctor", "report what this machine can do, and what is missing"),
}


_OWN_CARD = re.compile(r"([\w.-]+=)?sim:(.+\.ya?ml)")
"""``sim:FILE.yaml``, alone or behind ``key=``"""


def _help(version: str) -> str:
    width = max(map(len, COMMANDS))
    lines = [
        f"drkernel {version}: teach language models to write fast GPU kernels",
        "",
        "usage: drkernel COMMAND ...",
    ]
    lines += ["", "commands:"] + [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    lines += ["", "'drkernel COMMAND --help' explains a command, with examples."]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> None:
    """Entry point of ``drkernel``: exits with 0 on success, 2 on wrong usage, otherwise as the command documents."""
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    _open_streams()
    try:
        if args[0] in ("-h", "--help", "help", "--version"):
            from drkernel import __version__

            print(__version__ if args[0] == "--version" else _help(__version__), flush=True)
            raise SystemExit(0)
        if args[0] not in COMMANDS:
            from drkernel.config import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            print(f"drkernel: no command {args[0]!r}; there are: {', '.join(COMMANDS)}{hint}", file=sys.stderr)
            raise SystemExit(2)
        application(args[0])(args=_with_own_cards(args), prog_name=f"drkernel {args[0]}")
    except KeyboardInterrupt:  # before a command could take care of it, or again while it did
        raise SystemExit(130) from None
    except ModuleNotFoundError as error:
        advice = how_to_get(error.name, args[0])
        if advice is None:
            raise
        _refuse(args[0], advice)
    except OSError as error:  # a file or the disk, wherever it was met: the system says what, a traceback would not
        where = f"{str(error.filename)[:200]}: " if error.filename is not None else ""
        _refuse(args[0], f"{where}{error.strerror or error}")
    except ValueError as error:
        from drkernel.config import ConfigError

        if not isinstance(error, ConfigError):
            raise
        _refuse(args[0], str(error))


def _open_streams() -> None:
    """Open what the caller closed (``>&-``) on nothing: no file that is opened later becomes standard output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


def _refuse(command: str, message: str) -> NoReturn:
    """Print what is wrong with what was asked for, and exit with the code of wrong usage."""
    print(f"drkernel {command}: {message}", file=sys.stderr)
    raise SystemExit(2) from None


def application(command: str) -> Any:
    """Return the typer application of a command."""
    module = importlib.import_module(f"drkernel.cli.{COMMANDS[command][0]}")
    return getattr(module, f"{command}_app", None) or module.app


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

    words = [
        word if match is None else f"{match[1] or ''}sim:{own_card(Path(match[2]))}"
        for word, match in zip(args[1:end], found, strict=True)
    ]
    return [*words, *args[end:]]


# ---- how to install what a command misses: the groups are read from the installed package's own metadata


OF_COMMAND = {"worker": "serve", "bench": "solve", "coldstart": "solve"}
"""The extra that serves a command as a whole, where it has another name than the command."""
_EXTRA = re.compile(r"^([\w.-]+).*extra == ['\"]([\w.-]+)['\"]")
_DEVELOPERS = {"test", "docs"}


def how_to_get(module: str | None, command: str) -> str | None:
    """Return one sentence on how to install the package that holds ``module``, which ``command`` tried to import.

    None where the module belongs to none of drkernel's extras: its absence is an error of another kind.
    """
    package = (module or "").partition(".")[0].replace("_", "-").lower()
    groups: dict[str, int] = {}
    offering = set()
    for name, extra in _optional():
        groups[extra] = groups.get(extra, 0) + 1
        if name == package:
            offering.add(extra)
    if not offering:
        return None
    wanted = OF_COMMAND.get(command, command)
    extra = wanted if wanted in offering else min(offering, key=lambda name: (groups[name], name))
    return f"this needs the package {package}, which is not installed: pip install 'drkernel[{extra}]'"


def _optional() -> Iterator[tuple[str, str]]:
    """Yield (package, extra) of every optional requirement; nothing when drkernel runs without being installed."""
    try:
        lines = requires("drkernel") or []
    except PackageNotFoundError:
        return
    for line in lines:
        found = _EXTRA.match(line)
        if found is not None and found[2] not in _DEVELOPERS:
            yield found[1].lower().replace("_", "-"), found[2]
