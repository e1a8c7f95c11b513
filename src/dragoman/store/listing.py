"""Which sessions a list holds: the same filters and pages in every store."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from ..errors import InvalidValue
from ..message import utc_time
from .protocol import RunRequest, SessionInfo, SessionPage
from .refusals import require_limit, require_listed_id, require_serial, require_session_id
from .requests import ENDED

__all__ = ["ListQuery", "RequestQuery", "page_of"]


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. `before` is the number of the last session of the page before, None at the beginning."""

    metadata: Mapping[str, Any]
    forks_of: str | None
    created_from: datetime | None
    created_before: datetime | None
    limit: int
    before: int | None

    @classmethod
    def of(
        cls,
        *,
        metadata: Mapping[str, Any],
        forks_of: str | None,
        created_from: datetime | None,
        created_before: datetime | None,
        limit: int,
        page: str | None,
    ) -> "ListQuery":
        """Return the query; raise InvalidValue for what no list can answer."""
        require_limit(limit)
        if not isinstance(metadata, Mapping):
            raise InvalidValue.of_content("metadata", metadata, "a mapping")
        if forks_of is not None:
            require_listed_id(forks_of, "forks_of")
        return cls(
            metadata=metadata,
            forks_of=forks_of,
            created_from=utc_time(created_from),
            created_before=utc_time(created_before),
            limit=limit,
            before=_number_of(page),
        )

    def fits(self, info: SessionInfo) -> bool:
        """Return whether the session is one of those asked for."""
        if self.forks_of is not None and (info.forked_from is None or info.forked_from.session_id != self.forks_of):
            return False
        if self.created_from is not None and info.created_at < self.created_from:
            return False
        if self.created_before is not None and info.created_at >= self.created_before:
            return False
        return all(name in info.metadata and info.metadata[name] == value for name, value in self.metadata.items())


class RequestQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which requested runs are asked for. `before` is the number of the last one of the page before."""

    session_id: str | None
    serial: int | None
    key: str | None
    open_only: bool
    limit: int
    before: int | None

    @classmethod
    def of(
        cls,
        *,
        session_id: str | None,
        serial: int | None,
        key: str | None,
        open_only: bool,
        limit: int,
        page: str | None,
    ) -> "RequestQuery":
        """Return the query; raise InvalidValue for what no list can answer."""
        if session_id is not None:
            require_session_id(session_id)
        if serial is not None:
            require_serial(serial, "serial")
        if key is not None and not (isinstance(key, str) and key.isprintable()):
            raise InvalidValue.of("key", key, "printable text")
        require_limit(limit)
        return cls(
            session_id=session_id,
            serial=serial,
            key=key,
            open_only=bool(open_only),
            limit=limit,
            before=_number_of(page),
        )

    def fits(self, number: int, request: RunRequest) -> bool:
        """Return whether the request of that number is one of those asked for."""
        return (
            (self.before is None or number < self.before)
            and self.session_id in (None, request.session_id)
            and self.serial in (None, request.serial)
            and self.key in (None, request.key)
            and not (self.open_only and request.status in ENDED)
        )


def page_of(query: ListQuery, numbered: Iterable[tuple[int, SessionInfo | str]]) -> SessionPage:
    """Return the page that the sessions make, which come with their numbers, the newest first, after `query.before`.

    A damaged session has only an id, and whether it fits is unknown: the page lists it apart.
    """
    found: list[tuple[int, SessionInfo]] = []
    damaged: list[tuple[int, str]] = []
    next_page = None
    for number, info in numbered:
        if isinstance(info, str):
            damaged.append((number, info))
        elif query.fits(info):
            if len(found) == query.limit:
                last = found[-1][0]
                damaged = [each for each in damaged if each[0] > last]  # the others are on the next page
                next_page = str(last)
                break
            found.append((number, info))
    return SessionPage(tuple(info for _, info in found), next_page, tuple(name for _, name in damaged))


def _number_of(page: str | None) -> int | None:
    """Return the number that the next page begins after; raise InvalidValue for what no list gave."""
    if page is None:
        return None
    if not (isinstance(page, str) and page.isascii() and page.isdigit() and len(page) < 19):
        raise InvalidValue.of("page", page, "the next_page of the page before")
    return int(page)
