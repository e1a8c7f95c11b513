"""Every recorded conversation becomes a history, is stored, loaded and exported: equal to what it was.

All of them: `pytest -m slow tests/test_store_conversations.py`. Without the mark it is a fixed sample.
"""

from pathlib import Path

import pytest

from dragoman.interop import append_imported, import_agent_log, read_jsonl, write_jsonl
from dragoman.store import SQLiteStore, open_session
from tests.conversations import needs_conversations, read_records
from tests.history_cases import fresh
from tests.store_cases import with_store


@needs_conversations
@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_a_conversation_comes_back_from_the_store_as_it_was_recorded(every: int, tmp_path: Path) -> None:
    async def keep(store: SQLiteStore) -> int:
        count = 0
        for count, record in enumerate(read_records(every), 1):
            name = f"{record['id']}-{count}"
            state = fresh(session_id=name, widgets=())
            append_imported(state, import_agent_log(record))
            await store.create(name)
            await store.append(name, state.entries, 0)
            loaded = await store.load(name)
            assert loaded == tuple(state.entries), record["id"]
            exported = b"".join(write_jsonl(loaded))
            assert exported == b"".join(write_jsonl(state.entries)), record["id"]
            assert tuple(read_jsonl(exported)) == loaded, record["id"]
            assert (await open_session(store, name)).state.derived == state.derived, record["id"]
            assert (await store.verify(name)).is_sound
        return count

    assert with_store(tmp_path / "s.db", keep) > 400 / every
