"""Files that are replaced in one step, and caches: of byte strings on disk, of anything in memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import threading
import time
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar

MOST_BYTES = 256 << 20
"""most bytes of all entries of a cache; when there are more, those used last are kept, half of it"""
_DIGEST_BYTES = 32
_FRESH_SECONDS = 3600.0
"""an entry's time of use is noted no more often"""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` to write; it takes ``path``'s place, flushed to the disk, when the block ends without an
    error, and is deleted otherwise. A reader sees the old contents or the new, complete. An OSError names ``path``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        if error.filename is None or Path(error.filename) == temporary:
            error.filename = str(path)
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomic(path: Path, text: str) -> None:
    """Replace the contents of ``path`` by ``text``."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def publish_directory(temporary: Path, final: Path) -> None:
    """Flush every file under ``temporary`` and rename it to ``final``, which must not exist."""
    for path in temporary.rglob("*"):
        if path.is_file():
            _sync(path)
    _sync(temporary)
    os.rename(temporary, final)
    _sync(final.parent)


def _sync(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---- a cache on disk


def kept_or_made(name: str, make: Callable[[], bytes], *key: str) -> bytes:
    """The entry of a key in the user's cache of that name; where there is none, what ``make`` returns, which is kept.

    Where :func:`open_cache` has no cache it is made every time. An exception of ``make`` is not kept.
    """
    disk = _opened(cache_folder(name))
    kept = None if disk is None else disk.get(*key)
    if kept is None:
        kept = make()
        if disk is not None:
            disk.put(kept, *key)
    return kept


@lru_cache
def _opened(folder: Path) -> DiskCache | None:
    """Opened once in a process."""
    return open_cache(folder)


def cache_folder(name: str) -> Path:
    """``$XDG_CACHE_HOME/drkernel/NAME``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "drkernel" / name


class DiskCache:
    """Byte strings by key, in one folder. Several processes may use it at once.

    An entry carries a digest of itself and of its key: a damaged one, or one under another's name, is ignored with a
    warning. Whoever keeps something puts all that it depends on into its key. A folder that cannot be written costs
    time, not correctness.
    """

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
            warnings.warn(f"ignored a damaged entry of a cache: {path}", stacklevel=2)
            return None
        if time.time() - used > _FRESH_SECONDS:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def put(self, content: bytes, *key: str) -> None:
        """Store an entry, atomically."""
        path = self._path(key)
        temporary = path.with_suffix(f".{os.getpid()}.{uuid.uuid4().hex[:8]}")
        with contextlib.suppress(OSError):
            try:
                temporary.write_bytes(_sealed(path, content) + content)  # not flushed: the digest tells
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, key: tuple[str, ...]) -> Path:
        text = "".join(f"{len(part)}:{part}" for part in key)
        return self.folder / hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

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


def open_cache(folder: Path) -> DiskCache | None:
    """The cache in ``folder``, trimmed, if the folder exists or can be made, for this user alone; otherwise None."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
            cache = DiskCache(folder)
            cache.trim()
            return cache
    except OSError:
        return None
    warnings.warn(f"nothing is kept on disk: others may write to {folder}", stacklevel=2)
    return None


# ---- in memory: the one cache that is no function's (those have `functools.lru_cache`), bounded, by key


K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The ``size`` entries that were set or found last. Thread-safe."""

    def __init__(self, size: int):
        self._size = size
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The entry; None where there is none."""
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
