"""Metrics against enumeration of every subset, and intervals against the rate at which they must cover."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drkernel.episode.metrics import (
    TurnOutcome,
    best_at_k,
    best_turn,
    figures,
    is_fast,
    last_turn,
    mean_interval,
    pass_at_k,
    student_quantile,
    summarise,
)

OUTCOMES = st.builds(
    TurnOutcome,
    status=st.sampled_from(["correct", "incorrect", "hack", "compile_error"]),
    speedup=st.sampled_from([0.5, 1.0, 1.1, 1.2, 1.3, 2.0, 4.0]),
    reward=st.floats(0, 3),
)


def subsets(n, k):
    return list(itertools.combinations(range(n), k))


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_success(successes, data):
    k = data.draw(st.integers(1, len(successes)))
    chosen = subsets(len(successes), k)
    share = sum(any(successes[i] for i in subset) for subset in chosen) / len(chosen)
    assert pass_at_k(successes, k) == pytest.approx(share, abs=1e-12)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=7), st.data())
def test_best_at_k_is_the_mean_maximum_over_subsets(values, data):
    k = data.draw(st.integers(1, len(values)))
    chosen = subsets(len(values), k)
    expected = sum(max(values[i] for i in subset) for subset in chosen) / len(chosen)
    assert best_at_k(values, k) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("n", "k"), [(3, 0), (3, 4), (0, 1)])
def test_more_samples_than_there_are_is_refused(n, k):
    with pytest.raises(ValueError, match="samples"):
        pass_at_k([True] * n, k)
    with pytest.raises(ValueError, match="samples"):
        best_at_k([1.0] * n, k)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.lists(OUTCOMES, min_size=1, max_size=3), min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_table_is_what_counting_by_hand_gives(plays):
    samples = {f"t{index}": trajectories for index, trajectories in enumerate(plays)}
    summary = summarise(samples, 3)
    for name, p in (("fast_0", 0.0), ("fast_1", 1.0), ("fast_1.2", 1.2), ("fast_2", 2.0)):
        for turn in (1, 2, 3):
            last, best = [], []
            for trajectories in plays:
                hits = [any(is_fast(o, p) for o in play[:turn]) for play in trajectories]
                best.append(sum(hits) / len(hits))
                hits = [is_fast(play[min(turn, len(play)) - 1], p) for play in trajectories]
                last.append(sum(hits) / len(hits))
            assert summary["per_turn"][turn - 1]["last"][name]["value"] == pytest.approx(np.mean(last))
            assert summary["per_turn"][turn - 1]["best"][name]["value"] == pytest.approx(np.mean(best))
        assert summary["best"][name] == summary["per_turn"][2]["best"][name]
    fewest = min(map(len, plays))
    for k, row in summary["at_k"].items():
        shares = []
        for trajectories in plays:
            chosen = subsets(len(trajectories), int(k))
            wins = [any(is_fast(o, 1.0) for i in subset for o in trajectories[i]) for subset in chosen]
            shares.append(sum(wins) / len(wins))
        assert row["fast_1@k"] == pytest.approx(np.mean(shares))
    assert str(fewest) in summary["at_k"] and all(int(k) <= fewest for k in summary["at_k"])
    hacked = [[any(o.status == "hack" for o in play) for play in ts] for ts in plays]
    assert summary["hacks"]["ever"]["value"] == pytest.approx(np.mean([np.mean(ts) for ts in hacked]))
    assert sum(summary["status_all"].values()) == summary["answers"] == sum(len(p) for ts in plays for p in ts)


def test_a_hack_never_counts_as_fast_whatever_its_speed():
    assert not is_fast(TurnOutcome("hack", speedup=9.0), 0.0) and not is_fast(TurnOutcome("hack", speedup=9.0), 2.0)
    assert is_fast(TurnOutcome("correct"), 0.0) and not is_fast(TurnOutcome("correct"), 1.0)
    assert not is_fast(TurnOutcome("correct", speedup=1.2), 1.2)


def test_best_turn_is_the_fastest_correct_one_and_last_turn_carries_on():
    turns = [TurnOutcome("correct", 1.1), TurnOutcome("correct", 1.5), TurnOutcome("hack", 9.0)]
    assert best_turn(turns).speedup == 1.5 and best_turn(turns, 1).speedup == 1.1
    assert last_turn(turns, 2).speedup == 1.5 and last_turn(turns, 9).status == "hack"


def test_nothing_played_gives_counts_and_no_figures():
    assert summarise({"a": []}, 3) == {"tasks": 0, "trajectories": 0, "answers": 0}


# ---- intervals


@pytest.mark.parametrize(("probability", "freedom", "expected"), [
    (0.975, 1, 12.7062), (0.975, 4, 2.77645), (0.975, 19, 2.09302), (0.95, 9, 1.83311), (0.995, 49, 2.67995),
])  # fmt: skip
def test_student_quantiles_are_those_of_the_tables(probability, freedom, expected):
    assert student_quantile(probability, freedom) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(("value", "bounds", "low", "high"), [
    (0.0, (0, 1), 0, 1), (1.0, (0, 1), -1, 0), (0.25, (0, 1), -0.25, 0.75), (0.0, (-1, 1), -1, 1),
])  # fmt: skip
def test_where_all_tasks_agree_the_ends_are_those_of_the_exact_binomial(value, bounds, low, high):
    found = mean_interval([value] * 20, bounds=bounds)
    unseen = 1 - 0.025 ** (1 / 20)
    assert (found.low, found.high) == pytest.approx((value + unseen * low, value + unseen * high))


def test_equal_values_that_are_no_shares_have_no_known_interval():
    found = mean_interval([3.5, 3.5], bounds=None)
    assert found.value == 3.5 and math.isinf(found.low) and found.to_json()["high"] is None


def coverage_of_interval(rng, tasks, samples, draw, rounds=400):
    """Share of simulated benchmarks whose interval holds the true mean over the population of tasks."""
    hits = 0
    for _ in range(rounds):
        chance_N = draw(rng, tasks)
        values = rng.binomial(samples, chance_N) / samples
        found = mean_interval(values)
        hits += found.low <= 0.3 <= found.high
    return hits / rounds


@pytest.mark.parametrize("tasks", [20, 100])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("spread", ["equal", "uneven"])
def test_intervals_cover_at_the_stated_rate(tasks, samples, spread):
    def draw(rng, n):  # the mean chance is 0.3 in both populations
        return np.full(n, 0.3) if spread == "equal" else rng.beta(0.3, 0.7, n)

    rate = coverage_of_interval(np.random.default_rng([tasks, samples, len(spread)]), tasks, samples, draw)
    # 400 rounds: a rate of 0.95 is measured within 0.033 in 99.7% of runs; small tables may be a little off
    assert 0.91 <= rate <= 0.99, rate


def test_rare_successes_are_covered_too():
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(400):
        found = mean_interval(rng.binomial(1, 0.03, 30))
        hits += found.low <= 0.03 <= found.high
    assert hits / 400 >= 0.93


def test_what_the_device_cannot_run_is_neither_right_nor_wrong():
    foreign, slow, fast = TurnOutcome("unsupported"), TurnOutcome("correct", 1.1), TurnOutcome("correct", 1.5)
    samples = {"a": [[slow, foreign]], "b": [[foreign, fast]], "c": [[foreign, foreign]]}
    summary = summarise(samples, 2)
    assert summary["last"]["fast_0"]["value"] == 1 and summary["last"]["fast_0"]["tasks"] == 2
    assert [row["last"]["fast_1.2"]["value"] for row in summary["per_turn"]] == [0, 0.5]
    assert summary["status_all"] == {"correct": 2, "unsupported": 4} and summary["trajectories"] == 3
    assert "last" not in summarise({"c": samples["c"]}, 2)
    assert figures(samples, last_turn)["fast_0"] == 1 and figures({"c": samples["c"]}, last_turn)["fast_0"] is None


def test_training_and_bench_take_a_figure_from_the_same_place():
    rows = {
        "a": [[TurnOutcome("correct", 1.3, 0.8)], [TurnOutcome("incorrect")]],
        "b": [[TurnOutcome("hack"), TurnOutcome("correct", 2.0, 1.0)]],
    }
    summary, row = summarise(rows, 2), figures(rows, last_turn)
    for name in ("fast_0", "fast_1", "fast_1.2", "fast_1.5", "fast_2"):
        assert row[name] == summary["last"][name]["value"]
        assert figures(rows, best_turn, 1)[name] == summary["per_turn"][0]["best"][name]["value"]
    assert row["hack_rate"] == summary["hacks"]["last"]["value"] and row["speedup"] == pytest.approx(1.65)
