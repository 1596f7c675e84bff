"""The interval of a modelled speedup: wide where kinds of kernels are little known, around 1 against itself."""

import math

import pytest

from drkernel.gym.judge.modelled_timing import (
    COMPILED,
    CONVOLUTION,
    COPY,
    CUSTOM,
    HOST,
    LIBRARY,
    log_error,
    ratio_error,
    speedup_of,
)
from drkernel.verdict import Bound, Owner, Profile, ProfileRow

MINE, THEIRS = ({bound: widths[-1] for bound, widths in table.items()} for table in (CUSTOM, LIBRARY))
"""widths of what takes 50 us and more"""


def profile(*rows: tuple[Owner, Bound, float], idle: float = 0.0) -> Profile:
    total = sum(seconds for _, _, seconds in rows)
    made = tuple(
        ProfileRow(name=f"k{k}", owner=owner, calls=1, seconds=seconds, share=seconds / total, bound=bound)
        for k, (owner, bound, seconds) in enumerate(rows)
    )
    return Profile(kind="modelled", device="sim:h100", rows=made, total_seconds=total, elapsed_seconds=total + idle)


def test_errors_are_weighted_by_time() -> None:
    half = profile(("custom", "memory", 1e-3), ("library", "memory", 1e-3))
    assert log_error(half) == pytest.approx((MINE["memory"] + THEIRS["memory"]) / 2)
    assert log_error(profile(("custom", "memory", 1e-3), idle=1e-3)) == pytest.approx((MINE["memory"] + HOST) / 2)
    assert log_error(profile(("copy", "memory", 1e-3))) == pytest.approx(COPY)


def test_compiled_baselines_are_known_as_well_as_they_were_held_against_measured_ones() -> None:
    """A convolution that a compiler lays out anew is known least; the candidate's own kernels as ever."""
    mine = profile(("custom", "memory", 1e-3))
    generated = profile(("custom", "memory", 2e-3))
    library = generated.rows[0].model_copy(update={"name": "aten.convolution", "owner": "library"})
    convolved = generated.model_copy(update={"rows": (library,)})
    window = generated.rows[0].model_copy(update={"name": "triton_poi_fused_avg_pool2d_0"})
    pooled = generated.model_copy(update={"rows": (window,)})
    for reference, error in ((generated, COMPILED), (convolved, CONVOLUTION), (pooled, CONVOLUTION)):
        assert log_error(reference, "compile") == pytest.approx(error)
        speedup = speedup_of(reference, mine, baseline="compile")
        assert speedup is not None
        assert math.log(speedup.high / 2.0) == pytest.approx(math.hypot(error, MINE["memory"]))
    assert log_error(convolved) == pytest.approx(THEIRS["memory"])


def test_what_both_sides_have_in_common_does_not_widen_their_ratio() -> None:
    mine = profile(("custom", "memory", 1e-3))
    alike, other = profile(("library", "memory", 1e-3)), profile(("library", "compute", 1e-3))
    for reference, shared in ((alike, True), (other, False)):
        apart = math.hypot(log_error(mine), log_error(reference))
        error = ratio_error(reference, mine)
        assert error < apart if shared else error == pytest.approx(apart)
    waiting = profile(("library", "memory", 1e-6), idle=1e-3), profile(("custom", "memory", 1e-6), idle=1e-3)
    assert ratio_error(*waiting) == pytest.approx(HOST, rel=0.01)  # a host of both, half in common


def test_work_that_both_sides_run_alike_is_off_alike() -> None:
    """A product of 1 ms on both sides: were it twice as long, 1.1 ms over 1.05 ms were 2.1 over 2.05."""
    product = ("library", "compute", 1e-3)
    reference = profile(product, ("library", "memory", 1e-4))
    candidate = profile(product, ("custom", "memory", 5e-5))
    apart = math.hypot(1e-4 * THEIRS["memory"] / 1.1e-3, 5e-5 * MINE["memory"] / 1.05e-3)
    alike = 1e-3 * THEIRS["compute"] * (1 / 1.05e-3 - 1 / 1.1e-3)
    error = ratio_error(reference, candidate)
    assert math.hypot(0.5 * apart, alike) < error < math.hypot(apart, alike) < 0.04
    assert ratio_error(reference, candidate, "compile") < 0.05
    rows = candidate.rows[0].model_copy(update={"seconds": 2e-3}), candidate.rows[1]
    longer = candidate.model_copy(update={"rows": rows, "total_seconds": 2.05e-3, "elapsed_seconds": 2.05e-3})
    assert ratio_error(reference, longer) > 0.3  # the same operator at other sizes is no common work


def test_what_is_known_less_has_a_wider_interval() -> None:
    reference = profile(("library", "memory", 2e-3))
    made = (
        profile(("custom", "memory", 1e-3)),
        profile(("custom", "compute", 1e-3)),
        profile(("custom", "latency", 1e-3)),
    )
    rows = made[2].rows[0].model_copy(update={"seconds": 90e-6, "calls": 10})
    brief = made[2].model_copy(update={"rows": (rows,), "total_seconds": 90e-6, "elapsed_seconds": 90e-6})
    assert log_error(brief) < 0.5 * log_error(made[2])  # ten launches of 9 us: a width is that of one launch
    found = [speedup_of(reference, one) for one in made]
    widths = [speedup.high / speedup.low for speedup in found if speedup is not None]
    assert len(widths) == 3 and widths[0] < min(widths[1:])
    for speedup in found:
        assert speedup is not None and speedup.value == 2.0 and speedup.confidence == 0.9
        assert math.sqrt(speedup.low * speedup.high) == pytest.approx(2.0)


def test_a_reference_against_itself_includes_one_and_nothing_timed_has_no_speedup() -> None:
    reference = profile(("library", "compute", 2e-3))
    speedup = speedup_of(reference, reference)
    assert speedup is not None and speedup.low == speedup.value == speedup.high == 1.0
    waiting = profile(("library", "compute", 2e-3), idle=1e-3)
    speedup = speedup_of(waiting, waiting)
    assert speedup is not None and speedup.low < 1.0 < speedup.high
    nothing = Profile(kind="modelled", device="sim:h100", total_seconds=0.0, elapsed_seconds=0.0)
    assert speedup_of(nothing, reference) is None


def test_a_speedup_of_calls_that_is_not_one_of_device_work_hangs_on_the_host() -> None:
    reference = profile(("library", "memory", 2e-3))
    alone, waiting = profile(("custom", "memory", 1e-3)), profile(("custom", "memory", 1e-3), idle=1e-3)
    fast, slow = speedup_of(reference, alone), speedup_of(reference, waiting)
    assert fast is not None and slow is not None
    assert fast.value == fast.device_value == slow.device_value == 2.0 and slow.value == 1.0
    assert not fast.host_note and slow.host_note == "hangs on the host: 2.00x in device time alone"
