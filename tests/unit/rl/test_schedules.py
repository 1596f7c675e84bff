"""Learning-rate schedules by their defining points."""

import math
from dataclasses import asdict

import pytest

from drkernel.rl.maths.schedules import Constant, Cosine, LengthState, LengthTriggered, warmup_factor


def test_warm_up_rises_in_equal_steps_and_then_stays():
    assert [Constant(warmup=3).factor(s) for s in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert Constant().factor(0) == 1.0
    with pytest.raises(ValueError, match="from 0"):
        warmup_factor(-1, 3)


def test_cosine_starts_at_one_halves_in_the_middle_and_ends_at_the_floor():
    schedule = Cosine(total=110, warmup=10, floor=0.2)
    assert schedule.factor(9) < 1.0 == schedule.factor(10)
    assert schedule.factor(60) == pytest.approx(0.6)
    assert schedule.factor(110) == schedule.factor(10_000) == pytest.approx(0.2)
    factors = [schedule.factor(s) for s in range(10, 111)]
    assert factors == sorted(factors, reverse=True)
    with pytest.raises(ValueError, match="warmup < total"):
        Cosine(total=5, warmup=5)
    with pytest.raises(ValueError, match="floor"):
        Cosine(total=5, floor=1.5)


def run(schedule, lengths):
    factors = []
    for step, length in enumerate(lengths):
        factors.append(schedule.factor(step))
        schedule = schedule.observe(step, length)
    return schedule, factors


def test_a_surge_in_length_sets_off_the_stairs_and_steady_lengths_do_not():
    base = LengthTriggered(window=4, surge=1.5, decay=0.5, period=0.5, floor=0.1)
    steady, factors = run(base, [100 + 10 * math.sin(s) for s in range(200)])
    assert steady.state.triggered is None and set(factors) == {1.0}
    surged, factors = run(base, [100.0] * 20 + [200.0] * 60)
    # The running mean of four reaches 150 with the second long step, step 21.
    assert surged.state.triggered == 21
    assert factors[31] == 1.0 and factors[32] == 0.5
    length = 0.5 * 21
    for step in range(22, 80):
        assert factors[step] == max(0.1, 0.5 ** math.floor((step - 21) / length))
    assert factors[-1] == 0.1


def test_by_default_the_first_step_down_comes_a_period_after_the_surge():
    surged, factors = run(LengthTriggered(window=4), [100.0] * 20 + [200.0] * 180)
    assert surged.state.triggered == 21
    length = 1.8 * 21
    for step in range(22, 200):
        assert factors[step] == max(0.1, 0.5 ** math.floor((step - 21) / length))
    assert factors[21 + 37] == 1.0 and factors[21 + 38] == 0.5
    assert factors[-1] == surged.factor(10_000) == 0.1


def test_a_short_spike_does_not_trigger_and_the_trigger_is_final():
    base = LengthTriggered(window=10, surge=1.5)
    spike, _ = run(base, [100.0] * 20 + [300.0] + [100.0] * 20)
    assert spike.state.triggered is None
    surged, _ = run(base, [100.0] * 20 + [300.0] * 10 + [50.0] * 50)
    assert surged.state.triggered == 22


def test_lengths_that_fall_first_and_surge_then_trigger():
    """From 200 down to 80 and up to 160: never 1.5 times the first window, and twice the lowest."""
    falls = [200.0] * 10 + [200.0 - 6 * k for k in range(20)] + [80.0] * 10
    fallen, _ = run(LengthTriggered(window=4), falls)
    assert fallen.state.triggered is None and fallen.state.baseline == 80.0
    surged, _ = run(LengthTriggered(window=4), [*falls, *[160.0] * 10])
    assert surged.state.triggered == len(falls) + 1, "the running mean reaches 120 with the second long step"


@pytest.mark.parametrize("lengths", [[0.0] * 30, [0.0] * 10 + [100.0] * 30, [100.0] * 20 + [0.0] * 20 + [100.0] * 20])
def test_steps_without_tokens_neither_trigger_nor_count(lengths):
    schedule, _ = run(LengthTriggered(window=4), lengths)
    assert schedule.state.triggered is None and schedule.state.baseline in (None, 100.0)
    assert schedule.state.observed == sum(length > 0 for length in lengths)


def test_warm_up_is_not_looked_at():
    base = LengthTriggered(warmup=5, window=3)
    schedule, factors = run(base, [10.0] * 5 + [100.0] * 30)
    assert schedule.state.triggered is None and schedule.state.baseline == 100.0
    assert factors[:6] == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1.0])


def test_state_survives_a_checkpoint():
    base = LengthTriggered(window=4)
    lengths = [100.0] * 12 + [180.0] * 10
    whole, _ = run(base, lengths)
    half, _ = run(base, lengths[:13])
    data = asdict(half.state)
    resumed = LengthTriggered(window=4, state=LengthState(**{**data, "recent": tuple(data["recent"])}))
    for step in range(13, 22):
        resumed = resumed.observe(step, lengths[step])
    assert resumed == whole and whole.state.triggered is not None


def test_broken_settings_and_lengths_are_refused():
    with pytest.raises(ValueError, match="surge > 1"):
        LengthTriggered(surge=1.0)
    with pytest.raises(ValueError, match="not a length"):
        LengthTriggered().observe(0, math.nan)
