"""Which project files the user trusts: their absolute paths and the checksums of what was in them when that was said.

A file that was changed or moved since is not trusted.
"""

import hashlib
import json
import os
from pathlib import Path

from ..errors import UnreadableData
from .folders import state_folder

__all__ = ["distrust", "is_trusted", "trust", "trust_file", "trusted_files"]


def trust_file() -> Path:
    """Return where this is kept."""
    return state_folder() / "trusted.json"


def trusted_files() -> dict[str, str]:
    """Return the checksum of every trusted file by its path."""
    path = trust_file()
    try:
        known = json.loads(path.read_bytes())["files"]
        if not isinstance(known, dict) or not all(isinstance(each, str) for each in known.values()):
            raise TypeError
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreadableData(f"{path} is damaged: remove it, then trust your folders again") from None
    return known


def is_trusted(path: Path, data: bytes) -> bool:
    """Whether the user has trusted a file at this path with exactly this in it."""
    return trusted_files().get(str(path)) == _checksum(data)


def trust(path: Path, data: bytes) -> None:
    """Remember that the user trusts this file as it is now."""
    _keep({**trusted_files(), str(path): _checksum(data)})


def distrust(path: Path) -> bool:
    """Forget that the user trusts this file; return whether that was so."""
    known = trusted_files()
    was_trusted = known.pop(str(path), None) is not None
    if was_trusted:
        _keep(known)
    return was_trusted


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _keep(files: dict[str, str]) -> None:
    from ..files import make_private_folder

    path = trust_file()
    make_private_folder(path.parent)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"files": files}, file, indent=2, ensure_ascii=False)
    part.replace(path)
