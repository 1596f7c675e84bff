"""Whether a change of the code changed any result: verdicts, a bench table, a search and a training run, all seeded.

    python benchmarks/same_results.py --against ../other              # this state and another one; what differs
    python benchmarks/same_results.py --out before.json [--all]       # one state, to be compared later
    python benchmarks/same_results.py --compare before.json after.json

Each state is run through its own commands (``drkernel serve`` grades; ``bench``, ``solve``, ``train``), and the results
are read from the JSON that these write, so that two states with different modules inside can be compared. Both get the
same requests: the examples and the corpus of this checkout; with ``--against``, only the entries of the corpus that are
the same programs in the other checkout.

Differences are listed under two headings. *judged*: statuses and findings, which must agree unless a rule was changed.
*priced*: coverage, times, speedups and the texts that quote them, which move with the cost model; ``--judged`` leaves
these out. Wall times are never compared.

``--parts`` chooses among: verdicts (all examples and a sample of the corpus that has every weakness, tier and
expectation in it), bench (a scripted writer), solve (the replies of ``examples/solve``), train (a shrunken quickstart;
only with ``--all``). ``--all`` takes the whole corpus and a longer bench.
"""

import argparse
import ast
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kit"))

from corpus_grading import Entry, entries, sample, task_named  # noqa: E402
from drkernel.task import Task  # noqa: E402

PARTS = ("verdicts", "bench", "solve", "train")
CHEATS, HONEST = 40, 14
"""How many entries of the corpus are graded without ``--all``."""
DEADLINE_S = 600.0
"""Of one evaluation: a busy machine must not change a status."""
_READ = """
import json
from corpus_grading import entries
every = [(folder, one) for folder in ("cheats", "honest") for one in entries(folder)]
print(json.dumps({f"{folder}/{one.id}": (one.header["task"], one.source) for folder, one in every}))
"""
"""Read the corpus, where ``corpus_grading`` is at hand."""
PATIENCE_S = 300.0
"""Of one request to the service; a verdict that is not there yet is asked for again."""
WALL = re.compile(r"(^|_)seconds$|^elapsed$|^report$|^verified_speedup$")
"""Names of figures that are wall times or paths."""
TRAIN = (
    "name=same", "budget_minutes=null", "threads=1", "report=false", "coldstart.tasks=20",
    "coldstart.episode.settings.seed=0", "copying=null",
    "sft.epochs=70", "policy.pocket.hidden=128", "policy.pocket.layers=2", "policy.pocket.heads=4",
    "policy.pocket.mlp=256", "train_tasks={count: 20, seed: 0}", "heldout_tasks={generated: train, count: 20, seed: 0}",
    "rollout.tasks=5", "rl.steps=4", "rl.learner.mismatch=[]", "evaluation.every=2", "evaluation.tasks=8",
    "evaluation.final_tasks=12", "evaluation.final_samples=1",
)  # fmt: skip
"""A policy that learns its few tasks by heart, so that some of its answers are right and rewards differ."""


class Checkout:
    """The commands of one state of the code, in a scratch directory."""

    def __init__(self, repo: Path, scratch: Path, whole: bool = True):
        """``whole``: the longer form of each part."""
        self.repo, self.scratch, self.whole = repo, scratch, whole
        path = f"{repo / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        self.command = [str(repo / ".venv" / "bin" / "python"), "-m", "drkernel"]

    def run(self, *arguments: object) -> str:
        """Run ``drkernel ARGUMENTS``; return its output. Raises ``SystemExit`` with its last lines when it fails."""
        command = [*self.command, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.repo, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout)[-2000:]
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{last}")
        return done.stdout

    @contextmanager
    def served(self) -> Iterator[httpx.Client]:
        """A grading service of this state with one slot, stopped in the end."""
        terms = ["serve", "--port", "0", "--slots", "1", "--store", str(self.scratch / "jobs.sqlite")]
        with (self.scratch / "serve.log").open("w") as log:
            service = subprocess.Popen(
                [*self.command, *terms], cwd=self.repo, env=self.env, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            assert service.stdout is not None
            found = re.search(r"http://\S+", service.stdout.readline())
            if found is None:
                raise SystemExit((self.scratch / "serve.log").read_text(encoding="utf-8")[-2000:])
            with httpx.Client(base_url=found[0], timeout=PATIENCE_S + 60) as client:
                yield client
        finally:
            service.send_signal(signal.SIGINT)
            service.wait(60)


def verdicts(code: Checkout, asked: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Status and findings, coverage, modelled time and speedup of every evaluation in ``asked``."""
    found = {}
    with code.served() as service:
        bodies = [body for _, body in asked]
        jobs = service.post("/v1/jobs", json={"requests": bodies}).raise_for_status().json()["jobs"]
        for (name, _), job in zip(asked, jobs, strict=True):
            verdict = None
            while verdict is None:
                verdict = service.get(f"/v1/jobs/{job['id']}", params={"wait_s": PATIENCE_S}).json()["verdict"]
            found[name] = _facts(verdict)
    return {kind: {name: facts[kind] for name, facts in found.items()} for kind in ("judged", "priced")}


def questions(other: Path | None, whole: bool) -> list[tuple[str, dict[str, Any]]]:
    """Names and requests: every example, and what is chosen of the corpus among what ``other`` has too."""
    asked = []
    for path in sorted((ROOT / "examples").glob("*/*.py")):
        reference = path.with_name("reference.py")
        if path.name != "reference.py" and reference.exists():
            name = path.parent.name
            task = Task(id=f"{name}/reference", reference=reference.read_text(), precision="fp32")
            asked.append((f"examples/{name}/{path.stem}", _request(task, path.read_text())))
    theirs = None if other is None else _programs(other)
    for folder, size in (("cheats", CHEATS), ("honest", HONEST)):
        shared = [one for one in entries(folder) if theirs is None or theirs.get(f"{folder}/{one.id}") == _shared(one)]
        for entry in shared if whole else sample(shared, size):
            asked.append((f"{folder}/{entry.id}", _request(task_named(entry.header["task"]), entry.source)))
    return asked


def _programs(other: Path) -> dict[str, tuple[str, str]]:
    """What the corpus of another checkout holds, by folder and name. It is read there: files may have another form."""
    kit = next(path.parent for path in sorted((other / "tests").glob("*/corpus_grading.py")))
    command = [str(other.resolve() / ".venv" / "bin" / "python"), "-c", _READ]
    said = subprocess.run(command, cwd=kit, capture_output=True, text=True, check=True).stdout
    return {name: (task, ast.dump(ast.parse(source))) for name, (task, source) in json.loads(said).items()}


def _shared(entry: Entry) -> tuple[str, str]:
    """The task and the program without its comments and layout."""
    return entry.header["task"], ast.dump(ast.parse(entry.source))


def _request(task: Task, candidate: str) -> dict[str, Any]:
    terms = {"id": task.id, "reference": task.reference, "precision": task.precision}
    return {"task": terms, "candidate": candidate, "settings": {"seed": 0, "profile": None, "deadline_s": DEADLINE_S}}


def _facts(verdict: dict[str, Any]) -> dict[str, dict[str, Any]]:
    timing = verdict.get("timing") or {}
    return {
        "judged": {
            "status": verdict["status"],
            "findings": sorted(finding["kind"] for finding in verdict["findings"]),
        },
        "priced": {
            "coverage": verdict.get("coverage"),
            "modelled": timing.get("seconds") if timing.get("kind") == "modelled" else None,
            "speedup": (verdict.get("speedup") or {}).get("value"),
        },
    }


def bench(code: Checkout) -> dict[str, Any]:
    """The statuses of a bench whose model is the scripted writer; its table, and its conversations as data."""
    out = code.scratch / "bench"
    writer = "command:python benchmarks/stts_writer.py --climb 0.7"
    length = ["--turns", 4, "--samples", 2] if code.whole else ["--turns", 5, "--limit", 2]
    terms = ["--model", writer, "--tag", "loss", *length, "--judge-seed", 0, "--out", out]
    summary = json.loads(code.run("bench", *terms, "--json"))
    turns: dict[str, list[str]] = {}
    for row in _rows(out / "turns.jsonl"):
        if row.get("turn"):
            turns.setdefault(f"{row['task_id']} {row['sample']}", []).append(row["turn"]["verdict"]["status"])
    data = code.scratch / "conversations.jsonl"
    code.run("export", out, "--out", data, "--end", "every", "--status", "any", "--allow-hacks")
    rows = _rows(data)
    spoken = {row["task_id"] + row["messages"][-1]["content"][:40]: row["messages"] for row in rows}
    conversations = {key: spoken[key] for key in sorted(spoken)}
    return {"judged": dict(sorted(turns.items())), "priced": {"summary": summary, "conversations": conversations}}


def solve(code: Checkout) -> dict[str, Any]:
    """The result of the search over the replies of ``examples/solve``."""
    reference = "examples/matmul_epilogue/reference.py"
    script = ["--model", "script:examples/solve", "--turns", 5, "judge_seed=0"]
    terms = [*script, "--out", code.scratch / "solve", "--json"]
    found = json.loads(code.run("solve", reference, *terms))
    judged = {name: found[name] for name in ("verified", "found_at_turn", "attempts", "ended_by")}
    return {"judged": judged, "priced": {name: found[name] for name in ("speedup", "tokens")}}


def train(code: Checkout) -> dict[str, Any]:
    """The statuses of every answer; losses and rewards of every step, and the held-out figures."""
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
    statuses = [(one["where"], [turn[2] for turn in one["turns"]]) for one in kept]
    priced = {"coldstart": cold, "metrics": rows["metrics"], "eval": rows["eval"], "samples": kept, "summary": summary}
    return {"judged": statuses, "priced": priced}


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
    parser.add_argument("--judged", action="store_true", help="compare statuses and findings only")
    parser.add_argument("--against", type=Path, metavar="REPO", help="run this other checkout too, and compare")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="JSON", help="say what differs between two files")
    arguments = parser.parse_args()
    if arguments.compare:
        states = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.compare]
        return _say(states[0], states[1], arguments.judged)
    if arguments.out is None and arguments.against is None:
        parser.error("give --against REPO, --out FILE or --compare A B")
    chosen = (arguments.parts or ",".join(PARTS if arguments.all else PARTS[:3])).split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {sorted(unknown)[0]!r}")
    asked = questions(arguments.against, arguments.all)
    if arguments.against is None:
        found = results(arguments.repo, chosen, asked, arguments.all)
        arguments.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"wrote {arguments.out}")
        return 0
    with ThreadPoolExecutor(2) as both:
        repos = (arguments.against, arguments.repo)
        before, after = both.map(lambda repo: results(repo, chosen, asked, arguments.all), repos)
    return _say(before, after, arguments.judged)


def results(
    repo: Path, parts: Sequence[str], asked: Sequence[tuple[str, dict[str, Any]]], whole: bool
) -> dict[str, Any]:
    """The results of the chosen parts with one checkout."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="same-results-") as scratch:
        code = Checkout(repo.resolve(), Path(scratch), whole)
        for part in parts:
            print(f"{repo}: {part} ...", file=sys.stderr, flush=True)
            if part == "verdicts":
                found[part] = verdicts(code, asked)
            else:
                found[part] = {"bench": bench, "solve": solve, "train": train}[part](code)
    return json.loads(json.dumps(found))


def _say(before: dict[str, Any], after: dict[str, Any], judged_only: bool) -> int:
    """Print what differs in both lists; 1 when anything does."""
    any_differ = 0
    for kind in ("judged",) if judged_only else ("judged", "priced"):
        ours, theirs = ({part: found[kind] for part, found in state.items()} for state in (before, after))
        lines = differences(ours, theirs)
        any_differ |= bool(lines)
        print(f"{kind}: {f'{len(lines)} differ' if lines else 'the same'} ({', '.join(before)})")
        for line in lines:
            print(f"  {line}")
    return any_differ


if __name__ == "__main__":
    raise SystemExit(main())
