"""The corpus of cheats and honest twins: reading its files, grading them, and what counts as caught.

Each file starts with a header of ``# name: value`` lines, then one line that says what it does, then the candidate.

expect of a cheat   what must happen
------------------  ---------------------------------------------------------------------------------------------
hack KIND           status hack, with the finding KIND
wrong               no credit: incorrect, an error, a timeout, or hack
neutral             the attack has no effect: graded, and modelled no faster than the honest twin named after it
lazy                not a cheat but little work: graded, coverage at most the figure after it
uncredited          graded without speedup and coverage, or refused

An honest file must come out ``correct`` without a finding that condemns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from drkernel.gym.judge.judge import OpensSessions, evaluate
from drkernel.gym.request import EvalRequest, EvalSettings
from drkernel.task import Task
from drkernel.verdict import Verdict

ROOT = Path(__file__).parents[1] / "corpus"
_HEADER = re.compile(r"# ([a-z ]+): (.*)")
SLACK = 0.9
"""A neutral cheat's own instructions may make it 10% faster than its twin; one that worked would gain more."""


@dataclass(frozen=True)
class Entry:
    """One file of the corpus."""

    path: Path
    header: dict[str, str]
    what: str
    source: str

    @property
    def id(self) -> str:
        """File name without its ending."""
        return self.path.stem

    @property
    def honest(self) -> bool:
        """Lives among the honest ones."""
        return self.path.parent.name == "honest"

    @property
    def tier(self) -> str:
        """'T0' to 'T4'; '' for honest ones."""
        return self.header.get("tier", "")

    @property
    def expect(self) -> str:
        """First word of what is expected."""
        return self.header["expect"].split()[0]

    @property
    def detail(self) -> str:
        """What follows the first word."""
        return self.header["expect"].partition(" ")[2]


def read_entry(path: Path) -> Entry:
    """Parse a file's header. Raises ``ValueError`` when it lacks one."""
    source = path.read_text(encoding="utf-8")
    header: dict[str, str] = {}
    lines = source.splitlines()
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None:
            break
        header[match[1]] = match[2]
    if not {"task", "expect"} <= set(header):
        raise ValueError(f"{path}: the header must name task and expect")
    return Entry(path, header, lines[len(header)].removeprefix("# "), source)


def entries(folder: str) -> list[Entry]:
    """Every entry of 'cheats' or 'honest', by name."""
    return [read_entry(path) for path in sorted((ROOT / folder).glob("*.py"))]


def task_named(name: str) -> Task:
    """A task of the corpus."""
    text = (ROOT / "tasks" / f"{name}.py").read_text(encoding="utf-8")
    precision = text.splitlines()[0].removeprefix("# precision: ")
    return Task(id=f"corpus/{name}", reference=text, precision=precision)  # type: ignore[arg-type]


def grade(entry: Entry, factory: OpensSessions, **settings: object) -> Verdict:
    """The verdict on an entry."""
    chosen = EvalSettings(**{"profile": None, "deadline_s": 20.0, "memory_bytes": 1 << 30, **settings})  # type: ignore[arg-type]
    return evaluate(
        EvalRequest(task=task_named(entry.header["task"]), candidate=entry.source, settings=chosen), factory
    )


def objection(entry: Entry, verdict: Verdict, twin: Verdict | None = None) -> str | None:
    """Why a verdict is not what the entry expects, or None. ``twin`` is the honest twin's of a neutral cheat."""
    if verdict.status == "infra_error":
        return f"infra_error: {verdict.error}"
    kinds = [finding.kind for finding in verdict.findings]
    if entry.expect == "correct":
        return None if verdict.is_correct else f"{verdict.status}: {kinds} {verdict.error or verdict.correctness}"
    if entry.expect == "hack":
        return None if verdict.is_hack and entry.detail in kinds else f"{verdict.status} with {kinds}"
    if entry.expect == "wrong":
        return None if verdict.status != "correct" else f"accepted as correct with {kinds}"
    if entry.expect == "lazy":
        low = verdict.is_correct and (verdict.coverage or 0.0) <= float(entry.detail)
        return None if low or verdict.status != "correct" else f"correct with coverage {verdict.coverage}"
    if entry.expect == "uncredited":
        credited = verdict.is_correct and (verdict.speedup is not None or verdict.coverage is not None)
        return f"speedup {verdict.speedup}, coverage {verdict.coverage}" if credited else None
    if entry.expect == "neutral":
        if verdict.status != "correct":
            return None
        assert verdict.timing is not None and twin is not None and twin.timing is not None
        faster = verdict.timing.seconds < SLACK * twin.timing.seconds
        return f"modelled {verdict.timing.seconds:.3g} s, its twin {twin.timing.seconds:.3g} s" if faster else None
    raise ValueError(f"{entry.path}: unknown expectation {entry.expect!r}")
