"""Keeps compiled kernels on disk between runs: the front end's output, and native code.

``drkernel sim`` and the tests switch it on, for kernels of the user's own; a judge never does (``docs/executor.md``). A
folder that others could write to is not used. An entry carries a digest of itself and of its key: a damaged one, or one
under another's name, is ignored with a warning. Whoever keeps something puts all that it depends on into its key.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_BYTES = 256 << 20
"""most bytes of all entries; when there are more, those used last are kept, half of it"""
_DIGEST_BYTES = 32
_FRESH_SECONDS = 3600.0
"""an entry's time of use is noted no more often"""


class KernelCache:
    """Byte strings by key, in one folder. Several processes may use it at once."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, *key: str) -> bytes | None:
        """The entry of a key; None if there is none, or a damaged one."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                data, used = file.read(), os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if _sealed(path, content) != digest:
            warnings.warn(f"ignored a damaged entry of the cache of kernels: {path}", stacklevel=2)
            return None
        if time.time() - used > _FRESH_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def put(self, content: bytes, *key: str) -> None:
        """Store an entry, atomically. A folder that cannot be written costs time, not correctness."""
        path = self._path(key)
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(_sealed(path, content) + content)
            os.replace(file.name, path)
        except OSError:
            return

    def _path(self, key: tuple[str, ...]) -> Path:
        text = "".join(f"{len(part)}:{part}" for part in key)
        return self.folder / hashlib.sha256(text.encode()).hexdigest()

    def trim(self) -> None:
        """Delete what was used longest ago when the entries take too much room."""
        entries = []
        with os.scandir(self.folder) as found:
            for entry in found:
                with contextlib.suppress(OSError):  # another process has just renamed or deleted it
                    entries.append((entry.stat().st_mtime, entry.stat().st_size, entry.path))
        left = sum(size for _, size, _ in entries)
        if left > MOST_BYTES:
            for _, size, path in sorted(entries):
                if left <= MOST_BYTES // 2:
                    return
                Path(path).unlink(missing_ok=True)
                left -= size


def _sealed(path: Path, content: bytes) -> bytes:
    """The digest of an entry under the name that its key gives it."""
    return hashlib.sha256(path.name.encode() + content).digest()


_active: list[KernelCache] = []


def active() -> KernelCache | None:
    """The cache in use; None where there is none."""
    return _active[-1] if _active else None


def default_folder() -> Path:
    """``$XDG_CACHE_HOME/drkernel/kernels``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "drkernel" / "kernels"


@contextmanager
def kernels_on_disk(folder: Path | None = None) -> Iterator[None]:
    """Keep compiled kernels in ``folder`` while the block runs, if it exists or can be made, for this user alone."""
    folder = folder or default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.lstat()
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        if own:
            KernelCache(folder).trim()
    except OSError:
        yield
        return
    if not own:
        warnings.warn(f"kernels are not kept: others may write to {folder}", stacklevel=3)
        yield
        return
    _active.append(KernelCache(folder))
    try:
        yield
    finally:
        _active.pop()
