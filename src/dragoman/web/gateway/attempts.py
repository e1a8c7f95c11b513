"""Models that were asked for an answer and failed, and which failure a client is told where all of them did."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ...delta import ErrorDelta

if TYPE_CHECKING:
    from ...usage import TokenUsage
    from .upstream import UpstreamAnswer

__all__ = ["TRIED", "Attempt", "most_useful"]

TRIED = "tried"  # in the log and in the metadata of an answer: the models that failed before
LONGEST = 200  # characters of a model's name there


class Attempt(NamedTuple):
    """A model that failed before its first content. `answer` is None where it was not even asked."""

    model: str
    way: str
    asked_at: datetime | None
    error: ErrorDelta
    answer: "UpstreamAnswer | None"

    @property
    def usage(self) -> "TokenUsage | None":
        """What the model reported to have used all the same."""
        return None if self.answer is None else self.answer.assembly.usage

    def facts(self) -> dict[str, str | int]:
        """Return what the log and the record tell of it."""
        usage = self.usage
        used = {} if usage is None else {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        told = {name: tokens for name, tokens in used.items() if tokens is not None}
        return {"model": self.model[:LONGEST], "error": str(self.error.error_code), **told}


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
