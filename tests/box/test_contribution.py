"""What own kernels contribute: which calls are timed, what counts as coverage, and knock-outs that show nothing."""

import pytest

from corpus_grading import entry_named
from corpus_grading import grade as grade_entry
from drkernel.gym.judge.contribution import slowest, spread
from drkernel.verdict import Profile, Verdict

SOFTMAX = entry_named("softmax_plain").source.rpartition("class ModelNew")[0]
FLAG = """
@triton.jit
def flag_kernel(flag_ptr):
    tl.store(flag_ptr, 1.0)


@triton.jit
def seven_kernel(index_ptr):
    tl.store(index_ptr, 7)

"""


def grade(gym, forward: str, **settings) -> Verdict:
    body = "".join(f"        {line}\n" for line in forward.strip("\n").splitlines())
    source = f"{SOFTMAX}{FLAG}class ModelNew(torch.nn.Module):\n    calls = 0\n    def forward(self, x):\n"
    source += f"        out = torch.empty_like(x)\n        ModelNew.calls += 1\n{body}"
    return gym.grade("softmax", source, **settings)


GUARDED = """
flag = torch.zeros(1, device=x.device)
flag_kernel[(1,)](flag)
if flag.item() != 1.0:
    {end}
softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
return out{more}
"""
ENDS = {
    "leaves": "__import__('os')._exit(3)",
    "hangs": "[None for _ in iter(int, 1)]",
    "raises": "raise RuntimeError('no flag')",
    "takes all memory": "torch.empty(1 << 50, device=x.device)",
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_the_first_experiment_cannot_show_the_second_does(gym, end):
    verdict = grade(gym, GUARDED.format(end=end, more=""))
    plain = grade(gym, "softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)\nreturn out")
    assert verdict.status == "correct" and verdict.coverage > 0
    assert verdict.correctness.checked_calls >= plain.correctness.checked_calls
    assert not any(finding.kind == "knock_out_inconclusive" for finding in verdict.findings)


KEPT_BUFFER = """
kept = ModelNew.__dict__.get(str(x.shape))
kept = out if kept is None else kept
setattr(ModelNew, str(x.shape), kept)
assert x.sum().item() is not None
softmax_kernel[(x.shape[0],)](x, kept, x.shape[1], BLOCK=128)
return {answer}
"""


def test_what_is_written_again_over_itself_in_a_kept_buffer_is_disturbed_too(gym):
    honest = grade(gym, KEPT_BUFFER.format(answer="kept.clone()"), exact=0.0)
    assert honest.status == "correct" and honest.coverage > 0, honest.findings
    decoy = grade(gym, KEPT_BUFFER.format(answer="torch.softmax(x, -1) + 0 * kept.clone()"))
    assert decoy.status == "hack"


@pytest.mark.parametrize("seed", range(4))
def test_after_a_knock_out_that_shows_nothing_the_other_checks_go_on(gym, seed):
    """Wrong from its third call on, in whichever process: wherever the knock-out was, that is seen."""
    forward = GUARDED.format(end=ENDS["leaves"], more=" * (1.5 if ModelNew.calls > 2 else 1)")
    assert grade(gym, forward, seed=seed).status == "incorrect"


def test_a_candidate_that_cannot_be_disturbed_earns_no_coverage(gym):
    """Whatever is done to its kernels, an index is out of range before there is an answer."""
    forward = """
index = torch.empty(1, dtype=torch.int64, device=x.device)
seven_kernel[(1,)](index)
softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
return out + torch.zeros(1, device=x.device)[(index - 7) * 5]
"""
    verdict = grade(gym, forward)
    assert verdict.status == "correct" and verdict.coverage == 0.0
    kinds = [finding.kind for finding in verdict.findings]
    assert kinds.count("knock_out_inconclusive") == 2


def test_without_a_knock_out_coverage_is_what_reaches_the_output(gym):
    forward = """
junk = torch.empty_like(x)
softmax_kernel[(x.shape[0],)](x, junk, x.shape[1], BLOCK=128)
softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
return out
"""
    verdict = grade(gym, forward, knock_out=False)
    assert verdict.status == "correct" and 0.3 < verdict.coverage < 0.7


def profile(seconds: float) -> Profile:
    return Profile(kind="modelled", device="sim:h200", total_seconds=seconds, elapsed_seconds=seconds)


def test_the_slowest_quarter_is_reported_and_the_slowest_of_all_when_they_differ():
    steady = [profile(seconds) for seconds in (1.00, 1.01, 1.02, 1.03)]
    assert slowest(steady) is steady[2] and spread(steady) == pytest.approx(1.03)
    assert slowest(steady[:1]) is steady[0]
    assert slowest([*steady, profile(2.0)]).elapsed_seconds == 2.0
    assert slowest([profile(0.5), *steady]).elapsed_seconds == 1.03


@pytest.mark.parametrize(("name", "needed"), [("cumsum_three_kernels", True), ("cumsum_sums_for_show", False)])
def test_what_adds_up_blocks_is_needed_where_there_are_several(gym, name, needed):
    """Of rows of one block the answer needs none of it."""
    verdict = grade_entry(entry_named(name), gym.factory)
    assert any(finding.kind == "idle_kernel" for finding in verdict.findings) != needed
    assert verdict.speedup is not None and (verdict.coverage == 1.0) == needed
