"""Make the outputs and pictures that pages of docs/ show anew: ``make outputs``.

A block below ``$ drkernel eval``, ``sim`` or ``solve`` is written where it is no longer what the command prints
(tests/e2e/test_page_commands.py checks the same); lines that a page leaves out (``...``) stay left out. Pictures
need a Chromium. Results pages and their pictures come from the commands that stand on them.
On a busy machine a grade may meet a deadline: look at the difference before you commit it.
"""

import argparse
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("kit", "e2e")]

from test_page_commands import printed, words  # noqa: E402

from browser import Browser, chromium  # noqa: E402

PICTURES = {"docs/sim_page.png": ("examples/sim/column_sum.py --no-data", 1120)}
"""picture: the arguments of ``drkernel sim`` whose page it shows, and its width"""
LEFT_OUT = re.compile(r"(^ *\.\.\.\n)", re.MULTILINE)


def run(command: str, *more: str) -> str:
    """What a command prints, in a folder with the examples alone."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        argv = [sys.executable, "-m", *shlex.split(command), *more]
        environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
        pipes = subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(argv, cwd=folder, env=environment, stdout=pipes[0], stderr=pipes[1], text=True)
        return "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"


def renewed(part: str, output: str) -> str:
    """The lines of an output that a part of a page shows: those that are most like it."""
    if not part.strip() or words(part) in words(output):
        return part
    old, new = part.splitlines(keepends=True), output.splitlines(keepends=True)
    sizes = range(max(1, len(old) - 2), len(old) + 3)  # lines may break elsewhere
    windows = ["".join(new[at : at + size]) for size in sizes for at in range(max(1, len(new) - size + 1))]
    return max(windows, key=lambda one: difflib.SequenceMatcher(None, words(one), words(part), autojunk=False).ratio())


def blocks() -> None:
    """Write the outputs that differ."""
    for name, command, output in list(printed()):
        page, now = ROOT / name, run(command)
        if "INFRA ERROR" in now and "INFRA ERROR" not in output:
            sys.exit(f"{command}: the grader failed; nothing of it is written\n{now}")
        made = "".join(part if LEFT_OUT.match(part) else renewed(part, now) for part in LEFT_OUT.split(output))
        if made != output:
            page.write_text(page.read_text(encoding="utf-8").replace(output, made, 1), encoding="utf-8")
        print(f"{'written' if made != output else 'as it is':9} {name}: {command}", flush=True)


def pictures() -> None:
    """Photograph the pages."""
    if chromium() is None:
        sys.exit("no Chromium here for the pictures: apt-get install chromium")
    for name, (arguments, width) in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder, closing(Browser()) as tab:
            page = Path(folder) / "page.html"
            run(f"drkernel sim {arguments}", "--html", str(page))
            tab.look(width=width)
            tab.open(page.as_uri())
            tab.until("document.readyState == 'complete'")
            tab.look(width=width, height=tab.ask("document.documentElement.scrollHeight"))
            tab.photograph(ROOT / name)
        print(f"written   {name}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("blocks", "pictures"))
    only = parser.parse_args().only
    for name, make in (("blocks", blocks), ("pictures", pictures)):
        if only in (None, name):
            make()
