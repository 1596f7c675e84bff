"""``command:PROGRAM ARGS``: a program that reads the conversation on standard input and writes its answer.

The conversation is passed as text, each message under a line ``### role``; a single user message is passed as it is.
The environment variables DRKERNEL_TASK, DRKERNEL_SAMPLE, DRKERNEL_TURN and DRKERNEL_MESSAGES (path of a JSON file) give
the details. The program runs without a shell.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress

from drkernel.config import ConfigError
from drkernel.episode.answerer import ModelCall, ModelError, estimated_usage
from drkernel.episode.chat import Message, Reply


class CommandModel:
    """Runs one process per reply. Raises :class:`ConfigError` for a command line that cannot be split."""

    def __init__(self, command: str, *, timeout: float = 600.0):
        self.name = f"command:{command}"
        try:
            self._argv = shlex.split(command)
        except ValueError as error:
            raise ConfigError(f"cannot read the command {command!r}: {error}") from error
        if not self._argv:
            raise ConfigError("command: needs a program, e.g. 'command:llm -m some-model'")
        self._timeout = timeout

    async def complete(self, call: ModelCall) -> Reply:
        """Start the program, write the conversation, and read its output until it exits."""
        started = time.monotonic()
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump([message.model_dump() for message in call.messages], file)
            file.flush()
            code, out, err = await self._run(render(call.messages).encode(), _environment(call, file.name))
        if code != 0:
            last = err.decode("utf-8", "replace").strip().splitlines()[-1:] or ["nothing on standard error"]
            raise ModelError(f"{self._argv[0]} ended with code {code}: {last[0]}", retry=True)
        text = out.decode("utf-8", "replace")
        usage = estimated_usage(call, text)
        return Reply(text=text, usage=usage, model=self.name, seconds=time.monotonic() - started)

    async def _run(self, stdin: bytes, env: dict[str, str]) -> tuple[int, bytes, bytes]:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
            )
        except OSError as error:
            raise ModelError(f"cannot start {self._argv[0]}: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            raise ModelError(f"{self._argv[0]} gave no answer in {self._timeout:g} s", retry=True) from None
        finally:  # also when the wait was cancelled: no program is left behind
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return process.returncode or 0, out, err

    async def close(self) -> None:
        """Do nothing: every program ended with its reply."""


def render(messages: Sequence[Message]) -> str:
    """Render the conversation as text."""
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return "\n\n".join(f"### {message.role}\n{message.content}" for message in messages) + "\n\n### assistant\n"


def _environment(call: ModelCall, messages: str) -> dict[str, str]:
    names = {
        "DRKERNEL_TASK": call.task_id,
        "DRKERNEL_SAMPLE": str(call.sample),
        "DRKERNEL_TURN": str(call.turn),
        "DRKERNEL_MESSAGES": messages,
    }
    return {**os.environ, **names}
