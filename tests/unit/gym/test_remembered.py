"""Verdicts kept on disk: what may come out again is asked once, by any number of processes; nothing else is kept."""

import asyncio

import pytest

from drkernel.config import ConfigError
from drkernel.gym.pools import remembered
from drkernel.gym.pools.remembered import RememberingPool, code_digest
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Task
from drkernel.verdict import Exactness, Verdict


class Counting:
    """Answers with a status and counts."""

    def __init__(self, status="correct", exactness=None):
        self.status, self.exactness, self.asked, self.closed = status, exactness, 0, False

    async def evaluate(self, request):
        self.asked += 1
        return Verdict(
            status=self.status,
            task_id=request.task.id,
            candidate_sha256="0" * 64,
            device=request.settings.device,
            baseline="eager",
            exactness=self.exactness,
        )

    def health(self):
        return {"slots": 1}

    async def close(self):
        self.closed = True


def request(candidate="a", seed=0):
    return EvalRequest(
        task=Task(id="t", reference="x = 1"), candidate=candidate, settings=EvalSettings(profile=None, seed=seed)
    )


def ask(path, pool, *requests):
    async def run():
        kept = RememberingPool(pool, path)
        verdicts = [await kept.evaluate(one) for one in requests]
        health = kept.health()
        await kept.close()
        return verdicts, health

    return asyncio.run(run())


def test_a_second_run_asks_nothing_that_the_first_one_asked(tmp_path):
    path, first, second = tmp_path / "new" / "verdicts", Counting(), Counting()
    made, _ = ask(path, first, request("a"), request("b"), request("a"))
    kept, health = ask(path, second, request("a"), request("b"), request("c"))
    assert first.asked == 2 and second.asked == 1 and health == {"slots": 1, "remembered": 2}
    assert kept[:2] == made[:2] and first.closed and second.closed


def test_other_seeds_and_other_code_are_other_questions(tmp_path, monkeypatch):
    path, pool = tmp_path / "verdicts", Counting()
    ask(path, pool, request(seed=0), request(seed=1))
    assert pool.asked == 2
    monkeypatch.setattr(remembered, "code_digest", lambda: "f" * 64)
    ask(path, pool, request(seed=0))
    assert pool.asked == 3 and len(code_digest()) == 64


@pytest.mark.parametrize("status", ["timeout", "out_of_memory", "infra_error", "invalid_request"])
def test_what_the_machine_had_a_part_in_is_asked_again(tmp_path, status):
    pool = Counting(status)
    ask(tmp_path / "verdicts", pool, request(), request())
    assert pool.asked == 2


def test_without_a_seed_nothing_is_remembered(tmp_path):
    pool = Counting()
    ask(tmp_path / "verdicts", pool, request(seed=None), request(seed=None))
    assert pool.asked == 2


def test_a_file_that_cannot_be_kept_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot keep verdicts"):
        RememberingPool(Counting(), tmp_path)
    (tmp_path / "text").write_text("not a database, and long enough to be told from one" * 40)
    with pytest.raises(ConfigError, match="cannot keep verdicts"):
        RememberingPool(Counting(), tmp_path / "text")


@pytest.mark.parametrize(("outcome", "asked"), [("open", 2), ("proved", 1), ("differs", 1)])
def test_a_comparison_that_may_have_lacked_time_is_made_again(tmp_path, outcome, asked):
    pool = Counting(exactness=Exactness(outcome=outcome))
    ask(tmp_path / "verdicts", pool, request(), request())
    assert pool.asked == asked
