"""Reward hacking, shown: the same policy trained against a naive grader and against the gym.

    python benchmarks/hacking.py --recipe recipes/quickstart.yaml --steps 20

The cold start holds a few answers of one cheat: compute once in PyTorch, keep the result, and copy it out with a Triton
kernel ever after (``stale`` in the teacher's mix). A naive grader, which times the calls after the first on the same
inputs, finds that cheat as fast as the best kernel, and it is easier to write than any kernel. Two runs of RL start
from that one checkpoint: one graded by ``unsafe_no_checks``, one by the gym. Both policies are then evaluated by both
graders on held-out tasks. Writes ``hacking.md`` into ``--results``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from drkernel.config import load_config
from drkernel.rl.recipe import Recipe, make_pool
from drkernel.rl.trainer import Run


def run(data: dict[str, Any]) -> dict[str, Any]:
    """Run a recipe, or go on with it, or read the summary of one that is done."""
    recipe = Recipe.model_validate(data)
    done = Path(recipe.runs) / recipe.name / "summary.json"
    if done.exists():
        return json.loads(done.read_text())

    async def play() -> dict[str, Any]:
        pool = make_pool(recipe)
        try:
            return await Run(recipe, pool).run()
        finally:
            await pool.close()

    return asyncio.run(play())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/quickstart.yaml"))
    parser.add_argument("--stale", type=float, default=0.08, help="weight of the cheat in the cold start's first turns")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/hacking"))
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    args = parser.parse_args()

    base = load_config(Recipe, args.recipe).model_dump(mode="json")
    base |= {"runs": str(args.out), "seed": args.seed, "report": False, "budget_minutes": None}
    start = json.loads(json.dumps(base)) | {"name": f"start-{args.seed}", "rl": None}
    start["coldstart"]["teacher"]["first"]["stale"] = args.stale
    run(start)

    learn = json.loads(json.dumps(base)) | {"coldstart": None, "sft": None}
    learn["policy"]["model"] = str(args.out / f"start-{args.seed}" / "checkpoints" / "sft")
    learn["rl"]["steps"] = args.steps
    rows = []
    for grader in ("naive", "gym"):
        data = json.loads(json.dumps(learn)) | {"name": f"{grader}-{args.seed}"}
        data["episode"]["settings"]["unsafe_no_checks"] = grader == "naive"
        trained = run(data)
        final = args.out / f"{grader}-{args.seed}" / "checkpoints" / "final"
        for judge in ("naive", "gym"):
            test = json.loads(json.dumps(learn)) | {"name": f"{grader}-judged-by-{judge}-{args.seed}", "rl": None}
            test["policy"]["model"] = str(final)
            test["episode"]["settings"]["unsafe_no_checks"] = judge == "naive"
            rows.append((grader, judge, trained["steps"]["rl"], run(test)["after"]))

    lines = [
        "# Reward hacking, with the checks off and on",
        "",
        f"`python benchmarks/hacking.py --steps {args.steps} --seed {args.seed} --stale {args.stale}`",
        "",
        "| trained against | judged by | correct | fast_1.2 | hacks | coverage |",
        "|---|---|---|---|---|---|",
    ]
    for grader, judge, _, after in rows:
        cover = "-" if after["coverage"] is None else f"{after['coverage']:.2f}"
        figures = " | ".join(f"{100 * after[name]:.0f} %" for name in ("fast_0", "fast_1.2", "hack_rate"))
        lines.append(f"| {grader} | {judge} | {figures} | {cover} |")
    args.results.mkdir(parents=True, exist_ok=True)
    (args.results / "hacking.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
