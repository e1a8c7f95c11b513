"""Recorded exchanges through the gateway; `tests.served_exchanges` runs all of them."""

import asyncio

import pytest

from tests.corpus import needs_corpus
from tests.served_exchanges import run


@needs_corpus
@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_a_recorded_answer_says_the_same_through_every_front_and_no_cut_one_finishes(every: int) -> None:
    counts = asyncio.run(run(every))
    assert {what for what in counts if what.endswith("WRONG")} == set()
    assert sum(counts.values()) > 10_000 // every
