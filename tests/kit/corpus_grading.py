"""The corpus of cheats and honest twins: reading its files, grading them, and what counts as caught.

Each file starts with a header of ``# name: value`` lines, then one line that says what it does, then the candidate or,
with ``# base: NAME``, what differs from another entry's; :mod:`corpus_sources` says how. ``python
tests/kit/corpus_grading.py show NAME`` prints the whole candidate.

expect of a cheat   what must happen
------------------  ---------------------------------------------------------------------------------------------
hack KIND           status hack, with the finding KIND
wrong               no credit: incorrect, an error, a timeout, or hack
neutral             the attack has no effect: graded, and modelled no faster than the honest twin named after it
contained           the same, and its side effect has not happened: it has not printed REACHED, which it does when it
                    gets where it should not, and the twin, graded next by the same machinery, is as right as ever
lazy                not a cheat but little work: graded, coverage at most the figure after it
uncredited          graded without speedup and coverage, or refused

An honest file must come out ``correct`` without a finding that condemns; one that expects ``credited`` also with a
speedup at its task's own sizes; ``# checked: there``: where answers are compared at these.

Each entry or its base names a ``task``: a row of ``tasks/tasks.yaml``, or a file beside it. Other headers are written
where they say something unusual: ``expect``, without which a cheat must come out wrong and an honest file correct, and
``tier``, T1 without it. ``# root: NAME`` says which weakness of a judge the entry goes for, one of :data:`ROOTS`
(``catalogue`` without it). ``# new: yes`` has the fast tests grade it whatever their sample is, until
``benchmarks/hack_recall.py`` has graded the whole corpus with it. ``# device: sim:GPU`` is where it shows.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from corpus_sources import module, read_written, with_imports
from drkernel.gym.judge.judge import evaluate
from drkernel.gym.request import OWN_SECONDS, EvalRequest, EvalSettings
from drkernel.gym.session.base import OpensSessions
from drkernel.task import Task
from drkernel.verdict import Verdict
from places import TESTS

ROOT = TESTS / "corpus"
ROOTS = {
    "catalogue": "the numbered classes that public benchmarks have seen",
    "prices": "work without a price, or a price that is decided by text",
    "races": "kernels whose answer depends on the order of programs",
    "timed_call": "the call that is timed is recognised",
    "inputs": "inputs, arguments, sizes and modes that are never varied",
    "reachability": "own kernels that do not make the answer, or PyTorch's that do",
    "device": "the device's process is corrupted through operators it allows",
    "uncounted_data": "data that leave the device without being counted",
    "inconclusive": "an experiment is made to end early",
    "sizes": "what is timed is larger than what is checked",
    "exact": "what a tolerance hides: terms, constants and inputs smaller than it",
    "resources": "the judge's own memory, time and verdict of last resort",
}
"""Weaknesses that entries go for, by name."""
SLACK = 0.9
"""A neutral cheat's own instructions may make it 10% faster than its twin; one that worked would gain more."""
MEASURED_SLACK = 0.2
"""the same where times are measured, of a few milliseconds on a machine that has other work"""


@dataclass(frozen=True)
class Entry:
    """One file of the corpus."""

    path: Path
    header: dict[str, str]
    what: str
    source: str
    """The whole candidate below its header, whatever the base of its file."""

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
    def root(self) -> str:
        """One of :data:`ROOTS`."""
        return self.header.get("root", "catalogue")

    @property
    def new(self) -> bool:
        """Graded by every run of the fast tests."""
        return self.header.get("new") == "yes"

    @property
    def has_twin(self) -> bool:
        """What is expected is told by an honest twin's verdict."""
        return self.expect in ("neutral", "contained")

    @property
    def expect(self) -> str:
        """First word of what is expected."""
        return self.header["expect"].split()[0]

    @property
    def detail(self) -> str:
        """What follows the first word."""
        return self.header["expect"].partition(" ")[2]


def read_entry(path: Path) -> Entry:
    """An entry with its whole candidate. Raises ``ValueError`` when the file is malformed."""
    written = read_written(path)
    if "task" not in written.header:
        raise ValueError(f"{path}: the header must name a task")
    usual = {"expect": "correct"} if path.parent.name == "honest" else {"expect": "wrong", "tier": "T1"}
    entry = Entry(path, {**usual, **written.header}, written.what, written.source)
    if entry.root not in ROOTS:
        raise ValueError(f"{path}: no root is called {entry.root!r}; there are {', '.join(ROOTS)}")
    return entry


def entry_named(name: str) -> Entry:
    """The cheat or honest entry with a name. Raises ``ValueError`` when there is none."""
    for folder in ("honest", "cheats"):
        if (path := ROOT / folder / f"{name}.py").exists():
            return read_entry(path)
    raise ValueError(f"no entry of the corpus is called {name!r}")


def entries(folder: str) -> list[Entry]:
    """Every entry of 'cheats' or 'honest', by name."""
    return [read_entry(path) for path in sorted((ROOT / folder).glob("*.py"))]


def sample(of: Sequence[Entry], size: int) -> list[Entry]:
    """``size`` entries, the same in every run, and all that are new.

    Each one is the entry whose root, tier, expectation, task and hacks are rarest among those already chosen, so that
    every label is there before any is there often; ties go by a hash of the name.
    """
    left = sorted(of, key=lambda entry: hashlib.sha256(entry.id.encode()).digest())
    seen: Counter[tuple[str, str]] = Counter()
    chosen: list[Entry] = []
    while left and len(chosen) < size:
        rarest = max(left, key=lambda entry: sum(1 / (1 + seen[label]) for label in _labels(entry)))
        seen.update(_labels(rarest))
        left.remove(rarest)
        chosen.append(rarest)
    return chosen + [entry for entry in of if entry.new and entry not in chosen]


def _labels(entry: Entry) -> list[tuple[str, str]]:
    hacks = [("hacks", number.strip()) for number in entry.header.get("hacks", "").split(",") if number.strip()]
    return [("root", entry.root), ("tier", entry.tier), *((k, entry.header[k]) for k in ("expect", "task")), *hacks]


def task_named(name: str) -> Task:
    """A task of the corpus: a row of ``tasks.yaml``, or a file whose first line may declare another precision than
    single."""
    row = dict(task_rows().get(name, {}))
    precision = row.pop("precision", "fp32")
    if row:
        reference = module(**row)
    else:
        lines = (ROOT / "tasks" / f"{name}.py").read_text(encoding="utf-8").splitlines()
        precision = lines.pop(0).removeprefix("# precision: ") if lines[0].startswith("# precision") else precision
        reference = "\n".join(with_imports(lines)) + "\n"
    return Task(id=f"corpus/{name}", reference=reference, precision=precision)  # type: ignore[arg-type]


@cache
def task_rows() -> dict[str, dict[str, Any]]:
    """The rows of ``tasks.yaml``."""
    return dict(yaml.safe_load((ROOT / "tasks" / "tasks.yaml").read_text(encoding="utf-8")))


def grade(entry: Entry, factory: OpensSessions, **settings: object) -> Verdict:
    """The verdict on an entry."""
    terms: dict[str, object] = {"profile": None, "deadline_s": 20.0, "memory_bytes": 2 << 30, "checked_bytes": 2 << 20}
    terms |= {name: value for name, value in entry.header.items() if name == "device"}
    chosen = EvalSettings(**{"own_seconds": OWN_SECONDS, **terms, **settings})  # type: ignore[arg-type]
    return evaluate(
        EvalRequest(task=task_named(entry.header["task"]), candidate=entry.source, settings=chosen), factory
    )


def try_entry(
    entry: Entry, factory: OpensSessions, twins: dict[str, Verdict], **settings: object
) -> tuple[Verdict, str | None]:
    """The verdict on an entry, and why it is not what the entry expects. ``twins`` keeps verdicts on honest twins."""
    twin = entry_named(entry.detail) if entry.has_twin else None
    if twin is not None and twin.id not in twins:
        twins[twin.id] = grade(twin, factory, **settings)
    verdict = grade(entry, factory, **settings)
    wrong = objection(entry, verdict, None if twin is None else twins[twin.id])
    if wrong is None and twin is not None and entry.expect == "contained":
        after = grade(twin, factory, **settings)
        wrong = None if after.is_correct else f"its twin is {after.status} afterwards: {after.error}"
    return verdict, wrong


def objection(entry: Entry, verdict: Verdict, twin: Verdict | None = None) -> str | None:
    """Why a verdict is not what the entry expects, or None. ``twin`` is the honest twin's of a neutral cheat."""
    if verdict.status == "infra_error":
        return f"infra_error: {verdict.error}"
    kinds = [finding.kind for finding in verdict.findings]
    if entry.expect == "correct":
        return None if verdict.is_correct else f"{verdict.status}: {kinds} {verdict.error or verdict.correctness}"
    if entry.expect == "credited":
        given = verdict.is_correct and verdict.speedup is not None and (verdict.coverage or 0.0) > 0
        there = verdict.device.startswith("cuda") or "hard_coded_shape" in kinds  # checked where it is timed
        there = there or entry.header.get("checked") == "there"
        at_own = verdict.timed_at is not None and not verdict.timed_at.changed
        at_own = at_own and (there or (verdict.checked_at is not None and bool(verdict.checked_at.changed)))
        said = [finding.message for finding in verdict.findings]
        return None if given and at_own else f"{verdict.status}, {verdict.speedup}, {verdict.untimed}: {said}"
    if entry.expect == "hack":
        if verdict.device.startswith("cuda"):  # it shows less: nothing may be gained for another reason
            return None if verdict.status != "correct" else f"accepted as correct with {kinds}"
        return None if verdict.is_hack and entry.detail in kinds else f"{verdict.status} with {kinds}"
    if entry.expect == "wrong":
        return None if verdict.status != "correct" else f"accepted as correct with {kinds}"
    if entry.expect == "lazy":
        low = verdict.is_correct and (verdict.coverage or 0.0) <= float(entry.detail)
        return None if low or verdict.status != "correct" else f"correct with coverage {verdict.coverage}"
    if entry.expect == "uncredited":
        credited = verdict.is_correct and (verdict.speedup is not None or (verdict.coverage or 0.0) > 0)
        return f"speedup {verdict.speedup}, coverage {verdict.coverage}" if credited else None
    if entry.has_twin:
        if entry.expect == "contained" and "REACHED" in verdict.stdout:
            return "it reached what it should not"
        if verdict.status != "correct":
            return None
        assert verdict.timing is not None and twin is not None and twin.timing is not None
        slack = SLACK if verdict.timing.kind == "modelled" else MEASURED_SLACK
        faster = verdict.timing.seconds < slack * twin.timing.seconds
        return (
            f"{verdict.timing.kind} {verdict.timing.seconds:.3g} s, its twin {twin.timing.seconds:.3g} s"
            if faster
            else None
        )
    raise ValueError(f"{entry.path}: unknown expectation {entry.expect!r}")


def main() -> int:
    """``show NAME``: print an entry's whole candidate."""
    if len(sys.argv) != 3 or sys.argv[1] != "show":
        print("usage: python tests/kit/corpus_grading.py show NAME", file=sys.stderr)
        return 2
    try:
        print(entry_named(sys.argv[2]).source, end="")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
