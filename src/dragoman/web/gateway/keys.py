"""Who may use the gateway: keys with names and daily limits, and what each key has used today."""

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from ...errors import ErrorCode, InvalidValue, ModelError, UnreadableData
from ...transport.protocol import is_header_value
from ...usage import TokenUsage

__all__ = ["KEY_VARIABLE", "OWNER", "DailyUse", "Keys", "ServeKey", "keys_of", "read_keys"]

KEY_VARIABLE = "DRAGOMAN_SERVE_KEY"
OWNER = "default"  # the name of the key in the environment, which the operator has
SHORTEST = 8
LONGEST_NAME = 50  # of a key: the words by which stores find its responses have the name in them
_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)] | None
_Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0)] | None


class ServeKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key by its name, and what may be used with it in a day (UTC). None is no limit."""

    name: str
    digest: bytes
    requests: _Count = None
    tokens: _Count = None
    dollars: _Amount = None

    @property
    def is_limited(self) -> bool:
        """Whether it counts what answers use."""
        return self.tokens is not None or self.dollars is not None

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
    requests: _Count = None
    tokens: _Count = None
    dollars: _Amount = None


def read_keys(file: Path | None, environment: Mapping[str, str] = os.environ) -> "Keys":
    """Return the keys of a TOML file, a table per name, and that of the environment, which is called `default`."""
    keys: list[ServeKey] = []
    if given := environment.get(KEY_VARIABLE):
        keys.append(ServeKey.of(OWNER, given))
    if file is not None:
        try:
            tables = tomllib.loads(file.read_text("utf-8"))
        except OSError as error:
            raise UnreadableData(f"{file} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise UnreadableData(f"{file} is no TOML: it needs a table per key, such as [alice] and key = …") from None
        if not tables:
            raise UnreadableData(f"{file} has no key: it needs a table per key, such as [alice] and key = …")
        for name, table in tables.items():
            if len(name) > LONGEST_NAME:
                raise UnreadableData(f"{file}: the name [{name[:20]}…] has more than {LONGEST_NAME} characters")
            try:
                fields = msgspec.convert(table, _KeyFields)
            except msgspec.ValidationError as error:
                raise UnreadableData(f"{file}: [{name}] is wrong: {error}") from None
            limits = {field: getattr(fields, field) for field in ("requests", "tokens", "dollars")}
            keys.append(ServeKey.of(name, fields.key, **limits))
    if len({key.name for key in keys}) < len(keys):
        raise InvalidValue(f"{KEY_VARIABLE} is the key {OWNER!r}: call the one in {file} by another name")
    if len({key.digest for key in keys}) < len(keys):
        raise InvalidValue("two names have the same key: give each a key of its own")
    return Keys(keys)


def keys_of(headers: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
    """Return the keys that a client sends, in the fields that clients of the fronts use. Some send more than one."""
    authorization = headers.get("authorization", "")
    bearer = authorization[7:].strip() if authorization[:7].lower() == "bearer " else ""
    given = (bearer, *(headers.get(name, "") for name in _HEADERS), query.get("key", ""))
    return [key for key in given if key]


class Keys:
    """The keys that count. With none, everybody is served who can reach the gateway: it then listens on loopback."""

    def __init__(self, keys: list[ServeKey]) -> None:
        self._keys = keys

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find(self, given: Iterable[str]) -> ServeKey | None:
        """Return the key that was given; None if it is none of these. Without keys, one without a name or limits."""
        if not self._keys:
            return ServeKey(name="", digest=b"")
        found = None
        for digest in map(_digest, given):
            for key in self._keys:  # all of them, so that the time does not tell which is like it
                if compare_digest(key.digest, digest):
                    found = key
        return found


class DailyUse:
    """What each key has used today. It begins anew with the day, and with the process."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._day = date.min
        self._used: dict[str, list[float]] = {}  # requests, tokens, dollars

    def admit(self, key: ServeKey) -> None:
        """Count a request; raise ModelError, `rate_limited`, where the key has used up one of its limits."""
        used = self._of(key)
        limits = (("requests", key.requests), ("tokens", key.tokens), ("dollars", key.dollars))
        for spent, (what, limit) in zip(used, limits, strict=True):
            if limit is not None and spent >= limit:
                now = self._clock()
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
        today = self._clock().date()
        if today != self._day:
            self._day = today
            self._used.clear()
        return self._used.setdefault(key.name, [0.0, 0.0, 0.0])


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()
