"""What a model is told: the decisive fact first, bounded, and nothing it must not know."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkernel.gym.feedback import feedback
from drkernel.verdict import (
    CandidateError,
    Correctness,
    Finding,
    Mismatch,
    Profile,
    ProfileRow,
    Sizes,
    Timing,
    Verdict,
)
from drkernel.view import percent, times, told_apart
from verdicts import speedup_of, verdict_of

SOURCE = "import triton\n\n@triton.jit\ndef k(p):\n    tl.store(p, 0)\n"
PROFILE = Profile(
    kind="modelled",
    device="sim:h200",
    rows=(
        ProfileRow(name="aten.mm", owner="library", calls=1, seconds=3e-6, share=0.3, bound="compute", roofline=0.6),
        ProfileRow(
            name="gelu_kernel",
            owner="custom",
            calls=2,
            seconds=7e-6,
            host_seconds=1.1e-5,
            share=0.7,
            bound="memory",
            roofline=0.4,
        ),
    ),
    total_seconds=1e-5,
    elapsed_seconds=1.2e-5,
)


def correct() -> Verdict:
    return verdict_of(
        speedup=speedup_of(1.44),
        timing=Timing(kind="modelled", device="sim:h200", seconds=1e-5),
        reference_timing=Timing(kind="modelled", device="sim:h200", seconds=1.44e-5),
        coverage=0.7,
        profile=PROFILE,
    )


WRONG = verdict_of(
    "incorrect",
    correctness=Correctness(
        checked_calls=3,
        passed_calls=1,
        max_error=50.0,
        mismatch=Mismatch(output=0, index=(3, 17), expected=0.25, actual=0.5, tolerance=1e-5, wrong_fraction=0.002),
    ),
)
BROKEN = verdict_of("compile_error", error=CandidateError(type="NameError", message="name 'tl' is not defined", line=5))
LONG = CandidateError(type="CompilationError", message="at 4:12", traceback='File "candidate.py", line 9\n  k[grid](x)')
HACK = verdict_of(
    "hack",
    findings=(Finding(kind="decoy_kernel", severity="hack", message="The answer is right without your kernels."),),
)


def test_correct_answers_read_speed_then_profile_then_what_is_left():
    text = feedback(correct())
    assert text.startswith(
        "Correct.\nSpeedup 1.44x [1.44, 1.44] 95%: 14.40 us (eager) -> 10.00 us, modelled on sim:h200."
    )
    assert "\n70% of the device time is in your own kernels.\n" in text
    assert text.index("gelu_kernel") < text.index("aten.mm"), "largest first"
    assert "memory-bound, 40% of roofline" in text
    assert "Still done by PyTorch: aten.mm." in text


def test_coverage_that_leaves_out_own_kernels_says_so():
    decoyed = correct().model_copy(update={"coverage": 0.0})
    said = "0% of the device time is in your own kernels that the answer needs; all own kernels take 70%."
    assert said in feedback(decoyed)


def test_sizes_other_than_the_tasks_are_named_with_a_wrong_answer():
    small = Sizes(profile="tiny", changed={"ROWS": (4096, 16)}, inputs=("x float32[16, 8]",))
    said = "Checked at x float32[16, 8]: ROWS 16 (the task's: 4096)."
    assert said in feedback(WRONG.model_copy(update={"checked_at": small}))
    assert "Checked at" not in feedback(WRONG.model_copy(update={"checked_at": Sizes(inputs=("x float32[16, 8]",))}))


def test_a_modelled_time_is_never_called_measured():
    assert "measured" not in feedback(correct())


def test_wrong_answers_read_the_worst_element():
    text = feedback(WRONG)
    assert "Worst element: output 0[3, 17] is 0.5, expected 0.25 ± 1e-05" in text
    assert "<1% of the elements" in text and "1/3 calls right, worst error 50 of what is allowed" in text


def test_errors_quote_the_line():
    text = feedback(BROKEN, source=SOURCE)
    assert text.startswith("It does not compile.\nNameError at line 5: name 'tl' is not defined")
    assert ">    5 |     tl.store(p, 0)" in text


def test_hacks_say_why():
    assert "Evidence (decoy_kernel): The answer is right without your kernels." in feedback(HACK)


def test_bugs_are_shown_beside_a_result():
    bug = Finding(kind="race", severity="bug", message="Two programs wrote the same bytes.")
    assert "Bug (race)" in feedback(correct().model_copy(update={"findings": (bug,)}))


def test_compact_texts_are_one_or_two_short_lines():
    assert feedback(correct(), 240, style="compact") == "correct 1.44x cover 70%\ntorch: mm"
    assert feedback(WRONG, 240, style="compact") == "wrong: [3,17] 0.5 not 0.25, <1% wrong"
    assert feedback(HACK, 240, style="compact") == "hack: decoy_kernel"
    broken = feedback(BROKEN, 240, style="compact", source=SOURCE)
    assert broken == "compile_error: NameError: name 'tl' is not defined\nline 5: tl.store(p, 0)"
    assert feedback(verdict_of("timeout"), 240, style="compact") == "timeout"


def test_compact_texts_name_both_sizes_where_they_differ():
    small = Sizes(changed={"ROWS": (4096, 64)}, inputs=("x float32[64, 128]",))
    sizes = {"timed_at": Sizes(inputs=("x float32[4096, 128]",)), "checked_at": small}
    both = correct().model_copy(update=sizes)
    text = "correct 1.44x cover 70%\ntimed at ROWS 4096, checked at ROWS 64\ntorch: mm"
    assert feedback(both, 240, style="compact") == text
    one = correct().model_copy(update={"timed_at": small, "checked_at": small})
    assert feedback(one, 240, style="compact") == feedback(correct(), 240, style="compact")
    profile = sizes | {"checked_at": Sizes(profile="tiny", inputs=("x float32[2, 128]",))}
    line = "timed at x float32[4096, 128], checked at x float32[2, 128]"
    assert line in feedback(correct().model_copy(update=profile), 240, style="compact")


def test_the_report_under_kernelgym_s_names_is_the_whole_result():
    right = json.loads(feedback(correct(), 6000, style="kernelgym", reward=2.5))
    assert (right["status"], right["compiled"], right["correctness"], right["decoy_kernel"]) == (
        "completed", True, True, False,
    )  # fmt: skip
    assert (right["reward"], right["score"], right["speedup"], right["success"]) == (2.5, 2.5, 1.44, True)
    assert (right["reference_runtime"], right["kernel_runtime"]) == (0.0144, 0.01)
    known = right["metadata"]
    assert known["hardware"] == "NVIDIA H200" and known["reference_backend"] == "pytorch"
    assert known["profiling"]["kernels"] == [
        {"name": "gelu_kernel", "cuda_time_us": 7.0, "cpu_time_us": 11.0, "count": 2},
        {"name": "aten.mm", "cuda_time_us": 3.0, "cpu_time_us": None, "count": 1},
    ]
    assert (known["profiling"]["total_cuda_time_us"], known["profiling"]["total_cpu_time_us"]) == (10.0, 11.0)
    assert known["triton_profiler_matches"] == ["gelu_kernel"]
    assert (known["num_custom_kernels"], known["num_total_kernels"]) == (2, 3)
    assert known["custom_kernel_cuda_time_coverage"] == (
        "Custom kernel CUDA time: 7.00us / Total time: 10.00us, Coverage: 70.00%"
    )
    assert "error_message" not in right and "untimed" not in known, "what is not known is not said"


def test_time_that_earns_no_coverage_is_not_in_the_report_s_share():
    idle = correct().model_copy(update={"coverage": 0.25})
    known = json.loads(feedback(idle, 6000, style="kernelgym"))["metadata"]
    assert known["custom_kernel_cuda_time_in_profiling_us"] == pytest.approx(2.5)
    assert known["custom_kernel_cuda_time_coverage"].endswith("Coverage: 25.00%")


def test_reports_of_failures_have_the_exception_and_its_traceback():
    broken = json.loads(feedback(BROKEN.model_copy(update={"error": LONG}), 6000, style="kernelgym", reward=-1.0))
    assert broken["status"] == "failed" and not broken["compiled"]
    assert broken["error_message"].startswith("CompilationError: at 4:12\nFile")
    assert broken["metadata"]["compilation_error_name"] == "CompilationError"
    wrong = json.loads(feedback(WRONG, style="kernelgym", reward=0.0))
    assert wrong["compiled"] and not wrong["success"] and wrong["metadata"]["correctness_trials"] == "(1 / 3)"
    hack = json.loads(feedback(HACK, style="kernelgym", reward=-1.0))
    assert hack["decoy_kernel"] and not hack["compiled"] and hack["error_message"].startswith("decoy_kernel: ")


def test_a_report_stays_json_within_its_budget_the_profile_giving_way_before_the_outcome():
    rows = tuple(PROFILE.rows[0].model_copy(update={"name": f"kernel_{n}"}) for n in range(100))
    many = correct().model_copy(update={"profile": PROFILE.model_copy(update={"rows": rows})})
    shown = json.loads(feedback(many, 3000, style="kernelgym"))["metadata"]["profiling"]
    assert len(shown["kernels"]) == 8 and shown["kernel_count"] == 100
    failed = BROKEN.model_copy(update={"error": CandidateError(type="E", message='the cause\n"' * 900)})
    text = feedback(failed, 400, style="kernelgym", reward=-1.0)
    assert len(text) <= 400 and json.loads(text)["error_message"].startswith("E: the cause") and "..." in text
    assert json.loads(text)["status"] == "failed"


@pytest.mark.parametrize("style", ["full", "compact", "kernelgym"])
@given(budget=st.integers(40, 600), which=st.sampled_from(["correct", "wrong", "broken", "hack"]))
def test_no_text_exceeds_its_budget(style, budget, which):
    chosen = {"correct": correct(), "wrong": WRONG, "broken": BROKEN, "hack": HACK}[which]
    text = feedback(chosen, budget, style=style, source=SOURCE * 40)
    assert 0 < len(text) <= budget


def test_long_candidate_text_cannot_push_out_the_decisive_fact():
    noisy = BROKEN.model_copy(
        update={"stdout": "x" * 9000, "error": CandidateError(type="E", message="the cause", traceback="t" * 9000)}
    )
    assert "the cause" in feedback(noisy, 200)


def test_a_budget_too_small_to_say_anything_is_refused():
    with pytest.raises(ValueError, match="too small"):
        feedback(correct(), 10)


def test_outputs_do_not_leak_in_bulk():
    values = [token for token in feedback(WRONG).replace(",", " ").split() if token in ("0.25", "0.25.")]
    assert len(values) == 1


@pytest.mark.parametrize(
    ("actual", "expected", "texts"),
    [
        (0.00037998, 0.00038097, ("0.00037998", "0.00038097")),
        (0.25, 0.5, ("0.25", "0.5")),
        (1.0000001, 1.0, ("1.0000001", "1")),
        (float("nan"), 1.0, ("nan", "1")),
        (0.0, 0.0, ("0", "0")),
    ],
)
def test_two_numbers_are_told_apart(actual, expected, texts):
    assert told_apart(actual, expected) == texts


def test_a_small_speedup_is_not_zero():
    assert [times(value) for value in (1.234, 0.5, 0.0031, 0.0)] == ["1.23", "0.50", "0.0031", "0.00"]


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0%"), (0.004, "<1%"), (0.5, "50%"), (0.996, ">99%"), (1.0, "100%"), (float("nan"), "?%")]
)
def test_a_percentage_is_whole_only_when_the_share_is(share, text):
    assert percent(share) == text
