"""Every built-in task's reference, graded as a candidate: right in every check, speedup 1, and no kernel of its own."""

import re

import pytest

from drkernel.task import sized_reference
from drkernel.tasks.loaders import builtin_tasks

FAST = {"builtin/level1/batch_norm_training", "builtin/level2/adamw_step", "builtin/level3/mlp_mixer_block"}


def check(task, gym) -> None:
    source = re.sub(r"\bModel\b", "ModelNew", sized_reference(task, "tiny"))
    verdict = gym.grade(task, source, profile="tiny", memory_bytes=4 << 30)
    shown = [finding.kind for finding in verdict.findings if finding.severity != "note"]
    assert verdict.status == "hack" and shown == ["no_custom_kernel"], (verdict.error, verdict.correctness)
    assert verdict.speedup.value == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("task", [t for t in builtin_tasks() if t.id in FAST], ids=lambda task: task.id)
def test_a_reference_against_itself(task, gym):
    check(task, gym)


@pytest.mark.slow
@pytest.mark.parametrize("task", [t for t in builtin_tasks() if t.id not in FAST], ids=lambda task: task.id)
def test_other_references_against_themselves(task, gym):
    check(task, gym)
