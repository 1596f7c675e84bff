"""The questions of the estimators' table that matter most, asked of the quickstart's language model.

    drkernel train recipes/quickstart.yaml name=seed0 seed=0       policies that write kernels, one or more
    python benchmarks/confirmation.py --base runs/seed0 runs/seed1         all that is missing, then a table
    python benchmarks/confirmation.py --base ... --share 0/2        every second seed alone, for a process beside it

Every arm of a question is a run of RL from a fine-tuned policy of the quickstart; arms of a *seed* share the start (the
folders of ``--base`` take turns), the tasks of every step and the samplers' seeds. Answers are graded once, whoever
gives them (``--out/verdicts``), so that a run is mostly sampling. Trained and evaluated are the same 16 tasks, as on
the table; 192 conversations a policy, judged with the checks, by the paper's reward. A run that is done leaves a row
below ``--out/rows`` and no weights. Intervals and the *visible* effect are the table's (estimator_table.py).

The question about cheats starts elsewhere: a little more fine-tuning shows the policy one cheat among honest answers
(compute once in PyTorch, keep the result, copy it out ever after), which a judge without checks rewards.
"""

import argparse
import asyncio
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt

from drkernel.base.files import write_atomic
from drkernel.config import load_config
from drkernel.rl.run.recipe import Recipe, make_pool
from drkernel.rl.run.trainer import Run
from estimator_table import HEAD, KeptPool, interval
from surveys import asks, markdown, parser_of, write_table

STEPS = 20
RUN = (
    "copying=null", "budget_minutes=null", "report=false", "threads=1", "pool.slots=1", "checkpoint.seconds=100000",
    "train_tasks={generated: train, count: 16, seed: 0}", "heldout_tasks={generated: train, count: 16, seed: 0}",
    "episode.target=null", "episode.reward={correct_weight: 1, speedup_weight: 1, coverage_weight: 1}",
)  # fmt: skip
"""of every run; a sum of rewards with gamma 1 and a target do not go together"""
TRAIN = (
    "coldstart=null", "sft=null", f"rl.steps={STEPS}", "rl.log_samples=0", "rollout.tasks=8", "rollout.samples=4",
    "evaluation.final_tasks=0", f"evaluation.every={STEPS}", "rl.learner.advantage={name: trloo}",
    f"rl.learner.schedule={{name: cosine, total: {STEPS}, floor: 0.1}}", "rl.learner.mask_void_turns=true",
    "rl.learner.updates=1", "rl.learner.passes=1",
)  # fmt: skip
JUDGE = ("coldstart=null", "sft=null", "rl=null", "evaluation.final_tasks=16", "evaluation.final_samples=12")
CHEAT = (
    "coldstart.tasks=240", "coldstart.seed=77", "coldstart.teacher.first.stale=2.0", "sft.learn=all", "sft.epochs=5",
    "sft.lr=1.5e-3", "rl=null", "evaluation.final_tasks=0",
)  # fmt: skip
"""fine-tuning that shows the cheat: in the first turns of two in three conversations"""


@dataclass(frozen=True)
class Question:
    """A question with its hypothesis, written down before it was run."""

    title: str
    claim: str
    arms: dict[str, tuple[str, ...]]
    """changes of the recipe; the others are compared with the first"""
    shown: tuple[str, ...] = ("fast_1.2@1", "fast_1.2@2", "fast_0@2", "coverage@2")
    cheats: bool = False
    """whether it starts from a policy that knows the cheat"""


QUESTIONS = {
    "estimator": Question(
        "TRLOO against the paper's GRPO, groups of 4 made ragged by void turns",
        "the paper: TRLOO wins (Fig. 4); the table: by half a point, and a division by the deviation gains more",
        {"TRLOO": (), "GRPO (paper)": ("rl.learner.advantage.name=grpo",),
         "GRPO with std": ("rl.learner.advantage.name=grpo_std",), "placebo": ("rl.learner.advantage.name=placebo",)}),
    "hacking": Question(
        "Cheats, with the checks and without",
        "the paper: without checks they take over (Fig. 2), with them they die out (App. C); the table: the same",
        {"checks": (), "no checks": ("episode.settings.unsafe_no_checks=true",)},
        ("hack_rate@1", "fast_1.2@1", "fast_1.2@2", "fast_0@2"), cheats=True),
    "rejection": Question(
        "PRS, and a reward without PR",
        "the paper: PR and PRS lift fast_1.2 (Fig. 5); the table: PRS by four points, PR coverage alone",
        {"TRLOO": (), "PRS soft": ("rl.learner.rejection=[prs]",), "no PR": ("episode.reward.coverage_weight=0",)}),
}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """A policy to be made and judged: an arm's of a seed, or (without ``changes``) the one that it starts from."""

    base: Path
    seed: int
    cheats: bool
    changes: tuple[str, ...] | None

    @property
    def name(self) -> str:
        """Of its row and its runs: a digest of all that decides it."""
        terms = (RUN, TRAIN, JUDGE, CHEAT) if self.cheats else (RUN, TRAIN, JUDGE)
        key = repr((terms, self.base.name, self.seed, self.cheats, self.changes))
        return hashlib.sha256(key.encode()).hexdigest()[:16]


class Instrument:
    """Makes and judges what is missing, in a folder."""

    def __init__(self, base: Path, out: Path):
        self.out = out
        self.pool = KeptPool(make_pool(load_config(Recipe, base / "config.yaml", RUN)), out / "verdicts")

    async def run(self, part: Part, name: str, changes: Sequence[str], start: Path) -> Path:
        """Do a run, or go on with it; return its folder."""
        folder = self.out / "runs" / name
        terms = [*RUN, *changes, f"runs={folder.parent}", f"name={name}", f"policy.model={start}"]
        if not (folder / "summary.json").exists():
            await Run(load_config(Recipe, part.base / "config.yaml", terms), self.pool).run()
        return folder

    async def start(self, part: Part) -> Path:
        """The weights that the part starts from."""
        start = part.base / "checkpoints" / "sft"
        if not part.cheats:
            return start
        return await self.run(part, f"cheats-{part.base.name}", CHEAT, start) / "checkpoints" / "sft"

    async def row(self, part: Part) -> dict[str, Any]:
        """The figures of a part's policy."""
        path = self.out / "rows" / f"{part.name}.json"
        if not path.exists():
            seed, weights = f"seed={part.seed}", await self.start(part)
            if part.changes is not None:
                trained = await self.run(part, f"{part.name}-rl", (*TRAIN, seed, *part.changes), weights)
                weights = trained / "checkpoints" / "final"
            judged = await self.run(part, part.name, (*JUDGE, f"evaluation.seed={1000 + part.seed}"), weights)
            path.parent.mkdir(exist_ok=True)
            write_atomic(path, (judged / "eval.jsonl").read_text().splitlines()[-1])
            for folder in (judged, *([trained] if part.changes is not None else [])):
                shutil.rmtree(folder)
        return json.loads(path.read_text())  # type: ignore[no-any-return]


def parts_of(key: str, bases: Sequence[Path], seed: int) -> dict[str, Part]:
    """The parts of a question and a seed, by arm."""
    question, base = QUESTIONS[key], bases[seed % len(bases)]
    arms: dict[str, tuple[str, ...] | None] = {"before RL": None, **question.arms}
    return {arm: Part(base, seed, question.cheats, changes) for arm, changes in arms.items()}


def table(key: str, rows: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """A question's arms against its first, a row a figure, below those before RL; ``rows`` by arm, a seed each."""
    first, lines = next(iter(QUESTIONS[key].arms)), []

    def values(arm: str, metric: str) -> np.ndarray[Any, Any]:
        name, _, turn = metric.partition("@")
        return np.array([100 * (row["per_turn"][int(turn) - 1][name] or 0.0) for row in rows[arm]])

    for arm in rows:
        for metric in QUESTIONS[key].shown:
            mean, low, high, least = interval(values(arm, metric) - values(first, metric))
            against = [f"{mean:+.1f}", f"{low:+.1f}", f"{high:+.1f}", f"{least:.1f}"] if arm != first else [""] * 4
            lines.append([key, arm, metric, f"{values(arm, metric).mean():.1f}", *against])
    return lines


def plot(path: Path, lines: Sequence[Sequence[str]]) -> None:
    """Differences from the first arms with their intervals, a panel a question."""
    keys = list(dict.fromkeys(line[0] for line in lines))
    figure, panels = plt.subplots(1, len(keys), figsize=(4.6 * len(keys), 3.2), squeeze=False)
    for axes, key in zip(panels[0], keys, strict=True):
        shown = [line for line in lines if line[0] == key and line[4] and line[1] != "before RL"][::-1]
        for place, (_, _, _, _, mean, low, high, _) in enumerate(shown):
            axes.plot([float(low), float(high)], [place, place], color="tab:blue")
            axes.plot(float(mean), place, "o", color="tab:blue")
        axes.set_yticks(range(len(shown)), [f"{line[1]}, {line[2]}" for line in shown], fontsize=7)
        axes.axvline(0, color="gray", lw=1)
        axes.set(title=key, xlabel=f"points against {next(iter(QUESTIONS[key].arms))}")
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


async def ask(args: argparse.Namespace) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """The rows of every question by arm, those that are missing made first: seed by seed, so that a part of them
    can be read early."""
    first, count = map(int, args.share.split("/"))
    instrument = Instrument(args.base[0], args.out)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {key: {} for key in args.questions}
    try:
        for seed in range(first, args.seeds, count):
            for key in args.questions:
                for arm, part in parts_of(key, args.base, seed).items():
                    found[key].setdefault(arm, []).append(row := await instrument.row(part))
                    print(f"seed {seed} {key} {arm} fast_1.2 {100 * row['fast_1.2']:.1f}", flush=True)
    finally:
        await instrument.pool.close()
    return found


def main() -> None:
    parser = parser_of(__doc__)
    asks(parser, QUESTIONS)
    parser.add_argument("--base", type=Path, nargs="+", required=True, help="runs of the quickstart's recipe")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--share", default="0/1", help="i/n: every n-th seed from the i-th on, and no table")
    parser.add_argument("--out", type=Path, default=Path("runs/confirmation"))
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="of confirmation.csv and .png")
    args = parser.parse_args()
    args.questions = args.questions or list(QUESTIONS)
    found = asyncio.run(ask(args))
    if args.share != "0/1":
        return
    lines = [line for key in args.questions for line in table(key, found[key])]
    rows = [HEAD[:8], *lines]
    print("\n".join(markdown(rows)))
    if args.write:
        plot(args.write / "confirmation.png", lines)
        write_table(args.write / "confirmation.csv", rows)


if __name__ == "__main__":
    main()
