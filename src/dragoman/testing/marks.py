"""What every session store promises of marks, the words by which entries are found: a part of `stores`."""

import asyncio

from msgspec.structs import replace

from ..errors import StoreError
from ..history import ClientAnswerEntry, ClientRequestEntry, HistoryEntry
from ..store import AppendConflict, Mark, SessionStore
from .storecases import BEGINNING, PICTURE, append_all, raised, sample_entries

__all__ = ["MARK_CHECKS", "SHARED_MARK_CHECKS"]

EACH = 50  # marks of one word that a store gives


async def check_entries_are_found_by_their_marks(store: SessionStore) -> None:
    """`find_marks` gives every entry that has one of the words, in the order in which they were appended."""
    for name in ("found-1", "found-2"):
        await store.create(name)
    await store.append("found-2", [_asked("found-2", 0, "w:a", "w:b")], 0)
    await store.append("found-1", [_asked("found-1", 0, "w:b"), _answered("found-1", 1, "w:a", "w:日本")], 0)
    await store.append("found-2", [_answered("found-2", 1)], 1)
    await store.append("found-2", [_asked("found-2", 2, "w:a")], 2)
    assert await store.find_marks(["w:a"]) == _marks("w:a found-2 0", "w:a found-1 1", "w:a found-2 2")
    assert await store.find_marks(["w:日本", "w:b"]) == _marks("w:b found-2 0", "w:b found-1 0", "w:日本 found-1 1")
    assert await store.find_marks(("w:b", "w:none", "w:b")) == _marks("w:b found-2 0", "w:b found-1 0")
    for words in ([], ["w:"], ["W:A"], ["w:a "], [""], ["\0"], ["\ud800"], ["w:a" * 1_000]):
        assert await store.find_marks(words) == ()
    many = [f"w:{number}" for number in range(999)]
    assert await store.find_marks([*many, "w:日本"]) == _marks("w:日本 found-1 1")


async def check_the_newest_marks_of_a_word_are_found(store: SessionStore) -> None:
    """Of a word that many entries have, the newest are found, and they hide no other word."""
    await store.create("frequent")
    count = EACH + 3
    words = ("w:first", *["w:later"] * (count - 1))
    entries = [_asked("frequent", serial, "w:often", word) for serial, word in enumerate(words)]
    await store.append("frequent", entries, 0)
    found = await store.find_marks(["w:first", "w:often"])
    assert found == (Mark("w:first", "frequent", 0), *(Mark("w:often", "frequent", at) for at in range(3, count)))


async def check_only_what_is_appended_is_marked(store: SessionStore) -> None:
    """A refused append leaves no marks, and a repeated one does not leave them twice."""
    await store.create("marked")
    first = _asked("marked", 0, "w:kept")
    await store.append("marked", [first], 0)
    await store.append("marked", [first], 0)
    await raised(AppendConflict, store.append("marked", [_asked("marked", 0, "w:refused")], 0))
    await raised(AppendConflict, store.append("marked", [_asked("marked", 5, "w:refused")], 5))
    await raised(StoreError, store.append("nowhere", [_asked("nowhere", 0, "w:refused")], 0))
    assert await store.find_marks(["w:kept", "w:refused"]) == _marks("w:kept marked 0")


async def check_a_fork_does_not_repeat_marks(store: SessionStore) -> None:
    """Marks name the session that an entry was appended to; a fork has those of its own entries alone."""
    await store.create("stem")
    await store.append("stem", [_asked("stem", 0, "w:shared"), _answered("stem", 1, "w:shared")], 0)
    await store.fork("stem", 0, new_session_id="offshoot")
    await store.append("offshoot", [_answered("offshoot", 1, "w:shared")], 1)
    expected = _marks("w:shared stem 0", "w:shared stem 1", "w:shared offshoot 1")
    assert await store.find_marks(["w:shared"]) == expected


async def check_erased_marks_are_not_found(store: SessionStore) -> None:
    """The marks of an erased session go with it, and with its forks those of the forks; the others stay."""
    for name in ("erased", "spared"):
        await store.create(name)
        await store.append(name, [_asked(name, 0, "w:both", f"w:{name}")], 0)
    await store.fork("erased", 0, new_session_id="erased-too")
    await store.append("erased-too", [_answered("erased-too", 1, "w:both")], 1)
    await store.erase("erased", forks=["erased-too"])
    assert await store.find_marks(["w:both", "w:erased", "w:spared"]) == _marks("w:both spared 0", "w:spared spared 0")


async def check_client_exchanges_are_loaded(store: SessionStore) -> None:
    """Requests and answers of clients come back equal, long ones too, and may stand anywhere."""
    entries: list[HistoryEntry] = [*sample_entries("exchanged", 4)]
    request = _asked("exchanged", 4, "w:loaded")
    entries.append(replace(request, text='{"messages": ["日本語 \\u0000 \\" "]}' * 500))
    answer = _answered("exchanged", 5)
    entries.append(replace(answer, packed=ClientAnswerEntry.of(4, 200, PICTURE).packed, is_whole=False))
    entries.append(replace(_asked("exchanged", 6), base_serial=4, prefix=12, suffix=3))
    await store.create("exchanged")
    await append_all(store, "exchanged", entries)
    loaded = await store.load("exchanged")
    assert loaded == tuple(entries)
    assert isinstance(loaded[5], ClientAnswerEntry)
    assert loaded[5].body == PICTURE
    assert (await store.verify("exchanged")).is_sound


async def check_two_stores_find_the_same_marks(first: SessionStore, second: SessionStore) -> None:
    """What one store appends, the other finds at once; a writer that lost a serial leaves no marks."""
    await first.create("contested")
    rivals = [(store, _asked("contested", 0, f"w:rival-{at}")) for at, store in enumerate((first, second) * 4)]
    calls = (store.append("contested", [entry], 0) for store, entry in rivals)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    (won,) = (at for at, outcome in enumerate(outcomes) if not isinstance(outcome, AppendConflict))
    for store in (first, second):
        found = await store.find_marks([f"w:rival-{at}" for at in range(len(rivals))])
        assert found == (Mark(f"w:rival-{won}", "contested", 0),)
    await second.erase("contested")
    assert await first.find_marks([f"w:rival-{won}"]) == ()


def _asked(session_id: str, serial: int, *marks: str) -> ClientRequestEntry:
    request = ClientRequestEntry("openai-chat", "/v1/chat/completions", "model", "{}", marks=marks)
    return replace(request, serial=serial, entry_id=f"{session_id}:{serial}", timestamp=BEGINNING)


def _answered(session_id: str, serial: int, *marks: str) -> ClientAnswerEntry:
    answer = ClientAnswerEntry.of(0, 200, b"data: {}\n\n", marks=marks)
    return replace(answer, serial=serial, entry_id=f"{session_id}:{serial}", timestamp=BEGINNING)


def _marks(*found: str) -> tuple[Mark, ...]:
    rows = (each.split(" ") for each in found)
    return tuple(Mark(word, session_id, int(serial)) for word, session_id, serial in rows)


MARK_CHECKS = (
    check_entries_are_found_by_their_marks,
    check_the_newest_marks_of_a_word_are_found,
    check_only_what_is_appended_is_marked,
    check_a_fork_does_not_repeat_marks,
    check_erased_marks_are_not_found,
    check_client_exchanges_are_loaded,
)
SHARED_MARK_CHECKS = (check_two_stores_find_the_same_marks,)
