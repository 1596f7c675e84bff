"""The paper's findings in miniature: one policy trained with one thing changed, several seeds, one page.

    python benchmarks/miniature.py --coldstart ...                        the policies that every run starts from
    python benchmarks/ablations.py --plans --base runs/miniature/seed0 --base runs/miniature/seed1 \\
        --base runs/miniature/seed2 --out runs/miniature/cells             all variants, a policy for each seed
    python benchmarks/ablations.py --base runs/quickstart --only grpo     one of them, with the quickstart's policy

Every run starts from a supervised checkpoint (``checkpoints/sft`` of the base of its seed) and takes the base's recipe
with ``rl.steps``, a rollout of 8 tasks by 4 samples, and the keys of the variant. All runs of a seed meet the same
tasks in the same steps and are evaluated on the same held-out tasks with the same draws, so variants are compared seed
by seed. Verdicts are remembered across runs (``pool.cache_file``), which is exact because the recipe fixes the judge's
seed. Runs live under ``--out``; one that is done is read and one that was interrupted goes on, so the script may be
stopped and started again. Seeds are finished one after the other. ``--page-only`` trains nothing and writes the page
from what is done.

Writes ``ablations.md`` and ``ablations_*.png`` into ``--results``: what came out, agreeing with the paper or not. The
section "Reading" of an existing page is written by hand and kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drkernel.config import load_config
from drkernel.gym.request import Pool
from drkernel.rl.run.recipe import Recipe, make_pool
from drkernel.rl.run.trainer import Run
from miniature import plan_pool

SMALL = {"rollout.tasks": 8, "rollout.samples": 4}
"""the rollout of every variant that does not say otherwise: 32 trajectories a step"""

VARIANTS: dict[str, dict[str, Any]] = {
    "trloo": {},
    "grpo": {"rl.learner.advantage": {"name": "grpo"}},
    "grpo_std": {"rl.learner.advantage": {"name": "grpo_std"}},
    "rloo": {"rl.learner.advantage": {"name": "rloo"}},
    "no_pr": {"episode.reward.coverage_weight": 0.0},
    "prs": {"rl.learner.rejection": {"name": "prs"}},
    "int8_mrs": {"rollout.dtype": "int8"},
    "int8_off": {"rollout.dtype": "int8", "rl.learner.mismatch": []},
    "mean_n16": {"rollout.tasks": 2, "rollout.samples": 16, "rl.learner.advantage": {"name": "grpo"}},
    "otb_n4": {"rl.learner.advantage": {"name": "otb"}},
    "otb_loo_n4": {"rl.learner.advantage": {"name": "otb_loo"}},
}

COMPARISONS: dict[str, tuple[str, list[str], str]] = {
    "estimators": (
        "TRLOO, GRPO, RLOO",
        ["trloo", "grpo", "grpo_std", "rloo"],
        "The paper: TRLOO, unbiased turn by turn, beats GRPO, whose own-sample baseline biases multi-turn gradients.",
    ),
    "pr": (
        "PR: the coverage term of the reward",
        ["trloo", "no_pr"],
        "The paper: without a reward for coverage the policy settles for kernels that speed up a small part.",
    ),
    "prs": (
        "PRS: rejecting correct turns of low coverage",
        ["trloo", "prs"],
        "The paper: PRS on top of PR moves samples away from lazy answers.",
    ),
    "mrs": (
        "MRS under a real mismatch: the sampler's weights in int8",
        ["trloo", "int8_mrs", "int8_off"],
        "The paper: rejecting sequences whose sampler and trainer disagree keeps training stable.",
    ),
    "otb": (
        "OTB with N = 4 against the group mean with N = 16, equal trajectories a step",
        ["mean_n16", "otb_n4", "otb_loo_n4", "trloo"],
        "Its paper: the optimal token baseline with N = 4 matches a group mean with N = 32.",
    ),
}

T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5% quantile of Student's t by degrees of freedom"""

READING = "## Reading"
"""heading of the part of the page that people write"""

Cell = dict[str, Any]


def cell_recipe(
    base: Path,
    out: Path,
    variant: str,
    seed: int,
    args: argparse.Namespace,
    changes: Mapping[str, Any] | None = None,
) -> Recipe:
    """The base run's recipe, from its supervised checkpoint, with the keys of a variant (or ``changes``) changed."""
    data = load_config(Recipe, base / "config.yaml").model_dump(mode="json")
    data |= {"name": f"{variant}-{seed}", "runs": str(out), "seed": seed, "budget_minutes": None, "report": False}
    data |= {"coldstart": None, "coldstart_file": None, "copying": None, "sft": None}
    data["policy"]["model"] = str(base / "checkpoints" / "sft")
    data["rl"]["steps"] = args.steps
    asked = {"final_tasks": args.eval_tasks, "final_samples": args.eval_samples}
    data["evaluation"] |= {"every": 10_000} | {key: value for key, value in asked.items() if value is not None}
    for key, value in {**SMALL, **(VARIANTS[variant] if changes is None else changes)}.items():
        *sections, leaf = key.split(".")
        node = data
        for section in sections:
            node = node[section]
        node[leaf] = value
    return Recipe.model_validate(data)


async def train_cells(todo: Sequence[tuple[str, int, Recipe]], open_pool: Callable[[Recipe], Pool] = make_pool) -> None:
    """Run every cell that is not done; one pool, so that equal questions to the judge are asked once."""
    todo = [cell for cell in todo if not (Path(cell[2].runs) / cell[2].name / "summary.json").exists()]
    if not todo:
        return
    pool = open_pool(todo[0][2])
    try:
        for number, (variant, seed, recipe) in enumerate(todo, 1):
            started = time.perf_counter()
            summary = await Run(recipe, pool).run()
            before, after = (100 * summary[key]["fast_1.2"] for key in ("before", "after"))
            seconds = time.perf_counter() - started
            print(
                f"{number}/{len(todo)} {variant} seed {seed}: {before:.0f} -> {after:.0f}, {seconds:.0f} s", flush=True
            )
    finally:
        await pool.close()


def read_cell(recipe: Recipe) -> Cell | None:
    """The figures of a finished run; None when it is not finished."""
    directory = Path(recipe.runs) / recipe.name
    if not (directory / "summary.json").exists():
        return None
    summary = json.loads((directory / "summary.json").read_text())
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["stage"] == "rl"]
    late = rows[len(rows) // 2 :]

    def mean(key: str) -> float:
        return statistics.mean(float(row.get(key) or 0.0) for row in late)

    return {
        "before": 100 * summary["before"]["fast_1.2"],
        "after": 100 * summary["after"]["fast_1.2"],
        "after_0": 100 * summary["after"]["fast_0"],
        "after_2": 100 * summary["after"]["fast_2"],
        "before_0": 100 * summary["before"]["fast_0"],
        "coverage": 100 * (summary["after"]["coverage"] or 0.0),
        "train": 100 * mean("fast_1.2"),
        "train_coverage": mean("coverage"),
        "grad_norm": mean("grad_norm"),
        "rejected": 100 * max(mean("mismatch/rejected_token_fraction"), mean("rejected_turns")),
        "k3": mean("mismatch/k3"),
        "tokens": sum(row["tokens"] for row in rows),
        "fast_curve": [100 * (row["fast_1.2"] or 0.0) for row in rows],
        "coverage_curve": [row["coverage"] or 0.0 for row in rows],
    }


def interval(values: Sequence[float]) -> str:
    """Mean and half-width of the 95% t-interval over seeds, as text; the mean alone of a single one."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.1f}"
    half = T_975.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.1f} ± {half:.1f}"


def plot(path: Path, title: str, cells: dict[str, list[Cell]]) -> None:
    """Training curves: share of trajectories at 1.2x, and coverage of the correct; mean and range over seeds."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.4))
    labels = (("fast_curve", "fast_1.2 of training tasks (%)"), ("coverage_curve", "coverage of the correct"))
    for axes, (key, label) in zip(panels, labels, strict=True):
        for name, rows in cells.items():
            columns = list(zip(*(row[key] for row in rows), strict=True))
            steps = range(1, len(columns) + 1)
            (line,) = axes.plot(steps, [statistics.mean(c) for c in columns], label=name)
            lows, highs = [min(c) for c in columns], [max(c) for c in columns]
            axes.fill_between(steps, lows, highs, color=line.get_color(), alpha=0.12, linewidth=0)
        axes.set(xlabel="RL step", ylabel=label)
        axes.grid(alpha=0.3)
    panels[0].legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def section(key: str, cells: dict[str, dict[int, Cell]], results: Path) -> list[str]:
    """One comparison: a table of its variants against the first, and a plot."""
    title, names, claim = COMPARISONS[key]
    missing = [name for name in names if not cells[name]]
    names = [name for name in names if cells[name]]
    if len(names) < 2 or not (shared := sorted(set.intersection(*(set(cells[name]) for name in names)))):
        return [f"## {title}", "", "Not run.", ""]
    first = names[0]
    seeds = f"{len(shared)} seeds" if len(shared) > 1 else "one seed"
    lines = [f"## {title}", "", f"{claim} ({seeds}{'; not run: ' + ', '.join(missing) if missing else ''})", ""]
    lines += [
        f"| variant | fast_1.2 | each seed | against {first} | right answers (fast_0), against {first} "
        f"| fast_2, against {first} "
        f"| coverage, against {first} | training fast_1.2, against {first} "
        "| gradient norm | rejected | k3 | tokens |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        rows = [cells[name][seed] for seed in shared]
        others = [cells[first][seed] for seed in shared]

        def average(field: str, rows: list[Cell] = rows) -> float:
            return statistics.mean(row[field] for row in rows)

        def against(field: str, rows: list[Cell] = rows, others: list[Cell] = others, name: str = name) -> str:
            pairs = zip(rows, others, strict=True)
            return "" if name == first else interval([row[field] - other[field] for row, other in pairs])

        each = ", ".join(f"{row['after']:.0f}" for row in rows)
        lines.append(
            f"| {name} | {average('after'):.1f} | {each} | {against('after')} "
            f"| {average('after_0'):.1f} {against('after_0')} "
            f"| {average('after_2'):.1f} {against('after_2')} | {average('coverage'):.1f} {against('coverage')} "
            f"| {average('train'):.1f} {against('train')} | {average('grad_norm'):.2f} | {average('rejected'):.1f}% "
            f"| {average('k3'):.1e} | {average('tokens'):.0f} |"
        )
    plot(results / f"ablations_{key}.png", title, {name: [cells[name][s] for s in shared] for name in names})
    return [*lines, "", f"![{title}](ablations_{key}.png)", ""]


def write_page(args: argparse.Namespace, cells: dict[str, dict[int, Cell]]) -> None:
    """``ablations.md``: how it was made, what holds for all runs, a section a comparison."""
    starts = list(cells["trloo"].values())
    before, right = (", ".join(f"{row[key]:.0f}" for row in starts) for key in ("before", "before_0"))
    bases = " ".join(["--plans"] * args.plans + [f"--base {Path(*base.parts[-3:])}" for base in args.base])
    from_ = "one base each" if len(args.base) > 1 else "one base for all"
    terms = cell_recipe(args.base[0], args.out, "trloo", 0, args).evaluation
    where = "the practised ones themselves" if args.plans else "in no training data"
    sizes = "".join(
        f" --eval-{key} {value}"
        for key, value in (("tasks", args.eval_tasks), ("samples", args.eval_samples))
        if value is not None
    )
    page = [
        "# The paper's findings in miniature",
        "",
        f"`python benchmarks/ablations.py {bases} --seeds {args.seeds} --steps {args.steps}{sizes}`",
        "",
        f"Every run: {args.steps} RL steps of 32 two-turn trajectories from the base's supervised checkpoint, the rest "
        f"as in its recipe; {len(starts)} seeds, {from_}. Without a further word figures are taken after RL, over "
        f"{terms.final_tasks} tasks with {terms.final_samples} trajectories each ({where}), in percent, after the last "
        f"turn; before RL fast_1.2 is {before} and {right} are right. Times are modelled at the tasks' own sizes. "
        "Training fast_1.2, gradient norm, rejected (tokens by MRS, or turns by PRS) and k3 are means over the second "
        "half of the steps; coverage is that of right answers. Differences are paired by seed, with 95% t-intervals "
        "over seeds: an interval that holds 0 shows nothing. Bands in the plots are the range over seeds.",
        "",
    ]
    for key in COMPARISONS:
        page += section(key, cells, args.results)
    path = args.results / "ablations.md"
    old = path.read_text() if path.exists() else ""
    reading = old[old.index(READING) :] if READING in old else ""
    path.write_text("\n".join([*page, reading]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, action="append", required=True, help="finished run; one, or one a seed")
    parser.add_argument("--plans", action="store_true", help="the bases are those of benchmarks/miniature.py")
    parser.add_argument("--only", choices=list(VARIANTS), action="append")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--eval-tasks", type=int, help="tasks before and after RL; default: the base's")
    parser.add_argument("--eval-samples", type=int, help="trajectories of each of them; default: the base's")
    parser.add_argument("--out", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--results", type=Path, default=Path("docs/results"))
    parser.add_argument("--page-only", action="store_true")
    args = parser.parse_args()
    todo = [
        (variant, seed, cell_recipe(args.base[seed % len(args.base)], args.out, variant, seed, args))
        for seed in range(args.seeds)
        for variant in VARIANTS
    ]
    if not args.page_only:
        cells_to_do = [cell for cell in todo if args.only is None or cell[0] in args.only]
        asyncio.run(train_cells(cells_to_do, plan_pool if args.plans else make_pool))
    cells: dict[str, dict[int, Cell]] = {variant: {} for variant in VARIANTS}
    for variant, seed, recipe in todo:
        if (row := read_cell(recipe)) is not None:
            cells[variant][seed] = row
    if cells["trloo"]:
        args.results.mkdir(parents=True, exist_ok=True)
        write_page(args, cells)


if __name__ == "__main__":
    main()
