"""Whether a change of the code changed any result: verdicts, a bench table, a search and a training run, all seeded.

    python benchmarks/same_results.py --against ../other              # both states at once, a core each; what differs
    python benchmarks/same_results.py --out before.json [--all]       # one state, to be compared later
    python benchmarks/same_results.py --compare before.json after.json

Everything is run through the command line of the checkout that ``--repo`` names (its ``.venv/bin`` first on the path)
and read from the JSON that it prints or writes, so that two states with different modules inside can be compared.
``--parts`` chooses among: verdicts (six examples; of the corpus one cheat of every root, four honest twins), bench (a
scripted writer), solve (the replies of ``examples/solve``), train (a shrunken quickstart; only with ``--all``). With
``--all`` verdicts takes all examples and one in eight entries of the corpus, and the benchmark is longer: about seven
minutes a state on two quiet cores. Wall times are left out.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("verdicts", "bench", "solve", "train")
EVERY = 8
"""Of the corpus with ``--all``, one entry in so many."""
HONEST, EXAMPLES = 4, 6
"""Honest twins and examples without it."""
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

    def __init__(self, repo: Path, scratch: Path, whole: bool = True):
        """``whole``: the longer form of each part."""
        self.repo, self.scratch, self.whole = repo, scratch, whole
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
    examples = [
        path
        for path in sorted(code.repo.glob("examples/*/*.py"), key=_place)
        if path.name != "reference.py" and path.with_name("reference.py").exists()
    ]
    for path in examples if code.whole else examples[:EXAMPLES]:
        result[f"examples/{path.parent.name}/{path.stem}"] = _graded(code, path.with_name("reference.py"), path, None)
    corpus = code.repo / "tests" / "corpus"
    for path in _chosen(corpus, code.whole):
        task = corpus / "tasks" / f"{_header(path)['task']}.py"
        precision = task.read_text(encoding="utf-8").splitlines()[0].removeprefix("# precision: ")
        result[f"{path.parent.name}/{path.stem}"] = _graded(code, task, path, precision)
    return result


def _chosen(corpus: Path, whole: bool) -> list[Path]:
    """Entries by a hash of their names, so that both states choose alike when one has more of them."""
    cheats, honest = (sorted((corpus / folder).glob("*.py"), key=_place) for folder in ("cheats", "honest"))
    if whole:
        return [path for path in cheats + honest if _place(path) % EVERY == 0]
    return [*{_header(path).get("root"): path for path in reversed(cheats)}.values(), *honest[:HONEST]]


def _place(path: Path) -> int:
    return zlib.crc32(f"{path.parent.name}/{path.stem}".encode())


def _header(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^# ([a-z ]+): (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE))


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
    length = ["--turns", 4, "--samples", 2] if code.whole else ["--turns", 5, "--limit", 2]
    terms = ["--model", writer, "--tag", "loss", *length, "--judge-seed", 0, "--out", out]
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
    parser.add_argument(
        "--parts", help=f"comma-separated, of: {', '.join(PARTS)} (default: without train unless --all)"
    )
    parser.add_argument("--all", action="store_true", help="the longer form of each part, and train")
    parser.add_argument("--against", type=Path, metavar="REPO", help="run this other checkout too, and compare")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="JSON", help="say what differs between two files")
    arguments = parser.parse_args()
    if arguments.compare:
        return _say(*(json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare))
    if arguments.out is None and arguments.against is None:
        parser.error("give --against REPO, --out FILE or --compare A B")
    chosen = (arguments.parts or ",".join(PARTS if arguments.all else PARTS[:3])).split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {sorted(unknown)[0]!r}")
    if arguments.against is not None:
        with ThreadPoolExecutor(2) as both:
            return _say(
                *both.map(lambda repo: results(repo, chosen, arguments.all), (arguments.against, arguments.repo))
            )
    found = results(arguments.repo, chosen, arguments.all)
    arguments.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {arguments.out}")
    return 0


def results(repo: Path, parts: Sequence[str], whole: bool) -> dict[str, Any]:
    """What the chosen parts give with one checkout."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="same-results-") as scratch:
        code = Checkout(repo.resolve(), Path(scratch), whole)
        for part in parts:
            print(f"{repo}: {part} ...", file=sys.stderr, flush=True)
            found[part] = {"verdicts": verdicts, "bench": bench, "solve": solve, "train": train}[part](code)
    return json.loads(json.dumps(found))


def _say(before: dict[str, Any], after: dict[str, Any]) -> int:
    lines = differences(before, after)
    print("\n".join(lines) or f"the same: {', '.join(before)}")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
