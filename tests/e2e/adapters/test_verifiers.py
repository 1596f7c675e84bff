"""The verifiers v1 adapter: its taskset and environment load by verifiers' own loaders; the judge plays the user."""

import sys
from types import SimpleNamespace

import pytest

from solve_fakes import TextPool, answer, make_tasks

vf = pytest.importorskip("verifiers.v1")

from drkernel.adapters import InfraError  # noqa: E402
from drkernel.adapters.verifiers import KernelData, KernelEnv, KernelTaskset, KernelTasksetConfig, play  # noqa: E402


@pytest.fixture
def tasks_file(tmp_path):
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(task.model_dump_json() + "\n" for task in make_tasks(3)))
    return path


def test_the_taskset_yields_the_tasks_and_its_views_work(tasks_file):
    taskset = KernelTaskset(KernelTasksetConfig(tasks=f"jsonl:{tasks_file}", episode={"turns": 2}))
    tasks = list(taskset)
    assert [task.data.id for task in tasks] == ["t/0", "t/1", "t/2"] and [task.data.idx for task in tasks] == [0, 1, 2]
    assert "ROWS = 2" in tasks[1].data.prompt and tasks[1].data.episode == {"turns": 2}
    assert [task.data.id for task in taskset.include(ids=["t/2"])] == ["t/2"]


def test_verifiers_finds_environment_and_taskset_by_name(tmp_path, monkeypatch, tasks_file):
    from verifiers.v1.utils.loaders import environment_class, taskset_class

    (tmp_path / "drkernel_env.py").write_text(
        "from drkernel.adapters.verifiers import *\nfrom drkernel.adapters.verifiers import __all__\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "drkernel_env", raising=False)
    assert taskset_class("drkernel-env") is KernelTaskset and environment_class("drkernel-env") is KernelEnv


class Interaction:
    """An exchange whose agent answers from a list, and then ends it."""

    def __init__(self, *answers):
        self.answers, self.told, self.trace = list(answers), [], None

    async def turn(self, message=None):
        self.told.append(message)
        if not self.answers:
            return SimpleNamespace(terminated=True, last_reply="")
        return SimpleNamespace(terminated=False, last_reply=self.answers.pop(0))


def data(**episode):
    task = make_tasks(1)[0]
    return KernelData(id=task.id, prompt="x", source=task.model_dump_json(), episode=episode)


async def test_the_judge_plays_the_user():
    agent = Interaction(answer(1.5), answer("HACK"), answer(2.0))
    figures = await play(data(turns=3), agent, TextPool())
    assert agent.told[0] is None and "Correct." in agent.told[1] and "no_custom_kernel" in agent.told[2]
    assert figures["turns"] == 3 and figures["hack"] == 1 and figures["speedup"] == 2.0
    assert figures["reward"] == pytest.approx(1.75 + 0 + 2.0) and figures["reward_turn_2"] == 0


async def test_an_exchange_that_ends_early_counts_what_there_was():
    figures = await play(data(turns=3), Interaction(answer(1.5)), TextPool())
    assert figures["turns"] == 1 and figures["reward"] == pytest.approx(1.75)


async def test_a_grader_that_fails_is_an_error_never_a_zero():
    with pytest.raises(InfraError):
        await play(data(turns=3), Interaction(answer("INFRA")), TextPool())
