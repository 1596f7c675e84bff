"""The runner, inside the untrusted process: loads one candidate, answers the judge's requests, then dies.

Nothing here decides anything: the judge checks every answer, and the numbers it uses come from the device, not from
here. Once the candidate is loaded, everything in this process may be under its control.
"""

import contextlib
import functools
import importlib.util
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from drkernel.gym.runner.values import Granted, pack, unpack
from drkernel.sim.wire.frames import ConnectionLost, receive, send

CANDIDATE_FILE = "candidate.py"
_MAX_TEXT = 20_000
_MOST_BITS = 4096
"""most bits of a returned integer: one of thousands of digits cannot be written as JSON, and no tensor holds it"""


class Runner:
    """Runs one candidate, once."""

    def __init__(self, channel: socket.socket, link: Any, scratch: str):
        self._channel = channel
        self._link = link
        self._path = os.path.join(scratch, CANDIDATE_FILE)
        self._source = ""
        self._importing = False
        self._module: Any = None
        self._tensors: dict[int, torch.Tensor] = {}
        self._standing_by: tuple[Any, ...] = ()
        self.data = bytearray()
        """bytes that accompany the answer"""

    def commands(self) -> dict[str, Any]:
        """The commands that the judge may send."""
        return {
            "load": self._load,
            "stand_by": self._stand_by,
            "prefer": self._prefer,
            "load_state": self._load_state,
            "state": self._tensors_of_state,
            "mode": self._mode,
            "call": self._call,
            "release": self._release,
        }

    def serve(self) -> None:
        """Answer requests until the judge goes away. Each answer carries the request's nonce."""
        commands = self.commands()
        while True:
            self.data = bytearray()
            try:
                header, payload = receive(self._channel)
            except ConnectionLost:
                return
            answer: dict[str, Any]
            try:
                answer = {"ok": commands[header["do"]](header, payload)}
            except BaseException as error:  # SystemExit and KeyboardInterrupt of the candidate are its errors too
                answer = {"error": self._explained(error)}
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # the candidate may have put anything in their place
                    stream.flush()
            send(self._channel, {**answer, "nonce": header["nonce"]}, self.data if "ok" in answer else b"")

    def _explained(self, error: BaseException) -> dict[str, Any]:
        """The exception as :func:`explain` describes it; one whose class resists that is a failure like any other."""
        try:
            return explain(error, self._path, self._source, loading=self._importing)
        except BaseException:
            message = "an exception whose class does not let it be described"
            nothing = {"traceback": None, "line": None}
            return {"kind": "runtime_error", "type": "Exception", "message": message, **nothing}

    def _load(self, header: dict[str, Any], payload: bytearray) -> Any:
        self._source = header["source"]
        with open(self._path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(self._source)
        args, kwargs = unpack(header["args"], payload)
        torch.backends.cudnn.allow_tf32 = bool(header["conv_tf32"])
        self._importing = True
        module = _import(self._path)
        self._importing = False
        if not hasattr(module, "ModelNew"):
            raise CompileError("the source defines no class ModelNew")
        model = self._construct(module.ModelNew, args, kwargs, header)
        self._module = self._place(model) if isinstance(model, torch.nn.Module) else model
        if not callable(self._module):
            raise TypeError(f"ModelNew makes a {type(model).__name__}, which cannot be called")
        own = loads_itself(self._module)
        return {"type": type_name(self._module), "parameters": self._parameters(), "own": own}

    def _construct(self, new: Any, args: list[Any], kwargs: dict[str, Any], header: dict[str, Any]) -> Any:
        """Build the module; its tensors are made on the device when that is requested and the constructor allows it."""
        if header.get("built_there"):
            with contextlib.suppress(Exception), torch.device("cuda"):
                return new(*args, **kwargs)
        torch.default_generator.manual_seed(header["seed"])  # the host's; the device's is seeded by the judge
        return new(*args, **kwargs)

    def _stand_by(self, header: dict[str, Any], payload: bytearray) -> Any:
        """Put what is loaded aside, for the candidate to be loaded once more; or back."""
        if header["on"]:
            self._standing_by = self._module, self._tensors, sys.modules.get("candidate")
            self._module, self._tensors = None, {}
        else:
            self._module, self._tensors, sys.modules["candidate"] = self._standing_by

    def _prefer(self, header: dict[str, Any], payload: bytearray) -> Any:
        prefer(header["choices"])

    def _place(self, model: torch.nn.Module) -> torch.nn.Module:
        return model.cuda()

    def _state(self) -> dict[str, torch.Tensor]:
        state = self._module.state_dict() if isinstance(self._module, torch.nn.Module) else {}
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}

    def _parameters(self) -> Any:
        return {
            name: {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
            for name, value in self._state().items()
        }

    def _load_state(self, header: dict[str, Any], payload: bytearray) -> Any:
        given, state = unpack(header["state"], payload), self._state()
        if unknown := sorted(set(given) - set(state)):
            raise KeyError(f"the module has no state named {', '.join(unknown[:10])}")
        with torch.no_grad():
            if loads_itself(self._module):
                self._module.load_state_dict(given, strict=False)
                return None
            for name, value in given.items():
                if value.shape != state[name].shape:
                    raise ValueError(f"{name} has shape {tuple(state[name].shape)}, not {tuple(value.shape)}")
                state[name].copy_(value)
        return None

    def _tensors_of_state(self, header: dict[str, Any], payload: bytearray) -> Any:
        state = self._state()
        return {"outputs": [self._describe_tensor(state[name]) for name in header["names"]]}

    def _mode(self, header: dict[str, Any], payload: bytearray) -> Any:
        if isinstance(self._module, torch.nn.Module):
            self._module.train(header["training"])
        return None

    def _call(self, header: dict[str, Any], payload: bytearray) -> Any:
        inputs = tree_map(self._argument, unpack(header["inputs"], payload))
        with torch.no_grad():
            result = self._module(*inputs)
        outputs: list[Any] = []
        self._describe(result, outputs, 0)
        return {"outputs": outputs, "type": type_name(result)}

    def _argument(self, value: Any) -> Any:
        """A granted tensor (always the same object for one handle) or a plain value."""
        if not isinstance(value, Granted):
            return value
        if value.spec.handle not in self._tensors:
            self._tensors[value.spec.handle] = self._link.wrap(value.spec)
        return self._tensors[value.spec.handle]

    def _describe(self, value: Any, outputs: list[Any], depth: int) -> None:
        if isinstance(value, (tuple, list)) and depth < 8:
            for item in value:
                self._describe(item, outputs, depth + 1)
        elif isinstance(value, dict) and depth < 8:
            for key in sorted(value, key=str):
                self._describe(value[key], outputs, depth + 1)
        elif isinstance(value, torch.Tensor):
            outputs.append(self._describe_tensor(value.resolve_conj().resolve_neg()))
        elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
            outputs.append({"type": type_name(value)})
        elif value is None or isinstance(value, (bool, int, float)):
            outputs.append({"value": pack(value)[0], "type": type_name(value)})
        else:
            outputs.append({"type": type_name(value)})

    def _describe_tensor(self, value: torch.Tensor) -> dict[str, Any]:
        handle = getattr(value, "_handle", None)
        return {
            "handle": handle if isinstance(handle, int) else None,
            "type": type_name(value),
            "shape": list(value.shape),
            "stride": list(value.stride()) if value.layout == torch.strided else [],
            "dtype": str(value.dtype).removeprefix("torch."),
            "device": str(value.device),
        }

    def _release(self, header: dict[str, Any], payload: bytearray) -> Any:
        for handle in header["handles"]:
            self._tensors.pop(handle, None)
        return None


def loads_itself(module: Any) -> bool:
    """Whether some step of loading its state, or that of a module below it, is not PyTorch's own."""
    steps: list[Any] = []
    for one in module.modules() if isinstance(module, torch.nn.Module) else ():
        hooks = [*one._load_state_dict_pre_hooks.values(), *one._load_state_dict_post_hooks.values()]
        steps += [one.load_state_dict, one._load_from_state_dict, *(getattr(hook, "hook", hook) for hook in hooks)]
    return not all(str(step.__module__).startswith("torch.") for step in steps)


class CompileError(Exception):
    """The source does not define what is required."""


def _import(path: str) -> Any:
    """Import the candidate as a module of its own, whose file is named alike in all sessions: a kernel's text has that
    name in it, and what is known of a text (price, registers) is looked up by it."""
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    with open(path, "rb") as file:
        code = compile(file.read(), CANDIDATE_FILE, "exec", dont_inherit=True)
    exec(code, vars(module))
    return module


def type_name(value: Any) -> str:
    """Return the name of a value's class, cut to a bounded length."""
    return type(value).__name__[:100]


# ---- errors as a person can use them


def explain(error: BaseException, path: str, source: str, *, loading: bool = False) -> dict[str, Any]:
    """Describe an exception: kind, type, message, the candidate's own frames, and the line of the source.

    ``loading``: it was raised while the source's top level ran, so the candidate cannot be loaded at all.
    """
    try:
        message = str(error)
    except Exception as second:
        message = f"(its message could not be made: {type(second).__name__})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == CANDIDATE_FILE]
    line = frames[-1].lineno if frames else None
    if isinstance(error, SyntaxError) and error.filename == CANDIDATE_FILE:
        line = error.lineno
        frames = []
        message = f"{error.msg}\n    {(error.text or '').strip()}".rstrip()
    line = _kernel_line(error, source) or line
    text = "".join(f'  File "{CANDIDATE_FILE}", line {f.lineno}, in {f.name}\n    {f.line}\n' for f in frames)
    return {
        "kind": _kind_of(error, loading),
        "type": type(error).__name__[:200],
        "message": message.replace(path, CANDIDATE_FILE)[:_MAX_TEXT],
        "traceback": text[-_MAX_TEXT:] or None,
        "line": line,
    }


def _kind_of(error: BaseException, loading: bool) -> str:
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"}:
        return "out_of_memory"
    if loading or isinstance(error, (CompileError, SyntaxError)):
        return "compile_error"
    if isinstance(error, RuntimeError) and str(error).startswith("Error building extension"):  # cpp_extension's
        return "compile_error"
    return "compile_error" if names & {"CompilationError", "CompileTimeAssertionFailure"} else "runtime_error"


def _kernel_line(error: BaseException, source: str) -> int | None:
    """The source line of an error of Triton's compiler, which counts from the top of the kernel."""
    kernel, number = getattr(error, "src", None), getattr(getattr(error, "node", None), "lineno", None)
    if not isinstance(kernel, str) or not isinstance(number, int):
        return None
    start = source.find(kernel.strip())
    return source[:start].count("\n") + number if start >= 0 else None


# ---- tuning


Wanted = tuple[str, dict[str, str], int, int]
"""kernel, constexprs by name as text, warps, stages"""


def prefer(wanted: Sequence[Any]) -> None:
    """Restrict every tuner of this process to the wanted configurations among its own, if it has any."""
    from triton.runtime.autotuner import Autotuner

    choices: list[Wanted] = [(str(name), dict(given), int(warps), int(stages)) for name, given, warps, stages in wanted]
    original = Autotuner.prune_configs

    @functools.wraps(original)
    def prune_configs(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        kept = original(tuner, *args, **kwargs)
        name = tuner.base_fn.__name__
        return [config for config in kept if any(_is(name, config, choice) for choice in choices)] or kept

    Autotuner.prune_configs = prune_configs


def _is(kernel: str, config: Any, choice: Wanted) -> bool:
    name, constexprs, warps, stages = choice
    same = name == kernel and all(constexprs.get(key) == repr(value) for key, value in config.kwargs.items())
    return same and config.num_warps == warps and config.num_stages == stages
