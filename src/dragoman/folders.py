"""A folder that may be read and not left: no `..`, no link, no absolute path, no special file leads out of it.

On POSIX every step is taken from the folder before it (`openat`) and follows no link, so that no other process can
swap a link in between the check and the step. Where the system has no such call, the path is resolved and checked.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from .errors import ErrorCode, InvalidValue, ToolError

__all__ = ["ConfinedFolder", "Found"]

MOST_ENTRIES = 20_000

_STEP = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY = _STEP | getattr(os, "O_DIRECTORY", 0)
# A pipe would wait for a writer; it is refused, but not before it is open.
_FILE = _STEP | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
_HAS_STEPS = {os.open, os.stat} <= os.supports_dir_fd and os.scandir in os.supports_fd and hasattr(os, "O_NOFOLLOW")


class Found(NamedTuple):
    """Something in a folder: its path from the root, what it is (`file`, `folder`, `link`, `other`), its size."""

    path: str
    kind: str
    size: int


class ConfinedFolder:
    """The files below one folder. Every path is relative to it; errors name that path and no other.

    `by_steps` says whether the system can take a path step by step; without it there is a moment between check and
    use.
    """

    def __init__(self, root: str | os.PathLike[str], *, by_steps: bool = _HAS_STEPS) -> None:
        self._by_steps = by_steps
        self.root = Path(root).expanduser().resolve()
        if not self.root.is_dir():
            raise InvalidValue(f"there is no folder {str(root)!r}")

    def list_folder(self, path: str) -> list[Found]:
        """Return what is in a folder, sorted by name, of a huge one a part; nothing is followed."""
        parts = _parts(path)
        prefix = "/".join(parts)
        with self._folder(parts) as folder, _told(path), os.scandir(folder) as entries:
            found = [_described(entry, prefix) for entry in islice(entries, MOST_ENTRIES)]
        return sorted(found)

    @contextmanager
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """Open a plain file; raise ToolError for anything else."""
        *folders, name = _parts(path) or [""]
        if not name:
            raise _refused(path, "it is a folder")
        _require_file_path(path)
        with self._folder(folders) as folder, _told(path):
            descriptor = self._open_plain(folder, name, path)
        with os.fdopen(descriptor, "rb", buffering=1 << 16) as file:
            yield file

    def file_state(self, path: str) -> tuple[int, ...]:
        """Return what changes when a plain file does: where it is, its size, its times; raise ToolError without one."""
        with self.open_file(self._relative(path)) as file:
            status = os.fstat(file.fileno())
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def read_file(self, path: str, *, limit: int) -> bytes:
        """Return the bytes of a plain file; raise ToolError for anything else, or for more than `limit` bytes.

        The path is relative to the folder; an absolute one must lie below it.
        """
        with self.open_file(self._relative(path)) as file, _told(path):
            data = file.read(limit + 1)
        if len(data) > limit:
            raise _refused(path, f"it has more than {limit} bytes")
        return data

    def _relative(self, path: str) -> str:
        if not isinstance(path, str) or not os.path.isabs(path):  # noqa: PTH117  # a Path would lose what is wrong in it
            return path
        _require_file_path(path)
        try:
            return Path(path).relative_to(self.root).as_posix()
        except ValueError:
            raise _refused(path, "it is not in the folder") from None

    def _open_plain(self, folder: int | str, name: str, path: str) -> int:
        location: str = name if isinstance(folder, int) else os.path.join(folder, name)  # noqa: PTH118  # as os.open has it
        within = folder if isinstance(folder, int) else None
        # Looked at before it is opened: opening a device may start it.
        _require_plain(os.stat(location, dir_fd=within, follow_symlinks=False), path)
        descriptor = os.open(location, _FILE, dir_fd=within)
        try:
            _require_plain(os.fstat(descriptor), path)  # and again: it may be another one by now
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    @contextmanager
    def _folder(self, parts: list[str]) -> Iterator[int | str]:
        path = "/".join(parts) or "."
        if not self._by_steps:
            yield self._resolved(parts, path)
            return
        with _told(path):
            descriptor = os.open(self.root, _DIRECTORY)
        try:
            for part in parts:
                with _told(path):
                    following = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = following
            yield descriptor
        finally:
            os.close(descriptor)

    def _resolved(self, parts: list[str], path: str) -> str:
        """The folder by its resolved path, where there are no steps."""
        location = self.root
        for part in parts:
            location = location / part
            if location.is_symlink():
                raise _refused(path, "links are not followed")
        resolved = location.resolve()
        if resolved != self.root.joinpath(*parts) or not resolved.is_relative_to(self.root):
            raise _refused(path, "it leads out of the folder")
        if not resolved.is_dir():
            raise _refused(path, "there is no such folder")
        return str(resolved)


def _parts(path: str) -> list[str]:
    """The steps of a relative path; raise ToolError for one that could lead anywhere else."""
    if not isinstance(path, str) or "\0" in path:
        raise _refused("", "a path has no NUL character")
    pure = PurePosixPath(path.replace("\\", "/") if os.name == "nt" else path)
    if pure.is_absolute() or path.startswith("~"):
        raise _refused(path, "paths are relative to the folder")
    if ".." in pure.parts:
        raise _refused(path, "'..' is not allowed")
    if os.name == "nt" and any(":" in part for part in pure.parts):
        raise _refused(path, "paths are relative to the folder")
    return list(pure.parts)


def _require_file_path(path: str) -> None:
    """Refuse a path that can only be that of a folder, as the system does."""
    if path.endswith(("/", "/.")):
        raise _refused(path, "the path of a file does not end with a slash")


def _described(entry: "os.DirEntry[str]", prefix: str) -> Found:
    path = f"{prefix}/{entry.name}" if prefix else entry.name
    if entry.is_symlink():
        return Found(path, "link", 0)
    if entry.is_dir(follow_symlinks=False):
        return Found(path, "folder", 0)
    if not entry.is_file(follow_symlinks=False):
        return Found(path, "other", 0)
    try:
        return Found(path, "file", entry.stat(follow_symlinks=False).st_size)
    except FileNotFoundError:  # it is gone since
        return Found(path, "other", 0)


def _require_plain(status: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _refused(path, "links are not followed")
    if stat.S_ISDIR(status.st_mode):
        raise _refused(path, "it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "it is no plain file")


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Translate what the system refuses into words that name no path outside the folder."""
    try:
        yield
    except FileNotFoundError:
        raise _refused(path, "there is no such file or folder") from None
    except NotADirectoryError:  # this is also what a link to a folder gives
        raise _refused(path, "a part of it is no folder, or a link; links are not followed") from None
    except OSError as error:
        raise _refused(path, (error.strerror or "it cannot be read").lower()) from None
    except ValueError:
        raise _refused(path, "that is no name of a file") from None


def _refused(path: str, why: str) -> ToolError:
    return ToolError(f"{path[:200]!r} cannot be read: {why}", code=ErrorCode.TOOL_FAILED)
