"""The cause of a cache miss on a sample of planted breaks, and none where nothing broke; the rest by single cases."""

import pytest

from tests.cache_causes import planted_breaks, unbroken_calls
from tests.conversations import needs_conversations


@needs_conversations
def test_planted_breaks_are_told_by_their_cause() -> None:
    outcomes = list(planted_breaks(4))
    assert len(outcomes) == 28
    assert [
        (outcome.name, outcome.found.sentence) for outcome in outcomes if outcome.found.cause != outcome.planted
    ] == []
    assert [outcome.name for outcome in outcomes if outcome.false_alarms or outcome.inexact] == []


@needs_conversations
@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_calls_without_a_break_are_no_misses(count: int) -> None:
    calls = list(unbroken_calls(count))
    assert [call.sentence for call in calls if call.is_miss] == []
    assert len(calls) >= count
    assert all(call.is_exact for call in calls)
