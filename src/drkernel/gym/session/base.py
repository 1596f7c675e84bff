"""The base of all sessions: requests to the runner, the deadline, and the reason why a session ended.

``simulated.SimulatedSession`` adds a GPU owned by the judge, ``cuda.CudaSession`` a real one controlled by the runner.
"""

import contextlib
import secrets
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self, TypeVar, Unpack

import torch

from drkernel.gym.device import Observable, parse_device
from drkernel.gym.request import EvalSettings
from drkernel.gym.runner.launcher import JobHandle, Launcher
from drkernel.gym.runner.values import pack, unpack
from drkernel.gym.session.protocol import (
    CallResult,
    CallTerms,
    Choice,
    ErrorKind,
    LoadResult,
    Output,
    ParameterSpec,
    SessionError,
)
from drkernel.sim.process.control_socket import Form
from drkernel.sim.wire.commands import DTYPES, ProtocolError
from drkernel.sim.wire.frames import MAX_DIMENSIONS, ConnectionLost, receive, send
from drkernel.tasks.sharing import TensorMemory
from drkernel.verdict import CandidateError, ObservedBy, SandboxReport

MAX_ANSWER = 4 << 20
"""most bytes of an answer's header"""
MAX_OUTPUTS = 256
MAX_STATE, MAX_NAME = 65536, 1000
"""entries of a state dict, and characters of a name in it"""
MALFORMED = (
    KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, StopIteration,
)  # fmt: skip
"""exceptions that reading a malformed message may raise; little of the judge's own code runs between message and
record"""
EXIT_SECONDS = 5.0
"""how long a process may take to end after its socket has closed: its memory is freed first"""
_OVER = {"own": "allowed", "all": "there is for all evaluations together, and most of all of them"}
T = TypeVar("T")


class JobSession(ABC):
    """One candidate in one runner. A context manager; methods are for one thread, except :meth:`kill`, which may come
    from any.

    Every method blocks at most until the session's deadline, and raises :class:`SessionError` for whatever a candidate
    does.
    """

    def __init__(self, launcher: Launcher, settings: EvalSettings, job: JobHandle):
        self._launcher = launcher
        self._settings = settings
        self.device = parse_device(job.terms.device)
        self.most_output_bytes = settings.memory_bytes
        """most bytes of a call's outputs that are transferred; beyond it an output is only described"""
        self.starts_from: dict[str, torch.Tensor] = {}
        """state that calls change, as it is to be before every call"""
        self._left = settings.deadline_s
        self._over: SessionError | None = None
        self._meanwhile: list[Callable[[], None]] = []
        self._closed = threading.Event()
        self._greeted = False
        """the runner has started; until then nothing is the candidate's doing"""
        self._job = job
        job.output_limit = settings.max_output_bytes
        self._sandbox = SandboxReport()
        try:
            self._sandbox = self._timed(self._hello)
            self._greeted = True
        except SessionError:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def observes(self) -> Mapping[Observable, ObservedBy]:
        """The observables of this candidate here, with the side that observes them; anything missing goes unchecked."""
        return self.device.observes

    # ---- what each kind of device does in its own way

    @abstractmethod
    def call(self, arguments: Sequence[Any], **terms: Unpack[CallTerms]) -> CallResult:
        """Call the module.

        A ``torch.Tensor`` among the arguments (also in lists, tuples, dicts) is put on the device, in a new allocation
        each time. An ``int`` that is a live handle means that tensor; see :class:`Plain` for a literal number.
        """

    @abstractmethod
    def put(self, tensor: torch.Tensor) -> int:
        """Copy a host tensor into a new allocation on the device; returns its handle."""

    @abstractmethod
    def write(self, handle: int, tensor: torch.Tensor) -> None:
        """Replace the contents of an input in place: same handle, same address, same object in the runner."""

    @abstractmethod
    def read(self, handle: int) -> torch.Tensor:
        """Return a tensor's current contents: an input, or an output of any call that is not released yet."""

    @abstractmethod
    def region(self, handle: int) -> TensorMemory | None:
        """Return an input's memory region; None where only the runner knows it."""

    @abstractmethod
    def state(self, forms: Mapping[str, Form]) -> dict[str, Output]:
        """Return the current contents of entries of the candidate's state dict that have the requested form."""

    @abstractmethod
    def changed(self) -> list[int]:
        """Return the handles of outputs whose bytes changed since the call that returned them."""

    @abstractmethod
    def release(self, handles: Iterable[int]) -> None:
        """Release inputs and outputs."""

    def without_data(self) -> AbstractContextManager[None]:
        """In the block a second module of the candidate, still to be loaded, runs on a device without data, for as long
        as a session may; the first stands by, and goes on afterwards unless the session has ended."""
        raise NotImplementedError("a real GPU has data")

    # ---- the candidate

    def load(
        self,
        source: str,
        init_args: list[Any],
        init_kwargs: dict[str, Any],
        *,
        seed: int,
        conv_tf32: bool = False,
        built_there: bool = False,
    ) -> LoadResult:
        """Import the source, seed torch, construct ``ModelNew(*init_args, **init_kwargs)`` and put it on the device.

        ``conv_tf32``: fp32 convolutions of the library multiply in TF32, which the task's precision must allow.
        ``built_there``: what the constructor makes is made on the device, where it costs the host nothing; on the host
        after all where it does not work so.
        """
        self._before_load(source, conv_tf32)
        data, payload = pack([list(init_args), dict(init_kwargs)])
        with self._serving(seed, conv_tf32):
            start = time.monotonic()
            terms = {"source": source, "args": data, "seed": seed, "conv_tf32": conv_tf32, "built_there": built_there}
            answer = self._ask({"do": "load", **terms}, payload)
            seconds = time.monotonic() - start
        return self._checked(
            lambda: LoadResult(
                str(answer["type"])[:100], _parameters(answer["parameters"]), seconds, bool(answer["own"])
            )
        )

    def _before_load(self, source: str, conv_tf32: bool) -> None:  # noqa: B027 most kinds need not know
        """Note what the judge's side of a session needs to know about a candidate."""

    def prefer(self, choices: Sequence[Choice]) -> None:
        """Have Triton's tuner choose among these, where it has the choice."""
        wanted = [[one.kernel, one.constexprs, one.num_warps, one.num_stages] for one in choices]
        self._ask({"do": "prefer", "choices": wanted})

    def load_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """Copy values into parameters and buffers in place, or have a module load them that does so in its own way.
        Names not given keep theirs; unknown names are an error."""
        data, payload = pack(dict(tensors))
        with self._serving():
            self._ask({"do": "load_state", "state": data}, payload)

    def _begin_again(self) -> None:
        """Put back state that an earlier call may have changed."""
        if self.starts_from:
            self.load_state(self.starts_from)

    def set_mode(self, training: bool) -> None:
        """``module.train(training)``, where the candidate is a module."""
        with self._serving():
            self._ask({"do": "mode", "training": training})

    def limit(self, seconds: float) -> None:
        """Limit the candidate to this many more seconds."""
        self._left = min(self._left, seconds)

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do ``work``, which must not raise, once the next request is sent; it does not count against the candidate's
        time."""
        self._meanwhile.append(work)

    def _serving(self, seed: int | None = None, conv_tf32: bool | None = None) -> AbstractContextManager[None]:
        """Let the device serve the candidate during the block, outside a call.

        On a simulated device, the judge sets ``seed``, for its generator, and ``conv_tf32``; the runner cannot.
        """
        return contextlib.nullcontext()

    # ---- what is known about the job

    def report(self) -> SandboxReport:
        """The sandbox layers that are on."""
        return self._sandbox

    def stdout(self) -> str:
        """The candidate's output so far, truncated to the settings' limit."""
        self._launcher.drain(self._job)
        text = bytes(self._job.text).decode(errors="replace")
        return f"{text}\n... {self._job.dropped} more bytes" if self._job.dropped else text

    @property
    def job(self) -> JobHandle:
        """The processes behind the session."""
        return self._job

    def kill(self) -> None:
        """End the session and kill everything the candidate has started. Safe from any thread, and repeatedly."""
        if not self._closed.is_set():
            self._closed.set()
            self._launcher.kill(self._job)

    # ---- asking

    def _hello(self) -> SandboxReport:
        message, _ = receive(self._job.result, deadline=self._deadline(), max_header=MAX_ANSWER, max_payload=0)
        if "failed" in message:
            raise self._end("infra_error", "RunnerNotStarted", str(message["failed"])[:20_000])
        try:
            return SandboxReport(layers=tuple(message["layers"]), missing=message["missing"])
        except MALFORMED as error:
            raise ProtocolError(f"malformed greeting: {error}") from None

    def _ask(self, header: dict[str, Any], payload: bytes = b"") -> Any:
        """Send one request to the runner and return its answer's ``ok``."""
        return self._ask_for_data(header, payload)[0]

    def _ask_for_data(
        self, header: dict[str, Any], payload: bytes = b"", *, most_bytes: int = 0
    ) -> tuple[Any, bytearray]:
        """Send one request; return the answer with the bytes that came along, at most ``most_bytes``."""

        def exchange() -> tuple[dict[str, Any], bytearray]:
            nonce = secrets.token_hex(16)
            deadline = self._deadline()
            send(self._job.result, {**header, "nonce": nonce}, payload, deadline=deadline)
            deadline += self._work_meanwhile()
            answer, data = receive(self._job.result, deadline=deadline, max_header=MAX_ANSWER, max_payload=most_bytes)
            if not isinstance(answer, dict) or answer.get("nonce") != nonce:
                raise ProtocolError("an answer without the request's nonce")
            return answer, data

        answer, data = self._timed(exchange)
        if "error" in answer:
            raise self._failed(answer["error"])
        return answer.get("ok"), data

    def _work_meanwhile(self) -> float:
        """Do the pending work while the candidate works; return its seconds, which are credited to the candidate."""
        pending, self._meanwhile = self._meanwhile, []
        if not pending:
            return 0.0
        start = time.monotonic()
        for work in pending:
            work()
        spent = time.monotonic() - start
        self._left += spent
        return spent

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit the block's requests to ``seconds`` of the remaining time; exceeding it ends the session."""
        kept = max(0.0, self._left - seconds)
        self._left -= kept
        try:
            yield
        finally:
            self._left += kept

    @property
    def over(self) -> bool:
        """Whether the session has ended, so that nothing more can be requested."""
        return self._over is not None

    def _deadline(self) -> float:
        return time.monotonic() + self._left

    def _timed(self, step: Callable[[], T]) -> T:
        """Run a step that waits for the candidate's processes: only that waiting counts against the deadline."""
        if self._over is not None:
            raise self._over
        start = time.monotonic()
        try:
            return step()
        except TimeoutError:
            raise self._end(
                "timeout", "Timeout", f"the candidate took longer than {self._settings.deadline_s:g} s"
            ) from None
        except ConnectionLost:
            raise self._ended() from None
        except ProtocolError as error:
            raise self._end("tampering", "MalformedAnswer", str(error)) from None
        finally:
            self._left -= time.monotonic() - start

    def _checked(self, read: Callable[[], T]) -> T:
        """Parse an answer of the runner; anything malformed is tampering."""
        try:
            return read()
        except MALFORMED as error:
            why = f"{type(error).__name__}: {error}"[:500]
            raise self._end("tampering", "MalformedAnswer", f"malformed answer: {why}") from None

    def _failed(self, error: Any) -> SessionError:
        """Return the error that the runner reports the candidate raised."""

        def read() -> SessionError:
            kinds: dict[str, ErrorKind] = {
                "compile_error": "compile_error", "runtime_error": "runtime_error", "out_of_memory": "out_of_memory"
            }  # fmt: skip
            line = error["line"] if type(error["line"]) is int else 0
            return SessionError(
                kinds[error["kind"]],
                CandidateError(
                    type=str(error["type"])[:200],
                    message=str(error["message"])[:20_000],
                    traceback=None if error["traceback"] is None else str(error["traceback"])[:20_000],
                    line=line if 0 < line < 1 << 31 else None,
                ),
            )

        return self._checked(read)

    def _ended(self) -> SessionError:
        """Return the error for a process of the job that ended or closed its socket: which process, and why."""
        if self._closed.is_set():
            return self._end("infra_error", "Killed", "the session was ended from outside")
        exits = self._job.wait_for_exit(EXIT_SECONDS)
        runner, device = exits.get("runner"), exits.get("device")
        if not self._launcher.alive:
            return self._end("infra_error", "ZygoteLost", f"the zygote died\n{self._launcher.log()}")
        if self._job.failure is not None:
            return self._end("infra_error", "SpawnFailed", self._job.failure)
        if runner is None and device is not None:
            return self._of_device(device)
        if runner is None:
            return self._end("runtime_error", "ChannelClosed", "the candidate closed the channel to the judge")
        return self._of_runner(runner)

    def _of_device(self, event: dict[str, Any]) -> SessionError:
        if event["over_memory"]:
            message = f"device tensors took more memory than {_OVER[event['over_memory']]}"
            return self._end("out_of_memory", "OutOfMemoryError", message)
        what = describe_status(event["status"])
        if event["status"] == signal.SIGXCPU:
            return self._end("timeout", "Timeout", "the device used up its processor time on the candidate's commands")
        if event["status"] == signal.SIGKILL:
            return self._end("infra_error", "DeviceLost", f"the device process was ended from outside: {what}")
        # not infra_error: that would be retried and masked, and a candidate could ask for it
        return self._end(
            "runtime_error", "DeviceCrash", f"a command of the candidate crashed the device process: {what}"
        )

    def _of_runner(self, event: dict[str, Any]) -> SessionError:
        status = event["status"]
        if event["over_memory"]:
            limit = f"its limit of {self._settings.memory_bytes >> 20} MiB"
            limit = limit if event["over_memory"] == "own" else _OVER["all"]
            message = f"the candidate took more memory than {limit}"
            return self._end("out_of_memory", "OutOfMemoryError", message)
        if status == signal.SIGXCPU or event["over_time"]:
            return self._end("timeout", "Timeout", "the candidate used up its processor time")
        what = describe_status(status)
        if status == 0:
            what = "exited early: the process ended with code 0 before its answer"
        return self._end("runtime_error", what.split(":")[0].split(" ")[0] if status else "ExitedEarly", what)

    def _end(self, kind: ErrorKind, name: str, message: str) -> SessionError:
        """Make the error that ends the session, and end it."""
        if not self._greeted:
            kind, message = "infra_error", f"the runner did not start: {message}"
        self._over = self._over or SessionError(kind, CandidateError(type=name, message=message))
        self.kill()
        return self._over


class OpensSessions(Protocol):
    """The session factory's interface that the judge needs."""

    def open(self, settings: EvalSettings) -> JobSession:
        """A fresh runner on the settings' device."""


def describe_status(status: int) -> str:
    """A wait status in words, the signal's name first."""
    if status & 0x7F:
        number = status & 0x7F
        with contextlib.suppress(ValueError):
            return f"{signal.Signals(number).name}: killed by signal {number}"
        return f"signal {number}"
    return f"exited with code {status >> 8}"


def _parameters(entries: Any) -> dict[str, ParameterSpec]:
    if len(entries) > MAX_STATE or any(len(name) > MAX_NAME for name in entries):
        raise ValueError("a state dict of more or longer names than any module has")
    return {
        str(name): ParameterSpec(sizes_of(entry["shape"]), DTYPES[entry["dtype"]]) for name, entry in entries.items()
    }


def sizes_of(sizes: Any) -> tuple[int, ...]:
    """A shape or strides that the runner claims. Raises ``ValueError`` for what no tensor has."""
    if not isinstance(sizes, list) or len(sizes) > MAX_DIMENSIONS:
        raise ValueError("sizes must be a list of a tensor's length")
    if any(type(size) is not int or not 0 <= size < 1 << 63 for size in sizes):
        raise ValueError("a size must be a number of 63 bits")
    return tuple(sizes)


def plain_of(data: Any) -> int | float | bool | None:
    """A returned number. Raises ``ValueError`` for anything else."""
    value = unpack(data, b"")
    if value is not None and not isinstance(value, (bool, int, float)):
        raise ValueError(f"an output of type {type(value).__name__} is no number")
    return value


def claims_of(answer: Any, most: int = MAX_OUTPUTS) -> list[dict[str, Any]]:
    """The runner's list of ``most`` outputs at most, checked for form."""
    claims = answer["outputs"]
    if not isinstance(claims, list) or not all(isinstance(claim, dict) for claim in claims):
        raise ValueError("outputs must be a list of objects")
    for handle in (claim.get("handle") for claim in claims):
        if handle is not None and (type(handle) is not int or not 0 <= handle < 1 << 63):
            raise ValueError("a handle must be a number of 63 bits")
    if len(claims) > most:
        raise ValueError(f"{len(claims)} outputs, more than {most}")
    return claims
