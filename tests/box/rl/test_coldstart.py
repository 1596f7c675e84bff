"""Cold-start data: graded as it is written, resumed after a kill, wrong answers of the teacher never kept as right."""

import asyncio
import json
from pathlib import Path

import pytest

from drkernel.config import ConfigError, load_config
from drkernel.episode.episode import EpisodeConfig
from drkernel.gym.pools.local import LocalPool
from drkernel.rl.data.coldstart import ColdstartConfig, Interrupted, load_rows, write_coldstart
from drkernel.rl.data.problem import generate_problems, make_task
from drkernel.rl.data.writer import RIGHT
from drkernel.rl.run.recipe import Recipe
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.thin import thin_sizing
from fakes import FakePool, make_verdict
from places import ROOT


class ScriptedPool(FakePool):
    """Calls every answer correct, but for those that contain a marker; counts and may stop after some."""

    def __init__(self, refuse: str = "", infra: str = "", stop_after: int | None = None):
        super().__init__(verdict=self.answered)
        self.refuse, self.infra, self.stop_after = refuse, infra, stop_after

    def answered(self, request):
        if self.stop_after is not None and self.calls > self.stop_after:
            raise KeyboardInterrupt
        if self.infra and self.infra in request.task.reference:
            return make_verdict(request, "infra_error")
        return make_verdict(request, "incorrect" if self.refuse and self.refuse in request.candidate else "correct")


def config(tasks=12, **changes):
    return ColdstartConfig(tasks=tasks, seed=5, episode=EpisodeConfig(turns=2, prompts="compact"), **changes)


def run(pool, path, settings, progress=None, **options):
    return asyncio.run(write_coldstart(settings, pool, path, progress, **options))


def test_rows_are_whole_conversations_in_order(tmp_path):
    seen = []
    summary = run(ScriptedPool(), tmp_path / "cold.jsonl", config(), lambda *facts: seen.append(facts[:2]))
    rows = load_rows(tmp_path / "cold.jsonl")
    assert [row.provenance["index"] for row in rows] == list(range(12))
    assert summary.trajectories == 12 and summary.turns == 24 and seen[-1] == (12, 12)
    for row in rows:
        assert [m["role"] for m in row.messages] == ["user", "assistant"] * 2
        assert row.messages[0]["content"].count("class Model") == 1
        assert all(m["content"].endswith("```") for m in row.messages[1::2])
        assert len(row.turns) == 2
    assert not (tmp_path / "cold.jsonl.partial").exists()


@pytest.mark.parametrize("stop_after", [None, 5])
def test_the_last_answer_is_compared_without_its_time_where_nobody_reads_it(tmp_path, stop_after):
    class Watched(ScriptedPool):
        async def evaluate(self, request):
            verdict = await super().evaluate(request)
            seen.append((request.task.id, request.settings.timing))
            return verdict

    seen = []
    settings = config(6, time_last=False)
    if stop_after:
        with pytest.raises(KeyboardInterrupt):
            run(Watched(stop_after=stop_after), tmp_path / "cold.jsonl", settings)
    run(Watched(), tmp_path / "cold.jsonl", settings)
    tasks = {task for task, _ in seen}
    assert len(tasks) == 6 and len(seen) == 12
    assert all([timing for one, timing in seen if one == task] == [True, False] for task in tasks)
    with pytest.raises(ValueError, match="time the last too"):
        config(6, time_last=False, source="openai:x")


def test_equal_seeds_give_equal_files_and_seeds_differ(tmp_path):
    for name in ("a", "b"):
        run(ScriptedPool(), tmp_path / name, config(6))
    run(ScriptedPool(), tmp_path / "c", ColdstartConfig(tasks=6, seed=6, episode=config().episode))
    texts = [(tmp_path / name).read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]


def test_an_answer_meant_right_that_fails_is_dropped_and_counted(tmp_path):
    summary = run(ScriptedPool(refuse="tl.store"), tmp_path / "cold.jsonl", config(30))
    rows = load_rows(tmp_path / "cold.jsonl")
    assert sum(summary.dropped[f"{plan}_incorrect"] for plan in RIGHT) == 30 - len(rows) > 0
    assert all(turn.plan not in RIGHT for row in rows for turn in row.turns)


def test_trouble_of_the_grader_is_not_written(tmp_path):
    summary = run(ScriptedPool(infra="ROWS"), tmp_path / "cold.jsonl", config(4))
    assert summary.trajectories == 0 and summary.dropped == {"infra_error": 4}


def test_an_interrupted_run_goes_on_at_the_turn_where_it_stopped(tmp_path):
    path, journal = tmp_path / "cold.jsonl", tmp_path / "cold.jsonl.partial"
    with pytest.raises(KeyboardInterrupt):
        run(ScriptedPool(stop_after=13), path, config(concurrency=1))
    assert len(journal.read_text().splitlines()) == 13
    with journal.open("a") as file:
        file.write('{"task_id": "half a li')
    second = ScriptedPool()
    run(second, path, config(concurrency=1))
    assert second.calls == 24 - 13
    run(ScriptedPool(), tmp_path / "whole.jsonl", config())
    assert path.read_text() == (tmp_path / "whole.jsonl").read_text()


def test_a_journal_of_another_seed_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(ScriptedPool(stop_after=3), tmp_path / "cold.jsonl", config(concurrency=1))
    with pytest.raises(ConfigError, match="another seed or teacher"):
        run(ScriptedPool(), tmp_path / "cold.jsonl", config(source="openai:m"))


def test_one_asked_to_stop_finishes_what_is_under_way_and_begins_nothing(tmp_path):
    path, seen = tmp_path / "cold.jsonl", []
    first = ScriptedPool()
    with pytest.raises(Interrupted, match="3 of 12"):
        run(first, path, config(concurrency=3), lambda done, *_: seen.append(done), stopping=lambda: bool(seen))
    assert seen == [1, 2, 3] and first.calls == 6 and not path.exists()
    second = ScriptedPool()
    run(second, path, config(concurrency=3))
    assert second.calls == 2 * 9
    run(ScriptedPool(), tmp_path / "whole.jsonl", config())
    assert path.read_text() == (tmp_path / "whole.jsonl").read_text()


def test_a_file_of_another_seed_is_refused(tmp_path):
    path = tmp_path / "cold.jsonl"
    run(ScriptedPool(), path, config(2))
    with pytest.raises(ConfigError, match="another seed"):
        run(ScriptedPool(), path, ColdstartConfig(tasks=2, seed=9, episode=config().episode))
    path.write_text("not json\n")
    with pytest.raises(ConfigError, match="line 1"):
        run(ScriptedPool(), path, config(2))
    with pytest.raises(ConfigError, match="line 1"):
        load_rows(path)
    with pytest.raises(ConfigError, match="cannot read"):
        load_rows(tmp_path / "missing.jsonl")


def test_the_real_judge_agrees_with_the_teacher(tmp_path):
    async def write():
        pool = LocalPool(slots=2)
        try:
            return await write_coldstart(config(2), pool, tmp_path / "cold.jsonl")
        finally:
            await pool.close()

    summary = asyncio.run(write())
    rows = load_rows(tmp_path / "cold.jsonl")
    assert summary.dropped == {} and len(rows) == 2
    turns = [turn for row in rows for turn in row.turns]
    fused = [turn for turn in turns if turn.plan == "fused"]
    assert fused and all(turn.status == "correct" and turn.coverage == 1.0 for turn in fused)
    less = [turn for turn in turns if turn.plan in ("partial", "lazy")]
    assert all(turn.status == "correct" and turn.coverage < 1.0 for turn in less)
    assert all(turn.speedup is not None for turn in fused + less)
    assert all(turn.status not in ("correct", "infra_error") for turn in turns if turn.plan not in RIGHT)
    assert json.loads(Path(tmp_path / "cold.summary.json").read_text())["trajectories"] == 2


def test_the_quickstart_compares_whole_rows():
    """A block of the next power of two is another kernel at half a row, and what was not compared earns no speedup."""
    settings = load_config(Recipe, ROOT / "recipes" / "quickstart.yaml").episode.settings
    limits = ScaleLimits(bytes=settings.checked_bytes, flops=settings.checked_flops)
    rows = [problem for problem in generate_problems("train", 400, 0) if problem.kind == "row"]
    widest = sorted(rows, key=lambda problem: problem.own.columns * (len(problem.steps) + len(problem.operands)))[-12:]
    assert max(problem.own.columns for problem in widest) == 8192
    for problem in widest:
        assert set(thin_sizing(make_task(problem), limits).changed) <= {"ROWS"}, problem
