"""Options that commands have from the fields of a config."""

import re
from typing import Annotated, Literal

import pytest
import typer
from pydantic import Field, field_validator
from typer.testing import CliRunner

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
