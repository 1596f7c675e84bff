"""Files that are replaced whole, whatever happens while they are written."""

import errno
import os

import pytest

from drkernel.base.files import DiskCache, open_cache, replacing, write_atomic


def test_a_reader_sees_the_old_contents_until_all_of_the_new_are_there(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("ne")
        assert path.read_text() == "old" and temporary.parent == tmp_path
        temporary.write_text("new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file"]


def test_an_error_leaves_the_old_contents_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_atomic(path, "old")
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("place", ["missing/file", "plain/file", "."])
def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path, place):
    (tmp_path / "plain").write_text("a file, and no folder")
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" if place == "." else tmp_path / place
    with pytest.raises(OSError) as failed:
        write_atomic(path, "text")
    assert failed.value.filename == str(path)


def test_a_full_disk_is_named_by_the_file_that_it_refused(tmp_path):
    with pytest.raises(OSError) as failed, replacing(tmp_path / "file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert failed.value.filename == str(tmp_path / "file")


def test_keys_of_several_parts_are_told_apart(tmp_path):
    cache = open_cache(tmp_path / "cache")
    assert isinstance(cache, DiskCache)
    cache.put(b"1", "ab", "c")
    cache.put(b"2", "a", "bc")
    assert (cache.get("ab", "c"), cache.get("a", "bc"), cache.get("abc")) == (b"1", b"2", None)
