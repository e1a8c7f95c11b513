"""Files from outside to bytes, with a limit: devices, pipes, growing files and packed bombs never end by themselves.

Also folders for private files: entries, settings, weights.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from .errors import InvalidValue, UnreadableData

__all__: list[str] = []  # for this package alone

LARGEST_FILE = 1 << 28  # bytes, as they are and unpacked; what is read whole takes several times as much memory
_CHUNK = 1 << 20


def require_path(field: str, path: object) -> str:
    """Return the path as text; raise InvalidValue for what no file can be called."""
    try:
        name = os.fsdecode(path)  # type: ignore[arg-type]  # it refuses what is none
        os.fsencode(name)
    except (TypeError, UnicodeError):
        raise InvalidValue.of(field, path, "the path of a file") from None
    if "\0" in name:
        raise InvalidValue(f"{field} must be the path of a file, got one with a NUL in it")
    return name


def require_regular_file(path: str | os.PathLike[str]) -> os.stat_result:
    """Return what the system says of a file, without opening it: a pipe without a writer would wait without end.

    Raises UnreadableData for a pipe, a device or a folder, and OSError for what is not there.
    """
    name = require_path("path", path)
    status = os.stat(name)  # noqa: PTH116  # of text
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableData(f"{Path(name).name} cannot be read: it is a folder, a pipe or a device")
    return status


def read_file(path: str | os.PathLike[str], *, limit: int = LARGEST_FILE) -> bytes:
    """Return what is in a file, unpacked if its name ends in `.gz`.

    Raises OSError where it cannot be opened or read, and UnreadableData where it is damaged or larger than `limit`.
    """
    name = require_path("path", path)
    with open(name, "rb") as file:  # noqa: PTH123  # a Path of the same name adds nothing
        if not name.endswith(".gz"):
            return read_stream(file, name, limit=limit)
        import gzip
        import zlib

        try:
            with gzip.open(file) as unpacked:
                return read_stream(unpacked, name, limit=limit)  # type: ignore[arg-type]  # it reads bytes
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise UnreadableData(f"{name} is no gzip file, or it is damaged") from None


def read_stream(file: BinaryIO, name: str, *, limit: int = LARGEST_FILE) -> bytes:
    """Return what is left in an open file; raise UnreadableData where that is more than `limit` bytes."""
    chunks: list[bytes] = []
    size = 0
    while chunk := file.read(_CHUNK):
        size += len(chunk)
        if size > limit:
            raise UnreadableData(f"{name} is larger than {limit} bytes, or it has no end: it is not read")
        chunks.append(chunk)
    return b"".join(chunks)


def make_private_folder(folder: Path) -> Path:
    """Return the folder. It, and each parent that was missing, is made for its owner alone, whatever the umask."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder
