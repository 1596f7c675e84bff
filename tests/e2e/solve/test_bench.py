"""The benchmark: what it writes, what it takes up again, what it refuses."""

import asyncio
import json

import pytest

from drkernel.config import ConfigError
from drkernel.episode.meter import Budget, Journal, JournalEntry, Meter, Prices, ReplyCache, read_journal, read_jsonl
from drkernel.episode.records import ModelError
from drkernel.episode.renderer import Prompts
from drkernel.solve.bench import outcomes, read_bench
from solve_fakes import FunctionModel, TextPool, answer, bench, bench_config, open_run

PROMPTS = Prompts.load("full")


def test_a_run_is_written_and_read_back(tmp_path):
    speeds = {"t/0": 1.5, "t/1": "WRONG", "t/2": "HACK"}
    summary, model = bench(tmp_path, lambda call: answer(speeds[call.task_id]), tasks=3, turns=2, samples=2)
    assert len(model.calls) == 12 and summary["trajectories"] == 6 and summary["incomplete"] == 0
    assert summary["last"]["fast_1.2"]["value"] == pytest.approx(1 / 3)
    assert summary["hacks"]["by_finding"] == {"no_custom_kernel": 2}
    assert summary["status_all"] == {"correct": 4, "incorrect": 4, "hack": 4}
    assert (summary["timing_kind"], summary["device"], summary["baseline"]) == ("modelled", "sim:h200", "eager")
    run = read_bench(tmp_path)
    names = ["t/0", "t/1", "t/2"]
    assert [task.id for task in run.tasks] == names and run.config.samples == 2
    assert {task: len(plays) for task, plays in outcomes(run, names).items()} == dict.fromkeys(names, 2)
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert (tmp_path / "prompts" / "task.txt").read_text().strip() == PROMPTS.task


def test_a_finished_run_asks_for_nothing_more(tmp_path):
    first, _ = bench(tmp_path, lambda call: answer(1.5), turns=2)
    again, model = bench(tmp_path, lambda call: answer(9.0), turns=2)
    assert model.calls == [] and again == first


def test_trajectories_that_the_endpoint_failed_are_told_and_tried_again(tmp_path):
    def failing(call):
        if call.task_id == "t/1" and call.turn == 2:
            raise ModelError("HTTP 500: down")
        return answer(1.5)

    summary, _ = bench(tmp_path, failing, tasks=3, turns=2)
    assert summary["incomplete"] == 1 and summary["trajectories"] == 2
    assert summary["incomplete_because"] == {"model_error: HTTP 500: down": 1}
    summary, model = bench(tmp_path, lambda call: answer(1.5), tasks=3, turns=2)
    assert [(call.task_id, call.turn) for call in model.calls] == [("t/1", 2)]
    assert summary["incomplete"] == 0 and summary["trajectories"] == 3


def test_turns_that_the_grader_failed_are_graded_again_without_asking_the_model(tmp_path):
    cache = ReplyCache(tmp_path / "c.sqlite")
    summary, _ = bench(tmp_path / "r", lambda call: answer("INFRA"), turns=2, cache=cache)
    assert summary["incomplete_because"] == {"infra_error": 1}
    summary, model = bench(tmp_path / "r", lambda call: answer(1.1), TextPool(infra=0), turns=2, cache=cache)
    assert [call.turn for call in model.calls] == [2]
    assert summary["status_all"] == {"correct": 2} and summary["incomplete"] == 0


def test_names_prices_and_samples_may_change_when_a_run_goes_on(tmp_path):
    def run(samples, **terms):
        return bench(tmp_path, lambda call: answer(1.5), tasks=2, samples=samples, **terms)

    run(1)
    PROMPTS.save(tmp_path / "elsewhere")
    summary, model = run(3, prompts=str(tmp_path / "elsewhere"), prices=Prices(prompt=1, completion=2))
    assert {(call.task_id, call.sample) for call in model.calls} == {(f"t/{t}", s) for t in (0, 1) for s in (1, 2)}
    assert summary["trajectories"] == 6 and summary["dollars"] > 0 and read_bench(tmp_path).config.samples == 3
    summary, model = run(2, prices=Prices(prompt=2, completion=4))
    assert model.calls == [] and summary["trajectories"] == 4


def test_an_interrupted_run_says_so_and_goes_on(tmp_path):
    async def interrupted(call):
        if call.turn == 2:
            asyncio.current_task().get_loop().call_soon(jobs[0].cancel)
            await asyncio.sleep(30)

    class Model(FunctionModel):
        async def complete(self, call):
            await interrupted(call)
            return await super().complete(call)

    jobs = []

    async def go():
        model = Model(lambda call: answer(1.5))
        with open_run(tmp_path, bench_config(kind="solve", turns=3)) as run:
            jobs.append(asyncio.ensure_future(run.run(Meter(model), TextPool())))
            with pytest.raises(asyncio.CancelledError):
                await jobs[0]
            return run.finish()

    summary = asyncio.run(go())
    assert summary["incomplete_because"] == {"interrupted": 1}
    assert read_bench(tmp_path).played.ended["t/0", 0].end == "interrupted"


def test_a_budget_counts_what_an_earlier_process_spent(tmp_path):
    def run(tokens, turns):
        model = FunctionModel(lambda call: answer(1.5))
        with open_run(tmp_path, bench_config(kind="solve", turns=turns)) as opened:
            meter = Meter(model, budget=Budget(tokens=tokens))
            return asyncio.run(opened.run(meter, TextPool())), model, meter

    summary, first, meter = run(10**9, 2)
    spent = meter.spending.usage.total
    assert len(first.calls) == 2 and spent == sum(summary["usage"][name] for name in ("prompt", "completion"))
    summary, again, meter = run(spent, 9)
    assert again.calls == [] and meter.spending.usage.total == spent and meter.spending.paid.total == 0
    assert summary["incomplete_because"] == {f"budget: the budget of {spent:,} tokens is spent": 1}
    assert len(run(spent + 1, 9)[1].calls) == 1


def test_a_directory_of_other_terms_is_refused(tmp_path):
    bench(tmp_path, lambda call: answer(1.5), turns=2)
    with pytest.raises(ConfigError, match=r"episode.turns 2 there, 3 here"):
        bench(tmp_path, lambda call: answer(1.5), turns=3)


def test_a_directory_of_an_earlier_version_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("schema_version: 1\nkind: bench\nmodel: m\nrefine: {turns: 3}\n")
    for use in (lambda: read_bench(tmp_path), lambda: bench(tmp_path, lambda call: answer(1.5))):
        with pytest.raises(ConfigError, match="made by an earlier version of drkernel and cannot be read"):
            use()


def test_two_processes_may_not_write_one_run(tmp_path):
    held = Journal(tmp_path / "turns.jsonl")
    with pytest.raises(ConfigError, match="being written by another process"):
        bench(tmp_path, lambda call: answer(1.5))
    held.close()


def test_a_torn_line_is_cut_off_and_a_damaged_one_is_told(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text('{"a": "\u2028"}\n{"b": ')
    assert list(read_jsonl(path, dict)) == [{"a": "\u2028"}]
    journal = Journal(path)
    journal.append(JournalEntry(task_id="t", end="turns"))
    journal.close()
    rows = list(read_jsonl(path, dict))
    assert rows[0] == {"a": "\u2028"} and (rows[1]["task_id"], rows[1]["end"]) == ("t", "turns")
    with pytest.raises(ConfigError, match="line 1"):
        read_journal(path)
    path.write_text('{"a": 1}\n{"b": \n{"c": 3}\n')
    with pytest.raises(ConfigError, match="line 2"):
        list(read_jsonl(path, dict))
