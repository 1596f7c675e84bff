"""What a simulated GPU's verdict adds to a real one's, on made-up verdicts."""

from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from drkernel.gym.judge import co_judge
from drkernel.gym.judge.co_judge import nearest_card, with_co_judge
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Task
from drkernel.verdict import CandidateError, Correctness, Finding, NotChecked, Profile, ProfileRow, Speedup, Verdict
from verdicts import verdict_of

UNSEEN = (NotChecked(check="race", why="not seen"),)


def verdict(status="correct", **fields) -> Verdict:
    return verdict_of(status, **{"device": "cuda:0", **fields})


def found(kind: str, severity: str) -> Finding:
    return Finding(kind=kind, severity=severity, message="it shows")


CARD = verdict(
    language="triton",
    coverage=0.8,
    not_checked=UNSEEN,
    correctness=Correctness(checked_calls=5, passed_calls=5),
    speedup=Speedup(value=2.0, low=1.9, high=2.1, kind="measured"),
    findings=(found("host_copies", "note"),),
)


def judged(second: Verdict, first: Verdict = CARD, **settings) -> Verdict:
    terms = EvalSettings(device="cuda:0", co_judge="sim:h200").model_copy(update=settings)
    request = EvalRequest(task=Task(id="t", reference="x"), candidate="", settings=terms)
    return with_co_judge(first, request, lambda other: second.model_copy(update={"device": other.settings.device}))


def test_nothing_found_is_trust():
    seen = judged(verdict())
    assert seen.is_correct and seen.co_judge == "sim:h200" and seen.not_checked == () and seen.coverage == 0.8
    assert seen.speedup == CARD.speedup and seen.findings == CARD.findings and seen.phases["co_judge"] >= 0


def test_what_condemns_there_condemns():
    seen = judged(verdict("hack", findings=(found("copy_kernel", "hack"), found("host_copies", "note"))))
    assert seen.status == "hack" and seen.speedup is None and seen.coverage == 0.0
    assert [(one.kind, one.seen_on) for one in seen.findings] == [("host_copies", None), ("copy_kernel", "sim:h200")]


FAULTS = [
    verdict("incorrect", findings=(found("race", "bug"),), correctness=Correctness(checked_calls=5, passed_calls=4)),
    verdict("runtime_error", findings=(found("out_of_bounds", "bug"),), error=CandidateError(type="E", message="far")),
]


@pytest.mark.parametrize("second", FAULTS, ids=lambda v: v.status)
def test_a_fault_that_the_device_saw_counts(second):
    seen = judged(second)
    assert (seen.status, seen.error, seen.speedup) == (second.status, second.error, None)
    assert seen.correctness == second.correctness and seen.findings[-1].seen_on == "sim:h200"


FAILURES = [
    verdict("incorrect", correctness=Correctness(checked_calls=5, passed_calls=4, message="off by little")),
    verdict("runtime_error", error=CandidateError(type="UnsupportedOp", message="not simulated")),
    verdict("runtime_error", error=CandidateError(type="E", message="so"), findings=(found("host_copies", "note"),)),
    verdict("invalid_request", error=CandidateError(type="TaskTooLarge", message="too large")),
    *(verdict(status) for status in ("timeout", "out_of_memory", "compile_error", "unsupported", "infra_error")),
]


@pytest.mark.parametrize("second", FAILURES, ids=lambda v: v.status)
def test_what_cannot_be_replayed_is_said_and_takes_nothing(second):
    seen = judged(second)
    assert seen.model_copy(update={"not_checked": UNSEEN, "phases": {}, "seconds": 0.0}) == CARD
    why = seen.not_checked[-1].why
    assert f"on sim:h200 it is {second.status}" in why and (second.error is None or second.error.message in why)


def test_what_earns_no_credit_there_earns_none():
    seen = judged(verdict(findings=(found("host_compute", "bug"),)))
    assert seen.is_correct and seen.speedup is None and seen.coverage == 0.0


@pytest.mark.parametrize("kind", co_judge.OF_MODELLED_TIME)
def test_what_concerns_modelled_time_alone_is_dropped(kind):
    assert judged(verdict(findings=(found(kind, "note"),))).findings == CARD.findings


@pytest.mark.parametrize("counted, expected", [(0.45, 0.4), (0.0, 0.0), (0.9, 0.8), (0.95, 0.8)])
def test_coverage_loses_the_share_that_does_not_count_there(counted, expected):
    row = ProfileRow(name="k", owner="custom", calls=1, seconds=0.9, share=0.9)
    profile = Profile(kind="modelled", device="sim:h200", rows=(row,), total_seconds=1.0, elapsed_seconds=1.0)
    assert judged(verdict(coverage=counted, profile=profile)).coverage == pytest.approx(expected)


@pytest.mark.parametrize(
    "first, settings",
    [
        (CARD, {"co_judge": "off"}), (CARD, {"unsafe_no_checks": True}), (CARD, {"device": "sim:l4"}),
        (verdict("hack"), {}), (verdict("incorrect"), {}),
        (CARD.model_copy(update={"language": "cuda"}), {"co_judge": "auto"}),
    ],
)  # fmt: skip
def test_who_is_not_judged_twice(first, settings):
    assert judged(verdict("hack"), first, **settings) is first


def test_a_language_that_is_not_simulated_is_said_where_a_co_judge_is_asked_for():
    seen = judged(verdict("hack"), CARD.model_copy(update={"language": "cuda"}))
    assert seen.is_correct and "executes Triton kernels alone" in seen.not_checked[-1].why


def test_a_card_without_a_name_is_said():
    assert "does not say what card cuda:7 is" in judged(verdict(), co_judge="auto", device="cuda:7").not_checked[-1].why


def test_only_simulated_gpus_are_co_judges():
    for name in ("auto", "off", "sim:l4"):
        assert EvalSettings(co_judge=name).co_judge == name
    for name in ("cuda:1", "cpu", "sim:nothing"):
        with pytest.raises(ValidationError):
            EvalSettings(co_judge=name)


@pytest.mark.parametrize(
    "name, arch, processors, expected",
    [
        ("NVIDIA H200", (9, 0), 132, "sim:h200"), ("NVIDIA H20", (9, 0), 78, "sim:h100_pcie"),
        ("NVIDIA RTX A6000", (8, 6), 84, "sim:rtx_a6000"), ("NVIDIA RTX A5500", (8, 6), 80, "sim:a10g"),
        ("NVIDIA GeForce RTX 4060", (8, 9), 24, "sim:l4"),
    ],
)  # fmt: skip
def test_a_card_without_figures_has_its_nearest_relatives(monkeypatch, name, arch, processors, expected):
    real = SimpleNamespace(major=arch[0], minor=arch[1], multi_processor_count=processors)
    monkeypatch.setattr(co_judge, "gpu_name", lambda place: name)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda number: real)
    assert nearest_card(EvalSettings(device="cuda:0").place) == expected
