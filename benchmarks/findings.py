"""The paper's findings in miniature: the same policy trained with one thing changed, several seeds, one page.

    drkernel train recipes/quickstart.yaml                       the policy that every run starts from
    python benchmarks/findings.py --base runs/quickstart          all comparisons (many hours of two cores)
    python benchmarks/findings.py --base runs/quickstart --only baseline --seeds 3 --steps 20

Every run starts from the base run's supervised checkpoint and takes its recipe, with ``rl.steps`` and the listed keys
changed. Runs live under ``--out`` and are resumed or skipped when they exist, so the script may be interrupted. At the
end it writes ``findings.md`` and one PNG per comparison into ``--results``: mean over seeds of held-out fast_1.2 with
the per-seed figures, and the curves of the training reward. It reports what came out, agreeing with the paper or not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from pathlib import Path
from typing import Any

from drkernel.config import load_config
from drkernel.rl.recipe import Recipe, make_pool
from drkernel.rl.trainer import Run

# comparison -> {variant: keys changed}; the first variant is the recipe's own way
COMPARISONS: dict[str, dict[str, dict[str, Any]]] = {
    "baseline": {
        "trloo": {},
        "grpo": {"rl.learner.advantage": {"name": "grpo"}},
        "rloo": {"rl.learner.advantage": {"name": "rloo"}},
    },
    "pr": {"with PR": {}, "without PR": {"episode.reward.coverage_weight": 0.0}},
    "prs": {"without PRS": {}, "with PRS": {"rl.learner.rejection": {"name": "prs"}}},
    "mrs": {
        "int8 sampler, MRS": {"rollout.dtype": "int8"},
        "int8 sampler, no MRS": {"rollout.dtype": "int8", "rl.learner.mismatch": {"name": "off"}},
    },
    "otb": {
        "group mean, N = 16": {
            "rollout.tasks": 4,
            "rollout.samples": 16,
            "rl.learner.advantage": {"name": "grpo_no_std"},
        },
        "OTB, N = 4": {"rollout.tasks": 16, "rollout.samples": 4, "rl.learner.advantage": {"name": "otb"}},
    },
}


def variant_recipe(base: Path, out: Path, name: str, changes: dict[str, Any], seed: int, steps: int) -> Recipe:
    """The base run's recipe, from its supervised checkpoint, with some keys changed."""
    data = load_config(Recipe, base / "config.yaml").model_dump(mode="json")
    data |= {
        "name": f"{name}-{seed}".replace(" ", "_").replace(",", "").replace("=", ""),
        "runs": str(out),
        "seed": seed,
        "coldstart": None,
        "sft": None,
        "budget_minutes": None,
        "report": False,
    }
    data["policy"]["model"] = str(base / "checkpoints" / "sft")
    data["rl"]["steps"] = steps
    for key, value in changes.items():
        *sections, leaf = key.split(".")
        node = data
        for section in sections:
            node = node[section]
        node[leaf] = value
    return Recipe.model_validate(data)


async def train(recipe: Recipe) -> dict[str, Any]:
    """Run it, or read the summary of a run that is done."""
    done = Path(recipe.runs) / recipe.name / "summary.json"
    if done.exists():
        return json.loads(done.read_text())
    pool = make_pool(recipe)
    try:
        return await Run(recipe, pool).run()
    finally:
        await pool.close()


def curve(recipe: Recipe, key: str) -> list[float]:
    """A figure of every RL step of a run."""
    lines = (Path(recipe.runs) / recipe.name / "metrics.jsonl").read_text().splitlines()
    return [row[key] or 0.0 for row in map(json.loads, lines) if row["stage"] == "rl"]


def plot(path: Path, title: str, curves: dict[str, list[list[float]]]) -> None:
    """Mean over seeds of the training reward, with the range of the seeds as a band."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6))
    for name, runs in curves.items():
        columns = list(zip(*runs, strict=False))
        steps = range(1, len(columns) + 1)
        (line,) = axes.plot(steps, [statistics.mean(c) for c in columns], label=name)
        axes.fill_between(
            steps, [min(c) for c in columns], [max(c) for c in columns], color=line.get_color(), alpha=0.15
        )
    axes.set(title=title, xlabel="step", ylabel="mean reward of a turn")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def compare(args: argparse.Namespace, comparison: str) -> list[str]:
    """Train all variants of one comparison; its lines of the page."""
    lines = [
        f"## {comparison}",
        "",
        "| variant | fast_1.2 before | after, mean | after, each seed | coverage | tokens |",
    ]
    lines.append("|---|---|---|---|---|---|")
    curves: dict[str, list[list[float]]] = {}
    for name, changes in COMPARISONS[comparison].items():
        recipes = [
            variant_recipe(args.base, args.out, f"{comparison}-{name}", changes, seed, args.steps)
            for seed in range(args.seeds)
        ]
        summaries = [asyncio.run(train(recipe)) for recipe in recipes]
        curves[name] = [curve(recipe, "reward") for recipe in recipes]
        after = [100 * summary["after"]["fast_1.2"] for summary in summaries]
        before = statistics.mean(100 * summary["before"]["fast_1.2"] for summary in summaries)
        coverage = [summary["after"]["coverage"] for summary in summaries if summary["after"]["coverage"] is not None]
        tokens = statistics.mean(summary["tokens"] for summary in summaries)
        each = ", ".join(f"{value:.0f}" for value in after)
        cover = f"{statistics.mean(coverage):.2f}" if coverage else "-"
        lines.append(f"| {name} | {before:.1f} | {statistics.mean(after):.1f} | {each} | {cover} | {tokens:.0f} |")
        print(lines[-1], flush=True)
    args.results.mkdir(parents=True, exist_ok=True)
    plot(args.results / f"findings_{comparison}.png", comparison, curves)
    return [*lines, "", f"![{comparison}](findings_{comparison}.png)", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True, help="a finished run with checkpoints/sft")
    parser.add_argument("--only", choices=list(COMPARISONS), action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/findings"))
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    page = ["# The paper's findings in miniature", ""]
    page += [f"`python benchmarks/findings.py --base {args.base} --seeds {args.seeds} --steps {args.steps}`", ""]
    page += ["Held-out figures in percent; modelled GPU time; bands are the range over seeds.", ""]
    for comparison in args.only or COMPARISONS:
        page += compare(args, comparison)
    (args.results / "findings.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
