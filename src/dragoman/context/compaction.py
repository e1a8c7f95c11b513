"""What to fold and what to ask a model about it: plans, as values. Asking is the loop's business.

The extractive way needs no plan: a projection's epochs choose lines by themselves. A compactor is for those who want a
model's own summary of what is folded; its answer becomes a compaction entry, which the ledger then begins with.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from .._fieldtypes import require_field_types
from ..errors import InvalidValue
from ..history import CompactionEntry
from ..message import FinishReason, Message
from .projection import Projection
from .timeline import Timeline, Unit

__all__ = ["CompactionRequest", "Compactor", "ModelCompactor", "compaction_entry"]

SUMMARY_PROMPT = """\
Summarise the conversation so far for the one who carries it on. Keep every request of the user and what came of it, \
decisions and their reasons, the exact names of files, functions, ids and commands that matter, what was tried and \
failed, and what is to be done next. Do not invent anything. Do not continue the conversation."""


class CompactionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A summary to be asked for: what is covered, and the messages of the call that asks."""

    first_serial: int
    last_serial: int
    messages: tuple[Message, ...]
    system: str | None = None
    max_tokens: int = 2_000


class Compactor(Protocol):
    """Says what of a conversation shall be summarised. Pure."""

    def plan(self, units: Sequence[Unit], *, system: str | None, budget: int) -> CompactionRequest | None:
        """Return what to ask, or None to leave it to the extractive ledger.

        The units are those after the ledger, as the model is shown them. The ledger is put in front of what is asked.
        """
        ...


class ModelCompactor(msgspec.Struct, frozen=True):
    """Asks for one summary of everything but the newest units, which fill `kept_share` of the budget."""

    prompt: str = SUMMARY_PROMPT
    kept_share: float = 0.25
    max_tokens: int = 2_000

    def __post_init__(self) -> None:
        require_field_types(self)
        if not 0 < self.kept_share < 1:
            raise InvalidValue.of("keptShare", self.kept_share, "a number between 0 and 1")

    def plan(self, units: Sequence[Unit], *, system: str | None, budget: int) -> CompactionRequest | None:
        """Return the request, or None where there is nothing before the newest units."""
        kept, size = len(units), 0
        while kept > 0 and (kept == len(units) or size + units[kept - 1].tokens <= self.kept_share * budget):
            kept -= 1
            size += units[kept].tokens
        if kept == 0:
            return None
        messages = [message for unit in units[:kept] for message in unit.messages]
        return CompactionRequest(
            first_serial=units[0].serial,
            last_serial=units[kept - 1].entries[-1].serial,
            messages=(*messages, Message.user(self.prompt)),
            system=system,
            max_tokens=self.max_tokens,
        )


def compaction_entry(request: CompactionRequest, answer: Message) -> CompactionEntry:
    """Return the entry that a model's answer to the request becomes.

    Raises InvalidValue for an answer without text, and for one that is not whole.
    """
    reason = answer.meta.finish_reason if answer.meta is not None else None
    if reason not in (None, FinishReason.STOP):
        raise InvalidValue(f"the answer to a compaction request ended with {reason}: what it says is no whole summary")
    if not answer.text.strip():
        raise InvalidValue("the answer to a compaction request has no text: ask again, or go on without")
    meta = answer.meta
    return CompactionEntry(
        request.first_serial,
        request.last_serial,
        answer.text,
        invocation=meta.invocation if meta else None,
        usage=meta.usage if meta else None,
    )


def plan_compaction(
    compactor: Compactor, timeline: Timeline, projection: Projection, budget: int
) -> CompactionRequest | None:
    """Return a request for a summary of what the model was shown, or None where the ledger has to do.

    It is no longer than a request may be: what earlier epochs folded stands in it as the ledger has it.
    """
    request = compactor.plan(projection.live_units(timeline), system=timeline.instruction, budget=budget)
    covered = timeline.compaction
    if request is None or (covered is not None and request.last_serial <= covered.last_serial):
        return None
    told = projection.folded_messages
    if told:
        # The ledger is of everything from the first unit on, and so is a summary of it.
        first_serial = min(timeline.serials[0], request.first_serial)
        request = msgspec.structs.replace(request, first_serial=first_serial, messages=(*told, *request.messages))
    return request if sum(map(timeline.count, request.messages)) <= budget else None
