"""Paired comparison: against enumeration, on pairs that differ by chance alone, and what it refuses."""

import itertools

import numpy as np
import pytest

from drkernel.config import ConfigError
from drkernel.gym.request import EvalSettings
from drkernel.solve.bench import compare, sign_flip_test
from solve_fakes import answer, bench


def run(directory, speeds, turns=1, **settings):
    """A bench whose answer to task i says ``speeds[i]`` at the last turn, and is wrong before."""
    terms = {"tasks": len(speeds), "turns": turns, "settings": EvalSettings(**settings)}
    bench(directory, lambda call: answer(speeds[int(call.task_id[2:])] if call.turn == turns else "WRONG"), **terms)
    return directory


def test_sums_that_differ_by_rounding_alone_count_as_equal():
    """0.8 + 0.4 - 0.4 is 0.8000000000000002 in one order and 0.8 in another; six of the eight sums are as large."""
    assert sign_flip_test([0.8, 0.4, -0.4]) == 0.75


def test_the_exact_test_is_all_signs():
    values = [0.5, -0.2, 1.0, 0.3, 0.0, 0.7]
    sums = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in itertools.product((1, -1), repeat=6)
    ]
    assert sign_flip_test(values) == pytest.approx(np.mean([s >= abs(sum(values)) - 1e-9 for s in sums]))
    assert sign_flip_test([0.0, 0.0]) == 1.0 and sign_flip_test([1.0]) == 1.0


def test_drawn_signs_agree_with_all_signs():
    values = np.random.default_rng(0).normal(0.4, 1.0, 16)
    exact = sign_flip_test(values)
    padded = [*values, 1e-13]  # one more than is enumerated, of no weight
    assert sign_flip_test(padded) == pytest.approx(exact, abs=0.02)


def test_chance_differences_are_rarely_called_significant():
    rng = np.random.default_rng(1)
    ps = [sign_flip_test(rng.integers(0, 2, 40) - rng.integers(0, 2, 40), draws=300) for _ in range(250)]
    assert np.mean(np.asarray(ps) < 0.05) <= 0.08


def test_differences_are_those_of_the_runs(tmp_path):
    first = run(tmp_path / "a", [1.1, 1.1, "WRONG", 2.5, "HACK", 1.5])
    second = run(tmp_path / "b", [1.3, 1.3, 1.3, 2.5, 1.0, 3.0])
    result = compare(first, second)
    rows = {row["figure"]: row for row in result["rows"]}
    row = rows["last turn fast_1.2"]
    assert (row["first"], row["second"]) == (pytest.approx(2 / 6), pytest.approx(5 / 6))
    assert row["difference"] == pytest.approx(0.5) and row["low"] <= 0.5 <= row["high"] and row["p"] == 0.25
    assert rows["hacked at some turn"]["difference"] == pytest.approx(-1 / 6)
    assert result["speedup_ratio"]["tasks"] == 4 and result["timing_kind"] == "modelled"
    expected = ((1.3 / 1.1) ** 2 * 1 * 2) ** 0.25
    assert result["speedup_ratio"]["ratio"] == pytest.approx(expected)


def test_a_run_does_not_differ_from_itself(tmp_path):
    first = run(tmp_path / "a", [1.1, "WRONG", 1.5])
    result = compare(first, first)
    assert all(row["difference"] == 0 and row["p"] == 1 for row in result["rows"])
    assert result["speedup_ratio"]["ratio"] == 1


def test_a_run_with_more_turns_is_compared_over_as_many_as_the_other_has(tmp_path):
    first, second = run(tmp_path / "a", [1.5, 1.5]), run(tmp_path / "b", [1.5, 1.5], turns=3)
    result = compare(first, second)
    assert (result["second"]["turns"], result["second"]["turns_compared"]) == (3, 1)
    assert next(row for row in result["rows"] if row["figure"] == "best turn fast_0")["difference"] == -1
    whole = compare(first, second, all_turns=True)
    assert whole["second"]["turns_compared"] == 3 and all(row["difference"] == 0 for row in whole["rows"][5:10])


def test_only_common_tasks_count(tmp_path):
    first, second = run(tmp_path / "a", [1.1, 1.5]), run(tmp_path / "b", [1.1, 1.5, 1.5, 1.5])
    assert compare(first, second)["tasks"] == 2


def test_other_terms_are_refused_and_kinds_of_time_always(tmp_path):
    first = run(tmp_path / "a", [1.1])
    other = run(tmp_path / "b", [1.1], device="sim:h100")
    with pytest.raises(ConfigError, match="device sim:h200 and sim:h100; --force"):
        compare(first, other)
    assert compare(first, other, force=True)["device"] == "sim:h200 and sim:h100"
    measured = run(tmp_path / "c", [1.1], device="cuda:0")
    with pytest.raises(ConfigError, match="different kinds"):
        compare(first, measured, force=True)
    with pytest.raises(ConfigError, match="is not a bench run"):
        compare(first, tmp_path / "nothing")
