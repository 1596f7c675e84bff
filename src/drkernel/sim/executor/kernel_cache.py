"""Keeps compiled kernels on disk between runs of a user's own scripts: the front end's output, and native code.

Only ``drkernel sim`` switches it on; a judge never does. The processes of candidates cannot write to the folder, and a
folder that others could write to is not used. Entries carry a digest of themselves: a damaged one is ignored, with a
warning. Keys hold everything that an entry depends on, including the version of this code.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drkernel.digest import source_digest

MOST_ENTRIES = 4000
"""most entries; when there are more, the older half is deleted"""
_DIGEST_BYTES = 32


class KernelCache:
    """Byte strings by key, in one folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def get(self, *key: str) -> bytes | None:
        """The entry of a key; None if there is none, or a damaged one."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            warnings.warn(f"ignored a damaged entry of the cache of kernels: {path}", stacklevel=2)
            return None
        return content

    def put(self, content: bytes, *key: str) -> None:
        """Store an entry, atomically. A folder that cannot be written costs time, not correctness."""
        try:
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(file.name, self._path(key))
        except OSError:
            return

    def _path(self, key: tuple[str, ...]) -> Path:
        text = "\0".join((source_digest("sim"), *key))
        return self.folder / hashlib.sha256(text.encode()).hexdigest()

    def trim(self) -> None:
        """Delete the older half when there are too many entries."""
        entries = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(self.folder) if entry.is_file()]
        if len(entries) > MOST_ENTRIES:
            for _, path in sorted(entries)[: len(entries) // 2]:
                Path(path).unlink(missing_ok=True)


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
