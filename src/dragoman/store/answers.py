"""Completes answers that were followed while they came by what the record has of them. Pure.

A reader may miss the last deltas of an answer, or all of them: they vanish when the message is recorded. Here they are
made again from the message.
"""

from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from ..delta import (
    DoneDelta,
    ErrorDelta,
    ImageDelta,
    KnownDelta,
    ProviderItemDelta,
    StartDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallArgsDelta,
    ToolCallEndDelta,
    ToolCallStartDelta,
    UsageDelta,
)
from ..history import InterruptionEntry, ModelOutputEntry
from ..message import FinishReason, Image, Message, MessageMeta, ProviderItem, Text, Thinking, ToolCall
from .positions import OVER, Followed, FollowedDelta, Position

__all__ = ["AnswerDeltas", "AnswerText", "deltas_after"]

RECORDED = "recorded"  # the stream of an answer whose deltas were all made from its message
BETWEEN_ANSWERS = "\n\n"


class AnswerDeltas:
    """Gives every delta of every answer once, in order, whether it was followed or only recorded.

    Feed it what `follow(deltas=True)` yields from a position on. Each answer begins with a StartDelta and ends with a
    DoneDelta. One that broke off has none: the answer after it begins anew. A report of the usage may come twice.
    """

    def __init__(self, position: Position | str | int = 0) -> None:
        self._position = Position.of(position)

    def feed(self, item: Followed) -> list[FollowedDelta]:
        """Return the deltas that an entry or a delta adds, each with the position after it."""
        before, self._position = self._position, item.position
        if isinstance(item, FollowedDelta):
            return [item]
        entry, error = item.entry, None
        if isinstance(entry, ModelOutputEntry):
            (message,) = entry.messages()
        elif isinstance(entry, InterruptionEntry):
            message = entry.partial or Message.assistant()
            error = ErrorDelta(message.run_id, 0, message.timestamp, entry.reason, entry.message)
        else:
            return []
        stream, position, made = before.stream or RECORDED, before, []
        for delta in deltas_after(message, before, error):
            if isinstance(delta, StartDelta):
                position = Position(before.serial)
            numbered = replace(delta, seq=position.index)
            position = position.after_delta(stream, numbered)
            made.append(FollowedDelta(numbered, position))
        if made:  # a reader that has the last one needs the entry no more
            made[-1] = FollowedDelta(made[-1].delta, item.position)
        return made


class AnswerText:
    """The text of all answers, from their deltas. The text of an answer that broke off is replaced by the next.

    An answer that reached its length limit is continued by the next answer of the same run.
    """

    def __init__(self) -> None:
        self._answers: list[list[str]] = []  # each with those that continue it
        self._begin = 0  # of the newest answer, among the pieces of the last list
        self._is_done = True
        self._cut_run: str | None = None  # the run whose newest whole answer reached its length limit

    def feed(self, delta: KnownDelta) -> None:
        """Take the next delta."""
        if isinstance(delta, StartDelta):
            self._start(delta.run_id)
        elif isinstance(delta, TextDelta) and self._answers:
            self._answers[-1].append(delta.text_delta)
        elif isinstance(delta, DoneDelta):
            self._is_done = True
            self._cut_run = (delta.run_id or None) if delta.finish_reason is FinishReason.LENGTH else None

    def _start(self, run_id: str) -> None:
        if not self._is_done:
            del self._answers[-1][self._begin :]
        self._is_done = False
        if self._cut_run != run_id:
            self._answers.append([])
        self._begin = len(self._answers[-1])

    @property
    def text(self) -> str:
        """The text so far. An empty line separates two answers, and nothing an answer from its continuation."""
        return BETWEEN_ANSWERS.join(text for pieces in self._answers if (text := "".join(pieces)))


def deltas_after(message: Message, position: Position, error: ErrorDelta | None = None) -> list[KnownDelta]:
    """Return the deltas of a recorded message that come after a position within it, all with the `seq` 0.

    If the deltas before the position are not the beginning of this message, return the deltas of all of it: the
    StartDelta says so. A message that broke off ends with `error`.
    """
    if not position.stream or not position.index:
        return list(_deltas(message, error))
    rest = _rest(message, position, error)
    return list(_deltas(message, error)) if rest is None else rest


def _rest(message: Message, position: Position, error: ErrorDelta | None) -> list[KnownDelta] | None:
    """The deltas after the position; None if it is not in this message."""
    at, calls, rest = Position(stream=position.stream), 0, list[KnownDelta]()
    is_found = position.size == 0
    for delta in _deltas(message, error):
        before, at = at, at.after_delta(position.stream, delta)
        left = position.size - before.size  # so many characters and parts were read, of this delta and later ones
        if isinstance(delta, ToolCallEndDelta):
            calls += 1
            if calls > position.ended:
                rest.append(delta)
        elif left <= 0:
            rest.append(delta)
        elif at.size > before.size:
            read, unread = _cut(delta, left)
            read_to = before.after_delta(position.stream, read)
            if read_to.size == position.size:
                if read_to.checksum != position.checksum:
                    return None
                is_found = True
            rest += unread
    if not is_found:
        return None
    return [] if position.ended == OVER else [delta for delta in rest if not isinstance(delta, StartDelta)]


def _cut(delta: KnownDelta, size: int) -> tuple[KnownDelta, list[KnownDelta]]:
    """The first so many characters of a delta, and the rest if there is one. Only text can be cut."""
    if isinstance(delta, (TextDelta, ThinkingDelta)) and len(delta.text_delta) > size:
        text = delta.text_delta
        return replace(delta, text_delta=text[:size]), [replace(delta, text_delta=text[size:])]
    if isinstance(delta, ToolCallArgsDelta) and len(delta.args_text_delta) > size:
        text = delta.args_text_delta
        return replace(delta, args_text_delta=text[:size]), [replace(delta, args_text_delta=text[size:])]
    return delta, []


def _deltas(message: Message, error: ErrorDelta | None) -> Iterator[KnownDelta]:
    """The deltas of the whole message: one for each text, three for each call."""
    header = (message.run_id, 0, message.timestamp)
    meta = message.meta or MessageMeta()
    yield StartDelta(*header, meta.model_id or "", meta.request_id or "")
    for index, part in enumerate(message.parts):
        if isinstance(part, (Text, Thinking)):
            # Two texts in a row are two parts.
            number = index if index and type(message.parts[index - 1]) is type(part) else None
            delta_class = TextDelta if isinstance(part, Text) else ThinkingDelta
            yield delta_class(*header, part.text, number, part.provider_data)
        elif isinstance(part, ToolCall):
            yield from _call_deltas(part, header, is_whole=error is None or part.parse_error is None)
        elif isinstance(part, Image):
            yield ImageDelta(*header, part.mime_type, part.data, part.url, part.provider_data)
        elif isinstance(part, ProviderItem):
            yield ProviderItemDelta(*header, part.item_type, part.item, part.text, part.provider_data)
    if meta.usage is not None:
        yield UsageDelta(*header, meta.usage)
    if error is not None:
        yield error
    else:
        yield DoneDelta(*header, meta.finish_reason or FinishReason.OTHER, meta.raw_finish_reason, meta.provider_data)


def _call_deltas(call: ToolCall, header: tuple[str, int, datetime | None], *, is_whole: bool) -> Iterator[KnownDelta]:
    call_id = _wire_id(call)
    yield ToolCallStartDelta(*header, call_id, call.tool_name, call.provider_data)
    if call.raw_args_text:
        yield ToolCallArgsDelta(*header, call_id, call.raw_args_text)
    if is_whole:
        yield ToolCallEndDelta(*header, call_id, parse_error=call.parse_error)


def _wire_id(call: ToolCall) -> str:
    """The id that the call had while it came: the record gives a repeated one another."""
    wire_id = (call.provider_data or {}).get("id")
    return wire_id if isinstance(wire_id, str) and call.tool_call_id.startswith(f"{wire_id}~") else call.tool_call_id
