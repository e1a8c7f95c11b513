"""Ids for the sessions of clients: after the program and its own name for the conversation."""

import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...errors import ErrorCode, InvalidValue, StoreError
from ...store.refusals import require_new_session_id

if TYPE_CHECKING:
    from .said import Said

__all__ = ["SessionNames", "require_joinable"]

TRIES = 20  # numbers behind a name that is taken
REMEMBERED = 10_000  # names whose next number is known


class SessionNames:
    """Proposes ids, best first; the last one is free."""

    def __init__(self) -> None:
        self._next_numbers: OrderedDict[str, int] = OrderedDict()

    def proposed(self, said: "Said", *, is_side: bool) -> Iterator[str]:
        """Yield ids for a new session: the name, then name-2, name-3 …, at last a random one.

        Those of a side session have the suffix -side.
        """
        suffix = "-side" if is_side else ""
        if not said.base_name:
            yield f"{said.program}-{os.urandom(6).hex()}{suffix}"
        else:
            name = f"{said.base_name}{suffix}"
            first = self._next_numbers.get(name, 1)
            for number in range(first, first + TRIES):
                self._next_numbers[name] = number + 1
                self._next_numbers.move_to_end(name)
                if len(self._next_numbers) > REMEMBERED:
                    self._next_numbers.popitem(last=False)
                yield name if number == 1 else f"{name}-{number}"
        yield f"{said.base_name or said.program}{suffix}-{os.urandom(12).hex()}"


def require_joinable(session_id: str) -> None:
    """Raise StoreError, `invalid_request`, where no session can have the id that a client names."""
    try:
        require_new_session_id(session_id)
    except InvalidValue as error:
        raise StoreError(f"no session can be joined: {error}", code=ErrorCode.INVALID_REQUEST) from None
