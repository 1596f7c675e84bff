"""Untrusted text in a verdict: nothing in it is obeyed by a terminal."""

import io

import pytest
from rich.console import Console

from drkernel.gym.feedback import quote_line
from drkernel.gym.judge.judge import storable
from drkernel.report.verdict import profile_table
from drkernel.verdict import CandidateError, Finding, Profile, ProfileRow

FORGED = "\x1b[2J\x1b[H\x1b[32mCORRECT 9.99x\x1b[0m\r"


def fields(**more: object) -> dict[str, object]:
    return {"status": "incorrect", "task_id": "t", "candidate_sha256": "0" * 64, "device": "sim:h200", **more}


@pytest.mark.parametrize("sign", ["\x1b", "\r", "\x08", "\x7f", "\x9b", "\u202e", "\u2028", "\ud800"])
def test_no_control_character_reaches_a_verdict(sign: str) -> None:
    text = f"a{sign}b"
    row = ProfileRow(name=text, owner="custom", calls=1, seconds=1.0, share=1.0)
    verdict = storable(
        fields(
            stdout=text,
            error=CandidateError(type=text, message=text, traceback=text),
            findings=(Finding(kind="race", severity="bug", message=text, evidence={"kernels": [text]}),),
            profile=Profile(kind="modelled", device="sim:h200", rows=(row,), total_seconds=1.0, elapsed_seconds=1.0),
        )
    )
    assert sign not in repr(verdict.model_dump()).replace("\\\\", "") and sign not in verdict.stdout
    assert verdict.profile.rows[0].name == verdict.stdout != text


def test_prints_and_tracebacks_keep_their_lines_and_names_have_one() -> None:
    name = "softmax\nCORRECT  9.99x"
    finding = Finding(kind="race", severity="bug", message=f"{name} races")
    verdict = storable(fields(stdout="a\n\tb", error=CandidateError(type="E", message="a\nb"), findings=(finding,)))
    assert verdict.stdout == "a\n\tb" and verdict.error.message == "a\nb"
    assert "\n" not in verdict.findings[0].message


def test_plain_text_is_left_as_it_is() -> None:
    plain = fields(stdout="größer: 1 → 2\\x1b")
    assert storable(plain).stdout == plain["stdout"]


def test_a_quoted_line_of_the_source_is_shown_and_not_obeyed() -> None:
    assert "\x1b" not in quote_line(f"x = 1  # {FORGED}", 1)


def test_a_long_profile_says_how_many_rows_it_leaves_out_and_their_time() -> None:
    rows = tuple(
        ProfileRow(name=f"op{k}", owner="library", calls=1, seconds=1e-6 * (k + 1), share=0.1) for k in range(13)
    )
    console = Console(width=120, file=io.StringIO())
    console.print(
        profile_table(Profile(kind="modelled", device="sim:h200", rows=rows, total_seconds=1.0, elapsed_seconds=1.0))
    )
    *shown, last = console.file.getvalue().rstrip().splitlines()  # type: ignore[attr-defined]
    assert len(shown) == 10 and "op12" in shown[0] and "op3 " in shown[-1]
    assert "3 more" in last and "6.00 us" in last
