"""Unique ids for the tool calls of one answer. Hosts repeat ids, or give none. Pure."""

__all__ = ["CallIds"]


class CallIds:
    """The ids that the calls of one answer have so far."""

    __slots__ = ("_next_number", "_used")

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next_number = 0  # only goes up, so that many calls with one id do not try each number again

    def __len__(self) -> int:
        return len(self._used)

    def claim(self, wire_id: str, answer_id: str = "") -> str:
        """Return the next call's id: the wire's own; numbered where that is taken; made up where there is none.

        The id of the answer, if it is known, becomes part of a made-up one.
        """
        call_id = wire_id
        if not wire_id or wire_id in self._used:
            number = max(self._next_number, len(self._used) + bool(wire_id))
            while (call_id := _numbered(wire_id, number, answer_id)) in self._used:
                number += 1
            self._next_number = number + 1
        self._used.add(call_id)
        return call_id


def _numbered(wire_id: str, number: int, answer_id: str) -> str:
    return f"{wire_id}_{number}" if wire_id else f"call_{number}_{answer_id}".rstrip("_")
