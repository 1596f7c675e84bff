"""The templates: hostile text stays text in every field, nothing asks for the network, and one script of ours runs."""

import base64
import hashlib
import io
import re
from html.parser import HTMLParser
from importlib import resources

import pytest
from jinja2 import UndefinedError
from rich.console import Console

from drkernel.gym.request import EvalRequest
from drkernel.report import verdict as verdict_view
from drkernel.report.render import Curve, line_plot, render, stacked_plot
from drkernel.report.verdict import against, page
from drkernel.task import Provenance, Task
from drkernel.verdict import (
    CONTROLS,
    CandidateError,
    Correctness,
    Finding,
    Mismatch,
    NotChecked,
    Profile,
    ProfileRow,
    SandboxReport,
    Sizes,
)
from drkernel.view import VerdictView
from verdicts import verdict_of

PLAIN = EvalRequest(task=Task(id="t", reference="pass"), candidate="pass")
EVIL = "</pre></td></title></style><script>alert(1)</script><img src=x onerror=alert(2)>'\"&"
TEMPLATES = [one for one in (resources.files("drkernel.report") / "templates").iterdir()]


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links, self.handlers = set(), [], []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


def hostile():
    row = ProfileRow(name=EVIL, owner="custom", calls=2, seconds=1e-5, share=0.7, bound="memory", roofline=0.5)
    profile = Profile(device=EVIL, kind="modelled", total_seconds=2e-5, elapsed_seconds=2e-5, rows=(row,))
    return verdict_of(
        "hack",
        task_id=EVIL,
        device=EVIL,
        error=CandidateError(type=EVIL, message=EVIL, traceback=EVIL, line=1),
        correctness=Correctness(checked_calls=3, passed_calls=1, message=EVIL),
        findings=(Finding(kind=EVIL, severity="hack", message=EVIL, evidence={EVIL: EVIL}),),
        not_checked=(NotChecked(check=EVIL, why=EVIL),),
        profile=profile,
        reference_profile=profile,
        stdout=EVIL,
        sandbox=SandboxReport(layers=(EVIL,), missing={EVIL: EVIL}),
        checked_at=Sizes(inputs=(EVIL,)),
        timed_at=Sizes(inputs=(f"{EVIL} x 2",)),
        untimed=EVIL,
    )


def test_page_and_terminal_say_at_which_sizes_a_candidate_was_timed_and_checked():
    verdict = verdict_of(
        "correct",
        checked_at=Sizes(changed={"BATCH": (4096, 4)}, inputs=("x float32[4, 8]",)),
        timed_at=Sizes(inputs=("x float32[4096, 8]",)),
    )
    said = "Timed at x float32[4096, 8]; checked at x float32[4, 8]."
    assert said in page(PLAIN, verdict)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(verdict_view.terminal(verdict))
    assert said in console.export_text()


def profile_of(*rows, elapsed):
    """A profile of (name, owner, seconds, roofline) rows."""
    busy = sum(seconds for _, _, seconds, _ in rows)
    made = tuple(
        ProfileRow(name=n, owner=o, calls=1, seconds=s, share=s / busy, bound="memory", roofline=r)
        for n, o, s, r in rows
    )
    return Profile(device="sim:h200", kind="modelled", total_seconds=busy, elapsed_seconds=elapsed, rows=made)


def test_candidate_and_reference_are_drawn_on_one_scale():
    ours = profile_of(("fused", "custom", 1e-3, 0.9), elapsed=1.5e-3)
    theirs = profile_of(("aten.div", "library", 3e-3, 0.8), ("aten.add", "library", 1e-3, 1.2), elapsed=4e-3)
    verdict = hostile().model_copy(update={"profile": ours, "reference_profile": theirs})
    drawn = against(VerdictView.of(verdict))
    bars = dict(re.findall(r'width="([\d.]+)"[^>]*><title>([^:]+):', drawn)[k][::-1] for k in range(4))
    assert {name: round(float(width) + 1) for name, width in bars.items()} == {
        "fused": 250, "waiting for the host": 125, "aten.div": 750, "aten.add": 250,
    }  # fmt: skip
    assert against(VerdictView.of(verdict.model_copy(update={"reference_profile": None}))) == ""


def test_no_band_lies_over_a_curve():
    lines = [Curve(name, [1, 2], [0.2, 0.4], [0.1, 0.1], [0.9, 0.9]) for name in ("a", "b")]
    drawn = line_plot(lines)
    assert ">1.5<" not in drawn and ">2<" in drawn  # turns are whole
    assert drawn.count("<polygon") == 2 and drawn.rindex("<polygon") < drawn.index("<polyline")


def test_a_curve_tells_its_values_and_a_baseline_is_drawn():
    long = line_plot([Curve("loss", range(40), [float(k) for k in range(40)])], guide_y=20.0)
    assert "<title>loss: 7, 7</title>" in long and long.count('class="dot hidden"') == 40 and 'class="guide"' in long
    assert 'class="guide"' not in line_plot([Curve("loss", [0, 1], [0.0, 1.0])], guide_y=20.0)  # outside the frame
    assert line_plot([Curve("loss", [], [])]) == "" == stacked_plot([], {})
    shares = stacked_plot([1, 2], {"correct": [0.25, 1.0], "hack": [0.75, 0.0]}, x_label="turn")
    assert "<title>turn 1: correct 25%, hack 75%</title>" in shares and "<title>turn 2: correct 100%</title>" in shares


def test_a_finding_stands_beside_the_line_that_it_names():
    found = Finding(kind="out_of_bounds", severity="bug", message="no", evidence={"line": 2})
    verdict = hostile().model_copy(update={"findings": (found,)})
    text = page(PLAIN.model_copy(update={"candidate": "one = 1\ntwo = 2\nthree = 3"}), verdict)
    findings = text.partition('class="full findings"')[2].partition("</table>")[0]
    assert re.sub(r"<[^>]*>", "", findings.partition('class="hit">')[2]).startswith("   2  two = 2")


def test_no_row_claims_more_than_its_roof():
    profile = profile_of(("a", "library", 1e-3, 1.14), ("b", "library", 1e-3, 0.5), elapsed=2e-3)
    verdict = hostile().model_copy(update={"profile": profile, "reference_profile": None})
    task = Task(id="t", reference="pass")
    text = page(EvalRequest(task=task, candidate="pass"), verdict)
    assert "beyond its roof: bytes were still in L2" in text and "50% of roofline" in text and "114%" not in text
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(verdict_view.terminal(verdict))
    said = console.export_text()
    assert "memory from L2" in said and "114%" not in said


def test_figures_of_a_finding_are_short_and_a_wrong_answer_is_told_once():
    worst = Mismatch(
        output=0, index=(1, 2), actual=0.00963444, expected=0.00936495, tolerance=1e-4, wrong_fraction=0.057
    )
    verdict = verdict_of(
        "incorrect",
        correctness=Correctness(checked_calls=1, passed_calls=0, message="output 0[1, 2] should be", mismatch=worst),
        findings=(Finding(kind="k", severity="bug", message="m", evidence={"rms_error": 5.1821631241924316e-05}),),
    )
    text = page(PLAIN, verdict)
    assert "rms error: 5.182e-05" in text and "5.18216" not in text
    assert "worst element" in text and "should be" not in text


def test_every_text_of_a_verdict_stays_text():
    reference = f"# {EVIL}\nclass Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
    task = Task(id=EVIL, reference=reference, provenance=Provenance(source="test"))
    text = page(EvalRequest(task=task, candidate=EVIL), hostile())
    seen = Tags()
    seen.feed(text)
    assert seen.tags.isdisjoint({"script", "img", "link", "iframe"}) and not seen.links and not seen.handlers
    assert text.count("&lt;script&gt;") > 15 and text.count("</style>") == 1
    assert text.count("</title>") == text.count("<title>") == 5  # the page's, and one a bar of the drawn call


def test_a_page_admits_its_own_script_and_no_other():
    text = render("page")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    admitted = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{admitted}'; base-uri" in text and "default-src 'none'" in text


def test_templates_trust_nothing_and_fetch_nothing():
    for template in TEMPLATES:
        text = template.read_text()
        assert "|safe" not in text.replace(" ", "") and "autoescape" not in text, template.name
        text = text.replace('<meta http-equiv="', "").replace("<script>{{ script }}", "")
        assert "http" not in text and "<script" not in text and "url(" not in text, template.name


def test_a_page_holds_no_control_characters(tmp_path):
    wild = verdict_of("compile_error")
    text = page(EvalRequest(task=Task(id="t", reference=EVIL), candidate="a\0b\x1b\x9b\u202e\tc\r\n"), wild)
    assert all(shown in text for shown in ("\\x00", "\\x1b", "\\x9b", "\\u202e")) and not CONTROLS.search(text)


def test_a_value_that_is_not_given_is_an_error_not_a_gap():
    with pytest.raises(UndefinedError):
        render("run")


def test_words_on_colours_can_be_read():
    """A contrast of 4.5 (WCAG 2.2, 1.4.3): white on a status, dark labels on a bar, grey text by day and by night."""
    style = (resources.files("drkernel.serve") / "static" / "style.css").read_text()

    def contrast(first, second):
        light = []
        for colour in (first, second):
            parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
            linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
            light.append(0.05 + sum(k * v for k, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))
        return max(light) / min(light)

    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", style))
    marks = set(re.findall(r"\.mark[^{]*\{ background: var\(--(\w+)\)", style))
    assert len(marks) == 9 and all(contrast(colours[name], "#ffffff") >= 4.5 for name in marks)
    assert all(contrast(colours[name], "#111111") >= 4.5 for name in ("custom", "library", "copy"))
    day, night = re.search(r"--dim: light-dark\((#\w{6}), (#\w{6})\)", style).groups()
    assert contrast(day, "#f7f7f7") >= 4.5 and contrast(night, "#1a1a1a") >= 4.5
