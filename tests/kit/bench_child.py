"""A bench in a process of its own, to be killed: ``python bench_child.py URL DIRECTORY``; graded by TextPool."""

import asyncio
import sys
from pathlib import Path

from drkernel.episode.endpoint import OpenAIModel
from drkernel.episode.meter import CallLimits, Meter, ReplyCache
from drkernel.episode.records import Sampling
from solve_fakes import TextPool, bench_config, open_run


async def main(url: str, directory: Path) -> None:
    limits = CallLimits(concurrency=4, backoff_s=0.01, backoff_max_s=0.05, tries=20)
    model = OpenAIModel("m", base_url=url, timeout=0.5)
    model.name = "openai:m"  # the port of the test's endpoint differs from run to run
    config = bench_config(model.name, turns=3, sampling=Sampling(seed=1), judge_seed=7)
    with open_run(directory, config, 20) as run:
        meter = Meter(model, limits=limits, cache=ReplyCache(directory / "replies.sqlite"))
        await run.run(meter, TextPool(), at_once=6)
        await meter.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
