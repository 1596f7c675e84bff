"""Runs a script of untrusted origin on a simulated GPU, in a process confined like a candidate's.

``drkernel sim`` runs a user's own script with the user's rights. A script that an agent sends is run here instead: a
process of its own imports the simulator, forks, and the child is confined (the layers of ``docs/sandbox.md``) before
the script's first line. Device and script share that child, so that its report says what the script did as far as the
script lets it: good for mending a kernel, not for judging one.
"""

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from drkernel.config import Config
from drkernel.gym.runner import child, processes
from drkernel.gym.runner.launcher import clean_environment, import_paths
from drkernel.gym.sandbox import layers as sandbox
from drkernel.gym.sandbox import linux
from drkernel.gym.sandbox.linux import remove_tree
from drkernel.sim.script import ScriptReport

MAX_REPORT = 8 << 20
"""most bytes of a report that are read"""
START_S = 120.0
"""seconds allowed for the imports, on a busy machine"""
_BOOT = (
    "import json, sys; spec = json.load(sys.stdin); sys.path[:0] = spec.pop('paths'); "
    "from drkernel.gym.runner.confined_script import main; main(spec)"
)


class ScriptTerms(Config):
    """How a script is run."""

    gpu: str = Field("h200", description="the simulated GPU")
    checks: str = Field("auto", description="sanitizer: auto, full or off")
    no_data: bool = Field(False, description="count and model without data")
    deadline_s: float = Field(60.0, gt=0, description="seconds that the script may take")
    memory_bytes: int = Field(4 << 30, gt=0, description="memory that it may take")
    max_output_bytes: int = Field(16 << 10, ge=0, description="of what it prints, kept")


class ConfinedRun(Config):
    """The outcome of a script."""

    report: ScriptReport | None = Field(None, description="what the device saw; None where the script was ended")
    output: str = Field("", description="what the script printed, its beginning")
    ended: str | None = Field(None, description="why there is no report, in words")
    layers: tuple[str, ...] = Field((), description="layers of the sandbox that were on")
    missing: dict[str, str] = Field(default_factory=dict, description="layers that were not -> why")


def run_confined(source: str, terms: ScriptTerms = ScriptTerms(), name: str = "script.py") -> ConfinedRun:
    """Run ``source`` as a script called ``name``. Whatever it does is described in the result."""
    folder = tempfile.mkdtemp(prefix="drkernel-script-")
    os.chmod(folder, 0o711)
    spec = {"paths": import_paths(), "folder": folder, "name": name, "source": source, "terms": terms.model_dump()}
    command = linux.bound([sys.executable, "-I", "-c", _BOOT])  # no script outlives a server that is killed
    try:
        done = subprocess.run(
            command, input=json.dumps(spec), capture_output=True, text=True, cwd="/", env=clean_environment(),
            start_new_session=True, timeout=terms.deadline_s + START_S,
        )  # fmt: skip
        return ConfinedRun.model_validate_json(done.stdout)
    except subprocess.TimeoutExpired:
        return ConfinedRun(ended=f"nothing came of it in {terms.deadline_s + START_S:.0f} s")
    except ValidationError:
        last = done.stderr.strip().splitlines()[-1:] or [f"code {done.returncode}"]
        return ConfinedRun(ended=f"the process that runs scripts failed: {last[0]}")
    finally:
        remove_tree(folder)


# ---- in the process of its own


def main(spec: dict[str, Any]) -> None:
    """Confine a child, run the script in it, print a :class:`ConfinedRun` as JSON."""
    import torch

    torch.set_num_threads(1)
    terms = ScriptTerms.model_validate(spec["terms"])
    around = sandbox.prepare()
    limits = sandbox.RunnerLimits(memory_bytes=terms.memory_bytes, cpu_s=max(1, int(terms.deadline_s) + 1))
    scratch = _scratch(Path(spec["folder"]), limits, around)
    script = scratch / spec["name"]
    script.write_text(spec["source"], encoding="utf-8")
    if (uid := around.runner_uid(0)) is not None:
        os.chown(scratch, uid, uid)
    how = sandbox.Confinement(limits, str(scratch), uid, processes.address_space(os.getpid()), trusted=True)
    (report, report_in), (output, output_in) = os.pipe(), os.pipe()
    pid = child.fork_runner(_script_main(script, terms), [report_in], output_in, how, around)
    os.close(report_in)
    os.close(output_in)
    texts, in_time = _read({report: MAX_REPORT, output: terms.max_output_bytes}, terms.deadline_s)
    status = _end(pid, uid, around)
    if around.mount_namespace:
        linux.umount(str(scratch))
    print(_result(texts[report], texts[output], in_time, status, terms).model_dump_json())


def _scratch(folder: Path, limits: sandbox.RunnerLimits, around: sandbox.Surroundings) -> Path:
    scratch = folder / "scratch"
    scratch.mkdir(mode=0o700)
    if around.mount_namespace:
        options = f"size={limits.file_bytes},nr_inodes={limits.files},mode=0700"
        linux.mount("scratch", str(scratch), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC, options)
    return scratch


def _script_main(script: Path, terms: ScriptTerms) -> child.Main:
    """Run the script in the confined child and write the report to descriptor 3."""

    def main(layers: list[str], missing: dict[str, str]) -> None:
        from drkernel.sim.gpu.datafree import DataFree
        from drkernel.sim.script import run_script

        tempfile.tempdir = None
        found = run_script(
            script, gpu=terms.gpu, checks=terms.checks, data_free=DataFree.of_script() if terms.no_data else None,
            budget_bytes=terms.memory_bytes // 2,
        )  # fmt: skip
        sys.stdout.flush()
        with os.fdopen(3, "w", encoding="utf-8") as out:
            out.write(json.dumps({"layers": layers, "missing": missing, "report": found.model_dump(mode="json")}))

    return main


def _read(pipes: dict[int, int], seconds: float) -> tuple[dict[int, bytes], bool]:
    """Read pipes to their ends, keeping this many bytes of each; return False when the time ran out first."""
    selector, kept = selectors.DefaultSelector(), dict.fromkeys(pipes, b"")
    for fd in pipes:
        selector.register(fd, selectors.EVENT_READ)
    deadline = time.monotonic() + seconds
    while selector.get_map():
        left = deadline - time.monotonic()
        ready = selector.select(left) if left > 0 else []
        if not ready:
            return kept, False
        for key, _ in ready:
            data = os.read(key.fd, 1 << 16)
            if not data:
                selector.unregister(key.fd)
            kept[key.fd] += data[: pipes[key.fd] - len(kept[key.fd])]
    return kept, True


def _end(pid: int, uid: int | None, around: sandbox.Surroundings) -> int:
    """End the child and everything it has started; return its wait status."""
    processes.kill_trees([pid])
    status = os.waitpid(pid, 0)[1]
    if uid is not None and not around.pid_namespace:
        processes.kill_user(uid)
    while processes.kill_orphans(set()):  # what it had detached has become this process's
        os.waitpid(-1, 0)
    return status


def _result(report: bytes, output: bytes, in_time: bool, status: int, terms: ScriptTerms) -> ConfinedRun:
    printed = output.decode("utf-8", "replace")
    try:
        said = json.loads(report)
        return ConfinedRun(output=printed, **said)
    except (ValueError, TypeError, ValidationError):
        pass
    if not in_time:
        return ConfinedRun(output=printed, ended=f"it was stopped after {terms.deadline_s:g} s")
    if os.WIFSIGNALED(status):
        return ConfinedRun(output=printed, ended=f"signal {os.WTERMSIG(status)} ended it")
    return ConfinedRun(output=printed, ended=f"it ended with code {os.waitstatus_to_exitcode(status)} and no report")
