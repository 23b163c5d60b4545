"""Arrays of an `.npz` file, checked before memory is allocated: a damaged file gives one error with file and member."""

from __future__ import annotations

import os
import re
import stat
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np

from sensorium.errors import ModelError, file_kind
from sensorium.memory import host_available, in_mb
from sensorium.readings import Array

MAX_TEXT = 2**26
"""Maximum size of a text in bytes. NumPy stores four per character."""
MAX_DEFLATED = 1040
"""Maximum ratio of decompressed to compressed bytes: deflate reaches 1032."""
LONGEST = 200
"""Maximum size of the name of a file without its end, bytes; file systems accept 255."""
WRITE_IT = "Write it with NpzRecorder.save, or open a recording of another kind with sensorium.open."

_END = struct.Struct("<4s4H2LH")
"""Last bytes of an archive without a comment: mark, disks, entries twice, size and position of the directory."""
_WORDS = (".", "..", "measured", "truth")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """Description of an array of the file, from its header.

    Attributes:
        info: its entry in the archive's directory.
        shape: shape of the array.
        dtype: element type of the array.
    """

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Size in memory, bytes."""
        return prod(self.shape) * self.dtype.itemsize


class Archive:
    """Open `.npz` file; created by `open_archive`.

    Args:
        path: the file, for messages.
        file: the archive.

    Attributes:
        members: name -> array, in the order of the file.
    """

    def __init__(self, path: str, file: zipfile.ZipFile) -> None:
        self._path, self._file = path, file
        self._length = os.stat(path).st_size
        self.members: dict[str, Member] = {}
        with open(path, "rb") as raw:
            raw.seek(-_END.size, os.SEEK_END)
            mark, *_, count, _, _, _ = _END.unpack(raw.read(_END.size))
        if mark != b"PK\x05\x06" or count != len(file.infolist()) & 0xFFFF:  # zipfile does not notice missing entries
            raise ModelError(f"{path!r} is not a recording: its directory of arrays is damaged. {WRITE_IT}")
        for info in file.infolist():
            name = info.filename.removesuffix(".npy")
            if name in self.members:
                raise self.error(name, "it occurs twice")
            self.members[name] = self._guard(name, lambda info=info: self._header(info))  # type: ignore[misc]

    def error(self, name: str, reason: str) -> ModelError:
        """Return the error of one member."""
        return ModelError(f"{self._path!r} is not a recording: array {name!r}: {reason}. {WRITE_IT}")

    def check_size(self, names: list[str]) -> None:
        """Raise an error if some arrays together need more memory than is available.

        Raises:
            ModelError: insufficient memory; the message gives both sizes.
        """
        needed, available = sum(self.members[name].nbytes for name in names), host_available()
        if available is not None and needed > available:
            raise ModelError(
                f"recording {self._path!r} needs {in_mb(needed)} of memory, and {in_mb(available)} are available. "
                "Record fewer sensors or envs, or load it on a machine with more memory."
            )

    def text(self, name: str) -> str:
        """Return an array that holds one text.

        Raises:
            ModelError: the array is missing, not text, too long or damaged.
        """
        if name not in self.members:
            raise self.error(name, "it is missing")
        member = self.members[name]
        if member.dtype.kind != "U" or member.shape:
            raise self.error(name, f"it holds {member.dtype} {list(member.shape)}, expected one text")
        if member.nbytes > MAX_TEXT:
            raise self.error(name, f"it has {in_mb(member.nbytes)}, expected at most {in_mb(MAX_TEXT)}")
        return str(self.read(name))

    def read(self, name: str) -> Array:
        """Return an array.

        Raises:
            ModelError: the array is damaged.
        """

        def data() -> Array:
            with self._file.open(self.members[name].info) as stream:
                values: Array = np.lib.format.read_array(stream, allow_pickle=False)
                if stream.read(1):  # reading to the end also verifies the checksum
                    raise ValueError("bytes follow it")
            return values

        return self._guard(name, data)

    def _header(self, info: zipfile.ZipInfo) -> Member:
        if not info.filename.endswith(".npy"):
            raise ValueError("it is not a .npy file")
        factor = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: MAX_DEFLATED}.get(info.compress_type)
        if factor is None:
            raise ValueError(f"its compression {info.compress_type} is not supported, expected deflate or none")
        if not info.file_size <= factor * min(info.compress_size, self._length):
            raise ValueError(f"the file's directory says {info.file_size} bytes, more than the file can hold")
        with self._file.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}.get(version[0])
            if read is None:
                raise ValueError(f"its format has version {version}, expected 1 or 2")
            shape, _, dtype = read(stream)
            member = Member(info, shape, dtype)
            if dtype.kind not in "biufU" or min(shape, default=0) < 0:
                raise ValueError(f"it holds {dtype} {list(shape)}, expected numbers or text")
            if (size := stream.tell() + member.nbytes) != info.file_size:
                raise ValueError(f"its header says {size} bytes, the file's directory {info.file_size}")
        return member

    def _guard(self, name: str, read: Callable[[], T]) -> T:
        try:
            return read()
        except Exception as error:  # zipfile, zlib and NumPy raise many kinds for damaged bytes
            raise self.error(name, f"{type(error).__name__}: {error}") from error


def key_of(name: str, *, slashes: bool = True) -> str:
    r"""Return a name in the form used in the keys of a file; different names have different keys.

    Each byte (UTF-8) of ``%``, ``\`` and of non-printable characters is written as ``%XX``. The same applies to parts
    of a path that would lead elsewhere (``..``, empty parts) or are reserved in the file (``measured``, ``truth``).

    Args:
        name: the name.
        slashes: whether single slashes within the name are kept.
    """
    if not name:
        return "%"
    kept = "".join(each if each.isprintable() and each not in "%\\" else _escaped(each) for each in name)
    if not slashes:
        return kept.replace("/", "%2F") if kept not in (".", "..") else _escaped(kept)
    kept = re.sub(r"(?<![^/])/|/(?![^/])", "%2F", kept)
    parts = kept.split("/")
    return "/".join(_escaped(part[0]) + part[1:] if part in _WORDS else part for part in parts)


def stem_of(name: str) -> str:
    """Return a name as that of a file without its end, of at most 200 bytes; different names differ."""
    key = key_of(name, slashes=False)
    data = key.encode()
    if len(data) <= LONGEST:
        return key
    return f"{data[: LONGEST - 17].decode(errors='ignore')}~{sha256(data).hexdigest()[:16]}"


def name_of(key: str) -> str:
    """Return the name that `key_of` converted to this key."""
    return "" if key == "%" else unquote(key, errors="surrogatepass")


def _escaped(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """Open an `.npz` file; the headers of its arrays are checked.

    Raises:
        ModelError: the file is missing, not a regular file, not an `.npz` file, or damaged.
    """
    name = os.fspath(path)
    text = name if isinstance(name, str) else os.fsdecode(name)
    try:
        check_regular(Path(text))
        if not is_npz(Path(text)):
            kind = file_kind(Path(text)).partition(".")[0]
            raise ModelError(f"{text!r} is not a recording in an npz file{kind and f', but {kind}'}. {WRITE_IT}")
        file = zipfile.ZipFile(text)
    except ModelError:
        raise
    except Exception as error:  # for a damaged file, too
        raise ModelError(f"{text!r} is not a recording: {type(error).__name__}: {error}. {WRITE_IT}") from error
    with file:
        yield Archive(text, file)


def is_npz(path: Path) -> bool:
    """Return whether a file starts as an `.npz` file."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def check_regular(path: Path) -> None:
    """Raise an error if a path does not name a regular file, or a link to one.

    Raises:
        ModelError: the path does not exist, or names another kind of file, given in the message.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ModelError(f"recording {str(path)!r} does not exist. Check the path.") from None
    except (OSError, ValueError) as error:  # a name that is too long or has a null character
        raise ModelError(f"recording {str(path)!r} cannot be opened: {error}.") from None
    if stat.S_ISREG(mode):
        return
    kinds = {
        stat.S_IFDIR: "folder", stat.S_IFCHR: "character device", stat.S_IFBLK: "block device", stat.S_IFIFO: "pipe",
        stat.S_IFSOCK: "socket",
    }  # fmt: skip
    kind = kinds.get(stat.S_IFMT(mode), "special file")
    fix = "Give another path; sensorium.open also opens folders." if kind == "folder" else "Give another path."
    raise ModelError(f"recording {str(path)!r} is a {kind}, expected a regular file. {fix}")
