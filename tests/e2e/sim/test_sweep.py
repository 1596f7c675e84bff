"""Other launch settings: rewriting the text, sweeps."""

import ast
import csv
import json

import pytest

from drkernel.cli import main
from drkernel.sim.sweep import with_settings

TEXT = """
import torch, triton, triton.language as tl
@triton.jit
def add(x, y, n, BLOCK: tl.constexpr, STEP: tl.constexpr = 1):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) + STEP, at < n)
def go(x, BLOCK=16):
    y, n = torch.empty_like(x), x.numel()
    add[(triton.cdiv(n, BLOCK),)](
        x, y, n, BLOCK=BLOCK,
    )
    return y
out = go(torch.randn(1 << 16, device="cuda"))
"""


def drkernel_sim(*args):
    """Run the command in this process; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["sim", *map(str, args)])
    return ended.value.code


def test_settings_are_changed_wherever_the_text_gives_them_and_nowhere_else():
    changed = with_settings(TEXT, {"BLOCK": 64, "num_warps": 8, "num_stages": 1, "STEP": 3})
    ast.parse(changed)
    assert changed.count("\n") == TEXT.count("\n")
    lines = {a: b for a, b in zip(TEXT.splitlines(), changed.splitlines(), strict=True) if a != b}
    assert [line.strip() for line in lines.values()] == [
        "def add(x, y, n, BLOCK: tl.constexpr, STEP: tl.constexpr = 3):", "def go(x, BLOCK=64):",
        "num_warps=8, num_stages=1)",
    ]  # fmt: skip
    positional = "@jit\ndef k(x, B: constexpr): pass\nk[(1,)](x, 32)\nA, B = 1, 2\n"
    assert with_settings(positional, {"B": 8}).splitlines()[2:] == ["k[(1,)](x, 8)", "A, B = 1, 8"]
    tuned = "@autotune([Config({'B': 32}, num_warps=2)], key=[])\n@jit\ndef k(x, B: constexpr): pass\nk[(1,)](x)\n"
    assert with_settings(tuned, {"B": 8, "num_warps": 1}).startswith("@autotune([Config({'B': 8}, num_warps=1)]")
    with pytest.raises(ValueError, match="nothing in it gives WIDTH"):
        with_settings(TEXT, {"WIDTH": 1})


def test_settings_stand_before_and_after_the_script(tmp_path, capsys):
    script = tmp_path / "add.py"
    script.write_text("import sys\nassert sys.argv[1:] == ['STEP=7'], sys.argv\n" + TEXT)
    axes = {"BLOCK": [32, 64], "num_warps": [2, 4]}
    for words in (
        [script, "--sweep", "BLOCK=32,64", "num_warps=2,4", "--json"],
        ["--sweep", "BLOCK=32,64", script, "num_warps=2,4", "--json"],
        ["--json", "--sweep", "BLOCK=32,64", "--sweep", "num_warps=2,4", script],
    ):
        assert drkernel_sim(*words, "--", "STEP=7") == 0
        assert json.loads(capsys.readouterr().out)["axes"] == axes
    assert drkernel_sim(script, "--sweep", "BLOCK=32", "num_warps=2,x") == 2
    assert "num_warps=2,x: it is NAME=NUMBER" in capsys.readouterr().err
    assert drkernel_sim(script, "--sweep") == 2


def test_a_sweep_shows_times_and_why_the_others_failed(tmp_path, capsys):
    script = tmp_path / "add.py"
    script.write_text(TEXT + "add[(1024,)](out, out, 1 << 16, 64)\n")  # a grid that follows nothing
    page, rows = tmp_path / "sweep.html", tmp_path / "sweep.csv"
    settings = ("--sweep", "num_warps=2,4", "BLOCK=32,64,2097152")
    assert drkernel_sim(*settings, script, "--html", page, "--csv", rows, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    cells = {tuple(each["settings"].values()): each for each in found["configurations"]}
    assert len(cells) == 6 and cells[2, 64]["seconds"] == cells[4, 64]["seconds"] < found["own_seconds"]
    assert "of the memory" in cells[2, 32]["failed"] and "exceeds" in cells[4, 2097152]["failed"]
    shown = page.read_text()
    assert "exceeds" in shown and "num_warps=4" in shown and "BLOCK=64" in shown and "src=" not in shown
    assert "within the model&#39;s error of it" in shown  # equal times
    table = list(csv.DictReader(rows.open()))
    assert [row["seconds"] for row in table] == [str(cell["seconds"] or "") for cell in found["configurations"]]
    assert table[1]["BLOCK"] == "64" and table[0]["num_warps"] == "2" and "of the memory" in table[0]["failed"]
    assert drkernel_sim(script, "--csv", rows) == 2 and "--sweep" in capsys.readouterr().err
    assert drkernel_sim("--sweep", "WIDTH=1,2", script) == 2
    assert "nothing in it gives WIDTH a value" in capsys.readouterr().err
