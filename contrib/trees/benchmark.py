"""Trees of turns against flat groups, with a real policy and the real judge: variance, tokens, and training.

    drkernel train recipes/quickstart.yaml                             the policy that everything starts from
    python contrib/trees/benchmark.py --base runs/quickstart                  both parts, 3 seeds (hours on two cores)
    python contrib/trees/benchmark.py --base A --base B --base C              a cold start of its own for each seed
    python contrib/trees/benchmark.py --base runs/quickstart --steps 0        the variance alone
    python contrib/trees/benchmark.py --plans --segment 6 --base runs/miniature/seed0 ...   miniature.py's environment

*Variance*: at the supervised checkpoint, for every shape of rollout, the same prompts are played again and again. Each
time the gradient of one prompt is computed exactly and kept as a sketch (sums of signed coordinates, which keeps
squared norms in expectation); their covariance, and what was sampled, read, graded and trained, make the first table.
*Training*: every shape trains for ``--steps`` steps at an equal number of graded turns a step, on the same tasks, and
is evaluated on the same held-out tasks with the same draws. Forks at turns sample every graded turn once, so that equal
graded turns are equal tokens; forks within answers share tokens, and have a shape of their own at equal tokens. Times
are modelled.

Everything is written as it comes under ``--out`` and read again when the script is started anew: it may be stopped at
any moment. Writes ``results.md`` into ``--results``; the section "Reading" of an existing page is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import shlex
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from contrib.trees import maths as trees
from contrib.trees.miniature import plan_pool
from contrib.trees.rows import forest_of
from drkernel.config import load_config
from drkernel.episode.episode import Episode
from drkernel.episode.records import Trajectory, distinct_turns
from drkernel.gym.request import Pool
from drkernel.registry import load_plugins
from drkernel.rl.model.answerer import SamplerAnswerer
from drkernel.rl.model.policy import Policy, PolicyConfig
from drkernel.rl.model.sampler import Sampler
from drkernel.rl.run import registry
from drkernel.rl.run.recipe import Recipe, make_pool
from drkernel.rl.run.rollout import Rollout, RolloutJob, make_shape, plan_jobs
from drkernel.rl.run.rows import Rows, sampled_of
from drkernel.rl.run.trainer import Run

PLUGINS = ["contrib.trees", "contrib.fr3e"]
READING = "## Reading"
"""heading of the part of the page that people write"""
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5% quantile of Student's t by degrees of freedom"""
SKETCH = 4096
"""numbers kept of a gradient"""

FLAT = {"rollout.tasks": 8, "rollout.samples": 4}
TREE = {"name": "tree", "width": 5, "start": 3, "branching": 2}
SEGMENTS = {"name": "tree", "width": 4, "branching": 2, "at": "segment"}
LOO, PUBLISHED = {"name": "treepo_loo"}, {"name": "treepo"}

SHAPES: dict[str, dict[str, Any]] = {
    "flat, TRLOO": {**FLAT, "rl.learner.advantage": {"name": "trloo"}},
    "tree 3-5, leave-one-out": {**FLAT, "rollout.shape": TREE, "rl.learner.advantage": LOO},
    "tree 3-5, TreePO": {
        **FLAT,
        "rollout.shape": {**TREE, "weights": "leaves"},
        "rl.learner.advantage": PUBLISHED,
    },
    "tree 2-6, leave-one-out": {
        **FLAT,
        "rollout.shape": {"name": "tree", "width": 6, "start": 2, "branching": 3},
        "rl.learner.advantage": LOO,
    },
    "segments, leave-one-out": {**FLAT, "rollout.shape": SEGMENTS, "rl.learner.advantage": LOO},
    "segments, leave-one-out, equal tokens": {
        "rollout.tasks": 9,
        "rollout.shape": SEGMENTS,
        "rl.learner.advantage": LOO,
    },
    "anchors, FR3E": {
        "rollout.tasks": 5,
        "rollout.shape": {"name": "anchors", "bases": 2, "count": 1, "samples": 2},
        "rl.learner.advantage": {"name": "fr3e"},
    },
}
UNBIASED = ("flat, TRLOO", "tree 3-5, leave-one-out", "tree 2-6, leave-one-out", "segments, leave-one-out")


FIRST = next(iter(SHAPES))
"""what everything else is compared with"""


def shape(name: str, segment: int) -> dict[str, Any]:
    """Return the recipe's keys of a shape, with so many tokens between forks within answers."""
    changes = {"plugins": PLUGINS, **SHAPES[name]}
    if changes.get("rollout.shape") is SEGMENTS:
        return {**changes, "rollout.shape": {**SEGMENTS, "segment": segment}}
    return changes


def cell_recipe(
    base: Path, out: Path, name: str, seed: int, args: argparse.Namespace, changes: Mapping[str, Any]
) -> Recipe:
    """The base run's recipe, from its supervised checkpoint, with some keys changed."""
    data = load_config(Recipe, base / "config.yaml").model_dump(mode="json")
    data |= {"name": f"{name}-{seed}", "runs": str(out), "seed": seed, "budget_minutes": None, "report": False}
    data |= {"coldstart": None, "coldstart_file": None, "copying": None, "sft": None}
    data["policy"]["model"] = str(base / "checkpoints" / "sft")
    data["rl"]["steps"] = args.steps
    asked = {"final_tasks": args.eval_tasks, "final_samples": args.eval_samples}
    data["evaluation"] |= {"every": 10_000} | {key: value for key, value in asked.items() if value is not None}
    for key, value in {**FLAT, **changes}.items():
        *sections, leaf = key.split(".")
        node = data
        for section in sections:
            node = node[section]
        node[leaf] = value
    return Recipe.model_validate(data)


async def train_cells(todo: Sequence[tuple[str, int, Recipe]], open_pool: Callable[[Recipe], Pool]) -> None:
    """Run what is not done; one pool, so that equal questions to the judge are asked once."""
    todo = [cell for cell in todo if not (Path(cell[2].runs) / cell[2].name / "summary.json").exists()]
    if not todo:
        return
    pool = open_pool(todo[0][2])
    try:
        for number, (name, seed, recipe) in enumerate(todo, 1):
            summary = await Run(recipe, pool).run()
            before, after = (100 * summary[key]["fast_1.2"] for key in ("before", "after"))
            print(f"{number}/{len(todo)} {name} seed {seed}: {before:.0f} -> {after:.0f}", flush=True)
    finally:
        await pool.close()


def interval(values: Sequence[float]) -> str:
    """Mean and half-width of the 95% t-interval over seeds, as text; the mean alone of a single one."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:+.1f}"
    half = T_975.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.1f} ± {half:.1f}"


class Variance:
    """Plays prompts again and again at one checkpoint and keeps what every play gave."""

    def __init__(self, base: Path, out: Path, pool: Pool):
        self.recipe = load_config(Recipe, base / "config.yaml")
        self.pool, self.out = pool, out
        terms = self.recipe.policy.model_copy(update={"model": str(base / "checkpoints" / "sft")})
        self.policy = Policy.load(PolicyConfig.model_validate(terms.model_dump()))
        size = sum(parameter.numel() for parameter in self.policy.trainable())
        g = torch.Generator().manual_seed(0)
        self.bucket = torch.randint(SKETCH, (size,), generator=g)
        self.sign = torch.randint(2, (size,), generator=g) * 2.0 - 1.0

    def rollout(self, recipe: Recipe) -> tuple[Rollout, Sampler]:
        """The rollout of a shape, and its sampler."""
        terms = recipe.rollout
        decoder = self.policy.make_decoder(terms.sampling.rows, terms.context)
        sampler = Sampler(decoder, self.policy.tokenizer, terms.sampling)
        answerer = SamplerAnswerer(sampler, self.policy.tokenizer)
        options: dict[str, Any] = {"waves": 1, "judge_seed": recipe.judge_seed}

        def make_episode() -> Episode:
            return Episode(self.pool, recipe.episode)

        return make_shape(terms.shape).rollout(answerer, make_episode, **options), sampler

    def gradient(self, trajectories: list[Trajectory], recipe: Recipe) -> tuple[Tensor, int, int]:
        """The sketch of one prompt's gradient estimate, tokens in the loss, and tokens that the forward pass reads."""
        shape = make_shape(recipe.rollout.shape)
        rows = Rows.of(trajectories, shape.lay_out)
        batch = shape.batch(rows.batch(), trajectories)
        learner = recipe.rl.learner if recipe.rl is not None else None
        assert learner is not None
        advantage = registry.advantage.get(learner.advantage.name)(batch, **learner.advantage.options)
        forest = forest_of(batch)
        weigh = trees.leaf_weights if recipe.rollout.shape.options.get("weights") == "leaves" else trees.path_weights
        scale = (advantage.double() * weigh(forest)).float()
        self.policy.model.zero_grad()
        for index in rows.graded():
            picked = rows.pick([index])
            found = self.policy.statistics(rows.examples([index]), recipe.rollout.sampling.temperature)
            logprobs_RT = rows.spread(found.logprobs, picked)
            (-(logprobs_RT.sum(1) * scale[picked]).sum()).backward()  # type: ignore[no-untyped-call]
        flat = torch.cat([
            (torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.policy.trainable()
        ])  # fmt: skip
        sketch = torch.zeros(SKETCH).index_add_(0, self.bucket, self.sign * flat)
        read = sum(len(rows.sequences[index].ids) for index in rows.graded())
        return sketch, int(rows.mask_BT.sum()), read

    async def play(self, name: str, recipe: Recipe, tasks: int, repeats: int) -> None:
        """Play every prompt ``repeats`` times, as far as that was not done before."""
        chosen = recipe.train_tasks.tasks("train")[:tasks]
        folder = self.out / "variance" / name.replace(" ", "_").replace(",", "")
        folder.mkdir(parents=True, exist_ok=True)
        for number, task in enumerate(chosen):
            for repeat in range(repeats):
                place = folder / f"{number}-{repeat}.npz"
                if place.exists():
                    continue
                rollout, sampler = self.rollout(recipe)
                seed = 7_919 * repeat + number + 1
                each = make_shape(recipe.rollout.shape).jobs(recipe.rollout.samples)
                jobs = [RolloutJob(task, 0, 0, seed)] if each == 1 else plan_jobs([task], each, seed)
                trajectories = await rollout.play(jobs)
                sketch, trained, read = self.gradient(trajectories, recipe)
                turns = distinct_turns(trajectories)
                figures = {
                    "graded": rollout.stats.graded,
                    "paths": len(trajectories),
                    "sampled": sampler.tokens,
                    "read": sum(len(sampled_of(turn).context_ids) for turn in turns),
                    "trained": trained,
                    "forward": read,
                }
                temporary = place.with_suffix(".tmp.npz")
                np.savez(temporary, sketch=sketch.numpy(), **figures)
                temporary.rename(place)
            print(f"{name}: prompt {number + 1}/{len(chosen)}", flush=True)


Plays = list[list[dict[str, Any]]]
"""what was kept of a shape: by prompt, by play"""


def read_plays(out: Path, name: str, tasks: int, repeats: int) -> Plays:
    """The plays of a shape; empty until every prompt was played as often as asked."""
    folder = out / "variance" / name.replace(" ", "_").replace(",", "")
    if not all((folder / f"{k}-{r}.npz").exists() for k in range(tasks) for r in range(repeats)):
        return []
    return [[dict(np.load(folder / f"{k}-{r}.npz")) for r in range(repeats)] for k in range(tasks)]


def spread(plays: Plays) -> float:
    """Trace of the covariance of a prompt's gradient, mean over prompts."""
    found = [np.stack([play["sketch"] for play in prompt]).var(axis=0, ddof=1).sum() for prompt in plays]
    return float(np.mean(found))


def average(plays: Plays, key: str) -> float:
    """Mean of one figure over all plays."""
    return statistics.mean(float(play[key]) for prompt in plays for play in prompt)


def against(plays: Plays, flat: Plays, key: str) -> str:
    """Variance times cost (the mean of ``key``) over that of flat groups, with a 95% bootstrap interval over prompts
    and plays."""
    g = np.random.default_rng(0)
    ratios = []
    for draw in range(401):
        prompts = g.integers(len(plays), size=len(plays)) if draw else range(len(plays))
        sides = []
        for side in (plays, flat):
            again = []
            for k in prompts:
                count = len(side[k])
                again.append([side[k][r] for r in (g.integers(count, size=count) if draw else range(count))])
            sides.append(spread(again) * average(again, key))
        # prompts that never earn anything have no variance: a draw of nothing else says nothing
        ratios.append(sides[0] / sides[1] if sides[1] > 0 else math.inf)
    low, high = sorted(ratios[1:])[10], sorted(ratios[1:])[-10]
    return f"{ratios[0]:.2f} [{low:.2f}, {high:.2f}]"


def variance_table(out: Path, tasks: int, repeats: int) -> str:
    """Markdown: a row a shape, from what is there."""
    header = [
        "shape",
        "graded turns a prompt",
        "paths",
        "tokens sampled",
        "tokens in the loss",
        "tokens of the forward",
    ]
    header += ["variance", "variance × graded turns, flat = 1", "variance × tokens sampled, flat = 1"]
    lines = [header, ["---"] * len(header)]
    flat = read_plays(out, FIRST, tasks, repeats)
    for name in SHAPES:
        plays = read_plays(out, name, tasks, repeats)
        if not plays or not flat:
            continue
        first = name == FIRST
        ratios = ["1" if first else against(plays, flat, key) for key in ("graded", "sampled")]
        lines.append([
            name, f"{average(plays, 'graded'):.2f}", f"{average(plays, 'paths'):.2f}",
            *[f"{average(plays, key):.0f}" for key in ("sampled", "trained", "forward")], f"{spread(plays):.3g}",
            *(ratio if name in UNBIASED else f"({ratio})" for ratio in ratios),
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def training_recipe(name: str, seed: int, args: argparse.Namespace) -> Recipe:
    """Return the recipe of a training run."""
    base, number = args.base[seed % len(args.base)], list(SHAPES).index(name)
    return cell_recipe(base, args.out / "train", str(number), seed, args, shape(name, args.segment))


def cells(args: argparse.Namespace) -> list[tuple[str, int, Recipe]]:
    """Every training run."""
    return [
        (name, seed, training_recipe(name, seed, args))
        for seed in range(args.seeds)
        for name in SHAPES
        if args.only is None or name.startswith(tuple(args.only))
    ]


def training_table(done: list[tuple[str, int, Recipe]]) -> str:
    """Markdown: held-out fast_p, graded turns and tokens, and the difference from flat groups, paired by seed."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for name, seed, recipe in done:
        path = Path(recipe.runs) / recipe.name
        if not (path / "summary.json").exists():
            continue
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        rows = [row for row in rows if row["stage"] == "rl"]
        summary = json.loads((path / "summary.json").read_text())
        found.setdefault(name, {})[seed] = {
            "before": 100 * summary["before"]["fast_1.2"],
            "after": 100 * summary["after"]["fast_1.2"],
            "graded": statistics.mean(row["evaluations"] for row in rows),
            "tokens": statistics.mean(row["tokens"] for row in rows),
            "trained": statistics.mean(row["trained_tokens"] for row in rows),
            "train": 100 * statistics.mean(row["fast_1.2"] or 0.0 for row in rows[len(rows) // 2 :]),
            "norm": statistics.mean(row["grad_norm"] for row in rows),
        }
    header = ["shape", "seeds", "fast_1.2 before", "after", "against flat", "in training", "against flat"]
    header += ["graded turns a step", "tokens sampled a step", "tokens in the loss a step", "gradient norm"]
    lines = [header, ["---"] * len(header)]
    flat = found.get(FIRST, {})
    for name, seeds in found.items():

        def mean(key: str, seeds: dict[int, dict[str, Any]] = seeds) -> float:
            return statistics.mean(row[key] for row in seeds.values())

        def gain(key: str, seeds: dict[int, dict[str, Any]] = seeds) -> str:
            pairs = [seeds[s][key] - flat[s][key] for s in sorted(seeds) if s in flat]
            return interval(pairs) if seeds is not flat and pairs else ""

        lines.append([
            name, f"{len(seeds)}", *[f"{mean(key):.1f}" for key in ("before", "after")], gain("after"),
            f"{mean('train'):.1f}", gain("train"), f"{mean('graded'):.1f}", f"{mean('tokens'):.0f}",
            f"{mean('trained'):.0f}", f"{mean('norm'):.3g}",
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


POLICY = {
    False: "The policy is the supervised checkpoint of the quickstart's recipe (or a smaller form of it)",
    True: "The policy is the supervised checkpoint of the environment in miniature (benchmarks/miniature.py), which "
    "answers with plans",
}
PRACTISED = {False: " that are in no training data", True: "; they are those that are practised"}
PAGE = """# Trees of turns against flat groups

`{command}`

{policy}, two turns; the judge is the real one, times are modelled. A shape "3-5" has 3 first answers a prompt and 5
second ones, 8 graded turns as 4 flat trajectories have. "segments" forks within answers, every {segment} tokens.
"anchors" has 2 base rollouts a prompt and, from one anchor in each of a right and a wrong one and from the task itself,
2 partial rollouts.

## Variance of one prompt's gradient, at equal parameters

{tasks} prompts, each played {repeats} times for every shape. *Variance* is the trace of the covariance of the
gradient, from sketches of {sketch} numbers, mean over prompts; ratios have 95% bootstrap intervals over prompts and
plays. What is in round brackets is biased: its variance is of something else than the policy gradient. A shared turn
counts once in what is sampled and in the loss; the forward pass of training reads it again for every path ("tokens of
the forward").

{variance}

## Training

{steps} steps from the same checkpoint, about 64 graded turns a step, {seeds} seed(s). fast_1.2 before and after is of
{eval_tasks} tasks with {eval_samples} trajectories each{practised}; that of training is the mean over the second half
of the steps. Gains are paired by seed, with 95% t-intervals.

{training}

"""


def main() -> None:
    """Measure what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, action="append", required=True, help="run with checkpoints/sft")
    parser.add_argument("--out", type=Path, default=Path("runs/trees"))
    parser.add_argument("--results", type=Path, default=Path(__file__).parent)
    parser.add_argument("--tasks", type=int, default=16, help="prompts of the variance")
    parser.add_argument("--repeats", type=int, default=16, help="plays of each prompt")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--eval-tasks", type=int, help="tasks before and after RL; default: the base's")
    parser.add_argument("--eval-samples", type=int, help="trajectories of each of them; default: the base's")
    parser.add_argument("--plans", action="store_true", help="the bases are those of miniature.py")
    parser.add_argument("--segment", type=int, default=40, help="tokens between forks within answers")
    parser.add_argument("--only", action="append", help="train only shapes whose name begins so (several)")
    args = parser.parse_args()
    load_plugins(PLUGINS)
    torch.set_num_threads(1)
    todo = cells(args) if args.steps else []
    open_pool = plan_pool if args.plans else make_pool

    async def measure() -> None:
        pool = open_pool(cell_recipe(args.base[0], args.out, "variance", 0, args, {}))
        try:
            variance = Variance(args.base[0], args.out, pool)
            for name in SHAPES:
                # a prompt's gradient does not know how many prompts a step has
                if "equal tokens" not in name:
                    recipe = cell_recipe(args.base[0], args.out, "variance", 0, args, shape(name, args.segment))
                    await variance.play(name, recipe, args.tasks, args.repeats)
        finally:
            await pool.close()

    asyncio.run(measure())
    asyncio.run(train_cells(todo, open_pool))
    terms = training_recipe(FIRST, 0, args).evaluation
    page = args.results / "results.md"
    old = page.read_text() if page.exists() else ""
    reading = old.partition(READING)[2]
    text = PAGE.format(
        command="python contrib/trees/benchmark.py " + shlex.join(sys.argv[1:]),
        tasks=args.tasks,
        repeats=args.repeats,
        sketch=SKETCH,
        variance=variance_table(args.out, args.tasks, args.repeats),
        steps=args.steps,
        seeds=args.seeds,
        segment=args.segment,
        policy=POLICY[args.plans],
        eval_tasks=terms.final_tasks,
        eval_samples=terms.final_samples,
        practised=PRACTISED[args.plans],
        training=training_table(todo) if todo else "Not measured.",
    )
    page.write_text(text + READING + (reading or "\n\nNot written yet.\n"))
    print(f"wrote {page}")


if __name__ == "__main__":
    main()
