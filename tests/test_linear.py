"""Time over text from outside grows with its length and not with the square of it, whatever the text is made of."""

import pytest

from tests.linear import FUNCTIONS, SHAPES, seconds_of
from tests.linear_events import CASES, FEW, MANY
from tests.linear_events import seconds_of as seconds_of_answer

pytestmark = pytest.mark.slow

SHORT, LONG = 25_000, 200_000
# Eight times the text may take five times eight times as long: the square would be sixty-four times.
MOST_GROWTH = 5 * LONG / SHORT
# Less than this says nothing of a growth.
LEAST_SECONDS = 0.02


def grows_too_fast(function: str, shape: str) -> bool:
    long = seconds_of(function, shape, LONG, tries=2)
    if long < LEAST_SECONDS:
        return False
    return long > MOST_GROWTH * max(seconds_of(function, shape, SHORT, tries=2), LEAST_SECONDS / MOST_GROWTH)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_time_grows_with_the_length_of_the_text(function: str) -> None:
    assert [shape for shape in SHAPES if grows_too_fast(function, shape) and grows_too_fast(function, shape)] == []


def grows_too_fast_by_events(case: str) -> bool:
    """Whether eight times the events take more than two and a half times eight times as long."""
    return seconds_of_answer(case, MANY) > 2.5 * MANY / FEW * seconds_of_answer(case, FEW)


@pytest.mark.parametrize("case", CASES)
def test_the_time_grows_with_the_number_of_events_of_an_answer(case: str) -> None:
    assert not (grows_too_fast_by_events(case) and grows_too_fast_by_events(case))
