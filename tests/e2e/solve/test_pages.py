"""The pages of bench and solve: what they say, and that nothing a model writes becomes part of them."""

import asyncio
import re

import pytest

from browser import rest
from drkernel.cli.bench import LiveBench
from drkernel.cli.solve import what_happened
from drkernel.episode.meter import Meter, Prices
from drkernel.report.bench import write_report
from drkernel.report.solve import keep_verified
from drkernel.solve.bench import read_bench
from drkernel.solve.verify import verify
from solve_fakes import FunctionModel, TextPool, answer, bench_config, open_run

EVIL = "</pre></details><script>alert(1)</script><img src=x onerror=alert(2)>\x1b]0;title\x07"


def play(directory, function, kind="bench", tasks=1, **terms):
    """A run of the fakes, read back."""
    model = FunctionModel(function)
    model.name = f"m {EVIL}"
    prices = Prices(prompt=1000, completion=1000)
    config = bench_config(model.name, kind, prices=prices, **terms).model_copy(update={"tasks": EVIL})
    with open_run(directory, config, tasks) as run:
        asyncio.run(run.run(Meter(model, prices=prices), TextPool()))
    return read_bench(directory)


def text_of(page):
    return " ".join(re.sub(r"<[^>]*>", " ", page.read_text()).split())


@pytest.mark.parametrize("kind", ["bench", "solve"])
def test_nothing_that_a_model_writes_becomes_part_of_the_page(tmp_path, kind):
    def function(call):
        return [EVIL, answer(f"BROKEN # {EVIL}"), answer(f"WRONG # {EVIL}"), answer(1.5, EVIL)][call.turn - 1]

    play(tmp_path, function, kind, turns=4)
    page = rest(write_report(tmp_path).read_text())
    assert "<script" not in page and "<img" not in page and "&lt;script&gt;" in page
    assert "http" not in page  # self-contained


def test_the_terminal_is_not_steered_by_an_answer(tmp_path):
    run = play(tmp_path, lambda call: EVIL + "\n```cpp\x1b[2J\nx\n```", turns=1)
    (turn,) = run.played.turns(("t/0", 0))
    assert what_happened(turn).isprintable()


def test_the_page_of_a_run_that_goes_on_reads_itself_anew(tmp_path):
    model = FunctionModel(lambda call: answer(1.5))
    with open_run(tmp_path, bench_config(model.name), 1) as run, LiveBench(run, Meter(model), quiet=True):
        assert 'http-equiv="refresh"' in (tmp_path / "report.html").read_text()
    assert "refresh" not in write_report(tmp_path).read_text()


def test_a_bench_page_explains_its_verdicts_and_counts(tmp_path):
    speeds = {"t/0": 1.5, "t/1": "WRONG", "t/2": "HACK", "t/3": "BROKEN"}
    play(tmp_path, lambda call: answer(speeds[call.task_id]), tasks=4, turns=2)
    text = text_of(write_report(tmp_path))
    assert "4 tasks, 1 sample each, 2 turns" in text and "Every time on this page is modelled" in text
    for words in ("correct 1 2 right on every call", "hack 1 2 looked right but did not do the work",
                  "incorrect 1 2 ran, but an output was wrong", "runtime error 1 2 raised an exception"):  # fmt: skip
        assert words in text
    assert "no_custom_kernel" in text and "25.0% correct: best turn" in text and "$" in text


def test_a_search_page_says_how_it_went_and_why_it_ended(tmp_path):
    speeds = (1.1, "WRONG", 2.5)
    run = play(
        tmp_path,
        lambda call: answer(speeds[call.turn - 1]),
        "solve",
        turns=9,
        target=2.0,
        context={"name": "best", "keep": 2, "every": 5},
    )
    tried = asyncio.run(verify(run.tasks[0], run.played.turns(("t/0", 0)), run.config.episode.settings, TextPool()))
    keep_verified(tmp_path, tried)
    text = text_of(write_report(tmp_path))
    assert "made 3 attempts" in text and "2.50x speedup: [2.50, 2.50] 95%: modelled on sim:h200" in text
    assert (
        "the conversation held the best 2, cut every 5 turns. It stopped because the target speedup was reached."
        in text
    )
    assert text == text_of(write_report(tmp_path))  # made again from what is kept


def test_a_search_without_a_correct_attempt_says_so(tmp_path):
    play(tmp_path, lambda call: answer("WRONG"), "solve", turns=2)
    text = text_of(write_report(tmp_path))
    assert "No attempt was correct." in text and "It made all the turns it was given." in text


def test_every_cell_opens_its_answer_with_what_was_wrong(tmp_path):
    play(tmp_path, lambda call: answer(("WRONG", 0.004)[call.turn - 1], "Try:"), turns=2)
    page = write_report(tmp_path).read_text()
    links = re.findall(r'href="#([^"]+)"', page)
    assert len(links) == 2 and all(page.count(f'id="{link}"') == 1 for link in links)
    wrong = page.partition(f'id="{links[0]}"')[2].partition("</details>")[0]
    assert "class ModelNew: WRONG" in re.sub(r"<[^>]*>", "", wrong) and "<b>judge</b>" in wrong
    assert "0.0040×" in page or "0.004×" in page
