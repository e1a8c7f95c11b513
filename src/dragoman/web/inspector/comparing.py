"""Two requests beside each other: rows by entry, each equal, of the same words, different, or on one side. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import groupby, islice, zip_longest
from typing import Any

from ..._jsontext import decode_json
from ...errors import InvalidValue, UnreadableData
from ...review.comparing import longest
from .jobs import Check, never_abandon
from .requests import Rendered, Unit, shorten, units_of

__all__ = ["compare_requests", "compare_row", "side_of"]

EQUAL, SAME_WORDS, DIFFERENT, LEFT, RIGHT = "equal", "words", "different", "left", "right"
MOST_ROWS = 2_000  # of the conversation that are told one by one
WHOLE_TEXT = 1 << 20  # characters of one text in a row that a reader opened
SHORTEST_WORD = 12  # shorter texts are mostly names of the envelope


def compare_requests(left: Rendered, right: Rendered, check: Check = never_abandon) -> dict[str, Any]:
    """Return both sides with their figures, the rows, and the first byte of the bodies that differs.

    Of very long requests the newest rows are told. A row with a `count` stands for so many blocks that are left out.
    """
    rows = [shorten(row) for row in _rows(units_of(left, check), units_of(right, check))]
    common = _common(left.request.body, right.request.body)
    is_same = left.request.body == right.request.body
    return {
        "left": side_of(left),
        "right": side_of(right),
        "rows": rows,
        "leftOut": sum(row.get("count", 0) for row in rows),
        "commonBytes": common,
        "isSame": is_same,
        "around": None if is_same else [_around(side.request.body, common) for side in (left, right)],
    }


def compare_row(left: Rendered, right: Rendered, place: int, check: Check = never_abandon) -> dict[str, Any]:
    """Return one of the rows with all of its texts; raise InvalidValue if there is none of that number."""
    row = next(islice(_rows(units_of(left, check), units_of(right, check)), place, None), None)
    if row is None:
        raise InvalidValue(f"the comparison has no row {place}")
    return {"row": shorten(row, WHOLE_TEXT)}


def side_of(rendered: Rendered) -> dict[str, Any]:
    """Return the figures of one request."""
    stats = rendered.context.stats
    info = rendered.model.model_info()
    prices = info.prices if info is not None else None
    return {
        "model": rendered.name,
        "specification": rendered.model.invocation.specification,
        "method": rendered.request.method,
        "path": rendered.request.path,
        "bytes": len(rendered.request.body),
        "tokens": stats.tokens,
        "budget": stats.budget,
        "messages": len(rendered.context.messages),
        "tools": len(rendered.context.tool_specs),
        "coldPrice": None if prices is None else stats.tokens * prices.input / 1_000_000,
        "notes": list(rendered.notes),
    }


def _rows(left: Sequence[Unit], right: Sequence[Unit]) -> Iterator[dict[str, Any]]:
    """Rows of two requests; of long ones the frame, one row for what comes before the newest, and the newest."""
    if max(len(left), len(right)) <= MOST_ROWS:
        yield from _aligned(left, right)
        return
    frames = [_frame_length(side) for side in (left, right)]
    yield from _aligned(left[: frames[0]], right[: frames[1]])
    left, right = left[frames[0] :], right[frames[1] :]
    pairs = enumerate(zip(left, right, strict=False))
    equal = next((place for place, (one, other) in pairs if one != other), min(len(left), len(right)))
    equal = max(equal - MOST_ROWS // 10, 0)  # some of them stand before what differs
    if equal:
        yield _left_out(EQUAL, left[:equal], right[:equal], "equal")
        left, right = left[equal:], right[equal:]
    first = max(_first_serial(left), _first_serial(right))
    places = [
        next((place for place, unit in enumerate(side) if _serial(unit) >= first), len(side)) for side in (left, right)
    ]
    if any(places):
        yield _left_out(DIFFERENT, left[: places[0]], right[: places[1]], "earlier")
    yield from _aligned(left[places[0] :], right[places[1] :])


def _frame_length(units: Sequence[Unit]) -> int:
    """How many units stand before the conversation, at most as many as are shown."""
    said = (place for place, unit in enumerate(units) if unit.key[:1] == "#" or unit.key == "ledger")
    return min(next(said, len(units)), MOST_ROWS)


def _serial(unit: Unit) -> int:
    return int(unit.key[1:]) if unit.key[:1] == "#" else -1


def _first_serial(units: Sequence[Unit]) -> int:
    """The first serial of the newest units."""
    return _serial(units[-MOST_ROWS]) if len(units) > MOST_ROWS else -1


def _left_out(state: str, left: Sequence[Unit], right: Sequence[Unit], words: str) -> dict[str, Any]:
    keys = [unit.key for unit in (*left[:1], *right[:1])]
    return {
        "key": f"{keys[0]} …",
        "state": state,
        "left": f"{len(left):,} {words} blocks",
        "right": f"{len(right):,} {words} blocks",
        "count": max(len(left), len(right)),
    }


def _aligned(left: Sequence[Unit], right: Sequence[Unit]) -> Iterator[dict[str, Any]]:
    groups = [[(key, list(units)) for key, units in groupby(side, lambda unit: unit.key)] for side in (left, right)]
    keys = [[key for key, _ in side] for side in groups]
    for tag, left_from, left_to, right_from, right_to in SequenceMatcher(None, keys[0], keys[1], False).get_opcodes():
        if tag == "equal":
            for one, other in zip(groups[0][left_from:left_to], groups[1][right_from:right_to], strict=True):
                yield from _pairs(one[0], one[1], other[1])
            continue
        for key, units in groups[0][left_from:left_to]:
            yield from (_row(key, unit, None) for unit in units)
        for key, units in groups[1][right_from:right_to]:
            yield from (_row(key, None, unit) for unit in units)


def _pairs(key: str, left: Sequence[Unit], right: Sequence[Unit]) -> Iterator[dict[str, Any]]:
    """The units of one entry in pairs: those that say the same, then the others in their order."""
    words = [[_words(unit.value) for unit in side] for side in (left, right)]
    for tag, left_from, left_to, right_from, right_to in SequenceMatcher(None, words[0], words[1], False).get_opcodes():
        one, other = left[left_from:left_to], right[right_from:right_to]
        pairs = zip(one, other, strict=True) if tag == "equal" else zip_longest(one, other)
        yield from (_row(key, *pair) for pair in pairs)


def _row(key: str, left: Unit | None, right: Unit | None) -> dict[str, Any]:
    if left is None or right is None:
        state = RIGHT if left is None else LEFT
    elif left.value == right.value:
        state = EQUAL
    else:
        state = SAME_WORDS if _words(left.value) == _words(right.value) else DIFFERENT
    return {
        "key": key,
        "state": state,
        "left": None if left is None else left.value,
        "right": None if right is None else right.value,
    }


def _words(value: Any) -> tuple[str, ...]:
    """What a unit says, whatever its envelope: its longer texts, or all of them where it has only short ones."""
    leaves = sorted(_leaves(value))
    long = tuple(leaf for leaf in leaves if len(leaf) >= SHORTEST_WORD)
    return long or tuple(leaves)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if value[:1] == "{":  # arguments are an object in one API and its text in another
            try:
                yield from _leaves(decode_json(value))
                return
            except UnreadableData:  # no JSON, or too deep to be arguments
                pass
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name not in ("type", "role", "id", "call_id", "tool_use_id", "cache_control", "status"):
                yield from _leaves(each)


def _common(left: bytes, right: bytes) -> int:
    """How many bytes two bodies begin with alike."""
    return longest(min(len(left), len(right)), lambda first, last: left[first:last] == right[first:last])


def _around(body: bytes, place: int) -> dict[str, str]:
    return {
        "before": body[max(place - 80, 0) : place].decode("utf-8", "replace"),
        "after": body[place : place + 160].decode("utf-8", "replace"),
    }
