"""Removing what an untrusted process has left in its folder, whatever it is."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil

_PLAIN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove a folder in which no process works any more. What cannot be removed stays.

    Nested folders are brought up to the top one by one, so that neither the depth of a tree, the length of its paths
    nor the rights on its folders stand in the way; ``shutil.rmtree`` descends by recursion, and raises.
    """
    with contextlib.suppress(OSError):
        root = os.open(path, _PLAIN)
        try:
            _flatten(root)
        finally:
            os.close(root)
    shutil.rmtree(path, ignore_errors=True)


def _flatten(root: int) -> None:
    """Empty the folder open as ``root``."""
    new, count = secrets.token_hex(8), 0
    folders = _take_in(root)
    while folders:
        name = folders.pop()
        with contextlib.suppress(OSError):
            os.chmod(name, 0o700, dir_fd=root)
            inner = os.open(name, _PLAIN, dir_fd=root)
            try:
                for below in _take_in(inner):
                    os.chmod(below, 0o700, dir_fd=inner)
                    os.rename(below, up := f"{new}-{count}", src_dir_fd=inner, dst_dir_fd=root)
                    count += 1
                    folders.append(up)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=root)


def _take_in(folder: int) -> list[str]:
    """Remove what is not a folder from the folder open as ``folder``; return the names of its folders."""
    with os.scandir(folder) as entries:
        inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in inside:
        if not is_folder:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in inside if is_folder]
