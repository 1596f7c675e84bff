"""Untrusted text in a verdict: nothing in it is obeyed by a terminal."""

import html
import io
import re

import pytest
from rich.console import Console

from drkernel.agents import describe
from drkernel.gym.feedback import feedback
from drkernel.gym.request import EvalRequest
from drkernel.report.verdict import page, profile_table, terminal
from drkernel.task import Task
from drkernel.verdict import (
    CandidateError,
    Correctness,
    Finding,
    Profile,
    ProfileRow,
    Speedup,
    Timing,
    Verdict,
    storable,
)
from drkernel.view import DeviceTime, VerdictView, quote_line

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


def test_in_a_narrow_terminal_names_break_and_figures_stay_whole() -> None:
    row = ProfileRow(name="a_kernel_with_a_long_name", owner="custom", calls=12, seconds=308.8e-6, share=1.0)
    console = Console(width=58, file=io.StringIO())
    profile = Profile(kind="modelled", device="sim:h200", rows=(row,), total_seconds=1.0, elapsed_seconds=1.0)
    console.print(profile_table(DeviceTime.of(profile)))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "308.80 us" in shown and "12x" in shown and "…" not in shown, shown


def test_a_long_profile_says_how_many_rows_it_leaves_out_and_their_time() -> None:
    rows = tuple(
        ProfileRow(name=f"op{k}", owner="library", calls=1, seconds=1e-6 * (k + 1), share=0.1) for k in range(13)
    )
    console = Console(width=120, file=io.StringIO())
    profile = Profile(kind="modelled", device="sim:h200", rows=rows, total_seconds=1.0, elapsed_seconds=1.0)
    console.print(profile_table(DeviceTime.of(profile)))
    *shown, last = console.file.getvalue().rstrip().splitlines()  # type: ignore[attr-defined]
    assert len(shown) == 10 and "op12" in shown[0] and "op3 " in shown[-1]
    assert "3 more" in last and "6.00 us" in last


def test_terminal_page_feedback_and_tools_say_the_same_figures() -> None:
    times = {"kind": "modelled", "device": "sim:h200"}
    rows = (
        ProfileRow(name="mine", owner="custom", calls=2, seconds=4e-9, share=0.004, bound="memory", roofline=1.3),
        ProfileRow(name="aten.x", owner="library", calls=1, seconds=1e-6, share=0.996, unpriced="nobody knows it"),
    )
    verdict = Verdict(
        **fields(
            status="correct", coverage=0.002,
            speedup=Speedup(value=0.0042, low=0.001, high=0.02, confidence=0.9, kind="modelled"),
            timing=Timing(seconds=1e-3, **times), reference_timing=Timing(seconds=4.2e-6, **times),
            correctness=Correctness(checked_calls=3, passed_calls=3, max_error=0.25),
            findings=(Finding(kind="race", severity="bug", message="two write it", seen_on="sim:a100"),),
            profile=Profile(rows=rows, total_seconds=1.004e-6, elapsed_seconds=2e-6, **times),
        )
    )  # fmt: skip
    console = Console(width=300, file=io.StringIO())
    console.print(terminal(verdict))
    shown = page(EvalRequest(task=Task(id="t", reference="pass"), candidate="pass"), verdict)
    plain = html.unescape(re.sub(r"<[^>]*>", " ", shown))
    view = VerdictView.of(verdict)
    texts = {
        "terminal": console.file.getvalue(), "page": plain,  # type: ignore[attr-defined]
        "model": feedback(verdict), "tool": describe(verdict, "pass", 4000),
    }  # fmt: skip
    for name, text in texts.items():
        words = " ".join(text.replace("your own", "the candidate's own").split())
        for figure in view.figures[
            : 2 if name in ("model", "tool") else 3
        ]:  # right answers are not counted for a model
            assert figure.value in words and figure.note in words, (name, figure)
        assert "two write it (seen on sim:a100)" in words and "130%" not in words, name
        assert view.profile is not None
        for row in view.profile.rows:
            assert all(cell in words for cell in (row.name, row.whose, row.calls, row.time, row.share)), (name, row)
