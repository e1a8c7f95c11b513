"""Whether a SQLite file and its log are still the files that the next process will open.

SQLite goes on writing to a file that was deleted, replaced or cut short under it, and reports success. So the writer
looks at the names, before it acknowledges anything.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..errors import ErrorCode, StoreError

__all__ = ["FileWatch", "is_open_here"]

_open_here: Counter[tuple[int, int]] = Counter()
_lock = threading.Lock()


class _Seen(NamedTuple):
    """A file as its name led to it: which one it is, and how long."""

    device: int
    inode: int
    size: int


def is_open_here(path: Path) -> bool:
    """Return whether a store of this process has the file open.

    Then no one may open and close it but SQLite: closing any descriptor drops the locks of the whole process.
    """
    seen = _look(str(path))
    return seen is not None and _open_here[seen[:2]] > 0


class FileWatch:
    """Compares the files with what they were. `is_sound` reads the file anew and returns whether it holds together.

    A file may become shorter for a good reason: another process has erased a session, or emptied the log.
    """

    def __init__(self, path: Path, is_sound: Callable[[], bool]) -> None:
        self._name = path.name
        self._paths = (str(path), f"{path}-wal")
        self._is_sound = is_sound
        self._seen = tuple(_look(each) for each in self._paths)
        self._lost: StoreError | None = None  # why nothing is acknowledged any more
        self._file = self._seen[0][:2] if self._seen[0] is not None else None
        if self._file is not None:
            with _lock:
                _open_here[self._file] += 1

    def close(self) -> None:
        """Watch no more."""
        if self._file is not None:
            with _lock:
                _open_here[self._file] -= 1
            self._file = None

    @property
    def is_log_whole(self) -> bool:
        """Whether the log is no shorter than it was. Asked before writing: SQLite would fill the gap with zeros."""
        before, now = self._seen[1], _look(self._paths[1])
        return before is None or (now is not None and now.size >= before.size)

    def is_as_before(self) -> bool:
        """Return whether both are the files that they were, and not shorter. Costs a microsecond or two."""
        seen = tuple(_look(each) for each in self._paths)
        for before, now in zip(self._seen, seen, strict=True):
            if now is None or (before is not None and (now[:2] != before[:2] or now.size < before.size)):
                return False
        self._seen = seen
        return self._lost is None

    def find_loss(self) -> StoreError | None:
        """Return the error (`corrupt`) if the names no longer lead to the files that are written."""
        if self.is_as_before():
            return None
        seen = tuple(_look(each) for each in self._paths)
        if self._lost is None and self._are_same(seen) and self._is_sound():
            self._seen = seen
            return None
        self._lost = self._lost or StoreError(
            f"{self._name}: the file, or its log, was deleted, replaced or cut short while it was open: "
            "nothing that is appended here would be kept; close the store and open it again",
            code=ErrorCode.CORRUPT,
        )
        return self._lost

    def require_sound(self) -> None:
        """Raise that error."""
        if loss := self.find_loss():
            raise loss

    def _are_same(self, seen: tuple[_Seen | None, ...]) -> bool:
        main = seen[0]
        if main is None or main.size == 0:  # SQLite deletes the log of an empty file
            return False
        return all(
            now is not None and (before is None or now[:2] == before[:2])
            for before, now in zip(self._seen, seen, strict=True)
        )


def _look(path: str) -> _Seen | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # on the path of every append
    except OSError:
        return None
    return _Seen(found.st_dev, found.st_ino, found.st_size)
