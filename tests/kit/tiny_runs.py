"""Whole training runs of a tiny recipe, and what they leave on disk."""

import asyncio
import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from drkernel.rl.run.trainer import Run
from fakes import FakePool, tiny_recipe

TIMES = {"seconds", "sample_seconds", "wait_seconds", "grade_seconds", "learn_seconds"}


def train(recipe, pool=None, **options):
    return asyncio.run(Run(recipe, pool or FakePool(), **options).run())


def fine_tuned(directory):
    """Terms of a run that goes straight to RL, from a policy that was fine-tuned in ``directory``."""
    recipe = tiny_recipe(directory, copying=None, rl=None, sft={"epochs": 3}, evaluation={"final_tasks": 0})
    train(recipe)
    model = Path(recipe.runs) / recipe.name / "checkpoints" / "sft"
    return {"copying": None, "sft": None, "coldstart_file": None, "policy": {"model": str(model)}}


def rows(recipe, name, drop=TIMES):
    path = Path(recipe.runs) / recipe.name / name
    return [{k: v for k, v in json.loads(line).items() if k not in drop} for line in open(path)]


def weights(recipe):
    return load_file(Path(recipe.runs) / recipe.name / "checkpoints" / "final" / "model.safetensors")


def assert_same_run(first, second):
    for name in ("metrics.jsonl", "eval.jsonl", "samples.jsonl"):
        assert rows(first, name) == rows(second, name), name
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)
