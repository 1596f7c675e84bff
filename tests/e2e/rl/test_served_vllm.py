"""What test_served.py checks, on vLLM itself: ids as drawn, log-probabilities, new weights, no process left behind.

vLLM has an environment of its own (docs/training.md); its interpreter is named in the environment:

    DRKERNEL_VLLM_PYTHON=.venv-vllm/bin/python python -m pytest -m slow tests/e2e/rl/test_served_vllm.py
"""

import asyncio
import os
import subprocess
import sys
import time

import pytest
import torch
from test_served import SAMPLING, disturbed, play

from drkernel.config import ConfigError
from drkernel.rl.maths.mismatch import mismatch
from drkernel.rl.model.answerer import PolicyServer, ServedSampler, ServerConfig
from drkernel.rl.model.policy import PocketConfig, Policy, PolicyConfig, TokenizerConfig
from drkernel.rl.model.sampler import Conversation
from drkernel.rl.run.learner import Learner, LearnerConfig, Rows
from tiny import prompt, tiny_tokenizer

PYTHON = os.environ.get("DRKERNEL_VLLM_PYTHON")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(PYTHON is None, reason="no vLLM: name its interpreter in DRKERNEL_VLLM_PYTHON"),
]
# heads of 32 numbers are the smallest that vLLM's attention takes
POCKET = PocketConfig(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, mlp=128, context=512)
CONTEXT = 512


def fresh_policy():
    terms = PolicyConfig(pocket=POCKET, tokenizer=TokenizerConfig(vocab_size=320), device="cpu")
    return Policy.from_scratch(terms, tiny_tokenizer(), 0)


def settings(dtype="float32"):
    return ServerConfig(python=PYTHON, dtype=dtype, memory=0.05, args=("--enforce-eager",))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A policy, and vLLM that serves it in fp32."""
    torch.set_num_threads(1)
    policy = fresh_policy()
    server = PolicyServer.start(settings(), policy, tmp_path_factory.mktemp("served"), CONTEXT)
    yield policy, server
    process = server.process.pid
    server.close()
    assert emptied(process) == []


def emptied(leader, seconds=60):
    """Wait until a session has ended, and return what is left of it."""
    until = time.monotonic() + seconds
    while (left := session_of(leader)) and time.monotonic() < until:
        time.sleep(0.5)
    return left


def session_of(leader):
    """The processes of a session that are still there."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(name))
    return found


def gap_of(policy, trajectories):
    """The largest log-ratio between those who sampled and the policy's training forward, and what MRS keeps."""
    rows = Rows.of(trajectories)
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=0.0)
    learner = Learner(policy, optimizer, LearnerConfig(), temperature=SAMPLING.temperature)
    with torch.no_grad():
        old, _, _ = learner._score(policy, rows)
    found = mismatch(old, rows.rollout_BT, rows.mask_BT, sequence_B=rows.owner_B)
    return found.metrics["max_abs_log_ratio"], found.metrics["rejected_sequence_fraction"]


def test_turns_are_ids_as_drawn_with_the_policys_log_probabilities_before_and_after_an_update(served):
    policy, server = served
    sampler = ServedSampler(server, policy.tokenizer, SAMPLING, CONTEXT)
    for update in (0.0, 0.05):
        if update:
            disturbed(policy, update)
            with pytest.raises(ConfigError, match="does not serve the present weights"):
                server.check(policy, SAMPLING)
            server.load(policy)
        assert server.check(policy, SAMPLING) < 1e-4
        found, _ = play(sampler, policy.tokenizer)
        for trajectory in found:
            first, second = (turn.sampled for turn in trajectory.turns)
            whole = first.context_ids + first.token_ids
            assert second.context_ids[: len(whole)] == whole
        largest, rejected = gap_of(policy, found)
        assert largest < 1e-4 and rejected == 0


def test_draws_are_a_function_of_the_seed_and_budgets_are_kept(served):
    policy, server = served
    ids = policy.tokenizer.prompt_ids(prompt("alpha"))

    async def draw(seed, budget=None):
        sampler = ServedSampler(server, policy.tokenizer, SAMPLING, CONTEXT)
        ((_, turn),) = [found async for found in sampler.stream([Conversation(seed, budget=budget)], [ids])]
        return turn

    first, again, other = (asyncio.run(draw(seed)) for seed in (1, 1, 2))
    assert first.token_ids == again.token_ids != other.token_ids
    short = asyncio.run(draw(1, budget=3))
    assert 1 <= len(short.token_ids) <= 3 and short.token_ids == first.token_ids[: len(short.token_ids)]


KILLED = """
import os, signal, sys
from pathlib import Path
from drkernel.rl.model.answerer import PolicyServer
from test_served_vllm import CONTEXT, fresh_policy, settings
server = PolicyServer.start(settings(), fresh_policy(), Path(sys.argv[1]), CONTEXT)
print(server.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_trainer_leaves_no_server_behind(tmp_path):
    known = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=known, stdout=subprocess.PIPE, text=True)
    assert done.returncode < 0 and done.stdout, "it was killed once its server answered"
    assert emptied(int(done.stdout)) == []
