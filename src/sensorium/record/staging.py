"""Folders whose new files replace the earlier ones together, once all of them are complete."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from sensorium.errors import ArgumentError

_outdated: dict[Path, list[str]] = {}
"""Open temporary folder -> patterns of the earlier files that are removed."""


@contextlib.contextmanager
def staged(
    folder: str | os.PathLike[str], *outdated: str, source: str | os.PathLike[str] | None = None
) -> Iterator[Path]:
    """Yield a temporary folder whose files are moved to `folder` at the end; after an exception they are removed.

    Within the block, the yielded folder can be staged again: its files are moved with those of the outer block.

    Args:
        folder: the folder for the files; created if missing, existing files are replaced.
        outdated: patterns of earlier files in it that are removed, since readers would take them too.
        source: recording that the files are made from; it stays unchanged.

    Raises:
        ArgumentError: a file of the source would be replaced, or the folder is within the folder of the source.
        OSError: the folder cannot be written, or a file in it is being recorded.
    """
    target = Path(folder).resolve()
    if target in _outdated:
        _outdated[target] += outdated
        yield target
        return
    kept = set() if source is None else _files_of(Path(source).resolve())
    _check({target, *target.parents}, kept)
    place = next(each for each in (target, *target.parents) if each.exists())  # on the file system of the target
    with TemporaryDirectory(dir=place, prefix=".sensorium-") as temporary:
        root = Path(temporary, target.name)
        root.mkdir(exist_ok=True)
        patterns = _outdated[root] = [*outdated]
        try:
            yield root
        finally:
            del _outdated[root]
        old = {each for pattern in patterns for each in target.glob(pattern)}
        new = {target / each.relative_to(root): each for each in root.rglob("*") if each.is_file()}
        _check({each.resolve() for each in old | new.keys()}, kept)
        if folders := [each for each in new if each.is_dir()]:
            raise IsADirectoryError(None, f"{folders[0]} is a folder")
        for each in (*old, *(each for each in new if each.is_file())):
            with each.open("rb") as file:
                lock(file)
        for each in old:
            each.unlink()
        for each, path in new.items():
            each.parent.mkdir(parents=True, exist_ok=True)
            path.replace(each)


def _files_of(source: Path) -> set[Path]:
    """Return a file or folder, and the file that describes the bag of a file."""
    about = source.with_name("metadata.yaml")
    is_in_bag = about.is_file() and source.name in about.read_text(encoding="utf-8", errors="replace")
    return {source, about.resolve()} if is_in_bag else {source}


def _check(paths: set[Path], kept: set[Path]) -> None:
    if both := paths & kept:
        raise ArgumentError(f"folder: {str(both.pop())!r} is part of the recording itself. Give another folder.")


def lock(file: IO[bytes] | io.FileIO, *, is_open: bool = True) -> None:
    """Lock a file against other writers, or unlock it.

    Raises:
        OSError: another writer has locked it.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if is_open else fcntl.LOCK_UN)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another recording writes this file") from None
    except (ImportError, OSError):  # the system, or a network file system, has no such locks
        pass
