"""Recorded conversations, replayed turn by turn through the recorder as each API writes them: one session each.

All of them: `pytest -m slow tests/test_web_recorded_talks.py`. Without the mark it is a fixed sample.
"""

import asyncio
from collections.abc import Sequence

import pytest

from dragoman import Message, ModelConfig, Role
from dragoman.history import ClientRequestEntry
from dragoman.history.exchanges import MAX_BASES, body_of
from dragoman.history.handoff import hand_off
from dragoman.request import ModelRequest
from dragoman.store import MemoryStore, open_session
from dragoman.web.gateway.asked import Asked
from dragoman.web.gateway.recorder import Recorder
from dragoman.wire import find_codec, find_dialect
from tests.conversations import VARIANTS, Record, Target, needs_conversations, read_history, read_records
from tests.read_requests import SERVED_TARGETS, said
from tests.web_cases import PATHS, given, of_body

MESSAGES = 300  # of a conversation; the longest have thousands, and a client sends all of them each time


class Client:
    """A program that has a conversation in one API, and sends all of it each time."""

    def __init__(self, target: Target, record: Record, variant: str) -> None:
        history = read_history(record, variant, target)
        self.dialect = find_dialect(target.provider, target.model)
        self.api = self.dialect.specification
        handed = hand_off(history.messages, history.tools, target=target.invocation, rules=self.dialect.rules)
        self.messages, self.tools, self.system = handed.messages[:MESSAGES], handed.tools, history.system
        self.model = target.model

    def asks(self, messages: Sequence[Message]) -> Asked:
        request = ModelRequest(
            config=ModelConfig(self.model), messages=tuple(messages), tools=self.tools, system=self.system
        )
        body = find_codec(self.api).encode_request(request, self.dialect).body
        return of_body(body, api=self.api, path=PATHS[self.api])


async def replay(client: Client, *, restarts: bool) -> None:
    """Have the whole conversation, and check that it is one session that says the same."""
    store = MemoryStore()
    recorder = Recorder(store)
    bodies = []
    messages = client.messages
    for index, message in enumerate(messages):
        if message.role is not Role.ASSISTANT or not index:
            continue
        asked = client.asks(messages[:index])
        bodies.append(asked.body)
        turn = await recorder.begin(asked)
        assert not turn.fault, turn.fault
        assert asked.read is not None
        assert len(turn.messages) == len(asked.read.request.messages)
        await turn.end(given(message))
        assert not turn.fault, turn.fault
        if restarts and len(bodies) % 5 == 0:
            recorder = Recorder(store)
    found = (await store.list()).sessions
    assert len(found) == 1, [info.session_id for info in found]
    session = await open_session(store, found[0].session_id)
    last = max(index for index, message in enumerate(messages) if message.role is Role.ASSISTANT)
    assert _plain(session.messages, client.api) == _plain(messages[: last + 1], client.api)
    requests = [entry for entry in session.entries if isinstance(entry, ClientRequestEntry)]
    assert [body_of(session.entries.__getitem__, entry).encode() for entry in requests] == bodies
    assert (await store.verify(session.session_id)).is_sound
    kept, whole = sum(len(entry.text) for entry in requests), 1 + len(bodies) // MAX_BASES
    assert kept < (whole + 2) * len(bodies[-1]) + 2_000 * len(bodies)
    await store.close()


def _plain(messages: Sequence[Message], api: str) -> list[tuple[object, ...]]:
    """What was said, without the ids of calls: an id that a model used twice is another in the record."""
    return [entry[:1] + entry[2:] if entry[0] in ("call", "result") else entry for entry in said(messages, api)]


ALL = [(target, variant) for target in SERVED_TARGETS for variant in VARIANTS]
SAMPLE = [*zip(SERVED_TARGETS, ("unmarked", "native", "hard", "unmarked"), strict=True), ("anthropic", "native")]


@needs_conversations
@pytest.mark.parametrize(
    ("target", "variant", "every"),
    [(*pair, 250) for pair in SAMPLE] + [pytest.param(*pair, 8, marks=pytest.mark.slow) for pair in ALL],
)
def test_a_recorded_conversation_becomes_one_session(target: str, variant: str, every: int) -> None:
    count = 0
    for record in read_records(every):
        client = Client(SERVED_TARGETS[target], record, variant)
        try:
            asyncio.run(replay(client, restarts=bool(count % 2)))
        except Exception as error:
            raise AssertionError(f"{record['id']}: {error}") from error
        count += 1
    assert count > 1
