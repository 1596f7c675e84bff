"""One writing thread: operations that arrive during a commit share the next one (group commit).

Every operation is a function over the store's own transactions. Those of a group run as parts of one transaction and
are answered after its commit. When the group fails (a full disk), each is retried alone, so that one that is too large
does not take the others down. An operation that *waits* (a worker that wants a job) is retried after each group until
it succeeds, so nothing polls.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from drkernel.serve.jobs import StoreError
from drkernel.serve.store import Store

log = logging.getLogger("drkernel.serve")
T = TypeVar("T")

_GROUP = 256
"""most operations of one commit"""


@dataclass(eq=False)
class _Operation(Generic[T]):
    work: Callable[[], T]
    answer: asyncio.Future[T]
    waits_for: str | None = None
    """what the operation waits for, retrying while the result is None; when one of several with the same key finds
    nothing, the others are skipped"""
    durable: bool = True


@dataclass
class _GiveUp:
    operation: _Operation[Any] | None
    """None: all waiting operations"""


_Outcome = tuple[_Operation[Any], Any, BaseException | None]


class Writer:
    """Writes to a store for one event loop."""

    def __init__(self, store: Store):
        self.store = store
        self.trouble: str | None = None
        """why the last commit was refused; None when it was not"""
        self._queue: queue.SimpleQueue[_Operation[Any] | _GiveUp | None] = queue.SimpleQueue()
        self._parked: list[_Operation[Any]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="drkernel-store", daemon=True)

    def start(self) -> None:
        """Start; call it in the event loop that will use the writer."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self) -> None:
        """Finish the operations submitted so far, and stop."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def do(self, work: Callable[[], T], *, durable: bool = True) -> T:
        """Run an operation; return after its commit (with ``durable``, after it is on the disk).

        Raises :class:`StoreError` when it was refused.
        """
        return await asyncio.shield(self._put(work, durable=durable).answer)

    async def wait_for(self, what: str, work: Callable[[], T | None], seconds: float) -> T | None:
        """Return the first result that is not None, tried now and after every change of the store; None after
        ``seconds``.

        ``what`` is a key: when one operation finds nothing, others with the same key are skipped. A caller that is
        cancelled must expect that the operation may still succeed.
        """
        operation = self._put(work, what, durable=False)
        try:
            await asyncio.wait([operation.answer], timeout=seconds)
        finally:
            if not operation.answer.done():
                self._queue.put(_GiveUp(operation))
        return await asyncio.shield(operation.answer)

    def let_go(self) -> None:
        """Answer all waiting operations with None, now."""
        self._queue.put(_GiveUp(None))

    def _put(self, work: Callable[[], T], what: str | None = None, *, durable: bool) -> _Operation[T]:
        if not self._thread.is_alive():
            raise StoreError("the service has stopped writing")
        operation = _Operation(work, asyncio.get_running_loop().create_future(), what, durable)
        self._queue.put(operation)
        return operation

    # ---- the thread

    def _work(self) -> None:
        while True:
            group, given_up, last = self._take()
            outcomes = self._commit([*group, *self._parked]) if group else []
            outcomes += self._drop(self._parked if last or None in given_up else given_up)
            self._tell(outcomes)
            if last:
                return

    def _take(self) -> tuple[list[_Operation[Any]], list[_Operation[Any] | None], bool]:
        """Return the submitted operations, those given up (None: all), and whether the writer should stop."""
        group: list[_Operation[Any]] = []
        given_up: list[_Operation[Any] | None] = []
        item = self._queue.get()
        while True:
            if item is None:
                return group, given_up, True
            if isinstance(item, _GiveUp):
                given_up.append(item.operation)
            else:
                group.append(item)
            if len(group) >= _GROUP:
                break
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                break
        return group, given_up, False

    def _commit(self, operations: list[_Operation[Any]]) -> list[_Outcome]:
        """Commit the operations; return the outcomes of all but those that keep waiting."""
        try:
            with self.store.transaction(any(operation.durable for operation in operations)):
                outcomes = self._attempt(operations)
            if self.trouble is not None:
                log.warning("the store %s takes writes again", self.store.path)
            self.trouble = None
        except StoreError as error:
            if self.trouble != str(error):  # once, not for every commit of a full disk
                log.error("%s", error)
            self.trouble = str(error)
            # a locked file refuses every one, each after the same long wait
            again = [] if error.locked else [outcome for operation in operations for outcome in self._alone(operation)]
            outcomes = [(operation, None, error) for operation in operations] if error.locked else again
        answered = {id(operation) for operation, _, _ in outcomes}
        self._parked = [operation for operation in operations if id(operation) not in answered]
        return outcomes

    def _attempt(self, operations: Iterable[_Operation[Any]]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        nothing: set[str] = set()
        for operation in operations:
            if operation.waits_for in nothing:
                continue
            try:
                result = operation.work()
            except StoreError:
                raise  # the whole group is undone and each is tried by itself
            except Exception as error:  # a mistake of ours, for whoever asked
                outcomes.append((operation, None, error))
            else:
                if result is not None or operation.waits_for is None:
                    outcomes.append((operation, result, None))
                else:
                    nothing.add(operation.waits_for)
        return outcomes

    def _alone(self, operation: _Operation[Any]) -> list[_Outcome]:
        try:
            with self.store.transaction():
                return self._attempt([operation])
        except StoreError as error:
            return [(operation, None, error)]

    def _drop(self, operations: Iterable[_Operation[Any] | None]) -> list[_Outcome]:
        dropped = [operation for operation in self._parked if operation in list(operations)]
        self._parked = [operation for operation in self._parked if operation not in dropped]
        return [(operation, None, None) for operation in dropped]

    def _tell(self, outcomes: list[_Outcome]) -> None:
        assert self._loop is not None
        if outcomes and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_deliver, outcomes)


def _deliver(outcomes: list[_Outcome]) -> None:
    for operation, result, error in outcomes:
        if operation.answer.done():
            continue
        if error is not None:
            operation.answer.set_exception(error)
        else:
            operation.answer.set_result(result)
