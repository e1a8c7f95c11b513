"""Who may use the gateway: keys with names and daily limits, and what each key has used today."""

import os
import tomllib
from collections.abc import Mapping
from datetime import UTC, date, datetime
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

import msgspec

from ..errors import ErrorCode, InvalidValue, ModelError, UnreadableData
from ..transport.protocol import is_header_value
from ..usage import TokenUsage

__all__ = ["KEY_VARIABLE", "DailyUse", "Keys", "ServeKey", "key_of", "read_keys"]

KEY_VARIABLE = "DRAGOMAN_SERVE_KEY"
SHORTEST = 8
_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")


class ServeKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key by its name, and what may be used with it in a day (UTC). None is no limit."""

    name: str
    digest: bytes
    requests: int | None = None
    tokens: int | None = None
    dollars: float | None = None

    @classmethod
    def of(cls, name: str, key: str, **limits: object) -> "ServeKey":
        """Return the key; raise InvalidValue for one that no client could send. The key itself is not kept."""
        fits = len(key) >= SHORTEST and is_header_value(key) and " " not in key
        digest = _digest(key)
        del key  # error reporters collect local variables
        if not fits:
            raise InvalidValue(f"the key {name!r} must be printable ASCII without space, of {SHORTEST} characters up")
        return msgspec.convert({"name": name, "digest": digest, **limits}, cls)


class _KeyFields(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    requests: int | None = None
    tokens: int | None = None
    dollars: float | None = None


def read_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> "Keys":
    """Return the keys of a TOML file, a table per name, and that of the environment, which is called `default`."""
    keys: list[ServeKey] = []
    if given := environment.get(KEY_VARIABLE):
        keys.append(ServeKey.of("default", given))
    if file is not None:
        try:
            tables = tomllib.loads(file.read_text("utf-8"))
        except OSError as error:
            raise UnreadableData(f"{file} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise UnreadableData(f"{file} is no TOML: it needs a table per key, such as [alice] and key = …") from None
        for name, table in tables.items():
            try:
                fields = msgspec.convert(table, _KeyFields)
            except msgspec.ValidationError as error:
                raise UnreadableData(f"{file}: [{name}] is wrong: {error}") from None
            limits = {field: getattr(fields, field) for field in ("requests", "tokens", "dollars")}
            keys.append(ServeKey.of(name, fields.key, **limits))
    if len({key.digest for key in keys}) < len(keys):
        raise InvalidValue("two names have the same key: give each a key of its own")
    return Keys(keys)


def key_of(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """Return the key that a client sends, in whichever of the fields that clients of the fronts use."""
    authorization = headers.get("authorization", "")
    if authorization[:7].lower() == "bearer ":
        return authorization[7:].strip()
    return next((headers[name] for name in _HEADERS if headers.get(name)), query.get("key", ""))


class Keys:
    """The keys that count. With none, everybody is served who can reach the gateway: it then listens on loopback."""

    def __init__(self, keys: list[ServeKey]) -> None:
        self._keys = keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, given: str) -> ServeKey | None:
        """Return the key that was given; None if it is none of these. Without keys, one without a name or limits."""
        if not self._keys:
            return ServeKey(name="", digest=b"")
        digest, found = _digest(given), None
        for key in self._keys:  # all of them, so that the time does not tell which is like it
            if compare_digest(key.digest, digest):
                found = key
        return found


class DailyUse:
    """What each key has used today. It begins anew with the day, and with the process."""

    def __init__(self) -> None:
        self._day = date.min
        self._used: dict[str, list[float]] = {}  # requests, tokens, dollars

    def admit(self, key: ServeKey) -> None:
        """Count a request; raise ModelError, `rate_limited`, where the key has used up one of its limits."""
        used = self._of(key)
        limits = (("requests", key.requests), ("tokens", key.tokens), ("dollars", key.dollars))
        for spent, (what, limit) in zip(used, limits, strict=True):
            if limit is not None and spent >= limit:
                now = datetime.now(UTC)
                rest = 86_400 - (now.hour * 3_600 + now.minute * 60 + now.second)
                message = f"the key {key.name!r} has used its {limit:g} {what} of today (UTC)"
                raise ModelError(message, code=ErrorCode.RATE_LIMITED, retry_after=rest)
        used[0] += 1

    def add(self, key: ServeKey, usage: TokenUsage | None) -> None:
        """Count what an answer used."""
        if usage is not None:
            used = self._of(key)
            used[1] += (usage.input_tokens or 0) + (usage.output_tokens or 0)
            used[2] += usage.cost or 0.0

    def _of(self, key: ServeKey) -> list[float]:
        today = datetime.now(UTC).date()
        if today != self._day:
            self._day = today
            self._used.clear()
        return self._used.setdefault(key.name, [0.0, 0.0, 0.0])


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
