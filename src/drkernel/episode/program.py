"""Answers of programs here: a command a turn, replies from a file, an agent that leads its own conversation."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from drkernel.config import Config, ConfigError
from drkernel.episode.meter import read_jsonl
from drkernel.episode.records import Finished, Message, ModelCall, ModelError, Reply, estimated_usage
from drkernel.gym.runner.launcher import import_paths
from drkernel.gym.sandbox import seccomp
from drkernel.gym.sandbox.linux import remove_tree

# ---- ``command:PROGRAM ARGS``: a program that reads the conversation on standard input and writes its answer
#
# The conversation is passed as text, each message under a line ``### role``; a single user message is passed as it is.
# The environment variables DRKERNEL_TASK, DRKERNEL_SAMPLE, DRKERNEL_TURN and DRKERNEL_MESSAGES (path of a JSON file)
# give the details. The program runs without a shell.


MOST_SAID, MOST_LINKS = 16 << 20, 16
"""bytes that a program may write in one turn; attempts of one agent that may wait at a time"""


def _split(command: str, example: str) -> list[str]:
    """The words of a command line. Raises :class:`ConfigError` for one that cannot be split, and for none."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"cannot read the command {command!r}: {error}") from error
    if not words:
        raise ConfigError(f"{example.partition(':')[0]}: needs a program, e.g. {example!r}")
    return words


class CommandModel:
    """Runs one process per reply. Raises :class:`ConfigError` for a command line that cannot be split."""

    def __init__(self, command: str, *, timeout: float = 600.0):
        self.name = f"command:{command}"
        self._argv = _split(command, "command:llm -m some-model")
        self._timeout = timeout

    async def complete(self, call: ModelCall) -> Reply:
        """Start the program, write the conversation, and read its output until it exits."""
        started = time.monotonic()
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
            json.dump([message.model_dump() for message in call.messages], file)
            file.flush()
            given = {
                "DRKERNEL_TASK": call.task_id, "DRKERNEL_SAMPLE": str(call.sample), "DRKERNEL_TURN": str(call.turn),
                "DRKERNEL_MESSAGES": file.name,
            }  # fmt: skip
            code, out, err = await self._run(render(call.messages).encode(), {**os.environ, **given})
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
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(stdin)
        process.stdin.close()
        try:
            async with asyncio.timeout(self._timeout):
                out, err = await asyncio.gather(_said(process.stdout), _said(process.stderr))
                await process.wait()
        except TimeoutError:
            raise ModelError(f"{self._argv[0]} gave no answer in {self._timeout:g} s", retry=True) from None
        finally:  # also when the wait was cancelled: no program is left behind
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process._transport.close()  # type: ignore[attr-defined]  # pipes that are full, or held by a daemon
            await process.wait()
        return process.returncode or 0, out, err

    async def close(self) -> None:
        """Do nothing: every program ended with its reply."""


async def _said(stream: asyncio.StreamReader) -> bytes:
    """All that a program writes. Raises :class:`ModelError` for more than any answer has."""
    said = b""
    while part := await stream.read(1 << 20):
        said += part
        if len(said) > MOST_SAID:
            raise ModelError(f"the program wrote more than {MOST_SAID >> 20} MiB", retry=True)
    return said


def render(messages: Sequence[Message]) -> str:
    """Render the conversation as text."""
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return "\n\n".join(f"### {message.role}\n{message.content}" for message in messages) + "\n\n### assistant\n"


# ---- ``script:PATH``: replies from a file or a directory, for tests and demonstrations
#
# A ``.jsonl`` file holds one object per line: ``reply``, and optionally the conditions ``task`` (an id, or its part
# after a slash), ``sample`` and ``turn``; an omitted condition matches everything. Of the lines that match, the one
# with the most conditions wins, then the first. A directory holds ``turn1.md``, ``turn2.md``, ... for every task; a
# folder in it named after the last part of a task's id holds the same files for that task. Asking past the last turn is
# an error.


class ScriptLine(Config):
    """One reply and the conditions under which it is used."""

    reply: str
    task: str | None = Field(None, description="the task's id, or its end after a slash")
    sample: int | None = Field(None, ge=0)
    turn: int | None = Field(None, ge=1)

    def matches(self, call: ModelCall) -> bool:
        """Return whether this line may answer ``call``."""
        named = self.task is None or call.task_id == self.task or call.task_id.endswith("/" + self.task)
        return named and self.sample in (None, call.sample) and self.turn in (None, call.turn)

    @property
    def says(self) -> int:
        """How many of the three conditions the line states."""
        return sum(value is not None for value in (self.task, self.sample, self.turn))


class ScriptModel:
    """Answers with replies read from files. Raises :class:`ConfigError` for a path without any."""

    def __init__(self, path: str | Path):
        self.name = f"script:{path}"
        self._lines = _read(Path(path))

    async def complete(self, call: ModelCall) -> Reply:
        """Answer with the line that matches most specifically. Raises :class:`ModelError` when none matches."""
        fitting = [line for line in self._lines if line.matches(call)]
        if not fitting:
            raise ModelError(f"{self.name} holds no reply for task {call.task_id}, turn {call.turn}")
        text = max(fitting, key=lambda line: line.says).reply
        return Reply(text=text, usage=estimated_usage(call, text), model=self.name)

    async def close(self) -> None:
        """Do nothing: no file stays open."""


def _read(path: Path) -> list[ScriptLine]:
    lines = _directory(path) if path.is_dir() else list(read_jsonl(path, ScriptLine, torn=False))
    if not lines:
        raise ConfigError(f"{path} holds no reply: give a .jsonl file, or a directory of turn1.md, turn2.md, ...")
    return lines


def _directory(path: Path) -> list[ScriptLine]:
    found = []
    for file in sorted(path.rglob("turn*.md")):
        number = re.fullmatch(r"turn(\d+)\.md", file.name)
        if number is not None:
            task = "/".join(file.parent.relative_to(path).parts) or None
            found.append(ScriptLine(reply=file.read_text(encoding="utf-8"), task=task, turn=int(number[1])))
    return found


# ---- ``agent:COMMAND``
#
# A model answers a conversation; an agent leads its own. Each of its evaluations is one turn here, so that what it did
# is recorded, bounded and compared like any model's turns: at equal numbers of evaluations. The program finds
# ``TASK.md``, ``reference.py`` and ``./evaluate FILE`` in its folder. ``evaluate`` hands the file to this process over
# a socket and waits for the verdict; the agent neither grades nor counts. When the program ends, what it has left in
# ``answer.py`` is its last turn, if that was not its last evaluation anyway.


MAX_SOURCE = 1 << 20
"""bytes of one attempt"""
SOCKET = ".socket"
OVER: dict[str, Any] = {"text": "This was the last evaluation.", "status": "over", "used": -1}
LOG_TAIL = 2000
"""bytes of the agent's own output that an error quotes"""


class AgentTerms(Config):
    """The limits of an agent: time, and what its sandbox lets it reach."""

    seconds: float = Field(1800.0, gt=0, description="wall seconds of an agent for one trajectory, grading included")
    sandbox: Literal["none", "folder", "offline"] = Field(
        "none",
        description="none: the user's rights; folder: it writes to its folder and `writable` alone; offline: nor does "
        "it reach the network over TCP",
    )
    writable: tuple[str, ...] = Field((), description="further folders that a sandboxed agent may write to")


class AgentModel:
    """Runs one process for each trajectory, and keeps it between turns.

    Raises:
        ConfigError: the command cannot be split, or the kernel lacks what the sandbox needs.
    """

    def __init__(self, command: str, terms: AgentTerms = AgentTerms()):
        self.name = f"agent:{command}"
        self._argv = _split(command, "agent:./my_agent")
        if terms.sandbox != "none" and not seccomp.abi():
            raise ConfigError(f"agent.sandbox={terms.sandbox} needs Landlock, which this kernel does not offer")
        self._terms = terms
        self._sessions: dict[tuple[str, int], AgentSession] = {}

    async def complete(self, call: ModelCall) -> Reply:
        """Give the agent the verdict on its last attempt, and wait for the next one.

        Raises:
            ModelError: the program cannot be started, or failed before its first attempt.
            Finished: the agent has left its answer.
        """
        key = (call.task_id, call.sample)
        if key not in self._sessions:
            self._sessions[key] = await AgentSession.start(self._argv, call, self._terms)
        return await self._sessions[key].next(call, self.name)

    async def leave(self, task_id: str, sample: int) -> None:
        """End the agent of a trajectory that is over."""
        session = self._sessions.pop((task_id, sample), None)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """End every agent."""
        for key in list(self._sessions):
            await self.leave(*key)


@dataclass
class Attempt:
    """A module that the agent wants graded."""

    source: str
    answered: asyncio.Future[dict[str, Any]]


@dataclass
class AgentSession:
    """One agent at work."""

    folder: Path
    process: asyncio.subprocess.Process
    server: asyncio.Server
    attempts: asyncio.Queue[Attempt]
    ends: float
    """time.monotonic() at which its time is up"""
    used: int
    """evaluations before the next one"""
    waiting: Attempt | None = None
    """the attempt that is being graded"""
    last: str = ""
    """source of the last attempt"""
    finished: str | None = None
    """why it makes no more attempts"""

    @staticmethod
    async def start(argv: list[str], call: ModelCall, terms: AgentTerms) -> AgentSession:
        """Make the folder and start the program in it. Raises :class:`ModelError`."""
        folder = Path(tempfile.mkdtemp(prefix="drkernel-agent-"))
        attempts: asyncio.Queue[Attempt] = asyncio.Queue()
        server = await asyncio.start_unix_server(_listener(attempts), folder / SOCKET, limit=2 * MAX_SOURCE)
        furnish(folder, call, terms)
        env = {
            **os.environ, "DRKERNEL_TASK": call.task_id, "DRKERNEL_SAMPLE": str(call.sample),
            "DRKERNEL_SECONDS": f"{terms.seconds:g}", "TMPDIR": str(folder),
        }  # fmt: skip
        try:
            with (folder / "agent.log").open("wb") as log, (folder / "TASK.md").open("rb") as prompt:
                process = await asyncio.create_subprocess_exec(
                    *command_line(argv, folder, terms), cwd=folder, env=env, stdin=prompt, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            server.close()
            remove_tree(str(folder))
            raise ModelError(f"cannot start {argv[0]}: {error.strerror}", final=True) from error
        return AgentSession(folder, process, server, attempts, time.monotonic() + terms.seconds, len(call.shown))

    async def next(self, call: ModelCall, name: str) -> Reply:
        """Answer the attempt under way from the turn that came of it; return the next one."""
        started = time.monotonic()
        self.used = len(call.shown)
        if self.waiting is not None and call.shown:
            turn = call.shown[-1]
            said = {"text": turn.feedback, "status": turn.status, "used": self.used}
            if not self.waiting.answered.done():
                self.waiting.answered.set_result(said)
            self.waiting = None
        source = await self._attempt()
        text = f"~~~~~~python\n{source}\n~~~~~~"  # a fence that no module contains
        return Reply(text=text, usage=estimated_usage(call, text), model=name, seconds=time.monotonic() - started)

    async def _attempt(self) -> str:
        """Wait for an attempt, the program's end or the end of its time; return the source of the next turn."""
        if self.finished is not None:
            raise Finished(self.finished)
        getting, ending = asyncio.ensure_future(self.attempts.get()), asyncio.ensure_future(self.process.wait())
        try:
            left = max(0.0, self.ends - time.monotonic())
            await asyncio.wait({getting, ending}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                self.waiting = getting.result()
                self.last = self.waiting.source
                return self.last
        finally:
            getting.cancel()
            ending.cancel()
        return self._left()

    def _left(self) -> str:
        """Return what the agent has left in ``answer.py``. Raises :class:`Finished` when that is graded already."""
        code = self.process.returncode
        self.finished = "its time is up" if code is None else f"it ended with code {code}"
        source = _part(self.folder / "answer.py", 0, MAX_SOURCE)
        if source.strip() and source != self.last:
            self.last = source
            return source
        if not self.last and not self.used:
            tail = _part(self.folder / "agent.log", -LOG_TAIL, LOG_TAIL).strip()
            raise ModelError(f"the agent made no attempt, {self.finished}: {(tail.splitlines() or ['no output'])[-1]}")
        raise Finished(self.finished)

    async def close(self) -> None:
        """End the program and all it has started, and remove the folder."""
        if self.waiting is not None and not self.waiting.answered.done():
            self.waiting.answered.set_result(OVER)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()
        self.server.close()
        remove_tree(str(self.folder))


def _part(path: Path, start: int, size: int) -> str:
    """A part of what an agent has written, perhaps terabytes, no link or pipe; ``start`` below 0 is from the end."""
    with suppress(OSError), open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if stat.S_ISREG((found := os.fstat(file.fileno())).st_mode):
            file.seek(start if start >= 0 else max(0, found.st_size + start))
            return file.read(size).decode("utf-8", "replace")
    return ""


def _listener(attempts: asyncio.Queue[Attempt]) -> Any:
    slots = asyncio.Semaphore(MOST_LINKS)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if slots.locked():
                raise ValueError(f"{MOST_LINKS} others wait")
            async with slots:
                source = json.loads(await reader.readline())["source"]
                if not isinstance(source, str) or len(source) > MAX_SOURCE:
                    raise ValueError(f"a module is text of at most {MAX_SOURCE} characters")
                attempt = Attempt(source, asyncio.get_running_loop().create_future())
                await attempts.put(attempt)
                said = await attempt.answered
        except asyncio.CancelledError:  # the run is over
            said = OVER
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            said = {"text": f"no module was received: {error}", "status": "error", "used": -1}
        with suppress(OSError):
            writer.write(json.dumps(said).encode())
            await writer.drain()
            writer.close()

    return listen


# ---- the folder

_TASK = """{task}

---

You are an agent with a working folder. Files: `reference.py` (the module to beat), `TASK.md` (this text).

To have a module graded, write it to a file and run:

    ./evaluate FILE.py

It prints the verdict (exit code 0: correct, 1: not). Evaluations are counted and limited to {turns}; the time is
limited to {seconds:.0f} seconds. Your answer is the module that you evaluate last: leave it in `answer.py` when you
stop. If that file holds another module than the last one evaluated, it is evaluated too, and counts as one more.
"""

_EVALUATE = """#!{python} -I
import contextlib, json, socket, sys
if len(sys.argv) != 2:
    sys.exit("usage: ./evaluate FILE.py")
line = json.dumps({{"source": open(sys.argv[1], encoding="utf-8").read()}}) + "\\n"
link = socket.socket(socket.AF_UNIX)
link.connect({socket!r})
with contextlib.suppress(OSError):  # refused before it was read: the answer says why
    link.sendall(line.encode())
said = json.loads(b"".join(iter(lambda: link.recv(65536), b"")))
print(said["text"])
if said["used"] >= 0:
    print("evaluations used:", said["used"])
sys.exit(0 if said["status"] == "correct" else 1)
"""


def furnish(folder: Path, call: ModelCall, terms: AgentTerms) -> None:
    """Write what the agent finds in its folder: the task, the reference, ``evaluate``, and the attempts of an earlier
    process when a run is taken up again."""
    task = "\n\n".join(message.content for message in call.opening)
    (folder / "TASK.md").write_text(_TASK.format(task=task, turns=call.turns, seconds=terms.seconds), encoding="utf-8")
    (folder / "reference.py").write_text(call.reference() if call.reference else "", encoding="utf-8")
    script = folder / "evaluate"
    script.write_text(_EVALUATE.format(python=sys.executable, socket=str(folder / SOCKET)), encoding="utf-8")
    script.chmod(0o755)
    for turn in call.shown:
        earlier = folder / "earlier"
        earlier.mkdir(exist_ok=True)
        (earlier / f"{turn.number}.py").write_text(turn.code or turn.reply.text, encoding="utf-8")
        (earlier / f"{turn.number}.txt").write_text(turn.feedback, encoding="utf-8")


_CONFINED = (
    "import json, sys; spec = json.loads(sys.argv[1]); sys.path[:0] = spec.pop('paths'); "
    "from drkernel.gym.sandbox.seccomp import execute; execute(**spec)"
)


def _whole(word: str) -> str:
    path = Path(word)  # links are kept: an environment's python is one, and finds its packages by its own path
    return str(path.absolute()) if path.is_file() or ("/" in word and path.exists()) else word


def command_line(argv: Sequence[str], folder: Path, terms: AgentTerms) -> list[str]:
    """Return the command that starts the agent in ``folder``, behind its sandbox. Files and paths that the command
    names, as seen from this process's folder, are given whole."""
    words = [_whole(word) for word in argv]
    if terms.sandbox == "none":
        return words
    spec = {
        "paths": import_paths(), "argv": words, "writable": [str(folder), *terms.writable],
        "network": terms.sandbox == "folder",
    }  # fmt: skip
    return [sys.executable, "-I", "-c", _CONFINED, json.dumps(spec)]
