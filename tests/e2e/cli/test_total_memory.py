"""``--total-memory-gib`` reaches the pool of every command that makes one of several slots."""

import pytest

from drkernel.cli import main
from drkernel.gym.pools import local


class _Made(Exception):
    """A pool was asked for."""


COMMANDS = {
    "serve": ["serve", "--port", "0", "--slots", "1"],
    "worker": ["worker", "http://127.0.0.1:9", "--slots", "1"],
    "bench": ["bench", "--model", "command:cat", "--tasks", "builtin/level1/relu"],
    "solve": ["solve", "builtin/level1/relu", "--model", "command:cat"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_limit_of_all_evaluations_reaches_the_pool(command, monkeypatch, tmp_path):
    given = {}

    def made(*args, **terms):
        given.update(terms)
        raise _Made

    monkeypatch.setattr(local, "LocalPool", made)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(_Made):
        main([*COMMANDS[command], "--total-memory-gib", "1.5"])
    assert given["total_bytes"] == 3 << 29
