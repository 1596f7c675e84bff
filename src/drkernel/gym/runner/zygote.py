"""The zygote: a warm process (torch, triton and the simulator imported) that forks the runners of jobs.

It runs no candidate code and has one thread. Its owner talks to it over one socket, one JSON object per packet, and so
do the judges that it has forked for its owner, each over a socket of its own. A job's own sockets are made by its judge
and only passed through. A job is two processes, the *runner* (untrusted) and the *device* (the judge's side). They
share nothing but one socket, not even their address layout: devices and judges are forked from a process of their own
(nursery.py).

Commands: ``spawn`` (with five descriptors), ``kill``; of the owner's alone ``join`` (with one), ``judge`` (with three)
and ``over``. Events: ``ready``, ``spawned``, ``exited``, ``gone``, ``failed``.
"""

import gc
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import time
from dataclasses import dataclass, field, replace
from typing import Any

from drkernel.gym.runner import child, processes
from drkernel.gym.runner.nursery import DeviceTerms, Nursery
from drkernel.gym.sandbox import layers as sandbox
from drkernel.gym.sandbox import linux
from drkernel.gym.sandbox.linux import remove_tree

WATCH_SECONDS = 0.05
"""seconds between looks at memory (a limit of its own bounds one process at once; this bounds the sum of many)"""
IDLE_SECONDS = 0.5
"""seconds between an idle zygote's checks that the judge is still its parent"""
MAX_PACKET = 64 << 10
MAX_LOG = 1 << 20
"""bytes of standard error kept, over all jobs"""
HELPER = "driver-helper"
"""Triton's cache with the extension for NVIDIA's driver, of which every runner on a real GPU gets a copy"""
EXECUTOR_BYTES = 1 << 30
"""bytes that the device process may use beyond the simulated GPU's memory"""


@dataclass
class JobProcesses:
    """The processes of one evaluation."""

    client: int
    """the judge that it belongs to"""
    id: int
    limits: sandbox.RunnerLimits
    scratch: str
    slot: int
    runner: int = 0
    device: int = 0
    exited: dict[int, int] = field(default_factory=dict)
    """pid -> wait status"""
    over_memory: str | None = None
    """the limit that it exceeded, if it is ended for that: its "own", or that of "all" slots"""
    processor: processes.ProcessorTime = field(default_factory=processes.ProcessorTime)
    """processor seconds of the runner and everything it has started"""
    over_time: bool = False
    """ended because they have used up their processor time together"""

    @property
    def living(self) -> list[int]:
        """Processes not yet reaped."""
        return [pid for pid in (self.runner, self.device) if pid and pid not in self.exited]


OWNER = 0
"""the client that started the zygote; the zygote ends with it"""


class Zygote:
    """The zygote's event loop."""

    def __init__(self, control: socket.socket, folder: str, surroundings: sandbox.Surroundings, nursery: Nursery):
        self.clients = {OWNER: control}
        self.joined = 0
        self.selector = selectors.DefaultSelector()
        self.nursery = nursery
        self.folder = folder
        self.surroundings = surroundings
        self.jobs: dict[tuple[int, int], JobProcesses] = {}
        self.judges: dict[int, int] = {}
        """pid -> number with the owner, of each judge"""
        self.parent = os.getppid()
        self.baseline = 0
        self.free_slots = list(range(sandbox.MAX_JOBS))

    def serve(self) -> None:
        """Serve until the judge is gone."""
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.selector.register(self.clients[OWNER], selectors.EVENT_READ, OWNER)
        self.selector.register(wake, selectors.EVENT_READ)
        self.baseline = processes.private_bytes(os.getpid())
        self._greet(OWNER)
        try:
            while os.getppid() == self.parent:
                for key, _ in self.selector.select(WATCH_SECONDS if self.jobs else IDLE_SECONDS):
                    if key.fileobj == wake:
                        os.read(wake, 4096)
                    elif not self._command(key.data):
                        if key.data == OWNER:
                            return
                        self._leave(key.data)
                self._reap()
                self._watch()
        finally:
            for pid in self.judges:
                processes.send(pid)
            for job in list(self.jobs.values()):
                self._end(job)
            self.nursery.close()
            remove_tree(self.folder)

    def _greet(self, client: int) -> None:
        ready = {"event": "ready", "nursery": self.nursery.pid, "folder": self.folder}
        self._tell(client, {**ready, "missing": self.surroundings.missing})

    def _join(self, fd: int) -> None:
        """Accept another judge."""
        self.joined += 1
        self.clients[self.joined] = socket.socket(fileno=fd)
        self.selector.register(self.clients[self.joined], selectors.EVENT_READ, self.joined)
        self._greet(self.joined)

    def _leave(self, client: int) -> None:
        """End the jobs of a judge that is gone."""
        for job in [job for job in self.jobs.values() if job.client == client]:
            self._end(job)
        sock = self.clients.pop(client)
        self.selector.unregister(sock)
        sock.close()

    def _tell(self, client: int, event: dict[str, Any]) -> None:
        try:
            self.clients[client].send(json.dumps(event).encode())
        except OSError:
            return  # the judge is gone; the loop sees it next

    def _command(self, client: int) -> bool:
        """Carry out a client's command; return False when the client is gone."""
        try:
            data, fds, _, _ = socket.recv_fds(self.clients[client], MAX_PACKET, 16)
        except ConnectionResetError:
            return False
        if not data:
            return False
        message = json.loads(data)
        job = self.jobs.get((client, message.get("job")))
        if message["do"] in ("spawn", "judge"):
            try:
                if message["do"] == "spawn":
                    self._spawn(client, message, fds)
                elif client == OWNER:
                    pid = self.nursery.fork_judge(message["entry"], fds)
                    self.judges[pid] = message["job"]
                    self._tell(client, {"event": "spawned", "job": message["job"], "judge": pid})
            except Exception as error:  # whatever it is, the other jobs go on
                self._tell(client, {"event": "failed", "job": message["job"], "detail": str(error)})
                if (client, message["job"]) in self.jobs:
                    self._end(self.jobs[client, message["job"]])
            finally:
                for fd in fds:
                    os.close(fd)
        elif message["do"] == "kill" and job is not None:
            self._end(job)
        elif message["do"] == "kill":
            for pid in [pid for pid, number in self.judges.items() if (client, number) == (OWNER, message["job"])]:
                processes.send(pid)
        elif message["do"] == "join" and client == OWNER:
            self._join(*fds)
        elif message["do"] == "over" and client == OWNER:  # a process takes more memory than all slots have left
            for job in self.jobs.values():
                if message["pid"] in job.living:
                    job.over_memory = "all"
                    processes.kill_trees([message["pid"]])
        return True

    # ---- starting

    def _spawn(self, client: int, message: dict[str, Any], fds: list[int]) -> None:
        from drkernel.gym.device import parse_device
        from drkernel.sim.spec import learn_card
        from ttir_executor.order import PATIENT_UNDER_WAY

        learn_card(message["card"])
        device, limits = parse_device(message["device"]), sandbox.RunnerLimits(**message["limits"])
        if not self.free_slots:
            raise OSError(f"{sandbox.MAX_JOBS} jobs run at once; a zygote takes no more")
        number = message["job"]
        scratch = os.path.join(self.folder, f"job-{client}-{number}")
        job = self.jobs[client, number] = JobProcesses(client, number, limits, scratch, self.free_slots.pop(0))
        self._make_scratch(job, gpu=not device.simulated)
        in_use, device_bytes = processes.address_space(os.getpid()), message["device_memory_bytes"]
        around = self.surroundings
        result, output, *others = fds
        if device.spec is not None:  # read by now: the runner may not read this package's files
            host_runner, *device_fds = others
            held = device_bytes + EXECUTOR_BYTES
            allowed = replace(limits, memory_bytes=held, processes=64 + PATIENT_UNDER_WAY, allow_exec=False)
            terms = DeviceTerms(device.spec.name, message["card"], device_bytes, allowed, around.device_uid(job.slot))
            job.device = self.nursery.fork(terms, device_fds)
            others = [host_runner]
        how = sandbox.Confinement(limits, scratch, around.runner_uid(job.slot), in_use, gpu=not device.simulated)
        main = child.runner_main(device, scratch, message["visible"])
        job.runner = child.fork_runner(main, [result, *others], output, how, around)
        self._tell(client, {"event": "spawned", "job": job.id, "runner": job.runner, "device": job.device})
        linux.forked()

    def _make_scratch(self, job: JobProcesses, *, gpu: bool) -> None:
        os.mkdir(job.scratch, 0o700)
        if self.surroundings.mount_namespace:
            flags = linux.MS_NOSUID | linux.MS_NODEV | (0 if job.limits.allow_exec else linux.MS_NOEXEC)
            # files without contents take memory, too, which is nobody's: half of the machine's, were they not counted
            options = f"size={job.limits.file_bytes},nr_inodes={job.limits.files},mode=0700"
            linux.mount("scratch", job.scratch, "tmpfs", flags, options)
        helper = os.path.join(self.folder, HELPER)
        if gpu and os.path.isdir(helper):
            shutil.copytree(helper, os.path.join(job.scratch, child.CACHES["TRITON_CACHE_DIR"]))
        uid = self.surroundings.runner_uid(job.slot)
        if uid is not None:
            for folder, _, files in os.walk(job.scratch):
                for path in (folder, *(os.path.join(folder, name) for name in files)):
                    os.chown(path, uid, uid)

    # ---- watching and ending

    def _reap(self) -> None:
        owners = {pid: job for job in self.jobs.values() for pid in job.living}
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.nursery.pid:
                raise RuntimeError(f"the nursery of the device processes ended: wait status {status}")
            job = owners.get(pid)
            if pid in self.judges:
                event = {"event": "exited", "job": self.judges.pop(pid), "who": "judge", "status": status}
                self._tell(OWNER, event)
            elif job is not None:
                job.exited[pid] = status
                who = "runner" if pid == job.runner else "device"
                event = {"event": "exited", "job": job.id, "who": who, "status": status}
                self._tell(job.client, {**event, "over_memory": job.over_memory, "over_time": job.over_time})

    def _watch(self) -> None:
        """Kill jobs that use too much memory or time, and processes that a job has detached from itself."""
        for job in self.jobs.values():
            for root, allowed, baseline in (
                (job.runner, job.limits.memory_bytes, self.baseline),
                (job.device, job.limits.memory_bytes + EXECUTOR_BYTES, self.nursery.baseline),
            ):
                if root not in job.living:
                    continue
                tree = processes.tree_of(root) if root == job.runner else [root]
                if sum(max(0, processes.job_bytes(pid) - baseline) for pid in tree) > allowed:
                    job.over_memory = "own"
                    processes.kill_trees([root])
                elif root == job.runner and job.processor.look(tree) > job.limits.cpu_s:
                    job.over_time = True
                    processes.kill_trees([root])
        if not self.surroundings.pid_namespace:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """Kill the processes that a job has detached, which have become this process's children."""
        for _ in range(1000):  # each round may orphan what the last one's victims had forked
            self._reap()
            own = {pid for job in self.jobs.values() for pid in job.living}
            if not processes.kill_orphans(own | {self.nursery.pid, *self.judges}):
                return
            time.sleep(0.001)

    def _end(self, job: JobProcesses) -> None:
        """Kill everything the job has started, reap it, and remove its scratch."""
        alone = self.surroundings.pid_namespace and not self.surroundings.needs_keeper
        if alone:  # the runner is the first process of its namespace: the kernel ends the rest with it
            for pid in job.living:
                processes.send(pid)
        else:
            processes.kill_trees(job.living)
            uid = self.surroundings.runner_uid(job.slot)
            if uid is not None:
                processes.kill_user(uid)
        for pid in job.living:
            job.exited[pid] = os.waitpid(pid, 0)[1]
        if not alone:
            self._end_orphans()
        if self.surroundings.mount_namespace and os.path.ismount(job.scratch):
            linux.umount(job.scratch)
        remove_tree(job.scratch)
        self.free_slots.append(job.slot)
        if os.fstat(2).st_size > MAX_LOG:
            os.ftruncate(2, 0)
        del self.jobs[job.client, job.id]
        self._tell(job.client, {"event": "gone", "job": job.id})


# ---- starting


def main(control_fd: int, folder: str, without: list[str]) -> None:
    """Run the zygote; its process is started by :class:`drkernel.gym.runner.launcher.Launcher`."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # a Ctrl-C in the terminal is the judge's to handle
    gc.disable()  # it would walk what is imported many times: a fifth of the start
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # the judge's budget is its own
    control = socket.socket(fileno=control_fd)
    surroundings = sandbox.prepare(frozenset(without))
    nursery = Nursery(surroundings)  # as soon as possible: it takes longer to start than this process
    from drkernel.gym.device import kinds_here
    from drkernel.gym.runner.warm_up import build_driver_helper, warm_up  # imports torch

    warm_up(devices=False)
    gc.enable()
    if "cuda" in kinds_here() or "TRITON_LIBCUDA_PATH" in os.environ:
        build_driver_helper(os.path.join(folder, HELPER))
    nursery.wait_ready()
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("importing started a thread; forking would not be safe")
    Zygote(control, folder, surroundings, nursery).serve()
    os._exit(0)  # everything has been put away; to take down the interpreter as well takes 0.2 s
