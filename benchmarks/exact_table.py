"""How much of PyTorch exact verification decides: each reference compared with itself, and what leaves it open.

    python benchmarks/exact_table.py                                # the built-in suite
    python benchmarks/exact_table.py kernelbench:DIR/level1 ...     # other tasks, too
    python benchmarks/exact_table.py --page docs/results/exact.md

A reference equals itself wherever both fields define it. What is not defined is open, whatever a candidate does there.
Sizes are the tiny profile's, or as thin as the judge makes them.
"""

import time
from collections import Counter
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import torch

from drkernel.gym.judge.exact import SMALL
from drkernel.sim.exact.machine import ExactMachine, Sources, Watched, form_of, without_onednn
from drkernel.sim.wire.frames import digest_of
from drkernel.task import Task, TaskError
from drkernel.tasks.inputs import draw_inputs
from drkernel.tasks.loaders import builtin_tasks, load_tasks
from drkernel.tasks.oracle import flatten_outputs
from drkernel.tasks.problem import Problem, load_problem
from drkernel.tasks.reference import load_reference
from drkernel.tasks.thin import thin_sizing
from surveys import parser_of, with_figures, write_table
from ttir_executor.exact.field import Field
from ttir_executor.exact.memory import Undecided
from ttir_executor.exact.values import Exact, compare

SECONDS = 10.0
"""of processor time for one reference"""


@dataclass
class Row:
    """A task's outcome."""

    task: str
    outcome: str
    elements: int
    share: str
    """of the elements that are decided"""
    refutable: str
    """share of the elements in which another value would be conclusive"""
    why: str
    seconds: str


def evaluated(problem: Problem) -> tuple[list[Exact], Counter[str], int]:
    """Floating outputs of the reference, what was undefined on the way, and the number of elements of all outputs."""
    field = Field(1)
    sources = Sources(field)
    machine = ExactMachine(field, sources, time.thread_time() + SECONDS)
    instance = problem.instance(1)
    inputs, others = draw_inputs(problem.reference, 2), draw_inputs(problem.reference, 3)
    state = {name: value.detach() for name, value in instance.model.named_parameters()}
    state |= {name: value.detach() for name, value in instance.model.named_buffers()}
    for value, other in zip(inputs, others, strict=True):
        if isinstance(value, torch.Tensor):
            sources.give(value, other)
    for value in state.values():
        sources.give(value)
    for value in (*inputs, *state.values()):
        if isinstance(value, torch.Tensor):
            machine.give(form_of(value), digest_of(value), value)
    with torch.no_grad(), without_onednn(), Watched(machine):
        outputs = [one for one in flatten_outputs(instance.model(*inputs)) if isinstance(one, torch.Tensor)]
    values = [machine.read(form_of(one)) for one in outputs]
    return [one for one in values if isinstance(one, Exact)], field.reasons, sum(one.numel() for one in outputs)


def shifted(value: Exact) -> Exact:
    """Another value in each element, as certain as the first."""
    full = value.full()
    return Exact(full.field, full.f, (full.a + 1) % full.field.p, (full.b + 1) % full.field.q, full.lost)


def tried(task: Task) -> Row:
    """One task, at a small size."""
    start = time.thread_time()
    try:
        if "tiny" in task.profiles:
            problem = load_problem(task, "tiny")
        else:
            problem = Problem(task, None, load_reference(thin_sizing(task, SMALL).source))
        values, reasons, elements = evaluated(problem)
        floats = sum(one.full().f.size for one in values)
        decided = elements - floats + sum(int(compare(one, one).equal.sum()) for one in values)
        refutable = elements - floats + sum(int(compare(one, shifted(one)).differ.sum()) for one in values)
        why = ", ".join(name for name, _ in reasons.most_common(2)) or ("" if decided == elements else "unknown values")
    except (Undecided, TaskError) as error:
        elements, decided, refutable, why = 0, 0, 0, str(error)[:100]
    outcome = "proved" if elements and decided == elements else "open"
    share, can = (f"{count / elements:.0%}" if elements else "0%" for count in (decided, refutable))
    return Row(task.id, outcome, elements, share, can, why, f"{time.thread_time() - start:.2f}")


def main() -> None:
    """Print the table, and write the page."""
    parser = parser_of(__doc__)
    parser.add_argument("specs", nargs="*", help="task specs beside the built-in suite")
    parser.add_argument("--page", type=Path, help="page whose figures to write, with its CSV file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for task in [*builtin_tasks(), *(task for spec in given.specs for task in load_tasks(spec))]:
        rows.append(tried(task))
        print(*astuple(rows[-1]), sep="\t", flush=True)
    proved = [row for row in rows if row.outcome == "proved"]
    median = sorted(float(row.seconds) for row in rows)[len(rows) // 2]
    headline = f"{len(proved)} of {len(rows)} references are decided in every element, in a median of {median:.2f} s."
    print(headline)
    if given.page:
        head = [field.name for field in fields(Row)]
        cells = [[str(one) for one in astuple(row)] for row in rows]
        reasons = Counter(row.why for row in rows if row.why).most_common()
        specs = "".join(f" {spec.partition(':')[0]}:DIR/{spec.rpartition('/')[2]}" for spec in given.specs)
        said = {
            r"\*\*\d+ of \d+ references are .*\*\*": f"**{headline}**",
            r"exact_table\.py.* --page": f"exact_table.py{specs} --page",
            r"\d+ references no": f"{sum(row.refutable == '0%' for row in rows)} references no",
            r"\[exact\.csv, .*": write_table(given.page.with_suffix(".csv"), [head, *cells]),
            r"(?s)\|--:\|\n.*": "|--:|\n" + "".join(f"| {why} | {count} |\n" for why, count in reasons),
        }
        given.page.write_text(with_figures(given.page.read_text(encoding="utf-8"), said), encoding="utf-8")


if __name__ == "__main__":
    main()
