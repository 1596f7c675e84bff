"""Hurt a running service in every way that a fleet will, and count what was lost, doubled or differs.

    python benchmarks/serve_faults.py --jobs 500 --kills 20 --out docs/results/faults.md
    python benchmarks/serve_faults.py --only network disk
    python benchmarks/serve_faults.py --ray --kills 3

The server is a real process with an evaluator that takes a few milliseconds, so that the run is about the queue and
not about grading. 32 clients submit jobs and wait for their verdicts while the server or workers are killed (SIGKILL),
connections are cut in the middle of requests and responses, the disk is full, the store is locked, or (``--ray``) a
node of a Ray cluster dies. Every verdict that a client got is compared with the store.
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from drkernel.serve.client import AsyncClient
from drkernel.serve.store import Store
from serve_fault_kit import SERVER, WORKER, Proxy, SmallDiskError, fill, kill, locked, request, small_disk, start
from surveys import markdown, parser_of, with_figures

PORT, PROXY_PORT = 18765, 18767


@dataclass
class Outcome:
    """Figures of one part."""

    name: str
    faults: str
    jobs: int
    lost: int
    doubled: int
    unequal: int
    refusals: int
    evaluations: int
    seconds: float

    @property
    def good(self) -> bool:
        """Nothing lost, doubled or different."""
        return not (self.lost or self.doubled or self.unequal)


class Part:
    """One run: a server on a store, clients that go on, something that hurts."""

    def __init__(self, folder: Path, *, slots: int = 4, ray: str = "", store: Path | None = None):
        self.store, self.log = store or folder / "store.sqlite", folder / "evaluated.log"
        self._arguments = (str(self.store), str(PORT), str(self.log), str(slots), ray)
        self.server = start(SERVER, *self._arguments)
        self.refusals: Counter[int] = Counter()
        self.driving: asyncio.Task[Counter[str]] | None = None

    def restart(self) -> None:
        """SIGKILL, and another server on the same store."""
        kill(self.server)
        self.server = start(SERVER, *self._arguments)

    async def drive(self, jobs: int, spread_s: float, rng: random.Random, port: int = PORT) -> Counter[str]:
        """Clients that submit one by one and wait; how often each task's verdict came."""
        seen: Counter[str] = Counter()
        gate = asyncio.Semaphore(32)

        async def refused(answer: httpx.Response) -> None:
            if answer.status_code in (503, 507):
                self.refusals[answer.status_code] += 1

        async with AsyncClient(f"http://127.0.0.1:{port}", retries=60, timeout_s=30.0) as client:
            client.on_response(refused)
            await client.call("GET", "/health")

            async def one(number: int) -> None:
                await asyncio.sleep(rng.random() * spread_s)
                async with gate:
                    verdict = await client.evaluate(request(number))
                seen[verdict.task_id] += verdict.status == "correct"

            await asyncio.gather(*(one(number) for number in range(jobs)))
        return seen

    async def run(
        self, name: str, jobs: int, spread_s: float, hurt: Callable[[], Awaitable[str]], seed: int, port: int = PORT
    ) -> Outcome:
        """Drive while ``hurt`` does its work (it says what it did), then compare."""
        started = time.perf_counter()
        self.driving = asyncio.create_task(self.drive(jobs, spread_s, random.Random(seed), port))
        try:
            faults = await hurt()
            seen = await self.driving
        finally:
            self.driving.cancel()
            kill(self.server)
        seconds = time.perf_counter() - started
        with Store(self.store) as store:
            rows = Counter(job.task_id for job in store.find(state="done", limit=10 * jobs))
            unfinished = sum(len(store.find(state=state, limit=10)) for state in ("queued", "leased"))
        wanted = {f"fault/{number}" for number in range(jobs)}
        return Outcome(
            name,
            faults,
            jobs,
            lost=sum(not seen[task] for task in wanted) + unfinished,
            doubled=sum(max(0, count - 1) for count in (*rows.values(), *seen.values())),
            unequal=len(set(rows) ^ wanted),
            refusals=sum(self.refusals.values()),
            evaluations=len(self.log.read_text().splitlines()),
            seconds=seconds,
        )


async def answering() -> None:
    """Return once the server takes requests."""
    async with AsyncClient(f"http://127.0.0.1:{PORT}", retries=60) as client:
        await client.call("GET", "/health")


async def kill_server(jobs: int, kills: int, seed: int) -> Outcome:
    """SIGKILL of the server at random moments, and a start on the same store."""
    rng = random.Random(seed)
    with TemporaryDirectory() as folder:
        part = Part(Path(folder))

        async def hurt() -> str:
            for _ in range(kills):
                await answering()  # a server that is still starting has nothing to lose
                await asyncio.sleep(rng.uniform(0.1, 1.2))
                part.restart()
            return f"{kills} kills"

        return await part.run("the server killed", jobs, 2.5 * kills, hurt, seed)


async def kill_workers(jobs: int, kills: int, seed: int) -> Outcome:
    """SIGKILL of one of three remote workers, again and again."""
    rng = random.Random(seed)
    with TemporaryDirectory() as folder:
        part = Part(Path(folder), slots=0)
        line = (WORKER, f"http://127.0.0.1:{PORT}", str(part.log))
        workers = [start(*line) for _ in range(3)]

        async def hurt() -> str:
            for _ in range(kills):
                await asyncio.sleep(rng.uniform(0.3, 1.5))
                victim = rng.randrange(len(workers))
                kill(workers[victim])
                workers[victim] = start(*line)
            return f"{kills} kills"

        try:
            return await part.run("one of three remote workers killed", jobs, 0.9 * kills, hurt, seed)
        finally:
            for worker in workers:
                kill(worker)


async def cut_network(jobs: int, kills: int, seed: int) -> Outcome:
    """A proxy that resets every connection sooner or later, in the middle of a request or of a response."""
    with TemporaryDirectory() as folder:
        part = Part(Path(folder))
        proxy = Proxy(PROXY_PORT, PORT, random.Random(seed))

        async def hurt() -> str:
            assert part.driving is not None
            await asyncio.wait([part.driving])
            return f"{proxy.cuts['request']} cuts in requests, {proxy.cuts['response']} in responses"

        async with proxy:
            return await part.run("the network cut", jobs, 0.3 * kills, hurt, seed, port=PROXY_PORT)


async def fill_disk(jobs: int, kills: int, seed: int) -> Outcome:
    """The store on a tmpfs of 16 MiB that is full for a second and a half, several times."""
    with TemporaryDirectory() as folder, small_disk(16) as disk:
        part = Part(Path(folder), store=disk / "store.sqlite")

        async def hurt() -> str:
            for _ in range(max(1, kills // 4)):
                await asyncio.sleep(1.0)
                ballast = await asyncio.to_thread(fill, disk)
                await asyncio.sleep(1.5)
                ballast.unlink()
            return f"{max(1, kills // 4)} times full"

        return await part.run("the disk full", jobs, 2.5 * max(1, kills // 4), hurt, seed)


async def lock_store(jobs: int, kills: int, seed: int) -> Outcome:
    """Another program holds the store's lock for six seconds (a write waits for five)."""
    with TemporaryDirectory() as folder:
        part = Part(Path(folder))

        async def hurt() -> str:
            for _ in range(max(1, kills // 8)):
                await asyncio.sleep(2.0)
                with locked(part.store):
                    await asyncio.sleep(6.0)
            return f"{max(1, kills // 8)} locks of 6 s"

        return await part.run("the store locked", jobs, 8.0 * max(1, kills // 8), hurt, seed)


async def kill_ray_node(jobs: int, kills: int, seed: int) -> Outcome:
    """A cluster of a head and two nodes of two slots; one node is killed, then another one joins."""
    from ray.cluster_utils import Cluster

    rng = random.Random(seed)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
        with TemporaryDirectory() as folder:
            part = Part(Path(folder), slots=0, ray=cluster.address)

            async def hurt() -> str:
                await answering()
                for _ in range(kills):
                    await asyncio.sleep(rng.uniform(3.0, 5.0))
                    await asyncio.to_thread(cluster.remove_node, nodes.pop(0), allow_graceful=False)
                    nodes.append(cluster.add_node(num_cpus=2))  # Ray wants the main thread for this
                return f"{kills} nodes killed"

            return await part.run("a Ray node killed", jobs, 5.0 * kills, hurt, seed)
    finally:
        cluster.shutdown()


PARTS = {
    "server": kill_server,
    "workers": kill_workers,
    "network": cut_network,
    "disk": fill_disk,
    "lock": lock_store,
    "ray": kill_ray_node,
}


HEAD = [
    "what happens",
    "faults",
    "jobs",
    "lost",
    "reported twice",
    "store differs",
    "refusals",
    "evaluations",
    "seconds",
]


def table(outcomes: list[Outcome]) -> list[str]:
    """The figures as Markdown."""
    return markdown([HEAD, *([*map(str, astuple(one)[:-1]), f"{one.seconds:.0f}"] for one in outcomes)], 7)


def main() -> None:
    """Parse, run the parts, print, and write."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), help="these parts alone")
    parser.add_argument("--ray", action="store_true", help="the Ray part too (it takes the cluster 3 kills)")
    parser.add_argument("--out", type=Path, help="page whose figures are written anew")
    options = parser.parse_args()
    chosen = options.only or [name for name in PARTS if name != "ray"] + (["ray"] if options.ray else [])
    outcomes = []
    for name in chosen:
        kills = min(3, options.kills) if name == "ray" else options.kills
        try:
            outcomes.append(asyncio.run(PARTS[name](options.jobs, kills, options.seed)))
        except SmallDiskError as error:
            print(f"{name}: left out, {error}", file=sys.stderr)
            continue
        print(table(outcomes[-1:])[-1], flush=True)
    if options.out is not None:
        jobs, lost, doubled = (sum(getattr(one, name) for one in outcomes) for name in ("jobs", "lost", "doubled"))
        headline = (
            f"Of {jobs:,} jobs under {len(outcomes)} kinds of faults {lost} were lost and {doubled} reported twice."
        )
        said = {
            r"(?s)\*\*Of .*?\*\*": f"**{headline}**",
            r"`python .*": f"`python benchmarks/serve_faults.py {' '.join(sys.argv[1:])}`, {date.today().isoformat()}.",
            r"(?s)\| what happens.*": "\n".join([*table(outcomes), ""]),
        }
        options.out.write_text(with_figures(options.out.read_text(encoding="utf-8"), said), encoding="utf-8")
    raise SystemExit(not all(outcome.good for outcome in outcomes))


if __name__ == "__main__":
    main()
