"""The queue of a pool's requests that wait for a slot.

A judge computes much about a task for its first answer (the checked sizes, the reference's behaviour and times there)
and remembers it. So a free slot first takes a task that it knows, then one that no slot knows, and then the oldest
request. A request is overtaken a bounded number of times. Verdicts do not depend on the order. A real GPU is one
slot's at a time; requests for it wait without holding up others.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from drkernel.gym.request import EvalRequest
from drkernel.verdict import Verdict

PATIENCE = 16
"""most times that a request is overtaken"""
KNOWN = 512
"""most tasks whose latest judge is remembered; about as many as a judge remembers"""


@dataclass
class WaitingRequest:
    """A request and the future of its verdict."""

    request: EvalRequest
    future: Future[Verdict] = field(default_factory=Future)
    passed_over: int = 0
    task: str = ""
    """content hash of the task"""
    card: str | None = None
    """the real GPU that it needs"""

    def __post_init__(self) -> None:
        self.task = self.request.task.content_hash
        device = self.request.settings.device
        self.card = device if device.startswith("cuda:") else None


class WarmUp:
    """A request for one slot to start its judge; no slot takes a second one before all have theirs."""

    def __init__(self, slots: int):
        self.together = threading.Barrier(slots + 1)


class WaitingLine:
    """Thread-safe. ``None`` asks the thread that takes it to end; neither it nor a :class:`WarmUp` is overtaken."""

    def __init__(self) -> None:
        self._line: deque[WaitingRequest | WarmUp | None] = deque()
        self._knows: OrderedDict[str, int] = OrderedDict()
        self._busy: set[str] = set()
        self._changed = threading.Condition()

    def put(self, item: WaitingRequest | WarmUp | None) -> None:
        """Append to the queue."""
        with self._changed:
            self._line.append(item)
            self._changed.notify()

    def take(self, slot: int) -> WaitingRequest | WarmUp | None:
        """Wait for an entry that this slot may take, and remove it."""
        with self._changed:
            while (place := self._chosen(slot)) is None:
                self._changed.wait()
            item = self._line[place]
            del self._line[place]
            if isinstance(item, WaitingRequest):
                if item.card is not None:
                    self._busy.add(item.card)
                self._knows[item.task] = slot
                self._knows.move_to_end(item.task)
                while len(self._knows) > KNOWN:
                    self._knows.popitem(last=False)
            return item

    def done(self, work: WaitingRequest) -> None:
        """Give the GPU of a request that was taken to the next."""
        if work.card is not None:
            with self._changed:
                self._busy.discard(work.card)
                self._changed.notify_all()

    def clear(self) -> list[WaitingRequest]:
        """Take everything out; return the requests."""
        with self._changed:
            found = [item for item in self._line if isinstance(item, WaitingRequest)]
            self._line.clear()
            return found

    def __len__(self) -> int:
        return len(self._line)

    def _chosen(self, slot: int) -> int | None:
        """Return the position in the queue of the entry that the slot takes; None while there is none for it."""
        oldest: int | None = None
        chosen: int | None = None
        for place, item in enumerate(self._line):
            if isinstance(item, WaitingRequest) and item.card in self._busy:
                continue
            oldest = place if oldest is None else oldest
            if not isinstance(item, WaitingRequest):
                break
            knows = self._knows.get(item.task)
            if knows == slot:
                chosen = place
                break
            if knows is None and chosen is None:
                chosen = place
            if item.passed_over >= PATIENCE:
                break
        if chosen is None:
            return oldest
        for item in list(self._line)[:chosen]:
            if isinstance(item, WaitingRequest) and item.card not in self._busy:
                item.passed_over += 1
        return chosen
