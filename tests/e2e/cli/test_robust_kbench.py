"""robust-kbench's task folders as tasks: what settings become, forward and backward, and what is refused by name."""

import json

import pytest
import torch

from drkernel.cli import main
from drkernel.tasks.cost import ScaleLimits
from drkernel.tasks.errors import TaskError
from drkernel.tasks.loaders import load_task, load_tasks
from drkernel.tasks.reference import load_reference
from drkernel.tasks.thin import thin_sizing

FORWARD = """
import torch
import torch.nn as nn


BATCH_SIZE = "taken"


def forward_fn(x, w, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w


class Model(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5, init: str = "ones"):
        super(Model, self).__init__()
        self.w = nn.Parameter(torch.ones(width) if init == "ones" else torch.randn(width))
        self.eps = eps
        self.idle = nn.Parameter(torch.ones(2))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.w, self.eps)


def get_inputs(batch_size: int = 4, width: int = 8):
    return [torch.randn(batch_size, width, requires_grad=True)]


input_names = ["x"]
"""
CONFIG = {
    "single_init_configs": [{"eps": 1e-3, "init": "random"}],
    "single_input_configs": [{"batch_size": 4096}],
    "single_shared_configs": [{"width": 1024}],
    "multi_init_configs": [{"init": "ones"}, {"init": "random"}],
    "multi_input_configs": [{"batch_size": 3}],
    "multi_shared_configs": [{"width": 5}, {"width": 7}],
}


@pytest.fixture
def folders(tmp_path):
    """A repository of two folders: one with a backward task, one of KernelBench's with two single settings."""
    rms, relu = tmp_path / "tasks" / "rms", tmp_path / "tasks" / "kernelbench" / "level_2" / "task_10"
    for folder in (rms, relu):
        folder.mkdir(parents=True)
        (folder / "func_forward.py").write_text(FORWARD)
        (folder / "config_forward.json").write_text(json.dumps(CONFIG))
    (rms / "func_backward.py").write_text(FORWARD.replace("w, eps):", "w, eps):\n    # Model", 1))
    (rms / "config_backward.json").write_text(json.dumps(CONFIG))
    twice = CONFIG | {"single_shared_configs": [{"width": 16}, {"width": 32, "batch_size": 2}]}
    del twice["multi_init_configs"], twice["multi_input_configs"], twice["multi_shared_configs"]
    twice["single_init_configs"] = [{"width": 1}]  # the shared argument goes over it
    (relu / "config_forward.json").write_text(json.dumps(twice))
    source = FORWARD.replace('init: str = "ones"', 'init: str = "ones", batch_size: int = 0')
    (relu / "func_forward.py").write_text(source)
    return tmp_path


def test_a_task_a_setting(folders):
    names = [task.id for task in load_tasks(f"robust-kbench:{folders}")]
    assert names == [
        "robust-kbench/rms/single1",
        "robust-kbench/rms/backward/single1",
        "robust-kbench/kernelbench/level_2/task_10/single1",
        "robust-kbench/kernelbench/level_2/task_10/single2",
    ]
    every = [task.id for task in load_tasks(f"robust-kbench:{folders}/tasks/rms/multi")]
    assert every == [f"robust-kbench/rms/multi{n}" for n in (1, 2, 3, 4)]
    backward = [task.id for task in load_tasks(f"robust-kbench:{folders}/tasks/rms/backward")]
    assert backward == ["robust-kbench/rms/backward/single1"]
    deep = load_tasks(f"robust-kbench:{folders}/tasks/kernelbench")
    assert {task.level for task in deep} == {2}


def test_the_arguments_are_those_of_the_setting(folders):
    # multi settings count init slowest, then input, then shared
    reference = load_reference(load_task(f"robust-kbench:{folders}/tasks/rms/multi2").reference)
    (x,) = reference.draw_inputs(0)
    model = reference.build(0)
    assert x.shape == (3, 7) and model.w.tolist() == [1.0] * 7 and model.eps == 1e-5
    torch.testing.assert_close(model(x), x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))
    second = load_reference(load_tasks(f"robust-kbench:{folders}/tasks/kernelbench")[1].reference)
    assert second.draw_inputs(0)[0].shape == (2, 32) and second.build(0).w.shape == (32,)


def test_sizes_are_constants_that_are_made_thin(folders):
    task = load_task(f"robust-kbench:{folders}/tasks/rms/single1")
    # BATCH_SIZE is taken by the module's own text, so that another name is found
    assert "BATCH_SIZE_ = 4096" in task.reference
    sizing = thin_sizing(task, ScaleLimits(bytes=1 << 18, flops=1e9))
    (x,) = load_reference(sizing.source).draw_inputs(0)
    assert x.shape[1] == 1024 and 2 <= x.shape[0] < 4096  # rows are shortened, what a row is stays


def test_a_backward_task_asks_for_the_gradients(folders):
    task = load_task(f"robust-kbench:{folders}/tasks/rms/backward/multi1")
    reference = load_reference(task.reference)
    grad, x = reference.draw_inputs(0)
    model = reference.build(0)
    with torch.no_grad():
        by_x, by_w = model(grad, x)
    leaf, w = x.detach().double().requires_grad_(), model.w.detach().double().requires_grad_()
    loss = (leaf * torch.rsqrt(leaf.pow(2).mean(-1, keepdim=True) + 1e-5) * w * grad).sum()
    for ours, by_hand in zip((by_x, by_w), torch.autograd.grad(loss, (leaf, w)), strict=True):
        torch.testing.assert_close(ours.double(), by_hand, rtol=1e-5, atol=1e-6)


ANSWER = """
import torch, triton, triton.language as tl

@triton.jit
def rms(x, w, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0) * WIDTH + cols
    v = tl.load(x + row, mask=cols < WIDTH, other=0.0)
    scale = 1 / tl.sqrt(tl.sum(v * v) / WIDTH + eps)
    tl.store(out + row, v * scale * tl.load(w + cols, mask=cols < WIDTH), mask=cols < WIDTH)

class ModelNew(torch.nn.Module):
    def __init__(self, width, eps=1e-5, init="ones"):
        super().__init__()
        self.w, self.idle, self.eps = torch.nn.Parameter(torch.ones(width)), torch.nn.Parameter(torch.ones(2)), eps

    def forward(self, x):
        out = torch.empty_like(x)
        rms[(x.shape[0],)](x, self.w, out, self.eps, x.shape[1], 1024)
        return out
"""


def test_an_answer_is_graded(folders, tmp_path, capsys):
    (tmp_path / "answer.py").write_text(ANSWER)
    with pytest.raises(SystemExit) as ended:
        main(["eval", f"robust-kbench:{folders}/tasks/kernelbench/level_2/task_10/single1",
              str(tmp_path / "answer.py"), "--json"])  # fmt: skip
    assert ended.value.code == 0 and json.loads(capsys.readouterr().out)["status"] == "correct"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tasks/rmss", "did you mean rms"),
        ("tasks/rms/single7", "no setting 'single7'; did you mean single1"),
        ("tasks/kernelbench/backward", "config_backward.json"),
        ("empty", "no task folder"),
        ("broken", "config_forward.json: field single_shared_configs"),
    ],
)
def test_what_is_not_there_is_named(folders, spec, said):
    (folders / "empty").mkdir()
    (folders / "broken").mkdir()
    (folders / "broken" / "config_forward.json").write_text('{"single_init_configs": [], "single_input_configs": []}')
    with pytest.raises(TaskError, match=said):
        load_tasks(f"robust-kbench:{folders}/{spec}")


def test_one_setting_is_a_task(folders):
    assert load_task(f"robust-kbench:{folders}/tasks/kernelbench/level_2/task_10/single2").level == 2
    with pytest.raises(TaskError, match="names 2 tasks"):
        load_task(f"robust-kbench:{folders}/tasks/kernelbench")
