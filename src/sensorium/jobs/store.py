"""Output of a job: a folder or URL with a folder per shard. The receipt of a shard, written last, marks it as done."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

from sensorium.errors import ArgumentError, MissingDependencyError, listed
from sensorium.jobs.job import Job, key_of

JOB, RECEIPT, MANIFEST = "job.json", "receipt.json", "manifest.parquet"
PART = ".part"
"""End of the names of files that are being written."""
SHARD = re.compile(r"shard-(\d{6,})")
BATCH, READERS = 500, 16
"""Number of receipts that are read ahead, and of threads that read them."""


class Store:
    """Output of one job.

    Args:
        out: a folder, or a URL of fsspec such as ``"s3://bucket/data"`` or ``"memory://data"``.

    Raises:
        ArgumentError: it is not a folder or URL.
        MissingDependencyError: the URL needs a package that is not installed.
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        try:
            from fsspec.core import url_to_fs

            fs, self.root = url_to_fs(os.fspath(out))
        except ImportError as error:
            raise MissingDependencyError(f"{out}: {error}") from None
        except (ValueError, TypeError) as error:
            raise ArgumentError(f"out: got {out!r}, expected a folder or a URL of fsspec: {error}.") from None
        self.fs: Any = fs
        self.is_local = "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
        self.is_in_memory = "memory" in fs.protocol
        self.url = str(self.root if self.is_local else fs.unstrip_protocol(self.root))

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    def path(self, *parts: str) -> str:
        """Return the path of a file in the output."""
        return "/".join((self.root.rstrip("/"), *parts))

    def shard_path(self, index: int, *parts: str) -> str:
        """Return the path of the folder of a shard, or of a file in it."""
        return self.path(f"shard-{index:06d}", *parts)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[IO[bytes]]:
        """Open a file that appears under its name when it is complete; after an exception it does not appear.

        Object stores show a file when it is closed. A folder gets it by a rename, since two drivers may write the same
        shard, and the second one must not truncate a file of the first one.

        Raises:
            ArgumentError: the file cannot be written.
        """
        part = f"{path}.{secrets.token_hex(4)}{PART}" if self.is_local else path
        try:
            if self.is_local:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            with self.fs.open(part, "wb") as file:
                yield file
            if self.is_local:
                os.replace(part, path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                self.fs.rm_file(part)
            if isinstance(error, OSError):
                reason = error.strerror or str(error) or type(error).__name__
                fix = "Free space, or give another folder or URL."
                raise ArgumentError(f"out: {self.url!r} cannot be written: {reason}. {fix}") from error
            raise

    def write_json(self, path: str, value: Any) -> None:
        """Write a value as JSON."""
        with self.create(path) as file:
            file.write(json.dumps(value, indent=1).encode())

    def read_json(self, path: str) -> Any:
        """Return the value in a JSON file; None if the file does not exist.

        Raises:
            ArgumentError: it is not JSON.
        """
        try:
            return json.loads(self.fs.cat_file(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:
            raise ArgumentError(f"out: {path!r} is not JSON. Give another folder, or remove that file.") from None

    def claim(self, job: Job) -> None:
        """Make this the output of a job.

        Raises:
            ArgumentError: it holds the data of another job, or cannot be written.
        """
        if not self.names()[0]:  # also the job of an earlier attempt that failed before it wrote anything
            self.write_json(self.path(JOB), {"job": job.to_dict(), "origin": job.origin})
        if different := self.changes(job):  # also if another driver has started at the same time
            raise ArgumentError(
                f"out: {self.url!r} holds the data of another job; different are {listed(different)}. Give another "
                "folder, or the same job, files and versions."
            )

    def changes(self, job: Job) -> list[str]:
        """Return the names of everything that differs from the job of this output, such as ``"job.seed"``."""
        found = self.read_json(self.path(JOB))
        origin = found.get("origin") if isinstance(found, dict) else None
        return _changes(origin or {}, json.loads(json.dumps(job.origin)))

    def job(self) -> Job:
        """Return the job whose data the output holds.

        Raises:
            ArgumentError: it holds no data of a job.
        """
        return Job.from_dict(self._about()["job"])

    def key(self) -> str:
        """Return the key of the job whose data the output holds, also if versions or files have changed since."""
        return key_of(self._about()["origin"])

    def _about(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] | None = self.read_json(self.path(JOB))
        if found is None:
            raise ArgumentError(f"out: {self.url!r} has no {JOB}: give the output of `sensorium generate`.")
        return found

    def names(self) -> tuple[list[int], list[str]]:
        """Return the numbers of the shards that have a folder, and the names of foreign files and folders."""
        try:
            names = [str(each).rstrip("/").rpartition("/")[2] for each in self.fs.ls(self.root, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            names = []
        shards = sorted(int(match[1]) for name in names if (match := SHARD.fullmatch(name)))
        ours = {JOB, MANIFEST}
        return shards, sorted(each for each in names if each not in ours and not SHARD.fullmatch(each))

    def receipts(self, indices: Iterable[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number and the receipt of each shard that is done, in order.

        Args:
            indices: shards to look at; None for all.
        """
        wanted = sorted({*self.names()[0]}.intersection(indices))
        with ThreadPoolExecutor(READERS) as pool:
            for start in range(0, len(wanted), BATCH):
                part = wanted[start : start + BATCH]
                for index, receipt in zip(part, pool.map(self.receipt, part), strict=True):
                    if receipt is not None:
                        yield index, receipt

    def receipt(self, index: int) -> dict[str, Any] | None:
        """Return the receipt of a shard; None if it is not done, or if the receipt is incomplete."""
        try:
            found: dict[str, Any] | None = self.read_json(self.shard_path(index, RECEIPT))
        except ArgumentError:
            return None
        return found

    def finish(self, index: int, receipt: dict[str, Any]) -> None:
        """Mark a shard as done, and then remove what interrupted attempts left in its folder."""
        self.write_json(self.shard_path(index, RECEIPT), receipt)
        if self.is_local:
            for left in Path(self.shard_path(index)).rglob(f"*{PART}"):
                left.unlink(missing_ok=True)


def _changes(found: Any, origin: Any) -> list[str]:
    if not isinstance(found, dict) or not isinstance(origin, dict):
        return [] if found == origin else [""]
    names = sorted({*found, *origin})
    changed = [(name, each) for name in names for each in _changes(found.get(name), origin.get(name))]
    return [f"{name}.{each}".rstrip(".") for name, each in changed]
