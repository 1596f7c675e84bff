"""Advice as feedback: does telling a writer which launch settings are faster raise fast_p?

    python benchmarks/advice.py                # a table
    python benchmarks/advice.py --write        # also docs/results/advice.md

The scripted writer of `stts_writer.py` plays the same episodes three times. *Without advice* it repeats its best answer
where it goes no rung further. *By itself* it then changes one of that answer's settings (warps, stages, block sizes) at
random. *With advice* (`episode.advice`) the judge has graded those changes, too, and the writer makes the first one
that its feedback names; where none is named it repeats its answer. Everything else is drawn alike. Graded by the real
judge on `sim:h200`: speedups are modelled. Needs no GPU.

For a model's part, play the same tasks without and with ``episode.advice`` and name both runs:

    drkernel bench --model hf:DIR --tasks generated:heldout:100 episode.turns=2 --out a
    drkernel bench --model hf:DIR --tasks generated:heldout:100 episode.turns=2 --out b episode.advice=true
    python benchmarks/advice.py --out RUNS --policy a b --write
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "advice.md"
sys.path.insert(0, str(Path(__file__).parent))

from drkernel.episode.answerer import Call  # noqa: E402
from drkernel.episode.chat import Message, Reply, Sampling  # noqa: E402
from drkernel.episode.episode import EpisodeConfig  # noqa: E402
from drkernel.episode.meter import Limits, Meter  # noqa: E402
from drkernel.episode.records import Turn  # noqa: E402
from drkernel.episode.renderer import Prompts  # noqa: E402
from drkernel.gym.pools.local import LocalPool  # noqa: E402
from drkernel.gym.request import EvalSettings  # noqa: E402
from drkernel.sim.advice import changes_of  # noqa: E402
from drkernel.sim.rewrite import with_settings  # noqa: E402
from drkernel.solve.bench import BenchRun, Resolved, read_bench  # noqa: E402
from drkernel.solve.config import BenchConfig  # noqa: E402
from drkernel.solve.paired import compare  # noqa: E402
from drkernel.tasks.builtin import builtin_task  # noqa: E402
from stts_writer import KERNELS, Writer  # noqa: E402

WAYS = ("without advice", "by itself", "with advice")
CORRECT_RUNG = 3
"""from this rung of the ladder on answers are right"""
SETTINGS = EvalSettings(checks=2)
SEEN = re.compile(r"make it faster:\n\s+(\w+) -?\d+ -> (\d+)")


class Tuner(Writer):
    """The scripted writer, which changes settings of its best answer where it would only repeat it."""

    def __init__(self, way: str, seed: int = 0):
        super().__init__(seed)
        self.way = way
        self.name = f"scripted writer {seed}, {way}"

    async def complete(self, call: Call) -> Reply:
        """The next answer."""
        reply = await super().complete(call)
        rung = rung_of(reply.text)
        latest = last_of_rung(call.messages, rung)
        if rung < CORRECT_RUNG or latest is None or rung < max(rung_of(one.content) for one in own(call.messages)):
            return reply
        code, said = latest
        if self.way == "with advice":
            found = SEEN.search(said)
            code = with_settings(code, {found[1]: int(found[2])}) if found else code
        elif self.way == "by itself":
            dice = random.Random(f"{self.seed}\0{call.task_id}\0{call.sample}\0{call.turn}\0change")
            code = with_settings(code, dice.choice(changes_of(code))[1])
        else:
            return reply
        return reply.model_copy(update={"text": f"```python\n{code}```"})


def own(messages: Sequence[Message]) -> list[Message]:
    """The writer's answers so far."""
    return [message for message in messages if message.role == "assistant"]


def rung_of(text: str) -> int:
    """The rung that an answer says it is."""
    found = re.search(r"# rung (\d)", text)
    return int(found[1]) if found else 0


def last_of_rung(messages: Sequence[Message], rung: int) -> tuple[str, str] | None:
    """The code of the latest answer of a rung, and what was said to it."""
    for place in range(len(messages) - 2, -1, -1):
        if messages[place].role == "assistant" and rung_of(messages[place].content) == rung:
            code = re.search(r"```python\n(.*?)```", messages[place].content, re.DOTALL)
            return (code[1], messages[place + 1].content) if code else None
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--slots", type=int, help="gradings at a time (default: as many as the pool takes)")
    parser.add_argument("--out", type=Path, help="keep the runs here, and take them up again")
    parser.add_argument("--policy", type=Path, nargs=2, metavar="RUN", help="a model's runs without and with advice")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        directory = arguments.out or Path(scratch)
        results = asyncio.run(play(directory, arguments))
        text = page(results, differences(directory), arguments)
        text += policy(*arguments.policy) if arguments.policy else ""
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE}")
    return 0


async def play(directory: Path, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Summary, turns and gradings of each way."""
    tasks, prompts = [builtin_task(name) for name in KERNELS], Prompts.load("full")
    sampling = Sampling(max_tokens=1024, seed=0)
    results = {}
    with LocalPool(arguments.slots, cache=100_000) as pool:
        for way in WAYS:
            episode = EpisodeConfig(turns=arguments.turns, settings=SETTINGS, advice=way == "with advice")
            model = Tuner(way)
            config = BenchConfig(
                model=model.name,
                tasks="advice",
                samples=arguments.samples,
                episode=episode,
                sampling=sampling,
                judge_seed=0,
            )
            resolved = Resolved(model=model.name, prompts_version=prompts.version)
            with BenchRun(folder(directory, way), config, resolved, tasks, prompts) as run:
                summary = await run.run(Meter(model, limits=Limits(concurrency=64)), pool, at_once=64)
                made = [list(turns.values()) for turns in run.bench.played.made.values()]
            results[way] = {"summary": summary, "made": made}
            print(f"{way}: {summary['answers']} answers", file=sys.stderr)
    return results


def folder(directory: Path, way: str) -> Path:
    """The run directory of a way."""
    return directory / way.replace(" ", "-")


def differences(directory: Path) -> list[dict[str, Any]]:
    """What advice changes against both other ways, task by task: rows of the paired comparison."""
    found = []
    for way in WAYS[:2]:
        rows = compare(folder(directory, way), folder(directory, "with advice"))["rows"]
        found += [{"against": way, **row} for row in rows if row["figure"].startswith("best turn fast_")]
    return found


def gradings(made: Sequence[Sequence[Turn]]) -> float:
    """Gradings a turn, those of advice included."""
    advised = [turn.verdict.advised for turns in made for turn in turns]
    return 1 + fmean(len(one.advice) + len(one.tried) if one is not None else 0 for one in advised)


def page(results: dict[str, dict[str, Any]], rows: list[dict[str, Any]], arguments: argparse.Namespace) -> str:
    """The page of results."""
    wanted = [name for name in next(iter(results.values()))["summary"]["best"] if name.startswith("fast_")]
    names = " | ".join(f"best turn {name}" for name in wanted)
    lines = [
        "# Advice as feedback",
        "",
        f"`python benchmarks/advice.py --turns {arguments.turns} --samples {arguments.samples} --write`, "
        f"{date.today()}. Speedups are **modelled** (`sim:h200`); no GPU.",
        "",
        f"{len(KERNELS)} built-in tasks, {arguments.samples} trajectories of {arguments.turns} turns each. The writer "
        "is a *script* that climbs a ladder of real kernels; where it goes no further it repeats its best answer "
        "(without advice), changes one of its launch settings at random (by itself), or makes the change that the "
        "judge found faster and told it (with advice). So this bounds what advice can be worth to a model that "
        "heeds it; it does not say whether a language model does.",
        "",
        f"| way | {names} | speedup of right best turns | gradings a turn |",
        "|---|" + "---:|" * (len(wanted) + 2),
    ]
    for way, found in results.items():
        best = found["summary"]["best"]
        cells = [f"{100 * best[name]['value']:.1f}%" for name in wanted]
        lines.append(f"| {way} | {' | '.join(cells)} | {speedup(found['made'])} | {gradings(found['made']):.1f} |")
    lines += ["", "With advice, paired by task:", "", "| figure | against | difference | 95% interval | p |"]
    lines.append("|---|---|---:|---:|---:|")
    for row in rows:
        interval = f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}"
        lines.append(
            f"| {row['figure']} | {row['against']} | {100 * row['difference']:+.1f} | {interval} | {row['p']:.3f} |"
        )
    return "\n".join([*lines, ""])


def policy(without: Path, advised: Path) -> str:
    """What a model makes of advice: the part of the page on its runs."""
    run = read_bench(advised)
    config, episode = run.config, run.config.episode
    verdicts = [turn.verdict for turns in run.played.made.values() for turn in turns.values()]
    told = [verdict.advised for verdict in verdicts if verdict.advised is not None]
    lines = [
        "",
        "## A trained policy",
        "",
        f"`drkernel bench --model hf:RUN/{'/'.join(Path(config.model).parts[-2:])} --tasks {config.tasks} "
        f"samples={config.samples} episode.turns={episode.turns} episode.prompts={episode.prompts}` without and with "
        "`episode.advice=true`, checked at its recipe's sizes: the policy that the [quickstart](quickstart.md) has "
        f"trained, without advice. Of its {len(verdicts)} turns with it {len(told)} were right, and "
        f"{sum(bool(one.advice) for one in told)} of those were told of something faster.",
        "",
        "| figure | without | with | difference | 95% interval | p |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in compare(without, advised)["rows"]:
        if row["figure"].startswith(("last turn fast_", "best turn fast_")):
            values = " | ".join(f"{100 * row[which]:.1f}%" for which in ("first", "second"))
            interval = f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}"
            lines.append(
                f"| {row['figure']} | {values} | {100 * row['difference']:+.1f} | {interval} | {row['p']:.3f} |"
            )
    return "\n".join([*lines, ""])


def speedup(made: Sequence[Sequence[Turn]]) -> str:
    """The geometric mean of the best right answer of each trajectory that has one."""
    timed = [[float(turn.verdict.speedup.value) for turn in turns if is_timed(turn)] for turns in made]
    best = [max(values) for values in timed if values]
    return f"{geometric_mean(best):.3f}" if best else "none"


def is_timed(turn: Turn) -> bool:
    """Whether an answer is right and has a speedup."""
    return turn.verdict.is_correct and turn.verdict.speedup is not None


if __name__ == "__main__":
    sys.exit(main())
