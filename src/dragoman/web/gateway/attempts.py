"""Models that were asked for an answer and failed, and which failure a client is told where all of them did."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ...delta import ErrorDelta

if TYPE_CHECKING:
    from .upstream import UpstreamAnswer

__all__ = ["Attempt", "most_useful"]


class Attempt(NamedTuple):
    """A model that failed before its first content. `answer` is None where it was not even asked."""

    model: str
    way: str
    asked_at: datetime | None
    error: ErrorDelta
    answer: "UpstreamAnswer | None"


def most_useful(failed: Sequence[Attempt]) -> Attempt:
    """Return the failure that a client can best act on: one after which it may ask again, and that says when.

    What a vendor said counts more than a request that was not sent. Of equal ones the first counts.
    """

    def rank(attempt: Attempt) -> tuple[bool, bool, float]:
        error = attempt.error
        return (
            not error.retryable,
            attempt.answer is None,
            float("inf") if error.retry_after is None else error.retry_after,
        )

    return min(failed, key=rank)
