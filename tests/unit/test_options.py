"""Options that commands have from the fields of a config."""

import errno
import io
import os
import re
from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field, field_validator
from typer.testing import CliRunner

from drkernel.cli import COMMANDS, application, main
from drkernel.cli.options import Fields, spread
from drkernel.config import Config, ConfigError


class Inner(Config):
    share: float | None = Field(None, ge=0, le=1, description="how much; None: all")


class Terms(Config):
    kind: Literal["fast", "slow"] = Field("fast", description="which of two")
    count_s: int = Field(3, ge=1, description="how many; None: never said")
    names: tuple[str, ...] = ()
    dry: bool = False
    inner: Inner = Inner(share=0.5)
    word: str = "plain"

    @field_validator("word")
    @classmethod
    def _short(cls, word: str) -> str:
        if len(word) > 5:
            raise ValueError(f"{word!r} is long")
        return word


def run(*words: str):
    """The result of a command with these options, and what it was given."""
    app, seen = typer.Typer(), []

    @app.command()
    @spread
    def grade(
        place: Annotated[str, typer.Argument()],
        terms: Annotated[
            Terms, Fields("kind", "names", "dry", "word", count=("count_s", 7), share="inner.share")
        ] = Terms(),
        depth: Annotated[Literal["own", "full"], typer.Option(help="how far")] = "own",
    ) -> None:
        seen.append((place, terms, depth))

    return CliRunner().invoke(app, [*words], env={"COLUMNS": "160"}), seen


def test_what_is_not_given_is_the_configs_or_the_commands_own_default():
    done, seen = run("here")
    assert done.exit_code == 0 and seen == [("here", Terms(count_s=7, inner=Inner()), "own")]


def test_values_reach_the_fields_that_the_options_name():
    words = "--kind slow --count 2 --names a --names b --dry --share 0.25 --word short --depth full"
    done, seen = run("here", *words.split())
    terms = Terms(kind="slow", count_s=2, names=("a", "b"), dry=True, inner=Inner(share=0.25), word="short")
    assert done.exit_code == 0 and seen == [("here", terms, "full")]
    assert type(seen[0][1].kind) is str and type(seen[0][2]) is str


@pytest.mark.parametrize(
    ("words", "said"),
    {
        "--count 0": "--count: Input should be greater than or equal to 1",
        "--share 1.5": "--share: Input should be less than or equal to 1",
        "--kind other": "--kind: Input should be 'fast' or 'slow'",
        "--word longer": "--word: 'longer' is long",
        "--depth other": "--depth other: it is one of own, full",
    }.items(),
)
def test_a_wrong_value_is_refused_by_the_options_name(words, said):
    done, seen = run("here", *words.split())
    assert isinstance(done.exception, ConfigError) and str(done.exception) == said and not seen


def test_help_shows_types_bounds_defaults_and_meanings():
    said = re.sub(r"[\s│]+", " ", run("--help")[0].output)
    for part in (
        "fast|slow",
        "which of two",
        "<float> x>=0, x<=1",
        "how much; default: all",
        "<int> x>=1",
        "own|full",
        "[default: 7]",
    ):
        assert part in said, part


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_every_option_in_full_on_a_narrow_terminal(command):
    app = application(command)
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "50", "TERMINAL_WIDTH": "50"}).output
    wanted = {name for one in typer.main.get_command(app).params for name in one.opts if name.startswith("--")}
    assert wanted <= set(re.findall(r"--[\w-]+", shown)) and "…" not in shown, shown


@pytest.mark.parametrize("word", ["--help", "--version", "nonsense"])
def test_a_closed_output_is_no_traceback(monkeypatch, word):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    with pytest.raises(SystemExit) as ended:
        main([word])
    assert ended.value.code == (2 if word == "nonsense" else 0)


def test_a_full_disk_below_help_is_named(monkeypatch, capsys):
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 2 and capsys.readouterr().err == "drkernel --help: No space left on device\n"


def test_an_interrupt_before_the_command_runs_is_no_traceback(monkeypatch):
    def interrupted(command: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("drkernel.cli.application", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["eval"])
    assert ended.value.code == 130


@pytest.mark.parametrize("line", ["bench --model script:x", "solve x.py --model script:x", "train quickstart"])
def test_a_service_that_is_not_there_is_named_before_a_long_run(monkeypatch, capsys, line):
    async def at_once(seconds: float) -> None:
        pass

    monkeypatch.setattr("drkernel.serve.client.asyncio.sleep", at_once)
    with pytest.raises(SystemExit) as ended:
        main([*line.split(), "--pool", "http://127.0.0.1:1"])
    assert ended.value.code == 2
    assert "--pool: http://127.0.0.1:1 could not be reached" in capsys.readouterr().err
