"""Two gloo processes with sharded weights against one process, on the same recipe and seeds."""

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from drkernel.config import dump_config
from drkernel.rl.model.distributed import World
from drkernel.rl.run.trainer import Run
from fakes import FakePool, tiny_recipe
from farm import PYTHON
from places import KIT

SCRIPT = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from fakes import FakePool
from drkernel.config import load_config
from drkernel.rl.model import distributed
from drkernel.rl.run.recipe import Recipe
from drkernel.rl.run.trainer import Run
world = distributed.start()
asyncio.run(Run(load_config(Recipe, {recipe!r}), FakePool(), world=world).run())
distributed.stop(world)
"""


LOADS = """
import transformers
from drkernel.rl.model import distributed
from drkernel.rl.model.policy import Policy, PolicyConfig
world = distributed.start()
if not world.first:
    transformers.AutoModelForCausalLM.from_pretrained = None
policy = Policy.load(PolicyConfig(model={model!r}, device="cpu"), world=world)
policy.shard(world)
policy.save({saved!r})
distributed.stop(world)
"""


def run_two(recipe, path):
    """The recipe in two processes, each on one thread."""
    path.write_text(dump_config(recipe))
    ranks(SCRIPT.format(tests=str(KIT), recipe=str(path)))


def ranks(code):
    """A program in two processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(2):
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
        environment = {**os.environ, **address, "OMP_NUM_THREADS": "1"}
        command = [PYTHON, "-W", "ignore", "-c", code]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE))
    for process in processes:
        error = process.communicate(timeout=250)[1].decode()
        assert process.returncode == 0, error[-3000:]


def rows(recipe, name="metrics.jsonl"):
    path = Path(recipe.runs) / recipe.name / name
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """One recipe, trained by one process and by two."""
    recipes = []
    for name in ("one", "two"):
        directory = tmp_path_factory.mktemp(name)
        recipes.append(
            tiny_recipe(
                directory,
                sft={"epochs": 1, "lr": 0.01, "batch_tokens": 600, "micro_tokens": 200},
                rl={"steps": 2, "learner": {"lr": 0.003, "micro_tokens": 300, "advantage": {"name": "otb"}}},
                rollout={"tasks": 3, "samples": 3},
                evaluation={"final_tasks": 3, "final_samples": 1},
                checkpoint={"seconds": 0},
            )
        )
    import asyncio

    asyncio.run(Run(recipes[0], FakePool()).run())
    run_two(recipes[1], tmp_path_factory.mktemp("recipe") / "recipe.yaml")
    return recipes


def test_losses_are_those_of_one_process(pair):
    one, two = rows(pair[0]), rows(pair[1])
    assert [(r["stage"], r["step"]) for r in one] == [(r["stage"], r["step"]) for r in two]
    for a, b in zip(one, two, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], abs=1e-5), (a["stage"], a["step"])
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-4, abs=1e-5)
        if a["stage"] == "rl":
            assert (b["trajectories"], b["tokens"], b["evaluations"]) == (
                a["trajectories"],
                a["tokens"],
                a["evaluations"],
            )
            assert b["status"] == a["status"]


def test_weights_and_evaluations_are_those_of_one_process(pair):
    first, second = (load_file(Path(r.runs) / r.name / "checkpoints" / "final" / "model.safetensors") for r in pair)
    assert first.keys() == second.keys()
    for name, weight in first.items():
        torch.testing.assert_close(second[name], weight, atol=2e-4, rtol=1e-3)
    one, two = rows(pair[0], "eval.jsonl"), rows(pair[1], "eval.jsonl")
    assert [row["status"] for row in one] == [row["status"] for row in two]


def test_the_first_rank_alone_reads_a_models_weights(pair, tmp_path):
    """Eight copies of 14 billion weights would not fit a host."""
    model = Path(pair[0].runs) / pair[0].name / "checkpoints" / "final"
    ranks(LOADS.format(model=str(model), saved=str(tmp_path / "saved")))
    before, after = (load_file(path / "model.safetensors") for path in (model, tmp_path / "saved"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_of_two_goes_on_alone(pair):
    """The checkpoint of sharded weights is an ordinary one."""
    import asyncio

    directory = Path(pair[1].runs) / pair[1].name
    (directory / "summary.json").unlink()
    state = json.loads(next(directory.glob("checkpoints/rl-2/state.json")).read_text())
    assert state["step"] == 2
    summary = asyncio.run(Run(pair[1], FakePool()).run())
    assert summary["steps"]["rl"] == 2


def test_ranks_share_everything_once_and_move_in_step():
    for size in (1, 2, 3):
        for count in (0, 1, 4, 7):
            shares = [World(rank, size).share(list(range(count))) for rank in range(size)]
            assert len({len(share) for share in shares}) == 1
            assert sorted(part for share in shares for part, counts in share if counts) == list(range(count))
