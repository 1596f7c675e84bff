"""Verdicts without a GPU against those that others got on cards, on Triton that language models wrote.

    python benchmarks/verdicts_vs_gpu.py DIR... --rows rows.jsonl      # DIR: a clone of a repository below
    python benchmarks/verdicts_vs_gpu.py DIR... --rows rows.jsonl --page docs/results/verdicts_vs_gpu.md

A DIR is a clone of a repository that the page names; level 3 is left out, and what a harness could not grade. Functions
are called as there. An interrupted run goes on. The page's section "Reading" is kept.
"""

import csv
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from drkernel.gym.pools.local import LocalPool
from drkernel.gym.request import OWN_SECONDS, EvalRequest, EvalSettings
from drkernel.task import TaskError
from drkernel.tasks.loaders import load_task
from surveys import keep_row, kept_rows, markdown, parser_of, spearman, write_page, write_table

RUNS = (
    ("qwen3-30b", "zeroshot_qwen3_30b", "zeroshot/qwen3_30b"),
    ("qwen3-4b", "zeroshot_qwen3_4b_finetuned", "zeroshot/qwen3_4b_finetuned"),
    ("gpt-5", "zeroshot_gpt-5", "zeroshot/gpt-5"),
    ("gpt-5, search", "search_openai-gpt-5", "search/openai-gpt-5"),
    ("gemini-2.5-pro", "zeroshot_gemini-2.5-pro", "zeroshot/gemini-2.5-pro"),
)
"""name here, table of results there, folder of answers there"""
TRACES = ("glm45_correct", "qwen3_multiturn", "qwen3_multiturn_failed")
LEVELS = ("level1", "level2")
TERMS = {"tf32": {}, "bf16": {}, "own draws": {"distribution": "fixed"}}
"""on which what is wrong as fp32 is graded again, until it is right; the last as TF32, with no inputs but the task's"""
AGAIN = ("incorrect", "runtime_error")
OURS = ("correct", *(f"correct, {terms}" for terms in TERMS), "hack", "incorrect", "fails", "not decided")
GPU = ("correct", "incorrect", "fails")
WRAPPED = """

import inspect


class ModelNew(Model):
    def forward(self, *inputs):
        given = inspect.signature(triton_kernel_wrapper).parameters
        needed = [name for name, one in given.items() if one.default is inspect.Parameter.empty]
        if len(given) == 1:
            return triton_kernel_wrapper(inputs[0])
        if len(needed) > len(inputs):
            held = [(module, name) for module in self.modules() for name in ("weight", "bias")]
            tensors = [getattr(module, name, None) for module, name in held]
            inputs = (*inputs, *(one.data for one in tensors if one is not None))
        return triton_kernel_wrapper(*inputs[: len(needed)])
"""
"""as the harness calls it: weights follow the inputs where more is asked for"""
IN_EVAL = """

built = {name}.__init__


def in_eval(self, *args, **kwargs):
    built(self, *args, **kwargs)
    self.eval()


{name}.__init__ = in_eval
Model = {name}
"""
PAGE = """# Verdicts against those of cards

Does a verdict without a GPU agree with one from a GPU? **{headline}**

`python benchmarks/verdicts_vs_gpu.py DIR... --rows rows.jsonl`, {date}, {machine}: {count} Triton answers of language
models from four public repositories (`DIR`: clones), whose authors ran them on cards:
[tritonLLM](https://github.com/adityakotha03/tritonLLM) (A100, KernelBench's rule with a tolerance of 0.01; here
`sim:a100`), [LLMKernel](https://github.com/Alisehen/LLMKernel) (a card of Ada's generation with 24 GB, tolerance 0.001,
the fastest right answer to each problem; here `sim:h100`), [Distant22](https://github.com/Distant22/KernelBench) (an
agent's, V100; here `sim:a100`) and [MultiTurnKernel-SFT](https://github.com/Prathmesh234/MultiTurnKernel-SFT) (H100,
tolerance 0.0001). What is wrong as fp32 is graded again as TF32, then as bf16, then as TF32 on the task's own draws of
inputs alone. *Fails*: does not compile or run, or not in 60 s; the A100's table calls it incorrect where a call fails.

{table}

Speedups of the answers that both accept: {agreement}.

Every answer, with the reason where it is not accepted:

{link}
"""


@dataclass(frozen=True)
class Answer:
    """A published answer: ``gpu`` is one of :data:`GPU`, ``speedup`` what its authors measured."""

    name: str
    reference: Path
    source: Path
    gpu: str
    speedup: float
    device: str


def answers(directory: Path, written: Path) -> list[Answer]:
    """Every answer of a clone, those that were right there first. ``written``: a folder for those that are wrapped."""
    readers = {"output": of_tables, "results/level1": right_answers, "sft-reasoning": of_traces}
    readers["finalProject_260531"] = of_a_project
    reader = next((read for mark, read in readers.items() if (directory / mark).is_dir()), None)
    if reader is None:
        raise SystemExit(f"{directory} is none of the clones: it has none of {', '.join(readers)}")
    return sorted(reader(directory, written), key=lambda one: (GPU.index(one.gpu), one.name))


def of_tables(directory: Path, written: Path) -> Iterator[Answer]:
    """Those of adityakotha03/tritonLLM."""
    for name, table, folder in RUNS:
        with (directory / "results" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                source = directory / "output" / folder / row.get("Level", "") / f"{row['Problem']}.py"
                for level in LEVELS if row["Status"] == "SUCCESS" else ():  # else their harness failed
                    reference = directory / "KernelBench" / level / source.name
                    if row.get("Level", level) == level and reference.is_file() and source.is_file():
                        gpu = "correct" if row["Correctness"] == "True" else None
                        gpu = gpu or ("incorrect" if row["Compiled"] == "True" else "fails")
                        speedup = float(row["Speedup"]) if gpu == "correct" else 0.0
                        yield Answer(f"{name}/{level}/{source.stem}", reference, source, gpu, speedup, "sim:a100")


def right_answers(directory: Path, written: Path) -> Iterator[Answer]:
    """The fastest right answer in Triton to each problem of Alisehen/LLMKernel."""
    for folder in (path for level in LEVELS for path in (directory / "results" / level).glob("*/evaluation")):
        level, problem = folder.parts[-3:-1]
        reference, best = directory / "KernelBench" / level / f"{problem}.py", (0.0, folder)
        for file in sorted(folder.glob("eval_*.json")):
            told = json.loads(file.read_text(encoding="utf-8"))
            source = folder.parent / "code" / Path(told.get("candidate_file") or "").name
            if told.get("runnable") and source.is_file() and "triton.jit" in source.read_text(encoding="utf-8"):
                best = max(best, (told.get("score") or 0.0, source))
        if best[0] and reference.is_file():
            yield Answer(f"llmkernel/{level}/{problem}", reference, best[1], "correct", best[0], "sim:h100")


def of_a_project(directory: Path, written: Path) -> Iterator[Answer]:
    """Those of Distant22/KernelBench, all of them right there."""
    project = directory / "finalProject_260531"
    for row in json.loads((project / "results/eval_all_v100.json").read_text(encoding="utf-8")):
        level = f"level{row['level']}"
        reference, source = directory / "KernelBench" / level / row["ref_name"], project / "solutions" / level
        if level in LEVELS and row["correct"]:
            name = f"distant22/{level}/{reference.stem}"
            yield Answer(name, reference, source / row["solution"], "correct", row["speedup_eager"], "sim:a100")


def of_traces(directory: Path, written: Path) -> Iterator[Answer]:
    """Those of Prathmesh234/MultiTurnKernel-SFT, once each: functions, which become modules."""
    known: set[str] = set()
    written.mkdir(parents=True, exist_ok=True)
    for trace in TRACES:
        told = json.loads((directory / f"reasoning_traces_{trace}.json").read_text(encoding="utf-8"))
        for one in told:
            for number, turn in enumerate(one.get("turns", [one])):
                result, code = turn["result"] or {}, turn["triton_code"] or ""
                if not code or "correctness" not in result or code in known:
                    continue
                known.add(code)
                reference = one["pytorch_code"]
                reference += IN_EVAL.format(name=re.findall(r"^class (\w+)", reference, re.M)[-1])
                name = f"{trace}/{one['sample_key']}/{number + 1} ({len(known)})"
                asked, answered = (written / f"{len(known)}_{kind}.py" for kind in ("reference", "answer"))
                asked.write_text(reference, encoding="utf-8")
                answered.write_text(f"{reference}\n\n{code}{WRAPPED}", encoding="utf-8")
                gpu = "correct" if result["correctness"] else "fails" if result.get("error") else "incorrect"
                yield Answer(name, asked, answered, gpu, result.get("speedup") or 0.0, "sim:h100")


@cache
def pool() -> LocalPool:
    return LocalPool(slots=1)


def graded(answer: Answer, terms: str) -> dict[str, Any]:
    """One verdict, short."""
    started = time.monotonic()
    try:
        task = load_task(str(answer.reference), "bf16" if terms == "bf16" else "fp32" if terms == "fp32" else "tf32")
        task = task.model_copy(update=TERMS.get(terms, {}))
        settings = EvalSettings(device=answer.device, own_seconds=OWN_SECONDS)
        request = EvalRequest(task=task, candidate=answer.source.read_text(encoding="utf-8"), settings=settings)
        verdict = pool().submit(request).result()
    except TaskError as error:
        return {"status": "not decided", "why": str(error), "seconds": time.monotonic() - started}
    why = [finding.kind for finding in verdict.findings if finding.severity != "note"]
    why += [verdict.correctness.message or ""] if verdict.correctness is not None else []
    why += [f"{verdict.error.type}: {verdict.error.message}"] if verdict.error is not None else []
    untimed = [one.message for one in verdict.findings if one.kind in ("size_dependent", "data_dependent")]
    return {
        "status": verdict.status,
        "why": "; ".join(filter(None, why))[:300],
        "untimed": "; ".join(untimed)[:300],
        "speedup": verdict.speedup.value if verdict.speedup is not None else None,
        "seconds": time.monotonic() - started,
    }


def ours(row: dict[str, Any]) -> str:
    """Our verdict on a row in the words of the table."""
    status = row["fp32"]["status"]
    for terms in TERMS if status in AGAIN else ():
        if row.get(terms, {}).get("status") == "correct":
            return f"correct, {terms}"
    fails = status in ("compile_error", "runtime_error", "timeout", "out_of_memory")
    return str(status) if status in OURS else "fails" if fails else "not decided"


def speedup_of(row: dict[str, Any]) -> float | None:
    """Our speedup on the terms on which the answer is right."""
    found = (row.get(terms, {}).get("speedup") for terms in ("fp32", *TERMS))
    return next((speedup for speedup in found if speedup), None)


def why(row: dict[str, Any]) -> str:
    """Its reason without the lines of source that a compiler quotes, and without the paths of a machine."""
    return re.sub(r" \(/[^)]*\)?", "", str(row["fp32"]["why"]).partition("\n")[0])


def page(rows: list[dict[str, Any]], path: Path, machine: str) -> str:
    """The table of both verdicts, and the list of every answer beside it as CSV."""
    counts = Counter((row["gpu"], ours(row)) for row in rows)
    table = [["the card says", *OURS]]
    table += [[gpu, *(str(counts[gpu, own]) for own in OURS)] for gpu in GPU]
    right = [row for row in rows if row["gpu"] == "correct"]
    passed = sum(ours(row) == "correct" for row in rows if row["gpu"] != "correct")
    agreed = sum(ours(row).startswith("correct") for row in right)
    listed = [["answer", "card", "speedup there", "here", "speedup here", "why"]]
    for row in sorted(rows, key=lambda one: (GPU.index(one["gpu"]), ours(one), one["answer"])):
        there = f"{float(row['gpu_speedup']):.2f}" if row["gpu"] == "correct" else ""
        speedup = "" if (found := speedup_of(row)) is None else f"{found:.2f}"
        listed.append([row["answer"], row["gpu"], there, ours(row), speedup, why(row)])
    agreement = []
    cards = {"A100": "(?!llm|dis).*/level", "Ada": "llm", "H100": ".*/kernelb", "V100, here A100": "dis"}
    for card, known in cards.items():
        both = [row for row in right if re.match(known, row["answer"]) and ours(row).startswith("correct")]
        pairs = [(float(row["gpu_speedup"]), here) for row in both if (here := speedup_of(row)) is not None]
        rank = spearman([there for there, _ in pairs], [here for _, here in pairs])
        side = sum((there >= 1) == (here >= 1) for there, here in pairs)
        agreement.append(f"{card}: Spearman {rank:.2f} over {len(pairs)}, {side} on the same side of 1")
    return PAGE.format(
        headline=f"Of {len(rows) - len(right)} answers that a card refused {passed or 'none'} is accepted here as\n"
        f"fp32; of {len(right)} that a card accepted {agreed} are accepted, counting what is right as TF32, as bf16 or "
        "on the task's own\ndraws alone.",
        date=time.strftime("%Y-%m-%d"),
        machine=machine,
        count=len(rows),
        table="\n".join(markdown(table, numbers=len(OURS))),
        agreement="; ".join(agreement),
        link=write_table(path.with_suffix(".csv"), listed),
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("directory", type=Path, nargs="+", help="clones of the repositories named above")
    parser.add_argument("--rows", type=Path, required=True, help="JSONL of verdicts, continued when it is there")
    parser.add_argument("--page", type=Path, help="page to write from the rows, instead of grading")
    parser.add_argument("--machine", default="two cores", help="for the page")
    given = parser.parse_args()
    written = given.rows.with_suffix("")
    rows, found = kept_rows(given.rows), [one for folder in given.directory for one in answers(folder, written)]
    if given.page is not None:
        rows = [row for row in rows if row["answer"] in {one.name for one in found}]
        write_page(given.page, page(rows, given.page, given.machine))
        return
    known = {row["answer"] for row in rows}
    for one in found:
        if one.name in known:
            continue
        row: dict[str, Any] = {
            "answer": one.name,
            "gpu": one.gpu,
            "gpu_speedup": one.speedup,
            "fp32": graded(one, "fp32"),
        }
        for terms in TERMS if row["fp32"]["status"] in AGAIN else ():
            row[terms] = graded(one, terms)
            if row[terms]["status"] == "correct":
                break
        keep_row(given.rows, row)
        print(one.name, one.gpu, ours(row), row["fp32"]["why"][:80], sep="\t", flush=True)


if __name__ == "__main__":
    main()
