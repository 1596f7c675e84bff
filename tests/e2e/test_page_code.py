"""The Python in docs/ runs as it stands, page by page and in order.

A fence may carry a marker after ``python``, which renderers do not show:

- none: the block runs here, after the page's earlier ones, with the names that :data:`GIVEN` lends the page;
- ``gpu``: it needs a GPU, so that it is only parsed;
- ``output``: a program printed it, so that it is only parsed.

Pages that need more than a few names (a server, an engine, a batch of tensors) have a test of their own, named in
:data:`ELSEWHERE`. Blocks with ``>>>`` are doctests.
"""

import ast
import doctest
import re
from pathlib import Path

import pytest
import torch

from drkernel.task import Task, override_constants
from drkernel.tasks.gate import admit
from places import ROOT

FENCE = re.compile(r"^```python(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = {"gpu", "output"}
ELSEWHERE = {
    "docs/adapters.md": "tests/e2e/adapters/test_adapters_page.py",
    "docs/plugins.md": "tests/e2e/rl/test_plugins.py",
    "docs/rl.md": "tests/unit/rl/test_docs.py",
    "docs/serve.md": "tests/e2e/serve/test_serve_page.py",
}
GIVEN = {
    "docs/gym.md": lambda: {"source": (ROOT / "examples" / "softmax" / "candidate.py").read_text()},
    "docs/sim.md": lambda: {"my_function": torch.nn.functional.gelu, "x": torch.randn(64)},
}


def blocks(page):
    """(marker or '', code) of every Python fence of a page; fences of doctests are left to doctest."""
    found = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    return [(marker, code) for marker, code in found if not code.startswith(">>>")]


ALL = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
WITH_CODE = [page for page in ALL if blocks(page)]
RUN_HERE = [page for page in WITH_CODE if page not in ELSEWHERE and any(marker == "" for marker, _ in blocks(page))]


def check_episode(scope, printed):
    graded, twin = printed.splitlines()
    assert graded.startswith("1 correct ") and graded.endswith(" False")
    assert twin == "1"  # the second branch of the first turn


def check_gym(scope, printed):
    assert scope["verdict"].is_correct and scope["verdict"].timing.kind == "modelled"


def check_notebook(scope, printed):
    assert "correct 100% in own kernels" in printed and "torch.Size([1000])" in printed
    assert scope["run"].value.sum() == pytest.approx(1.0)


def check_sim(scope, printed):
    assert scope["out"].shape == (64,) and "aten.gelu" in printed


def check_task(scope, printed):
    assert scope["ROWS"] == 4096
    source = override_constants(blocks("docs/tasks.md")[0][1], {"ROWS": 8, "COLS": 64})
    report = admit(Task(id="page", reference=source, provenance={"source": "file"}), None)
    assert report.admitted, report


CHECKS = {
    "docs/episode.md": check_episode,
    "docs/gym.md": check_gym,
    "docs/notebook.md": check_notebook,
    "docs/sim.md": check_sim,
    "docs/tasks.md": check_task,
}


def test_every_page_with_code_is_run_somewhere():
    assert set(RUN_HERE) == set(CHECKS), "a page with new code needs a check here, or a test of its own in ELSEWHERE"
    for page, test in ELSEWHERE.items():
        assert blocks(page) and Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in WITH_CODE if page not in ELSEWHERE])
def test_the_blocks_are_marked_and_parse(page):
    for marker, code in blocks(page):
        assert marker in {"", *NOT_RUN}, f"{page}: unknown marker {marker!r}"
        ast.parse(code)


@pytest.mark.parametrize("page", RUN_HERE)
def test_the_page_runs(page, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    scope = {"__name__": "page", **GIVEN.get(page, dict)()}
    for marker, code in blocks(page):
        if marker == "":
            exec(compile(code, page, "exec"), scope)
    CHECKS[page](scope, capsys.readouterr().out)


@pytest.mark.parametrize("page", [page for page in ALL if ">>> " in (ROOT / page).read_text(encoding="utf-8")])
def test_the_doctests_hold(page):
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False, encoding="utf-8")
    assert tried and not failed
