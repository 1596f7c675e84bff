"""Learning-rate schedules by their defining points."""

import pytest

from drkernel.rl.run.optimizers import Constant, Cosine, warmup_factor


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
