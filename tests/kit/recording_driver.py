"""NVIDIA's driver and management library without a GPU, which record who calls them.

``record(folder)`` builds ``libcuda.so.1`` and ``libnvidia-ml.so.1`` there, for ``LD_LIBRARY_PATH``. Each function of
the driver notes its name and answers that there is no device. What is noted lies in memory that forks share, so that a
sandboxed one is heard, too; a process that loads a library where it cannot reach that memory is aborted.
"""

import re
import subprocess
from pathlib import Path

import triton

HEADER = Path(triton.__file__).parent / "backends/nvidia/include/cuda.h"
NVML = "nvmlInit nvmlInit_v2 nvmlInitWithFlags nvmlDeviceGetCount_v2 nvmlDeviceGetHandleByUUID nvmlDeviceGetClockInfo"
LOG_BYTES, LINE_BYTES = 1 << 18, 128
_NOTES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static char *notes;
__attribute__((constructor)) static void loaded(void) {
    int fd = open(LOG, O_RDWR);
    if (fd < 0) abort();
    notes = mmap(0, LOG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
}
static int note(const char *name, int answer) {
    unsigned at = __atomic_fetch_add((unsigned *)notes, LINE_BYTES, __ATOMIC_SEQ_CST) + LINE_BYTES;
    if (at + LINE_BYTES <= LOG_BYTES) snprintf(notes + at, LINE_BYTES, "%d %s", getpid(), name);
    return answer;
}
"""
_LOOKED_UP = """
int cuDriverGetVersion(int *version) { *version = 13000; return note("cuDriverGetVersion", 0); }
int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags, int *status) {
    *found = dlsym(dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW), name);
    if (status) *status = !*found;
    return *found ? 0 : 500;
}
"""


def record(folder: Path) -> Path:
    """Build both libraries in ``folder``; returns the log, for :func:`calls`."""
    log = folder / "calls"
    log.write_bytes(bytes(LOG_BYTES))
    log.chmod(0o666)
    names = {*re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", HEADER.read_text())}
    names |= {f"{name}_v2" for name in names}
    driver = {name: 100 for name in names - {"cuDriverGetVersion", "cuGetProcAddress_v2"}}
    for library, functions, more in (
        ("libcuda.so.1", driver, _LOOKED_UP),
        ("libnvidia-ml.so.1", dict.fromkeys(NVML.split(), 9), 'char *nvmlErrorString(int n) { return "no driver"; }'),
    ):
        source = folder / f"{library}.c"
        stubs = (f'int {name}(void) {{ return note("{name}", {answer}); }}' for name, answer in functions.items())
        source.write_text("\n".join([_NOTES, *stubs, more]))
        sizes = [f"-DLOG_BYTES={LOG_BYTES}", f"-DLINE_BYTES={LINE_BYTES}", f'-DLOG="{log}"']
        subprocess.run(["cc", "-w", "-shared", "-fPIC", *sizes, "-o", folder / library, source, "-ldl"], check=True)
    return log


def calls(log: Path) -> list[str]:
    """'PID FUNCTION' of each call so far."""
    notes = log.read_bytes()
    lines = (notes[at : at + LINE_BYTES] for at in range(LINE_BYTES, LOG_BYTES, LINE_BYTES))
    return [line.rstrip(b"\0").decode() for line in lines if line.strip(b"\0")]
