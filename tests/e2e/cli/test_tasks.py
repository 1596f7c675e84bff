"""``drkernel tasks``: tables for people, JSON for scripts, documented exit codes."""

import json
import subprocess

import pytest

from drkernel.cli import main
from drkernel.tasks.loaders import builtin_tasks, load_tasks
from farm import PYTHON

DEGENERATE = """import torch
n = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1).sum(-1)
def get_inputs():
    return [torch.randn(n, n)]
"""


def run(capsys, *args):
    """Exit code, stdout, stderr of one command."""
    with pytest.raises(SystemExit) as caught:
        main(["tasks", *args])
    out = capsys.readouterr()
    return caught.value.code or 0, out.out, out.err


def test_list_prints_every_task_and_filters(capsys):
    code, out, err = run(capsys, "list")
    assert code == 0 and all(task.id in out for task in builtin_tasks()) and "96 tasks" in err
    code, out, _ = run(capsys, "list", "--level", "2", "--tag", "convolution", "--json")
    rows = json.loads(out)
    assert code == 0 and rows and all(row["level"] == 2 and "convolution" in row["tags"] for row in rows)


def test_show_describes_a_task_at_a_profile(capsys):
    code, out, _ = run(capsys, "show", "level1/softmax", "--profile", "tiny")
    assert code == 0 and "ROWS = 16" in out and "x float32[16, 100]" in out
    code, out, _ = run(capsys, "show", "builtin/level1/matmul", "--json")
    facts = json.loads(out)
    assert facts["inputs"] == ["a float32[4096, 4096]", "b float32[4096, 4096]"]
    assert facts["flops"].startswith("1.374e+11") and facts["task"]["id"] == "builtin/level1/matmul"
    code, out, _ = run(capsys, "show", "level1/relu", "--source")
    assert out == load_tasks("builtin/level1/relu")[0].reference


def test_check_admits_and_exits_with_zero(capsys):
    code, out, _ = run(capsys, "check", "--match", "level1/softmax")
    assert code == 0 and "2 of 2 tasks admitted" in out


def test_check_names_what_a_degenerate_task_accepts(capsys, tmp_path):
    (tmp_path / "sums.py").write_text(DEGENERATE)
    code, out, _ = run(capsys, "check", f"file:{tmp_path / 'sums.py'}")
    assert code == 1 and "ill-conditioned" in out and "output 0 accepts constant" in out
    code, out, _ = run(capsys, "check", f"file:{tmp_path / 'sums.py'}", "--json")
    (row,) = json.loads(out)
    assert code == 1 and row["admitted"] is False and "stale" in row["ill_conditioned_by"]


def test_check_saves_what_was_admitted_as_it_was(capsys, tmp_path):
    (tmp_path / "good.py").write_text(DEGENERATE.replace(".sum(-1)", "").replace("n = 64", "n = 65536"))
    (tmp_path / "sums.py").write_text(DEGENERATE)
    saved = tmp_path / "admitted.jsonl"
    code, out, _ = run(capsys, "check", f"file:{tmp_path}", "--save", str(saved))
    assert code == 1 and "1 of 2 tasks admitted, 1 of them gated at thin sizes" in out
    (task,) = load_tasks(f"jsonl:{saved}")
    assert task.id == "file/good" and "n = 65536" in task.reference
    code, out, _ = run(capsys, "check", f"file:{tmp_path}", "--checked-bytes", "4096", "--json")
    sizes = {report["task_id"]: report["changed"] for report in json.loads(out)}
    assert sizes["file/sums"], "64 x 64 floats are more than 4096 bytes"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["list", "nowhere"], "cannot read the task spec"),
        (["list", "--level", "9"], "none of the 96 tasks"),
        (["show", "builtin/level1"], "add --match TEXT"),
        (["show", "level1/softmax", "--profile", "huge"], "no size profile 'huge'"),
        (["check", "--profile", "huge"], "has no size profile 'huge'"),
        (["list", "--precision", "fp16"], "declare their own precision"),
    ],
)
def test_wrong_usage_exits_with_two_and_says_why(capsys, args, words):
    code, out, err = run(capsys, *args)
    assert code == 2 and words in err and not out


HUGE = """
import torch
import torch.nn as nn

TABLE = {table}

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.rand(int("1048576"), int("65536"))]
"""
PEAK = """
import atexit, re, sys
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr))
"""  # ru_maxrss would begin at the peak of the process that runs the tests


@pytest.mark.parametrize("command", ["check", "show"])
def test_a_task_that_no_machine_holds_takes_no_memory(tmp_path, command):
    path = tmp_path / "huge.py"
    path.write_text(HUGE.format(table="None"))  # 256 GiB of input
    arguments = ["tasks", command, f"file:{path}"]
    script = f"{PEAK}\nsys.argv = ['drkernel', *{arguments!r}]\nfrom drkernel.cli import main\nsys.exit(main())"
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, timeout=300)
    shown = " ".join(done.stdout.split())
    if command == "check":
        assert (
            done.returncode == 1 and "GiB of memory" in shown and "the budget is" in shown and "--memory-gib" in shown
        )
    else:
        assert done.returncode == 0 and "float32[1048576, 65536]" in shown
    assert int(done.stderr.split()[-1]) < 1 << 20, done.stderr  # kilobytes


def test_what_the_estimate_does_not_see_ends_at_the_limit_of_the_process(tmp_path):
    path = tmp_path / "huge.py"
    path.write_text(HUGE.format(table="torch.ones(1 << 36)"))
    done = subprocess.run(
        [PYTHON, "-m", "drkernel", "tasks", "check", f"file:{path}", "--memory-gib", "1"],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1 and "does not load" in done.stdout, done
