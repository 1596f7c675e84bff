"""The last word on a search: which kernels are graded again, which one wins, and the file that is written."""

import ast
import asyncio

from drkernel.episode.episode import Episode, EpisodeConfig, play
from drkernel.gym.request import EvalSettings
from drkernel.solve.verify import CHECKS, TRIED, alike, by_speed, check_of, verify, winner, write_candidate
from solve_fakes import FunctionModel, TextPool, answer, make_tasks

TASK = make_tasks(1)[0]
SETTINGS = EvalSettings(seed=7, checks=2, profile="tiny")


def turns_of(*speeds):
    """The turns of a search whose answers claim ``speeds``."""

    async def go():
        episode = Episode(TextPool(), EpisodeConfig(turns=len(speeds), settings=SETTINGS))
        await episode.reset(TASK)
        return (await play(episode, FunctionModel(lambda call: answer(speeds[call.turn - 1])))).turns

    return asyncio.run(go())


class Again(TextPool):
    """Grades again: ``speeds`` by the claim, None for a candidate that no longer holds up."""

    def __init__(self, **speeds):
        super().__init__()
        self.speeds = speeds

    async def evaluate(self, request):
        claim = request.candidate.partition("SPEED = ")[2].split()[0]
        found = self.speeds.get("s" + claim.replace(".", "_"), float(claim))
        candidate = "WRONG" if found is None else f"SPEED = {found}"
        return await super().evaluate(request.model_copy(update={"candidate": candidate}))


def verified(pool, *speeds):
    return asyncio.run(verify(TASK, turns_of(*speeds), SETTINGS, pool))


def test_the_fastest_that_holds_up_wins_and_nothing_slower_is_tried():
    pool = Again()
    tried = verified(pool, 1.1, 1.9, "WRONG", 1.5)
    assert [one.turn.speedup for one in tried] == [1.9] and winner(tried).speedup == 1.9
    request = pool.requests[0].settings
    assert request.checks == CHECKS and request.profile == "tiny"
    verified(pool, 1.9)
    seeds = {SETTINGS.seed, *(one.settings.seed for one in pool.requests)}
    assert len(seeds) == 3 and None not in seeds, "no two requests are alike, so no store answers for an evaluation"


def test_one_that_does_not_hold_up_gives_way_to_the_next():
    tried = verified(Again(s1_9=None), 1.1, 1.9, 1.5)
    assert [one.verdict.status for one in tried] == ["incorrect", "correct"]
    assert winner(tried).turn.number == 3 and tried[0].speedup == 0


def test_one_that_is_slower_than_it_claimed_is_measured_against_the_next():
    tried = verified(Again(s1_9=1.2), 1.1, 1.9, 1.5)
    assert [one.speedup for one in tried] == [1.2, 1.5] and winner(tried).turn.number == 3


def test_kernels_whose_modelled_times_are_near_are_not_told_apart():
    turns = turns_of(1.5, 1.45, 1.3, "WRONG", 1.4)
    best = winner(asyncio.run(verify(TASK, turns, SETTINGS, Again())))
    assert best.verdict.speedup.kind == "modelled"
    assert alike(turns, best) == [2, 5] and alike(turns_of(1.5, 1.3), best) == []


def test_there_is_an_end_to_trying_and_equal_sources_are_tried_once():
    speeds = [1 + k / 100 for k in range(9)]
    pool = Again(**{f"s{speed}".replace(".", "_"): None for speed in speeds})
    tried = verified(pool, *speeds)
    assert len(tried) == TRIED and winner(tried) is None
    assert len(by_speed(turns_of(1.5, 1.5, 1.5))) == 1
    assert verified(Again(), "WRONG", "HACK") == []


def test_the_file_says_what_it_is_and_holds_the_source_as_it_was_written():
    best = winner(verified(Again(), 1.5))
    text = write_candidate(TASK, best, SETTINGS, "openai:m", 3)
    ast.parse(text)
    assert best.turn.code in text and "1.50x against eager PyTorch, modelled on sim:h200." in text
    assert "written by openai:m, found by drkernel solve in 3 attempts" in text and "profile 'tiny'" in text


def test_a_file_that_was_not_verified_says_so():
    best = winner(verified(Again(), 1.5))
    text = write_candidate(TASK, best, SETTINGS, "openai:m", 3, verified=False)
    assert "# NOT verified from scratch" in text and "# Verified from scratch" not in text


def test_the_comparison_holds_any_reference_to_the_letter():
    reference = 'X = """a\n\\n {b} $c\n"""\nY = "\'"\n'
    scope: dict = {}
    exec(check_of(reference).partition("\n\ndef ")[0], scope)
    assert scope["_REFERENCE"] == reference.rstrip("\n")
