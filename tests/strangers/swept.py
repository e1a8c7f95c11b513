"""Answers changed one place at a time: every field of every event with every type of JSON, in every state.

`mutated` changes at random; here nothing is left out. `python -m tests.strangers.swept` reads each of the written
answers of `tests.wire_streams` with one value changed, and with each of its events also where another block is open.
"""

import copy
import json
import sys
from collections.abc import Iterator
from typing import Any

from tests.strangers.mutated import Fault, _is_framed, _parsed, _places, _with_data, require_legal_end
from tests.wire_streams import BODIES, STREAMS, WireStream, read_event, write_event

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**30, "", "x", "1" * 5_000, "\ud800", [], [1], [None], {}, {"a": 1}, [{}], ["x"],
)  # fmt: skip
_INDEXES = ("index", "contentBlockIndex", "output_index", "item_id")


def changed_fields(stream: WireStream) -> Iterator[list[bytes]]:
    """Yield the answer with one value changed, for each place and each type."""
    for at, event in enumerate(stream.events):
        value = _value(stream, event)
        count = 0 if value is None else len(list(_places({"value": value})))
        for number in range(count):
            for other in _VALUES:
                holder = copy.deepcopy({"value": value})
                inside, key = list(_places(holder))[number]
                if type(inside[key]) is not type(other) or inside[key] != other:
                    inside[key] = other
                    yield _with_data(stream, at, json.dumps(holder["value"]).encode())


def moved_events(stream: WireStream) -> Iterator[list[bytes]]:
    """Yield the answer with each event once more behind each other one, alone or with its fields, for that one's block.

    So each kind of event meets each state: an open text, thinking, call or result, and none.
    """
    values = [_value(stream, event) for event in stream.events]
    kinds = {json.dumps(_shape(value)): value for value in values if isinstance(value, dict)}
    for at, event in enumerate(stream.events):
        here = _value(stream, event)
        if not isinstance(here, dict):
            continue
        for value in kinds.values():
            twin = next(event for event in stream.events if _value(stream, event) == value)
            indexes = {name: here[name] for name in _INDEXES if name in here}
            for moved in ({**value, **indexes}, _joined(here, value), _joined(here, value, as_null=True)):
                for like in (event, twin) if read_event(event)[0] != read_event(twin)[0] else (twin,):
                    written = write_event(like, json.dumps(moved).encode())
                    yield [*stream.events[: at + 1], written, *stream.events[at + 1 :]]


def _value(stream: WireStream, event: bytes) -> Any:
    return read_event(event)[1] if _is_framed(stream) else _parsed(event)


def _shape(value: Any) -> Any:
    """What kind of event this is: its fields and its types, without the values."""
    if isinstance(value, dict):
        return {key: value[key] if key == "type" else _shape(value[key]) for key in sorted(value)}
    return [_shape(value[0])] if isinstance(value, list) and value else type(value).__name__


def _joined(one: Any, other: Any, *, as_null: bool = False) -> Any:
    """One event with the fields of another where it has none, inside its objects too."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one
    further = {key: None if as_null else other[key] for key in other if key not in one}
    return {**further, **{key: _joined(one[key], other.get(key), as_null=as_null) for key in one}}


def faults() -> Iterator[str]:
    """Yield what broke a promise, each kind of fault of each answer once."""
    for stream in (*STREAMS, *BODIES):
        seen: set[str] = set()
        sweeps = (changed_fields, moved_events) if _is_framed(stream) else (changed_fields,)
        for sweep in sweeps:
            for events in sweep(stream):
                try:
                    require_legal_end(stream, events)
                except Fault as fault:
                    if str(fault) not in seen:
                        seen.add(str(fault))
                        yield f"{stream.name}, {sweep.__name__}: {fault}"


def main() -> int:
    """Print each fault; the exit status is 1 where there is one."""
    found = 0
    for fault in faults():
        print(fault, flush=True)
        found += 1
    print(f"{found} kinds of faults")
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
