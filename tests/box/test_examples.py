"""The examples are what their README says they are."""

import pytest

from drkernel.gym.feedback import feedback
from drkernel.task import Task
from places import EXAMPLES

NAMES = ["softmax", "layer_norm", "bias_gelu", "matmul_epilogue", "attention"]
CHEATS = {
    "softmax": ("hack", "decoy_kernel"),
    "layer_norm": ("incorrect", None),
    "bias_gelu": ("hack", "stale_output"),
    "matmul_epilogue": ("incorrect", "precision_downgrade"),
    "attention": ("hack", "copy_kernel"),
}


def grade(gym, name: str, which: str):
    task = Task(
        id=name,
        reference=(EXAMPLES / name / "reference.py").read_text(),
        precision="fp16" if name == "bias_gelu" else "fp32",
    )
    return gym.grade(task, (EXAMPLES / name / f"{which}.py").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_candidates_are_correct_and_covered(name, gym):
    verdict = grade(gym, name, "candidate")
    assert verdict.is_correct and verdict.coverage == 1.0, verdict.error or verdict.correctness
    assert verdict.speedup.value > 0.9


@pytest.mark.slow
def test_the_published_size_is_timed_and_a_smaller_one_checked(gym):
    verdict = grade(gym, "rms_norm", "candidate")
    assert verdict.is_correct and verdict.coverage == 1.0, verdict.error or verdict.correctness
    assert verdict.timed_at.changed == {} and verdict.timed_at.inputs == ("x float32[112, 64, 512, 512]",)
    assert verdict.checked_at.changed["batch_size"][0] == 112 and "features" not in verdict.checked_at.changed
    moved = 2 * 4 * 112 * 64 * 512 * 512 / 4.8e12  # bytes over the bandwidth of an H200
    assert moved < verdict.timing.seconds < 1.2 * moved and verdict.speedup.value > 2


@pytest.mark.parametrize("name", NAMES)
def test_lazy_ones_are_correct_with_low_coverage(name, gym):
    verdict = grade(gym, name, "lazy")
    assert verdict.is_correct and 0.05 < verdict.coverage < 0.6
    assert "Still done by PyTorch" in feedback(verdict)


@pytest.mark.parametrize("name", NAMES)
def test_cheats_are_told_why(name, gym):
    verdict = grade(gym, name, "cheat")
    status, kind = CHEATS[name]
    assert verdict.status == status
    if kind is not None:
        assert kind in [finding.kind for finding in verdict.findings] and kind in feedback(verdict)
