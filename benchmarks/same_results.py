"""Whether a change of the code changed any result: verdicts, a bench table, a search and a training run, all seeded.

    python benchmarks/same_results.py --out before.json               # about seven minutes on two cores
    python benchmarks/same_results.py --repo ../other --out after.json
    python benchmarks/same_results.py --compare before.json after.json

Everything is run through the command line of the checkout that ``--repo`` names (its ``.venv/bin`` first on the path)
and read from the JSON that it prints or writes, so that two states with different modules inside can be compared.
``--parts`` chooses among: verdicts (the examples and one in eight entries of the corpus), bench (a scripted writer),
solve (the replies of ``examples/solve``), train (a shrunken quickstart). Wall times are left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("verdicts", "bench", "solve", "train")
EVERY = 8
"""Of the corpus, one entry in so many."""
WALL = re.compile(r"(^|_)seconds$|^elapsed$|^report$|^verified_speedup$")
"""Names of figures that are wall times or paths."""
TRAIN = (
    "name=same", "budget_minutes=null", "threads=1", "report=false", "coldstart.tasks=20",
    "coldstart.episode.settings.seed=0", "copying=null",
    "sft.epochs=70", "policy.pocket.hidden=128", "policy.pocket.layers=2", "policy.pocket.heads=4",
    "policy.pocket.mlp=256", "train_tasks={count: 20, seed: 0}", "heldout_tasks={generated: train, count: 20, seed: 0}",
    "rollout.tasks=5", "rl.steps=4", "rl.learner.mismatch.name='off'", "evaluation.every=2", "evaluation.tasks=8",
    "evaluation.final_tasks=12", "evaluation.final_samples=1",
)  # fmt: skip
"""A policy that learns its few tasks by heart, so that some of its answers are right and rewards differ."""


class Checkout:
    """The command line of one state of the code, in a scratch directory."""

    def __init__(self, repo: Path, scratch: Path):
        self.repo, self.scratch = repo, scratch
        path = f"{repo / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

    def run(self, *arguments: object, accept: tuple[int, ...] = (0,)) -> str:
        """What ``drkernel ARGUMENTS`` prints. Raises ``SystemExit`` with its last words for another exit code."""
        command = [str(self.repo / ".venv" / "bin" / "python"), "-m", "drkernel", *map(str, arguments)]
        done = subprocess.run(command, cwd=self.repo, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode not in accept:
            raise SystemExit(
                f"{' '.join(command)} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}"
            )
        return done.stdout


def verdicts(code: Checkout) -> dict[str, Any]:
    """Status, findings, coverage and modelled time of the examples and of part of the corpus."""
    result: dict[str, Any] = {}
    for candidate in sorted(code.repo.glob("examples/*/*.py")):
        reference = candidate.with_name("reference.py")
        if candidate.name != "reference.py" and reference.exists():
            result[f"examples/{candidate.parent.name}/{candidate.stem}"] = _graded(code, reference, candidate, None)
    corpus = code.repo / "tests" / "corpus"
    for folder in ("cheats", "honest"):
        for path in sorted((corpus / folder).glob("*.py")):
            if zlib.crc32(path.stem.encode()) % EVERY:  # by name: both states choose alike when one has more entries
                continue
            header = dict(re.findall(r"^# ([a-z ]+): (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))
            task = corpus / "tasks" / f"{header['task']}.py"
            precision = task.read_text(encoding="utf-8").splitlines()[0].removeprefix("# precision: ")
            result[f"{folder}/{path.stem}"] = _graded(code, task, path, precision)
    return result


def _graded(code: Checkout, reference: Path, candidate: Path, precision: str | None) -> dict[str, Any]:
    options = ["--json", "--seed", 0, "--deadline", 60] + (["--precision", precision] if precision else [])
    verdict = json.loads(code.run("eval", reference, candidate, *options, accept=(0, 1, 3, 4, 5)))
    timing = verdict.get("timing") or {}
    return {
        "status": verdict["status"],
        "findings": sorted(finding["kind"] for finding in verdict["findings"]),
        "coverage": verdict.get("coverage"),
        "modelled": timing.get("seconds") if timing.get("kind") == "modelled" else None,
        "speedup": (verdict.get("speedup") or {}).get("value"),
    }


def bench(code: Checkout) -> dict[str, Any]:
    """The table of a bench whose model is the scripted writer, and its conversations as data."""
    out = code.scratch / "bench"
    writer = "command:python benchmarks/stts_writer.py --climb 0.7"
    terms = ["--model", writer, "--tag", "loss", "--turns", 4, "--samples", 2, "--judge-seed", 0, "--out", out]
    summary = json.loads(code.run("bench", *terms, "--json"))
    data = code.scratch / "conversations.jsonl"
    code.run("export", out, "--out", data, "--end", "every", "--status", "any", "--allow-hacks")
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    spoken = {row["task_id"] + row["messages"][-1]["content"][:40]: row["messages"] for row in rows}
    return {"summary": summary, "conversations": {key: spoken[key] for key in sorted(spoken)}}


def solve(code: Checkout) -> dict[str, Any]:
    """What the search finds in the replies of ``examples/solve``."""
    reference = "examples/matmul_epilogue/reference.py"
    terms = ["--model", "script:examples/solve", "--turns", 5, "--out", code.scratch / "solve", "--json"]
    found = json.loads(code.run("solve", reference, *terms))
    return {name: found[name] for name in ("verified", "speedup", "found_at_turn", "tokens", "attempts", "ended_by")}


def train(code: Checkout) -> dict[str, Any]:
    """Losses and rewards of every step, and the held-out figures, of a shrunken quickstart."""
    code.run("train", "recipes/quickstart.yaml", *TRAIN, f"runs={code.scratch}")
    run = code.scratch / "same"
    rows = {name: _rows(run / f"{name}.jsonl") for name in ("metrics", "eval", "samples")}
    cold = [row["messages"] for row in _rows(run / "coldstart.jsonl")]
    kept = [
        {
            "where": f"{row['stage']} {row['step']} {row['split']} {row['task_id']} {row['sample']}",
            "turns": [(turn["text"], turn["prompt"], turn["status"], turn["reward"]) for turn in row["turns"]],
        }
        for row in rows["samples"]
    ]
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return {"coldstart": cold, "metrics": rows["metrics"], "eval": rows["eval"], "samples": kept, "summary": summary}


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def differences(before: Any, after: Any, where: str = "") -> list[str]:
    """One line for every value that differs; wall times and missing figures of intervals are named, not hidden."""
    if isinstance(before, dict) and isinstance(after, dict):
        lines = []
        for name in dict.fromkeys([*before, *after]):
            if WALL.search(name):
                continue
            inner = f"{where}.{name}" if where else name
            if name not in before or name not in after:
                lines.append(f"{inner}: only {'before' if name in before else 'after'}")
            else:
                lines += differences(before[name], after[name], inner)
        return lines
    if isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            return [f"{where}: {len(before)} entries before, {len(after)} after"]
        pairs = zip(before, after, strict=True)
        return [line for k, (a, b) in enumerate(pairs) for line in differences(a, b, f"{where}[{k}]")]
    if isinstance(before, float) and isinstance(after, float | int) and math.isclose(before, after, rel_tol=1e-9):
        return []
    return [] if before == after else [f"{where}: {_short(before)} before, {_short(after)} after"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else text[:117] + "..."


def main() -> int:
    """Run the parts, or compare two files; 1 when they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the results there")
    parser.add_argument("--repo", type=Path, default=ROOT, help="checkout to run (default: this one)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"comma-separated, of: {', '.join(PARTS)}")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="JSON", help="say what differs between two files")
    arguments = parser.parse_args()
    if arguments.compare:
        before, after = (json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare)
        lines = differences(before, after)
        print("\n".join(lines) or f"the same: {', '.join(before)}")
        return 1 if lines else 0
    if arguments.out is None:
        parser.error("give --out FILE or --compare A B")
    chosen = arguments.parts.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {sorted(unknown)[0]!r}")
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="same-results-") as scratch:
        code = Checkout(arguments.repo.resolve(), Path(scratch))
        for part in chosen:
            print(f"{part} ...", file=sys.stderr, flush=True)
            results[part] = {"verdicts": verdicts, "bench": bench, "solve": solve, "train": train}[part](code)
    arguments.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {arguments.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
