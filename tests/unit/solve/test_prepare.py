"""Which tasks are judged, at which sizes, and why others are not."""

import pytest

from drkernel.config import ConfigError
from drkernel.solve.config import TaskChoice, choose, prepare

LARGE = """
import torch

ROWS, COLS = 4096, 8192

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1){times}

def get_inputs():
    return [torch.randn(ROWS, COLS)]
"""


@pytest.fixture
def files(tmp_path):
    """A reference that is too large, one that zeros solve, one that does not load."""
    (tmp_path / "a_large.py").write_text(LARGE.format(times=""))
    (tmp_path / "b_zeros.py").write_text(LARGE.format(times=" * 0"))
    (tmp_path / "c_broken.py").write_text(
        "import torch\n\nclass Model(torch.nn.Module):\n    pass\n\nraise OSError(1)\n"
    )
    return f"file:{tmp_path}"


def test_filters_and_an_even_choice():
    everything = choose("builtin")
    assert {task.level for task in choose("builtin", TaskChoice(level=3))} == {3}
    assert all("loss" in task.tags for task in choose("builtin", TaskChoice(tag="loss")))
    assert all("softmax" in task.id for task in choose("builtin", TaskChoice(match="softmax")))
    few = [task.id for task in choose("builtin", TaskChoice(limit=6))]
    assert few == [everything[i * len(everything) // 6].id for i in range(6)]
    with pytest.raises(ConfigError, match=r"none of the \d+ tasks of builtin"):
        choose("builtin", TaskChoice(match="nothing like it"))
    with pytest.raises(ConfigError, match="cannot read the task spec"):
        choose("nonsense")


def test_foreign_tasks_are_gated_and_left_out_with_their_reason(files):
    tasks, taken = choose(files), []
    prepared = prepare((taken.append(task) or task for task in tasks), profile="tiny")
    assert prepared.tasks == [tasks[0]], "as it was loaded: its sizes are the judge's business"
    assert prepared.left_out["file/b_zeros"].startswith("ill-conditioned: accepts zeros")
    assert "OSError" in prepared.left_out["file/c_broken"]
    assert taken == tasks and len(taken) == 3, "one after the other, each once: a bar may follow"


def test_ill_conditioned_tasks_may_be_kept_but_not_those_that_do_not_load(files):
    prepared = prepare(choose(files), profile="tiny", keep_ill_conditioned=True)
    assert [task.id for task in prepared.tasks] == ["file/a_large", "file/b_zeros"]
    assert list(prepared.left_out) == ["file/c_broken"]
    assert "accepts zeros" in prepared.objections["file/b_zeros"] and len(prepared.objections) == 1


def test_built_in_tasks_are_left_as_they_are():
    tasks = choose("builtin", TaskChoice(limit=5))
    assert prepare(tasks, profile="tiny").tasks == tasks


def test_the_quickstarts_families_have_a_spec():
    tasks = choose("generated:heldout:5")
    assert len(tasks) == 5 and all(task.provenance.source == "generated" and task.family for task in tasks)
    assert not {task.family for task in tasks} & {task.family for task in choose("generated:train:20")}
    with pytest.raises(ConfigError, match="unknown kind of task spec 'generated'"):
        choose("generated:all")
