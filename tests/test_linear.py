"""Time over text from outside grows with its length and not with the square of it, whatever the text is made of."""

import pytest

from tests.linear import FUNCTIONS, SHAPES, seconds_of

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
