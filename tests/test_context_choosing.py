"""Which lines of a text are kept: single ones, or whole passages of what may be edited next."""

import pytest

from dragoman.context import EstimateCounter
from dragoman.context.choosing import Rates, Shown, choose
from dragoman.context.index import FRESH_TOKENS
from dragoman.context.timeline import Timeline
from dragoman.context.worth import Judge
from tests.context_cases import Conversation, file_text

RATES = Rates(least=0.0, least_name=1.0, name=1.0, request=0.0)


def function(number: int) -> str:
    return f"def parse_header_{number}(frame):\n    # go on\n    if not frame:\n        return None\n    pass_on(frame)"


TEXT = "\n\n".join(map(function, range(12)))
PASSAGES = [set(range(6 * number, 6 * number + 5)) for number in range(12)]


def chosen_lines(later_tokens: int, *, edited: bool = False) -> set[int]:
    """The lines that are kept of a file in few tokens, so many tokens after it was read."""
    conversation = Conversation()
    conversation.say("Find out why parse_header_7 fails.")
    read = conversation.call(TEXT, path="src/wire.py")
    if later_tokens:
        conversation.call(file_text("other", later_tokens // 15), path="src/other.py")
    if edited:
        conversation.call("ok", name="edit_file", path="src/wire.py")
    timeline = Timeline(EstimateCounter(4))
    timeline.extend(conversation.entries)
    index = timeline.indexed()
    number = index.block_at(read.serial, 0)
    candidates = [(number, range(len(index.blocks[number].lines)))]
    zone = choose(index, Judge(index), candidates, Shown(), rates=RATES, room=150)
    return {line for pick in zone.picks for line in pick.lines}


@pytest.mark.parametrize(
    ("later", "edited"), [(0, False), (2 * FRESH_TOKENS, True)], ids=["read of late", "under edit"]
)
def test_what_may_be_edited_next_is_kept_in_whole_passages(later: int, edited: bool) -> None:
    lines = chosen_lines(later, edited=edited)
    assert lines
    assert all(passage <= lines or not passage & lines for passage in PASSAGES)


def test_of_what_is_older_single_lines_are_kept() -> None:
    lines = chosen_lines(2 * FRESH_TOKENS)
    assert any(passage & lines and not passage <= lines for passage in PASSAGES)
