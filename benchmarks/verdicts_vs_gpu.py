"""Verdicts without a GPU against those of an A100, on Triton that language models wrote for KernelBench's problems.

    python benchmarks/verdicts_vs_gpu.py DIR --rows rows.jsonl      # DIR: a clone of adityakotha03/tritonLLM
    python benchmarks/verdicts_vs_gpu.py DIR --rows rows.jsonl --page docs/results/verdicts_vs_gpu.md

The authors graded each answer with KernelBench's rule on an A100: does it run, is it right, eager PyTorch's time over
its own. Left out: answers that their harness could not grade, and level 3, whose models seldom fit. An interrupted run
goes on.
"""

from __future__ import annotations

import csv
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from drkernel.notebook import evaluate
from drkernel.tasks.errors import TaskError
from surveys import keep_row, kept_rows, markdown, parser_of, spearman, write_table

RUNS = (
    ("qwen3-30b", "zeroshot_qwen3_30b", "zeroshot/qwen3_30b"),
    ("qwen3-4b", "zeroshot_qwen3_4b_finetuned", "zeroshot/qwen3_4b_finetuned"),
    ("gpt-5", "zeroshot_gpt-5", "zeroshot/gpt-5"),
    ("gpt-5, search", "search_openai-gpt-5", "search/openai-gpt-5"),
    ("gemini-2.5-pro", "zeroshot_gemini-2.5-pro", "zeroshot/gemini-2.5-pro"),
)
"""name here, table of results there, folder of answers there"""
OURS = ("correct", "correct as tf32", "correct as bf16", "hack", "incorrect", "fails", "not decided")
COARSER = ("tf32", "bf16")
GPU = ("correct", "incorrect", "fails")
PAGE = """# Verdicts against an A100's

Does a verdict without a GPU agree with one from a GPU? **{headline}**

`python benchmarks/verdicts_vs_gpu.py DIR --rows rows.jsonl`, {date}, {machine}: {count} Triton answers of language
models to problems of KernelBench's levels 1 and 2, with the verdicts that [their
authors](https://github.com/adityakotha03/tritonLLM) (`DIR`: a clone) got by KernelBench's rule, five draws and a
tolerance of 0.01, on an A100. Ours: `sim:a100`, default settings. What is wrong as fp32 is graded again as TF32, then
as bf16, about what that tolerance admits. *Fails*: does not compile or run; the A100's table calls it incorrect where
only a call fails.

{table}

What the A100 accepted and we do not:

{others}

Speedups of the answers that both accept: Spearman {agreement:.2f} over {pairs}.

{link}
"""


def answers(directory: Path) -> list[tuple[str, Path, Path, dict[str, str]]]:
    """Every answer: its name, reference, source, and row of the authors' table; those that were right there first."""
    found = []
    for name, table, folder in RUNS:
        with (directory / "results" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["Status"] != "SUCCESS":
                    continue  # their harness failed
                source = directory / "output" / folder / row.get("Level", "") / f"{row['Problem']}.py"
                for level in ("level1", "level2"):
                    reference = directory / "KernelBench" / level / source.name
                    if row.get("Level", level) == level and reference.is_file() and source.is_file():
                        found.append((f"{name}/{level}/{source.stem}", reference, source, row))
    return sorted(found, key=lambda one: (GPU.index(on_gpu(one[3])), one[0]))


def on_gpu(row: dict[str, str]) -> str:
    """What the authors' table says of an answer."""
    if row["Correctness"] == "True":
        return "correct"
    return "incorrect" if row["Compiled"] == "True" else "fails"


def graded(reference: Path, source: Path, precision: str) -> dict[str, Any]:
    """One verdict, short."""
    started = time.monotonic()
    try:
        verdict = evaluate(reference, source, device="sim:a100", precision=precision)  # type: ignore[arg-type]
    except TaskError as error:
        return {"status": "not decided", "why": str(error), "seconds": time.monotonic() - started}
    why = [finding.kind for finding in verdict.findings if finding.severity != "note"]
    if verdict.correctness is not None and verdict.correctness.message:
        why.append(verdict.correctness.message)
    if verdict.error is not None:
        why.append(f"{verdict.error.type}: {verdict.error.message}")
    return {
        "status": verdict.status,
        "why": re.sub(r" \(/[^)]*\)", "", "; ".join(why))[:300],  # without the paths of a machine
        "speedup": verdict.speedup.value if verdict.speedup is not None else None,
        "seconds": time.monotonic() - started,
    }


def ours(row: dict[str, Any]) -> str:
    """Our verdict on a row in the words of the table."""
    status = row["fp32"]["status"]
    for precision in COARSER if status == "incorrect" else ():
        if row.get(precision, {}).get("status") == "correct":
            return f"correct as {precision}"
    if status in ("correct", "hack", "incorrect"):
        return str(status)
    decided = status in ("compile_error", "runtime_error", "timeout", "out_of_memory")
    return "fails" if decided else "not decided"


def why(row: dict[str, Any]) -> str:
    """Its reason without the lines of source that a compiler quotes."""
    return str(row["fp32"]["why"]).partition("\n")[0]


def page(rows: list[dict[str, Any]], path: Path, machine: str) -> str:
    """The table of both verdicts, and the list of every answer beside it as CSV."""
    counts = Counter((row["gpu"], ours(row)) for row in rows)
    table = [["A100 says", *OURS]]
    table += [[gpu, *(str(counts[gpu, own]) for own in OURS)] for gpu in GPU]
    wrong, right = [row for row in rows if row["gpu"] != "correct"], [row for row in rows if row["gpu"] == "correct"]
    passed = sum(ours(row).startswith("correct") for row in wrong)
    agreed = sum(ours(row).startswith("correct") for row in right)
    listed = [["answer", "A100", "speedup there", "here", "speedup here", "why"]]
    for row in sorted(rows, key=lambda one: (GPU.index(one["gpu"]), ours(one), one["answer"])):
        speedup = row["fp32"].get("speedup")
        shown = "" if speedup is None else f"{speedup:.2f}"
        there = row["gpu_speedup"] if row["gpu"] == "correct" else ""
        listed.append([row["answer"], row["gpu"], there, ours(row), shown, why(row)])
    others = [["answer", "here", "why"]]
    others += [[f"`{row['answer']}`", ours(row), why(row)[:160]] for row in right if ours(row) != "correct"]
    both = [row for row in right if row["fp32"].get("speedup") is not None and ours(row) == "correct"]
    return PAGE.format(
        headline=f"Of {len(wrong)} answers that an A100 refused {passed or 'none'} is accepted here; of "
        f"{len(right)} that it\n"
        f"accepted {agreed} are accepted, counting what is right as TF32 or bf16; the others have a reason each.",
        date=time.strftime("%Y-%m-%d"),
        machine=machine,
        count=len(rows),
        table="\n".join(markdown(table, numbers=len(OURS))),
        others="\n".join(markdown(others)),
        agreement=spearman([float(row["gpu_speedup"]) for row in both], [row["fp32"]["speedup"] for row in both]),
        pairs=len(both),
        link=write_table(path.with_suffix(".csv"), listed),
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("directory", type=Path, help="a clone of adityakotha03/tritonLLM")
    parser.add_argument("--rows", type=Path, required=True, help="JSONL of verdicts, continued when it is there")
    parser.add_argument("--page", type=Path, help="page to write from the rows, instead of grading")
    parser.add_argument("--machine", default="two cores", help="for the page")
    given = parser.parse_args()
    rows = kept_rows(given.rows)
    if given.page is not None:
        names = {name for name, *_ in answers(given.directory)}
        rows = [row for row in rows if row["answer"] in names]
        given.page.write_text(page(rows, given.page, given.machine), encoding="utf-8")
        return
    known = {row["answer"] for row in rows}
    for name, reference, source, there in answers(given.directory):
        if name in known:
            continue
        row = {"answer": name, "gpu": on_gpu(there), "gpu_speedup": there["Speedup"]}
        row["fp32"] = graded(reference, source, "fp32")
        for precision in COARSER if row["fp32"]["status"] == "incorrect" else ():
            row[precision] = graded(reference, source, precision)
        keep_row(given.rows, row)
        print(name, row["gpu"], ours(row), row["fp32"]["why"][:80], sep="\t", flush=True)


if __name__ == "__main__":
    main()
