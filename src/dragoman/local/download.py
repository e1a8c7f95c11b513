"""A model file from an address: fetched piece by piece, carried on after a cut, kept when its checksum is right.

An address is `hf:owner/repository/file.gguf` or `https://host/…/file.gguf`. Knows no model and no package.
"""

import hashlib
import http.client
import os
import re
import shutil
import string
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from ..errors import DragomanError, ErrorCode, InvalidValue, redact
from ..files import make_private_folder
from .gguf import MAGIC

__all__ = ["Address", "OnProgress", "Record", "fetch_file", "hash_file", "read_address", "read_record"]

OnProgress: TypeAlias = Callable[[str, int, int], None]

HUB = "https://huggingface.co"
CHUNK = 1 << 16
TIMEOUT_SECONDS = 20.0
TRIES = 5  # in a row that bring nothing, and all that discard what had come
TELL_EVERY_SECONDS = 0.2
SHOWN = 200  # characters of an address in an error
LONGEST_NAME = 240  # bytes: most file systems take 255, and endings are added
LONGEST_PATH = 1_000  # below the folder of models
_HUB_NAME = re.compile(r"hf:(?P<owner>[\w.-]+)/(?P<repository>[\w.-]+)/(?P<file>(?:[\w.-]+/)*[\w.-]+\.gguf)")
_HEADERS = {"User-Agent": "dragoman", "Accept-Encoding": "identity"}
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_SIZE = re.compile(r"[0-9]{1,18}")
_CONTENT_RANGE = re.compile(r"bytes (?P<start>[0-9]{1,18})-[0-9]{1,18}/(?:(?P<total>[0-9]{1,18})|\*)")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Address(msgspec.Struct, frozen=True):
    """Where a file is, as a person types it; its URL, and its path below the folder of models."""

    name: str
    url: str
    path: str
    # Goes to the hub alone, and not to where the hub redirects.
    token: str | None = None

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


class Record(msgspec.Struct, frozen=True):
    """What is recorded beside a fetched file."""

    source: str
    size: int
    sha256: str


class _Partial(msgspec.Struct, frozen=True):
    """What is recorded beside a part of a file: its URL, the server's validator of this version, and its whole size."""

    url: str
    validator: str
    total: int  # 0 where the server did not say it


class _Span(msgspec.Struct, frozen=True):
    """Which bytes of the file a response has: where they start (-1 if unreadable), the file's size (0 if not said)."""

    start: int
    total: int
    # Whether the end of the body is the end of the file, without a size that says so.
    ends_file: bool


class _Cut(Exception):  # not an error: the fetch goes on
    """The connection ended before the file did, or the server is busy."""


def read_address(name: str) -> Address | None:
    """Return the address of a file, None for what is none; raise InvalidValue for one that cannot be used."""
    if name.startswith("hf:"):
        found = _HUB_NAME.fullmatch(name)
        if found is None or ".." in name:
            raise InvalidValue(f"{name!r} is no file of the hub: give hf:owner/repository/file.gguf")
        hub = (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")
        url = f"{hub}/{found['owner']}/{found['repository']}/resolve/main/{found['file']}"
        path = f"hf/{found['owner']}/{found['repository']}/{found['file']}"
        return Address(name, _safe_url(url), _require_short(path), _read_token())
    if not re.match(r"https?://", name):
        return None
    url = _safe_url(name)
    file = unquote(urlsplit(url).path).rpartition("/")[2]
    if not re.fullmatch(r"[\w .-]+\.gguf", file):
        raise InvalidValue(f"{redact(name)[:SHOWN]!r} names no .gguf file")
    # Two addresses may differ in what cannot be the name of a folder.
    folder = f"{urlsplit(url).hostname}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return Address(name, url, _require_short(f"{folder}/{file}"))


def read_record(path: Path) -> Record | None:
    """Return what is recorded of a fetched file; None where it is not here, or not whole by its size."""
    try:
        record = msgspec.json.decode(_beside(path, ".json").read_bytes(), type=Record)
        return record if path.stat().st_size == record.size else None
    except (OSError, msgspec.DecodeError):
        return None


def fetch_file(
    address: Address,
    target: Path,
    *,
    sha256: str | None = None,
    tries: int = TRIES,
    on_progress: OnProgress = lambda _step, _done, _all: None,
    pause: Callable[[float], None] = time.sleep,
) -> Record:
    """Fetch the file, check it, put it at `target` with its record beside it, and return the record.

    What had come before a cut or an interrupt is kept, and the next call goes on there if the file is still the same.
    `sha256` is what its checksum must be; the hub says its own. It gives up after `tries` that brought nothing: those
    in a row, and all that had to begin again. `on_progress` is told what is done, how many bytes of it, and of how
    many, 0 where the server does not say.
    """
    if sha256 is not None and not _DIGEST.fullmatch(sha256):
        raise InvalidValue.of("sha256", sha256, "64 digits from 0 to f")
    make_private_folder(target.parent)
    part = _beside(target, ".part")
    with _only_one(part):
        fetching = _Fetch(address, part, sha256, on_progress)
        idle = 0
        while True:
            before, discards = part.stat().st_size, fetching.discards
            try:
                fetching.go_on()
                break
            except _Cut as cut:
                if fetching.discards == discards:
                    idle = 0 if part.stat().st_size > before else idle + 1
                # Discards are never forgiven: a file that changes at each try would be fetched for ever.
                failed = idle + fetching.discards
                if failed >= tries:
                    kept = " What had come is kept: the same command goes on from there" if part.stat().st_size else ""
                    raise DragomanError(
                        f"{fetching.host} could not be reached, the connection broke, or the file changed, {tries}"
                        f" times ({cut}).{kept}",
                        code=ErrorCode.CONNECTION,
                    ) from cut.__cause__
                pause(min(2.0**failed, 30.0))
        record = Record(address.name, part.stat().st_size, _checked(part, fetching.expected, on_progress))
        _beside(target, ".json").write_bytes(msgspec.json.encode(record))
        part.replace(target)
        _beside(part, ".json").unlink(missing_ok=True)
    return record


def hash_file(path: Path, on_progress: OnProgress = lambda _step, _done, _all: None) -> str:
    """Return the SHA-256 of a file."""
    digest, done, told, whole = hashlib.sha256(), 0, 0.0, path.stat().st_size
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            done += len(chunk)
            if time.monotonic() - told > TELL_EVERY_SECONDS or done == whole:
                told = time.monotonic()
                on_progress("checking", done, whole)
    return digest.hexdigest()


class _Fetch:
    """One file on its way. `go_on` fetches what is missing, or raises _Cut."""

    def __init__(self, address: Address, part: Path, sha256: str | None, on_progress: OnProgress) -> None:
        self.host = urlsplit(address.url).hostname or ""
        self.expected = sha256
        self.discards = 0  # how often bytes that had come were discarded
        self._address = address
        self._part = part
        self._on_progress = on_progress

    def go_on(self) -> None:
        """Fetch what is missing. Returns when the file is whole; raises _Cut if another try may bring the rest."""
        self._on_progress(f"asking {self.host}", 0, 0)
        known = self._known_part()
        offset = self._part.stat().st_size if known else 0
        request = urllib.request.Request(self._address.url, headers=_HEADERS)  # noqa: S310  # https, or this machine
        if self._address.token:
            request.add_unredirected_header("Authorization", f"Bearer {self._address.token}")
        if known is not None and offset:
            request.add_header("Range", f"bytes={offset}-")
            request.add_header("If-Range", known.validator)
        redirects = _Redirects()
        try:
            with self._open(request, redirects) as response:
                self._expect(redirects.linked_digest)
                span = _read_span(response)
                if span.start and (known is None or span.start != offset or not self._continues(known, span, response)):
                    self._forget()
                    raise _Cut("the server goes on with another file than the one that was begun")
                self._receive(response, span, known if span.start else None)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error, offset, known)
        except (OSError, http.client.HTTPException) as error:
            raise _Cut(_reason(error)) from error

    def _open(self, request: urllib.request.Request, redirects: "_Redirects") -> Any:
        try:
            return urllib.request.build_opener(redirects).open(request, timeout=TIMEOUT_SECONDS)
        except DragomanError:
            raise
        except ValueError:  # our own address was checked before
            said = f"{self.host} redirects to an address that cannot be read"
            raise DragomanError(said, code=ErrorCode.SERVER_ERROR, retryable=False) from None

    def _continues(self, known: _Partial, span: _Span, response: Any) -> bool:
        """Whether a part is of the version that was begun, as far as the server says."""
        if _validator(response) not in ("", known.validator):
            return False
        if known.total and span.total:
            return known.total == span.total
        return bool(known.total or span.total or self.expected)  # a part of unknown size may not be the last one

    def _known_part(self) -> _Partial | None:
        """What was begun before, if it can be gone on with."""
        try:
            known = msgspec.json.decode(_beside(self._part, ".json").read_bytes(), type=_Partial)
        except (OSError, msgspec.DecodeError):
            return None
        return known if known.url == self._address.url and known.validator else None

    def _forget(self) -> None:
        self._keep_only(0)
        _beside(self._part, ".json").unlink(missing_ok=True)

    def _keep_only(self, size: int) -> None:
        """Discard what had come after the first `size` bytes."""
        if self._part.stat().st_size > size:
            self.discards += 1
            os.truncate(self._part, size)

    def _expect(self, digest: str | None) -> None:
        if digest is not None and self.expected not in (None, digest):
            raise DragomanError(
                f"the hub says that the SHA-256 of {self._address.name} is {digest}, not the one that was given",
                code=ErrorCode.CORRUPT,
            )
        self.expected = digest or self.expected

    def _receive(self, response: Any, span: _Span, known: _Partial | None) -> None:
        """Keep the body; `known` is the part that it continues."""
        start, whole, validator = span.start, span.total, _validator(response)
        if known is not None:  # a later response need not say again what the first one said
            whole, validator = whole or known.total, validator or known.validator
        if not whole and not span.ends_file and self.expected is None:
            raise DragomanError(
                f"{self.host} does not say how long the file is, and a part of it would pass for the whole: give its"
                " checksum with --sha256",
                code=ErrorCode.UNSUPPORTED,
            )
        _require_room(self._part.parent, whole - start)
        self._keep_only(start)
        partial = _Partial(self._address.url, validator, whole)
        _beside(self._part, ".json").write_bytes(msgspec.json.encode(partial))
        done, told = start, 0.0
        with self._part.open("r+b", buffering=0) as sink:
            sink.seek(start)
            self._on_progress("fetching", done, whole)
            while chunk := response.read1(CHUNK):
                _keep(sink, chunk)
                done += len(chunk)
                if whole and done > whole:
                    break
                now = time.monotonic()
                if now - told > TELL_EVERY_SECONDS or done == whole:
                    told = now
                    self._on_progress("fetching", done, whole)
            os.fsync(sink.fileno())
        if whole and done > whole:
            self._forget()
            raise _Cut(f"more than {whole} bytes came")
        if done < whole:
            raise _Cut(f"{done} of {whole} bytes came")

    def _refused(self, error: urllib.error.HTTPError, offset: int, known: _Partial | None) -> None:
        """Do what the status asks for; return if the file is already whole."""
        status, name = error.code, self._address.name
        if status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            is_end = error.headers.get("Content-Range") == f"bytes */{offset}"
            if is_end and known is not None and known.total in (0, offset):
                return
            self._forget()
            raise _Cut("the file is another now") from error
        if status in (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.REQUEST_TIMEOUT) or status >= 500:
            raise _Cut(f"status {status}") from error
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            asks = "needs a token: set HF_TOKEN" if name.startswith("hf:") else "refuses it"
            said = f"{redact(name)}: {self.host} {asks} (status {status})"
            raise DragomanError(said, code=ErrorCode.PERMISSION) from None
        if status == http.HTTPStatus.NOT_FOUND:
            raise DragomanError(f"{self.host} has no {redact(name)}", code=ErrorCode.NOT_FOUND) from None
        said = f"{self.host} answers {redact(name)} with status {status}"
        raise DragomanError(said, code=ErrorCode.SERVER_ERROR, retryable=False) from None


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, never to a less safe address; keeps what the hub says of the file on the way."""

    linked_digest: str | None = None

    def redirect_request(  # noqa: PLR0917  # the signature of its base
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        _safe_url(newurl)
        linked = (headers.get("X-Linked-Etag") or "").strip('"')
        if _DIGEST.fullmatch(linked):
            self.linked_digest = linked
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _safe_url(url: str) -> str:
    """Return the URL in ASCII; refuse a host that is neither https nor this machine, and a user or password."""
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
        is_safe = is_safe and parts.port != 0 and "@" not in parts.netloc
        is_safe = is_safe and re.fullmatch(r"[\w.:-]+", parts.hostname or "") is not None
        host = parts.netloc.encode("idna").decode()
        path, query = (quote(part, safe=f"%{string.punctuation}") for part in (parts.path, parts.query))
    except ValueError:
        is_safe = False
    if not is_safe:
        raise InvalidValue(f"{redact(url)[:SHOWN]!r} is no address to fetch weights from: it must be an https one")
    return urlunsplit((parts.scheme, host, path, query, ""))


def _require_short(path: str) -> str:
    """Return the path; refuse one that file systems do not take."""
    if len(path) > LONGEST_PATH or any(len(name.encode()) > LONGEST_NAME for name in path.split("/")):
        raise InvalidValue(f"the address has a name of more than {LONGEST_NAME} bytes, which cannot be a file's name")
    return path


def _read_token() -> str | None:
    token = os.environ.get("HF_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):
        raise InvalidValue("HF_TOKEN has characters that no token has: set it again")
    return token or None


def _read_span(response: Any) -> _Span:
    """Read which bytes of the file come. Numbers that no file can have count as not said."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range") or "")
        if found is None:
            return _Span(-1, 0, ends_file=False)
        return _Span(int(found["start"]), int(found["total"] or 0), ends_file=False)
    length = "" if response.chunked else response.headers.get("Content-Length") or ""
    return _Span(0, int(length) if _SIZE.fullmatch(length) else 0, ends_file=response.chunked)


def _validator(response: Any) -> str:
    """By what the server knows this version of the file: a strong entity tag, else a date; empty if it has neither."""
    tag = response.headers.get("ETag") or ""
    return tag if tag.startswith('"') else response.headers.get("Last-Modified") or ""


def _checked(part: Path, expected: str | None, on_progress: OnProgress) -> str:
    """Return the checksum of the file; raise DragomanError, and remove it, where it is not the expected one."""
    with part.open("rb") as file:
        is_model = file.read(len(MAGIC)) == MAGIC
    digest = hash_file(part, on_progress)
    if is_model and expected in (None, digest):
        return digest
    os.truncate(part, 0)
    _beside(part, ".json").unlink(missing_ok=True)
    why = f"its SHA-256 is {digest}, and should be {expected}" if is_model else "it is no GGUF file"
    raise DragomanError(f"what came is not kept: {why}", code=ErrorCode.CORRUPT)


@contextmanager
def _only_one(part: Path) -> Iterator[None]:
    """Hold the part for this process alone; raise DragomanError where another one fetches it."""
    with part.open("ab") as held:
        try:
            import fcntl

            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:
            pass  # Windows: two fetches at once end in a wrong checksum
        except OSError:
            raise DragomanError(f"another process fetches {part.stem} now", code=ErrorCode.CONFLICT) from None
        try:
            yield
        finally:
            if part.is_file() and not part.stat().st_size:
                part.unlink()  # nothing came


def _require_room(folder: Path, needed: int) -> None:
    if shutil.disk_usage(folder).free < needed:
        raise DragomanError(
            f"there is too little room in {folder}: {needed / 1e6:.0f} MB are to come. "
            "Make room, or name another folder in DRAGOMAN_CACHE",
            code=ErrorCode.QUOTA_EXCEEDED,
        )


def _keep(sink: IO[bytes], chunk: bytes) -> None:
    """Write to the disk; its failure is not one of the network."""
    try:
        sink.write(chunk)
    except OSError as error:
        raise DragomanError(
            f"the weights could not be kept: {error.strerror}", code=ErrorCode.QUOTA_EXCEEDED
        ) from error


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _reason(error: Exception) -> str:
    """What went wrong, without an address in it."""
    inner = getattr(error, "reason", None)
    said = inner if isinstance(inner, Exception) else error
    return getattr(said, "strerror", None) or type(said).__name__
