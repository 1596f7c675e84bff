"""A program that is run to its end, and stopped in order: by Ctrl-C, by SIGTERM, and when this process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from drkernel.gym.sandbox import linux


def attend(command: Sequence[str], environ: dict[str, str]) -> tuple[int, bool]:
    """Run a program to its end; return its exit code and whether it was asked to stop.

    It has a session of its own, so that Ctrl-C reaches it once, from here, and its processes can end in their order.
    When this process is killed it gets SIGTERM.
    """
    process = subprocess.Popen(linux.bound(command), env=environ, start_new_session=True)
    asked = 0

    def stop(number: int, _: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            say("stopping (again to kill it)")
        # a second time ends even a program that does not listen
        process.send_signal(number if asked == 1 else signal.SIGKILL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return process.wait(), asked > 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str) -> None:
    """Tell the user something beside the program's own output."""
    print(f"drkernel train: {text}", file=sys.stderr, flush=True)
