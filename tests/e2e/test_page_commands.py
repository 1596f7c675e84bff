"""Every code block of every page is of a kind that something checks, and commands print what stands below them.

``python`` runs in ``test_page_code.py``; of ``console`` blocks commands and options are checked in ``test_links.py``
and here; ``yaml``, ``toml`` and ``json`` are read; ``text`` is what a program printed, or a drawing.
"""

import json
import os
import re
import shlex
import subprocess
import tomllib
from itertools import pairwise

import pytest
import yaml

from farm import PYTHON
from places import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("README.md")])
FENCE = re.compile(r"^```(\w*)(?: \S+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READ = {"yaml": yaml.safe_load, "toml": tomllib.loads, "json": json.loads}
KINDS = {"python", "console", "text", *READ}
PRINTING = re.compile(r"^\$ (drkernel (?:eval|sim|solve) .*?(?<!\\)\n)(.*)", re.DOTALL)
NEEDS = ("--pool", "openai:", "runs/")
"""what cannot be had in an empty folder"""
DRAWN = (
    r"\d+/\d+ calls right", r"worst error \S+", r"(?:rms error|allowed) \S+", r"output \d+ ?\[[\d, ]+\]",
    r"is \S+, expected \S+ ± \S+", r"should be \S+ \(within \S+\), is \S+", r"[<>]?[\d.]+% of (?:the|an) \w+",
    r"[\d,]+ tokens", r"Call \d+ returned the answer of call \d+", r"inputs differ \([^)]*\)", r"± \S+;",
)  # fmt: skip
"""figures that follow the secret seeds"""


def blocks(page):
    """(kind, text) of every code block."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def printed():
    """(page, command, output) of every command whose output stands in its block or in the ``text`` block after it."""
    for page in PAGES:
        found = blocks(page)
        for (kind, text), (next_kind, below) in pairwise([*found, ("", "")]):
            if kind == "console" and (match := PRINTING.match(text.replace("\\\n", " "))):
                command, rest = match[1].strip(), match[2]
                output = rest if rest.strip() else below if next_kind == "text" else ""
                if output and "\n$ " not in f"\n{rest}" and not any(word in command for word in NEEDS):
                    yield str(page.relative_to(ROOT)), command, output


def words(text):
    """The text in one line, without what seeds decide and how wide the terminal is."""
    line = " ".join(text.split())
    for pattern in DRAWN:
        line = re.sub(pattern, "#", line)
    return re.sub(r"graded in .*", "", line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_has_a_kind_that_is_checked(page):
    for kind, text in blocks(page):
        assert kind in KINDS, f"{page.name}: a block of kind {kind!r}: {text[:60]!r}"
        if kind in READ:
            assert READ[kind](text), f"{page.name}: nothing in {text[:60]!r}"


def test_figures_of_seeds_alone_are_left_out():
    shown = "3.25x [2.40, 4.39]\n 7/7 calls right, worst error 0.002 of what is allowed"
    assert words(shown) == "3.25x [2.40, 4.39] #, # of what is allowed"
    assert len(list(printed())) > 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "command", "output"), [pytest.param(*case, id=f"{case[0]}: {case[1][9:70]}") for case in printed()]
)
def test_a_command_prints_what_stands_below_it(page, command, output, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    argv = [PYTHON, "-m", *shlex.split(command)]
    done = subprocess.run(
        argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, env=environment
    )
    assert done.returncode in (0, 1, 3), done.stdout
    for part in re.split(r"^ *\.\.\.$", output, flags=re.MULTILINE):
        assert words(part) in words(done.stdout), f"{page}\n--- shown\n{words(part)}\n--- printed\n{words(done.stdout)}"
