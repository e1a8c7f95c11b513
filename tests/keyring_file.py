"""A keyring in a file, for tests: `PYTHON_KEYRING_BACKEND=tests.keyring_file.FileKeyring`."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

PLACE = "TEST_KEYRING_FILE"


class FileKeyring(KeyringBackend):
    """Keeps passwords in the file that TEST_KEYRING_FILE names; without one it is locked."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def get_password(self, service: str, username: str) -> str | None:
        found: str | None = self._read().get(f"{service} {username}")
        return found

    def set_password(self, service: str, username: str, password: str) -> None:
        self._path().write_text(json.dumps({**self._read(), f"{service} {username}": password}), encoding="utf-8")

    def delete_password(self, service: str, username: str) -> None:
        kept = self._read()
        del kept[f"{service} {username}"]
        self._path().write_text(json.dumps(kept), encoding="utf-8")

    def _read(self) -> dict[str, str]:
        path = self._path()
        read: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return read

    def _path(self) -> Path:
        if PLACE not in os.environ:
            raise KeyringLocked("locked")
        return Path(os.environ[PLACE])
