"""What a caller notes beside an entry: a small, frozen JSON object."""

from collections.abc import Iterator, Mapping
from typing import Any

from .._jsontext import encode_json, join_surrogates, require_json_object
from ..errors import IllegalAppend, InvalidValue

__all__ = ["METADATA_LIMIT", "NO_METADATA", "Metadata"]

METADATA_LIMIT = 2048  # bytes of JSON; anything larger belongs into an entry of its own


class Metadata(Mapping[str, Any]):
    """An immutable JSON object of at most 2 KB: lists in it are tuples, objects in it are Metadata."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        try:
            plain = _thawed(values)
        except RecursionError:
            raise InvalidValue("metadata is nested too deeply") from None
        require_json_object(plain, "metadata")
        size = len(encode_json(plain))
        if size > METADATA_LIMIT:
            raise IllegalAppend(f"{size} bytes of JSON, at most {METADATA_LIMIT} fit", rule="metadata_too_large")
        self._values: dict[str, Any] = {join_surrogates(key): _frozen(value) for key, value in plain.items()}

    @classmethod
    def of(cls, values: object) -> "Metadata":
        """Return `values` as metadata; raise InvalidValue if JSON cannot hold them, IllegalAppend if they are large."""
        if type(values) is Metadata:
            return values
        if not isinstance(values, Mapping):
            raise InvalidValue.of_content("metadata", values, "a mapping")
        return cls(values) if values else NO_METADATA

    def to_plain(self) -> dict[str, Any]:
        """Return a copy made of dicts and lists."""
        return {key: _thawed(value) for key, value in self._values.items()}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return self.to_plain() == _thawed(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def __repr__(self) -> str:
        return f"Metadata({self.to_plain()!r})"

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return Metadata, (self.to_plain(),)


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        inner = Metadata.__new__(Metadata)
        inner._values = {join_surrogates(key): _frozen(item) for key, item in value.items()}
        return inner
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return join_surrogates(value) if isinstance(value, str) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, (str, int)):  # mostly it is, and to ask whether it is a Mapping takes longer
        return value
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    return [_thawed(item) for item in value] if isinstance(value, (list, tuple)) else value


NO_METADATA = Metadata({})
