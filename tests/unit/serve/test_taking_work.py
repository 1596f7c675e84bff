"""What the writer takes at once, and what a worker says of a verdict that came too late."""

import asyncio
import logging
import queue

import pytest

from drkernel.serve import service as group_commit
from drkernel.serve.service import Writer
from drkernel.serve.worker import Worker
from verdicts import verdict_of


def test_a_transaction_takes_a_bounded_number_of_operations():
    writer = Writer.__new__(Writer)  # its queue alone, without the thread
    writer._queue = queue.SimpleQueue()
    for k in range(group_commit._GROUP + 3):
        writer._queue.put(k)  # type: ignore[arg-type]
    sizes = [len(writer._take()[0]) for _ in range(2)]
    assert sizes == [group_commit._GROUP, 3]


@pytest.mark.parametrize("recorded", [True, False])
def test_a_worker_warns_of_a_verdict_that_was_not_taken_and_of_no_other(recorded, caplog):
    class Client:
        async def call(self, *_, **__):
            return {"recorded": recorded}

    worker = Worker(Client(), pool=None, name="w", slots=1)
    verdict = verdict_of()
    with caplog.at_level(logging.WARNING):
        asyncio.run(worker._report("job", verdict))
    assert ("passed to another worker" in caplog.text) == (not recorded) and worker.done == recorded
