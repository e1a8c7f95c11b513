"""Gists that tools and hosts gave: shown where nothing else is left of their entries."""

import pytest

from dragoman.context import INJECTED_KEY
from dragoman.history import LevelOfDetail, LevelOfDetailSections, ModelInputEntry, Section
from tests.context_cases import Conversation, file_text, ledger_of, shown_lines

GIST = "GIST: twelve rows, all of them paid"


def levels(live: str, gist: str = GIST) -> LevelOfDetailSections:
    return LevelOfDetailSections((Section("", live),), (Section("", live),), (Section("", gist),))


def folded(turns: int = 30) -> Conversation:
    """A conversation that began with results and an input that have gists, long folded."""
    conversation = Conversation(4_000)
    conversation.say("Please rename settle_account.")
    conversation.call(levels("\n".join("ok" for _ in range(40))), name="query")
    for turn in range(turns):
        conversation.call(file_text(f"module{turn}", 20))
        conversation.build()
    return conversation


def test_the_gist_of_a_result_is_shown_where_no_line_of_it_is_left() -> None:
    ledger = ledger_of(folded()).split("\n")
    place = ledger.index(GIST)
    assert ledger[place - 1].endswith(" query")


def test_the_gist_of_an_input_of_the_host_is_shown() -> None:
    conversation = Conversation(4_000)
    conversation.say("Go.")
    conversation.say(
        ModelInputEntry.of("ok\n" * 30 + "ok", sections=levels("ok\n" * 30 + "ok"), metadata={INJECTED_KEY: True})
    )
    for turn in range(30):
        conversation.call(file_text(f"module{turn}", 20))
        conversation.build()
    assert GIST in ledger_of(conversation)


def test_another_process_shows_the_same_gists() -> None:
    conversation = folded()
    built = conversation.build()
    again = conversation.fresh_manager().build_context(conversation.given())
    assert again.messages == built.messages
    assert built.stats.levels[LevelOfDetail.GIST]


def test_gists_stay_when_the_ledger_is_written_anew() -> None:
    conversation = folded()
    for _ in range(3):
        conversation.wait(3_600)
        conversation.build()
        conversation.call(file_text("more", 20))
    assert GIST in ledger_of(conversation)


def test_gists_that_do_not_fit_leave_the_budget_alone() -> None:
    conversation = Conversation(4_000)
    conversation.say("Go.")
    for turn in range(60):
        conversation.call(levels("ok\n" * 100, f"gist {turn}: " + "many words, " * 30))
        assert not conversation.build().stats.over_budget
    shown = list(shown_lines(conversation.build().messages))
    assert not any(line.startswith("gist 0:") for line in shown)
    assert any(line.startswith("gist 4") for line in shown)


@pytest.mark.parametrize("text", ["", "one line"])
def test_a_gist_that_nobody_gave_is_not_shown_apart(text: str) -> None:
    conversation = Conversation(4_000)
    conversation.say("Go.")
    conversation.call(text, name="query")
    for turn in range(30):
        conversation.call(file_text(f"module{turn}", 20))
        conversation.build()
    assert " query\n" not in ledger_of(conversation) or text
